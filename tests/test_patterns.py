"""Test that regular expressions behave the same in every supported version of Python."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from tracesite_sdk.redaction.prefilter import filter_of
from tracesite_sdk.redaction.rules import DEFAULT_RULES

APPS = ("tracesite_sdk", "access_app", "messages_app", "traces_app", "tracesite")

# Left out, because the first sets up its process when imported, and the second needs a package that is not installed.
NOT_IMPORTED = {"tracesite.wsgi", "tracesite_sdk.openai_agents"}


def patterns_in(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each compiled pattern in a value, and its source."""
    if isinstance(value, re.Pattern):
        yield path, str(value.pattern)
    elif isinstance(value, (tuple, list, set, frozenset)):
        for item in value:
            yield from patterns_in(item, path)
    elif isinstance(value, dict):
        for item in value.values():
            yield from patterns_in(item, path)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from patterns_in(getattr(value, field.name), f"{path}.{field.name}")


def patterns_of(app: str) -> list[tuple[str, str]]:
    package = importlib.import_module(app)
    names = [found.name for found in pkgutil.walk_packages(package.__path__, prefix=f"{app}.")]
    return [
        pattern
        for name in names
        if name not in NOT_IMPORTED and not name.endswith(".__main__")
        for variable, value in vars(importlib.import_module(name)).items()
        for pattern in patterns_in(value, f"{name}.{variable}")
    ]


def gives_nothing_back(source: str) -> bool:
    """Return whether a pattern has a possessive quantifier or an atomic group."""
    plain = re.sub(r"\\.", "e", source, flags=re.DOTALL)
    plain = re.sub(r"\[\^?\]?[^\]]*\]", "c", plain)
    return re.search(r"[*+?}]\+|\(\?>", plain) is not None


@pytest.mark.parametrize("source", ["a*+", "a++", "(?:a|b)?+", r"\\{0,64}+", r"[\]+]++x", "(?>a|b)"])
def test_possessive_quantifiers_and_atomic_groups_are_recognised(source: str) -> None:
    assert gives_nothing_back(source)


@pytest.mark.parametrize("source", ["a+", "a+?", r"a\++", r"a*\+", "[*+?+]", "[]*+]+", "(?:a+)+", r"\}+", "(?=a)(?!b)"])
def test_other_patterns_are_not_recognised(source: str) -> None:
    assert not gives_nothing_back(source)


@pytest.mark.parametrize("app", APPS)
def test_no_pattern_has_possessive_quantifiers_or_atomic_groups(app: str) -> None:
    """Python 3.11.0 to 3.11.4, including Debian 12's, match them incorrectly: python/cpython#106052.

    There, redaction stored `password=hunter2` as `password=[redacted]2`.
    """
    assert [pattern for pattern in patterns_of(app) if gives_nothing_back(pattern[1])] == []


def test_redaction_patterns_are_checked() -> None:
    sources = {source for _path, source in patterns_of("tracesite_sdk")}

    assert {shape.pattern.pattern for shape in DEFAULT_RULES.shapes} <= sources
    assert len(sources) > 40
    assert not gives_nothing_back(DEFAULT_RULES.words.pattern)


def test_derived_redaction_patterns_backtrack() -> None:
    derived = list(patterns_in(filter_of(DEFAULT_RULES), "filter"))

    assert len(derived) > 12
    assert [pattern for pattern in derived if gives_nothing_back(pattern[1])] == []

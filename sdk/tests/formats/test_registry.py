"""The registry of formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sdk.tests.paths import ROOT
from tracesite_sdk.formats import registry

from .reading import lines


def test_registry_has_every_format_once() -> None:
    modules = {path.stem for path in Path(registry.__file__).parent.glob("*.py")} - {"__init__", "registry"}
    expected = sorted(["tracesite_sdk.eko.transcripts", *(f"tracesite_sdk.formats.{module}" for module in modules)])
    registered = [format_.__name__ for format_ in registry.FORMATS]  # type: ignore[attr-defined]
    assert set(expected) - set(registered) == set(), (
        "Import these modules in registry.py, and give them a place in FORMATS."
    )
    assert sorted(registered) == expected
    untested = [module for module in modules if not (Path(__file__).parent / f"test_{module}.py").exists()]
    assert untested == [], "Each format has its tests beside this file."


WRITTEN_ONCE = {"langsmith", "otlp", "own_export", "toolbench"}
"""Formats of files that nobody goes on writing."""


def test_each_format_is_tried_with_broken_and_growing_documents() -> None:
    tests = {path.stem.removeprefix("test_"): path.read_text() for path in Path(__file__).parent.glob("test_*.py")}
    imported = (ROOT / "tests/traces_app/imports/test_import_growth.py").read_text()
    del tests["registry"], tests["recognisers"]
    assert [name for name, text in tests.items() if "mangled" not in text] == []
    growing = {name for name, text in tests.items() if "assert_grows(" in text or f"test_{name}" in imported}
    assert tests.keys() - growing == WRITTEN_ONCE, (
        "Use assert_grows, and for one JSON value that grows a line in test_import_growth.py."
    )


OTHERS: dict[str, Any] = {
    "a history in an object": {"history": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
    "Cursor's stream": lines(
        [
            {"type": "system", "subtype": "init", "session_id": "c1"},
            {"type": "user", "message": {"role": "user", "content": "Hi"}, "session_id": "c1"},
            {"type": "tool_call", "subtype": "started", "call_id": "t", "tool_call": {"read": {}}, "session_id": "c1"},
        ]
    ),
    "authors": lines([{"id": "e", "author": "user", "content": {"role": "user", "parts": [{"text": "Hi"}]}}]),
    "Cline's page": [{"ts": 1, "type": "say", "say": "text", "text": "Hi"}],
    "a log": lines([{"type": "system", "message": "up", "timestamp": "2026-03-01T12:00:00Z", "sessionId": "s"}]),
    "people": [{"role": "user", "name": "Ada", "content": "bio"}, {"role": "admin", "name": "Bo", "content": "bio"}],
    "edges of a graph": [{"from": "user", "value": 3}, {"from": "system", "value": 4}],
    "GitHub events": [{"type": "PushEvent", "id": "1", "payload": {"push_id": 1}, "created_at": "2026-03-01"}],
    "Kubernetes": {"kind": "List", "items": [{"kind": "Event", "type": "Normal", "message": "up"}]},
    "a notebook": {"cells": [{"cell_type": "code", "source": ["1"], "outputs": []}], "metadata": {}, "nbformat": 4},
}


@pytest.mark.parametrize("name", OTHERS)
def test_documents_of_other_systems_are_not_taken(name: str) -> None:
    found = registry.format_of(OTHERS[name])
    assert found is None


def test_registry_names_are_unique() -> None:
    assert len({format_.NAME for format_ in registry.FORMATS}) == len(registry.FORMATS)

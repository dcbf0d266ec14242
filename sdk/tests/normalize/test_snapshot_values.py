"""Test the redaction of snapshots: functions of rules get whole paths."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from sdk.tests.normalize.snapshot_positions import LONG, WIDE, encoded
from tracesite_sdk.normalize.snapshot_values import redact_parts
from tracesite_sdk.redaction.rules import DEFAULT_RULES, FunctionRule


def test_functions_get_the_path_of_the_whole_context() -> None:
    paths = []

    def note(path: str, value: Any) -> Any:
        paths.append(path)
        return value

    rules = replace(DEFAULT_RULES, functions=(FunctionRule("note", note),))
    context = {"l": [f"{number} {LONG}" for number in range(3)], "d": {"inner": {"a.b": 1, **WIDE}}, "t": (1, {2: "x"})}
    sent = encoded(context)
    redact_parts({ref: msgspec.Raw(content) for ref, content in sent.parts.items()}, sent.ref, rules)
    inner = [f"d.inner.{name}" for name in ("a.b", *WIDE)]
    assert sorted(paths) == sorted(["l[0]", "l[1]", "l[2]", *inner, "t[0]", "t[1].0", "t[1].0"])

"""Every event type is declared once, and everything that depends on types covers all of them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest

from sdk.tests.paths import ROOT
from tracesite_sdk.events.projection import EventFact, about, run_state, subject_of
from tracesite_sdk.records import ToolCall, text_fields
from tracesite_sdk.records.event_types import EVENT_TYPES, EventSpec, EventType, check

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
EVERY_TYPE = pytest.mark.parametrize("type_", get_args(EventType))


@EVERY_TYPE
def test_subject_of_every_type_is_the_declared_one(type_: EventType) -> None:
    subject = subject_of(type_, "a", "e1", {"call_id": "c1", "step": "s1"})
    declared = EVENT_TYPES[type_].subject
    assert (about(subject) if subject else "nothing") == declared


@EVERY_TYPE
def test_run_state_folds_every_type(type_: EventType) -> None:
    said = EventFact(
        order=1, external_id="e1", type=type_, agent="a", subject="run", timestamp=NOON, data={"title": "T"}
    )
    state = run_state([said])
    changed = {"plan": state.title == "T", "run": state.title == "T", "agent": "a" in state.agents, None: True}
    assert changed[EVENT_TYPES[type_].fold]


@EVERY_TYPE
def test_level_of_failed_event_types_is_error(type_: EventType) -> None:
    spec = EVENT_TYPES[type_]
    assert (spec.level == "error") is (spec.stage == "error") is type_.endswith("_error")


@EVERY_TYPE
def test_documentation_describes_every_type(type_: EventType) -> None:
    assert f"`{type_}`" in (ROOT / "docs/events.md").read_text()


def test_type_that_is_named_and_not_declared_is_refused() -> None:
    with pytest.raises(TypeError, match="agent_handoff"):
        check((*get_args(EventType), "agent_handoff"), EVENT_TYPES)


def test_type_that_is_declared_and_not_named_is_refused() -> None:
    with pytest.raises(TypeError, match="prompt_build"):
        check(tuple(name for name in EVENT_TYPES if name != "prompt_build"), EVENT_TYPES)


def test_type_about_the_run_without_a_fold_is_refused() -> None:
    half = EventSpec("run", "start", None, "execution", "info")
    with pytest.raises(TypeError, match="agent_start"):
        check(get_args(EventType), EVENT_TYPES | {"agent_start": half})


def test_text_fields_of_call_are_free_texts_only() -> None:
    assert text_fields(ToolCall) == ("reflection",)

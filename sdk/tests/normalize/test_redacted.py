"""Redaction of records: all fields that may hold a secret are searched, and receipts have the path."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise, normalise_patch
from tracesite_sdk.normalize.redacted import redact, redact_message_patch, searched_fields
from tracesite_sdk.redaction.rules import DEFAULT_RULES

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "hunter2-in-clear"
PLANTED = {"password": SECRET}
TEXT = f'{{"password": "{SECRET}"}}'


def planted() -> dict[str, Any]:
    """Build a session with a secret in each field of free text or JSON."""
    result = {
        "output": TEXT,
        "data": PLANTED,
        "error": TEXT,
        "metadata": PLANTED,
        "attachments": [PLANTED],
        "raw": TEXT,
    }
    call = {"name": "login", "args": PLANTED, "reflection": TEXT, "metadata": PLANTED, "result": result}
    step = {"thought": TEXT, "reasoning_content": TEXT, "metadata": PLANTED, "usage": PLANTED, "tool_calls": [call]}
    reference = {
        "content": TEXT,
        "knowledge_title": TEXT,
        "knowledge_filename": TEXT,
        "knowledge_source": f"https://ada:{SECRET}@example.com/x",
        "image_info": TEXT,
        "metadata": PLANTED,
    }
    message = {
        "role": "assistant",
        "content": TEXT,
        "content_parts": [PLANTED],
        "error": TEXT,
        "metadata": PLANTED,
        "usage": PLANTED,
        "agent_steps": [step],
        "knowledge_references": [reference],
    }
    return {
        "title": TEXT,
        "description": TEXT,
        "workflow": PLANTED,
        "metadata": PLANTED,
        "current_phase": TEXT,
        "tags": ["eu", TEXT],
        "messages": [message],
    }


def test_secrets_in_all_fields_are_redacted() -> None:
    session = msgspec.convert(planted(), records.Session)
    clean = redact(session, DEFAULT_RULES)
    assert SECRET in msgspec.json.encode(session).decode()
    assert SECRET not in msgspec.json.encode(clean.session).decode()
    assert [receipt.path for receipt in clean.receipts] == [
        "title",
        "description",
        "current_phase",
        "workflow.password",
        "tags[1]",
        "metadata.password",
    ]
    (receipts,) = clean.message_receipts
    assert "agent_steps[0].tool_calls[0].result.data.password" in [receipt.path for receipt in receipts]
    assert len(receipts) == 6 - 1 + 6 + 4 + 3 + 6


def test_planted_session_covers_every_searched_field() -> None:
    document = planted()
    message = document["messages"][0]
    step = message["agent_steps"][0]
    planted_fields = {
        records.Session: document,
        records.Message: message,
        records.Reference: message["knowledge_references"][0],
        records.AgentStep: step,
        records.ToolCall: step["tool_calls"][0],
        records.ToolResult: step["tool_calls"][0]["result"],
    }
    for type_, searched in searched_fields(list(planted_fields)).items():
        assert set(searched) <= planted_fields[type_].keys(), type_


def test_searched_fields_of_records_are_the_documented_ones() -> None:
    """The lists are explicit, so that no field moves by accident."""
    expected = {
        records.Session: {"title", "description", "workflow", "metadata", "current_phase", "tags"},
        records.SessionPatch: {"title", "description", "workflow", "metadata", "current_phase", "tags"},
        records.Message: {"content", "content_parts", "error", "metadata", "usage"},
        records.MessagePatch: {"content", "content_parts", "error", "metadata", "usage"},
        records.Reference: {
            *("content", "knowledge_title", "knowledge_filename", "knowledge_source", "image_info", "metadata"),
        },
        records.AgentStep: {"thought", "reasoning_content", "metadata", "usage"},
        records.ToolCall: {"args", "reflection", "metadata"},
        records.Event: {"data"},
        records.ToolResult: {"output", "data", "error", "metadata", "attachments", "raw"},
    }
    assert {type_: set(fields) for type_, fields in searched_fields(list(expected)).items()} == expected


def test_unclassified_field_that_can_hold_text_is_refused() -> None:
    for type_ in (str, str | None, list[str], dict[str, Any], Any, str | msgspec.UnsetType):
        record = msgspec.defstruct("Note", [("note", type_)], bases=(records.Record,), frozen=True, kw_only=True)
        with pytest.raises(TypeError, match="note"):
            searched_fields([record])


def test_field_that_cannot_hold_text_needs_no_classification() -> None:
    for type_ in (int, float | None, Decimal | None, bool, datetime, records.Role, list[records.Message] | None):
        record = msgspec.defstruct("Note", [("note", type_)], bases=(records.Record,), frozen=True, kw_only=True)
        assert searched_fields([record]) == {record: ()}


def test_clean_records_are_returned_unchanged() -> None:
    session = msgspec.convert({"messages": [{"role": "user", "content": "hello"}]}, records.Session)
    clean = redact(session, DEFAULT_RULES)
    assert (clean.session, clean.receipts, clean.message_receipts) == (session, [], [[]])


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("as_blocks", [False, True])
def test_secret_in_any_encoding_of_a_result_is_redacted(times: int, as_blocks: bool) -> None:
    text = msgspec.json.encode({"success": True, "data": PLANTED}).decode() if times else repr({"data": PLANTED})
    for _time in range(times):
        text = msgspec.json.encode(text).decode()
    said = [{"type": "text", "text": text}] if as_blocks else text
    steps = [{"tool_calls": [{"name": "login", "result": said}]}]
    patch = msgspec.convert({"agent_steps": steps}, records.MessagePatch)
    assert SECRET.encode() not in msgspec.json.encode(redact_message_patch(normalise_patch(patch), DEFAULT_RULES).patch)
    session = msgspec.convert({"messages": [{"role": "assistant", "agent_steps": steps}]}, records.Session)
    assert SECRET.encode() not in msgspec.json.encode(redact(normalise(session, now=NOON), DEFAULT_RULES).session)

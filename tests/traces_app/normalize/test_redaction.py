"""Every field of a record that can hold a secret is searched, and the receipt says where it was."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from traces_app.ingest import decode
from traces_app.normalize.records import normalise, normalise_patch
from traces_app.normalize.redaction import redact, redact_message_patch, redact_session_patch
from traces_app.schema import records

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECRET = "hunter2-in-clear"
PLANTED = {"password": SECRET}
TEXT = f'{{"password": "{SECRET}"}}'


def planted() -> dict[str, Any]:
    """A session with a secret in every field that is free text or free JSON."""
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


def test_no_secret_survives_in_any_field() -> None:
    session = msgspec.convert(planted(), records.Session)
    clean = redact(session)
    assert SECRET in msgspec.json.encode(session).decode()
    assert SECRET not in msgspec.json.encode(clean.session).decode()
    assert [receipt.path for receipt in clean.receipts] == [
        "title",
        "description",
        "workflow.password",
        "metadata.password",
        "current_phase",
        "tags[1]",
    ]
    (receipts,) = clean.message_receipts
    assert "agent_steps[0].tool_calls[0].result.data.password" in [receipt.path for receipt in receipts]
    assert len(receipts) == 6 - 1 + 6 + 4 + 3 + 6


def test_every_field_of_every_record_is_searched_or_named_as_harmless() -> None:
    """A new field must be put on one side: the names, ids, numbers and times here hold no free text."""
    harmless = {
        "id", "uuid", "external_id", "request_id", "role", "name", "end_user", "status", "success", "created_at", "completed_at", "started_at", "timestamp", "duration", "iteration", "agent_name", "model",
        "is_completed", "health", "parent", "version", "knowledge_id", "chunk_index", "start_at", "end_at", "seq",
        "score", "match_type", "sub_chunk_id", "chunk_type", "parent_chunk_id",
        "session_id", "message_id", "type", "level", "category", "agent", "number",
    }  # fmt: skip
    below = {"messages", "agent_steps", "tool_calls", "result", "knowledge_references"}
    from traces_app.normalize.redaction import _SEARCHED

    for type_, searched in _SEARCHED.items():
        assert set(type_.__struct_fields__) - harmless - below == set(searched), type_


def test_clean_records_come_back_as_they_were() -> None:
    session = msgspec.convert({"messages": [{"role": "user", "content": "hello"}]}, records.Session)
    clean = redact(session)
    assert (clean.session, clean.receipts, clean.message_receipts) == (session, [], [[]])


@pytest.mark.parametrize("body", [b'{"metadata": {"auth_token": "t0p"}}', b'{"content": "password=hunter2"}'])
def test_patches_are_redacted_too(body: bytes) -> None:
    change = redact_message_patch(normalise_patch(decode.decode_message_patch(body)))
    assert len(change.receipts) == 1
    assert b"t0p" not in msgspec.json.encode(change.patch)
    assert b"hunter2" not in msgspec.json.encode(change.patch)


@pytest.mark.parametrize("times", [0, 1, 2, 3])
@pytest.mark.parametrize("as_blocks", [False, True])
def test_no_encoding_of_a_result_hides_a_secret(times: int, as_blocks: bool) -> None:
    text = msgspec.json.encode({"success": True, "data": PLANTED}).decode() if times else repr({"data": PLANTED})
    for _time in range(times):
        text = msgspec.json.encode(text).decode()
    said = [{"type": "text", "text": text}] if as_blocks else text
    steps = [{"tool_calls": [{"name": "login", "result": said}]}]
    patch = msgspec.convert({"agent_steps": steps}, records.MessagePatch)
    assert SECRET.encode() not in msgspec.json.encode(redact_message_patch(normalise_patch(patch)).patch)
    session = msgspec.convert({"messages": [{"role": "assistant", "agent_steps": steps}]}, records.Session)
    assert SECRET.encode() not in msgspec.json.encode(redact(normalise(session, now=NOON)).session)


def test_session_patches_are_redacted_too() -> None:
    change = redact_session_patch(decode.decode_session_patch(b'{"metadata": {"api_key": "k"}}'))
    assert change.patch.metadata == {"api_key": "[redacted]"}
    assert [receipt.path for receipt in change.receipts] == ["metadata.api_key"]

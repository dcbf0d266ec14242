"""Decoding a request: what is right becomes records, what is wrong is named by its path."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone

from access_app.errors import InvalidInput
from traces_app import decode, records


def encode(document: Any) -> bytes:
    return msgspec.json.encode(document)


def test_one_message_and_a_list_of_them_are_decoded() -> None:
    one = {"role": "user", "content": "hi"}
    assert decode.decode_messages(encode(one)) == [records.Message(role="user", content="hi")]
    assert len(decode.decode_messages(encode([one, one]))) == 2


def test_ndjson_is_one_session_a_line() -> None:
    body = b'{"external_id": "a"}\n\n{"external_id": "b", "messages": []}\n'
    assert [session.external_id for session in decode.decode_ingest(body, ndjson=True)] == ["a", "b"]


@pytest.mark.requirement("000-59")
def test_fields_that_we_do_not_know_are_kept_in_metadata_where_they_are_data() -> None:
    document = {
        "role": "assistant",
        "feedback": {"stars": 5},
        "empty": None,
        "metadata": {"kept": 1},
        "step_count": 7,
        "agent_steps": [
            {"mood": "calm", "tool_calls": [{"name": "t", "cost": 3, "result": {"output": "x", "execution_time": 0.2}}]}
        ],
        "knowledge_references": [{"id": "c1", "channel": "web"}],
    }
    (message,) = decode.decode_messages(encode(document))
    assert message.metadata == {"kept": 1, "feedback": {"stars": 5}}
    assert message.agent_steps is not None and message.knowledge_references is not None
    step = message.agent_steps[0]
    assert step.tool_calls is not None
    assert (step.metadata, step.tool_calls[0].metadata) == ({"mood": "calm"}, {"cost": 3})
    assert isinstance(step.tool_calls[0].result, records.ToolResult)
    assert step.tool_calls[0].result.metadata == {"execution_time": 0.2}
    assert message.knowledge_references[0].metadata == {"channel": "web"}


STEP = {"agent_steps": [{"tool_calls": [{"name": "t"}]}]}


@pytest.mark.requirement("002-18", "003-20")
@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"role": "bot"}, "role", "use one of user, assistant, system"),
        ({"content": "x"}, None, "missing required field `role`"),
        ({"role": "user", "content": 7}, "content", "Expected `str | array | null`, got `int`"),
        ({"role": "user", "created_at": "2026-01-01T00:00:00"}, "created_at", "such as 2026-01-31T09:30:00Z"),
        ({"role": "user", "created_at": "yesterday"}, "created_at", "such as 2026-01-31T09:30:00Z"),
        ({"role": "user", "created_at": "1999-12-31T23:59:59Z"}, "created_at", "out of range"),
        ({"role": "user", **STEP}, "agent_steps", "Only an assistant message has steps"),
        ({"role": "assistant", "agent_steps": [{"iteration": -1}]}, "agent_steps[0].iteration", ">= 0"),
        ({"role": "assistant", "agent_steps": [{"tool_calls": [{}]}]}, "agent_steps[0].tool_calls[0].name", "name of its tool"),
        (
            {"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "result": {"status": "done"}}]}]},
            "agent_steps[0].tool_calls[0].result.status",
            "use one of pending, success, error",
        ),
        ({"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "duration": -1}]}]},
         "agent_steps[0].tool_calls[0].duration", ">= 0"),
        ("text", None, "Expected `object`, got `str`"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_path(document: Any, field: str | None, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode.decode_messages(encode(document))
    assert caught.value.field == field
    assert words in caught.value.message


def test_paths_of_a_batch_begin_at_the_body() -> None:
    with pytest.raises(InvalidInput) as caught:
        decode.decode_ingest(
            encode({"sessions": [{"external_id": "a", "messages": [{"role": "user"}, {"role": 1}]}]}), ndjson=False
        )
    assert caught.value.field == "sessions[0].messages[1].role"
    with pytest.raises(InvalidInput) as caught:
        decode.decode_messages(encode([{"role": "user"}, {"role": "x"}]))
    assert caught.value.field == "[1].role"
    with pytest.raises(InvalidInput) as caught:
        decode.decode_ingest(b'{"external_id": "a"}\n{"messages": []}', ndjson=True)
    assert caught.value.field == "sessions[1].external_id"


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"a": NaN}', b"\xff", b'{"a": "\\ud800"}', b"[" * 100_000])
def test_what_is_not_json_is_said_plainly(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode.decode_messages(body)
    assert caught.value.code == "invalid_json"


def test_a_time_up_to_one_day_ahead_is_accepted() -> None:
    for ahead, accepted in ((timedelta(hours=23), True), (timedelta(hours=25), False)):
        body = encode({"role": "user", "created_at": timezone.now() + ahead})
        if accepted:
            assert decode.decode_messages(body)
        else:
            with pytest.raises(InvalidInput, match="out of range"):
                decode.decode_messages(body)


def test_a_patch_tells_left_out_from_null() -> None:
    patch = decode.decode_message_patch(b'{"error": null}')
    assert patch.error is None
    assert patch.content is msgspec.UNSET

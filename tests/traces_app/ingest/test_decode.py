"""Decoding of requests: valid data becomes records, an error has the path of the invalid part."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from access_app.errors import InvalidInput
from traces_app.ingest import decode
from tracesite_sdk import records
from tracesite_sdk.normalize.extra_fields import FIELDS
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.normalize.redacted import redact
from tracesite_sdk.redaction.rules import DEFAULT_RULES


def encode(document: Any) -> bytes:
    return msgspec.json.encode(document)


def test_one_message_and_a_list_of_them_are_decoded() -> None:
    one = {"role": "user", "content": "hi"}
    (message,) = decode.decode_messages(encode(one))
    assert msgspec.to_builtins(message) == msgspec.to_builtins(records.Message(role="user", content="hi"))
    assert len(decode.decode_messages(encode([one, one]))) == 2


def test_ndjson_is_one_session_a_line() -> None:
    body = b'{"external_id": "a"}\n\n{"external_id": "b", "messages": []}\n'
    assert [session.external_id for session in decode.decode_ingest(body, ndjson=True)] == ["a", "b"]


def test_unknown_fields_are_kept_in_metadata() -> None:
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


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        ({"role": "bot"}, "role", 'Invalid value "bot". Allowed: assistant, system, user.'),
        ({"content": "x"}, "role", "This field is required."),
        ({"role": "user", "content": 7}, "content", "Expected a string, an array or null, not a number."),
        ({"role": "user", "created_at": "2026-01-01T00:00:00"}, "created_at", "such as 2026-01-31T09:30:00Z"),
        ({"role": "user", "created_at": "yesterday"}, "created_at", "such as 2026-01-31T09:30:00Z"),
        ({"role": "user", "created_at": "1999-12-31T23:59:59Z"}, "created_at", "out of range"),
        ({"role": "user", **STEP}, "agent_steps", "Only assistant messages have steps"),
        ({"role": "assistant", "agent_steps": [{"iteration": -1}]}, "agent_steps[0].iteration",
         "Too small: the number must be at least 0."),
        ({"role": "assistant", "agent_steps": [{"iteration": 1.5}]}, "agent_steps[0].iteration", "an integer or null, not 1.5."),
        ({"role": "assistant", "agent_steps": [{"tool_calls": [{"name": 5}]}]},
         "agent_steps[0].tool_calls[0].name", "Expected a string or null, not a number."),
        (
            {"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "status": "done"}]}]},
            "agent_steps[0].tool_calls[0].status",
            "Allowed: error, pending, success",
        ),
        ({"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "duration": -1}]}]},
         "agent_steps[0].tool_calls[0].duration", "Too small: the number must be at least 0."),
        ({"role": "user", "id": "x" * 513}, "id", "Too long: at most 512 characters are allowed."),
        ({"role": "user", "health": ["a", True]}, "health[1]", "Expected a string, not true."),
        ("text", None, "Expected an object, not a string."),
    ],
)  # fmt: skip
def test_errors_name_the_path(document: Any, field: str | None, words: str) -> None:
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


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"a": NaN}', b"\xff", b'{"a": \\ud800}', b"[" * 100_000])
def test_body_that_is_not_json_gives_clear_error(body: bytes) -> None:
    with pytest.raises(InvalidInput) as caught:
        decode.decode_messages(body)
    assert caught.value.code == "invalid_json"


def test_time_up_to_one_day_ahead_is_accepted() -> None:
    for ahead, accepted in ((timedelta(hours=23), True), (timedelta(hours=25), False)):
        body = encode({"role": "user", "created_at": timezone.now() + ahead})
        if accepted:
            assert decode.decode_messages(body)
        else:
            with pytest.raises(InvalidInput, match="out of range"):
                decode.decode_messages(body)


def test_patch_distinguishes_omitted_from_null() -> None:
    patch = decode.decode_message_patch(b'{"error": null}')
    assert patch.error is None
    assert patch.content is msgspec.UNSET


# --- Any bytes, any JSON ----------------------------------------------------------------------------------------------

DECODERS: list[Callable[[bytes], Any]] = [
    decode.decode_session,
    decode.decode_session_patch,
    decode.decode_messages,
    decode.decode_message_patch,
    lambda body: decode.decode_ingest(body, ndjson=False),
    lambda body: decode.decode_ingest(body, ndjson=True),
]
each_decoder = pytest.mark.parametrize("decoder", DECODERS)

FIELDS = sorted({name for type_ in FIELDS for name in type_.__struct_fields__} | {"sessions", "feedback", "deleted_at"})
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=2**62, max_value=2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["user", "assistant", "success", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-12:00", "2026-01-01T00:00:00Z"]),
)  # fmt: skip
# Often shaped like records, so that deeper checks are reached.
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=30,
)


@each_decoder
@given(body=st.binary(max_size=100))
def test_any_bytes_are_decoded_or_refused(decoder: Callable[[bytes], Any], body: bytes) -> None:
    with suppress(InvalidInput):
        decoder(body)


@each_decoder
@given(document=DOCUMENTS)
def test_any_json_is_decoded_or_refused_with_message(decoder: Callable[[bytes], Any], document: Any) -> None:
    try:
        decoder(encode(document))
    except InvalidInput as error:
        assert error.status == 400
        assert error.message.endswith(".")


@given(
    DOCUMENTS, st.sampled_from(["content", "agent_steps", "metadata", "usage", "knowledge_references", "created_at"])
)
def test_any_decoded_record_can_be_normalised_and_redacted(value: Any, field: str) -> None:
    body = encode({"external_id": "s", "messages": [{"role": "assistant", field: value}]})
    with suppress(InvalidInput):
        redact(normalise(decode.decode_session(body), now=timezone.now()), DEFAULT_RULES)


@pytest.mark.parametrize("depth", [50, 150, 900, 1_500, 100_000])
def test_json_of_any_depth_is_decoded_or_refused(depth: int) -> None:
    for before, after in ((b"[", b"]"), (b'{"a":', b"}")):
        nested = before * depth + b"1" + after * depth
        body = (
            b'{"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "result": {"output": %s}}]}]}'
            % nested
        )
        try:
            (message,) = decode.decode_messages(body)
        except InvalidInput as error:
            assert (error.code, depth > 500) == ("invalid_json", True)
        else:
            redact(normalise(records.Session(external_id="s", messages=[message]), now=timezone.now()), DEFAULT_RULES)


@pytest.mark.parametrize("name", ["titel", "role", "external_id", "created_at"])
def test_patch_refuses_what_it_cannot_change(name: str) -> None:
    for decode_patch in (decode.decode_message_patch, decode.decode_session_patch):
        with pytest.raises(InvalidInput, match="Allowed:") as caught:
            decode_patch(encode({name: "x", "metadata": {}}))
        assert caught.value.field == name

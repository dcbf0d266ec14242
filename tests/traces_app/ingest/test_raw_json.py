"""Arguments and data that pass undecoded, and those that must not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from access_app.errors import InvalidInput
from sdk.tests.normalize.json_images import IMAGES
from traces_app.ingest.decode import decode_messages
from traces_app.ingest.raw_json import decoded
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise, normalise_steps
from tracesite_sdk.normalize.redacted import redact
from tracesite_sdk.records import pg_text
from tracesite_sdk.redaction.rules import DEFAULT_RULES


def call_with(args: str, data: str = "{}") -> records.ToolCall:
    """Return the only call of a message with these JSON texts as arguments and data."""
    call = f'{{"name": "t", "args": {args}, "result": {{"success": true, "output": "x", "data": {data}}}}}'
    (message,) = decode_messages(f'{{"role": "assistant", "agent_steps": [{{"tool_calls": [{call}]}}]}}'.encode())
    assert message.agent_steps and message.agent_steps[0].tool_calls
    return message.agent_steps[0].tool_calls[0]


def data_of(call: records.ToolCall) -> Any:
    assert isinstance(call.result, records.ToolResult)
    return call.result.data


def passes(args: str, data: str = "{}") -> bool:
    call = call_with(args, data)
    is_raw = type(call.args) is msgspec.Raw
    assert (type(data_of(call)) is msgspec.Raw) == is_raw, "all of a message, or nothing"
    return is_raw


# --- Accepted ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        "{}",
        '{"query": "a \\"word\\"\\n\\tC:\\\\x", "limit": 4, "z": null}',
        ' { "customer" : "C-619e2870", "total" : [ 1.5e10, -0, 1e-99 ],\n"state": "已发货", "ok": true } ',
        '{"64 bits": [18446744073709551615, -9223372036854775808], "a double": -0.12345678901234567}',
        '{"url": "https://shop.example.com/orders?id=4", "key": "a", "value": 1}',
        '{"note": "e123, 12 and 1 e123; 5e12 is one", "hex": "12e345 ff7e9999"}',
        "{" + ", ".join(f'"a{number}": [{{}}]' for number in range(49)) + "}",
    ],
)
def test_plain_json_is_stored_unchanged(written: str) -> None:
    call = call_with(written, written)

    assert type(call.args) is type(data_of(call)) is msgspec.Raw
    assert pg_text.json(call.args) == pg_text.json(data_of(call)) == written.strip()
    assert decoded(call.args) == json.loads(written)


def test_omitted_values_stay_omitted() -> None:
    (message,) = decode_messages(
        b'[{"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "result": {}}]}]}]'
    )

    assert message.agent_steps and message.agent_steps[0].tool_calls
    (call,) = message.agent_steps[0].tool_calls
    assert (call.args, data_of(call)) == (None, None)


# --- Refused ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [("null", None), ('"a"', "a"), ("1.0", 1.0), ("[1]", [1]), ("true", True), ('"{\\"a\\": 1}"', '{"a": 1}')],
)
def test_arguments_that_are_no_object_are_decoded(written: str, value: Any) -> None:
    call = call_with(written, '{"a": 1}')

    assert call.args == value
    assert pg_text.json(data_of(call)) == '{"a": 1}'


@pytest.mark.parametrize(
    "number",
    [
        "1e308",
        "1E+308",
        "1e-400",
        "-1e100",
        "[1e0100]",
        "0.5e100",
        "1234567890123456789012e100",
        "1" * 21,
        "-1.000000000000000000e-999",
        "0.12345678901234567890",
    ],
)
def test_numbers_that_decoding_may_change_or_refuse_are_decoded(number: str) -> None:
    assert not passes(f'{{"a": [0,{number}, 1]}}')
    assert not passes("{}", f"[[{number}]]")


@pytest.mark.parametrize(
    "number",
    [
        "1e309",
        "-1E400",
        "-12345678901234567890e999",
        "-1.234567890123456789e99999",
        "[ 12.5e999]",
        "9" * 5000,
        "1" * 400 + ".5",
        "9" * 250 + "e99",
        "1" * 400 + "e0",
    ],
)
def test_numbers_out_of_any_range_are_refused(number: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        call_with(f'{{"a": {number}}}')

    assert refused.value.code == "invalid_json"


@pytest.mark.parametrize(
    "written",
    [
        '{"a": "\\u0000"}',
        '{"a": "\\ud83d\\ude00"}',
        '{"a": "\\/"}',
        '{"a": ' * 101 + "1" + "}" * 101,
    ],
)
def test_escaped_or_deep_json_is_decoded(written: str) -> None:
    assert not passes(written)
    assert not passes("{}", written)


def test_json_that_is_mostly_text_is_decoded() -> None:
    assert not passes(json.dumps({"text": "plain words " * 100}))
    assert passes(json.dumps({"rows": [{"id": number, "word": "plain"} for number in range(50)]}))


def test_long_value_is_decoded_by_itself() -> None:
    call = call_with('{"a": "' + "x" * 64_000 + '"}', "[1]")

    assert call.args == {"a": "x" * 64_000}
    assert type(data_of(call)) is msgspec.Raw


@pytest.mark.parametrize("broken", [b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xe4\xb8"])
def test_bytes_that_are_not_utf_8_are_replaced(broken: bytes) -> None:
    body = b'[{"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "args": {"a": "%s"}}]}]}]' % broken

    [message] = decode_messages(body)

    [call] = (message.agent_steps or [])[0].tool_calls or ()
    assert call.args == {"a": broken.decode("utf-8", "replace")}


# --- Images -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("image", IMAGES)
def test_data_with_an_image_is_decoded(image: Any) -> None:
    call = call_with("{}", json.dumps({"rows": [image]}))
    (step,), _flags = normalise_steps([records.AgentStep(tool_calls=[call])])

    assert step.tool_calls
    result = step.tool_calls[0].result
    assert isinstance(result, records.ToolResult)
    assert not isinstance(result.data, msgspec.Raw)


# --- Any JSON ---------------------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=10) | st.sampled_from(
    ["password", "api_key: x9", "Bearer abc123def456", "a\\b", '"', "/", "\n", "1e400", "token", "value", "name", "é", "：", "[", "}"]
)  # fmt: skip
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
WRITERS: list[Callable[[Any], str]] = [
    json.dumps,
    lambda value: json.dumps(value, ensure_ascii=False),
    lambda value: json.dumps(value, ensure_ascii=False, indent=2),
    lambda value: msgspec.json.encode(value).decode(),
]


@settings(max_examples=300)
@given(args=ANY_JSON, data=ANY_JSON, write=st.sampled_from(WRITERS))
def test_decoding_does_not_change_the_result(args: Any, data: Any, write: Callable[[Any], str]) -> None:
    call = call_with(write(args), write(data))

    assert decoded(call.args) == args
    assert decoded(data_of(call)) == data
    assert json.loads(pg_text.json(call.args)) == pg_text.storable(args)


@settings(max_examples=300)
@given(args=ANY_JSON, data=ANY_JSON, write=st.sampled_from(WRITERS))
def test_raw_json_hides_no_secret(args: Any, data: Any, write: Callable[[Any], str]) -> None:
    """Undecoded values are redacted like decoded ones, with the same receipts."""

    def redacted(call: records.ToolCall) -> tuple[Any, Any]:
        message = records.Message(role="assistant", agent_steps=[records.AgentStep(tool_calls=[call])])
        made = redact(
            normalise(records.Session(external_id="s", messages=[message]), now=timezone.now()), DEFAULT_RULES
        )
        (clean,) = made.session.messages or ()
        assert clean.agent_steps and clean.agent_steps[0].tool_calls
        (call,) = clean.agent_steps[0].tool_calls
        return [decoded(call.args), decoded(data_of(call))], made.message_receipts

    came = call_with(write(args), write(data))
    result = records.ToolResult(success=True, output="x", data=data)
    made = records.ToolCall(name="t", args=args, result=result)

    assert redacted(came) == redacted(made)

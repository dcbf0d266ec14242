"""A tool result that is decoded at once is the one that is read as an object."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.normalize.result_strategies import FIELDS, SAID, form, is_json
from traces_app.ingest.decode import decode_messages
from traces_app.ingest.raw_json import decoded as decoded_raw
from tracesite_sdk import records
from tracesite_sdk.normalize import tool_results
from tracesite_sdk.normalize.tool_results import (
    normalize_result,
)


@given(st.dictionaries(FIELDS, SAID, max_size=4).filter(is_json))
def test_result_decoded_at_once_is_the_one_read_as_an_object(value: Any) -> None:
    message = {"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "result": value}]}]}
    (decoded,) = decode_messages(msgspec.json.encode(message))
    ((call,),) = [step.tool_calls or [] for step in decoded.agent_steps or []]
    expected = normalize_result(tool_results.received(msgspec.json.decode(msgspec.json.encode(value))), None)
    found = normalize_result(call.result, None)
    assert isinstance(found, records.ToolResult)
    assert isinstance(expected, records.ToolResult)
    found = msgspec.structs.replace(found, data=decoded_raw(found.data))
    assert form(found) == form(expected)

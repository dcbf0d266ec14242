"""One result, one record: in each shape, as an object and as its JSON text, and over each way of input.

Each way sends all shapes in one batch and compares whole rows with the same table. To see the record of a new shape, add a
line to SHAPES in sdk/tests/normalize/result_shapes.py and run `pytest tests/traces_app/views/test_outcomes.py`: a failure names the
way and the shape.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import pytest

from messages_app.models import Message
from sdk.tests.normalize.result_shapes import SHAPES, Row, mcp, text
from traces_app.models import ToolCall
from tracesite_sdk.testing import recording

from .conftest import Caller


class Sent(NamedTuple):
    id: str
    shape: str
    value: Any
    """The value of the shape as it is sent, or its JSON."""


def sent() -> list[Sent]:
    """All shapes, those that are no text as their JSON too; a call of each has an id of its own."""
    made = []
    for number, (name, (value, _row)) in enumerate(SHAPES.items()):
        made.append(Sent(f"call_{number}", name, value))
        if not isinstance(value, str):
            made.append(Sent(f"call_{number}_text", name, text(value)))
    return made


def calls_of(sent: list[Sent]) -> list[dict[str, Any]]:
    return [{"id": one.id, "uuid": one.id, "name": "query", "args": {}} for one in sent]


# --- Seven ways in --------------------------------------------------------------------------------------------------


def by_ingest(owner: Caller, sent: list[Sent]) -> None:
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(sent), sent, strict=True)]
    message = {"role": "assistant", "external_id": "run", "agent_steps": [{"tool_calls": calls}]}
    answer = owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [message]}]})
    assert answer.status == 200, answer.body


def by_events(owner: Caller, sent: list[Sent]) -> None:
    events = []
    for one in sent:
        call = {"call_id": one.id, "name": "query"}
        events.append({"session_id": "s", "type": "tool_call_start", "data": {**call, "args": {}}})
        events.append({"session_id": "s", "type": "tool_call_complete", "data": {**call, "result": one.value}})
    answer = owner.post("events/", events)
    assert answer.status == 200, answer.body


def by_monitor_messages(owner: Caller, sent: list[Sent]) -> None:
    messages = []
    for number, one in enumerate(sent):
        call = {"agentId": "a", "name": "query", "toolCallId": one.id}
        said = [{"phase": "start", "args": {}}, {"phase": "complete", "result": one.value}]
        for at, more in enumerate(said):
            ts = 1772366400000 + 2 * number + at
            messages.append({"taskId": "s", "type": "tool", "ts": ts, "payload": {**call, **more}})
    answer = owner.post("events/", messages)
    assert answer.status == 200, answer.body


def by_callbacks(owner: Caller, sent: list[Sent]) -> None:
    """Tools of Eko return {content, isError}: anything else is text in it."""
    messages = []
    for one in sent:
        call = {"taskId": "s", "agentName": "A", "nodeId": "n", "toolName": "query", "toolCallId": one.id, "params": {}}
        is_own = isinstance(one.value, dict) and "content" in one.value and "type" not in one.value
        answered = one.value if is_own else mcp(one.value if isinstance(one.value, str) else text(one.value))
        messages += [{**call, "type": "tool_use"}, {**call, "type": "tool_result", "toolResult": answered}]
    answer = owner.post("eko/callbacks/", {"messages": messages})
    assert answer.status == 200, answer.body


def by_import(owner: Caller, sent: list[Sent]) -> None:
    """Texts in a transcript of OpenAI's chat format, objects in an export of Tracesite."""
    texts = [one for one in sent if isinstance(one.value, str)]
    asked = [{"id": one.id, "type": "function", "function": {"name": "query", "arguments": "{}"}} for one in texts]
    talk: list[dict[str, Any]] = [{"role": "user", "content": "Try."}, {"role": "assistant", "tool_calls": asked}]
    talk += [{"role": "tool", "tool_call_id": one.id, "content": one.value} for one in texts]
    answer = owner.post("import/", json.dumps(talk), content_type="application/octet-stream")
    assert answer.status in (200, 201), answer.body
    objects = [one for one in sent if not isinstance(one.value, str)]
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(objects), objects, strict=True)]
    message = {"role": "assistant", "external_id": "run", "agent_steps": [{"tool_calls": calls}]}
    export = {"external_id": "s", "messages": [message]}
    answer = owner.post("import/", json.dumps(export), content_type="application/octet-stream")
    assert answer.status in (200, 201), answer.body


def by_recorder(owner: Caller, sent: list[Sent]) -> None:
    with recording() as recorder:
        with recorder.session("s"), recorder.message("Try."):
            for one in sent:
                with recorder.tool_call("query", {}, call_id=one.id) as call:
                    call.result = one.value
        lines = b"\n".join(map(msgspec.json.encode, recorder.events))
    answer = owner.post("events/", lines, content_type="application/x-ndjson")
    assert answer.status == 200, answer.body


def by_patch(owner: Caller, sent: list[Sent]) -> None:
    message = {
        "role": "assistant", "external_id": "run", "is_completed": False,
        "agent_steps": [{"id": "step", "tool_calls": calls_of(sent)}],
    }  # fmt: skip
    assert owner.post("ingest/", {"sessions": [{"external_id": "s", "messages": [message]}]}).status == 200
    calls = [{**call, "result": one.value} for call, one in zip(calls_of(sent), sent, strict=True)]
    stored = Message.objects.get()
    patch = {"version": stored.version, "agent_steps": [{"id": "step", "tool_calls": calls}]}
    answer = owner.patch(f"messages/{stored.pk}/", patch)
    assert answer.status == 200, answer.body


WAYS: list[Callable[[Caller, list[Sent]], None]] = [
    by_ingest, by_events, by_monitor_messages, by_callbacks, by_import, by_recorder, by_patch,
]  # fmt: skip


def rows() -> dict[str, tuple[Row, str | None]]:
    """Return the rows of all calls with `raw`, by the id of the call."""
    found = {}
    for call in ToolCall.objects.select_related("result"):
        result = call.result
        row = Row(call.status, result.output, result.data, result.error, result.metadata, result.attachments)
        assert call.call_id not in found
        found[call.call_id] = (row, result.raw)
    return found


@pytest.mark.parametrize("way", WAYS)
def test_result_of_any_shape_is_one_record(owner: Caller, way: Callable[[Caller, list[Sent]], None]) -> None:
    all_sent = sent()
    way(owner, all_sent)
    found = rows()
    wrong = []
    for one in all_sent:
        expected = SHAPES[one.shape][1]
        row, raw = found[one.id]
        # The received text is kept if the row does not hold all of it.
        received_text = one.value if isinstance(one.value, str) else text(one.value)
        if row != expected or raw not in (None, received_text, *_inner_texts(one)):
            wrong.append(f"{one.shape!r} as {type(one.value).__name__}:\n    {expected}\n    {row}\n    raw {raw!r}")
        if isinstance(one.value, str) and raw is None and row.output != one.value and way is not by_callbacks:
            wrong.append(f"{one.shape!r}: the text that was received is lost")
    assert not wrong, "\n".join(wrong)
    assert len(found) == len(all_sent)
    failures = sum(SHAPES[one.shape][1].status == "error" for one in all_sent)
    assert sum(Message.objects.values_list("failure_count", flat=True)) == failures


def _inner_texts(one: Sent) -> list[str]:
    """If an object wraps the text of a tool, that text is the received one."""
    value = msgspec.json.decode(one.value) if one.id.endswith("_text") else one.value
    inner = value.get("content", value.get("output")) if isinstance(value, dict) else None
    return [inner] if isinstance(inner, str) else [part["text"] for part in inner or ()]


def test_table_of_outcomes_has_forty_shapes_and_seven_ways() -> None:
    assert len(SHAPES) >= 40
    assert len(WAYS) == 7

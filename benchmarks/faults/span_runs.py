"""Runs of agents as three protocols send their spans, in pieces, and what must be stored of them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from tracesite_sdk.spans.langfuse_ids import trace_id_of

from . import traces

SETTLED_SECONDS = 120
"""How long the messages may take after a kill."""
DUE = "SELECT trace_id FROM traces_app_duetrace WHERE due_at IS NOT NULL"
_STORED = """
    SELECT message.request_id, message.role, message.content, message.is_completed, ARRAY(
        SELECT call.call_id || ' ' || call.status || ' ' || coalesce(result.output, '')
        FROM traces_app_toolcall AS call LEFT JOIN traces_app_toolresult AS result ON result.id = call.id
        WHERE call.message_id = message.id ORDER BY call.call_id
    ) FROM messages_app_message AS message WHERE request_id = ANY(%s) ORDER BY message.id
    """


@dataclass(frozen=True, kw_only=True)
class SpanRun:
    """A run with a question, calls that a model asked for, and an answer."""

    trace_id: str
    session: str
    question: str
    answer: str
    outputs: dict[str, str]
    """Of the calls, by the model's ids."""
    requests: Sequence[tuple[str, Any]]
    """Paths and bodies. In any order, and repeated, they are the same run."""

    def messages(self) -> list[tuple[str, str, bool, list[str]]]:
        """Return what must be stored: role, content, whether it is completed, and its calls."""
        calls = [f"{call_id} success {output}" for call_id, output in sorted(self.outputs.items())]
        return [("user", self.question, True, []), ("assistant", self.answer, True, calls)]


def make(dice: random.Random, name: str) -> SpanRun:
    """Return a run of one of the protocols."""
    session, question = f"spans/{name}", f"{name}: {traces.text(dice, 10)}"
    outputs = {f"{name}/{number}": f"row {dice.randint(1, 99)}" for number in range(dice.randint(1, 4))}
    return dice.choice((_otlp, _langfuse, _langsmith))(dice, session, question, traces.text(dice, 20), outputs)


def differences(connection: psycopg.Connection, runs: Sequence[SpanRun]) -> list[str]:
    """Return what differs from the runs that were acknowledged."""
    found: dict[str, list[tuple[str, str, bool, list[str]]]] = {}
    for trace_id, *message in connection.execute(_STORED, [[run.trace_id for run in runs]]).fetchall():
        found.setdefault(trace_id, []).append((message[0], message[1], message[2], message[3]))
    return [
        f"the run {run.trace_id} should be\n  {run.messages()}\nand is\n  {found.get(run.trace_id)}"
        for run in runs
        if found.get(run.trace_id) != run.messages()
    ]


# --- Protocols --------------------------------------------------------------------------------------------------------


class _Clock:
    """Times that follow each other."""

    def __init__(self, dice: random.Random) -> None:
        self.now = datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=dice.randrange(86400 * 20))

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def _in_pieces(
    dice: random.Random, items: list[Any], body: Callable[[list[Any]], Any], path: str
) -> list[tuple[str, Any]]:
    """Return the items in some requests, in any order, some of them twice."""
    dice.shuffle(items)
    size = dice.randint(1, len(items))
    requests = [(path, body(items[at : at + size])) for at in range(0, len(items), size)]
    return [*requests, *dice.sample(requests, dice.randint(0, len(requests)))]


def _calls(outputs: dict[str, str]) -> list[dict[str, Any]]:
    return [
        {"id": call_id, "type": "function", "function": {"name": "lookup", "arguments": "{}"}} for call_id in outputs
    ]


def _otlp(dice: random.Random, session: str, question: str, answer: str, outputs: dict[str, str]) -> SpanRun:
    trace_id, clock = dice.randbytes(16).hex(), _Clock(dice)
    number = iter(range(1, 100))

    def span(name: str, parent: str, began: datetime, ended: datetime, **values: Any) -> dict[str, Any]:
        times = [str(int(time.timestamp()) * 10**9) for time in (began, ended)]
        pairs = [
            {"key": f"gen_ai.{key.replace('__', '.')}", "value": {"stringValue": value}}
            for key, value in values.items()
        ]
        return {
            "traceId": trace_id,
            "spanId": f"{next(number):016x}",
            "parentSpanId": parent,
            "name": name,
            "startTimeUnixNano": times[0],
            "endTimeUnixNano": times[1],
            "attributes": pairs,
        }

    def said(role: str, *parts: dict[str, Any]) -> str:
        return json.dumps([{"role": role, "parts": list(parts)}])

    began = clock()
    asked = said("user", {"type": "text", "content": question})
    requested = said(
        "assistant", *({"type": "tool_call", "id": id_, "name": "lookup", "arguments": {}} for id_ in outputs)
    )
    told = [
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": id_, "response": output}]}
        for id_, output in outputs.items()
    ]
    answered = said("assistant", {"type": "text", "content": answer})
    root_id = f"{next(number):016x}"
    below = [
        span(
            "chat",
            root_id,
            clock(),
            clock(),
            operation__name="chat",
            request__model="m",
            input__messages=asked,
            output__messages=requested,
        )
    ]
    below += [
        span("execute_tool lookup", root_id, clock(), clock(), operation__name="execute_tool", tool__name="lookup",
             tool__call__id=id_, tool__call__arguments="{}", tool__call__result=output)
        for id_, output in outputs.items()
    ]  # fmt: skip
    whole = json.dumps([*json.loads(asked), *json.loads(requested), *told])
    below.append(
        span(
            "chat",
            root_id,
            clock(),
            clock(),
            operation__name="chat",
            request__model="m",
            input__messages=whole,
            output__messages=answered,
        )
    )
    root = span(
        "invoke_agent a", "", began, clock(), operation__name="invoke_agent", agent__name="a", conversation__id=session
    )
    root["spanId"] = root_id

    def body(spans: list[Any]) -> Any:
        return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}

    requests = _in_pieces(dice, [root, *below], body, "/v1/traces")
    return SpanRun(
        trace_id=trace_id, session=session, question=question, answer=answer, outputs=outputs, requests=requests
    )


def _langfuse(dice: random.Random, session: str, question: str, answer: str, outputs: dict[str, str]) -> SpanRun:
    name, clock = f"trace {dice.randbytes(8).hex()}", _Clock(dice)
    asked = [{"role": "user", "content": question}]
    requested = {"role": "assistant", "content": "", "tool_calls": _calls(outputs)}
    told = [{"role": "tool", "tool_call_id": id_, "content": output} for id_, output in outputs.items()]

    def event(kind: str, **body: Any) -> dict[str, Any]:
        return {"id": dice.randbytes(8).hex(), "type": kind, "timestamp": clock().isoformat(), "body": body}

    def times() -> dict[str, str]:
        return {"startTime": clock().isoformat(), "endTime": clock().isoformat()}

    events = [
        event("trace-create", id=name, name="plan", sessionId=session, input=question, output=answer),
        event("generation-create", id=f"{name} g1", traceId=name, model="m", input=asked, output=requested, **times()),
    ]
    events += [
        event("tool-create", id=f"{name} {id_}", traceId=name, name="lookup", input={}, output=output, **times())
        for id_, output in outputs.items()
    ]
    final = {"role": "assistant", "content": answer}
    events.append(
        event(
            "generation-create",
            id=f"{name} g2",
            traceId=name,
            model="m",
            input=[*asked, requested, *told],
            output=final,
            **times(),
        )
    )
    requests = _in_pieces(dice, events, lambda some: {"batch": some}, "/api/public/ingestion")
    return SpanRun(
        trace_id=trace_id_of(name),
        session=session,
        question=question,
        answer=answer,
        outputs=outputs,
        requests=requests,
    )


def _langsmith(dice: random.Random, session: str, question: str, answer: str, outputs: dict[str, str]) -> SpanRun:
    clock = _Clock(dice)
    root_id = str(_run_id(dice))
    requested = [{"id": id_, "name": "lookup", "args": {}, "type": "tool_call"} for id_ in outputs]
    posts: list[Any] = []
    patches: list[Any] = []

    def run(run_type: str, inputs: Any, result: Any, run_id: str = "", **extra: Any) -> None:
        own = run_id or str(_run_id(dice))
        above = {} if run_id else {"parent_run_id": root_id}
        order = ".".join(f"20261120T100000{place:06}Z{id_}" for place, id_ in enumerate(dict.fromkeys((root_id, own))))
        posts.append({"id": own, "trace_id": root_id, "dotted_order": order, "name": "lookup", "run_type": run_type,
                      "inputs": inputs, "start_time": clock().isoformat(), "extra": extra, **above})  # fmt: skip
        patches.append({"id": own, "trace_id": root_id, "end_time": clock().isoformat(), "outputs": result})

    def generation(content: str, calls: Any) -> Any:
        return {
            "generations": [
                [{"text": "", "message": {"type": "ai", "data": {"content": content, "tool_calls": calls}}}]
            ]
        }

    asked = [{"type": "human", "data": {"content": question}}]
    told = [{"type": "tool", "data": {"content": output, "tool_call_id": id_}} for id_, output in outputs.items()]
    model = {"metadata": {"ls_model_name": "m"}}
    run("chain", {"messages": [{"type": "human", "content": question}]}, {"messages": [{"type": "ai", "content": answer}]},
        root_id, metadata={"thread_id": session})  # fmt: skip
    run("llm", {"messages": [asked]}, generation("", requested), **model)
    for id_, output in outputs.items():
        run("tool", {}, {"output": {"type": "tool", "content": output, "tool_call_id": id_}}, tool_call_id=id_)
    run(
        "llm",
        {"messages": [[*asked, {"type": "ai", "data": {"content": "", "tool_calls": requested}}, *told]]},
        generation(answer, []),
        **model,
    )
    # The root ends last, as a client sends it.
    patches[0]["end_time"] = clock().isoformat()
    pieces = _in_pieces(dice, posts, lambda some: {"post": some, "patch": []}, "/runs/batch")
    pieces += _in_pieces(dice, patches, lambda some: {"post": [], "patch": some}, "/runs/batch")
    dice.shuffle(pieces)
    return SpanRun(
        trace_id=UUID(root_id).hex, session=session, question=question, answer=answer, outputs=outputs, requests=pieces
    )


def _run_id(dice: random.Random) -> UUID:
    return UUID(int=dice.getrandbits(128), version=4)

"""Read simulations of τ²-bench (sierra-research/tau2-bench): a `results.json` with all of them, or files of one each.

    {"info", "tasks": [...], "simulations": [{"id", "task_id", "trial", "termination_reason", "messages": [...]}]}

* The policy of the domain is the system prompt. The user is simulated: what it says is a prompt, and the token with which it ends
  (`###STOP###`) a system message.
* Both the agent and the user have tools (`requestor`). Calls of the user are a reply with the agent name `user`.
* The id of a result is that of its call, and `error` says whether it failed. Replies have their tokens and cost; those of the
  simulated user are metadata. Reasoning is taken from the provider's answer (`raw_data`), which is not kept.
* Of a voice run with `ticks` alone, the pieces of text and the calls are joined to messages.

The reward, the task and the settings of the run are metadata; a reason of the end other than that one of both stopped is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import as_json, fields, instant, items, milliseconds, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.times import after

NAME = "tau2_bench"

_MAX_TRIED = 50
_ENDED = ("user_stop", "agent_stop")
_TOKENS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
_SIMULATION_FIELDS = ("id", "messages", "ticks", "start_time")
_MESSAGE_FIELDS = ("role", "content", "tool_calls", "timestamp", "raw_data")
_REPLY_FIELDS = (*_MESSAGE_FIELDS, "usage", "cost", "generation_time_seconds")
_RESULT_FIELDS = ("id", "role", "content", "error", "timestamp")


def recognises(document: Document) -> bool:
    """Return whether one of the first values is a run or a simulation."""
    return any(_is_run(value) or _is_simulation(value) for value in first_values(document, _MAX_TRIED))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the simulations of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, simulation, run) in enumerate(_simulations(document)):
        if not _is_simulation(simulation):
            skip(where or "(all)", "not a simulation of τ²-bench")
            continue
        entries = list(_entries(simulation, run.info, where, skip))
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        task_id, trial = text(simulation.get("task_id")), simulation.get("trial")
        domain = text(fields(run.info.get("environment_info")).get("domain_name")) or "task"
        task = rest({"task": run.tasks.get(task_id), "domain": domain}, ())
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            external_id=text(simulation.get("id")),
            title=f"{domain} {task_id}" + (f", trial {trial}" if trial else ""),
            status="completed" if simulation.get("termination_reason") in _ENDED else "error",
            created_at=instant(simulation.get("start_time")),
            metadata={**run.shared, **rest(simulation, _SIMULATION_FIELDS), **task},
            put_in=run.size,
        )


@dataclass(frozen=True)
class _Run:
    """What the simulations of a file have in common, of which each session has a copy."""

    info: dict[str, Any] = field(default_factory=dict)
    tasks: dict[str | None, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    """Characters of JSON."""


def _run(value: dict[str, Any]) -> _Run:
    info, tasks = fields(value.get("info")), map(fields, items(value.get("tasks")))
    shared = {**rest(value, ("info", "tasks", "simulations", "simulation_index")), **rest(info, ("environment_info",))}
    size = len(as_json(shared)) + len(text(fields(info.get("environment_info")).get("policy")) or "")
    return _Run(info, {text(task.get("id")): task for task in tasks}, shared, size)


def _simulations(document: Document) -> Iterator[tuple[str, Any, _Run]]:
    """Yield the place of each simulation, itself, and the run that it is in."""
    for where, value in numbered_values(document):
        if not _is_run(value):
            yield where, value, _Run()
            continue
        run = _run(value)
        for index, simulation in enumerate(value["simulations"]):
            yield f"{join_place(where, 'simulations')}[{index}]", simulation, run


def _is_run(value: object) -> bool:
    run = fields(value)
    return isinstance(run.get("simulations"), list) and any(map(_is_simulation, run["simulations"]))


def _is_simulation(value: object) -> bool:
    simulation = fields(value)
    has_messages = isinstance(simulation.get("messages"), list) or isinstance(simulation.get("ticks"), list)
    return "task_id" in simulation and "termination_reason" in simulation and has_messages


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(simulation: dict[str, Any], info: dict[str, Any], where: str, skip: Skip) -> Iterator[Entry]:
    if policy := text(fields(info.get("environment_info")).get("policy")):
        yield Prompt(id="policy", role="system", content=policy)
    models = {
        role: text(fields(info.get(f"{name}_info")).get("llm"))
        for role, name in (("assistant", "agent"), ("user", "user"))
    }
    messages = items(simulation.get("messages"))
    key = "messages" if messages else "ticks"
    for index, value in enumerate(messages or _messages_of(items(simulation.get("ticks")))):
        message, role = fields(value), text(fields(value).get("role")) or ""
        if role in ("system", "user"):
            yield from _said(str(index), message)
        if role == "assistant" or (role == "user" and message.get("tool_calls")):
            yield _reply(str(index), message, models[role])
        elif role == "tool":
            for number, result in enumerate(items(message.get("tool_messages")) or [message]):
                yield _result(f"{index}.{number}" if number else str(index), fields(result))
        elif role not in ("system", "user"):
            skip(f"{join_place(where, key)}[{index}]", "not a message of system, user, assistant or tool")


def _said(own: str, message: dict[str, Any]) -> Iterator[Prompt]:
    said = text(message.get("content"))
    if said is None and message.get("tool_calls"):
        return
    is_typed = message["role"] == "user" and (said or "").strip() not in _TOKENS
    yield Prompt(
        id=own,
        role="user" if is_typed else "system",
        content=said,
        created_at=instant(message.get("timestamp")),
        health=time_flags(message.get("timestamp")),
        is_aside=message["role"] == "user" and not is_typed,
        metadata={**rest(message, _MESSAGE_FIELDS), **({} if is_typed else rest({"role": message["role"]}, ()))},
    )


def _reply(own: str, message: dict[str, Any], model: str | None) -> Reply:
    is_of_user = message["role"] == "user"
    ended, duration = instant(message.get("timestamp")), milliseconds(message.get("generation_time_seconds"))
    raw = fields(message.get("raw_data"))
    answer = fields(raw.get("message")) or fields(fields(next(iter(items(raw.get("choices"))), None)).get("message"))
    reasoning = answer.get("reasoning_content")
    usage = {**fields(message.get("usage")), **rest({"cost": message.get("cost")}, ())}
    return Reply(
        id=f"{own}.calls" if is_of_user else own,
        content=None if is_of_user else text(message.get("content")),
        calls=[_call(fields(call)) for call in items(message.get("tool_calls"))],
        reasoning=reasoning if isinstance(reasoning, str) and reasoning else None,
        agent_name="user" if is_of_user else None,
        model=model,
        usage=None if is_of_user else usage or None,
        created_at=after(ended, -duration) if ended is not None and duration is not None else ended,
        duration=duration,
        health=time_flags(message.get("timestamp")),
        metadata=rest(message, _MESSAGE_FIELDS if is_of_user else _REPLY_FIELDS),
    )


def _call(call: dict[str, Any]) -> Call:
    metadata = rest(call, ("id", "name", "arguments"))
    return Call(
        id=text(call.get("id")), name=text(call.get("name")) or "", args=call.get("arguments"), metadata=metadata
    )


def _result(own: str, message: dict[str, Any]) -> Result:
    call_id, failed = text(message.get("id")), message.get("error")
    return Result(
        id=own,
        output=message.get("content"),
        failed=failed if isinstance(failed, bool) else None,
        created_at=instant(message.get("timestamp")),
        call_ids=[call_id] if call_id else [],
        health=time_flags(message.get("timestamp")),
        metadata=rest(message, _RESULT_FIELDS),
    )


def _messages_of(ticks: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of a voice run: pieces of one speaker in a row are joined, until it calls a tool."""
    said: list[str] = []
    speaker, began = "", None

    def message(**others: Any) -> dict[str, Any]:
        joined = "".join(said)
        said.clear()
        return {"role": speaker, "content": joined or None, "timestamp": began, **others}

    for tick in map(fields, ticks):
        for role, name in (("user", "user"), ("assistant", "agent")):
            chunk, called = fields(tick.get(f"{name}_chunk")), items(tick.get(f"{name}_tool_calls"))
            piece = text(chunk.get("audio_script_gold" if chunk.get("is_audio") else "content"))
            if said and role != speaker and (piece or called):
                yield message()
            if piece or called:
                speaker, began = role, began if said else tick.get("timestamp")
                said += [piece] if piece else []
            if called:
                yield message(tool_calls=called)
            yield from map(fields, items(tick.get(f"{name}_tool_results")))
    if said:
        yield message()

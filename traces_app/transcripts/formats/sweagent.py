"""Trajectories of SWE-agent: `.traj` files, which hold the conversation (`history`) and beside it what each action did.

The history is in the words of OpenAI's chat completions, with more to each message: the `agent` that it is of, and of a reply
the `thought` and the `action` that were read out of it. A reply with `tool_calls` is a step; a message of the role `tool`
answers the calls in its `tool_call_ids`. Without function calling the action stands in the text of the reply, and what came
of it is the next message of the user: both stay what they are in the conversation, the action as metadata of the reply.

`trajectory` repeats the history reply by reply, with the state of the environment and the time that the action took, which
become the reply's; where the two do not match it stays in the metadata, whole. So does everything else: `info` says how the
run ended and what was submitted. The format has no times, no ids of conversations and no flag for a failed action.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from traces_app.normalize.json_values import content, fields, items, milliseconds, rest, text
from traces_app.normalize.records import text_of
from traces_app.transcripts.entries import Call, Entry, Reply, Result, Said, Transcript, is_text
from traces_app.transcripts.files.documents import Document, Lines, Skip

NAME = "sweagent"

_ROLES = ("system", "user", "assistant", "tool")
_TRIED = 20

# What becomes a field of a record; everything else is kept in metadata.
_SAID_FIELDS = ("role", "content")
_REPLY_FIELDS = ("role", "content", "tool_calls", "agent", "thinking_blocks")
_RESULT_FIELDS = ("role", "content", "tool_call_ids", "tool_call_id", "name")
_CALL_FIELDS = ("id", "type", "index", "function")
# What a step of the trajectory repeats from the history.
_REPEATED_FIELDS = ("action", "observation", "response", "thought", "messages", "query", "thinking_blocks")


def recognises(document: Document) -> bool:
    return any(_is_run(value) for value in _head(document))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """The runs of a document that `recognises` accepts; what they leave out is told to `skip`."""
    for place, (where, run) in enumerate(_runs(document)):
        if not _is_run(run):
            skip(where or "(all)", "no history of messages")
            continue
        observed, beside = _observed(run)
        entries = list(_entries(run["history"], f"{where}.history".lstrip("."), observed, skip))
        exit_status = fields(run.get("info")).get("exit_status")
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            status="error" if isinstance(exit_status, str) and "error" in exit_status else None,
            metadata=beside,
        )


# --- Runs -----------------------------------------------------------------------------------------------------------


def _head(document: Document) -> list[Any]:
    if isinstance(document, Lines):
        return document.head()
    return document[:_TRIED] if isinstance(document, list) else [document]


def _runs(document: Document) -> Iterator[tuple[str, Any]]:
    """What may be a run, with its place."""
    if isinstance(document, Lines):
        yield from ((f"line {line.number}: ", line.value) for line in document)
    elif isinstance(document, list):
        yield from ((f"[{index}]", value) for index, value in enumerate(document))
    else:
        yield "", document


def _is_run(value: object) -> bool:
    if not isinstance(value, dict) or "messages" in value or not isinstance(value.get("history"), list):
        return False
    found = [message for message in value["history"][:_TRIED] if isinstance(message, dict)]
    return any(message.get("role") in _ROLES for message in found) and all(map(_is_message, found))


def _is_message(message: dict[str, Any]) -> bool:
    said = message.get("content")
    return "role" in message and (said is None or isinstance(said, str | list))


def _observed(run: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """What was observed beside each reply (by its index in the history), and what stands beside the history."""
    beside = rest(run, ("history",))
    steps = run.get("trajectory")
    replies = [
        index
        for index, message in enumerate(run["history"])
        if fields(message).get("role") == "assistant" and not message.get("is_demo")
    ]
    if not isinstance(steps, list) or len(steps) != len(replies) or not all(isinstance(step, dict) for step in steps):
        return {}, beside
    observed = {index: rest(step, _REPEATED_FIELDS) for index, step in zip(replies, steps, strict=True)}
    return observed, rest(beside, ("trajectory",))


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(history: list[Any], where: str, observed: dict[int, dict[str, Any]], skip: Skip) -> Iterator[Entry]:
    for index, message in enumerate(history):
        place = f"{where}[{index}]"
        if not isinstance(message, dict):
            skip(place, "not an object")
            continue
        role = message.get("role")
        if role in ("user", "system"):
            yield Said(
                id=str(index),
                role="user" if role == "user" else "system",
                content=content(message.get("content")),
                metadata=rest(message, _SAID_FIELDS),
            )
        elif role == "assistant":
            yield _reply(str(index), message, observed.get(index, {}), place, skip)
        elif role == "tool":
            yield _result(str(index), message)
        else:
            skip(place, f"the role is {text(role) or 'missing'!r:.60}; a role is one of {', '.join(_ROLES)}")


def _reply(id_: str, message: dict[str, Any], observed: dict[str, Any], where: str, skip: Skip) -> Reply:
    metadata = rest(message, _REPLY_FIELDS)
    said = content(message.get("content"))
    if said and metadata.get("thought") == said:
        del metadata["thought"]
    asked = []
    for index, call in enumerate(items(message.get("tool_calls"))):
        if isinstance(call, dict):
            asked.append(call)
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    # The time of an action is that of its call, where there is one.
    took = milliseconds(observed.get("execution_time")) if len(asked) == 1 else None
    thoughts = [fields(block).get("thinking") for block in items(message.get("thinking_blocks"))]
    return Reply(
        id=id_,
        content=said,
        calls=[_call(call, took) for call in asked],
        reasoning="\n\n".join(thought for thought in thoughts if isinstance(thought, str)) or None,
        agent_name=text(message.get("agent")),
        metadata=metadata | observed,
    )


def _call(call: dict[str, Any], took: float | None) -> Call:
    function = fields(call.get("function"))
    return Call(
        id=text(call.get("id")),
        name=text(function.get("name")) or "",
        args=function.get("arguments"),
        duration=took,
        metadata=rest(call, _CALL_FIELDS) | rest(function, ("name", "arguments")),
    )


def _result(id_: str, message: dict[str, Any]) -> Result:
    output, parts = text_of(content(message.get("content")))
    answered = [message.get("tool_call_id"), *items(message.get("tool_call_ids"))]
    return Result(
        id=id_,
        output=output,
        failed=None,
        call_ids=list(dict.fromkeys(call_id for one in answered if (call_id := text(one)))),
        name=text(message.get("name")),
        attachments=[part for part in parts or () if not is_text(part)] or None,
        metadata=rest(message, _RESULT_FIELDS),
    )

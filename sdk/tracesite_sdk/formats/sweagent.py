"""Read trajectories of SWE-agent: `.traj` files with the conversation (`history`) and the outcome of each action.

The messages of the history are those of OpenAI's chat completions with further fields: the `agent`, and the `thought` and
the `action` parsed from a reply. A reply with `tool_calls` is a step; a message with the role `tool` is the result of the
calls in its `tool_call_ids`. Without function calling, the action is part of the text of a reply, and its output is the
next user message. Both stay messages; the action is metadata of the reply.

`trajectory` repeats the history reply by reply, with the state of the environment and the duration of the action, which
are added to the reply. If it does not match the history, it is kept whole in the metadata, as are all other fields, such
as `info` with the exit status and the submission. The format has no times, no ids of conversations and no flag for a
failed action.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from tracesite_sdk.normalize.json_values import content, fields, items, milliseconds, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "sweagent"

_ROLES = ("system", "user", "assistant", "tool")
_MAX_TRIED = 20
"""Values that are tested to recognise a document."""
_RUN_MARKS = frozenset({"trajectory", "environment", "replay_config"})
_MESSAGE_MARKS = frozenset({"agent", "message_type", "thought", "action", "tool_call_ids", "is_demo"})
"""Fields of which a run, or one of its messages, has one: other systems have a `history` of messages, too."""

# Fields with a column of their own; all others are kept in metadata.
_MESSAGE_FIELDS = ("role", "content")
_REPLY_FIELDS = ("role", "content", "tool_calls", "agent", "thinking_blocks")
_RESULT_FIELDS = ("role", "content", "tool_call_ids", "tool_call_id", "name")
_CALL_FIELDS = ("id", "type", "index", "function")
# Fields of the trajectory that repeat the history.
_REPEATED_FIELDS = ("action", "observation", "response", "thought", "messages", "query", "thinking_blocks")


def recognises(document: Document) -> bool:
    return any(map(_is_run, first_values(document, _MAX_TRIED)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the runs of a document that `recognises` accepts; report omissions to `skip`."""
    for place, (where, run) in enumerate(numbered_values(document)):
        if not _is_run(run):
            skip(where or "(all)", "no history of messages")
            continue
        observed, metadata = _split(run)
        entries = list(_entries(run["history"], join_place(where, "history"), observed, skip))
        exit_status = fields(run.get("info")).get("exit_status")
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            status="error" if isinstance(exit_status, str) and "error" in exit_status else None,
            metadata=metadata,
        )


# --- Runs -----------------------------------------------------------------------------------------------------------


def _is_run(value: object) -> bool:
    if not isinstance(value, dict) or "messages" in value or not isinstance(value.get("history"), list):
        return False
    messages = [message for message in value["history"][:_MAX_TRIED] if isinstance(message, dict)]
    if _RUN_MARKS.isdisjoint(value) and all(map(_MESSAGE_MARKS.isdisjoint, messages)):
        return False
    return any(message.get("role") in _ROLES for message in messages) and all(
        "role" in message and isinstance(message.get("content"), str | list | None) for message in messages
    )


def _split(run: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], dict[str, Any]]:
    """Return the facts about each reply, by its index in the history, and the metadata of the run."""
    metadata = rest(run, ("history",))
    steps = run.get("trajectory")
    replies = [
        index
        for index, message in enumerate(run["history"])
        if fields(message).get("role") == "assistant" and not message.get("is_demo")
    ]
    if not isinstance(steps, list) or len(steps) != len(replies) or not all(isinstance(step, dict) for step in steps):
        return {}, metadata
    observed = {index: rest(step, _REPEATED_FIELDS) for index, step in zip(replies, steps, strict=True)}
    return observed, rest(metadata, ("trajectory",))


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(history: list[Any], where: str, observed: dict[int, dict[str, Any]], skip: Skip) -> Iterator[Entry]:
    for index, message in enumerate(history):
        path = f"{where}[{index}]"
        if not isinstance(message, dict):
            skip(path, "not an object")
            continue
        role = message.get("role")
        if role in ("user", "system"):
            yield Prompt(
                id=str(index),
                role="user" if role == "user" else "system",
                content=content(message.get("content")),
                metadata=rest(message, _MESSAGE_FIELDS),
            )
        elif role == "assistant":
            yield _reply(str(index), message, observed.get(index, {}), path, skip)
        elif role == "tool":
            yield _result(str(index), message)
        else:
            skip(path, f"the role is {text(role) or 'missing'!r:.60}; a role is one of {', '.join(_ROLES)}")


def _reply(id_: str, message: dict[str, Any], observed: dict[str, Any], where: str, skip: Skip) -> Reply:
    metadata = rest(message, _REPLY_FIELDS)
    value = content(message.get("content"))
    if value and metadata.get("thought") == value:
        del metadata["thought"]
    calls = []
    for index, call in enumerate(items(message.get("tool_calls"))):
        if isinstance(call, dict):
            calls.append(call)
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    # The duration of an action is that of its only call.
    duration = milliseconds(observed.get("execution_time")) if len(calls) == 1 else None
    thoughts = [fields(block).get("thinking") for block in items(message.get("thinking_blocks"))]
    return Reply(
        id=id_,
        content=value,
        calls=[_call(call, duration) for call in calls],
        reasoning="\n\n".join(thought for thought in thoughts if isinstance(thought, str)) or None,
        agent_name=text(message.get("agent")),
        metadata=metadata | observed,
    )


def _call(call: dict[str, Any], duration: float | None) -> Call:
    function = fields(call.get("function"))
    return Call(
        id=text(call.get("id")),
        name=text(function.get("name")) or "",
        args=function.get("arguments"),
        duration=duration,
        metadata=rest(call, _CALL_FIELDS) | rest(function, ("name", "arguments")),
    )


def _result(id_: str, message: dict[str, Any]) -> Result:
    output, attachments = text_and_attachments(content(message.get("content")))
    call_ids = [message.get("tool_call_id"), *items(message.get("tool_call_ids"))]
    return Result(
        id=id_,
        output=output,
        failed=None,
        call_ids=list(dict.fromkeys(call_id for value in call_ids if (call_id := text(value)))),
        name=text(message.get("name")),
        attachments=attachments,
        metadata=rest(message, _RESULT_FIELDS),
    )

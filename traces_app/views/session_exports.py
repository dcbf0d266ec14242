"""Exports of a session: Tracesite's own JSON, a message a line, Markdown, plain text, an OpenAI chat, and the spans it was made of.

Each is streamed, in UTF-8; at most EXPORT_CHUNK messages are in memory at a time, with their traces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from msgspec.structs import replace

from access_app.db import Database
from messages_app.models import Message
from messages_app.queries import FoundSession, sessions
from messages_app.safe_text import duration, one_line, plainly_visible
from messages_app.sql.pagination import Cursor, IdRange
from traces_app.models import Score, ToolCall
from traces_app.queries.contexts import InputKey, entry_values, inputs_by_reference
from traces_app.queries.messages import messages, with_inputs
from traces_app.queries.schemas import calls as call_schemas
from traces_app.queries.schemas import contexts as context_schemas
from traces_app.queries.schemas import messages as message_schemas
from traces_app.queries.schemas import scores as score_schemas
from traces_app.queries.scores import scores
from traces_app.spans.stored import spans_of, traces_of
from tracesite_sdk.spans.otlp_json import resource_spans

EXPORT_CHUNK = 20
NAME_CHARACTERS = 200
"""The length of a tool's name in Markdown."""


@dataclass(frozen=True, kw_only=True)
class ExportFormat:
    """A format in which a session is exported."""

    pieces: Callable[[Database, FoundSession], Iterator[bytes]]
    content_type: str
    extension: str
    of_messages: Callable[[Iterable[message_schemas.Message]], Iterator[bytes]] | None = None
    """Writes some messages only; None if the format is one of whole sessions."""


def own_json(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield a schemas.SessionExport, which POST /sessions/ accepts."""
    entries: dict[str, str] = {}

    def read(keys: Collection[InputKey]) -> Mapping[InputKey, context_schemas.ModelInput]:
        inputs, refs = inputs_by_reference(db, keys)
        entries.update(refs)
        return inputs

    head = msgspec.json.encode(sessions(db, [str(session.pk)])[0])
    yield head[:-1] + b',"messages":['
    yield from _with_commas(_with_inputs(chunk, read) for chunk in _chunks(db, session))
    yield b'],"contexts":{'
    separator = b""
    refs = sorted(entries)
    for first in range(0, len(refs), EXPORT_CHUNK):
        some = refs[first : first + EXPORT_CHUNK]
        values = entry_values(db, [entries[ref] for ref in some])
        for ref in some:
            if entries[ref] in values:
                yield separator + msgspec.json.encode(ref) + b":" + bytes(values[entries[ref]])
                separator = b","
    yield b'},"scores":' + msgspec.json.encode(_scores_of(db, session)) + b"}"


def otlp(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield the spans that the session was made of, as a request that POST /v1/traces accepts."""
    yield b'{"resourceSpans":['
    yield from _with_commas(
        resource_spans(spans_of(db, session.project_id, trace)) for trace in traces_of(db, session.pk)
    )
    yield b"]}"


def json_lines(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield a message a line, as GET /messages/{id}/ has it."""
    for message in _all_messages(db, session):
        yield msgspec.json.encode(message) + b"\n"


def text(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield the conversation as plain text, with each chain as steps and lines of calls."""
    return text_of(_all_messages(db, session))


def text_of(some: Iterable[message_schemas.Message]) -> Iterator[bytes]:
    """Yield messages as plain text."""
    separator = ""
    for message in some:
        yield (separator + "\n".join(_text_lines(message)) + "\n").encode()
        separator = "\n"


def openai_chat(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield `{"messages": [...]}` as the chat completions API of OpenAI takes it.

    A step is a message with its tool calls, followed by one message for each result; then comes the answer. Open calls
    have no result, which that API refuses. https://platform.openai.com/docs/api-reference/chat/create
    """
    yield b'{"messages":['
    yield from _with_commas(_chat_messages(message) for message in _all_messages(db, session))
    yield b"]}"


def markdown(db: Database, session: FoundSession) -> Iterator[bytes]:
    """Yield the conversation for people. What the trace says stands in code blocks, so that none of it becomes markup."""
    row = sessions(db, [str(session.pk)])[0]
    yield f"# {_('Session')}\n\n{row.id} · {row.created_at}\n".encode()
    if row.title:
        yield f"\n{_block(row.title)}\n".encode()
    for message in _all_messages(db, session):
        yield "".join(f"\n{part}\n" for part in _passages(message)).encode()


EXPORTS = {
    "tracesite": ExportFormat(pieces=own_json, content_type="application/json", extension="json"),
    "otlp": ExportFormat(pieces=otlp, content_type="application/json", extension="otlp.json"),
    "jsonl": ExportFormat(pieces=json_lines, content_type="application/x-ndjson", extension="jsonl"),
    "markdown": ExportFormat(pieces=markdown, content_type="text/markdown; charset=utf-8", extension="md"),
    "text": ExportFormat(pieces=text, content_type="text/plain; charset=utf-8", extension="txt", of_messages=text_of),
    "openai": ExportFormat(pieces=openai_chat, content_type="application/json", extension="openai.json"),
}
"""Formats by the word of `format`."""


# --- What is exported -------------------------------------------------------------------------------------------------


def _chunks(db: Database, session: FoundSession) -> Iterator[list[message_schemas.Message]]:
    """Yield the messages that are not deleted, oldest first."""
    remaining = IdRange()
    rows = db.rows(Message.objects).filter(session_id=session.pk).order_by("pk").values_list("pk", flat=True)
    while chunk := list(rows.filter(**remaining.of("pk"))[:EXPORT_CHUNK]):
        yield messages(db, [str(message_id) for message_id in chunk])
        remaining = Cursor(position=chunk[-1], newer=True).ids


def _all_messages(db: Database, session: FoundSession) -> Iterator[message_schemas.Message]:
    for chunk in _chunks(db, session):
        yield from chunk


def _with_inputs(
    chunk: Collection[message_schemas.Message],
    read: Callable[[Collection[InputKey]], Mapping[InputKey, context_schemas.ModelInput]],
) -> list[message_schemas.Message]:
    steps = [(message.id, step) for message in chunk for step in message.agent_steps]
    whole = iter(with_inputs(steps, read))
    return [replace(message, agent_steps=[next(whole) for _step in message.agent_steps]) for message in chunk]


def _scores_of(db: Database, session: FoundSession) -> list[score_schemas.Score]:
    ids: Collection[UUID] = (
        db.rows(Score.objects).filter(session_id=session.pk).order_by("pk").values_list("pk", flat=True)
    )
    return scores(db, [str(score_id) for score_id in ids])


def _with_commas(lists: Iterator[Collection[Any]]) -> Iterator[bytes]:
    separator = b""
    for items in lists:
        for item in items:
            yield separator + msgspec.json.encode(item)
            separator = b","


# --- OpenAI -----------------------------------------------------------------------------------------------------------


def _chat_messages(message: message_schemas.Message) -> list[dict[str, Any]]:
    # The thought of a step without calls is the answer or a draft of it.
    chat = [item for step in message.agent_steps if step.tool_calls for item in _asked_and_found(step)]
    if message.content or not chat:
        chat.append({"role": message.role, "content": message.content})
    return chat


def _asked_and_found(step: message_schemas.AgentStep) -> Iterator[dict[str, Any]]:
    calls = [
        # The id given by a model may repeat in a conversation.
        {"id": call.uuid, "type": "function", "function": {"name": call.name, "arguments": _as_text(call.args)}}
        for call in step.tool_calls
    ]
    yield {"role": "assistant", "content": step.thought or None, "tool_calls": calls}
    for call in step.tool_calls:
        if call.result is not None:
            yield {"role": "tool", "tool_call_id": call.uuid, "content": call.result.output or call.result.error or ""}


def _as_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


# --- Markdown ---------------------------------------------------------------------------------------------------------


def _passages(message: message_schemas.Message) -> Iterator[str]:
    role = Message.Role(message.role).label
    facts = [message.created_at, duration(message.duration) if message.duration is not None else ""]
    yield f"## {capfirst(role)} · {' · '.join(filter(None, map(str, facts)))}"
    for step in message.agent_steps:
        if step.thought and step.tool_calls:
            yield _block(step.thought)
        for call in step.tool_calls:
            yield from _call(call)
    if message.content:
        yield _block(message.content)
    if message.error:
        yield f"**{_('Error')}**"
        yield _block(message.error)


def _call(call: call_schemas.ToolCall) -> Iterator[str]:
    name = _span(one_line(call.name, NAME_CHARACTERS) or _("(no name)"))
    took = f" · {duration(call.duration)}" if call.duration is not None else ""
    yield f"**{_('Tool call')}** {name} · {ToolCall.Status(call.status).label}{took}"
    yield _block(_as_text(call.args))
    if call.result is not None and (said := call.result.error or call.result.output):
        yield f"**{_('Error') if call.result.error else _('Output')}**"
        yield _block(said)


# --- Text -------------------------------------------------------------------------------------------------------------


def _text_lines(message: message_schemas.Message) -> Iterator[str]:
    role = capfirst(Message.Role(message.role).label)
    took = f" · {duration(message.duration)}" if message.duration is not None else ""
    yield f"{role} · {message.created_at}{took}"
    for step in message.agent_steps:
        agent = f" ({plainly_visible(one_line(step.agent_name, NAME_CHARACTERS))})" if step.agent_name else ""
        yield _labelled(f"{_('Step %(number)s') % {'number': step.iteration}}{agent}", step.thought)
        for call in step.tool_calls:
            yield from _call_lines(call)
    if message.content:
        yield _labelled(_("Answer"), message.content) if message.agent_steps else plainly_visible(message.content)
    if message.error:
        yield _labelled(_("Error"), message.error)


def _call_lines(call: call_schemas.ToolCall) -> Iterator[str]:
    result = call.result
    state = _("open") if result is None else _("ok") if result.success else _("failed")
    took = f" {call.duration} ms" if call.duration is not None else ""
    name = plainly_visible(one_line(call.name, NAME_CHARACTERS)) or _("(no name)")
    said = "" if result is None else (result.error or result.output)
    yield _labelled(f"  {state} {name}{took} {plainly_visible(_as_text(call.args))}", said or "", indent=4)
    if call.reflection:
        yield _labelled(f"  {_('Reflection')}", call.reflection, indent=4)


def _labelled(label: str, said: str, indent: int = 2) -> str:
    """Return a text behind its label; its further lines are indented, so that none looks like a line of ours."""
    first, *more = plainly_visible(said).split("\n")
    head = f"{label}: {first}" if first or more else label
    return "\n".join([head, *(" " * indent + line for line in more)])


def _span(line: str) -> str:
    """Return a line as a code span, whose fence is longer than any in the line: https://spec.commonmark.org/0.31.2/."""
    fence = "`" * (max((len(run) for run in re.findall("`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if fence != "`" else f"`{line}`"


def _block(text: str) -> str:
    """Return `text` as a code block, whose fence is longer than any in the text: https://spec.commonmark.org/0.31.2/."""
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
    return f"{fence}\n{text}\n{fence}"

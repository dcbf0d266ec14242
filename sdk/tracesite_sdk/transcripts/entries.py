"""Entries: the parts of a transcript that every format reads its file into.

A format yields entries (Prompt, Reply, Result) in the order of the file. The modules beside this one turn them into records:
turns.py and conversation.py group them, turn_records.py builds the messages, times.py gives every message a time, and
outline.py names the session.

Pure Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct

from tracesite_sdk import records


class Prompt(Struct, frozen=True, kw_only=True):
    """A message of the user or of the system."""

    id: str
    """The transcript's id of this entry, or its index; unique in the transcript."""
    role: Literal["user", "system"]
    content: str | list[Any] | None
    created_at: datetime | None = None
    """Aware. If no entry of a transcript has a time, see times.with_times."""
    health: Sequence[str] = ()
    """Flags of oddities in this entry, such as NAIVE_TIME; its message gets them. STOPPED, of what says that the user stopped the
    turn before it, is for that turn."""
    is_aside: bool = False
    """Whether the client inserted it without a question of the user, so that the turn continues."""
    metadata: dict[str, Any] = {}


class Call(Struct, frozen=True, kw_only=True):
    """A call that a reply requests."""

    id: str | None
    name: str
    args: Any
    """An object, or its JSON text; normalization decides which."""
    duration: float | None = None
    """Milliseconds."""
    started_at: datetime | None = None
    """None: the time of its reply."""
    metadata: dict[str, Any] = {}


class Reply(Struct, frozen=True, kw_only=True):
    """One response of the model: text, calls, or both."""

    id: str
    content: str | list[Any] | None
    calls: Sequence[Call] = ()
    reasoning: str | None = None
    agent_name: str | None = None
    model: str | None = None
    """Where a response is read as several replies, only the one with its usage has it: it makes a reply a request that has a cost."""
    usage: dict[str, Any] | None = None
    """Tokens of this reply alone, under the provider's names as far as docs/cost.md has them; those under others count as none."""
    created_at: datetime | None = None
    """The end of the reply; its start, if its duration is known."""
    duration: float | None = None
    """Milliseconds that the model took."""
    input: records.ModelInput | None = None
    """The input of the model."""
    time_to_first_token: float | None = None
    """Milliseconds."""
    ended_at: datetime | None = None
    """When the last part of a streamed reply was written; a later snapshot may hold more parts."""
    step_id: str | None = None
    """The format's globally unique id of this reply: it identifies the step instead of the step's position."""
    parent_call: str | None = None
    """The id of the call that started the replying sub-agent; its calls are nested below that call. "" if the reply is a
    sub-agent's, but the call is unknown, or has no id."""
    parent: Call | None = None
    """That call itself, where the format knows it: its id may be missing or that of another call, too."""
    is_request: bool = False
    """Whether it is one request to the model, though neither its model nor its usage is known. A request stays a step if its text
    becomes the answer, because tokens have a cost in steps only."""
    error: str | None = None
    """Why there is no answer: the model refused or could not be reached. The message has failed, whatever follows."""
    scope: str | None = None
    """The scope in which the ids of its calls are unique, if smaller than the transcript: a node, an agent."""
    health: Sequence[str] = ()
    metadata: dict[str, Any] = {}


class Result(Struct, frozen=True, kw_only=True):
    """The result of a tool."""

    id: str
    output: Any
    """As in the format: text or any JSON, which normalization brings into one form."""
    failed: bool | None
    """The format's own flag; None if it has none or it is unset: normalization then decides from the output."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    """The start of the tool, if the result and not the call has it."""
    duration: float | None = None
    """Milliseconds."""
    error: str | None = None
    """Why it failed, if the format says so beside the output."""
    data: Any = None
    """Data for machines beside the output: an artifact, a structured result."""
    call_ids: Sequence[str] = ()
    """The calls it answers; several if one observation answers all calls of a reply."""
    call: Call | None = None
    """The call it answers, where the format has found it by more than its id and name."""
    replaces: str | None = None
    """The id of an earlier result of `call`, which stands until this one comes."""
    is_guessed: bool = False
    """Whether it fits other calls as well as this one."""
    scope: str | None = None
    """The scope of the reply whose calls it answers."""
    name: str | None = None
    attachments: list[Any] | None = None
    health: Sequence[str] = ()
    metadata: dict[str, Any] = {}


Entry = Prompt | Reply | Result


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """One conversation of a document, as a format found it; outline.session_of makes it a session."""

    entries: Callable[[], Iterable[Entry]]
    """Return the entries in their order. Called twice for a long transcript, so that it need not be kept in memory."""
    place: int = 0
    """Its index in the document."""
    external_id: str | None = None
    """Its own id."""
    has_own_ids: bool = False
    """Whether this id and those of its entries are globally unique: equal ids then mean equal things, and a transcript can
    be a part of another."""
    title: str | None = None
    end_user: str | None = None
    status: records.SessionStatus | None = None
    workflow: Any = None
    """The plan of the task: any JSON."""
    tags: Sequence[str] = ()
    created_at: datetime | None = None
    """None: the first time of an entry."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    put_in: int = 0
    """Bytes that stand in it for references to values of the document, each time that one is referred to."""


EMPTY_CONVERSATION = "no user or assistant message"
"""Why a transcript for which `has_conversation` is false is left out."""


def has_conversation(entries: Iterable[Entry]) -> bool:
    """Return whether there is more than system prompts."""
    return any(isinstance(entry, Reply | Result) or entry.role == "user" for entry in entries)


def is_text(part: Any) -> bool:
    """Return whether a content part is plain text, so that the text of the content holds all of it."""
    return isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")


def size_of(entry: Entry) -> int:
    """Return the size of an entry in characters, roughly."""
    values: list[Any]
    if isinstance(entry, Result):
        values = [entry.output, entry.data, entry.attachments, entry.metadata]
    elif isinstance(entry, Prompt):
        values = [entry.content, entry.metadata]
    else:
        values = [entry.content, entry.reasoning, entry.metadata, *((call.args, call.metadata) for call in entry.calls)]
    characters = 0
    # Not recursive, because values may be nested deeper than Python's stack.
    while values:
        value = values.pop()
        if isinstance(value, str):
            characters += len(value)
        elif isinstance(value, dict):
            characters += 16 * len(value)
            values.extend(value.values())
        elif isinstance(value, list | tuple):
            values.extend(value)
        else:
            characters += 8
    return characters

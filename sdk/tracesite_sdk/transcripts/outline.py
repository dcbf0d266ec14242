"""The session of a transcript: its name, title, times, status, and the digests by which a later import recognises it.

A long transcript is read twice and never kept in memory: `outline` reads everything but the messages, `messages_of` those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.records import bytes_put_in, hyphenated_uuid, text_of
from tracesite_sdk.records import ids

from . import conversation
from .conversation import messages, stream_messages
from .entries import Call, Entry, Prompt, Reply, Result, Transcript, is_text, size_of
from .times import Clock, first_time, is_time
from .turn_records import MOST_NAME_CHARACTERS

SHARE = "agent-"
"""Prefix of the external id of a message that holds a sub-agent's share of its session: see sub_agents.py."""
IMPORT_FORMAT = "import_format"
DERIVED = "transcript-"
"""Prefix of the external ids of sessions without an id of their own. It does not contain the format, because the format of
a conversation that has only begun may be undecided: a role and a text are a message in several."""
DIGESTS = "import_digests"
"""Key in a session's metadata: the digests of its entries in their order, as hexadecimal digits; see `digests`."""
DIGEST_BYTES = 4

_TITLE_LENGTH = 80
_TAG_LENGTH = 200


@dataclass(frozen=True, kw_only=True)
class Outline:
    """A transcript without its messages."""

    session: records.Session
    """Without messages; with them if the document holds records, which are stored unchanged."""
    digests: bytes
    """DIGEST_BYTES for each entry, see `digests`; empty if the entries have ids of their own."""
    entries: Callable[[], Iterable[Entry]]
    """Return the entries; few ones are kept in memory."""
    is_titled: bool
    """Whether the title is the transcript's own, not the start of the first prompt."""
    count: int
    """Number of entries."""
    characters: int
    """Their size, roughly."""
    untimed: int
    """Number of messages before the first that has a time."""
    first_time: datetime | None
    """That time."""
    put_in: int
    """See Transcript."""


def outline(transcript: Transcript | records.Session, format_name: str) -> Outline:
    """Read the entries of a transcript once, keeping them only if they are few.

    The external id is the transcript's own. Otherwise it derives from the first system text, the first text of the
    conversation and `place`, the transcript's index in its file: never from the file's name or date. The title is the
    transcript's own, too, otherwise the start of the first prompt. IMPORT_FORMAT is added to the metadata. Without a status
    of its own the session has failed if its last answer is an error, and is completed if answers followed the error.
    """
    if isinstance(transcript, records.Session):
        return _outline_of_records(transcript)
    entries = iter(transcript.entries())
    summary = _Summary(has_own_ids=transcript.has_own_ids)
    held: list[Entry] = []
    is_held = True
    for entry in entries:
        summary.add(entry)
        held.append(entry)
        if len(held) > conversation.MOST_HELD or summary.characters > conversation.MOST_HELD_CHARACTERS:
            is_held = False
            break
    untimed, first = _first_time(held)
    if not is_held:
        held.clear()
        for entry in entries:
            summary.add(entry)
    external_id = transcript.external_id
    if external_id is None or len(external_id) > MOST_NAME_CHARACTERS:
        basis = summary.opening() if external_id is None else (external_id,)
        external_id = f"{DERIVED}{ids.key(*basis, transcript.place).hex}"
    return Outline(
        session=records.Session(
            external_id=external_id,
            title=shortened(transcript.title or summary.first_prompt or "") or None,
            end_user=transcript.end_user[:MOST_NAME_CHARACTERS] if transcript.end_user else None,
            status=transcript.status or summary.status(),
            workflow=transcript.workflow,
            tags=[tag[:_TAG_LENGTH] for tag in transcript.tags] or None,
            created_at=transcript.created_at or summary.began,
            metadata={**transcript.metadata, IMPORT_FORMAT: format_name},
        ),
        digests=bytes(summary.digests),
        entries=held.copy if is_held else transcript.entries,
        is_titled=bool(transcript.title),
        count=summary.count,
        characters=summary.characters,
        untimed=untimed,
        first_time=first,
        put_in=transcript.put_in,
    )


def _outline_of_records(session: records.Session) -> Outline:
    """Return the outline of a session that needs no mapping, with the name that it has or will have by its id."""
    session_messages = session.messages or []
    times = [message.created_at for message in session_messages if message.created_at]
    name = session.external_id or session.id
    return Outline(
        session=replace(
            session,
            id=session.id if session.id != name or hyphenated_uuid(session.id) else None,
            external_id=name,
            created_at=session.created_at or min(times, default=None),
            messages=session_messages,
        ),
        digests=b"",
        entries=tuple,
        is_titled=True,
        count=sum(1 + len(message.agent_steps or ()) for message in session_messages),
        characters=sum(len(message.content) for message in session_messages if isinstance(message.content, str)),
        untimed=0,
        first_time=None,
        put_in=sum(bytes_put_in(session)),
    )


def messages_of(outline: Outline, start: datetime) -> Iterator[records.Message]:
    """Yield the messages of a transcript with their times, in its order but for turns that finish late.

    `start` is the time of the first message if the transcript has no times.
    """
    if outline.session.messages is not None:
        yield from outline.session.messages
        return
    clock = Clock(outline.session.created_at or start, outline.untimed, outline.first_time)
    for _index, message in stream_messages(outline.entries(), clock):
        yield message


def session(
    entries: Sequence[Entry], *, format_name: str, place: int, has_own_ids: bool = False, **fields: Any
) -> records.Session:
    """Return the session of these entries, see `session_of`. `fields` are those of Transcript."""
    transcript = Transcript(entries=lambda: entries, place=place, has_own_ids=has_own_ids, **fields)
    return session_of(transcript, format_name)


def session_of(transcript: Transcript | records.Session, format_name: str) -> records.Session:
    """Return the whole session of a transcript: its messages with their own times only, its digests in the metadata."""
    if isinstance(transcript, records.Session):
        return transcript
    outlined = outline(transcript, format_name)
    own = {} if transcript.has_own_ids else {DIGESTS: outlined.digests.hex()}
    metadata = {**(outlined.session.metadata or {}), **own}
    return replace(outlined.session, metadata=metadata, messages=messages(outlined.entries()))


def digests(entries: Iterable[Entry]) -> list[str]:
    """Return 8 hexadecimal digits for each entry, and for each call of one: a digest of everything up to it.

    A transcript that has grown has the digests of its start and more; two that diverge differ from there on.
    """
    summary = _Summary(has_own_ids=False)
    for entry in entries:
        summary.add(entry)
    return digests_of({DIGESTS: summary.digests.hex()})


def digests_of(metadata: Mapping[str, Any] | None) -> list[str]:
    """Return the digests in the metadata of a session."""
    joined = (metadata or {}).get(DIGESTS)
    length = 2 * DIGEST_BYTES
    return [joined[at : at + length] for at in range(0, len(joined), length)] if isinstance(joined, str) else []


class _Summary:
    """The facts that an outline needs of the entries, added one after the other."""

    def __init__(self, *, has_own_ids: bool) -> None:
        self.count = 0
        self.characters = 0
        self.digests = bytearray()
        self.began: datetime | None = None
        self.first_prompt: str | None = None
        """The text of the first user message."""
        self._running_digest = None if has_own_ids else blake2b(digest_size=DIGEST_BYTES)
        self._system: Prompt | None = None
        self._first: Entry | None = None
        """The first entry that is not the system's."""
        self._has_failed = self._failed_last = False

    def add(self, entry: Entry) -> None:
        self.count += 1
        self.characters += size_of(entry)
        if self._running_digest is not None:
            for parts in _identity_parts(entry):
                self._running_digest.update(ids.key(entry.id, *parts).bytes)
                self.digests += self._running_digest.digest()
        self.began = self.began or entry.created_at
        if self._first is None:
            if isinstance(entry, Prompt) and entry.role == "system":
                self._system = self._system or entry
            else:
                self._first = entry
        if isinstance(entry, Prompt):
            if self.first_prompt is None and entry.role == "user":
                self.first_prompt = text_of(entry.content)[0]
        elif isinstance(entry, Reply) and entry.parent_call is None:
            self._failed_last = bool(entry.error)
            self._has_failed |= self._failed_last

    def status(self) -> records.SessionStatus | None:
        """Return how the session ended; None if no reply is an error."""
        return None if not self._has_failed else "error" if self._failed_last else "completed"

    def opening(self) -> tuple[object, ...]:
        """Return the first system text and the first other entry: they are fixed as soon as the conversation begins."""
        system_text = _canonical(self._system.content) if self._system is not None else ""
        first = self._first
        if isinstance(first, Prompt):
            return (system_text, "user", _canonical(first.content))
        if isinstance(first, Reply):
            called = (part for call in first.calls for part in _call_parts(call))
            return (system_text, "assistant", ids.key(text_of(first.content)[0], *called).hex[:16])
        return (system_text, "tool", _canonical(first.output)) if first is not None else (system_text,)


def _first_time(entries: Sequence[Entry]) -> tuple[int, datetime | None]:
    """Return how many messages come before the first that has a time, and that time."""
    if not any(is_time(entry.created_at) for entry in entries):
        return 0, None
    return first_time(message.created_at for message in messages(entries))


def _canonical(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _identity_parts(entry: Entry) -> list[list[str]]:
    """Return the parts that distinguish an entry from others, a list for each digest.

    Metadata and reasoning are left out, because some clients send them again and others do not. The text and each call of
    a reply are apart, because a file whose parts are separate lines may have ended between them.
    """
    if isinstance(entry, Result):
        return [["tool", _canonical(entry.output), *entry.call_ids]]
    text, content_parts = text_of(entry.content)
    others = [_canonical(part) for part in content_parts or () if not is_text(part)]
    if isinstance(entry, Prompt):
        return [[entry.role, text, *others]]
    parts = [["assistant", text, *others]] if text or others or entry.error else []
    return [*parts, *(["call", *_call_parts(call)] for call in entry.calls)]


def _call_parts(call: Call) -> tuple[str, str, str]:
    return call.id or "", call.name, _canonical(call.args)


def shortened(title: str) -> str:
    text = " ".join(title.split())
    return text if len(text) <= _TITLE_LENGTH else text[: _TITLE_LENGTH - 1] + "…"

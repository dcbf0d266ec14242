"""From what a transcript says, entry by entry, to sessions and messages: the mapping that all formats share.

A format reads its file into entries (Said, Reply, Result) and hands them to `session`; what a turn is, which result
answers which call and what a transcript is called are decided here, once:

* From one user message to the next is one assistant message. A reply that calls tools is a step, its text the thought;
  the last plain reply is the content; an earlier plain reply is a step without calls. No reply, no message.
* A result answers the open call of its id, the earliest first where an id repeats; then the one whose id it is when a
  repeated id ("call_7call_7") is folded on either side; without an id, the earliest open
  call of the turn (of its name, if it has one). Where ids are told apart within a scope only, so are the calls. A result
  that answers no call gets a placeholder call and a flag.
* Replies of a sub-agent are steps below the call that started it, in the message of that call and with the iteration of
  its step; they neither end a turn nor are they ever its content.
* A message begins with its first entry and is complete with its last; a step begins with its reply, a call too.
* Everything is decided by what came before, so a transcript that has grown gives the same records and more: messages
  keep their external ids, steps their iterations. Importing a start and then the whole is importing the whole.

A long transcript is gone through twice and never held: `outline` says what it is, `messages_of` what is said in it. A
turn may change for some time after its end, by late results and sub-agents: it is given out when MOST_HELD entries or
MOST_HELD_CHARACTERS lie behind it, and with calls that are still open when MOST_LEFT_OPEN calls of later turns are, too.
What comes for it even later is taken for an orphan. One turn is held whole.

Pure Python, without Django.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from messages_app import ids
from traces_app.normalize.call_ids import folded
from traces_app.normalize.records import hyphenated_uuid, text_of, tokens
from traces_app.schema import records
from traces_app.schema.health_flags import ORPHAN_RESULT, REPAIRED_ID, TIME_WENT_BACK

UNKNOWN_TOOL = "unknown"
SHARE = "agent-"
"""How the external id of a message begins that holds a sub-agent's share of its session: see sub_agents.py."""
IMPORT_FORMAT = "import_format"
DERIVED = "transcript-"
"""How the names of sessions begin that have none of their own. The format is not in it: of a conversation that has only
begun the format may not be known yet, as a message of a role and a text is one in several."""
DIGESTS = "import_digests"
"""What the entries of a session say, in their order: see `digests`."""
DIGEST_BYTES = 4

MOST_HELD = 5_000
"""Entries of turns that are over, which are held for what may still come for them."""
MOST_HELD_CHARACTERS = 8_000_000
"""Of these entries, about."""
MOST_LEFT_OPEN = 1_000
"""Calls that wait for their results in turns that are given out but for them."""

_TITLE_LENGTH = 80
_NAME_LENGTH = 512
_TAG_LENGTH = 200
_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message of the user or of the system."""

    id: str
    """What the transcript calls this entry, or its index in it; unique in the transcript."""
    role: Literal["user", "system"]
    content: str | list[Any] | None
    created_at: datetime | None = None
    """Aware; of an entry, when it was said. Where no entry of a transcript has one, see `with_times`."""
    health: Sequence[str] = ()
    """Flags of what was odd about this entry, such as NAIVE_TIME; its message has them."""
    is_aside: bool = False
    """Whether nobody asked for anything here: the client put it between, so the turn goes on."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call that a reply asks for."""

    id: str | None
    name: str
    args: Any
    """An object, or its JSON text; normalise settles which."""
    duration: float | None = None
    """Milliseconds."""
    started_at: datetime | None = None
    """Omitted: when its reply was made."""
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """One answer of the model: text, calls, or both."""

    id: str
    content: str | list[Any] | None
    calls: Sequence[Call] = ()
    reasoning: str | None = None
    agent_name: str | None = None
    model: str | None = None
    usage: dict[str, Any] | None = None
    """Tokens of this one reply, named as the provider does."""
    created_at: datetime | None = None
    """When it was made; where its duration is known, when it was begun."""
    duration: float | None = None
    """Milliseconds that the model took."""
    ended_at: datetime | None = None
    """When its last part was written down, where it came in parts: a later snapshot may hold more of them."""
    step_id: str | None = None
    """The format's own id of this reply, where it is unique in the world: the step is known by it, not by its place."""
    parent_call: str | None = None
    """The id of the call that started the agent which replies: a sub-agent. Its calls stand below that one. "" for a
    sub-agent of which it is not known."""
    error: str | None = None
    """Why there is no answer: the model refused to, or could not be reached. Its message has failed, whatever follows."""
    scope: str | None = None
    """Within what the ids of its calls are told apart, where that is less than the transcript: a node, an agent."""
    health: Sequence[str] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a tool answered."""

    id: str
    output: Any
    """As the format has it: text, or any JSON, which normalise brings to its one form."""
    failed: bool | None
    """By the format's own flag; None where it has none, or did not set it: normalise tells from what the output says."""
    created_at: datetime | None = None
    started_at: datetime | None = None
    """When the tool began, where that is known otherwise than of its call."""
    duration: float | None = None
    """Milliseconds."""
    data: Any = None
    """What the format keeps for machines beside the output: an artifact, a structured result."""
    call_ids: Sequence[str] = ()
    """The calls it answers; several where one observation answers all calls of a reply."""
    scope: str | None = None
    """That of the reply whose calls it answers."""
    name: str | None = None
    attachments: list[Any] | None = None
    health: Sequence[str] = ()
    metadata: dict[str, Any] = field(default_factory=dict)


Entry = Said | Reply | Result


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """One conversation of a document, as a format found it; `session` says what becomes of it."""

    entries: Callable[[], Iterable[Entry]]
    """In their order. May be called again: a long transcript is read twice instead of being held."""
    place: int = 0
    """Its index in the document."""
    external_id: str | None = None
    """Its own id."""
    has_own_ids: bool = False
    """Whether this id and those of its entries are unique in the world: then whatever has them is the same, and a
    transcript may be a part of one."""
    title: str | None = None
    end_user: str | None = None
    status: records.SessionStatus | None = None
    workflow: Any = None
    """The plan of the task: any JSON."""
    tags: Sequence[str] = ()
    created_at: datetime | None = None
    """Omitted: the first time that an entry says."""
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Outline:
    """What a transcript is, without what is said in it."""

    session: records.Session
    """Without messages; with them where the document says records, which are stored as they are."""
    digests: bytes
    """What its entries say, DIGEST_BYTES for each: see `digests`. None where they have ids of their own."""
    entries: Callable[[], Iterable[Entry]]
    """Held, where they are few."""
    is_titled: bool
    """Whether the title is the transcript's own, not what was said first."""
    count: int
    """How many they are."""
    characters: int
    """In them, about."""
    untimed: int
    """Messages before the first that says a time ..."""
    first_time: datetime | None
    """... and that time."""


def outline(transcript: Transcript | records.Session, format_name: str) -> Outline:
    """Goes through the entries of a transcript once, and holds them only if they are few.

    The session is called by the transcript's own id. Without one that derives from the first system text, the first text
    of the conversation and `place`, the transcript's index in its file: never from the file's name or date.
    The title is its own too, else the start of what the user said first. Of the metadata IMPORT_FORMAT is ours.
    Without a status of its own it has failed where its last answer is an error, and is completed where answers followed.
    """
    if isinstance(transcript, records.Session):
        return _outline_of_records(transcript)
    entries = iter(transcript.entries())
    seen = _Seen(has_own_ids=transcript.has_own_ids)
    held: list[Entry] = []
    for entry in entries:
        seen.see(entry)
        held.append(entry)
        if len(held) > MOST_HELD or seen.characters > MOST_HELD_CHARACTERS:
            break
    untimed, first_time = _first_time(held)
    is_held = len(held) <= MOST_HELD and seen.characters <= MOST_HELD_CHARACTERS
    if not is_held:
        held.clear()
        for entry in entries:
            seen.see(entry)
    external_id = transcript.external_id
    if external_id is None or len(external_id) > _NAME_LENGTH:
        basis = seen.opening() if external_id is None else (external_id,)
        external_id = f"{DERIVED}{ids.key(*basis, transcript.place).hex}"
    return Outline(
        session=records.Session(
            external_id=external_id,
            title=_shortened(transcript.title or seen.first_words or "") or None,
            end_user=transcript.end_user[:_NAME_LENGTH] if transcript.end_user else None,
            status=transcript.status or seen.status(),
            workflow=transcript.workflow,
            tags=[tag[:_TAG_LENGTH] for tag in transcript.tags] or None,
            created_at=transcript.created_at or seen.began,
            metadata={**transcript.metadata, IMPORT_FORMAT: format_name},
        ),
        digests=bytes(seen.digests),
        entries=held.copy if is_held else transcript.entries,
        is_titled=bool(transcript.title),
        count=seen.count,
        characters=seen.characters,
        untimed=untimed,
        first_time=first_time,
    )


def _outline_of_records(session: records.Session) -> Outline:
    """A session that needs no mapping, under the name that it has or will have by its id."""
    messages = session.messages or []
    times = [message.created_at for message in messages if message.created_at]
    name = session.external_id or session.id
    return Outline(
        session=replace(
            session,
            id=session.id if session.id != name or hyphenated_uuid(session.id) else None,
            external_id=name,
            created_at=session.created_at or min(times, default=None),
            messages=messages,
        ),
        digests=b"",
        entries=tuple,
        is_titled=True,
        count=sum(1 + len(message.agent_steps or ()) for message in messages),
        characters=sum(len(message.content) for message in messages if isinstance(message.content, str)),
        untimed=0,
        first_time=None,
    )


def messages_of(outline: Outline, start: datetime) -> Iterator[records.Message]:
    """The messages of a transcript, with their times (see `with_times`): in its order, but for those given out late."""
    if outline.session.messages is not None:
        yield from outline.session.messages
        return
    clock = _Clock(outline.session.created_at or start, outline.untimed, outline.first_time)
    for _index, message in _messages(outline.entries(), clock):
        yield message


NOTHING_SAID = "nothing was said by a user or an assistant"
"""Why what `says_something` denies is left out."""


def says_something(entries: Iterable[Entry]) -> bool:
    """Whether there is anything to see; a system prompt alone is none."""
    return any(isinstance(entry, Reply | Result) or entry.role == "user" for entry in entries)


def session(
    entries: Sequence[Entry], *, format_name: str, place: int, has_own_ids: bool = False, **said: Any
) -> records.Session:
    """The session of these entries, held whole; see `session_of`. `said` is of Transcript."""
    transcript = Transcript(entries=lambda: entries, place=place, has_own_ids=has_own_ids, **said)
    return session_of(transcript, format_name)


def session_of(transcript: Transcript | records.Session, format_name: str) -> records.Session:
    """The session of a transcript, held whole: its messages with no other times than it says, and its digests, as
    hexadecimal digits, in the metadata (DIGESTS)."""
    if isinstance(transcript, records.Session):
        return transcript
    found = outline(transcript, format_name)
    own = {} if transcript.has_own_ids else {DIGESTS: found.digests.hex()}
    metadata = {**(found.session.metadata or {}), **own}
    return replace(found.session, metadata=metadata, messages=messages(found.entries()))


def messages(entries: Iterable[Entry]) -> list[records.Message]:
    """The messages of a transcript in its order; their external ids are the ids of their first entries."""
    return [message for _index, message in sorted(_messages(entries, None), key=itemgetter(0))]


def with_times(session: records.Session, start: datetime) -> records.Session:
    """The session with a time on every message, each later than the one before: stored messages are read by their times.

    A message without a time has that of the one before it and a millisecond; those before the first time end at it, and
    where there is none they begin at `start`. A time that goes back is kept in the metadata, and flagged.
    """
    began = session.created_at or start
    said = [message.created_at for message in session.messages or ()]
    clock = _Clock(began, *_first_of(said))
    timed = [_timed(message, *clock.tell(message.created_at)) for message in session.messages or ()]
    return replace(session, created_at=began, messages=timed)


class _Clock:
    """Tells the times of messages, one after the other."""

    def __init__(self, began: datetime, untimed: int, first_time: datetime | None) -> None:
        self._previous = min(began, (first_time or began) - untimed * _MILLISECOND) - _MILLISECOND

    def tell(self, said: datetime | None) -> tuple[datetime, bool]:
        """The time of the next message, and whether what it says itself is before that of the last one."""
        time = said if _is_time(said) and said else self._previous + _MILLISECOND
        went_back = time < self._previous
        if time <= self._previous:
            time = self._previous + _MICROSECOND
        self._previous = time
        return time, went_back


def _is_time(said: datetime | None) -> bool:
    """Whether it is any; nothing before the year 2000, which is a clock that nobody set."""
    return said is not None and said >= ids.EARLIEST


def _first_of(said: Iterable[datetime | None]) -> tuple[int, datetime | None]:
    return next(((index, time) for index, time in enumerate(said) if _is_time(time)), (0, None))


def _timed(message: records.Message, time: datetime, went_back: bool) -> records.Message:
    health, metadata = message.health, message.metadata
    if went_back:
        assert message.created_at is not None, "only a time can go back"
        health = sorted({*(health or ()), TIME_WENT_BACK})
        metadata = {**(metadata or {}), "said_at": message.created_at.astimezone(UTC).isoformat()}
    completed_at = max(time, message.completed_at) if message.completed_at else None
    return replace(message, created_at=time, completed_at=completed_at, health=health, metadata=metadata)


def digests(entries: Iterable[Entry]) -> list[str]:
    """For each entry, and each call of one, 8 hexadecimal digits that say what was said up to and with it.

    A transcript that has grown has the digests of its start and more; two that part have other digests from there on.
    """
    seen = _Seen(has_own_ids=False)
    for entry in entries:
        seen.see(entry)
    return digests_of({DIGESTS: seen.digests.hex()})


def digests_of(metadata: Mapping[str, Any] | None) -> list[str]:
    """The digests that `session_of` put into the metadata of a session."""
    joined = (metadata or {}).get(DIGESTS)
    length = 2 * DIGEST_BYTES
    return [joined[at : at + length] for at in range(0, len(joined), length)] if isinstance(joined, str) else []


def is_text(part: Any) -> bool:
    """Whether a content part is text and no more, so that the text of the content holds all of it."""
    return isinstance(part, str) or (isinstance(part, dict) and part.get("type") == "text")


# --- Turns ------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Asked:
    """A call on its way to its result."""

    call: Call
    step: _Step
    uuid: str | None = None
    """What it is known by where its id is that of an earlier call of the message."""
    result: Result | None = None


@dataclass(eq=False)
class _Step:
    """A reply with its calls; placeholders of orphan results stand below the reply they came after, or alone."""

    turn: _Turn
    reply: Reply | None
    iteration: int
    calls: list[_Asked] = field(default_factory=list)
    parent: _Asked | None = None
    """The call that started the agent which replies."""


@dataclass(eq=False)
class _Spoken:
    """A message of the user or of the system."""

    index: int
    said: Said
    entries: int = 0
    characters: int = 0


@dataclass(eq=False)
class _Turn:
    """One assistant message in the making."""

    index: int
    """Its place among the messages."""
    id: str
    began: datetime | None
    entries: int = 0
    characters: int = 0
    ended: datetime | None = None
    time: tuple[datetime, bool] | None = None
    """What the clock told, as soon as it did."""
    open_calls: int = 0
    steps: list[_Step] = field(default_factory=list)
    call_ids: Counter[str] = field(default_factory=Counter)
    iterations: int = 0
    """Steps that are no sub-agent's."""
    health: set[str] = field(default_factory=set)

    def note(self, entry: Reply | Result) -> None:
        self.health.update(entry.health)
        if entry.created_at is not None:
            end = _after(entry.created_at, entry.duration if isinstance(entry, Reply) else None)
            if isinstance(entry, Reply) and entry.ended_at is not None:
                end = max(end, entry.ended_at)
            self.ended = max(self.ended or end, end)

    def add_step(self, reply: Reply | None, parent: _Asked | None = None) -> _Step:
        if parent is None:
            iteration, self.iterations = self.iterations, self.iterations + 1
        else:
            iteration = parent.step.iteration
        self.steps.append(_Step(self, reply, iteration, parent=parent))
        return self.steps[-1]

    def add_call(self, step: _Step, call: Call) -> _Asked:
        asked = _Asked(call, step)
        if call.id:
            if self.call_ids[call.id]:
                asked.uuid = f"{call.id}#{self.call_ids[call.id]}"
            self.call_ids[call.id] += 1
        step.calls.append(asked)
        return asked


def _messages(entries: Iterable[Entry], clock: _Clock | None) -> Iterator[tuple[int, records.Message]]:
    """The messages with their places, as soon as nothing can change them any more."""
    conversation = _Conversation(clock)
    for entry in entries:
        conversation.hear(entry)
        yield from conversation.given_out()
    yield from conversation.given_out(all_of_it=True)


class _Conversation:
    """The items of a transcript as they appear: what was said, and a turn wherever replies or results begin."""

    def __init__(self, clock: _Clock | None) -> None:
        self._clock = clock
        self._count = 0
        self._items: deque[_Spoken | _Turn] = deque()
        """In their order, those that are not given out."""
        self._entries = 0
        self._characters = 0
        self._late: dict[_Turn, None] = {}
        """Turns that are no longer among the items, and wait for results only."""
        self._left_open = 0
        """Calls that are open in these."""
        self._finished: list[_Turn] = []
        """Turns that waited, and no longer do."""
        self._turn: _Turn | None = None
        self._waiting: defaultdict[tuple[object, ...], deque[_Asked]] = defaultdict(deque)
        """Open calls by what a result may know of them. One call waits under several keys and is skipped once answered."""
        self._asked: dict[str, _Asked] = {}
        """The last call of an id."""

    def hear(self, entry: Entry) -> None:
        if isinstance(entry, Said):
            self._say(entry)
        elif isinstance(entry, Reply):
            self._reply(entry)
        else:
            self._answer(entry)

    def given_out(self, *, all_of_it: bool = False) -> Iterator[tuple[int, records.Message]]:
        """Those messages that are held no longer, each once."""
        while self._finished:
            yield self._give(self._finished.pop())
        while self._items and (all_of_it or self._holds_too_much()):
            item = self._items[0]
            if item is self._turn and not all_of_it:
                break
            self._items.popleft()
            self._entries -= item.entries
            self._characters -= item.characters
            if isinstance(item, _Spoken):
                message = _said(item.said)
                yield item.index, _timed(message, *self._clock.tell(message.created_at)) if self._clock else message
                continue
            item.time = self._clock.tell(item.began) if self._clock else None
            if item.open_calls and not all_of_it:
                self._late[item] = None
                self._left_open += item.open_calls
            else:
                yield self._give(item)
        while self._late and (all_of_it or self._left_open > MOST_LEFT_OPEN):
            turn = next(iter(self._late))
            del self._late[turn]
            self._left_open -= turn.open_calls
            yield self._give(turn)

    def _holds_too_much(self) -> bool:
        return self._entries > MOST_HELD or self._characters > MOST_HELD_CHARACTERS

    def _give(self, turn: _Turn) -> tuple[int, records.Message]:
        """The message of a turn, which is forgotten."""
        for step in turn.steps:
            scope = step.reply.scope if step.reply is not None else None
            for asked in step.calls:
                if asked.call.id and self._asked.get(asked.call.id) is asked:
                    del self._asked[asked.call.id]
                for key in _keys(turn, asked.call, scope):
                    queue = self._waiting.get(key, deque())
                    if asked in queue:
                        queue.remove(asked)
                    if not queue:
                        self._waiting.pop(key, None)
        message = _turn(turn)
        return turn.index, _timed(message, *turn.time) if turn.time else message

    def _say(self, said: Said) -> None:
        item = _Spoken(self._next_index(), said)
        self._items.append(item)
        self._weigh(item, said)
        if said.role == "user" and not said.is_aside:
            self._turn = None

    def _reply(self, reply: Reply) -> None:
        parent = self._asked.get(reply.parent_call) if reply.parent_call else None
        turn = parent.step.turn if parent is not None else self._open_turn(reply)
        self._weigh(turn, reply)
        turn.note(reply)
        turn.open_calls += len(reply.calls)
        self._left_open += len(reply.calls) if turn in self._late else 0
        step = turn.add_step(reply, parent)
        for call in reply.calls:
            asked = turn.add_call(step, call)
            if call.id:
                self._asked[call.id] = asked
            for key in _keys(turn, call, reply.scope):
                self._waiting[key].append(asked)

    def _answer(self, result: Result) -> None:
        wanted = _wanted(self._turn, result)
        answered = [asked for keys in wanted if (asked := self._take(keys)) is not None]
        for asked in answered:
            asked.step.turn.open_calls -= 1
            self._left_open -= asked.step.turn in self._late
        if not answered:
            answered = [_placeholder(self._open_turn(result), result)]
        for asked in answered:
            turn = asked.step.turn
            self._weigh(turn, result)
            asked.result = result
            turn.note(result)
            if asked.call.id and asked.call.id not in result.call_ids:
                _note_repair(asked, result)
            if not turn.open_calls and turn in self._late:
                del self._late[turn]
                self._finished.append(turn)

    def _open_turn(self, first: Reply | Result) -> _Turn:
        if self._turn is None:
            self._turn = _Turn(self._next_index(), first.id, first.created_at)
            self._items.append(self._turn)
        return self._turn

    def _next_index(self) -> int:
        self._count += 1
        return self._count - 1

    def _weigh(self, item: _Spoken | _Turn, entry: Entry) -> None:
        if item in self._late:
            return
        characters = _length(entry)
        item.entries += 1
        item.characters += characters
        self._entries += 1
        self._characters += characters

    def _take(self, keys: tuple[tuple[object, ...], ...]) -> _Asked | None:
        for key in keys:
            queue = self._waiting.get(key)
            while queue:
                asked = queue.popleft()
                if asked.result is None:
                    return asked
        return None


def _after(start: datetime, duration: float | None) -> datetime:
    try:
        return start + timedelta(milliseconds=duration or 0)
    except OverflowError:
        # Beyond the year 9999, which no clock says.
        return start


def _keys(turn: _Turn, call: Call, scope: str | None) -> list[tuple[object, ...]]:
    keys: list[tuple[object, ...]] = [(turn, scope, call.name), (turn, scope)]
    if call.id:
        meant = folded(call.id)
        repaired = [("repaired id", scope, meant)] if meant != call.id else []
        return [("id", scope, call.id), *repaired, *keys]
    return [("no id", turn, scope, call.name), ("no id", turn, scope), *keys]


def _wanted(turn: _Turn | None, result: Result) -> list[tuple[tuple[object, ...], ...]]:
    """For each call that the result answers, the keys to look under, in order."""
    within = (turn, result.scope, result.name) if result.name else (turn, result.scope)
    if not result.call_ids:
        return [(within,)]
    # An exact id first, so that nothing is attached to another call; then a repair on either side.
    return [
        (
            ("id", result.scope, call_id),
            ("repaired id", result.scope, folded(call_id)),
            ("id", result.scope, folded(call_id)),
            ("no id", *within),
        )
        for call_id in result.call_ids
    ]


def _note_repair(asked: _Asked, result: Result) -> None:
    """Flags that the id of a result was folded; of a call, normalise does."""
    repaired = next((call_id for call_id in result.call_ids if folded(call_id) != call_id), None)
    if repaired is not None:
        asked.step.turn.health.add(REPAIRED_ID)
        asked.call = changed(asked.call, metadata={**asked.call.metadata, REPAIRED_ID: repaired})


def _placeholder(turn: _Turn, result: Result) -> _Asked:
    turn.health.add(ORPHAN_RESULT)
    # A plain reply stays plain, so that it can be the content: the placeholder then stands in a step of its own.
    # Below a sub-agent's it would move when that is known by another place.
    step = turn.steps[-1] if turn.steps and turn.steps[-1].calls and not turn.steps[-1].parent else turn.add_step(None)
    call_id = next(iter(result.call_ids), None)
    call = Call(id=call_id, name=result.name or UNKNOWN_TOOL, args={}, metadata={ORPHAN_RESULT: True})
    return turn.add_call(step, call)


# --- Records ------------------------------------------------------------------------------------------------------


def _said(said: Said) -> records.Message:
    return records.Message(
        role=said.role,
        external_id=said.id,
        content=said.content,
        created_at=said.created_at,
        health=sorted(said.health) or None,
        metadata=dict(said.metadata) or None,
    )


def _turn(turn: _Turn) -> records.Message:
    """A snapshot may have ended at any entry, and a merge empties nothing: what it may have said is said or replaced."""
    own = [step for step in turn.steps if step.parent is None]
    plain = [(step, step.reply) for step in own if step.reply and not step.calls and step.reply.parent_call is None]
    spoken = [(step, reply) for step, reply in plain if text_of(reply.content) != ("", None)]
    answer: _Step | None = None
    content, metadata = None, {}
    if plain:
        answer, reply = (spoken or plain)[-1]
        earlier = [other for step, other in plain if step.iteration < answer.iteration]
        content, metadata = reply.content, dict.fromkeys(key for other in earlier for key in said_beside(other))
        metadata |= said_beside(reply)
        if not isinstance(content, list) and any(isinstance(other.content, list) for other in earlier):
            content = [{"type": "text", "text": content or ""}]
        if answer is not own[-1] or len(plain) > 1:
            metadata["answer_iteration"] = answer.iteration
    usages = [step.reply.usage for step in turn.steps if step.reply is not None and step.reply.usage]
    return records.Message(
        role="assistant",
        external_id=turn.id,
        content=content,
        # The iteration counts replies, with the answer in its place: a step keeps it when more replies follow.
        agent_steps=[_step(step) for step in sorted(turn.steps, key=_iteration) if step is not answer],
        created_at=turn.began,
        completed_at=turn.ended,
        # A message that says no usage has that of its steps, and the answer is none of them.
        usage=total_usage(usages) if any(reply.usage for _step, reply in plain) else None,
        error=next((step.reply.error for step in reversed(own) if step.reply and step.reply.error), None),
        health=sorted(turn.health) or None,
        metadata=metadata or None,
    )


def _iteration(step: _Step) -> int:
    return step.iteration


def said_beside(reply: Reply) -> dict[str, Any]:
    """In metadata, what a message says of the reply that is its content."""
    said = (("reasoning_content", reply.reasoning), ("agent_name", reply.agent_name), ("model", reply.model))
    return {**reply.metadata, **{name: value for name, value in said if value}}


def total_usage(usages: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The usage of several replies: numbers added up, of anything else the last."""
    total: dict[str, Any] = {}
    for usage in usages:
        _add(usage, total)
    counts = [tokens(usage) for usage in usages]
    counted = sum(count[0] for count in counts), sum(count[1] for count in counts)
    if tokens(total) != counted:
        # Several providers, each with names of its own.
        total |= dict(zip(("input_tokens", "output_tokens"), counted, strict=True))
    return total


def _add(usage: Mapping[str, Any], total: dict[str, Any]) -> None:
    for name, value in usage.items():
        known = total.get(name)
        if isinstance(value, dict):
            total[name] = dict(known) if isinstance(known, dict) else {}
            _add(value, total[name])
        elif _is_number(value) and _is_number(known):
            total[name] = known + value
        elif value is not None:
            total[name] = value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _step(step: _Step) -> records.AgentStep:
    calls = [_call(asked) for asked in step.calls]
    if step.reply is None:
        return records.AgentStep(iteration=step.iteration, tool_calls=calls)
    return replace(step_of(step.reply, step.iteration), tool_calls=calls)


def step_of(reply: Reply, iteration: int | None) -> records.AgentStep:
    """What a reply comes to where it is not the answer, without its calls."""
    thought, parts = text_of(reply.content)
    metadata = dict(reply.metadata)
    if parts and not all(map(is_text, parts)):
        metadata["content_parts"] = parts
    if reply.error:
        metadata["error"] = reply.error
    if reply.parent_call:
        # Its calls say it, but it may have none, or none yet.
        metadata["parent_call"] = reply.parent_call
    return records.AgentStep(
        id=_name(reply.step_id, "id", metadata),
        iteration=iteration,
        thought=thought or None,
        reasoning_content=reply.reasoning or None,
        agent_name=_name(reply.agent_name, "agent_name", metadata),
        model=_name(reply.model, "model", metadata),
        usage=reply.usage or None,
        timestamp=reply.created_at,
        duration=reply.duration,
        metadata=metadata or None,
    )


def _call(asked: _Asked) -> records.ToolCall:
    call, reply, parent, answered = asked.call, asked.step.reply, asked.step.parent, asked.result
    metadata = dict(call.metadata)
    result = result_of(answered) if answered is not None else None
    return records.ToolCall(
        id=_name(call.id, "id", metadata),
        uuid=_name(asked.uuid, "uuid", {}),
        name=_name(call.name, "name", metadata) or "",
        args=call.args,
        duration=answered.duration if answered is not None and call.duration is None else call.duration,
        started_at=call.started_at
        or (answered.started_at if answered is not None else None)
        or (reply.created_at if reply is not None else None),
        completed_at=answered.created_at if answered is not None else None,
        result=result,
        status=result.status if result is not None else "pending",
        parent=_name(parent.uuid or parent.call.id, "parent", {}) if parent is not None else None,
        metadata=metadata or None,
    )


def result_of(result: Result) -> records.ToolResult:
    """What a result comes to."""
    return records.ToolResult(
        status=None if result.failed is None else "error" if result.failed else "success",
        output=result.output,
        data=result.data,
        attachments=result.attachments,
        metadata=dict(result.metadata) or None,
    )


def _name(value: str | None, key: str, metadata: dict[str, Any]) -> str | None:
    """Names are indexed and bounded (records.Name): a longer one is cut, and kept whole in the metadata."""
    if not value:
        return None
    if len(value) > _NAME_LENGTH:
        metadata[key] = value
    return value[:_NAME_LENGTH]


# --- Identity -----------------------------------------------------------------------------------------------------


class _Seen:
    """What an outline says of the entries, one after the other."""

    def __init__(self, *, has_own_ids: bool) -> None:
        self.count = 0
        self.characters = 0
        self.digests = bytearray()
        self.began: datetime | None = None
        self.first_words: str | None = None
        """What the user said first."""
        self._running = None if has_own_ids else blake2b(digest_size=DIGEST_BYTES)
        self._system: Said | None = None
        self._first: Entry | None = None
        """That is not of the system."""
        self._has_failed = self._failed_last = False

    def see(self, entry: Entry) -> None:
        self.count += 1
        self.characters += _length(entry)
        if self._running is not None:
            for said in _said_in(entry):
                self._running.update(ids.key(entry.id, *said).bytes)
                self.digests += self._running.digest()
        self.began = self.began or entry.created_at
        if self._first is None:
            if isinstance(entry, Said) and entry.role == "system":
                self._system = self._system or entry
            else:
                self._first = entry
        if isinstance(entry, Said):
            if self.first_words is None and entry.role == "user":
                self.first_words = text_of(entry.content)[0]
        elif isinstance(entry, Reply) and entry.parent_call is None:
            self._failed_last = bool(entry.error)
            self._has_failed |= self._failed_last

    def status(self) -> records.SessionStatus | None:
        """What the replies say of how it ended; nothing where none of them is an error."""
        return None if not self._has_failed else "error" if self._failed_last else "completed"

    def opening(self) -> tuple[object, ...]:
        """The first system text, and the first entry that is not of the system: known as soon as anything was said."""
        system_text = _canonical(self._system.content) if self._system is not None else ""
        first = self._first
        if isinstance(first, Said):
            return (system_text, "user", _canonical(first.content))
        if isinstance(first, Reply):
            return (system_text, "assistant", _digest(first))
        return (system_text, "tool", _canonical(first.output)) if first is not None else (system_text,)


def _first_time(entries: Sequence[Entry]) -> tuple[int, datetime | None]:
    """How many messages come before the first that says a time, and that time."""
    if not any(_is_time(entry.created_at) for entry in entries):
        return 0, None
    return _first_of(message.created_at for message in messages(entries))


def _digest(reply: Reply) -> str:
    return ids.key(text_of(reply.content)[0], *(part for call in reply.calls for part in _asked_in(call))).hex[:16]


def _canonical(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value, order="sorted").decode()


def _said_in(entry: Entry) -> list[list[str]]:
    """What makes an entry another one. Metadata and reasoning do not: one client sends them again, another does not.

    Of a reply it is the text, and each call: where its parts lie apart in a file, that may have ended between them.
    """
    if isinstance(entry, Result):
        return [["tool", _canonical(entry.output), *entry.call_ids]]
    text, parts = text_of(entry.content)
    others = [_canonical(part) for part in parts or () if not is_text(part)]
    if isinstance(entry, Said):
        return [[entry.role, text, *others]]
    said = [["assistant", text, *others]] if text or others or entry.error else []
    return [*said, *(["call", *_asked_in(call)] for call in entry.calls)]


def _asked_in(call: Call) -> tuple[str, str, str]:
    return call.id or "", call.name, _canonical(call.args)


def _length(entry: Entry) -> int:
    """Characters of an entry, about."""
    if isinstance(entry, Result):
        said: list[Any] = [entry.output, entry.data, entry.attachments, entry.metadata]
    elif isinstance(entry, Said):
        said = [entry.content, entry.metadata]
    else:
        said = [entry.content, entry.reasoning, entry.metadata, *((call.args, call.metadata) for call in entry.calls)]
    return _characters(said)


def _characters(value: Any) -> int:
    """Not recursive: values may be nested deeper than Python goes."""
    characters = 0
    values = [value]
    while values:
        item = values.pop()
        if isinstance(item, str):
            characters += len(item)
        elif isinstance(item, dict):
            characters += 16 * len(item)
            values.extend(item.values())
        elif isinstance(item, list | tuple):
            values.extend(item)
        else:
            characters += 8
    return characters


def _shortened(title: str) -> str:
    text = " ".join(title.split())
    return text if len(text) <= _TITLE_LENGTH else text[: _TITLE_LENGTH - 1] + "…"

"""What is new in each session that somebody looks at, kept once for all who do; and how far each of them is.

A feed keeps the newest events of its session, encoded, up to a bound. Whoever looks has a number, that of the last event that
was sent to them, and takes what comes after it:

1. from the table, page by page and as fast as they read, until they are where the feed begins: the past;
2. from the feed, from then on. Numbers only grow, so nothing comes twice, and what is neither in the feed nor was sent is known.
3. Who then falls behind the beginning of the feed is told which numbers were left out, and goes on from there. They can
   be had by subscribing again. So nobody's slowness costs memory, and nothing is left out in silence.

An event is committed after those with smaller numbers: reading on from a number never skips one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import msgspec

KEPT_EVENTS = 1_000
"""Of a session, for those who are a little behind."""
KEPT_CHARACTERS = 4_000_000
PAGE = 200
"""Events that are read of the past, and sent to one client, at a time."""
POLL_SECONDS = 2.0
"""A NOTIFY can be lost, and not all that changes a session sends one."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event as it is sent."""

    seq: int
    json: str


@dataclass(frozen=True, slots=True)
class State:
    """What a session says of itself."""

    last_seq: int
    data: Mapping[str, Any]
    """`status`, `currentPhase`, `resources`."""


class Source(Protocol):
    """Where sessions and events are read. Waits for a database that is away."""

    async def events(self, numbers: Mapping[UUID, int], limit: int) -> dict[UUID, list[Event]]:
        """Of each session the first `limit` events after a number, in order."""

    async def states(self, sessions: Sequence[UUID]) -> dict[UUID, State]:
        """Of each session that is there, and not deleted."""

    async def news(self, numbers: Mapping[UUID, int], limit: int) -> tuple[dict[UUID, list[Event]], dict[UUID, State]]:
        """Both of it, asked for at once."""


@dataclass(frozen=True, slots=True)
class Message:
    """Something to be sent about a session."""

    kind: str
    json: str
    """The whole message."""
    seq: int | None = None
    """Of an event."""


@dataclass(eq=False)
class Feed:
    """The newest events of one session."""

    session_id: UUID
    state: State
    read_to: int
    """The number of the last event that was read."""
    floor: int
    """The number before the first event that is kept."""
    kept: deque[Event] = field(default_factory=deque)
    characters: int = 0
    is_over: bool = False
    """The session was deleted."""
    followers: set[Subscription] = field(default_factory=set)

    def append(self, events: Iterable[Event]) -> None:
        for event in events:
            self.kept.append(event)
            self.characters += len(event.json)
            self.read_to = event.seq
        while self.kept and (len(self.kept) > KEPT_EVENTS or self.characters > KEPT_CHARACTERS):
            dropped = self.kept.popleft()
            self.characters -= len(dropped.json)
            self.floor = dropped.seq

    def after(self, seq: int, limit: int) -> list[Event]:
        """The first `limit` kept events after a number that is not below the floor."""
        newer = []
        for event in reversed(self.kept):
            if event.seq <= seq:
                break
            newer.append(event)
        return newer[: -limit - 1 : -1]

    def wake(self) -> None:
        for follower in self.followers:
            follower.wake.set()


@dataclass(eq=False)
class Subscription:
    """How far one client is in one session."""

    feed: Feed
    name: str
    """What the client calls the session."""
    sent_to: int
    wake: asyncio.Event
    """Set when there may be something to send; one for all subscriptions of a client."""
    follows: bool = False
    """The past is sent."""
    said: Mapping[str, Any] | None = None
    """Of the session's state."""

    def pending(self) -> list[Message]:
        """What the feed has for this client; what was taken counts as sent."""
        messages = []
        feed = self.feed
        if feed.state.data is not self.said:
            said = self.said or {}
            changed = {key: value for key, value in feed.state.data.items() if said.get(key) != value or not said}
            self.said = feed.state.data
            if changed:
                messages.append(message_of("session_update", self.name, data=changed))
        if self.follows and self.sent_to < feed.floor:
            lost = {"after": self.sent_to, "before": feed.floor + 1}
            messages.append(message_of("events_dropped", self.name, **lost))
            self.sent_to = feed.floor
        if self.follows or self.sent_to >= feed.floor:
            self.follows = True
            messages += self.messages_of(feed.after(self.sent_to, PAGE))
        if feed.is_over and self.follows and self.sent_to >= feed.read_to:
            messages.append(message_of("session_deleted", self.name))
        return messages

    def messages_of(self, events: Sequence[Event]) -> list[Message]:
        """The events as they are sent to this client. They count as sent."""
        if not events:
            return []
        self.sent_to = events[-1].seq
        start = f'{{"type":"monitor_event","sessionId":{_json(self.name)},"event":'
        return [Message("monitor_event", f"{start}{event.json}}}", event.seq) for event in events]


class Hub:
    """All feeds of this process. Everything here runs in one event loop."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.feeds: dict[UUID, Feed] = {}
        self.elsewhere = asyncio.Event()
        """Set when a session has news that nobody follows: it may be a new one."""
        self._changed: set[UUID] = set()
        self._news = asyncio.Event()

    async def subscribe(self, session_id: UUID, name: str, after: int, wake: asyncio.Event) -> Subscription | None:
        """None if the session is gone."""
        if session_id not in self.feeds:
            state = (await self.source.states([session_id])).get(session_id)
            if state is None:
                return None
            # Somebody else may have asked meanwhile.
            if session_id not in self.feeds:
                self.feeds[session_id] = Feed(session_id, state, read_to=state.last_seq, floor=state.last_seq)
                self.look_at(session_id)
        feed = self.feeds[session_id]
        subscription = Subscription(feed, name, after, wake)
        feed.followers.add(subscription)
        wake.set()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        feed = subscription.feed
        feed.followers.discard(subscription)
        if not feed.followers and self.feeds.get(feed.session_id) is feed:
            del self.feeds[feed.session_id]

    async def next_messages(self, subscription: Subscription) -> list[Message]:
        """What is to be sent now: a page at most, empty if there is nothing."""
        messages = subscription.pending()
        feed = subscription.feed
        while not subscription.follows:
            floor = feed.floor
            found = await self.source.events({feed.session_id: subscription.sent_to}, PAGE)
            events = found.get(feed.session_id, [])
            messages += subscription.messages_of(events)
            if len(events) < PAGE:
                # That was all there is. Numbers up to the floor that did not come belong to events that were purged.
                subscription.sent_to = max(subscription.sent_to, floor)
                # The floor may be higher by now: then what lies below is read, too.
                messages += subscription.pending()
            if events:
                break
        return messages

    def look_at(self, session_id: UUID) -> None:
        """There may be something new in a session."""
        if session_id in self.feeds:
            self._changed.add(session_id)
            self._news.set()
        else:
            self.elsewhere.set()

    def look_at_all(self) -> None:
        self._changed.update(self.feeds)
        self._news.set()

    async def read_on(self) -> None:
        """Reads what is new for as long as it is not cancelled."""
        while True:
            try:
                await asyncio.wait_for(self._news.wait(), POLL_SECONDS)
            except TimeoutError:
                self.look_at_all()
            self._news.clear()
            changed, self._changed = self._changed & self.feeds.keys(), set()
            if changed:
                await self._read(changed)

    async def _read(self, changed: set[UUID]) -> None:
        asked = {session_id: self.feeds[session_id].read_to for session_id in changed}
        found, states = await self.source.news(asked, KEPT_EVENTS)
        for session_id, read_to in asked.items():
            feed = self.feeds.get(session_id)
            if feed is None or feed.read_to != read_to:
                continue  # all went, and others came, who have a feed of their own
            events = found.get(session_id, [])
            feed.append(events)
            if len(events) == KEPT_EVENTS:
                self.look_at(session_id)
            state = states.get(session_id)
            if state is None:
                feed.is_over = True
                del self.feeds[session_id]
            elif state.data != feed.state.data:
                feed.state = state
            elif not events:
                continue  # nothing is new, so nobody is woken up
            feed.wake()


def message_of(kind: str, name: str | None, **fields: Any) -> Message:
    return Message(kind, _json({"type": kind, "sessionId": name, **fields}))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

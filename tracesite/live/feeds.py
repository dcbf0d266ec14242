"""Feeds: the newest events of each followed session, kept once for all clients, and the position of each client.

A feed keeps the newest encoded events of its session, up to a bound. A subscription has the number of the last event that was
sent and takes the events after it:

1. from the table, page by page at the client's own speed, until it reaches the start of the feed;
2. from then on from the feed. Numbers only grow, so no event is sent twice and every gap is known.
3. A client that falls behind the start of the feed receives the range of dropped numbers and continues from there. It can
   subscribe again to get them. So a slow client costs no memory, and no event is dropped silently.

Events of a session are committed in the order of their numbers, so reading on from a number never skips one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from uuid import UUID

import msgspec

from access_app.masked_reading import masked_value
from tracesite_sdk.redaction.rules import Rules

KEPT_EVENTS = 1_000
"""Most events that a feed keeps, for clients that are slightly behind."""
KEPT_CHARACTERS = 4_000_000
PAGE = 200
"""Events read from the table, and sent to one client, at a time."""
POLL_SECONDS = 2.0
"""Interval of polling, because a NOTIFY can be lost and some changes of a session send none."""


@dataclass(frozen=True, slots=True)
class LiveEvent:
    """An event, encoded for sending."""

    seq: int
    json: str


@dataclass(frozen=True, slots=True)
class SessionState:
    """The state of a session."""

    last_seq: int
    data: Mapping[str, Any]
    """`status`, `currentPhase`, `resources`."""


class Source(Protocol):
    """A reader of sessions and events that retries while the database is unavailable."""

    async def events(self, numbers: Mapping[UUID, int], limit: int) -> dict[UUID, list[LiveEvent]]:
        """Return the first `limit` events of each session after its number, in order."""

    async def states(self, sessions: Sequence[UUID]) -> dict[UUID, SessionState]:
        """Return the states of the sessions that exist and are not deleted."""

    async def news(
        self, numbers: Mapping[UUID, int], limit: int
    ) -> tuple[dict[UUID, list[LiveEvent]], dict[UUID, SessionState]]:
        """Return both `events` and `states`, read in one round trip."""


@dataclass(frozen=True, slots=True)
class LiveMessage:
    """A message about a session, ready to send."""

    kind: str
    json: str
    """The whole encoded message."""
    seq: int | None = None
    """The event's number; None for other messages."""


@dataclass(eq=False)
class Feed:
    """The newest events of one session."""

    session_id: UUID
    state: SessionState
    read_to: int
    """The number of the last event that was read."""
    floor: int
    """The number before the first event that is kept."""
    kept: deque[LiveEvent] = field(default_factory=deque)
    characters: int = 0
    is_over: bool = False
    """Whether the session was deleted."""
    followers: set[Subscription] = field(default_factory=set)

    def append(self, events: Iterable[LiveEvent]) -> None:
        for event in events:
            self.kept.append(event)
            self.characters += len(event.json)
            self.read_to = event.seq
        while self.kept and (len(self.kept) > KEPT_EVENTS or self.characters > KEPT_CHARACTERS):
            dropped = self.kept.popleft()
            self.characters -= len(dropped.json)
            self.floor = dropped.seq

    def after(self, seq: int, limit: int) -> list[LiveEvent]:
        """Return the first `limit` kept events after a number that is not below the floor."""
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
    """The position of one client in one session."""

    feed: Feed
    name: str
    """The id or external id by which the client named the session."""
    sent_to: int
    wake: asyncio.Event
    """Set when there may be messages to send; shared by all subscriptions of a client."""
    mask: Rules | None = None
    """The masking rules of a viewer; None for those who read all values."""
    follows: bool = False
    """Whether the stored events before the feed were sent."""
    sent_state: Mapping[str, Any] | None = None
    """The session's state that was sent last."""

    def pending(self) -> list[LiveMessage]:
        """Return the messages that the feed has for this client and count them as sent."""
        messages = []
        feed = self.feed
        if feed.state.data is not self.sent_state:
            sent = self.sent_state or {}
            changed = {key: value for key, value in feed.state.data.items() if sent.get(key) != value or not sent}
            self.sent_state = feed.state.data
            if self.mask is not None and "currentPhase" in changed:
                changed["currentPhase"] = masked_value(changed["currentPhase"], "current_phase", self.mask)
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

    def messages_of(self, events: Sequence[LiveEvent]) -> list[LiveMessage]:
        """Return the messages of events for this client and count them as sent."""
        if not events:
            return []
        self.sent_to = events[-1].seq
        start = f'{{"type":"monitor_event","sessionId":{_json(self.name)},"event":'
        return [LiveMessage("monitor_event", f"{start}{self._shown(event)}}}", event.seq) for event in events]

    def _shown(self, event: LiveEvent) -> str:
        """Return the JSON of an event as this client reads it: as lists of events show it."""
        if self.mask is None:
            return event.json
        fields = msgspec.json.decode(event.json)
        fields["data"] = masked_value(fields["data"], "data", self.mask)
        fields["sessionId"] = masked_value(fields["sessionId"], "", self.mask)
        return _json(fields)


class Hub:
    """All feeds of this process. All methods run in one event loop."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.feeds: dict[UUID, Feed] = {}
        self.elsewhere = asyncio.Event()
        """Set by a notification about a session without followers, which may be a new one."""
        self._changed: set[UUID] = set()
        self._has_changed = asyncio.Event()

    async def subscribe(
        self, session_id: UUID, name: str, after: int, wake: asyncio.Event, mask: Rules | None = None
    ) -> Subscription | None:
        """Subscribe to a session after event number `after`, masked by rules; None if the session does not exist any more."""
        if session_id not in self.feeds:
            state = (await self.source.states([session_id])).get(session_id)
            if state is None:
                return None
            # Another client may have subscribed during the query.
            if session_id not in self.feeds:
                self.feeds[session_id] = Feed(session_id, state, read_to=state.last_seq, floor=state.last_seq)
                self.look_at(session_id)
        feed = self.feeds[session_id]
        subscription = Subscription(feed, name, after, wake, mask)
        feed.followers.add(subscription)
        wake.set()
        return subscription

    def leave(self, subscription: Subscription) -> None:
        feed = subscription.feed
        feed.followers.discard(subscription)
        if not feed.followers and self.feeds.get(feed.session_id) is feed:
            del self.feeds[feed.session_id]

    async def next_messages(self, subscription: Subscription) -> list[LiveMessage]:
        """Return at most one page of messages to send now."""
        messages = subscription.pending()
        feed = subscription.feed
        while not subscription.follows:
            floor = feed.floor
            by_session = await self.source.events({feed.session_id: subscription.sent_to}, PAGE)
            events = by_session.get(feed.session_id, [])
            messages += subscription.messages_of(events)
            if len(events) < PAGE:
                # The table has no more. Missing numbers up to the floor belong to purged events.
                subscription.sent_to = max(subscription.sent_to, floor)
                # If the floor rose meanwhile, the loop reads the events below it, too.
                messages += subscription.pending()
            if events:
                break
        return messages

    def look_at(self, session_id: UUID) -> None:
        """Note that a session may have new events, and read it soon if it is followed."""
        if session_id in self.feeds:
            self._changed.add(session_id)
            self._has_changed.set()
        else:
            self.elsewhere.set()

    def look_at_all(self) -> None:
        self._changed.update(self.feeds)
        self._has_changed.set()

    async def read_on(self) -> None:
        """Read the changed sessions until cancelled."""
        while True:
            try:
                await asyncio.wait_for(self._has_changed.wait(), POLL_SECONDS)
            except TimeoutError:
                self.look_at_all()
            self._has_changed.clear()
            changed, self._changed = self._changed & self.feeds.keys(), set()
            if changed:
                await self._read(changed)

    async def _read(self, changed: set[UUID]) -> None:
        positions = {session_id: self.feeds[session_id].read_to for session_id in changed}
        by_session, states = await self.source.news(positions, KEPT_EVENTS)
        for session_id, read_to in positions.items():
            feed = self.feeds.get(session_id)
            if feed is None or feed.read_to != read_to:
                continue  # all followers left, and later ones have a new feed
            events = by_session.get(session_id, [])
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
                continue  # no change, so no follower is woken
            feed.wake()


def message_of(kind: str, name: str | None, **fields: Any) -> LiveMessage:
    return LiveMessage(kind, _json({"type": kind, "sessionId": name, **fields}))


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()

"""Test feeds and subscriptions with tables in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite.live import feeds
from tracesite.live.feeds import Hub, LiveEvent, SessionState, Subscription

SESSION = UUID(int=1)


class Memory:
    """A table of events that counts its reads."""

    def __init__(self) -> None:
        self.rows: list[LiveEvent] = []
        self.reads: list[Mapping[UUID, int]] = []
        self.is_there = True

    def add(self, count: int) -> None:
        start = len(self.rows)
        self.rows += [LiveEvent(seq, f'{{"seq":{seq}}}') for seq in range(start + 1, start + count + 1)]

    async def events(self, numbers: Mapping[UUID, int], limit: int) -> dict[UUID, list[LiveEvent]]:
        self.reads.append(dict(numbers))
        await asyncio.sleep(0)
        return {session: self.rows[seq : seq + limit] for session, seq in numbers.items()}

    async def states(self, sessions: Sequence[UUID]) -> dict[UUID, SessionState]:
        await asyncio.sleep(0)
        return {session: SessionState(len(self.rows), {"status": "running"}) for session in sessions if self.is_there}

    async def news(
        self, numbers: Mapping[UUID, int], limit: int
    ) -> tuple[dict[UUID, list[LiveEvent]], dict[UUID, SessionState]]:
        return await self.events(numbers, limit), await self.states(list(numbers))


async def take(hub: Hub, subscription: Subscription) -> list[str]:
    """Take all pending messages, as short words."""
    words = []
    while messages := await hub.next_messages(subscription):
        for message in messages:
            words.append(
                str(message.seq) if message.seq else message.json if "dropped" in message.kind else message.kind
            )
            if message.kind == "session_deleted":
                return words
    return words


async def follow(hub: Hub, after: int = 0) -> Subscription:
    subscription = await hub.subscribe(SESSION, "s", after, asyncio.Event())
    assert subscription is not None
    return subscription


@given(st.lists(st.tuples(st.sampled_from(["add", "read", "take", "come"]), st.integers(0, 8)), max_size=60))
def test_feed_sends_each_number_once_or_reports_it_dropped(
    doings: list[tuple[str, int]],
) -> None:
    async def run() -> None:
        memory = Memory()
        hub = Hub(memory)
        got: list[tuple[int, Subscription, list[str]]] = []
        for doing, number in doings:
            if doing == "add":
                memory.add(number)
            elif doing == "read" and hub.feeds:
                await hub._read(set(hub.feeds))
            elif doing == "come":
                after = min(number, len(memory.rows))
                got.append((after, await follow(hub, after), []))
            elif doing == "take" and got:
                _after, subscription, words = got[number % len(got)]
                words += await take(hub, subscription)
        while any(feed.read_to < len(memory.rows) for feed in hub.feeds.values()):
            await hub._read(set(hub.feeds))
        for after, subscription, words in got:
            words += await take(hub, subscription)
            numbers: list[int] = []
            for word in words:
                if word.isdigit():
                    numbers.append(int(word))
                elif word.startswith("{"):
                    lost = feeds.msgspec.json.decode(word)
                    numbers += range(lost["after"] + 1, lost["before"])
            assert numbers == list(range(after + 1, len(memory.rows) + 1))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feeds, "KEPT_EVENTS", 5)
        patch.setattr(feeds, "PAGE", 3)
        asyncio.run(run())


def test_slow_follower_gets_range_of_dropped_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeds, "KEPT_EVENTS", 5)

    async def run() -> list[str]:
        memory = Memory()
        hub = Hub(memory)
        subscription = await follow(hub)
        assert await take(hub, subscription) == ["session_update"]
        for _ in range(3):
            memory.add(4)
            await hub._read({SESSION})
        return await take(hub, subscription)

    assert asyncio.run(run()) == [
        '{"type":"events_dropped","sessionId":"s","after":0,"before":8}',
        *("8", "9", "10", "11", "12"),
    ]


def test_session_is_read_once_for_all_followers() -> None:
    async def run() -> list[Mapping[UUID, int]]:
        memory = Memory()
        memory.add(2)
        hub = Hub(memory)
        many = [await follow(hub, after=2) for _ in range(50)]
        memory.add(3)
        await hub._read({SESSION})
        assert [await take(hub, one) for one in many] == [["session_update", "3", "4", "5"]] * 50
        return memory.reads

    assert asyncio.run(run()) == [{SESSION: 2}]


def test_deleted_session_ends_after_its_last_event() -> None:
    async def run() -> list[str]:
        memory = Memory()
        hub = Hub(memory)
        subscription = await follow(hub)
        memory.add(1)
        memory.is_there = False
        await hub._read({SESSION})
        assert (hub.feeds, await hub.subscribe(SESSION, "s", 0, asyncio.Event())) == ({}, None)
        return await take(hub, subscription)

    assert asyncio.run(run()) == ["session_update", "1", "session_deleted"]


def test_feed_without_followers_is_removed() -> None:
    async def run() -> None:
        hub = Hub(Memory())
        one, other = await follow(hub), await follow(hub)
        hub.leave(one)
        assert list(hub.feeds) == [SESSION]
        hub.leave(other)
        assert hub.feeds == {}

    asyncio.run(run())

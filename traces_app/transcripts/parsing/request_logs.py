"""Requests to a model and their answers: every request carries the whole conversation so far, so a log repeats it.

Of such exchanges one whose messages begin with all messages of an earlier one is the same conversation, grown. They
become one exchange, that of the longest, which knows when each message was first sent and which answer each reply was:
an answer says more (usage, model, why it stopped) than the message that later requests make of it.

For formats; pure Python, without Django.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec


@dataclass(kw_only=True)
class Exchange:
    """A conversation as one request sends it, with what came back."""

    place: int
    """Its index in the document."""
    where: str
    """The JSON path of its messages."""
    messages: list[Any]
    rest: Mapping[str, Any]
    """What stands beside the messages."""
    answer: dict[str, Any] | None = None
    """The message that came back."""
    sent_at: datetime | None = None
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By the index of the message, for those replies whose answer was seen."""
    times: dict[int, datetime] = field(default_factory=dict)
    """When a message was first sent, by its index."""
    can_grow: bool = True
    """Whether it is one request of perhaps many, no conversation that somebody kept."""


def joined(exchanges: Iterable[Exchange], said: Callable[[Any], Any]) -> list[Exchange]:
    """The conversations of a log in the order in which they began, their last answers among the messages.

    `said` is what a message says, without what one request marks and another does not.
    """
    kept: list[Exchange] = []
    ends: dict[bytes, int] = {}
    """Digest of all messages that were sent -> which conversation."""
    for exchange in exchanges:
        _note(exchange)
        if not exchange.can_grow or not exchange.messages:
            kept.append(exchange)
            continue
        digests = prefix_digests(exchange.messages, said)
        earlier = next((ends.pop(digest) for digest in reversed(digests) if digest in ends), None)
        if earlier is None:
            ends[digests[-1]] = len(kept)
            kept.append(exchange)
        else:
            ends[digests[-1]] = earlier
            known = kept[earlier]
            exchange.answers = {**known.answers, **exchange.answers}
            exchange.times = {**exchange.times, **known.times}
            kept[earlier] = replace(exchange, place=known.place, where=known.where)
    return [_with_answers(exchange, said) for exchange in kept]


def _note(exchange: Exchange) -> None:
    if exchange.answer is not None:
        exchange.answers[len(exchange.messages)] = exchange.answer
    if exchange.sent_at is not None:
        exchange.times = dict.fromkeys(range(len(exchange.messages) + 1), exchange.sent_at)


def _with_answers(exchange: Exchange, said: Callable[[Any], Any]) -> Exchange:
    """The exchange with the last answer as a message; an answer that later requests changed is none of its messages."""
    last = exchange.answers.get(len(exchange.messages))
    messages = exchange.messages if last is None else [*exchange.messages, last]
    answers = {index: answer for index, answer in exchange.answers.items() if said(messages[index]) == said(answer)}
    return replace(exchange, messages=messages, answers=answers)


def prefix_digests(messages: list[Any], said: Callable[[Any], Any]) -> list[bytes]:
    """Return a digest for every prefix of the list; `said` returns the part of a message that counts."""
    running = blake2b(digest_size=16)
    digests = []
    for message in messages:
        encoded = msgspec.json.encode(said(message), order="sorted")
        running.update(b"%d:%b" % (len(encoded), encoded))
        digests.append(running.digest())
    return digests

"""Merge the requests of a log into conversations: every request repeats the whole conversation so far.

An exchange whose messages begin with all messages of an earlier one is the same conversation, grown. Both become one
exchange, the longer one, with the time at which each message was first sent and the response that each reply came from:
a response has fields (usage, model, finish reason) that the message in later requests lacks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk.transcripts.entries import Reply, Result

from .requests import model_input


@dataclass(kw_only=True)
class Exchange:
    """A conversation as one request sends it, with the response."""

    place: int
    """Its index in the document."""
    where: str
    """The JSON path of its messages."""
    messages: list[Any]
    rest: Mapping[str, Any]
    """Other fields of the request."""
    answer: dict[str, Any] | None = None
    """The message of the response."""
    request: Mapping[str, Any] | None = None
    """The body of the request, if it is one; its messages do not matter."""
    sent_at: datetime | None = None
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The answers of earlier responses, by the index of their message."""
    requests: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    """The requests that were answered, by the index of the reply."""
    times: dict[int, datetime] = field(default_factory=dict)
    """The time when a message was first sent, by its index."""
    can_grow: bool = True
    """Whether it is a request, which later requests may repeat, and not a stored conversation."""


def joined(exchanges: Iterable[Exchange], identity: Callable[[Any], Any]) -> list[Exchange]:
    """Return the conversations of a log in the order of their starts, with the last response as a message.

    `identity` returns the part of a message that is the same in every request.
    """
    kept: list[Exchange] = []
    ends: dict[bytes, int] = {}
    """Index in `kept` by the digest of all messages of a request."""
    for exchange in exchanges:
        _note(exchange)
        if not exchange.can_grow or not exchange.messages:
            kept.append(exchange)
            continue
        digests = prefix_digests(exchange.messages, identity)
        earlier = next((ends.pop(digest) for digest in reversed(digests) if digest in ends), None)
        if earlier is None:
            ends[digests[-1]] = len(kept)
            kept.append(exchange)
        else:
            ends[digests[-1]] = earlier
            known = kept[earlier]
            exchange.answers = {**known.answers, **exchange.answers}
            exchange.requests = {**known.requests, **exchange.requests}
            exchange.times = {**exchange.times, **known.times}
            kept[earlier] = replace(exchange, place=known.place, where=known.where)
    return [_with_answers(exchange, identity) for exchange in kept]


def _note(exchange: Exchange) -> None:
    if exchange.answer is not None:
        exchange.answers[len(exchange.messages)] = exchange.answer
        if exchange.request is not None and exchange.messages:
            exchange.requests[len(exchange.messages)] = exchange.request
    if exchange.sent_at is not None:
        exchange.times = dict.fromkeys(range(len(exchange.messages) + 1), exchange.sent_at)


def _with_answers(exchange: Exchange, identity: Callable[[Any], Any]) -> Exchange:
    """Return the exchange with the last answer as a message, without answers that later requests changed."""
    last = exchange.answers.get(len(exchange.messages))
    messages = exchange.messages if last is None else [*exchange.messages, last]
    answers = {
        index: answer for index, answer in exchange.answers.items() if identity(messages[index]) == identity(answer)
    }
    return replace(exchange, messages=messages, answers=answers)


def with_input(entries: Iterable[Reply | Result], exchange: Exchange, index: int) -> Iterator[Reply | Result]:
    """Give the first reply of the message at `index` what the model was asked, if it is the response to a request."""
    request = exchange.requests.get(index) if index in exchange.answers else None
    for entry in entries:
        if request is not None and isinstance(entry, Reply):
            asked = model_input({**request, "messages": exchange.messages[:index]})
            entry, request = msgspec.structs.replace(entry, input=asked, is_request=True), None
        yield entry


def prefix_digests(messages: list[Any], identity: Callable[[Any], Any]) -> list[bytes]:
    """Return a digest for every prefix of the list; `identity` returns the part of a message that counts."""
    running = blake2b(digest_size=16)
    digests = []
    for message in messages:
        encoded = msgspec.json.encode(identity(message), order="sorted")
        running.update(b"%d:%b" % (len(encoded), encoded))
        digests.append(running.digest())
    return digests

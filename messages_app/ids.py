"""Ids that know their time: the one place where Tracesite mints and reads UUIDs.

Layout (RFC 9562 version 7, section 6.2 method 3):

    48 bits   milliseconds since 1970, UTC
     4 bits   version, always 7: two versions would sort apart within a millisecond
    12 bits   the microseconds of that millisecond, as microseconds * 4096 // 1000 (exactly reversible)
     2 bits   variant
     1 bit    role: 0 for user and system, 1 for assistant        \\
    14 bits   place in the batch that brought the message          } in the id of a message;
    47 bits   random, or derived from (session, external id)      /  the id of a child has 62 derived bits

So the order of ids is reading order: by time, user before assistant on equal times, then as sent. The 60 time bits
of a message are repeated in the ids of everything below it, so that a whole trace lies in one time range of every
table. Identity does not hang on the derived bits: messages_app.models.MessageKey decides it.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta
from hashlib import blake2b, sha256
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
LATEST_AHEAD = timedelta(days=1)
LAST_PLACE = 2**14 - 1

_MICROSECOND = timedelta(microseconds=1)
_TAIL_BITS = 62
_VARIANT = 0b10 << _TAIL_BITS
_VERSION = 7 << 76
_TIME_MASK = ((1 << 64) - 1) << 64


def message_id(created_at: datetime, role: str, place: int = 0, identity: tuple[object, ...] | None = None) -> UUID:
    """An id for a message made at `created_at` (aware).

    `place` is its position in the batch that brought it and orders messages of equal time and role; places beyond
    16,383 share the last one. With `identity` the same arguments give the same id, without it the id is random.
    """
    tail = secrets.randbits(47) if identity is None else _digest(*identity) >> 17
    role_bit = int(role == "assistant")
    return UUID(int=_time_bits(created_at) | _VARIANT | role_bit << 61 | min(place, LAST_PLACE) << 47 | tail)


def session_id(created_at: datetime) -> UUID:
    """A random id for a session made at `created_at` (aware)."""
    return UUID(int=_time_bits(created_at) | _VARIANT | secrets.randbits(_TAIL_BITS))


def child_id(message: UUID, *parts: object) -> UUID:
    """The id of something below a message: its time bits, and 62 bits that `parts` always give for this message."""
    return UUID(int=_child(message.int, parts))


def child_hex(message: int, *parts: object) -> str:
    """`child_id` as 32 hexadecimal digits, for a message's id as a number: PostgreSQL reads them, and making a UUID of
    each of the many takes longer than all else about them."""
    return f"{_child(message, parts):032x}"


class Children:
    """The ids of all that lies below one message, in 1.1 us each instead of the 2.7 of `child_hex`: it keeps of the message
    what is the same for all of them."""

    __slots__ = ("_beginning", "_time")

    def __init__(self, message: UUID) -> None:
        self._time = message.hex[:16]
        self._beginning = f"({message.int}, "

    def hex(self, parts: str) -> str:
        """`child_hex` of parts that are given as repr writes them, with commas between them: `'step', 0`."""
        digest = blake2b(f"{self._beginning}{parts})".encode(), digest_size=8).digest()
        return f"{self._time}{_VARIANT | int.from_bytes(digest) >> 2:016x}"


def is_child_of(message: UUID, candidate: UUID) -> bool:
    """Whether `candidate` may be the id of something below `message`: it lies in the same microsecond."""
    return candidate.int & _TIME_MASK == message.int & _TIME_MASK and candidate.int >> 62 & 0b11 == 0b10


def created_at_of(value: UUID) -> datetime:
    """The time that an id carries, exact to the microsecond."""
    milliseconds = value.int >> 80
    fraction = value.int >> 64 & 0xFFF
    return EPOCH + timedelta(milliseconds=milliseconds, microseconds=(fraction * 1000 + 4095) // 4096)


def is_ours(value: UUID, created_at: datetime, role: str) -> bool:
    """Whether `value` is what `message_id` could have made for these arguments, so that it may be kept as the id."""
    return (
        value.int & _TIME_MASK == _time_bits(created_at)
        and value.int >> 62 & 0b11 == 0b10
        and value.int >> 61 & 1 == int(role == "assistant")
    )


def first_id_at(instant: datetime) -> UUID:
    """The smallest id whose time is not before `instant`: `id >= first_id_at(t)` means `created_at >= t`."""
    return UUID(int=_time_bits(instant))


def range_below(message: UUID) -> tuple[UUID, UUID]:
    """The first id that something below a message can have, and the first one after all of them."""
    created_at = created_at_of(message)
    return first_id_at(created_at), first_id_at(created_at + _MICROSECOND)


def first_id_of_month(year: int, month: int) -> UUID:
    """The lower bound of a month's partition."""
    return UUID(int=_microseconds(datetime(year, month, 1, tzinfo=UTC)) // 1000 << 80)


def key(*parts: object) -> UUID:
    """A 128-bit digest of `parts`, for identities such as (session, external id)."""
    # Lengths keep ("ab", "c") and ("a", "bc") apart, in a form that SQL can write too.
    texts = [str(part) for part in parts]
    return UUID(bytes=sha256("".join(f"{len(text)}:{text}" for text in texts).encode()).digest()[:16])


def key_in_sql(*parts: str) -> str:
    """SQL for `key` of these SQL expressions: purge digests whole tables without fetching them."""
    joined = " || ".join(f"length(({part})::text) || ':' || ({part})::text" for part in parts)
    return f"encode(substr(sha256(convert_to({joined}, 'UTF8')), 1, 16), 'hex')::uuid"


def _time_bits(instant: datetime) -> int:
    milliseconds, microseconds = divmod(_microseconds(instant), 1000)
    return milliseconds << 80 | _VERSION | (microseconds * 4096 // 1000) << 64


def _microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def _child(message: int, parts: tuple[object, ...]) -> int:
    return (message & _TIME_MASK) | _VARIANT | _digest(message, *parts) >> 2


def _digest(*parts: object) -> int:
    # repr quotes, so that the parts stay apart; of ints and texts it is the fastest way to say so.
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest())

"""Ids that carry their time: the one place where Tracesite creates and parses UUIDs.

Layout (RFC 9562 version 7, section 6.2 method 3):

    48 bits   milliseconds since 1970, UTC
     4 bits   version, always 7, because ids of two versions would not sort by time within a millisecond
    12 bits   the microseconds of that millisecond, as microseconds * 4096 // 1000 (exactly reversible)
     2 bits   variant
     1 bit    role: 0 for user and system, 1 for assistant        \\
    14 bits   position in the batch of the message                 } in the id of a message;
    47 bits   random, or derived from (session, external id)      /  the id of a child has 62 derived bits

So the order of ids is reading order: by time, user before assistant at equal times, then as sent. The ids of everything
below a message repeat its 60 time bits, so that a whole trace is in one range of ids in every table. Identity does not
depend on the derived bits: messages_app.models.MessageKey defines it.
"""

from __future__ import annotations

import secrets
from datetime import UTC, date, datetime, timedelta
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
    """Return an id for a message created at `created_at` (aware).

    `place` is its position in its batch and orders messages of equal time and role; places above 16,383 count as 16,383.
    With `identity` the same arguments give the same id; without it the id is random.
    """
    tail = secrets.randbits(47) if identity is None else _digest(*identity) >> 17
    role_bit = int(role == "assistant")
    return UUID(int=_time_bits(created_at) | _VARIANT | role_bit << 61 | min(place, LAST_PLACE) << 47 | tail)


def session_id(created_at: datetime) -> UUID:
    """Return a random id for a session created at `created_at` (aware)."""
    return UUID(int=_time_bits(created_at) | _VARIANT | secrets.randbits(_TAIL_BITS))


def child_id(message: UUID, *parts: object) -> UUID:
    """Return the id of a row below a message: the time bits of the message, and 62 bits derived from it and `parts`."""
    return UUID(int=_child(message.int, parts))


def child_hex(message: int, *parts: object) -> str:
    """Return `child_id` as 32 hexadecimal digits, for a message's id as a number.

    PostgreSQL accepts them, and creating a UUID object takes longer than the rest of the work for a row.
    """
    return f"{_child(message, parts):032x}"


class Children:
    """Ids of the rows below one message, in 1.1 us each instead of the 2.7 of `child_hex`, by caching their common part."""

    __slots__ = ("_beginning", "_time")

    def __init__(self, message: UUID) -> None:
        self._time = message.hex[:16]
        self._beginning = f"({message.int}, "

    def hex(self, parts: str) -> str:
        """Return `child_hex` of parts that are given as their repr, separated by commas: `'step', 0`."""
        digest = blake2b(f"{self._beginning}{parts})".encode(), digest_size=8).digest()
        return f"{self._time}{_VARIANT | int.from_bytes(digest) >> 2:016x}"


def is_child_of(message: UUID, candidate: UUID) -> bool:
    """Return whether `candidate` may be the id of a row below `message`: it has the same time."""
    return candidate.int & _TIME_MASK == message.int & _TIME_MASK and candidate.int >> 62 & 0b11 == 0b10


def created_at_of(value: UUID) -> datetime:
    """Return the time that an id carries, exact to the microsecond."""
    milliseconds = value.int >> 80
    fraction = value.int >> 64 & 0xFFF
    return EPOCH + timedelta(milliseconds=milliseconds, microseconds=(fraction * 1000 + 4095) // 4096)


def is_ours(value: UUID, created_at: datetime, role: str) -> bool:
    """Return whether `message_id` may have returned `value` for these arguments, so that it may be kept as the id."""
    return (
        value.int & _TIME_MASK == _time_bits(created_at)
        and value.int >> 62 & 0b11 == 0b10
        and value.int >> 61 & 1 == int(role == "assistant")
    )


def first_id_at(instant: datetime) -> UUID:
    """Return the smallest id whose time is not before `instant`: `id >= first_id_at(t)` means `created_at >= t`.

    No id carries a time before 1970, so every earlier instant gets the smallest of all ids.
    """
    return UUID(int=_time_bits(max(instant, EPOCH)))


def range_below(message: UUID) -> tuple[UUID, UUID]:
    """Return the smallest possible id of a row below a message, and the smallest id above all of them."""
    created_at = created_at_of(message)
    return first_id_at(created_at), first_id_at(created_at + _MICROSECOND)


def first_id_of_day(day: date) -> UUID:
    """Return the lower bound of a partition that begins on this day."""
    return UUID(int=_microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC)) // 1000 << 80)


def key(*parts: object) -> UUID:
    """Return a 128-bit digest of `parts`, for identities such as (session, external id)."""
    # The lengths distinguish ("ab", "c") from ("a", "bc"), in a form that SQL can produce, too.
    texts = [str(part) for part in parts]
    return UUID(bytes=sha256("".join(f"{len(text)}:{text}" for text in texts).encode()).digest()[:16])


def key_in_sql(*parts: str) -> str:
    """Return SQL for `key` of these SQL expressions, so that a purge can digest whole tables without fetching them."""
    joined = " || ".join(f"length(({part})::text) || ':' || ({part})::text" for part in parts)
    return f"encode(substr(sha256(convert_to({joined}, 'UTF8')), 1, 16), 'hex')::uuid"


def is_child_in_sql(message: str, candidate: str) -> str:
    """Return SQL for `is_child_of` of these SQL expressions."""
    return (
        f"(substr(uuid_send({message}), 1, 8) = substr(uuid_send({candidate}), 1, 8) "
        f"AND get_byte(uuid_send({candidate}), 8) >> 6 = 2)"
    )


def is_ours_in_sql(value: str, created_at: str, role: str) -> str:
    """Return SQL for `is_ours` of these SQL expressions."""
    microseconds = f"(extract(epoch FROM {created_at}) * 1000000)::bigint"
    time = f"({microseconds} / 1000 << 16) | (7 << 12) | mod({microseconds}, 1000) * 4096 / 1000"
    return (
        f"(substr(uuid_send({value}), 1, 8) = int8send({time}) "
        f"AND get_byte(uuid_send({value}), 8) >> 5 = CASE {role} WHEN 'assistant' THEN 5 ELSE 4 END)"
    )


def _time_bits(instant: datetime) -> int:
    milliseconds, microseconds = divmod(_microseconds(instant), 1000)
    return milliseconds << 80 | _VERSION | (microseconds * 4096 // 1000) << 64


def _microseconds(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def _child(message: int, parts: tuple[object, ...]) -> int:
    return (message & _TIME_MASK) | _VARIANT | _digest(message, *parts) >> 2


def _digest(*parts: object) -> int:
    # repr quotes texts, so that the parts stay distinct; for ints and texts it is the fastest way.
    return int.from_bytes(blake2b(repr(parts).encode(), digest_size=8).digest())


END_OF_TIME = first_id_at(datetime.max.replace(tzinfo=UTC))
"""Above the ids of everything that is stored: Python's datetime cannot represent later times."""

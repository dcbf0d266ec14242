"""Ids for events that come without one: made of what the event says, so that a second delivery is the same event."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from traces_app.schema import records

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST_TASK = 400


def made_id(event: records.Event) -> str:
    """`task_milliseconds_` and six digits of base 36 (requirement 004-43), a digest of the event; without a time twelve."""
    said: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__ if name != "session_id"}
    digest = blake2b(msgspec.json.encode(said, order="sorted"), digest_size=16).digest()
    task = event.session_id[:_LONGEST_TASK]
    if event.timestamp is None:
        return f"{task}_{_base36(digest, 12)}"
    return f"{task}_{round(event.timestamp.timestamp() * 1000)}_{_base36(digest, 6)}"


def _base36(digest: bytes, length: int) -> str:
    number = int.from_bytes(digest)
    digits = ""
    for _place in range(length):
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits

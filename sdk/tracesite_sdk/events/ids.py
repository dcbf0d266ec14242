"""Ids for events that come without one: a digest of the content, so that a second delivery is recognised."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec

from tracesite_sdk import records

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST_TASK = 400


def made_id(event: records.Event) -> str:
    """Return `task_milliseconds_` and a digest of six base-36 digits, or of twelve without a time."""
    fields: dict[str, Any] = {name: getattr(event, name) for name in event.__struct_fields__ if name != "session_id"}
    digest = blake2b(msgspec.json.encode(fields, order="sorted"), digest_size=16).digest()
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

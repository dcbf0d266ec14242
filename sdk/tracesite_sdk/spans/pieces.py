"""Shared parts of the protocols that deliver spans in pieces: JSON bodies, ids that are not hexadecimal, times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec

from tracesite_sdk.normalize.json_values import instant
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.redaction.engine import redact

from .span import DEEPEST, TOO_DEEP, InvalidBody

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class InvalidItem(ValueError):
    """One item of a request that cannot be stored; the others can."""


def decoded_json(body: bytes) -> Any:
    """Return the value of a JSON text, no deeper than an attribute may be. Raise InvalidBody."""
    try:
        value = decode_json(body)
        bound(value)
        return value
    except RecursionError as error:
        raise InvalidBody("JSON that is nested too deeply") from error
    except msgspec.DecodeError as error:
        raise InvalidBody(f"not JSON: {error}") from error


def bound(value: Any, depth: int = 0) -> None:
    """Replace what is deeper than an attribute may be, in place: a copy of a large body would take as much memory again."""
    for name, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        if depth == DEEPEST:
            value[name] = TOO_DEEP
        else:
            bound(item, depth + 1)


def span_id(of: str) -> str:
    """Return the span id that stands for another system's id."""
    return blake2b(of.encode(), digest_size=8).hexdigest()


def uuid_of(value: Any, field: str) -> UUID:
    """Raise InvalidItem if the value is not a UUID as text."""
    try:
        uuid = UUID(value) if isinstance(value, str) else None
    except ValueError:
        uuid = None
    if uuid is None or not uuid.int:
        raise InvalidItem(f"{field}: {shown(value)} is not a UUID")
    return uuid


def shown(value: Any) -> str:
    """Return the beginning of a value for an error message, without secrets."""
    return f"“{redact(str(value))[0][:40]}”"


def nanoseconds(value: Any) -> int:
    """Return the time since 1970, and 0 for a value that is not a time."""
    moment = instant(value)
    return 0 if moment is None else (moment - _EPOCH) // timedelta(microseconds=1) * 1000

"""Redact spans and log records before anything stores them. Names and ids stay, because traces are found by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.redaction.engine import Receipt, may_hold_secrets
from tracesite_sdk.redaction.engine import redact as redact_value
from tracesite_sdk.redaction.rules import Rules

from .span import LogRecord, Scope, Span

_TOGETHER = 16
"""Items that are checked at once: nearly all are clean, and one check of many is much cheaper than one of each."""


def redact(items: Sequence[Span | LogRecord], rules: Rules) -> list[Span | LogRecord]:
    """Return the items without secrets, with a receipt for each in `redactions`."""
    redacted: list[Span | LogRecord] = []
    for first in range(0, len(items), _TOGETHER):
        some: Sequence[Span | LogRecord] = items[first : first + _TOGETHER]
        values = [_values_of(item) for item in some]
        if may_hold_secrets(values, rules):
            some = [_redacted(item, of_item, rules) for item, of_item in zip(some, values, strict=True)]
        redacted += some
    return redacted


def _redacted(item: Span | LogRecord, values: dict[str, Any], rules: Rules) -> Span | LogRecord:
    clean, receipts = redact_value(values, rules, path=f"spans.{item.span_id}")
    return _with_values(item, clean, receipts) if receipts else item


def _values_of(item: Span | LogRecord) -> dict[str, Any]:
    values: dict[str, Any] = {
        "attributes": item.attributes,
        "scope": item.scope.attributes,
        "resource": item.scope.resource,
    }
    if isinstance(item, LogRecord):
        return values | {"body": item.body}
    return values | {
        "status_message": item.status_message,
        "events": [event.attributes for event in item.events],
        "links": [link.attributes for link in item.links],
    }


def _with_values(item: Span | LogRecord, clean: dict[str, Any], receipts: list[Receipt]) -> Span | LogRecord:
    scope: Scope = replace(item.scope, attributes=clean["scope"], resource=clean["resource"])
    changed: dict[str, Any] = {
        "attributes": clean["attributes"],
        "scope": scope,
        "redactions": [receipt.as_json() for receipt in receipts],
    }
    if isinstance(item, LogRecord):
        return replace(item, body=clean["body"], **changed)
    events = [
        replace(event, attributes=attributes) for event, attributes in zip(item.events, clean["events"], strict=True)
    ]
    links = [replace(link, attributes=attributes) for link, attributes in zip(item.links, clean["links"], strict=True)]
    return replace(item, status_message=clean["status_message"], events=events, links=links, **changed)

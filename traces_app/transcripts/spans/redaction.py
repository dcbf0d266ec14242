"""Redact spans and log records before anything stores them. Names and ids stay, because traces are found by them."""

from __future__ import annotations

from typing import Any, TypeVar

from msgspec.structs import replace

from access_app.redaction.engine import Receipt, may_hold_secrets
from access_app.redaction.engine import redact as redact_value

from .span import LogRecord, Scope, Span

S = TypeVar("S", Span, LogRecord)


def redact(item: S) -> S:
    """Return the item without secrets, with a receipt for each in `redactions`."""
    values = _values_of(item)
    if not may_hold_secrets([values]):
        return item
    clean, receipts = redact_value(values, path=f"spans.{item.span_id}")
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


def _with_values(item: S, clean: dict[str, Any], receipts: list[Receipt]) -> S:
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

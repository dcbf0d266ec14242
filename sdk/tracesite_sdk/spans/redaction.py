"""Redact spans and log records before anything stores them. Names and ids stay, because traces are found by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.redaction.engine import Receipt, Suspects, suspects_of
from tracesite_sdk.redaction.engine import redact as redact_value
from tracesite_sdk.redaction.places import steps_of
from tracesite_sdk.redaction.rules import Rules

from .span import LogRecord, Scope, Span


def redact(items: Sequence[Span | LogRecord], rules: Rules) -> list[Span | LogRecord]:
    """Return the items without secrets, with a receipt for each in `redactions`."""
    values = [_values_of(item) for item in items]
    outside = frozenset(step for item in items for step in steps_of(_path_of(item))) if rules.paths else None
    suspects = suspects_of(([of_item] for of_item in values), rules, outside)
    return [_redacted(*one, rules) for one in zip(items, values, suspects, strict=True)]


def _redacted(item: Span | LogRecord, values: dict[str, Any], suspects: Suspects, rules: Rules) -> Span | LogRecord:
    if not suspects:
        return item
    clean, receipts = redact_value(values, rules, _path_of(item), suspects=suspects)
    return _with_values(item, clean, receipts) if receipts else item


def _path_of(item: Span | LogRecord) -> str:
    return f"spans.{item.span_id}"


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

"""One span from all its deliveries: those of OTLP are whole, those of LangSmith and Langfuse come in pieces.

The result is a function of the set of deliveries, so order and repetition do not matter.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from .span import Span

_EMPTY: tuple[Any, ...] = (None, "", [], {})


def merged(deliveries: Iterable[Span]) -> list[Span]:
    """Return each span once."""
    of_span: dict[str, list[Span]] = defaultdict(list)
    for delivery in deliveries:
        of_span[delivery.span_id].append(delivery)
    return [_whole(found) for found in of_span.values()]


def best_of(first: Span, second: Span) -> Span:
    """Return which of two deliveries of a span to keep, the same whatever their order: the later, else the fuller one."""
    return max(first, second, key=lambda span: (span.end, len(span.attributes), _content(span)))


def _whole(deliveries: Sequence[Span]) -> Span:
    whole = [delivery for delivery in deliveries if delivery.revision is None]
    found = whole[0] if whole else None
    for delivery in whole[1:]:
        found = best_of(found, delivery) if found is not None else delivery
    pieces = [delivery for delivery in deliveries if delivery.revision is not None]
    pieces.sort(key=lambda piece: (piece.revision or 0, _content(piece)))
    for piece in pieces:
        found = piece if found is None else _with(found, piece)
    assert found is not None, "a span is known by a delivery"
    return found


def _with(span: Span, later: Span) -> Span:
    """Return the span with what a later piece says; empty values overwrite nothing."""
    return replace(
        span,
        parent_id=later.parent_id or span.parent_id,
        name=later.name or span.name,
        kind=later.kind or span.kind,
        start=later.start or span.start,
        end=later.end or span.end,
        status=later.status or span.status,
        status_message=later.status_message or span.status_message,
        attributes=span.attributes
        | {
            name: value
            for name, value in later.attributes.items()
            if value not in _EMPTY or name not in span.attributes
        },
        events=_union(span.events, later.events, lambda event: event.time),
        links=_union(span.links, later.links, lambda link: 0),
        scope=later.scope if later.scope.name else span.scope,
        revision=later.revision,
        redactions=_union(span.redactions, later.redactions, lambda receipt: 0),
    )


def _union(first: list[Any], second: list[Any], order: Any) -> list[Any]:
    """Return the items of both lists, each once, in an order that does not depend on that of the lists."""
    if not second or first == second:
        return first
    found = {_content(item): item for item in (*first, *second)}
    return [item for _text, item in sorted(found.items(), key=lambda pair: (order(pair[1]), pair[0]))]


def _content(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")

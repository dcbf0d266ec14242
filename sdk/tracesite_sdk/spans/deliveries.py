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
    return [_whole(delivered) for delivered in of_span.values()]


def fullness(span: Span) -> tuple[int, int, bytes]:
    """Return the key by which the best of several deliveries of a span is the largest: the later, else the fuller one."""
    return span.end, len(span.attributes), _content(span)


def _whole(deliveries: Sequence[Span]) -> Span:
    if len(deliveries) == 1:
        return deliveries[0]
    whole = [delivery for delivery in deliveries if delivery.revision is None]
    pieces = [delivery for delivery in deliveries if delivery.revision is not None]
    pieces.sort(key=lambda piece: (piece.revision or 0, _content(piece)))
    return _joined([*([max(whole, key=fullness)] if whole else []), *pieces])


def _joined(pieces: Sequence[Span]) -> Span:
    """Return what the pieces of a span say together, later ones before earlier ones; empty values overwrite nothing."""
    attributes = dict(pieces[0].attributes)
    for piece in pieces[1:]:
        for name, value in piece.attributes.items():
            if value not in _EMPTY or name not in attributes:
                attributes[name] = value
    latest = {
        name: next((value for piece in reversed(pieces) if (value := getattr(piece, name))), getattr(pieces[0], name))
        for name in ("parent_id", "name", "kind", "start", "end", "status", "status_message")
    }
    return replace(
        pieces[0],
        **latest,
        attributes=attributes,
        events=_union([piece.events for piece in pieces], lambda event: event.time),
        links=_union([piece.links for piece in pieces], lambda link: 0),
        scope=next((piece.scope for piece in reversed(pieces) if piece.scope.name), pieces[0].scope),
        revision=pieces[-1].revision,
        redactions=_union([piece.redactions for piece in pieces], lambda receipt: 0),
    )


def _union(lists: Sequence[list[Any]], order: Any) -> list[Any]:
    """Return the items of all lists, each once, in an order that does not depend on that of the lists."""
    others = [items for items in lists[1:] if items and items != lists[0]]
    if not others:
        return lists[0]
    by_content = {_content(item): item for items in (lists[0], *others) for item in items}
    return [item for _text, item in sorted(by_content.items(), key=lambda pair: (order(pair[1]), pair[0]))]


def _content(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")

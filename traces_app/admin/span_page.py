"""The spans of a trace as they came, for the page that shows them beside the steps and calls that they became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
from django.contrib.admin import ModelAdmin
from django.http import HttpRequest
from django.utils.translation import gettext as _

from messages_app.models import Session
from messages_app.safe_text import Excerpt, excerpt
from traces_app.imports.span_store import spans_of
from tracesite_sdk.spans.span import Span

from .model_admins import context_in_session

MOST_SPANS = 300
"""Spans on the page; the export has all."""
_MOST_CHARACTERS = 20_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST = 253_402_300_799 * 10**9


@dataclass(frozen=True, kw_only=True)
class SpanLine:
    """A span in the tree of its trace."""

    span: Span
    depth: int
    """Levels below the root, at most 8, so that a deep tree stays on the page."""
    started_at: datetime | None
    duration_ms: int | None
    content: Excerpt
    """All of it as JSON."""


def span_lines(spans: Sequence[Span]) -> list[SpanLine]:
    """Return the first spans of a trace, parents before their children, each level by time."""
    return [_line(span, depth) for span, depth in islice(_walk(spans), MOST_SPANS)]


def _walk(spans: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    """Yield the spans with their depths. Those whose parents form a circle come last, as roots."""
    children: dict[str, list[Span]] = {}
    known = {span.span_id for span in spans}
    for span in sorted(spans, key=lambda span: (span.start, span.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else "", []).append(span)
    seen: set[str] = set()
    for root in (*children.get("", ()), *spans):
        waiting = [(root, 0)]
        while waiting:
            span, depth = waiting.pop()
            if span.span_id not in seen:
                seen.add(span.span_id)
                yield span, depth
                waiting += [(child, depth + 1) for child in reversed(children.get(span.span_id, ()))]


def _line(span: Span, depth: int) -> SpanLine:
    fields: dict[str, Any] = msgspec.to_builtins(span)
    text = msgspec.json.format(msgspec.json.encode(fields)).decode()
    return SpanLine(
        span=span,
        depth=min(depth, 8),
        started_at=_EPOCH + timedelta(microseconds=span.start // 1000) if 0 < span.start < _LATEST else None,
        duration_ms=(span.end - span.start) // 10**6 if span.end >= span.start > 0 else None,
        content=excerpt(text[:_MOST_CHARACTERS], len(text.encode())),
    )


def spans_context(
    model_admin: ModelAdmin[Any], request: HttpRequest, session: Session, trace_id: str
) -> dict[str, Any]:
    """Return the context of the page with the spans of a trace."""
    spans = spans_of(session.project_id, trace_id)
    lines = span_lines(spans)
    return {
        **context_in_session(model_admin, request, session, _("Spans")),
        "trace_id": trace_id,
        "lines": lines,
        "left_out": len(spans) - len(lines),
    }

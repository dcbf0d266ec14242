"""The spans of a trace as they came, for the page that shows them beside the steps and calls that they became."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Session
from messages_app.queries import message_of_page, session_of_page
from messages_app.safe_text import Excerpt, excerpt
from traces_app.spans.stored import spans_of, traces_of
from tracesite_sdk.spans.conversation import TRACE_ID
from tracesite_sdk.spans.span import Span

from .labels import context_in_session

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


def show_spans_of_session(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Show the spans of a session that have made no message."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    traces = [] if session is None else traces_of(db, session.pk)
    if session is None or session.message_count or not traces:
        return model_admin.missing(request)
    context = _spans_context(model_admin, request, session, traces[0])
    return TemplateResponse(request, "admin/traces_app/spans_page.html", context)


def show_spans_of_message(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Show the spans that a message was made of, with everything that they hold."""
    db = database(request)
    message = message_of_page(db, model_admin.scope(request), message_id)
    if message is None or TRACE_ID not in message.metadata:
        return model_admin.missing(request)
    context = _spans_context(model_admin, request, message.session, str(message.metadata[TRACE_ID]))
    return TemplateResponse(request, "admin/traces_app/spans_page.html", {**context, "message": message})


def _spans_context(model_admin: KeysetAdmin, request: HttpRequest, session: Session, trace_id: str) -> dict[str, Any]:
    db = database(request)
    spans = spans_of(db, session.project_id, trace_id)
    lines = span_lines(spans)
    return {
        **context_in_session(model_admin, request, session, _("Spans")),
        "trace_id": trace_id,
        "lines": lines,
        "left_out": len(spans) - len(lines),
    }

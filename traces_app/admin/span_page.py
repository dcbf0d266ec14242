"""The spans of a trace as they came, beside the steps and calls that they became."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import chain, groupby, islice
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message
from messages_app.queries import as_uuid, message_of_page, session_of_page
from messages_app.safe_text import Excerpt, duration, excerpt, one_line
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, ToolCall
from traces_app.spans.stored import spans_of, traces_of, within
from tracesite_sdk.spans.conversation import SPAN_ID, TRACE_ID
from tracesite_sdk.spans.span import Attributes, Span

from .input_page import pretty
from .labels import context_in_session

MOST_SPANS = 300
"""Spans that are shown; the export has all."""
_MOST_CHARACTERS = 20_000
"""Of the values of a span."""
_MOST_ROWS = 500
"""Attributes, events and links of a span."""
_MOST_NODES = 2_000
"""Steps, and calls, among which the parent of a span is looked for."""
_UNGROUPED = 8
"""Attributes that need no groups."""
_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_SHOWN = frozenset(
    [
        "trace_id",
        "span_id",
        "parent_id",
        "name",
        "kind",
        "start",
        "end",
        "status",
        "status_message",
        "attributes",
        "events",
    ]
    + ["links", "scope"]
)
"""Fields with a place of their own; all others that a span has are listed."""


Rows = Sequence[tuple[str, Excerpt]]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Attributes of a span, its resource, or one of its events or links."""

    title: str
    groups: Sequence[tuple[str, Rows]]
    """By the first part of their names if there are many."""
    trace_url: str = ""
    """The URL of the trace of a link if it is stored."""


@dataclass(frozen=True, kw_only=True)
class SpanLine:
    """A span in the tree of its trace."""

    span: Span
    depth: int
    """Levels below the root, at most 8, so that a deep tree stays on the page."""
    duration_ms: int | None
    ids: Sequence[tuple[str, str]]
    facts: Sequence[tuple[str, str]]
    parts: Sequence[Part]
    is_cut: bool
    """Whether it has more than is shown."""
    parent_url: str = ""
    """The URL of the step or call that its parent became, or of all spans; "" where the parent is beside it."""

    @property
    def indent(self) -> str:
        return "\u2003" * self.depth


@dataclass(frozen=True, kw_only=True)
class TraceSpans:
    """The spans of a trace, or one of them."""

    trace_id: str
    lines: Sequence[SpanLine]
    left_out: int


def span_lines(spans: Sequence[Span], traces: Mapping[str, str] = MappingProxyType({})) -> list[SpanLine]:
    """Return the first spans of a trace, parents before their children, each level by time. `traces` are the URLs of the traces
    that they link to."""
    return [_line(span, depth, traces) for span, depth in islice(_walk(spans), MOST_SPANS)]


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


def _line(span: Span, depth: int, traces: Mapping[str, str]) -> SpanLine:
    took = (span.end - span.start) // 10**6 if span.end >= span.start > 0 else None
    resource, scope = span.scope.resource, span.scope
    others = {name: value for name, value in msgspec.to_builtins(span).items() if name not in _SHOWN}
    facts = (
        (_("Kind"), _KINDS[span.kind] if 0 <= span.kind < len(_KINDS) else str(span.kind)),
        (_("Status"), f"{span.status or 'unset'} {one_line(span.status_message, 300)}"),
        (_("Service"), _named(resource.get("service.name"), resource.get("service.version"))),
        (_("Scope"), _named(scope.name, scope.version)),
        (_("Started"), _instant(span.start)),
        (_("Duration"), "" if took is None else duration(took)),
        *((name, one_line(_text(value), 300)) for name, value in others.items()),
    )
    reader = _Reader()
    parts = [reader.part(_("Attributes"), span.attributes)]
    for event in span.events[:_MOST_ROWS]:
        after = duration((event.time - span.start) // 10**6) if event.time >= span.start > 0 else ""
        parts.append(reader.part(f"{_('Event')} {one_line(event.name, 120)} {after and f'+{after}'}", event.attributes))
    for link in span.links[:_MOST_ROWS]:
        ids = {"trace_id": link.trace_id, "span_id": link.span_id, "trace_state": link.trace_state}
        part = reader.part(_("Link"), {**{name: id_ for name, id_ in ids.items() if id_}, **link.attributes})
        parts.append(replace(part, trace_url=traces.get(link.trace_id, "")))
    about = {"scope.schema_url": scope.schema_url, "resource.schema_url": scope.resource_schema_url}
    parts.append(reader.part(_("Scope"), scope.attributes | {name: url for name, url in about.items() if url}))
    parts.append(reader.part(_("Resource"), resource))
    return SpanLine(
        span=span,
        depth=min(depth, 8),
        duration_ms=took,
        ids=[
            (_("Trace ID"), span.trace_id),
            (_("Span ID"), span.span_id),
            (_("Parent span ID"), span.parent_id or _("none: a root")),
        ],
        facts=[(label, text) for label, text in facts if text.strip()],
        parts=[part for part in parts if part.groups or part.title not in {_("Attributes"), _("Scope"), _("Resource")}],
        is_cut=reader.is_cut or max(len(span.events), len(span.links)) > _MOST_ROWS,
    )


class _Reader:
    """Reads the values of a span until they are too many or too long."""

    def __init__(self) -> None:
        self._characters, self._rows = _MOST_CHARACTERS, _MOST_ROWS
        self.is_cut = False

    def part(self, title: str, attributes: Attributes) -> Part:
        rows = [*self._read(attributes)]
        if len(rows) <= _UNGROUPED:
            return Part(title=title, groups=[("", rows)] if rows else [])
        rows.sort(key=_group_of)
        return Part(title=title, groups=[(name, [*some]) for name, some in groupby(rows, _group_of)])

    def _read(self, attributes: Attributes) -> Iterable[tuple[str, Excerpt]]:
        for name, value in attributes.items():
            if self._rows <= 0 or self._characters <= 0:
                self.is_cut = True
                return
            text = _formatted(_text(value))
            yield one_line(name, 200), excerpt(text[: self._characters], len(text.encode()))
            self.is_cut = self.is_cut or len(text) > self._characters
            self._rows -= 1
            self._characters -= len(text)


def _group_of(row: tuple[str, Excerpt]) -> str:
    return row[0].partition(".")[0]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.format(msgspec.json.encode(value)).decode()


def _formatted(text: str) -> str:
    """Return JSON as it is easy to read; other texts, and long ones, as they are."""
    if not text.startswith(("{", "[")) or len(text) > _MOST_CHARACTERS:
        return text
    try:
        return pretty(text)
    except (msgspec.DecodeError, RecursionError):
        return text


def _named(name: Any, version: Any) -> str:
    return " ".join(one_line(_text(part), 120) for part in (name, version) if part)


def _instant(nanoseconds: int) -> str:
    """Return a time with the microseconds that spans have; "" for one that no clock has."""
    if not 0 < nanoseconds < 4 * 10**18:
        return ""
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=nanoseconds // 1000)
    return f"{timezone.localtime(instant):%Y-%m-%d %H:%M:%S.%f}"


def show_spans_of_session(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Show the spans of a session that have made no message."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    traces = [] if session is None else traces_of(db, session.pk)
    if session is None or session.message_count or not traces:
        return model_admin.missing(request)
    context = {
        **context_in_session(model_admin, request, session, _("Spans")),
        "spans": trace_spans(db, session.project_id, traces[0]),
    }
    return TemplateResponse(request, "admin/traces_app/spans_page.html", context)


def show_spans_of_message(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Lead to the run with the spans that it was made of; of the step or call in `?call=` send its own span, as a part for the
    panel of the run."""
    db = database(request)
    message = message_of_page(db, model_admin.scope(request), message_id)
    if message is None or TRACE_ID not in message.metadata:
        return model_admin.missing(request)
    if "call" in request.GET:
        node_id = as_uuid(request.GET["call"])
        spans = None if node_id is None else own_span(db, message, node_id)
        return TemplateResponse(request, "admin/traces_app/spans.html", {"spans": spans})
    return HttpResponseRedirect(_spans_url(message.pk))


def spans_of_message(db: Database, message: Message) -> TraceSpans | None:
    """Return the spans of the trace that a message was made of; None if it is of no trace. Two queries."""
    trace_id = message.metadata.get(TRACE_ID)
    return None if trace_id is None else trace_spans(db, message.project_id, str(trace_id))


def trace_spans(db: Database, project_id: int, trace_id: str) -> TraceSpans:
    """Return the first spans of a trace of a project, and how many others it has. Two queries."""
    spans = spans_of(db, project_id, trace_id)
    lines = span_lines(spans, _linked_traces(db, project_id, spans[:MOST_SPANS]))
    return TraceSpans(trace_id=trace_id, lines=lines, left_out=len(spans) - len(lines))


def _linked_traces(db: Database, project_id: int, spans: Iterable[Span]) -> dict[str, str]:
    """Return the URLs of those of the traces that spans link to that have messages. One query, or none without links."""
    linked = {link.trace_id for span in spans for link in span.links[:_MOST_ROWS] if link.trace_id}
    if not linked:
        return {}
    rows = db.rows(Message.objects).filter(
        project_id=project_id, request_id__in=linked, metadata__has_key=TRACE_ID, session__deleted_at__isnull=True
    )
    return {trace_id: _spans_url(key) for key, trace_id in rows.order_by("-pk").values_list("pk", "request_id")}


def _spans_url(message_id: UUID) -> str:
    """Return the URL of a run with the spans that it was made of."""
    run = reverse("admin:messages_app_message_change", args=[message_id], query={"tab": "spans"})
    return f"{run}#selected"


def _node_of_span(db: Database, message: Message, span_id: str) -> UUID | None:
    """Return the step or call of a run that a span became, among the first _MOST_NODES of each. Two queries."""
    below = {"message_id": message.pk, **ids_below([message.pk])}
    steps = db.rows(AgentStep.with_deleted).filter(**below).order_by("pk").values_list("pk", "metadata")
    calls = db.rows(ToolCall.with_deleted).filter(**below).order_by("pk").values_list("pk", "result__metadata")
    of_nodes = chain(steps[:_MOST_NODES], calls[:_MOST_NODES])
    return next((key for key, metadata in of_nodes if metadata and metadata.get(SPAN_ID) == span_id), None)


def own_span(db: Database, message: Message, node_id: UUID) -> TraceSpans | None:
    """Return the span that a step or call of a message was made of; None if that is unknown. At most six queries."""
    of_message = {"pk": node_id, "message_id": message.pk}
    steps = db.rows(AgentStep.with_deleted).filter(**of_message)
    calls = db.rows(ToolCall.with_deleted).filter(**of_message)
    row = (
        steps.values_list("pk", "metadata", "timestamp", "duration_ms").first()
        # Its model requested it, and its tool, of whose span the result is, executed it.
        or calls.values_list("pk", "result__metadata", "started_at", "duration_ms").first()
    )
    span_id = row and row[1] and row[1].get(SPAN_ID)
    trace_id = message.metadata.get(TRACE_ID)
    if row is None or span_id is None or trace_id is None:
        return None
    spans = spans_of(db, message.project_id, str(trace_id), within(*row[2:]))
    own = [span for span in spans if span.span_id == span_id]
    if not own:
        return None
    [line] = span_lines(own, _linked_traces(db, message.project_id, own))
    if parent := line.span.parent_id:
        node = _node_of_span(db, message, parent)
        line = replace(line, parent_url=f"?call={node}&tab=span" if node else _spans_url(message.pk))
    return TraceSpans(trace_id=trace_id, lines=[line], left_out=0)

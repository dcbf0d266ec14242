"""The spans of a run as they came, in the panel of the run, and those of a session without a run."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from tests.admin_pages import links_of, text_of
from tests.traces_app.conftest import question, store
from traces_app.admin.span_page import MOST_SPANS, span_lines
from traces_app.models import AgentStep, ToolCall
from traces_app.spans.deliveries import record_spans
from tracesite_sdk.spans.span import Span, SpanLink

TRACE = "0af7651916cd43dd8448eb211c80319c"
START = 1_790_000_000_000_000_000


def span(number: int, parent: int = 0, **changes: Any) -> Span:
    fields = {
        "trace_id": TRACE,
        "span_id": f"{number:016x}",
        "parent_id": f"{parent:016x}" if parent else "",
        "name": f"span {number}",
        "start": START + number,
        "end": START + 10**9,
    }
    return Span(**(fields | changes))


def places(*spans: Span) -> list[tuple[str, int]]:
    return [(line.span.name, line.depth) for line in span_lines(spans)]


def test_lines_are_the_tree_in_order_of_time() -> None:
    assert places(span(4, 1), span(3, 2), span(2, 1), span(1)) == [
        ("span 1", 0),
        ("span 2", 1),
        ("span 3", 2),
        ("span 4", 1),
    ]


def test_lines_of_lost_parents_and_circles_are_roots() -> None:
    assert places(span(1, 9), span(2, 3), span(3, 2)) == [("span 1", 0), ("span 2", 0), ("span 3", 1)]


def test_lines_are_limited_in_number_depth_and_size() -> None:
    lines = span_lines([span(number, number - 1) for number in range(1, MOST_SPANS + 100)])
    assert (len(lines), max(line.depth for line in lines)) == (MOST_SPANS, 8)
    [large] = span_lines([span(1, attributes={"text": "x" * 10**6})])
    [(_group, [(_name, value)])] = large.parts[0].groups
    assert (large.is_cut, value.is_cut, len(value.head + value.rest)) == (True, True, 20_000)
    [many] = span_lines([span(1, attributes={f"odd.{number}": number for number in range(900)})])
    assert (many.is_cut, [(name, len(rows)) for name, rows in many.parts[0].groups]) == (True, [("odd", 500)])


@pytest.mark.django_db
def test_panel_shows_every_attribute_escaped(admin_client: Client) -> None:
    project = Project.objects.create(slug="spans")
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.completion": "31", "odd.name": "<script>alert(1)</script>"}
    record_spans(primary, project.pk, [span(1, attributes=attributes, status="error"), span(2, 1, end=0, kind=2)])
    message = Message.objects.get(role="assistant")
    run = f"/admin/messages_app/message/{message.pk}/change/"
    assert 'href="?tab=spans"' in admin_client.get(run).content.decode()
    spans = f"/admin/messages_app/message/{message.pk}/spans/"
    assert admin_client.get(spans).headers["Location"] == f"{run}?tab=spans#selected"
    page = admin_client.get(spans, follow=True)
    assert page.status_code == 200
    assert "<script>alert" not in page.content.decode()
    text = text_of(page)
    assert attributes["odd.name"] in text
    assert ("span 1 error 999 ms" in text, "span 2 running" in text) == (True, True)
    assert f"Trace ID {TRACE} Span ID {2:016x} Parent span ID {1:016x} Kind server Status unset" in text


@pytest.mark.django_db
def test_step_and_call_show_their_own_span(admin_client: Client) -> None:
    project = Project.objects.create(slug="spans")
    model = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-5", "gen_ai.completion": "31"}
    tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "find", "gen_ai.tool.call.id": "c"}
    ended = START + 10**8
    deliveries = [
        span(1, attributes={"gen_ai.operation.name": "invoke_agent"}),
        span(2, 1, end=ended, attributes=model, links=[SpanLink(trace_id=TRACE, span_id="0" * 16)]),
        # When it begins, and when it ends.
        span(3, 1, end=0, attributes=tool),
        span(3, 1, end=ended, attributes={**tool, "gen_ai.tool.call.result": "18 <b>degrees"}),
    ]
    record_spans(primary, project.pk, deliveries)
    message = Message.objects.get(role="assistant")
    run = f"/admin/messages_app/message/{message.pk}"
    for row, number, own, other in (
        (ToolCall.objects.get(), 3, "18 <b>degrees", "gpt-5"),
        (AgentStep.objects.filter(model="gpt-5").get(), 2, "gpt-5", "18 <b>degrees"),
    ):
        part = admin_client.get(f"{run}/spans/?call={row.pk}")
        page = admin_client.get(f"{run}/change/?call={row.pk}&tab=span")
        for answer in (part, page):
            shown = answer.context["spans"]
            assert [line.span.span_id for line in shown.lines] == [f"{number:016x}"]
            assert own in text_of(answer)
            assert "<b>" not in answer.content.decode().partition('<ul class="spans">')[2].partition("</ul>")[0]
        assert other not in text_of(part)
        # Its parent is no step or call, and the trace that it links to is stored.
        all_spans = f"{run}/change/?tab=spans#selected"
        assert links_of(part) == {f"{1:016x}": all_spans, **({TRACE: all_spans} if number == 2 else {})}
    for unknown in (message.pk, "junk", ""):
        assert text_of(admin_client.get(f"{run}/spans/?call={unknown}")) == ""


@pytest.mark.django_db
def test_session_of_other_spans_leads_to_them(admin_client: Client) -> None:
    project = Project.objects.create(slug="spans")
    record_spans(primary, project.pk, [span(1, name="GET /health"), span(2, 1, name="SELECT")])
    session = Session.objects.get()
    page = admin_client.get(f"/admin/messages_app/session/{session.pk}/change/")
    assert "Spans were received, but none describes an agent" in text_of(page)
    spans = f"/admin/messages_app/session/{session.pk}/spans/"
    assert f'href="{spans}"' in page.content.decode()
    assert "GET /health" in text_of(admin_client.get(spans))
    exported = admin_client.get(f"/api/v1/sessions/{session.pk}/export/?format=otlp")
    assert "SELECT" in exported.content.decode()


@pytest.mark.django_db
def test_page_of_other_messages_is_missing(admin_client: Client, client: Client) -> None:
    missing = "/admin/messages_app/message/0193e0f0-0000-7000-8000-000000000000/spans/"
    assert admin_client.get(missing).headers["Location"] == "/admin/messages_app/message/"
    assert client.get(missing).headers["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("trace", ["zz", "0AF7651916CD43DD8448EB211C80319C", "a" * 31])
def test_message_with_what_is_no_id_of_a_trace_has_no_spans(admin_client: Client, project: Project, trace: str) -> None:
    message = store(project, question(metadata={"trace_id": trace})).messages[0]
    page = admin_client.get(f"/admin/messages_app/message/{message.id}/spans/", follow=True)
    exported = admin_client.get(f"/api/v1/sessions/{Message.objects.get().session_id}/export/?format=otlp")
    assert (page.status_code, exported.json()) == (200, {"resourceSpans": []})
    assert "The spans of this trace were purged." in text_of(page)


@pytest.mark.django_db
def test_parent_span_leads_to_its_call(admin_client: Client) -> None:
    project = Project.objects.create(slug="spans")
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.call.id": "c",
        "gen_ai.tool.call.arguments": '{"a":1}',
    }
    inner = {**tool, "gen_ai.tool.call.id": "d"}
    record_spans(primary, project.pk, [span(1, attributes=tool), span(2, 1, attributes=inner)])
    message = Message.objects.get(role="assistant")
    outer, nested = ToolCall.objects.get(call_id="c").pk, ToolCall.objects.get(call_id="d").pk
    part = admin_client.get(f"/admin/messages_app/message/{message.pk}/spans/?call={nested}")
    assert links_of(part) == {f"{1:016x}": f"?call={outer}&tab=span"}
    assert 'gen_ai.tool.call.arguments {"a": 1}' in text_of(part)

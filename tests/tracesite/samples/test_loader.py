"""Test the sample sessions: their contents, and that a second load adds none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib import resources

import pytest
from django.db.models import F, Q
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Reference, Session
from messages_app.writes import delete_session
from tests.admin_pages import links_of, text_of
from traces_app.models import AgentStep, Event, Score, Snapshot, ToolCall
from tracesite.samples.history import earlier_sessions
from tracesite.samples.loader import load_samples


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="demo")


def test_load_samples_twice_changes_nothing(project: Project) -> None:
    assert load_samples(primary, project) == 50
    assert set(Score.objects.filter(session__tags=["travel"]).values_list("number", flat=True)) == {0, 1}
    before = [list(model.objects.order_by("pk").values()) for model in (Session, Message, AgentStep, ToolCall, Score)]
    assert load_samples(primary, project) == 0
    assert [
        list(model.objects.order_by("pk").values()) for model in (Session, Message, AgentStep, ToolCall, Score)
    ] == before


def test_calls_of_samples_end_before_their_runs(project: Project) -> None:
    load_samples(primary, project)
    ended = ToolCall.objects.filter(message__completed_at__isnull=False)
    assert ended.filter(message__session__external_id="sample-parcel-desk").exists()
    assert not ended.filter(
        Q(started_at__gt=F("message__completed_at")) | Q(completed_at__gt=F("message__completed_at"))
    ).exists()


def test_sample_of_spans_shows_its_tree(admin_client: Client, project: Project) -> None:
    load_samples(primary, project)
    run = Message.objects.get(session__external_id="sample-overdue-invoices", role="assistant")
    call = ToolCall.objects.get(message=run)
    assert (run.content[:12], run.step_count, call.tool.name) == ("Two invoices", 2, "list_invoices")
    page = admin_client.get(f"/admin/messages_app/message/{run.pk}/change/?tab=spans")
    assert [line.depth for line in page.context["spans"].lines] == [0, 1, 1, 2, 2, 1]
    for shown in (
        "billing-desk 4.2.0",
        "opentelemetry.instrumentation.openai_v2 2.3b0",
        "db.query.text",
        "OperationalError",
        "link.reason",
    ):
        assert shown in text_of(page)


def test_load_samples_skips_deleted_sample(project: Project) -> None:
    load_samples(primary, project)
    delete_session(primary, Session.objects.get(external_id="sample-weather-zh").pk, by="somebody")
    assert load_samples(primary, project) == 0


def test_samples_are_recent_and_keep_durations(project: Project) -> None:
    load_samples(primary, project)
    now = timezone.now()
    times = Session.objects.order_by("-created_at").values_list("created_at", flat=True)
    assert now - times[0] < timedelta(minutes=5)
    assert timedelta(days=12) < now - times[len(times) - 1] < timedelta(days=14)
    call = ToolCall.objects.get(tool__name="set_setting")
    assert call.started_at is not None
    assert call.completed_at is not None
    assert call.duration_ms == round((call.completed_at - call.started_at) / timedelta(milliseconds=1))
    assert 600 <= call.duration_ms < 700


@pytest.mark.parametrize("period", ["24h", "7d"])
def test_samples_show_what_got_worse(admin_client: Client, project: Project, period: str) -> None:
    load_samples(primary, project)
    tools = text_of(admin_client.get("/admin/traces_app/tool/statistics/", {"created": period}))
    slower = re.search(
        r"load_branch ▲ slower (since \S+ \S+ )?p95 [\d.]+ m?s in this period, [\d.]+ m?s in the one before",
        tools,
    )
    fails_more = re.search(
        r"search_hotels (▲ slower [^▲]*)?(▲ fails more (since \S+ \S+ )?[\d.]+% (since then|in this period), [\d.]+% (until then|in the one before)|fails [\d.]+%, too few calls before to compare)",
        tools,
    )
    assert (slower is not None, fails_more is not None) == (True, True)


def test_samples_have_similar_failures_and_error_groups(admin_client: Client, project: Project) -> None:
    load_samples(primary, project)
    groups = text_of(admin_client.get("/admin/traces_app/toolcall/errors/", {"created": "7d"}))
    assert "no answer from the hotel service of Lisbon" in groups
    failed = ToolCall.objects.filter(tool__name="search_hotels", status="error")
    assert failed.count() == 6
    run = failed.get(message__session__external_id="sample-travel-plan").message_id
    alike = text_of(admin_client.get(f"/admin/messages_app/message/{run}/similar/?by=errors"))
    assert "Lisbon with two children" in alike


def test_failed_refund_has_a_good_run_to_compare(admin_client: Client, project: Project) -> None:
    load_samples(primary, project)
    failed = Message.objects.get(session__external_id="sample-refund-failed", role="assistant")
    good = Message.objects.get(session__external_id="sample-refund", role="assistant")
    page = admin_client.get(f"/admin/messages_app/message/{failed.pk}/change/")
    compared = links_of(page)["Compare with the last good run"]
    assert f"other={good.pk}" in compared
    assert admin_client.get(compared).status_code == 200


def test_history_follows_from_the_time_alone() -> None:
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    earlier = earlier_sessions(now)
    assert earlier == earlier_sessions(now)
    ends = [message.completed_at for session in earlier for message in session.messages or () if message.completed_at]
    assert max(ends) < now


def test_samples_cover_all_features(project: Project) -> None:
    load_samples(primary, project)
    assert set(Session.objects.values_list("status", flat=True)) == {
        "running",
        "paused",
        "completed",
        "error",
        "aborted",
    }
    calls = ToolCall.objects.filter(project=project)
    assert {status: calls.filter(status=status).count() > 1 for status in ("success", "error", "pending")} == {
        "success": True,
        "error": True,
        "pending": True,
    }
    nested_twice = calls.filter(parent__parent__isnull=False)
    assert nested_twice.exists()
    overlapping = calls.filter(step__calls__started_at__lt=F("completed_at"), step__calls__position__gt=F("position"))
    assert overlapping.exists()
    assert Message.objects.filter(content__contains="天气").exists()
    assert Message.objects.exclude(error="").count() == 4
    assert Message.objects.filter(is_completed=False).count() == 2
    assert Reference.objects.filter(knowledge_title__contains="差旅").exists()
    # Among all samples, the only such call is one of an unknown tool with truncated arguments; one run was stopped by its user.
    assert [message.health for message in Message.objects.exclude(health=[])] == [["stopped"], ["invalid_arguments"]]


def test_samples_include_recorder_example(project: Project) -> None:
    load_samples(primary, project)
    session = Session.objects.get(external_id="sample-order-desk")
    question, answer = Message.objects.filter(session=session).order_by("id")
    calls = list(
        ToolCall.objects.filter(message_id=answer.pk).order_by("started_at").select_related("tool", "parent__tool")
    )
    assert (session.title, session.status) == ("Order 2041 goes elsewhere", "completed")
    assert question.content.startswith("Where is my order 2041?")
    assert answer.content.startswith("Your parcel comes tomorrow")
    assert {(call.tool.name, call.status, call.parent and call.parent.tool.name) for call in calls} == {
        ("find_order", "success", None),
        ("read_rules", "success", None),
        ("Rules", "success", "read_rules"),
        ("change_address", "error", None),
        ("ask_courier_desk", "success", None),
        ("track_parcel", "success", "ask_courier_desk"),
    }
    assert Event.objects.filter(session_id=session.pk).count() > 30


def test_samples_include_a_failure_and_its_replay(admin_client: Client, project: Project) -> None:
    load_samples(primary, project)
    failed = Session.objects.get(external_id="sample-parcel-desk")
    fork = Session.objects.get(external_id__startswith="sample-parcel-desk-fork-")
    assert failed.status == "error"
    assert fork.metadata["forked_from"]["overrides"] == {"context": {"order": 2041}}
    page = text_of(admin_client.get(f"/admin/messages_app/session/{failed.pk}/snapshots/"))
    assert "replays look_up" in page
    newest = Snapshot.objects.filter(session_id=failed.pk).latest("pk")
    text = text_of(admin_client.get(f"/admin/messages_app/session/{failed.pk}/snapshots/{newest.pk}/"))
    # What the node before it has added.
    assert (newest.node_ids, "Look up the order, then answer." in text) == (["look_up"], True)


def test_password_in_sample_is_redacted(project: Project) -> None:
    load_samples(primary, project)
    call = ToolCall.objects.get(tool__name="connect")
    assert call.args["host"] == "warehouse.example"
    assert "only-an-example" not in str(call.args)


def test_samples_are_described_and_hold_no_local_paths() -> None:
    folder = resources.files("tracesite.samples") / "recordings"
    described = (folder / "README.md").read_text()
    files = [file for file in folder.iterdir() if file.name.endswith((".json", ".ndjson"))]
    assert [file.name for file in files if f"| {file.name.partition('.')[0]} |" not in described] == []
    assert sum(len(file.read_bytes()) for file in files) < 500_000
    assert [file.name for file in files if "/tmp" in file.read_text() or "/home" in file.read_text()] == []

"""Tests of traces_app/maintenance/retention.py: the days, ways and exceptions of projects, applied together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from access_app.db import primary
from access_app.models import KeptStatus, Project
from messages_app.models import Message, Session
from messages_app.session_counters import disagreements
from messages_app.sql.periods import Period
from messages_app.writes import delete_message, delete_session
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.maintenance.purge.surveys import survey
from traces_app.maintenance.retention import apply_retention, scopes_of
from traces_app.queries.scores import find_place
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db(transaction=True)

NOW = timezone.now()


def ago(days: float) -> datetime:
    return NOW - timedelta(days=days)


def tell(project: Project, name: str, *days: float, **fields: Any) -> None:
    """Store a session with a question and an answer for each of these ages."""
    messages = [
        make(created_at=ago(age), external_id=f"{name}-{age}-{kind}")
        for age in days
        for kind, make in (("q", question), ("a", answer))
    ]
    store(project, *messages, external_id=name, created_at=ago(days[0]), **fields)


def judge(project: Project, name: str, value: float, **place: str) -> None:
    record = records.Score(name=name, value=value, created_at=NOW, **place)
    store_scores(
        primary,
        project.pk,
        [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=find_place(primary, project.pk, record))],
    )


def set_rules(project: Project, **rules: Any) -> None:
    Project.objects.filter(pk=project.pk).update(**rules)


def left() -> dict[str, int]:
    """Return the number of messages of each session, those in the trash included."""
    found = {session.external_id: 0 for session in Session.with_deleted.all()}
    for message in Message.with_deleted.select_related("session"):
        found[message.session.external_id] += 1
    return found


def purge_by_policy() -> dict[str, int]:
    """Apply the rules; return the number of removed rows, which is what a dry run has counted."""
    counted = survey(primary, *scopes_of(primary, Project.objects.all()))
    removed = apply_retention(primary)
    assert removed.periods == counted.periods
    rows = {name: table.rows for name, table in removed.tables.items()}
    assert rows == {name: table.rows for name, table in counted.tables.items()}
    assert disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True))) == {}
    return rows


def test_each_project_loses_what_is_older_than_its_days(project: Project, stranger: Project) -> None:
    other = Project.objects.create(slug="no-days")
    for each in (project, stranger, other):
        tell(each, f"{each.slug} long", 100, 50, 1)
        tell(each, f"{each.slug} old", 100)
    assert purge_by_policy()["messages"] == 0
    set_rules(project, retention_days=90)
    set_rules(stranger, retention_days=20)
    rows = purge_by_policy()
    assert (rows["messages"], rows["sessions"], rows["calls"] > 0) == (10, 2, True)
    assert left() == {"owner long": 4, "stranger long": 2, "no-days long": 6, "no-days old": 2}


def test_exceptions_keep_whole_sessions(project: Project, stranger: Project) -> None:
    set_rules(
        project,
        retention_days=90,
        keep_tags=["golden", "audit"],
        keep_statuses=["error"],
        keep_scores=["rating>=4", "quality<=0.3", "note"],
        keep_pinned=True,
    )
    set_rules(stranger, retention_days=90)
    for name, fields in {
        "tag": {"tags": ["audit", "x"]},
        "other tag": {"tags": ["x"]},
        "status": {"status": "error"},
        "other status": {"status": "aborted"},
        "pinned": {},
        "high": {},
        "not high": {},
        "low": {},
        "named": {},
    }.items():
        tell(project, name, 200, 100, **fields)
    tell(stranger, "tag of another project", 200, tags=["golden"])
    Session.objects.filter(external_id="pinned").update(pinned_at=NOW)
    judge(project, "rating", 4, message_id="high-100-a")
    judge(project, "rating", 3.9, session_id="not high")
    judge(project, "quality", 0.1, session_id="low")
    judge(project, "note", 1, message_id="named-200-q")
    assert purge_by_policy()["sessions"] == 4
    assert left() == dict.fromkeys(["tag", "status", "pinned", "high", "low", "named"], 4)
    # Without its exception a session goes with the next run.
    set_rules(project, keep_tags=[])
    assert purge_by_policy()["messages"] == 4
    assert "tag" not in left()


def test_session_that_is_kept_stays_without_messages(project: Project) -> None:
    set_rules(project, retention_days=90, keep_tags=["golden"])
    for name, tags in (("kept", ["golden"]), ("gone", [])):
        store(project, external_id=name, created_at=ago(100), tags=tags)
    assert purge_by_policy()["sessions"] == 1
    assert left() == {"kept": 0}


def test_whole_months_go_once_all_of_them_has_expired(project: Project, stranger: Project) -> None:
    # The last moment of a month has expired, its first days have; the month that follows has not begun to.
    end = ago(90).astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    expired, partly = (NOW - end) / timedelta(days=1) + 0.01, (NOW - end) / timedelta(days=1) - 0.001
    month = str(Period.of(ago(expired)))
    set_rules(project, retention_days=90, retention_way="whole", keep_tags=["golden"])
    set_rules(stranger, retention_days=30)
    tell(project, "expired", expired)
    tell(project, "partly", max(partly, 90.001))
    tell(stranger, "exact", expired, 40)
    tell(stranger, "kept by another rule", expired, tags=["golden"])
    assert month in survey(primary, *scopes_of(primary, Project.objects.all())).periods
    assert month in apply_retention(primary).periods
    assert left() == {"partly": 2}
    assert disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True))) == {}
    # One that is kept, or whose project has no days, keeps its month; the others go by rows.
    tell(project, "kept", expired, tags=["golden"])
    tell(project, "expired again", expired)
    assert month not in apply_retention(primary).periods
    assert left() == {"partly": 2, "kept": 2}
    tell(Project.objects.create(slug="no-days"), "for ever", expired)
    set_rules(project, keep_tags=[])
    assert month not in apply_retention(primary).periods
    assert left() == {"partly": 2, "for ever": 2}


def test_trash_has_days_of_its_project(project: Project, stranger: Project, settings: Any) -> None:
    settings.TRACESITE_TRASH_DAYS = 30
    set_rules(project, trash_days=5, retention_days=90, keep_tags=["golden"])
    for each in (project, stranger):
        for name in ("old trash", "new trash"):
            tell(each, f"{each.slug} {name}", 10)
    tell(project, "kept in the trash", 100, tags=["golden"])
    tell(project, "kept, too long in the trash", 100, tags=["golden"])
    tell(project, "message", 10)
    delete_message(primary, Message.objects.get(external_id="message-10-q").pk, by="ada")
    Message.with_deleted.filter(deleted_at__isnull=False).update(deleted_at=ago(6))
    for session in Session.objects.exclude(external_id="message"):
        delete_session(primary, session.pk, by="ada")
        days = 4 if session.external_id in ("owner new trash", "kept in the trash", "stranger new trash") else 6
        Session.with_deleted.filter(pk=session.pk).update(deleted_at=ago(days))
    Session.with_deleted.filter(external_id="stranger old trash").update(deleted_at=ago(31))
    expected = {"owner new trash": 2, "stranger new trash": 2, "kept in the trash": 2, "message": 1}
    set_rules(project, retention_days=None)
    call_command("purge", "--trash", "--yes", stdout=StringIO())
    assert left() == expected
    set_rules(project, retention_days=90)
    assert purge_by_policy()["messages"] == 0
    assert left() == expected


def test_command_applies_the_rules_of_all_or_of_some(project: Project, stranger: Project) -> None:
    def run(*arguments: str) -> str:
        out = StringIO()
        call_command("purge", "--policy", *arguments, stdout=out, stderr=out)
        return out.getvalue()

    tell(project, "one", 100)
    tell(stranger, "two", 100)
    assert "No project has days." in run("--yes")
    Project.objects.update(retention_days=90)
    assert "Would remove what was older than its project allows in all projects" in run("--dry-run")
    assert len(left()) == 2
    assert '"policy": true' in run("--project", "owner", "--yes", "--json")
    assert left() == {"two": 2}
    assert "sessions   1" in run("--yes")
    for other in ("--trash", "--older-than=1", "--session=one", "--deleted-longer-than=1"):
        with pytest.raises(CommandError, match="Use --policy alone, or with --project"):
            run(other, "--yes")


def test_statuses_that_keep_are_those_of_sessions() -> None:
    assert dict(KeptStatus.choices) == dict(Session.Status.choices)

"""Tests of erase: a person is found in every column of every table and in archives, and gone afterwards; others are not touched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow.parquet as pq
import pytest
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.core.management import CommandError
from django.db import connection, models
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import AuditEntry, Project
from messages_app.models import Message, Reference, SavedView, Session
from messages_app.session_counters import disagreements
from tests.traces_app.conftest import answer, question, store
from tests.traces_app.maintenance.archive.conftest import FEBRUARY, JANUARY, MARCH, add_snapshot, exports, run
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.maintenance.archive.archiving import archive
from traces_app.maintenance.archive.folder import open_folder
from traces_app.maintenance.erasure import has_text
from traces_app.models import (
    AgentStep,
    Context,
    Erasure,
    ErrorGroupState,
    Event,
    Score,
    SearchSegment,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    Tool,
    ToolCall,
    ToolResult,
)
from traces_app.queries.scores import find_place
from traces_app.spans.deliveries import record_spans
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.records import ids
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Span as SentSpan

pytestmark = pytest.mark.django_db(transaction=True)

TOKEN = "zq7x"
PERSON = f'Zoë "{TOKEN}" 王芳'
BELOW = (
    *(Session, Message, Reference, AgentStep, ToolCall, ToolResult, Event, Context, Score),
    *(Snapshot, SnapshotPart, SnapshotSums),
)


def tell(project: Project, name: str, at: datetime) -> UUID:
    """Store a session with a row in each table; return its id."""
    asked = {"messages": [{"role": "user", "content": f"asked by {name}"}]}
    run_of = answer(external_id=f"{name}-a", created_at=at, knowledge_references=[{"id": "r", "content": "a passage"}])
    run_of["agent_steps"][0]["input"] = asked
    outcome = store(
        project,
        question(external_id=f"{name}-q", created_at=at),
        run_of,
        external_id=name,
        created_at=at,
        end_user=name,
    )
    assert outcome.id is not None
    message = Message.objects.get(session=outcome.id, role="assistant")
    Event.objects.create(
        pk=ids.child_id(message.pk, "event"), project=project, session_id=outcome.id, message=message, seq=1,
        external_id="e", type="note", level="info", category="run", timestamp=at,
    )  # fmt: skip
    score = records.Score(session_id=name, message_id=f"{name}-a", name="good", value=True)
    store_scores(
        primary,
        project.pk,
        [PlacedScore(redacted=redact_score(score, DEFAULT_RULES), place=find_place(primary, project.pk, score))],
    )
    add_snapshot(outcome.id, at)
    return outcome.id


def row_of(model: type[models.Model], session: UUID) -> models.QuerySet[Any]:
    rows: models.QuerySet[Any] = model._base_manager.all()
    match model.__name__:
        case "Session":
            return rows.filter(pk=session)
        case "ToolResult":
            return rows.filter(pk=ToolCall.objects.filter(message__session=session).earliest("pk").pk)
        case "Snapshot" | "SnapshotPart" | "SnapshotSums":
            return rows.filter(session=session)
        case "Message" | "Event" | "Context" | "Score":
            return rows.filter(pk=rows.filter(session=session).order_by("pk").first().pk)
        case _:
            return rows.filter(pk=rows.filter(message__session=session).order_by("pk").first().pk)


def places() -> Iterator[tuple[type[models.Model], str, Any]]:
    """Yield every column for free text below a project, and the person as its value."""
    for model in BELOW:
        for field in model._meta.concrete_fields:
            if isinstance(field, models.GeneratedField) or field.choices or not has_text(field):
                continue
            if (
                isinstance(field, models.CharField)
                and not isinstance(field, models.TextField)
                and (field.max_length or 99) < 40
            ):
                continue
            if (model, field.column) in ((Context, "kind"),):
                continue
            is_list = field.get_internal_type() == "ArrayField"
            in_bytes = json.dumps([PERSON]).encode() if isinstance(field, models.BinaryField) else None
            value = (
                in_bytes or [PERSON]
                if in_bytes or is_list
                else {"a": {"b": PERSON}}
                if isinstance(field, models.JSONField)
                else PERSON
            )
            yield model, field.column, value


def plant(projects: list[Project]) -> dict[str, UUID]:
    """Plant the person in a session of its own for each place, by turns in each project; return the sessions."""
    planted = {}
    for number, (model, column, value) in enumerate(places()):
        project = projects[number % len(projects)]
        name = f"{model.__name__}-{column}"
        session = tell(project, name, JANUARY + timedelta(minutes=number))
        assert row_of(model, session).update(**{column: value}) == 1
        planted[name] = session
    # What has no message: a span that waits for its trace; JSON within JSON.
    start = int(FEBRUARY.timestamp() * 1_000_000_000)
    inner = json.dumps([{"role": "user", "content": f"I am {PERSON}"}])
    for project, trace, attributes in (
        (projects[0], "a" * 32, {"note": PERSON}),
        (projects[1], "b" * 32, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": inner}),
        (projects[1], "c" * 32, {"gen_ai.operation.name": "chat", "gen_ai.input.messages": '[{"role": "user", "content": "Hi"}]'}),
    ):  # fmt: skip
        record_spans(
            primary,
            project.pk,
            [SentSpan(trace_id=trace, span_id="d" * 16, start=start, end=start + 1, attributes=attributes)],
        )
    return planted


def dump() -> bytes:
    """Return all tables as text."""
    written = bytearray()
    with connection.cursor() as cursor:
        for table in connection.introspection.table_names():
            with cursor.copy(f"COPY (SELECT * FROM {connection.ops.quote_name(table)}) TO STDOUT") as copy:
                for part in copy:
                    written += part
    return bytes(written)


def values_in(directory: Path) -> str:
    tables = [pq.ParquetFile(path).read() for path in sorted(directory.rglob("*.parquet"))]
    return "\n".join(str(table.to_pylist()) for table in tables)


def read_by_key(project: Project) -> None:
    """Send, list, search and judge the traces of the person with a key."""
    client = Client(headers={"X-API-Key": create_key(project, "agent", ["read", "write"])[1]})
    sent = {"external_id": f"{TOKEN}-audited", "end_user": PERSON, "messages": [{"role": "user", "content": PERSON}]}
    assert client.post("/api/v1/ingest/", {"sessions": [sent]}, "application/json").status_code == 200
    assert client.get("/api/v1/sessions/", {"end_user": PERSON}).json()["results"]
    assert client.get("/api/v1/search/", {"q": TOKEN}).status_code == 200
    score = {"message_id": TOKEN, "name": PERSON, "value": {"x": PERSON}}
    assert client.post("/api/v1/scores/", score, "application/json").status_code == 400


def test_person_is_erased_everywhere_and_others_are_untouched(tmp_path: Path) -> None:
    projects = [Project.objects.create(slug=f"p{number}") for number in range(5)]
    planted = plant(projects)
    assert len(planted) > 30
    others = [tell(project, f"other-{at:%m}", at) for project in projects for at in (JANUARY, FEBRUARY, MARCH)]
    run("index_search")
    clerk = User.objects.create_superuser("clerk")
    SavedView.objects.create(owner=clerk, name="theirs", list_name="messages_app.session", query="end_user=zq7x")
    note = ErrorGroupState.objects.create(
        project=projects[0], group="0" * 32, state="ignored", note=f"only {PERSON}", at=timezone.now()
    )
    LogEntry.objects.create(
        user=clerk, content_type=ContentType.objects.get_for_model(Session), object_id=str(planted["Session-title"]),
        object_repr=PERSON, action_flag=CHANGE,
    )  # fmt: skip
    Tool.objects.filter(project=projects[2], name="search").update(description=f"asks {PERSON}")
    read_by_key(projects[0])
    kept = exports("other-")
    # In an archive only, in both, and in the database only.
    folder = open_folder(str(tmp_path))
    archive(primary, folder, before=FEBRUARY.replace(day=1), projects=projects[:2], drop=True)
    archive(primary, folder, before=MARCH.replace(day=1), projects=projects[2:4])
    assert TOKEN in values_in(tmp_path)
    assert TOKEN.encode() in dump()

    told = run("erase", "--match", PERSON, "--dry-run")
    assert told.startswith("Would remove:")
    assert TOKEN in values_in(tmp_path)
    assert not Erasure.objects.exists()
    before = {str(path) for path in tmp_path.rglob("*.parquet")}
    said = run("erase", "--match", TOKEN.upper(), "--yes")
    receipt = json.loads(said[said.index("{") :])
    assert TOKEN.encode() not in dump()
    assert not SnapshotPart.objects.filter(session=planted["SnapshotPart-content"]).exists()
    assert TOKEN not in values_in(tmp_path)
    assert all(TOKEN.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    note.refresh_from_db()
    assert (note.state, note.note) == ("ignored", "")
    # The receipt has numbers and no content.
    stored = Erasure.objects.get()
    assert str(stored.pk) == receipt["id"]
    assert stored.ended_at is not None
    assert receipt["removed"]["search index"] >= 1
    assert receipt["found"]["messages"] == receipt["removed"]["messages"]
    assert {one["project"] for one in receipt["archives"]} == {"p0", "p1", "p2", "p3"}
    audited = AuditEntry.objects.get(object_type="erasure")
    assert (audited.object_id, audited.action) == (receipt["id"], "purge")
    # The audit log keeps who did what, when, and has never had any content.
    asked = AuditEntry.objects.filter(actor_kind="key").order_by("pk")
    assert [(entry.action, entry.object_type, entry.result) for entry in asked] == [
        ("create", "ingest", "allowed"),
        ("list", "session", "allowed"),
        ("search", "search", "allowed"),
        ("create", "score", "failed"),
    ]
    assert asked[0].project_id == projects[0].pk
    run("chain_audit")
    assert "p0: intact until entry" in run("verify_audit")

    run("index_search")
    assert SearchSegment.objects.exists()
    run("restore_archive", str(tmp_path))
    assert exports("other-") == kept
    assert TOKEN.encode() not in dump()
    # A session of which only a snapshot had it stays, without snapshots.
    for place in ("Snapshot-external_id", "SnapshotPart-content", "SnapshotSums-fork"):
        assert Session.objects.filter(pk=planted[place], snapshots=None, snapshot_sums=None).exists()
    assert set(others) <= set(Session.objects.values_list("pk", flat=True))
    assert Span.objects.count() == 1
    assert disagreements(primary, list(Session.with_deleted.values_list("pk", flat=True))) == {}
    assert before != {str(path) for path in tmp_path.rglob("*.parquet")}
    assert run("erase", "--match", PERSON, "--yes") == (
        f"Nothing with {PERSON!r} was found in any project. Searched: the database, {tmp_path}.\n"
    )


def test_end_user_and_session_are_erased(project: Project, stranger: Project, tmp_path: Path) -> None:
    for owner in (project, stranger):
        for name in ("ann", "bob"):
            tell(owner, name, JANUARY)
            tell(owner, f"{name}-2", FEBRUARY)
    Session.objects.filter(external_id="ann-2").update(end_user="ann")
    archive(primary, open_folder(str(tmp_path)), before=FEBRUARY.replace(day=1), drop=True)
    kept = exports("bob-2")
    refused = "^Nothing of any project is archived in /.*/mistyped\\.$"
    for how in ("--yes", "--dry-run"):
        with pytest.raises(CommandError, match=refused) as error:
            run("erase", "--end-user", "ann", "--archive", str(tmp_path / "mistyped"), how)
        assert error.value.returncode == 2
    assert Session.objects.filter(end_user="ann").count() == 2
    said = run("erase", "--end-user", "ann", "--archive", str(tmp_path), "--yes")
    assert said.count(f"2024-01 of owner in {tmp_path}: sessions 1, messages 2, ") == 1
    nowhere = "Nothing of end user 'ann' was found in owner. Searched: the database, "
    assert run("erase", "--end-user", "ann", "--project", "owner", "--yes") == f"{nowhere}{tmp_path}.\n"
    assert "ann" not in values_in(tmp_path)
    run("restore_archive", str(tmp_path))
    assert sorted(Session.objects.values_list("external_id", flat=True)) == ["bob", "bob", "bob-2", "bob-2"]
    assert exports("bob-2") == kept
    run("erase", "--session", "bob", "--project", "owner", "--yes")
    left = Session.objects.filter(external_id="bob").select_related("project")
    assert [session.project.slug for session in left] == ["stranger"]
    assert '"project=owner' not in values_in(tmp_path)
    # One that is in an archive only.
    run("purge", "--session", "bob", "--project", "stranger", "--older-than", "0", "--yes")
    assert "of stranger in" in run("erase", "--session", "bob", "--project", "stranger", "--yes")
    assert "bob" not in values_in(tmp_path)
    assert run("erase", "--session", "bob", "--yes") == "Session 'bob' is already purged.\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--match", "ab"), "--match 'ab': use a text of at least 3 characters."),
        (("--end-user", " "), "--end-user ' ': use a text that is not empty."),
        (("--session", "nope", "--yes"), "There is no session 'nope'."),
        (("--session", "nope", "--dry-run"), "There is no session 'nope'."),
        (("--match", "abc", "--project", "nobody"), "There is no project 'nobody'."),
        (("--end-user", "ann"), "Confirmation needs a terminal. Use --yes"),
    ],
)
def test_erase_with_wrong_arguments_removes_nothing(project: Project, arguments: tuple[str, ...], said: str) -> None:
    tell(project, "ann", JANUARY)
    with pytest.raises(CommandError) as error:
        run("erase", *arguments)
    assert str(error.value).startswith(said)
    assert Message.objects.count() == 2


def test_text_that_stays_elsewhere_is_named(project: Project) -> None:
    User.objects.create(username="zq7x-user")
    tell(project, "zq7x", JANUARY)
    with pytest.raises(CommandError, match=r"rows that this command does not change: auth_user \(1\)"):
        run("erase", "--match", "zq7x", "--yes")
    assert not Session.objects.exists()

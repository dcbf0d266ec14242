"""Test that a project moves between databases whole, while it is written to."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from io import StringIO

import msgspec
import pytest
import pytest_django
from django.apps import apps
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client

from access_app.db import PRIMARY, using
from access_app.db.reading import is_of_traces
from access_app.keys import create_key
from access_app.models import Project, Scope
from access_app.places import alias_of, database_of
from messages_app.models import Message, PurgedPeriod, SealMark, Session, SessionTombstone
from tests.examples import examples
from tests.project_databases import copies
from tests.traces_app.conftest import answer, question, store
from traces_app.maintenance import moving
from traces_app.maintenance.project_databases import prepare
from traces_app.models import (
    EmbedderInUse,
    Erasure,
    JobRun,
    MessageSeal,
    SealBatch,
    SealLayout,
    SearchPosting,
    SearchRows,
    SearchSegment,
    ToolRollUp,
)

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
SENDERS, SESSIONS = 2, 12
TENANTS = ("tenant", "second")
PROJECTS = examples(10)
LISTS = (
    *("sessions/?limit=2", "sessions/?status=error", "sessions/?has_errors=true", "sessions/?end_user=ada"),
    *(
        "messages/?limit=3",
        "messages/?role=user",
        "messages/?tool=get_weather",
        "messages/?created_after=2026-11-02T00:00:00Z",
    ),
    *(
        "tool-calls/?limit=2",
        "tool-calls/?status=error",
        "tool-calls/?tool=get_weather&limit=1",
        "scores/",
        "errors/",
    ),
)


@pytest.fixture(scope="module", autouse=True)
def databases(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), copies(TENANTS):
        yield


@pytest.fixture
def client(transactional_db: None) -> Client:
    for alias in TENANTS:
        prepare(alias)
    _key, token = create_key(Project.objects.create(slug="big"), "test", Scope.values)
    return Client(headers={"authorization": f"Bearer {token}"})


def exported(client: Client) -> list[bytes]:
    """Return the exports of all sessions, and the figures of all tools."""
    ids = sorted(one["id"] for one in client.get("/api/v1/sessions/", {"limit": 100}).json()["results"])
    return [
        *(b"".join(client.get(f"/api/v1/sessions/{one}/export/")) for one in ids),
        client.get("/api/v1/tools/").content,
    ]


def moved(alias: str) -> str:
    call_command("move_project", "big", alias, stdout=(out := StringIO()))
    return out.getvalue()


def test_project_moves_there_and_back_and_is_the_same(client: Client) -> None:
    big, small = Project.objects.get(), Project.objects.create(slug="small")
    for project in (big, small):
        store(project, question(), answer())
    before = exported(client)
    for alias, other in (("tenant", PRIMARY), (PRIMARY, "tenant")):
        assert f"to {alias}" in moved(alias)
        assert alias_of(big.pk) == alias
        assert exported(client) == before
        with using(other):
            assert not Session.with_deleted.filter(project=big).exists()
        call_command("work", "--once", stdout=StringIO())
        for command in ("seal_traces", "check_traces", "verify_traces"):
            call_command(command, stdout=StringIO())
        # What is sent again is known, and what is new goes on.
        body = msgspec.json.encode({"sessions": [{"external_id": "weather", "messages": [question(), answer()]}]})
        assert client.post("/api/v1/ingest/", body, "application/json").status_code in (200, 201)
        with using(alias):
            assert Message.with_deleted.filter(project=big).count() == 2
        assert exported(client) == before
    assert "Removed 0 rows elsewhere" in moved(PRIMARY)
    assert Session.objects.filter(project=small).exists()


def test_every_table_of_traces_moves_or_is_known_to_stay() -> None:
    made_anew = {table for table, _condition in moving._MADE_ANEW}
    # Search, vectors and seals are made anew, marks of what was purged are copied for all, and the rest is of the database.
    stay = {
        *(ToolRollUp, SearchSegment, SearchRows, SearchPosting, EmbedderInUse, SealLayout, SealBatch, MessageSeal),
        *(SealMark, PurgedPeriod, SessionTombstone, Erasure, JobRun),
    }
    there = {model for model in apps.get_models() if is_of_traces(model) and model._meta.db_table not in made_anew}
    assert there == {*(model for model, _condition in moving.MOVED), *stay}


def test_move_under_load_loses_and_doubles_nothing(client: Client) -> None:
    accepted: list[str] = []
    waited: list[int] = []
    headers = {"authorization": client.defaults["HTTP_AUTHORIZATION"]}

    def send(sender: int) -> None:
        mine = Client(headers=headers)
        try:
            for number in range(SESSIONS):
                name = f"{sender}-{number}"
                body = msgspec.json.encode({"sessions": [{"external_id": name, "messages": [question(), answer()]}]})
                while mine.post("/api/v1/ingest/", body, "application/json").status_code == 503:
                    waited.append(sender)
                accepted.append(name)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=send, args=[sender]) for sender in range(SENDERS)]
    for thread in threads:
        thread.start()
    try:
        for alias in ("tenant", PRIMARY, "tenant"):
            moved(alias)
    finally:
        for thread in threads:
            thread.join()
    assert len(accepted) == SENDERS * SESSIONS
    with using("tenant"):
        assert sorted(Session.with_deleted.values_list("external_id", flat=True)) == sorted(accepted)
        assert Message.with_deleted.count() == 2 * len(accepted)
    assert not Session.with_deleted.exists()
    call_command("check_traces", stdout=StringIO())


def test_interrupted_move_is_taken_back_or_ended(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    big = Project.objects.get()
    store(big, question(), answer())
    # As a process leaves it that is killed after it has closed the project.
    moving._close(big.pk, PRIMARY)
    body = msgspec.json.encode({"sessions": [{"external_id": "new", "messages": [question()]}]})
    refused = client.post("/api/v1/ingest/", body, "application/json")
    assert (refused.status_code, "Retry-After" in refused.headers) == (503, True)
    assert "big is in default" in moved(PRIMARY)
    assert client.post("/api/v1/ingest/", body, "application/json").status_code in (200, 201)
    moving._close(big.pk, PRIMARY)
    moved("tenant")
    with database_of(big.pk):
        assert Session.objects.count() == 2
    with pytest.raises(CommandError, match="no database"):
        moved("elsewhere")


def test_projects_in_three_databases_answer_as_in_one(transactional_db: None) -> None:
    dice = random.Random(7)
    clients = {}
    for number in range(PROJECTS):
        project = Project.objects.create(slug=f"p{number}")
        for session in range(dice.randint(1, 4)):
            when = f"2026-11-{dice.randint(1, 3):02}T12:00:00Z"
            tool = {"name": dice.choice(["get_weather", "search"]), "result": {"error": dice.choice(["", "timed out"])}}
            run = answer(created_at=when, agent_steps=[{"tool_calls": [tool]}])
            user = dice.choice(["ada", "bob"])
            store(project, question(created_at=when), run, external_id=f"s{session}", end_user=user)
        _key, token = create_key(project, "test", Scope.values)
        clients[project] = Client(headers={"authorization": f"Bearer {token}"})

    def answers(project: Project) -> list[bytes]:
        client = clients[project]
        return [*(client.get(f"/api/v1/{one}").content for one in LISTS), *exported(client)]

    before = {project: answers(project) for project in clients}
    for alias in TENANTS:
        prepare(alias)
    for number, project in enumerate(clients):
        call_command("move_project", project.slug, (PRIMARY, *TENANTS)[number % 3], stdout=StringIO())
    assert {alias_of(project.pk) for project in clients} == {PRIMARY, *TENANTS}
    assert {project: answers(project) for project in clients} == before
    purged = list(clients)[:4]
    call_command("purge", older_than=0, project=[project.slug for project in purged], yes=True, stdout=StringIO())
    for project, client in clients.items():
        if project in purged:
            assert client.get("/api/v1/messages/").json()["results"] == []
        else:
            assert answers(project) == before[project]

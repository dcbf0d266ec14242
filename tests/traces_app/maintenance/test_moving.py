"""Test that a project moves between databases whole, while it is written to."""

from __future__ import annotations

import html
import random
import re
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
import pytest_django
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from access_app.db import PRIMARY, primary
from access_app.db.reading import is_of_traces
from access_app.keys import create_key
from access_app.models import Project, Scope
from access_app.places import alias_of, scopes_by_database
from access_app.readable import Parts
from access_app.visibility import ALL_PROJECTS
from messages_app.models import Change, ChangeReader, Message, MessageKey, PurgedPeriod, Session, SessionTombstone
from messages_app.writes import delete_message, delete_session
from sdk.tests.length import examples
from tests.admin_pages import html_of
from tests.project_databases import copies
from tests.traces_app.conftest import answer, question, store
from traces_app.maintenance import moving
from traces_app.maintenance.moving import prepare
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
from traces_app.queries import error_groups, intake
from traces_app.queries.intake import Arrivals, arrivals
from traces_app.queries.overview import Period
from traces_app.queries.overview_sums import arrivals_of
from traces_app.queries.search import found as search_found

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")
SENDERS, SESSIONS = 2, 12
TENANTS = ("tenant", "second")
PROJECTS = examples(8)
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


LISTS_OF_ALL = (
    *("sessions/?limit=9", "sessions/?limit=9&end_user=ada&fields=title&order=asc", "messages/?limit=20&order=asc"),
    *("messages/?limit=20&tool=get_weather", "messages/?limit=20&created_after=2026-11-02T00:00:00Z"),
    *("tool-calls/?limit=20&status=error", "tool-calls/?limit=20&tool=search&fields=name", "scores/?limit=5"),
    *("chains/?limit=20&root_tool=search", "tools/?limit=9", "tools/stats/?limit=9", "search/?limit=20&q=Shanghai"),
)
"""Of all projects, in pages that hold rows of several databases."""
ERRORS = ("", "timed out", "gone", "out of memory")
FIGURES = (
    *("usage/?limit=1", "usage/?group_by=end_user&created_after=2026-11-02T00:00:00Z", "usage/?group_by=day&limit=2"),
    *("usage/?model=unknown", "errors/", "errors/?sort=first_seen&limit=2&created_after=2026-11-02T00:00:00Z"),
    *("tools/examples/?tool=of+one+project", "tools/unused/"),
    *("errors/?sort=last_seen&tool=search&limit=1", "errors/?created_before=2026-11-02T00:00:00Z"),
)
"""Of all projects, added up of those of several databases."""
ADMIN_FIGURES = (
    # The first page, up to how long messages waited until they arrived.
    ("?created_after=2026-11-01&created_before=2026-11-05", 'class="changes"', '<dt title="From the end'),
    ("traces_app/toolcall/errors/?created_after=2026-11-02&created_before=2026-11-05", "<tbody>", "</tbody>"),
    ("traces_app/tool/statistics/?created_after=2026-11-02&created_before=2026-11-05", "<tbody>", "</tbody>"),
    ("traces_app/tool/statistics/?created_before=2026-11-05&o=-tool", "<tbody>", "</main>"),
    ("traces_app/tool/statistics/?created_after=2026-11-01&session=s1", "<main", "</main>"),
)
"""Pages of the admin, and the part of them that is compared."""
ADMIN_LISTS = (
    *("messages_app/session/", "messages_app/session/?order=activity", "messages_app/message/?role=assistant"),
    *("traces_app/toolcall/?tool=search", "traces_app/toolcall/?status=error"),
    # Searches, also for names: those of sessions and of an id of a run.
    *(
        "messages_app/session/?q=Atlantis",
        "messages_app/session/?q=s1",
        "messages_app/message/?q=Shanghai&end_user=ada",
    ),
    *("messages_app/message/?q=req-1", "traces_app/toolcall/?q=memory", "traces_app/tool/?q=sear"),
)
ADMIN_EXPORTS = (
    *("messages_app/session/export/jsonl/", "traces_app/toolcall/export/csv/?status=error"),
    *(
        "messages_app/message/export/csv/?q=Shanghai",
        "traces_app/tool/statistics/?created_before=2026-11-05&format=csv",
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
        assert not Session.with_deleted.using(other).filter(project=big).exists()
        call_command("work", "--once", stdout=StringIO())
        for command in ("seal_traces", "check_traces", "verify_traces"):
            call_command(command, stdout=StringIO())
        # What is sent again is known, and what is new goes on.
        body = msgspec.json.encode({"sessions": [{"external_id": "weather", "messages": [question(), answer()]}]})
        assert client.post("/api/v1/ingest/", body, "application/json").status_code in (200, 201)
        assert Message.with_deleted.using(alias).filter(project=big).count() == 2
        assert exported(client) == before
    assert "Removed 0 rows elsewhere" in moved(PRIMARY)
    assert Session.objects.filter(project=small).exists()


def test_every_table_of_traces_moves_or_is_known_to_stay() -> None:
    # Search, vectors and seals are made anew, dropped periods are copied for all, and the rest is of the database.
    stay = {
        *(ToolRollUp, SearchSegment, SearchRows, SearchPosting, EmbedderInUse, SealLayout, SealBatch, MessageSeal),
        *(Change, ChangeReader, PurgedPeriod, Erasure, JobRun),
    }
    there = {model for model in apps.get_models() if is_of_traces(model)}
    assert {model for model in there if model._meta.db_table not in moving._MADE_ANEW} == {*moving.MOVED, *stay}


def test_marks_of_what_was_purged_move_with_their_project(client: Client) -> None:
    big, small = Project.objects.get(), Project.objects.create(slug="small")
    for project in (big, small):
        for name in ("weather", "gone"):
            store(project, question(), answer(), external_id=name)
        delete_session(primary, Session.objects.get(project=project, external_id="gone").pk, by="test")
        asked = Message.objects.filter(project=project).earliest("pk")
        delete_message(primary, asked.pk, by="test")
    old = question(external_id="old", created_at="2024-01-10T12:00:00Z")
    store(big, old)
    call_command("purge", deleted_longer_than="0", older_than="2024-02-01", yes=True, stdout=StringIO())
    assert PurgedPeriod.objects.count() == 1
    # Of a version whose marks did not carry their project.
    MessageKey.objects.create(project_id=0, key=uuid4(), message_id=uuid4(), purged_at=timezone.now())
    SessionTombstone.objects.create(project_id=0, key=uuid4(), purged_at=timezone.now())

    def marks(alias: str) -> list[Any]:
        keys = MessageKey.objects.using(alias).filter(purged_at__isnull=False).values_list("project", flat=True)
        tombstones = SessionTombstone.objects.using(alias).values_list("project", flat=True)
        periods = PurgedPeriod.objects.using(alias).values_list("begin", flat=True)
        found = Counter([*(("key", one) for one in keys), *(("session", one) for one in tombstones)])
        return sorted({**found, ("period", 0): len(periods)}.items())

    def of(*projects: int) -> list[Any]:
        each = [((kind, one), 2 if kind == "session" and one else 1) for one in projects for kind in ("key", "session")]
        return sorted([*each, (("period", 0), 1)])

    assert marks(PRIMARY) == of(0, big.pk, small.pk)
    moved("tenant")
    assert (marks(PRIMARY), marks("tenant")) == (of(0, small.pk), of(0, big.pk))
    body = msgspec.json.encode({"sessions": [{"external_id": "weather", "messages": [question(), old]}]})
    (session,) = client.post("/api/v1/ingest/", body, "application/json").json()["sessions"]
    assert [one["state"] for one in session["messages"]] == ["refused", "refused"]
    moved(PRIMARY)
    assert marks(PRIMARY) == of(0, big.pk, small.pk)


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
    there = Session.with_deleted.using("tenant").values_list("external_id", flat=True)
    assert sorted(there) == sorted(accepted)
    assert Message.with_deleted.using("tenant").count() == 2 * len(accepted)
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
    assert Session.objects.using("tenant").count() == 2
    with pytest.raises(CommandError, match="no database"):
        moved("elsewhere")


@pytest.mark.system
def test_maintenance_reaches_projects_in_three_databases(transactional_db: None, tmp_path: Path) -> None:
    projects = {alias: Project.objects.create(slug=f"in-{alias}") for alias in (PRIMARY, *TENANTS)}
    clients = {}
    for alias, project in projects.items():
        if alias != PRIMARY:
            prepare(alias)
            call_command("move_project", project.slug, alias, stdout=StringIO())
        _key, token = create_key(project, "test", Scope.values)
        clients[alias] = Client(headers={"authorization": f"Bearer {token}"})
        for user, month in (("ada", 2), ("bob", 2), ("bob", 3)):
            when = f"2024-0{month}-10T12:00:00Z"
            store(
                project,
                question(created_at=when),
                answer(created_at=when),
                external_id=f"{user}-{month}",
                created_at=when,
                end_user=user,
            )

    def run(*arguments: str, **options: Any) -> str:
        call_command(*arguments, stdout=(out := StringIO()), stderr=out, **options)
        return out.getvalue()

    def sessions() -> dict[str, list[str]]:
        found = {}
        for alias in projects:
            found[alias] = sorted(Session.objects.using(alias).values_list("external_id", flat=True))
        return found

    def in_each(*names: str) -> dict[str, list[str]]:
        return {alias: list(names) for alias in projects}

    run("work", "--once")
    run("erase", "--end-user", "ada", "--yes")
    assert sessions() == in_each("bob-2", "bob-3")
    for alias in projects:
        assert Erasure.objects.using(alias).count() == 1, alias
    before = {alias: exported(client) for alias, client in clients.items()}
    run("archive", "--older-than", "2024-03-01", "--to", str(tmp_path), "--drop")
    assert sessions() == in_each("bob-3")
    for project in projects.values():
        run("restore_archive", str(tmp_path), "--project", project.slug)
    assert sessions() == in_each("bob-2", "bob-3")
    assert {alias: exported(client) for alias, client in clients.items()} == before
    for command in ("seal_traces", "check_traces", "verify_traces", "verify_audit"):
        run(command)
    with connections["tenant"].cursor() as cursor:
        cursor.execute("UPDATE messages_app_message SET content = 'another' WHERE role = 'user'")
    with pytest.raises(CommandError):
        run("verify_traces")
    run("set_retention", "--project", "in-second", "--days", "30")
    run("purge", "--policy", "--yes")
    assert sessions() == {**in_each("bob-2", "bob-3"), "second": []}
    assert "Not in it are the databases of projects: tenant, second" in run("backup", str(tmp_path), "--no-verify")


def walked(staff: Client, path: str) -> list[Any]:
    """Return the pages of a list of the API, with `next` to the end, and with `previous` back from it."""
    pages, cursor, link = [], "", "next"
    while cursor is not None:
        page = staff.get(f"/api/v1/{path}{cursor and f'&cursor={cursor}'}")
        assert page.status_code == 200, page.content
        body = page.json()
        # Where a project has moved to, it is indexed anew.
        body.pop("indexed_until", None)
        pages.append(body)
        cursor = body[link]
        if cursor is None and link == "next":
            link, cursor = "previous", body["previous"]
    return pages


OLDER = re.compile(r'href="([^"]+)" class="page-link" rel="next"')
CONTINUED = re.compile(r'href="([^"]+)">Continue the search from there')


def rows_of_page(page: str) -> list[str]:
    return re.findall(r'name="_selected_action" value="([^"]+)"', page)


def admin_pages(staff: Client, path: str) -> list[list[str]]:
    """Return the rows of the pages of a list of the admin, in order."""
    pages, query = [], ""
    while True:
        page = staff.get(f"/admin/{path}{query}").content.decode()
        pages.append(rows_of_page(page))
        older = OLDER.search(page)
        if older is None:
            return pages
        path, query = path.partition("?")[0], html.unescape(older[1])


def model_use(dice: random.Random) -> dict[str, Any]:
    """Return a request to one of two models, with tokens and in most cases a cost."""
    asked = {
        "tools": [{"name": "search"}, {"name": dice.choice(["unused", "get_weather"])}],
        "messages": [{"role": "user", "content": "name"}],
    }
    used = {
        "input": asked,
        "model": dice.choice(["m-1", "m-2"]),
        "usage": {"input_tokens": dice.randint(1, 99), "output_tokens": 5},
    }
    return used if dice.random() < 0.2 else {**used, "cost": dice.randint(1, 999) / 1000}


def part_of_page(staff: Client, path: str, begin: str, end: str) -> str:
    page = html_of(staff.get(f"/admin/{path}"))
    part = page[page.index(begin) : page.index(end)]
    # How long ago a run began.
    return re.sub(r">(for|begun|No news for) [^<]+<", "><", part)


def arrivals_in(period: Period) -> Arrivals:
    return arrivals_of(
        list(
            Parts(scopes_by_database(ALL_PROJECTS)).each(lambda db, scope: arrivals(db, scope, period, with_waits=True))
        )
    )


def test_projects_in_three_databases_answer_as_in_one(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "IMPORTED_AFTER", timedelta(days=36_500))  # so that the waits of the old messages count
    dice = random.Random(7)
    clients = {}
    for number in range(PROJECTS):
        project = Project.objects.create(slug=f"p{number}")
        for session in range(dice.randint(1, 4)):
            when = f"2026-11-{dice.randint(1, 3):02}T12:00:00Z"
            name = "of one project" if number == session == 1 else dice.choice(["get_weather", "search"])
            tool = {"name": name, "result": {"error": dice.choice(ERRORS)}}
            run = answer(created_at=when, agent_steps=[{"tool_calls": [tool], **model_use(dice)}])
            run["is_completed"] = dice.random() < 0.8
            if run["is_completed"]:
                run["completed_at"] = f"2026-11-04T12:00:{dice.randint(10, 59)}Z"
            user, status = dice.choice(["ada", "bob"]), dice.choice(["running", "paused"])
            store(project, question(created_at=when), run, external_id=f"s{session}", end_user=user, status=status)
        _key, token = create_key(project, "test", Scope.values)
        clients[project] = Client(headers={"authorization": f"Bearer {token}"})

    def answers(project: Project) -> list[bytes]:
        client = clients[project]
        return [*(client.get(f"/api/v1/{one}").content for one in LISTS), *exported(client)]

    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))

    def answers_for_all() -> list[Any]:
        """Return all pages of the lists over all projects, there and back, and the rows of the admin's lists and exports."""
        return [
            *(walked(staff, one) for one in LISTS_OF_ALL),
            *(html_of(staff.get(f"/api/v1/{one}")) for one in FIGURES),
            *newest_errors(),
            searched_in_steps(),
            *(part_of_page(staff, *one) for one in ADMIN_FIGURES),
            *(admin_pages(staff, one) for one in ADMIN_LISTS),
            *(b"".join(staff.get(f"/admin/{one}")) for one in ADMIN_EXPORTS),
        ]

    def newest_errors() -> list[Any]:
        """Return the groups of errors where there are more failed calls than are read."""
        with monkeypatch.context() as few:
            few.setattr(error_groups, "MOST_READ", 4)
            few.setattr(error_groups, "MOST_KNOWN", 2)
            found = [
                staff.get(f"/api/v1/errors/{since}").json() for since in ("", "?created_after=2026-11-02T00:00:00Z")
            ]
        assert [one["call_count"] for one in found] == [4, 4]
        return found

    def searched_in_steps() -> list[str]:
        """Return what a search finds that stops before it has seen everything, and goes on from there."""
        found, path = [], "messages_app/message/?q=Shanghai"
        steps = 0
        with monkeypatch.context() as slow:
            slow.setattr(search_found, "SECONDS", 0)
            slow.setattr(search_found, "COMPARED_AT_A_TIME", 8)
            while path:
                page = staff.get(f"/admin/{path}").content.decode()
                found += rows_of_page(page)
                link = OLDER.search(page) or CONTINUED.search(page)
                path = path.partition("?")[0] + html.unescape(link[1]) if link else ""
                steps += 1
        assert steps > 2
        return found

    before = {project: answers(project) for project in clients}
    before_for_all = answers_for_all()
    period = Period(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 5, tzinfo=UTC))
    arrived = arrivals_in(period)
    for alias in TENANTS:
        prepare(alias)
    for number, project in enumerate(clients):
        call_command("move_project", project.slug, (PRIMARY, *TENANTS)[number % 3], stdout=StringIO())
    assert {alias_of(project.pk) for project in clients} == {PRIMARY, *TENANTS}
    assert {project: answers(project) for project in clients} == before
    for now, then in zip(answers_for_all(), before_for_all, strict=True):
        assert now == then
    merged = arrivals_in(period)
    assert replace(merged, median_wait=arrived.median_wait, p95_wait=arrived.p95_wait, waits=arrived.waits) == arrived
    for now, then in ((merged.median_wait, arrived.median_wait), (merged.p95_wait, arrived.p95_wait)):
        assert now and then and now.total_seconds() == pytest.approx(then.total_seconds(), rel=0.01)
    purged = list(clients)[:4]
    call_command("purge", older_than=0, project=[project.slug for project in purged], yes=True, stdout=StringIO())
    for project, client in clients.items():
        if project in purged:
            assert client.get("/api/v1/messages/").json()["results"] == []
        else:
            assert answers(project) == before[project]

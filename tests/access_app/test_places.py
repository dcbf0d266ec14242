"""Test that the traces of a project are in its database alone, whichever door they come through or are read by."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from io import StringIO
from typing import Any

import msgspec
import psycopg
import pytest
import pytest_django
from django.apps import apps
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError, connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access_app import places
from access_app.db import PRIMARY, Database, primary
from access_app.db.direct import connection_parameters
from access_app.db.earlier_migrations import EARLIER, TOO_OLD
from access_app.keys import create_key
from access_app.models import AuditEntry, Project, ProjectDatabase, ProjectPlace, Scope
from access_app.places import alias_of
from access_app.request_database import database_of
from messages_app.models import Message, Session
from tests.project_databases import copies
from tests.traces_app.conftest import answer, question, store
from traces_app.maintenance.jobs import JOBS, run_job
from traces_app.maintenance.moving import prepare
from traces_app.models import ModelPrice, Tool, ToolCall

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture(scope="module", autouse=True)
def databases(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), copies(["tenant"]):
        yield


@pytest.fixture
def big(transactional_db: None, settings: Any) -> Project:
    """A project with a database of its own."""
    prepare("tenant")
    settings.TRACESITE_PROJECT_DATABASES = {"big": "tenant"}
    call_command("create_project", "big", stdout=StringIO())
    return Project.objects.get(slug="big")


def client_of(project: Project) -> Client:
    _key, token = create_key(project, "test", Scope.values)
    return Client(headers={"authorization": f"Bearer {token}"})


@contextmanager
def tenant_away(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no new connection to the database of the big project succeed."""
    with monkeypatch.context() as away:
        connections["tenant"].close()
        away.setitem(connections["tenant"].settings_dict, "PORT", "1")
        yield


def counted(alias: str) -> tuple[int, ...]:
    return tuple(Database(alias).rows(model._base_manager).count() for model in (Session, Message, ToolCall, Tool))


SESSION = {"external_id": "weather", "messages": [question(), answer()]}


def test_key_reads_and_writes_in_the_database_of_its_project(big: Project, settings: Any) -> None:
    small = Project.objects.create(slug="small")
    for project in (big, small):
        client = client_of(project)
        for _again in range(2):
            sent = client.post("/api/v1/ingest/", msgspec.json.encode({"sessions": [SESSION]}), "application/json")
            assert sent.status_code in (200, 201), sent.content
        (session,) = client.get("/api/v1/sessions/").json()["results"]
        assert session["project"] == project.slug
        assert len(client.get("/api/v1/messages/").json()["results"]) == 2
        assert len(client.get("/api/v1/tool-calls/").json()["results"]) == 4
        exported = b"".join(client.get(f"/api/v1/sessions/{session['id']}/export/"))
        assert b"Shanghai" in exported
        assert (
            client.patch(
                f"/api/v1/sessions/{session['id']}/", {"title": "T"}, content_type="application/json"
            ).status_code
            == 200
        )
    assert counted(PRIMARY) == counted("tenant")
    assert counted("tenant")[:3] == (1, 2, 4)
    tool = Tool.objects.using("tenant").earliest("pk")
    assert tool.pk >= 2**40, "ids of the databases do not meet"
    # Who may see what, and the audit log, are in the primary.
    assert AuditEntry.objects.filter(project=big).exists()
    assert not AuditEntry.objects.using("tenant").exists()
    assert alias_of(big.pk) == "tenant"
    assert alias_of(small.pk) == PRIMARY


def test_rows_in_the_wrong_database_are_refused(big: Project) -> None:
    with pytest.raises(OperationalError, match="in another database"):
        store(big, question(), db=primary)
    assert counted(PRIMARY)[:2] == (0, 0)
    store(big, question(), answer())
    assert counted("tenant")[:2] == (1, 2)


def test_project_is_made_while_others_write_or_not_at_all(
    big: Project, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.TRACESITE_PROJECT_DATABASES = {"second": "tenant", "third": "tenant"}
    with psycopg.connect(**connection_parameters(primary)) as writer:
        writer.execute("LOCK TABLE messages_app_session IN ROW EXCLUSIVE MODE")
        with monkeypatch.context() as patience:
            patience.setattr(places, "WAIT_SECONDS", 0)
            with pytest.raises(CommandError, match="not created.*Try again"):
                call_command("create_project", "second", stdout=StringIO())
        assert not Project.objects.filter(slug="second").exists()
        # Longer than one attempt waits.
        threading.Timer(0.8, writer.commit).start()
        call_command("create_project", "third", stdout=StringIO())
    third = Project.objects.get(slug="third")
    assert alias_of(third.pk) == "tenant"
    with pytest.raises(OperationalError, match="in another database"):
        store(third, question(), db=primary)


def test_pages_show_all_databases_or_say_which_projects_they_do_not_show(big: Project) -> None:
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    small = Project.objects.create(slug="small")
    store(big, question(content="Question of the big one"))
    (in_big,) = Session.objects.using("tenant").values_list("pk", flat=True)
    store(small, question(content="Question of the small one"))
    for path, is_whole in (
        *(("/admin/", True), ("/admin/?project=big", False), ("/admin/messages_app/message/", True)),
        *(("/admin/traces_app/toolcall/errors/", True), ("/admin/traces_app/tool/statistics/", True)),
        ("/admin/messages_app/session/trash/", True),
    ):
        page = staff.get(path).content.decode()
        assert ("Not shown are these projects" not in page) == is_whole, path
    page = staff.get("/admin/messages_app/message/", {"project": "big"}).content.decode()
    assert "of the big one" in page
    assert "of the small one" not in page
    assert "of the big one" in staff.get(f"/admin/messages_app/session/{in_big}/change/", follow=True).content.decode()
    # The API has no place to say it.
    for path in ("messages/?page=1", "sessions/weather/"):
        refused = staff.get(f"/api/v1/{path}")
        assert (refused.status_code, refused.json()["error"]["field"]) == (400, "project"), path
    assert staff.get("/api/v1/messages/", {"project": "big"}).json()["results"][0]["content"].endswith("big one")
    assert staff.get(f"/api/v1/sessions/{in_big}/").json()["project"] == "big"


def test_lists_of_several_databases_are_one_statement_in_each_and_name_one_that_is_away(
    big: Project, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    small = Project.objects.create(slug="small")
    with tenant_away(monkeypatch):
        page = staff.get("/admin/").content.decode()
        assert "The database “tenant” does not respond" in page
        assert "The projects that are shown have no traces." in page
        assert "No traces yet" not in page
        assert "No traces in this project yet" in staff.get("/admin/?project=small").content.decode()
    assert "No traces yet" in staff.get("/admin/?project=").content.decode()
    for project in (big, small):
        store(
            project,
            question(content=f"Question of {project.slug}"),
            answer(agent_steps=[], error=f"Error of {project.slug}"),
        )
    for path, of_messages, most in (
        ("/api/v1/messages/?fields=content", 2, 2),
        # Sessions without a title are named by their first question.
        ("/admin/messages_app/message/", 3, 10),
    ):
        staff.get(path)
        with CaptureQueriesContext(connections["tenant"]) as there:
            page = staff.get(path).content.decode()
        assert all(project in page for project in ("small", "big"))
        reads = [one["sql"] for one in there if "SELECT" in one["sql"] and "messages_app_message" in one["sql"]]
        assert len(reads) == of_messages, reads
        assert len(there) <= most, there.captured_queries
    (in_big,) = Message.objects.using("tenant").filter(role="user")
    staff.raise_request_exception = False
    with tenant_away(monkeypatch):
        for path in (
            "messages/",
            f"messages/{in_big.pk}/",
            "messages/?project=big",
            "usage/",
            "errors/",
            "tools/unused/",
        ):
            refused = staff.get(f"/api/v1/{path}")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "project_database_unavailable")
            assert "“tenant”" in refused.json()["error"]["message"]
        assert len(staff.get("/api/v1/messages/?project=small").json()["results"]) == 2
        for query in ("", "?q=Question"):
            page = staff.get(f"/admin/messages_app/message/{query}").content.decode()
            assert "The database “tenant” does not respond" in page
            assert "Not shown are these projects" in page
            assert "Question of" in page
            assert "of small" in page
        for path in ("messages_app/message/export/csv/", "traces_app/tool/statistics/?format=csv"):
            assert staff.get(f"/admin/{path}").status_code == 503, path
        ready = staff.get("/readyz")
        assert (ready.status_code, ready.json()["project_databases"]) == (200, {"away": 1})
        page = staff.get("/admin/?created_after=2026-02-01").content.decode()
        assert "tenant: <span" in page
        assert "The database “tenant” does not respond" in page
        assert "Error of small" in page
        # Nothing of it responds: no page says that there are no traces.
        assert staff.get("/admin/?created_after=2026-02-01&project=big").status_code == 503
    # Later the first page is of the project again, also without its name in the address.
    for path in ("/admin/?created_after=2026-02-01&project=big", "/admin/"):
        page = staff.get(path).content.decode()
        assert "Error of big" in page
        assert "Error of small" not in page
    assert len(staff.get("/api/v1/messages/").json()["results"]) == 4
    assert staff.get("/readyz").json()["project_databases"] == {"ready": 1}
    unknown = ProjectDatabase.objects.create(alias="unknown")
    ProjectPlace.objects.create(project=Project.objects.create(slug="lost"), database=unknown)
    refused = staff.get("/api/v1/messages/")
    assert (refused.status_code, "“unknown”" in refused.json()["error"]["message"]) == (503, True)
    assert all(staff.get(f"/admin/{path}").status_code == 503 for path in ("?project=", "messages_app/message/"))
    ProjectPlace.objects.get(database=unknown).delete()
    settings.TRACESITE_METRICS_TOKEN = "of-the-scraper"
    metrics = Client(headers={"authorization": "Bearer of-the-scraper"}).get("/metrics").content.decode()
    assert 'tracesite_project_database_up{alias="tenant",reason=""} 1.0' in metrics
    MigrationRecorder.Migration.objects.using("tenant").filter(app="traces_app", name="0001_initial").delete()
    try:
        assert staff.get("/readyz").json()["project_databases"] == {"not_migrated": 1}
    finally:
        MigrationRecorder(connections["tenant"]).record_applied("traces_app", "0001_initial")


@contextmanager
def earlier_migrations(alias: str, names: Iterable[tuple[str, str]]) -> Iterator[None]:
    """Let a database have these earlier migrations as applied."""
    recorder = MigrationRecorder(connections[alias])
    for name in names:
        recorder.record_applied(*name)
    try:
        yield
    finally:
        for name in names:
            recorder.record_unapplied(*name)


def test_new_database_beside_one_of_earlier_migrations_is_ready(big: Project) -> None:
    with earlier_migrations(PRIMARY, EARLIER):
        assert Client().get("/readyz").json()["project_databases"] == {"ready": 1}


def test_prepare_database_that_is_too_old_is_refused(big: Project) -> None:
    with earlier_migrations("tenant", [("traces_app", "0002_toast_lz4")]), pytest.raises(CommandError) as refused:
        call_command("prepare_database", "tenant")
    assert str(refused.value) == str(TOO_OLD)


def test_first_migration_fills_prices_of_its_database() -> None:
    migration = import_module("traces_app.migrations.0001_initial")
    migration.fill_prices(apps, connections["tenant"].schema_editor())
    try:
        assert [ModelPrice.objects.using(alias).exists() for alias in ("tenant", PRIMARY)] == [True, False]
    finally:
        ModelPrice.objects.using("tenant").all().delete()


def test_jobs_and_suggestions_are_of_all_databases_shown(big: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    purge = next(job for job in JOBS if job.name == "purge")
    for project in (big, Project.objects.create(slug="small")):
        step = {"model": f"model-of-{project.slug}", "tool_calls": [{"name": f"tool_of_{project.slug}"}]}
        store(project, answer(agent_steps=[step]))
        run_job(database_of(project.pk), purge)

    def suggested(query: str) -> list[str]:
        page = staff.get(f"/admin/messages_app/message/facets/{query}").content.decode()
        return re.findall(r'<option value="((?:tool_|model-)of[-_]\w+)"', page)

    assert suggested("") == ["tool_of_big", "tool_of_small", "model-of-big", "model-of-small"]
    assert suggested("?project=big") == ["tool_of_big", "model-of-big"]
    page = staff.get("/admin/traces_app/jobrun/").content.decode()
    assert page.count("succeeded") == 2
    assert (page.count('title="purge"'), page.count('title="purge_audit"')) == (2, 1)
    assert "Not shown are these projects" not in page
    with tenant_away(monkeypatch):
        assert suggested("") == ["tool_of_small", "model-of-small"]
        page = staff.get("/admin/traces_app/jobrun/").content.decode()
    assert "The database “tenant” does not respond" in page
    assert page.count('title="purge"') == 1


def test_actions_of_lists_are_for_rows_of_one_database(big: Project) -> None:
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    rows = {}
    for project in (big, Project.objects.create(slug="small")):
        store(project, question(content=f"Question of {project.slug}"))
        rows[project.slug] = Message.objects.using(alias_of(project.pk)).get().pk
    url = "/admin/messages_app/message/"
    chosen = {"action": "delete_selected", "post": "yes"}
    page = staff.post(url, {**chosen, "_selected_action": list(rows.values())}, follow=True).content.decode()
    assert "These rows are in several databases" in page
    assert all(f"Question of {slug}" in page for slug in rows)
    page = staff.post(url, {**chosen, "_selected_action": [rows["big"]]}, follow=True).content.decode()
    assert "1 message was moved to the trash" in page
    assert "Question of small" in page
    assert not Message.objects.using("tenant").exists()
    assert "Question of big" in staff.get(f"{url}trash/").content.decode()
    staff.post(f"{url}undo/", {"rows": rows["big"]})
    assert Message.objects.using("tenant").exists()


def test_commands_run_in_each_database_or_that_of_the_project(big: Project) -> None:
    small = Project.objects.create(slug="small")
    for project in (big, small):
        store(project, question(), answer())
    out = StringIO()
    call_command("check_traces", stdout=out)
    assert "Database default:" in out.getvalue()
    assert "Database tenant:" in out.getvalue()
    call_command("work", "--once", stdout=out)
    assert "index_search in tenant" in out.getvalue()
    call_command("set_retention", project="big", days=30, stdout=out)
    assert Project.objects.using("tenant").get(slug="big").retention_days == 30
    call_command("export", "weather", project="big", stdout=(exported := StringIO()))
    assert "Shanghai" in exported.getvalue()
    with pytest.raises(CommandError, match="--project"):
        call_command("export", "weather", stdout=out)
    call_command("purge", older_than=0, project=["big"], yes=True, stdout=out)
    assert counted("tenant")[1] == 0
    assert counted(PRIMARY)[1] == 2
    call_command("purge", older_than=0, yes=True, stdout=out)
    assert counted(PRIMARY)[1] == 0


def test_a_project_with_a_place_cannot_be_deleted_or_encrypted(big: Project) -> None:
    with pytest.raises(Exception, match="protected"):
        big.delete()
    with pytest.raises(CommandError, match="database of its own"):
        call_command("encrypt_project", "big", stdout=StringIO())

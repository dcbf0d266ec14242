"""Test that the traces of a project are in its database alone, whichever door they come through or are read by."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import msgspec
import pytest
import pytest_django
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import Client

from access_app.db import PRIMARY, using
from access_app.keys import create_key
from access_app.models import AuditEntry, Project, Scope
from access_app.places import alias_of, database_of
from messages_app.models import Message, Session
from tests.project_databases import copies
from tests.traces_app.conftest import answer, question, store
from traces_app.maintenance.project_databases import prepare
from traces_app.models import Tool, ToolCall

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


def counted(alias: str) -> tuple[int, ...]:
    with using(alias):
        return tuple(model._base_manager.count() for model in (Session, Message, ToolCall, Tool))


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
    with using("tenant"):
        tool = Tool.objects.earliest("pk")
    assert tool.pk >= 2**40, "ids of the databases do not meet"
    # Who may see what, and the audit log, are in the primary.
    assert AuditEntry.objects.filter(project=big).exists()
    assert not AuditEntry.objects.using("tenant").exists()
    assert alias_of(big.pk) == "tenant"
    assert alias_of(small.pk) == PRIMARY


def test_rows_in_the_wrong_database_are_refused(big: Project) -> None:
    with pytest.raises(OperationalError, match="in another database"):
        store(big, question())
    assert counted(PRIMARY)[:2] == (0, 0)
    with database_of(big.pk):
        store(big, question(), answer())
    assert counted("tenant")[:2] == (1, 2)


def test_pages_show_one_database_and_say_so(big: Project) -> None:
    staff = Client()
    staff.force_login(User.objects.create_superuser("ada"))
    small = Project.objects.create(slug="small")
    with database_of(big.pk):
        store(big, question(content="Question of the big one"))
        (in_big,) = Session.objects.values_list("pk", flat=True)
    store(small, question(content="Question of the small one"))
    page = staff.get("/admin/messages_app/message/").content.decode()
    assert "of the small one" in page
    assert "of the big one" not in page
    assert "Not shown are these projects" in page
    assert "?project=big" in page
    page = staff.get("/admin/messages_app/message/", {"project": "big"}).content.decode()
    assert "of the big one" in page
    assert "of the small one" not in page
    assert "of the big one" in staff.get(f"/admin/messages_app/session/{in_big}/change/", follow=True).content.decode()
    # The API has no place to say it.
    refused = staff.get("/api/v1/messages/")
    assert (refused.status_code, refused.json()["error"]["field"]) == (400, "project")
    assert staff.get("/api/v1/messages/", {"project": "big"}).json()["results"][0]["content"].endswith("big one")
    assert staff.get(f"/api/v1/sessions/{in_big}/").json()["project"] == "big"


def test_commands_run_in_each_database_or_that_of_the_project(big: Project) -> None:
    small = Project.objects.create(slug="small")
    for project in (big, small):
        with database_of(project.pk):
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

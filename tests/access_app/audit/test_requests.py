"""Entries of requests, logins and commands: who, what, where, and with which result, without content of traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from access_app.audit.record import record
from access_app.audit.trail import Origin
from access_app.keys import create_key, revoke_key
from access_app.models import ActorKind, AuditAction, AuditEntry, Project, Role, Scope
from access_app.roles import grant_role
from messages_app.models import Message, Session

pytestmark = pytest.mark.django_db
CANARY = "content-of-a-trace"


@contextmanager
def recorded() -> Iterator[list[AuditEntry]]:
    """Collect the entries that are recorded in the block."""
    before = set(AuditEntry.objects.values_list("pk", flat=True))
    found: list[AuditEntry] = []
    yield found
    found += AuditEntry.objects.exclude(pk__in=before).order_by("id")


def one(found: list[AuditEntry]) -> tuple[str, str, str, str, str]:
    (entry,) = found
    project = Project.objects.filter(pk=entry.project_id).first()
    return (entry.action, entry.object_type, entry.object_id, str(project or "-"), entry.result)


@pytest.fixture
def stored(key: Any, token: str) -> Session:
    message = {"external_id": "m1", "role": "assistant", "content": CANARY}
    session = {"external_id": CANARY, "title": CANARY, "messages": [message]}
    body = {"sessions": [session]}
    answer = Client().post("/api/v1/ingest/", body, "application/json", headers={"X-API-Key": token})
    assert answer.status_code == 200
    return Session.objects.get()


def test_requests_of_a_key_leave_one_entry_each(project: Project, stranger: Project, stored: Session) -> None:
    key, token = create_key(project, "agent", list(Scope.values))
    message = Message.objects.get()
    client = Client(headers={"X-API-Key": token, "X-Request-ID": "r-1"})
    body = {"sessions": [{"external_id": "s2", "messages": [{"role": "user", "content": CANARY}] * 2}]}
    sid, mid = str(stored.pk), str(message.pk)
    table = [
        ("POST", "/api/v1/ingest/", body, ("create", "ingest", "", "owner", "allowed"), {"sessions": 1, "messages": 2}),
        ("GET", "/api/v1/messages/", None, ("list", "message", "", "owner", "allowed"), {}),
        ("GET", f"/api/v1/sessions/{CANARY}/", None, ("read", "session", sid, "owner", "allowed"), {}),
        (
            "GET",
            f"/api/v1/messages/?q={CANARY}",
            None,
            ("search", "message", "", "owner", "allowed"),
            {"parameters": ["q"]},
        ),
        ("GET", f"/api/v1/sessions/{sid}/export/", None, ("export", "session", sid, "owner", "allowed"), {}),
        ("PATCH", f"/api/v1/messages/{mid}/", {"version": 0}, ("change", "message", mid, "owner", "failed"), {}),
        ("DELETE", f"/api/v1/messages/{mid}/", None, ("delete", "message", mid, "owner", "allowed"), {}),
        ("POST", f"/api/v1/messages/{mid}/restore/", None, ("restore", "message", mid, "owner", "allowed"), {}),
        ("GET", "/api/v1/messages/nothing/", None, ("read", "message", "nothing", "owner", "failed"), {}),
        ("GET", "/api/v1/recorder/", None, ("key_use", "recorder", "", "owner", "allowed"), {}),
        ("GET", f"/api/v1/sessions/{token}/", None, ("read", "session", "[redacted]", "owner", "failed"), {}),
    ]
    for method, path, data, expected, detail in table:
        with recorded() as found:
            answer = client.generic(method, path, b"" if data is None else _json(data), "application/json")
            answer.getvalue()
        got = one(found)
        assert (got[0], got[1], *got[3:]) == (expected[0], expected[1], *expected[3:]), path
        assert got[2] == expected[2] or token not in got[2], path
        entry = found[0]
        assert (entry.actor_kind, entry.actor_name, entry.actor_id) == ("key", str(key), str(key.pk))
        assert (entry.address, entry.request_id) == ("127.0.0.1", "r-1")
        assert detail.items() <= entry.detail.items(), path
    everything = str(list(AuditEntry.objects.values_list()))
    assert CANARY not in everything
    assert token not in everything

    revoke_key(key)
    with recorded() as found:
        assert client.get("/api/v1/messages/").status_code == 401
    assert one(found) == ("list", "message", "", "owner", "refused")
    with recorded() as found:
        assert Client(headers={"X-API-Key": "ts_unknown"}).get("/api/v1/messages/").status_code == 401
    assert found == []


def _json(data: Any) -> bytes:
    return json.dumps(data).encode()


def test_actions_of_the_admin_name_their_rows(project: Project, stranger: Project, stored: Session) -> None:
    user = User.objects.create_user("eve", is_staff=True)
    grant_role(project, user, Role.OWNER)
    client = Client()
    client.force_login(user)
    sid, place = str(stored.pk), "/admin/messages_app/session/"
    action = {"action": "delete_selected", "_selected_action": sid}
    table: list[tuple[str, dict[str, str] | None, tuple[str, str, str]]] = [
        ("", None, ("list", "session", "")),
        (f"{sid}/change/", None, ("read", "session", sid)),
        ("export/csv/", None, ("export", "session", "")),
        ("", action, ("list", "session", "")),  # asks for confirmation
        ("", {**action, "post": "yes"}, ("delete", "session", sid)),
        ("undo/", {"rows": sid}, ("restore", "session", sid)),
        (f"{sid}/delete/", {"post": "yes"}, ("delete", "session", sid)),
        (f"{sid}/purge/", {"post": "yes"}, ("purge", "session", sid)),
    ]
    for path, data, expected in table:
        with recorded() as found:
            answer: Any = client.get(place + path) if data is None else client.post(place + path, data)
            answer.getvalue()
        assert one(found) == (*expected, "owner", "allowed"), path
        assert (found[0].actor_kind, found[0].actor_name, found[0].address) == ("user", "eve", "127.0.0.1")
    assert not Session.with_deleted.exists()


def test_refused_form_is_recorded_as_what_was_asked_for(project: Project) -> None:
    user = User.objects.create_user("eve", is_staff=True)
    grant_role(project, user, Role.EDITOR)
    client = Client()
    client.force_login(user)
    with recorded() as found:
        for path in ("project/add/", f"project/{project.pk}/delete/", "apikey/add/", "apikey/"):
            assert client.get(f"/admin/access_app/{path}").status_code == 403
    assert [(entry.action, entry.object_type, entry.result) for entry in found] == [
        ("create", "project", "refused"),
        ("delete", "project", "refused"),
        ("create", "apikey", "refused"),
        ("list", "apikey", "refused"),
    ]


def test_entry_of_several_projects_names_them(project: Project, stranger: Project, superuser: User) -> None:
    user = User.objects.create_user("eve", is_staff=True)
    grant_role(project, user, Role.ANALYST)
    grant_role(stranger, user, Role.ANALYST)
    client = Client()
    client.force_login(user)
    with recorded() as found:
        client.get("/api/v1/messages/")
        client.get("/api/v1/messages/?project=stranger")
    several, named = found
    assert (several.project_id, several.detail["projects"]) == (None, sorted([project.pk, stranger.pk]))
    assert named.project_id == stranger.pk
    client.force_login(superuser)
    with recorded() as found:
        client.get("/api/v1/messages/")
    assert (found[0].project_id, found[0].detail["projects"]) == (None, "all")


def test_logins_failed_logins_and_logouts_are_recorded() -> None:
    user = User.objects.create_superuser("eve", password="right-horse-battery")
    client = Client()
    form = {"username": "eve", "password": "wrong"}
    with recorded() as found:
        client.post("/admin/login/", form)
        client.post("/admin/login/", {**form, "username": "my-secret-password"})
        client.post("/admin/login/", {**form, "password": "right-horse-battery"})
        client.post("/admin/logout/")
    assert [(e.action, e.result, e.actor_name, e.actor_id, e.address) for e in found] == [
        ("login", "refused", "eve", str(user.pk), "127.0.0.1"),
        ("login", "refused", "unknown", "", "127.0.0.1"),
        ("login", "allowed", "eve", str(user.pk), "127.0.0.1"),
        ("logout", "allowed", "eve", str(user.pk), "127.0.0.1"),
    ]
    with recorded() as found:
        statuses = [client.post("/admin/login/", form).status_code for _attempt in range(13)]
    assert statuses[-1] == 429
    assert len(found) == 10


def test_commands_leave_one_entry(project: Project, stored: Session) -> None:
    out = StringIO()
    with recorded() as found:
        call_command("purge", older_than=0, project=["owner"], yes=True, stdout=out, stderr=out)
    assert one(found) == ("purge", "session", "", "-", "allowed")
    entry = found[0]
    assert (entry.actor_kind, entry.actor_name) == ("command", "purge")
    assert entry.detail == {"--project": ["owner"], "--yes": True, "sessions": 1, "messages": 1}
    with recorded() as found, pytest.raises(CommandError):
        call_command("purge", stdout=out)
    assert one(found)[4] == "failed"
    with recorded() as found:
        call_command("purge", older_than=0, dry_run=True, stdout=out)
    assert found == []


def test_request_without_an_entry_is_not_answered(project: Project, token: str, stored: Session) -> None:
    client = Client(headers={"X-API-Key": token}, raise_request_exception=False)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE access_app_auditentry ADD CONSTRAINT full_disk CHECK (false) NOT VALID")
    answer = client.get("/api/v1/messages/")
    assert answer.status_code == 500
    assert CANARY.encode() not in answer.getvalue()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("project_id", [None, 7])
def test_entry_is_the_same_inside_and_outside_of_a_transaction(
    project_id: int | None, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    def add(*, soon: bool = False) -> None:
        record(
            AuditAction.READ,
            None,
            project_id=project_id,
            object_type="message",
            object_id="nul\x00 \udce9 100%s $1",
            object_name="é" * 5000,
            detail={"route": "ünï", "ids": ["1", "2"], "count": 2, "none": None},
            origin=Origin(kind=ActorKind.KEY, name="agent", id="1", address="::1", request_id="r-1"),
            soon=soon,
        )

    with django_assert_num_queries(2):
        add()
        add(soon=True)
    with transaction.atomic():
        add()
        add(soon=True)
    with connection.cursor() as cursor:
        cursor.execute("SHOW synchronous_commit")
        assert cursor.fetchone() != ("off",)

    same = [{**row, "id": 0, "time": None} for row in AuditEntry.objects.order_by("id").values()]
    assert len(same) == 4
    assert all(row == same[0] for row in same)
    assert (same[0]["object_id"], same[0]["detail"]["count"]) == ("nul\ufffd ? 100%s $1", 2)

"""Encryption at rest: planted values are in no table, every way to read gives them back, and what cannot work says so."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from access_app.db.base import as_stored
from access_app.encryption.keys import add_key, rewrap_keys
from access_app.keys import create_key
from access_app.masking import save_rule
from access_app.models import AuditEntry, Project, ProjectKey, Role
from access_app.roles import grant_role
from messages_app.models import Message, Session
from tests.encryption import MASTER_KEY, OTHER_MASTER_KEY, master_key
from tests.traces_app.conftest import answer, question, store
from tests.traces_app.maintenance.seals.sealing import seal, verify
from tests.traces_app.planted import Garden, plant, stored
from tests.traces_app.test_planted_values import shown
from traces_app.models import RunVector, SearchPosting

READABLE = ["Score.value", "Session.tags"]
"""The places that docs/encryption.md lists as readable."""


@pytest.fixture
def keeper() -> Iterator[None]:
    """This server has a master key."""
    with master_key(MASTER_KEY):
        yield


@pytest.fixture
def encrypted(keeper: None, project: Project) -> Project:
    add_key(project)
    return project


@pytest.fixture
def client_of_key(project: Project) -> Client:
    token = create_key(project, "agent", ["read", "write"])[1]
    return Client(headers={"Authorization": f"Bearer {token}"})


def left_on_disk(garden: Garden) -> list[str]:
    with as_stored():
        return garden.left_in(stored())


def events_of(client: Client) -> str:
    return client.get("/api/v1/sessions/s2/events/").getvalue().decode()


@pytest.mark.requirement("001-57")
def test_values_of_all_fields_are_in_no_table_and_are_read_back(encrypted: Project, client_of_key: Client) -> None:
    garden = Garden("word{}")
    plant(garden, client_of_key)
    call_command("index_search", stdout=StringIO())

    assert len(garden.planted) > 40
    assert left_on_disk(garden) == READABLE
    assert not SearchPosting.objects.exists() and not RunVector.objects.exists()
    text = shown(client_of_key, "word") + events_of(client_of_key)
    unread = {place for value, place in garden.planted.items() if value not in text}
    assert all(place.startswith("Span.") for place in unread)
    assert "tsenc1:" not in text and "tscut" not in text


@pytest.mark.requirement("001-57")
def test_what_is_stored_is_encrypted_with_each_new_key(keeper: None, project: Project, client_of_key: Client) -> None:
    garden = Garden("word{}")
    plant(garden, client_of_key)
    call_command("index_search", stdout=StringIO())
    seal()
    assert len(left_on_disk(garden)) == len(garden.planted)
    before = shown(client_of_key, "nothing") + events_of(client_of_key)

    call_command("encrypt_project", "owner", "--no-wait", stdout=StringIO(), stderr=StringIO())
    call_command("index_search", stdout=StringIO())
    assert left_on_disk(garden) == READABLE
    assert not SearchPosting.objects.exists() and not RunVector.objects.exists()
    assert verify() == {}
    assert seal().resealed >= 1
    assert verify() == {}
    assert set(garden.left_in(shown(client_of_key, "nothing") + events_of(client_of_key))) == set(
        garden.left_in(before)
    )
    with as_stored():
        first = Message.objects.get(external_id="m1").content
    out = StringIO()
    call_command("encrypt_project", "owner", "--no-wait", stdout=out, stderr=StringIO())
    assert out.getvalue().startswith("0 rows were encrypted")

    call_command("encrypt_project", "owner", "--new-key", "--no-wait", stdout=StringIO(), stderr=StringIO())
    first_key, second_key = ProjectKey.objects.order_by("version")
    with as_stored():
        assert Message.objects.get(external_id="m1").content != first
    first_key.delete()
    with master_key(OTHER_MASTER_KEY, MASTER_KEY):
        assert rewrap_keys() == 1
    with master_key(OTHER_MASTER_KEY):
        assert set(garden.left_in(shown(client_of_key, "nothing"))) >= {"Message.content", "ToolResult.data"}
    actions = AuditEntry.objects.filter(object_type="data_key").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["key_create", "key_rotate", "key_rotate"]


@pytest.mark.requirement("001-57")
def test_what_would_look_into_values_is_refused(encrypted: Project, client_of_key: Client) -> None:
    store(encrypted, question(), answer())
    message = Message.objects.get(external_id="a1").pk
    for path, field in (
        ("/api/v1/search/?q=weather", "q"),
        ("/api/v1/messages/?q=weather", "q"),
        (f"/api/v1/messages/{message}/similar/", None),
        (f"/api/v1/compare/?left={message}&right={message}", None),
    ):
        response = client_of_key.get(path)
        error = response.json()["error"]
        assert (response.status_code, error["code"], error.get("field")) == (400, "encrypted_project", field), path
    snapshot = {"session_id": "weather", "left_out": {"size": 1}}
    response = client_of_key.post("/api/v1/snapshots/", snapshot, content_type="application/json")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "encrypted_project")
    with pytest.raises(CommandError, match="--match cannot look into"):
        call_command("erase", "--match", "Atlantis", "--project", "owner", "--dry-run", stdout=StringIO())
    errors = client_of_key.get("/api/v1/errors/").json()["results"]
    assert {group["pattern"] for group in errors} == {"(encrypted)"}
    assert "tsenc1:" not in str(errors)


@pytest.mark.requirement("001-57")
def test_server_without_the_key_refuses_to_read_and_to_store(
    encrypted: Project, stranger: Project, client_of_key: Client
) -> None:
    store(encrypted, question())
    store(stranger, question(), external_id="plain")
    before = Message.objects.count()
    sent = {"sessions": [{"external_id": "weather", "messages": [{"role": "user", "content": "again"}]}]}
    other = Client(headers={"Authorization": f"Bearer {create_key(stranger, 'agent', ['read', 'write'])[1]}"})
    with master_key(OTHER_MASTER_KEY):
        for response in (
            client_of_key.get("/api/v1/messages/"),
            client_of_key.post("/api/v1/ingest/", sent, content_type="application/json"),
        ):
            assert (response.status_code, response.json()["error"]["code"]) == (503, "encryption_locked")
            assert "TRACESITE_MASTER_KEY" in response.json()["error"]["message"]
        assert Message.objects.count() == before
        reader = Client(raise_request_exception=False)
        reader.force_login(User.objects.create_superuser("ada"))
        page = reader.get("/admin/messages_app/message/")
        assert page.status_code == 503 and "TRACESITE_MASTER_KEY" in page.content.decode()
        assert "Shanghai" in other.get("/api/v1/messages/").getvalue().decode()
    assert "Shanghai" in client_of_key.get("/api/v1/messages/").getvalue().decode()


@pytest.mark.requirement("001-57")
def test_merging_masking_and_viewers_are_as_without_encryption(encrypted: Project, client_of_key: Client) -> None:
    first = store(encrypted, question(), answer(), title="Weather", metadata={"a": 1})
    again = store(encrypted, question(), answer(), title="Weather", metadata={"a": 1})
    assert {message.state for message in again.messages} == {"unchanged"}
    store(encrypted, answer(metadata={"more": "of it"}), title="Other", metadata={"b": 2})
    session = Session.objects.get(pk=first.id)
    assert (session.title, session.metadata) == ("Other", {"a": 1, "b": 2})
    path = f"/api/v1/messages/{first.messages[1].id}/"
    change = {"content": "It is EMP-471193.", "version": client_of_key.get(path).json()["version"]}
    changed = client_of_key.patch(path, change, content_type="application/json")
    assert changed.json()["content"] == "It is EMP-471193." and changed.json()["metadata"]["more"] == "of it"

    save_rule(encrypted, "staff", "pattern", r"EMP-\d{6}", when="read")
    viewer = User.objects.create_user("vera", is_staff=True)
    grant_role(encrypted, viewer, Role.VIEWER)
    reader = Client()
    reader.force_login(viewer)
    assert reader.get(path).json()["content"] == "It is [redacted]."
    save_rule(encrypted, "staff", "pattern", r"EMP-\d{6}")
    call_command("apply_masking", project="owner", stdout=StringIO())
    assert client_of_key.get(path).json()["content"] == "It is [redacted]."
    with as_stored():
        assert Message.objects.get(external_id="a1").content.startswith("tsenc1:")


@pytest.mark.requirement("001-57")
def test_envelope_that_was_sent_is_not_opened(encrypted: Project, stranger: Project) -> None:
    store(encrypted, question(content="The word is Kaleidoscope."))
    with as_stored():
        stolen = Message.objects.get().content
    assert len(stolen) < 512
    store(stranger, question(content=stolen, metadata={"a": [stolen], "b": f'{{"c":"{stolen}"}}'}), external_id=stolen)
    found = Message.objects.get(project=stranger)
    assert found.content == "[redacted]"
    names = {"id": "c", "name": stolen, "args": {"a": stolen}}
    store(
        stranger,
        answer(external_id="a2", agent_steps=[{"agent_name": stolen, "model": stolen, "tool_calls": [names]}]),
        external_id="s2",
    )
    key = create_key(stranger, "agent", ["read"])[1]
    client = Client(headers={"Authorization": f"Bearer {key}"})
    shown_texts = [
        client.get(path).getvalue().decode()
        for path in ("/api/v1/messages/", "/api/v1/sessions/", "/api/v1/tool-calls/", "/api/v1/tools/stats/")
    ]
    assert "Kaleidoscope" not in str((shown_texts, found.metadata, found.session.external_id))

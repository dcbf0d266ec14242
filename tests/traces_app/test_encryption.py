"""Encryption at rest: planted values are in no table, every way to read gives them back, and what cannot work says so."""

from __future__ import annotations

from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from threading import Event
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client

from access_app.db import primary
from access_app.encryption import keys
from access_app.encryption.keys import add_key, end_encryption, rewrap_keys
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
from traces_app.maintenance import encrypting
from traces_app.models import RunVector, SearchPosting
from traces_app.queries.snapshots import forked_among

READABLE = ["Score.value", "Session.tags"]
"""The places that docs/security.md lists as readable."""


@pytest.fixture
def encrypted(keeper: None, project: Project) -> Project:
    add_key(project)
    return project


def left_on_disk(garden: Garden) -> list[str]:
    with primary.connection.as_stored():
        return garden.left_in(stored())


def run(command: str, *arguments: str, waits: bool = False) -> str:
    """Run a command, which waits for other processes if it should, and return what it says."""
    out = StringIO()
    options = [] if waits or command == "rewrap_data_keys" else ["--no-wait"]
    call_command(command, *arguments, *options, stdout=out, stderr=StringIO())
    return out.getvalue()


def search(client: Client, text: str) -> Any:
    return client.get("/api/v1/search/", {"q": text}).json()


def events_of(client: Client) -> str:
    return client.get("/api/v1/sessions/s2/events/").getvalue().decode()


def test_values_of_all_fields_are_in_no_table_and_are_read_back(encrypted: Project, client_of_key: Client) -> None:
    garden = Garden("word{}")
    plant(garden, client_of_key)
    call_command("index_search", stdout=StringIO())

    assert len(garden.planted) > 40
    assert left_on_disk(garden) == READABLE
    assert not SearchPosting.objects.exists() and not RunVector.objects.exists()
    text = shown(client_of_key, "word") + events_of(client_of_key)
    unread = {place for value, place in garden.planted.items() if value not in text}
    assert all(place.startswith(("Span.", "Context.")) for place in unread)
    assert "tsenc1:" not in text and "tscut" not in text


def test_content_under_readable_keys_and_beginnings_of_large_fields_are_encrypted(
    encrypted: Project, client_of_key: Client
) -> None:
    data = {
        "name": "look",
        "call_id": "c1",
        "args": {"note": "word1", "filler": "lorem ipsum " * 2_000},
        "tool": {"description": "word2"},
        "step": "word3 " * 200,
        "parent": ["word4"],
    }
    posed = {"name": "e", "contextRefs": {"a": {"beginning": "word5", "contextRef": {"x": "word6"}}, "b": "word7"}}
    events = [
        {"id": f"e{at}", "session_id": "s2", "message_id": "m2", "type": "tool_call_start", "data": one}
        for at, one in enumerate([data, {**posed, "call_id": "c2"}])
    ]
    metadata: dict[str, Any] = {"source": {"note": "word8"}, "trace_id": "word9 " * 200}
    metadata["forked_from"] = {"session": "s2", "overrides": {"context": "word0"}}
    sent = {"sessions": [{"external_id": "s3", "metadata": metadata}]}
    for path, body in (("/api/v1/events/", {"events": events}), ("/api/v1/ingest/", sent)):
        assert client_of_key.post(path, body, content_type="application/json").status_code == 200

    words = {f"word{number}" for number in range(10)}
    with primary.connection.as_stored():
        on_disk = stored()
    assert {word for word in words if word in on_disk} == set()
    text = events_of(client_of_key) + client_of_key.get("/api/v1/sessions/").getvalue().decode()
    assert {word for word in words if word in text} == words
    call = client_of_key.get("/api/v1/tool-calls/?tool=look").json()["results"][0]
    assert call["args"]["note"] == "word1"
    assert [session.external_id for session in forked_among(primary, encrypted.pk, ["s2"])] == ["s3"]


def test_what_is_stored_is_encrypted_with_each_new_key(keeper: None, project: Project, client_of_key: Client) -> None:
    garden = Garden("word{}")
    plant(garden, client_of_key)
    call_command("index_search", stdout=StringIO())
    seal()
    assert len(left_on_disk(garden)) == len(garden.planted)
    before = shown(client_of_key, "nothing") + events_of(client_of_key)

    run("encrypt_project", "owner")
    call_command("index_search", stdout=StringIO())
    assert left_on_disk(garden) == READABLE
    assert not SearchPosting.objects.exists() and not RunVector.objects.exists()
    assert verify() == {}
    assert seal().resealed >= 1
    assert verify() == {}
    assert set(garden.left_in(shown(client_of_key, "nothing") + events_of(client_of_key))) == set(
        garden.left_in(before)
    )
    with primary.connection.as_stored():
        first = Message.objects.get(external_id="m1").content
    assert run("encrypt_project", "owner").startswith("0 rows were encrypted")

    run("encrypt_project", "owner", "--new-key")
    first_key, second_key = ProjectKey.objects.order_by("version")
    with primary.connection.as_stored():
        assert Message.objects.get(external_id="m1").content != first
    first_key.delete()
    with master_key(OTHER_MASTER_KEY, MASTER_KEY):
        assert rewrap_keys() == 1
    with master_key(OTHER_MASTER_KEY):
        assert set(garden.left_in(shown(client_of_key, "nothing"))) >= {"Message.content", "ToolResult.data"}
    actions = AuditEntry.objects.filter(object_type="data_key").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["key_create", "key_rotate", "key_rotate"]


def test_encryption_is_turned_off_and_on_again(encrypted: Project, client_of_key: Client) -> None:
    garden = Garden("word{}")
    plant(garden, client_of_key)
    before = garden.left_in(shown(client_of_key, "nothing") + events_of(client_of_key))
    seal()
    with pytest.raises(CommandError, match="--yes"):
        call_command("decrypt_project", "owner")

    end_encryption(encrypted)
    assert left_on_disk(garden) == READABLE
    assert search(client_of_key, "word")["error"]["code"] == "encrypted_project", "not all of it is readable yet"
    assert run("decrypt_project", "owner", "--yes").endswith("Nothing that is stored in owner is encrypted now.\n")

    assert len(left_on_disk(garden)) == len(garden.planted)
    with primary.connection.as_stored():
        assert "tsenc1:" not in stored()
    assert garden.left_in(shown(client_of_key, "nothing") + events_of(client_of_key)) == before
    assert verify() == {}
    assert seal().resealed >= 1 and verify() == {}
    call_command("index_search", stdout=StringIO())
    assert search(client_of_key, garden.value("Message.content"))["results"]
    again = run("decrypt_project", "owner", "--yes")
    assert again.splitlines()[-1].startswith("0 rows were decrypted")

    run("encrypt_project", "owner")
    assert left_on_disk(garden) == READABLE
    entries = AuditEntry.objects.filter(object_type="project", detail__has_key="encryption").order_by("pk")
    assert [entry.detail["encryption"] for entry in entries] == ["on", "ending", "off", "on"]
    call_command("destroy_data_keys", "owner", "--yes", stdout=StringIO())
    with pytest.raises(CommandError, match="was destroyed"):
        call_command("decrypt_project", "owner", "--yes")
    with pytest.raises(CommandError, match="is not encrypted"):
        Project.objects.create(slug="plain")
        call_command("decrypt_project", "plain", "--yes")


def test_moved_value_stops_the_rewriting_with_its_place(encrypted: Project) -> None:
    store(encrypted, question(), answer())
    first, second = Message.objects.order_by("pk")
    with primary.connection.as_stored():
        copied = Message.objects.get(pk=first.pk).content
    Message.objects.filter(pk=second.pk).update(content=copied)
    for command in (["encrypt_project", "owner", "--new-key"], ["decrypt_project", "owner", "--yes"]):
        with pytest.raises(CommandError, match=f"messages_app_message {second.pk}: .*behind the back"):
            run(*command)
    with primary.connection.as_stored():
        assert Message.objects.get(pk=first.pk).content == copied, "the batch was undone"


@pytest.mark.django_db(transaction=True)
def test_keys_are_exchanged_and_turned_off_beside_writers(
    keeper: None, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in other processes, but without their 5 seconds.
    monkeypatch.setattr(keys, "MAX_AGE", 0)
    monkeypatch.setattr(encrypting, "MAX_AGE", 0)
    is_over = Event()

    def write(name: str) -> list[str]:
        sent = [name]
        try:
            while not is_over.is_set():
                # The one from before is merged.
                sent.append(f"{name}{len(sent)}")
                words = [
                    question(external_id=one, content=f"word of {one}", metadata={"at": len(sent)}) for one in sent[-2:]
                ]
                store(project, *words, title=f"title of {sent[-1]}")
        finally:
            connection.close()
        return sent

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, name) for name in "ab"]
        try:
            run("encrypt_project", "owner", waits=True)
            assert newest_of_contents(project)
            run("encrypt_project", "owner", "--new-key", waits=True)
            assert newest_of_contents(project)
            with master_key(OTHER_MASTER_KEY, MASTER_KEY):
                run("rewrap_data_keys")
                run("decrypt_project", "owner", "--yes", waits=True)
                with primary.connection.as_stored():
                    assert "tsenc1:" not in stored()
                is_over.set()
                sent = [one for writer in writers for one in writer.result(60)]
        finally:
            is_over.set()
    with primary.connection.as_stored():
        found = dict(Message.objects.filter(external_id__in=sent).values_list("external_id", "content"))
    assert found == {name: f"word of {name}" for name in sent}
    assert len(sent) > 6  # they wrote beside each of the commands, however slowly


def newest_of_contents(project: Project) -> bool:
    """Return whether all contents of messages are encrypted by the newest data key."""
    newest = b64encode(bytes.fromhex(project.data_keys.latest("version").key_id)).decode()[:10]
    with primary.connection.as_stored():
        contents = Message.objects.filter(project=project).values_list("content", flat=True)
        return all(content.startswith(f"tsenc1:{newest}") for content in contents)


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
    reader = Client()
    reader.force_login(User.objects.create_superuser("ada"))
    page = reader.get(f"/admin/messages_app/message/{message}/compare/?other={message}")
    assert "This is not possible in a project whose data is encrypted." in page.content.decode()
    snapshot = {"session_id": "weather", "left_out": {"size": 1}}
    response = client_of_key.post("/api/v1/snapshots/", snapshot, content_type="application/json")
    assert (response.status_code, response.json()["error"]["code"]) == (400, "encrypted_project")
    with pytest.raises(CommandError, match="--match cannot look into"):
        call_command("erase", "--match", "Atlantis", "--project", "owner", "--dry-run", stdout=StringIO())
    errors = client_of_key.get("/api/v1/errors/").json()["results"]
    assert {group["pattern"] for group in errors} == {"(encrypted)"}
    assert "tsenc1:" not in str(errors)


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
    with primary.connection.as_stored():
        assert Message.objects.get(external_id="a1").content.startswith("tsenc1:")


def test_envelope_that_was_sent_is_not_opened(encrypted: Project, stranger: Project) -> None:
    store(encrypted, question(content="The word is Kaleidoscope."))
    with primary.connection.as_stored():
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

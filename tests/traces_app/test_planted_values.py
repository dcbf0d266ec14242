"""Values planted in every field of every way in: secrets are nowhere, and masking rules remove what is stored already."""

from __future__ import annotations

import json
import logging
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from access_app.masking import save_rule
from access_app.models import AuditEntry, Project
from messages_app.models import Message, Session
from tests.traces_app.maintenance.seals.sealing import seal, verify
from tests.traces_app.planted import Garden, plant, plant_elsewhere, refused, stored

SECRET = "ghp_" + "16C7e42F292c6912E7710c83" + "{}"
STAFF = "EMP-{}"
PATTERN = "EMP-[0-9a-f]{12}"


def shown(client: Client, word: str) -> str:
    """Return what the API, the exports and the pages show, and the search finds for a word."""
    reader = Client()
    reader.force_login(User.objects.get_or_create(username="ada", is_staff=True, is_superuser=True)[0])
    session, message = Session.objects.get(external_id="s1"), Message.objects.get(external_id="m1")
    texts = [
        client.get(path).getvalue().decode()
        for path in (
            "/api/v1/sessions/",
            "/api/v1/messages/",
            f"/api/v1/messages/{message.pk}/?expand=references,results,inputs",
            "/api/v1/tool-calls/",
            "/api/v1/scores/",
            f"/api/v1/sessions/{session.pk}/events/",
            f"/api/v1/sessions/{session.pk}/export/",
        )
    ]
    texts += [
        reader.get(path).getvalue().decode()
        for path in (
            f"/admin/messages_app/session/{session.pk}/change/",
            f"/admin/messages_app/message/{message.pk}/change/",
            "/admin/messages_app/session/",
            "/admin/",
        )
    ]
    found = client.get("/api/v1/search/", {"q": word}).json()
    return "\n".join([*texts, json.dumps(found.get("results", found))])


def archived(folder: Path) -> str:
    """Archive everything that is stored, and return what the files hold, decoded."""
    call_command("archive", to=str(folder), older_than="0", stdout=StringIO())
    texts = [f"{path} {pq.read_table(path).to_pylist()}" for path in folder.rglob("*.parquet")]
    texts += [path.read_text() for path in folder.rglob("*.json")]
    assert len(texts) >= 10
    return "\n".join(texts)


@pytest.mark.django_db(transaction=True)
def test_secrets_of_all_fields_are_nowhere(
    project: Project,
    client_of_key: Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    garden = Garden(SECRET)
    plant(garden, client_of_key)
    plant_elsewhere(garden, client_of_key)
    answers = refused(garden, client_of_key)
    call_command("index_search", stdout=StringIO())

    archive = archived(tmp_path)

    assert len(garden.planted) > 130
    leaks = {
        "answers": garden.left_in("\n".join(answers)),
        "database": garden.left_in(stored()),
        "pages and exports": garden.left_in(shown(client_of_key, "ghp_16C7")),
        "log": garden.left_in(caplog.text + "".join(capfd.readouterr())),
        "archive": garden.left_in(archive),
    }
    assert leaks == {name: [] for name in leaks}
    assert client_of_key.get("/api/v1/search/", {"q": "ghp_16C7"}).json()["results"] == []


def test_ids_are_stored_as_they_came(client_of_key: Client) -> None:
    """A changed id would be another one than the sender's, and the same for several."""
    session, message, call, run = (SECRET.format(f"{number:012}") for number in range(4))
    step = {"iteration": 0, "tool_calls": [{"id": call, "name": "find"}]}
    sent = {"external_id": message, "role": "assistant", "request_id": run, "agent_steps": [step]}
    body = {"sessions": [{"external_id": session, "messages": [sent]}]}
    assert client_of_key.post("/api/v1/ingest/", body, "application/json").status_code < 300
    answer = client_of_key.get("/api/v1/messages/").json()["results"][0]
    assert (answer["external_id"], answer["request_id"]) == (message, run)
    assert answer["agent_steps"][0]["tool_calls"][0]["id"] == call
    assert Session.objects.get().external_id == session


def test_rule_applies_to_what_is_stored(project: Project, client_of_key: Client) -> None:
    garden = Garden(STAFF)
    plant(garden, client_of_key)
    call_command("index_search", stdout=StringIO())
    seal()
    assert verify() == {}
    before = stored()
    everything = sorted(garden.planted.values())
    assert garden.left_in(before) == everything
    assert client_of_key.get("/api/v1/search/", {"q": "EMP-"}).json()["results"]

    out = StringIO()
    call_command("preview_masking", project="owner", kind="pattern", value=PATTERN, stdout=out)
    assert "+ about [redacted]." in out.getvalue()
    assert "content (preview)" in out.getvalue()
    assert stored() == before
    with pytest.raises(CommandError, match="no such masking rule"):
        call_command("apply_masking", project="owner")
    save_rule(project, "staff", "pattern", PATTERN)
    out = StringIO()
    call_command("apply_masking", project="owner", stdout=out)
    assert "staff: " in out.getvalue()
    call_command("index_search", stdout=StringIO())

    assert garden.left_in(stored()) == []
    assert garden.left_in(shown(client_of_key, "EMP-")) == []
    assert client_of_key.get("/api/v1/search/", {"q": "EMP-"}).json()["results"] == []
    message = Message.objects.get(external_id="m1")
    assert {"path": "agent_steps[0].tool_calls[0].result.output", "rule": "staff"} in message.redactions
    assert message.content == "about [redacted]."
    assert verify() == {}
    assert seal().resealed >= 1
    assert verify() == {}
    entries = AuditEntry.objects.filter(project=project, action="change", detail__has_key="masked")
    assert {entry.object_type for entry in entries} == {"message", "session", "span"}
    assert {entry.actor_name for entry in entries} == {"apply_masking"}
    # Again, it finds nothing.
    out = StringIO()
    call_command("apply_masking", project="owner", stdout=out)
    assert "0 changed" in out.getvalue()

"""Viewers read masked values wherever they read, and cannot find what they may not see. tests/test_access_matrix.py tests every
route."""

from __future__ import annotations

import json
from datetime import timedelta
from io import StringIO

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.core.management import call_command
from django.db import connection
from django.db.models import CharField, JSONField, TextField
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.masked_reading import MASKED_COLUMNS, MaskedReader, masked
from access_app.masking import save_rule
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.models import Message, Session
from tests.traces_app.conftest import store
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.models import ToolCall

CARD = "4111111111111111"
STAFF = "EMP-471193"
NOT_MASKED = frozenset(
    # Ids, times, names and states, by which traces are found.
    """
    agent agent_name archives author below buckets call_id call_name category chunk_type columns context_ref counts
    deleted_by end_user entries external_id fingerprint found group health ids_sha256 input_ref key_id kind knowledge_id
    last_interruption left_out level list_name message_name model name names node_ids parent_chunk_id period projects query ref
    reference_id removed request_id role rules said_status session_name source span_id state status sub_chunk_id subject
    type unit url
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)


def test_every_text_column_of_traces_is_masked_or_known_to_hold_none() -> None:
    texts = {
        field.column
        for label in ("messages_app", "traces_app")
        for model in apps.get_app_config(label).get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, TextField | CharField | JSONField | ArrayField)
    }
    assert texts - MASKED_COLUMNS == NOT_MASKED
    assert not MASKED_COLUMNS & NOT_MASKED


@pytest.fixture
def clients(project: Project) -> dict[str, Client]:
    """A client of a viewer and one of an analyst, beside a run with values that viewers may not see."""
    save_rule(project, "staff", "pattern", r"EMP-\d{6}", when="read")
    save_rule(project, "cards", "preset", "card", when="read")
    save_rule(project, "names", "path", "args.customer.name", when="read")
    save_rule(project, "cities", "key", "home_city", when="read")
    result = {"output": f"found {STAFF}", "data": {"rows": [STAFF]}, "error": f"no {STAFF}", "success": False}
    args = {"customer": {"name": "Lovelace"}, "card": int(CARD), "home_city": "Ithaca"}
    step = {"thought": f"think of {STAFF}", "tool_calls": [{"id": "c", "name": "find", "args": args, "result": result}]}
    message = {"external_id": "m", "role": "assistant", "content": f"about {STAFF}", "error": f"no {STAFF}"}
    # The receipt of a secret has its path.
    message["metadata"] = {STAFF: {"password": "hunter2hunter2"}}  # type: ignore[assignment]
    store(project, {**message, "agent_steps": [step]}, title=f"of {STAFF}", tags=[STAFF])
    call_command("index_search", stdout=StringIO())
    found = {}
    for role in (Role.VIEWER, Role.ANALYST):
        user = User.objects.create_user(role.value, is_staff=True)
        grant_role(project, user, role)
        found[role.value] = Client()
        found[role.value].force_login(user)
    return found


def paths_of(project: Project, **external_ids: str) -> list[str]:
    session, message = (
        model.objects.get(project=project, **({"external_id": external_ids[name]} if name in external_ids else {}))
        for name, model in (("session", Session), ("message", Message))
    )
    return [
        "/api/v1/messages/",
        "/api/v1/sessions/",
        "/api/v1/tool-calls/",
        f"/api/v1/messages/{message.pk}/",
        f"/api/v1/sessions/{session.pk}/export/",
        "/admin/messages_app/session/",
        f"/admin/messages_app/session/{session.pk}/change/",
        f"/admin/messages_app/message/{message.pk}/change/",
        "/admin/traces_app/toolcall/",
        "/api/v1/search/?q=found",
        "/admin/",
    ]


def seen_by(client: Client, paths: list[str], secrets: tuple[str, ...]) -> set[str]:
    """Return the paths that show any of the secrets."""
    # The address of a call leads to the page of its run.
    texts = {path: client.get(path, follow=True).getvalue().decode() for path in paths}
    assert all("found" in texts[path] for path in paths if path in ("/api/v1/messages/", "/api/v1/tool-calls/"))
    return {path for path, text in texts.items() for secret in secrets if secret in text}


def test_viewer_and_masked_key_read_masked_values_and_others_all(project: Project, clients: dict[str, Client]) -> None:
    for name, is_masked in (("key", False), ("masked key", True)):
        _key, token = create_key(project, name, ["read"], reads_masked=is_masked)
        clients[name] = Client(headers={"X-API-Key": token})
    for name in ("viewer", "masked key"):
        (read,) = clients[name].get("/api/v1/messages/").json()["results"]
        (call,) = read["agent_steps"][0]["tool_calls"]
        assert read["content"] == "about [redacted]"
        assert call["args"] == {"customer": {"name": "[redacted]"}, "card": "[redacted]", "home_city": "[redacted]"}
        assert call["result"]["data"] == {"rows": ["[redacted]"]}
    paths = paths_of(project)
    seen = {name: seen_by(client, paths, (STAFF, CARD, "Lovelace", "Ithaca")) for name, client in clients.items()}
    assert seen["viewer"] == seen["masked key"] == set()
    assert seen["analyst"] >= {*paths[:4], *paths[6:8], paths[9]}
    assert seen["key"] >= {*paths[:4], paths[9]}


def test_each_row_is_masked_by_the_rules_of_its_project(
    project: Project, stranger: Project, clients: dict[str, Client]
) -> None:
    third = Project.objects.create(slug="third")
    save_rule(third, "others", "pattern", "Miller", when="read")
    for where, secret in ((stranger, "EMP-111111"), (third, "EMP-222222 of Miller")):
        result = {"output": f"found {secret}", "data": {"rows": [secret]}, "success": True}
        # Ids that an agent gives are no evidence of where a row belongs.
        call = {"id": str(Message.objects.get(project=project).pk), "name": "find", "args": {"for": secret}}
        step = {"thought": f"think of {secret}", "tool_calls": [call | {"result": result}]}
        message = {"external_id": "m", "role": "assistant", "content": f"about {secret}", "agent_steps": [step]}
        store(where, message, title=f"of {secret}")
    call_command("index_search", stdout=StringIO())
    user = User.objects.get(username="viewer")
    grant_role(stranger, user, Role.EDITOR)
    grant_role(third, user, Role.VIEWER)
    client = clients["viewer"]

    for where in (project, stranger, third):
        assert seen_by(client, paths_of(where), (STAFF, "Lovelace", "Ithaca", "Miller")) == set()
    for where, secret in ((stranger, "EMP-111111"), (third, "EMP-222222")):
        paths = paths_of(where)
        assert seen_by(client, paths, (secret,)) >= set(paths) - {"/admin/"}
    key = Session.objects.get(project=stranger).pk
    answer = client.patch(f"/api/v1/sessions/{key}/", {"description": "for EMP-333333"}, "application/json")
    assert answer.json()["description"] == "for EMP-333333", answer.content
    assert Session.objects.get(project=stranger).title == "of EMP-111111"


def test_viewer_finds_nothing_by_what_is_masked(clients: dict[str, Client]) -> None:
    for query in (STAFF, "471193", "MP-47", "Lovelace", CARD, "title:EMP", "args:ithaca"):
        found = {
            role: client.get("/api/v1/search/", {"q": query}).json()["results"] for role, client in clients.items()
        }
        assert found["viewer"] == [], query
        assert found["analyst"] or query in (CARD,), query
    title = {role: client.get("/api/v1/sessions/", {"title": "EMP"}) for role, client in clients.items()}
    assert title["analyst"].json()["results"]
    assert title["viewer"].status_code == 400
    assert title["viewer"].json()["error"]["field"] == "title"
    assert clients["viewer"].get("/api/v1/sessions/", {"tag": STAFF}).status_code == 400
    assert clients["viewer"].get("/api/v1/sessions/", {"tag": "other"}).json()["results"] == []


def test_values_are_masked_before_they_are_cut_and_by_their_place(project: Project, clients: dict[str, Client]) -> None:
    save_rule(project, "tokens", "pattern", r"TOK-[a-z]+-\d{6}", when="read")
    save_rule(project, "notes", "path", "args.note", when="read")
    save_rule(project, "labels", "pattern", "customer (?P<secret>[A-Z][a-z]+) [0-9]+", when="read")
    # A secret over each place where a page may cut a text.
    long = " ".join(["TOK-" + "leak" * 40 + "-123456"] * 200)
    args = {"note": "Hopper", "customer": {"name": "Lovelace"}, "long": long}
    failed = {"error": "customer Falconer 123456 was not found", "success": False}
    calls = [
        {
            "id": "long",
            "name": "write",
            "args": args,
            "duration": 9000,
            "result": {"output": f"found {long}", "success": True},
        },
        {"id": "failed", "name": "find", "args": {"note": "Hopper"}, "result": failed},
        {"id": "cut", "name": "find", "args": {}, "result": {"error": long, "success": False}},
    ]
    step = {"thought": long, "tool_calls": calls}
    for name in ("left", "right"):
        asked = {"role": "user", "content": long, "external_id": f"{name} question"}
        given = {"role": "assistant", "content": long, "external_id": name, "agent_steps": [step]}
        store(project, asked, given, external_id=name, title=long[:343])
    call_command("index_search", stdout=StringIO())
    store_vectors(primary, patience=timedelta(0))
    answer = Message.objects.get(external_id="left")
    ids = {call.call_id: call.pk for call in ToolCall.objects.filter(message=answer)}
    paths = [
        *paths_of(project, session="right", message="right"),
        "/api/v1/errors/",
        "/api/v1/tools/examples/?tool=find",
        "/api/v1/tools/examples/?tool=write&format=csv",
        "/api/v1/compare/?left=left&right=right",
        f"/api/v1/messages/{answer.pk}/similar/",
        f"/api/v1/tool-calls/{ids['failed']}/similar/",
        *(f"/admin/traces_app/toolcall/{key}/change/" for key in ids.values()),
        *(f"/admin/traces_app/toolcall/value/call/{key}/args/" for key in ids.values()),
        "/admin/traces_app/toolcall/export/?format=csv",
        *(f"/api/v1/search/?q={word}" for word in ("Hopper", "leakleak", "Falconer")),
    ]
    secrets = ("leakleak", "Lovelace", "Hopper", "Falconer")
    assert seen_by(clients["viewer"], paths, secrets) == set()
    assert len(seen_by(clients["analyst"], paths, secrets)) >= len(paths) - 5
    client = clients["viewer"]
    assert client.get("/api/v1/scores/", {"label": "customer Falconer 123456"}).json()["error"]["field"] == "label"
    assert client.get("/api/v1/scores/", {"label": "customer"}).status_code == 200


def test_path_rule_may_begin_above_the_column(project: Project, clients: dict[str, Client]) -> None:
    for number, path in enumerate(
        (
            "result.data.owner.name",
            "tool_calls[*].args.owner.name",
            "agent_steps[*].tool_calls[*].result.metadata.owner",
            "knowledge_references[*].metadata.owner",
        )
    ):
        save_rule(project, f"above-{number}", "path", path, when="read")
    owner = {"name": "Hopper", "city": "Arlington"}
    # Not of Tracesite, although it has names of its own.
    looks_alike = {"contextRefs": {"a": {"beginning": "in plain sight"}}, "result": {"name": "kept"}}
    result = {"output": "found", "data": {"owner": owner, **looks_alike}, "metadata": {"owner": "Hopper"}}
    step = {"tool_calls": [{"id": "d", "name": "find", "args": {"owner": owner}, "result": result}]}
    reference = {"id": "r", "content": "found", "metadata": {"owner": "Hopper"}}
    message = {"external_id": "n", "role": "assistant", "content": "found", "agent_steps": [step]}
    store(project, {**message, "knowledge_references": [reference]}, external_id="above")
    paths = ["/api/v1/messages/?session=above", "/api/v1/tool-calls/?session=above"]
    assert seen_by(clients["viewer"], paths, ("Hopper",)) == set()
    assert seen_by(clients["analyst"], paths, ("Hopper",)) == set(paths)
    (call,) = clients["viewer"].get(paths[1]).json()["results"]
    assert call["args"] == {"owner": {"name": "[redacted]", "city": "Arlington"}}
    assert call["result"]["data"] == {"owner": {"name": "[redacted]", "city": "Arlington"}, **looks_alike}


@pytest.mark.django_db
def test_rows_are_masked_whatever_the_statement_is() -> None:
    rules = (("staff", "pattern", "EMP-[0-9]+"), ("name", "path", "args.customer.name"))
    reader = MaskedReader(((1, rules),), reads_others=False)
    statement = """
        SELECT 'EMP-1' AS content, 'EMP-1' AS external_id, 'EMP-1' AS "messages_app_session.external_id", ARRAY['EMP-1', 'b'] AS tags, NULL AS title, 1,
            '{"customer": {"name": "Ada"}}'::jsonb AS args, '{"customer": {"name": "Ada"}}'::jsonb::text,
            '{"a": "EMP-1"}'::bytea AS content
    """
    with masked(reader), connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    # A name alone proves nothing about a value.
    assert row[:6] == ("[redacted]", "[redacted]", "EMP-1", ["[redacted]", "b"], None, 1)
    assert [json.loads(text) for text in row[6:8]] == [{"customer": {"name": "[redacted]"}}] * 2
    assert row[8] == b'{"a":"[redacted]"}'
    with connection.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.fetchone()[0] == "EMP-1"


@pytest.mark.django_db
def test_id_of_rows_in_two_projects_proves_no_project() -> None:
    reader = MaskedReader(((1, (("staff", "pattern", "EMP-[0-9]+"),)),), reads_others=True)
    shown = []
    with masked(reader), connection.cursor() as cursor:
        for statement in (
            "SELECT 'x' AS id, 2 AS project_id, 'EMP-1' AS content",
            "SELECT 'x' AS message_id, 'EMP-1' AS content",
            "SELECT 'x' AS id, 1 AS project_id, 'EMP-1' AS content",
            "SELECT 'x' AS message_id, 'EMP-1' AS content",
        ):
            cursor.execute(statement)
            shown.append(cursor.fetchone()[-1])
    assert shown == ["EMP-1", "EMP-1", "[redacted]", "[redacted]"]


def test_large_fields_of_events_are_masked_by_their_place(project: Project, clients: dict[str, Client]) -> None:
    filler = "lorem ipsum " * 2_000
    data = {
        "call_id": "c9",
        "name": "look",
        "args": {"customer": {"name": "Lovelace"}, "filler": filler},
        "home_city": f"Ithaca {filler}",
    }
    event = {"id": "e9", "session_id": "large", "message_id": "m9", "type": "tool_call_start", "data": data}
    writer = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['write'])[1]}"})
    assert writer.post("/api/v1/events/", {"events": [event]}, content_type="application/json").status_code == 200
    session = Session.objects.get(external_id="large").pk
    events = f"/api/v1/sessions/{session}/events/"
    kept = json.loads(clients["analyst"].get(events).getvalue())["results"][0]["data"]
    refs = {name: ref["contextRef"] for name, ref in kept["contextRefs"].items()}
    assert set(refs) == {"args", "home_city"}
    paths = {events, *(f"/api/v1/sessions/{session}/contexts/{ref}/" for ref in refs.values())}

    def showing(role: str) -> set[str]:
        texts = {path: clients[role].get(path).getvalue().decode() for path in paths}
        return {path for path, text in texts.items() if "Lovelace" in text or "Ithaca" in text}

    assert (showing("viewer"), showing("analyst")) == (set(), paths)
    assert (
        "lorem ipsum" in clients["viewer"].get(f"/api/v1/sessions/{session}/contexts/{refs['args']}/").content.decode()
    )


def test_contexts_are_masked_by_their_place(project: Project, clients: dict[str, Client]) -> None:
    for name, value in (("said", "messages[*].whisper"), ("kept", "data.variables.town")):
        save_rule(project, name, "path", value, when="read")
    data = {"messages": [{"role": "user", "whisper": "Babbage"}], "variables": {"town": "Marylebone", "year": 1834}}
    event = {"id": "e8", "session_id": "talk", "message_id": "m8", "type": "prompt_build", "data": data}
    writer = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['write'])[1]}"})
    assert writer.post("/api/v1/events/", {"events": [event]}, content_type="application/json").status_code == 200
    session = Session.objects.get(external_id="talk").pk
    stored = json.loads(clients["analyst"].get(f"/api/v1/sessions/{session}/events/").getvalue())["results"]
    context = f"/api/v1/sessions/{session}/contexts/{stored[0]['data']['contextRef']}/"
    for path, shown in ((context, 2), (f"{context}conversation/", 1), (f"{context}variables/?keys=town,year", 1)):
        texts = {role: clients[role].get(path).getvalue().decode() for role in ("viewer", "analyst")}
        found = {role: ("Babbage" in text) + ("Marylebone" in text) for role, text in texts.items()}
        assert found == {"viewer": 0, "analyst": shown}, path
    assert '"year":1834' in texts["viewer"]
    save_rule(project, "all", "key", "variables", when="read")
    assert "1834" not in clients["viewer"].get(f"{context}variables/").getvalue().decode()

"""Viewers read masked values wherever they read, and cannot find what they may not see. tests/test_access_matrix.py tests every
route."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.contrib.postgres.fields import ArrayField
from django.core.management import call_command
from django.db import connection
from django.db.models import CharField, JSONField, TextField
from django.test import Client

from access_app.masked_reading import MASKED_COLUMNS, masked
from access_app.masking import compiled, save_rule
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.models import Message, Session
from tests.traces_app.conftest import store

CARD = "4111111111111111"
STAFF = "EMP-471193"
NOT_MASKED = frozenset(
    # Ids, times, names and states, by which traces are found.
    """
    agent agent_name archives author below buckets call_id call_name category chunk_type columns context_ref counts
    deleted_by end_user entries external_id fingerprint found health ids_sha256 input_ref key_id kind knowledge_id
    left_out level list_name message_name model name names node_ids parent_chunk_id projects query redactions ref
    reference_id removed request_id role said_status session_name source span_id state status sub_chunk_id subject
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
    store(project, {**message, "agent_steps": [step]}, title=f"of {STAFF}", tags=[STAFF])
    call_command("index_search", stdout=StringIO())
    found = {}
    for role in (Role.VIEWER, Role.ANALYST):
        user = User.objects.create_user(role.value, is_staff=True)
        grant_role(project, user, role)
        found[role.value] = Client()
        found[role.value].force_login(user)
    return found


@pytest.mark.requirement("001-52", "001-54")
def test_viewer_reads_masked_values_and_analyst_all(clients: dict[str, Client]) -> None:
    session, message = Session.objects.get(), Message.objects.get()
    (read,) = clients["viewer"].get("/api/v1/messages/").json()["results"]
    (call,) = read["agent_steps"][0]["tool_calls"]
    assert read["content"] == "about [redacted]"
    assert call["args"] == {"customer": {"name": "[redacted]"}, "card": "[redacted]", "home_city": "[redacted]"}
    assert call["result"]["data"] == {"rows": ["[redacted]"]}
    paths = [
        "/api/v1/messages/",
        "/api/v1/sessions/",
        "/api/v1/tool-calls/",
        f"/api/v1/sessions/{session.pk}/export/?form=json",
        "/admin/messages_app/session/",
        f"/admin/messages_app/session/{session.pk}/change/",
        f"/admin/messages_app/message/{message.pk}/change/",
        "/admin/traces_app/toolcall/",
        "/api/v1/search/?q=found",
        "/admin/",
    ]
    seen = {}
    for role, client in clients.items():
        texts = {path: client.get(path).getvalue().decode() for path in paths}
        seen[role] = {
            path for path, text in texts.items() for secret in (STAFF, CARD, "Lovelace", "Ithaca") if secret in text
        }
        assert all("found" in texts[path] for path in paths[:1])
    assert seen["viewer"] == set()
    assert seen["analyst"] >= {*paths[:3], *paths[5:7], paths[8]}


@pytest.mark.requirement("001-26", "001-54")
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


@pytest.mark.django_db
def test_rows_are_masked_whatever_the_statement_is() -> None:
    rules = compiled((("staff", "pattern", "EMP-[0-9]+"), ("name", "path", "args.customer.name")))
    statement = """
        SELECT 'EMP-1' AS content, 'EMP-1' AS external_id, 'EMP-1', ARRAY['EMP-1', 'b'] AS tags, NULL AS title, 1,
            '{"customer": {"name": "Ada"}}'::jsonb AS args, '{"customer": {"name": "Ada"}}'::jsonb::text,
            '{"a": "EMP-1"}'::bytea AS content
    """
    with masked(rules), connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone()
    assert row[:6] == ("[redacted]", "EMP-1", "[redacted]", ["[redacted]", "b"], None, 1)
    assert [json.loads(text) for text in row[6:8]] == [{"customer": {"name": "[redacted]"}}] * 2
    assert row[8] == b'{"a":"[redacted]"}'
    with connection.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.fetchone()[0] == "EMP-1"

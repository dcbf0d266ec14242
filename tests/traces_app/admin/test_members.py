"""What members of a project see and may do on the admin's pages of traces, and what they may not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from access_app.models import Project, Role
from access_app.request_database import database_of
from access_app.roles import grant_role
from messages_app.models import Message, Session
from tests.traces_app.conftest import store
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.models import AgentStep, Score, Tool, ToolCall
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SIGN = "zebra"
"""A word in every text of the trace of a stranger."""
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"


@pytest.fixture
def trace(stranger: Project) -> dict[str, Any]:
    """A session of the project `stranger` with everything that pages show, and the ids in its addresses."""
    return stored_trace(stranger, SIGN)


def stored_trace(project: Project, sign: str) -> dict[str, Any]:
    """Store a session with the sign in everything that pages show, and return the ids in its addresses."""
    db = database_of(project.pk)
    outcome = store(
        project,
        {"external_id": "q", "role": "user", "content": f"giraffe {sign}?"},
        {
            "external_id": "a",
            "role": "assistant",
            "content": f"giraffe {sign}!",
            "knowledge_references": [{"id": "r", "content": f"passage {sign}", "knowledge_title": sign}],
            "agent_steps": [
                {
                    "iteration": 0,
                    "thought": f"thought {sign}",
                    "model": sign,
                    "agent_name": sign,
                    "input": {"messages": [{"role": "user", "content": f"giraffe {sign}?"}]},
                    "tool_calls": [
                        {
                            "id": "c1",
                            "name": f"tool_{sign}",
                            "args": {"city": sign},
                            "result": {"success": False, "error": f"error {sign}"},
                        }
                    ],
                }
            ],
        },
        external_id="giraffe",
        title=f"title {sign}",
        end_user=sign,
    )
    run = outcome.messages[1].id
    place = ScoreTarget(session_id=outcome.id, message_id=run)
    score = records.Score(name=f"score {sign}", value=1.0, author="ada")
    store_scores(db, project.pk, [PlacedScore(redacted=redact_score(score, DEFAULT_RULES), place=place)])
    call = db.rows(ToolCall.objects).get(project=project)
    objects = {
        "session": outcome.id,
        "message": run,
        "tool": db.rows(Tool.objects).get(project=project).pk,
        "toolcall": call.pk,
        "score": db.rows(Score.objects).get(project=project).pk,
    }
    return {
        "objects": objects,
        "project_pk": project.pk,
        "session_id": outcome.id,
        "message_id": run,
        "step_id": db.rows(AgentStep.objects).get(message_id=run).pk,
        "node_id": call.pk,
        "call_id": call.pk,
        "form": "jsonl",
        "key": call.pk,
        "table": "call",
        "column": "args",
    }


def member(*roles: tuple[Project, Role]) -> Client:
    user = User.objects.create_user("eve", is_staff=True)
    for project, role in roles:
        grant_role(project, user, role)
    client = Client()
    client.force_login(user)
    return client


def pages(trace: dict[str, Any]) -> Iterator[str]:
    """The addresses of all pages of traces in the admin, with the ids of the trace."""

    def below(patterns: list[Any], path: str) -> Iterator[tuple[str, URLPattern]]:
        for pattern in patterns:
            if isinstance(pattern, URLResolver):
                yield from below(pattern.url_patterns, path + str(pattern.pattern))
            else:
                yield path + str(pattern.pattern), pattern

    for path, pattern in below(get_resolver().url_patterns, "/"):
        if not path.startswith(("/admin/messages_app/", "/admin/traces_app/")) or "modelprice" in path:
            continue
        model = path.split("/")[3]
        # The session has no snapshots: their pages lead back to the list.
        values = {**trace, "object_id": trace["objects"].get(model), "snapshot_id": trace["message_id"]}
        for name in pattern.pattern.converters:
            start = path.index("<")
            assert path[start : path.index(">") + 1].rpartition(":")[2].strip("<>") == name
            value = 1 if "views/" in path else values[name]
            path = path[:start] + str(value) + path[path.index(">") + 1 :]
        yield path.replace("\\Z", "")
    yield "/admin/"
    for query in ("?q=giraffe", "?session=giraffe", "?all=1&project=stranger"):
        yield f"{SESSIONS}{query.replace('session=', 'end_user=')}"
        yield f"{MESSAGES}{query}"
        yield f"/admin/traces_app/toolcall/{query}"
    yield f"{MESSAGES}{trace['message_id']}/change/?failure"
    yield f"{MESSAGES}{trace['message_id']}/search/?q=giraffe"


def test_no_page_shows_another_project(trace: dict[str, Any], project: Project, stranger: Project) -> None:
    own = store(project, {"external_id": "m", "role": "assistant", "content": "Mine."})
    client = member((project, Role.OWNER))
    paths = list(pages(trace))
    assert len(paths) > 60

    for path in [*paths, f"{MESSAGES}{own.messages[0].id}/compare/?other={trace['message_id']}"]:
        answer = client.get(path, follow=True)
        text = b"".join(answer) if answer.streaming else answer.content  # type: ignore[arg-type]
        assert SIGN.encode() not in text, path
        assert str(trace["node_id"]) not in answer.request["PATH_INFO"] + answer.request["QUERY_STRING"] or (
            str(trace["node_id"]) in path
        ), path


def test_no_page_of_own_rows_shows_another_project(trace: dict[str, Any], project: Project, stranger: Project) -> None:
    """Rows below those that the member may see have names and times like theirs."""
    client, own = member((project, Role.OWNER)), stored_trace(project, "okapi")
    shown = 0
    for path in pages(own):
        answer = client.get(path, follow=True)
        text = b"".join(answer) if answer.streaming else answer.content  # type: ignore[arg-type]
        assert SIGN.encode() not in text, path
        shown += b"okapi" in text
    assert shown > 25


def test_analyst_sees_the_pages_of_the_project(trace: dict[str, Any], stranger: Project) -> None:
    client = member((stranger, Role.ANALYST))
    shown = 0
    for path in pages(trace):
        answer = client.get(path, follow=True)
        text = b"".join(answer) if answer.streaming else answer.content  # type: ignore[arg-type]
        shown += SIGN.encode() in text
    assert shown > 25


@pytest.mark.parametrize(
    ("role", "edits", "purges"), [(Role.ANALYST, False, False), (Role.EDITOR, True, False), (Role.OWNER, True, True)]
)
def test_role_decides_what_members_change(
    trace: dict[str, Any], stranger: Project, role: Role, edits: bool, purges: bool
) -> None:
    client = member((stranger, role))
    session, run = f"{SESSIONS}{trace['session_id']}", f"{MESSAGES}{trace['message_id']}"
    page = client.get(f"{session}/change/").content.decode()
    assert ("/delete/" in page, "/judge/" in page, "/add/" in page) == (edits, edits, edits)
    assert ("/judge/" in client.get(f"{run}/change/").content.decode()) is edits

    judged = client.post(f"{run}/judge/", {"thumb": "up"})
    assert judged.status_code == (302 if edits else 403)
    assert client.get(f"{SESSIONS}add/").status_code == (200 if edits else 403)
    assert client.post(f"{session}/delete/", {"post": "yes"}).status_code == (302 if edits else 403)
    assert (Session.objects.count() == 0) is edits
    Session.with_deleted.update(deleted_at="2026-03-01T12:00:00Z", deleted_by="ada")

    trash = client.get(f"{SESSIONS}trash/").content.decode()
    assert (f"title {SIGN}" in trash) is edits
    page = client.get(f"{session}/change/").content.decode()
    assert (f"{session}/restore/" in page, f"{session}/purge/" in page) == (edits, purges)
    assert client.post(f"{session}/purge/").status_code == (302 if purges else 403)
    assert Session.with_deleted.exists() is not purges
    if not purges:
        assert client.post(f"{session}/restore/").status_code == (302 if edits else 403)
        assert Session.objects.exists() is edits


def test_action_changes_only_rows_that_the_role_allows(project: Project, stranger: Project) -> None:
    own, other = (store(each, {"role": "user", "content": "x"}, external_id=each.slug) for each in (project, stranger))
    client = member((project, Role.EDITOR), (stranger, Role.ANALYST))
    chosen = {"_selected_action": [str(own.id), str(other.id)], "post": "yes"}

    for across in ({}, {"select_across": "1", "rows": f"{own.id},{other.id}"}):
        client.post(SESSIONS, {"action": "delete_selected", **chosen, **across})
        assert list(Session.objects.values_list("pk", flat=True)) == [other.id]
        client.post(f"{SESSIONS}undo/", {"rows": f"{own.id},{other.id}"})
        assert Session.objects.count() == 2
    client.post(SESSIONS, {"action": "tag_selected", **chosen, "tag": "seen"})
    assert dict(Session.objects.values_list("pk", "tags")) == {own.id: ["seen"], other.id: []}
    Session.objects.update(deleted_at="2026-03-01T12:00:00Z", deleted_by="ada")
    client.post(f"{SESSIONS}undo/", {"rows": f"{own.id},{other.id}"})
    assert list(Session.objects.values_list("pk", flat=True)) == [own.id]


def test_form_adds_only_where_the_role_allows(trace: dict[str, Any], project: Project, stranger: Project) -> None:
    client = member((project, Role.EDITOR), (stranger, Role.ANALYST))
    form = client.get(f"{SESSIONS}add/").content.decode()
    assert f'<option value="{project.pk}"' in form
    assert f'<option value="{stranger.pk}"' not in form
    added = client.post(f"{MESSAGES}add/", {"session": str(trace["session_id"]), "role": "user", "content": "x"})
    assert "There is no session with the ID" in added.content.decode()
    assert Message.objects.count() == 2


def test_staff_without_a_role_see_nothing(trace: dict[str, Any]) -> None:
    client = member()
    assert "rail-runs" not in client.get("/admin/").content.decode()
    for path in pages(trace):
        assert path == "/admin/" or client.get(path).status_code in (302, 403, 404), path

"""/sessions/ over HTTP."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.http.schemas import OUTCOMES
from messages_app.models import Message, Session
from tests.admin_pages import links_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.ingest.batch import SessionOutcome
from traces_app.queries.runs.outcome import Outcome

from .conftest import Caller


def ids(results: list[dict[str, Any]]) -> list[str]:
    return [result["external_id"] for result in results]


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_session_is_returned_with_all_fields(viewer: Caller, weather: SessionOutcome) -> None:
    found = viewer.get(f"sessions/{weather.id}/").json
    times = [found.pop(name) for name in ("created_at", "updated_at", "active_at")]
    assert all(len(time) == 27 and time.endswith("Z") for time in times)
    assert found == {
        "id": str(weather.id),
        "project": "owner",
        "external_id": "weather",
        "title": "The weather",
        "description": "",
        "end_user": "ada",
        "status": "completed",
        "status_is_explicit": False,
        "status_reason": None,
        "outcome": "failed",
        "current_phase": "",
        "workflow": None,
        "tags": ["demo", "weather"],
        "metadata": {},
        "redactions": [],
        "message_count": 2,
        "call_count": 4,
        "failure_count": 1,
        "problem_count": 1,
        "resources": {"input_tokens": 120, "output_tokens": 30, "total_tokens": 150, "duration": 142},
        "cost": None,
        "unpriced_count": 1,
        "last_event": 0,
        "deleted_at": None,
        "started_at": times[0],
        # The answer does not say when it ended.
        "ended_at": times[2],
        "context_refs": [],
        "snapshots": [],
    }
    for name in ("started_at", "ended_at", "context_refs", "snapshots"):
        del found[name]
    assert viewer.get("sessions/").json == {"results": [{**found, **_times(viewer)}], "next": None, "previous": None}


def test_outcome_is_that_of_the_filter(owner: Caller, project: Project) -> None:
    for status in (*Session.Status.values, ""):
        store(project, external_id=f"no run, {status}", status=status or None)
    for name, fields in (
        ("answered", {"agent_steps": []}),
        ("broke", {"error": "out of memory"}),
        ("call failed", {}),
        ("open", {"is_completed": False}),
        ("closed", {"agent_steps": [], "health": ["interrupted"]}),
        ("stopped", {"health": ["stopped"]}),
        ("not ended", {"is_completed": False, "health": ["stopped"]}),
    ):
        store(project, question(), answer(**fields), external_id=name)
    store(project, question(), answer(is_completed=False), external_id="asks", status="paused")
    store(project, question(), answer(), external_id="deleted")
    assert owner.delete("sessions/deleted/").status == 204
    for deleted in ("false", "true"):
        found = {
            one["external_id"]: one["outcome"] for one in owner.get("sessions/", deleted=deleted, limit=50).results
        }
        assert {found[name] for name in found} <= set(OUTCOMES) == set(Outcome.values)
        if deleted == "false":
            # Only a person stops a run.
            assert [found[name] for name in ("closed", "stopped", "not ended")] == ["failed", "stopped", "running"]
        for outcome in OUTCOMES:
            listed = owner.get("sessions/", deleted=deleted, limit=50, outcome=outcome).results
            assert {one["external_id"] for one in listed} == {name for name in found if found[name] == outcome}
            assert listed or deleted == "true"


def _times(caller: Caller) -> dict[str, str]:
    return {name: caller.get("sessions/").results[0][name] for name in ("created_at", "updated_at", "active_at")}


def test_session_ends_with_its_newest_run(owner: Caller, project: Project) -> None:
    def times() -> tuple[str, str | None]:
        session = owner.get("sessions/task-1/").json
        return session["started_at"], session["ended_at"]

    assert owner.post("sessions/", {"external_id": "task-1", "created_at": "2026-01-01T00:00:00Z"}).status == 201
    assert times() == ("2026-01-01T00:00:00.000000Z", None)
    for run, minute in (("a", 1), ("b", 5)):
        begun = {"role": "assistant", "external_id": run, "created_at": f"2026-01-01T00:0{minute}:00Z"}
        owner.post("sessions/task-1/messages/", {**begun, "is_completed": False})
        assert times()[1] is None
        ended = f"2026-01-01T00:0{minute + 2}:00Z"
        owner.post("sessions/task-1/messages/", {**begun, "is_completed": True, "completed_at": ended})
        assert times()[1] == f"2026-01-01T00:0{minute + 2}:00.000000Z"
    owner.patch("sessions/task-1/", {"status": "paused"})
    assert times()[1] is None
    # Over without a run: its last activity.
    owner.post("sessions/", {"external_id": "task-2", "created_at": "2026-01-01T00:00:00Z", "status": "completed"})
    session = owner.get("sessions/task-2/").json
    assert session["ended_at"] == session["active_at"]


def test_session_is_found_by_its_external_id(viewer: Caller, weather: SessionOutcome) -> None:
    assert str(weather.id) == viewer.get("sessions/weather/").json["id"]
    assert ids(viewer.get("sessions/weather/messages/").results) == ["q1", "a1"]


def test_external_id_equal_to_another_id_does_not_hide_it(
    viewer: Caller, project: Project, weather: SessionOutcome
) -> None:
    store(project, external_id=f"x{weather.id}")
    Session.objects.filter(external_id=f"x{weather.id}").update(external_id=str(weather.id))
    assert viewer.get(f"sessions/{weather.id}/").json["external_id"] == "weather"


@pytest.mark.parametrize(
    "name", ["nothing", "0193e0f0-0000-7000-8000-000000000000", "%00", "'; DROP TABLE", "a%0Ab", "❤"]
)
@pytest.mark.parametrize("method", ["get", "patch", "delete"])
@pytest.mark.parametrize("below", ["", "messages/"])
def test_unknown_session_is_a_clear_404_on_all_routes(
    owner: Caller, weather: SessionOutcome, method: str, name: str, below: str
) -> None:
    if below and method != "get":
        method = "post"
    answer = getattr(owner, method)(f"sessions/{name}/{below}")
    assert answer.error == (404, "session_not_found", None)


def test_deleted_session_is_404_on_all_routes(owner: Caller, weather: SessionOutcome) -> None:
    message = weather.messages[1].id
    call = owner.get("tool-calls/").results[0]["uuid"]
    assert owner.delete(f"sessions/{weather.id}/").status == 204
    for path in (
        f"sessions/{weather.id}/",
        "sessions/weather/",
        f"sessions/{weather.id}/messages/",
        f"sessions/{weather.id}/export/",
        f"sessions/{weather.id}/messages/{message}/",
        f"messages/{message}/",
        f"messages/?session={weather.id}",
        f"tool-calls/?session={weather.id}",
        f"tool-calls/{call}/",
        f"chains/?session={weather.id}",
        f"chains/{message}/",
    ):
        assert owner.get(path).status == 404, path
    for path in ("sessions/", "messages/", "tool-calls/", "chains/"):
        assert owner.get(path).results == [], path
    assert owner.post(f"sessions/{weather.id}/messages/", question()).error == (404, "session_not_found", None)
    assert owner.delete(f"messages/{message}/").status == 404
    assert owner.patch(f"messages/{message}/", {"version": 1}).status == 404
    assert owner.post(f"messages/{message}/restore/").status == 404


def test_only_the_fields_that_are_asked_for_are_answered(viewer: Caller, weather: SessionOutcome) -> None:
    assert [{"id": str(weather.id), "title": "The weather"}] == viewer.get("sessions/", fields="title, id").results
    expected = {"resources": {"input_tokens": 120, "output_tokens": 30, "total_tokens": 150, "duration": 142}}
    assert expected == viewer.get(f"sessions/{weather.id}/", fields="resources").json
    assert viewer.get("sessions/", fields="id,secret").error == (400, "invalid_input", "fields")


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, ["three", "two", "one"]),
        ({"order": "asc"}, ["one", "two", "three"]),
        ({"status": "completed"}, ["three"]),
        ({"end_user": "ada"}, ["two", "one"]),
        ({"tag": "red"}, ["two", "one"]),
        ({"tag": ["red", "blue"]}, ["two"]),
        ({"external_id": "two"}, ["two"]),
        ({"title": "WEATHER"}, ["one"]),
        ({"title": "100%"}, ["two"]),
        ({"title": "0_%"}, []),
        ({"has_errors": "true"}, ["three"]),
        ({"has_errors": "false"}, ["two", "one"]),
        ({"created_after": "2026-03-01T12:01:00Z"}, ["three", "two"]),
        ({"created_before": "2026-03-01T12:02:00Z"}, ["two", "one"]),
        ({"created_after": "2026-03-01T12:01:00.000000001Z"}, ["three"]),
        ({"created_after": "2026-03-01"}, ["three", "two", "one"]),
        ({"created_after": "2026-03-02"}, []),
        ({"created_before": "2026-03-02"}, ["three", "two", "one"]),
        ({"created_before": "2026-03-01"}, []),
        ({"project": "owner", "end_user": "ada", "tag": "blue"}, ["two"]),
        ({"status": "", "title": "", "tag": "", "created_after": ""}, ["three", "two", "one"]),
    ],
)
def test_sessions_are_filtered(
    viewer: Caller, project: Project, stranger: Project, parameters: dict[str, Any], expected: list[str]
) -> None:
    def at(minute: int) -> Any:
        return NOON.replace(minute=minute)

    store(project, external_id="one", title="The weather today", end_user="ada", tags=["red"], created_at=at(0))
    store(project, external_id="two", title="100% sure", end_user="ada", tags=["red", "blue"], created_at=at(1))
    store(project, question(), answer(), external_id="three", created_at=at(2), source="import")
    store(stranger, external_id="four", title="The weather today", end_user="ada", tags=["red"], created_at=at(0))
    assert expected == ids(viewer.get("sessions/", **parameters).results)


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("stauts=completed", "stauts", "Unknown parameter. Did you mean status? Allowed: active_after, "),
        ("status=done", "status", "Invalid value. Allowed: planning, running, paused, completed, "),
        ("has_errors=yes", "has_errors", "Invalid value. Allowed: true, false."),
        ("status=error&status=running", "status", "This parameter may be given only once."),
        ("limit=1&limit=2", "limit", "This parameter may be given only once."),
        ("created_after=2026-01-31T09:30:00", "created_after", "The time has no time zone. End it with Z for UTC, or"),
        ("created_after=2026-02-30", "created_after", "This date or time does not exist."),
        ("created_before=today", "created_before", "Invalid time. Expected a time such as 2026-01-31T09:30:00Z or "),
        ("title=%00", "title", "Null characters are not allowed."),
        ("tag=%00", "tag", "Null characters are not allowed."),
        ("&".join(["tag=x"] * 51), "tag", "Too many values: at most 50 are allowed."),
        ("format=json", "format", "Unknown parameter."),
        ("cursor=abc", "cursor", "Invalid cursor."),
    ],
)
def test_invalid_parameter_is_named_and_never_ignored(
    viewer: Caller, weather: SessionOutcome, query: str, field: str, message: str
) -> None:
    answer = viewer.get(f"sessions/?{query}")
    assert (400, "invalid_input", field) == answer.error
    assert answer.json["error"]["message"].startswith(message)


def test_cursors_reach_all_sessions(viewer: Caller, project: Project) -> None:
    for number in range(5):
        store(project, external_id=f"s{number}", created_at=NOON)
    page, seen = viewer.get("sessions/", limit=2), []
    while seen.extend(ids(page.results)) or page.json["next"]:
        page = viewer.get("sessions/", limit=2, cursor=page.json["next"])
    assert sorted(seen) == ["s0", "s1", "s2", "s3", "s4"]


# --- Writing ---------------------------------------------------------------------------------------------------------


def test_created_session_has_a_location_header(owner: Caller) -> None:
    made = owner.post("sessions/", {"external_id": "task-1", "title": "A task", "metadata": {"k": "v"}})
    assert made.status == 201
    session = Session.objects.get(external_id="task-1")
    assert made.headers["Location"] == f"http://testserver/api/v1/sessions/{session.pk}/"
    assert {**owner.get("sessions/task-1/").json, "sent": {"results": [], "refused": []}} == made.json
    assert (session.title, session.metadata, session.status) == ("A task", {"k": "v"}, "running")


def test_making_a_session_twice_gives_the_same(owner: Caller) -> None:
    first = owner.post("sessions/", {"external_id": "task-1", "title": "A task"})
    second = owner.post("sessions/", {"external_id": "task-1"})
    assert (first.status, second.status) == (201, 200)
    assert first.json["id"] == second.json["id"]
    assert second.json["title"] == "A task"


def test_session_without_external_id_is_created_each_time(owner: Caller) -> None:
    made = [owner.post("sessions/", {"title": "A task"}) for _ in range(2)]
    assert [answer.status for answer in made] == [201, 201]
    assert made[0].json["id"] != made[1].json["id"]


def test_session_is_created_with_its_messages(owner: Caller) -> None:
    made = owner.post("sessions/", {"external_id": "task-1", "messages": [question(), answer()]})
    assert made.status == 201
    assert [result["state"] for result in made.json["sent"]["results"]] == ["created", "created"]
    assert made.json["message_count"] == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"status": "done"}, "status"),
        ({"messages": [{"role": "user", "created_at": "2026-03-01T12:00:00"}]}, "messages[0].created_at"),
        ({"messages": [{"role": "user", "agent_steps": [{"thought": "x"}]}]}, "messages[0].agent_steps"),
        ({"messages": [{"role": "tool"}]}, "messages[0].role"),
        ([], None),
    ],
)
def test_invalid_session_is_refused_with_its_path_and_not_stored(owner: Caller, body: Any, field: str | None) -> None:
    status, code, found = owner.post("sessions/", body).error
    assert (400, "invalid_input", field) == (status, code, found)
    assert not Session.with_deleted.exists()


def test_update_changes_only_the_given_fields(owner: Caller, weather: SessionOutcome) -> None:
    changed = owner.patch(f"sessions/{weather.id}/", {"status": "paused", "title": None, "tags": ["new"]})
    assert (
        changed.status,
        *(changed.json[name] for name in ("status", "title", "tags", "end_user")),
    ) == (200, "paused", "", ["new"], "ada")
    assert owner.get(f"sessions/{weather.id}/").json == changed.json


def test_secrets_in_a_session_are_redacted_with_a_receipt(owner: Caller, weather: SessionOutcome) -> None:
    changed = owner.patch(f"sessions/{weather.id}/", {"metadata": {"password": "hunter2"}})
    assert "hunter2" not in json.dumps(changed.json)
    assert changed.json["redactions"][0]["path"] == "metadata.password"


def test_session_is_soft_deleted_once(owner: Caller, weather: SessionOutcome) -> None:
    assert ((gone := owner.delete(f"sessions/{weather.id}/")).status, gone.body) == (204, b"")
    session = Session.with_deleted.get(pk=weather.id)
    assert (session.deleted_at is not None, session.deleted_by) == (True, "key agent")
    assert Message.with_deleted.filter(session_id=weather.id).count() == 2
    assert owner.delete(f"sessions/{weather.id}/").error == (404, "session_not_found", None)


def test_session_is_restored_whole(owner: Caller, weather: SessionOutcome) -> None:
    before = owner.get(f"sessions/{weather.id}/messages/").json
    owner.delete(f"sessions/{weather.id}/")
    trash = owner.get("sessions/", deleted="true").results
    assert [str(weather.id)] == [session["id"] for session in trash]
    restored = owner.post(f"sessions/{weather.id}/restore/")
    assert (restored.status, restored.json["deleted_at"]) == (200, None)
    assert before == owner.get(f"sessions/{weather.id}/messages/").json
    assert owner.post(f"sessions/{weather.id}/restore/").error == (404, "session_not_found", None)
    assert owner.get("sessions/", deleted="true").results == []


def test_data_for_deleted_session_is_refused(owner: Caller, weather: SessionOutcome) -> None:
    owner.delete(f"sessions/{weather.id}/")
    assert owner.post("sessions/", {"external_id": "weather"}).error == (409, "session_deleted", None)


# --- Who may ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("get", "sessions/"),
        ("post", "sessions/"),
        ("get", "sessions/weather/"),
        ("patch", "sessions/weather/"),
        ("delete", "sessions/weather/"),
        ("post", "sessions/weather/restore/"),
        ("get", "sessions/weather/export/"),
        ("get", "sessions/weather/messages/"),
        ("post", "sessions/weather/messages/"),
        ("get", "messages/"),
        ("get", "tool-calls/"),
        ("get", "chains/"),
        ("get", "tools/"),
        ("get", "usage/"),
        ("post", "ingest/"),
    ],
)
def test_request_without_credentials_is_refused(weather: SessionOutcome, method: str, path: str) -> None:
    assert getattr(Caller(), method)(path).error == (401, "not_authenticated", None)


def test_scopes_each_allow_only_their_methods(project: Project, viewer: Caller, weather: SessionOutcome) -> None:
    writer = Caller(create_key(project, "writer", ["write"])[1])
    deleter = Caller(create_key(project, "deleter", ["delete"])[1])
    for caller, method, path in [
        (writer, "get", "sessions/"),
        (writer, "delete", "sessions/weather/"),
        (writer, "post", "sessions/weather/restore/"),
        (deleter, "get", "sessions/weather/"),
        (deleter, "patch", "sessions/weather/"),
        (viewer, "post", "sessions/"),
        (viewer, "patch", "sessions/weather/"),
        (viewer, "delete", "sessions/weather/"),
        (viewer, "post", "sessions/weather/restore/"),
        (viewer, "post", "ingest/"),
        (viewer, "get", "sessions/?deleted=true"),
        (viewer, "get", "messages/?deleted=true"),
    ]:
        assert getattr(caller, method)(path).error == (403, "missing_scope", None), (method, path)
    assert viewer.get("sessions/", deleted="false").status == 200
    assert deleter.delete("sessions/weather/").status == 204
    assert deleter.post("sessions/weather/restore/").status == 200


def test_sessions_of_another_project_are_404(outsider: Caller, weather: SessionOutcome) -> None:
    for path in ("sessions/", "messages/", "tool-calls/", "chains/", "tools/", "usage/"):
        assert outsider.get(path).results == [], path
    session, message = f"sessions/{weather.id}/", f"messages/{weather.messages[1].id}/"
    for method, path in [
        ("get", session),
        ("patch", session),
        ("delete", session),
        ("post", f"{session}restore/"),
        ("get", f"{session}export/"),
        ("get", f"{session}messages/"),
        ("post", f"{session}messages/"),
        ("get", message),
        ("patch", message),
        ("delete", message),
        ("post", f"{message}restore/"),
        ("get", f"chains/{weather.messages[1].id}/"),
    ]:
        assert getattr(outsider, method)(path, *([{}] if method in ("post", "patch") else [])).status == 404, path
    assert Session.objects.filter(pk=weather.id).exists()
    assert outsider.get("sessions/", project="owner").error == (404, "not_found", "project")


def test_two_projects_may_use_the_same_external_id(owner: Caller, outsider: Caller, weather: SessionOutcome) -> None:
    theirs = outsider.post("sessions/", {"external_id": "weather"})
    assert theirs.status == 201
    assert {str(weather.id)} == {owner.get("sessions/weather/").json["id"]}
    assert theirs.json["id"] == outsider.get("sessions/weather/").json["id"]


class TestMembersOfStaff:
    @pytest.fixture
    def superuser(self, db: None) -> Client:
        client = Client(enforce_csrf_checks=True)
        client.force_login(User.objects.create_superuser("ada"))
        return client

    def test_superuser_reads_all_projects_and_names_one_to_write(
        self, superuser: Client, project: Project, stranger: Project, weather: SessionOutcome
    ) -> None:
        theirs = store(stranger, external_id="weather")
        found = superuser.get("/api/v1/sessions/").json()["results"]
        assert {str(weather.id), str(theirs.id)} == {session["id"] for session in found}
        only = superuser.get("/api/v1/sessions/?project=stranger").json()["results"]
        assert [str(theirs.id)] == [session["id"] for session in only]
        assert superuser.get("/api/v1/sessions/weather/").status_code == 409
        assert str(theirs.id) == superuser.get("/api/v1/sessions/weather/?project=stranger").json()["id"]

        superuser.get("/admin/login/")
        superuser.get("/admin/")
        token = superuser.cookies["csrftoken"].value
        body = '{"external_id": "new"}'

        def post(path: str, **headers: str) -> Any:
            return superuser.post(path, body, content_type="application/json", headers=headers)

        assert _error(post("/api/v1/sessions/?project=owner")) == (403, "csrf_failed")
        assert _error(post("/api/v1/sessions/", **{"X-CSRFToken": token})) == (400, "invalid_input")
        assert _error(post("/api/v1/sessions/?project=none", **{"X-CSRFToken": token})) == (404, "not_found")
        made = post("/api/v1/sessions/?project=stranger", **{"X-CSRFToken": token})
        assert (made.status_code, made.json()["project"]) == (201, "stranger")

    def test_role_decides_what_staff_may_do(self, weather: SessionOutcome, project: Project) -> None:
        bob = User.objects.create_user("bob", is_staff=True)
        client = Client()
        client.force_login(bob)
        session = f"/api/v1/sessions/{weather.id}/"
        assert _error(client.get("/api/v1/sessions/")) == (403, "missing_role")
        grant_role(Project.objects.create(slug="other"), bob, Role.OWNER)
        assert client.get("/api/v1/sessions/").json()["results"] == []
        assert client.get(session).status_code == 404
        assert _error(client.get("/api/v1/sessions/?project=owner")) == (404, "not_found")
        grant_role(project, bob, Role.ANALYST)
        assert client.get(session).status_code == 200
        assert client.delete(session).status_code == 404
        assert client.get("/api/v1/sessions/?deleted=true&project=owner").status_code == 404
        grant_role(project, bob, Role.EDITOR)
        assert client.delete(session).status_code == 204
        assert len(client.get("/api/v1/sessions/?deleted=true").json()["results"]) == 1
        assert client.post(f"{session}restore/").status_code == 200

    def test_deletion_records_the_name_of_the_sender(self, weather: SessionOutcome) -> None:
        client = Client()
        client.force_login(User.objects.create_superuser("ada"))
        assert client.delete(f"/api/v1/sessions/{weather.id}/").status_code == 204
        assert Session.with_deleted.get(pk=weather.id).deleted_by == "ada"


def _error(response: Any) -> tuple[int, str]:
    return response.status_code, response.json()["error"]["code"]


# --- Export ----------------------------------------------------------------------------------------------------------


def test_export_has_the_whole_session_in_order(viewer: Caller, project: Project) -> None:
    messages = [{"external_id": f"m{i}", "role": "user", "created_at": NOON.replace(minute=i)} for i in range(45)]
    session = store(project, *messages, external_id="long")
    exported = viewer.get("sessions/long/export/")

    assert exported.headers["Content-Disposition"] == f'attachment; filename="session-{session.id}.json"'
    document = exported.json
    assert [f"m{i}" for i in range(45)] == ids(document.pop("messages"))
    assert document.pop("contexts") == {}
    assert document.pop("scores") == []
    session = viewer.get("sessions/long/").json
    assert {**document, **{name: session[name] for name in session.keys() - document.keys()}} == session


def test_export_sent_back_is_unchanged(owner: Caller, weather: SessionOutcome) -> None:
    exported = owner.get("sessions/weather/export/")
    back = owner.post("sessions/", exported.body)
    assert (back.status, back.json["sent"]["refused"]) == (200, [])
    assert [message["id"] for message in exported.json["messages"]] == [
        message["id"] for message in back.json["sent"]["results"]
    ]
    again = owner.get("sessions/weather/export/").json
    assert [_said(message) for message in exported.json["messages"]] == [
        _said(message) for message in again["messages"]
    ]


def test_export_has_a_message_a_line(viewer: Caller, weather: SessionOutcome) -> None:
    exported = viewer.get("sessions/weather/export/?format=jsonl")

    lines = [json.loads(line) for line in exported.body.splitlines()]
    assert lines == [viewer.get(f"messages/{line['id']}/").json for line in lines]
    assert len(lines) == len(viewer.get("sessions/weather/export/").json["messages"])


def test_export_is_an_openai_chat(viewer: Caller, project: Project) -> None:
    calls = [
        {"id": "call_1", "name": "look", "args": {"at": "\u5317\u4eac"}, "result": {"success": True, "output": "fog"}},
        {"id": "call_1", "name": "fail", "args": {}, "result": {"success": False, "error": "timeout"}},
        {"id": "call_2", "name": "open", "args": {}},
    ]
    steps = [{"thought": "I look.", "tool_calls": calls}, {"thought": "I answer."}]
    asked = {"external_id": "q", "role": "user", "content": "Weather?", "created_at": NOON}
    said = {"external_id": "a", "role": "assistant", "content": "Fog.", "agent_steps": steps, "is_completed": True}
    store(project, asked, {**said, "created_at": NOON + timedelta(minutes=1)}, external_id="chat")
    chat = viewer.get("sessions/chat/export/?format=openai").json["messages"]
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool", "assistant"]
    assert [chat[0]["content"], chat[1]["content"], chat[4]["content"]] == ["Weather?", "I look.", "Fog."]
    asked_for = chat[1]["tool_calls"]
    assert [call["function"]["name"] for call in asked_for] == ["look", "fail", "open"]
    assert json.loads(asked_for[0]["function"]["arguments"]) == {"at": "\u5317\u4eac"}
    assert [message["content"] for message in chat[2:4]] == ["fog", "timeout"]
    assert [message["tool_call_id"] for message in chat[2:4]] == [call["id"] for call in asked_for[:2]]
    assert len({call["id"] for call in asked_for}) == 3


def test_export_as_markdown_keeps_traces_from_being_markup(viewer: Caller, project: Project) -> None:
    hostile = "![x](https://example.com/x.png)\n````\n# No heading <script>"
    call = {"id": "1", "name": hostile, "args": {"a": hostile}, "result": {"success": True, "output": hostile}}
    asked = {"external_id": "q", "role": "user", "content": hostile, "created_at": NOON}
    said = {"external_id": "a", "role": "assistant", "content": hostile, "agent_steps": [{"tool_calls": [call]}]}
    store(project, asked, {**said, "created_at": NOON + timedelta(minutes=1)}, external_id="notes", title=hostile)
    exported = viewer.get("sessions/notes/export/?format=markdown")
    outside, fence = [], ""
    for line in exported.body.decode().splitlines():
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = line
        else:
            # A code span is inert, too: a fence, and no equal one within.
            outside.append(re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", line))
    assert fence == ""
    assert exported.body.decode().count("# No heading") == 6  # title, question, name, args, output, answer
    name = "![x](https://example.com/x.png) ```` # No heading <script>"
    assert f"**Tool call** ````` {name} ````` \u00b7 success\n" in exported.body.decode()
    assert [line for line in outside if line.startswith("##")] == [
        "## User \u00b7 2026-03-01T12:00:00.000000Z",
        "## Assistant \u00b7 2026-03-01T12:01:00.000000Z",
    ]
    assert not any("https" in line or "script" in line for line in outside)


def test_export_can_be_sent_to_another_project(viewer: Caller, outsider: Caller, weather: SessionOutcome) -> None:
    exported = viewer.get("sessions/weather/export/").json
    # The id is taken here; another installation would keep it.
    sent = outsider.post("sessions/", {name: value for name, value in exported.items() if name != "id"})
    assert sent.status == 201, sent.body
    again = outsider.get("sessions/weather/export/").json
    assert [_said(message) for message in exported["messages"]] == [_said(message) for message in again["messages"]]


def _said(message: dict[str, Any]) -> Any:
    return message["role"], message["content"], message["created_at"], _steps(message)


def _steps(message: dict[str, Any]) -> Any:
    """Return the steps without the ids of their message."""
    steps = json.loads(json.dumps(message["agent_steps"]))
    for step in steps:
        step.pop("id")
        for call in step["tool_calls"]:
            assert UUID(call.pop("uuid"))
            call.pop("parent", None)
    return steps


def test_chain_is_exported_as_plain_text(viewer: Caller, project: Project, staff: Client) -> None:
    found = {
        "id": "1",
        "name": "look",
        "args": {"at": "Oslo"},
        "duration": 120,
        "result": {"output": "fog\nStep 9: no"},
    }
    failed = {"id": "2", "name": "fail", "args": {}, "duration": 7, "result": {"success": False, "error": "timeout"}}
    steps = [
        {"thought": "I look\x1b[2J.", "tool_calls": [found, {**failed, "reflection": "Try later."}]},
        {"iteration": 1, "thought": "", "tool_calls": [{"id": "3", "name": "open", "args": {}}]},
    ]
    asked = {"external_id": "q", "role": "user", "content": "Weather?", "created_at": NOON}
    said = {**run_at(1), "agent_steps": steps, "is_completed": False, "content": "Fog.", "error": "Lost."}
    outcome = store(project, asked, said, external_id="text")
    chain = """\
Assistant · 2026-03-01T12:01:00.000000Z · 127 ms
Step 0: I look[U+001B][2J.
  ok look 120 ms {"at": "Oslo"}: fog
    Step 9: no
  failed fail 7 ms {}: timeout
  Reflection: Try later.
Step 1
  open open {}
Answer: Fog.
Error: Lost.
"""
    whole = f"User · 2026-03-01T12:00:00.000000Z\nWeather?\n\n{chain}"
    exported = viewer.get("sessions/text/export/?format=text")
    assert (exported.body.decode(), exported.headers["Content-Type"]) == (whole, "text/plain; charset=utf-8")
    run = outcome.messages[1].id
    one = viewer.get(f"sessions/text/export/?format=text&message={run}")
    assert (one.body.decode(), f"message-{run}.txt" in one.headers["Content-Disposition"]) == (chain, True)
    links = links_of(staff.get(f"/admin/messages_app/message/{run}/change/"))
    assert b"".join(staff.get(links["Export text"])) == chain.encode()  # type: ignore[arg-type]  # it is streamed
    for arguments, expected in ((["text"], whole), (["text", f"--message={run}"], chain)):
        out = StringIO()
        call_command("export", *arguments, "--format", "text", stdout=out)
        assert out.getvalue() == expected
    refused = viewer.get(f"sessions/text/export/?message={run}")
    assert (refused.status, refused.json["error"]["field"]) == (400, "message")
    assert viewer.get(f"sessions/text/export/?format=text&message={uuid4()}").status == 404
    for names, expected in (
        (["nowhere"], "There is no session 'nowhere' in any project."),
        (["nowhere", "--project=owner"], "There is no session 'nowhere' in project 'owner'."),
        (["text", "--message=b"], "There is no message with the id 'b' in session 'text'."),
    ):
        with pytest.raises(CommandError) as error:
            call_command("export", *names, "--format", "text", stdout=StringIO())
        assert (str(error.value), error.value.returncode) == (expected, 2)


def run_at(minute: int) -> dict[str, Any]:
    return {"external_id": "a", "role": "assistant", "created_at": NOON + timedelta(minutes=minute)}

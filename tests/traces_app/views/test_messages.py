"""/messages/ and /sessions/{id}/messages/ over HTTP: shapes, filters, writes and locks."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from access_app.models import Project
from messages_app.models import Message, Session
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.ingest.batch import SessionOutcome
from traces_app.models import AgentStep, ToolCall, ToolResult

from .conftest import Caller


def names(results: list[dict[str, Any]]) -> list[str]:
    return [result["external_id"] for result in results]


def without(document: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in fields}


# --- Shapes ----------------------------------------------------------------------------------------------------------


def test_message_is_returned_with_all_fields(viewer: Caller, weather: SessionOutcome) -> None:
    message = weather.messages[1].id
    found = viewer.get(f"messages/{message}/")
    assert (found.status, found.headers["ETag"]) == (200, '"1"')
    document = found.json
    first, second = document["agent_steps"]
    call_a, call_b = first["tool_calls"]
    call_c, call_d = second["tool_calls"]
    assert {
        "id": str(message),
        "session_id": str(weather.id),
        "external_id": "a1",
        "request_id": "req-1",
        "role": "assistant",
        "content": "Shanghai 31 °C; there is no Atlantis.",
        "knowledge_references": [],
        "agent_steps": [
            {
                "id": first["id"],
                "iteration": 0,
                "thought": "Ask for both cities at once.",
                "tool_calls": [
                    {
                        "id": "call_a",
                        "uuid": call_a["uuid"],
                        "name": "get_weather",
                        "args": {"city": "上海"},
                        "result": {"status": "success", "success": True, "output": "31 °C", "data": {"temp_c": 31}},
                        "duration": 40,
                        "status": "success",
                        "started_at": None,
                        "completed_at": None,
                    },
                    {
                        "id": "call_b",
                        "uuid": call_b["uuid"],
                        "name": "get_weather",
                        "args": {"city": "Atlantis"},
                        "result": {"status": "error", "success": False, "output": "", "error": "unknown city"},
                        "reflection": "The city does not exist.",
                        "duration": 12,
                        "status": "error",
                        "started_at": None,
                        "completed_at": None,
                    },
                ],
                "timestamp": "2026-03-01T12:00:00.000000Z",
            },
            {
                "id": second["id"],
                "iteration": 1,
                "thought": "Ask the researcher.",
                "tool_calls": [
                    {
                        "id": "call_c",
                        "uuid": call_c["uuid"],
                        "name": "ask_researcher",
                        "args": {"q": "Atlantis"},
                        "result": {"status": "success", "success": True, "output": "a myth"},
                        "duration": 90,
                        "status": "success",
                        "started_at": None,
                        "completed_at": None,
                    },
                    {
                        "id": "call_d",
                        "uuid": call_d["uuid"],
                        "name": "search",
                        "args": {"q": "Atlantis"},
                        "result": {"status": "success", "success": True, "output": "3 hits"},
                        "duration": 60,
                        "status": "success",
                        "started_at": None,
                        "completed_at": None,
                        "parent": call_c["uuid"],
                    },
                ],
                "timestamp": None,
            },
        ],
        "is_completed": True,
        "created_at": "2026-03-01T12:00:00.000000Z",
        "completed_at": None,
        "deleted_at": None,
        "version": 1,
        "usage": {"prompt_tokens": 120, "completion_tokens": 30},
        "error": "",
        "duration": 142,
        "step_count": 2,
        "call_count": 4,
        "failure_count": 1,
        "model_error_count": 0,
        "input_tokens": 120,
        "output_tokens": 30,
        "cost": None,
        "unpriced_count": 1,
        "health": [],
        "redactions": [],
        "metadata": {},
    } == without(document, "updated_at")
    assert b'"duration":40,' in found.body
    assert document == viewer.get(f"sessions/{weather.id}/messages/{message}/").json
    assert document == viewer.get("sessions/weather/messages/").results[1]


def test_message_without_steps_has_an_empty_list(viewer: Caller, weather: SessionOutcome) -> None:
    assert viewer.get(f"messages/{weather.messages[0].id}/").json["agent_steps"] == []


def test_references_are_returned_with_all_fields(owner: Caller, weather: SessionOutcome) -> None:
    reference = {
        "id": "chunk-1",
        "content": "Atlantis is a fictional island.",
        "knowledge_id": "k1",
        "chunk_index": 3,
        "knowledge_title": "Myths",
        "start_at": 10,
        "end_at": 41,
        "seq": 2,
        "score": 0.75,
        "match_type": 1,
        "sub_chunk_id": ["chunk-2"],
        "metadata": {"lang": "en"},
        "chunk_type": "text",
        "parent_chunk_id": "chunk-0",
        "image_info": '[{"url": "x"}]',
        "knowledge_filename": "myths.pdf",
        "knowledge_source": "upload",
    }
    empty = {
        "id": "", "content": "", "knowledge_id": "", "chunk_index": 0, "knowledge_title": "", "start_at": 0,
        "end_at": 0, "seq": 0, "score": 0.0, "match_type": 0, "sub_chunk_id": None, "metadata": {}, "chunk_type": "",
        "parent_chunk_id": "", "image_info": "", "knowledge_filename": "", "knowledge_source": "",
    }  # fmt: skip
    body = {"role": "assistant", "content": "x", "knowledge_references": [reference, {}]}
    made = owner.post(f"sessions/{weather.id}/messages/", body)
    assert [reference, empty] == made.json["knowledge_references"]


def test_odd_calls_are_returned_as_sent(owner: Caller, weather: SessionOutcome) -> None:
    calls = [
        {"id": "open", "name": "slow"},
        {"id": "odd", "name": "", "args": "not json", "result": {"data": [1, {"deep": [None]}], "metadata": {"t": 1}}},
        {
            "id": "odd",
            "name": "",
            "args": {"big": 2**70},
            "result": {"data": False, "attachments": [{"type": "image"}]},
        },
        {"id": "zero", "name": "zero", "duration": 0, "result": {"success": False}, "metadata": {"try": 2}},
    ]
    body = {"role": "assistant", "is_completed": False, "agent_steps": [{"tool_calls": calls}]}
    made = owner.post(f"sessions/{weather.id}/messages/", body).json
    found = [without(call, "uuid") for call in made["agent_steps"][0]["tool_calls"]]
    times = {"started_at": None, "completed_at": None}
    assert found == [
        {"id": "open", "name": "slow", "args": {}, "result": None, "duration": None, "status": "pending", **times},
        {
            "id": "odd", "name": "", "args": {"_raw": "not json"}, "duration": None, "status": "success", **times,
            "result": {
                "status": "success", "success": True, "output": "", "data": [1, {"deep": [None]}], "metadata": {"t": 1},
            },
        },
        {
            "id": "odd", "name": "", "args": {"big": 2**70}, "duration": None, "status": "success", **times,
            "result": {
                "status": "success", "success": True, "output": "", "data": False, "attachments": [{"type": "image"}],
            },
        },
        {
            "id": "zero", "name": "zero", "args": {}, "duration": 0, "status": "error", "metadata": {"try": 2}, **times,
            "result": {
                "status": "error", "success": False, "output": "",
                "error": "The tool reported a failure and gave no reason.",
            },
        },
    ]  # fmt: skip
    assert owner.get("messages/", has_errors="false", tool="zero").results == []


def test_fifty_steps_and_five_megabytes_are_returned(owner: Caller, weather: SessionOutcome) -> None:
    steps = [
        {"iteration": i, "tool_calls": [{"id": f"c{i}-{j}", "name": "t", "result": {"output": "x"}} for j in range(5)]}
        for i in range(50)
    ]
    steps[7]["tool_calls"][0]["result"]["output"] = "五" * (5 * 1024 * 1024 // 3)
    made = owner.post(f"sessions/{weather.id}/messages/", {"role": "assistant", "agent_steps": steps})
    found = owner.get(f"messages/{made.json['id']}/").json["agent_steps"]
    assert [[(call["id"], call["result"]["output"]) for call in step["tool_calls"]] for step in found] == [
        [(call["id"], call["result"]["output"]) for call in step["tool_calls"]] for step in steps
    ]


def test_unknown_fields_are_kept_in_the_metadata(owner: Caller, weather: SessionOutcome) -> None:
    body = {"role": "user", "content": "x", "mood": "good", "channel": "web"}
    assert owner.post(f"sessions/{weather.id}/messages/", body).json["metadata"] == {"mood": "good", "channel": "web"}


# --- Leaving out -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "fields", "step_fields", "call_fields"),
    [
        ({"fields": "id,role"}, {"id", "role"}, None, None),
        ({"fields": "version"}, {"version"}, None, None),
        (
            {"fields": "agent_steps", "expand": "steps"},
            {"agent_steps"},
            {"id", "iteration", "thought", "timestamp"},
            None,
        ),
        (
            {"fields": "agent_steps", "expand": "calls"},
            {"agent_steps"},
            {"id", "iteration", "thought", "timestamp", "tool_calls"},
            {"id", "uuid", "name", "args", "duration", "status", "started_at", "completed_at"},
        ),
        (
            {"fields": "agent_steps", "expand": "results,references"},
            {"agent_steps"},
            {"id", "iteration", "thought", "timestamp", "tool_calls"},
            {"id", "uuid", "name", "args", "duration", "status", "started_at", "completed_at", "result"},
        ),
        ({"fields": "agent_steps,knowledge_references", "expand": "references"}, {"knowledge_references"}, None, None),
        ({"fields": "agent_steps,id", "expand": "none"}, {"id"}, None, None),
    ],
)
@pytest.mark.parametrize("path", ["messages/?tool=search&", "messages/{}/?"])
def test_fields_that_are_not_requested_are_left_out(
    viewer: Caller,
    weather: SessionOutcome,
    path: str,
    parameters: dict[str, str],
    fields: set[str],
    step_fields: set[str] | None,
    call_fields: set[str] | None,
) -> None:
    query = "&".join(f"{name}={value}" for name, value in parameters.items())
    found = viewer.get(path.format(weather.messages[1].id) + query).json
    message = found["results"][0] if "results" in found else found
    assert fields == set(message)
    if step_fields is not None:
        assert step_fields == set(message["agent_steps"][0])
    if call_fields is not None:
        assert call_fields == set(message["agent_steps"][0]["tool_calls"][0])


@pytest.mark.parametrize(
    ("query", "field"), [("fields=id,agent", "fields"), ("expand=all", "expand"), ("expand=none,steps", "expand")]
)
@pytest.mark.parametrize("path", ["messages/", "messages/{}/", "sessions/weather/messages/"])
def test_unknown_field_or_part_is_refused(
    viewer: Caller, weather: SessionOutcome, path: str, query: str, field: str
) -> None:
    assert (400, "invalid_input", field) == viewer.get(f"{path.format(weather.messages[1].id)}?{query}").error


# --- Filters ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def mixed(project: Project) -> SessionOutcome:
    """Store a conversation of four messages, a minute apart."""

    def at(minute: int) -> Any:
        return NOON + timedelta(minutes=minute)

    ok = {"id": "c-ok", "name": "search", "duration": 5, "result": {"output": "hits"}}
    bad = {"id": "c-bad", "name": "fetch", "duration": 7, "result": {"error": "timeout"}}
    return store(
        project,
        {"external_id": "sys", "role": "system", "content": "Be kind.", "created_at": at(0)},
        {"external_id": "ask", "role": "user", "request_id": "r1", "created_at": at(1)},
        {
            "external_id": "done",
            "role": "assistant",
            "request_id": "r1",
            "created_at": at(2),
            "duration": 1500,
            "agent_steps": [{"tool_calls": [ok, bad]}],
        },
        {
            "external_id": "busy",
            "role": "assistant",
            "is_completed": False,
            "created_at": at(3),
            "agent_steps": [{"tool_calls": [{"id": "c-open", "name": "search"}]}],
        },
        {"external_id": "broke", "role": "assistant", "error": "model refused", "created_at": at(4)},
        external_id="mixed",
    )


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"role": "system"}, ["sys"]),
        ({"role": "user"}, ["ask"]),
        ({"request_id": "r1"}, ["ask", "done"]),
        ({"external_id": "done"}, ["done"]),
        ({"call_id": "c-bad"}, ["done"]),
        ({"call_id": "c"}, []),
        ({"tool": "search"}, ["done", "busy"]),
        ({"tool": ["fetch", "none"]}, ["done"]),
        ({"tool": "none"}, []),
        ({"tool_status": "error"}, ["done"]),
        ({"tool_status": "pending"}, ["busy"]),
        ({"tool": "search", "tool_status": "error"}, []),
        ({"tool": ["search", "fetch"], "tool_status": "error"}, ["done"]),
        ({"is_completed": "false"}, ["busy"]),
        ({"is_completed": "true"}, ["sys", "ask", "done", "broke"]),
        ({"has_errors": "true"}, ["done", "broke"]),
        ({"has_errors": "false"}, ["sys", "ask", "busy"]),
        ({"outcome": "failed"}, ["done", "broke"]),
        ({"outcome": "done"}, []),
        ({"outcome": "running"}, ["busy"]),
        ({"outcome": "waiting"}, []),
        ({"min_duration": "1500"}, ["done"]),
        ({"min_duration": "1501"}, []),
        ({"max_duration": "1500"}, ["done"]),
        ({"created_after": "2026-03-01T12:02:00Z"}, ["done", "busy", "broke"]),
        ({"created_before": "2026-03-01T12:02:00Z"}, ["sys", "ask"]),
        ({"created_after": "2026-03-01T12:02:00Z", "tool": "search", "before_time": "2026-03-01T12:03:00Z"}, ["done"]),
        ({"before_time": "2026-03-02"}, ["sys", "ask", "done", "busy", "broke"]),
        ({"before_time": "2026-03-01"}, []),
        ({"role": "assistant", "tool": "", "before_time": ""}, ["done", "busy", "broke"]),
    ],
)
def test_messages_are_filtered(
    viewer: Caller, mixed: SessionOutcome, parameters: dict[str, Any], expected: list[str]
) -> None:
    assert expected == names(viewer.get("sessions/mixed/messages/", **parameters).results)
    assert expected[::-1] == names(viewer.get("messages/", **parameters).results)


def test_messages_can_be_filtered_by_existing_session(
    viewer: Caller, mixed: SessionOutcome, weather: SessionOutcome
) -> None:
    assert names(viewer.get("messages/", session=str(weather.id)).results) == ["a1", "q1"]
    assert names(viewer.get("messages/", session="weather", role="assistant").results) == ["a1"]
    assert viewer.get("messages/", session="none").error == (404, "session_not_found", "session")


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("role=tool", "role"),
        ("tool_status=failed", "tool_status"),
        ("status=error", "status"),
        ("is_completed=1", "is_completed"),
        ("min_duration=-1", "min_duration"),
        ("max_duration=1.5", "max_duration"),
        ("before_time=2026-03-01T12:00:00", "before_time"),
        ("before_time=2026-03-01T12:00:00Z&before_time=2026-03-01T12:00:00Z", "before_time"),
        ("page=1&cursor=x", "cursor"),
        ("tools=search", "tools"),
    ],
)
def test_a_bad_filter_is_named(viewer: Caller, weather: SessionOutcome, query: str, field: str) -> None:
    assert (400, "invalid_input", field) == viewer.get(f"messages/?{query}").error
    assert (400, "invalid_input", field) == viewer.get(f"sessions/weather/messages/?{query}").error


def test_messages_of_a_session_refuse_a_session_filter(viewer: Caller, weather: SessionOutcome) -> None:
    assert viewer.get("sessions/weather/messages/?session=other").error == (400, "invalid_input", "session")


def test_huge_numbers_in_filters_find_nothing(viewer: Caller, weather: SessionOutcome) -> None:
    assert viewer.get("messages/", min_duration="9" * 30).results == []


# --- Making and changing ---------------------------------------------------------------------------------------------


def test_created_message_has_a_location_header(owner: Caller, weather: SessionOutcome) -> None:
    made = owner.post("sessions/weather/messages/", {"role": "user", "content": "And tomorrow?", "external_id": "q2"})
    assert made.status == 201
    assert ('"1"', f"http://testserver/api/v1/messages/{made.json['id']}/") == (
        made.headers["ETag"],
        made.headers["Location"],
    )
    assert (made.json["knowledge_references"], made.json["agent_steps"]) == ([], [])
    again = owner.post("sessions/weather/messages/", {"role": "user", "content": "And tomorrow?", "external_id": "q2"})
    assert (200, made.json) == (again.status, again.json)
    assert Session.objects.get(pk=weather.id).message_count == 3


def test_list_of_messages_returns_outcomes_in_order(owner: Caller, weather: SessionOutcome) -> None:
    late = answer(agent_steps=[{"iteration": 5, "tool_calls": [{"id": "late", "name": "late"}]}])
    sent = owner.post("sessions/weather/messages/", [question(), {"role": "user", "external_id": "q2"}, late])
    new = Message.objects.get(external_id="q2")
    ids = [str(message.id) for message in weather.messages]
    assert sent.status == 200
    assert sent.json == {
        "results": [
            {"id": ids[0], "external_id": "q1", "state": "unchanged"},
            {"id": str(new.pk), "external_id": "q2", "state": "created"},
            {"id": ids[1], "external_id": "a1", "state": "refused"},
        ],
        "refused": [
            {
                "path": "[2]",
                "code": "message_completed",
                "message": (
                    "The message is completed. It accepts results of its open calls, but no new steps or calls."
                ),
            }
        ],
    }


def test_empty_list_of_messages_is_accepted(owner: Caller, weather: SessionOutcome) -> None:
    assert owner.post("sessions/weather/messages/", " []").json == {"results": [], "refused": []}


def test_completed_message_refuses_new_steps(owner: Caller, weather: SessionOutcome) -> None:
    late = answer(agent_steps=[{"iteration": 5, "tool_calls": [{"id": "late", "name": "late"}]}])
    assert owner.post("sessions/weather/messages/", late).error == (409, "message_completed", None)
    path = f"messages/{weather.messages[1].id}/"
    assert owner.patch(path, {"version": 1, "agent_steps": late["agent_steps"]}).error == (
        409,
        "message_completed",
        "agent_steps",
    )
    assert ToolCall.objects.count() == 4


def test_deleted_message_refuses_data(owner: Caller, weather: SessionOutcome) -> None:
    owner.delete(f"messages/{weather.messages[0].id}/")
    assert owner.post("sessions/weather/messages/", question()).error == (409, "message_deleted", None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"role": "tool"}, "role"),
        ({"content": "x"}, "role"),
        ([{"role": "user", "content": "fine"}, {"role": "user", "created_at": "yesterday"}], "[1].created_at"),
        ({"role": "user", "created_at": "1999-12-31T00:00:00Z"}, "created_at"),
        (
            {"role": "assistant", "agent_steps": [{"tool_calls": [{"id": "x", "name": 5}]}]},
            "agent_steps[0].tool_calls[0].name",
        ),
        ({"role": "user", "agent_steps": [{}]}, "agent_steps"),
    ],
)
def test_invalid_message_is_refused_with_its_path_and_not_stored(
    owner: Caller, weather: SessionOutcome, body: Any, field: str | None
) -> None:
    assert (400, "invalid_input", field) == owner.post("sessions/weather/messages/", body).error
    assert Message.with_deleted.count() == 2


@pytest.mark.parametrize("body", [b" ", b"{", b"\xff", b"{}x", b'{"role": "user", "role"'])
def test_body_other_than_json_is_refused(owner: Caller, weather: SessionOutcome, body: bytes) -> None:
    assert owner.post("sessions/weather/messages/", body).error == (400, "invalid_json", None)


def test_update_requires_the_current_version(owner: Caller, weather: SessionOutcome) -> None:
    path = f"messages/{weather.messages[1].id}/"
    read = owner.get(path).headers["ETag"]
    changed = owner.patch(path, {"content": "31 °C."}, If_Match=read)
    assert (
        changed.status,
        changed.json["content"],
        changed.json["version"],
        changed.headers["ETag"],
    ) == (200, "31 °C.", 2, '"2"')
    assert owner.patch(path, {"content": "x"}, If_Match=read).error == (412, "precondition_failed", "If-Match")
    assert owner.patch(path, {"content": "x", "version": 1}).error == (409, "version_conflict", "version")
    assert owner.patch(path, {"content": "x"}).error == (428, "precondition_required", "version")
    assert owner.get(path).json["content"] == "31 °C."
    by_session = owner.patch(f"sessions/weather/{path}", {"content": "y", "version": 2})
    assert (by_session.status, by_session.json["version"]) == (200, 3)


def test_update_changes_only_updated_at_among_the_times(owner: Caller, weather: SessionOutcome) -> None:
    path = f"messages/{weather.messages[1].id}/"
    before, after = owner.get(path).json, owner.patch(path, {"version": 1, "content": "x"}).json
    assert (before["created_at"], before["id"]) == (after["created_at"], after["id"])
    assert before["updated_at"] < after["updated_at"]


@pytest.mark.parametrize("header", ["3", '"x"', "*", '"1", "2"', '"' + "9" * 40 + '"'])
def test_invalid_if_match_is_refused(owner: Caller, weather: SessionOutcome, header: str) -> None:
    path = f"messages/{weather.messages[1].id}/"
    assert owner.patch(path, {"content": "x"}, If_Match=header).error == (400, "invalid_input", "If-Match")


def test_unfinished_message_grows_and_is_completed(owner: Caller, weather: SessionOutcome) -> None:
    open_call = {"id": "c1", "name": "search"}
    made = owner.post(
        "sessions/weather/messages/",
        {"role": "assistant", "is_completed": False, "agent_steps": [{"iteration": 0, "tool_calls": [open_call]}]},
    )
    path = f"messages/{made.json['id']}/"
    assert (made.json["is_completed"], made.json["agent_steps"][0]["tool_calls"][0]["result"]) == (False, None)
    step = made.json["agent_steps"][0]
    step["tool_calls"][0] |= {"status": None, "result": {"output": "found"}}
    grown = owner.patch(path, {"agent_steps": [step, {"thought": "enough"}]}, If_Match='"1"').json
    assert [[call["status"] for call in each["tool_calls"]] for each in grown["agent_steps"]] == [["success"], []]
    done = owner.patch(path, {"is_completed": True, "content": "Here."}, If_Match=f'"{grown["version"]}"').json
    assert (
        done["is_completed"],
        done["content"],
        [each["iteration"] for each in done["agent_steps"]],
    ) == (True, "Here.", [0, 1])


# --- Deleting and restoring ------------------------------------------------------------------------------------------


def test_message_is_named_by_its_external_id(
    owner: Caller, viewer: Caller, project: Project, weather: SessionOutcome
) -> None:
    whole = viewer.get(f"messages/{weather.messages[1].id}/").json
    for path in ("messages/a1/", "sessions/weather/messages/a1/"):
        assert viewer.get(path).json == whole
    assert viewer.get("messages/a1/similar/").status == 200
    assert owner.patch("messages/a1/", {"version": 1, "content": "Rain."}).json["content"] == "Rain."
    assert viewer.get("sessions/weather/export/?format=text&message=a1").body.endswith(b"Answer: Rain.\n")
    assert viewer.get("compare/", left="a1", right="q1").json["left"] == whole["id"]
    assert [score["name"] for score in viewer.get("scores/", message="a1").results] == []
    assert owner.post("scores/", {"name": "helpful", "value": True, "message_id": "a1"}).status == 201
    assert [score["name"] for score in viewer.get("scores/", message="a1").results] == ["helpful"]
    store(project, question(external_id="a1"), external_id="other")
    assert viewer.get("messages/a1/").error == (409, "ambiguous_message", None)
    assert viewer.get("sessions/weather/messages/a1/").json["id"] == whole["id"]
    assert owner.delete("sessions/weather/messages/a1/").status == 204
    assert owner.post("sessions/weather/messages/a1/restore/").status == 200


@pytest.mark.parametrize("path", ["messages/{}/", "sessions/weather/messages/{}/"])
def test_message_is_deleted_once_and_restored_whole(owner: Caller, weather: SessionOutcome, path: str) -> None:
    path = path.format(weather.messages[1].id)
    before = owner.get(path).json
    assert owner.delete(path).status == 204
    for gone in (owner.get(path), owner.delete(path), owner.patch(path, {"version": 2})):
        assert gone.error == (404, "message_not_found", None)
    assert names(owner.get("sessions/weather/messages/").results) == ["q1"]
    assert tuple(owner.get("sessions/weather/").json[name] for name in ("message_count", "call_count")) == (1, 0)
    assert (AgentStep.with_deleted.count(), ToolCall.with_deleted.count(), ToolResult.objects.count()) == (2, 4, 4)
    assert names(owner.get("messages/", deleted="true").results) == ["a1"]
    assert names(owner.get("sessions/weather/messages/", deleted="true").results) == ["a1"]
    back = owner.post(f"{path}restore/")
    assert (200, {**before, "version": 3}) == (back.status, {**back.json, "updated_at": before["updated_at"]})
    assert owner.post(f"{path}restore/").error == (404, "message_not_found", None)
    assert owner.get("sessions/weather/").json["call_count"] == 4


def test_message_of_another_session_is_404_and_not_deleted(
    owner: Caller, project: Project, weather: SessionOutcome
) -> None:
    store(project, external_id="other")
    path = f"sessions/other/messages/{weather.messages[1].id}/"
    for wrong in (
        owner.get(path),
        owner.delete(path),
        owner.patch(path, {"version": 1}),
        owner.post(f"{path}restore/"),
    ):
        assert wrong.error == (404, "message_not_found", None)
    assert owner.get(f"messages/{weather.messages[1].id}/").status == 200


@pytest.mark.parametrize(
    "name", ["0193e0f0-0000-7000-8000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "m1", "%00"]
)
def test_unknown_message_is_a_clear_404(owner: Caller, weather: SessionOutcome, name: str) -> None:
    for path in (f"messages/{name}/", f"sessions/weather/messages/{name}/"):
        for missing in (owner.get(path), owner.delete(path), owner.patch(path, {}), owner.post(f"{path}restore/")):
            assert missing.error == (404, "message_not_found", None)


def test_trash_shows_messages_deleted_with_their_session(owner: Caller, weather: SessionOutcome) -> None:
    owner.delete("sessions/weather/")
    assert names(owner.get("messages/", deleted="true").results) == ["a1", "q1"]
    assert names(owner.get("messages/", deleted="true", session="weather", role="assistant").results) == ["a1"]
    assert names(owner.get("messages/", deleted="true", tool="search", limit=1).results) == ["a1"]
    assert owner.get(f"chains/{weather.messages[1].id}/").error == (404, "chain_not_found", None)


# --- All views -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "field"),
    [
        ({"content_type": "application/x-www-form-urlencoded"}, "Content-Type"),
        ({"content_type": "multipart/form-data; boundary=x"}, "Content-Type"),
        ({"content_type": "text/plain"}, "Content-Type"),
        ({"content_type": ""}, "Content-Type"),
        ({"content_type": "application/json; charset=utf-16"}, "Content-Type"),
        ({"Content_Encoding": "br"}, "Content-Encoding"),
        ({"Content_Encoding": "gzip, gzip"}, "Content-Encoding"),
    ],
)
def test_other_media_type_is_refused_with_the_accepted_one(
    owner: Caller, weather: SessionOutcome, headers: dict[str, str], field: str
) -> None:
    refused = owner.post("sessions/weather/messages/", {"role": "user"}, **headers)
    assert (415, "unsupported_media_type", field) == refused.error


def test_refusal_names_the_accepted_media_type(owner: Caller, weather: SessionOutcome) -> None:
    refused = owner.post("sessions/weather/messages/", "role=user", content_type="application/x-www-form-urlencoded")
    assert (
        refused.json["error"]["message"] == "Unsupported media type. Send the body as Content-Type: application/json."
    )


def test_too_large_body_is_refused(owner: Caller, weather: SessionOutcome, settings: Any) -> None:
    settings.TRACESITE_MAX_BODY_BYTES = 100
    for method, path in (
        ("post", "sessions/weather/messages/"),
        ("post", "sessions/"),
        ("post", "ingest/"),
        ("patch", "sessions/weather/"),
    ):
        refused = getattr(owner, method)(path, {"content": "x" * 100})
        assert refused.error == (413, "too_large", None), path
    assert owner.post("sessions/weather/messages/", {"role": "user", "content": "x"}).status == 201


def test_unsupported_methods_are_refused_as_json_errors(owner: Caller, weather: SessionOutcome) -> None:
    refused = owner.post("messages/", {})
    assert refused.error == (405, "method_not_allowed", None)
    assert refused.json["error"]["message"] == "Method POST is not allowed. Allowed: GET, HEAD, OPTIONS."
    assert refused.headers["Allow"] == "GET, HEAD, OPTIONS"
    assert owner.get("nothing/").error == (404, "not_found", None)


def test_answers_that_are_not_wanted_as_json_are_refused(owner: Caller) -> None:
    answer = owner.client.get("/api/v1/sessions/", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (406, "not_acceptable")


def test_response_has_the_request_id(owner: Caller) -> None:
    answer = owner.client.get("/api/v1/sessions/", headers={"X-Request-ID": "abc-1"})
    assert answer.headers["X-Request-ID"] == "abc-1"


def test_text_without_json_of_tools_stands_beside_the_stored_one(viewer: Caller, project: Project) -> None:
    json = '{"needs_clarification": true, "questions": ["Which year?"]}'
    outcome = store(project, question(content=json), answer(content=f"Two are possible.\n{json}"))
    url = f"sessions/{outcome.id}/messages/"
    asked, answered = viewer.get(url).json["results"]
    assert (answered["content"], answered["display_content"]) == (f"Two are possible.\n{json}", "Two are possible.")
    assert "display_content" not in asked
    (_, only) = viewer.get(f"{url}?fields=display_content").json["results"]
    assert {name for name in only if name != "id"} == {"display_content"}

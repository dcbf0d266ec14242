"""Test WeKnora's continue-stream against a running server: live, finished, stopped, failed and reconnected answers."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from typing import Any

import psycopg
import pytest

from benchmarks.faults.site import Site
from benchmarks.live.agents import Agent
from tests.tracesite.foreign_apis.weknora.strict import StreamResponse, frames_of
from tests.tracesite.foreign_apis.weknora.test_frames import put_together
from tests.tracesite.live.conftest import Viewers, another_key, hear
from tests.tracesite.live.test_heartbeats import serving
from tracesite.live.feeds import POLL_SECONDS
from tracesite_sdk import Recorder

pytestmark = pytest.mark.system

Database = psycopg.Connection[Any]

_NUMBERS = count(1)
THINKING = {"type": "llm_request_complete", "data": {"step": "s1", "thought": "Look it up."}}
CALL = {"type": "tool_call_start", "data": {"call_id": "c1", "name": "search", "args": {"q": "rain"}}}
RESULT = {"type": "tool_call_complete", "data": {"call_id": "c1", "name": "search", "result": "3 hits"}}
END = {"type": "workflow_execute_complete", "data": {"result": "It rains."}}
TURN = ["agent_query", "thinking", "tool_call", "tool_result", "answer", "complete"]


class Stream:
    """A request that is read step by step and decoded as in the Go client."""

    def __init__(self, port: int, session: str, message: str, headers: dict[str, str], **query: str) -> None:
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.client.connect()
        # A small buffer, so that a client that does not read falls behind at once.
        self.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        path = f"/weknora/api/v1/sessions/continue-stream/{session}?message_id={message}"
        self.client.request("GET", path, headers={"Content-Type": "application/json", **headers})
        self.answer = self.client.getresponse()
        self.read = bytearray()

    def until(self, kind: str) -> list[str]:
        """Read until a frame of this kind arrives; return the kinds of all frames so far."""
        while kind not in (kinds := [frame.response_type for frame in self.frames]):
            assert self._line(), f"ended after {kinds}"
        return kinds

    def to_the_end(self) -> list[str]:
        while self._line():
            pass
        return [frame.response_type for frame in self.frames]

    def _line(self) -> bytes:
        line = self.answer.readline()
        self.read += line
        return line

    @property
    def frames(self) -> list[StreamResponse]:
        return frames_of(bytes(self.read))

    def close(self) -> None:
        self.client.close()


@pytest.fixture
def follow(port: int, key: dict[str, str]) -> Iterator[Callable[..., Stream]]:
    opened: list[Stream] = []

    def follow(session: str, message: str, headers: dict[str, str] | None = None) -> Stream:
        opened.append(Stream(port, session, message, key if headers is None else headers))
        return opened[-1]

    yield follow
    for stream in opened:
        stream.close()


@pytest.fixture
def ask(port: int, key: dict[str, str]) -> Callable[..., Any]:
    def ask(method: str, path: str, body: Any = None, **headers: str) -> Any:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        sent = {
            **key,
            "Content-Type": "application/json",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        client.request(method, path, None if body is None else json.dumps(body), sent)
        answer = client.getresponse()
        content = answer.read()
        client.close()
        assert answer.status < 300, content
        return json.loads(content) if content else None

    return ask


@pytest.fixture
def run(ask: Callable[..., Any]) -> Callable[..., tuple[str, str]]:
    """Store events as a run of a new session; return the session and the message."""

    def run(*events: dict[str, Any]) -> tuple[str, str]:
        session = f"weknora-{next(_NUMBERS)}"
        send_events(ask, session, *events)
        (message,) = ask("GET", f"/api/v1/sessions/{session}/messages/?role=assistant")["results"]
        return session, message["id"]

    return run


def send_events(ask: Callable[..., Any], session: str, *events: dict[str, Any]) -> None:
    ask("POST", "/api/v1/events/", {"events": [{"session_id": session, **event} for event in events]})


def send(ask: Callable[..., Any], **fields: Any) -> tuple[str, str]:
    """Store a message without events."""
    session = f"weknora-{next(_NUMBERS)}"
    message = {"external_id": "a1", "role": "assistant", **fields}
    stored = ask("POST", "/api/v1/ingest/", {"sessions": [{"external_id": session, "messages": [message]}]})
    return session, stored["sessions"][0]["messages"][0]["id"]


# --- Answers with events ----------------------------------------------------------------------------------------


def test_running_answer_streams_to_its_end_as_over_websocket(
    follow: Callable[..., Stream],
    run: Callable[..., tuple[str, str]],
    ask: Callable[..., Any],
    viewers: Viewers,
    key: dict[str, str],
) -> None:
    session, message = run(THINKING)
    viewer = viewers.socket(key)
    viewer.subscribe(session)
    stream = follow(session, message)
    assert stream.answer.status == 200
    assert stream.answer.headers["Content-Type"] == "text/event-stream"
    assert stream.until("thinking") == TURN[:2]
    send_events(ask, session, CALL)
    assert stream.until("tool_call") == TURN[:3]
    send_events(ask, session, RESULT)
    send_events(ask, session, END)
    assert stream.to_the_end() == TURN
    assert [hear(viewer, "monitor_event")["event"]["type"] for _event in range(4)] == [
        event["type"] for event in (THINKING, CALL, RESULT, END)
    ]
    *_others, answer, complete = stream.frames
    assert (answer.content, answer.done) == ("It rains.", True)
    assert (complete.done, complete.data and complete.data["total_steps"]) == (True, 1)


def test_finished_answer_is_sent_at_once(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], key: dict[str, str]
) -> None:
    session, message = run(THINKING, CALL, RESULT, END)
    for attempt in range(1, 6):
        began = time.monotonic()
        stream = follow(session, message, {"Authorization": f"Bearer {key['X-API-Key']}", "X-Request-ID": "req-9"})
        assert stream.to_the_end() == TURN
        # Otherwise each would wait for the next poll. A busy machine may delay some.
        if time.monotonic() - began < POLL_SECONDS * 0.75:
            break
        assert attempt < 5
    assert stream.answer.headers["X-Request-ID"] == "req-9"
    assert {frame.id for frame in stream.frames} == {"req-9"}


def test_stopped_answer_ends_with_stop_frame(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], ask: Callable[..., Any]
) -> None:
    session, message = run(THINKING, {"type": "agent_complete", "agent": "a", "data": {"result": "It"}})
    stream = follow(session, message)
    stream.until("thinking")
    ask("POST", f"/weknora/api/v1/sessions/{session}/stop", {"message_id": message})
    assert stream.to_the_end() == ["agent_query", "thinking", "answer", "stop"]
    assert [(frame.content, frame.done) for frame in stream.frames[2:]] == [
        ("It", True),
        ("Generation stopped by user", True),
    ]
    assert follow(session, message).to_the_end() == ["agent_query", "thinking", "answer", "stop"]


def test_failed_answer_ends_with_error_done(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], ask: Callable[..., Any]
) -> None:
    session, message = run(CALL)
    stream = follow(session, message)
    stream.until("tool_call")
    send_events(
        ask, session, {"type": "tool_call_error", "data": {"call_id": "c1", "name": "search", "error": "no network"}}
    )
    send_events(ask, session, {**END, "data": {"error": "The model is away."}})
    assert stream.to_the_end() == ["agent_query", "tool_call", "error", "error"]
    assert [(frame.content, frame.done) for frame in stream.frames[2:]] == [
        ("no network", False),
        ("The model is away.", True),
    ]
    assert follow(session, message).to_the_end() == ["agent_query", "tool_call", "error", "error"]


def test_reconnect_replays_from_start_without_duplicates(
    follow: Callable[..., Stream],
    run: Callable[..., tuple[str, str]],
    ask: Callable[..., Any],
    database: Database,
    key: dict[str, str],
) -> None:
    session, message = run(THINKING, CALL)
    key = key | {"X-Request-ID": "req-1"}
    first = follow(session, message, key)
    first.until("tool_call")
    first.close()
    counts = rows_of(database, message)
    send_events(ask, session, RESULT)
    second = follow(session, message, key)
    second.until("tool_result")
    second.close()
    send_events(ask, session, END)
    third = follow(session, message, key)
    assert third.to_the_end() == TURN
    assert put_together([*first.frames, *third.frames])["calls"] == put_together(third.frames)["calls"]
    assert first.frames == third.frames[:3] and second.frames == third.frames[:4]
    assert (counts, rows_of(database, message)) == ((1, 1, 0, 2), (1, 1, 1, 4))


def rows_of(database: Database, message: str) -> tuple[int, ...]:
    tables = ("traces_app_agentstep", "traces_app_toolcall", "traces_app_event")
    steps, calls, events = (
        database.execute(f"SELECT count(*) FROM {table} WHERE message_id = %s", [message]).fetchone()
        for table in tables
    )
    results = database.execute(
        "SELECT count(*) FROM traces_app_toolresult WHERE id IN (SELECT id FROM traces_app_toolcall WHERE message_id = %s)",
        [message],
    ).fetchone()
    assert steps and calls and events and results
    return steps[0], calls[0], results[0], events[0]


def test_answers_of_one_session_stream_separately(follow: Callable[..., Stream], ask: Callable[..., Any]) -> None:
    session = f"weknora-{next(_NUMBERS)}"
    for number in (1, 2, 3):
        own = {"message_id": f"run-{number}"}
        send_events(
            ask,
            session,
            *({**event, **own} for event in (THINKING, CALL, RESULT, {**END, "data": {"result": f"Answer {number}"}})),
        )
    messages = ask("GET", f"/api/v1/sessions/{session}/messages/?role=assistant")["results"]
    for message in messages:
        stream = follow(session, message["id"])
        assert stream.to_the_end() == TURN
        assert stream.frames[4].content == message["content"]


def test_answer_completed_by_patch_ends_stream(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], ask: Callable[..., Any]
) -> None:
    session, message = run(THINKING)
    stream = follow(session, message)
    stream.until("thinking")
    version = ask("GET", f"/api/v1/messages/{message}/?fields=version")["version"]
    ask("PATCH", f"/api/v1/messages/{message}/", {"is_completed": True, "content": "It rains.", "version": version})
    assert stream.to_the_end() == ["agent_query", "thinking", "answer", "complete"]
    assert follow(session, message).to_the_end() == ["agent_query", "thinking", "answer", "complete"]


def test_stream_opened_before_first_event_gets_all_frames(
    follow: Callable[..., Stream], ask: Callable[..., Any]
) -> None:
    session, message = send(ask, is_completed=False)
    stream = follow(session, message)
    stream.until("agent_query")
    send_events(ask, session, *({**event, "message_id": "a1"} for event in (THINKING, CALL)))
    stream.until("tool_call")
    send_events(ask, session, *({**event, "message_id": "a1"} for event in (RESULT, END)))
    assert stream.to_the_end() == TURN
    assert [frame.data and frame.data["event_id"] for frame in stream.frames if frame.response_type == "thinking"] == [
        "step:s1"
    ]


def test_slow_client_receives_all_frames(
    site: Site, agent: Agent, database: Database, ask: Callable[..., Any], key: dict[str, str]
) -> None:
    # With the usual heartbeats, because with those of the other tests a client that reads nothing for 2 s is disconnected.
    with (
        serving(site, None) as server,
        closing(Stream(server.port, str(agent.session), str(agent.message), key)) as stream,
    ):
        read_late(stream, agent, database, ask)


def read_late(stream: Stream, agent: Agent, database: Database, ask: Callable[..., Any]) -> None:
    steps = [{"step": f"s{number}", "thought": f"{number} {'x' * 5_000}"} for number in range(2_400)]
    agent.does(database, steps[0], kind="llm_request_complete")
    stream.until("agent_query")
    # More events than a feed keeps, while the client reads nothing.
    for first in range(1, len(steps), 200):
        agent.does(database, *steps[first : first + 200], kind="llm_request_complete")
    ask("POST", f"/weknora/api/v1/sessions/{agent.session}/stop", {"message_id": str(agent.message)})
    stream.to_the_end()
    thoughts = [frame.content for frame in stream.frames if frame.response_type == "thinking"]
    assert thoughts == [step["thought"] for step in steps]
    assert stream.frames[-1].response_type == "stop"


def test_recorded_run_yields_frames(
    follow: Callable[..., Stream], ask: Callable[..., Any], port: int, key: dict[str, str]
) -> None:
    """The events of our recorder become the frames that WeKnora's client expects."""
    recorder = Recorder(f"http://127.0.0.1:{port}", key=key["X-API-Key"])
    session = f"weknora-{next(_NUMBERS)}"
    with recorder.session(session), recorder.message("Does it rain?") as message:
        recorder.flush(60)
        (run,) = ask("GET", f"/api/v1/sessions/{session}/messages/?role=assistant")["results"]
        stream = follow(session, run["id"])
        with recorder.step() as step:
            step.update("Look it up.")
            with recorder.tool_call("search", {"q": "rain"}, call_id="c1") as call:
                call.result = "3 hits"
        recorder.flush(60)
        stream.until("tool_result")
        message.update("It")
        recorder.flush(60)
        stream.until("answer")
        message.content = "It rains."
    recorder.close(60)
    assert stream.to_the_end() == [*TURN[:4], "answer", "answer", "complete"]
    assert put_together(stream.frames)["texts"] == {
        "thinking step:" + step.id: "Look it up.",
        f"answer answer:{run['id']}": "It rains.",
    }
    loaded = ask("GET", f"/weknora/api/v1/messages/{session}/load")["data"]
    assert [(found["role"], found["content"]) for found in loaded] == [
        ("user", "Does it rain?"),
        ("assistant", "It rains."),
    ]


# --- Answers without events -------------------------------------------------------------------------------------


def test_imported_answer_streams_from_rows(follow: Callable[..., Stream], ask: Callable[..., Any]) -> None:
    steps = [
        {
            "thought": "Look it up.",
            "tool_calls": [{"id": "c1", "name": "search", "args": {"q": "rain"}, "result": "3 hits"}],
        }
    ]
    session, message = send(
        ask, content="It rains.", agent_steps=steps, request_id="req-7", knowledge_references=[{"content": "31 °C"}]
    )
    stream = follow(session, message)
    assert stream.to_the_end() == [*TURN[:4], "references", *TURN[4:]]
    assert {frame.id for frame in stream.frames} == {"req-7"}


def test_growing_answer_without_events_streams_from_rows(
    follow: Callable[..., Stream], ask: Callable[..., Any]
) -> None:
    session, message = send(ask, content="It", is_completed=False)
    stream = follow(session, message)
    assert stream.until("answer") == ["agent_query", "answer"]
    ask("PATCH", f"/api/v1/messages/{message}/", {"content": "It rains.", "version": 1, "is_completed": True})
    assert stream.to_the_end() == ["agent_query", "answer", "answer", "complete"]
    assert [(frame.content, frame.done) for frame in stream.frames[1:3]] == [("It", False), (" rains.", True)]


def test_stopped_answer_without_events_ends_with_stop(follow: Callable[..., Stream], ask: Callable[..., Any]) -> None:
    session, message = send(ask, content="It", is_completed=False)
    stream = follow(session, message)
    stream.until("answer")
    ask("POST", f"/weknora/api/v1/sessions/{session}/stop", {"message_id": message})
    assert stream.to_the_end() == ["agent_query", "answer", "answer", "stop"]
    assert follow(session, message).to_the_end() == ["agent_query", "answer", "stop"]


# --- Heartbeats, ends and errors --------------------------------------------------------------------------------


def test_heartbeats_are_comments(follow: Callable[..., Stream], run: Callable[..., tuple[str, str]]) -> None:
    stream = follow(*run(THINKING))
    while b": heartbeat\n\n" not in stream.read:
        assert stream._line()
    assert stream.until("thinking") == TURN[:2]


def test_events_of_other_answers_do_not_delay_heartbeats(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], ask: Callable[..., Any]
) -> None:
    session, message = run(THINKING)
    stream = follow(session, message)
    stream.until("thinking")
    is_over = threading.Event()

    def go_on() -> None:
        while not is_over.wait(0.2):
            send_events(ask, session, {"type": "agent_start", "message_id": "another"})

    with ThreadPoolExecutor(1) as threads:
        work = threads.submit(go_on)
        try:
            for _ in range(2):
                while stream._line() != b": heartbeat\n":
                    pass
        finally:
            is_over.set()
        work.result()


@pytest.mark.parametrize("what", ["message", "session"])
def test_deleted_message_or_session_ends_stream(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], ask: Callable[..., Any], what: str
) -> None:
    session, message = run(THINKING)
    stream = follow(session, message)
    stream.until("thinking")
    ask(
        "DELETE",
        f"/weknora/api/v1/messages/{session}/{message}" if what == "message" else f"/weknora/api/v1/sessions/{session}",
    )
    assert stream.to_the_end() == ["agent_query", "thinking", "error"]
    assert stream.frames[-1].done


def test_revoked_key_ends_stream(
    follow: Callable[..., Stream], run: Callable[..., tuple[str, str]], site: Site, database: Database
) -> None:
    session, message = run(THINKING)
    token = another_key(site, "faults")
    stream = follow(session, message, {"X-API-Key": token})
    stream.until("thinking")
    database.execute("UPDATE access_app_apikey SET revoked_at = now() WHERE prefix = %s", [token[:8]])
    assert stream.to_the_end() == ["agent_query", "thinking", "error"]
    again = follow(session, message, {"X-API-Key": token})
    assert (again.answer.status, json.loads(again.answer.read())) == (401, {"error": "Unauthorized: invalid API key"})


def test_unstreamable_request_gets_weknora_error(
    follow: Callable[..., Stream],
    run: Callable[..., tuple[str, str]],
    ask: Callable[..., Any],
    site: Site,
    port: int,
    key: dict[str, str],
) -> None:
    session, message = run(
        {**THINKING, "data": {**THINKING["data"]}}, {"type": "workflow_execute_start", "data": {"prompt": "What now?"}}
    )  # type: ignore[dict-item]
    (asked,) = ask("GET", f"/api/v1/sessions/{session}/messages/?role=user")["results"]
    not_found = {"code": 1003, "message": "session not found", "details": {"code": "session_not_found", "field": None}}
    whole = {"success": False, "code": 1003, "error": not_found}
    stranger = {"X-API-Key": another_key(site, "stranger")}
    unknown = "019ca1f6-4000-7000-a000-000000000001"
    for name, id_, headers, status, body in (
        (session, message, {}, 401, {"error": "Unauthorized: missing authentication"}),
        (session, message, {"Authorization": "Bearer ts_no"}, 401, {"error": "Unauthorized: invalid or expired token"}),
        ("unknown", message, key, 404, whole),
        (session, message, stranger, 404, whole),
        (session, unknown, key, 404, {"success": False, "error": "Incomplete message not found"}),
        (session, "no-uuid", key, 404, {"success": False, "error": "Incomplete message not found"}),
        (session, asked["id"], key, 404, {"success": False, "error": "No stream events found"}),
    ):
        stream = follow(name, id_, headers)
        assert (stream.answer.status, json.loads(stream.answer.read())) == (status, body)
    missing = follow(session, "", key)
    assert (missing.answer.status, json.loads(missing.answer.read())["error"]["message"]) == (400, "Missing message ID")
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request("POST", f"/weknora/api/v1/sessions/continue-stream/{session}", headers=key)
    refused = client.getresponse()
    assert (refused.status, json.loads(refused.read())["code"]) == (405, 1004)
    client.close()

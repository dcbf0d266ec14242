"""integrations/eko in the real Eko, whose model is scripted, with a running server. `make sdks` installs Eko."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any, Protocol

import pytest

from benchmarks.faults.site import Site, running
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port

from .test_sdks import AGENTS, get, read

INSTALLED = ROOT / ".sdks" / "eko" / "installed.json"

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not INSTALLED.exists(), reason="needs Eko: `make sdks` installs it where there is npm"),
]

Body = dict[str, Any]
QUESTION = "What is the weather in Oslo?"
ANSWER = "It is 31 degrees in Oslo."
PLAN = """<root><name>Weather</name><thought>Look it up, then answer.</thought><agents>
<agent name="Lookup" id="0" dependsOn=""><task>Look up the weather.</task><nodes><node>Look</node></nodes></agent>
<agent name="Writer" id="1" dependsOn="0"><task>Write the answer.</task><nodes><node>Write</node></nodes></agent>
</agents></root>"""


# --- The model ----------------------------------------------------------------------------------------------------------


def answer_to(messages: list[Body]) -> Body:
    """Return what the model says next. It gives the id of its first call again in its second reply."""
    system = str(messages[0]["content"])
    if "Agent Planner" in system:
        return {"content": PLAN}
    if "for Writer agent" in system:
        return {"content": ANSWER}
    results = sum(message["role"] == "tool" for message in messages)
    if results == 0:
        calls = [_call("call_1", "get_weather", "Oslo"), _call("call_2", "get_traffic", "Oslo")]
        return {"reasoning_content": "The tools know.", "content": "Look it up.", "tool_calls": calls}
    if results == 2:
        return {"content": "", "tool_calls": [_call("call_1", "get_weather", "Bergen")]}
    return {"content": "31 degrees."}


def _call(id_: str, name: str, city: str) -> Body:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps({"city": city})}}


class Model(BaseHTTPRequestHandler):
    """Chat completions, streamed: https://platform.openai.com/docs/api-reference/chat-streaming.

    `broken` fails for agents, `unplanned` for the planner, and `flaky` once.
    """

    flaky = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_planner = "Agent Planner" in str(body["messages"][0]["content"])
        is_flaky = body["model"] == "flaky" and not is_planner and Model.flaky
        Model.flaky = Model.flaky and not is_flaky
        if is_flaky or body["model"] == ("unplanned" if is_planner else "broken"):
            respond(self, 500, {"error": {"message": "The model is overloaded."}})
        else:
            respond(self, 200, b"".join(_events(answer_to(body["messages"]))))

    def log_message(self, format: str, *args: Any) -> None:
        pass


def respond(handler: BaseHTTPRequestHandler, status: int, answer: bytes | Body) -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "text/event-stream" if body is answer else "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _events(message: Body) -> Iterator[bytes]:
    deltas: list[Body] = [{"role": "assistant"}]
    deltas += [{"reasoning_content": message["reasoning_content"]}] if "reasoning_content" in message else []
    deltas += [{"content": piece} for piece in message["content"].partition(" ") if piece]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message.get("tool_calls", ()))]
    common = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_790_000_000, "model": "good"}
    for delta in deltas:
        yield _event({**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    finish = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    yield _event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}], "usage": usage})
    yield b"data: [DONE]\n\n"


def _event(data: Body) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# --- A task -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with serving(Model) as url:
        yield f"{url}/v1"


@pytest.fixture(autouse=True)
def no_session(site: Site) -> None:
    with site.connect() as database:
        database.execute("TRUNCATE messages_app_session, messages_app_message CASCADE")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled module and the agents, beside the packages that are installed."""
    folder = tmp_path_factory.mktemp("eko")
    for name in ("index.ts", "tsconfig.json", "package.json"):
        shutil.copy(ROOT / "integrations" / "eko" / name, folder)
    (folder / "node_modules").symlink_to(INSTALLED.parent / "node_modules")
    done = subprocess.run(["npx", "--no-install", "tsc"], cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
    agent = (AGENTS / "eko_agent.mjs").read_text()
    (folder / "eko3.mjs").write_text(agent)
    (folder / "eko2.mjs").write_text(agent.replace("@eko-ai/eko", "eko2"))
    return folder


class Run(Protocol):
    def __call__(self, what: str = ..., *, task: str = ..., url: str = ..., eko: str = ..., **options: Any) -> Body: ...


@pytest.fixture
def run(built: Path, site: Site, model_url: str) -> Run:
    def run(what: str = "run", *, task: str = "task-1", url: str = "", eko: str = "eko3", **options: Any) -> Body:
        environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environment["TRACESITE_URL"] = url or f"http://127.0.0.1:{site.server.port}"
        environment |= {"TRACESITE_KEY": site.key, "OPENAI_BASE_URL": model_url}
        command = ["node", built / f"{eko}.mjs", what, task, json.dumps(options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout
        found: Body = json.loads(done.stdout)
        return found

    return run


def runs_of(site: Site) -> tuple[Body, list[tuple[Body, Body]]]:
    """Return the only session, and the question and answer of each of its runs."""
    [session] = get(site, "sessions/")
    messages = get(site, f"sessions/{session['id']}/messages/")
    return session, list(zip(messages[::2], messages[1::2], strict=True))


def steps_of(answer: Body) -> list[Any]:
    """Return the steps of a run, each with its calls."""
    return [
        (step["agent_name"], step["thought"], [call_of(call) for call in step.get("tool_calls", ())])
        for step in answer["agent_steps"]
    ]


def call_of(call: Body) -> tuple[Any, ...]:
    result = call["result"] or {}
    return call["id"], call["name"], call["args"], call["status"], result.get("output") or result.get("error")


def events_of(site: Site, type_: str) -> list[Body]:
    [session] = get(site, "sessions/")
    return get(site, f"sessions/{session['id']}/events/?type={type_}&limit=1000")


# --- What is recorded ---------------------------------------------------------------------------------------------------

STATUSES = ("plan_start", "execute_start", "execute_complete")
OSLO, BERGEN = {"city": "Oslo"}, {"city": "Bergen"}
PLANNED = ("Planer", PLAN, [])
LOOKED_UP = [
    (
        "Lookup",
        "Look it up.",
        [
            ("call_1", "get_weather", OSLO, "success", "31 degrees in Oslo"),
            ("call_2", "get_traffic", OSLO, "error", "Error: no traffic data for Oslo"),
        ],
    ),
    ("Lookup", "", [("call_1", "get_weather", BERGEN, "success", "31 degrees in Bergen")]),
    ("Lookup", "31 degrees.", []),
    ("Writer", "", []),
]


@pytest.mark.parametrize(("eko", "planned"), [("eko3", [PLANNED]), ("eko2", [])])
def test_task_is_recorded(run: Run, site: Site, eko: str, planned: list[Any]) -> None:
    found = run(eko=eko)
    assert (found["result"]["taskId"], found["result"]["result"]) == ("task-1", ANSWER)
    assert (found["warnings"], found["left"], found["report"]["failed"]) == ([], 0, 0)
    assert found["report"]["delivered"] == found["report"]["recorded"] == len(found["messages"])
    assert {message["type"] for message in found["messages"]} >= {
        "workflow",
        "llm",
        "agent",
        "tool",
        "session",
        "prompt",
    }
    session, [(question, answer)] = runs_of(site)
    assert (session["external_id"], session["title"], session["status"]) == ("task-1", "Weather", "completed")
    assert [(agent["name"], agent["dependsOn"]) for agent in session["workflow"]["agents"]] == [
        ("Lookup", []),
        ("Writer", ["task-1-00"]),
    ]
    assert (question["content"], answer["content"], answer["is_completed"]) == (QUESTION, ANSWER, True)
    assert (answer["health"], answer["input_tokens"], answer["output_tokens"]) == ([], 400, 40)
    assert steps_of(answer) == [*planned, *LOOKED_UP]
    assert [agent["status"] for agent in answer["metadata"]["agents"].values()] == ["done", "done"]


def test_requests_prompts_and_times_are_recorded(run: Run, site: Site) -> None:
    run(deltas=True)
    _session, [(_question, answer)] = runs_of(site)
    steps = answer["agent_steps"]
    inputs = [step["input"] for step in read(site, f"messages/{answer['id']}/?expand=inputs")["agent_steps"]]
    assert [[message["role"] for message in asked["messages"]] for asked in inputs] == [
        ["system", "user"],
        ["system", "user"],
        ["system", "user", "assistant", "tool"],
        ["system", "user", "assistant", "tool", "assistant", "tool"],
        ["system", "user"],
    ]
    assert [[tool["name"] for tool in asked.get("tools", ())] for asked in inputs] == [
        [],
        *[["get_weather", "get_traffic"]] * 3,
        [],
    ]
    assert inputs[0]["parameters"]["temperature"] == 0.7
    assert {step["model"] for step in steps} == {"good"}
    assert steps[1]["reasoning_content"] == "The tools know."
    assert all(step["duration"] >= step["time_to_first_token"] >= 0 for step in steps[1:])
    assert all(call["duration"] >= 0 for step in steps for call in step.get("tool_calls", ()))
    prompts = [(event["data"]["agent_name"], event["data"]["kind"]) for event in events_of(site, "prompt_build")]
    assert prompts == [(name, kind) for name in ("Planer", "Lookup", "Writer") for kind in ("system", "user")]
    pieces = [event["data"]["token"] for event in events_of(site, "llm_request_start") if event["level"] == "trace"]
    assert "".join(pieces) == f"The tools know.Look it up.31 degrees.{ANSWER}"


def test_modified_task_has_two_runs(run: Run, site: Site) -> None:
    run("modify")
    session, runs = runs_of(site)
    assert session["status"] == "completed"
    assert [question["content"] for question, _answer in runs] == [QUESTION, "And in Bergen?"]
    assert [steps_of(answer) for _question, answer in runs] == [[PLANNED, *LOOKED_UP]] * 2


def test_pauses_are_recorded(run: Run, site: Site) -> None:
    run("pause")
    [session] = get(site, "sessions/")
    said = [event["data"]["status"] for type_ in STATUSES for event in events_of(site, f"workflow_{type_}")]
    assert (session["status"], said) == (
        "completed",
        ["planning", "running", *["paused", "running"] * 2, "completed"],
    )


OVERLOADED = "AI_APICallError: The model is overloaded."
AGAIN = "The request failed, and was sent again."


@pytest.mark.parametrize(
    ("what", "model", "status", "error", "errors"),
    [
        ("run", "broken", "error", OVERLOADED, [None, *[AGAIN] * 7, OVERLOADED]),
        ("run", "unplanned", "error", OVERLOADED, [AGAIN, OVERLOADED]),
        ("run", "flaky", "completed", "", [None, AGAIN, None, None, None, None]),
        ("abort", "good", "aborted", "AbortError: Operation was interrupted", [None]),
        ("throw", "good", "error", "Error: The callback of the host fails.", [None]),
    ],
)
def test_failure_is_recorded(
    run: Run, site: Site, what: str, model: str, status: str, error: str, errors: list[str | None]
) -> None:
    run(what, model=model)
    session, [(_question, answer)] = runs_of(site)
    assert (session["status"], answer["error"], answer["is_completed"]) == (status, error, True)
    assert [step.get("metadata", {}).get("error") for step in answer["agent_steps"]] == errors


def test_process_that_ends_without_stop_delivers(run: Run, site: Site) -> None:
    run("leave")
    session, [(_question, answer)] = runs_of(site)
    assert (session["status"], steps_of(answer)) == ("completed", [PLANNED, *LOOKED_UP])


# --- What goes wrong ----------------------------------------------------------------------------------------------------


def assert_agent_is_undisturbed(found: Body, run: Run) -> None:
    alone = run(enabled=False)
    assert (alone["messages"], alone["warnings"]) == ([], [])
    assert (found["result"], found["heard"]) == (alone["result"], alone["heard"])


def test_server_that_is_away_changes_nothing(run: Run) -> None:
    found = run(url=f"http://127.0.0.1:{free_port()}", timeout=500)
    assert_agent_is_undisturbed(found, run)
    assert (found["left"], found["report"]["delivered"]) == (found["report"]["recorded"], 0)
    assert [text.split(":")[1] for text in found["warnings"]] == [" Messages wait", " The end came first"]


def test_server_that_never_answers_changes_nothing(run: Run) -> None:
    is_over = Event()

    class Silent(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            is_over.wait()

    with serving(Silent) as url:
        found = run(url=url, timeout=500)
        is_over.set()
    assert_agent_is_undisturbed(found, run)
    assert (found["left"], found["report"]["delivered"]) == (found["report"]["recorded"], 0)


def test_wrong_key_changes_nothing(run: Run) -> None:
    found = run(key="ts_wrong", timeout=500)
    assert_agent_is_undisturbed(found, run)
    assert found["report"]["delivered"] == 0
    assert " answers 401 " in found["warnings"][0]


@pytest.mark.parametrize("options", [{"url": "example.com"}, {"key": "ts_\n"}, {"key": ""}])
def test_invalid_options_record_nothing(run: Run, options: Body) -> None:
    found = run(**options)
    assert (found["messages"], found["result"]["result"], len(found["warnings"])) == ([], ANSWER, 1)


@pytest.mark.parametrize("what", ["subscribe", "freeze"])
def test_failing_hooks_change_nothing(run: Run, what: str) -> None:
    found = run(what)
    assert_agent_is_undisturbed(found, run)
    assert found["report"]["failed"] > 0
    assert [text.split(":")[1] for text in found["warnings"]] == [" Something is not recorded"]


def test_messages_are_sent_again_until_they_are_taken(run: Run) -> None:
    attempts: list[list[str]] = []

    class Recovering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            attempts.append([message["id"] for message in body])
            respond(self, 503 if len(attempts) < 3 else 200, {"results": [], "refused": []})

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with serving(Recovering) as url:
        found = run(url=url)
    assert found["left"] == 0
    taken = [id_ for attempt in attempts[2:] for id_ in attempt]
    assert taken == [message["id"] for message in found["messages"]]
    assert len({*taken}) == len(taken)
    assert attempts[0][0] == attempts[1][0] == taken[0]


def test_lost_messages_are_told_in_the_trace(run: Run, site: Site) -> None:
    found = run(queueSize=20_000)
    report = found["report"]
    assert 0 < report["dropped"] < report["recorded"] == report["dropped"] + report["delivered"]
    session, [(_question, answer)] = runs_of(site)
    assert (session["status"], answer["is_completed"]) == ("completed", True)
    assert "events_dropped" in answer["health"]
    assert answer["metadata"]["recorder"] == {"dropped": report["dropped"]}
    assert [text.split(":")[1] for text in found["warnings"]] == [" Messages are lost"]


def test_message_that_is_refused_keeps_no_other(run: Run, site: Site) -> None:
    found = run("nest")
    assert (found["report"]["refused"], found["left"]) == (1, 0)
    session, [(_question, answer)] = runs_of(site)
    assert session["status"] == "completed"
    assert answer["metadata"]["recorder"] == {"dropped": 1}
    weather, _traffic = answer["agent_steps"][1]["tool_calls"]
    assert (weather["status"], steps_of(answer)[2:]) == ("pending", LOOKED_UP[1:])
    assert [text.split(":")[1] for text in found["warnings"]] == [" Messages are lost"]
    assert_agent_is_undisturbed(found, run)

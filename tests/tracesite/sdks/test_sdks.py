"""Unmodified SDKs, each a process of its own that runs the same agent and sends its traces to a running server.

`make sdks` installs them. They are configured by environment variables alone.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults.site import Site, running
from sdk.tests.paths import ROOT
from sdk.tests.recorder.provider import ADVICE, ANSWER, REASONING, provider
from tracesite_sdk.transcripts.parsing.message_shapes import messages_in

pytestmark = pytest.mark.system

AGENTS = Path(__file__).parent / "agents"
QUESTION = "Plan a day in Oslo."
VARIABLES = dict(re.findall(r"^    # (.+)\n    export (.+)$", (ROOT / "README.md").read_text(), re.M))
"""The environment variables of SDKs in the README."""


@dataclass(frozen=True)
class Sdk:
    agent: str
    name: str
    """The line of the README that is above its environment variables."""
    environment: str = "sdks"
    """Below .sdks; "" for that of the tests."""
    has_session: bool = True
    has_agents: bool = True
    end_user: str = ""
    has_tools: bool = True
    """Whether its requests have the schemas of the tools."""
    has_first_token: bool = True
    has_texts_beside_calls: bool = True
    """Whether a reply that is repeated in later requests keeps its text beside its calls."""
    reasoning: str = ""
    """What the model thought before it called tools, in APIs that say it."""
    scores: tuple[str, ...] = ()
    """The scores that its agent sends; see assert_scores_are_attached."""

    @property
    def folder(self) -> Path:
        if not self.environment:
            return Path(sys.prefix)
        return ROOT / ".sdks" / self.environment

    def command(self) -> list[Path | str]:
        if not self.environment:
            return [sys.executable, AGENTS / f"{self.agent}.py"]
        if self.environment != "node":
            return [self.folder / "bin" / "python", AGENTS / f"{self.agent}.py"]
        # A module finds its packages from its own place.
        return ["node", shutil.copy(AGENTS / f"{self.agent}.mjs", self.folder)]

    def variables(self, url: str, key: str) -> dict[str, str]:
        given = VARIABLES[self.name].replace("http://127.0.0.1:8000", url).replace("ts_...", key)
        return dict(text.split("=", 1) for text in given.split())


_USED = ("get_weather used", "ask_expert used")
AGENTS_CHAT = Sdk(
    "agents_exporter",
    "OpenAI Agents SDK, Chat Completions",
    end_user="sdk-user",
    has_tools=False,
    has_first_token=False,
)
AGENTS_RESPONSES = Sdk(
    "agents_processor",
    "OpenAI Agents SDK, Responses, with the recorder's processor",
    end_user="sdk-user",
    has_first_token=False,
    reasoning=REASONING,
)
"""These two have a line of code instead of environment variables; test_openai_agents.py runs them."""
SDKS = [
    Sdk(
        "otel_genai_openai",
        "OpenTelemetry, with its instrumentation for OpenAI",
        has_tools=False,
        has_first_token=False,
        has_texts_beside_calls=False,
    ),
    Sdk("openinference_openai", "OpenInference (Phoenix)"),
    Sdk("logfire_pydantic_ai", "Logfire, Pydantic AI"),
    Sdk("openllmetry_openai", "OpenLLMetry (Traceloop)", end_user="sdk-user"),
    Sdk("langfuse_openai", "Langfuse", end_user="sdk-user", scores=("helpful", "mood", *_USED)),
    Sdk(
        "langfuse2_openai",
        "Langfuse before version 3",
        environment="langfuse2",
        has_agents=False,
        has_first_token=False,
        end_user="sdk-user",
        scores=("helpful", *_USED),
    ),
    Sdk("ai_sdk_openai", "AI SDK (Vercel)", environment="node", has_session=False),
    Sdk("agentops_openai", "AgentOps", environment="agentops", has_session=False),
    Sdk(
        "langsmith_langgraph",
        "LangSmith, LangChain, LangGraph",
        environment="",
        end_user="sdk-user",
        scores=("helpful",),
    ),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with provider() as url:
        yield url


@pytest.mark.parametrize("sdk", SDKS, ids=lambda sdk: sdk.agent)
def test_sdk_sends_the_whole_run(sdk: Sdk, site: Site, model_url: str, tmp_path: Path) -> None:
    if not sdk.folder.exists():
        pytest.skip(f"{sdk.folder} is not there; `make sdks` installs it, for the AI SDK where there is npm")
    run(sdk, site, model_url, tmp_path)
    assert_run_is_whole(sdk, site)


def assert_run_is_whole(sdk: Sdk, site: Site) -> None:
    """Compare what is stored with the one run that all agents make, but for what the row of the SDK excepts."""
    [session] = get(site, "sessions/")
    assert (session["external_id"] == "sdk-session") == sdk.has_session
    assert (session["status"], session["end_user"] or "") == ("completed", sdk.end_user)
    prompt, answer = get(site, f"sessions/{session['id']}/messages/")
    assert (prompt["role"], prompt["content"]) == ("user", QUESTION)
    assert (answer["role"], answer["content"], answer["is_completed"]) == ("assistant", ANSWER, True)
    assert (answer["input_tokens"], answer["output_tokens"], answer["failure_count"]) == (490, 55, 1)
    planner, expert = ("planner", "expert") if sdk.has_agents else (None, None)
    assert [(step.get("agent_name"), step["model"], step["thought"]) for step in answer["agent_steps"]] == [
        (planner, "gpt-4o-mini", ""),
        (planner, "gpt-4o-mini", "The expert knows more."),
        (expert, "gpt-4o-mini", ADVICE),
        (planner, "gpt-4o-mini", ""),
    ]
    [weather, traffic], [expert], *others = [step["tool_calls"] for step in answer["agent_steps"]]
    assert others == [[], []]
    assert call(weather) == ("call_weather", "get_weather", {"city": "Oslo"}, "success", "31 degrees in Oslo")
    assert call(traffic)[:4] == ("call_traffic", "get_traffic", {"city": "Oslo"}, "error")
    assert "no traffic data for Oslo" in traffic["result"]["error"]
    assert_inputs_are_known(sdk, read(site, f"messages/{answer['id']}/?expand=inputs")["agent_steps"])
    assert_scores_are_attached(sdk, site, answer, {"get_weather": weather, "ask_expert": expert})
    question = {"question": "What to eat in Oslo?"}
    assert call(expert) == ("call_expert", "ask_expert", question, "success", ADVICE)
    reasoning = [sdk.reasoning, sdk.reasoning, "", ""]
    assert [step.get("reasoning_content", "") for step in answer["agent_steps"]] == reasoning


_ASKED = [("system", "You plan trips."), ("user", QUESTION)]
_CALLED = [
    *(("call", "get_weather"), ("call", "get_traffic")),
    *(("result", "31 degrees in Oslo"), ("result", "no traffic data for Oslo")),
]
_ADVISED = [("assistant", "The expert knows more."), ("call", "ask_expert"), ("result", ADVICE)]
INPUTS = [
    _ASKED,
    [*_ASKED, *_CALLED],
    [("system", "You are an expert on food."), ("user", "What to eat in Oslo?")],
    [*_ASKED, *_CALLED, *_ADVISED],
]
"""What the model was asked in each step, however a wire writes it."""


def assert_inputs_are_known(sdk: Sdk, steps: list[dict[str, Any]]) -> None:
    inputs = [step["input"] for step in steps]
    kept = [one for one in _ADVISED if sdk.has_texts_beside_calls or one[0] != "assistant"]
    assert [list(said_in(each)) for each in inputs] == [*INPUTS[:3], [*_ASKED, *_CALLED, *kept]]
    tools = ["get_weather", "get_traffic", "ask_expert"] if sdk.has_tools else []
    of_expert: list[str] = []
    assert [names_of(each.get("tools", [])) for each in inputs] == [tools, tools, of_expert, tools]
    # Langfuse before version 3 writes parameters as texts.
    assert [float(each["parameters"]["temperature"]) for each in inputs] == [0.2] * 4
    # The request to the expert is not streamed by each SDK.
    streamed = [step.get("time_to_first_token") for place, step in enumerate(steps) if place != 2]
    assert [time is not None and time >= 0 for time in streamed] == [sdk.has_first_token] * 3


def said_in(asked: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if asked.get("system"):
        yield "system", str(asked["system"])
    for message in messages_in(asked["messages"]):
        if message.content:
            yield message.role, str(message.content)
        yield from (("call", call.name) for call in message.calls)
        for result in message.results:
            # LangGraph adds a sentence to an error.
            failed = "no traffic data for Oslo" in str(result.output)
            yield "result", "no traffic data for Oslo" if failed else str(result.output)


def names_of(tools: list[Any]) -> list[str]:
    return [tool.get("function", tool)["name"] for tool in tools]


def table_under(heading: str, text: str) -> dict[str, list[str]]:
    """Return the cells of each row of the first table below a heading, by the first cell."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = section[section.index("\n| ") + 1 :].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1:] for row in rows}


def test_documentation_says_what_each_sdk_sends() -> None:
    said = {
        sdk.name: ["yes" if one else "no" for one in sent_by(sdk)] for sdk in [*SDKS, AGENTS_CHAT, AGENTS_RESPONSES]
    }
    assert table_under("SDKs", (ROOT / "docs" / "otlp.md").read_text()) == said


def sent_by(sdk: Sdk) -> list[bool]:
    """Return what a row of the table in the documentation says, in the order of its columns."""
    of_requests = [sdk.has_tools, sdk.has_first_token, sdk.has_texts_beside_calls]
    return [sdk.has_session, bool(sdk.end_user), sdk.has_agents, *of_requests]


def test_each_line_of_the_readme_is_run_by_an_sdk() -> None:
    assert sorted(VARIABLES) == sorted(sdk.name for sdk in SDKS)


def assert_scores_are_attached(sdk: Sdk, site: Site, answer: dict[str, Any], calls: dict[str, Any]) -> None:
    about = {
        "helpful": (0.75, "Exact.", answer["id"], None),
        **{f"{name} used": (True, "", answer["id"], call["uuid"]) for name, call in calls.items()},
        "mood": ("calm", "", None, None),
    }
    scores = get(site, "scores/")
    assert {score["session_id"] for score in scores} <= {answer["session_id"]}
    assert {
        score["name"]: (score["value"], score["comment"], score["message_id"], score["call_id"]) for score in scores
    } == {name: about[name] for name in sdk.scores}


def test_langfuse_uploads_the_images_of_its_values(site: Site, model_url: str, tmp_path: Path) -> None:
    langfuse = next(sdk for sdk in SDKS if sdk.agent == "langfuse_openai")
    if not langfuse.folder.exists():
        pytest.skip(f"{langfuse.folder} is not there; `make sdks` installs it")
    run(replace(langfuse, agent="langfuse_media"), site, model_url, tmp_path)
    [session] = get(site, "sessions/")
    answer = get(site, f"sessions/{session['id']}/messages/?role=assistant")[0]
    data = (AGENTS / "chart.png.base64").read_text().strip()
    [drawn] = [call for step in answer["agent_steps"] for call in step.get("tool_calls", ())]
    assert drawn["result"]["attachments"] == [{"type": "image", "media_type": "image/png", "data": data}]
    [ref] = [step["input_ref"] for step in answer["agent_steps"] if step.get("input_ref")]
    asked = read(site, f"sessions/{session['id']}/contexts/{ref}/")["input"]["messages"]
    assert asked[0]["content"][0]["image_url"]["url"] == f"data:image/png;base64,{data}"


def run(sdk: Sdk, site: Site, model_url: str, folder: Path) -> None:
    variables = sdk.variables(f"http://127.0.0.1:{site.server.port}", site.key)
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = subprocess.run(
        sdk.command(),
        cwd=folder,  # AgentOps leaves a log there
        env=environment | variables | {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "sk-test"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (ANSWER in done.stdout, done.returncode) == (True, 0), done.stderr


@pytest.fixture(autouse=True)
def no_session(site: Site) -> None:
    """Delete the sessions of other tests, because all runs have the same."""
    with site.connect() as database:
        database.execute(
            "TRUNCATE messages_app_session, messages_app_message, traces_app_span, traces_app_score CASCADE"
        )


def get(site: Site, path: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = read(site, path)["results"]
    return results


def read(site: Site, path: str) -> Any:
    headers = {"Authorization": f"Bearer {site.key}", "Prefer": "wait=10"}
    status, body = site.server.get(f"/api/v1/{path}", headers)
    assert status == 200, body
    return json.loads(body)


def call(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["id"], found["name"], found["args"], found["status"], found["result"]["output"]

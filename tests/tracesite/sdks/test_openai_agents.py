"""The OpenAI Agents SDK as a process of its own, with its own exporter and with our processor. `make sdks` installs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.faults.site import Site, running

from .provider import ADVICE, ANSWER, REASONING, provider
from .test_sdks import AGENTS, QUESTION, ROOT, call, get, read

NEWEST, OLDEST = "agents", "agents_oldest"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


@pytest.fixture(scope="module")
def model_url() -> Iterator[str]:
    with provider() as url:
        yield url


@pytest.fixture(autouse=True)
def no_session(site: Site) -> None:
    with site.connect() as database:
        database.execute("TRUNCATE messages_app_session, messages_app_message, traces_app_span CASCADE")


def run(script: str, api: str, site: Site, model_url: str, environment_name: str = NEWEST) -> None:
    python = ROOT / ".sdks" / environment_name / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; `make sdks` installs it")
    environment = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    environment |= {"TRACESITE_URL": f"http://127.0.0.1:{site.server.port}", "TRACESITE_KEY": site.key}
    environment |= {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "sk-test", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, AGENTS / f"{script}.py", api], env=environment, capture_output=True, text=True, timeout=120
    )
    assert (ANSWER in done.stdout, done.returncode, done.stderr) == (True, 0, "")


@pytest.mark.parametrize(
    ("script", "api", "environment"),
    [
        ("agents_exporter", "chat", NEWEST),
        ("agents_processor", "chat", NEWEST),
        ("agents_processor", "responses", NEWEST),
        ("agents_exporter", "chat", OLDEST),
        ("agents_processor", "chat", OLDEST),
        ("agents_processor", "responses", OLDEST),
    ],
)
def test_agent_is_recorded_with_its_content(
    script: str, api: str, environment: str, site: Site, model_url: str
) -> None:
    run(script, api, site, model_url, environment)
    [session] = get(site, "sessions/")
    assert (session["external_id"], session["status"], session["end_user"]) == ("sdk-session", "completed", "sdk-user")
    prompt, answer = get(site, f"sessions/{session['id']}/messages/")
    assert (prompt["role"], prompt["content"]) == ("user", QUESTION)
    assert (answer["role"], answer["content"], answer["is_completed"]) == ("assistant", ANSWER, True)
    assert (answer["input_tokens"], answer["output_tokens"], answer["failure_count"]) == (490, 55, 1)
    reasoning = REASONING if api == "responses" else ""
    steps = answer["agent_steps"]
    assert [(one["agent_name"], one["model"], one["thought"], one.get("reasoning_content", "")) for one in steps] == [
        ("planner", "gpt-4o-mini", "", reasoning),
        ("planner", "gpt-4o-mini", "The expert knows more.", reasoning),
        ("expert", "gpt-4o-mini", ADVICE, ""),
        ("planner", "gpt-4o-mini", "", ""),
    ]
    [weather, traffic], [expert], *others = [step["tool_calls"] for step in steps]
    assert others == [[], []]
    assert call(weather) == ("call_weather", "get_weather", {"city": "Oslo"}, "success", "31 degrees in Oslo")
    assert call(traffic)[:4] == ("call_traffic", "get_traffic", {"city": "Oslo"}, "error")
    assert "no traffic data for Oslo" in str(traffic["result"])
    question = {"question": "What to eat in Oslo?"}
    assert call(expert) == ("call_expert", "ask_expert", question, "success", ADVICE)
    if script == "agents_processor":
        assert_inputs(
            api, [step["input"] for step in read(site, f"messages/{answer['id']}/?expand=inputs")["agent_steps"]]
        )


def assert_inputs(api: str, inputs: list[dict[str, Any]]) -> None:
    """Compare the inputs of the agent's steps with what it asked, as far as the SDK says it."""
    first, second, expert, last = (one["messages"] for one in inputs)
    if api == "chat":
        assert [messages.pop(0)["role"] for messages in (first, second, expert, last)] == ["system"] * 4
    else:
        assert all(one["system"] for one in inputs)
        assert [len(one.get("tools", ())) for one in inputs] == [3, 3, 0, 3]
    assert [messages[0]["content"] for messages in (first, expert)] == [QUESTION, "What to eat in Oslo?"]
    assert (second[: len(first)], last[: len(second)]) == (first, second)
    assert "31 degrees in Oslo" in repr(second) and ADVICE in repr(last)


def test_exporter_says_no_content_of_responses(site: Site, model_url: str) -> None:
    run("agents_exporter", "responses", site, model_url)
    [session] = get(site, "sessions/")
    [answer] = get(site, f"sessions/{session['id']}/messages/")
    assert (answer["content"], answer["input_tokens"], answer["output_tokens"]) == ("", 490, 55)
    names = [one["name"] for step in answer["agent_steps"] for one in step["tool_calls"]]
    assert sorted(names) == ["ask_expert", "get_traffic", "get_weather"]

"""The OpenAI Agents SDK as a process of its own, with its own exporter and with our processor. `make sdks` installs it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from benchmarks.faults.site import Site, running
from sdk.tests.paths import ROOT
from sdk.tests.recorder.provider import ANSWER, provider

from .test_sdks import AGENTS, AGENTS_CHAT, AGENTS_RESPONSES, assert_run_is_whole, get

pytestmark = pytest.mark.system

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
    environment |= {"OPENAI_BASE_URL": model_url, "OPENAI_API_KEY": "sk-test", "PYTHONPATH": f"{ROOT}:{ROOT / 'sdk'}"}
    done = subprocess.run(
        [python, AGENTS / f"{script}.py", api], env=environment, capture_output=True, text=True, timeout=300
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
    assert_run_is_whole(AGENTS_RESPONSES if api == "responses" else AGENTS_CHAT, site)


def test_exporter_says_no_content_of_responses(site: Site, model_url: str) -> None:
    run("agents_exporter", "responses", site, model_url)
    [session] = get(site, "sessions/")
    [answer] = get(site, f"sessions/{session['id']}/messages/")
    assert (answer["content"], answer["input_tokens"], answer["output_tokens"]) == ("", 490, 55)
    names = [one["name"] for step in answer["agent_steps"] for one in step["tool_calls"]]
    assert sorted(names) == ["ask_expert", "get_traffic", "get_weather"]

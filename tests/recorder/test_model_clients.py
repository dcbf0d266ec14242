"""Test what a server stores of OpenAI's and Anthropic's clients: the same rows for every API and mode."""

from __future__ import annotations

from typing import Any

import pytest

from access_app.models import Project
from sdk.tests.recorder.provider import ADVICE, ANSWER, REASONING
from sdk.tests.recorder.real_clients import CASES, call, client_of, recorded, run, url
from sdk.tests.recorder.scripted_agents import (
    EXPERT,
    MODEL,
    PLANNER,
    QUESTION,
    Chat,
    plan,
)
from tracesite_sdk.testing import recording

from .conftest import answers, inputs_of, send

__all__ = ["url"]


@pytest.mark.parametrize(("api", "mode", "is_async"), CASES)
def test_every_client_api_and_mode_gives_the_same_rows(
    api: Any, mode: str, is_async: bool, url: str, project: Project
) -> None:
    with recording() as recorder:
        client = recorded(recorder, client_of(api, url, is_async=is_async))
        with recorder.message(QUESTION):
            assert run(client, plan(api(client, mode), recorder.tool_call)) == ANSWER
    send(project, recorder)
    [answer] = answers(project)
    assert (answer["content"], answer["is_completed"], answer["error"]) == (ANSWER, True, "")
    assert (answer["input_tokens"], answer["output_tokens"], answer["failure_count"]) == (490, 55, 1)
    reasoning = "" if api is Chat else REASONING
    assert [(step["model"], step["thought"], step.get("reasoning_content", "")) for step in answer["agent_steps"]] == [
        (MODEL, "", reasoning),
        (MODEL, "The expert knows more.", reasoning),
        (MODEL, ADVICE, ""),
        (MODEL, "", ""),
    ]
    assert_inputs(api, inputs_of(answer))
    is_streamed = "streamed" in mode or mode == "stream"
    assert ["time_to_first_token" in step for step in answer["agent_steps"]] == [is_streamed] * 4
    [weather, traffic], [expert], *others = [step["tool_calls"] for step in answer["agent_steps"]]
    assert others == [[], []]
    assert call(weather) == ("call_weather", "get_weather", {"city": "Oslo"}, "success", "31 degrees in Oslo")
    assert call(traffic)[:4] == ("call_traffic", "get_traffic", {"city": "Oslo"}, "error")
    assert "no traffic data for Oslo" in traffic["result"]["error"]
    assert call(expert) == ("call_expert", "ask_expert", {"question": "What to eat in Oslo?"}, "success", ADVICE)


def assert_inputs(api: Any, inputs: list[Any]) -> None:
    """Compare the inputs of the agent's steps with what it asked."""
    systems = [PLANNER, PLANNER, EXPERT, PLANNER]
    if api is Chat:
        assert [one["messages"].pop(0)["content"] for one in inputs] == systems
    else:
        assert [one["system"] for one in inputs] == systems
    questions = [QUESTION, QUESTION, "What to eat in Oslo?", QUESTION]
    assert [one["messages"][0] for one in inputs] == [{"role": "user", "content": question} for question in questions]
    assert [len(one.get("tools", ())) for one in inputs] == [3, 3, 0, 3]
    assert {one["parameters"]["model"] for one in inputs} == {MODEL}
    # Each request repeats the one before.
    first, second, _expert, last = (one["messages"] for one in inputs)
    assert (second[: len(first)], last[: len(second)]) == (first, second)
    assert "31 degrees in Oslo" in repr(second) and ADVICE in repr(last)

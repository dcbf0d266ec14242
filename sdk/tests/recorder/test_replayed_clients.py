"""Tests from traces: clients of models are answered from a recorded run."""

from __future__ import annotations

from typing import Any

import pytest

for package in ("openai", "anthropic"):
    pytest.importorskip(package, reason="needs the clients of OpenAI and Anthropic")

import anthropic
import openai

from sdk.tests.recorder.provider import ANSWER
from sdk.tests.recorder.real_clients import CASES, client_of, run, url
from sdk.tests.recorder.real_clients import recorded as observed
from sdk.tests.recorder.scripted_agents import QUESTION, Chat, Messages, plan
from tracesite_sdk.recorder.time_machine.recorded import Recorded
from tracesite_sdk.recorder.time_machine.replaying import PathChanged, replaying
from tracesite_sdk.testing import recording, tree

__all__ = ["url"]

MODES = [case for case in CASES if case[1] in ("create", "create streamed", "stream")]


@pytest.mark.parametrize(("api", "mode", "is_async"), MODES)
def test_clients_of_models_are_answered_from_the_recording(api: Any, mode: str, is_async: bool, url: str) -> None:
    with recording() as recorder:
        client = observed(recorder, client_of(api, url, is_async=is_async))
        with recorder.message(QUESTION):
            assert run(client, plan(api(client, mode), recorder.tool_call)) == ANSWER
    recorded = Recorded.of(recorder.events)
    with recording() as again, replaying(recorded) as replay:
        client = observed(again, client_of(api, f"{replay.url}/v1", is_async=is_async))
        with again.message(QUESTION):
            assert run(client, plan(api(client, mode), again.tool_call)) == ANSWER
    # The expert is not asked, because the tool that asks it is answered, too.
    *before, expert, last = tree(recorder.events)
    assert tree(again.events) == [*before, last], tree(recorder.events)


def test_client_that_asks_more_often_gets_an_error() -> None:
    with pytest.raises(PathChanged) as raised, replaying(Recorded(calls=[], replies=[])) as replay:
        for api, error in ((Chat, openai.BadRequestError), (Messages, anthropic.BadRequestError)):
            with pytest.raises(error, match="The recorded run asked the model 0 times, not more."):
                run(client := client_of(api, f"{replay.url}/v1"), api(client, "create").ask("Hello", []))
        with pytest.raises(openai.NotFoundError, match="are answered from the recorded run, not /models"):
            client_of(Chat, f"{replay.url}/v1").models.list()
        address = replay.url
    assert str(raised.value).endswith("+ (the model replies)")
    with pytest.raises(openai.APIConnectionError):
        run(client := client_of(Chat, address, max_retries=0), Chat(client, "create").ask("Hello", []))

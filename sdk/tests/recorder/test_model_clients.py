"""Test the recording of OpenAI's and Anthropic's clients: the real SDKs, over HTTP, on a scripted provider."""

from __future__ import annotations

import asyncio
import json
import re
import textwrap
from typing import Any

import pytest

for package in ("openai", "anthropic"):
    pytest.importorskip(package, reason="needs the clients of OpenAI and Anthropic")

import anthropic
import openai
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from sdk.tests.paths import ROOT
from sdk.tests.recorder import provider as provider_module
from sdk.tests.recorder.conftest import data_of
from sdk.tests.recorder.provider import ADVICE, ANSWER
from sdk.tests.recorder.real_clients import CLIENTS, client_of, recorded, run, url
from sdk.tests.recorder.scripted_agents import (
    MODEL,
    QUESTION,
    Chat,
    Messages,
    Responses,
    awaited,
    plan,
)
from tracesite_sdk import Recorder
from tracesite_sdk.recorder.guard import guarded
from tracesite_sdk.recorder.instruments import model_clients
from tracesite_sdk.recorder.instruments.model_apis import CHAT, MESSAGES, RESPONSES, Api
from tracesite_sdk.recorder.instruments.model_clients import parsed_body
from tracesite_sdk.testing import FIRST_TOKEN, RecorderForTests, recording, tree

__all__ = ["url"]


# --- Without decorated tools --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", CLIENTS)
def test_results_in_next_request_end_the_calls(api: Any, url: str) -> None:
    with recording() as recorder:
        client = recorded(recorder, client_of(api, url))
        with recorder.message(QUESTION):
            run(client, plan(api(client, "create")))
    assert tree(recorder.events) == [
        "message",
        f"  step {MODEL}",
        "    get_weather",
        "    get_traffic",
        f"  step {MODEL}",
        "    ask_expert",
        f"  step {MODEL}",
        f"  step {MODEL}",
    ]
    results = {data["name"]: data["result"]["output"] for data in data_of(recorder.events, "tool_call_complete")}
    assert results == {
        "get_weather": "31 degrees in Oslo",
        "get_traffic": "Error: no traffic data for Oslo",
        "ask_expert": ADVICE,
    }


@pytest.mark.parametrize("api", CLIENTS)
def test_requests_without_message_open_one_until_the_answer(api: Any, url: str) -> None:
    with recording() as recorder:
        client = recorded(recorder, client_of(api, url))
        run(client, plan(api(client, "create")))
    begun, ended = (data_of(recorder.events, f"workflow_execute_{name}") for name in ("start", "complete"))
    assert [data["prompt"] for data in begun] == [QUESTION, "What to eat in Oslo?"]
    assert [data["result"] for data in ended] == [ADVICE, ANSWER]
    assert len(data_of(recorder.events, "tool_call_complete")) == 3


def test_request_that_names_a_response_continues_its_message(url: str) -> None:
    with recording() as recorder, client_of(Responses, url) as client:
        recorder.openai(client)
        first = client.responses.create(model=MODEL, input=QUESTION)
        client.responses.create(model=MODEL, input="Go on.", previous_response_id=first.id)
    assert tree(recorder.events)[0] == "message"
    assert tree(recorder.events).count("message") == 1


# --- Errors, retries, streams that end early ----------------------------------------------------------------------------


def options_of(api: Any) -> dict[str, Any]:
    question: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    if api is Responses:
        return {"input": question}
    return {"messages": question, **({"max_tokens": 9} if api is Messages else {})}


def create_of(api: Any, client: Any) -> Any:
    return {
        Chat: lambda: client.chat.completions,
        Responses: lambda: client.responses,
        Messages: lambda: client.messages,
    }[api]().create


def last_step(recorder: RecorderForTests) -> dict[str, Any]:
    found: dict[str, Any] = data_of(recorder.events, "llm_request_complete", "llm_request_error")[-1]
    return found


@pytest.mark.parametrize("api", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_error_of_provider_reaches_caller_and_the_step(api: Any, stream: bool, url: str) -> None:
    with recording() as recorder, client_of(api, url, max_retries=1) as client:
        recorded(recorder, client)
        with recorder.message(QUESTION), pytest.raises((openai.InternalServerError, anthropic.InternalServerError)):
            create_of(api, client)(model="overloaded", stream=stream, **options_of(api))
    step = last_step(recorder)
    assert "The model is overloaded." in step["error"]
    assert step["metadata"] == {"status_code": 500, "retries": 1}


@pytest.mark.parametrize("api", CLIENTS)
def test_retry_inside_the_client_is_the_same_step(api: Any, url: str) -> None:
    with recording() as recorder, client_of(api, url) as client:
        recorded(recorder, client)
        with (
            recorder.message(QUESTION),
            create_of(api, client)(model="flaky", stream=True, **options_of(api)) as stream,
        ):
            list(stream)
    assert tree(recorder.events) == ["message", "  step flaky", "    get_weather", "    get_traffic"]
    assert last_step(recorder)["metadata"]["retries"] == 1
    assert "error" not in last_step(recorder)


@pytest.mark.parametrize("api", CLIENTS)
def test_stream_that_is_left_early_is_marked(api: Any, url: str) -> None:
    with recording() as recorder, client_of(api, url) as client:
        recorded(recorder, client)
        with recorder.message(QUESTION), create_of(api, client)(model="slow", stream=True, **options_of(api)) as stream:
            next(iter(stream))
    assert last_step(recorder)["metadata"]["incomplete"] == "The stream was not read to its end."


@pytest.mark.parametrize("api", CLIENTS)
def test_stream_that_nobody_reads_ends_with_its_message(api: Any, url: str) -> None:
    with recording() as recorder, client_of(api, url) as client:
        recorded(recorder, client)
        with recorder.message(QUESTION):
            stream = create_of(api, client)(model=MODEL, stream=True, **options_of(api))
        assert last_step(recorder)["metadata"]["incomplete"] == "The stream was not read to its end."
        stream.close()


@pytest.mark.parametrize("api", CLIENTS)
def test_stream_that_the_server_cuts_is_marked(api: Any, url: str) -> None:
    with recording() as recorder, client_of(api, url) as client:
        recorded(recorder, client)
        with recorder.message(QUESTION):
            list(create_of(api, client)(model="cut", stream=True, **options_of(api)))
    assert last_step(recorder)["metadata"]["incomplete"] == "The stream was not read to its end."


# --- The caller sees no difference --------------------------------------------------------------------------------------


@pytest.mark.parametrize("api", CLIENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_recorded_client_returns_what_a_plain_one_does(api: Any, stream: bool, url: str) -> None:
    found = []
    with recording() as recorder:
        for is_recorded in (False, True):
            with client_of(api, url) as client:
                if is_recorded:
                    assert recorded(recorder, client) is client
                value = create_of(api, client)(model=MODEL, stream=stream, **options_of(api))
                content = [item.to_dict() for item in value] if stream else value.to_dict()
                found.append((type(value), content))
    assert found[0] == found[1]
    assert tree(recorder.events) == ["message", f"  step {MODEL}", "    get_weather", "    get_traffic"]


def test_only_the_given_client_is_recorded(url: str) -> None:
    with recording() as recorder, client_of(Chat, url) as client, client_of(Chat, url) as other:
        recorder.openai(client)
        assert "create" not in vars(other.chat.completions)
        assert not hasattr(type(client.chat.completions).create, "_tracesite_client")
        other.chat.completions.create(model=MODEL, **options_of(Chat))
    assert recorder.events == []


def test_client_that_is_recorded_twice_makes_one_step(url: str) -> None:
    with recording() as recorder, client_of(Chat, url) as client:
        recorder.openai(recorder.openai(client))
        client.chat.completions.create(model=MODEL, **options_of(Chat))
    assert tree(recorder.events).count(f"  step {MODEL}") == 1


def test_disabled_recorder_leaves_the_client_untouched(url: str) -> None:
    recorder = Recorder(enabled=False)
    with client_of(Chat, url) as client:
        recorder.openai(client)
        assert "create" not in vars(client.chat.completions)


@pytest.mark.parametrize("api", CLIENTS)
@pytest.mark.parametrize("mode", ["create", "create streamed", "stream"])
@pytest.mark.parametrize("broken", ["place", "_answered", "_received", "_reply", "_keep"])
def test_failure_inside_never_reaches_the_agent(
    api: Any, mode: str, broken: str, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("broken")

    owner = {"place": "_Requests", "_keep": "_Stream"}.get(broken, "_Request")
    monkeypatch.setattr(getattr(model_clients, owner), broken, guarded(fail) if broken == "_keep" else fail)
    with recording(strict=False) as recorder:
        client = recorded(recorder, client_of(api, url))
        with recorder.message(QUESTION):
            assert run(client, plan(api(client, mode), recorder.tool_call)) == ANSWER
    assert recorder.guard.failures or (mode == "create" and broken in ("_received", "_keep"))
    begun = data_of(recorder.events, "llm_request_start")
    ended = data_of(recorder.events, "llm_request_complete", "llm_request_error")
    assert {data["step"] for data in begun} == {data["step"] for data in ended}


@pytest.mark.parametrize("api", CLIENTS)
def test_later_changes_of_the_messages_are_not_recorded(api: Any, url: str) -> None:
    given = options_of(api)
    messages = given["input" if api is Responses else "messages"]
    with recording() as recorder, client_of(api, url) as client:
        recorded(recorder, client)
        with recorder.message("Hello"):
            stream = create_of(api, client)(model=MODEL, stream=True, **given)
            messages[0]["content"] = "Changed."
            messages.append({"role": "user", "content": "Another."})
            list(stream)
    (begun,) = data_of(recorder.events, "llm_request_start")
    assert begun["request"]["input" if api is Responses else "messages"] == [{"role": "user", "content": QUESTION}]
    assert last_step(recorder)["time_to_first_token"] == FIRST_TOKEN


def test_headers_of_a_request_are_not_recorded(url: str) -> None:
    with recording() as recorder, client_of(Chat, url) as client:
        recorder.openai(client)
        client.chat.completions.create(model=MODEL, extra_headers={"X-Secret": "swordfish"}, **options_of(Chat))
    assert "swordfish" not in str(recorder.events)
    assert "sk-test" not in str(recorder.events)
    assert QUESTION in str(data_of(recorder.events, "llm_request_start"))


def test_requests_in_parallel_tasks_belong_to_their_messages(url: str) -> None:
    async def one(recorder: RecorderForTests, client: Any) -> None:
        with recorder.message(QUESTION):
            await plan(Chat(client, "create streamed"), recorder.tool_call)

    async def all_at_once(recorder: RecorderForTests) -> None:
        async with client_of(Chat, url, is_async=True) as client:
            recorder.openai(client)
            await asyncio.gather(*(one(recorder, client) for _ in range(5)))

    with recording() as recorder:
        asyncio.run(all_at_once(recorder))
    lines = tree(recorder.events)
    run_of_one = [
        "message",
        f"  step {MODEL}",
        "    get_weather",
        "    get_traffic",
        f"  step {MODEL}",
        "    ask_expert",
        f"  step {MODEL}",
        f"  step {MODEL}",
    ]
    assert lines == run_of_one * 5


# --- Helpers of the SDKs that parse -------------------------------------------------------------------------------------


class Answer(BaseModel):
    city: str


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "path", ["chat.completions", "beta.chat.completions", "responses", "messages", "beta.messages"]
)
def test_parse_is_one_step_with_its_calls(path: str, is_async: bool, url: str) -> None:
    api = Responses if path == "responses" else Messages if "messages" in path else Chat
    with recording() as recorder:
        client = recorded(recorder, client_of(api, url, is_async=is_async))
        resource = client
        for name in path.split("."):
            resource = getattr(resource, name)
        format_name = {Chat: "response_format", Responses: "text_format", Messages: "output_format"}[api]

        async def parsed() -> Any:
            return await awaited(resource.parse(model=MODEL, **options_of(api), **{format_name: Answer}))

        with recorder.message(QUESTION):
            found = run(client, parsed())
    assert type(found).__name__.startswith("Parsed")
    assert tree(recorder.events) == ["message", f"  step {MODEL}", "    get_weather", "    get_traffic"]
    assert data_of(recorder.events, "llm_request_start")[0]["request"][format_name] == "Answer"


# --- Responses that no client has seen ----------------------------------------------------------------------------------

BODIES = {
    CHAT: provider_module.chat({"messages": [{"role": "system", "content": ""}]}),
    RESPONSES: provider_module.response({"input": ""}),
    MESSAGES: provider_module.messages({"messages": []}),
}
ANY_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def changed(draw: st.DrawFn, value: Any) -> Any:
    """Return a value of which any part may be replaced by anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(ANY_JSON)
    if isinstance(value, dict):
        return {name: changed(draw, item) for name, item in value.items()}
    return [changed(draw, item) for item in value] if isinstance(value, list) else value


@given(data=st.data(), api=st.sampled_from(list(BODIES)))
def test_any_response_is_read_without_error(data: st.DataObject, api: Api) -> None:
    whole, events = BODIES[api]
    response = changed(data.draw, whole)
    api.reply(response if isinstance(response, dict) else {})
    parsed = [json.loads(event.split(b"data: ")[1]) for event in events if b"data: {" in event]
    api.streamed([event for event in (changed(data.draw, one) for one in parsed) if isinstance(event, dict)])


@pytest.mark.parametrize("api", BODIES)
def test_stream_cut_at_any_byte_is_read_and_unfinished(api: Api) -> None:
    body = b"".join(BODIES[api][1])
    whole = parsed_body(api, body)
    assert (whole.is_finished, [call.name for call in whole.calls]) == (True, ["get_weather", "get_traffic"])
    ends = [parsed_body(api, body[:end]).is_finished for end in range(0, len(body), 7)]
    assert ends == sorted(ends)
    assert ends.count(False) > len(ends) / 2


# --- Documentation --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_example_of_the_docs_is_recorded(package: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    document = (ROOT / "docs" / "recorder.md").read_text()
    found = re.search(rf"(?m)^    from {package} import (.*\n)(?:    .*\n)+", document)
    assert found is not None
    example = textwrap.dedent(found[0])
    assert len(example.splitlines()) == 3
    monkeypatch.setenv("OPENAI_BASE_URL", url)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url.removesuffix("/v1"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-test")
    with recording() as recorder:
        names: dict[str, Any] = {"recorder": recorder}
        exec(example, names)
        names["client"].close()
    message, step, *calls = tree(recorder.events)
    assert (message, step.split()[0], calls) == ("message", "step", ["    get_weather", "    get_traffic"])

"""OpenAI's Responses API: its items, bodies and logs, and the counts of real files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import openai_responses
from tracesite_sdk.formats.openai_responses import recognises, transcripts
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import Lines
from tracesite_sdk.transcripts.entries import Prompt, Reply
from tracesite_sdk.transcripts.outline import digests_of

from . import reading
from .reading import counted, figures, load, mangled, other_files

USER = {"role": "user", "content": "Weather in Paris?"}
THINKS = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "I look it up."}]}
SAYS = {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]}  # fmt: skip
ASKS = {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "weather", "arguments": '{"city": "Paris"}'}
ANSWER = {"type": "function_call_output", "call_id": "c1", "output": "sunny"}
DONE = {"type": "message", "role": "assistant", "id": "msg_2", "content": [{"type": "output_text", "text": "Sunny."}]}
NOON = 1_741_089_600
USAGE = {"input_tokens": 9, "output_tokens": 3, "total_tokens": 12}


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(openai_responses, document)


def only(document: object) -> list[records.Message]:
    return reading.messages_of(openai_responses, document)


def calls(messages: list[records.Message]) -> list[records.ToolCall]:
    return [call for message in messages for step in message.agent_steps or () for call in step.tool_calls or ()]


def outline(messages: list[records.Message]) -> list[tuple[Any, ...]]:
    """Return role and content of each message, and for an answer the names of the calls of each step."""
    return [
        (m.role, m.content, [[c.name for c in step.tool_calls or ()] for step in m.agent_steps or ()])
        if m.role == "assistant"
        else (m.role, m.content)
        for m in messages
    ]


def lines(*values: Any) -> Lines:
    return reading.lines(list(values))


def response(*output: dict[str, Any], id_: str = "resp_1", **fields: Any) -> dict[str, Any]:
    return {"object": "response", "id": id_, "model": "m-1", "created_at": NOON, "status": "completed", "usage": USAGE, "output": list(output), **fields}  # fmt: skip


def replies(document: object) -> list[Reply]:
    (transcript,) = transcripts(document, lambda where, why: pytest.fail(f"{where}: {why}"))
    return [entry for entry in transcript.entries() if isinstance(entry, Reply)]


# --- Wrappings ----------------------------------------------------------------------------------------------------

ITEMS = [USER, THINKS, SAYS, ASKS, ANSWER, DONE]
REQUEST = {"model": "m-1", "input": [USER, THINKS, SAYS, ASKS, ANSWER]}
WRAPPINGS: dict[str, Any] = {
    "a list of items": ITEMS,
    "lines of items": lines(*ITEMS),
    "a list of lists": [ITEMS],
    "a page of items, the newest first": {"object": "list", "data": ITEMS[::-1], "has_more": False},
    "a body that holds both": {**REQUEST, "output": [DONE]},
    "a pair": {"request": REQUEST, "response": response(DONE)},
    "a pair as it went over the wire": {"request": {"body": '{"model": "m-1", "input": "Weather in Paris?"}'}, "response": {"status_code": 200, "body": response(THINKS, SAYS, ASKS)}},
    "a request and its response in turn": [REQUEST, response(DONE)],
    "the events of a stream": lines(REQUEST, {"type": "response.created", "sequence_number": 0, "response": response()}, {"type": "response.output_item.done", "sequence_number": 1, "item": DONE}, {"type": "response.completed", "sequence_number": 2, "response": response(DONE)}),
}  # fmt: skip


@pytest.mark.parametrize("document", WRAPPINGS.values(), ids=WRAPPINGS)
def test_items_in_every_wrapping_are_found(document: object) -> None:
    assert recognises(document)
    assert format_of(document) is openai_responses
    messages = only(document)
    assert [m.role for m in messages] == ["user", "assistant"]
    assert [c.name for c in calls(messages)] == ["weather"]


def test_items_are_a_turn_of_steps_and_an_answer() -> None:
    assert only(ITEMS) == [
        records.Message(role="user", external_id="0", content="Weather in Paris?"),
        records.Message(
            role="assistant",
            external_id="1",
            content="Sunny.",
            agent_steps=[
                records.AgentStep(
                    iteration=0,
                    thought="Looking.",
                    reasoning_content="I look it up.",
                    tool_calls=[
                        records.ToolCall(
                            id="c1",
                            name="weather",
                            args='{"city": "Paris"}',
                            result=records.ToolResult(output="sunny"),
                            metadata={"item_id": "fc_1"},
                        )
                    ],
                    metadata={"reasoning": [{"id": "rs_1"}], "messages": [{"id": "msg_1"}]},
                )
            ],
            metadata={"messages": [{"id": "msg_2"}]},
        ),
    ]


def test_body_gives_instructions_user_and_metadata() -> None:
    body = {
        "model": "m-1",
        "instructions": "Be brief.",
        "input": "Hi",
        "user": "li.wei",
        "temperature": 0.5,
        "tools": [],
    }
    assert recognises(body)
    (session,), left_out = read([body, response(DONE, instructions="Be brief.", tools=[{"name": "weather"}])])
    assert left_out == []
    assert [(m.role, m.external_id, m.content) for m in session.messages or ()] == [
        ("system", "instructions", "Be brief."),
        ("user", "0", "Hi"),
        ("assistant", "1", "Sunny."),
    ]
    assert session.end_user == "li.wei"
    metadata = session.metadata or {}
    assert {key: metadata[key] for key in ("temperature", "tools")} == {
        "temperature": 0.5,
        "tools": [{"name": "weather"}],
    }


def test_response_gives_model_usage_and_time() -> None:
    (reply,) = replies(
        response(THINKS, SAYS, ASKS, incomplete_details={"reason": "max_output_tokens"}, status="incomplete")
    )
    assert (reply.model, reply.usage, reply.created_at) == ("m-1", USAGE, datetime(2025, 3, 4, 12, tzinfo=UTC))
    assert (reply.metadata["status"], reply.metadata["incomplete_details"]) == (
        "incomplete",
        {"reason": "max_output_tokens"},
    )
    assert reply.metadata["response_id"] == "resp_1"


def test_input_of_request_has_time_of_response() -> None:
    (transcript,) = transcripts({"request": {"input": "Hi"}, "response": response(DONE)}, lambda *_: None)
    times = [entry.created_at for entry in transcript.entries() if isinstance(entry, Prompt)]
    assert times == [datetime(2025, 3, 4, 12, tzinfo=UTC)]


def test_failed_response_has_error_reason() -> None:
    error = {"code": "server_error", "message": "The model is overloaded."}
    document = {
        "request": {"model": "m", "input": "Hi"},
        "response": response(status="failed", error=error, usage=None),
    }
    (reply,) = replies(document)
    assert (reply.content, reply.error, reply.metadata["error"]) == (None, "The model is overloaded.", error)
    assert read(document)[0][0].status == "error"


# --- Conversations that grow --------------------------------------------------------------------------------------


def exchange(number: int, sent: Any, *output: dict[str, Any], **request: Any) -> dict[str, Any]:
    answered = response(*output, id_=f"resp_{number}", created_at=NOON + number, model=f"m-{number}")
    return {"request": {"model": "m", "input": sent, **request}, "response": answered}


FIRST = exchange(1, [USER], THINKS, ASKS)
SECOND = exchange(2, [USER, ASKS, ANSWER], DONE)
MORE = {"role": "user", "content": "And tomorrow?"}
RAIN = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Rain."}]}
THIRD = exchange(3, [USER, ASKS, ANSWER, DONE, MORE], RAIN)


def test_replies_of_joined_requests_keep_their_models() -> None:
    document = [FIRST, SECOND, THIRD]
    assert [(r.model, r.created_at, r.usage) for r in replies(document)] == [
        (f"m-{n}", datetime(2025, 3, 4, 12, tzinfo=UTC) + timedelta(seconds=n), USAGE) for n in (1, 2, 3)
    ]
    assert outline(only(document)) == [
        ("user", "Weather in Paris?"),
        ("assistant", "Sunny.", [["weather"], []]),
        ("user", "And tomorrow?"),
        ("assistant", "Rain.", [[]]),
    ]


def test_request_of_a_response_is_the_input_of_its_step() -> None:
    tools = [{"type": "function", "name": "weather"}]
    asked = exchange(1, "Weather in Paris?", RAIN, instructions="Be kind.", tools=tools, temperature=0.2)
    (step,) = only([asked])[-1].agent_steps or ()
    assert step.input == records.ModelInput(
        messages=[{"role": "user", "content": "Weather in Paris?"}],
        system="Be kind.",
        tools=tools,
        parameters={"model": "m-1", "temperature": 0.2},
    )


def test_previous_response_id_continues_conversation() -> None:
    document = [
        exchange(1, "Weather in Paris?", ASKS),
        exchange(2, [ANSWER], DONE, previous_response_id="resp_1"),
        exchange(3, "And tomorrow?", RAIN, previous_response_id="resp_2"),
    ]
    assert outline(only(document)) == outline(only([FIRST, SECOND, THIRD]))


def test_second_answer_to_response_is_another_session() -> None:
    document = [
        exchange(1, "Weather in Paris?", ASKS),
        exchange(2, [ANSWER], DONE, previous_response_id="resp_1"),
        exchange(3, [ANSWER], RAIN, previous_response_id="resp_1"),
        exchange(3, [ANSWER], RAIN, previous_response_id="resp_1"),
    ]
    sessions, left_out = read(document)
    assert left_out == []
    assert [[m.content for m in session.messages or ()] for session in sessions] == [
        ["Weather in Paris?", "Sunny."],
        ["Weather in Paris?", "Rain."],
    ]


def test_conversation_id_joins_exchanges() -> None:
    document = [
        exchange(1, "Weather in Paris?", ASKS, conversation="conv_1"),
        exchange(2, "Hi", RAIN, conversation={"id": "conv_2"}),
        exchange(3, [ANSWER], DONE, conversation={"id": "conv_1"}),
    ]
    sessions, _left_out = read(document)
    assert [(s.external_id, [m.content for m in s.messages or ()]) for s in reversed(sessions)] == [
        ("conv_1", ["Weather in Paris?", "Sunny."]),
        ("conv_2", ["Hi", "Rain."]),
    ]


def test_changed_instructions_are_a_system_message() -> None:
    document = [
        exchange(1, [USER], ASKS, instructions="You triage."),
        exchange(2, [USER, ASKS, ANSWER], DONE, instructions="You bill."),
        exchange(3, [USER, ASKS, ANSWER, DONE, MORE], RAIN, instructions="You bill."),
    ]
    assert [(m.external_id, m.content) for m in only(document) if m.role == "system"] == [
        ("instructions", "You triage."),
        ("instructions-1", "You bill."),
    ]


WHOLE: dict[str, tuple[list[Any], list[int]]] = {
    "items, whenever the model has answered": ([*ITEMS, MORE, RAIN], [1, 4, 5, 6, 7]),
    "items, in the middle of an answer": ([*ITEMS, MORE, RAIN], [2, 3]),
    "items, between calls": ([USER, SAYS, ASKS, ASKS | {"call_id": "c2"}, ANSWER], [2, 3, 4]),
    "exchanges": ([FIRST, SECOND, THIRD], [1, 2]),
    "two conversations at a time": ([exchange(5, "Hi", RAIN), FIRST, exchange(4, "Bye", DONE), SECOND, THIRD], [1, 2, 3, 4]),
}  # fmt: skip


@pytest.mark.parametrize(("whole", "lengths"), WHOLE.values(), ids=WHOLE)
def test_prefix_of_document_gives_prefix_of_records(whole: list[Any], lengths: list[int]) -> None:
    full = {session.external_id: session for session in read(whole)[0]}
    for length in lengths:
        for session in read(whole[:length])[0]:
            longer = full[session.external_id]
            start = digests_of(session.metadata)
            assert digests_of(longer.metadata)[: len(start)] == start
            ids = [message.external_id for message in session.messages or ()]
            assert [message.external_id for message in longer.messages or ()][: len(ids)] == ids


# --- Items --------------------------------------------------------------------------------------------------------


def test_text_after_provider_results_is_another_reply() -> None:
    search = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Paris", "sources": [{"type": "url", "url": "https://a.example"}]}}  # fmt: skip
    (_question, answer) = only([USER, THINKS, search, search | {"id": "ws_2", "status": "failed"}, DONE])
    assert answer.content == "Sunny."
    assert [(c.id, c.name, c.args, c.status) for c in calls([answer])] == [
        ("ws_1", "web_search", {"type": "search", "query": "Paris"}, "success"),
        ("ws_2", "web_search", {"type": "search", "query": "Paris"}, "error"),
    ]


CARRIED_OUT: dict[str, tuple[dict[str, Any], str, Any, dict[str, Any] | None]] = {
    "MCP": (
        {"type": "mcp_call", "id": "mcp_1", "server_label": "gh", "name": "roll", "arguments": '{"n": 6}', "output": "4", "error": None},
        "roll", '{"n": 6}', {"output": "4", "status": "success"},
    ),
    "MCP that failed": (
        {"type": "mcp_call", "id": "mcp_1", "name": "roll", "arguments": "{}", "output": None, "error": {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": "No dice."}]}},
        "roll", "{}", {"output": "No dice.", "status": "error"},
    ),
    "MCP at work": ({"type": "mcp_call", "id": "mcp_1", "name": "roll", "arguments": "{}", "status": "calling"}, "roll", "{}", None),
    "code": (
        {"type": "code_interpreter_call", "id": "ci_1", "code": "print(1)", "container_id": "cntr_1", "status": "completed", "outputs": [{"type": "logs", "logs": "1\n"}, {"type": "image", "url": "https://a.example/i.png"}]},
        "code_interpreter", {"code": "print(1)", "container_id": "cntr_1"},
        {"output": "1\n", "status": "success", "attachments": [{"type": "image", "url": "https://a.example/i.png"}]},
    ),
    "files": (
        {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "status": "completed", "results": [{"file_id": "f", "text": "passage", "score": 0.5}]},
        "file_search", {"queries": ["a"]}, {"output": [{"file_id": "f", "text": "passage", "score": 0.5}], "status": "success"},
    ),
    "an image": (
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "revised_prompt": "a cat", "output_format": "webp", "result": "AAAA"},
        "image_generation", {"revised_prompt": "a cat", "output_format": "webp"},
        {"output": None, "status": "success", "attachments": [{"type": "input_image", "image_url": "data:image/webp;base64,AAAA"}]},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("item", "name", "args", "result"), CARRIED_OUT.values(), ids=CARRIED_OUT)
def test_provider_calls_contain_their_results(
    item: dict[str, Any], name: str, args: Any, result: dict[str, Any] | None
) -> None:
    (call,) = calls(only([USER, item]))
    assert (call.id, call.name, call.args) == (item["id"], name, args)
    actual = call.result
    assert isinstance(actual, records.ToolResult) is (result is not None)
    if result is not None and isinstance(actual, records.ToolResult):
        assert {key: getattr(actual, key) for key in result} == result


ANSWERED: dict[str, tuple[dict[str, Any], dict[str, Any], str, Any, Any, str | None]] = {
    "a custom tool": (
        {"type": "custom_tool_call", "call_id": "c", "name": "apply", "input": "*** Patch"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "ok"},
        "apply", {"_raw": "*** Patch"}, "ok", None,
    ),
    "a shell": (
        {"type": "shell_call", "call_id": "c", "action": {"commands": ["false"]}},
        {"type": "shell_call_output", "call_id": "c", "output": [{"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}]},
        "shell", {"commands": ["false"]}, [{"stdout": "", "stderr": "no", "outcome": {"type": "exit", "exit_code": 1}}], "error",
    ),
    "a local shell, whose output has no call id": (
        {"type": "local_shell_call", "call_id": "c", "id": "lsh_1", "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c", "output": "a.py"},
        "local_shell", {"type": "exec", "command": ["ls"]}, "a.py", None,
    ),
    "a patch": (
        {"type": "apply_patch_call", "call_id": "c", "operation": {"type": "delete_file", "path": "a"}},
        {"type": "apply_patch_call_output", "call_id": "c", "status": "failed", "output": "no such file"},
        "apply_patch", {"type": "delete_file", "path": "a"}, "no such file", "error",
    ),
    "a computer": (
        {"type": "computer_call", "call_id": "c", "action": {"type": "click", "x": 1, "y": 2}},
        {"type": "computer_call_output", "call_id": "c", "output": {"type": "computer_screenshot", "image_url": "data:,x"}},
        "computer", {"type": "click", "x": 1, "y": 2}, "", None,
    ),
    "a search for tools that the client carries out": (
        {"type": "tool_search_call", "call_id": "c", "execution": "client", "arguments": {"q": "a"}},
        {"type": "tool_search_output", "call_id": "c", "execution": "client", "tools": [{"name": "a"}]},
        "tool_search", {"q": "a"}, [{"name": "a"}], None,
    ),
    "an approval": (
        {"type": "mcp_approval_request", "id": "c", "name": "roll", "server_label": "gh", "arguments": "{}"},
        {"type": "mcp_approval_response", "approval_request_id": "c", "approve": False, "reason": "no"},
        "mcp_approval_request", {"name": "roll", "server_label": "gh", "arguments": "{}"}, {"approve": False, "reason": "no"}, None,
    ),
    "the Agents SDK for JavaScript": (
        {"type": "function_call", "callId": "c", "name": "a", "arguments": "{}", "status": "completed"},
        {"type": "function_call_result", "callId": "c", "name": "a", "output": {"type": "text", "text": "one"}},
        "a", "{}", "one", None,
    ),
}  # fmt: skip


@pytest.mark.parametrize(("item", "answer", "name", "args", "output", "status"), ANSWERED.values(), ids=ANSWERED)
def test_calls_are_answered_by_their_outputs(
    item: dict[str, Any], answer: dict[str, Any], name: str, args: Any, output: Any, status: str | None
) -> None:
    assert recognises([USER, item, answer])
    (call,) = calls(only([USER, item, answer]))
    assert isinstance(call.result, records.ToolResult)
    assert (call.id, call.name, call.args, call.result.output, call.status) == ("c", name, args, output, status)


def test_output_parts_are_text_and_attachments() -> None:
    image = {"type": "input_image", "image_url": "data:,x", "detail": "auto"}
    output = [{"type": "input_text", "text": "Seen"}, image]
    (call,) = calls(only([USER, ASKS, ANSWER | {"output": output}]))
    assert call.result == records.ToolResult(output="Seen", attachments=[image])


def test_single_text_is_plain_other_parts_are_kept() -> None:
    image = {"type": "input_image", "image_url": "data:,x"}
    (item, many, _answer) = only(
        [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "See"}, image]},
            DONE,
        ]
    )
    assert (item.content, many.content) == ("Hi", [{"type": "text", "text": "See"}, image])


def test_refusal_is_answer_and_citations_are_kept() -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "I cannot."}]}
    cited = {"type": "url_citation", "url": "https://a.example"}
    citing = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "See a.", "annotations": [cited]}],
    }
    answers = [m for m in only([USER, refusal, USER, citing]) if m.role == "assistant"]
    assert [(m.content, m.metadata) for m in answers] == [
        ("I cannot.", {"messages": [{"refusal": ["I cannot."]}]}),
        ("See a.", {"messages": [{"annotations": [cited]}]}),
    ]


def test_items_about_tools_only_are_metadata() -> None:
    listed = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "gh", "tools": [{"name": "roll"}]}
    searched = {"type": "tool_search_call", "id": "tsc_1", "execution": "server", "call_id": None, "arguments": {}}
    more = {"type": "additional_tools", "role": "developer", "tools": [{"name": "a"}]}
    (_question, answer, added) = only([USER, listed, searched, ASKS, ANSWER, more, DONE])
    assert [step.metadata for step in answer.agent_steps or ()] == [{"items": [listed, searched]}]
    assert (added.role, added.metadata) == (
        "system",
        {"role": "developer", "type": "additional_tools", "tools": [{"name": "a"}]},
    )


def test_invalid_parts_are_reported_with_their_places() -> None:
    sessions, left_out = read(
        [USER, ASKS, "text", {"type": "message", "role": "critic"}, {"id": "msg_7"}, {"id": "fc_1"}]
    )
    assert len(sessions) == 1
    assert left_out == [
        ("[2]", "not an object"),
        ("[3]", "unknown role 'critic'; a role is one of user, assistant, system, developer"),
        ("[4]", "a reference to an unknown item"),
    ]
    sessions, left_out = read(lines(FIRST, {"level": "info"}))
    assert (len(sessions), left_out) == (1, [("line 2", "neither a request nor a response")])


# --- Recognising --------------------------------------------------------------------------------------------------

STRANGERS: dict[str, Any] = {
    "nothing": None,
    "an empty list": [],
    "embeddings": {"model": "m", "input": ["a", "b"]},
    "embeddings of a text": {"model": "m", "input": "a"},
    "a chat": {"model": "m", "messages": [USER]},
    "messages": [USER, {"role": "assistant", "content": "Hi"}],
    "an Anthropic call": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}]}],
    "an observation": {"type": "GENERATION", "input": [USER], "output": {"role": "assistant", "content": "Hi"}, "model": "m"},
    "a sample": {"id": 1, "input": [USER], "output": {"model": "m", "choices": []}, "messages": [USER]},
    "another call": {"type": "function_call", "function": {"name": "a"}},
}  # fmt: skip


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


EVERYTHING: list[Any] = [
    {**FIRST, "request": {**FIRST["request"], "instructions": ["Be brief."], "user": "li.wei"}},
    SECOND,
    exchange(3, [MORE], RAIN, previous_response_id="resp_2", conversation={"id": "conv_1"}),
    {"type": "response.completed", "sequence_number": 9, "response": response(status="failed", error={"message": "no"})},
    {"model": "m", "input": [USER, *(item for asked, answer, *_ in ANSWERED.values() for item in (asked, answer))]},
    response(*(item for item, *_ in CARRIED_OUT.values()), THINKS, SAYS, id_="resp_9"),
]  # fmt: skip


def test_single_item_equals_list_of_one() -> None:
    assert recognises(ASKS)
    assert [c.name for c in calls(only(ASKS))] == ["weather"]


@given(mangled(EVERYTHING) | mangled([*ITEMS, *EVERYTHING[4]["input"]]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    documents = [document, lines(*document), *document] if isinstance(document, list) else [document]
    for variant in documents:
        recognises(variant)
        for session in read(variant)[0]:
            assert session.external_id


# --- Real files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "openai_responses/pydantic_ai_native_tool_search.json",
        "sdk_transcripts/traceloop-openai-agents/responses_input_list.json",
    ],
)
def test_real_files_match_independent_counts(name: str) -> None:
    expected = counted(name)
    document = load(SHARED / name)
    assert format_of(document) is openai_responses
    sessions, left_out = read(document)
    assert figures(sessions) == expected
    assert left_out == []


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    strangers = [path for path in other_files("claude_code", "not_claude_code") if "responses" not in str(path)]
    assert [path.name for path in strangers if recognises(load(path))] == []

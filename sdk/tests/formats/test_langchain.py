"""LangChain and LangGraph: every form of a dump, the quirks of messages, threads, and the counts of real files."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import langchain
from tracesite_sdk.formats.langchain import recognises
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.normalize.records import normalise_steps
from tracesite_sdk.transcripts.outline import digests_of

from . import reading
from .reading import counted, figures, load, mangled, other_files

OWN = Path(__file__).parent / "transcripts" / "langchain"

HUMAN = {
    "type": "human",
    "content": "Find a",
    "id": "h1",
    "name": None,
    "additional_kwargs": {},
    "response_metadata": {},
}
CALL = {"type": "tool_call", "id": "c1", "name": "lookup", "args": {"q": "a"}}
AI = {"type": "ai", "content": "Looking.", "id": "a1", "name": None, "tool_calls": [CALL], "invalid_tool_calls": [], "additional_kwargs": {}, "response_metadata": {}}  # fmt: skip
TOOL = {"type": "tool", "content": "found", "id": "t1", "name": "lookup", "tool_call_id": "c1", "artifact": None, "status": "success"}  # fmt: skip
DONE = {"type": "ai", "content": "Done.", "id": "a2", "tool_calls": [], "response_metadata": {}}
MESSAGES: list[dict[str, Any]] = [HUMAN, AI, TOOL, DONE]


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(langchain, document)


def only(document: object) -> list[records.Message]:
    return reading.messages_of(langchain, document)


def step(*messages: dict[str, Any]) -> records.AgentStep:
    """Return the only step of the answer to the user."""
    (first_step,) = only([HUMAN, *messages])[1].agent_steps or ()
    return first_step


def own(name: str) -> Any:
    return json.loads((OWN / f"{name}.json").read_text())


# --- Forms --------------------------------------------------------------------------------------------------------


def in_data(message: dict[str, Any]) -> dict[str, Any]:
    return {"type": message["type"], "data": message}


def constructor(message: dict[str, Any]) -> dict[str, Any]:
    name = {"human": "HumanMessage", "ai": "AIMessage", "tool": "ToolMessage"}[message["type"]]
    kwargs = {key: value for key, value in message.items() if key != "type"}
    return {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", name], "kwargs": kwargs}


def snapshot(count: int, parent: int | None = None, **fields: Any) -> dict[str, Any]:
    return {
        "values": {"messages": MESSAGES[:count]},
        "config": {"configurable": {"thread_id": "t-9", "checkpoint_ns": "", "checkpoint_id": f"{count}"}},
        "parent_config": {"configurable": {"thread_id": "t-9", "checkpoint_id": f"{parent}"}}
        if parent is not None
        else None,
        "created_at": f"2025-03-04T12:00:0{count}+00:00",
        "metadata": {"step": count, "user_id": "li.wei"},
        "next": [] if count == len(MESSAGES) else ["agent"],
        **fields,
    }


FORMS: dict[str, Any] = {
    "model_dump": MESSAGES,
    "lines": reading.lines(MESSAGES),
    "messages_to_dict": list(map(in_data, MESSAGES)),
    "dumpd": list(map(constructor, MESSAGES)),
    "a state": {"messages": MESSAGES, "remaining_steps": 3},
    "a state of another name": {"chat_history": list(map(constructor, MESSAGES))},
    "a prompt": {"lc": 1, "type": "constructor", "id": ["langchain", "prompts", "ChatPromptValue"], "kwargs": {"messages": MESSAGES}},
    "lists": [MESSAGES],
    "a snapshot": snapshot(4),
    "snapshots, the newest first": [snapshot(n) for n in (4, 3, 2, 1)],
    "snapshots as tuples": [[s["values"], s["next"], s["config"], s["metadata"], s["created_at"], s["parent_config"], [], []] for s in (snapshot(4), snapshot(2))],
    "a thread of the server": {"thread_id": "t-9", "status": "idle", "values": {"messages": MESSAGES}},
    "a checkpoint": {"config": {"configurable": {"thread_id": "t-9"}}, "checkpoint": {"ts": "2025-03-04T12:00:00Z", "id": "4", "channel_values": {"messages": MESSAGES}}},
    "whole states as they come": [{"messages": MESSAGES[:n]} for n in (1, 2, 3, 4)],
    "updates by node": [{"__start__": {"messages": [HUMAN]}}, {"agent": {"messages": [AI]}}, {"tools": {"messages": [TOOL]}}, {"agent": {"messages": [DONE]}}],
    "what went in and what came out": {"id": "r", "inputs": {"messages": MESSAGES[:1]}, "outputs": {"messages": MESSAGES}},
    "rows of a history": [{"id": n, "session_id": "t-9", "message": in_data(message)} for n, message in enumerate(MESSAGES)],
    "rows of text": [{"session_id": "t-9", "message": json.dumps(in_data(message))} for message in MESSAGES],
    "a history in a column": {"SessionId": "t-9", "History": json.dumps(list(map(in_data, MESSAGES)))},
}  # fmt: skip


@pytest.mark.parametrize("document", FORMS.values(), ids=FORMS)
def test_messages_in_every_form_are_found(document: object) -> None:
    assert recognises(document)
    assert format_of(document) is langchain
    question, answer = only(document)
    assert (question.role, question.external_id, question.content) == ("user", "h1", "Find a")
    assert (answer.external_id, answer.content) == ("a1", "Done.")
    (first_step,) = answer.agent_steps or ()
    (call,) = first_step.tool_calls or ()
    assert (first_step.thought, call.id, call.name, call.args, call.status) == (
        "Looking.",
        "c1",
        "lookup",
        {"q": "a"},
        None,
    )


def test_forms_of_one_conversation_are_one_session() -> None:
    forms = ("model_dump", "messages_to_dict", "dumpd", "a state", "lists", "whole states as they come")
    sessions = [read(FORMS[form])[0][0] for form in forms]
    assert len({(session.external_id, *digests_of(session.metadata)) for session in sessions}) == 1


# --- Messages -----------------------------------------------------------------------------------------------------


def test_reply_has_model_usage_and_other_fields() -> None:
    about = {"model_name": "m-1", "token_usage": {"total_tokens": 7}, "finish_reason": "tool_calls"}
    usage = {"input_tokens": 5, "output_tokens": 2}
    message = AI | {"name": "ada", "response_metadata": about, "usage_metadata": usage, "additional_kwargs": {"refusal": None, "x": 1}}  # fmt: skip
    first_step = step(message)
    assert (first_step.agent_name, first_step.model, first_step.usage) == ("ada", "m-1", usage)
    assert first_step.metadata == {"additional_kwargs": {"x": 1}, "response_metadata": {"finish_reason": "tool_calls"}}


def test_tool_message_gives_text_data_and_status() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    content = [{"type": "text", "text": "chart"}, image]
    tool = TOOL | {"content": content, "artifact": {"rows": [[1]]}, "status": "error", "additional_kwargs": {"took": 3}}
    (call,) = step(AI, tool).tool_calls or ()
    assert call.result == records.ToolResult(
        status="error",
        output="chart",
        data={"rows": [[1]]},
        attachments=[image],
        metadata={"additional_kwargs": {"took": 3}},
    )


def test_tool_message_without_call_is_an_orphan() -> None:
    bare = {"type": "tool", "content": "{'a': 1}", "tool_call_id": "5", "name": "lookup", "id": None}
    (_question, answer) = only([HUMAN, bare])
    (call,) = (answer.agent_steps or [])[0].tool_calls or ()
    assert (call.id, call.name, answer.health) == ("5", "lookup", ["orphan_result"])
    assert isinstance(call.result, records.ToolResult)
    assert (call.result.status, call.result.output) == (None, "{'a': 1}")


def test_invalid_tool_call_has_failed_with_raw_arguments() -> None:
    invalid = {"type": "invalid_tool_call", "id": "c9", "name": "lookup", "args": "{bad", "error": None}
    beside = {"tool_calls": [{"id": "c9", "type": "function", "function": {"name": "lookup", "arguments": "{bad"}}]}
    message = AI | {"tool_calls": [], "invalid_tool_calls": [invalid], "additional_kwargs": beside}
    (call,) = step(message).tool_calls or ()
    assert (call.id, call.name, call.args, call.status) == ("c9", "lookup", "{bad", "error")


@pytest.mark.parametrize("status", ["error", "success"])
def test_tool_message_is_result_of_invalid_call(status: str) -> None:
    invalid = {"type": "invalid_tool_call", "id": "c9", "name": "lookup", "args": "{bad", "error": "not JSON"}
    tools = [
        TOOL,
        {"type": "tool", "content": "Error: invalid args", "tool_call_id": "c9", "name": "lookup", "status": status},
    ]
    (_question, answer) = only([HUMAN, AI | {"invalid_tool_calls": [invalid]}, *tools, DONE])
    assert answer.health is None
    ((normal,), _flags) = normalise_steps((answer.agent_steps or [])[:1])
    good, bad = normal.tool_calls or ()
    assert (good.id, good.status) == ("c1", "success")
    assert isinstance(bad.result, records.ToolResult)
    assert (bad.id, bad.status, bad.result.output) == ("c9", "error", "Error: invalid args")
    assert (bad.result.metadata or {})["invalid_tool_call"] == "not JSON"


def test_tool_message_after_invalid_call_keeps_earlier_records() -> None:
    invalid = {"type": "invalid_tool_call", "id": "c9", "name": "lookup", "args": "{bad", "error": "not JSON"}
    start = [HUMAN, AI | {"tool_calls": [], "invalid_tool_calls": [invalid]}]
    reading.assert_grows(langchain, start, [*start, TOOL | {"tool_call_id": "c9", "content": "Error: bad"}, DONE])


@pytest.mark.parametrize(
    "message",
    [
        AI | {"tool_calls": [], "additional_kwargs": {"tool_calls": [{"id": "c1", "function": {"name": "lookup", "arguments": "{}"}}]}},
        AI | {"tool_calls": [], "content": [{"type": "text", "text": "Looking."}, {"type": "tool_use", "id": "c1", "name": "lookup", "input": {}}]},
        AI | {"content": [{"type": "text", "text": "Looking."}, {"type": "tool_use", "id": "c1", "name": "lookup", "input": {"q": "a"}}]},
        AI | {"content": [{"type": "text", "text": "Looking."}, {"type": "function_call", "call_id": "c1", "id": "fc_1", "name": "lookup", "arguments": "{}"}]},
        {"role": "assistant", "content": "Looking.", "tool_calls": [{"id": "c1", "function": {"name": "lookup", "arguments": "{}"}}]},
    ],
    ids=["OpenAI's own", "Anthropic's own", "both", "OpenAI's items", "a dict of a role"],
)  # fmt: skip
def test_calls_in_other_fields_or_twice_count_once(message: dict[str, Any]) -> None:
    first_step = step(message, TOOL)
    assert [(c.id, c.name, c.status) for c in first_step.tool_calls or ()] == [("c1", "lookup", None)]
    assert (first_step.thought, (first_step.metadata or {}).get("content_parts")) == ("Looking.", None)


def test_status_success_leaves_decision_to_content() -> None:
    first_step = step(AI, TOOL | {"content": '{"success": false, "error": "no such table"}'})
    ((normal,), _flags) = normalise_steps([first_step])
    (call,) = normal.tool_calls or ()
    assert isinstance(call.result, records.ToolResult)
    assert (call.status, call.result.status, call.result.error) == ("error", "error", "no such table")


def test_odd_names_and_ids_are_kept() -> None:
    doubled = {"id": "call_abccall_abc", "name": "lookuplookup", "args": {}, "type": "tool_call"}
    first_step = step(AI | {"tool_calls": [{"id": None, "name": "", "args": {}, "type": "tool_call"}, doubled]})
    assert [(c.id, c.name) for c in first_step.tool_calls or ()] == [(None, ""), ("call_abccall_abc", "lookuplookup")]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"additional_kwargs": {"reasoning_content": "hm"}}, "hm"),
        ({"additional_kwargs": {"reasoning": {"summary": [{"type": "summary_text", "text": "hm"}]}}}, "hm"),
        ({"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "Looking."}]}, "hm"),
        ({"content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "Looking."}]}, "hm"),
        ({"content": [{"type": "reasoning", "summary": [{"text": "h"}, {"text": "m"}]}, "Looking."]}, "h\n\nm"),
    ],
)  # fmt: skip
def test_thoughts_are_reasoning_not_text(fields: dict[str, Any], expected: str) -> None:
    first_step = step(AI | fields)
    assert (first_step.thought, first_step.reasoning_content) == ("Looking.", expected)


def test_text_after_provider_results_is_another_reply() -> None:
    content = [
        {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "a"}},
        {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": [{"url": "https://a.example"}]},
        {"type": "text", "text": "Found."},
    ]
    told = {"usage_metadata": {"output_tokens": 3}, "response_metadata": {"model_name": "m-1"}}
    (_question, answer) = only([HUMAN, DONE | told | {"content": content}])
    first_step, last = answer.agent_steps or ()
    assert [(c.id, c.name, c.args, c.status) for c in first_step.tool_calls or ()] == [
        ("srv_1", "web_search", {"query": "a"}, "success")
    ]
    # It is one request.
    assert (first_step.model, first_step.usage) == (None, None)
    assert (last.thought, last.model, last.usage) == (None, "m-1", {"output_tokens": 3})
    assert (answer.content, answer.usage, (answer.metadata or {})["model"]) == ("Found.", None, "m-1")


def test_all_message_types_are_read() -> None:
    document = [
        {"type": "system", "content": "Be kind.", "additional_kwargs": {}},
        {"type": "chat", "role": "user", "content": "Go", "additional_kwargs": {}},
        AI | {"tool_calls": [], "content": "", "additional_kwargs": {"function_call": {"name": "lookup", "arguments": "{}"}}},
        {"type": "function", "name": "lookup", "content": "one", "additional_kwargs": {}},
        {"type": "remove", "content": "", "id": "h0", "additional_kwargs": {}},
        DONE | {"id": "do-not-render-7"},
        ["human", "And now?"],
        {"type": "critic", "content": "Bad.", "additional_kwargs": {}},
        7,
    ]  # fmt: skip
    (session,), left_out = read(document)
    system, question, answer, more = session.messages or ()
    assert (system.role, question.role, question.metadata, more.content) == (
        "system",
        "user",
        {"role": "user"},
        "And now?",
    )
    assert [c.status for s in answer.agent_steps or () for c in s.tool_calls or ()] == [None]
    assert (answer.content, answer.metadata) == ("Done.", {"do_not_render": True})
    assert (session.metadata or {})["removed_messages"] == ["h0"]
    assert left_out == [("[7]", "unknown type 'critic'"), ("[8]", "not an object")]


def test_two_messages_with_one_id_in_a_list_are_kept() -> None:
    assert [m.external_id for m in only([HUMAN, HUMAN, DONE])] == ["h1", "h1#2", "a2"]


# --- Streams ------------------------------------------------------------------------------------------------------


def chunk(content: Any = "", **fields: Any) -> dict[str, Any]:
    return {
        "type": "AIMessageChunk",
        "content": content,
        "id": "a1",
        "tool_calls": [],
        "response_metadata": {},
        **fields,
    }


def piece(args: str, name: str | None = None, id_: str | None = None) -> dict[str, Any]:
    return {"type": "tool_call_chunk", "name": name, "args": args, "id": id_, "index": 0}


def test_chunks_with_one_id_are_one_message() -> None:
    first_step = step(
        chunk("Look", usage_metadata={"input_tokens": 5, "output_tokens": 0}),
        chunk("ing.", additional_kwargs={"reasoning_content": "h"}),
        chunk(tool_call_chunks=[piece('{"q"', "lookup", "c1")], additional_kwargs={"reasoning_content": "m"}),
        chunk(
            tool_call_chunks=[piece(': "a"}', "lookup", "c1")], usage_metadata={"input_tokens": 0, "output_tokens": 3}
        ),
        TOOL,
    )
    assert (first_step.thought, first_step.reasoning_content, first_step.usage) == (
        "Looking.",
        "hm",
        {"input_tokens": 5, "output_tokens": 3},
    )
    assert [(c.id, c.name, c.args, c.status) for c in first_step.tool_calls or ()] == [
        ("c1", "lookup", '{"q": "a"}', None)
    ]


def test_parts_of_chunks_are_joined_by_index() -> None:
    first_step = step(
        chunk([{"type": "thinking", "thinking": "h", "index": 0}]),
        chunk([{"type": "thinking", "thinking": "m", "index": 0}]),
        chunk([{"type": "text", "text": "Look", "index": 1}]),
        chunk([{"type": "text", "text": "ing.", "index": 1}], tool_call_chunks=[piece("{}", "lookup", "c1")]),
    )
    assert (first_step.thought, first_step.reasoning_content) == ("Looking.", "hm")


def test_whole_message_replaces_its_chunks() -> None:
    assert only([HUMAN, chunk("Look"), AI, TOOL, DONE]) == only(MESSAGES)


@pytest.mark.parametrize("name", ["updates", "pairs"])
def test_streams_of_a_graph_are_read(name: str) -> None:
    (session,), left_out = read(own(name))
    assert left_out == []
    calls = {"updates": {"lookup": 2}, "pairs": {"lookup": 1}}[name]
    assert figures([session])["tool_calls_by_name"] == calls
    assert figures([session])["calls_without_result"] == 0


# --- Threads ------------------------------------------------------------------------------------------------------


def test_snapshots_give_message_times_and_end_user() -> None:
    (session,), _left_out = read([snapshot(n) for n in (4, 3, 2, 1)])
    assert (session.external_id, session.end_user) == ("t-9", "li.wei")
    question, answer = session.messages or ()
    times = [datetime(2025, 3, 4, 12, 0, second, tzinfo=UTC) for second in (1, 2, 3, 4)]
    assert (question.created_at, answer.created_at, answer.completed_at) == (times[0], times[1], times[3])
    assert (session.metadata or {})["metadata"] == {"step": 4, "user_id": "li.wei"}


def test_trimmed_thread_keeps_all_messages() -> None:
    trimmed = snapshot(4) | {"values": {"messages": [DONE]}}
    assert [m.external_id for m in only([trimmed, snapshot(3)])] == ["h1", "a1"]


def test_fork_is_another_session() -> None:
    sessions, left_out = read(own("history"))
    assert left_out == []
    assert [(s.external_id, [m.content for m in s.messages or () if m.role == "user"]) for s in sessions] == [
        ("t-1", ["Find a", "Again"]),
        ("t-1#2", ["Find a", "Then b"]),
    ]


def test_threads_and_subgraphs_are_separate_sessions() -> None:
    other = snapshot(1) | {"config": {"configurable": {"thread_id": "t-8"}}}
    inner = snapshot(2) | {"config": {"configurable": {"thread_id": "t-9", "checkpoint_ns": "tools:1"}}}
    sessions, _left_out = read([snapshot(4), other, inner])
    assert sorted(str(s.external_id) for s in sessions) == ["t-8", "t-9", "t-9:tools:1"]


def test_interrupted_thread_is_paused() -> None:
    (session,), _left_out = read([snapshot(2, tasks=[{"name": "tools", "interrupts": [{"value": "ok?"}]}])])
    assert session.status == "paused"
    (session,), _left_out = read([snapshot(2, tasks=[], next=["tools"])])
    assert session.status is None
    (session,), _left_out = read([snapshot(2, tasks=[], next=[])])
    assert session.status == "completed"


GROWING: dict[str, list[Any]] = {
    "messages": [*MESSAGES, HUMAN | {"id": "h2"}, DONE | {"id": "a3"}],
    "messages without ids": [message | {"id": None} for message in MESSAGES],
    "rows": FORMS["rows of a history"],
    "updates": FORMS["updates by node"],
    "states": FORMS["whole states as they come"],
    "an invalid call": [
        HUMAN,
        AI | {"tool_calls": [], "invalid_tool_calls": [{"id": "c1", "name": "lookup", "args": "{bad", "error": "not JSON"}]},
        TOOL | {"content": "Error: bad"},
        DONE,
    ],
    "history": own("history")[::-1],
}  # fmt: skip


@pytest.mark.parametrize("whole", GROWING.values(), ids=GROWING)
def test_prefix_of_document_gives_prefix_of_records(whole: list[Any]) -> None:
    full = {session.external_id: session for session in read(whole)[0]}
    for length in range(1, len(whole)):
        for session in read(whole[:length])[0]:
            longer = full[session.external_id]
            start = digests_of(session.metadata)
            assert digests_of(longer.metadata)[: len(start)] == start
            before = {message.external_id: message.created_at for message in session.messages or ()}
            after = {message.external_id: message.created_at for message in longer.messages or ()}
            assert before.items() <= after.items()


# --- Recognising --------------------------------------------------------------------------------------------------

STRANGERS: dict[str, Any] = {
    "nothing": None,
    "an empty list": [],
    "a chat": {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}]},
    "lines of a coding agent": [{"type": "user", "message": {"role": "user", "content": "Hi"}}, {"type": "system", "content": "x"}],
    "a tool of another": [{"type": "tool", "content": "x"}],
    "messages without content": [{"type": "human"}],
    "no messages": {"messages": []},
    "a serialised model": {"lc": 1, "type": "constructor", "id": ["langchain", "llms", "Fake"], "kwargs": {}},
}  # fmt: skip


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


EVERYTHING: list[Any] = [
    *MESSAGES,
    in_data(DONE),
    constructor(TOOL),
    chunk([{"type": "text", "text": "Look", "index": 1}], tool_call_chunks=[piece("{}", "lookup", "c1")]),
    chunk([{"type": "reasoning", "summary": [{"text": "h"}], "index": 0}], usage_metadata={"input_tokens": 1}),
    AI | {"id": None, "additional_kwargs": {"function_call": {"name": "a"}, "tool_calls": [CALL], "reasoning": {"summary": []}}},
    AI | {"id": "a9", "invalid_tool_calls": [{"id": "c9", "name": "a", "args": "{", "error": "no"}]},
    DONE | {"content": [{"type": "server_tool_use", "id": "s", "name": "w", "input": {}}, {"type": "web_search_tool_result", "tool_use_id": "s", "content": {"type": "x_error"}}]},
]  # fmt: skip


def test_single_message_equals_list_of_one() -> None:
    assert recognises(HUMAN)
    assert [m.content for m in only(HUMAN)] == ["Find a"]


@given(mangled(EVERYTHING) | mangled([snapshot(n, n - 1) for n in (4, 2, 1)]) | mangled(FORMS["snapshots as tuples"]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for variant in (document, {"messages": document}, [{"agent": {"messages": document}}, *document]):
        recognises(variant)
        for session in read(variant)[0]:
            assert session.external_id


# --- Real files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["langchain_dumpd_lc1", "langchain_messages_to_dict", "langchain_model_dump", "langgraph_state_history"]
)
def test_real_files_match_independent_counts(name: str) -> None:
    name = f"sdk_transcripts/openinference-langgraph/{name}.json"
    # The role of the user has another name here.
    expected = counted(name) | {"user": 2}
    document = load(SHARED / name)
    assert format_of(document) is langchain
    sessions, left_out = read(document)
    assert figures(sessions) == expected
    assert left_out == []


@pytest.mark.parametrize("version", ["0.3.77", "1.7.2"])
def test_samples_of_all_versions_give_the_same(version: str) -> None:
    path = SHARED / "langchain" / f"langchain_{version}_samples.json"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    (session,), left_out = read(load(path))
    assert left_out == []
    results = {
        c.name: c.result for m in session.messages or () for s in m.agent_steps or () for c in s.tool_calls or ()
    }
    assert [n for n, r in results.items() if isinstance(r, records.ToolResult) and r.status == "error"] == [
        "boom",
        "missing_tool",
    ]
    art, image = results["art_tool"], results["img_tool"]
    assert isinstance(art, records.ToolResult)
    assert isinstance(image, records.ToolResult)
    assert (art.output, art.data) == ("2 rows", {"rows": [[1], [2]]})
    assert (image.output, len(image.attachments or ())) == ("chart", 1)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    strangers = [path for path in other_files("langchain", "not_claude_code", "claude_code") if "openinference-langgraph/lang" not in str(path)]  # fmt: skip
    assert [path.name for path in strangers if recognises(load(path))] == []

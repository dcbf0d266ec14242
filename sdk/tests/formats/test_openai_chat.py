"""The OpenAI chat format: its wrappings, the quirks of its messages, and the counts of real files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.formats import openai_chat
from tracesite_sdk.formats.openai_chat import NAME, recognises, transcripts
from tracesite_sdk.formats.registry import FORMATS
from tracesite_sdk.transcripts.documents import Line, Lines
from tracesite_sdk.transcripts.outline import digests_of

from . import reading
from .reading import has_failed

OWN = Path(__file__).parent / "transcripts"

USER = {"role": "user", "content": "Go"}
DONE = {"role": "assistant", "content": "Done."}
ROLES = "a role is one of system, developer, user, assistant, tool, function"


def calling(*calls: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def call(id_: str | None = "c1", name: str = "a", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(openai_chat, document)


def only(document: object) -> list[records.Message]:
    return reading.messages_of(openai_chat, document)


def load(path: Path) -> Any:
    text = path.read_text()
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


# --- Wrappings ----------------------------------------------------------------------------------------------------

WRAPPINGS: dict[str, Any] = {
    "a list of messages": [USER, DONE],
    "a request body": {"model": "m", "messages": [USER, DONE]},
    "tau-bench": {"task_id": 3, "traj": [USER, DONE], "reward": 1.0},
    "a row of a data set": {"id": 7, "conversations": [USER, DONE]},
    "lines of a data set": [{"trajectory": [USER, DONE]}],
    "a list of conversations": [{"messages": [USER, DONE]}],
    "a list of lists": [[USER, DONE]],
}


@pytest.mark.parametrize("document", WRAPPINGS.values(), ids=WRAPPINGS)
def test_messages_in_every_wrapping_are_found(document: object) -> None:
    assert recognises(document)
    assert [(m.role, m.external_id, m.content) for m in only(document)] == [
        ("user", "0", "Go"),
        ("assistant", "1", "Done."),
    ]


def test_fields_beside_messages_are_metadata() -> None:
    document = [
        {"task_id": 0, "trial": 1, "reward": 0.0, "info": {"source": "user"}, "traj": [USER, DONE]},
        {"task_id": 1, "trial": 0, "reward": 1.0, "traj": [USER]},
    ]
    (first, second), _left_out = read(document)
    assert first.metadata is not None
    assert {name: first.metadata[name] for name in ("task_id", "trial", "reward", "info")} == {
        "task_id": 0,
        "trial": 1,
        "reward": 0.0,
        "info": {"source": "user"},
    }
    assert second.metadata is not None
    assert sorted(second.metadata) == ["import_digests", "import_format", "reward", "task_id", "trial"]
    assert first.external_id != second.external_id


def test_request_gives_model_of_steps_and_end_user() -> None:
    (session,), _left_out = read({"model": "m-1", "user": "li.wei", "messages": [USER, calling(call())]})
    assert session.end_user == "li.wei"
    assert [step.model for step in (session.messages or [])[1].agent_steps or ()] == ["m-1"]


def test_own_id_is_external_id_of_conversation() -> None:
    (session,), _left_out = read({"conversation_id": "thread-9", "messages": [USER]})
    assert session.external_id == "thread-9"


def test_id_and_title_beside_messages_are_used() -> None:
    (session,), _left_out = read({"id": "day1", "title": "Invoice", "messages": [USER, DONE]})
    assert (session.external_id, session.title) == ("day1", "Invoice")
    exported = {"id": "c-1", "title": "Trip", "model": "m", "messages": [USER]}
    assert [session.external_id for session in read([exported, exported | {"id": "c-2"}])[0]] == ["c-1", "c-2"]


@pytest.mark.parametrize(
    "beside",
    [
        {"id": "chatcmpl-9"},
        {"id": "chatcmpl-9", "title": "Invoice"},
        {"id": "a7", "model": "m"},
        {"id": "a7", "object": "chat.completion"},
        {"id": 7},
        {"id": " "},
        {"id": None, "title": 3},
        {"task_id": "a7"},
    ],
)
def test_request_ids_and_numbers_are_no_external_ids(beside: dict[str, Any]) -> None:
    (session,), _left_out = read({**beside, "messages": [USER, DONE]})
    assert session.external_id == read([USER, DONE])[0][0].external_id


def test_benchmark_task_id_is_no_external_id() -> None:
    (session,), _left_out = read({"id": "task-7", "title": "Airline", "traj": [USER, DONE]})
    assert (session.external_id, session.title) == (read([USER, DONE])[0][0].external_id, "Go")


def test_other_messages_with_same_id_are_another_session() -> None:
    document = [{"session_id": "s", "messages": [USER, DONE]}, {"session_id": "s", "messages": [DONE, USER]}]
    assert [session.external_id for session in read(document)[0]] == ["s", "s#2"]


def test_requests_of_growing_conversation_are_one_session() -> None:
    steps = [USER, calling(call()), {"role": "tool", "tool_call_id": "c1", "content": "one"}, DONE]
    other = {"model": "m", "messages": [{"role": "user", "content": "Something else"}]}
    requests = [{"model": "m", "n": n, "messages": steps[:n]} for n in (1, 3, 3, 4)]
    sessions, left_out = read([requests[0], other, *requests[1:]])
    assert left_out == []
    # Sessions come in the order of their last requests, which complete them.
    assert [len(session.messages or ()) for session in sessions] == [1, 2]
    assert (sessions[1].metadata or {})["n"] == 4
    assert sessions[1].external_id == read([requests[0]])[0][0].external_id
    assert sessions[0].external_id == read([requests[0], other])[0][1].external_id


def test_second_answer_to_same_request_is_another_session() -> None:
    answers = [{"model": "m", "messages": [USER, {"role": "assistant", "content": text}]} for text in ("A", "B")]
    sessions, _left_out = read([{"model": "m", "messages": [USER]}, *answers])
    assert [[m.content for m in session.messages or ()] for session in sessions] == [["Go", "A"], ["Go", "B"]]


def test_conversations_other_than_requests_stay_apart() -> None:
    assert len(read([{"messages": [USER]}, {"messages": [USER, DONE]}, {"messages": [USER, DONE]}])[0]) == 3


def test_request_log_gives_run_and_sub_agent() -> None:
    sessions, left_out = read(load(OWN / "weather_requests.jsonl"))
    assert left_out == []
    outline = [
        [
            (m.role, [[c.name for c in step.tool_calls or ()] for step in m.agent_steps or ()])
            for m in session.messages or ()
        ]
        for session in sessions
    ]
    assert outline == [
        [("system", []), ("user", []), ("assistant", [["search_docs"]])],
        [
            ("system", []),
            ("user", []),
            ("assistant", [["get_weather"] * 3, []]),
            ("user", []),
            ("assistant", [["ask_researcher"]]),
        ],
    ]
    assert [len((session.metadata or {})["tools"]) for session in sessions] == [1, 2]


def test_autogen_message_answers_several_calls() -> None:
    responses = [
        {"tool_call_id": "c1", "role": "tool", "content": "sunny"},
        {"tool_call_id": "c2", "role": "tool", "content": "Error: no such city"},
    ]
    both = {
        "role": "tool",
        "name": "user_proxy",
        "content": "sunny\n\nError: no such city",
        "tool_responses": responses,
    }
    _user, turn = only([USER, calling(call("c1"), call("c2", "b")), both])
    (step,) = turn.agent_steps or ()
    assert [(c.name, c.result and c.result.output) for c in step.tool_calls or ()] == [
        ("a", "sunny"),
        ("b", "Error: no such city"),
    ]


def test_page_of_completions_gives_a_session_each() -> None:
    page = {"object": "list", "data": [RESPONSE, RESPONSE | {"id": "chatcmpl-2"}], "has_more": False}
    assert recognises(page)
    assert len(read(page)[0]) == 2


def test_crashed_run_without_messages_is_failed_session() -> None:
    document = [{"task_id": 1, "traj": [], "info": {"error": "boom", "traceback": "..."}}, {"task_id": 2, "traj": []}]
    sessions, left_out = read([{"traj": [USER]}, *document])
    assert [(session.status, len(session.messages or ())) for session in sessions] == [(None, 1), ("error", 0)]
    assert left_out == [("[2].traj", "no user or assistant message")]


# --- Messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, None),
        ("", ""),
        ("Hello", "Hello"),
        (
            [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:,x"}}],
            [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:,x"}}],
        ),
        ({"odd": 1}, '{"odd":1}'),
    ],
)
def test_content_may_be_null_text_or_parts(content: object, expected: object) -> None:
    (question, answer) = only([{"role": "user", "content": content}, {"role": "assistant", "content": content}])
    assert (question.content, answer.content) == (expected, expected)


@pytest.mark.parametrize("nothing", [{}, {"tool_calls": None}, {"tool_calls": []}])
def test_reply_without_calls_is_the_answer(nothing: dict[str, Any]) -> None:
    (_question, answer) = only([USER, DONE | nothing])
    assert (answer.content, answer.agent_steps) == ("Done.", [])


def test_text_beside_calls_is_thought_not_reasoning() -> None:
    reply = calling(call(), content="I look.", reasoning_content="Let me see.", name="ada")
    (_question, answer) = only([USER, reply])
    (step,) = answer.agent_steps or ()
    assert (step.thought, step.reasoning_content, step.agent_name) == ("I look.", "Let me see.", "ada")
    assert answer.content is None


@pytest.mark.parametrize("arguments", ['{"q": 1}', '{"q": "broken', "", None, {"q": 1}])
def test_arguments_are_unchanged(arguments: object) -> None:
    (_question, answer) = only([USER, calling(call(arguments=arguments))])
    (step,) = answer.agent_steps or ()
    assert [c.args for c in step.tool_calls or ()] == [arguments]


def test_refusal_is_the_answer() -> None:
    (_question, answer) = only([USER, {"role": "assistant", "content": None, "refusal": "I cannot."}])
    assert (answer.content, answer.metadata) == ("I cannot.", {"refusal": "I cannot."})


def test_developer_is_system_and_names_are_kept() -> None:
    actual = only([{"role": "developer", "content": "Be kind."}, USER | {"name": "maria"}])
    assert [(m.role, m.metadata) for m in actual] == [("system", {"role": "developer"}), ("user", {"name": "maria"})]


def test_unknown_fields_are_kept_unless_empty() -> None:
    reply = DONE | {"annotations": [], "audio": None, "weight": 0, "citations": ["a"]}
    (_question, answer) = only([USER, reply])
    assert answer.metadata == {"weight": 0, "citations": ["a"]}


def test_failed_tool_is_detected_by_its_result() -> None:
    outputs = ["Error: no", "0 errors found", '{"error": null}', '{"error": "no"}']
    replies = [calling(*(call(f"c{n}") for n in range(4)))]
    answers = [{"role": "tool", "tool_call_id": f"c{n}", "content": text} for n, text in enumerate(outputs)]
    (step,) = only([USER, *replies, *answers])[1].agent_steps or ()
    assert [has_failed(c) for c in step.tool_calls or ()] == [True, False, False, True]


def test_result_parts_are_text_and_attachments() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:,x"}}
    answer = {"role": "tool", "tool_call_id": "c1", "name": "a", "content": [{"type": "text", "text": "Seen"}, image]}
    (step,) = only([USER, calling(call()), answer])[1].agent_steps or ()
    (found,) = step.tool_calls or ()
    assert found.result == records.ToolResult(output="Seen", attachments=[image])


def test_function_call_is_call_without_id() -> None:
    document = [
        USER,
        {"role": "assistant", "content": "", "function_call": {"name": "a", "arguments": "{}"}},
        {"role": "function", "name": "a", "content": "one"},
        DONE,
    ]
    (step,) = only(document)[1].agent_steps or ()
    assert step.tool_calls == [records.ToolCall(name="a", args="{}", result=records.ToolResult(output="one"))]


def test_custom_tool_is_call_with_raw_input() -> None:
    custom = {"id": "c1", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}
    (step,) = only([USER, calling(custom)])[1].agent_steps or ()
    assert step.tool_calls == [
        records.ToolCall(id="c1", name="shell", args={"_raw": "ls -l"}, status="pending", metadata={"type": "custom"})
    ]


def test_invalid_parts_are_reported_with_their_places() -> None:
    document = [
        {"messages": [USER, {"role": "critic", "content": "Bad."}, "text", {"content": "?"}, DONE]},
        {"messages": [USER, calling("text", call()), DONE | {"tool_calls": {"no": "list"}}]},
        {"notes": []},
    ]
    sessions, left_out = read(document)
    assert len(sessions) == 2
    assert sorted(left_out) == [
        ("[0].messages[1]", f"unknown role 'critic'; {ROLES}"),
        ("[0].messages[2]", "not an object"),
        ("[0].messages[3]", f"no role; {ROLES}"),
        ("[1].messages[1].tool_calls[0]", "not an object"),
        ("[1].messages[2].tool_calls", "not a list"),
        ("[2]", "no list of messages"),
    ]


# --- Recognising ----------------------------------------------------------------------------------------------------

STRANGERS: dict[str, Any] = {
    "nothing": None,
    "a number": 3,
    "an empty list": [],
    "no messages": {"messages": []},
    "a package": {"name": "x", "dependencies": {}},
    "messages without roles": [{"type": "human", "data": {"content": "hi"}}],
    "parts with a call": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}]}],
    "parts without a type": [{"role": "user", "content": [{"text": "hi"}]}],
    "parts of another SDK": [{"role": "tool", "content": [{"type": "tool-result", "toolCallId": "1"}]}],
    "items that are no messages": [USER, {"type": "function_call", "call_id": "1", "name": "a", "arguments": "{}"}],
    "parts of a message": [{"kind": "request", "parts": []}],
    "a conversation of other messages": {"conversations": [{"from": "human", "value": "Go"}]},
    "people in a conversation": {"conversation": [{"role": "user", "name": "Li Wei"}]},
    "people": [{"id": 1, "role": "user", "email": "a@example.org"}, {"id": 2, "role": "system"}],
    "items with an image": [
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,aGk="}]},
        {"type": "function_call", "call_id": "1", "name": "a", "arguments": "{}"},
    ],
}  # fmt: skip


@pytest.mark.parametrize("document", STRANGERS.values(), ids=STRANGERS)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not recognises(document)


def test_document_with_one_odd_message_is_recognised() -> None:
    assert recognises([USER, calling(call()), {"role": "assistant", "content": [{"type": "hologram"}]}, "text"])


@pytest.mark.parametrize(
    ("odd", "why"),
    [
        ({"role": "asistant", "content": "Done."}, f"unknown role 'asistant', perhaps 'assistant'; {ROLES}"),
        ({"role": "User", "content": "Go"}, f"unknown role 'User', perhaps 'user'; {ROLES}"),
        ({"role": 5, "content": "Go"}, f"the role is not text; {ROLES}"),
        ({"content": "Go"}, f"no role; {ROLES}"),
        ({"role": "x" * 99, "content": "Go"}, f"unknown role '{'x' * 60}'; {ROLES}"),
    ],
)
def test_wrong_role_is_reported_with_allowed_roles(odd: dict[str, Any], why: str) -> None:
    document = {"messages": [USER, DONE, odd]}
    assert recognises(document)
    (session,), left_out = read(document)
    assert [m.external_id for m in session.messages or ()] == ["0", "1"]
    assert left_out == [("messages[2]", why)]


def test_misspelt_role_is_recognised() -> None:
    assert recognises({"messages": [{"role": "usr", "content": "Go"}]})
    assert not recognises({"messages": [{"role": "admin", "content": "Go"}]})


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["role", "content", "tool_calls", "tool_call_id", "tool_call_ids", "function", "function_call", "name", "arguments", "id", "type", "messages", "traj", "history", "trajectory", "info", "error", "model", "user", "refusal", "reasoning_content", "text", "image_url", "session_id", "choices", "message", "delta", "object", "response", "request", "body", "usage", "created", "index", "finish_reason", "custom_id", "reasoning_details", "audio", "timestamp"]
        ),
        inner
        | st.sampled_from(["user", "assistant", "tool", "system", "function", "Error", "text", "custom", "chat.completion.chunk"]),
        max_size=5,
    ),
    max_leaves=25,
)  # fmt: skip


@given(_json)
def test_read_mangled_document_never_raises(document: object) -> None:
    recognises(document)
    for session in read(document)[0]:
        assert session.external_id


# --- Answers of the API -----------------------------------------------------------------------------------------------

CALLS = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": [call()]}
RESPONSE = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1_772_366_400,
    "model": "m-1-2026",
    "choices": [{"index": 0, "message": CALLS, "finish_reason": "tool_calls"}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 3},
}
CHUNKS = [
    {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_772_366_400, "model": "m-1-2026", **rest}
    for rest in (
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": None, "refusal": None}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [call(arguments="") | {"index": 0}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "a", "arguments": "{"}}]}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": "}"}}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
    )
]  # fmt: skip
REQUEST = {"model": "m-1", "messages": [USER], "tools": [{"type": "function"}]}

EXCHANGES: dict[str, Any] = {
    "a request and its response": {"request": REQUEST, "response": RESPONSE},
    "the response beside the messages": {**REQUEST, "response": RESPONSE},
    "all in one object": {**RESPONSE, "messages": [USER]},
    "as it went over the wire": {"request": {"method": "POST", "body": REQUEST}, "response": {"status": 200, "body": RESPONSE}},
    "a request and its stream": {"request": REQUEST, "chunks": CHUNKS},
    "a line of a batch, with what came back": {"custom_id": "r1", "body": REQUEST, "response": {"body": RESPONSE}},
}  # fmt: skip


@pytest.mark.parametrize("document", EXCHANGES.values(), ids=EXCHANGES)
def test_exchange_gives_messages_and_answer_with_usage(document: Any) -> None:
    assert recognises(document)
    assert [candidate.NAME for candidate in FORMATS if candidate.recognises(document)] == [NAME]
    (question, answer) = only([document])
    assert (question.content, question.external_id, answer.external_id) == ("Go", "0", "1")
    (step,) = answer.agent_steps or ()
    assert (step.model, step.usage, str(step.timestamp)) == (
        "m-1-2026",
        {"prompt_tokens": 7, "completion_tokens": 3},
        "2026-03-01 12:00:00+00:00",
    )
    assert [(c.id, c.name, c.args) for c in step.tool_calls or ()] == [("c1", "a", "{}")]
    assert step.metadata == {"id": "chatcmpl-1", "finish_reason": "tool_calls"}


@pytest.mark.parametrize("answers", [[RESPONSE], CHUNKS], ids=["a response", "the chunks of a stream"])
def test_answer_alone_is_conversation_of_one_reply(answers: list[Any]) -> None:
    assert recognises(answers)
    (answer,) = only(answers)
    assert [(c.id, c.name, c.args) for step in answer.agent_steps or () for c in step.tool_calls or ()] == [
        ("c1", "a", "{}")
    ]


ANSWERED = {"role": "tool", "tool_call_id": "c1", "content": "one"}
FINAL = RESPONSE | {"id": "chatcmpl-2", "choices": [{"message": DONE, "finish_reason": "stop"}], "usage": {"prompt_tokens": 9}}  # fmt: skip
LOG = [
    {"timestamp": "2026-03-01T11:59:00Z", "request": REQUEST, "response": RESPONSE},
    {
        "timestamp": "2026-03-01T12:01:00Z",
        "request": REQUEST | {"messages": [USER, calling(call()), ANSWERED]},
        "response": FINAL,
    },
]


def test_log_of_exchanges_keeps_usage_of_each_answer() -> None:
    (session,), left_out = read(LOG)
    assert left_out == []
    (question, answer) = session.messages or ()
    step, last = answer.agent_steps or ()
    assert (step.usage, step.model, answer.content, last.usage) == (
        {"prompt_tokens": 7, "completion_tokens": 3},
        "m-1-2026",
        "Done.",
        {"prompt_tokens": 9},
    )
    assert step.input is not None
    assert last.input is not None
    assert (step.input.messages, last.input.messages) == ([USER], [USER, calling(call()), ANSWERED])
    assert (last.input.parameters or {}).get("model") == REQUEST["model"]
    assert [str(question.created_at)[11:19], str(step.timestamp)[11:19]] == ["11:59:00", "12:00:00"]
    assert [str(c.completed_at)[11:19] for c in step.tool_calls or ()] == ["12:01:00"]
    (first,), _left_out = read(LOG[:1])
    assert first.external_id == session.external_id
    assert [(m.external_id, m.created_at) for m in first.messages or ()] == [
        (m.external_id, m.created_at) for m in session.messages or ()
    ]


def test_answer_changed_by_later_request_has_no_usage() -> None:
    changed = [USER, {"role": "assistant", "content": "Something else"}, USER]
    log = [
        {"request": REQUEST, "response": RESPONSE},
        {"request": REQUEST | {"messages": changed}, "response": RESPONSE},
    ]
    (session,), _left_out = read(log)
    assert [m.usage for m in session.messages or () if m.role == "assistant"][0] is None


def test_failed_exchange_is_a_failed_reply() -> None:
    failed = {"request": REQUEST, "response": {"error": {"message": "Too many requests", "code": 429}}}
    (session,), _left_out = read([failed, {"request": REQUEST, "response": RESPONSE}])
    assert [m.error for m in read([failed])[0][0].messages or ()] == [None, "Too many requests"]
    assert [m.error for m in session.messages or ()] == [None, None]


def test_batch_output_lines_are_answers() -> None:
    lines = [
        {"id": "b1", "custom_id": "r1", "response": {"status_code": 200, "body": RESPONSE}, "error": None},
        {"id": "b2", "custom_id": "r2", "response": None, "error": {"code": "expired", "message": "Too late"}},
    ]
    sessions, left_out = read(lines)
    assert left_out == []
    assert [((s.metadata or {})["custom_id"], [m.error for m in s.messages or ()]) for s in sessions] == [
        ("r1", [None]),
        ("r2", ["Too late"]),
    ]


def test_preference_pair_gives_preferred_answer() -> None:
    line = {"input": {"messages": [USER]}, "preferred_output": [DONE], "non_preferred_output": [{"role": "assistant", "content": "No."}]}  # fmt: skip
    (session,), _left_out = read([line])
    assert [m.content for m in session.messages or ()] == ["Go", "Done."]
    assert (session.metadata or {})["non_preferred_output"] == [{"role": "assistant", "content": "No."}]


def test_unfinished_stream_is_left_out() -> None:
    sessions, left_out = read([RESPONSE, *CHUNKS[:3]])
    assert len(sessions) == 1
    assert left_out == [("[1]", "incomplete answer: its chunks end")]


def test_other_choices_are_metadata_of_the_first() -> None:
    (answer,) = only([RESPONSE | {"choices": [{"message": DONE}, {"message": {"role": "assistant", "content": "B"}}]}])
    assert answer.content == "Done."
    assert (answer.metadata or {})["choices"] == [{"message": {"role": "assistant", "content": "B"}}]


def test_times_added_to_messages_are_used() -> None:
    document = [USER | {"timestamp": "2026-03-01T12:00:00"}, DONE | {"created_at": 1_772_366_460}]
    (question, answer) = only(document)
    assert [str(m.created_at) for m in (question, answer)] == ["2026-03-01 12:00:00+00:00", "2026-03-01 12:01:00+00:00"]
    assert (question.health, answer.metadata) == (["naive_time"], None)


def test_reasoning_and_speech_in_server_fields_are_read() -> None:
    details = [{"type": "reasoning.summary", "summary": "Hm."}, {"type": "reasoning.encrypted", "data": "x"}]
    spoken = {"role": "assistant", "content": None, "audio": {"id": "a1", "transcript": "Hello"}}
    (question, answer) = only([USER, spoken | {"reasoning_details": details}])
    assert (answer.content, (answer.metadata or {})["reasoning_content"]) == ("Hello", "Hm.")
    assert (answer.metadata or {})["audio"] == {"id": "a1", "transcript": "Hello"}


# --- Real files -------------------------------------------------------------------------------------------------------


def counts(sessions: list[records.Session]) -> dict[str, Any]:
    """Count a session in the terms of EXPECTED_COUNTS.json."""
    messages = [message for session in sessions for message in session.messages or ()]
    calls = [c for message in messages for step in message.agent_steps or () for c in step.tool_calls or ()]
    orphans = [c for c in calls if (c.metadata or {}).get("orphan_result")]
    requested = [c for c in calls if c not in orphans]
    return {
        "sessions": len(sessions),
        "user": sum(message.role == "user" for message in messages),
        "system": sum(message.role == "system" for message in messages),
        "tool_calls_by_name": dict(Counter(c.name for c in requested)),
        "tool_results": sum(c.result is not None for c in calls),
        "errors_by_tool": dict(Counter(c.name for c in requested if has_failed(c))),
        "calls_without_result": sum(c.result is None for c in requested),
        "results_without_call": len(orphans),
    }


def expected_counts(name: str) -> dict[str, Any]:
    counted = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[name]
    roles = counted["messages_by_role"]
    same = (
        "sessions",
        "tool_calls_by_name",
        "tool_results",
        "errors_by_tool",
        "calls_without_result",
        "results_without_call",
    )
    return {"user": roles.get("user", 0), "system": roles.get("system", 0), **{key: counted[key] for key in same}}


FILES = [
    "openai_chat/openinference_parallel_tool_calls.json",
    "openai_chat/pydantic_ai_dbos_complex_run.json",
    "openai_chat/pydantic_ai_deepseek_thinking_parallel.json",
    "openai_chat/pydantic_ai_multiple_images_base64.json",
    "openai_chat/tau_bench_gpt4o_airline_first40.json",
    "sdk_transcripts/openinference-langgraph/openai_chat.json",
    "sdk_transcripts/openinference-openai-chat/openai_chat_nonstream.json",
    "sdk_transcripts/openinference-openai-chat/openai_chat_stream.json",
    "sdk_transcripts/otelgenai-openai-chat/openai_chat_nonstream.json",
    "sdk_transcripts/otelgenai-openai-chat/openai_chat_stream.json",
]


TOLD_BY_TEXT = {
    "sdk_transcripts/openinference-langgraph/openai_chat.json": "get_weather",
    **{
        f"sdk_transcripts/{sdk}-openai-chat/openai_chat_{kind}.json": "lookup"
        for sdk in ("openinference", "otelgenai")
        for kind in ("stream", "nonstream")
    },
}
"""Files with a failure that is visible only in its result, and the tool."""


@pytest.mark.parametrize("name", FILES)
def test_real_files_match_independent_counts(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip("the shared data are not on this machine")
    document = load(SHARED / name)
    assert recognises(document)
    sessions, left_out = read(document)
    # The format has no flag for failures, so the independent count has none; these results say "Error: ..." or {"error": ...}.
    expected = {"errors_by_tool": {TOLD_BY_TEXT[name]: 1}} if name in TOLD_BY_TEXT else {}
    assert counts(sessions) == expected_counts(name) | expected
    assert left_out == []


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    if not SHARED.exists():
        pytest.skip("the shared data are not on this machine")
    others = [
        path
        for folder in (
            "anthropic",
            "atif",
            "inspect_ai",
            "langchain",
            "langfuse",
            "openhands",
            "openai_responses",
            "sdk_transcripts",
        )
        for path in sorted((SHARED / folder).rglob("*.json"))
        if "openai_chat" not in path.name
    ]
    assert len(others) > 15
    assert [path.name for path in others if recognises(load(path))] == []


def test_own_sdk_runs_give_expected_records() -> None:
    actual = [read(load(OWN / f"{name}.json"))[0] for name in ("broken_arguments", "broken_arguments_again")]
    assert [counts(sessions) for sessions in actual] == [
        {
            "sessions": 1,
            "user": 1,
            "system": 1,
            "tool_calls_by_name": {"lookup": 2, "ping": 1},
            "tool_results": 3,
            "errors_by_tool": {"lookup": 1},
            "calls_without_result": 0,
            "results_without_call": 0,
        }
    ] * 2
    first, second = (sessions[0] for sessions in actual)
    assert first.external_id == second.external_id
    assert digests_of(first.metadata)[:2] == digests_of(second.metadata)[:2]
    assert digests_of(first.metadata)[2] != digests_of(second.metadata)[2]


# --- Lines ----------------------------------------------------------------------------------------------------------


def lines_of(*values: object) -> tuple[Lines, list[int]]:
    """Return the values as lines, and a counter of how often they were read."""
    passes: list[int] = []

    def read_again() -> Iterator[Line]:
        passes.append(len(passes))
        yield from (Line(number, value) for number, value in enumerate(values, start=1))

    return Lines(read_again), passes


def test_lines_of_messages_are_read_twice() -> None:
    document, passes = lines_of(USER, calling(call()), {"role": "critic"}, {"role": "tool", "tool_call_id": "c1"}, DONE)
    left_out: list[tuple[str, str]] = []
    (actual,) = transcripts(document, lambda where, why: left_out.append((where, why)))
    before = len(passes)
    assert [entry.id for entry in actual.entries()] == ["0", "1", "3", "4"]
    assert [where for where, _why in left_out] == ["line 3"]
    assert len(passes) == before + 1


def test_lines_equal_a_list() -> None:
    bodies = [{"model": "m", "messages": [USER, DONE, USER][:n]} for n in (1, 2, 3)]
    named = [{"session_id": "s", "messages": [USER]}, {"session_id": "s", "messages": [DONE]}]
    values = [bodies[0], named[0], [USER], bodies[1], "odd", {"messages": []}, named[1], bodies[2]]
    sessions, left_out = read(lines_of(*values)[0])
    expected, left_out_of_list = read(values)
    assert sessions == expected
    assert [why for _where, why in left_out] == [why for _where, why in left_out_of_list]
    assert [where for where, _why in left_out] == ["line 5", "line 6.messages"]


def test_part_with_invalid_type_does_not_hide_format() -> None:
    assert recognises([USER, calling(call()), {"role": "user", "content": [{"type": ["text"]}]}])
    assert not recognises([{"role": "user", "content": [{"type": ["text"]}]}])

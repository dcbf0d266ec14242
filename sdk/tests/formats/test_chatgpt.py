"""Conversations of ChatGPT: the visible branch, tools and their results, hidden messages, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import chatgpt
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.records.health_flags import GUESSED_RESULT

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps

START = 1772359200.0
"""2026-03-01T10:00:00Z."""


def node(own: str, parent: str | None, role: str, *parts: Any, kind: str = "text", name: str | None = None, recipient: str = "all", content: Any = None, **metadata: Any) -> dict[str, Any]:  # fmt: skip
    number = int(own[1:])
    value = content if content is not None else {"content_type": kind, "parts": list(parts)}
    return {
        "id": own,
        "parent": parent,
        "children": [],
        "message": {
            "id": own,
            "author": {"role": role, "name": name, "metadata": {}},
            "create_time": START + number,
            "update_time": None,
            "content": value,
            "status": "finished_successfully",
            "end_turn": None,
            "weight": 1.0,
            "metadata": metadata,
            "recipient": recipient,
            "channel": None,
        },
    }


def code(content: str, **others: Any) -> dict[str, Any]:
    return {"content_type": "code", "language": "unknown", "text": content, **others}


def conversation(nodes: list[dict[str, Any]], current: str | None = None, **fields: Any) -> dict[str, Any]:
    mapping = {item["id"]: {**item, "children": [other["id"] for other in nodes if other["parent"] == item["id"]]} for item in nodes}  # fmt: skip
    return {
        "title": "A look",
        "create_time": START,
        "update_time": START + 60,
        "mapping": mapping,
        "current_node": current if current is not None else nodes[-1]["id"],
        "conversation_id": "conv-1",
        "id": "conv-1",
        "moderation_results": [],
        "default_model_slug": "gpt-5",
        **fields,
    }


ROOT = {"id": "root", "parent": None, "children": [], "message": None}
RAN = {"status": "success", "start_time": START + 5, "end_time": START + 7, "code": "1+1", "messages": []}
PATH = [
    ROOT,
    node("n1", "root", "system", "", is_visually_hidden_from_conversation=True),
    node("n2", "n1", "user", kind="user_editable_context", content={"content_type": "user_editable_context", "user_profile": "I am Ann.", "user_instructions": "Be brief."}, is_visually_hidden_from_conversation=True),
    node("n3", "n2", "user", "What is this?", {"content_type": "image_asset_pointer", "asset_pointer": "file-service://a", "width": 5}, kind="multimodal_text", attachments=[{"name": "a.png"}]),
    node("n4", "n3", "assistant", content={"content_type": "thoughts", "thoughts": [{"summary": "Looking", "content": "I look."}]}, model_slug="gpt-5-thinking"),
    node("n5", "n4", "assistant", content=code("print(1+1)"), recipient="python", model_slug="gpt-5-thinking"),
    node("n6", "n5", "tool", name="python", content={"content_type": "execution_output", "text": "2"}, aggregate_result=RAN),
    node("n7", "n6", "assistant", "Let me search."),
    node("n8", "n7", "assistant", content=code('{"search_query": [{"q": "x"}]}'), recipient="web.run"),
    node("n9", "n8", "tool", name="web.run", content={"content_type": "tether_browsing_display", "result": "", "summary": ""}, command="spinner"),
    node("n10", "n9", "tool", name="web.run", content={"content_type": "tether_quote", "url": "https://example.com", "domain": "example.com", "text": "Found.", "title": "T"}),
    node("n11", "n10", "assistant", content=code('{"cmd": ["ls"]}'), recipient="container.exec"),
    node("n12", "n11", "tool", name="container.exec", content={"content_type": "system_error", "name": "ExecError", "text": "exit 1"}),
    node("n13", "n12", "assistant", content={"content_type": "reasoning_recap", "content": "Thought for 9s"}),
    node("n14", "n13", "assistant", "A cat.", model_slug="gpt-5", citations=[{"a": 1}]),
    node("n15", "n14", "user", "Draw one"),
    node("n16", "n15", "assistant", '{"prompt": "a cat"}', recipient="dalle.text2im"),
    node("n17", "n16", "tool", {"content_type": "image_asset_pointer", "asset_pointer": "file-service://b"}, kind="multimodal_text", name="dalle.text2im"),
    node("n18", "n17", "tool", "DALL-E displayed 1 image.", name="dalle.text2im"),
    node("n19", "n18", "assistant", "Here it is."),
]  # fmt: skip
OTHER = [node("n30", "n3", "assistant", "An old answer."), node("n31", "n30", "user", "Are you sure?")]
CONVERSATION = conversation([*PATH, *OTHER], "n19")


def test_full_conversation_gives_expected_records() -> None:
    (session,), left_out = read(chatgpt, [CONVERSATION])
    assert format_of([CONVERSATION]) is chatgpt
    assert left_out == [("[0].mapping", "other branches: 2 messages")]
    assert (session.external_id, session.title) == ("conv-1", "A look")
    assert session.created_at == datetime(2026, 3, 1, 10, tzinfo=UTC)
    assert (session.metadata or {})["default_model_slug"] == "gpt-5"
    context, question, answer, again, drawn = session.messages or []
    assert (context.role, context.content) == ("system", "I am Ann.\n\nBe brief.")
    assert question.content == [
        {"type": "text", "text": "What is this?"},
        {"type": "image_asset_pointer", "asset_pointer": "file-service://a", "width": 5},
    ]
    assert ((question.metadata or {})["attachments"], question.external_id) == ([{"name": "a.png"}], "n3")
    assert (answer.content, answer.external_id, (answer.metadata or {})["reasoning_recap"]) == ("A cat.", "n4", "Thought for 9s")  # fmt: skip
    assert (answer.metadata or {})["citations"] == [{"a": 1}]
    assert (again.content, drawn.content) == ("Draw one", "Here it is.")
    first, second, third, last = steps(answer)
    assert (first.reasoning_content, first.model, second.thought) == ("**Looking**\nI look.", "gpt-5-thinking", "Let me search.")  # fmt: skip
    assert first.timestamp == datetime(2026, 3, 1, 10, 0, 4, tzinfo=UTC)
    assert third.thought is None
    assert (last.thought, last.model, last.timestamp) == (None, "gpt-5", datetime(2026, 3, 1, 10, 0, 13, tzinfo=UTC))
    assert steps(drawn)[1:] == [], "the model of this answer is unknown"
    assert [(call.name, call.args, has_failed(call)) for call in calls(session)] == [
        ("python", {"code": "print(1+1)"}, False),
        ("web.run", {"search_query": [{"q": "x"}]}, False),
        ("container.exec", {"cmd": ["ls"]}, True),
        ("dalle.text2im", {"prompt": "a cat"}, False),
    ]
    python, web, failed, image = (call.result for call in calls(session))
    assert isinstance(python, records.ToolResult) and isinstance(web, records.ToolResult)
    assert isinstance(failed, records.ToolResult) and isinstance(image, records.ToolResult)
    assert (python.output, python.data, calls(session)[0].duration) == ("2", RAN, 2000.0)
    assert (web.output, web.data) == ("Found.", {"url": "https://example.com", "domain": "example.com", "title": "T"})
    assert failed.output == "exit 1"
    assert (image.output, image.attachments) == (
        "DALL-E displayed 1 image.",
        [{"type": "image_asset_pointer", "asset_pointer": "file-service://b"}],
    )
    assert figures([session])["tool_results"] == 4


def test_branch_without_current_node_ends_at_latest_leaf() -> None:
    for current in ("gone", ""):
        (session,), _ = read(chatgpt, conversation([*PATH, *OTHER], current))
        assert (session.messages or [])[-1].content == "Are you sure?"


def test_missing_node_is_reported_and_bridged() -> None:
    broken = conversation(PATH)
    del broken["mapping"]["n14"]
    (session,), left_out = read(chatgpt, broken)
    assert left_out == [("mapping", "the node n14 is missing")]
    assert figures([session])["tool_calls_by_name"]["python"] == 1


def test_cycle_ends_the_branch() -> None:
    looped = conversation(PATH)
    looped["mapping"]["n1"]["parent"] = "n19"
    (session,), _ = read(chatgpt, looped)
    assert len(session.messages or ()) == 5


def test_parallel_calls_have_their_own_results() -> None:
    nodes = [
        node("n1", None, "user", "Both"),
        node("n2", "n1", "assistant", content=code('{"a": 1}'), recipient="web"),
        node("n3", "n2", "assistant", content=code('{"a": 2}'), recipient="web"),
        node("n4", "n3", "tool", "one", name="web"),
        node("n5", "n4", "tool", "two", name="web"),
    ]
    session = only(chatgpt, conversation(nodes))
    assert len(steps((session.messages or [])[1])) == 1
    outputs = [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert outputs == ["one", "two"]
    assert guesses(session) == [True, True]


def guesses(session: records.Session) -> list[bool]:
    """Return for each call whether its result is a guess; the answer is flagged if any is."""
    found = [GUESSED_RESULT in (call.metadata or {}) for call in calls(session)]
    assert any(found) == any(GUESSED_RESULT in (message.health or ()) for message in session.messages or ())
    return found


def test_results_of_calls_that_anything_tells_apart_are_no_guess() -> None:
    def ran(source: str) -> dict[str, Any]:
        return {"aggregate_result": {**RAN, "code": source}}

    nodes = [
        node("n1", None, "user", "All"),
        node("n2", "n1", "assistant", content=code("a"), recipient="python"),
        node("n3", "n2", "assistant", content=code("b"), recipient="python"),
        node("n4", "n3", "assistant", content=code('{"q": "c"}'), recipient="web"),
        node("n5", "n4", "tool", "of b", name="python", **ran("b")),
        node("n6", "n5", "tool", "of c", name="web"),
        node("n7", "n6", "tool", "of a", name="python", **ran("a")),
        node("n8", "n7", "assistant", content=code("a"), recipient="python"),
        node("n9", "n8", "tool", "of a again", name="python"),
        node("n10", "n9", "tool", "its picture", name="python"),
    ]
    session = only(chatgpt, conversation(nodes))
    outputs = [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert outputs == ["of a", "of b", "of c", "of a again\n\nits picture"]
    assert guesses(session) == [False] * 4


def test_tool_message_without_call_is_an_orphan() -> None:
    nodes = [node("n1", None, "user", "Read"), node("n2", "n1", "tool", "Uploaded.", name="file_search"), node("n3", "n2", "assistant", "Ok")]  # fmt: skip
    counts = figures([only(chatgpt, conversation(nodes))])
    assert (counts["results_without_call"], counts["tool_calls_by_name"]) == (1, {})


@pytest.mark.parametrize(
    ("metadata", "failed"),
    [
        ({"aggregate_result": {"status": "failed_with_system_exception"}}, True),
        ({"aggregate_result": {"status": "success", "in_kernel_exception": {"name": "ValueError"}}}, True),
        ({"aggregate_result": {"status": "success"}}, False),
        ({"is_error": True}, True),
        ({}, None),
    ],
)
def test_aggregate_result_decides_code_status(metadata: dict[str, Any], failed: bool | None) -> None:
    nodes = [
        node("n1", None, "user", "Run"),
        node("n2", "n1", "assistant", content=code("x"), recipient="python"),
        node("n3", "n2", "tool", name="python", content={"content_type": "execution_output", "text": "o"}, **metadata),
    ]
    (transcript,) = chatgpt.transcripts(conversation(nodes), lambda where, why: None)
    (result,) = (entry for entry in transcript.entries() if hasattr(entry, "failed"))
    assert result.failed is failed


def test_hidden_prompt_is_system_message_file_is_prompt() -> None:
    nodes = [
        node("n1", None, "user", "Hidden", is_visually_hidden_from_conversation=True),
        node("n2", "n1", "user", "", attachments=[{"name": "a.pdf"}]),
        node("n3", "n2", "assistant", content={"content_type": "system_error", "name": "e", "text": "overloaded"}),
    ]
    session = only(chatgpt, conversation(nodes))
    assert [(message.role, message.content, message.error) for message in session.messages or ()] == [
        ("system", "Hidden", None),
        ("user", None, None),
        ("assistant", None, "overloaded"),
    ]


def test_several_conversations_in_every_form_are_sessions() -> None:
    second = conversation(PATH[:5], conversation_id="conv-2", title="Other")
    empty = conversation([ROOT], conversation_id="conv-3")
    for document in ([CONVERSATION, second, empty, 3], lines([CONVERSATION, second, empty, 3])):
        sessions, left_out = read(chatgpt, document)
        assert [session.external_id for session in sessions] == ["conv-1", "conv-2"]
        assert [why for _where, why in left_out] == [
            "other branches: 2 messages",
            "no user or assistant message",
            "not a conversation: no messages under mapping",
        ]


@pytest.mark.parametrize("count", [4, 6, 7, 8, 9, 11, 12, 13, 15, 16, 17, 19, 20])
def test_grown_conversation_keeps_earlier_records(count: int) -> None:
    assert_grows(chatgpt, conversation(PATH[:count]), conversation([*PATH]))


@given(mangled(CONVERSATION))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, [document], lines([document])):
        if chatgpt.recognises(form):
            read(chatgpt, form)


@pytest.mark.parametrize(
    "document",
    [None, [], {}, [3], {"mapping": {}}, {"mapping": {"a": {"b": 1}}}, {"mapping": {"a": {"message": {}}}}, lines([])],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not chatgpt.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(chatgpt)

"""Eko: its callback messages in all versions, its chains, and the counts of real files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.formats import reading
from sdk.tests.paths import SHARED
from tracesite_sdk import records
from tracesite_sdk.eko import transcripts as eko
from tracesite_sdk.eko.transcripts import NAME, recognises, transcripts
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import Document, Line, Lines
from tracesite_sdk.transcripts.entries import Entry, Reply
from tracesite_sdk.transcripts.outline import digests

PLAN = {"taskId": "t1", "name": "Trip", "thought": "First look.", "agents": [{"id": "t1-00", "name": "Guide"}]}


def said(kind: str, node: str | None = "t1-00", **fields: Any) -> dict[str, Any]:
    """Build a callback message of version 3."""
    where = {"taskId": "t1", "agentName": "Guide" if node else "Planer", **({"nodeId": node} if node else {})}
    return {**where, "type": kind, **fields}


def text(words: str, stream: str = "s1", *, done: bool = True, **fields: Any) -> dict[str, Any]:
    return said("text", streamId=stream, streamDone=done, text=words, **fields)


def use(id_: str, name: str = "look", node: str = "t1-00", **params: Any) -> dict[str, Any]:
    return said("tool_use", node, toolId=id_, toolName=name, params=params)


def answered(id_: str, words: str, name: str = "look", node: str = "t1-00", **fields: Any) -> dict[str, Any]:
    answer = {"content": [{"type": "text", "text": words}], **fields}
    return said("tool_result", node, toolId=id_, toolName=name, params={}, toolResult=answer)


def finish(node: str = "t1-00") -> dict[str, Any]:
    return said("finish", node, finishReason="stop", usage={"promptTokens": 7, "completionTokens": 3})


RUN = [
    said("workflow", None, streamDone=False, workflow={"taskId": "t1", "name": "Tr", "agents": []}),
    said("workflow", None, streamDone=True, workflow=PLAN | {"taskPrompt": "Show me."}),
    said("agent_start", agentNode={"id": "t1-00", "name": "Guide", "status": "running"}),
    said("thinking", streamId="r1", streamDone=False, text="Let"),
    said("thinking", streamId="r1", streamDone=True, text="Let me"),
    text("I lo", done=False),
    text("I look."),
    said("tool_streaming", toolId="c1", toolName="look", paramsText='{"at":'),
    use("c1"),
    use("c1", at="map"),
    use("c2", at="sky"),
    text("I look."),
    finish(),
    said("tool_running", toolId="c2", toolName="look", streamId="p", streamDone=True, text="looking"),
    answered("c2", "Error: dark", isError=True),
    answered("c1", "A road", extInfo={"km": 3}),
    text("Done", "s2", done=False),
    text("Done.", "s2"),
    finish(),
    said("agent_result", agentNode={"id": "t1-00", "name": "Guide", "status": "done"}, result="Done."),
]


def read(document: object) -> tuple[list[records.Session], list[tuple[str, str]]]:
    return reading.read(eko, document)


def entries(document: object) -> list[Entry]:
    """Return the entries of the only transcript."""
    (transcript,) = transcripts(document, lambda _where, _why: None)
    return list(transcript.entries())


def outline(session: records.Session) -> list[Any]:
    """Return messages as (role, content, steps), steps as (agent, thought, calls)."""
    return [
        (
            message.role,
            message.content,
            [
                (
                    step.agent_name,
                    step.thought,
                    [
                        (call.id, call.name, call.args, call.status, call.result.output if call.result else None)  # type: ignore[union-attr]
                        for call in step.tool_calls or ()
                    ],
                )
                for step in message.agent_steps or ()
            ],
        )
        for message in session.messages or ()
    ]


EXPECTED = [
    ("user", "Show me.", []),
    (
        "assistant",
        "Done.",
        [
            (
                "Guide",
                "I look.",
                [
                    ("c1", "look", {"at": "map"}, None, "A road"),
                    ("c2", "look", {"at": "sky"}, "error", "Error: dark"),
                ],
            ),
            ("Guide", None, []),
        ],
    ),
]


def test_finished_messages_give_the_run() -> None:
    (session,), left_out = read(RUN)
    assert left_out == []
    assert outline(session) == EXPECTED
    assert (session.external_id, session.title, session.workflow) == ("t1", "Trip", PLAN | {"taskPrompt": "Show me."})
    metadata = session.metadata or {}
    assert metadata["agents"] == [
        {"nodeId": "t1-00", "id": "t1-00", "name": "Guide", "status": "done", "result": "Done."}
    ]


def test_reply_has_thoughts_and_usage_result_has_data() -> None:
    _prompt, reply, dark, road, _answer = entries(RUN)
    assert isinstance(reply, Reply)
    assert (reply.reasoning, reply.usage, reply.metadata) == (
        "Let me",
        {"promptTokens": 7, "completionTokens": 3},
        {"finishReason": "stop"},
    )
    assert (getattr(road, "data", None), getattr(dark, "metadata", None)) == ({"km": 3}, {"progress": "looking"})


def fourth(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message in the form of version 4."""
    message = {"streamType": "agent", "chatId": "chat", **message}
    if "toolId" in message:
        message["toolCallId"] = message.pop("toolId")
    return message


def wrapped(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message wrapped with time and payload."""
    payload = {name: value for name, value in message.items() if name not in ("taskId", "type")}
    return {"taskId": message["taskId"], "type": message["type"], "ts": 1_772_366_400_000, "payload": payload}


VERSIONS: dict[str, Any] = {
    "version 4": list(map(fourth, RUN)),
    "with time and payload": list(map(wrapped, RUN)),
    "lines": reading.lines(RUN),
    "an object that holds them": {"messages": RUN, "exported": "now"},
    "finished messages only": [message for message in RUN if message.get("streamDone") is not False],
}


@pytest.mark.parametrize("document", VERSIONS.values(), ids=VERSIONS)
def test_all_versions_give_the_same_session(document: Document) -> None:
    assert recognises(document)
    (session,), left_out = read(document)
    assert left_out == []
    assert outline(session) == EXPECTED


def test_debugger_times_are_times_of_entries() -> None:
    actual = [str(entry.created_at) for entry in entries([wrapped(message) for message in RUN])]
    assert actual == ["2026-03-01 12:00:00+00:00"] * 5


PARALLEL = [
    use("c1", node="t1-01", at="left"),
    use("c1", node="t1-02", at="right"),
    finish("t1-02"),
    finish("t1-01"),
    answered("c1", "right answer", node="t1-02"),
    answered("c1", "left answer", node="t1-01"),
]


def test_parallel_agents_with_equal_call_ids_stay_apart() -> None:
    (session,), _left_out = read(PARALLEL)
    (message,) = outline(session)
    assert message[2] == [
        ("Guide", None, [("c1", "look", {"at": "right"}, None, "right answer")]),
        ("Guide", None, [("c1", "look", {"at": "left"}, None, "left answer")]),
    ]


def test_tasks_in_one_file_are_sessions() -> None:
    other = [{**message, "taskId": "t2"} for message in RUN]
    mixed = [message for pair in zip(RUN, other, strict=True) for message in pair]
    sessions, left_out = read(mixed)
    assert left_out == []
    assert [(session.external_id, outline(session)) for session in sessions] == [("t1", EXPECTED), ("t2", EXPECTED)]


@pytest.mark.parametrize("most", [0, 500, 1_500, 10**9])
def test_many_tasks_are_read_within_the_held_limit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eko, "_MAX_HELD_CHARACTERS", most)
    times = 0
    mixed = [{**message, "taskId": f"t{n}"} for message in RUN for n in range(4)]

    def again() -> Iterator[Line]:
        nonlocal times
        times += 1
        return (Line(number, value) for number, value in enumerate(mixed, start=1))

    sessions, left_out = read(Lines(again))
    assert left_out == []
    assert [(session.external_id, outline(session)) for session in sessions] == [(f"t{n}", EXPECTED) for n in range(4)]
    assert times == {10**9: 2}.get(most, times)


def test_failed_agent_is_a_failed_reply() -> None:
    document = [text("Hm."), said("agent_result", agentNode={"status": "error"}, error={"message": "No model"})]
    (reply,) = entries(document)
    assert isinstance(reply, Reply)
    assert (reply.content, reply.error) == ("Hm.", "No model")
    (session,), _left_out = read(document)
    assert session.status == "error"


def test_empty_error_object_is_an_error() -> None:
    (reply,) = entries([said("error", error={})])
    assert isinstance(reply, Reply)
    assert (reply.content, reply.error) == (None, "an error without text")


def test_agent_result_without_texts_is_the_answer() -> None:
    (session,), _left_out = read([said("agent_result", agentNode={}, result="Done.")])
    assert outline(session) == [("assistant", "Done.", [])]


def test_file_message_is_part_of_the_reply() -> None:
    (reply,) = entries([text("See"), said("file", mimeType="image/png", data="iVBO"), finish()])
    assert isinstance(reply, Reply)
    assert reply.content == [
        {"type": "text", "text": "See"},
        {"type": "file", "mimeType": "image/png", "data": "iVBO"},
    ]


def test_debugger_gives_prompt_duration_and_status() -> None:
    document = [
        said("debug_task_start", None, taskPrompt="Show me."),
        use("c1"),
        finish(),
        said("debug_tool_call_finished", toolId="c1", toolName="look", duration=12.5),
        answered("c1", "A road"),
        said("debug_task_finished", None, success=False, stopReason="abort", error="stopped"),
    ]
    (session,), left_out = read(document)
    assert left_out == []
    assert (session.status, outline(session)[0]) == ("aborted", ("user", "Show me.", []))
    assert [getattr(entry, "duration", None) for entry in entries(document)] == [None, None, 12.5]
    assert {name: (session.metadata or {})[name] for name in ("stopReason", "error")} == {
        "stopReason": "abort",
        "error": "stopped",
    }


def test_chat_and_its_task_are_two_sessions() -> None:
    chat = {"streamType": "chat", "chatId": "chat", "messageId": "m1"}
    document = [
        chat | {"type": "chat_start"},
        chat | {"type": "text", "streamId": "s", "streamDone": True, "text": "I start it."},
        chat | {"type": "tool_use", "toolCallId": "c1", "toolName": "deepAction", "params": {"what": "trip"}},
        chat | {"type": "finish", "finishReason": "tool-calls", "usage": {"promptTokens": 1}},
        *map(fourth, RUN),
        chat | {"type": "tool_result", "toolCallId": "c1", "toolName": "deepAction", "toolResult": {"content": []}},
        chat | {"type": "chat_end", "error": "stopped", "duration": 9, "reactLoopNum": 1},
    ]
    sessions, left_out = read(document)
    assert left_out == []
    assert [(session.external_id, session.status) for session in sessions] == [("chat", "error"), ("t1", None)]
    assert outline(sessions[0])[0][2] == [(None, "I start it.", [("c1", "deepAction", {"what": "trip"}, None, [])])]
    assert ((sessions[0].metadata or {})["duration"], (sessions[1].metadata or {})["chatId"]) == (9, "chat")


def test_unfinished_reply_is_left_out() -> None:
    sessions, left_out = read(RUN[:9])
    assert outline(sessions[0]) == [("user", "Show me.", [])]
    assert left_out == [("reply 0 of t1-00", "incomplete: the file ends")]


@given(st.integers(0, len(RUN)))
def test_prefix_of_run_gives_prefix_of_entries(count: int) -> None:
    whole = entries(RUN)
    starts = [list(transcript.entries()) for transcript in transcripts(RUN[:count], lambda _where, _why: None)]
    for start in starts:
        assert start == whole[: len(start)]
        assert digests(start) == digests(whole)[: len(digests(start))]


def test_invalid_parts_are_reported_with_their_places() -> None:
    sessions, left_out = read([*RUN, 5, said("hologram"), said("tool_result", toolId="c9", toolResult="text")])
    assert len(sessions) == 1
    assert left_out == [
        ("[20]", "not an Eko callback message"),
        ("[21]", "unknown type 'hologram'"),
        ("[22].toolResult", "not an object; stored as the output"),
    ]


# --- Chains -------------------------------------------------------------------------------------------------------


def request(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"tools": [{"name": "look"}], "messages": [{"role": "assistant", "content": list(parts)}]}


def part(id_: str, **args: Any) -> dict[str, Any]:
    return {"type": "tool-call", "toolCallId": id_, "toolName": "look", "input": args}


def made(id_: str, call: dict[str, Any], words: str, **fields: Any) -> dict[str, Any]:
    answer = {"content": [{"type": "text", "text": words}], **fields}
    return {"toolName": "look", "toolCallId": id_, "request": call, "params": {"at": id_}, "toolResult": answer}


ASKED = request({"type": "text", "text": "I look."}, part("c1", at="c1"), part("c2", at="c2"), part("c3", at="end"))
CHAIN = {
    "taskPrompt": "Show me.",
    "planRequest": {"messages": []},
    "planResult": "<root><name>Trip</name><thought>First look.</thought></root>",
    "agents": [
        {
            "agent": {"id": "t1-00", "name": "Guide", "status": "done"},
            "tools": [made("c1", ASKED, "A road"), made("c2", ASKED, "Error: dark", isError=True)],
            "agentRequest": {"messages": [{"role": "system", "content": "You guide."}], "tools": [{"name": "look"}]},
            "agentResult": "Done.",
        }
    ],
}


def test_chain_gives_replies_of_its_agents() -> None:
    (session,), left_out = read(CHAIN)
    assert left_out == []
    assert outline(session) == [
        ("user", "Show me.", []),
        (
            "assistant",
            "Done.",
            [
                (
                    "Guide",
                    "I look.",
                    [
                        ("c1", "look", {"at": "c1"}, None, "A road"),
                        ("c2", "look", {"at": "c2"}, "error", "Error: dark"),
                        ("c3", "look", {"at": "end"}, "pending", None),
                    ],
                )
            ],
        ),
    ]
    assert (session.external_id, session.title) == ("t1", "Trip")
    assert (session.metadata or {})["agents"] == [
        {
            "id": "t1-00",
            "name": "Guide",
            "status": "done",
            "system": "You guide.",
            "request": {"tools": [{"name": "look"}]},
        }
    ]


def test_chain_in_task_context_is_read() -> None:
    (session,), _left_out = read({"taskId": "t9", "chain": CHAIN, "workflow": PLAN, "variables": {"a": 1}})
    assert (session.external_id, session.workflow, (session.metadata or {})["variables"]) == ("t9", PLAN, {"a": 1})


def test_grown_chain_keeps_earlier_records() -> None:
    (agent,) = CHAIN["agents"]
    shorter = CHAIN | {"agents": [{**agent, "tools": agent["tools"][:1], "agentResult": None}]}  # type: ignore[dict-item]
    start, whole = digests(entries(shorter)), digests(entries(CHAIN))
    assert start == whole[: len(start)]


# --- Any document ---------------------------------------------------------------------------------------------------

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(
        st.sampled_from(
            ["taskId", "agentName", "nodeId", "type", "streamId", "streamDone", "text", "toolId", "toolName", "params", "toolResult", "content", "isError", "workflow", "agentNode", "error", "usage", "taskPrompt", "agents", "agent", "tools", "request", "messages", "role", "payload", "ts", "chain", "timestamp", "duration", "stopReason"]
        ),
        inner | st.sampled_from(["text", "tool_use", "tool_result", "finish", "workflow", "agent_result", "assistant"]),
        max_size=6,
    ),
    max_leaves=30,
)  # fmt: skip


@given(_json, st.sampled_from([*RUN, *map(fourth, RUN)]), st.sampled_from(sorted({key for m in RUN for key in m})))
def test_read_mangled_document_never_raises(inner: Any, message: dict[str, Any], key: str) -> None:
    documents = (inner, [*RUN[:9], message | {key: inner}], {"taskPrompt": "x", "agents": inner}, CHAIN | {key: inner})
    for document in documents:
        recognises(document)
        for session in read(document)[0]:
            assert session.external_id


# --- Real files -------------------------------------------------------------------------------------------------------


def load(path: Path) -> Any:
    content = path.read_text()
    return (
        reading.lines([json.loads(line) for line in content.splitlines()])
        if path.suffix == ".jsonl"
        else json.loads(content)
    )


@pytest.mark.parametrize(
    "name",
    [
        "eko/eko4_callback_messages.jsonl",
        "eko/eko4_callback_messages_done_only.json",
        "eko/eko_callback_messages.jsonl",
        "eko/eko_callback_messages_done_only.json",
    ],
)
def test_real_files_match_independent_counts(name: str) -> None:
    if not (SHARED / name).exists():
        pytest.skip("the shared data are not on this machine")
    document = load(SHARED / name)
    found_format = format_of(document)
    assert found_format is not None
    assert found_format.NAME == NAME
    (session,), left_out = read(document)
    assert left_out == []
    expected = json.loads((SHARED / "EXPECTED_COUNTS.json").read_text())[name]
    steps = [step for message in session.messages or () for step in message.agent_steps or ()]
    calls = [call for step in steps for call in step.tool_calls or ()]
    replies = [entry for entry in entries(document) if isinstance(entry, Reply)]
    assert {
        "tool_calls_by_name": dict(Counter(call.name for call in calls)),
        "tool_results": sum(call.result is not None for call in calls),
        "errors_by_tool": dict(Counter(call.name for call in calls if call.status == "error")),
        "calls_without_result": sum(call.result is None for call in calls),
        "results_without_call": sum(bool((call.metadata or {}).get("orphan_result")) for call in calls),
        "messages_by_role": dict(Counter(f"assistant:{reply.agent_name}" for reply in replies)),
    } == {
        key: expected[key]
        for key in (
            "tool_calls_by_name",
            "tool_results",
            "errors_by_tool",
            "calls_without_result",
            "results_without_call",
            "messages_by_role",
        )
    }


@pytest.mark.parametrize("version", ["eko", "eko4"])
def test_chain_and_messages_of_one_run_agree(version: str) -> None:
    if not SHARED.exists():
        pytest.skip("the shared data are not on this machine")
    files = [SHARED / "eko" / f"{version}_{name}" for name in ("callback_messages.jsonl", "chain.json")]
    (heard,), (kept,) = (read(load(file))[0] for file in files)

    def steps(session: records.Session) -> list[Any]:
        # A tool of this version 4 run emptied its params, and the chain refers to the same object. The request that gave
        # the answer is known by its tokens, which a chain has not.
        return [
            (step[0], step[1], [(call[0], call[1], call[3], call[4]) for call in step[2]])
            for step in outline(session)[-1][2]
            if step[1] or step[2]
        ]

    assert steps(heard) == steps(kept)


def test_parallel_agents_of_real_run_have_own_results() -> None:
    path = SHARED / "eko" / "eko_3.1.5_parallel_callbacks.jsonl"
    if not path.exists():
        pytest.skip("the shared data are not on this machine")
    (session,), left_out = read(load(path))
    assert left_out == []
    calls = [call for _agent, _thought, calls in outline(session)[-1][2] for call in calls]
    assert Counter((name, status) for _id, name, _args, status, _output in calls) == {
        ("echo", None): 4,
        ("boom", "error"): 4,
    }

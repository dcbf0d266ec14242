"""Simulations of τ²-bench: two with tools, outcomes, tokens, voice runs, and growth."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from tracesite_sdk import records
from tracesite_sdk.formats import tau2_bench
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.records.health_flags import NAIVE_TIME

from .reading import (
    assert_grows,
    assert_takes_any_type,
    assert_takes_no_other,
    calls,
    figures,
    has_failed,
    lines,
    mangled,
    only,
    read,
    steps,
)


def message(role: str, content: str | None, second: int, **fields: Any) -> dict[str, Any]:
    return {
        "role": role,
        "content": content,
        "turn_idx": second,
        "timestamp": f"2026-03-01T12:00:{second:02}.500000",
        **fields,
    }


def call(own: str, name: str, requestor: str = "assistant", **arguments: Any) -> dict[str, Any]:
    return {"id": own, "name": name, "arguments": arguments, "requestor": requestor}


def result(own: str, content: str, second: int, requestor: str = "assistant", *, error: bool = False) -> dict[str, Any]:
    return message("tool", content, second, id=own, requestor=requestor, error=error)


def usage(prompt: int, completion: int, cost: float) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": prompt, "completion_tokens": completion}, "cost": cost}


RAW = {"finish_reason": "tool_calls", "message": {"role": "assistant", "reasoning_content": "First the order."}}
MESSAGES = [
    message("assistant", "Hi! How can I help?", 0),
    message("user", "Where is my order?", 1, **usage(40, 4, 0.001)),
    message("assistant", None, 3, tool_calls=[call("c1", "find", order="A1"), call("c2", "find", order="B2")], generation_time_seconds=1.5, raw_data=RAW, **usage(100, 10, 0.01)),
    result("c2", "Error: no such order", 3, error=True),
    result("c1", "on its way", 3),
    message("assistant", "Is your data on?", 4, **usage(120, 5, 0.02)),
    message("user", None, 5, tool_calls=[call("u1", "toggle_data", "user")], **usage(50, 2, 0.001)),
    result("u1", "Data is on.", 6, "user"),
    message("user", "It works.", 7),
    message("assistant", "Good.", 8, **usage(130, 2, 0.01)),
    message("user", "###STOP###", 9),
]  # fmt: skip
SIMULATION = {
    "id": "sim-1",
    "task_id": "7",
    "trial": 1,
    "seed": 3,
    "start_time": "2026-03-01T12:00:00",
    "end_time": "2026-03-01T12:00:10",
    "duration": 10.0,
    "termination_reason": "user_stop",
    "agent_cost": 0.04,
    "user_cost": 0.002,
    "reward_info": {"reward": 1.0},
    "messages": MESSAGES,
}
RUN = {
    "timestamp": "2026-03-01T11:59:00",
    "info": {"git_commit": "abc", "num_trials": 2, "agent_info": {"implementation": "llm_agent", "llm": "m-1"}, "user_info": {"implementation": "user_simulator", "llm": "u-1"}, "environment_info": {"domain_name": "telecom", "policy": "Be brief.", "tool_defs": None}},
    "tasks": [{"id": "7", "user_scenario": {"instructions": "Ask for the order."}}, {"id": "8"}],
    "simulations": [SIMULATION, {**SIMULATION, "id": "sim-2", "task_id": 8, "trial": 0, "termination_reason": "max_steps", "messages": MESSAGES[:3]}],
}  # fmt: skip


def test_full_run_gives_expected_records() -> None:
    first, second = read(tau2_bench, RUN)[0]
    assert [(session.external_id, session.title, session.status) for session in (first, second)] == [
        ("sim-1", "telecom 7, trial 1", "completed"),
        ("sim-2", "telecom 8", "error"),
    ]
    assert first.metadata is not None and first.created_at == datetime(2026, 3, 1, 12, tzinfo=UTC)
    assert (first.metadata["reward_info"], first.metadata["task"]["id"], first.metadata["git_commit"]) == (
        {"reward": 1.0},
        "7",
        "abc",
    )
    policy, greeting, order, answer, works, good, stop = first.messages or []
    assert (policy.role, policy.content, greeting.content) == ("system", "Be brief.", "Hi! How can I help?")
    assert (order.content, (order.metadata or {})["cost"], works.content, good.content) == (
        "Where is my order?",
        0.001,
        "It works.",
        "Good.",
    )
    assert (stop.role, stop.content, order.health) == ("system", "###STOP###", [NAIVE_TIME])
    find, asks, toggles = steps(answer)
    assert (find.model, find.reasoning_content, find.usage) == (
        "m-1",
        "First the order.",
        {"prompt_tokens": 100, "completion_tokens": 10, "cost": 0.01},
    )
    assert (find.timestamp, find.duration) == (datetime(2026, 3, 1, 12, 0, 2, tzinfo=UTC), 1500.0)
    assert (asks.thought, toggles.agent_name, toggles.model) == (None, "user", "u-1")
    assert (toggles.usage, (toggles.metadata or {})["cost"]) == (None, 0.001)
    assert answer.content == "Is your data on?"
    a, b, data = calls(first)
    assert isinstance(a.result, records.ToolResult) and a.result.output == "on its way"
    assert [(call.id, call.name, call.args, has_failed(call)) for call in (a, b, data)] == [
        ("c1", "find", {"order": "A1"}, False),
        ("c2", "find", {"order": "B2"}, True),
        ("u1", "toggle_data", {}, False),
    ]


def test_samples_match_counts_made_by_hand() -> None:
    counts = figures(read(tau2_bench, RUN)[0])
    assert (counts["sessions"], counts["user"], counts["tool_calls_by_name"]) == (2, 3, {"find": 4, "toggle_data": 1})
    assert (counts["tool_results"], counts["errors_by_tool"], counts["calls_without_result"]) == (3, {"find": 1}, 2)


@pytest.mark.parametrize("document", [SIMULATION, [SIMULATION], lines([SIMULATION])])
def test_simulation_alone_is_read_without_the_models(document: object) -> None:
    session = only(tau2_bench, document)
    assert (session.title, [step.model for step in steps((session.messages or [])[2])]) == (
        "task 7, trial 1",
        [None, None, None],
    )


def test_ticks_of_a_voice_run_are_joined() -> None:
    def tick(number: int, agent: str | None = None, user: str | None = None, **fields: Any) -> dict[str, Any]:
        chunks = {
            f"{name}_chunk": {"content": said, "is_audio": False}
            for name, said in (("agent", agent), ("user", user))
            if said
        }
        return {
            "tick_id": number,
            "timestamp": f"2026-03-01T12:00:{number:02}",
            "agent_tool_calls": [],
            **chunks,
            **fields,
        }

    ticks = [
        tick(0, user="Where is "),
        tick(1, user="my order?"),
        tick(2, user_chunk={"content": "AAAA", "is_audio": True, "audio_script_gold": " Hm?"}),
        tick(3, agent="I ", agent_tool_results=[]),
        tick(4, agent="look.", agent_tool_calls=[call("c1", "find")]),
        tick(5, agent_tool_results=[result("c1", "on its way", 5)]),
        tick(6, agent="On its way."),
    ]
    session = only(tau2_bench, {**SIMULATION, "messages": None, "ticks": ticks})
    question, answer = session.messages or []
    assert (question.content, answer.content) == ("Where is my order? Hm?", "On its way.")
    assert [step.thought for step in steps(answer)] == ["I look."]
    assert [(call.id, call.status, call.started_at) for call in calls(session)] == [
        ("c1", "success", datetime(2026, 3, 1, 12, 0, 3, tzinfo=UTC))
    ]


def test_what_all_sessions_share_counts_for_each() -> None:
    first, second = tau2_bench.transcripts(RUN, lambda _where, _why: None)
    assert first.put_in == second.put_in > len("Be brief.")


def test_time_before_the_first_year_is_read() -> None:
    answer = {**MESSAGES[0], "timestamp": "0001-01-01T00:00:00", "generation_time_seconds": 5}
    assert len(read(tau2_bench, {**SIMULATION, "messages": [answer]})[0]) == 1


def test_invalid_parts_are_reported_with_their_places() -> None:
    odd = {**SIMULATION, "messages": [*MESSAGES[:2], 3, {"role": "judge"}]}
    _found, left_out = read(tau2_bench, {**RUN, "simulations": [odd, {**SIMULATION, "messages": []}, {"id": "x"}]})
    assert left_out == [
        ("simulations[0].messages[2]", "not a message of system, user, assistant or tool"),
        ("simulations[0].messages[3]", "not a message of system, user, assistant or tool"),
        ("simulations[1]", "no user or assistant message"),
        ("simulations[2]", "not a simulation of τ²-bench"),
    ]


@pytest.mark.parametrize("count", range(1, len(MESSAGES)))
def test_grown_simulation_keeps_earlier_records(count: int) -> None:
    assert_grows(tau2_bench, {**SIMULATION, "messages": MESSAGES[:count]}, SIMULATION)


def test_values_of_any_type_are_read() -> None:
    assert_takes_any_type(tau2_bench, {**RUN, "simulations": [{**SIMULATION, "messages": MESSAGES[:4]}]})


@given(
    mangled(
        [
            RUN,
            {
                **SIMULATION,
                "messages": [],
                "ticks": [{"agent_chunk": {"content": "Hi"}, "user_tool_calls": [call("u", "a")]}],
            },
        ]
    )
)
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, *(document if isinstance(document, list) else ())):
        if tau2_bench.recognises(form):
            read(tau2_bench, form)


@pytest.mark.parametrize("document", [RUN, SIMULATION])
def test_run_is_read_by_this_format(document: object) -> None:
    assert format_of(document) is tau2_bench


@pytest.mark.parametrize(
    "document",
    [None, [], {"tasks": [], "simulations": []}, {"task_id": 1, "traj": MESSAGES, "reward": 1}, {"messages": MESSAGES}],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not tau2_bench.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(tau2_bench)

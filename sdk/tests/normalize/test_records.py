"""Normalization of records to one form without loss."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import tokens
from tracesite_sdk.normalize.records import hyphenated_uuid, normalise, normalise_steps, text_of
from tracesite_sdk.normalize.tool_results import NO_REASON

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def message(**fields: Any) -> records.Message:
    session = msgspec.convert({"messages": [{"role": "assistant", **fields}]}, records.Session)
    (normal,) = normalise(session, now=NOW).messages or ()
    return normal


def result(said: Any, **call: Any) -> records.ToolResult:
    normal = message(agent_steps=[{"tool_calls": [{"name": "t", "result": said, **call}]}])
    assert normal.agent_steps is not None and normal.agent_steps[0].tool_calls is not None
    made = normal.agent_steps[0].tool_calls[0].result
    assert isinstance(made, records.ToolResult)
    return made


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        ({"success": True, "error": None}, "success", ""),
        ({"success": True, "error": "ignored warning"}, "success", "ignored warning"),
        ({"success": False}, "error", NO_REASON),
        ({"success": False, "output": "exit 1"}, "error", "exit 1"),
        ({"status": "error", "error": "boom"}, "error", "boom"),
        ({"status": "success", "success": False}, "success", ""),
        ({"error": "boom"}, "error", "boom"),
        ({"error": ""}, "success", ""),
        ({"error": {"code": 7}}, "error", '{"code":7}'),
        ({"output": "0 errors found"}, "success", ""),
        ({"status": "pending", "output": "queued"}, "pending", ""),
        ("plain text", "success", ""),
    ],
)
def test_result_has_one_status_and_a_failure_a_reason(said: Any, status: str, error: str) -> None:
    normal = result(said)
    assert (normal.status, normal.success, normal.error) == (status, status == "success", error)


def test_status_of_call_is_used_if_result_has_none() -> None:
    assert result({"output": "x"}, status="error").status == "error"
    assert result({"output": "x"}, status="pending").status == "success"
    assert result({"error": "x"}, status="pending").status == "error"
    assert result(None, status="error").error == NO_REASON


def test_output_that_is_not_text_is_kept_as_text_and_as_data() -> None:
    normal = result({"output": {"城市": "上海"}})
    assert (normal.output, normal.data) == ('{"城市":"上海"}', {"城市": "上海"})


def test_durations_are_whole_milliseconds_and_follow_from_times() -> None:
    start = "2026-03-01T12:00:00Z"
    call = {"name": "t", "started_at": start}
    normal = message(
        agent_steps=[
            {
                "duration": 1.5,
                "tool_calls": [
                    {**call, "duration": 12.7},
                    {**call, "completed_at": "2026-03-01T12:00:01.5Z"},
                    {**call, "completed_at": "2026-03-01T11:00:00Z"},
                ],
            }
        ]
    )
    assert normal.agent_steps is not None and normal.agent_steps[0].tool_calls is not None
    assert normal.agent_steps[0].duration == 2
    first, second, backwards = normal.agent_steps[0].tool_calls
    assert (first.duration, first.completed_at) == (13, NOW + timedelta(milliseconds=13))
    assert (second.duration, backwards.duration) == (1500, None)


def test_messages_without_times_are_a_microsecond_apart() -> None:
    session = msgspec.convert({"messages": [{"role": "user"}] * 3}, records.Session)
    times = [said.created_at for said in normalise(session, now=NOW).messages or ()]
    assert times == [NOW + timedelta(microseconds=n) for n in range(3)]


def test_times_are_utc_and_an_impossible_one_is_flagged() -> None:
    zone = timezone(timedelta(hours=8))
    assert message(created_at=NOW.astimezone(zone)).created_at == NOW
    odd = message(created_at=datetime(1970, 1, 1, tzinfo=UTC))
    assert (odd.created_at, odd.health) == (NOW, ["time_out_of_range"])


def test_text_of_content_parts_is_joined_and_the_parts_are_kept() -> None:
    parts = [{"type": "text", "text": "图里"}, {"type": "image_url"}, "有什么", {"type": "text", "text": "？ "}]
    assert text_of(parts) == ("图里 有什么 ？", parts)
    assert text_of(None) == ("", None)
    assert message(content=parts).content_parts == parts


def test_id_that_is_no_uuid_is_the_external_id() -> None:
    assert message(id="m1").external_id == "m1"
    both = message(id="m1", external_id="e1")
    assert (both.external_id, both.metadata) == ("e1", {"id": "m1"})


def test_tokens_are_read_under_the_names_of_providers() -> None:
    assert tokens({"prompt_tokens": 3, "completion_tokens": 4}) == (3, 4)
    assert tokens({"inputTokens": 3, "outputTokens": "many"}) == (3, 0)
    assert tokens(None) == (0, 0)


def test_uuid_is_read_in_its_usual_form_only() -> None:
    assert hyphenated_uuid("019ca945-0a00-7000-8000-2523362f9a03") is not None
    assert hyphenated_uuid("019ca9450a0070008000-2523362f9a03abcd") is None
    assert hyphenated_uuid("call_1") is None


def test_normalisation_is_idempotent() -> None:
    said = {
        "content": [{"text": "a"}],
        "agent_steps": [{"tool_calls": [{"name": "t", "args": "{}", "result": {"error": "x"}}]}],
    }
    session = msgspec.convert({"messages": [{"role": "assistant", **said}]}, records.Session)
    once = normalise(session, now=NOW)
    assert normalise(once, now=NOW) == once


def test_session_without_time_starts_with_first_message() -> None:
    said = [{"role": "user", "created_at": NOW - timedelta(days=n)} for n in (1, 400, 2)] + [{"role": "user"}]
    session = normalise(msgspec.convert({"messages": said}, records.Session), now=NOW)
    assert session.created_at == NOW - timedelta(days=400)
    assert normalise(records.Session(), now=NOW).created_at == NOW


# --- Calls ----------------------------------------------------------------------------------------------------------


def normal_calls(*said: dict[str, Any]) -> tuple[list[records.ToolCall], list[str]]:
    """Return the normalized calls of one step, and the flags of their message."""
    normal = message(agent_steps=[{"tool_calls": list(said)}])
    (step,) = normal.agent_steps or ()
    return step.tool_calls or [], normal.health or []


def test_repeated_id_and_name_are_folded_and_original_kept() -> None:
    (call, child), flags = normal_calls(
        {"id": "call_7call_7", "name": "bashbash"}, {"id": "call_8", "name": "ls", "parent": "call_7call_7"}
    )
    assert (call.id, call.name) == ("call_7", "bash")
    assert call.metadata == {"repaired_id": "call_7call_7", "repaired_name": "bashbash"}
    assert (child.id, child.parent, child.metadata) == ("call_8", "call_7", None)
    assert flags == ["repaired_id", "repaired_name"]


def test_short_repeated_name_is_that_of_a_tool_called_before() -> None:
    calls, flags = normal_calls({"name": "bashbash"}, {"name": "bash"}, {"name": "bashbash"})
    assert [call.name for call in calls] == ["bashbash", "bash", "bash"]
    assert flags == ["repaired_name"]


@pytest.mark.parametrize("name", [None, "", "  \n"])
def test_call_without_a_name_is_kept_and_flagged(name: str | None) -> None:
    (call,), flags = normal_calls({"id": "c1", "name": name, "args": {"a": 1}})
    assert (call.name, call.args, flags) == ("", {"a": 1}, ["empty_tool_name"])


def test_handoff_without_result_is_complete_and_names_target() -> None:
    calls, _flags = normal_calls(
        {"name": "transfer_to_billing"},
        {"name": "transfer_to_sales", "status": "error"},
        {"name": "transfer_money"},
    )
    assert [(call.status, call.metadata) for call in calls] == [
        ("success", {"handoff_to": "billing"}),
        ("error", {"handoff_to": "sales"}),
        ("pending", None),
    ]


def test_arguments_that_are_no_json_are_kept_and_flagged() -> None:
    said = {"sql_query": "SELECT 1", "connection_id": "c", "timeout": 30}
    text = msgspec.json.encode(said).decode()
    calls, flags = normal_calls(
        {"name": "t", "args": said},
        {"name": "t", "args": text},
        {"name": "t", "args": msgspec.json.encode(text).decode()},
        {"name": "t", "args": None},
        {"name": "t", "args": "null"},
        {"name": "t", "args": '"null"'},
        {"name": "t", "args": '{"q": "half \\ud83e"}'},
        {"name": "t", "args": [1]},
    )
    kept = [said, said, said, {}, {}, {}, {"q": r"half \ud83e"}, {"_raw": [1]}]
    assert [call.args for call in calls] == kept
    assert flags == []
    (call,), flags = normal_calls(
        {"name": "t", "args": '{"sql": ', "result": {"status": "error", "error": "Malformed args."}}
    )
    assert (call.args, call.status, flags) == ({"_raw": '{"sql": '}, "error", ["invalid_arguments"])


def test_call_in_its_normal_form_is_not_copied() -> None:
    said = {
        "id": "call_1",
        "name": "t",
        "args": {"a": 1},
        "status": "success",
        "duration": 3,
        "result": {"status": "success", "success": True, "output": "Done.", "data": {"rows": [1]}},
    }
    step = msgspec.convert({"tool_calls": [said]}, records.AgentStep)
    steps, flags = normalise_steps([step])
    assert steps[0] is step
    assert flags == set()

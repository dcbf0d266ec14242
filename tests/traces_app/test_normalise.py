"""One form for what producers say in many, and nothing lost on the way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest

from traces_app import records
from traces_app.normalise import NO_REASON, as_uuid, normalise, text_of, tokens

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


@pytest.mark.requirement("000-24", "000-26", "003-13", "003-14", "003-15")
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
def test_a_result_has_one_status_and_a_failure_a_reason(said: Any, status: str, error: str) -> None:
    normal = result(said)
    assert (normal.status, normal.success, normal.error) == (status, status == "success", error)


def test_the_status_of_a_call_holds_where_its_result_says_none() -> None:
    assert result({"output": "x"}, status="error").status == "error"
    assert result({"output": "x"}, status="pending").status == "success"
    assert result({"error": "x"}, status="pending").status == "error"
    assert result(None, status="error").error == NO_REASON


@pytest.mark.requirement("000-25")
def test_output_that_is_not_text_is_kept_as_text_and_as_data() -> None:
    normal = result({"output": {"城市": "上海"}})
    assert (normal.output, normal.data) == ('{"城市":"上海"}', {"城市": "上海"})


@pytest.mark.requirement("000-23")
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


def test_messages_without_times_follow_one_another_by_a_microsecond() -> None:
    session = msgspec.convert({"messages": [{"role": "user"}] * 3}, records.Session)
    times = [said.created_at for said in normalise(session, now=NOW).messages or ()]
    assert times == [NOW + timedelta(microseconds=n) for n in range(3)]


def test_times_are_utc_and_an_impossible_one_is_flagged() -> None:
    zone = timezone(timedelta(hours=8))
    assert message(created_at=NOW.astimezone(zone)).created_at == NOW
    odd = message(created_at=datetime(1970, 1, 1, tzinfo=UTC))
    assert (odd.created_at, odd.health) == (NOW, ["time_out_of_range"])


@pytest.mark.requirement("003-09", "003-10")
def test_the_text_of_content_parts_is_joined_and_the_parts_are_kept() -> None:
    parts = [{"type": "text", "text": "图里"}, {"type": "image_url"}, "有什么", {"type": "text", "text": "？ "}]
    assert text_of(parts) == ("图里 有什么 ？", parts)
    assert text_of(None) == ("", None)
    assert message(content=parts).content_parts == parts


def test_an_id_that_is_no_uuid_is_the_external_id() -> None:
    assert message(id="m1").external_id == "m1"
    both = message(id="m1", external_id="e1")
    assert (both.external_id, both.metadata) == ("e1", {"id": "m1"})


def test_tokens_are_read_under_the_names_of_providers() -> None:
    assert tokens({"prompt_tokens": 3, "completion_tokens": 4}) == (3, 4)
    assert tokens({"inputTokens": 3, "outputTokens": "many"}) == (3, 0)
    assert tokens(None) == (0, 0)


def test_a_uuid_is_read_in_its_usual_form_only() -> None:
    assert as_uuid("019ca945-0a00-7000-8000-2523362f9a03") is not None
    assert as_uuid("019ca9450a0070008000-2523362f9a03abcd") is None
    assert as_uuid("call_1") is None


def test_normalising_twice_changes_nothing_more() -> None:
    said = {
        "content": [{"text": "a"}],
        "agent_steps": [{"tool_calls": [{"name": "t", "args": "{}", "result": {"error": "x"}}]}],
    }
    session = msgspec.convert({"messages": [{"role": "assistant", **said}]}, records.Session)
    once = normalise(session, now=NOW)
    assert normalise(once, now=NOW) == once


def test_a_session_that_says_no_time_began_with_its_first_message() -> None:
    said = [{"role": "user", "created_at": NOW - timedelta(days=n)} for n in (1, 400, 2)] + [{"role": "user"}]
    session = normalise(msgspec.convert({"messages": said}, records.Session), now=NOW)
    assert session.created_at == NOW - timedelta(days=400)
    assert normalise(records.Session(), now=NOW).created_at == NOW

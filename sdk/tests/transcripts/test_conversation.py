"""From entries to messages: turns, steps, results, names and times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sdk.tests.growing import merged, orphans
from sdk.tests.growth import grows_linearly
from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import tokens
from tracesite_sdk.transcripts.conversation import Conversation, messages, stream_messages
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript, size_of
from tracesite_sdk.transcripts.outline import digests, digests_of, messages_of, session, session_of
from tracesite_sdk.transcripts.outline import outline as outline_of
from tracesite_sdk.transcripts.times import with_times
from tracesite_sdk.transcripts.turns import Turn

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def talk(*entries: Entry) -> list[Entry]:
    """Return the entries with their index as their id."""
    return [type(entry)(**{**_fields(entry), "id": str(index)}) for index, entry in enumerate(entries)]


def _fields(entry: Entry) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in entry.__struct_fields__}


def user(text: str) -> Prompt:
    return Prompt(id="", role="user", content=text)


def plain(text: str) -> Reply:
    return Reply(id="", content=text)


def asks(*calls: str, text: str | None = None) -> Reply:
    """Build a reply that calls tools, each given as "id:name"."""
    named = [call.split(":") for call in calls]
    return Reply(id="", content=text, calls=[Call(id=id_ or None, name=name, args={}) for id_, name in named])


def result(output: str, *call_ids: str, name: str | None = None) -> Result:
    return Result(id="", output=output, failed=False, call_ids=call_ids, name=name)


def outline(found: list[records.Message]) -> list[Any]:
    """Return a message as (role, external id, content) and, for an answer, its steps as (iteration, thought, calls)."""
    return [
        (message.role, message.external_id, message.content)
        if message.agent_steps is None
        else (
            message.role,
            message.external_id,
            message.content,
            [
                (step.iteration, step.thought, [(call.id, call.name, _output(call)) for call in step.tool_calls or ()])
                for step in message.agent_steps
            ],
        )
        for message in found
    ]


def _output(call: records.ToolCall) -> Any:
    return call.result.output if isinstance(call.result, records.ToolResult) else None


def test_turn_between_user_messages_is_one_assistant_message() -> None:
    entries = talk(
        Prompt(id="", role="system", content="Be kind."),
        user("Weather?"),
        asks("c1:get_weather", text="I look."),
        result("31 °C", "c1"),
        plain("Wait, one more thing."),
        asks("c2:search"),
        result("3 hits", "c2"),
        plain("It is 31 °C."),
        user("Thanks!"),
        user("And tomorrow?"),
        plain("Rain."),
    )
    expected = [
        ("system", "0", "Be kind."),
        ("user", "1", "Weather?"),
        (
            "assistant",
            "2",
            "It is 31 °C.",
            [
                (0, "I look.", [("c1", "get_weather", "31 °C")]),
                (1, "Wait, one more thing.", []),
                (2, None, [("c2", "search", "3 hits")]),
            ],
        ),
        ("user", "8", "Thanks!"),
        ("user", "9", "And tomorrow?"),
        ("assistant", "10", "Rain.", []),
    ]
    assert outline(messages(entries)) == expected


def test_replies_before_any_user_message_are_a_message() -> None:
    entries = talk(asks("c1:a"), result("one", "c1"), plain("done"), user("Hello"))
    assert outline(messages(entries)) == [
        ("assistant", "0", "done", [(0, None, [("c1", "a", "one")])]),
        ("user", "3", "Hello"),
    ]


def test_system_message_within_a_turn_does_not_end_it() -> None:
    entries = talk(
        user("Go"), asks("c1:a"), Prompt(id="", role="system", content="Hurry."), result("one", "c1"), plain("done")
    )
    assert outline(messages(entries)) == [
        ("user", "0", "Go"),
        ("assistant", "1", "done", [(0, None, [("c1", "a", "one")])]),
        ("system", "2", "Hurry."),
    ]


def test_result_with_repeated_id_answers_the_next_open_call() -> None:
    entries = talk(
        user("Go"), asks("c1:a", "c1:b"), result("one", "c1"), result("two", "c1"), asks("c1:a"), result("three", "c1")
    )
    (_question, answer) = messages(entries)
    assert outline([answer])[0][3] == [
        (0, None, [("c1", "a", "one"), ("c1", "b", "two")]),
        (1, None, [("c1", "a", "three")]),
    ]


def test_scope_distinguishes_equal_call_ids_of_two_agents() -> None:
    def asking(scope: str) -> Reply:
        return Reply(id="", content=None, agent_name=scope, scope=scope, calls=[Call(id="c1", name="a", args={})])

    def answering(scope: str, *call_ids: str) -> Result:
        return Result(id="", output=f"for {scope}", failed=None, scope=scope, call_ids=call_ids)

    entries = [asking("one"), asking("two"), answering("two", "c1"), answering("one"), answering("three", "c1")]
    (found,) = messages(talk(*entries))
    assert outline([found])[0][3] == [
        (0, None, [("c1", "a", "for one")]),
        (1, None, [("c1", "a", "for two"), ("c1", "unknown", "for three")]),
    ]
    assert found.health == ["orphan_result"]


def test_result_without_id_answers_call_of_its_name_or_first() -> None:
    entries = talk(
        user("Go"), asks("c1:a", "c2:b", "c3:c"), result("for b", name="b"), result("for a"), result("for c")
    )
    assert outline(messages(entries))[1][3] == [
        (0, None, [("c1", "a", "for a"), ("c2", "b", "for b"), ("c3", "c", "for c")])
    ]


def test_result_with_id_answers_call_without_id_by_order() -> None:
    entries = talk(user("Go"), asks(":a", "c2:b"), result("for b", "c2"), result("for a", "c9"))
    assert outline(messages(entries))[1][3] == [(0, None, [(None, "a", "for a"), ("c2", "b", "for b")])]


def test_repeated_id_on_either_side_matches_its_call() -> None:
    doubled, plain_ids = asks("call_1call_1:a", "call_2call_2:b"), asks("call_3:c", "call_4:d")
    entries = talk(user("Go"), doubled, result("two", "call_2"), result("one", "call_1"), plain_ids)
    entries += [replace(result("three", "call_3call_3call_3"), id="5"), replace(result("four", "call_4"), id="6")]
    (_question, answer) = messages(entries)
    assert outline([answer])[0][3] == [
        (0, None, [("call_1call_1", "a", "one"), ("call_2call_2", "b", "two")]),
        (1, None, [("call_3", "c", "three"), ("call_4", "d", "four")]),
    ]
    assert answer.health == ["repaired_id"]
    (_doubled, (third, _fourth)) = (step.tool_calls or () for step in answer.agent_steps or ())
    assert third.metadata == {"repaired_id": "call_3call_3call_3"}


def test_exact_id_takes_precedence_over_repaired_id() -> None:
    entries = talk(
        user("Go"), asks("call_1call_1:a", "call_1:b"), result("for b", "call_1"), result("lost", "call_9call_9")
    )
    (_question, answer) = messages(entries)
    assert outline([answer])[0][3] == [
        (0, None, [("call_1call_1", "a", None), ("call_1", "b", "for b"), ("call_9call_9", "unknown", "lost")])
    ]
    assert answer.health == ["orphan_result"]


def test_observation_can_answer_several_calls() -> None:
    entries = talk(user("Go"), asks("c1:a", "c2:b"), result("both", "c1", "c2"))
    assert outline(messages(entries))[1][3] == [(0, None, [("c1", "a", "both"), ("c2", "b", "both")])]


def test_result_after_the_next_question_matches_its_call() -> None:
    entries = talk(user("Go"), asks("c1:a"), user("Hurry!"), result("late", "c1"), plain("Done."))
    assert outline(messages(entries)) == [
        ("user", "0", "Go"),
        ("assistant", "1", None, [(0, None, [("c1", "a", "late")])]),
        ("user", "2", "Hurry!"),
        ("assistant", "4", "Done.", []),
    ]
    assert len(messages(entries[:4])) == 3


def guessed(found: list[records.Message]) -> list[bool]:
    """Return for each call whether its result was guessed, after a check that the message says so, too."""
    answer = found[-1]
    calls = [call for step in answer.agent_steps or () for call in step.tool_calls or ()]
    flags = [bool((call.metadata or {}).get("guessed_result")) for call in calls]
    assert ("guessed_result" in (answer.health or ())) is any(flags)
    return flags


@pytest.mark.parametrize(
    ("calls", "results", "outputs", "guesses"),
    [
        pytest.param([":a", ":a"], [result("one"), result("two")], ["one", "two"], [True, True], id="order only"),
        pytest.param([":a", ":b"], [result("2", name="b"), result("1", name="a")], ["1", "2"], [False] * 2, id="names"),
        pytest.param([":a", ":b"], [result("2", name="b"), result("1")], ["1", "2"], [False] * 2, id="the only one left"),
        pytest.param([":a"], [result("one")], ["one"], [False], id="the only one"),
        pytest.param(["c:a", "c:b"], [result("2", "c", name="b"), result("1", "c", name="a")], ["1", "2"], [False] * 2,
                     id="one id, two names"),
        pytest.param(["c:a", "c:b"], [result("1", "c"), result("2", "c")], ["1", "2"], [True, True], id="one id, no names"),
        pytest.param(["c:a", "d:a"], [result("2", "d"), result("1", "c")], ["1", "2"], [False] * 2, id="ids"),
    ],
)  # fmt: skip
def test_result_given_by_order_is_a_guess(
    calls: list[str], results: list[Result], outputs: list[str], guesses: list[bool]
) -> None:
    found = messages(talk(user("Go"), asks(*calls), *results))
    assert [output for *_name, output in outline(found)[1][3][0][2]] == outputs
    assert guessed(found) == guesses


def test_result_answers_the_call_that_its_format_found() -> None:
    first, second = Call(id=None, name="a", args={"n": 1}), Call(id=None, name="a", args={"n": 2})
    asked = Reply(id="1", content=None, calls=[first, second])
    below = Reply(id="2", content="Below.", calls=[Call(id="c", name="b", args={})], parent_call="", parent=second)
    results = [Result(id=id_, output=id_, failed=None, call=call) for id_, call in (("3", second), ("4", first))]
    (found,) = messages([asked, below, *results])
    steps = found.agent_steps or ()
    assert outline([found])[0][3][0] == (0, None, [(None, "a", "4"), (None, "a", "3")])
    named = [call.uuid for call in steps[0].tool_calls or ()]
    assert named[0] is None
    assert [call.parent for step in steps[1:] for call in step.tool_calls or ()] == [named[1]]
    assert not any(guessed([found]))


def test_open_call_of_an_earlier_turn_does_not_take_the_result_of_its_id() -> None:
    entries = talk(user("Go"), asks("c1:a"), user("Again"), asks("c1:a"), result("new", "c1"))
    assert [outline(messages(entries))[place][3] for place in (1, 3)] == [
        [(0, None, [("c1", "a", None)])],
        [(0, None, [("c1", "a", "new")])],
    ]


def test_orphan_result_gets_a_placeholder_and_a_flag() -> None:
    entries = talk(user("Go"), asks("c1:a"), result("one", "c1"), result("stray", "c9", name="b"), result("nameless"))
    (_question, answer) = messages(entries)
    assert answer.health == ["orphan_result"]
    assert outline([answer])[0][3] == [
        (0, None, [("c1", "a", "one"), ("c9", "b", "stray"), (None, "unknown", "nameless")])
    ]
    (step,) = answer.agent_steps or ()
    assert [call.metadata for call in step.tool_calls or ()] == [None, {"orphan_result": True}, {"orphan_result": True}]


@pytest.mark.parametrize("before", [[], [asks("c0:b"), result("zero", "c0")]], ids=["first", "later"])
def test_result_before_its_call_belongs_to_it(before: list[Entry]) -> None:
    entries = talk(
        user("Go"), *before, result("early", "c1"), asks("c1:a", "c2:a"), result("two", "c2"), plain("Done.")
    )
    (_question, answer) = messages(entries)
    called = [call for _place, _thought, calls in outline([answer])[0][3] for call in calls]
    assert called[-2:] == [("c1", "a", "early"), ("c2", "a", "two")]
    assert (len(called), answer.health, answer.content) == (2 + len(before) // 2, None, "Done.")
    assert len(answer.agent_steps or ()) == 1 + len(before) // 2


def test_uuid_of_a_placeholder_is_not_given_to_its_call() -> None:
    # The stored placeholder of "again" has the `uuid` "c1#1", and would be merged with the call.
    entries = talk(user("Go"), result("early", "c1"), result("again", "c1"), asks("c1:a"))
    (_question, answer) = messages(entries)
    calls = [call for step in answer.agent_steps or () for call in step.tool_calls or ()]
    assert [(call.uuid, call.name) for call in calls] == [(None, "unknown"), ("c1#2", "a")]


def test_second_result_of_a_call_is_not_that_of_a_later_call() -> None:
    entries = talk(user("Go"), asks("c1:a"), result("one", "c1"), result("again", "c1"), asks("c1:a"))
    (_question, answer) = messages(entries)
    assert outline([answer])[0][3] == [
        (0, None, [("c1", "a", "one"), ("c1", "unknown", "again")]),
        (1, None, [("c1", "a", None)]),
    ]


def test_orphan_after_plain_reply_gets_its_own_step() -> None:
    entries = talk(user("Go"), plain("Done."), result("stray", "c9"))
    assert outline(messages(entries))[1] == ("assistant", "1", "Done.", [(1, None, [("c9", "unknown", "stray")])])


def test_call_without_result_is_pending() -> None:
    (_question, answer) = messages(talk(user("Go"), asks("c1:a")))
    (step,) = answer.agent_steps or ()
    assert step.tool_calls == [records.ToolCall(id="c1", name="a", args={}, status="pending")]


def test_failed_result_makes_its_call_failed() -> None:
    entries = talk(user("Go"), asks("c1:a"), Result(id="", output="Error: no", failed=True, call_ids=["c1"]))
    (step,) = messages(entries)[1].agent_steps or ()
    assert step.tool_calls == [
        records.ToolCall(
            id="c1", name="a", args={}, status="error", result=records.ToolResult(status="error", output="Error: no")
        )
    ]


def test_reasoning_and_agent_of_the_answer_are_kept_beside_it() -> None:
    reply = Reply(id="1", content="Yes.", reasoning="Hm.", agent_name="ada", metadata={"weight": 1})
    answer = messages([Prompt(id="0", role="user", content="?"), reply])[1]
    assert answer.metadata == {"weight": 1, "reasoning_content": "Hm.", "agent_name": "ada"}


def test_too_long_names_are_cut_and_kept_in_the_metadata() -> None:
    entries = [
        Prompt(id="0", role="user", content="?"),
        Reply(id="1", content=None, calls=[Call(id="i" * 600, name="n" * 600, args={})]),
    ]
    (step,) = messages(entries)[1].agent_steps or ()
    (call,) = step.tool_calls or ()
    assert (call.id, call.name) == ("i" * 512, "n" * 512)
    assert call.metadata == {"id": "i" * 600, "name": "n" * 600}


# --- Sub-agents -----------------------------------------------------------------------------------------------------


def below(parent: str, *calls: str, text: str | None = None) -> Reply:
    return replace(asks(*calls, text=text), parent_call=parent, agent_name="scout")


def nesting(message: records.Message) -> list[Any]:
    return [
        (step.iteration, step.thought, [(call.id, call.parent, _output(call)) for call in step.tool_calls or ()])
        for step in message.agent_steps or ()
    ]


def test_steps_of_sub_agent_are_below_its_parent_call() -> None:
    entries = talk(
        user("Go"),
        asks("t1:task", "c1:a"),
        below("t1", "s1:read", text="I look."),
        result("file", "s1"),
        below("t1", text="It is there."),
        result("It is there.", "t1"),
        plain("Found."),
    )
    (_question, answer) = messages(entries)
    assert answer.content == "Found."
    assert answer.metadata is None
    assert nesting(answer) == [
        (0, None, [("t1", None, "It is there."), ("c1", None, None)]),
        (0, "I look.", [("s1", "t1", "file")]),
        (0, "It is there.", []),
    ]
    assert [step.agent_name for step in answer.agent_steps or ()] == [None, "scout", "scout"]
    assert (answer.agent_steps or ())[2].metadata == {"parent_call": "t1"}


def test_late_reply_of_sub_agent_is_in_the_message_of_its_call() -> None:
    entries = talk(
        user("Go"), asks("t1:task"), plain("Started."), user("And?"), below("t1", "s1:read"), result("file", "s1")
    )
    assert [m.external_id for m in messages(entries)] == ["0", "1", "3"]
    assert nesting(messages(entries)[1]) == [(0, None, [("t1", None, None)]), (0, None, [("s1", "t1", "file")])]


def test_sub_agent_without_known_call_has_root_steps() -> None:
    (_question, answer) = messages(talk(user("Go"), below("t9", "s1:read"), below("t9", text="There.")))
    assert answer.content is None
    assert nesting(answer) == [(0, None, [("s1", None, None)]), (1, "There.", [])]
    assert [step.metadata for step in answer.agent_steps or ()] == [{"parent_call": "t9"}] * 2


def test_parent_with_repeated_id_is_referenced_by_uuid() -> None:
    entries = talk(user("Go"), asks("c1:a"), below("c1", "s1:x"), asks("c1:a"), below("c1", "s2:x"))
    (_question, answer) = messages(entries)
    calls = [call for step in answer.agent_steps or () for call in step.tool_calls or ()]
    assert [(call.id, call.uuid, call.parent) for call in calls] == [
        ("c1", None, None),
        ("s1", None, "c1"),
        ("c1", "c1#1", None),
        ("s2", None, "c1#1"),
    ]


# --- Times, usage, errors -------------------------------------------------------------------------------------------


def at(seconds: int, entry: Entry) -> Entry:
    return replace(entry, created_at=NOON + timedelta(seconds=seconds))


def test_messages_steps_and_calls_have_times_of_their_entries() -> None:
    entries = talk(
        at(0, user("Go")), at(1, asks("c1:a")), at(3, result("one", "c1")), at(4, plain("Done.")), at(9, user("More"))
    )
    question, answer, more = messages(entries)
    assert [(m.created_at, m.completed_at) for m in (question, answer, more)] == [
        (NOON, None),
        (NOON + timedelta(seconds=1), NOON + timedelta(seconds=4)),
        (NOON + timedelta(seconds=9), None),
    ]
    (step,) = answer.agent_steps or ()
    (call,) = step.tool_calls or ()
    assert step.timestamp == call.started_at == NOON + timedelta(seconds=1)
    assert call.completed_at == NOON + timedelta(seconds=3)
    assert session(entries, format_name="f", place=0).created_at == NOON


def test_call_start_and_result_duration_are_used() -> None:
    began = NOON + timedelta(seconds=2)
    asked = replace(asks(), calls=[Call(id="c1", name="a", args={}, started_at=began)])
    entries = talk(user("Go"), at(1, asked), replace(result("one", "c1"), duration=250.0))
    (step,) = messages(entries)[1].agent_steps or ()
    (call,) = step.tool_calls or ()
    assert (call.started_at, call.completed_at, call.duration) == (began, None, 250.0)


def test_request_that_gave_the_answer_is_a_step_with_its_usage() -> None:
    calling = replace(asks("c1:a"), usage={"input_tokens": 10, "output_tokens": 1, "cache": {"read": 5}})
    usage = {"input_tokens": 20, "output_tokens": 2, "cache": {"read": 6}, "tier": "s"}
    answering = at(4, replace(plain("Done."), usage=usage, model="m-1", reasoning="Hm.", duration=9.0))
    (_question, answer) = messages(talk(user("Go"), calling, result("one", "c1"), answering))
    assert [step.usage for step in answer.agent_steps or ()] == [calling.usage, usage]
    assert (answer.agent_steps or ())[1] == records.AgentStep(
        iteration=1,
        reasoning_content="Hm.",
        model="m-1",
        usage=usage,
        timestamp=NOON + timedelta(seconds=4),
        duration=9.0,
        tool_calls=[],
    )
    assert (answer.content, answer.usage) == ("Done.", None)
    assert answer.metadata == {"reasoning_content": "Hm.", "model": "m-1"}


@pytest.mark.parametrize(
    ("stated", "is_step"),
    [({"model": "m-1"}, True), ({"usage": {"input_tokens": 1}}, True), ({"is_request": True}, True), ({}, False)],
)
def test_answer_is_a_step_if_it_is_known_as_a_request(stated: dict[str, Any], is_step: bool) -> None:
    (_question, answer) = messages(talk(user("Go"), replace(plain("Done."), **stated)))
    assert (answer.content, len(answer.agent_steps or ())) == ("Done.", is_step)


def test_tokens_of_all_steps_add_up_in_words_of_two_providers() -> None:
    calling = replace(asks("c1:a"), usage={"prompt_tokens": 10, "completion_tokens": 1})
    answering = replace(plain("Done."), usage={"input_tokens": 20, "output_tokens": 2})
    (_question, answer) = messages(talk(user("Go"), calling, answering))
    assert [tokens(step.usage) for step in answer.agent_steps or ()] == [(10, 1), (20, 2)]
    assert answer.usage is None


def test_error_fails_message_and_session_until_an_answer() -> None:
    failing = replace(plain(""), error="Overloaded")
    entries = talk(user("Go"), failing, user("Again"), plain("Done."))
    assert [m.error for m in messages(entries)] == [None, "Overloaded", None, None]
    assert [session(entries[:n], format_name="f", place=0).status for n in (1, 3, 4)] == [None, "error", "completed"]
    (_question, answer) = messages(talk(user("Go"), replace(asks("c1:a"), error="Cut off")))
    assert answer.error == "Cut off"
    assert [step.metadata for step in answer.agent_steps or ()] == [{"error": "Cut off"}]


def test_flags_of_entries_are_those_of_their_messages() -> None:
    entries = talk(
        replace(user("Go"), health=["naive_time"]), asks("c1:a"), replace(result("one", "c1"), health=["naive_time"])
    )
    assert [m.health for m in messages(entries)] == [["naive_time"], ["naive_time"]]


def test_result_data_for_machines_is_kept() -> None:
    (step,) = (
        messages(talk(user("Go"), asks("c1:a"), replace(result("one", "c1"), data={"rows": 1})))[1].agent_steps or ()
    )
    assert [call.result for call in step.tool_calls or ()] == [
        records.ToolResult(status="success", output="one", data={"rows": 1})
    ]


def test_result_without_flag_has_no_status() -> None:
    (step,) = messages(talk(user("Go"), asks("c1:a"), replace(result("one", "c1"), failed=None)))[1].agent_steps or ()
    (call,) = step.tool_calls or ()
    assert (call.status, call.result) == (None, records.ToolResult(output="one"))


def test_reply_without_text_does_not_replace_the_answer() -> None:
    (_question, answer) = messages(talk(user("Go"), plain("Done."), replace(plain(""), reasoning="Hm.")))
    assert (answer.content, answer.metadata) == ("Done.", {"answer_iteration": 0})
    assert [(step.iteration, step.reasoning_content) for step in answer.agent_steps or ()] == [(1, "Hm.")]


# --- Growth ---------------------------------------------------------------------------------------------------------

_ids = st.sampled_from(["c1", "c2", ""])
_names = st.sampled_from(["a", "b"])
_times = st.one_of(st.none(), st.integers(0, 9).map(lambda seconds: NOON + timedelta(seconds=seconds)))
_usages = st.one_of(st.none(), st.just({"input_tokens": 2, "output_tokens": 1}), st.just({"prompt_tokens": 3}))
_replies = st.fixed_dictionaries(
    {},
    optional={
        "parent_call": st.sampled_from(["c1", "c2", "c9"]),
        "usage": _usages,
        "error": st.just("Overloaded"),
        "model": st.just("m-1"),
        "metadata": st.just({"weight": 1}),
        "reasoning": st.just("Hm."),
    },
)
_entries = st.lists(
    st.tuples(
        _times,
        st.one_of(
            st.builds(user, st.sampled_from(["Go", "Hurry"])),
            st.just(Prompt(id="", role="system", content="Be kind.")),
            st.builds(
                lambda content, fields: replace(plain(""), content=content, **fields),
                st.sampled_from(["Done.", "", [{"type": "text", "text": "Wait."}]]),
                _replies,
            ),
            st.builds(
                lambda calls, fields: replace(asks(*calls), **fields),
                st.lists(st.builds("{}:{}".format, _ids, _names), min_size=1, max_size=3),
                _replies,
            ),
            st.builds(
                lambda ids, name: result("out", *ids, name=name),
                st.lists(st.sampled_from(["c1", "c2", "c9"]), max_size=2, unique=True),
                st.one_of(st.none(), _names),
            ),
        ),
    ).map(lambda timed: replace(timed[1], created_at=timed[0])),
    max_size=14,
).map(lambda entries: talk(*entries))


@given(_entries, st.data())
def test_importing_start_then_whole_equals_importing_whole(entries: list[Entry], data: st.DataObject) -> None:
    start = entries[: data.draw(st.integers(0, len(entries)))]
    before, after = messages(start), messages(entries)
    assert [(m.role, m.external_id, m.created_at) for m in before] == [
        (m.role, m.external_id, m.created_at) for m in after[: len(before)]
    ]
    assert [merged(old, new) for old, new in zip(before, after, strict=False)] == after[: len(before)]
    for old, new in zip(before, after, strict=False):
        assert old.completed_at is None or (new.completed_at is not None and old.completed_at <= new.completed_at)
    whole = session(entries, format_name="f", place=0)
    then = session(start, format_name="f", place=0)
    assert (whole.status or then.status) == whole.status


@given(_entries)
def test_all_entries_are_in_the_messages(entries: list[Entry]) -> None:
    found = messages(entries)
    calls = [call for m in found for step in m.agent_steps or () for call in step.tool_calls or ()]
    asked = sum(len(entry.calls) for entry in entries if isinstance(entry, Reply))
    assert len(calls) == asked + orphans(found)
    plain_replies = [entry for entry in entries if isinstance(entry, Reply) and not entry.calls]
    # An answer that is a request is also a step, so none is one here.
    bare = messages(replace(e, model=None, usage=None) if isinstance(e, Reply) else e for e in entries)
    contents = sum(m.content is not None for m in bare if m.role == "assistant")
    thoughts = sum(not step.tool_calls for m in bare for step in m.agent_steps or ())
    assert contents + thoughts == len(plain_replies)
    assert [m.content for m in found] == [m.content for m in bare]
    assert sum(m.role != "assistant" for m in found) == sum(isinstance(entry, Prompt) for entry in entries)
    assert all(m.content is not None or m.agent_steps for m in found)


@given(_entries)
def test_each_request_is_one_step(entries: list[Entry]) -> None:
    requests = [entry for entry in entries if isinstance(entry, Reply) and (entry.model or entry.usage)]
    steps = [step for m in messages(entries) for step in m.agent_steps or () if step.model or step.usage]
    assert Counter((step.model, str(step.usage)) for step in steps) == Counter(
        (request.model, str(request.usage)) for request in requests
    )
    assert all(m.usage is None for m in messages(entries))


@given(_entries)
def test_messages_keep_their_order_with_any_times(entries: list[Entry]) -> None:
    timed = with_times(session(entries, format_name="f", place=0), NOON).messages or []
    times = [message.created_at for message in timed]
    assert [message.external_id for message in timed] == [message.external_id for message in messages(entries)]
    assert all(one is not None and other is not None and one < other for one, other in pairwise(times))


# --- The session ------------------------------------------------------------------------------------------------------


def named(*entries: Entry, place: int = 0, external_id: str | None = None) -> str | None:
    return session(talk(*entries), format_name="f", place=place, external_id=external_id).external_id


def test_session_name_derives_from_its_start_and_place() -> None:
    policy = Prompt(id="", role="system", content="Be kind.")
    name = named(policy, user("Go"))
    assert name == named(policy, user("Go"), plain("Done."), policy, user("More"))
    others = [
        named(user("Go")),
        named(policy, user("Stop")),
        named(policy, user("Go"), place=1),
        named(policy, plain("Go")),
        named(Prompt(id="", role="system", content="Be quick."), user("Go")),
        named(policy, user("Go"), external_id="thread-1"),
    ]
    assert len({name, *others}) == 7
    assert others[-1] == "thread-1"


def test_session_name_does_not_depend_on_later_entries() -> None:
    assert named(asks("c1:a")) == named(asks("c1:a"), result("one", "c1"), user("Hello"))
    assert named(result("one", "c1")) == named(result("one", "c1"), plain("Done."), user("Hello"))


def test_too_long_own_id_becomes_a_digest() -> None:
    name = named(user("Go"), external_id="x" * 600)
    assert name is not None
    assert len(name) < 100
    assert name == named(user("Stop"), external_id="x" * 600)


def test_two_runs_share_name_and_digests_up_to_divergence() -> None:
    first = session(talk(user("Go"), asks("c1:a"), plain("Done.")), format_name="f", place=0)
    second = session(talk(user("Go"), asks("c2:a"), plain("Done.")), format_name="f", place=0)
    assert first.external_id == second.external_id
    pairs = zip(digests_of(first.metadata), digests_of(second.metadata), strict=True)
    assert [one == other for one, other in pairs] == [True, False, False]


def test_digests_of_transcript_begin_with_those_of_its_start() -> None:
    entries = talk(user("Go"), asks("c1:a"), result("one", "c1"), plain("Done."))
    whole = digests(entries)
    assert [digests(entries[:length]) for length in range(5)] == [whole[:length] for length in range(5)]
    assert digests_of(session(entries, format_name="f", place=0).metadata) == whole


@pytest.mark.parametrize(
    "entry",
    [user("Stop"), plain("Go"), asks("c1:a"), result("Go"), Prompt(id="", role="system", content="Go")],
)
def test_any_other_content_has_another_digest(entry: Entry) -> None:
    assert digests(talk(entry)) != digests(talk(user("Go")))


def test_form_of_text_and_metadata_do_not_change_the_digest() -> None:
    beside = Prompt(id="0", role="user", content=[{"type": "text", "text": "Go"}], metadata={"name": "li"})
    assert digests([beside]) == digests(talk(user("Go")))


def test_digests_of_metadata_without_digests_is_empty() -> None:
    assert [digests_of(metadata) for metadata in (None, {}, {"import_digests": 3})] == [[], [], []]


def test_later_answer_notes_its_iteration() -> None:
    turn = talk(user("Go"), plain("Wait."), asks("c1:a"), plain("Done."))
    said = [messages(turn[:length])[1].metadata for length in (2, 3, 4)]
    assert said == [None, {"answer_iteration": 0}, {"answer_iteration": 2}]


def test_own_title_is_the_title() -> None:
    assert session(talk(user("Go")), format_name="f", place=0, title=" My\n trip ").title == "My trip"


def test_plan_and_tags_are_those_of_the_session() -> None:
    transcript = Transcript(
        entries=lambda: [user("Go")], external_id="t", workflow={"name": "Trip"}, tags=["x", "y" * 300]
    )
    found = session_of(transcript, "f")
    assert (found.workflow, found.tags) == ({"name": "Trip"}, ["x", "y" * 200])


def test_derived_title_is_the_start_of_the_first_prompt() -> None:
    assert session(talk(plain("Hi"), user("  What\n is\tthis? ")), format_name="f", place=0).title == "What is this?"
    assert session(talk(user("x" * 200)), format_name="f", place=0).title == "x" * 79 + "…"
    assert session(talk(plain("Hi")), format_name="f", place=0).title is None


def test_messages_without_times_are_a_millisecond_apart() -> None:
    untimed = session(talk(user("Go"), plain("Done."), user("More")), format_name="f", place=0)
    timed = with_times(untimed, NOON)
    ms = timedelta(milliseconds=1)
    assert timed.created_at == NOON
    assert [message.created_at for message in timed.messages or ()] == [NOON, NOON + ms, NOON + 2 * ms]


def said_at(*times: datetime | None) -> list[records.Message]:
    """Return the messages of a session that began at noon, with their times."""
    said = [records.Message(role="user", created_at=time) for time in times]
    return with_times(records.Session(external_id="s", messages=said), NOON).messages or []


def test_known_times_are_kept_and_the_others_count_on_from_them() -> None:
    later = NOON + timedelta(hours=1)
    assert [m.created_at for m in said_at(None, later, None)] == [
        NOON,
        later,
        later + timedelta(milliseconds=1),
    ]


def test_messages_before_the_first_known_time_end_at_it() -> None:
    early = NOON - timedelta(hours=1)
    ms = timedelta(milliseconds=1)
    assert [m.created_at for m in said_at(None, None, early)] == [early - 2 * ms, early - ms, early]


def test_decreasing_time_is_flagged_and_order_is_kept() -> None:
    soon = NOON + timedelta(seconds=5)
    us = timedelta(microseconds=1)
    found = said_at(NOON, soon, NOON, NOON, soon, NOON + timedelta(seconds=6))
    assert [m.created_at for m in found] == [
        NOON, soon, soon + us, soon + 2 * us, soon + 3 * us, NOON + timedelta(seconds=6)
    ]  # fmt: skip
    assert [m.health for m in found] == [None, None, *[["time_went_back"]] * 3, None]
    assert found[2].metadata == {"said_at": "2026-03-01T12:00:00+00:00"}


def test_equal_times_are_made_distinct_without_a_flag() -> None:
    found = said_at(NOON, NOON)
    assert [m.created_at for m in found] == [NOON, NOON + timedelta(microseconds=1)]
    assert [m.health for m in found] == [None, None]


def test_times_of_an_unset_clock_are_ignored() -> None:
    unset = datetime(1970, 1, 1, tzinfo=UTC)
    assert [m.created_at for m in said_at(unset, NOON, unset)] == [
        NOON - timedelta(milliseconds=1), NOON, NOON + timedelta(milliseconds=1)
    ]  # fmt: skip


def test_transcript_with_own_ids_has_no_digests() -> None:
    found = session(talk(user("Go")), format_name="f", place=0, external_id="s", has_own_ids=True)
    assert found.metadata == {"import_format": "f"}


def test_end_of_turn_includes_durations() -> None:
    entries = [
        Reply(id="0", content=None, created_at=NOON, duration=1500, calls=[Call(id="c", name="a", args={})]),
        Result(
            id="1",
            output="",
            failed=None,
            call_ids=["c"],
            started_at=NOON + timedelta(seconds=2),
            duration=500,
            created_at=NOON + timedelta(seconds=2.5),
        ),
        Reply(id="2", content="Done.", created_at=NOON + timedelta(seconds=3), duration=1000),
    ]
    (message,) = messages(entries)
    (step,) = message.agent_steps or ()
    (call,) = step.tool_calls or ()
    assert (step.timestamp, step.duration) == (NOON, 1500)
    assert (call.started_at, call.completed_at, call.duration) == (
        NOON + timedelta(seconds=2),
        NOON + timedelta(seconds=2.5),
        500,
    )
    assert message.completed_at == NOON + timedelta(seconds=4)


def test_duration_beyond_the_calendar_is_ignored() -> None:
    last = datetime.max.replace(tzinfo=UTC)
    (message,) = messages([Reply(id="0", content="x", created_at=last, duration=1e12)])
    assert message.completed_at == last


# --- Long transcripts -----------------------------------------------------------------------------------------------


@pytest.fixture
def hold_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracesite_sdk.transcripts.conversation.MOST_HELD", 4)
    monkeypatch.setattr("tracesite_sdk.transcripts.conversation.MOST_LEFT_OPEN", 2)


def turns(count: int) -> list[Entry]:
    """Build turns of four entries: prompt, call, result, answer."""
    return talk(
        *(
            entry
            for number in range(count)
            for entry in (user("Go"), asks(f"c{number}:a"), result("one", f"c{number}"), plain("Done."))
        )
    )


def finished(entries: Iterable[Entry]) -> list[records.Message]:
    return [message for _index, message in stream_messages(entries, None)]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(_entries, st.data())
def test_growth_holds_for_turns_finished_early(hold_little: None, entries: list[Entry], data: st.DataObject) -> None:
    before = messages(entries[: data.draw(st.integers(0, len(entries)))])
    after = messages(entries)
    assert [merged(old, new) for old, new in zip(before, after, strict=False)] == after[: len(before)]


@pytest.mark.usefixtures("hold_little")
def test_long_transcript_is_read_twice_with_the_same_result() -> None:
    entries, passes = turns(9), []

    def read() -> Iterator[Entry]:
        passes.append(len(passes))
        yield from entries

    found = outline_of(Transcript(entries=read, title="Nine"), "f")
    assert (found.count, len(found.digests), found.session.title) == (36, 36 * 4, "Nine")
    timed = with_times(replace_messages(found.session, messages(entries)), NOON).messages
    assert list(messages_of(found, NOON)) == timed
    assert passes == [0, 1]


def replace_messages(said: records.Session, found: list[records.Message]) -> records.Session:
    return records.Session(external_id=said.external_id, messages=found)


def test_short_transcript_is_read_once() -> None:
    passes = []

    def read() -> Iterator[Entry]:
        passes.append(len(passes))
        yield from turns(9)

    found = outline_of(Transcript(entries=read), "f")
    assert len(list(messages_of(found, NOON))) == 18
    assert passes == [0]


@pytest.mark.usefixtures("hold_little")
def test_turns_are_finished_and_released_as_others_follow() -> None:
    conversation = Conversation(None)
    held, given = [], 0
    for entry in turns(100):
        conversation.add(entry)
        given += len(list(conversation.finished_messages()))
        held.append(len(conversation._items) + len(conversation._late))
    assert given == 198
    assert max(held) <= 4
    assert (len(conversation._last_of_id), len(conversation._of_call), len(conversation._waiting)) <= (1, 1, 5)


@pytest.mark.usefixtures("hold_little")
def test_late_result_matches_its_call_in_a_waiting_turn() -> None:
    entries = talk(user("Go"), asks("late:a"), *turns(5), result("at last", "late"), *turns(2))
    assert [message.external_id for message in finished(entries)][-3:] != ["1"]
    (first,) = [m for m in finished(entries) if m.external_id == "1"]
    assert outline([first]) == [("assistant", "1", None, [(0, None, [("late", "a", "at last")])])]
    assert [m.external_id for m in messages(entries)] == [
        e.id for e in entries if isinstance(e, Prompt) or e.id == "1" or _begins(e)
    ]


def _begins(entry: Entry) -> bool:
    return isinstance(entry, Reply) and any(call.id != "late" for call in entry.calls)


@pytest.mark.usefixtures("hold_little")
def test_oldest_of_too_many_open_calls_stop_waiting() -> None:
    entries = talk(
        *(entry for number in range(9) for entry in (user("Go"), asks(f"c{number}:a"))),
        user("Well?"),
        result("too late", "c0"),
        result("in time", "c8"),
    )
    found = {
        call.id: _output(call)
        for m in messages(entries)
        for step in m.agent_steps or ()
        for call in step.tool_calls or ()
        if not call.metadata
    }
    assert (found["c0"], found["c8"]) == (None, "in time")
    assert [m.health for m in messages(entries)][-1] == ["orphan_result"]


@pytest.mark.usefixtures("hold_little")
def test_times_follow_the_order_of_turns_finished_late() -> None:
    entries = talk(user("Go"), asks("late:a"), *turns(4))
    found = outline_of(Transcript(entries=lambda: entries), "f")
    timed = sorted(messages_of(found, NOON), key=lambda m: m.created_at or NOON)
    assert [m.external_id for m in timed] == [m.external_id for m in messages(entries)]


def test_much_is_finished_early_however_few_entries_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tracesite_sdk.transcripts.conversation.MOST_HELD_CHARACTERS", 100)
    conversation = Conversation(None)
    for entry in talk(user("x" * 60), plain("y"), user("z" * 60)):
        conversation.add(entry)
    assert [message.external_id for _index, message in conversation.finished_messages()] == ["0"]


def test_values_that_are_nested_deeply_are_measured() -> None:
    deep: Any = "x"
    for _level in range(5000):
        deep = [deep]
    assert size_of(Result(id="0", output=deep, failed=None)) > 0


@pytest.mark.parametrize("call_id", ["c", None], ids=["removed", "parents"])
def test_calls_of_a_step_are_found_in_linear_time(call_id: str | None) -> None:
    def work(count: int) -> None:
        turn = Turn(0, "t", None)
        step = turn.add_step(None)
        calls = [turn.add_call(step, Call(id=call_id, name="look", args={})) for _index in range(count)]
        for call in reversed(calls):
            if call_id is None:
                turn.add_step(None, call)
            else:
                step.remove(call)
        assert call_id or [call.uuid for call in calls] == [f"t#{index}" for index in range(count)]

    assert grows_linearly(work, int, 16_000, spare=0.1)

"""Data sets in the form of ShareGPT: roles under every name, calls in text, results, and broken rows."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import records
from tracesite_sdk.formats import sharegpt
from tracesite_sdk.formats.registry import format_of

from .reading import assert_grows, assert_takes_no_other, calls, figures, has_failed, lines, mangled, only, read, steps


def turn(who: str, value: Any, **fields: Any) -> dict[str, Any]:
    return {"from": who, "value": value, **fields}


def asked(tool: str, **args: Any) -> str:
    return json.dumps({"name": tool, "arguments": args})


HERMES = [
    turn("system", "You may call functions. <tools>[]</tools>"),
    turn("human", "Weather in Bonn and Kiel?"),
    turn("gpt", f"<think>Two calls.</think>\nI ask.\n<tool_call>\n{asked('weather', city='Bonn')}\n</tool_call>\n<tool_call>\n{{'arguments': {{'city': 'Kiel', 'raw': None}}, 'name': 'weather'}}\n</tool_call>"),
    turn("tool", '<tool_response>\n{"name": "weather", "content": {"temp": 9}}\n</tool_response>\n<tool_response>\n{"name": "weather", "content": {"success": false, "error": "no such town"}}\n</tool_response>'),
    turn("gpt", "9 degrees in Bonn.", weight=1),
]  # fmt: skip
FACTORY = [
    turn("human", "Age of Ann?"),
    turn("function_call", asked("age", name="Ann")),
    turn("observation", '{"age": 7}'),
    turn("gpt", "She is 7."),
]
ROW = {"id": "row_7", "conversations": HERMES, "tools": "[]", "category": "weather"}


def test_row_with_calls_in_text_gives_expected_records() -> None:
    session = only(sharegpt, [ROW])
    assert session.title == "Weather in Bonn and Kiel?"
    metadata = session.metadata or {}
    assert (metadata["id"], metadata["category"], metadata["tools"]) == ("row_7", "weather", "[]")
    system, question, answer = session.messages or []
    assert (system.role, question.role, question.external_id) == ("system", "user", "1")
    assert (answer.content, answer.external_id, (answer.metadata or {})["weight"]) == ("9 degrees in Bonn.", "2", 1)
    (step,) = steps(answer)
    assert (step.thought, step.reasoning_content) == ("I ask.", "Two calls.")
    assert [(call.name, call.args, has_failed(call)) for call in calls(session)] == [
        ("weather", {"city": "Bonn"}, False),
        ("weather", {"city": "Kiel", "raw": None}, True),
    ]
    actual = [call.result.output for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert actual == [{"temp": 9}, {"success": False, "error": "no such town"}]


def test_turns_of_calls_and_observations_are_read() -> None:
    session = only(sharegpt, {"conversations": FACTORY, "system": "Be kind.", "tools": "[]"})
    assert [(message.role, message.content) for message in session.messages or ()] == [
        ("system", "Be kind."),
        ("user", "Age of Ann?"),
        ("assistant", "She is 7."),
    ]
    (call,) = calls(session)
    assert (call.name, call.args) == ("age", {"name": "Ann"})
    assert isinstance(call.result, records.ToolResult)
    assert call.result.output == '{"age": 7}'


def test_calls_in_one_turn_match_results_in_order() -> None:
    many = turn("function_call", json.dumps([{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}]))
    session = only(sharegpt, {"conversations": [turn("user", "x"), many, turn("observation", "1"), turn("observation", "2")]})  # fmt: skip
    actual = [(call.name, call.result.output) for call in calls(session) if isinstance(call.result, records.ToolResult)]
    assert actual == [("a", "1"), ("b", "2")]


def test_calls_in_text_count_only_with_tools() -> None:
    text = f"Write <tool_call>{asked('f')}</tool_call> to call f."
    plain = only(sharegpt, {"conversations": [turn("human", "How?"), turn("gpt", text)]})
    assert ((plain.messages or [])[1].content, calls(plain)) == (text, [])
    session = only(sharegpt, {"conversations": [turn("human", "How?"), turn("gpt", text)], "tools": "[{}]"})
    assert [call.name for call in calls(session)] == ["f"]


@pytest.mark.parametrize("broken", ["{broken", "[]]", '{"arguments": {}}', "{'a': open('x')}", "{1j: 2}", "text"])
def test_broken_call_stays_text(broken: str) -> None:
    value = f"<tool_call>{broken}</tool_call>"
    session = only(sharegpt, {"conversations": [turn("human", "x"), turn("gpt", value)], "tools": "[{}]"})
    assert ((session.messages or [])[1].content, calls(session)) == (value, [])


@pytest.mark.parametrize(
    ("written", "args"),
    [
        ("""{'a': 'say "hi"', 'b': "it's"}""", {"a": 'say "hi"', "b": "it's"}),
        (r"""{'a': 'it\'s\n', 'b': '\\d'}""", {"a": "it's\n", "b": "\\d"}),
        ("{'a': [None, True, False, 'None', 1.5]}", {"a": [None, True, False, "None", 1.5]}),
        ("""{"a": "True 'quoted'"}""", {"a": "True 'quoted'"}),
        (r"""{'a': '\x41'}""", {"a": r"\x41"}),
    ],
)
def test_python_dictionary_is_parsed(written: str, args: dict[str, Any]) -> None:
    text = f"<tool_call>{{'name': 'f', 'arguments': {written}}}</tool_call>"
    (call,) = calls(only(sharegpt, {"conversations": [turn("human", "x"), turn("gpt", text)], "tools": "[]"}))
    assert call.args == args


def test_python_dictionary_is_parsed_in_linear_time() -> None:
    def seconds(written: str) -> float:
        began = time.perf_counter()
        read(sharegpt, {"conversations": [turn("human", "x"), turn("function_call", written)]})
        return time.perf_counter() - began

    for unit in ("\\'", "'", "'a':1,", "<tool_call>", "{'", "\"'", "\\"):
        assert seconds("{'" + unit * 200_000) < 60  # in quadratic time it takes hours


def test_invalid_call_turn_stays_text() -> None:
    session = only(
        sharegpt, {"conversations": [turn("human", "x"), turn("function_call", "nothing"), turn("gpt", "y")]}
    )
    assert ([step.thought for step in steps((session.messages or [])[1])], calls(session)) == (["nothing"], [])


@pytest.mark.parametrize(
    ("who", "role"), [("human", "user"), ("User", "user"), ("gpt", "assistant"), ("chatgpt", "assistant"), ("system", "system")]
)  # fmt: skip
def test_role_names_of_data_sets_are_known(who: str, role: str) -> None:
    session = only(sharegpt, {"conversations": [turn("human", "x"), turn(who, "y")]})
    assert (session.messages or [])[1].role == role


@pytest.mark.parametrize("form", ["list", "lines", "turns", "lines of turns", "list of turns", "items"])
def test_all_forms_of_a_document_are_recognised(form: str) -> None:
    documents = {
        "list": [ROW, ROW],
        "lines": lines([ROW, ROW]),
        "turns": HERMES,
        "lines of turns": lines(list(HERMES)),
        "list of turns": [HERMES, HERMES],
        "items": {"id": "x", "items": HERMES},
    }
    assert format_of(documents[form]) is sharegpt
    sessions, left_out = read(sharegpt, documents[form])
    assert ({len(calls(session)) for session in sessions}, left_out) == ({2}, [])


def test_rows_are_sessions_with_derived_ids() -> None:
    other = {**ROW, "conversations": FACTORY}
    sessions, left_out = read(
        sharegpt, lines([ROW, other, 3, {"conversations": []}, {"conversations": [turn("system", "x")]}])
    )
    assert len({session.external_id for session in sessions}) == 2
    assert left_out == [
        ("line 3", "not a conversation: no turns with from and value"),
        ("line 4", "not a conversation: no turns with from and value"),
        ("line 5: conversations", "no user or assistant message"),
    ]
    assert figures(sessions)["tool_calls_by_name"] == {"weather": 2, "age": 1}


def test_turn_of_unknown_sender_is_reported() -> None:
    _, left_out = read(sharegpt, {"conversations": [turn("human", "x"), turn("alien", "y"), 5, {"value": "z"}]})
    assert left_out == [
        ("conversations[1]", "from is alien, which is not a known role"),
        ("conversations[2]", "not a turn with from and value"),
        ("conversations[3]", "not a turn with from and value"),
    ]


@pytest.mark.parametrize("count", range(2, len(HERMES) + 1))
def test_grown_row_keeps_earlier_records(count: int) -> None:
    assert_grows(sharegpt, {**ROW, "conversations": HERMES[:count]}, ROW)


@given(mangled([ROW, {"conversations": FACTORY}]))
def test_read_mangled_document_never_raises(document: Any) -> None:
    for form in (document, lines(document)):
        if sharegpt.recognises(form):
            read(sharegpt, form)


@given(st.text(), st.text(alphabet="{}[]'\"\\:,1jabc ()-*"))
def test_any_text_in_a_call_never_raises(content: str, literal: str) -> None:
    turns = [turn("human", "x"), turn("gpt", f"<tool_call>{literal}</tool_call>"), turn("tool", content), turn("function_call", literal)]  # fmt: skip
    assert read(sharegpt, {"conversations": turns, "tools": "[]"})[0]


@pytest.mark.parametrize(
    "document",
    [None, [], {}, [3], {"conversations": []}, {"conversations": [{"role": "user", "content": "x"}]}, [{"from": 1, "value": 2}], lines([])],
)  # fmt: skip
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not sharegpt.recognises(document)


def test_recognises_real_files_of_other_formats_returns_false() -> None:
    assert_takes_no_other(sharegpt)

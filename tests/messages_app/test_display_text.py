"""The text of answers without the JSON of tools."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages_app.display_text import without_tool_json

CLARIFY = {"needs_clarification": True, "questions": [{"question": "哪一年？", "options": ["2024", "2025"]}]}
TOOLS = [
    CLARIFY,
    {"needs_clarification": False},
    {"success": True, "questions": []},
    {"query_intent": "count", "entities": ["order"], "relationships": []},
    [{"table_id": 3, "relevance_score": 0.9, "reasoning": "It has the orders."}],
    [{"schema_name": "public", "column_id": 7}, {}],
]


@pytest.mark.parametrize("value", TOOLS)
@pytest.mark.parametrize("indent", [None, 2])
def test_tool_json_is_removed_from_the_shown_text(value: object, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    assert without_tool_json(text) == ""
    assert without_tool_json(f"I looked.\n\n{text}\n\nThere are 3.") == "I looked.\n\nThere are 3."
    assert without_tool_json(f"I looked. {text} There are 3. {text}") == "I looked.  There are 3."
    assert without_tool_json(f"I looked.\n```json\n{text}\n```\nThere are 3.") == "I looked.\n\nThere are 3."


@pytest.mark.parametrize("value", [{"success": False, "error": "no table"}, {"success": True, "data": {"rows": ["}"]}}])
def test_outcome_json_alone_in_the_text_is_removed(value: object) -> None:
    text = json.dumps(value)
    assert [without_tool_json(f"{fence[0]}{text}{fence[1]}") for fence in (("", ""), ("```json\n", "\n```"))] == [
        "",
        "",
    ]
    example = f"The API answers:\n```json\n{text}\n```"
    assert without_tool_json(example) == example


@pytest.mark.parametrize(
    "text",
    [
        "There are 3.",
        '{"name": "Ada", "born": 1815}',
        'Your package.json:\n```json\n{"success": "sub", "scripts": {"success": true}}\n```',
        'The API answers {"success": true} when it worked.',
        '{"entities": ["order"]}',
        '[{"table_id": 3}]',
        '[{"reasoning": "because"}]',
        "needs_clarification is a field of {the object}.",
        '{"needs_clarification": tr',
        '{"needs_clarification": "maybe"}',
        "  success with blanks around ",
        "",
    ],
)
def test_other_text_and_json_is_unchanged(text: str) -> None:
    assert without_tool_json(text) == text


@given(st.text(alphabet='{}[]"`:, \nab', max_size=60), st.sampled_from(TOOLS))
def test_any_surrounding_text_raises_nothing_and_adds_nothing(around: str, value: object) -> None:
    text = f"{around}{json.dumps(value)}{around}"
    shown = without_tool_json(text)
    assert len(shown) <= len(text)


@pytest.mark.parametrize("text", ['{"success":' * 20_000, '[{"' * 20_000 + "success", '{"a":1} ' * 20_000 + "success"])
def test_text_of_many_brackets_is_fast(text: str) -> None:
    started = time.process_time()
    without_tool_json(text)
    assert time.process_time() - started < 2

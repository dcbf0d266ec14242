"""Normalization of tool results to one form."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sdk.tests.normalize.result_strategies import FIELDS, SAID, VALUES, form, is_json
from tracesite_sdk import records
from tracesite_sdk.normalize import tool_results
from tracesite_sdk.normalize.tool_results import (
    MOST_WRAPPINGS,
    NO_REASON,
    is_error_text,
    normalize_result,
    result_fields,
)

ROWS = [{"城市": "上海", "总数": 3}]


def read(received: Any, **said: Any) -> records.ToolResult:
    made = normalize_result(records.ToolResult(output=received, **said), None)
    assert made is not None
    return made


# --- Objects and JSON -----------------------------------------------------------------------------------------------

ENVELOPE = {"success": True, "data": {"rows": ROWS}, "error": None, "execution_time": 0.25, "from_cache": False}
TAKEN_APART = {
    "status": "success",
    "data": {"rows": ROWS},
    "metadata": {"execution_time": 0.25, "from_cache": False},
}


def test_object_and_its_json_text_are_the_same_record() -> None:
    text = json.dumps(ENVELOPE, ensure_ascii=False)
    assert form(read(text)) == {**TAKEN_APART, "raw": text}
    assert form(read(ENVELOPE)) == {**TAKEN_APART, "raw": msgspec.json.encode(ENVELOPE).decode()}


def test_json_encoded_several_times_is_parsed() -> None:
    text = json.dumps(ENVELOPE)
    for _time in range(4):
        text = json.dumps(text)
        assert form(read(text)) == {**TAKEN_APART, "raw": text}
    within = {"success": True, "data": json.dumps({"rows": json.dumps(ROWS)})}
    assert read(json.dumps(within)).data == {"rows": ROWS}


def test_object_without_outcome_is_data_and_its_json_the_output() -> None:
    text = '{"城市": "上海", "sky": "[1]"}'
    assert form(read(text)) == {"status": "success", "output": text, "data": {"城市": "上海", "sky": "[1]"}}
    assert form(read("[1, 2]")) == {"status": "success", "output": "[1, 2]", "data": [1, 2]}


def test_text_of_json_that_was_encoded_again_is_that_text() -> None:
    assert form(read(json.dumps("已经完成"))) == {
        "status": "success",
        "output": "已经完成",
        "raw": json.dumps("已经完成"),
    }
    assert form(read('"a" and "b"')) == {"status": "success", "output": '"a" and "b"'}


@pytest.mark.parametrize("text", ["42", "true", "null", "0.5", "{}x", "{", '"', "[INFO] started", "{broken: yes}", ""])
def test_other_text_is_text(text: str) -> None:
    assert form(read(text)) == {"status": "success", **({"output": text} if text else {})}


def test_python_repr_of_object_is_parsed() -> None:
    text = "{'success': False, 'error': \"it's gone\", 'details': ('a', None, True), 1: {2}}"
    assert form(read(text)) == {
        "status": "error",
        "error": "it's gone",
        "output": text,
        "data": {"success": False, "error": "it's gone", "details": ["a", None, True], "1": [2]},
        "metadata": {"details": ["a", None, True]},
    }
    path = "{'path': 'C:\\\\dir\\\\new'}"
    assert read(path).data == {"path": "C:\\dir\\new"}


@pytest.mark.parametrize(
    "text", ["{'a': open('/etc/passwd')}", "['\\d']", "{'a': 1e999j}", "[" * 300 + "]" * 300, "['a'"]
)
def test_text_that_resembles_a_repr_stays_text(text: str) -> None:
    assert form(read(text)) == {"status": "success", "output": text}


def test_json_nested_too_deeply_stays_text() -> None:
    deep = '{"a":' * 400 + "1" + "}" * 400
    assert form(read(deep)) == {"status": "success", "output": deep}
    for text in ("{'a': " * 400 + "1" + "}" * 400, "{broken " + "[" * 300 + "}", '"' + "[" * 300 + '"'):
        assert text in (read(text).output, read(text).raw)
    wide = json.dumps([[n] for n in range(500)])
    assert read(wide).data == [[n] for n in range(500)]


def test_wrappings_beyond_the_limit_are_kept() -> None:
    text = "[1]"
    for _time in range(MOST_WRAPPINGS + 3):
        text = json.dumps(text)
    left = read(text)
    assert left.data is None
    assert left.raw == text
    assert normalize_result(left, None) == left


# --- How it went ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inside", "status", "error"),
    [
        ({"success": True, "error": "ignored"}, "success", "ignored"),
        ({"success": False, "message": "No such table."}, "error", "No such table."),
        ({"success": False}, "error", NO_REASON),
        ({"success": False, "status": "pending"}, "pending", ""),
        ({"success": True, "status": "pending", "data": {"order": 1}}, "success", ""),
        ({"error": None, "rows": []}, "success", ""),
        ({"error": "", "response": "fine"}, "success", ""),
        ({"error": "Rate limited.", "response": ""}, "error", "Rate limited."),
        ({"error": {"code": 7}}, "error", '{"code":7}'),
        ({"error": True, "message": "Gone."}, "error", "Gone."),
        ({"status": "error", "id": 3}, "error", '{"status":"error","id":3}'),
        ({"status": "failed", "message": "Gone."}, "error", "Gone."),
        ({"status": "pending", "message": "Queued."}, "pending", ""),
        # The order is pending, not the call that looked it up; and the payment failed, not the call.
        ({"order_id": "#W1", "status": "pending"}, "success", ""),
        ({"payment": 3, "status": "failed"}, "success", ""),
        ({"status": 500}, "success", ""),
        (["Error: one of many lines"], "success", ""),
    ],
)
def test_object_may_state_its_outcome(inside: Any, status: str, error: str) -> None:
    for received in (inside, msgspec.json.encode(inside).decode()):
        made = read(received)
        assert (made.status, made.error) == (status, error)


def test_stated_outcome_wins_over_everything_inside() -> None:
    assert read('{"success": false, "error": "x"}', status="success").status == "success"
    assert read('{"success": true}', success=False).status == "error"
    assert read("Error: x", status="success").error == ""
    assert read("fine", status="error").error == "fine"
    assert read("", status="error").error == NO_REASON
    assert normalize_result("Error: x", "success") == records.ToolResult(
        status="success", success=True, output="Error: x", error=""
    )


@pytest.mark.parametrize(
    "text",
    [
        "Error: file not found",
        "Error: no such table",
        "ERROR: file not found",
        "error - file not found",
        "  Error\nsomething",
        "Error: x is not a valid tool, try one of [a, b].",
        "<tool_use_error>File has not been read yet.</tool_use_error>",
        "Error executing tool search: timed out",
        "An error occurred while reading",
        "Tool execution failed with status 3",
        "Failed to fetch page: 404",
        "ValueError: no such column",
        "sqlalchemy.exc.OperationalError: (psycopg) server closed",
        "Traceback (most recent call last):\n  File ...",
        "❌ Error: nothing there",
        "错误：连接失败",
    ],
)
def test_text_that_starts_like_an_error_is_an_error(text: str) -> None:
    assert is_error_text(text)
    assert (read(text).status, read(text).error) == ("error", text)


@pytest.mark.parametrize(
    "text",
    [
        "0 errors found",
        "No errors.",
        "No error: all fine",
        "Errors: 0",
        "Error: 0",
        "Error: none",
        "error rate: 0.2 %",
        "Error handling in Go is done by values.",
        "mean_squared_error: 0.12",
        "grep: 3 lines with Error: were found",
        "The exception proves the rule.",
        "Failures: none",
        "失败率为零",
        "",
    ],
)
def test_text_about_errors_is_no_error(text: str) -> None:
    assert not is_error_text(text)
    assert read(text).status == "success"


@pytest.mark.parametrize(
    "received",
    [
        {
            "success": False,
            "error": "No tables match.",
            "error_type": "retrieval_error",
            "suggestion": "Name the table.",
            "troubleshooting": ["Is it indexed?"],
            "details": {"query": "x"},
        },
        {
            "status": "error",
            "error": "No tables match.",
            "error_type": "retrieval_error",
            "suggestion": "Name the table.",
            "troubleshooting": ["Is it indexed?"],
            "details": {"query": "x"},
            "data": None,
        },
        {
            "error": "No tables match.",
            "metadata": {"error_type": "retrieval_error", "details": {"query": "x"}},
            "suggestion": "Name the table.",
            "troubleshooting": ["Is it indexed?"],
        },
    ],
)
def test_error_shapes_of_one_tool_give_one_form(received: dict[str, Any]) -> None:
    made = form(read(json.dumps(received)))
    del made["raw"]
    assert made == {
        "status": "error",
        "error": "No tables match.",
        "metadata": {
            "error_type": "retrieval_error",
            "suggestion": "Name the table.",
            "troubleshooting": ["Is it indexed?"],
            "details": {"query": "x"},
        },
    }


# --- Messages and blocks --------------------------------------------------------------------------------------------


def test_result_of_mcp_is_its_text_its_data_and_its_files() -> None:
    image = {"type": "image", "data": "iVBORw0KGgoAAAA=", "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "file:///a.csv"}
    received = {
        "content": [{"type": "text", "text": "31 °C"}, image, {"type": "text", "text": "晴"}, link],
        "structuredContent": {"celsius": 31},
        "isError": False,
        "_meta": {"took": 3},
    }
    assert form(read(received)) == {
        "status": "success",
        "output": "31 °C 晴",
        "data": {"celsius": 31},
        "metadata": {"_meta": {"took": 3}},
        "attachments": [{"type": "image", "media_type": "image/png", "data": "iVBORw0KGgoAAAA="}, link],
    }
    failed = read({"content": [{"type": "text", "text": "No such city."}], "isError": True})
    assert (failed.status, failed.error) == ("error", "No such city.")
    assert form(read(received["content"])) == {
        "status": "success",
        "output": "31 °C 晴",
        "attachments": [{"type": "image", "media_type": "image/png", "data": "iVBORw0KGgoAAAA="}, link],
    }
    assert form(read([{"type": "text", "text": json.dumps(ENVELOPE)}])) == {**TAKEN_APART, "raw": json.dumps(ENVELOPE)}


def test_other_content_blocks_are_kept_in_metadata() -> None:
    cited = {"type": "text", "text": "Yes.", "annotations": [{"page": 3}]}
    assert form(read([cited, {"type": "thinking", "thinking": "Hm."}])) == {
        "status": "success",
        "output": "Yes.",
        "metadata": {"content": [cited, {"type": "thinking", "thinking": "Hm."}]},
    }


def as_block(value: Any) -> dict[str, Any]:
    return {"type": "json", "json": value}


FOUND = {"type": "search_result", "title": "Guide", "source": "https://a.example", "content": [{"type": "text", "text": "Read this."}]}  # fmt: skip


@pytest.mark.parametrize(
    ("blocks", "output", "data"),
    [
        ([as_block({"left": 3}), as_block({"left": 5})], '[{"left":3},{"left":5}]', [{"left": 3}, {"left": 5}]),
        ([{"type": "text", "text": "Some."}, as_block({"left": 3})], "Some.", {"left": 3}),
        ([{"type": "text", "text": '{"left":3}'}, as_block({"left": 3})], '{"left":3}', {"left": 3}),
        ([{"type": "text", "text": '{"a":1}'}, as_block({"left": 3})], '{"a":1}', [{"a": 1}, {"left": 3}]),
        ([FOUND], "Guide\nhttps://a.example\nRead this.", FOUND),
        ([{"type": "tool_reference", "tool_name": "a"}], "a", {"type": "tool_reference", "tool_name": "a"}),
    ],
)  # fmt: skip
def test_blocks_of_data_are_data(blocks: list[Any], output: str, data: Any) -> None:
    assert form(read(blocks)) == {"status": "success", "output": output, "data": data}


def test_failure_in_block_of_data_counts() -> None:
    failed = read([{"type": "text", "text": "Sorry."}, as_block({"success": False, "error": "sold out"})])
    assert (failed.status, failed.error, failed.output) == ("error", "sold out", "Sorry.")


def test_blocks_of_data_beside_structured_content_are_metadata() -> None:
    form_ = form(read({"content": [as_block({"left": 3})], "structuredContent": {"a": 1}, "isError": False}))
    assert (form_["data"], form_["metadata"]) == ({"a": 1}, {"content": [as_block({"left": 3})]})


def test_list_of_other_objects_is_data() -> None:
    rows = [{"type": "cat", "text": "x"}, {"type": "text"}]
    assert read(rows).data == rows


_TOOL_MESSAGE = {
    "content": '{"rows": 2}',
    "type": "tool",
    "name": "query",
    "id": None,
    "tool_call_id": "call_1",
    "artifact": {"rows": ROWS},
    "status": "error",
}


@pytest.mark.parametrize(
    "received",
    [
        _TOOL_MESSAGE,
        {"type": "tool", "data": _TOOL_MESSAGE},
        {"lc": 1, "type": "constructor", "id": ["langchain", "ToolMessage"], "kwargs": _TOOL_MESSAGE},
    ],
)
def test_langchain_tool_message_gives_content_data_and_status(received: Any) -> None:
    assert form(read(received)) == {
        "status": "error",
        "output": '{"rows": 2}',
        "data": {"rows": ROWS},
        "error": '{"rows": 2}',
        "metadata": {"name": "query", "tool_call_id": "call_1"},
    }


def test_tool_result_of_anthropic_is_its_content_and_its_flag() -> None:
    received = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "no"}],
        "is_error": True,
    }
    assert form(read(received)) == {
        "status": "error",
        "output": "no",
        "error": "no",
        "metadata": {"tool_use_id": "toolu_1"},
    }


# --- Properties ----------------------------------------------------------------------------------------------------


@given(VALUES.filter(is_json), st.integers(0, 4))
def test_normal_form_is_idempotent_and_text_is_kept(value: Any, times: int) -> None:
    received = value
    for _time in range(times):
        received = json.dumps(received, ensure_ascii=False)
    made = read(received)
    assert made.status in ("success", "error", "pending")
    assert isinstance(made.output, str)
    assert isinstance(made.error, str)
    assert normalize_result(made, None) == made
    if isinstance(received, str):
        assert received in (made.raw, made.output)


@given(
    st.one_of(st.dictionaries(st.text(max_size=5), VALUES, max_size=4), st.lists(VALUES, max_size=4)).filter(is_json)
)
def test_number_of_encodings_does_not_change_the_form(value: Any) -> None:
    def said(result: records.ToolResult) -> dict[str, Any]:
        fields = form(result)
        fields.pop("raw", None)
        return fields

    expected = said(read(value))
    received = value
    for _time in range(4):
        received = msgspec.json.encode(received).decode()
        assert said(read(received)) == expected


@given(st.text())
def test_any_text_is_normalised_without_raising(text: str) -> None:
    made = read(text)
    assert text in (made.raw, made.output)
    assert normalize_result(made, None) == made


@given(st.one_of(st.dictionaries(FIELDS, SAID, max_size=4), st.lists(VALUES, max_size=3)).filter(is_json))
def test_any_object_and_its_json_text_are_the_same_record(value: Any) -> None:
    def said(found: Any) -> dict[str, Any]:
        made = normalize_result(tool_results.received(found), None)
        assert isinstance(made, records.ToolResult)
        return {name: item for name, item in form(made).items() if name != "raw"}

    assert said(msgspec.json.decode(msgspec.json.encode(value))) == said(msgspec.json.encode(value).decode())


def test_fields_of_object_other_than_result_are_none() -> None:
    assert result_fields({"order": 1, "status": "pending"}) is None
    assert result_fields({"status": "shipped"}) is None
    assert result_fields({"success": "yes"}) is None
    assert result_fields({"metadata": [1]}) is None
    assert result_fields({"message": "Hello"}) is None
    assert result_fields({"status": "pending"}) is not None

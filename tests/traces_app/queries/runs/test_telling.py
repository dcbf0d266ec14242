"""The words of a row: telling arguments, lines of errors, notes of results, first words of thoughts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from messages_app.safe_text import is_plain
from traces_app.queries.runs.telling import LONGEST, LONGEST_PATH, is_shell, telling_argument
from traces_app.queries.runs.telling_texts import LONGEST_NOTE, Note, cut_in_middle, note_of_result, plain, telling_line


def jsonb(value: Any) -> str:
    """Return a value as PostgreSQL writes jsonb: keys by their length, then by their bytes."""

    def ordered(part: Any) -> Any:
        if isinstance(part, dict):
            keys = sorted(part, key=lambda key: (len(key.encode()), key.encode()))
            return {key: ordered(part[key]) for key in keys}
        return [ordered(item) for item in part] if isinstance(part, list) else part

    return json.dumps(ordered(value), ensure_ascii=False)


@pytest.mark.parametrize(
    ("tool", "args", "told"),
    [
        # Claude Code
        ("Bash", {"command": "go test ./...", "description": "Run all tests", "timeout": 60000}, "go test ./..."),
        ("Bash", {"command": "cd /srv/shop && export CI=1 && go vet"}, "go vet"),
        ("Bash", {"command": "cd /srv/shop"}, "cd /srv/shop"),
        ("Bash", {"command": ". .venv/bin/activate\n\npytest -q \\\n  tests"}, "pytest -q tests"),
        ("Bash", {"command": "cat > a.py <<'EOF'\nprint(1)\nEOF"}, "cat > a.py <<'EOF' …"),
        ("Bash", {"command": "{ date; uptime; }"}, "{ date; uptime; }"),
        ("Read", {"file_path": "src/a.py"}, "src/a.py"),
        ("Read", {"file_path": "src/a.py", "offset": 10, "limit": 31}, "src/a.py:10-40"),
        ("Read", {"file_path": "src/a.py", "limit": 50}, "src/a.py:1-50"),
        ("Edit", {"file_path": "src/a.py", "old_string": "x", "new_string": "y"}, "src/a.py"),
        ("Write", {"content": "# Plan\n" * 50, "file_path": "/srv/计划.md"}, "/srv/计划.md"),
        ("Grep", {"path": "src", "pattern": "def \\w+", "output_mode": "content"}, "def \\w+ src"),
        ("Glob", {"pattern": "**/*.go"}, "**/*.go"),
        ("WebFetch", {"url": "https://example.com/a", "prompt": "Which version?"}, "https://example.com/a"),
        ("WebSearch", {"query": "上海 天气"}, "上海 天气"),
        ("Task", {"prompt": "Read all of it", "description": "Find the call", "subagent_type": "x"}, "Find the call"),
        ("Skill", {"args": "a.pdf", "skill": "pdf"}, "pdf a.pdf"),
        (
            "TodoWrite",
            {
                "todos": [
                    {"content": c, "status": s} for c, s in [("A", "completed"), ("B", "in_progress"), ("C", "pending")]
                ]
            },
            "1/3 B",
        ),
        ("mcp__tracker__get_issue", {"id": "SHOP-7"}, "SHOP-7"),
        # OpenHands and SWE-agent
        ("execute_bash", {"command": "ls", "is_input": "false"}, "ls"),
        ("str_replace_editor", {"command": "view", "path": "/w/a.py", "view_range": [5, -1]}, "view /w/a.py:5-"),
        ("str_replace_editor", {"command": "create", "path": "/w/a.py", "file_text": "x"}, "create /w/a.py"),
        ("open", {"path": "a.py", "line_number": 3}, "a.py"),
        ("think", {"thought": "It is a race."}, "It is a race."),
        # OpenAI: Codex, the Agents SDK, the tools of the Responses API
        ("shell", {"command": ["bash", "-lc", "go test ./..."], "workdir": "/w"}, "go test ./..."),
        ("shell", {"command": ["git", "status", "--short"]}, "git status --short"),
        ("local_shell", {"action": {"type": "exec", "command": ["ls", "-l"]}}, "ls -l"),
        ("apply_patch", {"input": "*** Begin Patch\n*** Update File: a.py\n+x\n*** Add File: b.py\n"}, "a.py +1"),
        ("update_plan", {"plan": [{"step": "Test", "status": "completed"}]}, "1/1 Test"),
        ("computer", {"action": {"type": "click", "x": 10, "y": 20}}, "click 10 20"),
        ("transfer_to_billing", {}, ""),
        # LangGraph and others
        ("get_order", {"order": 5471}, "5471"),
        ("refund", {"to": "card", "order": 5471, "amount": 129}, "5471 card 129"),
        ("send", {"amount": 200, "user_id": "mia_1", "currency": "EUR"}, "mia_1 EUR 200"),
        ("search_flights", {"date": "2024-05-20", "origin": "JFK", "destination": "SEA"}, "2024-05-20 JFK SEA"),
        ("weather", {"unit": "celsius", "location": "Zürich"}, "Zürich"),
        ("http_request", {"url": "https://example.com", "method": "GET"}, "GET https://example.com"),
        ("sql_db_query", {"query": "SELECT 1\nFROM orders"}, "SELECT 1 FROM orders"),
        ("search_tools", {"queries": ["price", "stock"]}, "price, stock"),
        ("find_poi", {"kinds": ["museum", "park"]}, "museum, park"),
        ("roll", {"sides": 6}, "6"),
        ("price", {"amount": 12.50}, "12.5"),
        ("list", {"all": True, "limit": 10, "filter": None}, "all=true limit=10"),
        ("find", {"filter": {"city": "北京", "stars": 4}}, "北京"),
        ("lookup", {"_raw": '{"q": "broken'}, "broken…"),
        ("lookup", {"input": '{"order_id": 5}'}, "5"),
        ("lookup", {"input": "the order"}, "the order"),
        ("lookup", {"q": " ", "name": "", "other": {}, "more": []}, ""),
        ("lookup", ["a", "b"], "a, b"),
        ("lookup", "only text", "only text"),
    ],
)
def test_telling_argument_depends_on_tool_then_name(tool: str, args: Any, told: str) -> None:
    assert telling_argument(tool, jsonb(args)) == told


def test_telling_argument_of_text_that_is_no_json_is_the_text() -> None:
    assert telling_argument("Bash", "go  test\n./...") == "go test ./..."


def test_telling_argument_of_long_path_keeps_its_end() -> None:
    told = telling_argument(
        "Read", jsonb({"file_path": "/home/ada/shop/" + "deep/" * 20 + "export/csv.go", "offset": 7})
    )
    assert told.startswith("…/deep/")
    assert told.endswith("deep/export/csv.go:7-")
    assert len(told) <= LONGEST_PATH + len(":7-")


def test_telling_argument_of_cut_json_tells_what_is_there() -> None:
    assert telling_argument("Bash", '{"command": "go test ./... -run Te') == "go test ./... -run Te…"
    assert telling_argument("Bash", '{"command": "ls \\u4e2d\\u6') == "ls 中…"
    assert telling_argument("refund", '{"order": 5471, "amount": 12') == "5471"


def test_telling_argument_cut_before_the_path_is_empty() -> None:
    args = jsonb({"content": "x" * 20_000, "file_path": "src/a.py"})
    assert telling_argument("Write", args[:16_384]) == ""
    assert telling_argument("Write", args) == "src/a.py"


@pytest.mark.parametrize(
    "args",
    [
        '{"a": ' * 10_000,
        "[" * 10_000 + "]" * 10_000,
        '{"a":' * 10_000 + "1" + "}" * 10_000,
        '{"command": ' + "9" * 16_000 + "}",
        '{"' + "\\" * 16_000,
        '{"command": "' + "cd a\n" * 3_000 + '"}',
        '{"command": "' + "cd a && " * 2_000 + '"}',
        '{"command": "' + "<<a" * 5_000 + '"}',
        '{"path": "' + " " * 16_000 + '"}',
        '{"' + "a_" * 8_000 + '": 1}',
        "".join(f'"a{number}": ' for number in range(2_000)),
    ],
    ids=range(11),
)
@pytest.mark.timeout(10)
def test_telling_argument_of_hostile_json_is_short(args: str) -> None:
    for tool in ("Bash", "Read", "TodoWrite", "lookup"):
        for _row in range(20):
            assert len(telling_argument(tool, args)) <= LONGEST


def test_telling_argument_replaces_hidden_characters() -> None:
    assert telling_argument("Bash", '{"command": "ls \\u001b[31m\\u202e\\ud800"}') == "ls \ufffd[31m\ufffd\ufffd"


def test_shell_is_known_by_its_name() -> None:
    assert [tool for tool in ("Bash", "functions.shell", "mcp__box__run_command", "Grep") if not is_shell(tool)] == [
        "Grep"
    ]


TRACEBACK = """Exit code 1
collecting
Traceback (most recent call last):
  File "/w/a.py", line 3, in main
    raise KeyError("x")
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/w/a.py", line 9, in <module>
    main()
shop.errors.NoAddress: no address for order 5471
done
"""


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (TRACEBACK, "shop.errors.NoAddress: no address for order 5471"),
        ("  | Traceback (most recent call last):\n  |   File \"a\", line 1\n  | OSError: full\n  +-----", "OSError: full"),
        # Commands
        ("Exit code 1\nok  \tshop/a\t1.2s\n--- FAIL: TestSum (0.00s)\n    sum_test.go:9: got 3\nFAIL\n", "--- FAIL: TestSum (0.00s)"),
        ("Exit code 1\n# shop/cart\n./cart.go:12:4: undefined: total\nFAIL\tshop/cart [build failed]", "./cart.go:12:4: undefined: total"),
        ("Exit code 127\n(eval):1: command not found: gofmt", "(eval):1: command not found: gofmt"),
        ("Exit code 128\nfatal: not a git repository\n\nhint: run init", "fatal: not a git repository"),
        ("Exit code 1\n=== FAILURES ===\ntest_sum - AssertionError: 3 != 4\n1 failed", "test_sum - AssertionError: 3 != 4"),
        ("Exit code 1\nstarting\n0 errors\nstill busy", "still busy"),
        ("Exit code 2\n2 checks\nThe argument is invalid.\nbye", "The argument is invalid."),
        ("Exit code 1\n开始\n错误：找不到文件\n结束", "错误：找不到文件"),
        ("Exit code 1", "Exit code 1"),
        ("Command exited with code 1", "Command exited with code 1"),
        ("grep: a.ts: No such file or directory\n\n\nCommand exited with code 2", "grep: a.ts: No such file or directory"),
        ("> check\n\nsrc/a.ts(2,1): error TS2739: Type 'A' is wrong\n[The command completed with exit code 2.]", "src/a.ts(2,1): error TS2739: Type 'A' is wrong"),
        ("\x1b[31m\x1b[1mError:\x1b[0m bad \x1b]8;;http://a\x07port", "Error: bad port"),
        # Stack traces
        ("TypeError: x is not a function\n    at run (/w/a.js:3:5)\n    at main (/w/a.js:9:1)", "TypeError: x is not a function"),
        ("/w/a.js:3\n    throw new Error('no')\n    ^\n\nError: no\n    at run (/w/a.js:3:5)", "Error: no"),
        ("panic: runtime error: index out of range\n\ngoroutine 1 [running]:\nmain.main()\n\t/w/a.go:5 +0x1d", "panic: runtime error: index out of range"),
        ("Exception in thread \"main\" java.lang.IllegalStateException: shut\n\tat a.B.c(B.java:3)\n\t... 3 more", "Exception in thread \"main\" java.lang.IllegalStateException: shut"),
        # Tools and frameworks
        ("<tool_use_error>File does not exist.</tool_use_error>", "File does not exist."),
        ("String to replace not found in file.\nString: raise Error: x", "String to replace not found in file."),
        ("The call was rejected by the user.\nError: never mind", "The call was rejected by the user."),
        ("Checks failed:\n\n  1. a.py is not formatted", "Checks failed: 1. a.py is not formatted"),
        ("ValueError('no address')", "ValueError: no address"),
        ("Error: ValueError('未知城市: 亚特兰蒂斯')\n Please fix your mistakes.", "ValueError: 未知城市: 亚特兰蒂斯"),
        ("Error code: 429 - {'error': {'message': \"Rate limit's reached\", 'type': 'x'}}", "Error code: 429: Rate limit's reached"),
        # JSON
        ('{"error": {"type": "not_found", "message": "No order 5471"}}', "No order 5471"),
        ('{"detail": [{"loc": ["body"], "msg": "Field required"}]}', "Field required"),
        ('{"error": "no seats"}', "no seats"),
        ('{"error": true, "message": "no seats left"}', "no seats left"),
        ('{"message": "the beginning of a long', "the beginning of a long…"),
        ('{"code": 5}', '{"code": 5}'),
        ("  \n", ""),
    ],
)  # fmt: skip
def test_telling_line_names_the_failure(error: str, line: str) -> None:
    assert telling_line(error) == line


@pytest.mark.parametrize(
    "error",
    [
        "=" * 20_000 + "x",
        "Error('" * 3_000,
        "Error(', " * 3_000,
        "a." * 10_000,
        "1:" * 10_000,
        "at " * 10_000,
        "{'message': " * 2_000,
        "Traceback (most recent call last):\n" * 500,
        "\x1b]" * 10_000,
        "</a" * 5_000 + " " * 5_000,
        "\n" * 20_000,
    ],
    ids=range(11),
)
@pytest.mark.timeout(10)
def test_texts_of_hostile_input_are_short(error: str) -> None:
    for _row in range(20):
        assert len(telling_line(error)) <= LONGEST
        assert len(plain(error)) <= LONGEST
        assert len(note_of_result(error).words) <= LONGEST_NOTE


@pytest.mark.parametrize(
    ("output", "size", "note"),
    [
        ("", None, Note()),
        ("ok, 41 packages\n", None, Note(words="ok, 41 packages")),
        ("a\nb\nc\n", None, Note(lines=3)),
        ("a\nb\nc\n", 6, Note(lines=3)),
        ("a\nb\nc\n", 5_000, Note(bytes=5_000)),
        ("x" * 100, None, Note(words="x" * 59 + "…")),
        ("The file /w/a.py has been updated successfully.", None, Note()),
        ("(no output)", None, Note()),
        ('{"status": "returned", "amount": 129}', None, Note(words="returned, 129")),
        ('{"success": true, "data": {"city": "上海", "temp": 31.0}}', None, Note(words="上海, 31.0")),
        ('{"success": true}', None, Note(words="success=true")),
        ('{"results": [{"id": 1}, {"id": 2}]}', None, Note(items=2)),
        ('{"status": "returned", "items": [1, 2', 9_000, Note(words="returned")),
        ("[1, 2, 3]", None, Note(items=3)),
        ('[{"id": 1},\n {"id": 2', 9_000, Note(bytes=9_000)),
        ("[main 77d1d19] Fix the sum", None, Note(words="[main 77d1d19] Fix the sum")),
        ('"sunny"', None, Note(words="sunny")),
    ],
)
def test_note_of_result_is_its_words_or_its_size(output: str, size: int | None, note: Note) -> None:
    assert note_of_result(output, size) == note


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Let me run the tests:", "Let me run the tests:"),
        ("**Done!** The `sum` of *all* is 3 * 4.", "Done! The sum of all is 3 * 4."),
        ("## Summary\n\n- one\n* two\n1. three\n> four\n---\nfive", "Summary one two 1. three four five"),
        ("<thinking>\nIt is a race.\n</thinking>", "It is a race."),
        ("See [the docs](https://example.com/a \"Docs\") and ![a chart](x.png).", "See the docs and a chart."),
        ("```python\nprint(1)\n```", "print(1)"),
        ("a List<String> and **kwargs, __init__, snake_case", "a List<String> and **kwargs, __init__, snake_case"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b | | 1 | 2 |"),
        ("上海 31℃，**北京** 28℃", "上海 31℃，北京 28℃"),
    ],
)  # fmt: skip
def test_plain_drops_signs_of_markdown(text: str, words: str) -> None:
    assert plain(text) == words


def test_cut_in_middle_leaves_short_text_whole() -> None:
    assert cut_in_middle("a\nb\nc", 3) == ("a\nb\nc", 0, "")


def test_cut_in_middle_keeps_a_longer_end() -> None:
    assert cut_in_middle("\n".join("abcdefgh"), 3) == ("a", 5, "g\nh")


@given(st.text(max_size=200), st.integers(1, 20))
def test_cut_in_middle_never_loses_the_end(text: str, lines: int) -> None:
    beginning, left_out, end = cut_in_middle(text, lines)
    assert text.startswith(beginning)
    assert text.endswith(end)
    shown = (beginning.count("\n") + 1 if beginning or lines >= 3 else 0) + (end.count("\n") + 1 if left_out else 0)
    assert shown + left_out == text.count("\n") + 1 or not text


NAMES = st.sampled_from(
    ["command", "path", "view_range", "offset", "todos", "status", "content", "input", "action", "id", "_raw"]
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | NAMES, inner, max_size=4),
    max_leaves=12,
)
TOOLS = st.sampled_from(
    ["Bash", "Read", "str_replace_editor", "TodoWrite", "apply_patch", "Skill", "lookup", "查询", ""]
)


@given(TOOLS, st.dictionaries(NAMES, VALUES, max_size=5), st.data())
def test_telling_argument_bears_json_cut_anywhere(tool: str, args: dict[str, Any], data: st.DataObject) -> None:
    text = jsonb(args)
    told = telling_argument(tool, text[: data.draw(st.integers(0, len(text)))])
    assert len(told) <= LONGEST
    assert is_plain(told)


@given(st.text(max_size=300) | st.sampled_from(TRACEBACK.split("\n")), TOOLS)
def test_words_of_any_text_are_one_short_line(text: str, tool: str) -> None:
    for words in (telling_argument(tool, text), telling_line(text), plain(text), note_of_result(text).words):
        assert len(words) <= LONGEST
        assert is_plain(words)
        assert "\n" not in words

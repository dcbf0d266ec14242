"""Patterns of errors: what differs from one occurrence to the next is replaced, what tells errors apart stays."""

from __future__ import annotations

import pytest

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.models import ToolCall
from traces_app.queries.error_groups import group_of_call
from traces_app.queries.error_patterns import BEGINNING, MOST_QUOTED, pattern_of

pytestmark = pytest.mark.django_db


def patterns(project: Project, *errors: str) -> list[str]:
    """Return the patterns of errors as PostgreSQL makes them."""
    calls = [{"name": "t", "result": {"success": False, "error": error}} for error in errors]
    store(project, {"role": "assistant", "created_at": NOON, "agent_steps": [{"tool_calls": calls}]})
    rows = ToolCall.objects.annotate(pattern=pattern_of("result__error")).order_by("position")
    return list(rows.values_list("pattern", flat=True))


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("timeout after 31.5 s", "timeout after # s"),
        ("key 3f2b8c0e-1111-4222-8333-944455556666 is gone", "key # is gone"),
        ("no row 0xdeadbeef of a3f9b2c", "no row # of #"),
        ("request req_011CQxyzABCDEF failed", "request # failed"),
        ("at 2026-01-02T03:04:05", "at #:#"),
        ("ids [1, 2, 3] are gone", "ids [#] are gone"),
        ("ada@example.org is unknown", "# is unknown"),
        ("KeyError: 'city'", "KeyError: city"),
        ('Field "name" is missing in `order`', "Field 'name' is missing in 'order'"),
        ("can't find the user's key", "can't find the user's key"),
        ("找不到订单12345678abc，请重试", "找不到订单#，请重试"),
        ("无法找到「上海」", "无法找到'上海'"),
        ("No file /home/ada/a.txt or /tmp/tmpabxy/b", "No file /home/#/a.txt or /tmp/#/b"),
        (r"C:\Users\ada\a.txt is missing", r"C:\Users\#\a.txt is missing"),
        ("GET https://example.org/v2/orders/a1b2?key=x&n=2 failed", "GET https://example.org/#/orders/#?# failed"),
        ("HTTP 404 of 1200 ms", "HTTP 404 of # ms"),
        ("HTTP/1.1 503", "HTTP/# 503"),
        ("exit code 137", "exit code 137"),
        ("error code 71234", "error code #"),
        ("get_weather_v2 failed", "get_weather_v# failed"),
        ('{"error": "refused", "code": 503, "id": 77}', "{'error': 'refused', 'code': 503, 'id': #}"),
        ("status 404.5, HTTP 404-not-found, code 500_x", "status 404.#, HTTP 404-not-found, code #_x"),
        ("at 2026-01-02T03:04:05.123456+00:00 or 2026-01-02 03:04:05,123", "at #:#+# or #-#-#"),
        ("[0.1,-0.25] of -1.1102230246251565e-16 and x=1.23456e-07", "[#,-#] of -#e-# and x=#e-#"),
        ("trace 4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7", "trace #:#"),
        ("10.0.0.1:8080, v3.11.4, sha256:3fa85f64aa", "#, v#, sha#:#"),
        ("pod web-7d9f8b6c5-x2x1z of us-east-1a, +49 415-555-0132", "pod # of us-east-#a, +#"),
        ("values '', \"a\"'b' and `c`", "values '', 'a''b' and 'c'"),
        ("  two\n\n lines\t", "two lines"),
        ("100 % \\1 \\& #", "# % \\# \\& #"),
    ],
)  # fmt: skip
def test_variable_parts_are_replaced(project: Project, error: str, pattern: str) -> None:
    assert patterns(project, error) == [pattern]


FRAMES = """Traceback (most recent call last):
  File "/srv/agent/tools.py", line 31, in save
    return write(rows)
           ^^^^^^^^^^^
"""
# LangSmith has empty lines between frames, and LangGraph a note after the last line.
SPACED = '{}Traceback (most recent call last):\n\n\n  File "/srv/a.py", line 9, in run\n    save()\n\n\n{}\n\n\n{}'
NOTE = "During task with name 'tools' and id '781ef391-fd30-ada0-40e1-aac2bccec780'"


@pytest.mark.parametrize(
    ("pattern", "errors"),
    [
        ("ValueError: the disk is full", [
            "ValueError('the disk is full')", 'ValueError("the disk is full")', "ValueError('the disk is full',)",
            "ValueError: the disk is full", "ValueError: the disk is full\n", "ValueError: 'the disk is full'",
            "builtins.ValueError: the disk is full", "builtins.ValueError('the disk is full')",
            "__main__.run.<locals>.ValueError: the disk is full",
            "Error: ValueError('the disk is full')\n Please fix your mistakes.", "Error: ValueError('the disk is full')",
            "Error: ValueError: the disk is full",
            f"{FRAMES}ValueError: the disk is full", f"{FRAMES}builtins.ValueError: the disk is full\n",
            "Traceback (most recent call last):\n  ...\nValueError: the disk is full",
            f"{FRAMES}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n"
            f"{FRAMES}ValueError: the disk is full",
            f"Exit code 1\n{FRAMES}ValueError: the disk is full".replace("\n", "\r\n"),
            SPACED.format("ValueError('the disk is full')", "ValueError: the disk is full", NOTE),
            SPACED.format("", "ValueError: the disk is full", ""),
        ]),
        ("KeyError: no row #", [
            "KeyError('no row 7')", "KeyError: 'no row 7'", 'KeyError: "no row 12"', "Error: KeyError('no row 7')",
            f"{FRAMES}KeyError: 'no row 7'", SPACED.format("KeyError('no row 7')", "KeyError: 'no row 7'", NOTE),
        ]),
        ("Error: the disk is full", [
            "Error: the disk is full", "Error('the disk is full')", "Error: the disk is full\n Please fix your mistakes.",
            "Error: the disk is full\n    at f (file.js:1:2)\n    at async Promise.all (index 0)",
            "Error: the disk is full\n    at file:///srv/a.mjs:3:4 {\n  code: 'ENOSPC'\n}",
            "Error: the disk is full\n" + "    at f (/srv/file.js:1:2)\n" * 90,
        ]),
        ("IOException: gone", [
            "java.io.IOException: gone\n\tat com.example.Bar.baz(Bar.java:12)\nCaused by: java.net.SocketException: x",
            "System.IO.IOException: gone\n   at A.B(String s) in C:\\x.cs:line 12\n   at A.C()", "IOException: gone",
        ]),
        ("the disk is full", ["the disk is full", "'the disk is full'"]),
        ("done: Error: KeyError('no row #')", ["done: Error: KeyError('no row 7')"]),
        ("gaierror: [Errno -#] Name or service not known", [
            "socket.gaierror: [Errno -2] Name or service not known", "gaierror: [Errno -2] Name or service not known",
        ]),
        ("CancelledError", ["CancelledError()", "CancelledError", f"{FRAMES}asyncio.exceptions.CancelledError"]),
        ("SystemExit: #", ["SystemExit(1)", "SystemExit: 1"]),
        ("ValueError: a 'b' can't c d", ["ValueError('a \"b\" can\\'t c\\nd')", "ValueError: a 'b' can't c\nd"]),
        ("ValueError: 未知城市: 上海", ["ValueError('未知城市: 上海')", "ValueError: 未知城市: 上海"]),
        ("cannot remove 'the file'", [f"cannot remove {quoted}" for quoted in (
            "'the file'", '"the file"', "`the file`", "“the file”", "‘the file’", "「the file」")]),
        ("ValidationError: # validation error for City name Field required", [
            "ValidationError: 1 validation error for City\nname\n  Field required",
            f"{FRAMES}pydantic_core._pydantic_core.ValidationError: 1 validation error for City\nname\n  Field required\n",
        ]),
        ("RateLimitError: Error code: 429 - {'error': {'message': 'slow'}}", [
            """RateLimitError: Error code: 429 - {"error": {"message": "slow"}}""",
            """RateLimitError("Error code: 429 - {'error': {'message': 'slow'}}")""",
            FRAMES + "openai.RateLimitError: Error code: 429 - {'error': {'message': 'slow'}}",
        ]),
    ],
)  # fmt: skip
def test_forms_of_one_error_are_one_group(project: Project, pattern: str, errors: list[str]) -> None:
    assert patterns(project, *errors) == [pattern] * len(errors)


@pytest.mark.parametrize(
    ("error", "pattern"),
    [
        ("KeyError: 'user_4711'", "KeyError: user_#"),
        ("KeyError('3f2b8c0e-1111-4222-8333-944455556666')", "KeyError: #"),
        ("no 'ada@example.org' at '2026-01-02', '4bf92f3577b34da6'", "no '#' at '#-#-#', '#'"),
        ("GET 'https://example.org/search?q=rain' failed", "GET 'https://example.org/search?#' failed"),
        ("No such file: '/srv/my data/a.csv', './b' or 'C:\\c'", "No such file: '#', '#' or '#'"),
        ("KeyError: '/srv/a.csv'", "KeyError: #"),
        ("cannot parse '" + "x" * MOST_QUOTED + "' here", "cannot parse '" + "x" * MOST_QUOTED + "' here"),
        ("cannot parse '" + "x" * (MOST_QUOTED + 1) + "' here", "cannot parse '#' here"),
        ("“" + "请重试" * 30 + "”不是「城市」", "'#'不是'城市'"),
        ("cannot parse 'a\nb' of 'c'", "cannot parse '#' of 'c'"),
        ("cannot run ```python\nprint(1)\n``` here", "cannot run '''#''' here"),
        ("'a' is not here, and we can't find out why in all of the places where it was: 'b'",) * 2,
        ("ValueError('" + "no " * 30 + "data')", "ValueError: " + "no " * 30 + "data"),
        ("{'message': '" + "no " * 30 + "data'}",) * 2,
        ("x\n   at least three", "x at least three"),
    ],
)  # fmt: skip
def test_quoted_values_are_variables_and_words_stay(project: Project, error: str, pattern: str) -> None:
    assert patterns(project, error) == [pattern]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no such index", "no such table"),
        ("HTTP 404", "HTTP 500"),
        ("KeyError: 'a'", "ValueError: 'a'"),
        ("ValueError('the disk is full')", "ValueError('no address')"),
        ("KeyError: 'city'", "KeyError: 'days'"),
        ("Field 'name' is missing", "Field 'city' is missing"),
        ("ValueError: no data", "no data"),
    ],
)
def test_errors_with_other_words_differ(project: Project, one: str, other: str) -> None:
    assert len(set(patterns(project, one, other))) == 2


def test_tracebacks_of_any_length_are_their_last_line(project: Project) -> None:
    frames = '  File "/srv/run-%d/app.py", line %d, in call\n    return call(value)\n' * 40
    text = "Traceback (most recent call last):\n{}{}: '{}'\n"
    assert patterns(
        project,
        text.format(frames % tuple(range(80)), "KeyError", "city"),
        text.format(frames % tuple(range(990, 1070)), "KeyError", "city"),
        text.format(frames % tuple(range(80)), "ValueError", "city"),
    ) == ["KeyError: city", "KeyError: city", "ValueError: city"]


def test_long_errors_differ_by_their_last_line(project: Project) -> None:
    lines = "step %d has failed and is tried again\n" * 40
    one, same, other = patterns(
        project,
        lines % tuple(range(40)) + "KeyError: 'city'",
        lines % tuple(range(990, 1030)) + "KeyError: 'city'",
        lines % tuple(range(40)) + "ValueError: 'city'",
    )
    assert one == same != other
    assert one.startswith("step # has failed and is tried again step #")
    assert one.endswith(" … KeyError: 'city'")
    assert len(one) < BEGINNING + 50


def test_long_single_line_has_a_pattern(project: Project) -> None:
    assert patterns(project, "a" * 100_000, "é" * 1_000) == ["a" * BEGINNING + " … ", "é" * 1_000]


def test_group_of_an_error_is_a_digest(project: Project) -> None:
    patterns(project, "timeout after 7 s")
    assert group_of_call(primary, ToolCall.objects.get().pk) == "5ef41690f919351dceea8bde33f90224"

"""Patterns of errors: what differs from one occurrence to the next is replaced, what tells errors apart stays."""

from __future__ import annotations

import pytest

from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.models import ToolCall
from traces_app.queries.error_patterns import BEGINNING, group_of, pattern_of

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
        ("KeyError: 'city'", "KeyError: '#'"),
        ('Field "name" is missing in `order`', "Field '#' is missing in '#'"),
        ("can't find the user's key", "can't find the user's key"),
        ("找不到订单12345678abc，请重试", "找不到订单#，请重试"),
        ("无法找到「上海」", "无法找到'#'"),
        ("No file /home/ada/a.txt or /tmp/tmpabxy/b", "No file /home/#/a.txt or /tmp/#/b"),
        (r"C:\Users\ada\a.txt is missing", r"C:\Users\#\a.txt is missing"),
        ("GET https://example.org/v2/orders/a1b2?key=x&n=2 failed", "GET https://example.org/#/orders/#?# failed"),
        ("HTTP 404 of 1200 ms", "HTTP 404 of # ms"),
        ("HTTP/1.1 503", "HTTP/# 503"),
        ("exit code 137", "exit code 137"),
        ("error code 71234", "error code #"),
        ("get_weather_v2 failed", "get_weather_v# failed"),
        ('{"error": "refused", "code": 503, "id": 77}', '{"error": "refused", "code": 503, "id": #}'),
        ("status 404.5, HTTP 404-not-found, code 500_x", "status 404.#, HTTP 404-not-found, code #_x"),
        ("at 2026-01-02T03:04:05.123456+00:00 or 2026-01-02 03:04:05,123", "at #:#+# or #-#-#"),
        ("[0.1,-0.25] of -1.1102230246251565e-16 and x=1.23456e-07", "[#,-#] of -#e-# and x=#e-#"),
        ("trace 4bf92f3577b34da6a3ce929d0e0e4736:00f067aa0ba902b7", "trace #:#"),
        ("10.0.0.1:8080, v3.11.4, sha256:3fa85f64aa", "#, v#, sha#:#"),
        ("pod web-7d9f8b6c5-x2x1z of us-east-1a, +49 415-555-0132", "pod # of us-east-#a, +#"),
        ("values '', \"a\"'b' and `c`", "values '#', '#' and '#'"),
        ("  two\n\n lines\t", "two lines"),
        ("100 % \\1 \\& #", "# % \\# \\& #"),
    ],
)  # fmt: skip
def test_variable_parts_are_replaced(project: Project, error: str, pattern: str) -> None:
    assert patterns(project, error) == [pattern]


@pytest.mark.parametrize(
    ("one", "other"),
    [("no such index", "no such table"), ("HTTP 404", "HTTP 500"), ("KeyError: 'a'", "ValueError: 'a'")],
)
def test_errors_with_other_words_differ(project: Project, one: str, other: str) -> None:
    assert len(set(patterns(project, one, other))) == 2


def test_long_tracebacks_differ_by_their_last_line(project: Project) -> None:
    frames = '  File "/srv/run-%d/app.py", line %d, in call\n    return call(value)\n' * 40
    text = "Traceback (most recent call last):\n{}{}: '{}'\n"
    one, same, other = patterns(
        project,
        text.format(frames % tuple(range(80)), "KeyError", "city"),
        text.format(frames % tuple(range(990, 1070)), "KeyError", "days"),
        text.format(frames % tuple(range(80)), "ValueError", "city"),
    )
    assert one == same != other
    assert one.startswith("Traceback (most recent call last): File '#', line #, in call")
    assert one.endswith(" … KeyError: '#'")
    assert len(one) < BEGINNING + 50


def test_long_single_line_has_a_pattern(project: Project) -> None:
    assert patterns(project, "a" * 100_000, "é" * 1_000) == ["a" * BEGINNING + " … ", "é" * 1_000]


def test_group_of_an_error_is_a_digest(project: Project) -> None:
    patterns(project, "timeout after 7 s")
    assert ToolCall.objects.values_list(group_of("result__error"), flat=True).get() == (
        "5ef41690f919351dceea8bde33f90224"
    )

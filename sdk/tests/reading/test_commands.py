"""Test the commands against a server on a socket: what they ask, what they print, and their exit statuses."""

from __future__ import annotations

import json
import os
import sys
from urllib.parse import parse_qsl, urlsplit

import pytest

from sdk.tests.ports import free_port
from sdk.tests.recorder.servers import FakeTracesite, Response, error, json_response, serve
from tracesite_sdk.reading.client import check_address
from tracesite_sdk.reading.commands import COMMANDS, FILTERS, parsers

from .conftest import KEY, Run, answered

UUID = "0199a1b2-0000-7000-8000-000000000000"


@pytest.mark.parametrize(
    ("typed", "answer", "asked"),
    [
        ("failures", "failures", {}),
        (
            "failures --tool search --created-after 2026-03-01",
            "failures",
            {"tool": "search", "created_after": "2026-03-01"},
        ),
        ("show weather-1", "outline", {"run": "weather-1"}),
        ("show weather-1 --begin 40", "outline", {"run": "weather-1", "begin": "40"}),
        ("show weather-1 3", "step", {"run": "weather-1", "step": "3"}),
        ("show weather-1 3.1", "step", {"run": "weather-1", "step": "3.1"}),
        ("show weather-1 3/0 --part output", "call", {"run": "weather-1", "call": "3/0", "part": "output"}),
        (f"show --step {UUID}", "step", {"step": UUID}),
        (f"show --call {UUID} --begin 9", "call", {"call": UUID, "begin": "9"}),
        ("show weather-1 --call call_7", "call", {"run": "weather-1", "call": "call_7"}),
        ("diff a", "compare", {"run": "a"}),
        ("diff a b", "compare", {"run": "a", "other": "b"}),
        ("errors", "failures", {}),
        ("errors 4f", "error-group", {"group": "4f"}),
        (f"errors --call {UUID} --agent a", "error-group", {"call": UUID, "agent": "a"}),
        ("search connection refused --end-user ada", "search", {"q": "connection refused", "end_user": "ada"}),
        ("search -- refund -retry", "search", {"q": "refund -retry"}),
        ("tools", "tools", {}),
        ("tools get_weather --status error", "tools", {"tool": "get_weather", "status": "error"}),
        ("cost --group-by day --project own", "cost", {"group_by": "day", "project": "own"}),
        ("tools --status error get_weather", "tools", {"tool": "get_weather", "status": "error"}),
        ("show weather-1 --part output 3/0", "call", {"run": "weather-1", "call": "3/0", "part": "output"}),
        ("search connection --tool t refused", "search", {"q": "connection refused", "tool": "t"}),
        ("cost --max-tokens 4000", "cost", {"max_tokens": "4000"}),
    ],
)
def test_command_asks_for_its_answer(
    typed: str, answer: str, asked: dict[str, str], server: FakeTracesite, run: Run
) -> None:
    assert run(*typed.split()) == (0, "# Found\n", "")
    (request,) = server.requests
    path = urlsplit(request.path)
    assert path.path == f"/api/v1/read/{answer}/"
    assert dict(parse_qsl(path.query)) == {**asked, "format": "markdown", "hints": "commands"}
    assert request.headers["Authorization"] == f"Bearer {KEY}"


def test_repeated_option_is_sent_repeatedly(server: FakeTracesite, run: Run) -> None:
    run("tools", "--tag", "a", "--tag", "b & c")
    assert parse_qsl(urlsplit(server.requests[0].path).query)[:2] == [("tag", "a"), ("tag", "b & c")]


@pytest.mark.parametrize("command", FILTERS)
def test_every_option_is_a_parameter(command: str, server: FakeTracesite, run: Run) -> None:
    positional = {"search": ["terms"], "errors": ["group"]}.get(command, [])
    options = [part for option in FILTERS[command] for part in (f"--{option}", f"<{option}>")]
    assert run(command, *positional, *options)[0] == 0
    asked = dict(parse_qsl(urlsplit(server.requests[0].path).query))
    assert {option.replace("-", "_"): f"<{option}>" for option in FILTERS[command]}.items() <= asked.items()


LOGIN_PAGE: Response = (200, {"Content-Type": "text/html"}, b"<h1>Log in</h1>")
ELSEWHERE: Response = (302, {"Location": "https://login.example/\x1b[2J"}, b"")


@pytest.mark.parametrize(
    ("response", "status", "reason"),
    [
        (answered(count=0), 1, ""),
        (error(404), 1, "m"),
        (error(404, "not_found", "step"), 1, "m"),
        (error(404, "not_found"), 3, "is no Tracesite that has answers"),
        (error(400, field="created_after"), 2, "created-after: m"),
        (error(409), 2, "m"),
        (error(401), 3, "tracesite login"),
        (error(403), 3, "scope `read`"),
        (error(429, Retry_After="7"), 3, "try again in 7 s"),
        (error(503), 3, "failed with 503: try again later"),
        (json_response(404, {"detail": "Not found"}), 3, "is no Tracesite"),
        ((400, {}, b"Bad request"), 3, "is no Tracesite"),
        (LOGIN_PAGE, 3, "is no Tracesite"),
        (ELSEWHERE, 3, "redirects to https://login.example/\ufffd[2J: "),
    ],
)
def test_exit_status_says_what_happened(
    response: Response, status: int, reason: str, server: FakeTracesite, run: Run
) -> None:
    server.answer = lambda _request: response
    code, out, err = run("failures")
    assert (code, bool(out)) == (status, not reason)
    assert reason in err
    assert err.count("\n") == (1 if reason else 0)


def test_run_that_is_not_there_may_be_a_step_or_call(server: FakeTracesite, run: Run) -> None:
    server.answer = lambda _request: error(404, "message_not_found")
    assert run("show", UUID) == (1, "", "tracesite: m The ID of a step or call goes with --step or --call.\n")
    assert run("show", "--call", UUID) == (1, "", "tracesite: m\n")


def test_redirect_is_not_followed(server: FakeTracesite, run: Run) -> None:
    with serve() as other:
        server.answer = lambda _request: (307, {"Location": f"{other.url}/api/v1/read/failures/"}, b"")
        assert run("failures")[0] == 3
        assert other.requests == []


def test_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("TRACESITE_URL", url)
    monkeypatch.setenv("TRACESITE_KEY", KEY)
    code, out, err = run("cost")
    assert (code, out) == (3, "")
    assert err.startswith(f"tracesite: {url} does not respond: ")


@pytest.mark.parametrize("command", ["cost", "mcp"])
@pytest.mark.parametrize("key", ["", "ts_ä", "ts_a\nts_b"])
def test_key_that_cannot_be_sent_is_not_shown(
    key: str, command: str, server: FakeTracesite, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command == "mcp":
        pytest.importorskip("mcp")
    monkeypatch.setenv("TRACESITE_KEY", key)
    code, out, err = run(command)
    assert (code, out, "API key" in err, "ts_a" in err, err.count("\n")) == (3, "", True, False, 1)
    assert server.requests == []


@pytest.mark.parametrize("url", ["http://traces.example", "http://127.0.0.1.example", "http://10.0.0.1:8000"])
def test_key_does_not_leave_the_machine_in_the_clear(url: str, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    monkeypatch.setenv("TRACESITE_URL", url)
    monkeypatch.setenv("TRACESITE_KEY", KEY)
    code, _, err = run("failures")
    assert (code, "in the clear" in err) == (3, True)
    monkeypatch.setenv("TRACESITE_INSECURE", "1")
    check_address(url)


@pytest.mark.parametrize(
    "url", ["https://traces.example", "http://localhost:8000", "http://[::1]:8000", "http://127.0.0.1"]
)
def test_safe_address_is_taken(url: str) -> None:
    check_address(url)


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        ("show", "give a run, --step or --call"),
        ("show a b", "NUMBER is that of a step"),
        ("show a 3 --call c", "give one of NUMBER, --step and --call"),
        ("show a --part output", "--part is of a step or a call"),
        ("search", "terms"),
        ("failures --too x", "--too"),
        ("failures --api-key ts_x", "--api-key"),
        ("mcp --config emacs", "invalid choice"),
    ],
)
def test_wrong_usage_is_one_line(typed: str, reason: str, server: FakeTracesite, run: Run) -> None:
    code, out, err = run(*typed.split())
    assert (code, out, err.count("\n"), server.requests) == (2, "", 1, [])
    assert reason in err
    assert err.endswith("--help\n")


HOSTILE = "# Title\n\n- `\x1b]0;owned\x07\x1b[2J\x9b31m`\rgone\tkept \u202egnp.exe\n"


def test_text_cannot_control_the_terminal(server: FakeTracesite, run: Run) -> None:
    server.answer = lambda _request: answered(HOSTILE)
    _, out, _ = run("failures")
    assert out == "# Title\n\n- `\ufffd]0;owned\ufffd\ufffd[2J\ufffd31m`\ufffdgone\tkept \ufffdgnp.exe\n"


def test_error_cannot_control_the_terminal(server: FakeTracesite, run: Run) -> None:
    server.answer = lambda _request: json_response(400, {"error": {"message": "a\n\x1b[2Jb", "field": "\x9bq"}})
    assert run("failures")[2] == "tracesite: \ufffdq: a \ufffd[2Jb\n"


def test_json_comes_as_it_is_without_control_characters(server: FakeTracesite, run: Run) -> None:
    sent = {"found": 1, "data": {"text": HOSTILE}}
    server.answer = lambda _request: answered(json.dumps(sent, ensure_ascii=False))
    code, out, _ = run("failures", "--json")
    assert (code, json.loads(out)) == (0, sent)
    assert out[:-1].isprintable()
    assert dict(parse_qsl(urlsplit(server.requests[0].path).query))["format"] == "json"


def test_lines_are_folded_on_a_terminal_only(server: FakeTracesite, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    text = f"- {'word ' * 20}".strip() + "\n"
    server.answer = lambda _request: answered(text)
    assert run("failures")[1] == text
    monkeypatch.setenv("COLUMNS", "42")
    master, slave = os.openpty()
    with open(master, "rb", buffering=0) as shown, open(slave, "w") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert run("failures")[0] == 0
        lines = shown.read(1000).decode().split("\r\n")
    assert lines == [f"- {'word ' * 8}".strip(), f"  {'word ' * 8}".rstrip(), "  word word word word", ""]


def test_reader_that_has_seen_enough_is_no_failure(
    server: FakeTracesite, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w") as broken:
        monkeypatch.setattr(sys, "stdout", broken)
        assert run("failures")[::2] == (0, "")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_exit_statuses(command: str) -> None:
    assert "\n  3  the server does not respond, or does not admit this key\n" in parsers()[command].format_help()

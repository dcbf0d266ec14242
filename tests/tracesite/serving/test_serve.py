"""Tests of the serve command, run as people run it: a process of its own, a database of its own, real requests."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder

from access_app.db.earlier_migrations import TOO_OLD
from benchmarks.faults.site import running
from benchmarks.live.viewer import WebSocket
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port
from tests.debian_postgres import BINARIES, PGBOUNCER, pgbouncer, postgres, url
from tracesite.serving import embedded_postgres
from tracesite.serving.worker import BACKLOG

pytestmark = pytest.mark.system


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """For a first run: no DATABASE_URL, an empty data directory that root's server user reaches."""
    with tempfile.TemporaryDirectory(prefix="tracesite-test-") as name:
        Path(name).chmod(0o755)
        yield {
            key: value for key, value in os.environ.items() if key not in {"DATABASE_URL", "TRACESITE_ADMIN_PASSWORD"}
        } | {"TRACESITE_DATA_DIR": name}


@pytest.fixture
def migrated() -> Iterator[dict[str, str]]:
    """For a run on a database that has its tables, which is faster."""
    with running(serve=False) as site:
        yield {key: value for key, value in site.environment.items() if key != "TRACESITE_ADMIN_PASSWORD"}


@pytest.fixture
def port() -> int:
    return free_port()


@contextmanager
def serving(environment: dict[str, str], port: int, *options: str, stderr: int = subprocess.PIPE) -> Iterator[str]:
    """A running server; gives what it printed before serving and presses Ctrl-C at the end."""
    process = subprocess.Popen(
        [sys.executable, "manage.py", "serve", "--port", str(port), *options],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    printed = ""
    try:
        while "Ctrl-C" not in printed:
            line = process.stdout.readline()
            assert line, process.communicate()[1]
            printed += line
        yield printed
        # As a terminal does it: to every process of the group, the workers too.
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=120)
        err = err or ""  # None for a terminal
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    assert (out.strip(), err[err.index("Traceback") :] if "Traceback" in err else "", process.returncode) == (
        "Tracesite stopped.",
        "",
        0,
    )


def request(
    port: int, method: str, path: str, body: str = "", headers: dict[str, str] | None = None
) -> tuple[int, http.client.HTTPMessage, str]:
    deadline = time.monotonic() + 60
    while True:
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            client.request(method, path, body, headers or {})
        except ConnectionRefusedError:  # the port is printed just before the workers listen
            assert time.monotonic() < deadline
            time.sleep(0.05)
            continue
        answer = client.getresponse()
        text = answer.read().decode()
        client.close()
        return answer.status, answer.headers, text


def log_in(port: int, username: str, password: str) -> int:
    _, headers, page = request(port, "GET", "/admin/login/")
    token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', page)[0]
    form = {"csrfmiddlewaretoken": token, "username": username, "password": password, "next": "/admin/"}
    cookie = str(headers["Set-Cookie"]).partition(";")[0]
    content = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie}
    return request(port, "POST", "/admin/login/", urlencode(form), content)[0]


def test_serve_demo_prepares_once(environment: dict[str, str], port: int) -> None:
    with serving(environment, port, "--demo") as first:
        [(password, api_key)] = re.findall(r"password (\S+) .*shown only once.*\n.*API key +(\S+) .*only once", first)
        assert log_in(port, "admin", password) == 302
        assert log_in(port, "admin", "admin") == 200
        status, _, body = request(port, "GET", "/api/v1/sessions/", headers={"Authorization": f"Bearer {api_key}"})
        assert (status, len(json.loads(body)["results"]) > 0) == (200, True)
    assert not list(Path(environment["TRACESITE_DATA_DIR"]).glob("postgres/run/.s.PGSQL.5432"))

    with serving(environment, port, "--demo") as second:
        assert log_in(port, "admin", password) == 302
    assert "Preparing the database" in first
    assert "Preparing the database" not in second
    assert password not in second
    assert api_key not in second
    for expected in (
        f"http://127.0.0.1:{port}/admin/",
        f"http://127.0.0.1:{port}/api/v1/",
        f"http://127.0.0.1:{port}/api/v1/docs/",
        f"ws://127.0.0.1:{port}/live/ws",
        f"http://127.0.0.1:{port}/live/sse?session=ID",
        "changepassword admin",
        "create_api_key --project demo --name mine",
        f"{environment['TRACESITE_DATA_DIR']}/postgres; to start with an empty one: make reset",
    ):
        assert expected in second


def test_serve_in_an_empty_directory_prepares_its_database_once(environment: dict[str, str], port: int) -> None:
    with serving(environment, port) as first:
        [(password, api_key)] = re.findall(r"password (\S+) .*shown only once.*\n.*API key +(\S+) .*only once", first)
        assert log_in(port, "admin", password) == 302
        status, _, body = request(port, "GET", "/api/v1/sessions/", headers={"Authorization": f"Bearer {api_key}"})
        assert (status, json.loads(body)["results"]) == (200, [])
        listening = subprocess.run(["ss", "-ltnH", f"sport = :{port}"], capture_output=True, text=True, check=True)
        assert listening.stdout.split()[2] == str(BACKLOG)
    with serving(environment, port) as second:
        assert log_in(port, "admin", password) == 302
    assert [line.split()[0] for line in first.splitlines() if line] == [
        *("Preparing", "Admin", "REST", "API", "Live", "MCP", "Login", "API", "Database", "Press"),
    ]
    assert "API key   unchanged" in second


@pytest.mark.skipif(not BINARIES.exists() or PGBOUNCER is None, reason="PgBouncer or PostgreSQL 15 is not installed")
def test_server_and_commands_behind_a_pooler_of_transactions(environment: dict[str, str], port: int) -> None:
    with postgres() as home, pgbouncer(home, "transaction") as pooler:
        environment |= {"DATABASE_URL": url(home, pooler), "DATABASE_DIRECT_URL": url(home)}
        with serving(environment, port, "--demo") as printed:
            [api_key] = re.findall(r"API key +(ts_\S+)", printed)
            headers = {"X-API-Key": api_key}
            batch = {"sessions": [{"external_id": "s", "messages": [{"external_id": "m", "role": "user"}]}]}
            status, _, text = request(
                port, "POST", "/api/v1/ingest/", json.dumps(batch), headers | {"Content-Type": "application/json"}
            )
            assert status == 200, text
            viewer = WebSocket(port, headers)
            viewer.subscribe(
                json.loads(request(port, "GET", "/api/v1/sessions/", headers=headers)[2])["results"][0]["id"]
            )
            assert viewer.hear()["type"] == "session_update"
            with psycopg.connect(url(home)) as direct:
                # A LISTEN through the pooler would be forgotten, or be of others, too.
                query = "SELECT query, backend_start FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
                assert len(direct.execute(query).fetchall()) == 1
            viewer.close()
        # Commands connect past it, too.
        shown = "from django.db import connection; print(connection.get_connection_params()['port'])"
        for command, expected in ((["check_traces"], ""), (["shell", "-v0", "-c", shown], "5432\n")):
            done = subprocess.run(
                [sys.executable, "manage.py", *command], cwd=ROOT, env=environment, capture_output=True, text=True
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert done.stdout.endswith(expected)


def test_demo_on_a_terminal_logs_requests_only_if_told_to(migrated: dict[str, str], port: int) -> None:
    for level, is_logged in (({}, False), ({"TRACESITE_LOG_LEVEL": "INFO"}, True)):
        master, terminal = pty.openpty()
        chosen = {key: value for key, value in migrated.items() if key != "TRACESITE_LOG_LEVEL"} | level
        with serving(chosen, port, "--demo", stderr=terminal):
            assert request(port, "GET", "/api/v1/nowhere/")[0] == 404
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # EIO at the end
            while block := os.read(master, 65536):
                shown += block
        os.close(master)
        assert (b"/api/v1/nowhere/" in shown) == is_logged, shown


def test_the_operators_password_is_not_printed(migrated: dict[str, str], port: int) -> None:
    chosen = "chosen by the operator"
    with serving(migrated | {"TRACESITE_ADMIN_PASSWORD": chosen}, port, "--demo") as printed:
        assert "from TRACESITE_ADMIN_PASSWORD" in printed
        assert chosen not in printed
        assert "TRACESITE_DEBUG" not in printed
        assert log_in(port, "admin", chosen) == 302


def test_ctrl_c_with_a_live_viewer_ends_serve(environment: dict[str, str], port: int) -> None:
    with serving(environment | {"TRACESITE_DEBUG": "true"}, port, "--demo") as printed:
        assert "TRACESITE_DEBUG is on" in printed
        [key] = re.findall(r"API key +(\S+)", printed)
        sessions = request(port, "GET", "/api/v1/sessions/", headers={"X-API-Key": key})[2]
        viewer = WebSocket(port, {"X-API-Key": key})
        viewer.subscribe(json.loads(sessions)["results"][0]["id"])
        assert viewer.hear()["type"] == "session_update"
    viewer.close()


SLOW_TO_FORK = """
import os, runpy, time

def new() -> None:
    print("A worker is here.", flush=True)
    time.sleep(1)

os.register_at_fork(after_in_child=new)
runpy.run_path("manage.py", run_name="__main__")
"""
"""`manage.py`, whose forks do nothing in their first second."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_workers_that_start_end_serve(number: signal.Signals, migrated: dict[str, str], port: int) -> None:
    options = ["--port", str(port), "--workers", "2", "--grace", "900"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_TO_FORK, "serve", *options],
        cwd=ROOT,
        env=migrated,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None, "it is a pipe"
    try:
        assert "A worker is here.\n" in iter(process.stdout.readline, "")
        # Ctrl-C goes to every process of the group; a supervisor tells the parent.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        # Otherwise the parent waits for its workers throughout the grace.
        out, _none = process.communicate(timeout=300)
        assert (out.splitlines()[-1], process.returncode) == ("Tracesite stopped.", 0)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_serve_on_a_taken_port_names_the_remedy() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with pytest.raises(CommandError) as refused:
            call_command("serve", port=taken)
    assert str(refused.value) == (
        f"Port {taken} on 127.0.0.1 is in use, perhaps by another Tracesite. Stop that program, or use another "
        f"port: PORT={taken + 1} make run, or manage.py serve --port {taken + 1}."
    )


def test_an_address_that_is_not_this_machines_is_refused(port: int) -> None:
    with pytest.raises(CommandError, match=f"Cannot listen on 192.0.2.1, port {port}: "):
        call_command("serve", host="192.0.2.1", port=port)


def test_serve_on_an_invalid_port_is_refused() -> None:
    with pytest.raises(CommandError, match="--port 70000 is invalid. Use a port from 1 to 65535."):
        call_command("serve", port=70000)


@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize(
    ("option", "value", "right"),
    [
        ("workers", 0, "a number from 1 to 1000"),
        ("workers", -1, "a number from 1 to 1000"),
        ("threads", 0, "a number from 1 to 1000"),
        ("threads", 1001, "a number from 1 to 1000"),
        ("grace", -1.0, "a number of seconds of at least 0"),
        ("grace", float("nan"), "a number of seconds of at least 0"),
    ],
)
def test_serve_with_an_invalid_number_is_refused(
    option: str, value: float, right: str, checks: bool, port: int
) -> None:
    with pytest.raises(CommandError) as refused:
        call_command("serve", port=port, check=checks, **{option: value})
    assert str(refused.value) == f"--{option} {value:g} is invalid. Use {right}."


@pytest.mark.django_db
def test_database_of_others_that_is_not_migrated_is_refused(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "home", lambda: None)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'access_app'")
    with pytest.raises(CommandError, match="Run: manage.py migrate"):
        call_command("serve", port=port)


@pytest.mark.django_db
@pytest.mark.parametrize("demo", [False, True])
def test_serve_with_database_that_is_too_old_is_refused(port: int, demo: bool) -> None:
    MigrationRecorder(connection).record_applied("traces_app", "0002_toast_lz4")
    with pytest.raises(CommandError) as refused:
        call_command("serve", port=port, demo=demo)
    assert str(refused.value) == str(TOO_OLD)

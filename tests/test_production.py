"""The files of docs/production are what systemd, nginx and PostgreSQL take, and agree with each other and with the code."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from configparser import ConfigParser
from contextlib import closing, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from threading import Thread

import pytest
from django.conf import settings
from django.db import connection

from benchmarks.faults import findings
from benchmarks.faults.site import ROOT
from benchmarks.live.agents import make_agent
from benchmarks.restart.load import Connect, Load, to_this_machine
from benchmarks.restart.restarts import KINDS, Supervised, supervised
from sdk.tests.ports import free_port
from tests.faults.test_restart import wait_for
from tracesite.serving import worker

pytestmark = pytest.mark.system

FILES = ROOT / "docs" / "production"
UNITS = sorted(path.name for path in FILES.iterdir() if path.suffix in (".service", ".socket", ".timer"))
NGINX = (FILES / "nginx.conf").read_text()

needs_nginx = pytest.mark.skipif(
    not shutil.which("nginx") or not shutil.which("openssl"),
    reason="nginx and openssl are not installed (Debian: apt install nginx openssl)",
)


LOCATIONS = re.findall(r"^ *location (?:([=~]) )?(\S+) {$", NGINX, re.M)
"""The modifier and the path or pattern of each location of nginx."""


def unit(name: str) -> ConfigParser:
    parser = ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(FILES / name)
    return parser


# --- Together -----------------------------------------------------------------------------------------------


def test_every_file_is_in_the_page() -> None:
    page = (ROOT / "docs" / "production.md").read_text()
    assert [path.name for path in FILES.iterdir() if f"production/{path.name}" not in page] == []


def test_nginx_and_tracesite_agree_on_the_largest_body() -> None:
    environment = dict(re.findall(r'^(\w+)="(.*)"$', (FILES / "tracesite.env").read_text(), re.M))
    (megabytes,) = re.findall(r"client_max_body_size (\d+)m;", NGINX)
    assert int(megabytes) * 1024 * 1024 == int(environment["TRACESITE_MAX_BODY_BYTES"])


def test_nginx_closes_idle_connections_before_tracesite() -> None:
    (seconds,) = re.findall(r"keepalive_timeout (\d+)s;", NGINX)
    assert int(seconds) < worker.KEEP_ALIVE_SECONDS


def test_nginx_asks_where_systemd_listens() -> None:
    asked = re.findall(r"server (\S+:\d+);", NGINX)
    assert asked == [unit(name)["Socket"]["ListenStream"] for name in ("tracesite.socket", "tracesite-live.socket")]


def test_systemd_waits_longer_than_requests_may_take() -> None:
    for name in ("tracesite.service", "tracesite-live.service"):
        service = unit(name)["Service"]
        (grace,) = re.findall(r"--grace (\d+)", service["ExecStart"])
        assert int(service["TimeoutStopSec"]) > int(grace) + worker.KEEP_ALIVE_SECONDS


def test_nginx_waits_for_two_signs_of_life() -> None:
    (location,) = re.findall(r"location ~ \^/\(live\|.*? {(.*?)}", NGINX, re.S)
    assert [int(seconds) for seconds in re.findall(r"timeout (\d+)s", location)] == [60, 60]
    assert settings.TRACESITE_LIVE_HEARTBEAT_SECONDS * 2 < 60


def test_no_location_of_nginx_sets_headers() -> None:
    """A location that sets one of them takes none of its server."""
    samples = [NGINX, *(page.read_text() for page in (ROOT / "docs").glob("*.md"))]
    bodies = [body for text in samples for body in re.findall(r"^ *location [^\n]*{$(.*?)^ *}$", text, re.M | re.S)]
    assert len(bodies) > len(LOCATIONS)
    assert [body for body in bodies if "proxy_set_header" in body] == []


# --- systemd ------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
def test_systemd_understands_the_units(tmp_path: Path) -> None:
    for name in UNITS:
        # Programs and users that the page makes are not on this machine.
        text = (FILES / name).read_text().replace("/opt/tracesite/current/.venv/bin/python", sys.executable)
        text = text.replace("=tracesite\n", "=daemon\n")
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    complaints = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "tracesite" in line]
    assert (complaints, done.returncode) == ([], 0), done.stderr


# --- nginx --------------------------------------------------------------------------------------------------


def site_for(port: int, upstream: int, directory: Path, live: int = 8001) -> str:
    """The site of docs/production on another port, with a certificate of our own."""
    text = NGINX.replace("127.0.0.1:8000", f"127.0.0.1:{upstream}").replace(
        "listen 80;", f"listen unix:{directory}/plain.sock;"
    )
    text = text.replace("127.0.0.1:8001", f"127.0.0.1:{live}")
    text = re.sub(r"listen \[::\].*\n", "", text).replace("listen 443", f"listen 127.0.0.1:{port}")
    text = re.sub(r"/etc/letsencrypt/live/[^/]+/", f"{directory}/", text)
    paths = "\n".join(
        f"    {name}_temp_path {directory}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return (
        f"daemon off;\nworker_processes 1;\npid {directory}/pid;\nerror_log {directory}/error.log;\n"
        f"events {{ worker_connections 512; }}\nhttp {{\n    access_log off;\n{paths}\n{text}}}\n"
    )


@contextmanager
def nginx(upstream: int, directory: Path, live: int = 8001) -> Iterator[int]:
    """nginx in front of a port; gives the port where it speaks TLS."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=traces.example.org"]
        + ["-keyout", directory / "privkey.pem", "-out", directory / "fullchain.pem"],
        check=True,
        capture_output=True,
    )
    directory.chmod(0o755)
    port = free_port()
    conf = directory / "nginx.conf"
    conf.write_text(site_for(port, upstream, directory, live))
    process = subprocess.Popen(["nginx", "-c", conf, "-e", directory / "error.log"], stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield port
    finally:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def tls(port: int) -> http.client.HTTPSConnection:
    import ssl

    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=context)


@needs_nginx
def test_nginx_understands_the_site(tmp_path: Path) -> None:
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x"]
        + ["-keyout", tmp_path / "privkey.pem", "-out", tmp_path / "fullchain.pem"],
        check=True,
        capture_output=True,
    )
    conf = tmp_path / "nginx.conf"
    conf.write_text(site_for(8443, 8000, tmp_path))
    done = subprocess.run(["nginx", "-t", "-q", "-c", conf], capture_output=True, text=True, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


@pytest.fixture(scope="module")
def site() -> Iterator[Supervised]:
    with supervised() as server:
        yield server


@contextmanager
def one_more_server(site: Supervised, *options: str, **variables: str) -> Iterator[Supervised]:
    """Run a server with one worker and these variables on the same database."""
    others = replace(site.site, environment=site.site.environment | variables)
    with socket.create_server(("127.0.0.1", free_port()), backlog=64) as listener:
        server = Supervised(others, listener, workers=1, options=options)
        try:
            server.start()
            server.wait_for_workers()
            yield server
            server.stop()
        finally:
            server.kill()


BODY = json.dumps({"sessions": [{"external_id": "s", "messages": []}]}).encode()


def begun(connect: Connect, port: int, key: str) -> http.client.HTTPConnection:
    """A request of which the server has the first bytes."""
    sender = connect(port)
    sender.putrequest("POST", "/api/v1/ingest/", skip_host=True)
    for name, value in headers(key).items():
        sender.putheader(name, value)
    sender.putheader("Content-Length", str(len(BODY)))
    sender.endheaders()
    sender.send(BODY[:10])
    return sender


def headers(key: str) -> dict[str, str]:
    return {"X-API-Key": key, "Content-Type": "application/json", "Host": "127.0.0.1"}


def send(connect: Connect, port: int, key: str) -> None:
    with closing(connect(port)) as quick:
        quick.request("POST", "/api/v1/ingest/", BODY, headers(key))
        assert quick.getresponse().status == 200


def with_timeouts(seconds: int) -> str:
    """The file, with this limit of the time for heads and bodies."""
    text, changed = re.subn(r"client_(header|body)_timeout \d+s;", rf"client_\1_timeout {seconds}s;", NGINX)
    assert changed == 2
    return text


@needs_nginx
def test_slow_senders_delay_no_request(site: Supervised, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without nginx. One worker, because the kernel may give all of them to one of several."""
    key = site.site.key
    monkeypatch.setattr(sys.modules[__name__], "NGINX", with_timeouts(600))
    # More patience with them than others have here for an answer.
    with one_more_server(site, TRACESITE_CLIENT_SECONDS="600") as server, nginx(server.port, tmp_path) as tls_port:
        for connect, port in ((to_this_machine, server.port), (tls, tls_port)):
            slow = [begun(connect, port, key) for _ in range(50)]
            time.sleep(1)  # until all of them have got as far as they get
            for _ in range(9):
                send(connect, port, key)
            for sender in slow:
                sender.send(BODY[10:])
            assert [sender.getresponse().status for sender in slow] == [200] * 50
            for sender in slow:
                sender.close()


@needs_nginx
def test_nginx_ends_slow_heads_and_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits of 1 s instead of those of the file. Nothing listens behind it: no such request gets there."""
    monkeypatch.setattr(sys.modules[__name__], "NGINX", with_timeouts(1))
    head = b"POST /api/v1/ingest/ HTTP/1.1\r\nHost: traces.example.org\r\n"
    with nginx(free_port(), tmp_path) as port:
        for sent in (head, head + b"Content-Length: 100\r\n\r\n{"):
            sender = tls(port)
            with closing(sender):
                sender.connect()
                sender.sock.sendall(sent)
                begin = time.monotonic()
                answer = b"".join(iter(lambda: sender.sock.recv(4096), b""))  # noqa: B023 - called at once
                assert time.monotonic() - begin < 20
                assert b" 200 " not in answer


@needs_nginx
@pytest.mark.parametrize("kind", KINDS)
def test_restart_behind_nginx_fails_no_request(site: Supervised, kind: str, tmp_path: Path) -> None:
    with nginx(site.port, tmp_path) as port:
        load = Load(port, site.site.key, f"nginx-{kind}/", connect=tls, pause=1.5)
        load.start()
        try:
            wait_for(lambda: len(load.ledger.entries) > 25)
            site.restart(kind)  # type: ignore[arg-type]
            after = len(load.ledger.entries) + 25
            wait_for(lambda: len(load.ledger.entries) > after)
        finally:
            load.stop()
    log = (tmp_path / "error.log").read_text()
    assert (load.ledger.faults, set(load.ledger.answers)) == ([], {"200"}), log
    with site.site.connect() as connection_:
        assert findings.problems(connection_, load.ledger, f"nginx-{kind}/") == []


@needs_nginx
def test_nginx_routes_live_requests_to_their_process(site: Supervised, tmp_path: Path) -> None:
    agent = make_agent(site.site, "behind nginx")
    with (
        one_more_server(site, "--live", "only") as live,
        nginx(site.port, tmp_path, live.port) as port,
        site.site.connect() as database,
    ):
        for path, status in (("/healthz", 200), (f"/live/sse?session={agent.session}", 401), ("/live/", 404)):
            with closing(tls(port)) as client:
                client.request("GET", path, headers={"Host": "127.0.0.1"})
                assert (path, client.getresponse().status) == (path, status)
        with closing(tls(port)) as client:
            client.request("GET", f"/live/sse?session={agent.session}", headers=headers(site.site.key))
            answer = client.getresponse()
            for number in (1, 2, 3):
                agent.does(database, {"number": number})
                while answer.readline() != f"id: {number}\n".encode():
                    pass
        with closing(tls(port)) as client:
            path = f"/weknora/api/v1/sessions/continue-stream/{agent.session}?message_id={agent.message}"
            client.request("GET", path, headers=headers(site.site.key))
            assert client.getresponse().readline() == b"event:message\n"


def paths_of(modifier: str, location: str) -> list[str]:
    """Return a path for each alternative of a location."""
    if modifier != "~":
        return [location]
    parts = [part.split("|") for part in re.split(r"[()]", location.removeprefix("^"))]
    paths = ["".join(chosen) for chosen in product(*parts)]
    assert all(re.search(location, path) for path in paths), location  # otherwise write them down here
    return paths


@contextmanager
def recording_upstream() -> Iterator[tuple[int, list[dict[str, str]]]]:
    """A server that keeps the headers of its requests, of which no name may occur twice."""
    seen: list[dict[str, str]] = []

    class Recording(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert len(self.headers) == len({name.lower() for name in self.headers}), self.headers
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Recording) as upstream:
        thread = Thread(target=upstream.serve_forever)
        thread.start()
        try:
            yield upstream.server_port, seen
        finally:
            upstream.shutdown()
            thread.join()


@needs_nginx
def test_no_location_of_nginx_passes_forged_headers(tmp_path: Path) -> None:
    paths = [path for location in LOCATIONS for path in paths_of(*location)]
    assert {"/", "/live/", "/metrics"} < set(paths)
    forged = {
        "X-Forwarded-For": "10.1.2.3",
        "X-Forwarded-Proto": "http",
        "X-Real-IP": "10.1.2.3",
        "Forwarded": "for=10.1.2.3;proto=http",
        "X_Forwarded_For": "10.1.2.3",
        "X_Forwarded_Proto": "http",
        "Connection": "upgrade, x-forwarded-for, x-forwarded-proto",
        "Upgrade": "websocket",
    }
    expected = {"host": "traces.example.org", "x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https"}
    with (
        recording_upstream() as (port, seen),
        recording_upstream() as (live, seen_live),
        nginx(port, tmp_path, live) as tls_port,
    ):
        for path in paths:
            for sent in ({}, forged):
                with closing(tls(tls_port)) as client:
                    client.request("GET", path, headers={"Host": "traces.example.org", **sent})
                    assert (path, client.getresponse().status) == (path, 204)
                (got,) = seen + seen_live
                upgrade = {"upgrade": "websocket", "connection": "upgrade"} if sent and path == "/live/" else {}
                assert (path, got) == (path, {"accept-encoding": "identity", **expected, **upgrade})
                seen.clear()
                seen_live.clear()


# --- PostgreSQL ---------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_postgresql_knows_the_settings() -> None:
    names = re.findall(r"^(\w+) = ", (FILES / "postgresql.conf").read_text(), re.M)
    with connection.cursor() as cursor:
        cursor.execute("SELECT name FROM pg_settings WHERE name = ANY(%s)", [names])
        assert sorted(name for (name,) in cursor.fetchall()) == sorted(names)

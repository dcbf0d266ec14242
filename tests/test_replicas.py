"""A server with a primary and a replica that follows it by streaming replication, as docs/scaling.md has it.

It takes a minute, so it is done at length only.
"""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import psycopg
import pytest

from sdk.tests.length import at_length
from sdk.tests.ports import free_port
from tests import waiting
from tests.debian_postgres import BINARIES, ROOT, control, postgres, replica_of, url, url_of_both
from tests.tracesite.serving.test_serve import request, serving

pytestmark = [
    pytest.mark.system,
    at_length,
    pytest.mark.skipif(not BINARIES.exists(), reason="PostgreSQL 15 is not installed"),
]

METRICS_TOKEN = "token-of-the-tests"
PASSWORD = "a long password of a test"
MOST_PAGES = 400
OF_ROWS = {"sessions": "id", "messages": "id", "tool-calls": "id", "tools": "name", "chains": "chain_id"}
"""Lists of the API, and what the routes of their rows take."""
OF_ONE_PATTERN = 2
"""Pages that are visited of each pattern of addresses, in which numbers, ids and dates are the same."""
OF_PRIMARY = {f"messages_app_{name}" for name in ("savedview", "listcolumns")} | {"traces_app_modelprice"}
"""Tables of people and of the whole site, which are read where the rights are."""
WAIT_SECONDS = 60
MAX_LAG_SECONDS = 10


@dataclass
class Site:
    """A server with sample traces."""

    port: int
    key: str
    primary: Path
    replica: Path
    cookies: dict[str, str]

    def api(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, str]:
        given = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json", **(headers or {})}
        return request(self.port, method, path, json.dumps(body) if body is not None else "", given)

    def send(self, session: str, text: str, tool: str = "search") -> str:
        """Store a message with a call of a tool; return the token with which it can be read."""
        call = {"id": f"{session}-{text}", "name": tool, "args": {}, "status": "success"}
        step = {"iteration": 0, "tool_calls": [call]}
        message = {"external_id": f"{session} {text}", "role": "assistant", "content": text, "agent_steps": [step]}
        body = {"sessions": [{"external_id": session, "messages": [message]}]}
        status, headers, answer = self.api("POST", "/api/v1/ingest/", body)
        assert status in (200, 201), answer
        return str(headers["Tracesite-Written"])

    def messages(self, session: str, token: str = "") -> list[Any]:
        """Return the messages of a session, read with a token."""
        headers = {"Tracesite-Written": token} if token else {}
        query = urlencode({"session": session, "limit": 100, "order": "asc"})
        status, _, answer = self.api("GET", f"/api/v1/messages/?{query}", headers=headers)
        if status == 404:
            return []
        assert status == 200, answer
        return list(json.loads(answer)["results"])

    def texts(self, session: str, token: str = "") -> list[str]:
        return [message["content"] for message in self.messages(session, token)]

    def page(self, path: str, form: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Request a page as the administrator; return its status, where it redirects to, and its text."""
        headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}
        body = ""
        if form is not None:
            body = urlencode({"csrfmiddlewaretoken": self.cookies["csrftoken"], **form})
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        status, answered, text = request(self.port, "GET" if form is None else "POST", path, body, headers)
        for cookie in answered.get_all("Set-Cookie", []):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return status, answered["Location"] or "", text

    def state(self) -> dict[str, Any]:
        """Return what /readyz says of the replica."""
        status, _, answer = request(self.port, "GET", "/readyz")
        assert status == 200, answer
        found: dict[str, Any] = json.loads(answer)["replica"]
        return found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(tmp_path_factory.mktemp("site")) as running:
        yield running


@contextmanager
def served(data: Path) -> Iterator[Site]:
    """Run PostgreSQL with its replica, and a server on them, until the end of the block."""
    with postgres() as primary, replica_of(primary) as replica, serving_from(data, primary, replica) as site:
        yield site


@contextmanager
def serving_from(data: Path, primary: Path, replica: Path, database: str = "") -> Iterator[Site]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRACESITE_")} | {
        "DATABASE_URL": database or url(primary),
        "DATABASE_REPLICA_URL": url(replica),
        "TRACESITE_REPLICA_MAX_LAG_SECONDS": str(MAX_LAG_SECONDS),
        "TRACESITE_BACKGROUND_JOBS": "false",  # they read on the primary
        "TRACESITE_DATA_DIR": str(data),
        "TRACESITE_ADMIN_PASSWORD": PASSWORD,
        "TRACESITE_METRICS_TOKEN": METRICS_TOKEN,
        "TRACESITE_LOG_LEVEL": "WARNING",  # nobody reads what the server logs, and a full pipe would stop it
    }
    port = free_port()
    with serving(environment, port, "--demo") as printed:
        [key] = re.findall(r"API key +(\S+) ", printed)
        site = Site(port=port, key=key, primary=primary, replica=replica, cookies={})
        site.page("/admin/login/")
        status, _, _ = site.page("/admin/login/", {"username": "admin", "password": PASSWORD, "next": "/admin/"})
        assert status == 302
        eventually(lambda: site.state()["used"])
        yield site


eventually = partial(waiting.eventually, seconds=WAIT_SECONDS, pause=0.1)


def scans(home: Path) -> dict[str, int]:
    """Return how often the tables of traces were read, once the server has counted all that came before."""
    time.sleep(11)  # a connection that does nothing passes on what it has counted after 10 s
    with psycopg.connect(url(home)) as connection:
        rows = connection.execute(
            "SELECT relname, coalesce(seq_scan, 0) + coalesce(idx_scan, 0) FROM pg_stat_user_tables "
            "WHERE relname LIKE 'messages\\_app%' OR relname LIKE 'traces\\_app%'"
        )
        return {str(name): int(count) for name, count in rows}


def pages_of(site: Site) -> Iterator[str]:
    """Yield the addresses of pages that can be reached from the first one, a few of each pattern."""
    seen: Counter[str] = Counter()
    waiting = deque(["/admin/"])
    while waiting:
        path = waiting.popleft()
        shape = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|\d+", "N", urlsplit(path).path) + str(
            sorted(name for name, _value in parse_qsl(urlsplit(path).query))
        )
        seen[shape] += 1
        if seen[shape] > OF_ONE_PATTERN or sum(seen.values()) > MOST_PAGES:
            continue
        yield path
        status, target, text = site.page(path)
        assert status in (200, 302), (path, status)
        links = [target, *map(html.unescape, re.findall(r'href="([^"#]+)', text))]
        waiting += [
            urljoin(path, link) for link in links if link and urljoin(path, link).startswith(("/admin/", "/live/"))
        ]


def api_reads(site: Site) -> Iterator[str]:
    """Yield the operations of the API that read: lists, and what their first rows name."""
    schema = json.loads(site.api("GET", "/api/v1/schema/?format=json")[2])
    ids = {
        name: json.loads(site.api("GET", f"/api/v1/{name}/")[2])["results"][0][column]
        for name, column in OF_ROWS.items()
    }
    for path, operations in schema["paths"].items():
        if "get" not in operations:
            continue
        key = next((ids[name] for name in ids if f"/{name}/{{" in path), None)
        yield re.sub(r"\{[^}]*\}", str(key), path, count=1) if key else path


def test_reads_go_to_the_replica_and_rights_come_from_the_primary(site: Site) -> None:
    before = scans(site.primary), scans(site.replica)
    pages = list(pages_of(site))
    for path in api_reads(site):
        status, _, answer = site.api("GET", path)
        assert status < 500, (path, answer)
        pages.append(path)
    after = scans(site.primary), scans(site.replica)
    assert len(pages) > 120
    read = [{name for name, count in new.items() if count > old[name]} for old, new in zip(before, after, strict=True)]
    assert read[0] <= OF_PRIMARY
    assert {"messages_app_session", "traces_app_tool"} <= read[1]
    assert not read[1] & OF_PRIMARY


def test_writers_read_what_they_wrote_while_the_replica_is_behind(site: Site) -> None:
    first = site.send("lag", "first")
    assert site.texts("lag", first) == ["first"]
    eventually(lambda: site.texts("lag") == ["first"])
    token = site.send("person", "deleted by a person")
    [deleted] = site.messages("person", token)
    eventually(lambda: deleted["content"] in site.page("/admin/messages_app/message/")[2])
    with psycopg.connect(url(site.replica), autocommit=True) as replica:
        replica.execute("SELECT pg_wal_replay_pause()")
        second = site.send("lag", "second")
        assert site.texts("lag", second) == ["first", "second"]
        assert site.texts("lag", "no token") == ["first", "second"]
        # On a busy machine a check may come too late, and the primary is read until the next one.
        eventually(lambda: site.texts("lag", first) == ["first"])
        eventually(lambda: site.texts("lag") == ["first"])
        # A person: by a cookie.
        others = dict(site.cookies)
        status, _, text = site.page(f"/admin/messages_app/message/{deleted['id']}/delete/", {"post": "yes"})
        assert status == 302, text
        assert deleted["content"] not in site.page("/admin/messages_app/message/")[2]
        site.cookies = others
        eventually(lambda: deleted["content"] in site.page("/admin/messages_app/message/")[2])
        # Behind for longer than it may be: nobody reads it.
        eventually(lambda: site.state()["reason"] == "lagging")
        assert site.texts("lag") == ["first", "second"]
        assert "it is too far behind" in site.page("/admin/")[2]
        _, _, metrics = request(site.port, "GET", "/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"})
        assert 'tracesite_replica_used{reason="lagging"} 0.0' in metrics
        replica.execute("SELECT pg_wal_replay_resume()")
    eventually(lambda: site.state()["used"])
    assert site.texts("lag", second) == ["first", "second"]
    assert "answers reads, at most" in site.page("/admin/")[2]


def test_programs_of_an_older_postgresql_than_that_of_psycopg_make_a_backup(site: Site, tmp_path: Path) -> None:
    environment = os.environ | {"DATABASE_URL": url(site.primary)}
    command = [sys.executable, "manage.py", "backup", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "restored as a check" in done.stdout


def test_no_read_fails_while_the_replica_is_stopped(site: Site) -> None:
    site.send("stop", "first")
    eventually(lambda: site.texts("stop") == ["first"])
    control(site.replica, "-m", "immediate", "stop")
    assert site.texts("stop") == ["first"]
    assert site.page("/admin/messages_app/message/")[0] == 200
    eventually(lambda: site.state()["reason"] == "away")
    assert "it does not respond" in site.page("/admin/")[2]
    assert site.texts("stop") == ["first"]
    control(site.replica, "start")
    eventually(lambda: site.state()["used"])
    # One that is there and says nothing.
    server = int((site.replica / "data" / "postmaster.pid").read_text().split()[0])
    processes = [server, *children(server)]
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        eventually(lambda: site.state()["reason"] == "away")
        assert site.texts("stop") == ["first"]
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)
    eventually(lambda: site.state()["used"])


def test_a_promoted_replica_is_not_read(tmp_path: Path) -> None:
    with served(tmp_path) as site:
        site.send("promotion", "first")
        eventually(lambda: site.texts("promotion") == ["first"])
        control(site.replica, "promote")
        eventually(lambda: site.state()["reason"] == "not_a_replica")
        site.send("promotion", "second")
        assert site.texts("promotion") == ["first", "second"]
        assert "it is no replica any more" in site.page("/admin/")[2]


def test_a_failover_that_loses_writes_leaves_no_ids_of_them(tmp_path: Path) -> None:
    with (
        postgres() as primary,
        replica_of(primary) as replica,
        serving_from(tmp_path, primary, replica, url_of_both(primary, replica)) as site,
    ):
        site.send("kept", "first")
        control(replica, "-m", "fast", "stop")
        for number in range(12):
            site.send("lost", str(number), tool="lost_tool")
        control(primary, "-m", "immediate", "stop")
        control(replica, "start")
        control(replica, "promote")
        site.send("lost", "again", tool="lost_tool")
        assert site.texts("lost") == ["again"]
        assert site.texts("kept") == ["first"]
        _, _, answer = site.api("GET", "/api/v1/tool-calls/?tool=lost_tool")
        assert [call["name"] for call in json.loads(answer)["results"]] == ["lost_tool"]


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]

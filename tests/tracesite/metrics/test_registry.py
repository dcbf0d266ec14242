"""Test /metrics: access, counters, gauges, and the sums over the workers of one server."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from access_app import environment
from access_app.db import primary
from access_app.db.replica import ReplicaState
from access_app.db.states import DatabaseState
from access_app.models import Project
from benchmarks.faults.site import Site, running
from messages_app.change_log import Reader
from messages_app.models import Change
from messages_app.sql.periods import Period
from sdk.tests.paths import ROOT
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.ingest.metrics import TABLES
from traces_app.maintenance.seals.sealing import seal_changed
from traces_app.maintenance.search_index import index_changed
from tracesite.metrics.database import project_database_metrics, replica_metrics
from tracesite.metrics.registry import render

TOKEN = "a-token-of-the-tests"
DOCUMENT = (ROOT / "docs" / "production.md").read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def families(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families(text).values()
        for sample in family.samples
    }


def value(found: Samples, name: str, **labels: str) -> float:
    return found.get((name, frozenset(labels.items())), 0)


@pytest.fixture
def scraped() -> Iterator[Client]:
    """A client with the token of a site whose setting is set."""
    with override_settings(TRACESITE_METRICS_TOKEN=TOKEN):
        yield Client(headers={"Authorization": f"Bearer {TOKEN}"})


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="owner-of-all")


def scrape(client: Client) -> str:
    response = client.get("/metrics")
    assert response.status_code == 200
    return response.content.decode()


# --- Access ---------------------------------------------------------------------------------------------------


@override_settings(TRACESITE_METRICS_TOKEN="")
def test_metrics_without_the_setting_returns_404_naming_it() -> None:
    response = Client(headers={"Authorization": "Bearer "}).get("/metrics", headers={"X-Request-ID": "r1"})
    assert (response.status_code, response.json()) == (
        404,
        {
            "error": {
                "code": "metrics_off",
                "message": "Metrics are off. Set TRACESITE_METRICS_TOKEN to turn them on.",
                "field": None,
                "request_id": "r1",
            }
        },
    )


@pytest.mark.parametrize("given", [None, "", TOKEN, "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}é"])
def test_metrics_without_token_returns_401(given: str | None) -> None:
    with override_settings(TRACESITE_METRICS_TOKEN=TOKEN):
        response = Client().get("/metrics", headers={} if given is None else {"Authorization": given})
    error = response.json()["error"]
    assert (response.status_code, error["code"], error["field"]) == (401, "not_authenticated", "Authorization")
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert TOKEN not in response.content.decode()


@pytest.mark.django_db
def test_metrics_with_token_returns_200_and_no_store(scraped: Client) -> None:
    response = scraped.get("/metrics", headers={"Authorization": f"bearer {TOKEN}"})
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-store"


def test_metrics_post_returns_405(scraped: Client) -> None:
    response = Client(enforce_csrf_checks=True).post("/metrics")
    assert (response.status_code, response.headers["Allow"]) == (405, "GET, HEAD")
    assert response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("bad", ["short", "with a space in it", "with-a-line-end\n-in-it", "with-an-é-in-the-middle"])
def test_invalid_metrics_token_is_refused_without_quoting_it(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    monkeypatch.setenv("X", bad)
    with pytest.raises(ImproperlyConfigured, match="X is not a valid token: use at least 16 ") as caught:
        environment.token("X", at_least=16)
    assert bad not in str(caught.value)


# --- Requests -------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_request_is_counted_by_route_with_time_and_size(scraped: Client) -> None:
    before = samples(scrape(scraped))
    Client().get("/healthz")
    Client().get("/healthz?q=private")
    Client().post("/healthz", b"x" * 2000, content_type="application/json")
    after = samples(scrape(scraped))

    def added(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert added("tracesite_http_requests_total", method="GET", route="healthz", status="200") == 2
    assert added("tracesite_http_requests_total", method="POST", route="healthz", status="405") == 1
    assert added("tracesite_http_request_duration_seconds_count", route="healthz") == 3
    assert 0 < added("tracesite_http_request_duration_seconds_sum", route="healthz") < 10
    assert added("tracesite_http_request_body_bytes_sum", route="healthz") == 2000
    assert added("tracesite_http_request_body_bytes_bucket", route="healthz", le="1024.0") == 0
    assert added("tracesite_http_request_body_bytes_bucket", route="healthz", le="4096.0") == 1


@pytest.mark.django_db
def test_labels_hold_no_text_of_senders(scraped: Client, project: Project) -> None:
    store(project, question(content="the secret of the message"), answer(), external_id="the-name-of-a-session")
    before = samples(scrape(scraped))
    hostile = Client()
    for number in range(50):
        hostile.generic(f"BREW{number}", f"/hostile-path-{number}/")
        hostile.generic("GET", f"/hostile-path-{number}/", CONTENT_LENGTH="x" * number)
        hostile.get(f"/api/v1/sessions/hostile-id-{number}/")
    text = scrape(scraped)
    after = samples(text)

    assert value(after, "tracesite_http_requests_total", method="OTHER", route="none", status="404") == 50 + value(
        before, "tracesite_http_requests_total", method="OTHER", route="none", status="404"
    )
    new = [labels for name, labels in after.keys() - before.keys() if name.startswith("tracesite_http")]
    assert {label for labels in new for label in labels if label[0] != "le"} <= {
        ("method", "GET"),
        ("method", "OTHER"),
        ("route", "metrics"),
        ("route", "none"),
        ("route", "session"),
        ("status", "200"),
        ("status", "401"),
        ("status", "404"),
    }
    for private in ("hostile", "BREW", "secret", "the-name-of-a-session", "get_weather", project.slug, TOKEN):
        assert not re.search(private, re.sub(r"^#.*$", "", text, flags=re.M), re.I)


# --- The database ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_database_gauges_show_connections_months_and_age(scraped: Client, project: Project) -> None:
    store(project, question(), answer())
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    found = samples(scrape(scraped))

    assert value(found, "tracesite_database_up") == 1
    assert value(found, "tracesite_database_max_connections") >= 20
    assert sum(count for (name, _labels), count in found.items() if name == "tracesite_database_connections") > 0
    assert value(found, "tracesite_database_size_bytes") > 1_000_000
    for table in TABLES:
        assert value(found, "tracesite_partitions", table=table) >= 1
        assert value(found, "tracesite_partitions_end_seconds", table=table) >= seconds_until_end(Period.of(NOON))
    assert value(found, "tracesite_table_rows", table="messages_app_message") == 2
    assert value(found, "tracesite_table_rows", table="traces_app_toolcall") == 4
    assert value(found, "tracesite_newest_message_age_seconds") == pytest.approx(
        time.time() - NOON.timestamp(), abs=600
    )


@pytest.mark.django_db(transaction=True)
def test_lags_are_those_of_the_oldest_message(scraped: Client, project: Project) -> None:
    store(project, question())
    Change.objects.update(at=timezone.now() - timedelta(minutes=7))
    store(project, answer())
    found = samples(scrape(scraped))
    for reader in Reader:
        assert value(found, "tracesite_change_log_lag_seconds", reader=reader) == pytest.approx(420, abs=30)
    index_changed(primary, patience=timedelta(0))
    seal_changed(primary, patience=timedelta(0))
    found = samples(scrape(scraped))
    lags = {reader: value(found, "tracesite_change_log_lag_seconds", reader=reader) for reader in Reader}
    assert lags[Reader.SEARCH] == lags[Reader.SEALS] == 0 < lags[Reader.VECTORS]


def seconds_until_end(period: Period) -> float:
    """Return the time until a period ends, less a minute for the test itself."""
    return period.ends_at.timestamp() - time.time() - 60


@pytest.mark.django_db(transaction=True)
def test_slow_gauge_is_left_out_alone(scraped: Client, project: Project) -> None:
    store(project, question())
    locking = connection.copy()
    try:
        with locking.cursor() as cursor:
            cursor.execute("BEGIN; LOCK TABLE messages_app_message IN ACCESS EXCLUSIVE MODE")
            text = scrape(scraped)
    finally:
        locking.close()
    assert value(samples(text), "tracesite_database_up") == 1
    assert "tracesite_partitions" in families(text)
    assert "tracesite_newest_message_age_seconds" not in families(text)


def test_scrape_leaves_no_setting_on_what_a_pooler_lends(scraped: Client, project: Project) -> None:
    # Run through PgBouncer by tests/test_pgbouncer.py: it lends the connection of the scrape to the next that asks.
    scrape(scraped)
    next_client = connection.copy()
    try:
        with next_client.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",)
    finally:
        next_client.close()


@pytest.fixture
def silent_port() -> Iterator[str]:
    """The port of a listener that never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield str(listener.getsockname()[1])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("hangs", [False, True])
def test_metrics_without_database_keep_process_counters(scraped: Client, silent_port: str, hangs: bool) -> None:
    there = dict(connection.settings_dict)
    connection.settings_dict |= {"HOST": "127.0.0.1", "PORT": silent_port if hangs else "1"}
    try:
        text = scrape(scraped)
    finally:
        connection.settings_dict |= there
    assert value(samples(text), "tracesite_database_up") == 0
    assert "tracesite_ingest_messages" in families(text)
    assert not [name for name in families(text) if name.startswith(("tracesite_database_c", "tracesite_partitions"))]


# --- Documentation and names ------------------------------------------------------------------------------------


A_REPLICA = ReplicaState(reason="", at=0.0, lag_seconds=0.0)
AWAY = DatabaseState(alias="tenant", reason="away")


@pytest.mark.django_db(transaction=True)
def test_docs_list_every_metric_with_type_and_labels(scraped: Client, project: Project) -> None:
    store(project, question())
    call_command("work", "--job", "close_stale_runs", stdout=StringIO())
    Client().post("/healthz", b"x", content_type="text/plain")
    exposed = {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
        )
        for family in [
            *families(scrape(scraped)).values(),
            *replica_metrics(A_REPLICA),
            *project_database_metrics([AWAY]),
        ]
    }
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\|", DOCUMENT, re.M)
    assert {name: (kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows} == exposed


@pytest.mark.django_db
def test_metric_names_follow_prometheus_conventions(scraped: Client) -> None:
    """The rules of `promtool check metrics`, and our prefix."""
    found = families(scrape(scraped)).values()
    for family in found:
        assert re.fullmatch(r"tracesite_[a-z]+(_[a-z]+)*", family.name)
        assert family.documentation.endswith(".")
        # The parser strips _total from the names of counters; no other metric may end in it.
        assert family.type in ("counter", "gauge", "histogram")
        assert not family.name.endswith(("_count", "_sum", "_bucket", "_total", "_info", f"_{family.type}"))
        assert not re.search("milli|micro|minutes|hours|kilo|_ms|percent", family.name)
        assert all(re.fullmatch("[a-z]+", label) for sample in family.samples for label in sample.labels)
    histograms = [family.name for family in found if family.type == "histogram"]
    assert all(name.endswith(("_seconds", "_bytes")) for name in histograms)


def test_metric_names_in_doc_examples_exist() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", DOCUMENT, re.M))
    used = {re.sub(r"_bucket$", "", name) for name in re.findall(r"tracesite_\w+", DOCUMENT.split("## Alerts")[1])}
    assert used - listed == set()


# --- Workers ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRACESITE_METRICS_TOKEN", TOKEN)
        with running(workers=2) as site:
            yield site


def scrape_site(site: Site) -> Samples:
    status, body = site.server.get("/metrics", {"Authorization": f"Bearer {TOKEN}"})
    assert status == 200, body
    return samples(body.decode())


def send(site: Site, name: str) -> None:
    """Send one message with one call over a new connection, which any worker may accept."""
    step = {"tool_calls": [{"name": "look", "result": "seen"}]}
    body = json.dumps({"sessions": [{"external_id": name, "messages": [{"role": "assistant", "agent_steps": [step]}]}]})
    client = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=60)
    headers = {"Authorization": f"Bearer {site.key}", "Content-Type": "application/json"}
    client.request("POST", "/api/v1/ingest/", body, headers)
    assert client.getresponse().status == 200
    client.close()


def stored_calls(found: Samples) -> float:
    return value(found, "tracesite_ingest_rows_total", table="traces_app_toolcall")


def files_of(site: Site) -> list[Path]:
    return sorted((site.data_dir / "metrics").glob("*/*.db"))


def send_until_all_have_counted(site: Site, prefix: str) -> int:
    """Send until each of the two workers has stored a message, according to its file; return the number of messages."""
    # Four at a time, because sequential senders may all reach the same worker.
    with ThreadPoolExecutor(4) as pool:
        for sent in range(4, 400, 4):
            list(pool.map(lambda number: send(site, f"{prefix}-{number}"), range(sent - 4, sent)))
            counting = [file.stem for file in files_of(site) if b"traces_app_toolcall" in file.read_bytes()]
            # The counts of earlier workers are in a separate file.
            if sent >= 20 and all(
                any(name.endswith(f"_{pid}") for name in counting) for pid in site.server.worker_pids()
            ):
                return sent
    raise AssertionError("one of the workers gets nothing")


@pytest.mark.system
def test_metrics_add_up_over_workers_and_keep_dead_ones(site: Site) -> None:
    before = scrape_site(site)
    sent = send_until_all_have_counted(site, "first")
    calls = stored_calls(before) + sent
    assert [stored_calls(scrape_site(site)) for _ in range(10)] == [calls] * 10
    after = scrape_site(site)
    for name, labels, added in (
        ("tracesite_http_requests_total", {"method": "POST", "route": "ingest", "status": "200"}, sent),
        ("tracesite_http_requests_total", {"method": "GET", "route": "metrics", "status": "200"}, 11),
        ("tracesite_ingest_batch_seconds_count", {"source": "live"}, sent),
    ):
        assert value(after, name, **labels) - value(before, name, **labels) == added
    assert value(after, "tracesite_database_connections", client="tracesite", state="idle") >= 2

    files = len(files_of(site))
    killed = site.server.worker_pids()[0]
    os.kill(killed, signal.SIGKILL)
    deadline = time.monotonic() + 150
    while killed in (pids := site.server.worker_pids()) or len(pids) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    for number in range(20):
        send(site, f"second-{number}")
    assert [stored_calls(scrape_site(site)) for _ in range(10)] == [calls + 20] * 10
    # The new worker continues in the files of a dead one: this one, or another from an earlier restart.
    assert len(files_of(site)) == files


@pytest.mark.system
def test_counters_survive_a_reload(site: Site) -> None:
    calls = stored_calls(scrape_site(site))
    send(site, "before-the-restart")
    old = site.server.worker_pids()
    assert site.server.process is not None
    os.kill(site.server.process.pid, signal.SIGHUP)
    deadline = time.monotonic() + 150  # a busy machine takes long to start two workers
    while set(old) & set(site.server.worker_pids()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    send(site, "after-the-restart")
    assert stored_calls(scrape_site(site)) == calls + 2
    assert len({file.parent for file in files_of(site)}) == 1


@pytest.mark.system
def test_new_server_resets_counters_and_removes_old_files(site: Site) -> None:
    send(site, "before")
    before = {file.parent for file in files_of(site)}
    assert site.server.process is not None
    for pid in [site.server.process.pid, *site.server.worker_pids()]:
        os.kill(pid, signal.SIGKILL)
    site.server.stop()
    site.server.start()
    assert stored_calls(scrape_site(site)) == 0
    assert before & {file.parent for file in files_of(site)} == set()
    assert [directory for directory in before if directory.exists()] == []


CHILD = """
import os, resource, sys
from pathlib import Path
import django
django.setup()
from django.test import RequestFactory
from tracesite.metrics import registry

registry.share_between_workers(Path(sys.argv[1]))
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
request = RequestFactory().get("/")
request.resolver_match = None
for _ in range(3):
    registry.count_request(request, 404, 0.1)
sys.stdout.buffer.write(registry.render([]))
"""


@pytest.mark.system
def test_worker_on_a_full_disk_counts_for_itself(tmp_path: Path) -> None:
    limited = CHILD.replace("if os.fork", "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\nif os.fork")
    assert run_child(limited, tmp_path) == 3
    assert [file.name for file in tmp_path.glob("*/*")] == ["held"]


@pytest.mark.system
def test_unlocked_directories_are_removed_and_locked_ones_kept(tmp_path: Path) -> None:
    assert run_child(CHILD, tmp_path) == 3
    (first,) = (path for path in tmp_path.iterdir() if path.is_dir())
    holding = subprocess.Popen(["flock", "--shared", str(first / "held"), "sleep", "60"], start_new_session=True)
    try:
        while subprocess.run(["flock", "--nonblock", str(first / "held"), "true"]).returncode == 0:
            time.sleep(0.01)
        assert run_child(CHILD, tmp_path) == 3
        assert first.exists()
    finally:
        os.killpg(holding.pid, signal.SIGKILL)
        holding.wait()
    assert run_child(CHILD, tmp_path) == 3
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 1
    assert not first.exists()


def run_child(code: str, directory: Path) -> float:
    done = subprocess.run(
        [sys.executable, "-c", code, str(directory)], cwd=ROOT, env=dict(os.environ), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found = samples(done.stdout.decode())
    return value(found, "tracesite_http_requests_total", method="GET", route="none", status="404")


def test_metrics_of_other_packages_are_not_exposed() -> None:
    """Our registry is separate, so metrics that a package adds to the default one are not exposed by accident."""
    assert [name for name in families(render([]).decode()) if not name.startswith("tracesite_")] == []

"""The test database, and fixtures for all tests.

Without DATABASE_URL the tests run on a separate embedded PostgreSQL below .tracesite/test, which does not wait for the disk.
It must run before Django reads its settings, so this file names the settings module instead of pyproject.toml. Each run
has its own databases, so that several runs can share the server.
"""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from itertools import chain, product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import django
import psycopg
import pytest
import pytest_django
from django.apps import apps
from django.conf import settings
from django.core.signals import request_finished, request_started
from django.db import connection
from django.db.models.signals import post_migrate
from django.utils import translation
from playwright.sync_api import Browser, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from sdk.tests.length import load_profile
from sdk.tests.paths import ROOT
from tests.chromium import CHROMIUM
from tracesite.processes import is_running
from tracesite.serving import embedded_postgres

DATABASE_NAME = "test_tracesite_run"
TEMPLATE_NAME = "tracesite_template_"
SHARED = {"site", "server", "wheel"}
"""Fixtures of a module or session that take ten seconds and more."""


def provide_database() -> None:
    os.environ["TRACESITE_DATA_DIR"] = str(ROOT / ".tracesite" / "test")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    if not os.environ.get("DATABASE_URL"):
        embedded_postgres.ensure(durable=False)
        drop_databases_of_killed_runs()
        os.environ["TEMPLATE_OF_TRACESITE"] = template()
    # Workers of pytest-xdist inherit this from the process that starts them, and DATABASE_URL too.
    os.environ.setdefault("TEST_RUN_OF_TRACESITE", str(os.getpid()))
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns where it is missing
    test = settings.DATABASES["default"].setdefault("TEST", {})
    test["NAME"] = f"{DATABASE_NAME}{os.environ['TEST_RUN_OF_TRACESITE']}"
    test["TEMPLATE"] = os.environ.get("TEMPLATE_OF_TRACESITE")


def drop_databases_of_killed_runs() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [DATABASE_NAME]
        ).fetchall()
        for (name,) in names:
            run = int(name.removeprefix(DATABASE_NAME).partition("_")[0])
            if not is_running(run):
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def template() -> str:
    """Return the name of a database with all tables, of which those of the tests are copies: one for each state of the migrations."""
    paths = [ROOT / "requirements.lock", *sorted(ROOT.glob("*_app/migrations/*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:16]
    name, begun = f"{TEMPLATE_NAME}{digest}", f"{TEMPLATE_NAME}begun"
    url = os.environ["DATABASE_URL"]
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(hashtext(%s))", [TEMPLATE_NAME])  # two runs at a time make it once
        found = connection.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [TEMPLATE_NAME])
        names = {name for (name,) in found}
        for other in names - {name}:
            connection.execute(f'DROP DATABASE "{other}" WITH (FORCE)')
        if name not in names:
            connection.execute(f'CREATE DATABASE "{begun}"')
            environment = {**os.environ, "DATABASE_URL": urlsplit(url)._replace(path=f"/{begun}").geturl()}
            subprocess.run(
                [sys.executable, ROOT / "manage.py", "migrate", "--verbosity=0"], env=environment, check=True
            )
            connection.execute(f'ALTER DATABASE "{begun}" RENAME TO "{name}"')
    return name


provide_database()
# Both as the documentation of Django and of WhiteNoise has it for tests: a hash that may be computed at once, and no search
# for all static files whenever a Client is made.
settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
settings.WHITENOISE_AUTOREFRESH = True
load_profile()

# Conftests and test modules import models during collection.
django.setup()

from django.contrib.auth.management import create_permissions  # noqa: E402
from django.contrib.auth.models import Permission, User  # noqa: E402
from django.test import Client  # noqa: E402
from django.utils import timezone  # noqa: E402

from access_app import masking  # noqa: E402
from access_app.bounded_cache import BoundedCache  # noqa: E402
from access_app.db import Database, primary  # noqa: E402
from access_app.models import Project  # noqa: E402  # models need Django set up
from messages_app import change_log  # noqa: E402
from messages_app.sql.periods import Period  # noqa: E402
from tests.encryption import MASTER_KEY, master_key  # noqa: E402
from tests.traces_app.conftest import NOON  # noqa: E402
from traces_app.admin import compare_page, home, snapshot_pages, tool_pages  # noqa: E402
from traces_app.ingest import prices  # noqa: E402
from traces_app.ingest.partitions import TABLES, ensure_periods  # noqa: E402
from traces_app.models import ModelPrice  # noqa: E402
from traces_app.queries.search import found, in_run  # noqa: E402
from traces_app.spans import deliveries  # noqa: E402
from traces_app.spans.projection import make_messages  # noqa: E402
from traces_app.views import comparison  # noqa: E402
from tracesite.metrics import database as gauges  # noqa: E402

# What pages, searches and metrics leave out after some time would otherwise depend on what else the machine does.
home.SECTION_MS = tool_pages.SECTION_MS = gauges.STATEMENT_MS = 60_000
compare_page.WORDS_SECONDS = snapshot_pages.WORDS_SECONDS = comparison.WORDS_SECONDS = 60.0
found.SECONDS = in_run.SECONDS = 60.0


@pytest.fixture(autouse=True)
def language_of_the_settings() -> Iterator[None]:
    """Reset the language, because Django keeps that of the last request active in the thread for the next test."""
    yield
    translation.deactivate()


@pytest.fixture(autouse=True)
def nothing_remembered_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the prices and masking rules that an earlier test has set.

    Then keep them for the whole test: read again after some seconds, they would change the number of its queries.
    """
    monkeypatch.setattr(prices, "_PRICES", BoundedCache(1))
    monkeypatch.setattr(masking, "_CACHE", BoundedCache(10_000))


@pytest.fixture(autouse=True)
def every_change_is_read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let readers of the log read all that they see, unless a test is about their order.

    The test itself and others that share the server have transactions open, for which readers would wait.
    """
    if request.node.get_closest_marker("order_of_changes") is None:
        monkeypatch.setattr(change_log, "oldest_open", lambda _db: 2**63 - 1)


@pytest.fixture(autouse=True)
def messages_follow_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the messages of traces when their spans are stored, unless a test is about what happens between the two."""
    if request.node.get_closest_marker("due_traces") is None:
        for name in ("_store", "_store_file"):
            monkeypatch.setattr(deliveries, name, _with_messages(getattr(deliveries, name)))


def _with_messages(store: Callable[..., tuple[dict[str, str], set[str]]]) -> Callable[..., Any]:
    def stored(db: Database, project_id: int, *args: Any, is_made_by_caller: bool = False) -> Any:
        options = {} if store.__name__ == "_store_file" else {"is_made_by_caller": is_made_by_caller}
        refused, changed = store(db, project_id, *args, **options)
        if changed and not is_made_by_caller:
            make_messages(db, project_id, changed)
        return refused, changed

    return stored


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> None:
    """Remove the shipped prices and permissions, because tests that flush the tables remove them for all later ones.

    Make no permissions after each flush: the few tests that need them ask for the fixture. Make the months that most
    tests write to: each would make them anew, because its transaction is rolled back. Autovacuum leaves them alone, because
    plans for tables that it saw empty read them from end to end, which tests of what is read would notice.
    """
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    if settings.TRACESITE_DIRECT_DATABASE:
        settings.TRACESITE_DIRECT_DATABASE["NAME"] = connection.settings_dict["NAME"]
    with django_db_blocker.unblock():
        ModelPrice.objects.all().delete()
        Permission.objects.all().delete()
        months = {Period.of(NOON), Period.of(timezone.now())}
        ensure_periods(primary, months)
        with connection.cursor() as cursor:
            for month, table in product(months, TABLES):
                cursor.execute(f"ALTER TABLE {month.leaf(table.name)} SET (autovacuum_enabled = false)")


@pytest.fixture
def permissions(db: None) -> None:
    """Make the permissions of each model, which the tests' database lacks."""
    for app in apps.get_app_configs():
        create_permissions(app, verbosity=0)


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def staff(db: None) -> Client:
    """A superuser of the admin, logged in."""
    client = Client()
    client.force_login(User.objects.create_superuser("ada"))
    return client


@pytest.fixture
def stranger(db: None) -> Project:
    return Project.objects.create(slug="stranger")


@pytest.fixture
def keeper() -> Iterator[None]:
    """A master key, as a server has it that keeps encrypted projects."""
    with master_key(MASTER_KEY):
        yield


@pytest.fixture
def live_server(live_server: LiveServer, transactional_db: None) -> Iterator[LiveServer]:
    """Django's server. At the end wait for requests that a browser has left, because they would write after the tables are flushed."""
    threads: set[int] = set()

    def begins(**_kwargs: object) -> None:
        threads.add(threading.get_ident())

    def ends(**_kwargs: object) -> None:
        threads.discard(threading.get_ident())

    request_started.connect(begins)
    request_finished.connect(ends)
    try:
        yield live_server
        ends()  # the test's own client need not have read an answer to its end
        deadline = time.monotonic() + 60
        while threads:
            assert time.monotonic() < deadline, "A request to the live server does not end."
            time.sleep(0.02)
    finally:
        request_started.disconnect(begins)
        request_finished.disconnect(ends)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, started once for the tests of a module, because to start it takes seconds.

    Playwright's event loop runs in this thread as long, where Django refuses the ORM unless it is told otherwise; between two
    steps of the browser nothing runs in that loop.
    """
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        expect.set_options(timeout=30_000)  # as long as Playwright waits for anything else
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


# --- Tests of processes -------------------------------------------------------------------------------------

STARTS_A_PROCESS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}
running: pytest.Item | None = None


def refuse_processes(event: str, _arguments: tuple[object, ...]) -> None:
    """Keep tests without the mark `system` quick: an audit hook, because any library may start a process."""
    if event in STARTS_A_PROCESS and running is not None and running.get_closest_marker("system") is None:
        raise RuntimeError("A test that starts a process has the mark `system`.")


sys.addaudithook(refuse_processes)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    global running
    running = item
    try:
        return (yield)
    finally:
        running = None


# --- Order --------------------------------------------------------------------------------------------------


def fixtures_of(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order the tests for pytest-xdist.

    Tests that take minutes and those that share a server of their own or a wheel come first, because at the end one process
    would have to wait for them. A folder of them is for one process, so that it makes these once, and each process gets some:
    with `--maxschedchunk` the first so many tests are for the first process, as many for the second, and so on.
    """
    folders: defaultdict[Path, list[pytest.Item]] = defaultdict(list)
    others: list[pytest.Item] = []
    for item in items:
        if not SHARED.isdisjoint(fixtures_of(item)):
            folders[item.path.parent].append(item)
        elif takes_minutes(item):
            folders[item.path].append(item)
        else:
            others.append(item)
    chunk = config.getoption("maxschedchunk", None) or 0
    first: list[list[pytest.Item]] = [[] for _ in range(int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))]
    for folder in sorted(folders.values(), key=expected_length, reverse=True):
        min(first, key=expected_length).extend(sorted(folder, key=takes_minutes, reverse=True))
    for tests in first:
        fill = max(0, chunk - len(tests))
        tests += others[:fill]
        del others[:fill]
    items[:] = [*chain.from_iterable(first), *others]


def takes_minutes(item: pytest.Item) -> bool:
    return item.get_closest_marker("minutes") is not None


def expected_length(tests: list[pytest.Item]) -> int:
    """Return how long some tests take, in seconds or so: those that start servers some, the few long ones more."""
    return sum(30 if takes_minutes(test) else 5 for test in tests)


def pytest_collection_finish() -> None:
    """Leave out what was collected whenever Python looks for garbage: most of a million objects that stay."""
    gc.collect()
    gc.freeze()

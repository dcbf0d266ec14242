"""The database of the tests, and the list of requirements they have shown.

Without DATABASE_URL the tests run on an embedded PostgreSQL of their own, below .tracesite/test, that does not wait for
the disk. It must be there before Django reads its settings, so pyproject.toml names no settings module: this file does.
Each run has databases of its own, so that several runs can share the server.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterator
from pathlib import Path

import django
import psycopg
import pytest
from django.conf import settings
from django.utils import translation

from tracesite.processes import is_running
from tracesite.serving import embedded_postgres

DATABASE_NAME = "test_tracesite_run"


def provide_database() -> None:
    os.environ["TRACESITE_DATA_DIR"] = str(Path(__file__).resolve().parent.parent / ".tracesite" / "test")
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    if not os.environ.get("DATABASE_URL"):
        embedded_postgres.ensure(durable=False)
        drop_databases_of_killed_runs()
    # Workers of pytest-xdist inherit this from the process that starts them, and DATABASE_URL too.
    os.environ.setdefault("TRACESITE_TEST_RUN", str(os.getpid()))
    Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns where it is missing
    settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = f"{DATABASE_NAME}{os.environ['TRACESITE_TEST_RUN']}"


def drop_databases_of_killed_runs() -> None:
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [DATABASE_NAME]
        ).fetchall()
        for (name,) in names:
            run = int(name.removeprefix(DATABASE_NAME).partition("_")[0])
            if not is_running(run):
                connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


provide_database()
# Conftests and test modules import models while they are collected.
django.setup()

from access_app.models import Project  # noqa: E402  # models need Django set up


@pytest.fixture(autouse=True)
def language_of_the_settings() -> Iterator[None]:
    """Django leaves the language of a test client's last request active in the thread, so for the next test too."""
    yield
    translation.deactivate()


@pytest.fixture
def project(db: None) -> Project:
    return Project.objects.create(slug="owner")


@pytest.fixture
def stranger(db: None) -> Project:
    return Project.objects.create(slug="stranger")


# --- Requirements -------------------------------------------------------------------------------------------

passed: set[str] = set()
failed: set[str] = set()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts the ids where pytest-xdist carries them from its workers to the process that reports; and what takes minutes to the
    front, in whatever order the rest comes: at the end one process would wait for it."""
    items.sort(key=lambda item: item.get_closest_marker("minutes") is None)
    for item in items:
        for mark in item.iter_markers("requirement"):
            item.user_properties.extend(("requirement", requirement) for requirement in mark.args)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    ids = {str(value) for name, value in report.user_properties if name == "requirement"}
    if report.failed:
        failed.update(ids)
    elif report.when == "call" and report.passed:
        passed.update(ids)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Lists the requirements that at least one test has shown and none has refuted."""
    shown = sorted(passed - failed)
    if shown:
        terminalreporter.section(f"{len(shown)} requirements shown")
        terminalreporter.write_line(textwrap.fill(" ".join(shown), width=104))

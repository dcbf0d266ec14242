"""Test the system checks that report production problems in advance, with an id and a remedy."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.checks import CheckMessage
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.test import override_settings
from django.utils.module_loading import import_string

from sdk.tests.paths import ROOT
from tracesite import system_checks
from tracesite.serving import embedded_postgres

GOOD = system_checks.Server(
    version=17,
    encoding="UTF8",
    settings={
        "autovacuum": "on",
        "fsync": "on",
        "full_page_writes": "on",
        "jit": "off",
        "max_connections": "100",
        "max_locks_per_transaction": "256",
        "statement_timeout": "0",
        "superuser_reserved_connections": "3",
        "synchronous_commit": "on",
    },
    is_read_only=False,
    makes_tables=True,
    owns_tables=True,
    locks=14 * 36,
    clock_ahead=timedelta(0),
)


def ids(found: list[CheckMessage]) -> list[str]:
    assert all(message.hint for message in found)
    return [str(message.id).removeprefix("tracesite.") for message in found]


def with_setting(name: str, value: str) -> system_checks.Server:
    return replace(GOOD, settings=GOOD.settings | {name: value})


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    with override_settings(TRACESITE_DATA_DIR=tmp_path):
        yield tmp_path


def test_check_ids_in_code_match_docs() -> None:
    modules = (ROOT / "tracesite" / name for name in ("system_checks.py", "project_checks.py"))
    in_code = [found for path in modules for found in re.findall(r'"(tracesite\.[EW]\d{3})"', path.read_text())]
    listed = re.findall(r"^\| `(tracesite\.[EW]\d{3})` \|", (ROOT / "docs" / "production.md").read_text(), re.M)
    assert len(in_code) == len(set(in_code))
    assert sorted(in_code) == sorted(listed) == listed


# --- Settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("https://traces.example.org", []),
        ("http://127.0.0.1:8000", []),
        ("traces.example.org", ["E001"]),
        ("https://traces.example.org/", ["E001"]),
        ("ftp://traces.example.org", ["E001"]),
    ],
)
def test_trusted_origin_needs_scheme_and_host_only(data_dir: Path, origin: str, expected: list[str]) -> None:
    with override_settings(CSRF_TRUSTED_ORIGINS=[origin]):
        assert ids(system_checks.check_settings(None)) == expected


def test_unwritable_data_directory_is_reported() -> None:
    with override_settings(TRACESITE_DATA_DIR=Path("/proc/self")):  # not even root can create files there
        (found,) = system_checks.check_settings(None)
    assert (ids([found]), "/proc/self" in found.msg) == (["E002"], True)


def test_secret_key_readable_by_others_is_reported(data_dir: Path) -> None:
    key = data_dir / "secret_key"
    key.touch(mode=0o600)
    assert ids(system_checks.check_settings(None)) == []
    key.chmod(0o644)
    assert ids(system_checks.check_settings(None)) == ["W001"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TRACESITE_ALOWED_HOSTS", "TRACESITE_ALOWED_HOSTS is unknown. Did you mean TRACESITE_ALLOWED_HOSTS?"),
        ("TRACESITE_WORKERS", "TRACESITE_WORKERS is unknown."),
        ("TRACESITE_SPOOL", None),
        ("TRACESITE_METRICS_TOKEN", None),
    ],
)
def test_unknown_variable_is_reported_with_nearest_name(
    name: str, text: str | None, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "a")
    found = [message for message in system_checks.check_settings(None) if message.id == "tracesite.W014"]
    assert [message.msg for message in found] == ([text] if text else [])


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({"TRACESITE_HTTPS": True, "ALLOWED_HOSTS": ["traces.example.org"]}, []),
        ({"DEBUG": True}, ["W002"]),
        ({"TRACESITE_HTTPS": True, "ALLOWED_HOSTS": ["*"]}, ["W003"]),
        ({"ALLOWED_HOSTS": ["localhost", "10.0.0.8"]}, ["W004"]),
        ({"TRACESITE_HTTPS": True}, ["W005"]),
    ],
)
def test_deployment_checks_report_local_settings(
    changed: dict[str, Any], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_postgres, "_home", None)
    local = {"DEBUG": False, "TRACESITE_HTTPS": False, "ALLOWED_HOSTS": ["127.0.0.1", "localhost", "[::1]"]}
    with override_settings(**local | changed):
        assert ids(system_checks.check_deployment(None)) == expected


@pytest.mark.system
def test_check_deploy_is_clean_with_the_settings_of_production(tmp_path: Path) -> None:
    """Of the warnings that are silenced, only those remain that the settings explain, and docs/security.md names them."""
    given = dict(re.findall(r'^(\w+)="(.*)"$', (ROOT / "docs" / "production" / "tracesite.env").read_text(), re.M))
    others = {name: value for name, value in os.environ.items() if not name.startswith("TRACESITE_")}
    program = (
        "import json, django; django.setup()\n"
        "from django.core.checks import run_checks\n"
        "from django.core.management import call_command\n"
        "call_command('check', deploy=True, fail_level='WARNING')\n"
        "print(json.dumps([one.id for one in run_checks(include_deployment_checks=True)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=others | given | {"TRACESITE_DATA_DIR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "tracesite.settings"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    silenced = json.loads(done.stdout.splitlines()[-1])
    explained = re.findall(r"^\| `(\S+)` \|", (ROOT / "docs" / "security.md").read_text(), re.M)
    assert sorted(silenced) == sorted(name for name in explained if name.startswith("security."))


def test_middleware_of_pages_is_that_of_django() -> None:
    """Django's checks look for it by name, and are silenced."""
    kinds = [import_string(name) for name in settings.MIDDLEWARE]
    for wanted in (CsrfViewMiddleware, XFrameOptionsMiddleware):
        assert any(isinstance(kind, type) and issubclass(kind, wanted) for kind in kinds), wanted


def test_embedded_database_in_production_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_postgres, "_home", Path("/somewhere"))
    with override_settings(DEBUG=False, TRACESITE_HTTPS=False, ALLOWED_HOSTS=["127.0.0.1"]):
        assert ids(system_checks.check_deployment(None)) == ["W006"]


# --- The database -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (GOOD, []),
        (replace(GOOD, version=14), ["E004"]),
        (replace(GOOD, encoding="LATIN1"), ["E005"]),
        (replace(GOOD, is_read_only=True), ["E006"]),
        (replace(GOOD, makes_tables=False), ["E007"]),
        (replace(GOOD, owns_tables=False), ["E007"]),
        (with_setting("fsync", "off"), ["W007"]),
        (with_setting("synchronous_commit", "off"), ["W007"]),
        (with_setting("synchronous_commit", "local"), []),
        (with_setting("max_locks_per_transaction", "64"), ["W008"]),
        # 36 months in days
        (replace(GOOD, locks=14 * 1096), ["W008"]),
        (replace(with_setting("max_locks_per_transaction", "2048"), locks=14 * 1096), []),
        (replace(GOOD, clock_ahead=timedelta(seconds=-9)), ["W009"]),
        (with_setting("statement_timeout", "5000"), ["W010"]),
        (with_setting("statement_timeout", "120000"), []),
        (with_setting("jit", "on"), ["W011"]),
        (with_setting("autovacuum", "off"), ["W012"]),
    ],
)
def test_unsafe_database_settings_are_reported(server: system_checks.Server, expected: list[str]) -> None:
    assert ids(system_checks.judge(server)) == expected


@contextmanager
def session_settings(**values: str) -> Iterator[None]:
    with connection.cursor() as cursor:
        for name, value in values.items():
            cursor.execute(f"SET LOCAL {name} = {value}")
    yield


@pytest.mark.django_db
def test_checks_read_no_columns_that_migrate_is_about_to_make() -> None:
    # `migrate` runs them first, with the models of the new version and the tables of the old one.
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE access_app_project DROP COLUMN encryption")
    call_command("check", databases=["default"], stdout=StringIO())


@pytest.mark.django_db
def test_describe_returns_server_settings() -> None:
    described = system_checks.describe(connection)
    assert described.locks >= 14 * 2, "two months and 13 indexes of messages"
    assert (described.encoding, described.is_read_only, described.makes_tables, described.owns_tables) == (
        "UTF8",
        False,
        True,
        True,
    )
    assert described.version >= 15
    assert sorted(described.settings) == sorted(GOOD.settings)
    assert abs(described.clock_ahead) < timedelta(seconds=2)
    with session_settings(synchronous_commit="off", statement_timeout="7000", jit="on"):
        assert {"W010", "W011"} <= set(ids(system_checks.check_database(None, ["default"])))
        assert system_checks.describe(connection).settings["synchronous_commit"] == "off"


@pytest.mark.django_db
def test_role_without_create_permission_is_reported() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
        if cursor.fetchone()[0]:
            pytest.skip("a superuser may do everything")
        cursor.execute("REVOKE CREATE ON SCHEMA public FROM public, pg_database_owner, current_user")
    assert "E007" in ids(system_checks.check_database(None, ["default"]))


@pytest.mark.django_db
def test_unreachable_database_is_reported_without_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    away = connections["default"].copy("away")
    away.settings_dict |= {"HOST": "127.0.0.1", "PORT": "1", "PASSWORD": "hunter2"}
    monkeypatch.setattr(system_checks, "connections", {"default": away})
    (found,) = system_checks.check_database(None, ["default"])
    assert (ids([found]), "hunter2" in str(found)) == (["E003"], False)


@pytest.mark.parametrize(("workers", "threads", "expected"), [(2, 8, []), (5, 8, []), (6, 8, ["W013"])])
def test_check_connections_covers_threads_during_restart(workers: int, threads: int, expected: list[str]) -> None:
    assert ids(system_checks.check_connections(GOOD, workers, threads)) == expected


# --- The command --------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_serve_check_reports_ready_or_problems() -> None:
    out, err = StringIO(), StringIO()
    call_command("serve", check=True, stdout=out, stderr=err)
    assert out.getvalue() == "Ready to serve.\n"
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'access_app'")
    with pytest.raises(CommandError, match="Not ready to serve"):
        call_command("serve", check=True, stdout=out, stderr=err)
    assert "tracesite.E008" in err.getvalue().splitlines()[-2]
    assert err.getvalue().splitlines()[-1].strip() == "HINT: Run: manage.py migrate"

"""Run the database tests on PostgreSQL 15, the oldest version that Tracesite supports.

This doubles the time of a test run, so it has a separate command: `make test-postgresql15`.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

ROOT = Path(__file__).resolve().parent.parent
BINARIES = Path("/usr/lib/postgresql/15/bin")
DATABASE_TESTS = ["tests/access_app", "tests/messages_app", "tests/traces_app"]
# Tests in these folders that do not use the database.
LEFT_OUT = ["*_in_browser.py", "*/formats/*", "*/redaction/*", "*/test_safe_text.py"]
# Settings of a server set up for Tracesite, except that it does not wait for the disk.
SERVER_SETTINGS = {
    "listen_addresses": "",
    "max_locks_per_transaction": "256",
    "fsync": "off",
    "full_page_writes": "off",
}


@pytest.fixture
def database_url() -> Iterator[str]:
    # PostgreSQL does not run as root, and its own user cannot reach tmp_path.
    identity = {}
    with tempfile.TemporaryDirectory(prefix="tracesite-pg15-", dir="/tmp") as name:
        home = Path(name)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(home, nobody.pw_uid, nobody.pw_gid)
            identity = {"user": nobody.pw_uid, "group": nobody.pw_gid}
        make = [BINARIES / "initdb", "-D", home / "data", "-U", "tracesite", "--auth=trust", "--encoding=UTF8"]
        subprocess.run([*make, "--locale=C.UTF-8", "--no-sync"], check=True, capture_output=True, cwd="/", **identity)
        settings = " ".join(f"-c {name}='{value}'" for name, value in SERVER_SETTINGS.items())
        control = [BINARIES / "pg_ctl", "-D", home / "data", "-w", "-s"]
        start = ["-l", home / "log", "-o", f"-k {home} {settings}", "start"]
        subprocess.run([*control, *start], check=True, cwd="/", **identity)
        try:
            yield f"postgresql://tracesite@/postgres?host={quote(name)}&port=5432"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, cwd="/", **identity)


@pytest.mark.skipif(not BINARIES.exists(), reason=f"no PostgreSQL 15 in {BINARIES}")
def test_database_tests_pass_on_postgresql_15(database_url: str) -> None:
    # Remove the variables that this run of pytest and its workers set, because they must not affect the inner run.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRACESITE_", "DJANGO_"))
    }
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *DATABASE_TESTS]
    command += [f"--ignore-glob={pattern}" for pattern in LEFT_OUT]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"DATABASE_URL": database_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]

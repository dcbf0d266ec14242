"""An archive in a store that speaks S3: moto's server, over HTTP, with the client of the extra `s3`. `make sdks` installs both."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from django.core.management import CommandError
from fsspec import get_filesystem_class

from access_app.models import Project
from messages_app.models import Session
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port
from tests.traces_app.maintenance.archive.conftest import MARCH, exports, rows, run, tell

ENVIRONMENT = ROOT / ".sdks" / "s3"
FOLDER = "s3://traces/archive"

pytestmark = [pytest.mark.system, pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("store")]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run an S3 server with the bucket `traces`, which its client finds by environment variables."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        pytest.skip(f"{python} is not there; `make sdks` installs it")
    (packages,) = ENVIRONMENT.glob("lib/python*/site-packages")
    monkeypatch.setattr(sys, "path", [*sys.path, str(packages)])
    address = f"http://127.0.0.1:{free_port()}"
    variables = {
        "ENDPOINT_URL": address,
        "ACCESS_KEY_ID": "ann",
        "SECRET_ACCESS_KEY": "secret",
        "DEFAULT_REGION": "eu-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    command = [python, "-m", "moto.server", "-p", address.rpartition(":")[2]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        make_bucket(address)
        yield
    finally:
        process.terminate()
        process.wait(120)


def make_bucket(address: str) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{address}/traces", method="PUT"), timeout=60).close()
        except urllib.error.URLError:  # it has not started yet
            assert time.monotonic() < deadline
            time.sleep(0.1)
        else:
            return


def test_archive_in_s3_is_restored_queried_and_erased(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(project, "ann", MARCH)
    tell(project, "bob", MARCH)
    before, exported = rows(), exports()
    archive = ["archive", "--older-than", "2024-04-01", "--drop", "--to"]
    with pytest.raises(CommandError, match="bucket"):
        run(*archive, "s3://nowhere/archive")
    assert rows() == before
    run(*archive, FOLDER)
    assert not Session.objects.exists()
    run("restore_archive", FOLDER)
    assert (rows(), exports()) == (before, exported)
    run("erase", "--match", "user of ann", "--yes")
    said = run("query_archive", FOLDER, "SELECT external_id FROM sessions", "--format", "csv")
    assert said.split() == ["external_id", "bob"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    # It remembers the address of before.
    get_filesystem_class("s3").clear_instance_cache()
    with pytest.raises(CommandError, match="s3://traces/archive cannot be reached: "):
        run("restore_archive", FOLDER)

"""`make sbom` and `make audit`, run by make. Advisories come from a server of the test, because the real ones change."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from sdk.tests.length import at_length
from sdk.tests.paths import ROOT

LOCKS = sorted(path.name for path in ROOT.glob("requirements*.lock"))

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not (ROOT / ".sdks" / "audit" / "installed.lock").exists(), reason="`make sdks` installs the tools below .sdks"
    ),
]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def pins(lock: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w.-]+)(?:\[\w+\])?==([^\s;]+)", (ROOT / lock).read_text(), re.M))


@contextmanager
def advisories(vulnerable: str | None) -> Iterator[str]:
    """An OSV server that knows one weakness, of the package `vulnerable`; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            affected = {"package": asked["package"], "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}]}]}
            weakness = {"id": "MADE-UP-1", "published": "2026-01-01T00:00:00Z", "affected": [affected]}
            is_hit = asked["package"]["name"] == vulnerable
            body = json.dumps({"vulns": [weakness]} if is_hit else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_sbom_lists_the_packages_of_the_lock_file(tmp_path: Path) -> None:
    target = tmp_path / "out" / "sbom.json"
    done = make("sbom", f"SBOM={target}")
    assert done.returncode == 0, done.stderr
    document = json.loads(target.read_text())
    assert (document["bomFormat"], document["metadata"]["component"]["name"]) == ("CycloneDX", "tracesite")
    listed = {(one["name"], one["version"]) for one in document["components"]}
    assert listed == pins("requirements-server.lock")
    assert all(one["externalReferences"][0]["hashes"] for one in document["components"])


@pytest.mark.parametrize(("vulnerable", "status"), [(None, 0), ("django", 2)])
def test_audit_fails_for_a_known_vulnerability(vulnerable: str | None, status: int) -> None:
    with advisories(vulnerable) as address:
        done = make("audit", f"ARGS=--vulnerability-service osv --osv-url {address}")
    assert done.returncode == status, done.stdout + done.stderr
    assert ("MADE-UP-1" in done.stdout) == bool(vulnerable)


@at_length  # it waits for each of several tries
def test_audit_fails_without_advisories() -> None:
    done = make("audit", "ARGS=--vulnerability-service osv --osv-url http://127.0.0.1:1 --timeout 2")
    assert done.returncode == 2


def test_audit_covers_every_lock_file() -> None:
    recipe = (ROOT / "Makefile").read_text().partition("\naudit:")[2].partition("\n\n")[0]
    assert sorted(re.findall(r"requirements[\w-]*\.lock", recipe)) == LOCKS

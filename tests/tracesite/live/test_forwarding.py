"""Test that stored events reach clients unchanged, and that the live part and the storing part are independent."""

from __future__ import annotations

import http.client
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks import processes
from benchmarks.faults.site import Site
from sdk.tests.paths import ROOT
from tests.test_architecture import files_of, imports_of

from .conftest import Viewers, hear

EVENTS: list[dict[str, Any]] = [
    {"type": "agent_start", "agent": "planner"},
    {"type": "tool_call_start", "data": {"callId": "c1", "name": "search", "args": {"q": "weather"}}},
    {"type": "tool_call_complete", "data": {"callId": "c1", "name": "search", "result": "sunny"}},
    {"type": "workflow_execute_complete", "data": {"result": "It is sunny."}},
]


def ask(port: int, method: str, path: str, key: dict[str, str], body: Any = None) -> Any:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    client.request(method, path, json.dumps(body) if body else None, key | {"Content-Type": "application/json"})
    answer = client.getresponse()
    content = answer.read()
    client.close()
    assert answer.status < 300, content
    return json.loads(content)


@pytest.mark.system
def test_stored_events_are_pushed_over_both_protocols(viewers: Viewers, port: int, key: dict[str, str]) -> None:
    first, *others = [{"session_id": "said over the API", **event} for event in EVENTS]
    ask(port, "POST", "/api/v1/events/", key, {"events": [first]})
    socket, stream = viewers.socket(key), viewers.stream("said over the API", key)
    socket.subscribe("said over the API")
    ask(port, "POST", "/api/v1/events/", key, {"events": others})
    pushed = [hear(socket, "monitor_event")["event"] for _ in EVENTS]
    assert [event["type"] for event in pushed] == [event["type"] for event in EVENTS]
    assert [hear(stream, "monitor_event")["event"] for _ in EVENTS] == pushed
    session = pushed[0]["session_id"]
    assert ask(port, "GET", f"/api/v1/sessions/{session}/events/", key)["results"] == pushed


def listening_ports(pid: int) -> set[int]:
    """Return the TCP and UDP ports on which a process and its children wait for others."""
    inodes, found = set(), set()
    for one in processes.family(pid):
        for path in Path(f"/proc/{one}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed since it was listed
                inodes |= set(re.findall(r"^socket:\[(\d+)\]$", str(path.readlink())))
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            fields = line.split()
            # 0A is LISTEN; a UDP socket without a peer is 07.
            if fields[9] in inodes and fields[3] in ("0A", "07"):
                found.add(int(fields[1].rpartition(":")[2], 16))
    return found


@pytest.mark.system
def test_server_speaks_http_and_websocket_on_its_only_port(
    site: Site, viewers: Viewers, port: int, key: dict[str, str]
) -> None:
    process = site.server.process
    assert process is not None
    assert listening_ports(process.pid) == {port}
    assert ask(port, "GET", "/api/v1/sessions/?limit=1", key)["results"] is not None
    socket = viewers.socket(key)
    socket.subscribe("a session that does not exist")
    assert socket.hear()["type"] == "waiting"


def test_live_part_only_reads_and_storing_does_not_import_it() -> None:
    forwarding = {str(path.relative_to(ROOT)): path.read_text() for path in (ROOT / "tracesite" / "live").glob("*.py")}
    known = {found.module for path, text in forwarding.items() for found in imports_of(path, text)}
    ours = {module for module in known if module.split(".")[0] in ("traces_app", "messages_app", "access_app")}
    assert {module for module in ours if "writes" in module or "ingest" in module} == set()
    assert {module for module in ours if module.startswith("traces_app.")} == {
        *(
            "traces_app.events.feed",
            "traces_app.events.feed.AFTER",
            "traces_app.events.feed.CHANNEL",
            "traces_app.events.feed.after",
            "traces_app.events.feed.event_of",
        ),
        *(
            "traces_app.queries.schemas.messages",
            "traces_app.queries.schemas.messages.Message",
            "traces_app.queries.messages",
            "traces_app.queries.messages.EVERYTHING",
            "traces_app.queries.messages.Selection",
        ),
        "traces_app.queries.messages.messages",
    }
    storing = files_of(ROOT, ["traces_app", "messages_app"])
    assert [path for path in storing if "tracesite.live" in _names(path)] == []


def _names(path: str) -> set[str]:
    modules = {found.module for found in imports_of(path, (ROOT / path).read_text())}
    return {".".join(module.split(".")[:2]) for module in modules}

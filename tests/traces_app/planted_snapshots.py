"""Values planted in every position of a snapshot: in parts of their own, in pieces of lists, and in types that JSON does not have.

plant_snapshots(garden, client)      # beside plant(garden, client) of planted.py; the client has a key with read and write
paths_of_snapshots(client)           # what a reader may ask for of them
"""

from __future__ import annotations

from typing import Any

import msgspec
from django.test import Client

from sdk.tests.normalize.snapshot_positions import POSITIONS, encoded
from tests.traces_app.planted import Garden
from tracesite_sdk.recorder.snapshots.parts import Encoded, Parts

SESSION = "planted-snapshots"
NANOSECONDS = 1_767_225_600 * 10**9


def send(client: Client, context: Encoded, *, number: int = 1, session: str = SESSION, **more: Any) -> Any:
    """Send a snapshot, and return the response."""
    snapshot = {
        "id": f"{session}-{number}",
        "ts": NANOSECONDS + number,
        "node_ids": ["plan"],
        "context_ref": context.ref,
        "notes": more.pop("notes", []),
    }
    parts = {ref: msgspec.Raw(content) for ref, content in context.parts.items()}
    body = {"session_id": session, "snapshot": snapshot, "parts": parts, **more}
    return client.post("/api/v1/snapshots/", msgspec.json.encode(body), "application/json")


def plant_snapshots(garden: Garden, client: Client) -> None:
    """Send a snapshot and a fork with a planted value in every position of their contents; then a snapshot that shares parts."""
    context = {name: {"note": make(garden.value(f"Snapshot {name}"))} for name, make in POSITIONS.items()}
    notes = [{"path": "x", "reason": f"about {garden.value('Snapshot notes')}."}]
    parts = Parts()
    for number in (1, 2):
        answer = send(client, encoded({**context, "number": number}, parts), number=number, notes=notes)
        assert answer.status_code == 201, answer.content
    overrides = {name: make(garden.value(f"Fork {name}")) for name, make in POSITIONS.items() if "json" in name}
    fork = {"session": SESSION, "node": "plan", "snapshot": f"{SESSION}-1", "overrides": overrides}
    answer = client.post(
        "/api/v1/snapshots/", msgspec.json.encode({"session_id": f"{SESSION}-fork", "fork": fork}), "application/json"
    )
    assert answer.status_code == 201, answer.content


def paths_of_snapshots(client: Client, session: str = SESSION) -> list[str]:
    """Return the paths of the API and the pages at which snapshots of a session are read; the client may read them all."""
    found = client.get(f"/api/v1/sessions/{session}/snapshots/").json()["results"]
    pages = f"/admin/messages_app/session/{found[0]['session_id']}"
    refs = ",".join(sorted({one["context_ref"] for one in found}))
    return [
        f"/api/v1/sessions/{session}/",
        f"/api/v1/sessions/{session}/snapshots/",
        f"/api/v1/sessions/{session}/forks/",
        f"/api/v1/sessions/{session}/snapshots/parts/?refs={refs}",
        *(f"/api/v1/snapshots/{one['id']}/" for one in found),
        f"{pages}/snapshots/",
        *(f"{pages}/snapshots/{one['id']}/" for one in found),
    ]

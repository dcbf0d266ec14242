"""Values planted in every position of a snapshot: in parts of their own, in pieces of lists, and in types that JSON does not have.

plant_snapshots(garden, client)      # beside plant(garden, client) of planted.py; the client has a key with read and write
paths_of_snapshots(client)           # what a reader may ask for of them
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from django.test import Client

from tests.traces_app.planted import Garden
from tracesite_sdk.recorder.snapshots.parts import Codecs, Encoded, Parts, plain_of

SESSION = "planted-snapshots"
NANOSECONDS = 1_767_225_600 * 10**9
LONG = "word " * 60
"""More than a text that is stored in its parent."""
WIDE = {f"filler_{number}": "word " * 6 for number in range(20)}
"""More than a dict that is stored in its parent."""

POSITIONS: dict[str, Callable[[str], Any]] = {
    "short": lambda text: text,
    "long": lambda text: f"{LONG}{text} {LONG}",
    "of dict": lambda text: {"inner": text},
    "of wide dict": lambda text: {"inner": text, **WIDE},
    "long of wide dict": lambda text: {"inner": f"{LONG}{text}", **WIDE},
    "of list": lambda text: [text, "a"],
    "of pieces": lambda text: [*(f"{number} word word word" for number in range(40)), text],
    "first of pieces": lambda text: [text, *(f"{number} word word word" for number in range(40))],
    "long of pieces": lambda text: [*(f"{number} {LONG}" for number in range(9)), f"{LONG}{text}"],
    "dicts of pieces": lambda text: [{"inner": text, "number": number, "more": "word " * 20} for number in range(9)],
    "of tuple": lambda text: (1, f"{text} {LONG}", [text]),
    "of set": lambda text: {text},
    "of bytes": lambda text: f"{text} {LONG}".encode(),
    "of dict with numbers": lambda text: {7: text, "名": [text], "inner": {"deep": text, 8: {9: text}}},
    "of key": lambda text: {(1, text): "a"},
    "of wide dict with numbers": lambda text: {7: text, "inner": f"{LONG}{text}", **WIDE},
    "of json": lambda text: msgspec.json.encode({"inner": {"deep": [text]}}).decode(),
    "of long json": lambda text: msgspec.json.encode({"inner": [text], "long": LONG}).decode(),
}
"""What a recorder stores in different ways, with a text in it."""


def encoded(context: Any, parts: Parts | None = None) -> Encoded:
    """Return a context as a recorder sends it; only with the parts that are not in `parts`."""
    made = (Parts() if parts is None else parts).split(plain_of(context, Codecs()).value)
    if parts is not None:
        parts.known |= made.parts.keys()
    return made


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

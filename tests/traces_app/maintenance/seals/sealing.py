"""A run with rows of every sealed kind, sealed, and what verify_traces finds."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from io import StringIO
from uuid import UUID

import msgspec
from django.core.management import CommandError, call_command

from access_app.db import primary
from access_app.models import Project
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.events.store import record_events
from traces_app.maintenance.seals.sealing import SealReport, seal_changed
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.redaction.rules import DEFAULT_RULES

REFERENCES = [{"content": "Atlantis is a myth.", "knowledge_id": "k1", "score": 0.5}, {"content": "Shanghai"}]
INPUT = {
    "system": "Be brief.",
    "messages": [{"role": "user", "content": "What is the weather?"}],
    "parameters": {"n": 1},
}


def store_run(project: Project, name: str = "a1", **fields: object) -> UUID:
    """Store a run with rows of every sealed kind, after its question; return its id."""
    whole = answer(external_id=name, knowledge_references=REFERENCES, **fields)
    whole["agent_steps"][0]["input"] = INPUT
    outcome = store(project, question(external_id=f"q {name}"), whole, external_id=f"session {name}")
    message_id = outcome.messages[1].id
    assert message_id is not None
    send_event(project, f"session {name}", message_id, "prompt_build")
    return message_id


def send_event(project: Project, session: str, message_id: UUID, name: str) -> None:
    event = records.Event(
        id=name, session_id=session, message_id=str(message_id), type="prompt_build", timestamp=NOON, data={"n": 1}
    )
    record_events(primary, project.pk, [redact_event(event, DEFAULT_RULES)])


def seal() -> SealReport:
    return seal_changed(primary, patience=timedelta(0))


def verify(**options: object) -> dict[str, list[str]]:
    """Return the kinds of rows that differ, by message."""
    out = StringIO()
    with suppress(CommandError):
        call_command("verify_traces", json=True, stdout=out, **options)
    lines = [msgspec.json.decode(line) for line in out.getvalue().splitlines()]
    assert lines[-1].keys() == {"summary"}
    return {line.get("message_id", "chain"): line.get("kinds", line.get("reason")) for line in lines[:-1]}


def summary(**options: object) -> dict[str, int]:
    """Return the numbers of verified messages."""
    out = StringIO()
    with suppress(CommandError):
        call_command("verify_traces", json=True, stdout=out, **options)
    found: dict[str, int] = msgspec.json.decode(out.getvalue().splitlines()[-1])["summary"]
    return found

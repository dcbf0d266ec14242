"""The page of a session: what its calls offer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.test import Client

from access_app.models import Project
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.ingest.batch import SessionOutcome
from traces_app.models import ToolCall


def calls(*successes: bool) -> list[dict[str, Any]]:
    """Return a step with calls that succeeded or not."""
    results = [{"success": good, "output": "ok", "error": "" if good else "no such day"} for good in successes]
    made = [{"name": f"look_{place}", "args": {}, "result": result} for place, result in enumerate(results)]
    return [{"thought": "Look.", "tool_calls": made}]


def talk(project: Project, *answers: dict[str, Any], external_id: str = "talk") -> SessionOutcome:
    """Store a session of questions with these answers."""
    said: list[dict[str, Any]] = []
    for place, fields in enumerate(answers):
        at = NOON + timedelta(minutes=place)
        said.append(question(external_id=f"q{place}", content=f"What about day {place}?", created_at=at))
        said.append(answer(**{"external_id": f"a{place}", "agent_steps": [], "created_at": at, **fields}))
    return store(project, *said, external_id=external_id)


def failed_calls(message: Any) -> Sequence[UUID]:
    failed = ToolCall.objects.filter(message_id=message.id, status=ToolCall.Status.ERROR)
    return list(failed.order_by("position").values_list("pk", flat=True))


def test_session_offers_good_run_only_where_there_is_one(staff: Client, project: Project) -> None:
    session = talk(project, {"agent_steps": calls(False)})
    (call,) = failed_calls(session.messages[1])
    url = f"/admin/messages_app/session/{session.id}/outline/{call}/"
    assert staff.get(url).json()["good"] == ""
    talk(project, {"agent_steps": calls(True)}, external_id="good")
    good = staff.get(url).json()["good"]
    assert staff.get(good).json()["title"] == "look_0"

"""The page of a session in parts: its failures, wherever they are, and what its calls offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from access_app.models import Project
from tests.admin_pages import links_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.admin import conversation
from traces_app.admin.session_outline import ANSWER, CHAPTER, FAILED, SUCCESS
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


@pytest.fixture
def parts(project: Project, monkeypatch: pytest.MonkeyPatch) -> SessionOutcome:
    """Store a session of three parts: a failed call, a run that failed without one, and two failed calls."""
    monkeypatch.setattr(conversation, "PAGE_SIZE", 4)
    failed = {"content": "", "error": "ValueError: no such day"}
    return talk(
        *(project, {"agent_steps": calls(True, False)}, {}, failed, {}),
        *({"agent_steps": calls(False, True, False)}, {"agent_steps": calls(True)}),
    )


def page_of(session: SessionOutcome) -> str:
    return f"/admin/messages_app/session/{session.id}/change/"


def failed_calls(message: Any) -> Sequence[UUID]:
    failed = ToolCall.objects.filter(message_id=message.id, status=ToolCall.Status.ERROR)
    return list(failed.order_by("position").values_list("pk", flat=True))


def test_part_of_a_session_says_failures_of_all(staff: Client, parts: SessionOutcome) -> None:
    first = staff.get(page_of(parts))
    assert "1 of 4 failures here" in text_of(first)
    second = staff.get(page_of(parts) + links_of(first)["Later →"])
    assert "1 of 4 failures here" in text_of(second)
    assert second.context["runs"]["failures_before"] == 1
    rows = second.context["first_rows"]
    statuses = [status for kind, status in zip(rows["calls"], rows["statuses"], strict=True) if kind == ANSWER]
    assert statuses == [FAILED, SUCCESS]
    assert "2 of 4 failures here" in text_of(staff.get(page_of(parts) + "?newest"))


def test_whole_session_says_its_failures(staff: Client, project: Project) -> None:
    session = talk(project, {"agent_steps": calls(False, False)}, {})
    page = staff.get(page_of(session))
    assert "2 failures" in text_of(page) and page.context["beyond"] is None


def test_way_to_failures_leads_through_all_parts(staff: Client, parts: SessionOutcome) -> None:
    messages = parts.messages
    once, twice = failed_calls(messages[1]), failed_calls(messages[9])
    page = staff.get(page_of(parts))
    assert page.context["beyond"] == {
        "previous": f"?failure_before={messages[0].id}",
        "next": f"?failure_after={messages[3].id}",
    }
    for query, message, call in (
        (page.context["beyond"]["next"], messages[5], None),
        (f"?failure_after={messages[7].id}", messages[9], twice[0]),
        (f"?failure_before={messages[11].id}", messages[9], twice[1]),
        (f"?failure_after={messages[11].id}", messages[1], once[0]),  # after the last comes the first
        (page.context["beyond"]["previous"], messages[9], twice[1]),
    ):
        target = staff.get(page_of(parts) + query)["Location"]
        assert urlsplit(target).fragment == f"message-{message.id}"
        assert parse_qs(urlsplit(target).query).get("call", []) == ([] if call is None else [str(call)])
        assert staff.get(target).context["bubbles"][0].message.pk == message.id
    assert staff.get(page_of(parts) + "?failure_after=junk")["Location"] == page_of(parts)


def test_session_offers_good_run_only_where_there_is_one(staff: Client, project: Project) -> None:
    session = talk(project, {"agent_steps": calls(False)})
    (call,) = failed_calls(session.messages[1])
    url = f"/admin/messages_app/session/{session.id}/outline/{call}/"
    assert staff.get(url).json()["good"] == ""
    talk(project, {"agent_steps": calls(True)}, external_id="good")
    good = staff.get(url).json()["good"]
    assert staff.get(good).json()["title"] == "look_0"


def test_run_that_goes_on_takes_the_time_since_it_began_everywhere(staff: Client, project: Project) -> None:
    begun = timezone.now() - timedelta(hours=13)
    run = answer(created_at=begun, is_completed=False)
    outcome = store(project, question(created_at=begun), run, title="Nightly")
    session, message = (
        f"/admin/messages_app/session/{outcome.id}",
        f"/admin/messages_app/message/{outcome.messages[1].id}",
    )
    for page in (
        "/admin/messages_app/session/",
        "/admin/messages_app/message/?role=assistant",
        f"{session}/change/",
        f"{session}/peek/",
        f"{message}/change/",
        f"{message}/peek/",
    ):
        assert "13 h 0 min so far" in text_of(staff.get(page)), page
    # Of the question, too, on the path of the session.
    chapters = staff.get(f"{session}/outline/").json()["chapters"].values()
    assert [chapter["so_far"] for chapter in chapters] == ["13 h 0 min so far"]
    # Of a run that has ended it is its duration.
    store(project, {**run, "is_completed": True, "completed_at": begun + timedelta(seconds=4)})
    assert "so far" not in text_of(staff.get(f"{session}/change/"))
    assert "4.0 s" in text_of(staff.get("/admin/messages_app/session/"))


def test_session_page_says_one_time_and_what_it_is(staff: Client, project: Project) -> None:
    def message(place: int, said: Mapping[str, Any], **times: float) -> dict[str, Any]:
        at = {name: NOON + timedelta(seconds=seconds) for name, seconds in times.items()}
        return {**said, "external_id": f"m{place}", **at}

    said = (
        message(0, question(), created_at=0),
        message(1, answer(agent_steps=[]), created_at=2, completed_at=62),
        message(2, question(), created_at=600),
        message(3, answer(agent_steps=[]), created_at=601, completed_at=626),
        # One line of a transcript: when it ended is unknown.
        message(4, answer(content="", agent_steps=[]), created_at=700, completed_at=700),
    )
    session = store(project, *said)
    page = staff.get(page_of(session))
    assert "1 min 25 s run time" in text_of(page)
    assert "Run time 1 min 25 s First to last message 11 min 40 s" in text_of(page)
    rows = page.context["first_rows"]
    chapters = [row for row, kind in enumerate(rows["calls"]) if kind == CHAPTER]
    assert [rows["durations"][row] for row in chapters] == [60_000, 25_000, None]
    assert rows["words"][str(session.messages[4].id)]["text"] == "(no question)"
    assert "0 ms" not in text_of(page)


def test_session_without_times_says_none(staff: Client, project: Project) -> None:
    begun = [NOON + timedelta(milliseconds=number) for number in range(4)]
    said = (question(created_at=begun[0]), answer(agent_steps=[], created_at=begun[1]))
    more = (
        question(external_id="q2", created_at=begun[2]),
        answer(external_id="a2", agent_steps=[], created_at=begun[3]),
    )
    page = text_of(staff.get(page_of(store(project, *said, *more))))
    assert "run time" not in page.lower() and "First to last message" not in page

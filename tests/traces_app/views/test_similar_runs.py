"""/messages/{id}/similar/ over HTTP: runs like one, of its project."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.models import Message
from tests.traces_app.conftest import NOON, store
from traces_app.queries import similar_runs

from .conftest import Caller

TIMEOUT = "timeout after 31 s"


def asked(project: Project, name: str, at: datetime, question: str, *calls: tuple[str, str], **fields: Any) -> UUID:
    """Store a session with a question and the run that answers it."""
    made = [
        {"name": tool, "result": {"success": False, "error": error} if error else {"output": "x"}}
        for tool, error in calls
    ]
    steps = [{"tool_calls": [call]} for call in made]
    store(
        project,
        {"role": "user", "external_id": "q", "content": question, "created_at": at},
        {"role": "assistant", "external_id": name, "created_at": at, "agent_steps": steps, **fields},
        external_id=name,
    )
    return Message.objects.get(external_id=name, project=project).pk


@pytest.fixture
def run(project: Project) -> UUID:
    """Return a run, after runs that are more and less like it."""
    week = timedelta(days=7)
    asked(project, "same", NOON - 5 * week, "Weather in Shanghai?", ("search", ""), ("read", "timeout after 7 s"))
    asked(project, "tools", NOON - week, "Refund order 7, please", ("search", ""), ("read", ""))
    asked(project, "question", NOON - 2 * week, "weather in  Oslo?", ("map", ""))
    asked(project, "other", NOON - week, "Buy 5 kg", ("pay", "no money"))
    return asked(project, "given", NOON, "Weather in Shanghai?", ("search", ""), ("read", TIMEOUT))


def test_similar_runs_come_first(viewer: Caller, run: UUID) -> None:
    found = viewer.get(f"messages/{run}/similar/").json
    first = Message.objects.get(external_id="same")
    assert found["results"][0] == {
        "id": str(first.pk), "session_id": str(first.session_id), "created_at": "2026-01-25T12:00:00.000000Z",
        "score": 1.0, "question_score": 1.0, "tools_score": 1.0, "errors_score": 1.0, "question": "Weather in Shanghai?",
        "tools": ["search", "read"], "call_count": 2, "failure_count": 1,
    }  # fmt: skip
    names = {str(message.pk): message.external_id for message in Message.objects.all()}
    assert [names[one["id"]] for one in found["results"]][:3] == ["same", "tools", "question"]
    scores = [one["score"] for one in found["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 < score <= 1 for score in scores)
    assert (found["compared_count"], found["searched_to"]) == (4, None)


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"created_after": "2026-02-01"}, 3), ({"created_before": "2026-02-01"}, 1), ({"has_errors": "true"}, 2),
        ({"has_errors": "false"}, 2), ({"project": "owner"}, 4), ({"created_before": "2000-01-01"}, 0),
        ({"by": "errors"}, 4), ({"is_completed": "true"}, 4), ({"is_completed": "false"}, 0),
    ],
)  # fmt: skip
def test_filters_limit_the_compared_runs(viewer: Caller, run: UUID, query: dict[str, str], count: int) -> None:
    assert viewer.get(f"messages/{run}/similar/", **query).json["compared_count"] == count


def test_limit_keeps_the_most_similar_runs(viewer: Caller, run: UUID) -> None:
    (found,) = viewer.get(f"messages/{run}/similar/", limit=1).results
    assert found["score"] == 1


def test_failures_are_found_by_their_errors(viewer: Caller, project: Project, run: UUID) -> None:
    asked(project, "failed", NOON, "Buy 5 kg", ("pay", "timeout after 8 s"))
    found = viewer.get(f"messages/{run}/similar/", by="errors").results
    names = [Message.objects.get(pk=one["id"]).external_id for one in found]
    assert names == ["same", "failed"]
    assert [one["errors_score"] for one in found] == [1, 1]


def test_masked_values_are_not_compared(viewer: Caller, project: Project) -> None:
    secret = "sk-ant-api03-" + "aB3" * 31 + "AA"
    first = asked(project, "first", NOON, f"Use {secret}", ("pay", f"bad key {secret}"))
    asked(project, "second", NOON, f"Use {secret}", ("pay", f"bad key {secret}"))
    found = viewer.get(f"messages/{first}/similar/").json
    assert len(found["results"]) == 1
    assert "aB3aB3" not in str(found)


def test_runs_of_other_projects_are_not_compared(
    viewer: Caller, outsider: Caller, run: UUID, stranger: Project
) -> None:
    foreign = asked(stranger, "foreign", NOON, "Weather in Shanghai?", ("search", ""), ("read", TIMEOUT))
    assert viewer.get(f"messages/{run}/similar/").json["compared_count"] == 4
    assert outsider.get(f"messages/{foreign}/similar/").json["compared_count"] == 0
    assert outsider.get(f"messages/{run}/similar/").error == (404, "message_not_found", None)


def test_deleted_runs_and_questions_are_not_compared(viewer: Caller, run: UUID) -> None:
    same, tools = (Message.objects.get(external_id=name) for name in ("same", "tools"))
    writes.delete_message(primary, same.pk, by="ada")
    writes.delete_session(primary, tools.session_id, by="ada")
    question = Message.objects.get(external_id="question")
    writes.delete_message(primary, Message.objects.get(session_id=question.session_id, role="user").pk, by="ada")
    found = viewer.get(f"messages/{run}/similar/").json
    assert found["compared_count"] == 2
    assert not {str(same.pk), str(tools.pk), str(question.pk)} & {one["id"] for one in found["results"]}
    assert viewer.get(f"messages/{same.pk}/similar/").status == 404


def test_question_is_the_last_one_before_the_run(viewer: Caller, project: Project, run: UUID) -> None:
    store(
        project,
        {"role": "user", "content": "Buy 5 kg", "created_at": NOON},
        {"role": "user", "content": "Weather in Shanghai?", "created_at": NOON + timedelta(seconds=1)},
        {"role": "assistant", "external_id": "second", "created_at": NOON + timedelta(seconds=2)},
        {"role": "user", "content": "Thanks", "created_at": NOON + timedelta(seconds=3)},
    )
    second = Message.objects.get(external_id="second").pk
    (found,) = [one for one in viewer.get(f"messages/{run}/similar/").results if one["id"] == str(second)]
    assert (found["question_score"], found["tools_score"], found["errors_score"]) == (1, 0, 0)


def test_newest_runs_are_compared(viewer: Caller, run: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similar_runs, "MOST_READ", 2)
    found = viewer.get(f"messages/{run}/similar/").json
    assert (found["compared_count"], found["searched_to"]) == (1, "2026-02-22T12:00:00.000000Z")


def test_similar_runs_take_constant_queries(viewer: Caller, run: UUID, project: Project) -> None:
    def count() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(f"messages/{run}/similar/").status == 200
        return len(queries)

    count()  # the first request also notes the use of its key
    before = count()
    for number in range(20):
        asked(project, f"m{number}", NOON, "Weather?", (f"tool {number}", "timeout"))
    assert count() == before <= 14


@pytest.mark.parametrize("name", ["019ca945-0a00-7000-a000-6a949d0ca469", "x", "%00"])
def test_unknown_run_has_no_similar_ones(viewer: Caller, name: str) -> None:
    assert viewer.get(f"messages/{name}/similar/").status == 404


def test_question_is_no_run(viewer: Caller, run: UUID) -> None:
    question = Message.objects.filter(role="user").latest("pk")
    assert viewer.get(f"messages/{question.pk}/similar/").error == (404, "not_found", None)


@pytest.mark.parametrize("query", ["limit=201", "cursor=x", "has_errors=x", "created_after=x", "by=x"])
def test_bad_parameter_of_similar_runs_is_named(viewer: Caller, run: UUID, query: str) -> None:
    assert viewer.get(f"messages/{run}/similar/?{query}").error == (400, "invalid_input", query.partition("=")[0])


def test_similar_runs_need_the_scope_read(run: UUID) -> None:
    assert Caller().get(f"messages/{run}/similar/").status == 401

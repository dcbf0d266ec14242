"""What the rows of a run leave out of its time, and where the page says so."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from tests.admin_pages import text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.queries.runs.outline import read_outline
from traces_app.queries.runs.unrecorded import unrecorded


def call(after: float, seconds: float | None) -> dict[str, Any]:
    """Return a call that began after some seconds of the run; one without a duration has no result."""
    begun = {"name": "look", "args": {"at": after}, "started_at": NOON + timedelta(seconds=after)}
    return begun if seconds is None else {**begun, "duration": seconds * 1_000, "result": {"output": "ok"}}


def run_of(project: Project, *calls: dict[str, Any], ended: float | None) -> Message:
    fields: dict[str, Any] = {"agent_steps": [{"thought": "Look.", "tool_calls": list(calls)}], "created_at": NOON}
    fields |= {"is_completed": False} if ended is None else {"completed_at": NOON + timedelta(seconds=ended)}
    stored = store(project, question(created_at=NOON), answer(**fields))
    return Message.objects.get(pk=stored.messages[1].id)


@pytest.mark.parametrize(
    ("calls", "ended", "gaps"),
    [
        ([call(0, 1.5)], 14.9, [13_400]),
        ([call(2, 1), call(5, 3)], 10, [2_000, 2_000, 2_000]),
        ([call(0, 4), call(1, 9)], 10, []),
        # It may have run until the end.
        ([call(0, 1), call(2, None)], 10, [1_000]),
        # Nobody knows when it began or ends.
        ([call(2, 1), call(5, 1)], None, [2_000]),
        ([], 10, []),
    ],
    ids=["end", "everywhere", "covered", "no result", "goes on", "no times"],
)
def test_gaps_are_the_times_without_rows(
    project: Project, calls: list[dict[str, Any]], ended: float | None, gaps: list[int]
) -> None:
    run = run_of(project, *calls, ended=ended)
    assert [gap.ms for gap in unrecorded(read_outline(primary, run.pk), run).gaps] == gaps


@pytest.mark.parametrize(
    ("seconds", "ended", "words"),
    [(1.5, 14.9, "13.4 s not recorded"), (9, 10.5, None), (1, 1.9, None)],
    ids=["most", "a small part", "less than a second"],
)
def test_page_says_how_much_was_not_recorded(
    staff: Client, project: Project, seconds: float, ended: float, words: str | None
) -> None:
    run = run_of(project, call(0, seconds), ended=ended)
    text = text_of(staff.get(f"/admin/messages_app/message/{run.pk}/change/"))
    # In the header, and in the details.
    assert text.count("not recorded") == (2 if words else 0)
    assert text.count(words or "not recorded") == (2 if words else 0)

"""Metrics of ingest: outcomes of messages, and rows of new ones."""

from __future__ import annotations

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Reference
from messages_app.writes import delete_session
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.metrics import REGISTRY, STATES, TABLES, begin_at_zero
from traces_app.models import AgentStep, ToolCall, ToolResult


class Counts:
    """The increase of the counters since this object was created."""

    def __init__(self) -> None:
        self.before = self._now()

    def _now(self) -> dict[str, float]:
        rows = {table: ("tracesite_ingest_rows_total", {"table": table}) for table in TABLES}
        states = {state: ("tracesite_ingest_messages_total", {"state": state}) for state in STATES}
        batches = {"batches": ("tracesite_ingest_batch_seconds_count", {"source": "live"})}
        return {key: REGISTRY.get_sample_value(*sample) or 0 for key, sample in (rows | states | batches).items()}

    def added(self) -> dict[str, float]:
        return {key: value - self.before[key] for key, value in self._now().items() if value != self.before[key]}


@pytest.mark.django_db
def test_metrics_count_rows_of_new_messages(project: Project) -> None:
    counts = Counts()
    store(project, question(), answer(knowledge_references=[{"id": "k1", "content": "a passage"}]))
    assert counts.added() == {
        "created": 2,
        "batches": 1,
        "messages_app_message": 2,
        "messages_app_reference": Reference.objects.count(),
        "traces_app_agentstep": AgentStep.objects.count(),
        "traces_app_toolcall": ToolCall.objects.count(),
        "traces_app_toolresult": ToolResult.objects.count(),
    }


@pytest.mark.django_db
def test_metrics_count_repeated_message_without_rows(project: Project) -> None:
    store(project, question(), answer(is_completed=False))
    counts = Counts()
    store(project, question(), answer(is_completed=True), question(external_id="q2"))
    store(project, answer(agent_steps=[{"id": "late", "thought": "One more step."}]))
    assert counts.added() == {
        "unchanged": 1,
        "updated": 1,
        "created": 1,
        "refused": 1,
        "batches": 2,
        "messages_app_message": 1,
    }


@pytest.mark.django_db
def test_messages_for_a_deleted_session_are_counted_as_refused(project: Project) -> None:
    stored = store(project, question())
    assert stored.id is not None
    delete_session(primary, stored.id, by="staff")
    counts = Counts()
    store(project, question(), question(external_id="q2"))
    assert counts.added() == {"refused": 2, "batches": 1}


def test_metrics_start_at_zero() -> None:
    begin_at_zero()
    for table in TABLES:
        assert REGISTRY.get_sample_value("tracesite_ingest_rows_total", {"table": table}) is not None
    for state in STATES:
        assert REGISTRY.get_sample_value("tracesite_ingest_messages_total", {"state": state}) is not None

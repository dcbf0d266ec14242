"""Stored vectors of runs: made once, kept up with writes, gone with their messages, and right after a kill."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.http import QueryDict

from access_app.db import primary
from access_app.models import Project
from access_app.visibility import ProjectScope
from messages_app import writes
from messages_app.change_log import Reader, unread
from messages_app.models import Message
from tests.forked import command, kill_after
from tests.traces_app.conftest import NOON, store
from tests.traces_app.views.test_similar_runs import asked
from traces_app.ingest.changes import change_message
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.run_vectors import store_vectors
from traces_app.maintenance.search_index import index_changed
from traces_app.models import EmbedderInUse, RunVector
from traces_app.queries import similar_runs
from traces_app.queries.filters import SimilarFilterSet
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

QUESTION = "Weather in Shanghai?"


def brought_up_to_date() -> int:
    """Run both jobs; return the number of vectors that were made."""
    index_changed(primary, patience=timedelta(0))
    return store_vectors(primary, patience=timedelta(0)).runs


def found(run: UUID, **given: Any) -> dict[str, tuple[float, float]]:
    """Return the score of each similar run and that of its question, by external id."""
    message = Message.objects.get(pk=run)
    rows = SimilarFilterSet(QueryDict(urlencode(given)), mask=None).found(
        primary, ProjectScope(frozenset([message.project_id]))
    )
    answer = similar_runs.similar_runs(primary, run, rows, 20, is_filtered="has_errors" in given)
    assert answer is not None
    names = dict(Message.objects.values_list("pk", "external_id"))
    return {names[UUID(one.id)]: (one.score, one.question_score) for one in answer.results}


@pytest.fixture
def runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> UUID:
    """Store some runs with their vectors; return one."""
    monkeypatch.setattr(similar_runs, "MOST_READ", 1)  # so that only stored vectors find them
    week = timedelta(days=7)
    asked(project, "same", NOON - 5 * week, QUESTION, ("search", ""), ("read", "timeout after 7 s"))
    asked(project, "near", NOON - 2 * week, "weather in  Oslo?", ("search", ""))
    run = asked(project, "given", NOON, QUESTION, ("search", ""), ("read", "timeout after 31 s"))
    assert found(run) == {}
    assert brought_up_to_date() == 3
    return run


@pytest.mark.django_db
def test_stored_vectors_find_what_comparing_everything_finds(runs: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = found(runs)
    assert stored["same"] == (1, 1)
    assert set(stored) == {"same", "near"}
    assert found(runs, has_errors="false") == {"near": stored["near"]}
    assert found(runs, created_before="2026-02-01") == {"same": (1, 1)}
    EmbedderInUse.objects.all().delete()
    monkeypatch.setattr(similar_runs, "MOST_READ", 5_000)
    assert found(runs) == stored
    assert not unread(primary, Reader.VECTORS).exists()
    assert store_vectors(primary, patience=timedelta(0)).runs == 3  # an unknown embedder begins with everything
    assert store_vectors(primary, patience=timedelta(0)).runs == 0


@pytest.mark.django_db
def test_waiting_messages_are_compared_before_their_vectors_are_stored(project: Project, runs: UUID) -> None:
    asked(project, "new", NOON, QUESTION, ("search", ""))
    assert found(runs)["new"][1] == 1
    index_changed(primary, patience=timedelta(0))
    assert not unread(primary, Reader.SEARCH).exists()
    assert found(runs)["new"][1] == 1
    assert store_vectors(primary, patience=timedelta(0)).runs == 1
    assert found(runs)["new"][1] == 1


@pytest.mark.django_db
def test_vectors_follow_changed_and_late_questions(project: Project, runs: UUID) -> None:
    before = dict(RunVector.objects.values_list("message__external_id", "vector"))
    question = Message.objects.get(role="user", session__external_id="near")
    patch = redact_message_patch(normalise_patch(records.MessagePatch(content=QUESTION)), DEFAULT_RULES)
    change_message(primary, [project.pk], question.pk, patch)
    run = {"role": "assistant", "external_id": "unasked", "created_at": NOON}
    store(project, run, external_id="late")
    assert brought_up_to_date() == 2
    store(project, {"role": "user", "content": "Buy 5 kg", "created_at": NOON - timedelta(days=1)}, external_id="late")
    # The question of a run is the last one before it, so an earlier one changes nothing.
    store(project, {"role": "user", "content": "Buy 5 kg", "created_at": NOON - timedelta(days=1)}, external_id="given")
    unasked = bytes(RunVector.objects.get(message__external_id="unasked").vector)
    assert brought_up_to_date() == 1
    after = dict(RunVector.objects.values_list("message__external_id", "vector"))
    assert after["unasked"] != unasked
    assert {name for name in before if after[name] != before[name]} == {"near"}
    assert found(runs)["near"][1] == 1


@pytest.mark.django_db
def test_trash_is_not_found_by_its_vector(runs: UUID) -> None:
    question = Message.objects.get(role="user", session__external_id="near")
    writes.delete_message(primary, question.pk, by="ada")
    assert found(runs)["near"][1] == 0
    writes.delete_session(primary, question.session_id, by="ada")
    assert set(found(runs)) == {"same"}
    writes.delete_message(primary, Message.objects.get(external_id="same").pk, by="ada")
    assert found(runs) == {}


@pytest.mark.django_db
def test_vector_goes_with_its_message(runs: UUID) -> None:
    remove_messages(primary, [Message.objects.get(external_id="near").pk])
    assert set(RunVector.objects.values_list("message__external_id", flat=True)) == {"same", "given"}
    same = Message.objects.get(external_id="same")
    writes.delete_session(primary, same.session_id, by="ada")
    purge(primary, PurgeScope(deleted_before=NOON + timedelta(days=3_650)))
    assert list(RunVector.objects.values_list("message_id", flat=True)) == [runs]


@pytest.mark.django_db(transaction=True)
def test_dropped_month_takes_its_vectors_with_it(runs: UUID) -> None:
    purge(primary, PurgeScope(created_before=NOON - timedelta(weeks=4)))
    assert RunVector.objects.count() == 2
    assert brought_up_to_date() == 0


@pytest.mark.django_db(transaction=True)
def test_every_run_has_its_vector_after_kills_at_any_moment(project: Project) -> None:
    for round_ in range(4):
        for number in range(15):
            asked(project, f"{round_}-{number}", NOON, f"question {number}", ("search", ""))
        kill_after(0.04 * (round_ + 1), command("index_search"))
        run = Message.objects.get(external_id=f"{round_}-0").pk
        assert len(found(run)) == min(20, 15 * (round_ + 1) - 1)
    brought_up_to_date()
    assert not unread(primary, Reader.VECTORS).exists()
    assert RunVector.objects.count() == 60

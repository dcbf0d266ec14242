"""Stored patterns of errors: kept up with writes, gone with their messages, and never needed for a right answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.db.models import F
from django.http import QueryDict

from access_app.db import primary
from access_app.encryption.keys import add_key
from access_app.masking import rules_named, save_rule
from access_app.models import Project
from access_app.readable import Parts
from access_app.visibility import ProjectScope
from messages_app import writes
from messages_app.change_log import Kind, Reader, log_all, unread
from messages_app.models import NONE_DECIDED, Change, Message
from messages_app.sql.partitions import periods_of
from tests.forked import command, kill_after
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance import erasure, error_patterns
from traces_app.maintenance.encrypting import encrypt_stored
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.masking import apply_masking
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.models import ErrorPattern, ToolCall, ToolResult
from traces_app.queries.error_groups import error_groups
from traces_app.queries.error_patterns import with_patterns
from traces_app.queries.filters import ErrorFilterSet
from traces_app.queries.runs.deciding import deciding_calls

FULL, GONE = "ValueError('disk 7 is full')", "key 3f2b8c0e-1111-4222-8333-944455556666 is gone"
FULL_PATTERN, GONE_PATTERN = "ValueError: disk # is full", "key # is gone"


def run(name: str, *errors: str, **fields: Any) -> dict[str, Any]:
    """Return a run with a call for each error; "" for one that succeeded."""
    calls = [
        {"name": "t", "id": f"c{at}", "result": {"success": False, "error": error} if error else {"output": "o"}}
        for at, error in enumerate(errors)
    ]
    return {
        "external_id": name, "role": "assistant", "created_at": NOON, "agent_steps": [{"tool_calls": calls}], **fields,
    }  # fmt: skip


def read() -> int:
    """Run the job; return the number of patterns that it stored."""
    return store_patterns(primary, patience=timedelta(0)).patterns


def patterns() -> list[str]:
    return list(ErrorPattern.objects.order_by("pattern").values_list("pattern", flat=True))


def groups(*projects: Project) -> dict[str, int]:
    """Return how many calls each group has."""
    readable = Parts({primary: ProjectScope(frozenset(project.pk for project in projects))})
    rows = readable.rows(lambda db, scope: ErrorFilterSet(QueryDict(), mask=None).found(db, scope, None))
    return {group.pattern: group.calls for group in error_groups(rows, "count", 20).groups}


@pytest.mark.django_db
def test_patterns_of_failed_calls_are_stored_once(project: Project) -> None:
    store(project, run("one", FULL, "", GONE), run("two", FULL))
    assert unread(primary, Reader.ERRORS).count() == 2
    assert read() == 3
    assert patterns() == [FULL_PATTERN, FULL_PATTERN, GONE_PATTERN]
    assert set(ErrorPattern.objects.values_list("pk", "message_id")) == set(
        ToolCall.objects.filter(status="error").values_list("pk", "message_id")
    )
    assert not unread(primary, Reader.ERRORS).exists()
    assert read() == 0
    log_all(primary, Message.objects.all(), Kind.CONTENT)
    assert read() == 0, "they are as they were"


@pytest.mark.django_db
def test_failure_that_decided_is_stored_of_ended_runs(keeper: None, project: Project, stranger: Project) -> None:
    add_key(stranger)
    store(
        project,
        run("bad", FULL, "", GONE),
        run("good", FULL, ""),
        run("open", FULL, is_completed=False),
        run("fine", ""),
    )
    store(stranger, run("encrypted", FULL))
    read()

    def decided() -> dict[str, Any]:
        errors = dict(ToolResult.objects.values_list("pk", "error"))
        runs = Message.objects.values_list("external_id", "decided_by")
        return {name: call and errors.get(call, NONE_DECIDED) for name, call in runs}

    expected = {"bad": GONE, "good": NONE_DECIDED, "open": None, "fine": None, "encrypted": FULL}
    assert decided() == expected
    store(project, run("good", FULL, GONE), run("open", FULL, is_completed=True))
    read()
    assert decided() == expected | {"good": GONE, "open": FULL}
    opened = Message.objects.get(external_id="open")
    assert deciding_calls(primary, [opened]) == {opened.pk: opened.decided_by}
    Message.objects.filter(pk=opened.pk).update(is_completed=False, decided_by=NONE_DECIDED)
    again = Message.objects.get(pk=opened.pk)
    assert deciding_calls(primary, [again]) == {opened.pk: opened.decided_by}, "what is stored is of before"


@pytest.mark.django_db
def test_stored_pattern_is_read_instead_of_the_error(project: Project) -> None:
    store(project, run("one", FULL))
    read()
    ErrorPattern.objects.update(pattern="stored")
    assert groups(project) == {"stored": 1}
    log_all(primary, Message.objects.all(), Kind.FIGURES)
    assert groups(project) == {"stored": 1}, "other figures change no error"
    log_all(primary, Message.objects.all(), Kind.CONTENT)
    assert groups(project) == {FULL_PATTERN: 1}, "it may be that of an earlier error"


@pytest.mark.django_db
def test_unread_and_missing_calls_are_counted_with_the_read_ones(project: Project) -> None:
    store(project, run("one", FULL))
    read()
    store(project, run("two", FULL, GONE))
    assert groups(project) == {FULL_PATTERN: 2, GONE_PATTERN: 1}
    assert read() == 2
    ErrorPattern.objects.filter(pattern=GONE_PATTERN).delete()
    assert groups(project) == {FULL_PATTERN: 2, GONE_PATTERN: 1}


@pytest.mark.django_db
def test_changed_error_changes_its_pattern(project: Project) -> None:
    store(project, run("one", "", FULL, is_completed=False))
    read()
    store(project, run("one", GONE, FULL))
    before = groups(project)
    assert before == {FULL_PATTERN: 1, GONE_PATTERN: 1}
    assert read() == 1
    ToolCall.objects.filter(call_id="c1").update(status="success")
    log_all(primary, Message.objects.all(), Kind.CONTENT)
    assert groups(project) == {GONE_PATTERN: 1}
    assert read() == 0
    assert patterns() == [GONE_PATTERN]
    assert groups(project) == {GONE_PATTERN: 1}


@pytest.mark.django_db
def test_pattern_goes_with_its_message(project: Project) -> None:
    store(project, run("one", FULL), run("two", GONE), external_id="a")
    store(project, run("three", FULL, GONE), external_id="b")
    read()
    remove_messages(primary, [Message.objects.get(external_id="one").pk])
    assert patterns() == [FULL_PATTERN, GONE_PATTERN, GONE_PATTERN]
    writes.delete_session(primary, Message.objects.get(external_id="three").session_id, by="ada")
    assert groups(project) == {GONE_PATTERN: 1}
    report = purge(primary, PurgeScope(deleted_before=NOON + timedelta(days=3_650)))
    assert report.tables["patterns of errors"].rows == 2
    assert patterns() == [GONE_PATTERN]


@pytest.mark.django_db
def test_erased_text_is_in_no_pattern(project: Project) -> None:
    store(project, run("one", "no Ada\n  Lovelace here", FULL), run("two", GONE))
    read()
    # As it is in the pattern alone.
    subject = erasure.Subject(kind="match", text="Ada Lovelace", projects=[project])
    erasure.erase(primary, erasure.find(primary, subject))
    assert erasure.left_over(primary, subject) == {}
    assert patterns() == [GONE_PATTERN]


@pytest.mark.django_db
def test_messages_removed_before_they_are_read_leave_nothing(project: Project) -> None:
    store(project, run("one", FULL), run("two", GONE))
    remove_messages(primary, [Message.objects.get(external_id="one").pk])
    assert read() == 1
    assert patterns() == [GONE_PATTERN]


@pytest.mark.django_db(transaction=True)
def test_dropped_month_takes_its_patterns_with_it(project: Project) -> None:
    store(project, run("old", FULL, created_at=NOON - timedelta(days=40)), run("new", GONE))
    read()
    store(project, run("late", FULL, created_at=NOON - timedelta(days=40)))
    purge(primary, PurgeScope(created_before=NOON - timedelta(days=20)))
    assert patterns() == [GONE_PATTERN]
    assert read() == 0
    assert groups(project) == {GONE_PATTERN: 1}
    assert all(
        period.begins_at > NOON - timedelta(days=20) for period in periods_of(primary, "traces_app_errorpattern")
    )


@pytest.mark.django_db(transaction=True)
def test_first_run_stores_the_patterns_of_all_messages(project: Project) -> None:
    store(project, run("one", FULL, created_at=NOON - timedelta(days=40)), run("two", "", GONE), run("fine", ""))
    # As in a database that is older than the table.
    Change.objects.all().delete()
    with primary.cursor() as cursor:
        for period in periods_of(primary, "traces_app_errorpattern"):
            cursor.execute(f"DROP TABLE {period.leaf('traces_app_errorpattern')}")
    assert groups(project) == {FULL_PATTERN: 1, GONE_PATTERN: 1}
    assert read() == 2
    assert patterns() == [FULL_PATTERN, GONE_PATTERN]
    assert read() == 0


@pytest.mark.django_db
def test_patterns_of_another_expression_are_stored_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, run("one", FULL, GONE))
    read()
    ErrorPattern.objects.filter(pattern=GONE_PATTERN).update(pattern="as it was made before")
    assert read() == 0
    monkeypatch.setattr(error_patterns, "form", lambda: "another")
    assert read() == 1
    assert patterns() == [FULL_PATTERN, GONE_PATTERN]
    assert read() == 0


@pytest.mark.django_db
def test_masked_error_has_no_pattern_of_before(project: Project) -> None:
    store(project, run("one", "no user EMP-ada", FULL))
    read()
    save_rule(project, "staff", "pattern", "EMP-[a-z]+")
    list(apply_masking(primary, project.pk, rules_named(project, None)))
    assert patterns() == []
    assert groups(project) == {"no user [redacted]": 1, FULL_PATTERN: 1}
    assert read() == 2
    assert patterns() == [FULL_PATTERN, "no user [redacted]"]


@pytest.mark.django_db(transaction=True)
def test_encrypted_projects_have_no_stored_patterns(keeper: None, project: Project, stranger: Project) -> None:
    store(project, run("plain", FULL))
    store(stranger, run("other", GONE))
    read()
    add_key(project)
    store(project, run("late", FULL), external_id="s2")
    assert read() == 0
    assert groups(project, stranger) == {"(encrypted)": 1, FULL_PATTERN: 1, GONE_PATTERN: 1}
    list(encrypt_stored(primary, project.pk))
    assert patterns() == [GONE_PATTERN]
    log_all(primary, Message.objects.all(), Kind.CONTENT)
    assert read() == 0
    assert groups(project, stranger) == {"(encrypted)": 2, GONE_PATTERN: 1}


@pytest.mark.django_db(transaction=True)
def test_every_error_has_its_pattern_after_kills_at_any_moment(project: Project) -> None:
    for round_ in range(4):
        store(project, *(run(f"{round_}-{number}", FULL, GONE) for number in range(15)))
        kill_after(0.04 * (round_ + 1), command("index_search"))
        assert groups(project) == {FULL_PATTERN: 15 * (round_ + 1), GONE_PATTERN: 15 * (round_ + 1)}
    read()
    assert not unread(primary, Reader.ERRORS).exists()
    assert patterns() == [FULL_PATTERN] * 60 + [GONE_PATTERN] * 60


@pytest.mark.django_db(transaction=True)
def test_killed_batch_is_read_again(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, *(run(f"m{number}", FULL) for number in range(5)))
    monkeypatch.setattr(error_patterns, "CHANGES_AT_A_TIME", 2)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(error_patterns, "move", die)
        read()
    assert patterns() == []
    assert read() == 5
    assert patterns() == [FULL_PATTERN] * 5


def patterns_of(calls: Sequence[str]) -> list[str]:
    rows = with_patterns(ToolCall.with_deleted.filter(call_id__in=calls).order_by("call_id"))
    return list(rows.values_list(F("pattern"), flat=True))


@pytest.mark.django_db
def test_call_without_error_has_an_empty_pattern(project: Project) -> None:
    store(project, run("one", "", FULL))
    assert patterns_of(["c0", "c1"]) == ["", FULL_PATTERN]
    read()
    assert patterns_of(["c0", "c1"]) == ["", FULL_PATTERN]

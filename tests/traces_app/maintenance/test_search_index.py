"""The search index: filled once, merged, built again, and right after a kill."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app import change_log
from messages_app.change_log import Reader, unread
from messages_app.models import Change, Message
from messages_app.sql.pagination import IdRange
from messages_app.sql.periods import Period
from tests.forked import command, kill_after
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.changes import change_message
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance import search_index
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.search_index import index_changed, reindex
from traces_app.models import SearchPosting, SearchRows, SearchSegment
from traces_app.queries.search.found import find
from traces_app.queries.search.query import parse
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

NO_PATIENCE = timedelta(0)
MARCH = Period.month(2026, 3)


def tell(project: Project, *texts: str, days: int = 0) -> None:
    for text in texts:
        at = NOON + timedelta(days=days)
        store(project, {"external_id": text, "role": "user", "content": f"needle {text}", "created_at": at})


def count(text: str) -> int:
    def among(ids: list[object]) -> list[object]:
        return list(Message.objects.filter(pk__in=ids).values_list("pk", flat=True))

    return len(find(primary, parse(text), "message", among, IdRange(), newest_first=True, limit=1_000).ids)  # type: ignore[arg-type]


@pytest.mark.django_db
def test_messages_wait_until_they_are_many_or_old(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(project, "one", "two")
    assert index_changed(primary, patience=timedelta(minutes=1)).messages == 0
    monkeypatch.setattr(change_log, "ENOUGH", 2)
    assert index_changed(primary, patience=timedelta(minutes=1)).messages == 2
    assert not unread(primary, Reader.SEARCH).exists()
    assert index_changed(primary, patience=NO_PATIENCE) == search_index.IndexReport()


@pytest.mark.django_db
def test_large_open_run_is_not_indexed_with_each_event(project: Project) -> None:
    calls = [{"name": "search", "args": {"n": number}} for number in range(1_000)]
    message = {"external_id": "a", "role": "assistant", "is_completed": False, "created_at": NOON}
    store(project, {**message, "agent_steps": [{"iteration": 0, "tool_calls": calls}]})
    Change.objects.update(at=timezone.now() - timedelta(seconds=7))
    assert index_changed(primary, patience=timedelta(seconds=5)).messages == 0
    assert count("search") == 1
    assert index_changed(primary, patience=timedelta(seconds=3)).messages == 1


@pytest.mark.django_db
def test_message_with_many_keys_has_several_segments(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "_MOST_KEYS", 1_000)
    monkeypatch.setattr(search_index, "_CHARACTERS_AT_A_TIME", 0)
    # With ids of their own, because random ones have keys, too, and may contain any number.
    calls = [
        {"id": f"c{n}", "name": "search", "args": {"n": " ".join(map(str, range(n, n + 300)))}}
        for n in range(0, 3_000, 300)
    ]
    store(project, {"role": "assistant", "content": "start", "agent_steps": [{"iteration": 0, "tool_calls": calls}]})
    report = index_changed(primary, patience=NO_PATIENCE)
    assert (report.messages, report.rows) == (1, 11)
    assert report.segments > 1
    assert [count(term) for term in ("start", "299", "2999", "3000")] == [1, 1, 1, 0]


@pytest.mark.django_db
def test_merge_keeps_the_youngest_version_of_what_exists(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_index, "MERGED", 3)
    monkeypatch.setattr(search_index, "_MOST_KEYS", 10)
    tell(project, "first")
    index_changed(primary, patience=NO_PATIENCE)
    tell(project, "gone")
    index_changed(primary, patience=NO_PATIENCE)
    remove_messages(primary, list(Message.objects.filter(external_id="gone").values_list("pk", flat=True)))
    message = Message.objects.get(external_id="first")
    patch = records.MessagePatch(content="needle second")
    change_message(primary, [project.pk], message.pk, redact_message_patch(normalise_patch(patch), DEFAULT_RULES))
    assert index_changed(primary, patience=NO_PATIENCE).merged == 3
    (segment,) = SearchSegment.objects.all()
    assert segment.rows == 1
    assert (count("needle second"), count("gone")) == (1, 0)
    assert set(SearchRows.objects.values_list("segment_id", flat=True)) == {segment.pk}
    assert set(SearchPosting.objects.values_list("segment_id", flat=True)) == {segment.pk}


@pytest.mark.django_db
def test_reindex_replaces_the_segments_of_a_month(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    tell(project, "march", "mars", "marzo", "mart", "maart")
    tell(project, "april", days=35)
    index_changed(primary, patience=NO_PATIENCE)
    monkeypatch.setattr(search_index, "CHANGES_AT_A_TIME", 2)
    of_march = set(SearchSegment.objects.filter(pk__lt=MARCH.after_id).values_list("pk", flat=True))
    of_april = set(SearchSegment.objects.filter(pk__gte=MARCH.after_id).values_list("pk", flat=True))
    seen = set()

    def look() -> bool:
        seen.add((unread(primary, Reader.SEARCH).count() <= 2, count("needle")))
        return False

    assert reindex(primary, MARCH, is_stopped=look).messages == 5
    assert seen == {(True, 6)}
    after = set(SearchSegment.objects.values_list("pk", flat=True))
    assert (after & of_march, after & of_april) == (set(), of_april)
    assert (count("march"), count("april"), count("needle")) == (1, 1, 6)
    reindex(primary, MARCH, is_stopped=lambda: True)
    assert set(SearchSegment.objects.values_list("pk", flat=True)) == after


@pytest.mark.django_db(transaction=True)
def test_dropped_month_takes_its_index_with_it(project: Project) -> None:
    tell(project, "march")
    tell(project, "april", days=35)
    index_changed(primary, patience=NO_PATIENCE)
    tell(project, "later")
    purge(primary, PurgeScope(created_before=NOON + timedelta(days=32)))
    assert SearchSegment.objects.count() == 1
    assert index_changed(primary, patience=NO_PATIENCE).rows == 0
    assert not unread(primary, Reader.SEARCH).exists()
    assert (count("needle"), count("april")) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_index_is_whole_after_kills_at_any_moment(project: Project) -> None:
    for round_ in range(6):
        tell(project, *(f"{round_}-{number}" for number in range(40)))
        kill_after(0.03 * (round_ + 1), command("index_search"))
        assert count("needle") == 40 * (round_ + 1)
    index_changed(primary, patience=NO_PATIENCE)
    assert not unread(primary, Reader.SEARCH).exists()
    assert sum(SearchSegment.objects.values_list("rows", flat=True)) == 240
    assert count("needle") == 240


@pytest.mark.django_db
def test_command_tells_what_it_did(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    tell(project, "one")
    call_command("index_search")
    assert capsys.readouterr().out == "Indexed 1 messages with 1 rows in 1 segments; merged 0 segments.\n"
    call_command("index_search", "--rebuild", "2026-03")
    assert "Indexed 1 messages" in capsys.readouterr().out
    with pytest.raises(CommandError, match="2026-03"):
        call_command("index_search", "--rebuild", "march")

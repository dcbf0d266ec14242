"""Actions over all rows that the filters of a list match, not only those of its page."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpResponse
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app import writes
from messages_app.admin import selection
from messages_app.admin.walks import TookTooLong
from messages_app.models import Message, Session
from tests.admin_pages import html_of, rows_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.models import Score, ToolCall

pytestmark = pytest.mark.django_db
SESSIONS, MESSAGES = "/admin/messages_app/session/", "/admin/messages_app/message/"
CALLS = "/admin/traces_app/toolcall/"


@pytest.fixture
def sessions(project: Project) -> list[UUID]:
    """Sixty sessions with the tag "old" and one without it, oldest first."""
    keys = []
    for number in range(61):
        tags = ["old"] if number else []
        at = NOON + timedelta(minutes=number)
        found = store(project, question(created_at=at), external_id=f"s{number}", title=f"Talk {number}", tags=tags)
        assert found.id is not None
        keys.append(found.id)
    return keys


def all_of(action: str, row: UUID) -> dict[str, str]:
    """Return the form of a list whose reader selected all rows that match."""
    return {"action": action, "_selected_action": str(row), "select_across": "1", "index": "0"}


def confirmed(page: HttpResponse, **fields: str) -> dict[str, Any]:
    """Return the form of a confirmation."""
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', html_of(page))
    return {**{name: value for name, value in hidden if name != "csrfmiddlewaretoken"}, **fields}


def test_all_that_match_are_moved_to_the_trash_and_back(staff: Client, sessions: list[UUID]) -> None:
    url = f"{SESSIONS}?tag=old"
    page = staff.post(url, all_of("delete_selected", sessions[-1]))
    assert "60 sessions match the filters." in text_of(page)
    assert "This includes 60 messages." in text_of(page)
    assert "… and 10 more" in text_of(page)
    assert Session.objects.count() == 61
    # A session that matches since then was not shown, and stays.
    writes.add_tags(primary, [sessions[0]], ["old"])
    done = staff.post(url, confirmed(page), follow=True)
    assert "60 sessions were moved to the trash." in text_of(done)
    assert [session.pk for session in Session.objects.all()] == [sessions[0]]
    assert LogEntry.objects.count() == 60
    (rows,) = re.findall(r'name="rows" value="([^"]+)">', html_of(done))
    assert "60 sessions were restored." in text_of(staff.post(f"{SESSIONS}undo/", {"rows": rows}, follow=True))
    assert Session.objects.count() == 61


def test_all_of_the_trash_are_restored(staff: Client, sessions: list[UUID]) -> None:
    for key in sessions:
        writes.delete_session(primary, key, by="ada")
    url = f"{SESSIONS}trash/"
    page = staff.post(url, all_of("restore_selected", sessions[0]))
    assert "61 sessions match the filters." in text_of(page)
    assert "61 sessions were restored." in text_of(staff.post(url, confirmed(page), follow=True))
    assert Session.objects.count() == 61


def test_purge_is_for_one_page_of_all_that_match(staff: Client, sessions: list[UUID]) -> None:
    for key in sessions:
        writes.delete_session(primary, key, by="ada")
    page = staff.post(f"{SESSIONS}trash/", all_of("purge_selected", sessions[0]))
    assert "More than 50 sessions match the filters. This is for the newest 50" in text_of(page)
    staff.post(f"{SESSIONS}trash/", confirmed(page))
    assert Session.with_deleted.count() == 11


def test_action_is_bounded_to_the_newest_rows(
    staff: Client, sessions: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection, "BULK_ROWS", 7)
    page = staff.post(SESSIONS, all_of("delete_selected", sessions[-1]))
    assert "More than 7 sessions match the filters. This is for the newest 7" in text_of(page)
    staff.post(SESSIONS, confirmed(page))
    assert set(Session.objects.values_list("pk", flat=True)) == set(sessions[:-7])


def test_all_messages_of_a_search_are_deleted(staff: Client, project: Project) -> None:
    times = [NOON + timedelta(minutes=number) for number in range(120)]
    store(project, *(question(external_id=f"m{number}", created_at=at) for number, at in enumerate(times)))
    store(project, question(content="Something else"), external_id="other")
    url = f"{MESSAGES}?q=weather"
    page = staff.post(url, all_of("delete_selected", Message.objects.all()[0].pk))
    assert "120 messages match the filters." in text_of(page)
    staff.post(url, confirmed(page))
    assert [message.content for message in Message.objects.all()] == ["Something else"]


def test_tag_is_added_to_all_that_match(staff: Client, sessions: list[UUID]) -> None:
    writes.add_tags(primary, sessions[:2], ["reviewed"])
    url = f"{SESSIONS}?tag=old"
    page = staff.post(url, all_of("tag_selected", sessions[-1]))
    assert "Tag for these 60 sessions" in text_of(page)
    done = staff.post(url, confirmed(page, tag=" reviewed "), follow=True)
    assert "59 sessions have the tag “reviewed” now; 1 had it before." in text_of(done)
    tags = {session.pk: session.tags for session in Session.objects.all()}
    assert tags[sessions[0]] == ["reviewed"]
    assert {tuple(tags[key]) for key in sessions[1:]} == {("old", "reviewed")}
    assert LogEntry.objects.count() == 59


def test_tag_is_added_to_chosen_sessions_in_chinese(staff: Client, sessions: list[UUID]) -> None:
    staff.cookies["django_language"] = "zh-hans"
    chosen = {"action": "tag_selected", "_selected_action": [str(key) for key in sessions[:3]], "index": "0"}
    page = staff.post(SESSIONS, chosen)
    assert "要为这 3 个会话添加的标签" in text_of(page)
    assert "已为 3 个会话添加标签“上海”；0 个原本就有。" in text_of(
        staff.post(SESSIONS, {**chosen, "post": "yes", "tag": "上海"}, follow=True)
    )
    assert len(rows_of(staff.get(SESSIONS, {"tag": "上海"}))) == 3


@pytest.mark.parametrize("tag", ["", "x" * 201, "a\x00b", "password=hunter2hunter2", "sk-proj-" + "a1B2" * 12])
def test_tag_that_cannot_be_stored_is_refused(staff: Client, sessions: list[UUID], tag: str) -> None:
    fields = {**all_of("tag_selected", sessions[0]), "post": "yes", "tag": tag, "rows": str(sessions[0])}
    assert 'role="alert"' in html_of(staff.post(SESSIONS, fields))
    assert Session.objects.get(pk=sessions[0]).tags == []


def test_list_offers_all_where_there_are_more_pages(staff: Client, sessions: list[UUID]) -> None:
    assert "Select all that match, on all pages" in html_of(staff.get(SESSIONS))
    assert "Select all that match, on all pages" not in html_of(staff.get(SESSIONS, {"tag": "none"}))
    assert "Select all that match, on all pages" not in html_of(
        staff.get(f"{SESSIONS}?created_before=2026-03-01T12:05")
    )


def test_action_on_rows_that_are_slow_to_find_changes_nothing(
    staff: Client, sessions: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_slow(*args: Any) -> Any:
        raise TookTooLong

    monkeypatch.setattr(selection, "all_keys", too_slow)
    page = staff.post(f"{SESSIONS}?tag=old", all_of("delete_selected", sessions[-1]), follow=True)
    assert "Finding all rows took too long. Nothing was changed. Narrow the list." in text_of(page)
    assert Session.objects.count() == 61


# --- Scores -----------------------------------------------------------------------------------------------------------


def test_score_is_given_to_all_sessions_that_match(staff: Client, sessions: list[UUID]) -> None:
    url = f"{SESSIONS}?tag=old"
    page = staff.post(url, all_of("score_selected", sessions[-1]))
    assert "60 sessions match the filters." in text_of(page)
    # A session that matches since then was not shown, and gets none.
    writes.add_tags(primary, [sessions[0]], ["old"])
    done = staff.post(url, confirmed(page, name="reviewed", value="yes", comment="All read."), follow=True)
    assert "60 sessions have the score “reviewed” now." in text_of(done)
    scores = Score.objects.all()
    assert {score.session_id for score in scores} == set(sessions[1:])
    assert {(score.value, score.kind, score.comment, score.source, score.author) for score in scores} == {
        (True, "boolean", "All read.", "person", "ada")
    }
    assert LogEntry.objects.count() == 60
    assert len(rows_of(staff.get(f"{SESSIONS}?score=reviewed&min_score=1&created_before=2026-03-01T12:10"))) == 9
    # The same name again replaces it.
    staff.post(url, confirmed(page, name="reviewed", value="no"))
    assert (Score.objects.count(), {score.value for score in Score.objects.all()}) == (60, {False})


def test_score_is_given_to_chosen_messages_of_several_projects(
    staff: Client, project: Project, stranger: Project
) -> None:
    keys = []
    for owner in (project, stranger):
        outcome = store(owner, question(), external_id="s").messages[0]
        assert outcome.id is not None
        keys.append(outcome.id)
    chosen = {"action": "score_selected", "_selected_action": [str(key) for key in keys], "index": "0"}
    assert "Score for 2 messages" in text_of(staff.post(MESSAGES, chosen))
    for value in ("0.75", "on topic"):
        staff.post(MESSAGES, {**chosen, "post": "yes", "name": f"like {value}", "value": value})
    scores = Score.objects.order_by("name", "project_id").values_list("name", "kind", "number", "label", "message_id")
    assert list(scores) == [
        *(("like 0.75", "numeric", 0.75, "", key) for key in keys),
        *(("like on topic", "categorical", None, "on topic", key) for key in keys),
    ]
    assert set(Score.objects.values_list("project_id", "message_id")) == {(project.pk, keys[0]), (stranger.pk, keys[1])}


def test_score_is_given_to_all_calls_that_match(staff: Client, project: Project) -> None:
    for name in ("s1", "s2"):
        store(project, question(), answer(), external_id=name, title="Talk")
    failed = ToolCall.objects.filter(status="error")
    url = f"{CALLS}?status=error"
    page = staff.post(url, all_of("score_selected", failed[0].pk))
    assert f"{len(failed)} tool calls match the filters." in text_of(page)
    assert f"{failed[0].tool.name} · Talk" in text_of(page)
    done = staff.post(url, confirmed(page, name="cause", value="provider"), follow=True)
    assert f"{len(failed)} tool calls have the score “cause” now." in text_of(done)
    scores = Score.objects.values_list("call_id", "message_id", "session_id", "label", "author")
    places = failed.values_list("pk", "message_id", "message__session_id")
    assert set(scores) == {(*place, "provider", "ada") for place in places}
    # The same name again replaces it.
    staff.post(url, confirmed(page, name="cause", value="ours"))
    assert set(Score.objects.values_list("label", flat=True)) == {"ours"}
    assert Score.objects.count() == len(failed) == len(rows_of(staff.get(f"{CALLS}?score=cause")))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": "", "value": "1"}, "This field is required."),
        ({"name": "x"}, "Give a value or a comment."),
        ({"name": "x", "value": "nan"}, "This score is not valid"),
        ({"name": "x", "value": "1e999"}, "This score is not valid"),
        ({"name": "x", "value": "y" * 513}, "at most 512 characters"),
        ({"name": "a\x00b", "value": "1"}, "Null characters are not allowed."),
    ],
)
def test_score_that_cannot_be_stored_is_refused(
    staff: Client, sessions: list[UUID], fields: dict[str, str], reason: str
) -> None:
    chosen = {**all_of("score_selected", sessions[0]), "post": "yes", "rows": str(sessions[0])}
    assert reason in text_of(staff.post(SESSIONS, {**chosen, **fields}))
    assert not Score.objects.exists()


def test_score_form_in_chinese_masks_secrets(staff: Client, sessions: list[UUID]) -> None:
    staff.cookies["django_language"] = "zh-hans"
    chosen = {"action": "score_selected", "_selected_action": [str(key) for key in sessions[:3]], "index": "0"}
    assert "为 3 个会话评分" in text_of(staff.post(SESSIONS, chosen))
    fields = {"name": "准确", "value": "是", "comment": "password=hunter2hunter2"}
    done = staff.post(SESSIONS, {**chosen, "post": "yes", **fields}, follow=True)
    assert "3 个会话现在有评分“准确”。" in text_of(done)
    assert {score.value for score in Score.objects.all()} == {True}
    assert "hunter2" not in "".join(score.comment for score in Score.objects.all())

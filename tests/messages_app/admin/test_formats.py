"""The forms that all pages share: numbers with separators, and one word for one thing, in both languages."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message, Session
from tests.admin_pages import html_of, rows_of, text_of
from traces_app.ingest.pipeline import ingest
from tracesite_sdk import records

SESSIONS = "/admin/messages_app/session/"
MESSAGES = "/admin/messages_app/message/"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def run(project: Project) -> Message:
    """A run with large numbers, still going on."""
    message = records.Message(role="assistant", external_id="m", created_at=NOON, is_completed=False)
    ingest(primary, project.pk, [records.Session(external_id="s", created_at=NOON, messages=[message])])
    large = {"call_count": 1_234, "input_tokens": 404_850, "output_tokens": 27_000}
    Session.objects.update(message_count=7_059, last_event=12_345, **large)
    Message.objects.update(step_count=1_100, **large)
    return Message.objects.get()


@pytest.mark.parametrize("language", ["en", "zh-hans"])
def test_numbers_have_separators_in_every_language(staff: Client, run: Message, language: str) -> None:
    staff.cookies["django_language"] = language
    assert rows_of(staff.get(f"{SESSIONS}?columns=name,messages,calls"))[0][-2:] == ["7,059", "1,234"]
    page = text_of(staff.get(f"{SESSIONS}{run.session_id}/change/"))
    assert all(number in page for number in ("431,850", "404,850", "27,000"))
    assert "1,100" in page


def test_numbers_in_addresses_have_no_separators(staff: Client, run: Message) -> None:
    for url in (f"{SESSIONS}{run.session_id}/change/", f"{MESSAGES}{run.pk}/change/"):
        html = html_of(staff.get(url))
        assert "after=12345" in html
        assert "12,345" not in html


@pytest.mark.parametrize(("language", "word"), [("en", "Run"), ("zh-hans", "运行")])
def test_answer_is_called_a_run(staff: Client, run: Message, language: str, word: str) -> None:
    staff.cookies["django_language"] = language
    html = html_of(staff.get(f"{MESSAGES}{run.pk}/change/"))
    assert f"<h1><bdi>{word}</bdi></h1>" in html


@pytest.mark.parametrize(("language", "word"), [("en", "API keys"), ("zh-hans", "API 密钥")])
def test_list_is_called_by_what_it_holds(staff: Client, language: str, word: str) -> None:
    staff.cookies["django_language"] = language
    html = html_of(staff.get("/admin/access_app/apikey/"))
    assert f"<title>{word} | Tracesite</title>" in html
    assert f"<h1>{word}</h1>" in html

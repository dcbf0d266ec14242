"""Scores in the admin: thumbs and notes beside answers, and the list."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app import writes
from messages_app.models import Message, Session
from tests.admin_pages import html_of, links_of, rows_of, text_of
from tests.traces_app.admin.test_lists import facets_of
from tests.traces_app.conftest import answer, answered, store
from traces_app.ingest.scores import PlacedScore, store_scores
from traces_app.models import Score, ToolCall
from traces_app.queries import score_sums
from traces_app.queries.scores import find_place
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SCORES = "/admin/traces_app/score/"
MESSAGES = "/admin/messages_app/message/"
HOSTILE = "<script>alert(1)</script> \x1b[31m \u202egnp.exe"


@pytest.fixture
def run(project: Project) -> UUID:
    return answered(project)


def page_of(message: UUID) -> str:
    return f"{MESSAGES}{message}/change/"


def conversation_of(message: UUID) -> str:
    return f"/admin/messages_app/session/{Message.with_deleted.get(pk=message).session_id}/change/"


def press(staff: Client, message: UUID, thumb: str, comment: str = "", back: str = "") -> str:
    data = {"thumb": thumb, "comment": comment, "back": back or conversation_of(message)}
    response = staff.post(f"{MESSAGES}{message}/judge/", data)
    assert response.status_code == 302
    return str(response.headers["Location"])


def judge(project: Project, **fields: object) -> None:
    record = records.Score(**fields)  # type: ignore[arg-type]
    store_scores(
        primary,
        project.pk,
        [PlacedScore(redacted=redact_score(record, DEFAULT_RULES), place=find_place(primary, project.pk, record))],
    )


def test_thumb_and_note_are_shown_where_they_were_given(staff: Client, run: UUID) -> None:
    back = f"{conversation_of(run)}?newest"
    assert press(staff, run, "up", "Exact,\nand short.", back) == f"{back}#scores-{run}"
    score = Score.objects.get()
    assert (score.name, score.value, score.source, score.author) == ("thumbs", True, "person", "ada")
    assert (score.message_id, score.comment) == (run, "Exact,\nand short.")
    for page in (conversation_of(run), page_of(run)):
        html = html_of(staff.get(page))
        assert 'aria-pressed="true" aria-label="Thumbs up"' in html
        assert html.count('aria-pressed="true"') == 1
        assert "Exact,\nand short." in html
    press(staff, run, "down", "Wrong after all.")
    press(staff, run, "note", "See the second source.")
    score = Score.objects.get()
    assert (score.value, score.comment) == (False, "See the second source.")


def test_answer_is_judged_once_it_is_complete(staff: Client, project: Project) -> None:
    run = answered(project, is_completed=False)
    for page in (conversation_of(run), page_of(run)):
        assert "Thumbs up" not in html_of(staff.get(page))
    Message.objects.update(is_completed=True)
    for page in (conversation_of(run), page_of(run)):
        assert "Thumbs up" in html_of(staff.get(page))


def test_note_needs_no_thumb_and_is_taken_back(staff: Client, run: UUID) -> None:
    press(staff, run, "note", "Ask again.")
    assert (Score.objects.get().value, Score.objects.get().comment) == (None, "Ask again.")
    press(staff, run, "note")
    assert not Score.with_deleted.exists()
    press(staff, run, "up")
    press(staff, run, "remove")
    assert not Score.with_deleted.exists()
    press(staff, run, "note")
    assert not Score.with_deleted.exists()


def test_each_reader_has_a_thumb(staff: Client, run: UUID) -> None:
    press(staff, run, "up")
    staff.force_login(User.objects.create_superuser("bob"))
    assert 'aria-pressed="true"' not in html_of(staff.get(page_of(run)))
    press(staff, run, "down")
    assert sorted(Score.objects.values_list("author", "number")) == [("ada", 1.0), ("bob", 0.0)]
    text = text_of(staff.get(page_of(run)))
    assert "person ada" in text
    assert "person bob" in text


def test_judging_is_refused_without_permission_or_message(staff: Client, run: UUID) -> None:
    path = f"{MESSAGES}{run}/judge/"
    assert staff.get(path).status_code == 405
    assert Client().post(path, {"thumb": "up"}).headers["Location"].startswith("/admin/login/")
    reader = Client()
    reader.force_login(User.objects.create_user("eve", is_staff=True))
    assert reader.post(path, {"thumb": "up"}).status_code == 403
    checked = Client(enforce_csrf_checks=True)
    checked.force_login(User.objects.get(username="ada"))
    assert checked.post(path, {"thumb": "up"}).status_code == 403
    assert press(staff, run, "sideways").endswith(f"#scores-{run}")
    assert press(staff, run, "up", "x" * 20_001).endswith(f"#scores-{run}")
    assert not Score.objects.exists()
    assert press(staff, run, "up", back="https://evil.example/").startswith(page_of(run))
    writes.delete_message(primary, run, by="ada")
    press(staff, run, "down")
    assert Score.with_deleted.get().number == 1
    assert "judge/" not in html_of(staff.get(page_of(run)))


def test_secret_in_a_note_reaches_no_table(staff: Client, run: UUID) -> None:
    press(staff, run, "up", "It printed sk-proj-abcdefghijklmnopqrstuvwxyz123456")
    assert "abcdefghijklmnop" not in str(Score.objects.values().get())


def test_scores_of_calls_sessions_and_evaluators_are_shown(staff: Client, run: UUID, project: Project) -> None:
    judge(project, name=HOSTILE, value=0.25, label=HOSTILE, comment=HOSTILE, source="evaluator", author=HOSTILE,
          call_id=str(ToolCall.objects.get(call_id="call_b").pk))  # fmt: skip
    judge(project, name="mood", value="calm", session_id="weather")
    for page in (conversation_of(run), page_of(run)):
        response = staff.get(page)
        assert "<script>alert(1)" not in html_of(response)
        assert "0.25 <script>alert(1)</script>" in text_of(response).replace("\ufffd", "")
    assert "mood calm" in text_of(staff.get(conversation_of(run)))
    writes.delete_session(primary, Message.objects.get(pk=run).session_id, by="ada")
    assert "mood calm" in text_of(staff.get(conversation_of(run)))


def test_page_shows_the_newest_scores_and_links_to_all(staff: Client, run: UUID, project: Project) -> None:
    for number in range(21):
        judge(project, name=f"score {number:02}", value=number, message_id="a1")
    html = html_of(staff.get(page_of(run)))
    assert ("score 00" in html, "score 01" in html, "score 20" in html) == (False, True, True)
    assert f"{SCORES}?message={run}" in html
    assert len(rows_of(staff.get(f"{SCORES}?message={run}"))) == 21


def test_list_of_scores_has_filters(staff: Client, run: UUID, project: Project) -> None:
    judge(project, name="faithful", value=-0.5, message_id="a1", source="evaluator", comment="It invents.")
    judge(project, name="helpful", value=True, call_id="call_b", source="person", author="ada")
    judge(project, name="mood", value="calm", session_id="weather", external_id="m-1")
    judge(project, name="later", value=1, trace_id="0af7651916cd43dd8448eb211c80319c")
    for query, names in (
        ("", ["faithful", "helpful", "later", "mood"]),
        ("name=mood", ["mood"]),
        ("kind=boolean", ["helpful"]),
        ("value=true", ["helpful"]),
        ("value=false", []),
        ("label=calm", ["mood"]),
        ("author=ada", ["helpful"]),
        ("source=evaluator", ["faithful"]),
        ("min_value=-1&max_value=0.5", ["faithful"]),
        ("session=weather", ["faithful", "helpful", "mood"]),
        (f"message={run}", ["faithful", "helpful"]),
        ("q=m-1", ["mood"]),
        ("created=1h", ["faithful", "helpful", "later", "mood"]),
    ):
        found = [
            row
            for row in ("faithful", "helpful", "later", "mood")
            if row in str(rows_of(staff.get(f"{SCORES}?{query}")))
        ]
        assert found == names, query
    text = text_of(staff.get(SCORES))
    assert "It invents." in text
    assert "pending" in text
    for query in ("min_value=x", "kind=stars", "value=maybe", "message=none"):
        assert staff.get(f"{SCORES}?{query}").status_code == 302
    score = Score.objects.get(name="faithful")
    assert "It invents." in text_of(staff.get(f"{SCORES}{score.pk}/change/"))


def test_facets_of_scores_count_names_values_and_authors(staff: Client, run: UUID, project: Project) -> None:
    for number, (value, author) in enumerate(((True, "ada"), (False, "ada"), (False, "bob"))):
        judge(project, name="helpful", value=value, message_id="a1", author=author, external_id=f"h{number}")
    judge(project, name="mood", value="calm", session_id="weather", source="evaluator")
    facets = facets_of(staff, "", SCORES)
    assert facets["name"] == {"helpful": 3, "mood": 1}
    assert facets["value"] == {"true": 1, "false": 2}
    assert facets["label"] == {"calm": 1}
    assert facets["source"] == {"evaluator": 1, "program": 3}
    assert facets["author"] == {"ada": 2, "bob": 1}
    assert facets_of(staff, "?value=false", SCORES)["author"] == {"ada": 1, "bob": 1}
    assert averages(staff.get(SCORES, {"value": "false"})) == ["helpful 2 0% yes"]


def test_score_pages_are_in_chinese(staff: Client, run: UUID) -> None:
    press(staff, run, "up", "好")
    for page in (page_of(run), conversation_of(run), SCORES):
        html = html_of(staff.get(page, headers={"Accept-Language": "zh-hans"}))
        assert "评分" in html
    assert "保存备注" in html_of(staff.get(page_of(run), headers={"Accept-Language": "zh-hans"}))


# --- Averages ---------------------------------------------------------------------------------------------------------


def averages(page: HttpResponse) -> list[str]:
    """Return the texts of the rows above the list."""
    table = re.search(r'average-table">.*?<tbody>(.*?)</tbody>', html_of(page), re.DOTALL)
    found = [] if table is None else re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)
    return [" ".join(unescape(re.sub(r"<[^>]+>", " ", row)).split()) for row in found]


def test_averages_are_by_name_agent_and_model(staff: Client, project: Project) -> None:
    def step(agent: str, model: str) -> dict[str, str]:
        return {"agent_name": agent, "model": model}

    store(
        project,
        answer(external_id="a", agent_steps=[step("planner", "m1"), step("writer", "m2"), step("planner", "m1")]),
        answer(external_id="b", agent_steps=[step("planner", "m2")]),
        external_id="s",
    )
    for message, value in (("a", 0.5), ("b", 1.0)):
        judge(project, name="accuracy", value=value, message_id=message, session_id="s")
    for number, value in enumerate((True, True, False)):
        judge(project, name="<b>helpful</b>", value=value, message_id="b", session_id="s", external_id=f"h{number}")
    # A session counts for its newest run.
    judge(project, name="tone", value="friendly", session_id="s")
    page = staff.get(SCORES)
    assert averages(page) == [
        "<b>helpful</b> 3 67% yes planner 67% × 3 m2 67% × 3",
        "accuracy 2 0.75 planner 0.75 × 2 writer 0.5 × 1 m2 0.75 × 2 m1 0.5 × 1",
        "tone 1 — planner — × 1 m2 — × 1",
    ]
    assert [row[:5] for row in averages(staff.get(SCORES, {"name": "tone"}))] == ["tone "]
    assert len(rows_of(page)) == 6


def test_charts_show_averages_over_time_and_lead_to_scores(staff: Client, project: Project) -> None:
    store(project, answer(external_id="a"), external_id="s", title="Talk")
    now = timezone.now()
    for days, value in ((9, True), (3, True), (3, False)):
        at = now - timedelta(days=days)
        judge(project, name="helpful", value=value, session_id="s", created_at=at, external_id=f"{days} {value}")
    judge(project, name="accuracy", value=-2, message_id="a", session_id="s")
    judge(project, name="tone", value="friendly", session_id="s")
    page = staff.get(SCORES)
    # A category has no average.
    assert re.findall(r"<figcaption><strong>([^<]+)</strong>", html_of(page)) == ["67%", "-2"]
    points = re.findall(r'<a href="([^"]+)"[^>]*><rect[^>]*></rect><text[^>]*>([^<]+)', html_of(page))
    assert [words.partition(" · ")[2] for _url, words in points] == ["100% · 1 score", "50% · 2 scores", "-2 · 1 score"]
    assert len(rows_of(staff.get(SCORES + unescape(points[1][0])))) == 2


def test_changed_average_leads_to_the_scores_since(staff: Client, project: Project) -> None:
    store(project, answer(external_id="a"), external_id="s", title="Talk")
    now = timezone.now()
    for days in range(2, 14, 2):
        at = now - timedelta(days=days)
        judge(project, name="helpful", value=True, session_id="s", created_at=at, external_id=f"before {days}")
    assert "since" not in text_of(staff.get(SCORES))
    for hours in (1, 14):
        at = now - timedelta(hours=hours)
        judge(project, name="helpful", value=False, session_id="s", created_at=at, external_id=f"after {hours}")
    page = staff.get(SCORES)
    (caption,) = re.findall(r"<figcaption>(.*?)</figcaption>", html_of(page), re.DOTALL)
    words = " ".join(re.sub(r"<[^>]+>", " ", caption).split())
    assert re.fullmatch(r"75% yes helpful ▼ 0% in 2 scores since [0-9-]+ [0-9:]+ · before 100% of 6", words)
    assert averages(page)[0].startswith("helpful 8 75% yes")
    (url,) = re.findall(r'<a href="([^"]+)">0% in 2 scores since', caption)
    assert [row[0] for row in rows_of(staff.get(SCORES + unescape(url)))] == ["no", "no"]


def test_what_all_scores_of_a_page_say_has_no_column(staff: Client, run: UUID, project: Project) -> None:
    for number in range(2):
        judge(
            project,
            name="helpful",
            value=True,
            message_id=str(run),
            source="person",
            author="ada",
            external_id=f"{number}",
        )
    heads = re.findall(r'scope="col" class="column-(\w+)"', html_of(staff.get(SCORES)))
    assert heads == ["shown", "about", "created"]
    judge(project, name="tone", value=0.5, message_id=str(run), comment="calm", external_id="2")
    heads = re.findall(r'scope="col" class="column-(\w+)"', html_of(staff.get(SCORES)))
    assert heads == ["shown", "shown_name", "shown_comment", "about", "who", "created"]
    chosen = re.findall(r'scope="col" class="column-(\w+)"', html_of(staff.get(f"{SCORES}?name=helpful&columns=who")))
    assert chosen == ["shown", "who"]


def test_rows_lead_to_the_runs_that_they_are_about(staff: Client, project: Project) -> None:
    store(project, answer(external_id="a"), external_id="s", title="Talk")
    judge(project, name="accuracy", value=1, message_id="a", session_id="s")
    run = f"/admin/messages_app/message/{Message.objects.get().pk}/change/"
    assert links_of(staff.get(SCORES))["Talk"] == run
    judge(project, name="helpful", value=True, session_id="s")
    links = links_of(staff.get(SCORES, {"name": "helpful"}))
    assert (links["Talk"], links["newest run"]) == (
        f"/admin/messages_app/session/{Session.objects.get().pk}/change/",
        run,
    )


def test_averages_follow_filters_of_the_list(staff: Client, project: Project, stranger: Project) -> None:
    for owner, value in ((project, 1), (stranger, 3)):
        store(owner, answer(external_id="a"), external_id="s")
        judge(owner, name="accuracy", value=value, message_id="a", session_id="s", source="evaluator")
    assert averages(staff.get(SCORES))[0].startswith("accuracy 2 2")
    assert averages(staff.get(SCORES, {"project": "owner"}))[0].startswith("accuracy 1 1")
    assert averages(staff.get(SCORES, {"min_value": "2"}))[0].startswith("accuracy 1 3")
    for query in ("source=person", "created_before=2020-01-01", "q=x", "session=s&project=owner", "project=x"):
        assert averages(staff.get(f"{SCORES}?{query}")) == []
    client, user = Client(), User.objects.create_user("eve", is_staff=True)
    client.force_login(user)
    grant_role(project, user, Role.VIEWER)
    assert averages(client.get(SCORES))[0].startswith("accuracy 1 1")


def test_averages_are_of_the_newest_scores(staff: Client, run: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(score_sums, "MOST_READ", 1)
    press(staff, run, "up")
    project = Project.objects.get()
    judge(project, name="accuracy", value=2, message_id=str(run))
    page = staff.get(SCORES)
    assert [row.split()[0] for row in averages(page)] == ["accuracy"]
    assert "Averages of the newest 1 scores of this list." in text_of(page)

"""Groups of equal errors in the admin: each leads to its calls, its example and its tool."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import AuditEntry, MaskingRule, Project, Role
from access_app.roles import grant_role
from messages_app import writes
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import store
from traces_app.models import ErrorGroupState, Tool, ToolCall
from traces_app.queries import error_groups

ERRORS = "/admin/traces_app/toolcall/errors/"


def run(name: str, hours: float, *errors: tuple[str, str]) -> dict[str, Any]:
    calls = [{"name": tool, "result": {"success": False, "error": error}} for tool, error in errors]
    created_at = timezone.now() - timedelta(hours=hours)
    return {"external_id": name, "role": "assistant", "created_at": created_at, "agent_steps": [{"tool_calls": calls}]}


@pytest.fixture
def traces(project: Project, stranger: Project) -> None:
    store(
        project,
        run("old", 30, ("search", "no disk")),
        run("one", 3, ("search", "timeout after 31 s"), ("read", "timeout after 2 s")),
        run("two", 1, ("read", "no <b>key</b> 'a'")),
    )
    store(stranger, run("three", 2, ("search", "timeout after 9 s")))


def target(page: Any, name: str) -> str:
    return next(url for text, url in links_of(page).items() if text.startswith(name)).replace("&amp;", "&")


def calls_of(staff: Client, page: Any, pattern: str) -> Any:
    """Follow a row to the group, and from there to its calls."""
    selected = staff.get(f"{page.wsgi_request.path}{target(page, pattern).partition('#')[0]}")
    return staff.get(next(url for url in links_of(selected).values() if "error_group=" in url).replace("&amp;", "&"))


def mark(client: Client, group: str, state: str, note: str = "", *projects: str) -> Any:
    data = {"state": state, "note": note, "project": projects or ("owner", "stranger"), "back": f"{ERRORS}?created=7d"}
    return client.post(f"/admin/traces_app/errorgroupstate/{group}/mark/", data)


def group_of(error: str) -> str:
    found = error_groups.group_of_call(primary, ToolCall.objects.get(result__error=error).pk)
    assert found is not None
    return found


@pytest.mark.usefixtures("traces")
def test_groups_lead_to_their_calls_and_examples(staff: Client) -> None:
    page = staff.get(ERRORS)
    text = text_of(page)
    assert "4 failed calls in 2 groups" in text
    assert text.index("timeout after # s new error search 2 read 1 3") < text.index(
        "no <b>key</b> 'a' new error read 1"
    )
    assert "no disk" not in text
    calls = calls_of(staff, page, "timeout after #")
    assert len(rows_of(calls)) == 3
    assert "error group timeout after # s" in text_of(calls)
    assert "no <b>key</b>" in text_of(calls_of(staff, page, "no <b>key</b>"))
    assert "timeout after 9 s" in text_of(staff.get(target(page, "Open in its run").partition("#")[0]))


@pytest.mark.usefixtures("traces")
def test_headline_has_the_values_of_the_newest_example(staff: Client, project: Project) -> None:
    page = staff.get(ERRORS)
    assert "<h2><bdi>timeout after 9 s</bdi></h2>" in html_of(page)
    text = text_of(page)
    assert text.index("Group: timeout after # s 3 calls") < text.index("Last example") < text.rindex("Calls over time")
    assert 'class="value code"><div class="text">timeout after 9 s' not in html_of(page), "it is said once"
    store(project, run("long", 0, ("search", "first line\nsecond <b>line")), external_id="long")
    other = staff.get(f"{ERRORS}{target(page, 'no <b>key').partition('#')[0]}")
    assert "Group:" not in text_of(other) and "<h2><bdi>no &lt;b&gt;key&lt;/b&gt; &#x27;a&#x27;</bdi></h2>" in html_of(
        other
    )
    last = staff.get(ERRORS, {"o": "last_seen"})
    assert "<h2><bdi>first line second &lt;b&gt;line</bdi></h2>" in html_of(last)
    assert 'class="value code"><div class="text">first line\nsecond &lt;b&gt;line' in html_of(last)


@pytest.mark.usefixtures("traces")
def test_note_is_behind_a_link_and_keeps_the_state(staff: Client) -> None:
    group = group_of("timeout after 31 s")
    assert "Add a note" in text_of(staff.get(ERRORS))
    assert '<button name="state" value="open" class="tool-button">Save the note' in html_of(staff.get(ERRORS))
    mark(staff, group, "ignored", "known")
    page = staff.get(ERRORS, {"state": "ignored"})
    assert "known" in text_of(page) and "Change the note" in text_of(page)
    assert '<button name="state" value="ignored" class="tool-button">Save the note' in html_of(page)


@pytest.mark.usefixtures("traces")
def test_failed_call_leads_to_calls_and_runs_that_failed_alike(staff: Client, project: Project) -> None:
    failed = ToolCall.objects.get(result__error="timeout after 31 s")
    page = staff.get(f"/admin/traces_app/toolcall/{failed.pk}/change/", follow=True)
    alike = rows_of(staff.get(target(page, "Calls with this error")))
    assert sorted(row[0] for row in alike) == ["read", "search"]
    assert "Failures like this one" in text_of(staff.get(target(page, "Failures like this one")))
    writes.delete_session(primary, failed.message.session_id, by="ada")
    page = staff.get(f"/admin/traces_app/toolcall/{failed.pk}/change/", follow=True)
    assert [label for label, _url in page.context["detail"].links] == ["Calls with this error"]
    store(
        project,
        {**run("good", 1), "agent_steps": [{"tool_calls": [{"name": "good", "result": "ok"}]}]},
        external_id="other",
    )
    good = ToolCall.objects.get(tool__name="good")
    page = staff.get(f"/admin/traces_app/toolcall/{good.pk}/change/", follow=True)
    assert "Calls with this error" not in links_of(page)


@pytest.mark.parametrize(
    ("query", "warning"),
    [
        ("tool=nope", "Tool “nope” is not in the projects of this page. The errors of all tools are shown."),
        ("tool=a%00b", "is not in the projects of this page. The errors of all tools are shown."),
        ("tool=secret&project=owner", "Tool “secret” is not in the projects of this page."),
        ("model=x&tools=search", "This page has no such filter: model, tools. It is shown without."),
        ("tool=search&project=owner&created=7d&o=count&entered_in=Asia/Tokyo&_x=1", ""),
    ],
)
@pytest.mark.usefixtures("traces")
def test_filters_that_page_lacks_are_reported(staff: Client, stranger: Project, query: str, warning: str) -> None:
    store(stranger, run("four", 2, ("secret", "x")), external_id="four")
    text = text_of(staff.get(f"{ERRORS}?{query}", follow=True))
    assert warning in text
    assert ("It is shown without." in text or "is not in the projects" in text) == bool(warning)


@pytest.mark.usefixtures("traces")
def test_project_tool_and_period_limit_groups_and_their_calls(staff: Client) -> None:
    page = staff.get(ERRORS, {"project": "owner", "tool": "search", "created": "7d"})
    assert "2 failed calls in 2 groups" in text_of(page)
    assert len(rows_of(calls_of(staff, page, "timeout after #"))) == 1
    assert "No call failed." in text_of(staff.get(ERRORS, {"created_before": "2020-01-01"}))


@pytest.mark.usefixtures("traces")
def test_groups_are_sorted_by_each_time(staff: Client) -> None:
    for order in ("last_seen", "first_seen"):
        text = text_of(staff.get(ERRORS, {"o": order, "created": "7d"}))
        assert text.index("no <b>key") < text.index("timeout after #") < text.index("no disk")


@pytest.mark.usefixtures("traces")
def test_groups_are_sorted_by_tool(staff: Client) -> None:
    text = text_of(staff.get(ERRORS, {"o": "tool", "created": "7d"}))
    # "read" is the first of the two tools of "timeout", which occurred before the key was missing.
    assert text.index("no <b>key") < text.index("timeout after #") < text.index("no disk")


@pytest.mark.usefixtures("traces")
def test_errors_are_searched_by_words_of_their_pattern(staff: Client) -> None:
    text = text_of(staff.get(ERRORS, {"q": "TIMEOUT after", "created": "7d"}))
    assert "3 failed calls in 1 groups" in text
    assert "All tools search (2) read (1)" in text
    assert "No error matches." in text_of(staff.get(ERRORS, {"q": "timeout disk", "created": "7d"}))
    assert "No error matches." in text_of(staff.get(ERRORS, {"q": "100%_\\"}))


def test_agents_and_end_users_limit_groups(staff: Client, project: Project) -> None:
    def by(agent: str, name: str) -> dict[str, Any]:
        made = run(name, 1, ("search", f"{agent} failed"))
        made["agent_steps"][0]["agent_name"] = agent
        return made

    store(project, by("planner", "a"), by("writer", "b"), external_id="s", end_user="<b>mei</b>")
    store(project, by("planner", "c"), external_id="t", end_user="noah")
    page = staff.get(ERRORS, {"agent": "planner"})
    text = text_of(page)
    assert "2 failed calls in 1 groups" in text
    assert "All tools search (2) All agents planner (2) writer (1)" in text
    assert "End users (2)" in text
    assert links_of(page)["<b>mei</b>"] == "/admin/messages_app/session/user/?end_user=%3Cb%3Emei%3C%2Fb%3E"
    assert len(rows_of(calls_of(staff, page, "planner failed"))) == 2
    of_noah = staff.get(ERRORS, {"end_user": "noah"})
    assert "1 failed calls in 1 groups" in text_of(of_noah)
    assert len(rows_of(calls_of(staff, of_noah, "planner failed"))) == 1


@pytest.mark.usefixtures("traces")
def test_resolved_error_is_hidden_until_it_occurs_again(staff: Client, project: Project) -> None:
    group = group_of("timeout after 31 s")
    assert mark(staff, group, "resolved", "fixed in <b>1.4</b>").headers["Location"] == f"{ERRORS}?created=7d"
    page = staff.get(ERRORS)
    assert "1 failed calls in 1 groups" in text_of(page)
    assert "timeout" not in text_of(page)
    shown = text_of(staff.get(ERRORS, {"state": "resolved"}))
    assert "resolved ada" in shown
    assert "fixed in <b>1.4</b>" in shown
    assert "Open again" in shown
    ErrorGroupState.objects.update(at=timezone.now() - timedelta(hours=2, minutes=30))
    # In the other project it occurred after that.
    assert "timeout after # s back" in text_of(staff.get(ERRORS))
    assert "timeout" not in text_of(staff.get(ERRORS, {"project": "owner"}))
    store(project, run("again", 0, ("search", "timeout after 4 s")), external_id="again")
    assert "timeout after # s back" in text_of(staff.get(ERRORS, {"project": "owner"}))
    mark(staff, group, "open")
    assert "timeout after # s new error" in text_of(staff.get(ERRORS))


@pytest.mark.usefixtures("traces")
def test_ignored_error_stays_hidden_and_is_reachable(staff: Client, project: Project) -> None:
    mark(staff, group_of("timeout after 31 s"), "ignored", "", "owner")
    assert "timeout" in text_of(staff.get(ERRORS))  # of the other project
    assert "timeout" not in text_of(staff.get(ERRORS, {"project": "owner"}))
    store(project, run("again", 0, ("search", "timeout after 4 s")), external_id="again")
    assert "timeout" not in text_of(staff.get(ERRORS, {"project": "owner"}))
    for state in ("ignored", "all"):
        assert "timeout after # s Ignored" in text_of(staff.get(ERRORS, {"project": "owner", "state": state}))


@pytest.mark.usefixtures("traces")
def test_editors_decide_about_errors_and_viewers_do_not(project: Project, stranger: Project) -> None:
    client, user = Client(), User.objects.create_user("eve", is_staff=True)
    client.force_login(user)
    group = group_of("timeout after 31 s")
    grant_role(project, user, Role.VIEWER)
    assert "Resolve</button>" not in html_of(client.get(ERRORS))
    assert mark(client, group, "resolved", "", "owner").status_code == 403
    grant_role(project, user, Role.EDITOR)
    assert "Resolve</button>" in html_of(client.get(ERRORS))
    assert mark(client, group, "resolved", "", "owner").status_code == 302
    assert mark(client, group, "resolved", "", "stranger").status_code == 404
    grant_role(stranger, user, Role.VIEWER)
    assert mark(client, group, "resolved", "", "owner", "stranger").status_code == 403
    assert list(ErrorGroupState.objects.values_list("project__slug", "state", "by__username")) == [
        ("owner", "resolved", "eve")
    ]
    entry = AuditEntry.objects.filter(object_type="errorgroupstate", result="allowed").latest("pk")
    assert (entry.action, entry.object_id, entry.project_id, entry.detail["resolved"]) == (
        "change",
        group,
        project.pk,
        1,
    )


@pytest.mark.parametrize(
    ("group", "data", "status"),
    [("x", {"state": "resolved"}, 404), ("0" * 32, {"state": "gone"}, 302), ("0" * 32, {"note": "x" * 2001}, 302)],
)
def test_invalid_decision_stores_nothing(
    staff: Client, project: Project, group: str, data: dict[str, str], status: int
) -> None:
    url = f"/admin/traces_app/errorgroupstate/{group}/mark/"
    back = "https://example.com/"
    response = staff.post(url, {"state": "ignored", "project": "owner", "back": back, **data})
    assert response.status_code == status
    assert response.headers.get("Location") in (None, ERRORS)
    assert staff.get(url).status_code == 405
    assert not ErrorGroupState.objects.exists()


@pytest.mark.usefixtures("traces")
def test_reader_of_masked_values_cannot_search_errors(project: Project) -> None:
    client, user = Client(), User.objects.create_user("eve", is_staff=True)
    client.force_login(user)
    grant_role(project, user, Role.VIEWER)
    MaskingRule.objects.create(project=project, name="disk", kind="pattern", value="timeout")
    text = text_of(client.get(ERRORS, {"q": "timeout"}))
    assert "Your role reads errors masked, so they cannot be searched." in text
    assert "3 failed calls in 2 groups" in text


@pytest.mark.usefixtures("traces")
def test_deleted_calls_are_in_no_group(staff: Client) -> None:
    writes.delete_message(primary, Message.objects.get(external_id="one").pk, by="ada")
    assert "2 failed calls in 2 groups" in text_of(staff.get(ERRORS))


@pytest.mark.usefixtures("traces")
def test_home_tools_and_bar_lead_to_the_groups(staff: Client) -> None:
    assert links_of(staff.get("/admin/"))["Errors"] == ERRORS
    for url in ("/admin/?project=owner", "/admin/traces_app/tool/statistics/?project=owner"):
        assert "3 failed calls in 2 groups" in text_of(staff.get(target(staff.get(url), "All errors")))
    tool = Tool.objects.get(name="search", project__slug="owner")
    page = staff.get(f"/admin/traces_app/tool/{tool.pk}/change/")
    assert len(rows_of(staff.get(target(page, "timeout")))) == 1
    assert f'href="{ERRORS}?project=owner&amp;tool=search' in html_of(page)


@pytest.mark.usefixtures("traces")
def test_page_says_if_calls_were_left_out(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(error_groups, "MOST_READ", 2)
    found = staff.get(ERRORS, {"q": "key"})
    assert "1 failed calls in 1 groups" in text_of(found)
    # The range of what was read, not that of what was found.
    assert found.context["found"].counted_from < found.context["found"].groups[0].first_at
    assert "There are too many failed calls: only those since" in text_of(staff.get(ERRORS))


def test_first_call_is_the_first_ever(staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    store(project, run("first", 100, ("search", "no disk")), run("other", 50, ("search", "no key")))
    store(project, run("now", 3, ("search", "no disk")), run("new", 2, ("read", "no net")), external_id="t")
    first = Message.objects.get(external_id="first").created_at
    page = staff.get(ERRORS)
    by_pattern = {row.group.pattern: row.first_at for row in page.context["rows"]}
    assert by_pattern == {"no disk": first, "no net": Message.objects.get(external_id="new").created_at}
    order = [row.group.pattern for row in staff.get(ERRORS, {"o": "first_seen"}).context["rows"]]
    assert order == ["no net", "no disk"]
    assert "were not read for “First”" not in text_of(page)
    monkeypatch.setattr(error_groups, "MOST_READ", 2)
    store(project, run("more", 40, ("search", "a"), ("search", "b")), external_id="u")
    cut = staff.get(ERRORS)
    assert {row.first_at < first + timedelta(hours=90) for row in cut.context["rows"]} == {False}
    assert "were not read for “First”" in text_of(cut)


def test_group_shows_its_example_and_newest_runs(staff: Client, project: Project) -> None:
    def failing(number: int) -> dict[str, Any]:
        made = run(f"r{number}", 7 - number, ("search", "no disk"))
        made["agent_steps"][0]["tool_calls"][0]["args"] = {"path": f"<b>/srv/{number}</b>"}
        return made

    good = run("good", 9)
    good["agent_steps"][0]["tool_calls"] = [{"name": "search", "result": "found"}]
    asked = {"role": "user", "content": "Which city?"}
    long_ago = timezone.now() - timedelta(hours=10)
    store(project, {**asked, "external_id": "q0", "created_at": long_ago}, good, external_id="well")
    for number in range(1, 7):
        at = timezone.now() - timedelta(hours=7 - number, minutes=1)
        store(project, {**asked, "external_id": "q", "created_at": at}, failing(number), external_id=f"s{number}")
    page = staff.get(ERRORS)
    assert "Arguments" in text_of(page) and "<b>/srv/6</b>" in text_of(page)
    runs = [Message.objects.get(external_id=f"r{number}").pk for number in range(6, 1, -1)]
    assert [call.listed.run.pk for call in page.context["runs"]] == runs
    compare = links_of(page)["Compare with the last good run"]
    assert str(runs[0]) in compare and str(Message.objects.get(external_id="good").pk) in compare
    assert staff.get(compare).status_code == 200
    # A bar leads to its calls.
    urls = [bar.url for bar in page.context["chart"].bars if bar.url]
    assert sum(len(rows_of(staff.get(url))) for url in urls) == 6


@pytest.mark.usefixtures("traces")
def test_group_without_a_good_run_leads_to_one_like_it(staff: Client) -> None:
    page = staff.get(ERRORS)
    assert "Compare with the last good run" not in text_of(page)
    assert links_of(page)["Compare with a good run"].endswith("/compare/?good")
    assert len(page.context["runs"]) == 2


@pytest.mark.usefixtures("traces")
def test_page_of_errors_takes_constant_queries(staff: Client, project: Project) -> None:
    before = len(statements_of(staff, ERRORS))
    store(project, run("more", 1, *((f"tool {at % 20}", f"error {chr(97 + at % 26)}") for at in range(60))))
    assert len(statements_of(staff, ERRORS)) == before <= 34


@pytest.mark.parametrize("query", ["created=x", "created_after=x"])
def test_invalid_range_of_errors_is_reported(staff: Client, query: str) -> None:
    page = text_of(staff.get(f"{ERRORS}?{query}"))
    assert "Invalid filter: time “x”. Use " in page
    assert "The last 24 hours are shown." in page


def test_errors_of_the_tool_without_a_name_are_shown(staff: Client, project: Project) -> None:
    store(project, run("x", 1, ("", "no name"), ("search", "no disk")))
    tool = Tool.objects.get(name="")
    text = text_of(staff.get(f"/admin/traces_app/tool/{tool.pk}/change/"))
    assert "1× no name" in text
    assert "no disk" not in text


def test_page_of_errors_needs_permission(project: Project) -> None:
    client = Client()
    client.force_login(User.objects.create_user("eve", is_staff=True))
    assert client.get(ERRORS).status_code == 403

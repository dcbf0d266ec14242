"""Saved views of the admin's lists: save the filters under a name, share, rename and delete them."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.test import Client

from access_app.masking import save_rule
from access_app.models import Project, Role
from access_app.roles import grant_role
from messages_app.admin import saved_views
from messages_app.models import SavedView
from tests.admin_pages import html_of, links_of, statements_of, text_of

pytestmark = pytest.mark.django_db
SESSIONS, CALLS = "/admin/messages_app/session/", "/admin/traces_app/toolcall/"


@pytest.fixture
def other(db: None) -> Client:
    """Another superuser, logged in."""
    client = Client()
    client.force_login(User.objects.create_superuser("bob"))
    return client


def save(client: Client, url: str, name: str, query: str, **fields: str) -> str:
    """Save a view and return the text of the page behind it."""
    return text_of(client.post(f"{url}views/", {"name": name, "query": query, **fields}, follow=True))


def test_filters_are_saved_and_opened_by_name(staff: Client) -> None:
    assert "Save this view" not in html_of(staff.get(SESSIONS))
    page = staff.get(SESSIONS, {"status": "error", "q": "上海", "order": "activity"})
    assert "Save this view" in html_of(page)
    assert 'name="query" value="order=activity&amp;q=%E4%B8%8A%E6%B5%B7&amp;status=error"' in html_of(page)
    response = staff.post(f"{SESSIONS}views/", {"name": " Broken ", "query": "status=error&cursor=x&e=1&tag="})
    assert response.headers["Location"] == f"{SESSIONS}?status=error"
    view = SavedView.objects.get()
    assert (view.name, view.query, view.list_name) == ("Broken", "status=error", "messages_app.session")
    assert not view.shared
    page = staff.get(SESSIONS, {"status": "error"})
    assert "The view “Broken” was saved." in text_of(page)
    assert links_of(page)["Broken"] == "?status=error"
    assert '<a href="?status=error" aria-current="page">' in html_of(page)
    assert html_of(staff.get(SESSIONS)).count('aria-current="page"') == 1  # the list itself
    # A view belongs to its list, and not to its trash.
    assert "Broken" not in links_of(staff.get(CALLS))
    assert "Broken" not in links_of(staff.get(f"{SESSIONS}trash/"))


def test_saving_under_a_used_name_replaces_the_filters(staff: Client) -> None:
    save(staff, CALLS, "Slow", "min_duration=100")
    save(staff, CALLS, "Slow", "min_duration=5000", shared="on")
    assert list(SavedView.objects.values_list("query", "shared")) == [("min_duration=5000", True)]


def test_shared_views_are_shown_to_others_who_cannot_change_them(staff: Client, other: Client) -> None:
    save(staff, SESSIONS, "Mine", "status=error")
    save(staff, SESSIONS, "Ours", "status=paused", shared="on")
    page = other.get(SESSIONS)
    assert "Mine" not in links_of(page)
    assert links_of(page)["Ours"] == "?status=paused"
    assert "by ada" in text_of(page)
    keys = dict(SavedView.objects.values_list("name", "pk"))
    for fields in ({"name": "Bob's"}, {"delete": "confirmed"}):
        assert other.post(f"{SESSIONS}views/{keys['Ours']}/", fields).status_code == 403
        assert other.post(f"{SESSIONS}views/{keys['Mine']}/", fields).status_code == 404
    assert other.get(f"{SESSIONS}views/{keys['Ours']}/").status_code == 403
    # Of another list.
    assert staff.get(f"{CALLS}views/{keys['Ours']}/").status_code == 404
    # Both may have a view of one name.
    save(other, SESSIONS, "Ours", "status=running")
    assert SavedView.objects.filter(name="Ours").count() == 2


def test_view_is_shared_within_projects_and_with_those_who_may_read_its_filters(staff: Client) -> None:
    clients = {}
    for name, project, role in (("bo", "one", Role.EDITOR), ("cy", "one", Role.VIEWER), ("di", "two", Role.OWNER)):
        user = User.objects.create_user(name, is_staff=True)
        grant_role(Project.objects.get_or_create(slug=project)[0], user, role)
        clients[name] = Client()
        clients[name].force_login(user)
    save_rule(Project.objects.get(slug="one"), "staff", "pattern", r"EMP-\d{6}", when="read")
    save(clients["bo"], SESSIONS, "Broken", "status=error", shared="on")
    save(clients["bo"], SESSIONS, "Of one", "tag=EMP-471193", shared="on")
    save(staff, SESSIONS, "Paused", "status=paused", shared="on")
    names = {"Broken", "Of one", "Paused"}
    seen = {name: names & links_of(client.get(SESSIONS)).keys() for name, client in clients.items()}
    assert seen == {"bo": names, "cy": {"Broken", "Paused"}, "di": {"Paused"}}
    assert names <= links_of(staff.get(SESSIONS)).keys()
    key = SavedView.objects.get(name="Broken").pk
    assert clients["di"].get(f"{SESSIONS}views/{key}/").status_code == 404


def test_owner_renames_shares_and_deletes_a_view(staff: Client) -> None:
    save(staff, SESSIONS, "One", "status=error")
    save(staff, SESSIONS, "Two", "status=paused")
    url = links_of(staff.get(SESSIONS))["✎"]
    assert 'value="One"' in html_of(staff.get(url))
    assert "You have a view with this name." in text_of(staff.post(url, {"name": "Two"}))
    page = staff.post(url, {"name": "Three", "shared": "on"}, follow=True)
    assert page.redirect_chain == [(f"{SESSIONS}?status=error", 302)]
    assert set(SavedView.objects.values_list("name", "shared")) == {("Three", True), ("Two", False)}
    page = staff.get(url)
    assert links_of(page)["status “error”"] == f"{SESSIONS}?status=error" and "danger" in html_of(page)
    asked = text_of(staff.post(url, {"delete": "asked"}))
    assert "The rows that it shows stay." in asked and "It is shared: others lose it, too." in asked
    assert SavedView.objects.count() == 2
    assert "The view “Three” was deleted." in text_of(staff.post(url, {"delete": "confirmed"}, follow=True))
    assert [view.name for view in SavedView.objects.all()] == ["Two"]


def test_view_without_filters_or_name_is_refused(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "Filter or search the list before you save a view of it." in save(staff, SESSIONS, "All", "cursor=x&tag=")
    assert "This field is required." in save(staff, SESSIONS, " ", "status=error")
    assert "Null characters are not allowed." in save(staff, SESSIONS, "x", "status=\x00")
    assert "at most 2000 characters" in save(staff, SESSIONS, "x", "q=" + "x" * 2000)
    assert "at most 80 characters" in save(staff, SESSIONS, "x" * 81, "status=error")
    assert staff.get(f"{SESSIONS}views/").status_code == 405
    assert not SavedView.objects.exists()
    monkeypatch.setattr(saved_views, "VIEWS_SHOWN", 1)
    save(staff, SESSIONS, "One", "status=error")
    save(staff, SESSIONS, "One", "status=paused")
    assert "You have 1 views of this list. Delete one first." in save(staff, SESSIONS, "Two", "status=error")
    assert [view.query for view in SavedView.objects.all()] == ["status=paused"]


def test_hostile_name_and_query_are_shown_as_text(staff: Client) -> None:
    hostile = "<script>alert(1)</script>"
    save(staff, SESSIONS, hostile, f"q={hostile}&status=error", shared="on")
    page = html_of(staff.get(SESSIONS))
    assert hostile not in page
    assert 'href="?q=%3Cscript%3Ealert%281%29%3C%2Fscript%3E&amp;status=error"' in page
    (view,) = SavedView.objects.all()
    assert hostile not in html_of(staff.get(f"{SESSIONS}views/{view.pk}/"))


def test_views_take_one_query_and_are_bounded(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def statements() -> list[str]:
        return [text for text in statements_of(staff, SESSIONS) if "savedview" in text]

    for number in range(5):
        save(staff, SESSIONS, f"v{number}", "status=error", shared="on")
    assert len(statements()) == 1
    monkeypatch.setattr(saved_views, "VIEWS_SHOWN", 2)
    links = links_of(staff.get(SESSIONS))
    assert [name for name in ("v0", "v1", "v2") if name in links] == ["v0", "v1"]
    # One that is not shown any more can still be changed.
    assert staff.get(f"{SESSIONS}views/{SavedView.objects.get(name='v4').pk}/").status_code == 200


def test_views_need_access_to_the_list(client: Client, staff: Client) -> None:
    save(staff, SESSIONS, "Ours", "status=error", shared="on")
    url = f"{SESSIONS}views/{SavedView.objects.get().pk}/"
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert client.get(url).status_code == 403
    assert client.post(f"{SESSIONS}views/", {"name": "x", "query": "status=error"}).status_code == 403
    assert SavedView.objects.count() == 1


def test_lists_with_titles_of_their_own_have_their_own_views(staff: Client) -> None:
    messages, failed = "/admin/messages_app/message/", f"{CALLS}?status=error"
    runs = f"{messages}?role=assistant"
    assert "Save this view" not in html_of(staff.get(runs))
    for url, query in ((messages, "tool=a&role=assistant"), (messages, "tool=a"), (CALLS, "tool=a&status=error")):
        save(staff, url, "One", query)
    shown = {url: links_of(staff.get(url)).get("One") for url in (runs, messages, failed, CALLS)}
    assert shown == {
        runs: "?role=assistant&tool=a",
        messages: "?tool=a",
        failed: "?status=error&tool=a",
        CALLS: None,
    }
    page = staff.post(links_of(staff.get(runs))["✎"], {"delete": "confirmed"})
    assert page.headers["Location"] == runs
    assert "One" not in links_of(staff.get(runs))
    assert "One" in links_of(staff.get(messages))


def test_name_is_unique_for_an_owner_and_a_list(staff: Client) -> None:
    save(staff, SESSIONS, "One", "status=error")
    (view,) = SavedView.objects.all()
    view.pk = None
    with pytest.raises(IntegrityError), transaction.atomic():
        view.save()
    # Views go with their owner.
    User.objects.get(username="ada").delete()
    assert not SavedView.objects.exists()

"""No page of the admin has a hidden character of a trace, a view or a login as it is stored: neither in texts nor in attributes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from io import StringIO
from urllib.parse import parse_qs, urldefrag, urljoin, urlsplit

from django.contrib.auth.models import Group, User
from django.core.management import call_command
from django.test import Client
from django.urls import resolve

from access_app.models import Project
from messages_app.models import SavedView
from tests.traces_app.admin.pages import FROM_BASE, NO_PAGES, admins, url_words
from tests.traces_app.conftest import store
from tests.traces_app.planted import Garden, plant

HIDDEN = "\u202e\u200b\x1b"
NAME = f"T{HIDDEN}B"
TESTED_ALONE = frozenset(["input", "purge", "restore", "snapshot", "snapshots", "spans"])
"""Pages that need more than what is planted: see their own tests."""
# What somebody edits is what is stored, and so is the value of a checkbox.
_VALUES = re.compile(r"<textarea.*?</textarea>|(?<=<input)([^>]*) value=\"[^\"]*\"", re.DOTALL)
_LINK = re.compile(r'<a [^>]*href="([^"]+)"')
MOST_OF_A_KIND = 3
"""Not every session has everything that a page about it shows."""
_ID = re.compile("[0-9a-f-]{36}|[0-9]+")


def pages(client: Client) -> Iterator[tuple[str, str]]:
    """Yield the pages that links lead to from the index, MOST_OF_A_KIND of each kind, with their addresses."""
    waiting, seen, kinds = ["/admin/"], {"/admin/"}, Counter[str]()
    while waiting:
        path = waiting.pop(0)
        response = client.get(path, follow=True)
        if not response.headers["Content-Type"].startswith("text/html"):
            continue
        html = response.getvalue().decode()
        yield path, html
        for link in map(unescape, _LINK.findall(html)):
            found = urldefrag(urljoin(path, link)).url
            names = sorted(parse_qs(urlsplit(found).query))
            kind = f"{_ID.sub('', urlsplit(found).path)}?{names}"
            if not found.startswith("/admin/") or len(names) >= 3 or "logout" in found or found in seen:
                continue
            seen.add(found)
            kinds[kind] += 1
            if kinds[kind] <= MOST_OF_A_KIND:
                waiting.append(found)


def test_no_page_has_hidden_characters(project: Project, admin_client: Client, client_of_key: Client) -> None:
    plant(Garden(f"T{HIDDEN}B {{}}"), client_of_key)
    call = {"id": NAME, "name": NAME, "result": {"success": False, "error": NAME}}
    store(
        project,
        {"role": "assistant", "agent_steps": [{"tool_calls": [call]}]},
        external_id=NAME,
        title=NAME,
        end_user=NAME,
    )
    call_command("index_search", stdout=StringIO())
    owner = User.objects.create(username="bob")
    Group.objects.create(name="readers")
    SavedView.objects.create(list_name="messages_app.session", name=NAME, owner=owner, shared=True)
    Client().post("/admin/login/", {"username": NAME, "password": NAME})

    shown, looked_at = [], set()
    for path, html in pages(admin_client):
        looked_at.add(urlsplit(path).path)
        seen = _VALUES.sub(r"\1", html)
        places = [seen[max(0, at - 80) : at + 40] for at in map(seen.find, HIDDEN) if at >= 0]
        shown += [(path, place) for place in places[:1]]
    assert shown == [], "\n".join(map(repr, shown))
    visited = {resolve(path).url_name for path in looked_at}
    names = {
        f"{one.opts.app_label}_{one.opts.model_name}_{word}"
        for one in admins()
        for word in url_words(one)
        if word not in NO_PAGES | FROM_BASE | TESTED_ALONE
    }
    assert names - visited == {"traces_app_modelprice_change"}, (
        "No link leads to these pages: link them, plant what they show, or test them alone."
    )

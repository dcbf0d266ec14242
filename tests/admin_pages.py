"""Parse admin pages in tests."""

from __future__ import annotations

import re
from datetime import datetime
from html import unescape
from html.parser import HTMLParser

from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import strip_tags

from messages_app import safe_text
from tests.traces_app.conftest import counted_in


class _Page(HTMLParser):
    """A parser that collects the visible text and the links."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.links: dict[str, str] = {}
        self.tags: list[str] = []
        self._href: str | None = None
        self._label: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "a":
            self._href, self._label = dict(attrs).get("href"), []

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._href is not None:
            self.links.setdefault(" ".join("".join(self._label).split()), self._href)
            self._href = None

    def handle_data(self, data: str) -> None:
        if self.cdata_elem is not None:
            return  # data for a script, which nobody sees
        self.texts.append(data)
        if self._href is not None:
            self._label.append(data)


def html_of(response: HttpResponse) -> str:
    assert response.status_code == 200, f"{response.status_code} {response.headers.get('Location')}"
    return response.content.decode()


def text_of(response: HttpResponse) -> str:
    """Return the text of the main part of a page, on one line."""
    page = _Page()
    html = html_of(response)
    page.feed(html[html.index('<main id="content-start"') :] if "<main" in html else html)
    return " ".join(" ".join(page.texts).split())


def links_of(response: HttpResponse) -> dict[str, str]:
    """Return the URLs of a page's links by their text; the first one for equal texts."""
    page = _Page()
    page.feed(html_of(response))
    return page.links


def ago(instant: datetime) -> str:
    """Return how long ago a time was, as lists show it."""
    return strip_tags(safe_text.ago(instant))


def rows_of(response: HttpResponse) -> list[list[str]]:
    """Return the cells of a change list, without the checkboxes; the one that names the row comes first."""
    table = re.search(r'<table id="result_list"[^>]*>.*?<tbody>(.*?)</tbody>', html_of(response), re.DOTALL)
    if table is None:
        return []
    rows = re.findall(r"<tr>(.*?)</tr>", table[1], re.DOTALL)
    return [
        [
            " ".join(unescape(re.sub(r"<[^>]+>", "", cell)).split())
            for _tag, kind, cell in sorted(
                re.findall(r"<(t[hd]) class=\"([^\"]*)\"[^>]*>(.*?)</t[hd]>", row, re.DOTALL),
                key=lambda found: found[0] != "th",
            )
            if kind != "action-checkbox"
        ]
        for row in rows
    ]


def statements_of(client: Client, url: str) -> list[str]:
    """Return the SQL statements of a page; see `counted_in`."""
    with CaptureQueriesContext(connection) as queries:
        html_of(client.get(url))
    return counted_in(queries)

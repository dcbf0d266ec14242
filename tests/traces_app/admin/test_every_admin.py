"""What holds for every admin of ours, and for every page of theirs, also for those that are added: see docs/changing.md."""

from __future__ import annotations

import ast
import re
from html.parser import HTMLParser

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import resolve
from django.utils.text import capfirst

from access_app.audit.requests import OF_PAGES
from access_app.models import AuditEntry
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.time_zones import COOKIE
from sdk.tests.paths import ROOT
from tests.admin_pages import html_of
from tests.test_translations import translations
from tests.traces_app.admin.pages import FROM_BASE, NO_PAGES, NOWHERE, OURS, admins, stored_pages, url_words

NOT_LISTED = frozenset(["auth_user_change", "auth_user_password_change"])
"""Forms of Django for users, whose scripts make faults that templates cannot mend."""


def test_admins_have_at_most_two_classes_of_ours_above_them() -> None:
    above = {
        type(one).__name__: [base.__name__ for base in type(one).__mro__[1:] if base.__module__.split(".")[0] in OURS]
        for one in admins()
    }
    assert len(above) >= 12
    assert {name: bases for name, bases in above.items() if len(bases) > 2} == {}


def test_filters_of_lists_are_filters_of_the_api() -> None:
    unknown = [
        (filter_.__name__, name)
        for one in admins()
        for filter_ in getattr(one, "list_filter", ())
        if (filter_set := getattr(filter_, "filter_set", None)) is not None
        for name in getattr(filter_, "parameter_names", None) or (filter_.parameter_name,)
        if name not in filter_set.base_filters
    ]
    assert unknown == [], "parameter_name and parameter_names are those of the filter set."


def test_every_module_with_an_admin_is_imported() -> None:
    package = ROOT / "traces_app" / "admin"
    registering = {
        path.stem for path in package.glob("*.py") if re.search(r"^@admin\.register\(", path.read_text(), re.M)
    }
    imports = [
        node for node in ast.parse((package / "__init__.py").read_text()).body if isinstance(node, ast.ImportFrom)
    ]
    imported = {alias.name for node in imports for alias in node.names}
    assert registering == imported, "Import the module in traces_app/admin/__init__.py."
    assert not [path for path in (ROOT / "messages_app").rglob("*.py") if "admin.register(" in path.read_text()]


def test_audit_log_knows_the_word_of_every_url() -> None:
    unknown = {
        f"{one.opts.label_lower}: {word}"
        for one in admins()
        for word in url_words(one)
        if word not in OF_PAGES and f"{one.opts.app_label}_{one.opts.model_name}_{word}" not in NOT_LISTED
    }
    assert unknown == set(), "Say in OF_PAGES of access_app/audit/requests.py what these pages do."


@pytest.fixture
def pages(staff: Client) -> list[str]:
    return [path for path in stored_pages(User.objects.get(username="ada")) if path != NOWHERE]


def test_list_of_pages_has_every_page(pages: list[str]) -> None:
    names = {
        f"{one.opts.app_label}_{one.opts.model_name}_{word}"
        for one in admins()
        for word in url_words(one)
        if word not in NO_PAGES | FROM_BASE
    }
    listed = {resolve(re.split("[?#]", path)[0]).url_name for path in pages}
    assert {f"messages_app_session_{word}" for word in FROM_BASE - {"add"}} <= listed
    assert names - listed - NOT_LISTED == set(), "Add these pages to stored_pages in tests/traces_app/admin/pages.py."


# --- Every page -------------------------------------------------------------------------------------------------------

ENGLISH = frozenset(["English", "Rules"])
"""The name of the language, and a tool of the samples."""
ZONE = "Asia/Kolkata"
OTHER_TIME = re.compile(r"\b20\d\d, (noon|midnight|\d{1,2}(:\d\d)? [ap]\.m\.)|^20\d\d-\d\d-\d\d \d\d:\d\d(:\d\d)?$")
"""A time as Django writes it, or a format that it was given: without the element that gives all of it."""
WITHOUT_ZONE = ("Search index",)
"""Terms whose times are a part of a sentence, as in texts."""


class Page(HTMLParser):
    """A page: its texts, and the labels of the columns and terms that have times."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: set[str] = set()
        self.labels: set[str] = set()
        self.heads: list[str] = []
        self.column = -1
        self.place = ""
        """Where the parser is: "head" or "cell" of a table, "dt" or "dd"."""
        self.is_in_head = self.is_in_time = False
        self.term, self.definition, self.has_time = "", "", False
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "thead":
            self.is_in_head, self.heads = True, []
        elif tag == "tr":
            self.column = -1
        elif tag in ("th", "td"):
            self.column += int(dict(attrs).get("colspan") or 1)
            self.place = "head" if self.is_in_head else "cell"
            self.heads += [""] * self.is_in_head
        elif tag == "dt":
            self.place, self.term = tag, ""
        elif tag == "dd":
            self.place, self.definition, self.has_time = tag, "", False
        self.is_in_time = tag == "time"

    def handle_endtag(self, tag: str) -> None:
        if tag == "dd" and self.has_time:
            self.labels.add(f"{self.term} {self.definition}")
        if tag == "thead":
            self.is_in_head = False
        if tag in ("th", "td", "dt", "dd"):
            self.place = ""
        self.is_in_time = False

    def handle_data(self, data: str) -> None:
        text = " ".join(data.split())
        if self.cdata_elem is None and not self.is_in_time:
            self.texts.add(text)
        # How long ago it was is the same in every zone.
        is_instant = self.is_in_time and text.startswith("20")
        if is_instant and self.place == "cell":
            self.labels.add(self.heads[self.column] if self.column < len(self.heads) else "")
        elif is_instant and self.place == "dd":
            self.has_time = True
        if self.place == "head":
            self.heads[-1] += text
        elif self.place == "dt":
            self.term += text
        elif self.place == "dd":
            self.definition += text


def with_all_columns(paths: list[str]) -> list[str]:
    """Return the paths, and those of the lists with all columns that can be chosen."""
    lists = [one for one in admins() if isinstance(one, KeysetAdmin)]
    named = [(one, "", one.columns.known) for one in lists]
    named += [
        (one, f"&{own.parameter}={own.value}", own.columns or one.columns.known)
        for one in lists
        for own in one.named_lists
    ]
    return [*paths, *(f"{one.list_url()}?columns={','.join(columns)}{query}" for one, query, columns in named)]


def test_no_page_in_chinese_has_a_text_in_english(pages: list[str], staff: Client) -> None:
    """Texts that are marked, but translated too early or shown without their translation; test_translations has the others."""
    marked = {form for text, other in translations().items() if other != text for form in (text, capfirst(text))}
    # A single word in lower case may be a tag or the name of a job.
    english = {text for text in marked if " " in text or not text.islower()} - ENGLISH
    staff.cookies["django_language"] = "zh-hans"
    found = {
        (path, text)
        for path in with_all_columns(pages)
        for text in Page(html_of(staff.get(path, follow=True))).texts & english
    }
    assert found == set(), "Mark these with gettext, and translate them when the page is shown."


def is_labelled(label: str) -> bool:
    return f"({ZONE})" in label or label.startswith(WITHOUT_ZONE)


def test_times_are_labelled_with_the_zone(pages: list[str], staff: Client) -> None:
    staff.cookies[COOKIE] = ZONE
    shown = [(path, Page(html_of(staff.get(path, follow=True)))) for path in with_all_columns(pages)]
    assert {(path, text) for path, page in shown for text in page.texts if OTHER_TIME.search(text)} == set(), (
        "See moment."
    )
    labels = {(path, label) for path, page in shown for label in page.labels}
    assert len({label for _path, label in labels}) > 12
    assert {(path, label) for path, label in labels if not is_labelled(label)} == set(), "See with_zone."


def test_tables_have_headers_that_say_what_they_head() -> None:
    templates = {path.name: path.read_text() for path in (ROOT / "templates").rglob("*.html")}
    bare = [name for name, text in templates.items() if re.search(r"<th(?![^>]* scope=)[ >]", text)]
    bare += [name for name, text in templates.items() if "<table" in text and "<th" not in text]
    assert bare == [], 'Write <th scope="col"> and <th scope="row">.'


def test_page_about_a_row_notes_its_project(staff: Client, pages: list[str]) -> None:
    unnoted = []
    for path in (path for path in pages if re.search(r"/[0-9a-f-]{36}/", path) and not path.startswith("/admin/auth/")):
        staff.get(path)
        entry = AuditEntry.objects.latest("pk")
        if entry.project_id is None:
            unnoted.append((path, entry.detail))
    assert unnoted == [], "Find the row by session_of_page or message_of_page, or call model_admin.note()."

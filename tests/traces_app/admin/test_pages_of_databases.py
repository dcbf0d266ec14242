"""Every page shows the projects of all databases, also one that is added: lists and figures of all, and pages about a row of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import pytest_django
from django.test import Client

from tests.admin_pages import html_of
from tests.project_databases import copies, small_and_big
from tests.traces_app.admin.pages import NO_PAGES, admins
from tests.traces_app.admin.test_members import pages, stored_trace
from tests.traces_app.conftest import answer, store

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


@pytest.fixture(scope="module", autouse=True)
def databases(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), copies(["tenant"]):
        yield


def pages_of_projects() -> Iterator[str]:
    """Yield the paths of pages about traces that are not about one row."""
    yield "/admin/"
    for one in admins():
        label = one.opts.label_lower.replace(".", "/")
        for url in one.get_urls():
            word = (getattr(url, "name", None) or "").removeprefix(f"{label.replace('/', '_')}_")
            is_of_traces = label.startswith(("messages_app/", "traces_app/")) and label != "traces_app/modelprice"
            if is_of_traces and word and word not in NO_PAGES | {"add"} and not url.pattern.converters:
                yield f"/admin/{label}/{url.pattern}"


def test_pages_show_the_projects_of_all_databases(transactional_db: None, settings: Any, staff: Client) -> None:
    for project in small_and_big(settings):
        store(project, answer())
    paths = list(pages_of_projects())
    assert len(paths) >= 10
    left_out = [path for path in paths if "Not shown are these projects" in html_of(staff.get(path))]
    assert left_out == [], "Take the projects from readable_on_page."


def test_pages_about_a_row_are_the_same_in_each_database(transactional_db: None, settings: Any, staff: Client) -> None:
    traces = [
        stored_trace(project, sign) for project, sign in zip(small_and_big(settings), ("okapi", "zebra"), strict=True)
    ]
    shown = 0
    for here, there in zip(*map(pages, traces), strict=True):
        if here == there:  # no ids: it is a list
            continue
        found = []
        for path, sign in ((here, b"okapi"), (there, b"zebra")):
            got = staff.get(path, follow=True)
            text = b"".join(got) if got.streaming else got.content  # type: ignore[arg-type]
            found.append((got.status_code, sign in text))
        assert found[0] == found[1], there
        shown += found[0][1]
    assert shown > 25

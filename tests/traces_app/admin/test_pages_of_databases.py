"""Every list and every page of figures shows the projects of all databases, also one that is added."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
import pytest_django
from django.core.management import call_command
from django.test import Client

from access_app.models import Project
from tests.admin_pages import html_of
from tests.project_databases import copies
from tests.traces_app.admin.pages import NO_PAGES, admins
from tests.traces_app.conftest import answer, store
from traces_app.maintenance.moving import prepare

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
    prepare("tenant")
    settings.TRACESITE_PROJECT_DATABASES = {"big": "tenant"}
    for slug in ("small", "big"):
        call_command("create_project", slug, stdout=StringIO())
        project = Project.objects.get(slug=slug)
        store(project, answer())
    paths = list(pages_of_projects())
    assert len(paths) >= 10
    left_out = [path for path in paths if "Not shown are these projects" in html_of(staff.get(path))]
    assert left_out == [], "Take the projects from readable_on_page."

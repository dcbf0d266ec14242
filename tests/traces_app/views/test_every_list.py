"""What holds for every list and all figures of the API, also for those that are added: see docs/changing.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import pytest_django
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app import writes
from tests.project_databases import copies, small_and_big
from tests.traces_app.admin.test_members import stored_trace
from traces_app import urls
from traces_app.maintenance.search_index import index_changed
from tracesite.http.api_root import schema

from .conftest import Answer, Caller

NOT_OF_TRACES = {"audit/", "recorder/"}
NEEDED = {
    "search/": "q=giraffe",
    "tools/examples/": "tool=tool_zebra",
    "compare/": None,
    "read/search/": "q=giraffe",
    # Otherwise they say from which moment on.
    **dict.fromkeys(("read/failures/", "read/tools/", "read/cost/"), "created_after=2000-01-01"),
    **dict.fromkeys(("read/outline/", "read/step/", "read/call/", "read/compare/", "read/error-group/"), None),
}
"""Parameters without which a list answers 400, or differs each time; None of one that is about certain rows."""
OF_TOOLS = ("tools/", "tools/stats/", "tools/examples/?tool=tool_zebra")
"""Lists that name a tool also if it has no calls."""
LISTS = [
    f"{path}?{query}" if (query := NEEDED.get(path, "")) else path
    for pattern in urls.urlpatterns
    if "get" in pattern.callback.actions
    and "<" not in (path := str(pattern.pattern))
    and path not in NOT_OF_TRACES
    and NEEDED.get(path, "") is not None
]


def answers(caller: Caller, query: str = "") -> dict[str, Any]:
    """Return status and body of each list."""
    found = {path: caller.get(f"{path}{'&' if '?' in path else '?'}{query}" if query else path) for path in LISTS}
    return {path: (answer.status, {**answer.json, "error": None}) for path, answer in found.items()}


def differing(these: dict[str, Any], those: dict[str, Any]) -> list[str]:
    return [path for path in LISTS if these[path] != those[path]]


def test_lists_show_nothing_of_others_and_nothing_deleted(project: Project, stranger: Project) -> None:
    outsider, owner = (Caller(create_key(one, "key", ["read"])[1]) for one in (project, stranger))
    nothing = answers(owner)
    trace = stored_trace(stranger, "zebra")
    index_changed(primary, patience=timedelta(0))  # or the search says how far it has come
    assert len(LISTS) >= 11
    assert differing(answers(owner), nothing) == [path for path in LISTS if path != "tools/unused/"]
    assert differing(answers(outsider), nothing) == [], "Read the projects of readable_by(request)."
    writes.delete_session(primary, trace["session_id"], by="ada")
    index_changed(primary, patience=timedelta(0))
    left = differing(answers(owner), nothing)
    assert [path for path in left if path not in OF_TOOLS] == [], "Leave out rows of deleted sessions and messages."
    assert '"call_count": 1' not in json.dumps(answers(owner))


@pytest.fixture(scope="module")
def tenant(django_db_setup: None, django_db_blocker: pytest_django.DjangoDbBlocker) -> Iterator[None]:
    with django_db_blocker.unblock(), copies(["tenant"]):
        yield


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_lists_show_the_projects_of_all_databases(tenant: None, settings: Any, staff: Client) -> None:
    caller = Caller()
    caller.client = staff
    for project in small_and_big(settings):
        stored_trace(project, "zebra")
    both, small, big = answers(caller), answers(caller, "project=small"), answers(caller, "project=big")
    same = [path for path in LISTS if both[path] in (small[path], big[path])]
    assert [path for path in same if path != "tools/unused/"] == [], "Ask each database of readable_by(request)."


def test_requests_refuse_what_is_not_documented_and_are_not_cached(project: Project) -> None:
    caller, trace = Caller(create_key(project, "key", ["read", "write"])[1]), stored_trace(project, "zebra")
    values = {**trace, "call_id": trace["objects"]["toolcall"], "score_id": trace["objects"]["score"]}
    wrong, cached = [], []
    for path, operations in schema()["paths"].items():
        if "get" not in operations or "/audit/" in path:
            continue
        url = re.sub(
            r"{(\w+)}", lambda found: str(values.get(found[1], trace["message_id"])), path.removeprefix("/api/v1/")
        )
        refused: Answer = caller.get(f"{url}?unknown=1")
        documented = {one["name"] for one in operations["get"].get("parameters", ()) if one["in"] == "query"}
        allowed = re.search(r"Allowed: (.*)\.$", refused.json["error"]["message"]) if refused.status == 400 else None
        names = set(allowed[1].replace("none", "").split(", ")) - {""} if allowed else None
        if names != documented and refused.status != 404:
            wrong.append((url, refused.status, names, documented))
        answer = caller.get(url)
        if answer.status == 200 and answer.headers.get("Cache-Control") != "private, no-store":
            cached.append((url, answer.headers.get("Cache-Control")))
    assert wrong == [], "Call check_parameters, and document the same parameters."
    assert cached == [], "Make the view a TraceViewSet."

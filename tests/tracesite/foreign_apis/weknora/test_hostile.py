"""Test that arbitrary requests are answered in WeKnora's shapes and never with 5xx."""

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access_app.models import Project
from sdk.tests.length import examples
from tests.traces_app.conftest import answer, question, store

from .conftest import WeKnora

NAMES = st.sampled_from(
    ["weather", "unknown", "{message}", "a b", "..", "%00", "%2F", "\u202e", "x" * 3000, "%ff", "'; --"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["title", "description", "ids", "delete_all", "messages", "message_id", "role", "content", "x"]
)
BODIES = JSON | st.dictionaries(
    FIELDS, JSON | st.lists(st.dictionaries(FIELDS, JSON, max_size=3), max_size=2), max_size=4
)
ROUTES = st.sampled_from(
    [
        ("get", "messages/{0}/load"),
        ("delete", "messages/{0}/{1}"),
        ("get", "sessions"),
        ("post", "sessions"),
        ("delete", "sessions/batch"),
        ("get", "sessions/{0}"),
        ("put", "sessions/{0}"),
        ("delete", "sessions/{0}"),
        ("delete", "sessions/{0}/messages"),
        ("post", "sessions/{0}/pin"),
        ("delete", "sessions/{0}/pin"),
        ("post", "sessions/{0}/generate_title"),
        ("post", "sessions/{0}/stop"),
        ("get", "sessions/continue-stream/{0}"),
    ]
)
QUERIES = st.dictionaries(
    st.sampled_from(["limit", "before_time", "page", "page_size", "keyword", "source", "agent_id", "resource_urls"]),
    st.text(max_size=12) | st.sampled_from(["-1", "0", "9" * 25, "2026-03-01T12:00:00Z", "0001-01-01T00:00:00Z", "%", "public"]),
    max_size=3,
)  # fmt: skip


@settings(
    max_examples=examples(50),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(route=ROUTES, names=st.tuples(NAMES, NAMES), body=BODIES, query=QUERIES)
def test_arbitrary_requests_get_weknora_shape_and_no_5xx(
    weknora: WeKnora, project: Project, route: tuple[str, str], names: tuple[str, str], body: Any, query: Any
) -> None:
    with transaction.atomic():
        session = store(project, question(), answer(is_completed=False))
        method, path = route
        path = path.format(*(name.format(message=session.messages[1].id) for name in names))
        status, content = weknora.raw(method, path, json.dumps(body), query=query)
        assert (status < 500 or "continue-stream" in path) and status != 301, (status, content)
        document = json.loads(content)
        if status < 300:
            assert document["success"] is True
        elif path.endswith("/stop"):
            assert list(document) == ["error"] or document["code"] == document["error"]["code"]
        else:
            assert (document["success"], document["code"]) == (False, document["error"]["code"])
        transaction.set_rollback(True)

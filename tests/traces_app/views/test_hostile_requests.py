"""Any request gets a response in the documented form, never a 5xx."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from django.http import QueryDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdk.tests.length import examples
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller

LISTS = ["sessions/", "messages/", "sessions/weather/messages/", "tool-calls/", "chains/", "tools/", "usage/"]
NAMES = [
    "limit",
    "cursor",
    "order",
    "before_time",
    "page",
    "page_size",
    "fields",
    "expand",
    "project",
    "role",
    "session",
    "request_id",
    "external_id",
    "call_id",
    "tool",
    "tool_status",
    "is_completed",
    "has_errors",
    "health",
    "min_duration",
    "max_duration",
    "min_cost",
    "max_cost",
    "deleted",
    "status",
    "end_user",
    "tag",
    "title",
    "message",
    "parent",
    "root_tool",
    "success",
    "slower_than",
    "created_after",
    "created_before",
    "category",
    "group_by",
    "model",
]
WORDS = [
    "", "0", "-1", "1", "200", "201", "1e3", "9" * 40, "true", "false", "none", "asc", "desc", "null", "NaN", "inf",
    "2026-03-01T12:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59.999999999-23:59", "2026-02-30T00:00:00Z",
    "id", "id,role", ",", "user", "error", "get_weather", "weather", "0193e0f0-0000-7000-8000-000000000000", "\x00", "%",
    "_", "\\", "'", '"', "\u202e", "\U0001f600", "上海", "a" * 3000,
]  # fmt: skip
BODIES: list[Any] = [
    None, [], {}, "", 1, [None], {"role": None}, {"messages": [[]]}, {"sessions": [1]}, {"sessions": [{"external_id": ""}]},
    {"version": 2**70}, {"version": "1"}, {"metadata": {"\x00": "\x00"}}, {"title": "\x00\ud7ff"}, {"tags": ["\x00"]},
    {"role": "assistant", "agent_steps": [{"iteration": -1}]}, {"role": "user", "content": "\x00"}, {"workflow": 2**70},
]  # fmt: skip

values = st.one_of(st.sampled_from(WORDS), st.text(max_size=20))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(path=st.sampled_from(LISTS), parameters=st.dictionaries(st.sampled_from(NAMES), values, max_size=4))
def test_any_parameter_is_answered(
    owner: Caller, weather: SessionOutcome, path: str, parameters: dict[str, str]
) -> None:
    query = QueryDict(mutable=True)
    query.update({name: value.encode("utf-8", "replace").decode() for name, value in parameters.items()})
    answer = owner.get(f"{path}?{query.urlencode()}")
    assert answer.status in (200, 400, 404, 409), (query, answer.body)
    if answer.status != 200:
        assert answer.error[0] == answer.status


def test_last_year_is_answered(owner: Caller, weather: SessionOutcome) -> None:
    for limit in ("before_time", "created_before"):
        answer = owner.get(f"sessions/weather/messages/?tool=get_weather&{limit}=9999-12-31T23:00:00Z")
        assert answer.status == 200, answer.body


@pytest.mark.parametrize("word", WORDS[1:])
def test_any_name_in_the_path_is_answered(owner: Caller, weather: SessionOutcome, word: str) -> None:
    for path in ("sessions/{}/", "sessions/{}/messages/", "messages/{}/", "tool-calls/{}/", "chains/{}/"):
        answer = owner.get(path.format(quote(word, safe="")))
        assert answer.status == 404 or (word == "weather" and "sessions" in path), (path, answer.body)


@pytest.mark.parametrize("body", BODIES, ids=repr)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("post", "sessions/"),
        ("patch", "sessions/weather/"),
        ("post", "sessions/weather/messages/"),
        ("patch", "messages/{}/"),
        ("post", "ingest/"),
    ],
)
def test_any_body_is_answered(owner: Caller, weather: SessionOutcome, method: str, path: str, body: Any) -> None:
    answer = getattr(owner, method)(path.format(weather.messages[1].id), body)
    assert answer.status in (200, 201, 400, 409, 415, 428), answer.body
    if answer.status >= 400:
        assert answer.error[0] == answer.status


def test_deep_nesting_is_answered(owner: Caller, weather: SessionOutcome) -> None:
    deep = b'{"role": "user", "metadata": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001
    assert owner.post("sessions/weather/messages/", deep).error == (400, "invalid_json", None)


@pytest.mark.parametrize("path", ["sessions/", "sessions/weather/messages/", "chains/", "ingest/", ""])
def test_options_are_answered(owner: Caller, weather: SessionOutcome, path: str) -> None:
    assert owner.client.options(f"/api/v1/{path}").status_code == 200


def test_responses_forbid_caching(viewer: Caller, weather: SessionOutcome) -> None:
    for path in ("sessions/", "sessions/weather/export/", "sessions/none/"):
        assert viewer.get(path).headers["Cache-Control"] == "private, no-store"

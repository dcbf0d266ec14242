"""Paging through messages over HTTP: by cursor, by time and by number, with ties and while others write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from access_app.models import Project
from tests.traces_app.conftest import NOON, store
from traces_app.ingest.batch import SessionOutcome

from .conftest import Answer, Caller

MINUTE = timedelta(minutes=1)


def say(count: int, *, start: datetime = NOON, step: timedelta = MINUTE, name: str = "m") -> list[dict[str, Any]]:
    return [
        {"external_id": f"{name}{i}", "role": "user", "content": str(i), "created_at": start + i * step}
        for i in range(count)
    ]


def names(answer: Answer) -> list[str]:
    return [message["external_id"] for message in answer.results]


def walk(caller: Caller, path: str, way_on: str = "next", **parameters: Any) -> Iterator[list[str]]:
    """Yield the pages by following the cursors."""
    answer = caller.get(path, **parameters)
    yield names(answer)
    while answer.json[way_on]:
        answer = caller.get(path, **{**parameters, "cursor": answer.json[way_on]})
        yield names(answer)


@pytest.fixture
def five(project: Project) -> SessionOutcome:
    return store(project, *say(5))


def test_session_returns_newest_page_oldest_first_and_links(owner: Caller, five: SessionOutcome) -> None:
    path = f"sessions/{five.id}/messages/"
    assert list(walk(owner, path, limit=2)) == [["m3", "m4"], ["m1", "m2"], ["m0"]]


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("asc", [["m0", "m1"], ["m2", "m3"], ["m4"]]),
        ("desc", [["m4", "m3"], ["m2", "m1"], ["m0"]]),
    ],
)
def test_both_orders_reach_everything_once(
    owner: Caller, five: SessionOutcome, order: str, expected: list[list[str]]
) -> None:
    assert expected == list(walk(owner, "messages/", order=order, limit=2))
    assert expected == list(walk(owner, f"sessions/{five.id}/messages/", order=order, limit=2))


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, [["m0"], ["m1", "m2"], ["m3", "m4"]]),
        ({"order": "asc"}, [["m4"], ["m2", "m3"], ["m0", "m1"]]),
        ({"order": "desc"}, [["m0"], ["m2", "m1"], ["m4", "m3"]]),
    ],
)
def test_previous_leads_back_over_the_same_rows(
    owner: Caller, five: SessionOutcome, parameters: dict[str, str], expected: list[list[str]]
) -> None:
    path = f"sessions/{five.id}/messages/"
    answer = owner.get(path, limit=2, **parameters)
    while answer.json["next"]:
        cursor = answer.json["next"]
        answer = owner.get(path, limit=2, cursor=cursor, **parameters)
    assert expected == list(walk(owner, path, "previous", limit=2, cursor=cursor, **parameters))


def test_previous_of_empty_page_misses_nothing(owner: Caller, five: SessionOutcome) -> None:
    path = f"sessions/{five.id}/messages/"
    second = owner.get(path, limit=4).json["next"]
    oldest = owner.get(path, limit=4, cursor=second).json["results"][0]["id"]
    assert owner.delete(f"messages/{oldest}/").status == 204
    empty = owner.get(path, limit=4, cursor=second)
    assert (names(empty), empty.json["next"]) == ([], None)
    assert names(owner.get(path, limit=4, cursor=empty.json["previous"])) == ["m1", "m2", "m3", "m4"]


def test_messages_that_arrive_meanwhile_shift_no_page(owner: Caller, project: Project, five: SessionOutcome) -> None:
    pages = walk(owner, f"sessions/{five.id}/messages/", limit=2)
    assert next(pages) == ["m3", "m4"]
    store(project, *say(3, start=NOON + 60 * MINUTE, name="later"))
    assert list(pages) == [["m1", "m2"], ["m0"]]


@pytest.mark.parametrize("written", ["2026-03-01T12:02:00Z", "2026-03-01T20:02:00+08:00", "2026-03-01T12:02:00 00:00"])
def test_before_time_excludes_messages_of_exactly_that_time(owner: Caller, five: SessionOutcome, written: str) -> None:
    assert names(owner.get(f"sessions/{five.id}/messages/", before_time=written)) == ["m0", "m1"]
    assert names(owner.get("messages/", before_time=written)) == ["m1", "m0"]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-03-01T12:00:00.000001Z", []),
        ("2026-03-01T12:00:00.000001000+00:00", []),
        ("2026-03-01T12:00:00.000001001Z", ["fine"]),
        ("2026-03-01T20:00:00.000001999+08:00", ["fine"]),
        ("2026-03-01T12:00:00.000002Z", ["fine"]),
    ],
)
def test_nine_digits_compare_exactly_with_stored_microseconds(
    owner: Caller, project: Project, written: str, expected: list[str]
) -> None:
    message = {"external_id": "fine", "role": "user", "created_at": "2026-03-01T12:00:00.000001Z"}
    session = store(project, message)
    assert expected == names(owner.get(f"sessions/{session.id}/messages/", before_time=written))


def test_before_time_with_a_cursor_narrows_both_ways(owner: Caller, five: SessionOutcome) -> None:
    path = f"sessions/{five.id}/messages/"
    cursor = owner.get(path, limit=1, before_time="2026-03-01T12:04:00Z").json["next"]
    assert names(owner.get(path, limit=2, cursor=cursor, before_time="2026-03-01T12:04:00Z")) == ["m1", "m2"]
    assert names(owner.get(path, limit=2, cursor=cursor, before_time="2026-03-01T12:01:00Z")) == ["m0"]


def test_time_range_is_half_open(owner: Caller, five: SessionOutcome) -> None:
    answer = owner.get("messages/", created_after="2026-03-01T12:01:00Z", created_before="2026-03-01T12:03:00Z")
    assert names(answer) == ["m2", "m1"]


def test_pages_by_number_count_from_the_oldest(owner: Caller, five: SessionOutcome) -> None:
    path = f"sessions/{five.id}/messages/"
    pages = [owner.get(path, page=number, page_size=2) for number in (0, 1, 2, 3, 4)]
    assert [names(page) for page in pages] == [["m0", "m1"], ["m0", "m1"], ["m2", "m3"], ["m4"], []]
    assert [(page.json["previous"], page.json["next"]) for page in pages] == [
        (None, 2),
        (None, 2),
        (1, 3),
        (2, None),
        (3, None),
    ]
    assert owner.get(path, page=-1).error == (400, "invalid_input", "page")


def test_user_comes_before_assistant_at_equal_times(owner: Caller, project: Project) -> None:
    store(project, {"external_id": "a", "role": "assistant", "created_at": NOON})
    session = store(project, {"external_id": "u", "role": "user", "created_at": NOON})
    assert names(owner.get(f"sessions/{session.id}/messages/")) == ["u", "a"]
    assert names(owner.get("messages/")) == ["a", "u"]


@pytest.mark.parametrize("order", [{}, {"order": "desc"}, {"order": "asc"}])
def test_page_by_time_never_splits_messages_of_one_time(owner: Caller, project: Project, order: dict[str, str]) -> None:
    earlier, tie, later = say(2, name="e"), say(5, start=NOON + 60 * MINUTE, step=0 * MINUTE), say(2, start=NOON + 61 * MINUTE, name="l")  # fmt: skip
    session = store(project, *earlier, *tie, *later)
    path = f"sessions/{session.id}/messages/"
    page = owner.get(path, limit=3, before_time="2026-03-01T13:02:00Z", **order)
    expected = ["m0", "m1", "m2", "m3", "m4", "l0"]
    assert (expected[::-1] if order == {"order": "desc"} else expected) == names(page)
    assert not page.streamed
    assert {"e0", "e1"} == set(names(owner.get(path, limit=3, before_time="2026-03-01T13:00:00Z", **order)))
    # Cursors continue after the tie, and back over later messages.
    before_time = "2026-03-01T13:02:00Z"
    assert {"e0", "e1"} == set(
        names(owner.get(path, limit=3, before_time=before_time, cursor=page.json["next"], **order))
    )
    assert names(owner.get(path, limit=3, cursor=page.json["previous"], **order)) == ["l1"]


def test_without_older_messages_a_tie_ends_the_way(owner: Caller, project: Project) -> None:
    session = store(project, *say(5, step=0 * MINUTE))
    page = owner.get(f"sessions/{session.id}/messages/", limit=2)
    assert (len(names(page)), page.json["next"], page.json["previous"]) == (5, None, None)


def test_page_by_cursor_splits_messages_of_one_time(owner: Caller, project: Project) -> None:
    session = store(project, *say(5, step=0 * MINUTE))
    pages = list(walk(owner, f"sessions/{session.id}/messages/", order="asc", limit=2))
    assert pages == [["m0", "m1"], ["m2", "m3"], ["m4"]]


@pytest.mark.django_db(transaction=True)
def test_4000_messages_of_one_time_are_each_reached_once(owner: Caller, project: Project) -> None:
    session = store(project, *say(3, name="early"), *say(4000, start=NOON + 60 * MINUTE, step=0 * MINUTE))
    expected = {f"m{i}" for i in range(4000)} | {"early0", "early1", "early2"}
    path = f"sessions/{session.id}/messages/"
    assert owner.get(path, limit=50, expand="none").streamed
    with inserting(project, at=NOON + 60 * MINUTE) as inserted:
        for order in ("asc", "desc"):
            seen = [name for page in walk(owner, path, order=order, limit=200, expand="none") for name in page]
            assert_once(expected, seen, order)
            seen = [name for page in walk_by_time(owner, path, order=order, limit=200, expand="none") for name in page]
            assert_once(expected, seen, order)
        # Without an order, like a client that scrolls up.
        seen = [name for page in walk_by_time(owner, path, start={}, limit=50, expand="none") for name in page]
        assert_once(expected, seen, "recent")
    assert inserted


def assert_once(expected: set[str], seen: list[str], order: str) -> None:
    """Assert that each expected message occurs once, and messages inserted meanwhile at most once."""
    assert len(seen) == len(set(seen)), order
    assert expected <= set(seen), order


def walk_by_time(
    caller: Caller, path: str, start: dict[str, str] | None = None, **parameters: Any
) -> Iterator[list[str]]:
    """Yield the pages by following the oldest time as before_time."""
    place = {"before_time": "2099-01-01T00:00:00Z"} if start is None else start
    while messages := caller.get(path, **parameters, **place).results:
        yield [message["external_id"] for message in messages]
        place = {"before_time": min(message["created_at"] for message in messages)}


class inserting:
    """Store messages before, at and after a time from another thread during the block."""

    def __init__(self, project: Project, *, at: datetime) -> None:
        self._project = project
        self._at = at
        self._stop = threading.Event()
        self._stored: list[str] = []
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> list[str]:
        self._thread.start()
        return self._stored

    def __exit__(self, *_exception: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(0.01):
                number = len(self._stored)
                offset = (number % 3 - 1) * timedelta(seconds=number + 1)
                store(self._project, *say(1, start=self._at + offset, name=f"new{number}-"))
                self._stored.append(str(number))
        finally:
            connection.close()


def test_pages_by_time_end_with_an_empty_page(owner: Caller, project: Project) -> None:
    session = store(project, *say(45))
    pages = list(walk_by_time(owner, f"sessions/{session.id}/messages/", start={}))
    assert [f"m{i}" for i in range(45)] == [name for page in reversed(pages) for name in page]
    assert [len(page) for page in pages] == [20, 20, 5]


def test_cursor_of_one_list_is_valid_for_another(owner: Caller, five: SessionOutcome) -> None:
    cursor = owner.get("messages/", limit=2).json["next"]
    assert names(owner.get(f"sessions/{five.id}/messages/", limit=2, cursor=cursor)) == ["m1", "m2"]
    # Tools have no time: the position is after all of them, or before.
    assert owner.get("tools/", cursor=cursor).results == []


def test_times_at_the_ends_of_the_calendar_are_no_trouble(owner: Caller, five: SessionOutcome) -> None:
    assert len(owner.get("messages/", created_after="0001-01-01T00:00:00Z").results) == 5
    assert len(owner.get("messages/", before_time="9999-12-31T23:59:59.999999999-12:00").results) == 5
    assert owner.get("messages/", tool="none", created_before="9999-12-31T23:59:59Z").results == []
    assert owner.get("messages/", created_after=datetime(2999, 1, 1, tzinfo=UTC).isoformat()).results == []

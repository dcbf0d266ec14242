"""Pages: cursors, requests and ranges. The content of pages is tested over HTTP, in traces_app/views/test_paging.py."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from datetime import UTC, date, datetime
from uuid import UUID

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from access_app.errors import InvalidInput
from messages_app.sql.pagination import Cursor, IdRange, PageRequest, page_request
from tracesite_sdk.records import ids

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SOME_ID = ids.first_id_at(NOON)


@given(st.integers(0, ids.first_id_at(datetime(9999, 1, 1, tzinfo=UTC)).int), st.booleans())
def test_cursor_text_is_parsed_back(position: int, newer: bool) -> None:
    cursor = Cursor(position=UUID(int=position), newer=newer)
    assert cursor == Cursor.parse(str(cursor))


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "MjAyNi0wMS0wMVQwMDowMDowMFo=",
        str(SOME_ID),
        str(Cursor(position=SOME_ID, newer=True))[:-1] + "!",
        str(Cursor(position=SOME_ID, newer=True)).swapcase(),
        urlsafe_b64encode(b"n" + SOME_ID.bytes + b"0000").decode(),
        str(Cursor(position=UUID(int=2**128 - 1), newer=True)),
    ],
)
def test_invalid_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="Invalid cursor") as caught:
        Cursor.parse(text)
    assert caught.value.field == "cursor"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", PageRequest(finish_ties=True)),
        ("limit=200&order=asc", PageRequest(limit=200, order="asc", towards_newer=True, finish_ties=True)),
        ("limit=&cursor=&order=&before_time=&page=", PageRequest(finish_ties=True)),
        ("before_time=2026-03-01T12:00:00Z", PageRequest(before=NOON, finish_ties=True)),
        ("before_time=2026-03-01T12:00:00Z&order=asc", PageRequest(before=NOON, order="asc", finish_ties=True)),
        (
            f"cursor={Cursor(position=SOME_ID, newer=True)}",
            PageRequest(cursor=Cursor(position=SOME_ID, newer=True)),
        ),
        ("page=3&page_size=50", PageRequest(number=3, limit=50, order="asc")),
        ("page=0", PageRequest(number=1, order="asc")),
        ("page_size=0", PageRequest(number=1, order="asc")),
    ],
)
def test_page_request_parses_all_parameters(query: str, expected: PageRequest) -> None:
    assert expected == page_request(QueryDict(query), by_time=True)


def test_newest_page_of_session_is_oldest_first() -> None:
    assert PageRequest(order="asc", finish_ties=True) == page_request(QueryDict(), by_time=True, newest_page_first=True)


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        ("limit=0", "limit", "Expected a whole number from 1 to 200."),
        ("limit=201", "limit", "Expected a whole number from 1 to 200."),
        ("limit=-1", "limit", "Expected a whole number from 1 to 200."),
        ("limit=ten", "limit", "Expected a whole number from 1 to 200."),
        ("limit=1e1", "limit", "Expected a whole number from 1 to 200."),
        ("limit=" + "9" * 5000, "limit", "Expected a whole number from 1 to 200."),
        ("order=up", "order", "Invalid order. Allowed: asc (oldest first), desc (newest first)."),
        ("page=-1", "page", "Expected a whole number from 0 to 1000000000."),
        ("page_size=201", "page_size", "Expected a whole number from 0 to 200."),
        (
            "page=1&limit=5",
            "limit",
            "limit cannot be combined with page and page_size.",
        ),
        (
            "before_time=noon",
            "before_time",
            "Invalid time. Expected a time such as 2026-01-31T09:30:00Z or 2026-01-31T17:30:00.123456789+08:00.",
        ),
    ],
)
def test_invalid_page_parameter_is_named(query: str, field: str, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        page_request(QueryDict(query), by_time=True)
    assert (field, message) == (caught.value.field, caught.value.message)


def test_intersection_of_ranges_has_ids_of_both() -> None:
    one, two, three = (UUID(int=i) for i in (1, 2, 3))
    assert IdRange(lower=two, upper=three) == IdRange(lower=one, upper=three) & IdRange(lower=two)
    assert IdRange(lower=one, upper=two) == IdRange(lower=one) & IdRange(upper=two)
    assert IdRange().of("pk") == {}
    assert {"pk__gte": one, "pk__lt": two} == IdRange(lower=one, upper=two).of("pk")


def test_range_is_widened_to_whole_months() -> None:
    march, april = (ids.first_id_of_day(date(2026, month, 1)) for month in (3, 4))
    assert IdRange(lower=march, upper=april) == IdRange(lower=SOME_ID, upper=SOME_ID).widened_to_periods()
    assert IdRange() == IdRange().widened_to_periods()
    last_year = IdRange(upper=ids.first_id_at(datetime(9999, 12, 31, tzinfo=UTC)))
    assert last_year.widened_to_periods() == IdRange(upper=ids.first_id_at(datetime.max.replace(tzinfo=UTC)))


@given(st.one_of(st.text(), st.binary(min_size=21, max_size=21).map(lambda data: urlsafe_b64encode(data).decode())))
def test_any_text_is_refused_as_a_cursor(text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Cursor.parse(text)
    assert caught.value.field == "cursor"


PARAMETERS = ("limit", "cursor", "order", "before_time", "page", "page_size")
VALUES = st.one_of(
    st.text(),
    st.integers().map(str),
    st.sampled_from(["asc", "desc", "9" * 5000, "-0", "٣", "2026-01-31T09:30:00Z", str(Cursor(position=UUID(int=5), newer=True))]),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(PARAMETERS), VALUES), st.booleans(), st.booleans())
def test_any_parameters_are_a_page_or_are_refused_by_name(
    given_: dict[str, str], by_time: bool, newest_page_first: bool
) -> None:
    parameters = QueryDict(mutable=True)
    parameters.update(given_)
    try:
        request = page_request(parameters, by_time=by_time, newest_page_first=newest_page_first)
    except InvalidInput as error:
        assert error.field in given_
    else:
        assert 1 <= request.limit <= 200
        assert isinstance(request.ids, IdRange)

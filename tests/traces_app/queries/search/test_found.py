"""Search: the same rows as a scan of all texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.db import Database, primary
from access_app.errors import InvalidInput
from access_app.models import Project
from messages_app.models import Message, Session
from messages_app.sql.pagination import IdRange
from sdk.tests.length import examples
from tests.traces_app.conftest import NOON, answer, store
from traces_app.ingest.changes import change_session
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance import search_index
from traces_app.maintenance.search_index import index_changed
from traces_app.models import SearchPosting, SearchSegment, ToolCall
from traces_app.queries.search import found
from traces_app.queries.search.found import Unit, find
from traces_app.queries.search.grams import fold
from traces_app.queries.search.query import SearchQuery, Term, parse
from traces_app.queries.search.segments import Numbers, Sizes, numbers_with, rows_of
from traces_app.queries.search.texts import Kind, Mark, sessions_of, texts_of_messages
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_session_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

pytestmark = pytest.mark.django_db
NO_PATIENCE = timedelta(0)
UNITS: tuple[Unit, ...] = ("message", "call", "session")
ALPHABETS = (
    *("abAB ", "ßſsSẞ", "İıiI", "ΣσςΑα", "ﬁFIfi", "北京上海天气", "ée\u0301Ａａ", "😀😁a𝔄"),
    *("אבג \u202e\u200b", "किं", "한국ㅎ", "กำ", '"\\-: \n'),
)
Texts = list[tuple[str, str]]


def alive(unit: Unit) -> Callable[[list[UUID]], Collection[UUID]]:
    models: dict[Unit, Any] = {"message": Message, "call": ToolCall, "session": Session}
    rows = models[unit].objects.all()
    return lambda ids: set(rows.filter(pk__in=ids).values_list("pk", flat=True))


class Scan:
    """What a reader of all texts would find."""

    def __init__(self) -> None:
        self.messages: dict[UUID, Texts] = {}
        self.calls: dict[UUID, Texts] = {}
        for row in texts_of_messages(primary, list(Message.objects.values_list("pk", flat=True))):
            texts = [(name, fold(text)) for name, text in row.texts]
            self.messages.setdefault(row.message_id, []).extend(texts)
            if row.kind == Kind.CALL:
                self.calls[row.id] = texts
        self.sessions = sessions_of(primary, list(self.messages))

    def find(self, query: SearchQuery, unit: Unit, *, newest_first: bool) -> list[UUID]:
        rows = self.calls if unit == "call" else self.messages
        found = {
            one
            for one, texts in rows.items()
            if all(any(term.is_in(*text) for text in texts) for term in query.wanted)
            and not any(term.is_in(*text) for text in texts for term in query.excluded)
        }
        return sorted({self.sessions[one] for one in found} if unit == "session" else found, reverse=newest_first)


def text_of(random_: random.Random, most: int) -> str:
    alphabet = random_.choice(ALPHABETS) if random_.random() < 0.8 else "".join(ALPHABETS)
    return "".join(random_.choices(alphabet, k=random_.randint(0, most)))


def message_of(random_: random.Random, name: str) -> dict[str, Any]:
    calls = [
        {
            "name": random_.choice(["search", "weather"]),
            "args": {text_of(random_, 4): text_of(random_, 12)},
            "result": {
                "success": random_.random() < 0.5,
                "output": text_of(random_, 30),
                "error": text_of(random_, 20),
                "data": [text_of(random_, 9)],
            },
        }
        for _number in range(random_.randint(0, 3))
    ]
    steps = [{"iteration": 0, "thought": text_of(random_, 20), "tool_calls": calls}]
    at = NOON + timedelta(days=random_.randint(0, 60), seconds=random_.randint(0, 3))
    return answer(external_id=name, content=text_of(random_, 40), agent_steps=steps, created_at=at)


def query_of(random_: random.Random, texts: Sequence[str], taken: float = 0.6) -> SearchQuery | None:
    """A query with this share of its terms taken out of the texts, or `None` where it is refused."""
    terms = []
    for _number in range(random_.choice([1, 1, 1, 2, 3])):
        word = text_of(random_, random_.choice([2, 3, 5, 40]))
        if random_.random() < taken:
            text = random_.choice(texts)
            begin = random_.randrange(len(text))
            word = text[begin : begin + random_.choice([1, 2, 3, 6, 40])]
            word = random_.choice([str.upper, str.lower, str])(word)
        word = word.replace("\\", "\\\\").replace('"', '\\"')
        sign = random_.choice(["", "", "", "-"])
        terms.append(f'{sign}{random_.choice(["", "", "error:", "args:", "tool:", "title:"])}"{word}"')
    try:
        return parse(" ".join(terms))
    except InvalidInput:  # a term of one character, or nothing but excluded ones
        return None


def write_something(project: Project, random_: random.Random) -> None:
    """Store or change a message, give a session another title, or delete, restore or purge one of them."""
    number = random_.randint(0, 25)
    session = f"s{number % 5}"
    match random_.choice(["store"] * 7 + ["title", "delete", "restore", "purge", "delete session", "restore session"]):
        case "store":
            title = {"title": text_of(random_, 15)} if random_.random() < 0.3 else {}
            store(project, message_of(random_, f"m{number}"), external_id=session, **title)
        case "title":
            for key in Session.objects.filter(external_id=session).values_list("pk", flat=True):
                change_session(
                    primary, key, redact_session_patch(records.SessionPatch(title=text_of(random_, 15)), DEFAULT_RULES)
                )
        case "delete":
            Message.objects.filter(external_id=f"m{number}").update(deleted_at=NOON)
        case "restore":
            Message.with_deleted.filter(external_id=f"m{number}").update(deleted_at=None)
        case "purge":
            remove_messages(
                primary, list(Message.objects.filter(external_id=f"m{number}").values_list("pk", flat=True))
            )
        case "delete session":
            Session.objects.filter(external_id=session).update(deleted_at=NOON)
        case "restore session":
            Session.with_deleted.filter(external_id=session).update(deleted_at=None)


@pytest.mark.parametrize("seed", range(examples(2)))
def test_search_finds_what_a_scan_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    monkeypatch.setattr(search_index, "_MOST_KEYS", random_.choice([50, 5_000]))
    monkeypatch.setattr(search_index, "MERGED", 3)
    monkeypatch.setattr(search_index, "CHANGES_AT_A_TIME", random_.choice([3, 1_000]))
    project = Project.objects.create(slug="searched")
    failed = ToolCall.objects.filter(status=ToolCall.Status.ERROR)
    asked = asked_failed = 0
    for round_ in range(6):
        for _number in range(random_.randint(4, 20)):
            write_something(project, random_)
        if random_.random() < 0.7:
            index_changed(primary, patience=NO_PATIENCE, is_stopped=lambda: random_.random() < 0.1)
        scan = Scan()
        texts = [text for texts in scan.messages.values() for _name, text in texts]
        of_failed = [text for key in failed.values_list("pk", flat=True) for _name, text in scan.calls.get(key, ())]
        queries = [query_of(random_, texts) for _number in range(8)] if texts else []
        # Few of these words are in failed calls, so some queries are made of what failed calls say.
        queries += [query_of(random_, of_failed, taken=1) for _number in range(8)] if of_failed else []
        for query in queries:
            if query is None:
                continue
            for unit in UNITS:
                newest_first = random_.random() < 0.7
                expected = scan.find(query, unit, newest_first=newest_first)
                whole = find(primary, query, unit, alive(unit), IdRange(), newest_first=newest_first, limit=1_000)
                assert whole.ids == expected, (query, unit, round_)
                assert whole.reached is None
                asked += bool(expected)
                if unit == "call":
                    failed_calls = set(failed.values_list("pk", flat=True))
                    marked = find(
                        primary,
                        query,
                        unit,
                        failed_calls.intersection,
                        IdRange(),
                        newest_first=newest_first,
                        limit=1_000,
                        mark=Mark.FAILED,
                    )
                    assert marked.ids == [one for one in expected if one in failed_calls]
                    asked_failed += bool(marked.ids)
                if len(expected) > 1:
                    middle = expected[len(expected) // 2]
                    rest = IdRange(upper=middle) if newest_first else IdRange(lower=UUID(int=middle.int + 1))
                    page = find(primary, query, unit, alive(unit), rest, newest_first=newest_first, limit=2)
                    after = expected[len(expected) // 2 + 1 :]
                    assert page.ids == after[:2]
    assert asked
    assert asked_failed


def test_search_that_runs_out_of_time_goes_on_where_it_stopped(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "MOST_SOURCES", 1)
    monkeypatch.setattr(found, "COMPARED_AT_A_TIME", 1)
    random_ = random.Random(5)
    for number in range(12):
        store(
            project,
            {
                "external_id": f"m{number}",
                "role": "user",
                "content": text_of(random_, 40) + " needle",
                "created_at": NOON + timedelta(days=number * 5),
            },
        )
        if number < 9:
            index_changed(primary, patience=NO_PATIENCE)
    query = parse("needle")
    for newest_first in (True, False):
        ids, seen, rounds = IdRange(), [], 0
        while True:
            part = find(
                primary, query, "message", alive("message"), ids, newest_first=newest_first, limit=100, seconds=-1
            )
            seen += part.ids
            rounds += 1
            if part.reached is None:
                break
            ids = IdRange(upper=part.reached) if newest_first else IdRange(lower=UUID(int=part.reached.int + 1))
        assert seen == Scan().find(query, "message", newest_first=newest_first)
        assert len(seen) == 12
        assert rounds > 4


def test_pages_are_read_by_key_from_many_segments(project: Project) -> None:
    for number in range(12):
        at = NOON + timedelta(days=number * 5)
        store(project, answer(external_id=f"m{number}", content=f"needle {number}", created_at=at))
        index_changed(primary, patience=NO_PATIENCE)
    query = parse("needle")
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {SearchPosting._meta.db_table}")
    with CaptureQueriesContext(connection) as statements:
        numbers_with(primary, list(SearchSegment.objects.values_list("pk", flat=True)), query.wanted, {})
    of_pages = [one["sql"] for one in statements if SearchPosting._meta.db_table in one["sql"]]
    assert 1 <= len(of_pages) <= 2
    with connection.cursor() as cursor:
        for statement in of_pages:
            cursor.execute(f"EXPLAIN {statement}")
            plan = "\n".join(line for (line,) in cursor.fetchall())
            # A hash join reads all postings.
            assert "Hash Join" not in plan, plan


def test_slow_loads_are_not_followed_by_larger_ones(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        at = NOON + timedelta(days=number)
        store(project, answer(external_id=f"m{number}", content="needle", created_at=at))
        index_changed(primary, patience=NO_PATIENCE)
    loads: list[int] = []

    def counted(
        db: Database, segments: Collection[UUID], terms: Sequence[Term], sizes: Sizes
    ) -> dict[UUID, list[Numbers]]:
        loads.append(len(segments))
        return numbers_with(db, segments, terms, sizes)

    monkeypatch.setattr(found, "numbers_with", counted)
    for seconds, expected in ((60.0, [1, 2, 2]), (0.0, [1] * 5)):
        monkeypatch.setattr(found, "_SECONDS_OF_LOAD", seconds)
        loads.clear()
        page = find(primary, parse("needle"), "message", alive("message"), IdRange(), newest_first=True, limit=10)
        assert (len(page.ids), loads) == (5, expected)


@pytest.mark.parametrize(("unit", "found_count", "read_rows"), [("call", 1, 1), ("message", 2, 4)])
def test_only_rows_of_what_may_have_all_terms_are_read(
    project: Project, monkeypatch: pytest.MonkeyPatch, unit: Unit, found_count: int, read_rows: int
) -> None:
    for number, outputs in enumerate((["north wind"], ["north star", "solar wind", "north"], ["north"], ["wind"])):
        calls = [{"name": "search", "args": {}, "result": {"output": output}} for output in outputs]
        steps = [{"iteration": 0, "tool_calls": calls}]
        store(project, answer(external_id=f"m{number}", agent_steps=steps, created_at=NOON + timedelta(days=number)))
    index_changed(primary, patience=NO_PATIENCE)
    read: list[int] = []

    def counted(db: Database, numbers_of: Mapping[UUID, Numbers]) -> dict[UUID, Any]:
        read.extend(len(numbers) for numbers in numbers_of.values())
        return rows_of(db, numbers_of)

    monkeypatch.setattr(found, "rows_of", counted)
    page = find(primary, parse("north wind"), unit, alive(unit), IdRange(), newest_first=True, limit=10)
    assert (len(page.ids), read) == (found_count, [read_rows])

"""Search: the same rows as a scan of all texts."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from access_app.errors import InvalidInput
from access_app.models import Project
from messages_app.models import Message
from messages_app.sql.pagination import IdRange
from tests.traces_app.conftest import NOON, answer, store
from traces_app.maintenance import search_index
from traces_app.maintenance.search_index import index_queued
from traces_app.models import ToolCall
from traces_app.queries.search import found
from traces_app.queries.search.found import Unit, find
from traces_app.queries.search.grams import fold
from traces_app.queries.search.query import SearchQuery, parse
from traces_app.queries.search.texts import Kind, texts_of_messages

pytestmark = pytest.mark.django_db
NO_PATIENCE = timedelta(0)
ALPHABETS = ("abAB ", "ßſsS", "北京上海天气", "ée\u0301Ａａ", "😀😁a", "אבג ", "कि", '"\\-: \n')


def alive(unit: Unit) -> Callable[[list[UUID]], Collection[UUID]]:
    rows: Any = Message.objects.all() if unit == "message" else ToolCall.objects.all()
    return lambda ids: set(rows.filter(pk__in=ids).values_list("pk", flat=True))


def scanned(query: SearchQuery, unit: Unit, *, newest_first: bool) -> list[UUID]:
    """Return what a reader of all texts would find."""
    texts_by_id: dict[UUID, list[tuple[str, str]]] = {}
    for row in texts_of_messages(list(Message.objects.values_list("pk", flat=True))):
        if unit == "message" or row.kind == Kind.CALL:
            texts = texts_by_id.setdefault(row.message_id if unit == "message" else row.id, [])
            texts += [(name, fold(text)) for name, text in row.texts]
    return sorted(
        (
            one
            for one, texts in texts_by_id.items()
            if all(any(term.is_in(*text) for text in texts) for term in query.wanted)
            and not any(term.is_in(*text) for text in texts for term in query.excluded)
        ),
        reverse=newest_first,
    )


def text_of(random_: random.Random, most: int) -> str:
    alphabet = random_.choice(ALPHABETS) if random_.random() < 0.8 else "".join(ALPHABETS)
    return "".join(random_.choices(alphabet, k=random_.randint(0, most)))


def message_of(random_: random.Random, name: str) -> dict[str, Any]:
    calls = [
        {
            "name": random_.choice(["search", "weather"]),
            "args": {text_of(random_, 4): text_of(random_, 12)},
            "result": {"output": text_of(random_, 30), "error": text_of(random_, 20), "data": [text_of(random_, 9)]},
        }
        for _number in range(random_.randint(0, 3))
    ]
    steps = [{"iteration": 0, "thought": text_of(random_, 20), "tool_calls": calls}]
    at = NOON + timedelta(days=random_.randint(0, 60), seconds=random_.randint(0, 3))
    return answer(external_id=name, content=text_of(random_, 40), agent_steps=steps, created_at=at)


def query_of(random_: random.Random, texts: Sequence[str]) -> SearchQuery | None:
    terms = []
    for _number in range(random_.choice([1, 1, 1, 2, 3])):
        word = text_of(random_, random_.choice([2, 3, 5, 40]))
        if random_.random() < 0.6:
            text = random_.choice(texts)
            begin = random_.randrange(len(text))
            word = text[begin : begin + random_.choice([1, 2, 3, 6, 40])]
            word = random_.choice([str.upper, str.lower, str])(word)
        word = word.replace("\\", "\\\\").replace('"', '\\"')
        sign = random_.choice(["", "", "", "-"])
        terms.append(f'{sign}{random_.choice(["", "", "error:", "args:", "tool:"])}"{word}"')
    try:
        return parse(" ".join(terms))
    except InvalidInput:  # a term of one character, or nothing but excluded ones
        return None


@pytest.mark.parametrize("seed", range(6))
def test_search_finds_what_a_scan_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random_ = random.Random(seed)
    monkeypatch.setattr(search_index, "_MOST_KEYS", random_.choice([50, 5_000]))
    monkeypatch.setattr(search_index, "MERGED", 3)
    project = Project.objects.create(slug="searched")
    asked = 0
    for round_ in range(6):
        for _number in range(random_.randint(1, 12)):
            store(project, message_of(random_, f"m{random_.randint(0, 25)}"))
        if random_.random() < 0.7:
            index_queued(patience=NO_PATIENCE)
        if random_.random() < 0.5:
            Message.objects.filter(external_id=f"m{random_.randint(0, 25)}").update(deleted_at=NOON)
        texts = [
            text
            for row in texts_of_messages(list(Message.objects.values_list("pk", flat=True)))
            for _, text in row.texts
        ]
        for _number in range(25):
            query = query_of(random_, texts)
            if query is None:
                continue
            for unit in ("message", "call"):
                newest_first = random_.random() < 0.7
                expected = scanned(query, unit, newest_first=newest_first)
                whole = find(query, unit, alive(unit), IdRange(), newest_first=newest_first, limit=1_000)
                assert whole.ids == expected, (query, unit, round_)
                assert whole.reached is None
                asked += bool(expected)
                if len(expected) > 1:
                    middle = expected[len(expected) // 2]
                    rest = IdRange(upper=middle) if newest_first else IdRange(lower=UUID(int=middle.int + 1))
                    page = find(query, unit, alive(unit), rest, newest_first=newest_first, limit=2)
                    after = expected[len(expected) // 2 + 1 :]
                    assert page.ids == after[:2]
    assert asked > 20


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
            index_queued(patience=NO_PATIENCE)
    query = parse("needle")
    for newest_first in (True, False):
        ids, seen, rounds = IdRange(), [], 0
        while True:
            part = find(query, "message", alive("message"), ids, newest_first=newest_first, limit=100, seconds=-1)
            seen += part.ids
            rounds += 1
            if part.reached is None:
                break
            ids = IdRange(upper=part.reached) if newest_first else IdRange(lower=UUID(int=part.reached.int + 1))
        assert seen == scanned(query, "message", newest_first=newest_first)
        assert len(seen) == 12
        assert rounds > 4

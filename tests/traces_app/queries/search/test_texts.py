"""The texts of JSON that are searched, and how much of a large value is read for them."""

from __future__ import annotations

import json
import tracemalloc
from uuid import UUID

import pytest

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from tests.traces_app.conftest import answer, store
from traces_app.queries.search import texts
from traces_app.queries.search.texts import Kind, texts_of_messages, words_of_json

ODD = {"city": "Xi'an", "tags": ['a\nb "c"', "\\", "\\\\", "\x01é\U0001f600", ""], "n": {"m": [1, None, True]}}
LINES = ["city: Xi'an", "tags: ", "a", 'b "c"', "\\", "\\\\", "\x01é\U0001f600", "", "n: ", "m: ", "1", "null", "true"]


def test_keys_and_values_of_json_are_lines_without_escapes() -> None:
    assert words_of_json(json.dumps(ODD, ensure_ascii=False)).split("\n") == LINES


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_json_that_is_cut_anywhere_is_read_up_to_there(ensure_ascii: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    written = json.dumps(ODD, ensure_ascii=ensure_ascii)
    whole = words_of_json(written)
    for size in range(len(written)):
        monkeypatch.setattr(texts, "MOST_OF_JSON", size)
        cut = words_of_json(written)
        # Its end may be half of a character that is written in two escapes, or half of a separator.
        assert whole.startswith(cut.rstrip("\ud83d,"))
        assert len(cut) > size / 6 - 10


@pytest.mark.parametrize("unit", ["a", "\\n", "\\u0001", "[", '"",'])
def test_large_json_takes_no_memory_for_each_character(unit: str) -> None:
    written = f'{{"_raw": ["{unit * 3_000_000}"]}}'
    tracemalloc.start()
    words_of_json(written)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50_000_000


@pytest.mark.django_db
def test_only_the_beginning_of_a_value_is_read(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "MOST_CHARACTERS", 20)
    monkeypatch.setattr(texts, "MOST_OF_JSON", 40)
    call = {"id": "c", "name": "look", "args": {"q": "x" * 100}, "result": {"output": "y" * 100, "success": True}}
    store(project, answer(content="z" * 100, agent_steps=[{"iteration": 0, "tool_calls": [call]}]))
    message_id: UUID = Message.objects.get().pk
    read: list[int] = []
    monkeypatch.setattr(texts, "words_of_json", lambda text: read.append(len(text)) or text)
    found = {(row.kind, field): text for row in texts_of_messages(primary, [message_id]) for field, text in row.texts}
    assert found[Kind.MESSAGE, "content"] == "z" * 20
    assert found[Kind.CALL, "output"] == "y" * 20
    assert found[Kind.CALL, "args"] == '{"q": "xxxxxxxxxxxxx'
    assert max(read) == 40

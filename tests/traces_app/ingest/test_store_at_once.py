"""Writes in a single round trip: the same rows as step by step."""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from access_app.db import primary
from access_app.db.base import DatabaseWrapper
from access_app.models import Project
from messages_app.models import Message, MessageKey, Reference, Session
from sdk.tests.length import examples
from tests.traces_app.conftest import NOON, answer, question, session_of, store
from traces_app.ingest import id_cache, sessions
from traces_app.ingest import store as writes
from traces_app.ingest.pipeline import ingest
from traces_app.models import AgentStep, ToolCall, ToolResult
from tracesite_sdk.records import ids

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = (ToolResult, ToolCall, AgentStep, Reference, Message, MessageKey, Session)

texts = st.one_of(
    st.sampled_from(
        ["", "Weather", "\\N", "\\", "a\tb\nc\rd", "{}", '"', "$1 %s", "NULL", "上海 31 °C", "\x00", "\ud800"]
    ),
    st.text(max_size=8),
)
values = st.sampled_from([None, 1, 2.5, "x", "\x00", {}, {"n": 1}, {"n": 1, "m": 2}, [1, "2"]])
objects = st.dictionaries(st.sampled_from(["plan", "lang", "password", "token", "\x00"]), values, max_size=3)
said = st.fixed_dictionaries(
    {},
    optional={
        "title": texts,
        "description": texts,
        "end_user": texts,
        "current_phase": texts,
        "status": st.sampled_from(["planning", "running", "error"]),
        "tags": st.lists(texts.filter(bool), max_size=2),
        "workflow": st.one_of(objects, st.just([1, 2])),
        "metadata": objects,
    },
)
messages = st.one_of(
    st.builds(lambda text: question(content=text), texts),
    st.builds(lambda text, metadata: answer(content=text, error=text, metadata=metadata), texts, objects),
    st.builds(lambda text: answer(agent_steps=[], knowledge_references=[{"content": text, "score": 0.5}]), texts),
    st.builds(
        lambda data, texts_: answer(
            agent_steps=[
                {"thought": text, "tool_calls": [{"name": "t", "args": {"a": text}, "result": {"output": text, "data": data}}]}
                for text in texts_
            ]
        ),
        values,
        st.lists(texts, min_size=3, max_size=20),
    ),
)  # fmt: skip
items = st.tuples(st.sampled_from("abc"), said, st.lists(messages, min_size=1, max_size=6))
batches = st.lists(st.lists(items, min_size=1, max_size=3), min_size=1, max_size=3)


@settings(
    max_examples=examples(12),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches=batches)
def test_insert_at_once_gives_the_rows_of_step_by_step(
    transactional_db: None, batches: list[list[tuple[str, dict[str, Any], list[dict[str, Any]]]]]
) -> None:
    project, _created = Project.objects.get_or_create(slug="both")
    rows = []
    for is_at_once in (True, False):
        for model in TABLES:
            model._base_manager.all().delete()
        id_cache._sessions.clear()
        id_cache._claimed.clear()
        numbers = count()
        with (
            # Otherwise only random ids would differ.
            mock.patch.object(
                sessions.ids, "session_id", lambda at, n=numbers: ids.message_id(at, "user", 0, (next(n),))
            ),
            mock.patch.object(writes, "_look_new", wraps=writes._look_new if is_at_once else lambda *_: False),
            mock.patch.object(writes, "insert_at_once", wraps=writes.insert_at_once) as at_once,
        ):
            names = count()
            for batch in batches:
                sent = [
                    session_of(
                        *(
                            {**message, "external_id": f"m{next(names)}", "created_at": NOON + timedelta(seconds=place)}
                            for place, message in enumerate(of_session)
                        ),
                        external_id=name,
                        created_at=NOON,
                        **fields,
                    )
                    for name, fields, of_session in batch
                ]
                outcomes = ingest(primary, project.pk, sent)
                assert {message.state for outcome in outcomes for message in outcome.messages} == {"created"}
        assert at_once.call_count == (len(batches) if is_at_once else 0)
        rows.append({model.__name__: rows_of(model) for model in TABLES})
    assert rows[0] == rows[1]


def rows_of(model: Any) -> list[dict[str, Any]]:
    found = model._base_manager.order_by("pk").values()
    return [{name: value for name, value in row.items() if name != "updated_at"} for row in found]


def test_message_of_known_session_takes_one_round_trip() -> None:
    project = Project.objects.create(slug="quick")
    store(project, answer(external_id="before"))
    with CaptureQueriesContext(connection) as exchanges:
        store(project, answer(), title="Weather", metadata={"lang": "en"})
    assert len(exchanges) == 1
    session = Session.objects.get()
    assert (session.message_count, session.title, session.metadata) == (2, "Weather", {"lang": "en"})


def test_batch_with_new_sessions_takes_two_round_trips() -> None:
    project = Project.objects.create(slug="batch")
    store(project, answer())
    batch = [session_of(*(answer(external_id=f"a{n}") for n in range(20)), external_id=name) for name in ("x", "y")]
    with CaptureQueriesContext(connection) as queries:
        ingest(primary, project.pk, batch)
    # The sessions that exist or are purged, and the write.
    assert len(queries) == 2


def test_repeated_session_fields_are_not_written_again() -> None:
    project = Project.objects.create(slug="same")
    metadata = {"plan": "".join(map(str, range(5_000)))}
    sizes = []
    for number, added in enumerate([{}, {}, {"last": 1}]):
        store(project, question(external_id=f"q{number}"), metadata=metadata | added)
        with connection.cursor() as cursor:
            # Of values that are too large for the row itself.
            cursor.execute(
                "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE relname = 'messages_app_session'"
            )
            sizes.append(cursor.fetchone()[0])
    assert 0 < sizes[0] == sizes[1] < sizes[2]


def test_grown_transcript_is_looked_up_before_the_write() -> None:
    project = Project.objects.create(slug="grown")
    with mock.patch.object(writes, "insert_at_once", wraps=writes.insert_at_once) as at_once:
        store(project, question(), source="import")
        assert at_once.call_count == 1
        id_cache._claimed.clear()
        outcome = store(project, question(), answer(), source="import")
        assert at_once.call_count == 1
    assert [message.state for message in outcome.messages] == ["unchanged", "created"]


def test_tables_analysed_while_small_are_read_by_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = Project.objects.create(slug="small")
    store(project, answer(external_id="first"))
    monkeypatch.setattr(DatabaseWrapper, "avoids_whole_tables", True)
    with connection.cursor() as cursor:
        cursor.execute(f"ANALYZE {', '.join(tables_read())}")
    connection.close()
    before = tables_read()
    for number in range(3):
        store(project, answer(external_id=f"a{number}"))
    assert tables_read() == before
    connection.close()  # the next test has one as it was


def tables_read() -> dict[str, int]:
    """Return the number of sequential scans of our tables."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute("SELECT relname, seq_scan FROM pg_stat_user_tables WHERE relname ~ '^(messages|traces)_app_'")
        return dict(cursor.fetchall())

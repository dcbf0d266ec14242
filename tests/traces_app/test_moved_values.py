"""An encrypted value that was copied by SQL from another row, column or project is refused wherever its column is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test import Client
from django.urls import reverse

from access_app.db import primary
from access_app.encryption.columns import ENCRYPTED, Column, Form
from access_app.encryption.envelope import DataKey
from access_app.encryption.errors import Damaged
from access_app.encryption.keys import add_key, end_encryption, key_of
from access_app.keys import create_key
from access_app.models import Project
from messages_app.admin.downloads import Downloads
from messages_app.models import Message, Session
from tests.traces_app.conftest import question, store
from tests.traces_app.planted import Garden, plant
from traces_app.queries.search.texts import texts_of_messages
from traces_app.views.session_exports import EXPORTS
from tracesite_sdk.records.ids import child_id

OF_THE_MESSAGE = "/api/v1/messages/{message}/?expand=references,results,inputs"
ROUTES = {
    "messages_app_session": "/api/v1/sessions/{session}/",
    "traces_app_event": "/api/v1/sessions/{other}/events/",
    "traces_app_score": "/api/v1/scores/",
}
"""Where a table is shown, if not below its message."""
ON_THE_PAGE = {table for table in ENCRYPTED if table not in ROUTES} - {"traces_app_context", "traces_app_span"}
"""The page of a message links to what models were asked."""
UNSHOWN = {"traces_app_span"}
"""Spans are read to project them again, and shown nowhere."""


def moved(column: Column, key: DataKey, row: bytes) -> str:
    """Return a value as the column has it in another row or project."""
    if column.form is Form.TEXT:
        return key.sealed(column, row, "smuggled")
    return key.sealed(column, row, '{"value":"smuggled","nodes":["smuggled"]}')


def from_another_column(table: str, name: str, key: DataKey, row: bytes) -> str | None:
    """Return a value of the same row that another column of this form has; None if the table has no other one."""
    form = ENCRYPTED[table][name].form
    others = [column for other, column in ENCRYPTED[table].items() if other != name and column.form is form]
    if table == "traces_app_toolresult":
        # A result has the id of its call.
        others = [column for column in ENCRYPTED["traces_app_toolcall"].values() if column.form is form]
    return moved(others[0], key, row) if others else None


def test_moved_value_is_refused_whatever_its_column(keeper: None, project: Project, stranger: Project) -> None:
    add_key(project)
    add_key(stranger)
    own, foreign = key_of(project.pk), key_of(stranger.pk)
    assert own is not None and foreign is not None
    client = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read', 'write'])[1]}"})
    reader = Client()
    reader.force_login(User.objects.create_superuser("ada"))
    plant(Garden("word{}"), client)
    ids = {
        "session": Session.objects.get(external_id="s1").pk,
        "other": Session.objects.get(external_id="s2").pk,
        "message": Message.objects.get(external_id="m1").pk,
    }
    another = child_id(ids["message"], "another").bytes
    page = f"/admin/messages_app/message/{ids['message']}/change/"
    assert reader.get(page).status_code == 200
    # Pages raise what they have no answer for.
    reader.raise_request_exception = False

    shown = []
    for table, columns in ENCRYPTED.items():
        path = ROUTES.get(table, OF_THE_MESSAGE).format(**ids)
        assert client.get(path).status_code == 200
        for name, column in columns.items():
            copies = {
                "row": lambda _row, column=column: moved(column, own, another),
                "column": partial(from_another_column, table, name, own),
                "project": lambda _row, column=column: moved(column, foreign, another),
            }
            for source, copy in copies.items():
                with put(table, name, copy) as is_put:
                    answers = [client.get(path)] if is_put and table not in UNSHOWN else []
                    if answers and source == "row" and table in ON_THE_PAGE:
                        answers.append(reader.get(page))
                    shown += [
                        (table, name, source, answer.status_code, answer["Content-Type"])
                        for answer in answers
                        if answer.status_code != 503 or "behind the back" not in answer.content.decode()
                    ]
    assert shown == []


def test_moved_value_is_refused_where_it_is_looked_up(keeper: None, project: Project) -> None:
    """By what reads one column only: files of single values, and the first error of a chain."""
    add_key(project)
    key = key_of(project.pk)
    assert key is not None
    client = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read', 'write'])[1]}"})
    plant(Garden("word{}"), client)
    failed = {"name": "t", "result": {"success": False, "error": "no disk"}}
    store(project, {"role": "assistant", "agent_steps": [{"tool_calls": [failed]}]}, external_id="failed")
    reader = Client(raise_request_exception=False)
    reader.force_login(User.objects.create_superuser("ada"))
    failed_session = Session.objects.get(external_id="failed").pk
    places = [("traces_app_toolresult", "error", client, f"/api/v1/chains/?session={failed_session}")]
    for model, its_admin in admin.site._registry.items():
        downloads = getattr(its_admin, "downloads", Downloads())
        for name, source in downloads.sources.items():
            table, row = source.rows.model._meta.db_table, source.rows.first()
            for column in source.columns & ENCRYPTED[table].keys():
                page = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
                places.append((table, column, reader, f"{page}value/{name}/{row.pk}/{column}/"))
    assert len(places) > 20

    another = child_id(Message.objects.get(external_id="m1").pk, "another").bytes
    shown = []
    for table, name, caller, path in places:
        with put(table, name, lambda _row, column=ENCRYPTED[table][name]: moved(column, key, another)):
            answer = caller.get(path)
            if answer.status_code != 503 or "behind the back" not in answer.content.decode():
                shown.append((path, answer.status_code))
    assert shown == []


def test_values_are_searched_while_encryption_is_turned_off(keeper: None, project: Project) -> None:
    """The statements of the search name the rows of all values that they read."""
    add_key(project)
    failed = {
        "name": "t",
        "args": {"q": "argword"},
        "result": {"success": False, "error": "errword", "output": "outword"},
    }
    answered = {"role": "assistant", "content": "textword", "agent_steps": [{"tool_calls": [failed]}]}
    store(project, question(content="askword"), answered, title="nameword")
    end_encryption(project)
    words = {
        word
        for found in texts_of_messages(primary, list(Message.objects.values_list("pk", flat=True)))
        for _field, text in found.texts
        for word in text.split()
        if word.endswith("word")
    }
    assert words == {"q:argword", "errword", "outword", "textword", "askword", "nameword"}


@pytest.mark.parametrize("value", ["content", "content::text", "left(content, 1000) AS excerpt", "metadata -> 'plan'"])
def test_statement_without_the_id_of_a_row_is_refused(keeper: None, project: Project, value: str) -> None:
    add_key(project)
    store(project, question(content="the question", metadata={"plan": "the plan"}))
    with connection.cursor() as cursor:
        for key in ("id", "id AS row_id", "id::text AS row_id"):
            cursor.execute(f"SELECT {key}, {value} FROM messages_app_message")
            ((_id, read),) = cursor.fetchall()
            assert "the " in read
        cursor.execute(f"SELECT role, {value} FROM messages_app_message")
        with pytest.raises(Damaged):
            cursor.fetchall()


def test_moved_value_ends_every_export(keeper: None, project: Project) -> None:
    add_key(project)
    store(project, *(question(external_id=f"m{at}", content="x" * 150_000) for at in range(30)))
    client = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read'])[1]}"})
    reader = Client(raise_request_exception=False)
    reader.force_login(User.objects.create_superuser("ada"))
    session, messages = Session.objects.get(), list(Message.objects.order_by("pk"))
    exports = [(client, f"/api/v1/sessions/{session.pk}/export/?format={name}") for name in EXPORTS if name != "otlp"]
    exports += [(reader, f"/admin/messages_app/message/export/{form}/") for form in ("csv", "jsonl")]
    key = key_of(project.pk)
    assert key is not None
    copied = moved(ENCRYPTED["messages_app_message"]["content"], key, bytes(16))

    Message.objects.filter(pk=messages[-1].pk).update(content=copied)
    for caller, path in exports[:-2]:
        # The first megabytes are sent by then, so that the server closes the connection before the end.
        response = caller.get(path)
        assert response.streaming, path
        with pytest.raises(Damaged):
            b"".join(response)  # type: ignore[arg-type]  # not an asynchronous one
    for message in messages:
        Message.objects.filter(pk=message.pk).update(content=copied)
    for caller, path in exports:
        response = caller.get(path)
        assert response.status_code == 503, path
        assert "behind the back" in response.content.decode(), path


@contextmanager
def put(table: str, name: str, copy: Callable[[bytes], str | None]) -> Iterator[bool]:
    """Let all rows of the table have what `copy` returns for their ids; yield False if it returns None."""
    before = transaction.savepoint()
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {table}")
        copies = [(copy(row.bytes), row) for (row,) in cursor.fetchall()]
        is_put = all(value is not None for value, _row in copies)
        if is_put:
            cursor.executemany(f"UPDATE {table} SET {name} = %s WHERE id = %s", copies)
    yield is_put
    transaction.savepoint_rollback(before)

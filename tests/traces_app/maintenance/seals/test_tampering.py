"""Every change by SQL to a sealed row is found: each column, rows removed, added and moved. Generated from the models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import connection, models, transaction

from access_app.models import Project
from messages_app.models import Message
from traces_app.ingest.tables import fields_of
from traces_app.maintenance.seals.rows import KINDS, Kind
from traces_app.models import ToolResult

from .sealing import seal, store_run, summary, verify

WHERE = {
    "message": "id = %(message)s",
    "results": "id IN (SELECT id FROM traces_app_toolcall WHERE message_id = %(message)s)",
    "entries": "id IN (SELECT unnest(entries) FROM traces_app_context WHERE message_id = %(message)s)",
}


# The foreign keys of a month refuse some changes; whoever owns the tables drops them first.
DROP_FOREIGN_KEYS = """
    DO $$ DECLARE one record; BEGIN
        FOR one IN SELECT conrelid::regclass AS leaf, conname FROM pg_constraint
            JOIN pg_class ON pg_class.oid = conrelid AND relispartition WHERE contype = 'f'
        LOOP EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', one.leaf, one.conname); END LOOP;
    END $$
    """


class RolledBackError(Exception):
    pass


@contextmanager
def tampering() -> Iterator[Callable[..., None]]:
    """Yield a function that executes SQL; everything is undone at the end."""

    def execute(statement: str, **values: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(statement, values)
            assert cursor.rowcount > 0, statement

    try:
        with transaction.atomic():
            yield execute
            raise RolledBackError
    except RolledBackError:
        pass


def store_sealed(project: Project) -> tuple[UUID, UUID]:
    """Return two sealed runs, whose rows have no foreign keys any more."""
    runs = store_run(project), store_run(project, "a2")
    assert seal().sealed == 4
    with connection.cursor() as cursor:
        cursor.execute(DROP_FOREIGN_KEYS)
    assert verify() == {}
    return runs


def changed_value(field: models.Field[Any, Any]) -> str:
    """Return SQL for another value of a column of this type."""
    column = field.column
    match field:
        case models.UUIDField():
            # Another one with the same time, so that it stays in its month.
            return f"overlay({column}::text placing '0000000000' from 27)::uuid"
        case models.ForeignKey() if field.target_field.get_internal_type() == "UUIDField":
            return f"coalesce(overlay({column}::text placing '0000000000' from 27), '{UUID(int=1)}')::uuid"
        case models.ForeignKey():
            return f"{column} + 1000"
        case ArrayField():
            return f"array_append({column}, '{UUID(int=1)}')"
        case models.JSONField():
            return """'{"tampered": true}'"""
        case models.TextField() | models.CharField():
            return f"left(coalesce({column}, ''), 15) || 'x'"
        case models.BooleanField():
            return f"NOT {column}"
        case models.DateTimeField():
            return f"coalesce({column}, now()) + interval '1 microsecond'"
        case _:
            return f"coalesce({column}, 0) + 1"


def one_row(kind: Kind) -> str:
    condition = WHERE.get(kind.name, "message_id = %(message)s")
    return f"id = (SELECT id FROM {kind.model._meta.db_table} WHERE {condition} ORDER BY id LIMIT 1)"


@pytest.mark.django_db
def test_each_column_changed_by_sql_is_found(project: Project) -> None:
    message_id, other = store_sealed(project)
    missed = []
    for kind in KINDS:
        table = kind.model._meta.db_table
        for column, field in fields_of(kind.model).items():
            if column in kind.without:
                continue
            with tampering() as execute:
                execute(
                    f"UPDATE {table} SET {column} = {changed_value(field)} WHERE {one_row(kind)}", message=message_id
                )
                found = verify()
            of_context = {"contexts", "entries"} & {kind.name}
            expected = {kind.name} | (of_context and {"contexts", "entries"})
            if not expected & set(found.get(str(message_id), [])) or str(other) in found:
                missed.append((kind.name, column, found))
    assert missed == []
    assert verify() == {}


@pytest.mark.django_db
def test_null_and_empty_text_differ(project: Project) -> None:
    runs = store_sealed(project)
    with tampering() as execute:
        execute("UPDATE traces_app_toolresult SET raw = '' WHERE raw IS NULL")
        assert verify() == {str(one): ["results"] for one in runs}


@pytest.mark.django_db
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_row_removed_added_or_moved_is_found(project: Project, kind: Kind) -> None:
    message_id, other = store_sealed(project)
    table, columns = kind.model._meta.db_table, list(fields_of(kind.model))
    with tampering() as execute:
        execute(f"DELETE FROM {table} WHERE {one_row(kind)}", message=message_id)
        assert kind.name in verify()[str(message_id)]
    if kind.model in (Message, ToolResult) or kind.name == "entries":
        return  # of these there is one for each message, call or reference to it
    copied = ", ".join(columns).replace("id", f"'{message_id.hex[:16]}{'8' + '0' * 15}'::uuid", 1)
    with tampering() as execute:
        execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {copied} FROM {table} WHERE {one_row(kind)}",
            message=message_id,
        )
        assert verify() == {str(message_id): [kind.name]}
    elsewhere = copied.replace(message_id.hex[:16], f"{message_id.int + (1 << 90):032x}"[:16])
    with tampering() as execute:
        # With an id of another time, at which the rows of the message are not looked for.
        execute(
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {elsewhere} FROM {table} WHERE {one_row(kind)}",
            message=message_id,
        )
        assert verify() == {str(message_id): [kind.name]}
    with tampering() as execute:
        execute(f"UPDATE {table} SET message_id = %(other)s WHERE {one_row(kind)}", message=message_id, other=other)
        found = verify()
        assert kind.name in found[str(message_id)]
        assert kind.name in found[str(other)]


@pytest.mark.django_db
def test_renamed_tool_changes_its_calls(project: Project) -> None:
    runs = store_sealed(project)
    with tampering() as execute:
        execute("UPDATE traces_app_tool SET name = 'harmless' WHERE name = 'search'")
        assert verify() == {str(one): ["calls"] for one in runs}


@pytest.mark.django_db
def test_message_removed_by_sql_is_named_even_without_its_seal(project: Project) -> None:
    message_id, _other = store_sealed(project)
    tables = {"id": "messages_app_message", "message_id": "traces_app_agentstep"}
    with tampering() as execute:
        for column, table in tables.items():
            execute(f"DELETE FROM {table} WHERE {column} = %(message)s", message=message_id)
        assert verify() == {str(message_id): ["message"]}
        execute("DELETE FROM traces_app_messageseal WHERE id = %(message)s", message=message_id)
        assert verify() == {str(message_id): ["seal"]}


@pytest.mark.django_db
def test_message_added_by_sql_is_not_sealed(project: Project) -> None:
    message_id, _other = store_sealed(project)
    columns = ", ".join(fields_of(Message))
    copied = columns.replace("id", f"'{message_id.hex[:16]}{'a' + '0' * 15}'::uuid", 1)
    with tampering() as execute:
        execute(
            f"INSERT INTO messages_app_message ({columns}) SELECT {copied} FROM messages_app_message "
            "WHERE id = %(message)s",
            message=message_id,
        )
        # A token that the application did not make.
        execute(
            "INSERT INTO messages_app_change (project_id, message_id, kind, token) "
            "SELECT project_id, id, 'content', '\\x00' FROM messages_app_message"
        )
        report = seal()
        assert (report.sealed, report.resealed, report.refused) == (0, 0, 5)
        assert (verify(), summary()["unsealed"]) == ({}, 1)
        (added,) = verify(strict=True)
        assert UUID(added).hex == f"{message_id.hex[:16]}a{'0' * 15}"

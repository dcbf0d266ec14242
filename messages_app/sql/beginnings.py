"""The beginning of a text in SQL, so that the database sends no more; also of a text that is encrypted, or masked when it is read."""

from __future__ import annotations

from typing import Any

from django.db.models import Case, F, Func, IntegerField, JSONField, TextField, When
from django.db.models.expressions import Col
from django.db.models.functions import Cast, Left
from django.db.models.lookups import LessThanOrEqual

from access_app.encryption.columns import ENCRYPTED, Column
from access_app.encryption.envelope import PREFIX
from access_app.read_marks import ReadMark

SMALL_BYTES = 2_000
"""What PostgreSQL keeps in the row, about: the rest is in another table."""


class Beginning(Left):
    """`left(text, length)`. An encrypted text comes whole, with a mark that lets its reader cut it, and check its column and row
    (access_app.encryption.reading). A masked reader gets more, with a mark of its own (access_app.read_marks)."""

    mark = ""

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        text, length = self.get_source_expressions()
        characters = int(length.value)
        if connection.mask is None:
            return self._cut(compiler, connection, characters)
        mark = _mark_of(text, characters, is_pretty=bool(self.mark))
        sql, values = self._cut(compiler, connection, mark.characters_read or characters)
        return f"('{mark}' || {sql})", values

    def _cut(self, compiler: Any, connection: Any, characters: int) -> Any:
        text, _length = self.get_source_expressions()
        encrypted = [part for part in text.flatten() if _column_of(part) is not None] if connection.decrypts else []
        sql, values = compiler.compile(text)
        if not encrypted:
            return f"LEFT({sql}, {characters})", values
        (column,) = encrypted
        about = _column_of(column)
        assert about is not None, "it is encrypted"
        row_id, _no_values = compiler.compile(Col(column.alias, column.target.model._meta.pk))
        return (
            f"CASE WHEN strpos({sql}, '{PREFIX}') > 0 "
            f"THEN 'tscut{characters}{self.mark}:{about.number}:' || {row_id} || ':' || {sql} "
            f"ELSE LEFT({sql}, {characters}) END",
            (*values, *values, *values),
        )


def beginning_of_small(column: str, characters: int) -> Case:
    """Return the beginning of a JSON column where it is stored in its row, and NULL where it is longer.

    To cut a long one PostgreSQL would read and decompress all of it, for each row.
    """
    is_small = LessThanOrEqual(Func(F(column), function="pg_column_size", output_field=IntegerField()), SMALL_BYTES)
    return Case(When(is_small, then=Beginning(Cast(column, TextField()), characters)))


class PrettyBeginning(Beginning):
    """The same of a JSON column as indented text: see `messages_app.safe_text.pretty_json`."""

    mark = "p"


class JsonText(Func):
    """A JSON column as text, or as indented text, which is masked by the name of the column."""

    output_field = TextField()

    def __init__(self, column: str, *, is_pretty: bool = False) -> None:
        self.is_pretty = is_pretty
        super().__init__(pretty(column) if is_pretty else Cast(F(column), TextField()))

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        (text,) = self.get_source_expressions()
        sql, values = compiler.compile(text)
        return (
            f"('{_mark_of(text, is_pretty=self.is_pretty)}' || {sql})" if connection.mask is not None else sql
        ), values


def pretty(column: str) -> Func:
    """Return the expression for a JSON column as indented text, with exact numbers and non-ASCII kept."""
    return Func(F(column), function="jsonb_pretty", output_field=TextField())


def _mark_of(text: Any, characters: int | None = None, *, is_pretty: bool = False) -> ReadMark:
    columns = {part.target for part in text.flatten() if isinstance(part, Col)}
    names = {str(column.column) for column in columns}
    return ReadMark(
        names.pop() if len(names) == 1 else "",
        characters,
        is_pretty,
        any(isinstance(column, JSONField) for column in columns),
    )


def _column_of(expression: Any) -> Column | None:
    """Return what is encrypted, if the expression is a column that is."""
    if not isinstance(expression, Col):
        return None
    field = expression.target
    return ENCRYPTED.get(field.model._meta.db_table, {}).get(str(field.column))

"""The beginning of a text in SQL, so that the database sends no more; also of a text that is encrypted."""

from __future__ import annotations

from typing import Any

from django.db.models.expressions import Col
from django.db.models.functions import Left

from access_app.db import base
from access_app.encryption.columns import ENCRYPTED, Column
from access_app.encryption.envelope import PREFIX


class Beginning(Left):
    """`left(text, length)`. An encrypted text comes whole, with a mark that lets its reader cut it, and check its column and row
    (access_app.encryption.reading)."""

    mark = ""

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        text, length = self.get_source_expressions()
        encrypted = [] if base.opening is None else [part for part in text.flatten() if _column_of(part) is not None]
        if not encrypted:
            return super().as_sql(compiler, connection, *args, **extra)
        (column,) = encrypted
        about = _column_of(column)
        assert about is not None, "it is encrypted"
        sql, values = compiler.compile(text)
        row_id, _no_values = compiler.compile(Col(column.alias, column.target.model._meta.pk))
        return (
            f"CASE WHEN strpos({sql}, '{PREFIX}') > 0 "
            f"THEN 'tscut{int(length.value)}{self.mark}:{about.number}:' || {row_id} || ':' || {sql} "
            f"ELSE left({sql}, {int(length.value)}) END",
            (*values, *values, *values),
        )


class PrettyBeginning(Beginning):
    """The same of a JSON column as indented text: see `messages_app.safe_text.pretty_json`."""

    mark = "p"


def _column_of(expression: Any) -> Column | None:
    """Return what is encrypted, if the expression is a column that is."""
    if not isinstance(expression, Col):
        return None
    field = expression.target
    return ENCRYPTED.get(field.model._meta.db_table, {}).get(str(field.column))

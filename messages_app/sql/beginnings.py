"""The beginning of a text in SQL, so that the database sends no more; also of a text that is encrypted."""

from __future__ import annotations

from typing import Any

from django.db.models.functions import Left

from access_app.db import base
from access_app.encryption.envelope import PREFIX


class Beginning(Left):
    """`left(text, length)`. An encrypted text comes whole, with a mark that lets its reader cut it (access_app.encryption.reading)."""

    mark = ""

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **extra: Any) -> Any:
        if base.opening is None:
            return super().as_sql(compiler, connection, *args, **extra)
        text, length = self.get_source_expressions()
        sql, values = compiler.compile(text)
        return (
            f"CASE WHEN strpos({sql}, '{PREFIX}') > 0 THEN 'tscut{int(length.value)}{self.mark}:' || {sql} "
            f"ELSE left({sql}, {int(length.value)}) END",
            (*values, *values, *values),
        )


class PrettyBeginning(Beginning):
    """The same of a JSON column as indented text: see `messages_app.safe_text.pretty_json`."""

    mark = "p"

"""Decryption when anything is read: the one place between the database and everything that shows what it holds.

Cursors decrypt the rows that they return, so that pages, the API, exports and jobs read plain values whichever way they read
them. Only columns that are encrypted are looked at, and expressions: a text that looks like an envelope in any other column is
not opened, and in encrypted columns none is stored that came from outside, because redaction removes it. COPY, which archives
and backups use, gives what is stored.

Where a value is cut in SQL, use `beginning`, because a part of an envelope cannot be opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from django.apps import apps

from access_app.db import base

from .columns import BY_NUMBER, NAMES, Form
from .envelope import IN_JSON, KEY_BYTES, PREFIX, bytes_of, row_bytes, row_of
from .errors import Damaged
from .keys import key_named
from .master import is_configured

DESTROYED: Final = "[the key was destroyed]"
"""In place of a value whose data key was destroyed."""
_TEXTS = frozenset({25, 114, 705, 1043, 3802})
"""Types of columns that are read as text: text, json, unknown, varchar and jsonb."""
_CUT = re.compile(r"tscut(\d+)([pj]?):", re.ASCII)

_to_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class OpenedRows:
    """A row factory for psycopg that decrypts values, then makes rows by another factory, if any."""

    inner: Any = None

    def __call__(self, cursor: Any) -> Callable[[Sequence[Any]], Any]:
        result, columns = cursor.pgresult, cursor.description or ()
        tables = [result.ftable(place) for place in range(len(columns))]
        places = [
            # The places of the ids of its row, if they are read, too.
            (place, [at for at, other in enumerate(columns) if other.name == "id" and tables[at] == tables[place] != 0])
            for place, column in enumerate(columns)
            # What comes of no table is an expression; Django gives columns of subqueries names of its own.
            if column.type_code in _TEXTS
            and (column.name in NAMES or tables[place] == 0 or column.name not in _columns_of_models())
        ]
        inner = tuple if self.inner is None else self.inner(cursor)

        def make(values: Sequence[Any]) -> Any:
            opened: list[Any] | None = None
            for place, ids in places:
                value = values[place]
                if value.__class__ is str and PREFIX in value:
                    if opened is None:
                        opened = list(values)
                    opened[place] = open_value(value, [row_bytes(values[at]) for at in ids])
            return inner(values if opened is None else opened)

        return make


def open_value(value: str, rows: Sequence[bytes] = ()) -> str:
    """Return a text or JSON text with everything in it decrypted; `rows` are the ids of which its row has one, if they are known.

    Raise Locked, Damaged.
    """
    if value.startswith("tscut") and (cut := _CUT.match(value)):
        return _cut_off(open_value(value[cut.end() :]), int(cut[1]), cut[2])
    if value.startswith(PREFIX):
        found = _opened(value[len(PREFIX) :], rows)
        if found is None:
            return value
        text, form = found
        return text if form is Form.TEXT else _unquoted(text)

    def in_json(match: re.Match[str]) -> str:
        found = _opened(match[0][len(PREFIX) + 1 : -1], rows)
        if found is None:
            return match[0]
        text, form = found
        return _to_json(text).decode() if form is Form.TEXT else text

    return IN_JSON.sub(in_json, value)


def _opened(base64: str, rows: Sequence[bytes]) -> tuple[str, Form] | None:
    """Return the text of an envelope; None if it is none of ours, but a text that looks like one."""
    raw = bytes_of(base64)
    if raw is None:
        return None
    key = key_named(raw[:KEY_BYTES])
    if key is True:
        return None
    if rows and row_of(raw) not in rows:
        raise Damaged
    form = BY_NUMBER[raw[KEY_BYTES]][2].form
    if key is False:
        return (DESTROYED if form is Form.TEXT else _to_json(DESTROYED).decode()), form
    return key.opened(raw), form


def _unquoted(text: str) -> str:
    """Return a JSON text as ->> would: a string without quotes, anything else as JSON."""
    return str(msgspec.json.decode(text)) if text.startswith('"') else text


def _cut_off(text: str, length: int, how: str) -> str:
    if how == "p":
        text = msgspec.json.format(text, indent=4)
    return text[:length]


@cache
def _columns_of_models() -> frozenset[str]:
    return frozenset(str(field.column) for model in apps.get_models() for field in model._meta.concrete_fields)


def switch_on() -> None:
    """Let the cursors of this process decrypt what they read."""
    base.open_with(OpenedRows)


def switch_on_if_needed() -> None:
    """Decrypt from the start with a master key, otherwise as soon as a connection finds data keys: then everything is refused."""
    base.call_on_data_keys(switch_on)
    if is_configured():
        switch_on()

"""Decryption when anything is read: the one place between the database and everything that shows what it holds.

Cursors decrypt the rows that they return, so that pages, the API, exports and jobs read plain values whichever way they read
them. Only columns that are encrypted are looked at, and expressions: a text that looks like an envelope in any other column is
not opened, and in encrypted columns none is stored that came from outside, because redaction removes it. COPY, which archives
and backups use, gives what is stored.

Where a value is cut in SQL, use `beginning`, because a part of an envelope cannot be opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from access_app.db.base import DatabaseWrapper
from access_app.read_marks import split_mark

from .columns import BY_NUMBER, ENCRYPTED, NAMES, Form
from .envelope import KEY_BYTES, PREFIX, DataKey, bytes_of, row_bytes, row_of, split_json
from .errors import Damaged
from .keys import Keyring, key_named, known_keys

DESTROYED: Final = "[the key was destroyed]"
"""In place of a value whose data key was destroyed."""
ROW_ID: Final = "row_id"
"""Name of an expression that is the id of the row of all encrypted columns of a statement, where `id` is not read as it is. A
statement without both is refused as soon as it reads an encrypted value."""
_TEXTS = frozenset({25, 114, 705, 1043, 3802})
"""Types of columns that are read as text: text, json, unknown, varchar and jsonb."""
_ANY_COLUMN: Final = frozenset(BY_NUMBER)
_CUT = re.compile(r"tscut(\d+)(p?):(\d+):([0-9a-f-]{36}):", re.ASCII)
"""Length, form, number of the column and id of the row of a value that is to be cut: see messages_app.sql.beginnings."""

_to_json = msgspec.json.Encoder().encode


@dataclass(frozen=True)
class OpenedRows:
    """A row factory for psycopg that decrypts values, then makes rows by another factory, if any.

    Values that were moved from another column or row are refused, and those of a statement that says neither its row nor its column.
    """

    keys: Keyring
    """Those that are known when the cursor is made: in the middle of a read the connection cannot be asked."""
    inner: Any = None

    def __call__(self, cursor: Any) -> Callable[[Sequence[Any]], Any]:
        inner: Callable[[Sequence[Any]], Any] = tuple if self.inner is None else self.inner(cursor)
        places = _places(cursor.pgresult, self.keys)
        if not places:
            return inner
        opener = Opener(self.keys)

        def make(values: Sequence[Any]) -> Any:
            opened: list[Any] | None = None
            rows: list[bytes] = []
            rows_of: list[int] = []
            for index, columns, ids in places:
                value = values[index]
                if value.__class__ is str and PREFIX in value:
                    if opened is None:
                        opened = list(values)
                    if ids != rows_of:
                        rows, rows_of = [row_bytes(values[at]) for at in ids if values[at] is not None], ids
                    opened[index] = opener.open(value, columns, rows)
            return inner(values if opened is None else opened)

        return make


def _places(result: Any, keys: Keyring) -> list[tuple[int, frozenset[int], list[int]]]:
    """Return the places of a result that may be encrypted, each with the numbers of columns that it may be, and the places of
    the ids that its row may have."""
    if result is None:
        return []
    fields = range(result.nfields)
    origins = [keys.columns.get((result.ftable(at), result.ftablecol(at))) for at in fields]
    row_ids = [at for at in fields if result.fname(at) == ROW_ID.encode()]
    all_ids = [at for at, origin in enumerate(origins) if origin is not None and origin[1] == "id"]
    places = []
    for at in fields:
        origin = origins[at]
        if result.ftype(at) not in _TEXTS:
            continue
        if origin is not None:
            table, name = origin
            if (column := ENCRYPTED[table].get(name)) is not None:
                ids = [other for other in fields if origins[other] == (table, "id")]
                places.append((at, frozenset({column.number}), ids or row_ids))
        elif result.ftable(at) == 0 or result.fname(at).decode() in NAMES:
            # An expression, or a column of a partition that is read by its own name.
            places.append((at, _ANY_COLUMN, row_ids or all_ids))
    return places


class Opener:
    """Opens values that are read together, so that each data key is looked up once."""

    def __init__(self, keys: Keyring) -> None:
        self._known = keys
        self._keys: dict[bytes, DataKey | bool] = {}

    def open(self, value: str, columns: Collection[int] = _ANY_COLUMN, rows: Collection[bytes] | None = None) -> str:
        """Return a text or JSON text with everything in it decrypted.

        `columns` are the numbers of the columns, and `rows` the ids of the rows that it may be of; None for any row.
        Raise Locked, and Damaged if a value was changed or is of another place.
        """
        if (marked := split_mark(value)) is not None:
            mark, value = marked
            return f"{mark}{self.open(value, columns, rows)}"
        if value.startswith(PREFIX):
            opened = self._opened(value[len(PREFIX) :], columns, rows, in_json=False)
            return value if opened is None else opened
        if value.startswith("tscut") and (cut := _CUT.match(value)):
            whole = self.open(value[cut.end() :], {int(cut[3])}, {row_bytes(cut[4])})
            return _cut_off(whole, int(cut[1]), pretty=bool(cut[2]))
        first, parts = split_json(value)
        texts = [first]
        for part in parts:
            opened = None if part.base64 is None else self._opened(part.base64, columns, rows, in_json=True)
            texts += [part.whole] if opened is None else [opened, part.rest]
        return "".join(texts)

    def _opened(
        self, base64: str, columns: Collection[int], rows: Collection[bytes] | None, *, in_json: bool
    ) -> str | None:
        """Return the text of an envelope; None if it is none of ours, but a text that looks like one."""
        raw = bytes_of(base64)
        if raw is None:
            return None
        key_id, number = raw[:KEY_BYTES], raw[KEY_BYTES]
        key = self._keys.get(key_id)
        if key is None:
            key = self._keys[key_id] = key_named(key_id, self._known)
        if key is True:
            return None
        if number not in columns or (rows is not None and row_of(raw) not in rows):
            raise Damaged
        if BY_NUMBER[number][2].form is Form.TEXT:
            text = key.opened(raw) if key else DESTROYED
            return _to_json(text).decode() if in_json else text
        text = key.opened(raw) if key else _to_json(DESTROYED).decode()
        return text if in_json else _unquoted(text)


def open_value(value: str, columns: Collection[int] = _ANY_COLUMN, rows: Collection[bytes] | None = None) -> str:
    """Return one value decrypted: see Opener.open."""
    return Opener(known_keys()).open(value, columns, rows)


def _unquoted(text: str) -> str:
    """Return a JSON text as ->> would: a string without quotes, anything else as JSON."""
    return str(msgspec.json.decode(text)) if text.startswith('"') else text


def _cut_off(text: str, length: int, *, pretty: bool) -> str:
    if pretty:
        text = msgspec.json.format(text, indent=4)
    return text[:length]


def opened_rows(inner: Any) -> OpenedRows:
    """Return the row factory that decrypts, then makes rows by another one, if any."""
    return OpenedRows(known_keys(), inner)


def switch_on() -> None:
    """Let the connections of this process decrypt what they read, whether they found data keys or not: it has a master key."""
    DatabaseWrapper.decrypts = True

"""Documents that formats parse: decode the bytes of a file as one JSON value, as lines of JSON values, or as text.

One value is held in memory, so its text is limited to MOST_BYTES. Lines are held one at a time and read again from the
file for each iteration, so a file of lines may have any size. A line may contain several values in a row, because some
writers forget the newline. A broken line is left out and reported once, and so is a notice before a value that goes to the
end of the file.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from io import SEEK_CUR, SEEK_END, BufferedIOBase, BufferedReader, RawIOBase
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from tracesite_sdk.normalize.records import MOST_PUT_IN
from tracesite_sdk.records.pg_text import storable
from tracesite_sdk.records.value_counts import BYTES_PER_VALUE, count_values

MOST_BYTES = 256 * 1024 * 1024
"""Size of the text of one value, and of one line. The decoded value takes several times as much memory."""
MOST_VALUES = MOST_BYTES // BYTES_PER_VALUE
"""JSON values in the text of one value or of one line."""
MOST_ENTRIES = 50_000
"""Entries of transcripts, or spans, in an upload: `{"role":"user"}` takes 15 bytes of it, and each becomes rows."""

_TRIED_LINES = 50
_TRIED_BYTES = 16 * 1024 * 1024
_BLOCK = 1024 * 1024
_SHOWN = 100
"""Characters of a notice that a report shows."""
_LONGEST_NOTICE = 4_096
"""Characters before a value that a tool may have printed into the same file."""
BEGINNING_OF_A_TEXT = 4_096
"""Bytes of a file by which a format of texts recognises it."""
_START = re.compile(r'\{\s*"|\[\s*\{')
"""The start of an object or of a list of objects, which a text rarely has."""
_MOST_STARTS = 3
_LINES_PER_VALUE = 4
"""JSON that is printed over many lines has 1 to 2 lines per value."""


class Line(NamedTuple):
    number: int
    """Counted from 1. Several values in one line have the same number."""
    value: Any


@dataclass(frozen=True)
class Lines:
    """The values of a JSON lines document; each iteration reads it from its start."""

    read: Callable[[], Iterator[Line]]

    def __iter__(self) -> Iterator[Line]:
        return self.read()

    def head(self, count: int = 50) -> list[Any]:
        """Return the first values, with the beginnings of their lists: enough to recognise the format."""
        return [_begun(line.value, _LOOKED_INTO) for line in islice(self.read(), count)]


class _Replaced(ValueError):
    """The values are there, but some bytes of their text are replaced."""

    def __init__(self) -> None:
        super().__init__("invalid UTF-8 was replaced by \N{REPLACEMENT CHARACTER}")


class _TooMany(ValueError):
    """More values than are decoded at once."""

    def __init__(self) -> None:
        super().__init__(f"one JSON value with more than {MOST_VALUES} values")


class Unreadable(Exception):
    """The file is not JSON; the message gives the position of the error."""


@dataclass(frozen=True)
class NumberedLines:
    """The values of lines, each with its place ("line 12"), which are read again and again instead of being held."""

    lines: Lines

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return ((f"line {line.number}", line.value) for line in self.lines)


@dataclass(frozen=True)
class Files:
    """The files of one archive or folder, for formats whose transcripts are several files; each is read on demand."""

    names: tuple[str, ...]
    """As the archive has them, with forward slashes."""
    read: Callable[[str], Any]
    """Return the document of one of the names: JSON or Lines. Raise Unreadable."""
    taken: set[str] = field(default_factory=set)
    """The names of the files that belong to the transcripts, which their format adds; others are documents of their own."""


@dataclass(frozen=True)
class Tables:
    """The tables of an SQLite database; see databases.py."""

    columns: Mapping[str, Collection[str]]
    """By table."""
    rows: Callable[..., Iterator[dict[str, Any]]]
    """Return the rows of a table, in the order of a column, that have these values: `rows("message", "id", session_id="s")`. Bytes
    are None. Raise Unreadable."""

    def have(self, columns: Mapping[str, Set[str]]) -> bool:
        """Return whether there are tables with these columns."""
        return all(wanted <= set(self.columns.get(table, ())) for table, wanted in columns.items())


@dataclass(frozen=True)
class Text:
    """A document that is not JSON, such as Markdown."""

    text: str
    """Its lines end with a line feed alone."""


Document = Lines | Files | Tables | Text | Any
"""Decoded JSON (object, array, text ...), Lines, Files, Tables, or Text. A format of single files of JSON treats the latter three
as unknown objects."""
_LOOKED_AT = 1_000
"""Items of a list that are checked to recognise the format; its marks may come late in a conversation."""
_NAMES_LOOKED_AT = 10_000
"""Keys of an object that are checked."""
_LOOKED_INTO = 5
"""Levels of lists and objects that are checked for messages."""


def beginning(document: Document) -> Document:
    """Return the document with only the first items of its lists, because each format looks at all of it to recognise it."""
    return document if isinstance(document, Lines | Files | Tables | Text) else _begun(document, _LOOKED_INTO)


def _begun(value: Any, depth: int) -> Any:
    if depth and isinstance(value, list):
        return [_begun(item, depth - 1) for item in value[:_LOOKED_AT]]
    if depth and isinstance(value, dict):
        return {name: _begun(item, depth - 1) for name, item in islice(value.items(), _NAMES_LOOKED_AT)}
    return value


Skip = Callable[[str, str], None]
"""Called for each omission with the place in the document (a JSON path, or "line 12") and the reason."""


def skip_silently(_where: str, _why: str) -> None:
    """Ignore an omission: for a second reading of a document, when the first one has reported it."""


def value_in(files: Files, name: str | None, skip: Skip) -> Any:
    """Return the value in a file; None without a name, or if it cannot be read, which is reported."""
    try:
        return None if name is None else files.read(name)
    except Unreadable as error:
        skip(name or "", str(error))
        return None


def first_values(document: Document, most: int | None = None) -> list[Any]:
    """Return the first lines of a document, its items up to `most` if it is a list, or itself; nothing of others."""
    if isinstance(document, Files | Tables | Text):
        return []
    if isinstance(document, Lines):
        return document.head()
    return document[:most] if isinstance(document, list) else [document]


def numbered_values(document: Document) -> NumberedLines | list[tuple[str, Any]]:
    """Return the values of a document with their places: its lines, its items if it is a list, or itself ("")."""
    if isinstance(document, Lines):
        return NumberedLines(document)
    if isinstance(document, list):
        return [(f"[{index}]", value) for index, value in enumerate(document)]
    return [("", document)]


def join_place(where: str, key: str) -> str:
    """Return the place of a key inside a place, such as "line 12: messages[0]" or "[3].messages[0]"."""
    if not where or not key:
        return where + key
    return f"{where}: {key}" if where.startswith("line ") else f"{where}.{key}"


@dataclass(frozen=True)
class Source:
    """Bytes under a name. They may be opened several times, also while they are being read."""

    name: str
    """For reports only."""
    open: Callable[[], BufferedIOBase]
    """Raises OSError."""
    is_file: bool = False
    """Whether it is a file of its own, in which seeking is fast."""


def file_source(path: Path, name: str | None = None) -> Source:
    def opened() -> BufferedIOBase:
        return path.open("rb")

    return Source(str(path) if name is None else name, opened, is_file=True)


def open_file_source(file: BinaryIO, name: str) -> Source:
    """Return the bytes of an open file, which need not have a name. Its position is neither used nor changed."""
    return Source(name, lambda: BufferedReader(_Reread(file.fileno()), _BLOCK), is_file=True)


class _Reread(RawIOBase):
    """An open file, read from its start at a position of its own. Closing this does not close the file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        start = {SEEK_CUR: self._at, SEEK_END: os.fstat(self._descriptor).st_size}.get(whence, 0)
        self._at = max(start + offset, 0)
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        piece = os.pread(self._descriptor, len(buffer), self._at)
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)


@dataclass(kw_only=True)
class ValueBudget:
    """The amount that may still be read of an upload, in all files: it limits memory and time."""

    left: int
    """JSON values."""
    entries: int = MOST_ENTRIES
    """Entries of transcripts, or spans."""
    put_in: int = MOST_PUT_IN
    """Bytes that may still be put in for references."""

    def take_entries(self, count: int) -> None:
        """Raise Unreadable if the entries exceed the budget."""
        self.entries -= count
        if self.entries < 0:
            raise Unreadable(f"more than {MOST_ENTRIES} entries or spans in an upload; import them by the command")

    def take_put_in(self, size: int) -> None:
        """Raise Unreadable if what stands for references exceeds the budget."""
        self.put_in -= size
        if self.put_in < 0:
            raise Unreadable("references in the transcripts stand for too much; import them by the command")

    def take(self, source: Source, *, is_lines: bool = False) -> None:
        """Take the values in a source, or its lines if `is_lines`. Nothing is decoded.

        Raise OSError, and Unreadable if they exceed the budget.
        """
        count = lines = 0
        with source.open() as stream:
            # Blocks end with a line, because no string continues in the next line.
            while block := stream.read(_BLOCK) + stream.readline():
                count += 0 if is_lines else count_values(block, self.left)
                lines += block.count(b"\n")
                if count > self.left or lines > self.left * (1 if is_lines else _LINES_PER_VALUE):
                    self.left = 0
                    raise Unreadable("the file has too many JSON values")
        self.left -= lines if is_lines else count


def read(source: Source, skip: Skip, values: ValueBudget | None = None) -> Any:
    """Return the document of a source: a JSON value or Lines.

    `values` limits the number of JSON values; those in the source are taken from it.

    A document is Lines if its first line is a value and others follow, or if at least half of the first lines are values,
    so that a log without its start is still read. A truncated list with one item a line is read as well.
    Raise OSError, and Unreadable if the source is neither.
    """
    if values is not None:
        values.take(source)
    document = _read(source, skip)
    if values is not None and isinstance(document, Lines):
        values.take(source, is_lines=True)
    return document


def read_text(source: Source, skip: Skip) -> Text:
    """Return the text of a source. Raise OSError, and Unreadable if it is too large."""
    with source.open() as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unreadable(f"a text larger than {MOST_BYTES} bytes")
    try:
        return text_in(data, "strict")
    except UnicodeDecodeError:
        skip("(all)", str(_Replaced()))
        return text_in(data)


def text_in(data: bytes, errors: str = "replace") -> Text:
    """Return the text in these bytes, of which the last character may be cut; `errors` is that of `bytes.decode`."""
    return Text(data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors).replace("\r\n", "\n"))


def _read(source: Source, skip: Skip) -> Any:
    with source.open() as stream:
        lines = _raw_lines(stream)
        first = next(lines, None)
        if first is None:
            raise Unreadable("the file is empty")
        values, error = _values(first[1])
        if any(isinstance(value, dict | list) for value in values) if error else values:
            if len(values) == 1 and (error is None or isinstance(error, _Replaced)) and next(lines, None) is None:
                if error is not None:
                    skip("(all)", str(error))
                return values[0]
            return _lines(source, skip)
        whole, begun = _share_of_values(lines)
        if whole:
            return _lines(source, skip)
    with source.open() as stream:
        data = stream.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise Unreadable(f"one JSON value larger than {MOST_BYTES} bytes; only JSON Lines files may be larger")
    try:
        return _whole(data, skip)
    except Unreadable:
        if begun:
            return _lines(source, skip)
        raise


def decoded(data: bytes) -> Any:
    """Return the value of a JSON text. Raise ValueError with the position of the error."""
    values, error = _values(data)
    if error is not None:
        raise error
    if len(values) != 1:
        raise ValueError("several JSON values on one line" if values else "no value")
    return values[0]


# --- Lines ----------------------------------------------------------------------------------------------------------


@dataclass
class _BrokenLines:
    """Reports each broken line once, however often the lines are read."""

    skip: Skip
    last_reported: int = field(default=0)

    def report(self, number: int, why: str) -> None:
        if number > self.last_reported:
            self.last_reported = number
            self.skip(f"line {number}", why)


def _lines(source: Source, skip: Skip) -> Lines:
    return Lines(partial(_read_lines, source, _BrokenLines(skip)))


def _read_lines(source: Source, broken_lines: _BrokenLines) -> Iterator[Line]:
    with source.open() as stream:
        for number, raw in _raw_lines(stream):
            values, error = _values(raw)
            if error is not None:
                broken_lines.report(number, _reason(error, is_line=True))
            for value in values:
                # In a broken line a number is the start of another value, such as a date.
                if error is None or isinstance(value, dict | list):
                    yield Line(number, value)


def _reason(error: ValueError, *, is_line: bool = False) -> str:
    """Return what is wrong, for people; of a line without its number, which its report has."""
    if isinstance(error, _Replaced | _TooMany):
        return str(error)
    if not isinstance(error, json.JSONDecodeError):
        return f"not JSON: {error}"
    fault = _FAULTS.get(error.msg, error.msg.lower())
    return f"not JSON: {fault} at {'' if is_line else f'line {error.lineno}, '}column {error.colno}"


_FAULTS: Final = {
    "Expecting value": "no value begins",
    "Expecting property name enclosed in double quotes": "no name in double quotes begins",
    "Expecting ':' delimiter": "a colon is missing",
    "Expecting ',' delimiter": "a comma is missing",
    "Unterminated string starting at": "a text without an end begins",
    "Illegal trailing comma before end of object": "a comma stands before the end of an object",
    "Illegal trailing comma before end of array": "a comma stands before the end of a list",
}
"""Faults of Python's json in plain words."""


def _raw_lines(stream: BufferedIOBase) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers; _TOO_LONG for a line of more than MOST_BYTES."""
    number = 0
    while line := stream.readline(MOST_BYTES + 1):
        number += 1
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MOST_BYTES:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MOST_BYTES)
            line = _TOO_LONG
        if not line.isspace() and line:
            yield number, line


_TOO_LONG = b"\0 a line that is too long"


def _share_of_values(lines: Iterator[tuple[int, bytes]]) -> tuple[bool, bool]:
    """Return whether at least half of the first lines are values, and whether at least half begin with one.

    The first line is broken. The lines of a list with one item a line begin with values.
    """
    tried, good, begun, size = 1, 0, 0, 0
    for _number, line in islice(lines, _TRIED_LINES - 1):
        values, error = _values(line)
        tried += 1
        is_begun = any(isinstance(value, dict | list) for value in values)
        begun += is_begun
        good += is_begun and (error is None or isinstance(error, _Replaced))
        size += len(line)
        if size > _TRIED_BYTES:
            break
    return 2 * good >= tried, 2 * begun >= tried


# --- Values ---------------------------------------------------------------------------------------------------------


def _whole(data: bytes, skip: Skip) -> Any:
    values, error = _values(data.removeprefix(codecs.BOM_UTF8))
    if len(values) == 1 and (error is None or isinstance(error, _Replaced)):
        if error is not None:
            skip("(all)", str(error))
        return values[0]
    if isinstance(error, _TooMany):
        raise Unreadable(str(error))
    if not any(isinstance(value, dict | list) for value in values):
        found = _behind_notice(data)
        if found is None:
            raise Unreadable("not JSON: no objects or lists" if error is None else _reason(error))
        notice, value = found
        skip("(the start)", f"not JSON: {notice}")
        return value
    if error is not None:
        skip("(the end)", _reason(error))
    # Consecutive documents of many lines each, as jq prints them: they are numbered, because a line number would not help.
    return Lines(partial(iter, [Line(number, value) for number, value in enumerate(values, start=1)]))


def _behind_notice(data: bytes) -> tuple[str, Any] | None:
    """Return the beginning of the text before the only value of a file, and that value."""
    encoding = json.detect_encoding(data)
    if _START.search(data[: 4 * _LONGEST_NOTICE].decode(encoding, "replace"), 0, _LONGEST_NOTICE) is None:
        return None
    text = data.decode(encoding, "replace")
    for start in islice(_START.finditer(text, 0, _LONGEST_NOTICE), _MOST_STARTS):
        values, error = _values(text[start.start() :].encode("utf-8", "surrogatepass"))
        if error is None and len(values) == 1:
            notice = "".join(character if character.isprintable() else " " for character in text[: start.start()])
            return " ".join(notice.split())[:_SHOWN], values[0]
    return None


_decode = msgspec.json.Decoder().decode


def _integer(digits: str) -> int | str:
    """Return the number, or its text if it has more digits than Python parses."""
    try:
        return int(digits)
    except ValueError:
        return digits


_python = json.JSONDecoder(parse_constant=lambda _name: None, parse_int=_integer)


def _values(data: bytes) -> tuple[list[Any], ValueError | None]:
    """Return the consecutive values of a text up to the first error, and that error."""
    if data is _TOO_LONG:
        return [], ValueError(f"more than {MOST_BYTES} bytes")
    if len(data) > MOST_VALUES and count_values(data, MOST_VALUES) > MOST_VALUES:
        return [], _TooMany()
    try:
        return [_decode(data)], None
    except RecursionError:
        return [], ValueError("nested too deeply")
    except (msgspec.MsgspecError, UnicodeDecodeError):
        pass
    # Python's json also accepts NaN and lone surrogates, which PostgreSQL cannot store.
    values: list[Any] = []
    replaced: _Replaced | None = None
    encoding = json.detect_encoding(data)
    try:
        text = data.decode(encoding, "surrogatepass").strip()
    except UnicodeDecodeError:
        replaced = _Replaced()
        text = data.decode(encoding, "replace").strip()
    try:
        at = 0
        while at < len(text):
            value, at = _python.raw_decode(text, at)
            values.append(storable(value))
            while at < len(text) and text[at].isspace():
                at += 1
    except RecursionError:
        return values, ValueError("nested too deeply")
    except ValueError as error:
        return values, error if replaced is None or values else ValueError("not UTF-8 text")
    return values, replaced

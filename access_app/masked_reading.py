"""Masking when a viewer reads: the one place between the database and everything that shows what it holds.

While a request of a viewer runs, or of a key that reads masked values, the connections of its thread have a `RowMask`, and their
cursors mask the rows that they return, so that pages, the API, exports and the search get masked values whichever way they read
them. Code that has to know of it asks the `Database` that it was handed: `db.read_connection.mask`. See docs/redaction.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache, partial
from itertools import dropwhile
from os.path import commonprefix
from typing import Any, Final, cast
from uuid import UUID

import msgspec
from django.apps import apps
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework.request import Request

from access_app.request_database import database
from tracesite_sdk.redaction.engine import redact
from tracesite_sdk.redaction.rules import MARKER, PathRule, Rules

from .db import BACKEND, primary
from .db.base import DatabaseWrapper, cache_key, columns_by_number
from .encryption.reading import ROW_ID
from .masking import RuleRow, compiled
from .models import ApiKey, MaskingRule, Role
from .read_marks import BEYOND, ReadMark, split_mark
from .roles import Access, access

MASKED_COLUMNS: Final = frozenset(
    # Columns with what agents and people wrote.
    """
    args attachments comment content content_parts current_phase data description error fork image_info knowledge_filename
    knowledge_source knowledge_title label messages metadata note notes object_repr output parameters pattern raw reasoning reasoning_content
    redactions reflection system tags thought title tools usage value workflow
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)
"""Names of columns that are masked, of any table. Others of the models are not: ids, times, names and states. What is no column of a
model is an expression, and masked, unless its name in the result is that of a column with its table, such as `traces_app_span.id`."""

_IDS: Final = frozenset({"id", ROW_ID, "message_id", "session_id"})
"""Columns by which the project of a row is known. Never of what agents name, because an agent of one project could give the
ids of another."""
_MOST_KNOWN: Final = 100_000
_EVENT_DATA: Final = "data"
_OF_LARGE_FIELD: Final = frozenset({"contextRef", "bytes", "beginning"})
"""The keys of what data of an event has in place of a large field."""
_AROUND: Final = frozenset({"agent_steps", "tool_calls", "result", "knowledge_references", "[*]", "*"})
"""The first steps of the paths of columns in a record. A row is one of these, so that the paths of its values lack them."""


@dataclass(frozen=True)
class MaskedReader:
    """A reader for whom some projects are masked. Equal to another one as long as the same is masked for both."""

    rules_of: tuple[tuple[int, tuple[RuleRow, ...]], ...]
    """The masking rules of each project that is read masked and has any."""
    reads_others: bool
    """Whether other projects are read, too."""

    @cached_property
    def by_project(self) -> dict[int, Rules]:
        return {project_id: _of_columns(compiled(rows, strict=False)) for project_id, rows in self.rules_of}

    @cached_property
    def everywhere(self) -> Rules:
        """The rules of all these projects together."""
        return _of_columns(compiled(tuple(row for _project, rows in self.rules_of for row in rows), strict=False))

    @property
    def is_of_one_project(self) -> bool:
        return len(self.rules_of) == 1 and not self.reads_others


@lru_cache(maxsize=256)
def _of_columns(rules: Rules) -> Rules:
    """Return the rules with those for paths that begin above a column also from the column on: `result.data.name` as `data.name`."""
    below = [PathRule(rule.name, tuple(dropwhile(_AROUND.__contains__, rule.steps))) for rule in rules.paths]
    added = [
        rule for rule in below if rule not in rules.paths and len(rule.steps) > 1 and rule.steps[0] in MASKED_COLUMNS
    ]
    return replace(rules, paths=(*rules.paths, *added)) if added else rules


def masked_login(reader: Access) -> MaskedReader | None:
    """Return the reader that a login is, by the projects in which it is a viewer only; None if it reads nothing masked."""
    if reader.roles is None:
        return None
    projects = [project_id for project_id, role in reader.roles.items() if role == Role.VIEWER]
    return _masked_reader(projects, of=len(reader.roles)) if projects else None


def masked_key(key: ApiKey) -> MaskedReader | None:
    """Return the reader that a key is; None unless it reads masked values."""
    return _masked_reader([key.project_id], of=1) if key.reads_masked else None


def _masked_reader(projects: Sequence[int], *, of: int) -> MaskedReader | None:
    rows = MaskingRule.objects.filter(project__in=projects, enabled=True).order_by("project", "id")
    found: dict[int, tuple[RuleRow, ...]] = {}
    for project_id, *row in rows.values_list("project_id", "name", "kind", "value"):
        found[project_id] = (*found.get(project_id, ()), (row[0], row[1], row[2]))
    return MaskedReader(tuple(found.items()), reads_others=of > len(found)) if found else None


@contextmanager
def masked(reader: MaskedReader | RowMask | None) -> Iterator[None]:
    """Mask the rows that this thread reads within the block, in whichever database; do not for None."""
    of_thread = _connections()
    before = [connection.mask for connection in of_thread]
    _set_mask(of_thread, reader)
    try:
        yield
    finally:
        for connection, mask in zip(of_thread, before, strict=True):
            connection.mask = mask


def mask_for(reader: MaskedReader) -> None:
    """Mask the rows that are read in the rest of this request, whose caller was found out within it."""
    _set_mask(_connections(), reader)


def _set_mask(of_thread: Sequence[DatabaseWrapper], reader: MaskedReader | RowMask | None) -> None:
    mask = RowMask(reader) if isinstance(reader, MaskedReader) else reader
    for connection in of_thread:
        connection.mask = mask


def _connections() -> list[DatabaseWrapper]:
    """Return the connections of this thread to all our databases; those that were not made yet are made when they are used."""
    aliases = [alias for alias, options in connections.settings.items() if options["ENGINE"] == BACKEND]
    return [cast(DatabaseWrapper, connections[alias]) for alias in aliases]


def mask_of(request: HttpRequest | Request) -> RowMask | None:
    """Return what masks the values that a request reads; None if it sees everything."""
    mask: RowMask | None = database(request).read_connection.mask
    return mask


class RowMask:
    """Masks values by the rules of the project of each row.

    A row has its project, or an id of a session, message, step or call that was read with its project before. Of any other
    row the project is unknown, and it is masked by the rules of all projects that are read masked.
    """

    def __init__(self, reader: MaskedReader) -> None:
        self.reader = reader
        self._project_of: dict[str, int | None] = {}
        """The project of each id; None if rows of several projects had it, as rows of different tables may."""

    def hides(self, text: str) -> bool:
        """Return whether the reader gets this text masked, in any project."""
        return bool(redact(text, self.reader.everywhere)[0] != text)

    def rules_of(self, project_id: int) -> Rules | None:
        """Return the rules by which the reader gets values of a project masked; None if they are not."""
        return self.reader.by_project.get(project_id)

    def row_factory(self, connection: DatabaseWrapper) -> Callable[[Any], Callable[[Sequence[Any]], tuple[Any, ...]]]:
        """Return a row factory for psycopg that masks what cursors of a connection read."""
        return partial(self._row_maker, _columns_in(connection))

    def _row_maker(
        self, known: Mapping[tuple[int, int], tuple[str, str]], cursor: Any
    ) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
        origins = _origins(cursor.pgresult, known)
        columns = [
            (at, name if name in MASKED_COLUMNS else "")
            for at, (table, name) in enumerate(origins)
            if not table or name in MASKED_COLUMNS
        ]
        projects = [at for at, (_table, name) in enumerate(origins) if name == "project_id"]
        ids = [at for at, (_table, name) in enumerate(origins) if name in _IDS]

        def make(values: Sequence[Any]) -> tuple[Any, ...]:
            rules = self._rules_of(values, projects, ids)
            row = list(values)
            marked: set[int] = set()
            for at, value in enumerate(row):
                if isinstance(value, str) and (marks := split_mark(value)) is not None:
                    row[at] = _shown(*marks, rules)
                    marked.add(at)
            if rules is not None:
                for at, path in columns:
                    if at not in marked:
                        row[at] = masked_value(row[at], path, rules)
            return tuple(row)

        return make

    def _rules_of(self, row: Sequence[Any], projects: Sequence[int], ids: Sequence[int]) -> Rules | None:
        """Return the rules for a row; None for those of a project that is not read masked."""
        if self.reader.is_of_one_project:
            return self.reader.everywhere
        keys = [str(row[at]) for at in ids if isinstance(row[at], str | UUID)]
        known = {row[at] for at in projects} or {self._project_of[key] for key in keys if key in self._project_of}
        if len(known) != 1 or None in known:
            return self.reader.everywhere
        (project_id,) = known
        if len(self._project_of) >= _MOST_KNOWN:
            self._project_of.clear()
        for key in keys:
            if self._project_of.setdefault(key, project_id) != project_id:
                self._project_of[key] = None
                return self.reader.everywhere
        return self.reader.by_project.get(project_id)


def _origins(result: Any, known: Mapping[tuple[int, int], tuple[str, str]]) -> list[tuple[str, str]]:
    """Return table and name of each column of a result; of what is no column of ours an empty table, and its name in the result."""
    origins = []
    for at in range(0 if result is None else result.nfields):
        origin = known.get((result.ftable(at), result.ftablecol(at)))
        if origin is None:
            shown = (result.fname(at) or b"").decode()
            table, _dot, name = shown.rpartition(".")
            # Only our own statements name a column with its table, or an id like this.
            is_ours = shown == ROW_ID or (table, name) in _columns_of_models()
            origin = (table or "-", name) if is_ours else ("", shown)
        origins.append(origin)
    return origins


def _columns_in(connection: DatabaseWrapper) -> Mapping[tuple[int, int], tuple[str, str]]:
    """Return table and name of the columns of our tables, by the numbers that the database of the connection has for both."""
    key = cache_key(connection)
    columns = _columns.get(key)
    if columns is None:
        tables = {table for table, _name in _columns_of_models()}
        columns = _columns[key] = columns_by_number(connection, tables)
    return columns


def masked_value(value: Any, path: str, rules: Rules) -> Any:
    """Mask a value of the column `path`, or of an expression, for which it is empty."""
    if not path:
        rules = rules.anywhere
    if path == _EVENT_DATA and isinstance(value, dict):
        value = _without_beginnings(value)
    if isinstance(value, bytes | memoryview) and path:
        try:
            return _masked_json(bytes(value), path, rules)
        except (msgspec.DecodeError, RecursionError):
            return msgspec.json.encode(MARKER)
    if isinstance(value, str) and value[:1] in ("{", "["):
        # JSON comes as text, whatever the type of its column. Numbers are masked, too.
        try:
            return _masked_json(value.encode(), path, rules).decode()
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            pass  # It is a text like others.
    return redact(value, rules, path)[0] if isinstance(value, str | list | dict) else value


def _shown(mark: ReadMark, text: str, rules: Rules | None) -> str:
    """Return a value that had a mark, masked and then cut."""
    clean = text
    if rules is not None:
        if mark.json and rules.paths and not _is_json(text):
            # It was cut, so where its values are is unknown.
            return MARKER
        clean = masked_value(text, mark.column, rules)
        if clean != text:
            if mark.pretty and _is_json(clean):
                clean = msgspec.json.format(clean, indent=4)
            elif len(text) == mark.characters_read:
                # The end may be a part of what a rule hides.
                clean = clean.removesuffix(commonprefix([clean[::-1], text[: -BEYOND - 1 : -1]])[::-1])
    return clean if mark.length is None else clean[: mark.length]


def _is_json(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
        return False
    return True


def _masked_json(value: bytes, path: str, rules: Rules) -> bytes:
    stored = msgspec.json.decode(value)
    shown = _without_beginnings(stored) if path == _EVENT_DATA and isinstance(stored, dict) else stored
    clean, receipts = redact(shown, rules, path)
    return msgspec.json.encode(clean) if receipts or shown is not stored else value


def _without_beginnings(data: dict[str, Any]) -> dict[str, Any]:
    """Return data of an event without the beginnings of its large fields, in which no place can be recognised.

    Data of a result, which an agent made, is no such data unless it looks the same.
    """
    refs = data.get("contextRefs")
    if not isinstance(refs, dict):
        return data
    return {
        **data,
        "contextRefs": {
            name: {**ref, "beginning": MARKER} if isinstance(ref, dict) and ref.keys() == _OF_LARGE_FIELD else ref
            for name, ref in refs.items()
        },
    }


def masked_field(mask: RowMask | None, value: msgspec.Raw, names: Collection[str], project_id: int) -> msgspec.Raw:
    """Mask a large field of events of a project, which is stored beside them, by each of its names; all of it without any."""
    rules = None if mask is None else mask.rules_of(project_id)
    if rules is None:
        return value
    if not names:
        return msgspec.Raw(msgspec.json.encode(MARKER))
    for name in names:
        clean = _masked_json(msgspec.json.encode({name: value}), _EVENT_DATA, rules)
        # The name itself may be masked.
        (value,) = msgspec.json.decode(clean, type=dict[str, msgspec.Raw]).values()
    return value


@cache
def _columns_of_models() -> frozenset[tuple[str, str]]:
    """Return table and name of the columns of all models."""
    return frozenset(
        (model._meta.db_table, str(field.column))
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.concrete_fields
    )


_columns: dict[str, Mapping[tuple[int, int], tuple[str, str]]] = {}
"""Keyed by that of the database."""


class MaskedReadingMiddleware:
    """Mask what a request of a viewer reads, or of a key that reads masked values, which authentication finds."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        # REST sets another user for a key; views that need the login find it here, read once.
        request.login = request.user  # type: ignore[attr-defined]
        reader = masked_login(access(request)) if request.user.is_authenticated else None
        with masked(reader):
            response = self.get_response(request)
            mask = primary.connection.mask
        if mask is not None and isinstance(response, StreamingHttpResponse):
            # Exports read their rows while they are sent.
            response.streaming_content = _streamed(response.streaming_content, mask)
        return response


def _streamed(parts: Any, mask: RowMask) -> Iterator[Any]:
    rest = iter(parts)
    while True:
        with masked(mask):
            part = next(rest, None)
        if part is None:
            return
        yield part

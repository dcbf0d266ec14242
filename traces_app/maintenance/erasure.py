"""Find and erase everything that belongs to a person: sessions, messages with all that is below them, spans, scores, and what
other tables say.

`find` collects what is to go. A session goes as a whole if it is the person's, or if one of its own columns names the person. A
message goes with everything below it if it or anything below it names the person, or a part of its model's input, which it
shares with other messages. `erase` removes what was found, in transactions of some messages, so an interrupted one is repeated.

Texts are compared without case, in the forms in which a text may stand in JSON, in JSON within JSON, and in URLs.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables and columns

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote, quote_plus
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.utils.crypto import salted_hmac

from access_app.db import PEOPLE_ARE_HERE, Database
from access_app.db.reading import OURS
from access_app.encryption.keys import refuse_encrypted
from access_app.models import Project
from messages_app.models import Message, Reference, SavedView, Session
from traces_app.models import (
    AgentStep,
    Context,
    ErrorGroupState,
    ErrorPattern,
    Event,
    Score,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    Tool,
    ToolCall,
    ToolResult,
)

from .purge.purging import purge_messages, purge_sessions
from .purge.reports import PurgeReport
from .search_index import forget_messages

SHORTEST_MATCH = 3
"""Characters of a text to match."""
_AT_ONCE = 5_000

Kind = Literal["end_user", "session", "match"]
Progress = Callable[[int], object]
"""Called with the number of messages removed since the last call."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The subject of an erasure: a person, a session or a text, in these projects or in all."""

    kind: Kind
    text: str
    projects: Sequence[Project] = ()

    @property
    def project_ids(self) -> list[int]:
        return [project.pk for project in self.projects] or list(Project.objects.values_list("pk", flat=True))

    @property
    def hmac(self) -> str:
        """A digest that cannot be compared with guesses without the secret key."""
        return salted_hmac("traces_app.Erasure", f"{self.kind}:{self.text}", algorithm="sha256").hexdigest()


@dataclass(kw_only=True)
class SubjectRows:
    """The ids of the rows that belong to a subject. No set has rows that are below those of another one."""

    sessions: set[UUID] = field(default_factory=set)
    messages: set[UUID] = field(default_factory=set)
    """Messages of other sessions."""
    spans: set[UUID] = field(default_factory=set)
    """Spans of traces without a message."""
    scores: set[UUID] = field(default_factory=set)
    snapshots: set[UUID] = field(default_factory=set)
    """Sessions that stay, whose snapshots go: their parts are shared."""
    tools: set[int] = field(default_factory=set)
    views: set[int] = field(default_factory=set)
    """Saved views of lists."""
    notes: set[int] = field(default_factory=set)
    """States of errors, which lose their note."""
    log: set[int] = field(default_factory=set)
    """Entries of the admin's history, which keep neither name nor change."""

    def __bool__(self) -> bool:
        return any(vars(self).values())

    @property
    def ids_sha256(self) -> str:
        lines = "".join(f"{one}\n" for one in sorted(map(str, (*self.sessions, *self.messages))))
        return hashlib.sha256(lines.encode()).hexdigest()


def forms_of(text: str) -> list[str]:
    """Return how a text may stand in a column: as it is, in JSON, in JSON within JSON, in a URL; in lower case."""
    in_json = [json.dumps(text, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True)]
    twice = [json.dumps(one, ensure_ascii=False)[1:-1] for one in in_json]
    return list(dict.fromkeys(form.lower() for form in (text, *in_json, *twice, quote(text), quote_plus(text))))


def find(db: Database, subject: Subject) -> SubjectRows:
    """Return what belongs to a subject in the database."""
    found = SubjectRows()
    projects = subject.project_ids
    sessions = db.rows(Session.with_deleted).filter(project__in=projects).order_by()
    match subject.kind:
        case "end_user":
            found.sessions.update(sessions.filter(end_user=subject.text).values_list("pk", flat=True))
            scores = db.rows(Score.with_deleted).filter(project__in=projects, author=subject.text)
            found.scores.update(scores.order_by().values_list("pk", flat=True))
        case "session":
            found.sessions.update(sessions.filter(external_id=subject.text).values_list("pk", flat=True))
            if (as_id := _uuid(subject.text)) is not None:
                found.sessions.update(sessions.filter(pk=as_id).values_list("pk", flat=True))
        case "match":
            refuse_encrypted(*projects)
            _find_matches(db, forms_of(subject.text), projects, found)
    found.log.update(_log_about("session", found.sessions))
    found.log.update(_log_about("message", [*found.messages, *_messages_of(db, found.sessions)]))
    return found


def count(db: Database, found: SubjectRows) -> dict[str, int]:
    """Return the rows of each table that `erase` removes, those below messages included."""
    messages = sorted({*found.messages, *_messages_of(db, found.sessions)})
    counts = {
        "sessions": len(found.sessions),
        "messages": len(messages),
        "spans": len(found.spans),
        "scores": len(found.scores),
        "snapshots": sum(
            rows.filter(session__in=found.sessions | found.snapshots).count() for rows in _snapshot_rows(db)
        ),
        "tools": len(found.tools),
        "saved views": len(found.views),
        "notes about errors": len(found.notes),
        "entries of the admin's history": len(found.log),
    }
    for some in _parts(messages):
        calls = db.rows(ToolCall.with_deleted).filter(message__in=some)
        below: dict[str, models.QuerySet[Any]] = {
            "references": db.rows(Reference.objects).filter(message__in=some),
            "steps": db.rows(AgentStep.with_deleted).filter(message__in=some),
            "calls": calls,
            "results": db.rows(ToolResult.objects).filter(pk__in=calls.values("pk")),
            "events": db.rows(Event.objects).filter(message__in=some),
            "contexts": db.rows(Context.objects).filter(message__in=some),
            "spans": db.rows(Span.objects).filter(trace_id__in=_traces_of(db, some)),
            "scores": db.rows(Score.with_deleted).filter(message__in=some).exclude(pk__in=found.scores),
        }
        for name, rows in below.items():
            counts[name] = counts.get(name, 0) + rows.order_by().count()
    return {name: number for name, number in counts.items() if number}


def erase(db: Database, found: SubjectRows, *, progress: Progress = lambda _: None) -> dict[str, int]:
    """Remove what was found; return the rows removed from each table.

    Sessions and messages go last, because what is said of them elsewhere is found by them, also by the next run if this one is
    killed.
    """
    report = PurgeReport()
    gone = {*found.messages, *_messages_of(db, found.sessions)}
    with db.atomic():
        removed = {
            "search index": forget_messages(db, gone),
            "entries of the admin's history": LogEntry.objects.filter(pk__in=found.log).update(
                object_repr="", change_message=""
            ),
            "saved views": _delete(SavedView.objects.filter(pk__in=found.views)),
            "notes about errors": ErrorGroupState.objects.filter(pk__in=found.notes).update(note=""),
            "spans": _delete(db.rows(Span.objects).filter(pk__in=found.spans)),
            "scores": _delete(db.rows(Score.with_deleted).filter(pk__in=found.scores)),
            "snapshots": sum(_delete(rows.filter(session__in=found.snapshots)) for rows in _snapshot_rows(db)),
        }
    purge_sessions(db, sorted(found.sessions), report, progress)
    purge_messages(db, sorted(found.messages), report, progress)
    removed["tools"] = _forget_tools(db, found.tools)
    for name, table in report.tables.items():
        removed[name] = removed.get(name, 0) + table.rows
    return {name: number for name, number in removed.items() if number}


def left_over(db: Database, subject: Subject) -> dict[str, int]:
    """Return the rows of every table of the database that still have the text, which `erase` does not change.

    They are rows of the audit log, which nobody can change, and of people who use Tracesite and their keys.
    """
    if subject.kind != "match":
        return {}
    forms, left = forms_of(subject.text), {}
    tables = db.connection.introspection.table_names()
    with db.cursor() as cursor:
        for table in sorted(tables):
            cursor.execute(
                "SELECT attname FROM pg_attribute JOIN pg_type ON pg_type.oid = atttypid WHERE attrelid = %s::regclass "
                "AND attnum > 0 AND NOT attisdropped AND typname IN ('text', 'varchar', 'json', 'jsonb', '_text', '_varchar')",
                [db.connection.ops.quote_name(table)],
            )
            columns = [name for (name,) in cursor.fetchall()]
            if not columns:
                continue
            named = ", ".join(f"t.{db.connection.ops.quote_name(name)}::text" for name in columns)
            cursor.execute(
                f"SELECT count(*) FROM {db.connection.ops.quote_name(table)} AS t "
                f"WHERE lower(concat_ws(E'\\n', {named})) LIKE ANY(%s)",
                [_patterns(db, forms)],
            )
            if rows := cursor.fetchone()[0]:
                left[table] = rows
    return left


# --- Finding ----------------------------------------------------------------------------------------------------------


def _find_matches(db: Database, forms: Sequence[str], projects: Sequence[int], found: SubjectRows) -> None:
    found.sessions.update(_matching(db, Session, forms, "t.id", projects))
    messages = found.messages
    messages.update(_matching(db, Message, forms, "t.id", projects))
    # Patterns, because they have one blank where an error has several.
    for model in (Reference, AgentStep, ToolCall, ErrorPattern, Event):
        messages.update(_matching(db, model, forms, "t.message_id", projects))
    for rows in _snapshot_rows(db):
        found.snapshots.update(_matching(db, rows.model, forms, "t.session_id", projects))
    found.snapshots -= found.sessions
    calls = set(_matching(db, ToolResult, forms, "t.id", projects))
    entries: set[UUID] = set()
    for context_id, message_id in _matching_rows(db, Context, forms, "t.id, t.message_id", projects):
        if message_id is None:
            entries.add(context_id)
        else:
            messages.add(message_id)
    for some in _parts(entries):
        users = db.rows(Context.objects).filter(entries__overlap=some).order_by()
        messages.update(one for one in users.values_list("message_id", flat=True) if one)
    found.scores.update(_matching(db, Score, forms, "t.id", projects))
    found.tools.update(_matching(db, Tool, forms, "t.id", projects))
    found.views.update(_matching(db, SavedView, forms, "t.id"))
    found.notes.update(_matching(db, ErrorGroupState, forms, "t.id", projects))
    found.log.update(_matching(db, LogEntry, forms, "t.id") if PEOPLE_ARE_HERE else _log_elsewhere(forms))
    named = db.rows(Tool.objects).filter(pk__in=found.tools)
    tools = [tool.pk for tool in named if any(form in tool.name.lower() for form in forms)]
    for rows in (
        *(db.rows(ToolCall.with_deleted).filter(pk__in=some) for some in _parts(calls)),
        *(db.rows(ToolCall.with_deleted).filter(tool__in=some) for some in _parts(tools)),
    ):
        messages.update(rows.order_by().values_list("message_id", flat=True))
    _find_spans(db, forms, projects, found)
    of_sessions = set(_messages_of(db, found.sessions))
    messages -= of_sessions


def _find_spans(db: Database, forms: Sequence[str], projects: Sequence[int], found: SubjectRows) -> None:
    """Add the messages of the traces of matching spans, and the spans of traces that have none."""
    rows = list(_matching_rows(db, Span, forms, "t.id, t.project_id, t.trace_id", projects))
    for some in _parts(rows):
        traces = {trace.hex for _id, _project, trace in some}
        known = dict(
            db.rows(Message.with_deleted)
            .filter(project__in=projects, metadata__trace_id__in=sorted(traces))
            .order_by()
            .values_list("pk", "metadata__trace_id")
        )
        found.messages.update(known)
        with_message = set(known.values())
        found.spans.update(span for span, _project, trace in some if trace.hex not in with_message)


def _matching(
    db: Database,
    model: type[models.Model],
    forms: Sequence[str],
    column: str,
    projects: Sequence[int] | None = None,
) -> Iterator[Any]:
    return (row[0] for row in _matching_rows(db, model, forms, column, projects))


def _matching_rows(
    db: Database,
    model: type[models.Model],
    forms: Sequence[str],
    columns: str,
    projects: Sequence[int] | None = None,
) -> Iterator[tuple[Any, ...]]:
    """Yield columns of the rows of projects, or of a table without them, of which a text has one of the forms; every row is read."""
    texts = ", ".join(_text_of(field) for field in model._meta.concrete_fields if has_text(field))
    with db.atomic(), db.connection.chunked_cursor() as cursor:
        cursor.execute(
            f"SELECT {columns} FROM {model._meta.db_table} AS t "
            f"WHERE {'true' if projects is None else 't.project_id = ANY(%(projects)s)'} "
            f"AND lower(concat_ws(E'\\n', {texts})) LIKE ANY(%(forms)s)",
            {"projects": list(projects or ()), "forms": _patterns(db, forms)},
        )
        while rows := cursor.fetchmany(_AT_ONCE):
            yield from rows


def has_text(field: models.Field[Any, Any]) -> bool:
    """Return whether a column holds texts of producers."""
    if isinstance(field, ArrayField):
        return has_text(field.base_field)
    if isinstance(field, models.BinaryField):
        return field.model is SnapshotPart  # JSON
    return isinstance(field, models.TextField | models.CharField | models.JSONField)


def _text_of(field: models.Field[Any, Any]) -> str:
    column = f't."{field.column}"'
    return f"convert_from({column}, 'UTF8')" if isinstance(field, models.BinaryField) else f"{column}::text"


def _patterns(db: Database, forms: Iterable[str]) -> list[str]:
    return [f"%{db.connection.ops.prep_for_like_query(form)}%" for form in forms]


def _messages_of(db: Database, sessions: Collection[UUID]) -> Iterator[UUID]:
    for some in _parts(sessions):
        yield from db.rows(Message.with_deleted).filter(session__in=some).order_by().values_list("pk", flat=True)


def _traces_of(db: Database, messages: Sequence[UUID]) -> list[UUID]:
    rows = db.rows(Message.with_deleted).filter(pk__in=messages, metadata__has_key="trace_id").order_by()
    traces = (_uuid(trace) for _id, trace in rows.values_list("pk", "metadata__trace_id") if isinstance(trace, str))
    return [trace for trace in traces if trace is not None]


def _log_elsewhere(forms: Sequence[str]) -> Iterator[int]:
    """Yield the matching entries about our rows in a database that may be of any kind, with the project's own entries."""
    rows = LogEntry.objects.filter(content_type__app_label__in=OURS).values_list("pk", "object_repr", "change_message")
    for pk, *texts in rows.iterator():
        if any(form in text.lower() for form in forms for text in texts):
            yield pk


def _log_about(model: str, row_ids: Collection[UUID]) -> Iterator[int]:
    kind = ContentType.objects.get_by_natural_key("messages_app", model)
    for some in _parts(row_ids):
        entries = LogEntry.objects.filter(content_type=kind, object_id__in=[str(one) for one in some])
        yield from entries.exclude(object_repr="", change_message="").order_by().values_list("pk", flat=True)


def _parts(items: Collection[Any]) -> Iterator[list[Any]]:
    every = list(items)
    for first in range(0, len(every), _AT_ONCE):
        yield every[first : first + _AT_ONCE]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


# --- Removing ---------------------------------------------------------------------------------------------------------


def _snapshot_rows(db: Database) -> tuple[models.QuerySet[Any], ...]:
    return db.rows(Snapshot.objects).all(), db.rows(SnapshotPart.objects).all(), db.rows(SnapshotSums.objects).all()


def _delete(rows: models.QuerySet[Any]) -> int:
    return rows.order_by().delete()[0]


def _forget_tools(db: Database, tools: Collection[int]) -> int:
    """Remove tools without calls; of others remove the descriptions, which their next call may bring again."""
    unused = [pk for pk in tools if not db.rows(ToolCall.with_deleted).filter(tool=pk).exists()]
    gone = db.rows(Tool.objects).filter(pk__in=unused).delete()[1].get(Tool._meta.label, 0)
    return gone + db.rows(Tool.objects).filter(pk__in=set(tools) - set(unused)).update(description="", category="")

"""The pages of a session's snapshots and forks, and of one snapshot with its difference to the one before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from msgspec import UNSET

from access_app.db import Database
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Session
from messages_app.queries import session_of_page
from messages_app.safe_text import Excerpt, excerpt, one_line
from traces_app.models import Snapshot
from traces_app.queries.json_changes import MISSING, Changed, changes
from traces_app.queries.snapshots import (
    SnapshotBroken,
    SnapshotTooLarge,
    context_of,
    forked_among,
    forked_from,
    names_of,
    newest_snapshots,
    snapshot_of_page,
)
from traces_app.queries.word_changes import Pieces, WordChanges
from tracesite_sdk.records import ids

from .labels import context_in_session, session_name

MOST_SNAPSHOTS = 200
MOST_FORKS = 200
_MOST_UP = 20
"""Sessions from a fork to the one that began it."""
MOST_LINES = 3_000
"""Values of a context on its page; the API has all."""
MOST_CHANGES = 200
_VALUE_CHARACTERS = 4_000
_CHANGED_CHARACTERS = 2_000
WORDS_SECONDS = 0.5


@dataclass(kw_only=True)
class Fork:
    """A session in the tree of forks."""

    session: Session
    name: str
    node: str
    """That it has replayed; "" of the session that was not a replay."""
    overrides: str
    depth: int
    is_shown: bool
    """Whether the page is about it."""
    source_run: UUID | None = None
    """The last run of the session that it has replayed, to compare with."""

    @property
    def indent(self) -> str:
        return "\u2003" * self.depth


@dataclass(frozen=True, kw_only=True)
class ValueLine:
    """A value of a context: `open` begins one that holds others, `close` ends it."""

    kind: str
    name: str = ""
    count: int = 0
    value: Excerpt | None = None
    is_folded: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeLine:
    """A change with its values in pieces; None where there is no value."""

    path: str
    left: Pieces | None
    right: Pieces | None


def has_snapshots_or_forks(db: Database, session: Session) -> bool:
    """Return whether the page of a session leads to these. One query; none for a fork."""
    if "forked_from" in session.metadata:
        return True
    snapshots = db.rows(Snapshot.objects).filter(session_id=OuterRef("pk"))
    forks = forked_among(db, session.project_id, names_of(session.pk, session.external_id))
    found = db.rows(Session.with_deleted).filter(pk=session.pk).filter(Exists(snapshots) | Exists(forks))
    return found.exists()


def show_snapshots(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID) -> HttpResponse:
    """Show the snapshots of a session and the tree of its forks."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    if session is None:
        return model_admin.missing(request)
    found = newest_snapshots(db, session.pk, MOST_SNAPSHOTS + 1)
    context = {
        **context_in_session(model_admin, request, session, _("Snapshots and forks")),
        "snapshots": [(row, ids.created_at_of(row.pk)) for row in found[:MOST_SNAPSHOTS]],
        "has_more": len(found) > MOST_SNAPSHOTS,
        "most": MOST_SNAPSHOTS,
        "forks": fork_tree(db, session),
    }
    return TemplateResponse(request, "admin/traces_app/snapshots_page.html", context)


def show_snapshot(model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID, snapshot_id: UUID) -> HttpResponse:
    """Show a snapshot, and its difference to the one before."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    found = None if session is None else snapshot_of_page(db, session.pk, snapshot_id)
    if session is None or found is None:
        return model_admin.missing(request)
    row, before = found
    content, problem = _context_of(db, row)
    earlier = UNSET if before is None or content is UNSET else _context_of(db, before)[0]
    lines = [] if content is UNSET else list(islice(_lines(content, "", 0), MOST_LINES + 1))
    comparable = content is not UNSET and earlier is not UNSET
    changed = list(islice(changes(earlier, content), MOST_CHANGES + 1)) if comparable else []
    words = WordChanges(WORDS_SECONDS)
    context = {
        **context_in_session(
            model_admin, request, session, _("Snapshot before %(node)s") % {"node": one_line(row.node_ids[0], 60)}
        ),
        "snapshot": row,
        "problem": problem,
        "moment": ids.created_at_of(row.pk),
        "before": before,
        "is_compared": comparable,
        "changes": [_change(one, words) for one in changed[:MOST_CHANGES]],
        "has_more_changes": len(changed) > MOST_CHANGES,
        "lines": _closed(lines[:MOST_LINES]),
        "is_cut": len(lines) > MOST_LINES,
        "notes": [(note.get("path", ""), note.get("reason", "")) for note in row.notes if isinstance(note, dict)],
    }
    return TemplateResponse(request, "admin/traces_app/snapshot_page.html", context)


def _context_of(db: Database, row: Snapshot) -> tuple[Any, str]:
    """Return the content of a snapshot, or UNSET and why it cannot be shown."""
    try:
        return context_of(db, row), ""
    except (SnapshotBroken, SnapshotTooLarge) as error:
        return UNSET, error.message


def fork_tree(db: Database, session: Session) -> list[Fork]:
    """Return the forks around a session, from the one that was not a replay down; empty without forks."""
    root, seen = session, {session.pk}
    for _step in range(_MOST_UP):
        of = forked_from(root.metadata.get("forked_from"))
        above = None if of is None else _named(db, root.project_id, of.session)
        if above is None or above.pk in seen:
            break
        root = above
        seen.add(above.pk)
    below = _forks_below(db, root)
    found: list[Fork] = []
    waiting: list[tuple[Session, int, UUID | None]] = [(root, 0, None)]
    while waiting and len(found) < MOST_FORKS:
        row, depth, source_run = waiting.pop()
        of = forked_from(row.metadata.get("forked_from"))
        found.append(
            Fork(
                session=row,
                name=session_name(row),
                node="" if of is None else of.node,
                overrides="" if of is None else _overrides(of.overrides),
                depth=min(depth, 8),
                is_shown=row.pk == session.pk,
                source_run=source_run if row.last_run_id else None,
            )
        )
        waiting += [(child, depth + 1, row.last_run_id) for child in below.get(row.pk, ())]
    return found if len(found) > 1 or found[0].node else []


def _forks_below(db: Database, root: Session) -> dict[UUID, list[Session]]:
    """Return the forks of a session, of these forks, and so on, by the session that each was forked from. A query a level."""
    below: dict[UUID, list[Session]] = {}
    level, known = [root], {root.pk}
    while level and len(known) < MOST_FORKS:
        sources = {name: row.pk for row in level for name in names_of(row.pk, row.external_id)}
        level = []
        for child in forked_among(db, root.project_id, sources).order_by("-pk")[:MOST_FORKS]:
            if child.pk not in known:
                known.add(child.pk)
                level.append(child)
                below.setdefault(sources.get(child.source, root.pk), []).append(child)
    return below


def _named(db: Database, project_id: int, name: str) -> Session | None:
    rows = db.rows(Session.objects).filter(project_id=project_id)
    return rows.filter(external_id=name).first() if name else None


def _overrides(overrides: Any) -> str:
    value = msgspec.json.decode(overrides)
    return one_line(msgspec.json.encode(value).decode(), 200) if value else ""


def _lines(value: Any, name: str, depth: int) -> Iterator[ValueLine]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else ((f"[{place}]", item) for place, item in enumerate(value))
        yield ValueLine(kind="open", name=name, count=len(value), is_folded=depth > 1)
        for key, item in items:
            yield from _lines(item, key, depth + 1)
        yield ValueLine(kind="close")
    else:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        shown = excerpt(text[:_VALUE_CHARACTERS], len(text.encode()))
        yield ValueLine(kind="value", name=name, value=shown)


def _closed(lines: list[ValueLine]) -> list[ValueLine]:
    """Return the lines with an end for each beginning, if they were cut."""
    still_open = sum((line.kind == "open") - (line.kind == "close") for line in lines)
    return [*lines, *[ValueLine(kind="close")] * still_open]


def _change(found: Changed, words: WordChanges) -> ChangeLine:
    one, other = (
        None if value is MISSING else value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for value in (found.left, found.right)
    )
    if one is None or other is None:
        left, right = (
            [(one_line(text, _CHANGED_CHARACTERS), True)] if text is not None else None for text in (one, other)
        )
        return ChangeLine(path=found.path, left=left, right=right)
    of_left, of_right = words.of(one_line(one, _CHANGED_CHARACTERS), one_line(other, _CHANGED_CHARACTERS))
    return ChangeLine(path=found.path, left=of_left, right=of_right)

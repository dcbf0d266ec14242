"""The page of a session's snapshots and forks: what happened at each, and one of them with its difference to another one."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, islice, pairwise
from time import monotonic
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import Exists, OuterRef
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from msgspec import UNSET

from access_app.db import Database
from access_app.mounting import base_path
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import IS_FORK, Message, Session
from messages_app.queries import as_uuid, session_of_page
from messages_app.safe_text import Excerpt, excerpt, one_line
from traces_app.models import Snapshot
from traces_app.queries.json_changes import MISSING, Changed, changes
from traces_app.queries.replay_code import replay_code
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.outcome import OF_STATUS, Outcome
from traces_app.queries.runs.outline import RunRows, read_runs, read_words
from traces_app.queries.session_names import read_session_names
from traces_app.queries.snapshots import (
    SnapshotBroken,
    SnapshotTooLarge,
    context_of,
    forked_among,
    forked_from,
    names_of,
    newest_snapshots,
    small_contexts,
    snapshot_of_page,
)
from traces_app.queries.word_changes import Pieces, WordChanges
from tracesite_sdk.records import ids

from .compare_rows import value_text
from .labels import context_in_session, counts_in_words
from .session_outline import FAILED, PENDING

MOST_SNAPSHOTS = 200
MOST_FORKS = 200
MOST_RUNS = 200
"""Runs of the session, the newest, whose steps and calls say what happened after a snapshot."""
MOST_NODES = 10
COUNTED_BYTES, COUNTED_TOGETHER = 2**18, 2**22
"""Larger contexts are not compared for the list: of one with all its values, and of all parts."""
COUNT_SECONDS = 0.5
_MOST_UP = 20
"""Sessions from a fork to the one that began it."""
MOST_LINES = 3_000
"""Values of a context on its page; the API has all."""
MOST_CHANGES = 200
_VALUE_CHARACTERS = 4_000
_CHANGED_CHARACTERS = 2_000
_SHORT = 60
"""Characters of a value that is shown beside its name."""
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
    def outcome(self) -> Outcome:
        return OF_STATUS[self.session.status]

    @property
    def indent(self) -> str:
        return "\u2003" * self.depth


class _Event(NamedTuple):
    """A row of a run: a step or a call."""

    message_id: UUID
    run: RunRows
    place: int

    @property
    def id(self) -> UUID:
        return self.run.ids[self.place]

    @property
    def name(self) -> str:
        return self.run.names[self.place]

    @property
    def status(self) -> int:
        return self.run.statuses[self.place]

    @property
    def step(self) -> str:
        """The displayed number of the step; "" of a call."""
        return self.run.numbers[self.place]

    @property
    def url(self) -> str:
        return url_in_run(self.message_id, self.id)


@dataclass(frozen=True, kw_only=True)
class SnapshotRow:
    """A snapshot and what happened after it."""

    snapshot: Snapshot
    moment: datetime
    nodes: str
    event: _Event | None
    """The first step or call after it; None if none is known."""
    said: str
    """The words of that."""
    outcome: Outcome | None
    error: str
    """The first failed call and its error; "" if none failed."""
    changes: str
    """How many values differ from the snapshot before, in words; "" if that was not counted."""


@dataclass(frozen=True, kw_only=True)
class ValueLine:
    """A value of a context: `open` begins one that holds others, `close` ends it."""

    kind: str
    name: str = ""
    size: str = ""
    value: Excerpt | None = None
    is_folded: bool = False


@dataclass(frozen=True, kw_only=True)
class ChangeLine:
    """A change with its values in pieces; None where there is no value."""

    path: str
    left: Pieces | None
    right: Pieces | None
    is_short: bool
    """Whether its values fit beside its path."""

    @property
    def sides(self) -> tuple[Pieces | None, Pieces | None]:
        return self.left, self.right


def has_snapshots_or_forks(db: Database, session: Session) -> bool:
    """Return whether the pages of a session and of its runs lead to these. One query."""
    snapshots = db.rows(Snapshot.objects).filter(session_id=OuterRef("pk"))
    forks = forked_among(db, session.project_id, names_of(session.pk, session.external_id))
    found = db.rows(Session.with_deleted).filter(pk=session.pk).filter(IS_FORK | Exists(snapshots) | Exists(forks))
    return found.exists()


def show_snapshots(
    model_admin: KeysetAdmin, request: HttpRequest, session_id: UUID, snapshot_id: UUID | None = None
) -> HttpResponse:
    """Show the snapshots of a session, the tree of its forks, and a snapshot: by default the newest that led to a failure, or
    the newest."""
    db = database(request)
    session = session_of_page(db, model_admin.scope(request), session_id)
    if session is None:
        return model_admin.missing(request)
    newest = newest_snapshots(db, session.pk, MOST_SNAPSHOTS + 1)
    rows = read_rows(db, session, newest[:MOST_SNAPSHOTS][::-1])
    shown = snapshot_id or next((row.snapshot.pk for row in reversed(rows) if row.error), rows and rows[-1].snapshot.pk)
    other = as_uuid(request.GET.get("from", ""))
    found = snapshot_of_page(db, session.pk, shown, other) if shown else None
    if snapshot_id and found is None:
        return model_admin.missing(request)
    title = _("Snapshots and forks")
    if snapshot_id and found:
        title = _("Snapshot before %(node)s") % {"node": one_line(found[0].node_ids[0], 60)}
    context = {
        **context_in_session(model_admin, request, session, title),
        "rows": rows,
        "has_more": len(newest) > MOST_SNAPSHOTS,
        "most": MOST_SNAPSHOTS,
        "outcome": OF_STATUS[session.status],
        "forks": fork_tree(db, session),
        **(_shown(db, request.build_absolute_uri(base_path()), session, *found) if found else {}),
        "newest": next(
            (row for row in reversed(rows) if found and found[0].node_ids[0] in row.snapshot.node_ids), None
        ),
        "other": other,
        "selected": next((row for row in rows if found and row.snapshot.pk == found[0].pk), None),
    }
    return TemplateResponse(request, "admin/traces_app/snapshots_page.html", context)


def _shown(db: Database, server: str, session: Session, row: Snapshot, before: Snapshot | None) -> dict[str, Any]:
    """Return the context of the page for a snapshot, and its difference to another one."""
    content, problem = _context_of(db, row)
    earlier = UNSET if before is None or content is UNSET else _context_of(db, before)[0]
    lines = list(islice(_lines(content), MOST_LINES + 1))
    comparable = content is not UNSET and earlier is not UNSET
    changed = list(islice(changes(earlier, content), MOST_CHANGES + 1)) if comparable else []
    words = WordChanges(WORDS_SECONDS)
    return {
        "snapshot": row,
        "problem": problem,
        "moment": ids.created_at_of(row.pk),
        "before": before,
        "is_compared": comparable,
        "changes": [_change(one, words) for one in changed[:MOST_CHANGES]],
        "has_more_changes": len(changed) > MOST_CHANGES,
        "lines": _closed(lines[:MOST_LINES]),
        "is_cut": len(lines) > MOST_LINES,
        "replay": replay_code(server, session.external_id or str(session.pk), row.node_ids[0], content),
        "notes": [(note.get("path", ""), note.get("reason", "")) for note in row.notes if isinstance(note, dict)],
    }


def read_rows(db: Database, session: Session, snapshots: Sequence[Snapshot]) -> list[SnapshotRow]:
    """Return what happened after each snapshot, until the next one. Snapshots are in the order of time. Nine queries."""
    if not snapshots:
        return []
    runs = _runs_of(db, session)
    events = sorted(
        (start, _Event(message_id, run, place))
        for message_id, run in runs.items()
        for place, start in enumerate(_starts(run))
        if start is not None
    )
    begins = [snapshot.ts // 1_000_000 for snapshot in snapshots]
    places = [bisect_left(events, (begin,)) for begin in begins] + [len(events)]
    after = [[event for _start, event in events[i:j]] for i, j in pairwise(places)]
    failed = [next((event for event in found if event.status == FAILED), None) for found in after]
    named = [event.id for event in (*(found[0] for found in after if found), *filter(None, failed))]
    words = read_words(db, named, message__session_id=session.pk)
    counts = _changes_in_words(db, snapshots)
    return [
        SnapshotRow(
            snapshot=snapshot,
            moment=ids.created_at_of(snapshot.pk),
            nodes=", ".join(one_line(node, 60) for node in snapshot.node_ids[:MOST_NODES]),
            event=found[0] if found else None,
            said=words[str(found[0].id)].text if found and str(found[0].id) in words else "",
            outcome=_outcome(found),
            error=f"{failure.name}: {words[str(failure.id)].error}" if failure and str(failure.id) in words else "",
            changes=count,
        )
        for snapshot, found, failure, count in zip(snapshots, after, failed, counts, strict=True)
    ]


def _runs_of(db: Database, session: Session) -> dict[UUID, RunRows]:
    """Return the rows of the newest runs of a session. Four queries."""
    runs = db.rows(Message.objects).filter(session_id=session.pk, role=Message.Role.ASSISTANT)
    return read_runs(db, list(runs.order_by("-pk").values_list("pk", flat=True)[:MOST_RUNS]))


def _starts(run: RunRows) -> Iterator[int | None]:
    """Yield the start of each row of a run; a call without a known one follows its step."""
    start = None
    for own in run.starts:
        start = start if own is None else own
        yield start


def _outcome(events: Sequence[_Event]) -> Outcome | None:
    """Return how what happened after a snapshot ended; None if nothing is known."""
    statuses = {event.status for event in events}
    if not statuses:
        return None
    return Outcome.FAILED if FAILED in statuses else Outcome.RUNNING if PENDING in statuses else Outcome.DONE


def _changes_in_words(db: Database, snapshots: Sequence[Snapshot]) -> list[str]:
    """Return how many values of each snapshot differ from the one before it; "" of large ones, and once a time is used up."""
    until = monotonic() + COUNT_SECONDS
    found: list[str] = []
    earlier: Any = UNSET
    for content in small_contexts(db, snapshots, COUNTED_BYTES, COUNTED_TOGETHER):
        is_counted = content is not UNSET and earlier is not UNSET
        found.append(_counted(earlier, content) if is_counted else "")
        earlier = content
        if monotonic() > until:
            break
    return found + [""] * (len(snapshots) - len(found))


def _counted(earlier: Any, content: Any) -> str:
    changed = list(changes(earlier, content))
    added = sum(change.left is MISSING for change in changed)
    removed = sum(change.right is MISSING for change in changed)
    other = len(changed) - added - removed
    words = (
        (added, ngettext("%(number)s added", "%(number)s added", added)),
        (other, ngettext("%(number)s changed", "%(number)s changed", other)),
        (removed, ngettext("%(number)s removed", "%(number)s removed", removed)),
    )
    return counts_in_words(words) or _("no change")


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
    names = read_session_names([root, *chain.from_iterable(below.values())])
    found: list[Fork] = []
    waiting: list[tuple[Session, int, UUID | None]] = [(root, 0, None)]
    while waiting and len(found) < MOST_FORKS:
        row, depth, source_run = waiting.pop()
        of = forked_from(row.metadata.get("forked_from"))
        found.append(
            Fork(
                session=row,
                name=names[row.pk],
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
    """Return what a replay has changed, by name."""
    value = msgspec.json.decode(overrides)
    if isinstance(value, dict) and isinstance(value.get("context"), dict):
        value = value.pop("context") | value
    return one_line(value_text(value).replace("\n", ", "), 200) if value else ""


def _lines(content: Any) -> Iterator[ValueLine]:
    """Yield the lines of a context; those of its fields if it is an object."""
    if isinstance(content, dict):
        for name, value in content.items():
            yield from _lines_of(value, name, 1)
    elif content is not UNSET:
        yield from _lines_of(content, "", 0)


def _lines_of(value: Any, name: str, depth: int) -> Iterator[ValueLine]:
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else ((str(place), item) for place, item in enumerate(value))
        size = f"{{{len(value)}}}" if isinstance(value, dict) else f"[{len(value)}]"
        yield ValueLine(kind="open", name=name, size=size, is_folded=depth > 1)
        for key, item in items:
            yield from _lines_of(item, key, depth + 1)
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
        None if value is MISSING else value_text(value)[:_CHANGED_CHARACTERS] for value in (found.left, found.right)
    )
    left: Pieces | None
    right: Pieces | None
    if one is None or other is None:
        left, right = ([(text, False)] if text is not None else None for text in (one, other))
    else:
        left, right = words.of(one, other)
    is_short = all(len(text or "") <= _SHORT and "\n" not in (text or "") for text in (one, other))
    return ChangeLine(path=found.path, left=left, right=right, is_short=is_short)

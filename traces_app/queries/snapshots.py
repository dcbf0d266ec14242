"""Read snapshots of agents' contexts, their contents, and the forks of sessions. The caller must check visibility."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import QuerySet
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from msgspec import UNSET, Raw

from access_app.db import Database
from access_app.errors import Conflict, NotFound, TooLarge
from access_app.masked_reading import masked
from access_app.visibility import ProjectScope
from messages_app.models import FORKED_FROM, IS_FORK, Session
from messages_app.queries import as_uuid
from messages_app.sql.json_rows import Source, instant
from messages_app.sql.pagination import ListRows
from messages_app.timestamps import instant_text
from traces_app.models import Snapshot, SnapshotSums
from tracesite_sdk.normalize.snapshot_values import redact_context
from tracesite_sdk.records import ids, pg_text, snapshot_parts

from .contexts import NEWEST_REFS
from .schemas import sessions as session_schemas
from .schemas import snapshots as snapshot_schemas

SNAPSHOT_FIELDS = frozenset(snapshot_schemas.Snapshot.__struct_fields__)
MOST_AT_ONCE = 4 * 2**20
"""Bytes of parts in one response. Recorders ask again for those that are missing."""
_CLOSURE = """
    WITH RECURSIVE reached (ref) AS (
        SELECT unnest(%s::text[])
        UNION
        SELECT named.ref FROM reached
        JOIN traces_app_snapshotpart AS part ON part.session_id = %s AND part.ref = reached.ref
        CROSS JOIN LATERAL unnest(part.below) AS named (ref)
    )
    SELECT ref, content FROM (
        -- Those that were asked for first, so that the caller gets on.
        SELECT part.ref, part.content, sum(octet_length(part.content)) OVER (
            ORDER BY part.ref = ANY (%s::text[]) DESC, part.ref ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM reached JOIN traces_app_snapshotpart AS part ON part.session_id = %s AND part.ref = reached.ref
    ) AS found WHERE coalesce(before, 0) < %s
    """

SNAPSHOTS = Source(
    resource=snapshot_schemas.Snapshot,
    model=Snapshot,
    table="traces_app_snapshot",
    columns={"created_at": instant("to_timestamp(ts / 1000 / 1000000.0)")},
    partitioned=False,
)


def newest_snapshots(db: Database, session_id: UUID, most: int) -> list[Snapshot]:
    """Return the newest snapshots of a session, for its page."""
    return list(db.rows(Snapshot.objects).filter(session_id=session_id).order_by("-pk")[:most])


def snapshot_of_page(
    db: Database, session_id: UUID, snapshot_id: UUID, other_id: UUID | None
) -> tuple[Snapshot, Snapshot | None] | None:
    """Return a snapshot of a session and another one, or else the one before it, for its page; None if there is none. Two queries."""
    rows = db.rows(Snapshot.objects).filter(session_id=session_id)
    row = rows.filter(pk=snapshot_id).first()
    if row is None:
        return None
    return row, (rows.filter(pk=other_id) if other_id else rows.filter(pk__lt=row.pk).order_by("-pk")).first()


def snapshots_of(db: Database, session_id: UUID, node: str | None = None) -> ListRows:
    """Return the snapshots of a session, or those that hold a node."""
    rows = (
        db.rows(Snapshot.objects).filter(session_id=session_id)
        if node is None
        else snapshots_with(db, session_id, node)
    )
    return ListRows(db=db, find=lambda _ids: rows)


def snapshots_with(db: Database, session_id: UUID, node: str) -> QuerySet[Snapshot]:
    """Return the snapshots of a session that hold a node."""
    return db.rows(Snapshot.objects).filter(session_id=session_id, node_ids__contains=[pg_text.text(node)])


def snapshots(db: Database, keys: Collection[str]) -> list[snapshot_schemas.Snapshot]:
    """Return the snapshots of these ids, in this order."""
    rows = SNAPSHOTS.read(db, keys)
    by_id = dict(zip((row[0] for row in rows), SNAPSHOTS.make(rows), strict=True))
    return [by_id[key] for key in keys if key in by_id]


def find_snapshot(db: Database, scope: ProjectScope, name: str) -> Snapshot:
    """Return the snapshot whose id or external id is `name`, of a session that is not deleted. Raise NotFound."""
    alive = db.rows(Snapshot.objects).filter(session__in=db.rows(Session.objects).order_by().visible_to(scope))
    snapshot_id = as_uuid(name)
    snapshot = alive.filter(pk=snapshot_id).first() if snapshot_id is not None else None
    if snapshot is None and "\x00" not in name:
        snapshot = alive.filter(external_id=name).order_by("pk").last()
    if snapshot is None:
        raise NotFound(_("There is no snapshot with this id."), code="snapshot_not_found")
    return snapshot


def whole_snapshot(db: Database, row: Snapshot) -> snapshot_schemas.WholeSnapshot:
    """Return a snapshot with its content, like `context_of`."""
    (listed,) = snapshots(db, [str(row.pk)])
    fields = {name: getattr(listed, name) for name in listed.__struct_fields__}
    content = context_of(db, row)
    return snapshot_schemas.WholeSnapshot(
        **fields, context=UNSET if content is UNSET else Raw(msgspec.json.encode(content))
    )


def context_of(db: Database, row: Snapshot) -> Any:
    """Return the content of a snapshot, masked if the reader reads masked values; UNSET if it was removed. Raise
    SnapshotTooLarge and SnapshotBroken, because earlier versions stored what is refused now."""
    if row.is_purged:
        return UNSET
    # A part has not the names by which rules hide what it holds, so the whole is masked.
    with masked(None):
        parts = parts_of(db, row.session_id, [row.context_ref], snapshot_parts.MOST_SIZE)
    if sum(map(len, parts.values())) >= snapshot_parts.MOST_SIZE:
        raise SnapshotTooLarge
    try:
        return _built(row, parts, snapshot_parts.outlines_of(parts), _rules_of(db, row), snapshot_parts.MOST_SIZE)
    except snapshot_parts.TooLargeContextError as error:
        raise SnapshotTooLarge from error
    except (LookupError, ValueError, RecursionError) as error:
        raise SnapshotBroken from error


def small_contexts(db: Database, rows: Sequence[Snapshot], most: int, most_together: int) -> Iterator[Any]:
    """Yield the contents of snapshots of one session, like `context_of`; UNSET, too, for those of more than `most` bytes, and for
    all whose parts are beyond `most_together`. One query."""
    if not rows:
        return
    refs = {row.context_ref for row in rows if not row.is_purged}
    with masked(None):
        parts = parts_of(db, rows[0].session_id, refs, most_together)
    rules = _rules_of(db, rows[0])
    outlines: dict[str, snapshot_parts.Outline] | None = None
    with suppress(snapshot_parts.BrokenPartError):
        outlines = snapshot_parts.outlines_of(parts)
    for row in rows:
        content: Any = UNSET
        # What was not measured is not built.
        if outlines is not None and not row.is_purged:
            with suppress(LookupError, ValueError, RecursionError):
                content = _built(row, parts, outlines, rules, most)
        yield content


def _rules_of(db: Database, row: Snapshot) -> Any:
    """Return the rules that mask a snapshot for its reader; None if he reads it as it is."""
    mask = db.read_connection.mask
    if mask is None:
        return None
    return mask.rules_of(db.rows(Session.with_deleted).values_list("project_id", flat=True).get(pk=row.session_id))


def _built(
    row: Snapshot, parts: Mapping[str, bytes], outlines: Mapping[str, snapshot_parts.Outline], rules: Any, most: int
) -> Any:
    snapshot_parts.measured(row.context_ref, outlines, most)
    context = snapshot_parts.assembled(row.context_ref, parts.__getitem__)
    return context if rules is None else redact_context(context, rules)


class SnapshotTooLarge(TooLarge):
    default_code = "snapshots_too_large"
    default_message = gettext_lazy("The context of this snapshot is larger than those that can be shown.")


class SnapshotBroken(Conflict):
    default_code = "snapshot_broken"
    default_message = gettext_lazy(
        "The context of this snapshot cannot be shown: parts of it are missing, or are none."
    )


def parts_of(db: Database, session_id: UUID, refs: Collection[str], most: int) -> Mapping[str, bytes]:
    """Return these parts of a session and all that they name, of these at most about so many bytes."""
    with db.read_cursor() as cursor:
        cursor.execute(_CLOSURE, [list(refs), session_id, list(refs), session_id, most])
        return {ref: bytes(content) for ref, content in cursor}


class BesideSession(NamedTuple):
    """The times, contexts, snapshots, origin and archives of a session."""

    started_at: datetime
    ended_at: datetime | None
    context_refs: list[str]
    """Newest first, each once."""
    snapshots: list[snapshot_schemas.ListedSnapshot]
    """Newest first."""
    sums: snapshot_schemas.SnapshotSums | None
    """None without snapshots."""
    forked_from: snapshot_schemas.ForkedFrom | None
    """The fork's origin; None if it is no fork."""
    archived_parts: list[session_schemas.ArchivedPart]
    """Its periods that were dropped from the database after they were archived, in their order."""


def beside_session(db: Database, session_id: UUID, most_refs: int) -> BesideSession:
    """Return the times, newest contexts and snapshots, their sums, the origin and the archives of a session. One query, or two
    if it has snapshots."""
    with db.read_cursor() as cursor:
        cursor.execute(_BESIDE, [most_refs, session_id])
        started_at, ended_at, refs, has_sums, count, size, left_out, generation, fork, parts = cursor.fetchone()
    sums = None
    if has_sums:
        sums = snapshot_schemas.SnapshotSums(
            count=count, bytes=size, left_out=Raw(left_out.encode()), generation=generation
        )
    origin = None if fork is None else forked_from(msgspec.json.decode(fork))
    archived = [session_schemas.ArchivedPart(url=url, period=period) for url, period in parts]
    listed = [] if sums is None else [_listed(row) for row in newest_snapshots(db, session_id, most_refs)]
    return BesideSession(started_at, ended_at, list(dict.fromkeys(refs)), listed, sums, origin, archived)


def _listed(row: Snapshot) -> snapshot_schemas.ListedSnapshot:
    at = instant_text(datetime.fromtimestamp(row.ts // 1000 / 1_000_000, UTC))
    return snapshot_schemas.ListedSnapshot(row.external_id, at, row.node_ids, row.context_ref)


_BESIDE = f"""
    SELECT session.created_at,
        CASE WHEN session.status IN ('completed', 'error', 'aborted') THEN coalesce(
            (SELECT completed_at FROM messages_app_message WHERE id = session.last_run_id), session.active_at
        ) END,
        ARRAY({NEWEST_REFS}), sums.session_id IS NOT NULL,
        CASE WHEN sums.session_id IS NOT NULL THEN
            (SELECT count(*) FROM traces_app_snapshot WHERE session_id = session.id)
        END,
        sums.size, sums.left_out::text AS "traces_app_snapshotsums.left_out", sums.generation, coalesce(sums.fork, session.metadata -> 'forked_from')::text,
        ARRAY(
            SELECT ARRAY[archive.url, archive.period] FROM traces_app_archivedsession AS part
            JOIN traces_app_archive AS archive ON archive.id = part.archive_id
            WHERE part.key = {ids.key_in_sql("'session'", "session.project_id", "session.id")} AND archive.dropped_at IS NOT NULL
            ORDER BY archive.period, archive.url
        )
    FROM messages_app_session AS session LEFT JOIN traces_app_snapshotsums AS sums ON sums.session_id = session.id
    WHERE session.id = %s
    """  # noqa: S608 - constants


def forked_from(fork: Any) -> snapshot_schemas.ForkedFrom | None:
    """Return what a fork has replayed; None for metadata of another form."""
    if not isinstance(fork, dict) or not all(isinstance(fork.get(name), str) for name in ("session", "node")):
        return None
    snapshot, ts, overrides, nodes, pruned = map(fork.get, ("snapshot", "ts", "overrides", "nodes", "pruned"))
    return snapshot_schemas.ForkedFrom(
        session=fork["session"],
        node=fork["node"],
        snapshot=snapshot if isinstance(snapshot, str) else "",
        ts=ts if isinstance(ts, int) and 0 <= ts < 2**63 else None,
        overrides=_object(overrides),
        nodes=_object(nodes),
        pruned=[node for node in pruned if isinstance(node, str)] if isinstance(pruned, list) else [],
    )


def _object(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value if isinstance(value, dict) else {}))


def forks_of(db: Database, project_id: int, names: Collection[str]) -> ListRows:
    """Return the sessions that have replayed the session of these ids."""
    rows = forked_among(db, project_id, names)
    return ListRows(db=db, find=lambda _ids: rows)


def forked_among(db: Database, project_id: int, names: Collection[str]) -> QuerySet[Session, Any]:
    """Return the sessions that have replayed one of those with these ids, each with its id as `source`."""
    rows = db.rows(Session.objects).filter(IS_FORK, project_id=project_id).annotate(source=FORKED_FROM)
    return rows.filter(source__in=names)


def names_of(session_id: UUID, external_id: str | None) -> list[str]:
    """Return the ids by which a fork may name the session that it has replayed."""
    return [str(session_id), *([external_id] if external_id else [])]


def forks(db: Database, keys: Collection[str]) -> list[snapshot_schemas.Fork]:
    """Return the forks of these ids of sessions, in this order."""
    rows = (
        db.rows(Session.objects)
        .filter(pk__in=list(keys))
        .only("external_id", "title", "status", "created_at", "metadata")
    )
    stored = dict(db.rows(SnapshotSums.objects).filter(pk__in=list(keys), fork__isnull=False).values_list("pk", "fork"))
    by_id: dict[str, snapshot_schemas.Fork] = {}
    for row in rows:
        of = forked_from(stored.get(row.pk, row.metadata.get("forked_from")))
        if of is not None:
            by_id[str(row.pk)] = snapshot_schemas.Fork(
                id=str(row.pk),
                external_id=row.external_id,
                title=row.title,
                status=row.status,
                created_at=instant_text(row.created_at),
                forked_from=of,
            )
    return [by_id[key] for key in keys if key in by_id]

"""Store snapshots of agents' contexts, and remove their contents.

Writers of a session's snapshots wait for each other at its row of SnapshotSums. What one request brings is stored in one
transaction, and only if all parts that its snapshot needs are there: a snapshot is whole or absent.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import F
from django.utils import timezone
from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.encryption.keys import refuse_encrypted
from access_app.errors import ApiError, Conflict, InvalidInput, NotFound, TooLarge
from access_app.visibility import ProjectScope
from messages_app.models import Session
from messages_app.queries import find_session
from traces_app.models import Snapshot, SnapshotPart, SnapshotSums
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import RedactedSnapshots, receipts_as_json
from tracesite_sdk.records import ids, pg_text, snapshot_parts
from tracesite_sdk.records.snapshot_parts import BrokenPartError, Outline, TooLargeContextError

from .decode import invalid, json_of
from .pipeline import ingest

MOST_BYTES = 2**30
"""The limit for the parts of a session. Recorders have a limit of their own, of 64 MiB by default."""
MOST_PARTS = 50_000
"""In a request, because each is a row."""
_PARTS_AT_ONCE = 1_000
_MOST_ON_THE_WAY = timedelta(days=1)

_SNAPSHOTS = msgspec.json.Decoder(records.Snapshots)


def decode_snapshots(body: bytes) -> records.Snapshots:
    """Decode and check what a recorder sends. Raise InvalidInput, and TooLarge for more than MOST_PARTS."""
    try:
        sent = _SNAPSHOTS.decode(body)
        if len(sent.parts) > MOST_PARTS:
            raise TooLarge(
                _("The body has more than %(most)d %(items)s. Split it into several requests.")
                % {"most": MOST_PARTS, "items": "parts"},
                field="parts",
            )
        for ref, content in sent.parts.items():
            value = msgspec.json.decode(content)
            # The second: written in another way between sender and here, for example with spaces.
            as_sent = snapshot_parts.ref_of(bytes(content))
            if as_sent != ref and snapshot_parts.ref_of(msgspec.json.encode(value)) != ref:
                raise InvalidInput(_("The name of a part is not the hash of its content."), field=f"parts.{ref[:32]}")
    except msgspec.ValidationError as error:
        raise invalid(error, json_of(body), records.Snapshots) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(
            _("The body is not valid JSON in UTF-8: %(reason)s.") % {"reason": error}, code="invalid_json"
        ) from error
    except RecursionError as error:
        raise InvalidInput(_("The JSON is nested too deeply."), code="invalid_json") from error
    latest = timezone.now() + _MOST_ON_THE_WAY
    if sent.snapshot is not None and _time(sent.snapshot) > latest:
        raise InvalidInput(_("The time of a snapshot is at most one day from now."), field="snapshot.ts")
    return sent


def store_snapshots(db: Database, project_id: int, redacted: RedactedSnapshots) -> SnapshotSums:
    """Store what a recorder sent, and return the sums of the session, which is made if it does not exist.

    Raise Conflict if the session is deleted, if its snapshots were purged meanwhile, or if parts are missing.
    """
    refuse_encrypted(project_id)
    sent = redacted.snapshots
    session_id = _session(db, project_id, sent)
    with db.atomic():
        sums = _locked(db, project_id, session_id)
        if sent.snapshot is not None:
            if sums.generation != sent.generation:
                raise Conflict(_("The snapshots of this session were purged meanwhile."), code="snapshots_purged")
            sums.size += _add(db, project_id, session_id, redacted, sent.snapshot)
            if sums.size > MOST_BYTES:
                raise TooLarge(
                    _("The snapshots of a session have at most %(most)d bytes.") % {"most": MOST_BYTES},
                    code="snapshots_too_large",
                )
        for reason, count in sent.left_out.items():
            sums.left_out[pg_text.text(reason)] = sums.left_out.get(pg_text.text(reason), 0) + count
        if sent.fork is not None:
            sums.fork = pg_text.storable(msgspec.to_builtins(sent.fork))
        sums.save(update_fields=["size", "left_out", "fork"])
    return sums


def snapshot_id_of(session_id: UUID, snapshot: records.Snapshot) -> UUID:
    """Return the id of the row of a snapshot; ids sort by time."""
    return ids.child_id(ids.first_id_at(_time(snapshot)), session_id.int, snapshot.id)


@in_transaction
def remove_contents(db: Database, project_id: int, session_id: UUID, before: datetime | None = None) -> tuple[int, int]:
    """Remove the contents of a session's snapshots, of all or of those from before a time; the index stays, marked as purged.
    Return the number and size of the parts that are gone."""
    sums = _locked(db, project_id, session_id)
    snapshots = db.rows(Snapshot.objects).filter(session_id=session_id, is_purged=False)
    if before is not None:
        snapshots = snapshots.filter(pk__lt=ids.first_id_at(before))
    if not snapshots.update(is_purged=True) and before is not None:
        return 0, 0
    with db.cursor() as cursor:
        cursor.execute(_REMOVE_UNUSED, [session_id] * 3)
        rows, size, stored = cursor.fetchone()
    db.rows(SnapshotSums.objects).filter(pk=session_id).update(
        generation=F("generation") + 1, size=max(0, sums.size - size) if before is not None else 0
    )
    return rows, stored


_REMOVE_UNUSED = """
    WITH RECURSIVE used (ref) AS (
        SELECT context_ref FROM traces_app_snapshot WHERE session_id = %s AND NOT is_purged
        UNION
        SELECT unnest(part.below) FROM used JOIN traces_app_snapshotpart AS part ON part.session_id = %s AND part.ref = used.ref
    ), gone AS (
        DELETE FROM traces_app_snapshotpart AS part WHERE session_id = %s
        AND NOT EXISTS (SELECT 1 FROM used WHERE used.ref = part.ref)
        RETURNING octet_length(content) AS size, 24 + pg_column_size(content) AS stored
    )
    SELECT count(*), coalesce(sum(size), 0)::bigint, coalesce(sum(stored), 0)::bigint FROM gone
    """


def _session(db: Database, project_id: int, sent: records.Snapshots) -> UUID:
    """Return the session, which is made if it does not exist, with the fork in its metadata."""
    metadata: dict[str, Any] = {}
    if sent.fork is None:
        try:
            return find_session(db, ProjectScope(frozenset({project_id})), sent.session_id).pk
        except NotFound:
            pass  # not yet
    else:
        fork = msgspec.to_builtins(sent.fork)
        metadata = {"forked_from": {name: fork[name] for name in ("session", "node", "snapshot", "ts", "overrides")}}
    (outcome,) = ingest(db, project_id, [records.Session(external_id=sent.session_id, metadata=metadata or None)])
    if outcome.refused or outcome.id is None:
        raise Conflict(_("The session was deleted."), code=outcome.refused)
    return outcome.id


def _locked(db: Database, project_id: int, session_id: UUID) -> SnapshotSums:
    """Return the sums of a session, locked. Its row is changed, so that a purge at the same time is repeated."""
    if not db.rows(Session.objects).filter(pk=session_id).update(updated_at=timezone.now()):
        raise Conflict(_("The session was deleted."), code="session_deleted")
    new = SnapshotSums(project_id=project_id, session_id=session_id)
    db.rows(SnapshotSums.objects).bulk_create([new], ignore_conflicts=True)
    return db.rows(SnapshotSums.objects).select_for_update().get(pk=session_id)


def _add(
    db: Database, project_id: int, session_id: UUID, redacted: RedactedSnapshots, snapshot: records.Snapshot
) -> int:
    """Insert a snapshot and those new parts to which it leads; return the bytes of these. A snapshot that exists is left as it is."""
    parts = redacted.snapshots.parts
    try:
        outlines = snapshot_parts.outlines_of(parts)
    except BrokenPartError as error:
        raise refused(error) from error
    led, needed = _led_to(snapshot.context_ref, outlines)
    of_session = db.rows(SnapshotPart.objects).filter(session_id=session_id)
    below = {ref: outlines[ref].below() for ref in led}
    wanted = of_session.filter(ref__in=led.union(needed, *below.values()))
    stored: set[str] = set()
    known: dict[str, Outline] = {}
    for ref, size, depth in wanted.values_list("ref", "assembled_size", "assembled_depth"):
        stored.add(ref)
        # What a part stands for that an earlier version stored is unknown, until it is sent again.
        if size is not None and depth is not None:
            known[ref] = Outline(size, depth, [], is_piece=True)
    if missing := needed - known.keys():
        raise Conflict(
            _("Parts of the context are missing: %(refs)s.") % {"refs": ", ".join(sorted(missing)[:3])},
            code="parts_missing",
            field="parts",
        )
    try:
        measures = snapshot_parts.measured(snapshot.context_ref, known | outlines)
    except (BrokenPartError, TooLargeContextError) as error:
        raise refused(error) from error
    # A rule that has come since may hide what the stored part shows.
    old = {ref for ref in led & stored if ref not in known or ref in redacted.changed}
    removed = _remove(db, session_id, old) if old else 0
    new = {ref: bytes(parts[ref]) for ref in led if ref not in stored or ref in old}
    db.rows(SnapshotPart.objects).bulk_create(
        (
            SnapshotPart(
                project_id=project_id,
                session_id=session_id,
                ref=ref,
                content=content,
                below=below[ref],
                assembled_size=measures[ref].size if measures[ref].is_known else None,
                assembled_depth=measures[ref].depth if measures[ref].is_known else None,
            )
            for ref, content in new.items()
        ),
        batch_size=_PARTS_AT_ONCE,
    )
    row = Snapshot(
        id=snapshot_id_of(session_id, snapshot),
        project_id=project_id,
        session_id=session_id,
        external_id=pg_text.text(snapshot.id),
        ts=snapshot.ts,
        node_ids=[pg_text.text(node) for node in snapshot.node_ids],
        context_ref=snapshot.context_ref,
        notes=pg_text.storable(snapshot.notes),
        redactions=pg_text.storable(snapshot.redactions) + receipts_as_json(redacted.receipts),
    )
    # Sent again after a response that was lost.
    db.rows(Snapshot.objects).bulk_create([row], ignore_conflicts=True)
    return sum(map(len, new.values())) - removed


def refused(error: BrokenPartError | TooLargeContextError) -> ApiError:
    """Return what tells a client that its parts are refused, and why."""
    if isinstance(error, BrokenPartError):
        return InvalidInput(_("Not the form of a part: %(reason)s.") % {"reason": error}, field=f"parts.{error.ref}")
    return TooLarge(
        _("The context of a snapshot has at most %(most)d bytes, with %(each)d more for each of its values.")
        % {"most": snapshot_parts.MOST_SIZE, "each": snapshot_parts.VALUE_BYTES},
        code="snapshots_too_large",
    )


def _led_to(root: str, outlines: Mapping[str, Outline]) -> tuple[set[str], set[str]]:
    """Return which of the parts the context leads to, and those that it needs besides."""
    led: set[str] = set()
    needed: set[str] = set()
    seen: set[tuple[str, bool]] = set()
    waiting = [(root, False)]
    while waiting:
        named = ref, is_piece = waiting.pop()
        if named in seen:
            continue
        seen.add(named)
        if ref not in outlines:
            needed.add(ref)
            continue
        led.add(ref)
        waiting += [(place.ref, place.is_piece) for place in outlines[ref].named]
        before = outlines[ref].before
        if is_piece and before is not None:
            waiting.append((before, True))
    return led, needed


def _remove(db: Database, session_id: UUID, refs: Collection[str]) -> int:
    """Remove parts, which are stored anew. Return their bytes."""
    with db.cursor() as cursor:
        cursor.execute(_REMOVE, [session_id, list(refs)])
        (size,) = cursor.fetchone()
    return int(size)


_REMOVE = """
    WITH gone AS (
        DELETE FROM traces_app_snapshotpart WHERE session_id = %s AND ref = ANY(%s) RETURNING octet_length(content) AS size
    )
    SELECT coalesce(sum(size), 0)::bigint FROM gone
    """


def _time(snapshot: records.Snapshot) -> datetime:
    return datetime.fromtimestamp(snapshot.ts // 1000 / 1_000_000, UTC)

"""Seal the messages that the application has written (`seal_changed`), and those that were never sealed (`log_unsealed`).

What it has written has a row with a token in the log of changes (messages_app.change_log). A batch is one transaction: its
seals, its link of the chain, its entry in the audit log, and the place in the log. So a kill at any moment leaves the rows
unread, and such messages count as waiting, not as changed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from django.utils import timezone

from access_app.audit.record import record
from access_app.db import Database
from access_app.db.direct import session_lock
from access_app.models import AuditAction, AuditResult
from access_app.seal_keys import seal_keys
from messages_app.change_log import AGAIN, Kind, Reader, log_changes, move, next_changes, place_of, turn_of, unread
from messages_app.models import Change, ChangeReader, Message
from messages_app.seal_tokens import NONCE_BYTES, nonce_of
from messages_app.sql.partitions import make_periods, periods_of
from messages_app.sql.periods import Period, period_at
from messages_app.sql.snapshot import one_snapshot
from traces_app.ingest.partitions import TABLES
from traces_app.models import MessageSeal, SealBatch, SealLayout
from tracesite_sdk.records import ids

from .chain import LOCK, append, part_mac, seal_mac
from .rows import digests, fix_text_form, layout, layout_digest

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=10)
"""How long a change waits, so that a message that is written often is not sealed each time."""
AT_A_TIME = 1_000
"""Changes of one transaction."""
IDS_IN_THE_LOG = 100
"""Changed messages that an entry of the audit log names; it counts all of them."""
_SEALED_BEFORE = """
    SELECT id, state, nonces, project_id FROM traces_app_messageseal
    WHERE id = ANY(%s) AND id BETWEEN %s AND %s ORDER BY id, batch
    """
_NEVER_SEALED = """
    SELECT message.id, message.project_id FROM messages_app_message AS message
    WHERE message.id > %(last)s AND message.id >= %(first)s AND message.id < %(after)s AND message.is_completed
        AND (%(project)s::bigint IS NULL OR message.project_id = %(project)s)
        AND NOT EXISTS (SELECT 1 FROM traces_app_messageseal AS seal WHERE seal.id = message.id)
    ORDER BY message.id LIMIT %(most)s
    """


@dataclass(kw_only=True)
class SealReport:
    """The work of one run."""

    sealed: int = 0
    """Messages that were sealed for the first time."""
    resealed: int = 0
    opened: int = 0
    removed: int = 0
    refused: int = 0
    """Messages with tokens that the application did not make."""
    newest_batch: str = ""
    """Number and HMAC of the newest batch: in the log it is an anchor outside of the database."""


class _ToSeal(NamedTuple):
    """A message that was written, as it is and as it was sealed before."""

    id: UUID
    project_id: int | None
    state: MessageSeal.State
    before: str
    """The state of its last seal; "" if it has none."""
    nonces: bytes


def seal_changed(db: Database, *, patience: timedelta = PATIENCE, is_stopped: Callable[[], bool] = bool) -> SealReport:
    """Seal the messages that were written before `patience`. Do nothing while another process does."""
    report = SealReport()
    with turn_of(db, Reader.SEALS) as is_mine:
        while is_mine and not is_stopped() and _seal_next(db, patience, report):
            pass
    return report


def log_unsealed(db: Database, first: UUID, after: UUID, project_id: int | None = None) -> Iterator[int]:
    """Note the completed messages that have no seal and do not wait for one, so that they are sealed as they are now.

    Yield the number of each batch. Seals cannot show what happened to these messages before.
    """
    last = UUID(int=0)
    make_periods(db, TABLES, periods_of(db, Message._meta.db_table))
    while True:
        with db.atomic(), db.cursor() as cursor:
            bounds = {"last": last, "first": first, "after": after, "project": project_id, "most": AT_A_TIME}
            cursor.execute(_NEVER_SEALED, bounds)
            found = dict(cursor.fetchall())
            waiting = unread(db, Reader.SEALS).filter(message_id__in=list(found)).exclude(token=b"")
            new = found.keys() - set(waiting.values_list("message_id", flat=True))
            log_changes(db, {message_id: found[message_id] for message_id in sorted(new)}, Kind.SEAL, sealed=new)
        if not found:
            return
        last = max(found)
        if new:
            yield len(new)


def _seal_next(db: Database, patience: timedelta, report: SealReport) -> bool:
    """Seal the messages that changed next; return whether there may be more."""
    place = place_of(db, Reader.SEALS)
    until = timezone.now() - patience
    changes = list(takewhile(lambda change: change.at <= until, next_changes(db, place, AT_A_TIME)))
    if not changes:
        return False
    stored = periods_of(db, Message._meta.db_table)
    make_periods(db, TABLES, filter(None, {_period_of(change.message_id, stored) for change in changes}))
    with session_lock(db, LOCK) as is_alone:
        if is_alone:
            _seal(db, place, changes, stored, report)
    return is_alone


def _seal(
    db: Database, place: ChangeReader, changes: Sequence[Change], stored: Sequence[Period], report: SealReport
) -> None:
    with one_snapshot(db):
        fix_text_form(db)
        # All changes of these messages that the seals will cover, also later ones.
        of_messages = unread(db, Reader.SEALS).filter(message_id__in={change.message_id for change in changes})
        ahead = place.state.get("ahead", [])
        written = list(of_messages.exclude(token=b"").exclude(pk__in=ahead))
        # A period without partition was dropped with its messages.
        of_stored = [one for one in written if _period_of(one.message_id, stored)]
        again = place.state.get(AGAIN, 0)
        to_seal = _with_genuine_tokens(db, of_stored, again, report)
        sealed = [one.id for one in to_seal if one.state == MessageSeal.State.SEALED]
        columns = layout()
        found = digests(db, sealed, columns)
        groups: dict[tuple[int | None, Period], list[_ToSeal]] = defaultdict(list)
        for one in to_seal:
            if period := _period_of(one.id, stored):
                groups[one.project_id, period].append(one)
        for (project_id, period), members in groups.items():
            _write_batch(db, project_id, period, members, found, report)
        still_ahead = {*ahead, *(one.pk for one in written)}.difference(change.pk for change in changes)
        place.state = {"ahead": sorted(still_ahead)} if still_ahead else {}
        if again > changes[-1].position:
            place.state[AGAIN] = again
        move(db, place, changes)


def _with_genuine_tokens(db: Database, written: Sequence[Change], again: int, report: SealReport) -> list[_ToSeal]:
    """Return the messages with at least one token that the application made and that did not count before, in order.

    Up to the position `again` a token that counted before is no attempt: the row may have been read before.
    """
    nonces: dict[UUID, set[bytes]] = defaultdict(set)
    repeated: dict[UUID, set[bytes]] = defaultdict(set)
    for one in written:
        nonce = nonce_of(one.message_id, bytes(one.token))
        nonces[one.message_id].add(nonce or b"")
        if nonce and one.pk <= again:
            repeated[one.message_id].add(nonce)
    if not nonces:
        return []
    message_ids = sorted(nonces)
    used: dict[UUID, set[bytes]] = defaultdict(set)
    before: dict[UUID, tuple[str, int | None]] = {}
    with db.cursor() as cursor:
        cursor.execute(_SEALED_BEFORE, [message_ids, message_ids[0], message_ids[-1]])
        for message_id, state, text, project_id in cursor.fetchall():
            used[message_id].update(_each(bytes(text)))
            before[message_id] = state, project_id
    rows = db.rows(Message.with_deleted).filter(pk__in=message_ids, pk__gte=message_ids[0], pk__lte=message_ids[-1])
    present = {pk: (project_id, done) for pk, project_id, done in rows.values_list("pk", "project_id", "is_completed")}
    to_seal = []
    refused = []
    for message_id in message_ids:
        state_before, project_before = before.get(message_id, ("", None))
        project_id, is_completed = present.get(message_id, (project_before, None))
        fresh = nonces[message_id] - used[message_id] - {b""}
        if nonces[message_id] - fresh - repeated[message_id]:
            refused.append(message_id)
        if fresh:
            state = MessageSeal.State.SEALED if is_completed else MessageSeal.State.OPEN
            if is_completed is None:
                state = MessageSeal.State.REMOVED
            to_seal.append(_ToSeal(message_id, project_id, state, state_before, b"".join(sorted(fresh))))
    if refused:
        _record_refused(db, refused)
        report.refused += len(refused)
    return to_seal


def _write_batch(
    db: Database,
    project_id: int | None,
    period: Period,
    members: Sequence[_ToSeal],
    found: Mapping[UUID, Mapping[str, bytes]],
    report: SealReport,
) -> None:
    columns = layout()
    of_layout, _created = db.rows(SealLayout.objects).get_or_create(
        digest=layout_digest(columns), defaults={"columns": columns}
    )
    digest, key = bytes(of_layout.digest), seal_keys()[0]
    number = (db.rows(SealBatch.objects).order_by("pk").values_list("pk", flat=True).last() or 0) + 1
    seals = []
    for one in members:
        kinds, parts = 0, b""
        for bit, (kind, _columns) in enumerate(columns):
            if (of_kind := found.get(one.id, {}).get(kind)) is not None:
                kinds |= 1 << bit
                parts += part_mac(one.id, number, kind, of_kind, digest, key)
        seal = MessageSeal(
            message_id=one.id,
            project_id=project_id,
            batch=number,
            state=one.state,
            kinds=kinds,
            parts=parts,
            nonces=one.nonces,
        )
        seal.mac = seal_mac(seal, digest, key)
        seals.append(seal)
    batch = append(
        db,
        SealBatch.Kind.SEALS,
        project_id=project_id,
        period=period,
        layout=of_layout,
        members=[(seal.message_id, bytes(seal.mac)) for seal in seals],
    )
    db.rows(MessageSeal.objects).bulk_create(seals)
    again = [one for one in members if one.before]
    counts = {
        "sealed": sum(not one.before and one.state == MessageSeal.State.SEALED for one in members),
        "resealed": sum(one.state == MessageSeal.State.SEALED for one in again),
        "opened": sum(one.state == MessageSeal.State.OPEN for one in again),
        "removed": sum(one.state == MessageSeal.State.REMOVED for one in again),
    }
    record(
        AuditAction.SEAL,
        db.actor,
        project_id=project_id,
        object_type="message",
        detail={
            "batch": batch.pk,
            "mac": batch.mac.hex(),
            # Each database has a chain of its own.
            **({} if db.is_primary else {"database": db.alias}),
            **counts,
            "changed": [str(one.id) for one in again[:IDS_IN_THE_LOG]],
        },
    )
    for name, count in counts.items():
        setattr(report, name, getattr(report, name) + count)
    report.newest_batch = f"{batch.pk}:{batch.mac.hex()}"


def _record_refused(db: Database, message_ids: Sequence[UUID]) -> None:
    """Say that somebody else wrote tokens of messages, which are not sealed because of it."""
    some = [str(message_id) for message_id in message_ids[:IDS_IN_THE_LOG]]
    logger.warning("tokens of messages to be sealed were not made by Tracesite", extra={"messages": some})
    record(
        AuditAction.SEAL,
        db.actor,
        object_type="message",
        result=AuditResult.REFUSED,
        detail={"refused": len(message_ids), "messages": some},
    )


def _each(nonces: bytes) -> Iterator[bytes]:
    for at in range(0, len(nonces), NONCE_BYTES):
        yield nonces[at : at + NONCE_BYTES]


def _period_of(message_id: UUID, stored: Sequence[Period]) -> Period | None:
    return period_at(stored, ids.created_at_of(message_id))

"""The hash chain of each project: append entries to it, verify it, and remove its oldest entries; see access_app.hash_chain.

A hash is the SHA-256 of all columns of an entry, among them the hash of the entry before it. Entries without a project have a
chain of their own. One process at a time changes chains; writers of entries never wait for it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain

from django.db.models import QuerySet

from access_app.audit.trail import Actor
from access_app.db import primary
from access_app.hash_chain import Flaw, HashChain, Head, Verified
from access_app.models import AuditAction, AuditEntry, Project

from .record import record

START = "0" * 64
"""The previous hash of the first entry of a chain."""
BATCH = 1000
_REWRITTEN = "the hash differs from the anchor: the chain was rewritten"
_LOCK = "SELECT pg_advisory_xact_lock(hashtext('tracesite audit chain'))"
_TRY_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('tracesite audit chain'))"
_APPEND = """
    UPDATE access_app_auditentry AS entry SET sequence = new.sequence, previous_hash = new.previous_hash, hash = new.hash
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[]) AS new (id, sequence, previous_hash, hash)
    WHERE entry.id = new.id
    """


@dataclass
class ChainReport:
    chained: int = 0
    heads: dict[str, str] = field(default_factory=dict)
    """Number and hash of the newest entry, by slug. In the log they are anchors outside of the database."""


@dataclass(frozen=True)
class BrokenLink:
    chain: str
    sequence: int
    reason: str

    def __str__(self) -> str:
        return f"{self.chain}: entry {self.sequence}: {self.reason}"


def hash_of(entry: AuditEntry) -> str:
    """Return the hash of all columns but the hash itself."""
    columns = {
        column.attname: getattr(entry, column.attname)
        for column in AuditEntry._meta.concrete_fields
        if column.attname != "hash"
    }
    columns["time"] = entry.time.astimezone(dt.UTC).isoformat(timespec="microseconds")
    text = json.dumps(columns, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


CHAIN: HashChain[AuditEntry, str] = HashChain(
    number="sequence",
    digest="hash",
    previous="previous_hash",
    start=START,
    digest_of=lambda entry, _before: hash_of(entry),  # the hash before it is one of its columns
)


def chain_name(project_id: int | None) -> str:
    """Return the slug of a project, and "-" for the entries without one."""
    if project_id is None:
        return "-"
    slug = Project.objects.filter(pk=project_id).values_list("slug", flat=True).first()
    return slug or f"project {project_id}"


def append_recorded(*, is_stopped: Callable[[], bool] = bool) -> ChainReport:
    """Chain the entries that were recorded since. Do nothing while another process does."""
    report = ChainReport()
    while not is_stopped():
        with primary.atomic():
            if not _locked(_TRY_LOCK):
                break
            count = _append_batch(report)
        if count < BATCH:
            break
    return report


def links(project_id: int | None) -> QuerySet[AuditEntry]:
    """Return the chained entries of a chain in their order."""
    return AuditEntry.objects.filter(project=project_id, sequence__isnull=False).order_by("sequence")


def head_of(project_id: int | None) -> Head[str]:
    return CHAIN.head(links(project_id).last())


def chains() -> list[int | None]:
    """Return the projects that have entries, and None for the entries without one."""
    return list(AuditEntry.objects.order_by("project_id").values_list("project_id", flat=True).distinct())


def first_broken_link(project_id: int | None, anchor: Head[str] | None = None) -> BrokenLink | None:
    """Return the first entry of a chain that was changed, moved, added or follows removed ones; None if all are intact.

    `anchor` is a head that the chain had before, which shows entries removed at the end. One statement reads all entries, so
    that what is chained or purged meanwhile is seen as a whole or not at all.
    """
    name = chain_name(project_id)
    entries = links(project_id).iterator(chunk_size=BATCH)
    first = next(entries, None)
    start = CHAIN.head(None)
    if first is not None and (before_first := (first.sequence or 0) - 1) > 0:
        # Right if an entry further on says that the log was purged until here.
        start = Head(before_first, first.previous_hash)
    end, broken = start, None
    purges: set[Head[str]] = set()
    anchors = {} if anchor is None else {anchor.number: anchor.digest}
    for found in CHAIN.verify([] if first is None else chain([first], entries), start, anchors):
        if start.number and found.row.action == AuditAction.AUDIT_PURGE:
            purges |= _purged_through(found.row)
        if broken is None:
            broken = BrokenLink(name, found.link.number, _reason(found)) if found.flaws else None
            end = found.link
        elif not start.number:
            break
    if start.number:
        if start not in purges:
            return BrokenLink(name, start.number + 1, "entries before it were removed, or it was changed or moved")
        if anchors.get(start.number) not in (None, start.digest):
            return BrokenLink(name, start.number + 1, _REWRITTEN)
    if broken is None and anchor is not None and anchor.number > end.number:
        reason = f"removed from the end: the anchor knows {anchor.number} entries"
        return BrokenLink(name, end.number + 1, reason)
    return broken


@primary.atomic()
def purge_before(actor: Actor | None, limit: dt.datetime) -> dict[str, int]:
    """Remove the entries at the start of each chain that are older than `limit`. Return their numbers by chain.

    An entry of the chain records how far it was removed, and the hash there, from which verification goes on.
    """
    _locked(_LOCK)
    while _append_batch(ChainReport()) == BATCH:
        pass
    removed: dict[str, int] = {}
    for project_id in chains():
        oldest = links(project_id).first()
        kept = links(project_id).filter(time__gte=limit).first()
        end = links(project_id)
        last = (end if kept is None else end.filter(sequence__lt=kept.sequence)).last()
        if oldest is None or last is None:
            continue
        record(
            AuditAction.AUDIT_PURGE,
            actor,
            project_id=project_id,
            object_type="auditentry",
            detail={"through": last.sequence, "hash": last.hash},
        )
        _append_batch(ChainReport())
        with primary.cursor() as cursor:
            cursor.execute("SET LOCAL tracesite.audit_retention = 'on'")
            removed[chain_name(project_id)] = links(project_id).filter(sequence__lte=last.sequence).delete()[0]
            cursor.execute("SET LOCAL tracesite.audit_retention = 'off'")
    return removed


def _append_batch(report: ChainReport) -> int:
    """Append up to BATCH entries to their chains, in the order of their ids. The caller holds the lock."""
    waiting = list(AuditEntry.objects.filter(sequence=None).order_by("id")[:BATCH])
    heads: dict[int | None, Head[str]] = {}
    values = []
    for entry in waiting:
        heads[entry.project_id] = CHAIN.append(entry, heads.get(entry.project_id) or head_of(entry.project_id))
        values.append((entry.pk, entry.sequence, entry.previous_hash, entry.hash))
    if values:
        with primary.cursor() as cursor:
            cursor.execute(_APPEND, [list(column) for column in zip(*values, strict=True)])
    report.chained += len(values)
    for project_id, head in heads.items():
        report.heads[chain_name(project_id)] = f"{head.number}:{head.digest}"
    return len(values)


def _locked(statement: str) -> bool:
    with primary.cursor() as cursor:
        cursor.execute(statement)
        return cursor.fetchone()[0] is not False


def _purged_through(entry: AuditEntry) -> set[Head[str]]:
    """Return until where an entry says that the log was purged; empty if somebody wrote another detail into it."""
    detail = entry.detail
    if isinstance(detail, dict) and isinstance(detail.get("through"), int):
        return {Head(detail["through"], str(detail.get("hash")))}
    return set()


def _reason(found: Verified[AuditEntry, str]) -> str:
    match found.flaws[0]:
        case Flaw.GAP:
            return f"entries {found.before.number + 1} to {found.link.number - 1} before it were removed or moved"
        case Flaw.NOT_NEXT:
            return "it does not continue the entry before it: one was added, replaced or moved"
        case Flaw.NOT_ANCHOR:
            return _REWRITTEN
    return "it was changed"

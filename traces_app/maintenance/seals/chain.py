"""The chain of batches of seals: append to it, and verify it; see access_app.hash_chain.

Each batch carries an HMAC of its columns and of the HMAC before it, so that without the key nobody can change, add, move or
remove one unnoticed, except the newest. Those are in the audit log, too, whose anchors are kept outside of the database.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Q
from django.utils import timezone

from access_app.audit.record import record
from access_app.db import Database
from access_app.db.transactions import in_transaction
from access_app.hash_chain import Flaw, HashChain, Verified
from access_app.models import AuditAction, AuditEntry
from access_app.seal_keys import SealKey, seal_key, seal_keys
from messages_app.sql.periods import Period
from traces_app.models import MessageSeal, SealBatch, SealLayout

START = bytes(32)
"""The HMAC before the first batch."""
MAC_BYTES = 16
LOCK = 0x7365_616C  # "seal"
"""The advisory lock of whoever makes seals. Of the session, because the snapshot of a transaction must be younger than its lock."""


@dataclass(frozen=True)
class Fault:
    """A batch that was changed, removed or added, or the first one that cannot be verified."""

    batch: int
    reason: str
    key_id: str = ""
    """The key that is missing, if it is only that."""

    def __str__(self) -> str:
        return f"batch {self.batch}: {self.reason}"


def append(
    db: Database,
    kind: SealBatch.Kind,
    *,
    project_id: int | None,
    period: Period,
    layout: SealLayout | None,
    members: Sequence[tuple[UUID, bytes]] = (),
) -> SealBatch:
    """Append a batch. `members` are the messages in order, each with the HMAC of its seal. The caller is alone."""
    newest = db.rows(SealBatch.objects).defer("members").order_by("pk").last()
    batch = SealBatch(
        kind=kind,
        project_id=project_id,
        month=period.begin,
        sealed_at=timezone.now(),
        layout=layout,
        key_id=seal_keys()[0].id,
        count=len(members),
        members=b"".join(message_id.bytes for message_id, _mac in members),
        digest=members_digest(members),
    )
    CHAIN.append(batch, CHAIN.head(newest))
    batch.save(using=db.alias, force_insert=True)
    return batch


@in_transaction
def append_dropped_period(db: Database, period: Period) -> None:
    """Append that a period was dropped with all its messages and seals, which are not looked for any more."""
    with db.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
    batches = db.rows(SealBatch.objects).filter(month=period.begin, kind=SealBatch.Kind.SEALS)
    if not batches.exists():
        return
    batches.update(members=b"")
    batch = append(db, SealBatch.Kind.MONTH, project_id=None, period=period, layout=None)
    record(
        AuditAction.SEAL,
        db.actor,
        object_type="month",
        object_id=str(period),
        detail={"batch": batch.pk, "mac": batch.mac.hex()},
    )


def members_digest(members: Iterable[tuple[UUID, bytes]]) -> bytes:
    digest = hashlib.sha256()
    for message_id, mac in members:
        digest.update(message_id.bytes + mac)
    return digest.digest()


def mac_of(batch: SealBatch, before: bytes, key: SealKey) -> bytes:
    sealed_at: datetime = batch.sealed_at
    columns = (batch.pk, str(batch.kind), batch.project_id, batch.month.isoformat(), sealed_at.timestamp(), batch.count)
    layout = b"" if batch.layout is None else bytes(batch.layout.digest)
    return key.digest(b"batch", repr(columns).encode(), layout, bytes(batch.digest), before)


def _mac_after(batch: SealBatch, before: bytes) -> bytes | None:
    key = seal_key(batch.key_id)
    return None if key is None else mac_of(batch, before, key)


CHAIN: HashChain[SealBatch, bytes] = HashChain(number="pk", digest="mac", start=START, digest_of=_mac_after)


def seal_mac(seal: MessageSeal, layout: bytes, key: SealKey) -> bytes:
    """Return the HMAC of a seal of a layout with this digest."""
    columns = repr((seal.batch, str(seal.state), seal.kinds)).encode()
    parts = (seal.message_id.bytes, columns, bytes(seal.parts), bytes(seal.nonces), layout)
    return key.digest(b"seal", *parts)[:MAC_BYTES]


def part_mac(message_id: UUID, batch: int, kind: str, digest: bytes, layout: bytes, key: SealKey) -> bytes:
    """Return the HMAC of the digest of the rows of a kind. Keyed, so that it cannot be compared with guessed contents."""
    return key.digest(b"part", message_id.bytes, b"%d" % batch, kind.encode(), digest, layout)[:MAC_BYTES]


def faults(db: Database) -> Iterator[Fault]:
    """Yield the batches that were changed, removed or added, and those that only the audit log still knows.

    Batches of a key that is missing are one fault for each key, because they may be all that there are.
    """
    end = CHAIN.head(None)
    keyless: dict[str, list[int]] = defaultdict(list)
    anchors = _anchors(db)
    batches = db.rows(SealBatch.objects).defer("members").select_related("layout").order_by("pk")
    for found in CHAIN.verify(batches.iterator(chunk_size=1_000), end, anchors):
        for flaw in found.flaws:
            if flaw is Flaw.UNKNOWN:
                keyless[found.row.key_id].append(found.link.number)
            else:
                yield Fault(found.link.number, _reason(flaw, found))
        anchors.pop(found.link.number, None)
        end = found.link
    for key_id, numbers in keyless.items():
        which = f"this and {len(numbers) - 1:,} more up to {numbers[-1]} are" if numbers[1:] else "it is"
        yield Fault(
            numbers[0],
            f"{which} sealed with the key {key_id}, which is missing here: set TRACESITE_SECRET_KEY, or secret_key in "
            "TRACESITE_DATA_DIR, to what it was, or name it in TRACESITE_SEAL_KEYS",
            key_id,
        )
    if anchors:
        yield Fault(end.number + 1, f"removed from the end: the audit log knows {max(anchors)} batches")


def _reason(flaw: Flaw, found: Verified[SealBatch, bytes]) -> str:
    if flaw is Flaw.GAP:
        return f"batches {found.before.number + 1} to {found.link.number - 1} before it were removed"
    return "it differs from the audit log" if flaw is Flaw.NOT_ANCHOR else "it was changed, added or moved"


def _anchors(db: Database) -> dict[int, str]:
    """Return the newest batch of each project as the audit log has it. No more, because its entries may be many."""
    entries = (
        AuditEntry.objects.filter(action=AuditAction.SEAL, detail__has_key="mac")
        .filter(Q(detail__database=db.alias) if not db.is_primary else ~Q(detail__has_key="database"))
        .order_by("project_id", "-pk")
        .distinct("project_id")
    )
    details = entries.values_list("detail", flat=True)
    return {detail["batch"]: detail["mac"] for detail in details if isinstance(detail.get("batch"), int)}

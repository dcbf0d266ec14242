"""Verify seals: name every message whose rows were changed, added, moved or removed by anybody but the application.

Two passes, in batches of bounded size: the seals of each batch of the chain, so that no seal can be removed or changed; then
the messages with their newest seals, in the order of ids. Each batch is read in one snapshot.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Any, Literal, NamedTuple
from uuid import UUID

from access_app.db import Database
from access_app.seal_keys import SealKey, seal_key
from messages_app.change_log import Reader, unread
from messages_app.models import Message
from messages_app.seal_tokens import NONCE_BYTES, nonce_of
from messages_app.sql.partitions import unsettled_periods
from messages_app.sql.periods import Period, period_at
from messages_app.sql.snapshot import one_snapshot
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.statements import fetch
from traces_app.models import MessageSeal, SealBatch, SealLayout
from tracesite_sdk.records import ids

from .chain import MAC_BYTES, members_digest, part_mac, seal_mac
from .rows import Layout, digests, fix_text_form, is_readable, layout_digest

_State = Literal["intact", "open", "waiting", "unsealed", "unreadable", "keyless", "gone"]
"""The names of Tally."""
AT_A_TIME = 1_000
END = ids.first_id_at(datetime(9999, 1, 1, tzinfo=UTC))
"""An id behind all messages."""
_PAGE = """
    (SELECT id FROM messages_app_message WHERE id > %(last)s AND id >= %(first)s AND id < %(after)s
        AND (%(project)s::bigint IS NULL OR project_id = %(project)s) ORDER BY id LIMIT %(most)s)
    UNION
    (SELECT DISTINCT seal.id FROM traces_app_messageseal AS seal WHERE seal.id > %(last)s AND seal.id >= %(first)s
        AND seal.id < %(after)s AND (%(project)s::bigint IS NULL OR EXISTS (SELECT 1 FROM traces_app_sealbatch AS batch
            WHERE batch.id = seal.batch AND batch.project_id = %(project)s)) ORDER BY seal.id LIMIT %(most)s)
    ORDER BY id LIMIT %(most)s
    """
_MESSAGES = "SELECT id, is_completed, project_id FROM messages_app_message WHERE id = ANY(%s) AND id BETWEEN %s AND %s"
_NEWEST_SEALS = """
    SELECT DISTINCT ON (seal.id) seal.id, seal.batch, seal.state, seal.kinds, seal.parts, seal.nonces, seal.mac,
        batch.layout_id, batch.key_id, batch.project_id
    FROM traces_app_messageseal AS seal LEFT JOIN traces_app_sealbatch AS batch ON batch.id = seal.batch
    WHERE seal.id = ANY(%s) AND seal.id BETWEEN %s AND %s ORDER BY seal.id, seal.batch DESC
    """
# The first 18 characters of an id are its time.
_STRAYS = """
    SELECT DISTINCT message_id FROM {table} WHERE id >= %s AND id < %s AND message_id IS NOT NULL
        AND left(id::text, 18) <> left(message_id::text, 18) ORDER BY message_id
    """


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A message that differs from its seal."""

    message_id: UUID
    project_id: int | None
    kinds: tuple[str, ...]
    """The kinds of rows that differ: see rows.KINDS; `seal` if the seal itself was removed or changed."""
    detail: str = ""


@dataclass(kw_only=True)
class Tally:
    """The numbers of verified messages."""

    messages: int = 0
    intact: int = 0
    open: int = 0
    """Not completed, so that they have no seal."""
    waiting: int = 0
    """Written by the application and not sealed since."""
    unsealed: int = 0
    """Completed, without a seal or a token: older than sealing, or added by SQL."""
    unreadable: int = 0
    """Sealed with columns that this version does not have any more."""
    keyless: int = 0
    """Sealed with a key that is missing here, so that nothing can be said of them."""
    gone: int = 0
    """Removed by the application, of which the seal is kept until their month is purged."""
    batches: int = 0


@dataclass(frozen=True, kw_only=True)
class VerifiedRange:
    """The messages to verify: first <= id < after, of one project or all."""

    first: UUID = UUID(int=0)
    after: UUID = END
    project_id: int | None = None

    @classmethod
    def between(cls, from_: datetime | None, until: datetime | None, project_id: int | None = None) -> VerifiedRange:
        """Return the scope of the messages with from_ <= created_at < until; None means no limit."""
        first = ids.first_id_at(from_) if from_ else UUID(int=0)
        return cls(first=first, after=ids.first_id_at(until) if until else END, project_id=project_id)


class _Layout(NamedTuple):
    id: int
    columns: Layout
    digest: bytes
    is_readable: bool


class _Row(NamedTuple):
    is_completed: bool
    project_id: int


class _Seal(NamedTuple):
    seal: MessageSeal
    layout: _Layout | None
    """None if it was removed or changed."""
    key: SealKey | None
    """None if it is not configured."""
    project_id: int | None

    @property
    def is_genuine(self) -> bool:
        if self.layout is None or self.key is None:
            return False
        return compare_digest(seal_mac(self.seal, self.layout.digest, self.key), bytes(self.seal.mac))

    def parts(self) -> dict[str, bytes]:
        assert self.layout is not None, "it is genuine"
        names = [kind for bit, (kind, _columns) in enumerate(self.layout.columns) if self.seal.kinds >> bit & 1]
        parts = bytes(self.seal.parts)
        return {kind: parts[at * MAC_BYTES : (at + 1) * MAC_BYTES] for at, kind in enumerate(names)}


def verify(
    db: Database,
    scope: VerifiedRange,
    tally: Tally,
    progress: Callable[[Tally], object] = lambda _: None,
    *,
    is_strict: bool = False,
) -> Iterator[Finding]:
    """Yield the messages of the scope that differ from their seals; fill in `tally` on the way.

    `is_strict`: also the completed messages without a seal or a token, which SQL may have added. `progress` is called after
    each batch.
    """
    layouts = {
        one.pk: _Layout(one.pk, one.columns, bytes(one.digest), is_readable(one.columns))
        for one in db.rows(SealLayout.objects).all()
        if layout_digest(one.columns) == bytes(one.digest)
    }
    yield from _missing_seals(db, scope, tally)
    last = UUID(int=0)
    while True:
        with one_snapshot(db, read_only=True):
            fix_text_form(db)
            bounds = {"first": scope.first, "after": scope.after, "project": scope.project_id}
            page = [row[0] for row in fetch(db, _PAGE, {**bounds, "last": last, "most": AT_A_TIME})]
            found = list(_verify_page(db, page, layouts, tally, is_strict)) if page else []
        yield from found
        if not page:
            break
        last = page[-1]
        progress(tally)
    yield from _strays(db, scope)


def _verify_page(
    db: Database, message_ids: Sequence[UUID], layouts: Mapping[int, _Layout], tally: Tally, is_strict: bool
) -> Iterator[Finding]:
    span = [list(message_ids), message_ids[0], message_ids[-1]]
    present = {message_id: _Row(done, project_id) for message_id, done, project_id in fetch(db, _MESSAGES, span)}
    seals = {row[0]: _seal_of(row, layouts) for row in fetch(db, _NEWEST_SEALS, span)}
    now = _digests_of_sealed(db, [seal for message_id, seal in seals.items() if message_id in present])
    hidden = _hidden_periods(db) if seals.keys() - present.keys() else []
    unsealed: list[UUID] = []
    differing: list[Finding] = []
    for message_id in message_ids:
        row, seal = present.get(message_id), seals.get(message_id)
        found: _State | Finding
        if seal is None:
            found = _unsealed(row)
        elif row is None and period_at(hidden, ids.created_at_of(message_id)):
            found = "waiting"
        else:
            found = _compare(seal, row, now.get(message_id, {}))
        tally.messages += row is not None
        if isinstance(found, Finding):
            differing.append(found)
        elif found == "unsealed":
            unsealed.append(message_id)
        else:
            setattr(tally, found, getattr(tally, found) + 1)
    waiting = _waiting(db, [*unsealed, *(one.message_id for one in differing)])
    tally.waiting += len(waiting)
    without = [one for one in unsealed if one not in waiting]
    tally.unsealed += len(without)
    for message_id in without if is_strict else ():
        project_id = present[message_id].project_id
        yield Finding(message_id=message_id, project_id=project_id, kinds=("seal",), detail="it has none")
    yield from (one for one in differing if one.message_id not in waiting)


def _digests_of_sealed(db: Database, seals: Sequence[_Seal]) -> dict[UUID, dict[str, bytes]]:
    """Return the digests of messages as they are, of the columns that their seals cover."""
    by_layout: dict[int, list[_Seal]] = defaultdict(list)
    for seal in seals:
        if seal.layout is not None and seal.layout.is_readable:
            by_layout[seal.layout.id].append(seal)
    found: dict[UUID, dict[str, bytes]] = {}
    for of_layout in by_layout.values():
        assert of_layout[0].layout is not None, "chosen above"
        found |= digests(db, [seal.seal.message_id for seal in of_layout], of_layout[0].layout.columns)
    return found


def _unsealed(row: _Row | None) -> _State:
    return "unsealed" if row is not None and row.is_completed else "open"


def _compare(seal: _Seal, row: _Row | None, now: Mapping[str, bytes]) -> _State | Finding:
    """Return the state of a message with a seal, or how it differs from it."""
    message_id = seal.seal.message_id
    project_id = seal.project_id if row is None else row.project_id
    if seal.layout is not None and seal.key is None:
        return "keyless"
    if seal.layout is None or not seal.is_genuine:
        return Finding(message_id=message_id, project_id=project_id, kinds=("seal",), detail="it was changed")
    kinds: tuple[str, ...] = ()
    detail = ""
    state = seal.seal.state
    if row is None:
        if state == MessageSeal.State.REMOVED:
            return "gone"
        kinds, detail = ("message",), "it was removed"
    elif state == MessageSeal.State.REMOVED:
        kinds, detail = ("message",), "it was removed before, and added again"
    elif state == MessageSeal.State.OPEN:
        return _unsealed(row)
    elif not seal.layout.is_readable:
        return "unreadable"
    else:
        kinds = _changed_kinds(seal, now)
    return Finding(message_id=message_id, project_id=project_id, kinds=kinds, detail=detail) if kinds else "intact"


def _hidden_periods(db: Database) -> list[Period]:
    """Return those that a purge has detached and not dropped yet; the next one does, or attaches them again."""
    return unsettled_periods(db, [table for table in TABLES if table.name == Message._meta.db_table])


def _changed_kinds(seal: _Seal, now: Mapping[str, bytes]) -> tuple[str, ...]:
    assert seal.layout is not None and seal.key is not None, "it is genuine"
    before, number = seal.parts(), seal.seal.batch
    after = {
        kind: part_mac(seal.seal.message_id, number, kind, digest, seal.layout.digest, seal.key)
        for kind, digest in now.items()
    }
    return tuple(kind for kind, _columns in seal.layout.columns if before.get(kind) != after.get(kind))


def _waiting(db: Database, message_ids: Collection[UUID]) -> set[UUID]:
    """Return the messages with a token of the application that did not count before."""
    if not message_ids:
        return set()
    written = unread(db, Reader.SEALS).filter(message_id__in=message_ids).exclude(token=b"")
    nonces = {
        (message_id, nonce_of(message_id, bytes(token)))
        for message_id, token in written.values_list("message_id", "token")
    }
    genuine = {(message_id, nonce) for message_id, nonce in nonces if nonce is not None}
    if not genuine:
        return set()
    marked = sorted({message_id for message_id, _nonce in genuine})
    used = db.rows(MessageSeal.objects).filter(
        message_id__in=marked, message_id__gte=marked[0], message_id__lte=marked[-1]
    )
    for message_id, text in used.values_list("message_id", "nonces"):
        nonces_of_seal = bytes(text)
        genuine -= {
            (message_id, nonces_of_seal[at : at + NONCE_BYTES]) for at in range(0, len(nonces_of_seal), NONCE_BYTES)
        }
    return {message_id for message_id, _nonce in genuine}


# --- The seals of each batch ------------------------------------------------------------------------------------------


def _missing_seals(db: Database, scope: VerifiedRange, tally: Tally) -> Iterator[Finding]:
    """Yield the messages whose seals are not those of their batches: removed, changed or added."""
    dropped: dict[Any, int] = {}
    for month, number in db.rows(SealBatch.objects).filter(kind=SealBatch.Kind.MONTH).values_list("month", "pk"):
        dropped[month] = max(number, dropped.get(month, 0))
    begin, end = (ids.created_at_of(one).date() for one in (scope.first, scope.after))
    batches = db.rows(SealBatch.objects).filter(kind=SealBatch.Kind.SEALS).select_related("layout").order_by("pk")
    batches = batches.filter(month__gte=begin.replace(day=1), month__lte=end)
    if scope.project_id is not None:
        batches = batches.filter(project_id=scope.project_id)
    for batch in batches.iterator(chunk_size=100):
        if batch.pk < dropped.get(batch.month, 0):
            continue
        tally.batches += 1
        text = bytes(batch.members)
        members = [UUID(bytes=text[at : at + 16]) for at in range(0, len(text), 16)]
        if not members:
            continue
        rows = db.rows(MessageSeal.objects).filter(
            batch=batch.pk, message_id__in=members, message_id__gte=members[0], message_id__lte=members[-1]
        )
        macs = {message_id: bytes(mac) for message_id, mac in rows.values_list("message_id", "mac")}
        if members_digest((one, macs.get(one, b"")) for one in members) == bytes(batch.digest):
            continue
        if not db.rows(SealBatch.objects).filter(pk=batch.pk).exclude(members=b"").exists():
            continue  # its period was dropped meanwhile
        missing = [one for one in members if one not in macs]
        for message_id in missing:
            yield Finding(
                message_id=message_id,
                project_id=batch.project_id,
                kinds=("seal",),
                detail=f"the seal of batch {batch.pk} was removed",
            )
        if not missing:
            # The seal that differs fails in the second pass, if it is the newest of its message.
            for message_id in _forged(db, batch, members):
                yield Finding(
                    message_id=message_id,
                    project_id=batch.project_id,
                    kinds=("seal",),
                    detail=f"the seal of batch {batch.pk} was changed",
                )


def _forged(db: Database, batch: SealBatch, members: Sequence[UUID]) -> Iterator[UUID]:
    """Yield the members of a batch whose seals do not verify."""
    key = seal_key(batch.key_id)
    layout = batch.layout
    for seal in db.rows(MessageSeal.objects).filter(batch=batch.pk, message_id__in=members):
        if (
            key is None
            or layout is None
            or not compare_digest(seal_mac(seal, bytes(layout.digest), key), bytes(seal.mac))
        ):
            yield seal.message_id


def _strays(db: Database, scope: VerifiedRange) -> Iterator[Finding]:
    """Yield the messages below which SQL put events or contexts with the time of another message."""
    for kind, table in (("events", "traces_app_event"), ("contexts", "traces_app_context")):
        for (message_id,) in fetch(db, _STRAYS.format(table=table), [scope.first, scope.after]):
            yield Finding(message_id=message_id, project_id=scope.project_id, kinds=(kind,), detail="a row was added")


# --- Statements -------------------------------------------------------------------------------------------------------


def _seal_of(row: Sequence[Any], layouts: Mapping[int, _Layout]) -> _Seal:
    message_id, batch, state, kinds, parts, nonces, mac, layout_id, key_id, project_id = row
    seal = MessageSeal(
        message_id=message_id, batch=batch, state=state, kinds=kinds, parts=parts, nonces=nonces, mac=mac
    )
    return _Seal(seal, layouts.get(layout_id), seal_key(key_id or ""), project_id)

"""The log of changes: a write stores its data and one row of the log for each message; what is derived is made from that.

`log_changes` writes the rows in the transaction of the change. The readers (Reader) make what is derived: each takes turns with other
processes (`turn_of`), reads on from its place (`next_changes`), and moves the place in the transaction that stores its work
(`move`). Killed at any moment, it loses nothing and stores nothing twice. A new reader is a member of Reader and a job.

The order of reading is that of transactions, and a row is read only when no older transaction is open: positions are given
before the commit, so a row may become visible behind others that were read. Who searches what is not derived yet asks for
what is `unread`, which includes the rows that wait for an older transaction.

Numbers of transactions hold in one cluster of PostgreSQL. When a dump was restored into another one, the readers begin with all
rows that are left, also those that they had read there (`_begin_again`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.db.models import Max, QuerySet, Subquery, Value
from django.db.models.functions import Coalesce
from django.utils import timezone

from access_app.db import Database
from access_app.db.direct import lock_key, session_lock
from access_app.db.transactions import in_transaction

from .models import Change, ChangeReader, Message
from .seal_tokens import new_token
from .sql.batch import Query

Kind = Change.Kind


class Reader(StrEnum):
    """All readers of the log: what each of them has read is removed."""

    SEARCH = "search"
    VECTORS = "vectors"
    STATISTICS = "statistics"
    SEALS = "seals"
    ERRORS = "errors"

    @property
    def kinds(self) -> Collection[Kind]:
        """The kinds of changes that concern it. Seals are made of rows with a token, whatever their kind."""
        return _KINDS[self]


_KINDS: Mapping[Reader, Collection[Kind]] = {
    Reader.SEARCH: {Kind.CONTENT, Kind.INDEX},
    Reader.VECTORS: {Kind.CONTENT, Kind.VECTOR},
    Reader.STATISTICS: {Kind.CONTENT, Kind.FIGURES},
    Reader.SEALS: set(Kind),
    Reader.ERRORS: {Kind.CONTENT, Kind.PATTERN},
}


AGAIN = "again"
"""Key in the state of a reader: it may have read rows up to this position before."""
ENOUGH = 200
"""Changes that do not wait for more."""
TRIMMED_AT_A_TIME = 10_000
_BEGINNING = {"transaction": -(2**63), "position": 0}
_INSERT = """
    INSERT INTO messages_app_change (project_id, message_id, kind, token)
    SELECT project_id, message_id, %s, token
    FROM unnest(%s::bigint[], %s::uuid[], %s::bytea[]) AS new (project_id, message_id, token)
    """
# The first 48 bits of an id are milliseconds; see tracesite_sdk.records.ids.
_INSERT_OF_SESSIONS = """
    INSERT INTO messages_app_change (project_id, message_id, kind)
    SELECT DISTINCT ON (project_id, ('x' || left(replace(id::text, '-', ''), 12))::bit(48)::bigint / 3600000)
        project_id, id, %s
    FROM messages_app_message WHERE session_id = ANY(%s)
    """
LAGS = """
    SELECT number, extract(epoch FROM now() - (
        SELECT change.at FROM messages_app_change AS change
        WHERE reader.name IS NULL OR (change.transaction, change.position) > (reader.transaction, reader.position)
        ORDER BY change.transaction, change.position LIMIT 1
    ))::float8 AS seconds
    FROM unnest(%s::text[]) WITH ORDINALITY AS asked (name, number)
    LEFT JOIN messages_app_changereader AS reader USING (name)
    ORDER BY number
    """
"""The numbers of readers by their names, from 1, because masking may change a text that is read; and the seconds since the oldest
row that each has not read was written: NULL without one."""


def log_changes(
    db: Database, projects: Mapping[UUID, int], kind: Kind = Kind.CONTENT, *, sealed: Collection[UUID] = ()
) -> None:
    """Note that messages were written or removed, or rows below them. Call it in the transaction that does it.

    `projects` has the messages with their projects; `sealed` are those of them that are or were completed, so that they have a
    seal or get one.
    """
    if projects:
        # As texts of arrays, because psycopg takes longer to quote lists than all the rest takes.
        columns = (
            map(str, projects.values()),
            (message_id.hex for message_id in projects),
            (rf'"\\x{new_token(one).hex() if one in sealed else ""}"' for one in projects),
        )
        with db.cursor() as cursor:
            cursor.execute(_INSERT, [kind, *(f"{{{','.join(column)}}}" for column in columns)])


def log_sessions(db: Database, session_ids: Collection[UUID]) -> None:
    """Note that sessions were deleted or restored with all their messages: one message of each hour stands for the others.

    Call it after the rows of the sessions are locked, so that it finds what a writer that held the lock before has stored.
    """
    if session_ids:
        with db.cursor() as cursor:
            cursor.execute(_INSERT_OF_SESSIONS, [Kind.FIGURES, list(session_ids)])


def log_all(db: Database, messages: QuerySet[Message], kind: Kind) -> None:
    """Note a change of any number of messages that seals do not cover."""
    query = Query.of(messages.values("project_id", "pk", kind=Value(kind.value)))
    with db.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO messages_app_change (project_id, message_id, kind) {query.sql}",
            query.parameters,
        )


def projects_of(db: Database, message_ids: Collection[UUID]) -> dict[UUID, int]:
    """Return the projects of those of the messages that exist, for `log_changes`."""
    if not message_ids:
        return {}
    # The range spares the other periods.
    rows = db.rows(Message.with_deleted).filter(pk__in=message_ids, pk__gte=min(message_ids), pk__lte=max(message_ids))
    return dict(rows.order_by("pk").values_list("pk", "project_id"))


# --- Reading ----------------------------------------------------------------------------------------------------------


def turn_of(db: Database, reader: Reader) -> AbstractContextManager[bool]:
    """Yield whether this process may read for a reader meanwhile."""
    return session_lock(db, lock_key(f"tracesite reader {reader}"))


def place_of(db: Database, reader: Reader) -> ChangeReader:
    """Return how far a reader is, which reads on from there."""
    with db.cursor() as cursor:
        cursor.execute("SELECT system_identifier FROM pg_control_system()")
        (system,) = cursor.fetchone()
    place = db.rows(ChangeReader.objects).filter(pk=reader).first()
    if place is None:
        return ChangeReader(name=reader, system=system, **_BEGINNING)
    if place.system != system:
        _begin_again(db, system)
        place.refresh_from_db(using=db.alias)
    return place


def unread(db: Database, reader: Reader) -> QuerySet[Change]:
    """Return the rows that concern a reader and that it has not read: what it has not derived yet."""
    of_reader = db.rows(ChangeReader.objects).filter(pk=reader)
    transaction, position = (Coalesce(Subquery(of_reader.values(name)), start) for name, start in _BEGINNING.items())
    return _after(db, transaction, position).filter(kind__in=reader.kinds)


def _after(db: Database, transaction: Any, position: Any) -> QuerySet[Change]:
    rows = db.rows(Change.objects).filter(transaction__gte=transaction)
    return rows.exclude(transaction=transaction, position__lte=position)


def next_changes(db: Database, place: ChangeReader, most: int) -> list[Change]:
    """Return the rows that follow a place, as far as no older transaction is open."""
    rows = _after(db, place.transaction, place.position).filter(transaction__lt=oldest_open(db))
    return list(rows.order_by("transaction", "position")[:most])


def may_wait(changes: Sequence[Change], patience: timedelta) -> bool:
    """Return whether changes are few and the oldest is younger than `patience`, so that a message that is written often is not
    derived from each time."""
    return len(changes) < ENOUGH and all(timezone.now() - change.at < patience for change in changes[:1])


def oldest_open(db: Database) -> int:
    """Return the number of the oldest open transaction of the cluster, or else of the next one."""
    with db.cursor() as cursor:
        cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint")
        (number,) = cursor.fetchone()
    return int(number)


def move(db: Database, place: ChangeReader, read: Sequence[Change]) -> None:
    """Store that a reader has read these rows, which follow its place. Call it in the transaction of what was made of them."""
    if read:
        place.transaction, place.position = read[-1].transaction, read[-1].position
    place.save(using=db.alias)


def trim(db: Database) -> int:
    """Remove rows that all readers have read; return their number."""
    places = db.rows(ChangeReader.objects).filter(pk__in=list(Reader)).order_by("transaction", "position")
    if len(places) < len(Reader):
        return 0
    first = places[0]
    removed = 0
    while True:
        read = db.rows(Change.objects).filter(transaction__lte=first.transaction)
        read = read.exclude(transaction=first.transaction, position__gt=first.position)
        some = read.order_by("transaction", "position").values("pk")[:TRIMMED_AT_A_TIME]
        count, _by_model = db.rows(Change.objects).filter(pk__in=some).delete()
        removed += count
        if count < TRIMMED_AT_A_TIME:
            return removed


@in_transaction
def _begin_again(db: Database, system: int) -> None:
    """Put the rows and readers of another cluster before all transactions of this one."""
    with db.cursor() as cursor:
        # No writer has a transaction open meanwhile, so that positions are an order.
        cursor.execute("LOCK TABLE messages_app_change IN SHARE ROW EXCLUSIVE MODE")
    places = list(db.rows(ChangeReader.objects).exclude(system=system).order_by("pk").select_for_update())
    if not places:
        return  # another process was faster
    db.rows(Change.objects).update(transaction=0)
    last = db.rows(Change.objects).aggregate(last=Max("position"))["last"] or 0
    for place in places:
        place.transaction, place.position, place.system = _BEGINNING["transaction"], _BEGINNING["position"], system
        place.state = {**place.state, AGAIN: last}
        place.save(using=db.alias)

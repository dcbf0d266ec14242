"""Write sessions, messages and traces to the tables. No other code inserts them.

`store` takes a list and stores all of it in one transaction, or nothing. Its steps:

 1. before the transaction: create the periods (partitions) and tools that are missing, look up the sessions;
 2. insert the sessions that are missing;
 3. claim the key of each message (MessageKey): insert new messages, merge existing ones;
 4. write messages, references, steps, calls and results, each sorted by id;
 5. update the session rows with their counters;
 6. insert the contexts that are missing: what the models were asked, each message once for a session.

If all messages look new, steps 2 to 6 are sent at once as one transaction (`insert_at_once`). If one of them exists after
all, that transaction fails as a whole and the steps are done one by one, with COPY for many rows.

Every sender takes its locks in this order, so identical batches sent at once cannot deadlock, and a busy session is locked
for the shortest time. Ids are generated before any row is written, so child rows need no round trip. Measured with many
rows: COPY 3,800 messages/s; through a staging table 2,700, by unnest 1,800, and by bulk_create ten times slower.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime
from uuid import UUID

import psycopg
from django.db import IntegrityError
from django.utils import timezone
from django.utils.translation import gettext as _
from msgspec.structs import replace

from access_app.db import Database
from access_app.db.statements import read_prepared
from access_app.encryption.keys import key_of
from access_app.errors import Conflict, TooLarge
from messages_app.change_log import Kind, log_changes
from messages_app.models import message_key
from messages_app.seal_tokens import new_token
from messages_app.sql.periods import Period
from tracesite_sdk import records
from tracesite_sdk.normalize.records import hyphenated_uuid
from tracesite_sdk.normalize.redacted import Redacted
from tracesite_sdk.records import ids, pg_text

from . import context_rows
from .batch import (
    BatchSession,
    Context,
    PendingMessage,
    SessionCreatedConcurrently,
    SessionGone,
    SessionOutcome,
    Source,
    WriteScope,
)
from .id_cache import cache_claims, cache_created_sessions, find_sessions_of, forget_sessions, may_be_new
from .made_rows import made_rows
from .merging import merge
from .overwriting import digests_of, overwrite, packed
from .partitions import ensure_periods, forget
from .prices import current_prices
from .rows import Rows
from .sessions import counted_row, find_sessions, finish_sessions, make_sessions, merged_fields
from .sql import BY_ID, Tables, claim_keys, insert_at_once, insert_rows, tool_names
from .tables import (
    CALLS,
    CHANGES,
    KEYS,
    MESSAGES,
    REFERENCES,
    RESULTS,
    SESSIONS,
    STEPS,
    Row,
)
from .tool_ids import find_or_make_tools

logger = logging.getLogger(__name__)

# The bounds prune periods; a generic plan would look into all of them.
_SESSIONS_OF = "SELECT id, session_id FROM messages_app_message WHERE id = ANY(%s) AND id BETWEEN %s AND %s"
MOST_REPEATED = 2_000
"""Messages of a request that occur in it before. Each is merged by itself, which takes 1 to 3 ms."""
AT_A_TIME = 200
"""Messages that are converted to rows at a time, because the rows of a large batch take as much memory as the batch."""


def store(
    db: Database,
    project_id: int,
    batch: Sequence[Redacted],
    *,
    source: Source = "live",
    touched: Mapping[UUID, WriteScope] | None = None,
    latest_event_at: Mapping[UUID, datetime] | None = None,
    digests: Mapping[UUID, bytes] | None = None,
) -> list[SessionOutcome]:
    """Store sessions with their messages in one transaction; return outcomes in the order of the batch.

    A message that is sent again (same id or external id in its session) is merged: new values are added, empty values
    overwrite nothing, created_at and role never change. With `source` "live", new sessions are running, and a completed
    message may be corrected but accepts no new steps or calls (refused, `message_completed`). With "import", new sessions
    are completed, and a message may grow with later snapshots of its transcript. With "events", completed messages accept
    late events too; the caller holds the transaction, and retries it if another sender interferes.
    Messages with `digests` of their rows, as an earlier outcome has them, are replaced instead: see overwriting.py.
    `touched` lists the rows that change below existing messages, which saves reading all others.
    Data for deleted or purged sessions and messages is refused one by one; the rest is stored. Raise Conflict if a message
    arrives with another role than it has.
    """
    started = time.perf_counter()
    messages = [message for item in batch for message in item.session.messages or ()]
    periods = {Period.of(_created_at(message)) for message in messages}
    ensure_periods(db, periods)
    tools = tool_names(step for message in messages for step in message.agent_steps or ())
    prices = current_prices()
    data_key = key_of(project_id)
    # In an outer transaction a failing statement would abort it, or cost a savepoint.
    optimistic = db.connection.get_autocommit()
    for attempts_left in reversed(range(5)):
        tool_ids = find_or_make_tools(db, project_id, tools)
        known = find_sessions_of(db, project_id, batch)
        context = Context(
            project_id=project_id,
            source=source,
            tool_ids=tool_ids,
            prices=prices,
            sessions=known.sessions,
            purged=known.purged,
            optimistic=optimistic,
            now=timezone.now(),
            touched=touched or {},
            latest_event_at=latest_event_at or {},
            digests=digests or {},
            data_key=data_key,
        )
        if source == "events":
            outcomes = _store(db, context, batch)
            _log_stored(project_id, outcomes, started)
            return outcomes
        try:
            outcomes = _store(db, context, batch)
            if len(messages) <= AT_A_TIME:
                # Not for a large batch, because its names are spread over its memory and would keep that from being freed:
                # 40 MB after a batch of 50 MB.
                cache_created_sessions(db, project_id, outcomes)
            _log_stored(project_id, outcomes, started)
            return outcomes
        except SessionCreatedConcurrently:
            # The next attempt will find it.
            optimistic = False
        except SessionGone:
            # Deleted or purged during the write, or earlier while it was in the cache: nothing was stored, and the next
            # attempt refuses it.
            forget_sessions(db, project_id, batch)
        except IntegrityError as error:
            if isinstance(error.__cause__, psycopg.errors.CheckViolation):
                # "No partition of relation": a purge dropped a month that is still in our cache.
                forget()
                ensure_periods(db, periods)
            elif isinstance(error.__cause__, psycopg.errors.UniqueViolation) and attempts_left:
                # A message exists already, or another sender has just created one of our sessions, or used an id that one
                # of our messages supplies.
                optimistic = False
            else:
                raise
    raise Conflict(_("The session is being deleted. Try again."), code="session_busy")


def _log_stored(project_id: int, outcomes: Sequence[SessionOutcome], started: float) -> None:
    """Log one line for each batch: its outcomes, and the session and message if there is only one. No content."""
    messages = [message for session in outcomes for message in session.messages]
    about: dict[str, object] = {"project_id": project_id, "sessions": len(outcomes)}
    if len(outcomes) == 1:
        about["session_id"] = str(outcomes[0].id)
    if len(messages) == 1:
        about["message_id"] = str(messages[0].id)
    about |= Counter(f"messages_{message.state}" for message in messages)
    about["ms"] = round((time.perf_counter() - started) * 1000, 1)
    logger.info("stored a batch", extra=about)


# --- The steps of a store ---------------------------------------------------------------------------------------------


def _store(db: Database, context: Context, batch: Sequence[Redacted]) -> list[SessionOutcome]:
    sessions, new = find_sessions(context, batch)
    new = SESSIONS.encrypted(new, context.data_key)
    incoming = [
        [
            PendingMessage(record=record, receipts=receipts, place=place, session=session)
            for place, (record, receipts) in enumerate(
                zip(item.session.messages or (), item.message_receipts, strict=True)
            )
        ]
        for item, session in zip(batch, sessions, strict=True)
    ]
    messages = [message for of_session in incoming for message in of_session]
    for message in messages:
        if message.session.refused:
            message.refuse(message.session.refused)
    admitted = [message for message in messages if not message.refused]
    claims = _identify(db, context, admitted)
    if context.source == "live" and sum(message.first is not None for message in admitted) > MOST_REPEATED:
        raise TooLarge(
            _("The body has more than %(most)d messages again that are in it already. Split it into several requests.")
            % {"most": MOST_REPEATED}
        )
    if context.optimistic and _look_new(context, sessions, admitted, claims):
        _insert_at_once(db, context, new, admitted, claims)
    else:
        # The event writer already holds a transaction and retries the whole of it.
        with nullcontext() if context.source == "events" else db.atomic():
            make_sessions(db, new)
            _claim_message_keys(db, context, admitted, claims)
            new_messages = [message for message in admitted if not message.known]
            for first in range(0, len(new_messages), AT_A_TIME):
                insert_rows(db, _new_rows(db, context, new_messages[first : first + AT_A_TIME]))
            firsts = [message for message in admitted if message.known and message.first is None]
            merge(db, context, [message for message in firsts if not _is_replaced(context, message)])
            overwrite(db, context, [message for message in firsts if _is_replaced(context, message)])
            # A message that occurs twice in a batch is merged into its first occurrence, in the order of the batch.
            for message in admitted:
                if message.first is not None:
                    merge(db, context, [message])
            finish_sessions(db, context, sessions)
            context_rows.add(db, context.inputs.values())
            changed = dict.fromkeys(_changed(context, admitted), context.project_id)
            log_changes(db, changed, sealed=_completed(admitted))
    # If the claim is rolled back after all, the cache entry costs one needless lookup.
    cache_claims(claims)
    return [
        SessionOutcome(
            id=session.id,
            external_id=session.external_id,
            created=session.created,
            refused=session.refused,
            messages=[message.outcome() for message in of_session],
        )
        for session, of_session in zip(sessions, incoming, strict=True)
    ]


def _identify(db: Database, context: Context, messages: Sequence[PendingMessage]) -> dict[UUID, PendingMessage]:
    """Set the id that each message has if it is new, and link repetitions in this batch to their first occurrence.

    Return the keys that the messages claim. Messages that give one of our ids are marked as known.
    """
    by_uuid = _messages_by_uuid(db, context, messages)
    claims: dict[UUID, PendingMessage] = {}
    firsts: dict[UUID, PendingMessage] = {}
    brought: dict[UUID, PendingMessage] = {}
    """New messages that supply their own ids."""
    for message in messages:
        record, session_id = message.record, message.session.id
        assert session_id is not None, "refused sessions were left out"
        given = hyphenated_uuid(record.id)
        if given is not None and by_uuid.get(given) == session_id:
            message.id, message.known = given, True
            message.repeats(firsts.setdefault(given, message))
            continue
        is_kept = (
            given is not None
            and given not in by_uuid
            and record.created_at is not None
            and ids.is_ours(given, record.created_at, record.role)
        )
        kept = given if is_kept else None
        if kept in brought:
            if brought[kept].session.id == session_id:
                message.repeats(brought[kept])
                continue
            kept = None
        if kept is None and not record.external_id:
            message.record = record = replace(record, external_id=record.id)
        name = pg_text.text(record.external_id or record.id)
        identity = (session_id, name) if name else None
        message.id = kept or ids.message_id(_created_at(record), record.role, message.place, identity)
        if name:
            message.repeats(claims.setdefault(message_key(session_id, name), message))
        if kept is not None and message.first is None:
            brought[kept] = message
    return claims


def _is_replaced(context: Context, message: PendingMessage) -> bool:
    return message.id is not None and bool(context.digests.get(message.id))


def _claim_message_keys(
    db: Database, context: Context, messages: Sequence[PendingMessage], claims: Mapping[UUID, PendingMessage]
) -> None:
    """Claim the keys. Messages whose key was claimed before are known, with the id of that claim."""
    wanted = {key: message.id for key, message in claims.items() if message.id is not None}
    known = claim_keys(db, context.project_id, wanted)
    for key, message_id in known.items():
        claims[key].id, claims[key].known = message_id, True
    for message in messages:
        if message.first is not None:
            message.id, message.known = message.first.id, True


def _messages_by_uuid(db: Database, context: Context, messages: Sequence[PendingMessage]) -> dict[UUID, UUID]:
    """Return the sessions of existing messages whose ids the batch gives: our own sent back, or someone else's."""
    sessions: dict[UUID, UUID] = {}
    given = []
    for message in messages:
        uuid = hyphenated_uuid(message.record.id)
        if uuid is not None and uuid in context.touched:
            assert message.session.id is not None, "refused sessions were left out"
            sessions[uuid] = message.session.id
        elif uuid is not None:
            given.append(uuid)
    if given:
        sessions.update(read_prepared(_SESSIONS_OF, [given, min(given), max(given)], db.connection))
    return sessions


def _look_new(
    context: Context,
    sessions: Sequence[BatchSession],
    messages: Sequence[PendingMessage],
    claims: Mapping[UUID, PendingMessage],
) -> bool:
    """Return whether all messages are new as far as this process knows, and each session has one.

    False for a transcript that was imported before, because it has grown.
    """
    alive = [session for session in sessions if not session.refused]
    return (
        0 < len(messages) <= AT_A_TIME
        and {id(session) for session in alive} == {id(message.session) for message in messages}
        and not any(message.known or message.first for message in messages)
        and (context.source == "live" or all(session.created for session in alive))
        and may_be_new(claims)
    )


def _insert_at_once(
    db: Database,
    context: Context,
    new: Sequence[Row],
    messages: Sequence[PendingMessage],
    claims: Mapping[UUID, PendingMessage],
) -> None:
    below_sessions = _new_rows(db, context, messages)
    claimed: list[Row] = [
        KEYS.Row(key=key.hex, project_id=str(context.project_id), message_id=message.id.hex)
        for key, message in sorted(claims.items())
        if message.id is not None
    ]
    sessions = {message.session.id: message.session for message in messages if message.session.id is not None}
    # The row of a new session is inserted with its counters, because updating it would write a second row version.
    whole = {id_.hex: session.counts for id_, session in sessions.items() if session.created and not session.items}
    known = [(id_, session) for id_, session in sorted(sessions.items()) if id_.hex not in whole]
    completed = _completed(messages)
    changes: list[Row] = [
        CHANGES.Row(
            str(context.project_id),
            message_id.hex,
            Kind.CONTENT.value,
            f"\\x{new_token(message_id).hex() if message_id in completed else ''}",
        )
        for message_id in _changed(context, messages)
    ]
    insert_at_once(
        db,
        [
            (SESSIONS, [counted_row(row, whole.get(row.id)) for row in new]),
            (KEYS, claimed),
            *((table, sorted(lines, key=BY_ID)) for table, lines in below_sessions),
            (CHANGES, changes),
        ],
        [(session_id, session.counts, merged_fields(context, session_id, session)) for session_id, session in known],
        context.inputs.values(),
    )


def _changed(context: Context, messages: Sequence[PendingMessage]) -> list[UUID]:
    """Return the messages that may have changed, or rows below them, each once."""
    return list(
        dict.fromkeys(
            message.id
            for message in messages
            if message.id is not None
            and not message.refused
            # Events also change rows of a message that stays the same otherwise.
            and (context.source == "events" or message.state in ("created", "updated"))
        )
    )


def _completed(messages: Sequence[PendingMessage]) -> set[UUID]:
    """Return the messages that are or were completed, so that they are sealed or have a seal."""
    return {
        message.id
        for message in messages
        if message.id is not None and (message.was_completed or message.record.is_completed)
    }


def _new_rows(db: Database, context: Context, messages: Sequence[PendingMessage]) -> Tables:
    """Return the rows of new messages and everything below them; add their counts to those of their sessions."""
    lines = []
    below = Rows()
    for message in messages:
        assert message.id is not None, "_identify gave it"
        made = made_rows(db, context, message)
        if message.id in context.digests:
            message.digests = packed(digests_of(made))
        lines.append(made.line)
        message.session.counts += made.counts
        context.inputs.update(made.inputs)
        below.references += made.below.references
        below.steps += made.below.steps
        below.calls += made.below.calls
        below.results += made.below.results
    return [
        (table, table.encrypted(rows, context.data_key))
        for table, rows in (
            (MESSAGES, lines),
            (REFERENCES, below.references),
            (STEPS, below.steps),
            (CALLS, below.calls),
            (RESULTS, below.results),
        )
    ]


def _created_at(message: records.Message) -> datetime:
    assert message.created_at is not None, "normalise gives every message its time"
    return message.created_at

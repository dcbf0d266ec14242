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
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
from django.db import IntegrityError
from django.utils import timezone
from django.utils.translation import gettext as _
from msgspec import UNSET
from msgspec.structs import replace

from access_app.db import connection, transaction
from access_app.db.statements import read_prepared
from access_app.encryption.keys import key_of
from access_app.errors import Conflict, NotFound, PreconditionFailed
from messages_app import ids
from messages_app.changed_hours import changed_hours, mark_messages
from messages_app.interruptions import is_continued, is_interrupted, reason_of, reopen
from messages_app.models import Message, Session, message_key
from messages_app.seal_marks import mark, new_token
from messages_app.sql.periods import Period
from messages_app.writes import Counts, Run, add_tags, update_session
from traces_app.models import UnindexedMessage
from traces_app.normalize.records import hyphenated_uuid, text_of, tokens
from traces_app.normalize.redaction import Redacted, RedactedMessagePatch, RedactedSessionPatch, receipts_as_json
from traces_app.normalize.rollup import Rollup, completion, duration_between
from traces_app.schema import pg_text, records
from traces_app.schema.health_flags import EMPTY_TOOL_NAME, INTERRUPTED

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
from .id_cache import (
    cache_claims,
    cache_created_sessions,
    find_or_make,
    find_or_make_tools,
    forget_sessions,
    may_be_new,
)
from .partitions import ensure_periods, forget
from .prices import current_prices, price_steps
from .rows import Rows, StoredBelow, message_row, rows_below
from .sessions import (
    active_at,
    counted_row,
    find_sessions,
    finish_sessions,
    make_sessions,
    merged_fields,
    queue_retitled,
)
from .sql import (
    BY_ID,
    COUNTED,
    Tables,
    add_to_sessions,
    claim_keys,
    count_below,
    insert_at_once,
    insert_rows,
    lock_with_touched,
    save_counts,
    stored_below,
    tool_names,
    upsert_rows,
)
from .tables import (
    CALLS,
    CHANGED_HOURS,
    CONTEXTS,
    KEYS,
    MESSAGES,
    REFERENCES,
    RESULTS,
    SEAL_MARKS,
    SESSIONS,
    STEPS,
    UNINDEXED,
    Row,
)

logger = logging.getLogger(__name__)

# The bounds prune periods; a generic plan would look into all of them.
_SESSIONS_OF = "SELECT id, session_id FROM messages_app_message WHERE id = ANY(%s) AND id BETWEEN %s AND %s"
AT_A_TIME = 200
"""Messages that are converted to rows at a time, because the rows of a large batch take as much memory as the batch."""


def store(
    project_id: int,
    batch: Sequence[Redacted],
    *,
    source: Source = "live",
    touched: Mapping[UUID, WriteScope] | None = None,
    latest_event_at: Mapping[UUID, datetime] | None = None,
) -> list[SessionOutcome]:
    """Store sessions with their messages in one transaction; return outcomes in the order of the batch.

    A message that is sent again (same id or external id in its session) is merged: new values are added, empty values
    overwrite nothing, created_at and role never change. With `source` "live", new sessions are running, and a completed
    message may be corrected but accepts no new steps or calls (refused, `message_completed`). With "import", new sessions
    are completed, and a message may grow with later snapshots of its transcript. With "events", completed messages accept
    late events too; the caller holds the transaction, and retries it if another sender interferes.
    `touched` lists the rows that change below existing messages, which saves reading all others.
    Data for deleted or purged sessions and messages is refused one by one; the rest is stored. Raise Conflict if a message
    arrives with another role than it has.
    """
    started = time.perf_counter()
    messages = [message for item in batch for message in item.session.messages or ()]
    periods = {Period.of(_created_at(message)) for message in messages}
    ensure_periods(periods)
    tools = tool_names(step for message in messages for step in message.agent_steps or ())
    prices = current_prices()
    data_key = key_of(project_id)
    # In an outer transaction a failing statement would abort it, or cost a savepoint.
    optimistic = connection.get_autocommit()
    for attempts_left in reversed(range(5)):
        known = find_or_make(project_id, tools, batch)
        context = Context(
            project_id=project_id,
            source=source,
            tool_ids=known.tool_ids,
            prices=prices,
            sessions=known.sessions,
            purged=known.purged,
            optimistic=optimistic,
            now=timezone.now(),
            touched=touched or {},
            latest_event_at=latest_event_at or {},
            data_key=data_key,
        )
        if source == "events":
            outcomes = _store(context, batch)
            _log_stored(project_id, outcomes, started)
            return outcomes
        try:
            outcomes = _store(context, batch)
            if len(messages) <= AT_A_TIME:
                # Not for a large batch, because its names are spread over its memory and would keep that from being freed:
                # 40 MB after a batch of 50 MB.
                cache_created_sessions(project_id, outcomes)
            _log_stored(project_id, outcomes, started)
            return outcomes
        except SessionCreatedConcurrently:
            # The next attempt will find it.
            optimistic = False
        except SessionGone:
            # Deleted or purged during the write, or earlier while it was in the cache: nothing was stored, and the next
            # attempt refuses it.
            forget_sessions(project_id, batch)
        except IntegrityError as error:
            if isinstance(error.__cause__, psycopg.errors.CheckViolation):
                # "No partition of relation": a purge dropped a month that is still in our cache.
                forget()
                ensure_periods(periods)
            elif isinstance(error.__cause__, psycopg.errors.UniqueViolation) and attempts_left:
                # A message exists already, or another sender has just created one of our sessions, or used an id that one
                # of our messages supplies.
                optimistic = False
            else:
                raise
    raise Conflict(_("The session is being deleted. Try again."), code="session_busy")


@transaction.atomic
def change_session(session_id: UUID, change: RedactedSessionPatch) -> Session:
    """Change the fields in the patch. Raise NotFound if the session is unknown or deleted."""
    empty: dict[str, Any] = {"tags": [], "metadata": {}, "workflow": None}
    changes: dict[str, Any] = {}
    for name in change.patch.__struct_fields__:
        value = getattr(change.patch, name)
        if value is not UNSET:
            column = "said_status" if name == "status" else name
            changes[column] = empty.get(name, "") if value is None else pg_text.storable(value)
    if change.receipts:
        changes["redactions"] = receipts_as_json(change.receipts)
    if "title" in changes:
        queue_retitled(session_id, changes["title"])
    if changes:
        changes["is_abandoned"] = None  # whoever writes is back
    return update_session(session_id, changes)


def tag_sessions(session_ids: Collection[UUID], change: RedactedSessionPatch) -> list[UUID]:
    """Add the tags of the patch to sessions; return the changed ones. Deleted and unknown ones are skipped."""
    return add_tags(session_ids, [pg_text.text(tag) for tag in change.patch.tags or ()])


def change_message(
    project_ids: Collection[int], message_id: UUID, change: RedactedMessagePatch, *, if_match: int | None = None
) -> Message:
    """Change the fields in the patch and merge its steps; return the row with its new version.

    Raise NotFound (unknown, deleted, of another project), PreconditionFailed if `if_match` is not the version, Conflict if
    the version in the patch is not, or if a completed message is given new steps or calls.
    """
    patch = change.patch
    tool_ids: dict[str, int] = {}
    if names := tool_names(patch.agent_steps):
        owners = Message.objects.filter(pk=message_id, project_id__in=project_ids).values_list("project_id", flat=True)
        for owner in owners:
            tool_ids = find_or_make_tools(owner, names)
    prices = current_prices()
    with transaction.atomic():
        locked = Message.objects.select_for_update(of=("self",)).filter(pk=message_id, project_id__in=project_ids)
        message = locked.first()
        if message is None:
            raise NotFound(_("There is no message with this id."), code="message_not_found")
        if if_match is not None and if_match != message.version:
            raise PreconditionFailed(
                _("The message has changed. Its version is now %(version)s.") % {"version": message.version},
                field="If-Match",
            )
        if patch.version is not UNSET and patch.version != message.version:
            raise Conflict(
                _("The message has changed. Its version is now %(version)s.") % {"version": message.version},
                field="version",
                code="version_conflict",
            )
        context = Context(
            project_id=message.project_id,
            source="live",
            tool_ids=tool_ids,
            prices=prices,
            sessions=(),
            now=timezone.now(),
            data_key=key_of(message.project_id),
        )
        _patch(context, message, change)
    logger.info(
        "changed a message",
        extra={"session_id": str(message.session_id), "message_id": str(message_id), "version": message.version},
    )
    return message


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


def _store(context: Context, batch: Sequence[Redacted]) -> list[SessionOutcome]:
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
    claims = _identify(context, admitted)
    if context.optimistic and _look_new(context, sessions, admitted, claims):
        _insert_at_once(context, new, admitted, claims)
    else:
        # The event writer already holds a transaction and retries the whole of it.
        with nullcontext() if context.source == "events" else transaction.atomic():
            make_sessions(new)
            _claim_message_keys(admitted, claims)
            new_messages = [message for message in admitted if not message.known]
            for first in range(0, len(new_messages), AT_A_TIME):
                insert_rows(_new_rows(context, new_messages[first : first + AT_A_TIME]))
            _merge(context, [message for message in admitted if message.known and message.first is None])
            # A message that occurs twice in a batch is merged into its first occurrence, in the order of the batch.
            for message in admitted:
                if message.first is not None:
                    _merge(context, [message])
            finish_sessions(context, sessions)
            context_rows.add(context.inputs)
            changed = _changed(context, admitted)
            mark_messages(context.project_id, _with_changed_calls(context, admitted, changed))
            UnindexedMessage.objects.bulk_create(UnindexedMessage(message_id=one) for one in changed)
            mark(_completed(admitted, changed))
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


def _identify(context: Context, messages: Sequence[PendingMessage]) -> dict[UUID, PendingMessage]:
    """Set the id that each message has if it is new, and link repetitions in this batch to their first occurrence.

    Return the keys that the messages claim. Messages that give one of our ids are marked as known.
    """
    by_uuid = _messages_by_uuid(context, messages)
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


def _claim_message_keys(messages: Sequence[PendingMessage], claims: Mapping[UUID, PendingMessage]) -> None:
    """Claim the keys. Messages whose key was claimed before are known, with the id of that claim."""
    known = claim_keys({key: message.id for key, message in claims.items() if message.id is not None})
    for key, message_id in known.items():
        claims[key].id, claims[key].known = message_id, True
    for message in messages:
        if message.first is not None:
            message.id, message.known = message.first.id, True


def _messages_by_uuid(context: Context, messages: Sequence[PendingMessage]) -> dict[UUID, UUID]:
    """Return the sessions of existing messages whose ids the batch gives: our own sent back, or someone else's."""
    found: dict[UUID, UUID] = {}
    given = []
    for message in messages:
        uuid = hyphenated_uuid(message.record.id)
        if uuid is not None and uuid in context.touched:
            assert message.session.id is not None, "refused sessions were left out"
            found[uuid] = message.session.id
        elif uuid is not None:
            given.append(uuid)
    if given:
        found.update(read_prepared(_SESSIONS_OF, [given, min(given), max(given)]))
    return found


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
    context: Context, new: Sequence[Row], messages: Sequence[PendingMessage], claims: Mapping[UUID, PendingMessage]
) -> None:
    below_sessions = _new_rows(context, messages)
    claimed: list[Row] = [
        KEYS.Row(key.hex, message.id.hex) for key, message in sorted(claims.items()) if message.id is not None
    ]
    sessions = {message.session.id: message.session for message in messages if message.session.id is not None}
    # The row of a new session is inserted with its counters, because updating it would write a second row version.
    whole = {id_.hex: session.counts for id_, session in sessions.items() if session.created and not session.items}
    known = [(id_, session) for id_, session in sorted(sessions.items()) if id_.hex not in whole]
    changed = _changed(context, messages)
    hours: list[Row] = [
        CHANGED_HOURS.Row(str(context.project_id), pg_text.timestamp(hour))
        for hour in changed_hours(_with_changed_calls(context, messages, changed))
    ]
    marks: list[Row] = [SEAL_MARKS.Row(one.hex, f"\\x{new_token(one).hex()}") for one in _completed(messages, changed)]
    unindexed: list[Row] = [UNINDEXED.Row(message_id.hex) for message_id in changed]
    insert_at_once(
        [
            (SESSIONS, [counted_row(row, whole.get(row.id)) for row in new]),
            (KEYS, claimed),
            *((table, sorted(lines, key=BY_ID)) for table, lines in below_sessions),
            (CHANGED_HOURS, hours),
            (UNINDEXED, unindexed),
            (SEAL_MARKS, marks),
        ],
        [(session_id, session.counts, merged_fields(context, session_id, session)) for session_id, session in known],
        context.inputs,
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


def _completed(messages: Sequence[PendingMessage], changed: Sequence[UUID]) -> list[UUID]:
    """Return the changed messages that are or were completed, so that they are sealed or have a seal."""
    completed = {message.id for message in messages if message.was_completed or message.record.is_completed}
    return [one for one in changed if one in completed]


def _with_changed_calls(
    context: Context, messages: Sequence[PendingMessage], changed: Sequence[UUID]
) -> Sequence[UUID]:
    """Return the changed messages whose calls may have changed."""
    without_calls = [
        message.id for message in messages if message.state == "created" and not message.record.agent_steps
    ]
    return changed if context.source == "events" else [one for one in changed if one not in without_calls]


def _new_rows(context: Context, messages: Sequence[PendingMessage]) -> Tables:
    """Return the rows of new messages and everything below them; add their counts to those of their sessions."""
    lines = []
    below = Rows()
    for message in messages:
        assert message.id is not None and message.session.id is not None, "_identify gave them"
        record = message.record
        own = rows_below(
            message.id,
            context.project_id,
            record.knowledge_references or (),
            record.agent_steps or (),
            context.tool_ids,
            StoredBelow(),
            prices=context.prices,
        )
        line, counts = message_row(
            message.id, context.project_id, message.session.id, record, own, message.receipts, context.now
        )
        lines.append(line)
        message.session.counts += _counts(context, message.id, record, counts)
        _keep_inputs(context, message.session.id, message.id, own)
        below.references += own.references
        below.steps += own.steps
        below.calls += own.calls
        below.results += own.results
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


def _keep_inputs(context: Context, session_id: UUID, message_id: UUID, own: Rows) -> None:
    """Add the rows of what the models were asked to those that are inserted last."""
    for asked in own.inputs:
        rows = list(context_rows.rows_of(session_id, message_id, asked, context.now))
        context.inputs.extend(CONTEXTS.encrypted(rows, context.data_key))


def _merge(context: Context, messages: Sequence[PendingMessage]) -> None:
    """Merge messages that exist: fill in their fields, and insert or fill in the rows below them."""
    if not messages:
        return
    stored, below = lock_with_touched([message.id for message in messages if message.id is not None], context.touched)
    unknown = [message_id for message_id in stored if message_id not in below]
    if unknown:
        below |= stored_below(unknown)
    for message in messages:
        assert message.id is not None, "_identify gave it"
        row = stored.get(message.id)
        if row is None:
            message.refuse("message_purged")
        elif row.deleted_at is not None:
            message.refuse("message_deleted")
        else:
            _merge_one(context, message, row, below[message.id])


def _merge_one(context: Context, message: PendingMessage, row: Message, stored: StoredBelow) -> None:
    record = message.record
    if record.role != row.role:
        raise Conflict(
            _("The role of a message cannot change from %(stored)s to %(given)s.")
            % {"stored": row.role, "given": record.role},
            field=f"messages[{message.place}].role",
            code="role_conflict",
        )
    own = rows_below(
        row.pk,
        context.project_id,
        record.knowledge_references or (),
        record.agent_steps or (),
        context.tool_ids,
        stored,
        prices=context.prices,
    )
    if EMPTY_TOOL_NAME in (record.health or ()):
        record = replace(record, health=_without_known(record.health or (), context, own, stored))
    if touched := context.touched.get(row.pk):
        own.assign_positions(touched.ordinals, touched.positions)
    before = Counts.of(row)
    message.was_completed = row.is_completed
    resumed: dict[str, Any] = {}
    if INTERRUPTED in (record.health or ()):
        if row.is_completed:
            # It has ended meanwhile, or was closed before.
            message.state = "unchanged"
            return
        record = replace(record, error=row.error or record.error)
    elif is_interrupted(row) and (record.is_completed or is_continued(row, context.latest_event_at.get(row.pk))):
        resumed = reopen(row)
    if row.is_completed and context.source == "live" and _has_new(own, stored):
        message.refuse("message_completed")
        return
    # A late, unfinished snapshot of a completed message can only add results. Events are excluded, because each of their
    # batches is the fold of everything that has arrived.
    is_late = row.is_completed and not record.is_completed and context.source != "events"
    changed = {} if is_late or _is_earlier(context, record, row) else _merged_fields(context, record, row)
    changed = {**resumed, **changed}
    receipts = [receipt for receipt in receipts_as_json(message.receipts) if receipt not in row.redactions]
    if receipts:
        changed["redactions"] = row.redactions + receipts
    has_changed, counted = _write_merge(context, row, changed, own, stored, only_open=is_late)
    if not has_changed:
        message.state = "unchanged"
        return
    message.state = "updated"
    message.session.counts += _finish_message(context, row, changed, stored, counted, before)
    if context.source != "events":
        # An import carries the times of past activity; a live sender reports current activity.
        news = active_at(record, context.now) if context.source == "import" else context.now
        message.session.counts += Counts(active_at=news)


def _merged_fields(context: Context, record: records.Message, row: Message) -> dict[str, Any]:
    """Return the columns of a stored message that a record changes. Empty fields change nothing."""
    given: dict[str, Any] = {
        "request_id": pg_text.text(record.request_id),
        "content": pg_text.text(record.content if isinstance(record.content, str) else ""),
        "content_parts": record.content_parts,
        "usage": record.usage,
        "error": pg_text.text(record.error),
        "completed_at": record.completed_at,
        "is_completed": record.is_completed,
        "health": sorted({*row.health, *(record.health or ())}),
        "metadata": {**row.metadata, **(record.metadata or {})},
    }
    changed = {name: pg_text.storable(value) for name, value in given.items() if value and value != getattr(row, name)}
    if context.source == "import":
        taken_back = _retracted_fields(record, row)
        changed |= {name: value for name, value in taken_back.items() if value != getattr(row, name)}
        if taken_back.get("metadata") == row.metadata:
            changed.pop("metadata", None)
    if changed.get("is_completed") and record.completed_at is None:
        # It was open until now. A live sender that gives no duration reports the completion as it happens.
        at = completion(record, row.created_at) or (context.now if context.source == "live" else None)
        if at is not None:
            changed["completed_at"] = at
    return changed


def _is_earlier(context: Context, record: records.Message, row: Message) -> bool:
    """Return whether an import brings an earlier snapshot of a message than the stored one.

    It is earlier if its completion is; with the same completion time, if its content is a beginning of the stored one.
    """
    if context.source != "import" or record.completed_at is None or row.completed_at is None:
        return False
    if record.completed_at != row.completed_at:
        return record.completed_at < row.completed_at
    content = pg_text.text(record.content if isinstance(record.content, str) else "")
    return bool(content) and content != row.content and row.content.startswith(content)


def _retracted_fields(record: records.Message, row: Message) -> dict[str, Any]:
    """Return the fields that an import retracts: an earlier snapshot ended with a text that looked like the answer and
    turns out to be the thought of a step with calls."""
    steps = (step for step in record.agent_steps or () if row.content and step.tool_calls)
    step = next((step for step in steps if pg_text.text(step.thought) == row.content), None)
    if step is None:
        return {}
    of_step = {"model": step.model, "agent_name": step.agent_name, "reasoning_content": step.reasoning_content}
    of_step |= step.metadata or {}
    kept = {name: value for name, value in row.metadata.items() if value != of_step.get(name)}
    changed: dict[str, Any] = {"metadata": pg_text.storable({**kept, **(record.metadata or {})})}
    if not record.content:
        changed |= {"content": "", "content_parts": None, "usage": record.usage}
    return changed


def _patch(
    context: Context,
    row: Message,
    change: RedactedMessagePatch,
) -> None:
    patch = change.patch
    if patch.agent_steps and row.role != "assistant":
        raise Conflict(_("Only assistant messages have steps."), field="agent_steps", code="not_an_assistant_message")
    stored = stored_below([row.pk])[row.pk]
    before = Counts.of(row)
    was_completed = row.is_completed
    resumed: dict[str, Any] = {}
    if is_interrupted(row) and (patch.agent_steps or patch.is_completed is not UNSET):
        resumed = reopen(row)
    own = rows_below(
        row.pk,
        context.project_id,
        patch.knowledge_references,
        patch.agent_steps,
        context.tool_ids,
        stored,
        first_iteration=stored.next_iteration,
        prices=context.prices,
    )
    own.flags.update(_without_known(change.flags, context, own, stored))
    if row.is_completed and _has_new(own, stored):
        raise Conflict(
            _("The message is completed and accepts no new steps or calls."),
            field="agent_steps",
            code="message_completed",
        )
    changed = {**resumed, **_patched_fields(context, patch, row)}
    if change.receipts:
        changed["redactions"] = row.redactions + receipts_as_json(change.receipts)
    has_changed, _counted = _write_merge(context, row, changed, own, stored, only_open=False)
    if not has_changed:
        return
    counts = _finish_message(context, row, changed, stored, None, before) + Counts(active_at=context.now)
    add_to_sessions({row.session_id: counts})
    context_rows.add(context.inputs)
    mark_messages(row.project_id, [row.pk])
    UnindexedMessage.objects.create(message_id=row.pk)
    if was_completed or row.is_completed:
        mark([row.pk])


def _patched_fields(context: Context, patch: records.MessagePatch, row: Message) -> dict[str, Any]:
    """Return the columns in a patch with their new values; null empties a column."""
    changed: dict[str, Any] = {}
    if patch.content is not UNSET:
        changed["content"], parts = text_of(patch.content)
        if parts is not None:
            changed["content_parts"] = parts
    if patch.content_parts is not UNSET:
        changed["content_parts"] = patch.content_parts
    if patch.usage is not UNSET:
        changed["usage"] = patch.usage
    if patch.error is not UNSET:
        changed["error"] = patch.error or ""
    if patch.metadata is not UNSET:
        changed["metadata"] = patch.metadata or {}
    if patch.is_completed is not UNSET:
        changed["is_completed"] = patch.is_completed
        if patch.is_completed and not row.is_completed:
            changed["completed_at"] = context.now
        elif not patch.is_completed:
            changed["completed_at"] = None
    if patch.completed_at is not UNSET:
        changed["completed_at"] = patch.completed_at
    elif patch.duration is not UNSET and patch.duration is not None:
        changed["completed_at"] = row.created_at + timedelta(milliseconds=patch.duration)
    return {name: pg_text.storable(value) for name, value in changed.items()}


def _has_new(own: Rows, stored: StoredBelow) -> bool:
    return any(row.id not in stored.step_ids for row in own.steps) or any(
        row.id not in stored.call_ids for row in own.calls
    )


def _without_known(flags: Collection[str], context: Context, own: Rows, stored: StoredBelow) -> list[str]:
    """Return the flags without EMPTY_TOOL_NAME if it concerns existing calls only, which keep their name or have the flag."""
    nameless = str(context.tool_ids.get(""))
    is_new = any(line.tool_id == nameless and line.id not in stored.call_ids for line in own.calls)
    return [flag for flag in flags if is_new or flag != EMPTY_TOOL_NAME or context.source == "events"]


def _write_merge(
    context: Context, row: Message, changed: dict[str, Any], own: Rows, stored: StoredBelow, *, only_open: bool
) -> tuple[bool, Rollup | None]:
    """Write the rows below a message and add their flags to `changed`; return whether anything changed, and the new totals of
    the rows in its write scope.

    With `only_open`, only results of open calls are written, and the rest of the message stays.
    """
    if only_open:
        own.steps = []
        own.calls = [line for line in own.calls if line.id in stored.open_calls]
        own.results = [line for line in own.results if line.id in stored.open_calls]
        own.inputs = []
    _keep_inputs(context, row.session_id, row.pk, own)
    flags = {*changed.get("health", row.health), *own.flags}
    if flags != set(row.health):
        changed["health"] = sorted(flags)
    tables = ((REFERENCES, own.references), (STEPS, own.steps), (CALLS, own.calls), (RESULTS, own.results))
    written = [(table, table.encrypted(lines, context.data_key)) for table, lines in tables if lines]
    has_changed, counted = upsert_rows(written, row.pk, context.touched.get(row.pk))
    # The records of events are folds of everything that is known of a step.
    merged = [step_id for step_id in own.to_price if context.source != "events" and step_id.hex in stored.step_ids]
    if has_changed and own.steps and merged and price_steps(row, merged, context.prices):
        counted = None
    return has_changed or bool(changed), counted if written else stored.totals


def _finish_message(
    context: Context,
    row: Message,
    changed: dict[str, Any],
    stored: StoredBelow,
    counted: Rollup | None,
    before: Counts,
) -> Counts:
    """Write the message row with its new totals; return the change of the session's counters, in which `before` is included.

    `stored` are the rows below it before the write, `counted` the new totals of the rows in its write scope."""
    for name, value in changed.items():
        setattr(row, name, value)
    touched = context.touched.get(row.pk)
    is_as_counted = (row.step_count, row.call_count) == (touched.step_count, touched.call_count) if touched else False
    # If a message has its own tokens, the sum of its steps is not stored.
    # Which steps have a cost is not counted, so if one loses its cost, all are added up again.
    is_countable = (
        stored.totals is None or counted is None or not (stored.totals.cost is not None and counted.cost is None)
    )
    if counted and stored.totals and is_as_counted and is_countable and "usage" not in changed:
        counts = _counted_on(row, stored.totals, counted)
    else:
        counts = count_below(row.pk, row.usage)
    row.duration_ms = duration_between(row.created_at, row.completed_at, counts.duration_ms)
    row.step_count, row.call_count, row.failure_count = counts.step_count, counts.call_count, counts.failure_count
    row.model_error_count = counts.model_error_count
    row.input_tokens, row.output_tokens = counts.input_tokens, counts.output_tokens
    row.cost, row.unpriced_count = counts.cost, counts.unpriced_count
    row.version += 1
    row.updated_at = context.now
    if changed:
        row.save(update_fields=[*changed, *COUNTED])
    else:
        save_counts(row)
    return Counts.of(row) + -before


def _counted_on(row: Message, before: Rollup, after: Rollup) -> Rollup:
    """Return the totals of a message, given those of its write scope before and after the write."""
    input_tokens, output_tokens = tokens(row.usage)
    if not (input_tokens or output_tokens):
        input_tokens = row.input_tokens + after.input_tokens - before.input_tokens
        output_tokens = row.output_tokens + after.output_tokens - before.output_tokens
    is_known = row.duration_ms is not None or after.duration_ms is not None
    duration_ms = (row.duration_ms or 0) + (after.duration_ms or 0) - (before.duration_ms or 0)
    has_cost = row.cost is not None or after.cost is not None
    cost = (row.cost or 0) + (after.cost or Decimal(0)) - (before.cost or 0)
    return Rollup(
        step_count=row.step_count + after.step_count - before.step_count,
        call_count=row.call_count + after.call_count - before.call_count,
        failure_count=row.failure_count + after.failure_count - before.failure_count,
        model_error_count=row.model_error_count + after.model_error_count - before.model_error_count,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        # For a completed message this is not the sum of its steps, and is not used.
        duration_ms=duration_ms if is_known else None,
        cost=cost if has_cost else None,
        unpriced_count=row.unpriced_count + after.unpriced_count - before.unpriced_count,
    )


def _counts(context: Context, message_id: UUID, record: records.Message, rollup: Rollup) -> Counts:
    """Return the change of the session's counters for a new message."""
    failed = pg_text.text(record.error) != ""
    is_closed = record.is_completed and INTERRUPTED in (record.health or ())
    interruption = reason_of(record.metadata or {}) if is_closed else ""
    return Counts(
        message_count=1,
        call_count=rollup.call_count,
        failure_count=rollup.failure_count,
        problem_count=rollup.failure_count + rollup.model_error_count + failed,
        open_count=int(not record.is_completed),
        input_tokens=rollup.input_tokens,
        output_tokens=rollup.output_tokens,
        duration_ms=rollup.duration_ms or 0,
        cost_sum=rollup.cost or Decimal(0),
        priced_count=int(rollup.cost is not None),
        unpriced_count=rollup.unpriced_count,
        last_run=Run(message_id, failed, interruption) if record.role == "assistant" else None,
        active_at=None if context.source == "events" else active_at(record, context.now),
    )


def _created_at(message: records.Message) -> datetime:
    assert message.created_at is not None, "normalise gives every message its time"
    return message.created_at

"""Make the messages of traces, of all their spans that are stored.

A trace is a function of the set of its spans (conversation.py), so its messages are the same in whatever order the spans came.
A message keeps its id as long as its beginning and its place stay the same, and stays deleted if somebody deleted it.

Traces of one session may share a call, which one of them requested and another one executed. They are made together, and
their spans are stored under the first of them (joined_traces.py).
"""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import msgspec
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone
from msgspec.structs import replace

from access_app.db import Database
from access_app.db.conflicts import retry_aborted
from access_app.db.statements import read_prepared
from access_app.encryption.keys import key_of
from messages_app.models import Message, Session
from messages_app.writes import NO_RUN_LEFT, Counts, add_to_session, update_last_run
from traces_app.ingest.batch import Refusal, SessionOutcome
from traces_app.ingest.joined_traces import JOINED, JoinedTrace, decode_joined
from traces_app.ingest.pipeline import ingest
from traces_app.ingest.removal import remove_messages
from traces_app.ingest.scores import attach_scores, detach_sessions, store_named_scores
from traces_app.ingest.sql import exchange, insert_rows
from traces_app.ingest.tables import SPANS
from traces_app.ingest.turns import TAKE_TURNS, keys_of
from traces_app.models import Context
from traces_app.models import Span as SpanRow
from tracesite_sdk import records
from tracesite_sdk.records import ids, pg_text
from tracesite_sdk.spans.conversation import (
    MOST_TAG_CHARACTERS,
    MOST_TAGS,
    SOURCE,
    TRACE_ID,
    WAITING,
    JoinedTraces,
    has_stated_id,
    unjoined_call_ids,
    with_traces_joined,
)
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.wire_scores import scores_in

from . import due
from .deliveries import row_id
from .due import Made
from .stored import Pieces, is_ended_root, is_id, pieces_of

logger = logging.getLogger(__name__)

MOST_SHARING = 1_000
"""Traces that are made anew because they share calls with those of one transaction; the calls of further ones are not joined."""
_MOST_HOLDERS = 8
"""Messages of other traces that may have the id of a call. If more have it, it is no id of one call."""
_STORED = "SELECT id, trace_id, kind FROM traces_app_span WHERE project_id = %s AND trace_id = ANY(%s)"
_PURGED: Collection[Refusal] = ("session_purged", "message_purged")
_PAUSED = "SELECT id FROM messages_app_session WHERE id = ANY(%s) AND said_status = %s"
# Prepared, because nearly always only the own messages have the ids. Measured with 24 months: 0.5 ms instead of 10.
_WITH_CALLS = "SELECT message_id FROM traces_app_toolcall WHERE call_id = ANY(%s) AND call_id <> '' LIMIT %s"
# Not prepared, because PostgreSQL has to choose between the ids of the calls and the session.
_HOLDERS = """
    SELECT message.session_id, call.call_id, array_agg(DISTINCT message.request_id)
    FROM traces_app_toolcall AS call JOIN messages_app_message AS message ON message.id = call.message_id
    WHERE call.call_id = ANY(%s) AND call.call_id <> '' AND message.session_id = ANY(%s) AND message.metadata ? %s
    AND message.request_id <> ALL(%s)
    GROUP BY message.session_id, call.call_id HAVING count(*) <= %s
    """


@dataclass(kw_only=True)
class Projection:
    """What was made of traces."""

    refused: dict[str, str] = field(default_factory=dict)
    """Traces that were left as they are, with the reason: their session was deleted, or they were purged."""
    messages: Counter[str] = field(default_factory=Counter)
    """Messages of the others: created, or updated."""


def make_messages(db: Database, project_id: int, trace_ids: Collection[str]) -> Projection:
    """Make the messages of stored traces anew, and of those with which they share calls, in one transaction.

    The spans of traces that were purged meanwhile are removed.
    """
    return retry_aborted(partial(_make_messages, db, project_id, trace_ids))


def _make_messages(db: Database, project_id: int, trace_ids: Collection[str]) -> Projection:
    sharing: set[str] = set()
    refused: dict[str, str] = {}
    while True:
        # From the beginning after an error, because all traces are locked in one order, and because a savepoint for what was
        # written of refused traces would cost every batch two round trips.
        try:
            with db.atomic():
                return _make(db, project_id, trace_ids, sharing, refused)
        except _SharingError as error:
            sharing |= error.trace_ids
        except _RefusedError as error:
            refused |= error.reasons


def _make(
    db: Database, project_id: int, trace_ids: Collection[str], sharing: Set[str], known_refused: Mapping[str, str]
) -> Projection:
    """Make the messages of these traces and of those `sharing` calls with them.

    Raise _SharingError, and _RefusedError for other traces than those `known_refused`.
    """
    began = time.monotonic()
    stored = _read(db, project_id, {*trace_ids, *sharing})
    refused = {**stored.refused, **known_refused}
    made = {
        id_: _with_ids(project_id, id_, trace.session())
        for id_, trace in stored.pieces.items()
        if trace.spans and id_ not in refused
    }
    # A trace is not made anew without those that share its calls.
    of_group = {stored.home(id_): reason for id_, reason in refused.items()}
    refused |= {id_: of_group[stored.home(id_)] for id_ in made if stored.home(id_) in of_group}
    made = {id_: session for id_, session in made.items() if id_ not in refused}
    projection = Projection(refused=refused)
    outcomes: dict[str, SessionOutcome] = {}
    if made:
        sessions, homes = _with_traces_joined(db, project_id, made)
        old = _old_messages(db, project_id, sessions)
        outcomes = _replace_messages(db, project_id, sessions, stored, homes, old)
        _find_sharing(db, sessions, outcomes, sharing)
        _keep_together(db, project_id, stored, sessions, homes)
        names = {session.external_id for session in sessions.values() if session.external_id}
        carried = [score for id_ in sessions for score in scores_in(stored.pieces[id_].spans, stored.pieces[id_].logs)]
        store_named_scores(db, project_id, carried, keep_existing=True)
        attach_scores(db, project_id, list(sessions), names)
        before = {message.request_id for message in old}
        for id_, session in sessions.items():
            projection.messages["updated" if id_ in before else "created"] += len(session.messages or ())
    _forget_purged(db, project_id, refused)
    _note_made(db, project_id, stored, outcomes, refused, time.monotonic() - began)
    return projection


def _forget_purged(db: Database, project_id: int, refused: Mapping[str, str]) -> None:
    """Remove the spans of traces that were purged. Others stay, such as those whose session is in the trash and may be restored."""
    purged = {trace_id for trace_id, reason in refused.items() if reason in _PURGED}
    if purged:
        logger.info("removed spans of purged traces", extra={"project_id": project_id, "traces": len(purged)})
        rows = db.rows(SpanRow.objects).filter(project_id=project_id, trace_id__in=[UUID(id_) for id_ in purged])
        rows.exclude(kind=JOINED).delete()
        due.forget(db, project_id, purged)


def _note_made(
    db: Database,
    project_id: int,
    stored: _Stored,
    outcomes: Mapping[str, SessionOutcome],
    refused: Mapping[str, str],
    seconds: float,
) -> None:
    """Note that the messages of traces are those of all that was read, and that large traces rest now."""
    rests_until = timezone.now() + max(timedelta(seconds=due.REST * seconds), due.SHORTEST_REST)
    made = {}
    for id_ in stored.versions.keys() - refused.keys():
        trace, outcome = stored.pieces.get(id_), outcomes.get(id_)
        made[id_] = Made(
            version=stored.versions[id_],
            rests_until=rests_until if trace is not None and _is_large(trace) else None,
            digests={message.id: message.digests for message in outcome.messages if message.id is not None}
            if trace is not None and outcome is not None and _goes_on(trace)
            else None,
        )
    if made:
        due.note_made(db, project_id, made)


def _is_large(trace: Pieces) -> bool:
    return len(trace.row_ids) >= due.MANY_SPANS


def _goes_on(trace: Pieces) -> bool:
    """Return whether more is expected of a trace, or it is so large that it is to be written a second time only where it differs."""
    return _is_large(trace) or not any(map(is_ended_root, trace.spans))


class _SharingError(Exception):
    """Traces that share calls with those of a transaction, and are not locked by it."""

    def __init__(self, trace_ids: Set[str]) -> None:
        super().__init__(trace_ids)
        self.trace_ids = trace_ids


class _RefusedError(Exception):
    """Traces whose session or messages were deleted or purged, with the reasons."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(reasons)
        self.reasons = dict(reasons)


@dataclass(kw_only=True)
class _Stored:
    """What is stored of traces."""

    pieces: dict[str, Pieces] = field(default_factory=dict)
    """All spans, log records and files, by their trace."""
    versions: dict[str, int] = field(default_factory=dict)
    """The versions of the traces that are due, of which this has all deliveries at least."""
    digests: dict[UUID, bytes] = field(default_factory=dict)
    """Of the rows of their messages, where they are known."""
    refused: dict[str, str] = field(default_factory=dict)
    """Why traces are refused."""
    homes: dict[str, str] = field(default_factory=dict)
    """The traces that are stored under another one, with that one."""
    strays: set[str] = field(default_factory=set)
    """Those of them that have spans under themselves, because these came later."""
    links: dict[UUID, JoinedTrace] = field(default_factory=dict)
    """The rows that say so."""

    def home(self, trace_id: str) -> str:
        """Return the trace under which a trace is stored."""
        return self.homes.get(trace_id, trace_id)


def _read(db: Database, project_id: int, trace_ids: Set[str]) -> _Stored:
    """Lock the traces, and return everything that is stored of them.

    Raise _SharingError if a trace is stored together with others that are not locked.
    """
    stored = _Stored()
    links: list[UUID] = []
    counts: Counter[str] = Counter()
    """Spans and log records that are stored under each trace."""
    with_files: set[str] = set()
    # In one pipeline, with the beginning of the transaction. The second statement sees what was committed before the lock.
    with exchange(db) as ask:
        ask(TAKE_TURNS, keys_of(project_id, trace_ids))
        rows_of_due = ask(due.ROWS, project_id, [UUID(trace_id) for trace_id in trace_ids])
        rows = ask(_STORED, project_id, [UUID(trace_id) for trace_id in trace_ids])
    for trace_id, version, digests in rows_of_due.fetchall():
        stored.versions[trace_id.hex] = version
        stored.digests |= due.unpacked(digests)
    for pk, trace_id, kind in rows.fetchall():
        if kind == JOINED:
            links.append(pk)
        elif kind == SpanRow.Kind.MEDIA:
            with_files.add(trace_id.hex)
        else:
            counts[trace_id.hex] += 1
    if links:
        joined = db.rows(SpanRow.objects).filter(pk__in=links).order_by("pk").values_list("pk", "content")
        stored.links = {pk: decode_joined(content) for pk, content in joined}
        stored.homes = {joined.trace_id: joined.home for joined in stored.links.values()}
        if others := {*stored.homes, *stored.homes.values()} - trace_ids:
            raise _SharingError(others)
        # The spans of the group were purged, with one of their messages.
        stored.refused = {id_: "message_purged" for id_, home in stored.homes.items() if not counts[home]}
        stored.strays = {id_ for id_ in stored.homes if counts[id_] or id_ in with_files}
    stored.pieces = pieces_of(db, project_id, counts, with_files)
    return stored


def _with_ids(project_id: int, trace_id: str, session: records.Session) -> records.Session:
    """Return the session with the ids of its messages, which do not depend on the time of arrival."""
    messages = [
        replace(
            message, id=str(ids.message_id(message.created_at, message.role, index, (project_id, message.external_id)))
        )
        if message.created_at is not None
        else message
        for index, message in enumerate(session.messages or ())
    ]
    if not messages:
        # It is removed when the trace gets a message in another session.
        return replace(session, external_id=trace_id)
    return replace(session, messages=messages)


def _with_traces_joined(db: Database, project_id: int, sessions: Mapping[str, records.Session]) -> JoinedTraces:
    """Join the calls that traces share. What is deleted keeps what it executed, so that it stays deleted."""
    joined = with_traces_joined(sessions)
    if not joined.homes:
        return joined
    deleted = db.rows(Message.with_deleted).filter(
        project_id=project_id, request_id__in=list(sessions), metadata__has_key=TRACE_ID, deleted_at__isnull=False
    )
    kept = [external_id for _id, external_id in deleted.values_list("pk", "external_id")]
    return with_traces_joined(sessions, kept=kept) if kept else joined


def _find_sharing(
    db: Database, sessions: Mapping[str, records.Session], outcomes: Mapping[str, SessionOutcome], known: Set[str]
) -> None:
    """Raise _SharingError if other traces than these and the `known` ones have calls with the ids of calls that wait for another
    trace.

    The rows of the sessions are locked, because their messages were replaced: of two senders the second sees what the first
    has stored.
    """
    unjoined = {
        (outcomes[trace_id].id, pg_text.text(call_id))
        for trace_id, session in sessions.items()
        if has_stated_id(session, trace_id)
        for call_id in unjoined_call_ids(session)
    }
    if not unjoined or len(known) >= MOST_SHARING:
        return
    of_sessions, call_ids = ([*set(column)] for column in zip(*unjoined, strict=True))
    own = {message.id for outcome in outcomes.values() for message in outcome.messages}
    most = 2 * len(call_ids) + _MOST_HOLDERS
    with_calls = [pk for (pk,) in read_prepared(_WITH_CALLS, [call_ids, most], db.connection)]
    if len(with_calls) < most and own.issuperset(with_calls):
        return
    with db.cursor() as cursor:
        cursor.execute(_HOLDERS, [call_ids, of_sessions, TRACE_ID, [*{*sessions, *known}], _MOST_HOLDERS])
        found = {
            trace_id
            for session_id, call_id, trace_ids in cursor.fetchall()
            if (session_id, call_id) in unjoined
            for trace_id in trace_ids
            if is_id(trace_id, 32)
        }
    if found:
        raise _SharingError(found)


def _keep_together(
    db: Database,
    project_id: int,
    stored: _Stored,
    sessions: Mapping[str, records.Session],
    homes: Mapping[str, str],
) -> None:
    """Store each trace under the first of those with which it shares calls, from `homes`."""
    moved = {trace_id for trace_id in sessions if homes.get(trace_id, trace_id) != stored.home(trace_id)}
    moved |= stored.strays & sessions.keys()
    if not moved:
        return
    for trace_id in moved:
        rows = db.rows(SpanRow.objects).filter(pk__in=stored.pieces[trace_id].row_ids)
        rows.update(trace_id=UUID(homes.get(trace_id, trace_id)))
    outdated = [pk for pk, joined in stored.links.items() if joined.trace_id in moved]
    db.rows(SpanRow.objects).filter(pk__in=outdated).delete()
    rows_of_links = []
    for trace_id in moved & homes.keys():
        content = msgspec.json.encode(JoinedTrace(trace_id=trace_id, home=homes[trace_id]))
        for under in (trace_id, homes[trace_id]):
            # In the month of the spans beside it.
            time = ids.created_at_of(min(stored.pieces[under].row_ids))
            rows_of_links.append(
                SPANS.Row(
                    id=row_id(time, b"%d %s %b" % (project_id, under.encode(), content)),
                    project_id=str(project_id),
                    trace_id=under,
                    kind=JOINED,
                    content=content.decode(),
                )
            )
    insert_rows(db, [(SPANS, SPANS.encrypted(rows_of_links, key_of(project_id)))])


def _old_messages(db: Database, project_id: int, trace_ids: Collection[str]) -> list[Message]:
    """Return the messages that traces had. Raise _RefusedError for those whose session was deleted."""
    of_traces = db.rows(Message.with_deleted).filter(
        project_id=project_id, request_id__in=list(trace_ids), metadata__has_key=TRACE_ID
    )
    old = list(of_traces.order_by("pk").select_related("session"))
    if refused := {message.request_id: "session_deleted" for message in old if message.session.deleted_at is not None}:
        raise _RefusedError(refused)
    return old


def _replace_messages(
    db: Database,
    project_id: int,
    sessions: Mapping[str, records.Session],
    stored: _Stored,
    homes: Mapping[str, str],
    old: Sequence[Message],
) -> dict[str, SessionOutcome]:
    """Put the messages of these traces in the place of the `old` ones.

    `homes` are the first traces of the groups that share calls. Raise _RefusedError.
    """
    digests, gone = _digests_and_gone(sessions, stored, old)
    remove_messages(db, [message.pk for message in gone])
    outcomes = ingest(db, project_id, list(sessions.values()), digests=digests)
    refused = {
        trace_id: reason
        for trace_id, outcome in zip(sessions, outcomes, strict=True)
        if (
            reason := outcome.refused
            or next((message.refused for message in outcome.messages if message.refused), None)
        )
    }
    if refused:
        raise _RefusedError(refused)
    receipts: dict[UUID, list[Any]] = defaultdict(list)
    lasts = {
        trace_id: last
        for trace_id, outcome in zip(sessions, outcomes, strict=True)
        if outcome.messages and (last := outcome.messages[-1].id) is not None
    }
    for trace_id, outcome in zip(sessions, outcomes, strict=True):
        _hide_again(db, outcome, [message for message in gone if message.request_id == trace_id and message.deleted_at])
        trace = stored.pieces[trace_id]
        if (last := lasts.get(trace_id) or _last_of_group(trace_id, lasts, homes)) is not None:
            receipts[last] += [receipt for span in trace.spans for receipt in span.redactions]
            receipts[last] += [receipt for log in trace.logs for receipt in log.redactions]
        assert outcome.id is not None, "refused ones were raised"
        _tag(
            db,
            outcome.id,
            [message for message in old if message.request_id == trace_id],
            sessions[trace_id].messages or (),
        )
        if not outcome.messages and all(span.end for span in merged(trace.spans)):
            # A session without messages counts as running until it had one.
            rows = db.rows(Session.objects).filter(pk=outcome.id, message_count=0, last_run_id=None)
            rows.update(last_run_id=NO_RUN_LEFT)
    for last, of_message in receipts.items():
        if of_message:
            db.rows(Message.with_deleted).filter(pk=last).exclude(redactions=of_message).update(redactions=of_message)
    for session_id in sorted({message.session_id for message in gone}):
        update_last_run(db, session_id)
    paused = read_prepared(_PAUSED, [[outcome.id for outcome in outcomes], Session.Status.PAUSED.value], db.connection)
    for session in db.rows(Session.objects).filter(pk__in=[pk for (pk,) in paused]) if paused else ():
        _go_on(db, session, [message for message in old if message.session_id == session.pk])
    _remove_empty_sessions(db, project_id, list(sessions), old, outcomes)
    return dict(zip(sessions, outcomes, strict=True))


def _digests_and_gone(
    sessions: Mapping[str, records.Session], stored: _Stored, old: Sequence[Message]
) -> tuple[dict[UUID, bytes], list[Message]]:
    """Return the digests of the stored rows of messages, b"" for those that are stored anew and of a trace that goes on; and the
    old messages that are removed.

    A message stays, and is replaced row by row, if the digests of its rows are known and it stays in its session.
    """
    new = {
        UUID(message.id): (id_, session.external_id)
        for id_, session in sessions.items()
        for message in session.messages or ()
        if message.id
    }
    staying = {
        message.pk
        for message in old
        if message.pk in stored.digests and message.pk in new and new[message.pk][1] == message.session.external_id
    }
    digests = {
        message_id: stored.digests[message_id] if message_id in staying else b""
        for message_id, (trace_id, _name) in new.items()
        if message_id in staying or _goes_on(stored.pieces[trace_id])
    }
    return digests, [message for message in old if message.pk not in staying]


def _last_of_group(trace_id: str, lasts: Mapping[str, UUID], homes: Mapping[str, str]) -> UUID | None:
    """Return a message that has calls of a trace without messages."""
    home = homes.get(trace_id, trace_id)
    return next((last for other, last in lasts.items() if homes.get(other, other) == home), None)


def _go_on(db: Database, session: Session, old: Sequence[Message]) -> None:
    """End the pause of a session whose last run does not wait for a person. `old` are messages that it had before."""
    answers = db.rows(Message.objects).filter(session_id=session.pk, role="assistant").order_by("pk")
    last = answers.values_list("pk", flat=True).last()
    waited = [*answers.filter(metadata__has_key=WAITING).values_list("pk", flat=True)]
    if last in waited or not (waited or any(WAITING in message.metadata for message in old)):
        return
    completed = []
    for pk in waited:
        # Until the next run of the session began.
        until = ids.created_at_of(answers.filter(pk__gt=pk).values_list("pk", flat=True)[0])
        completed.append(records.Message(id=str(pk), role="assistant", is_completed=True, completed_at=until))
    if completed:
        ingest(db, session.project_id, [records.Session(id=str(session.pk), messages=completed)])
    db.rows(Session.objects).filter(pk=session.pk).update(said_status="")


def _remove_empty_sessions(
    db: Database, project_id: int, trace_ids: Sequence[str], old: Sequence[Message], outcomes: Sequence[SessionOutcome]
) -> None:
    """Remove the sessions that the messages of traces have left.

    The first spans of a trace may name another session than the root, or none, and may have no messages.
    """
    empty = (
        db.rows(Session.with_deleted)
        .filter(
            Q(id__in={message.session_id for message in old}) | Q(project_id=project_id, external_id__in=trace_ids),
            ~Q(id__in=[stored.id for stored in outcomes]),
            metadata__source=SOURCE,
            message_count=0,
        )
        .exclude(Exists(db.rows(Message.with_deleted).filter(session_id=OuterRef("pk"))))
    )
    if gone := list(empty.values_list("pk", flat=True)):
        detach_sessions(db, gone)
        # What models were asked in them; no run refers to it any more.
        db.rows(Context.objects).filter(session_id__in=gone, kind="entry").delete()
        db.rows(Session.with_deleted).filter(pk__in=gone).delete()


def _tag(db: Database, session_id: UUID, old: Sequence[Message], new: Sequence[records.Message]) -> None:
    """Put the tags of a trace in the place of those that it had before, among the tags of its session."""
    before = {tag for message in old if message.session_id == session_id for tag in _tags(message.metadata)}
    now = {tag for message in new for tag in _tags(message.metadata)}
    if before == now:
        return
    if gone := before - now:
        others = db.rows(Message.with_deleted).filter(session_id=session_id, metadata__has_key="tags")
        gone -= {tag for _id, metadata in others.values_list("pk", "metadata") for tag in _tags(metadata)}
    session = db.rows(Session.with_deleted).select_for_update(of=("self",), no_key=True).get(pk=session_id)
    session.tags = sorted(({*session.tags} - gone) | now)[:MOST_TAGS]
    session.save(update_fields=["tags"])


def _tags(metadata: Mapping[str, Any] | None) -> set[str]:
    return {pg_text.text(tag[:MOST_TAG_CHARACTERS]) for tag in (metadata or {}).get("tags", ())}


def _hide_again(db: Database, stored: SessionOutcome, deleted: Sequence[Message]) -> None:
    """Delete the messages that were deleted before they were made anew."""
    new = {message.external_id: message.id for message in stored.messages}
    for message in deleted:
        if (message_id := new.get(message.external_id)) is not None:
            rows = db.rows(Message.with_deleted).filter(pk=message_id)
            rows.update(deleted_at=message.deleted_at, deleted_by=message.deleted_by)
            row = rows.get()
            add_to_session(db, row.session_id, -Counts.of(row))

"""Store scores, and attach them to what they are about, in whatever order both arrive.

A score of a session, message or call that is stored belongs to these rows. A score of a trace belongs to the call or the
message that its span became: the rows of a trace are made anew whenever a span arrives, and the scores of the trace are
attached anew in the same transaction, by the span, or by the names of the message and the call. A score whose trace or
session has not arrived is pending. Writers of a trace take turns, so that none misses what another one stores.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from typing import Any
from uuid import UUID

import msgspec
from django.db.models.fields.json import KeyTextTransform
from django.utils import timezone

from access_app.db import Database
from access_app.db.statements import read_prepared
from access_app.encryption.keys import is_encrypted
from access_app.masking import masking_of
from messages_app.models import Message, Session
from traces_app.models import AgentStep, Score, Span, ToolCall, ToolResult
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import RedactedScore, RedactedScorePatch, receipts_as_json, redact_score
from tracesite_sdk.normalize.scores import score_value
from tracesite_sdk.records import ids, pg_text

from .batch import MessageOutcome, SessionOutcome
from .joined_traces import group_of, homes_of
from .sql import exchange
from .turns import take_turns

TRACE_ID = "trace_id"
"""Key in the metadata of messages that were made of spans."""
_SPAN_ID = "span_id"
_TRACE = re.compile("[0-9a-f]{32}")
_REPLACED = (
    "session",
    "message",
    "call",
    "session_name",
    "message_name",
    "call_name",
    "trace_id",
    "span_id",
    "name",
    "kind",
    "number",
    "label",
    "comment",
    "source",
    "author",
    "metadata",
    "redactions",
    "updated_at",
    "deleted_at",
)
_PLACE = ("session", "message", "call", "session_name", "message_name")
_SHARE_SESSION = "SELECT pg_advisory_xact_lock_shared(key) FROM unnest(%s::bigint[]) AS key"
_LOCK_SESSION = "SELECT pg_advisory_xact_lock(key) FROM unnest(%s::bigint[]) AS key"
# Prepared, because every trace that arrives asks for its scores, and nearly none has any.
_TO_ATTACH = (
    "SELECT id FROM traces_app_score WHERE project_id = %s "
    "AND (trace_id = ANY(%s) OR session_id IS NULL AND trace_id IS NULL AND session_name = ANY(%s))"
)


@dataclass(frozen=True, kw_only=True)
class ScoreTarget:
    """The rows that a score is about, or the names by which they are found once they arrive."""

    session_id: UUID | None = None
    message_id: UUID | None = None
    call_id: UUID | None = None
    session_name: str = ""
    message_name: str = ""
    call_name: str = ""
    trace_id: str = ""
    span_id: str = ""


@dataclass(frozen=True, kw_only=True)
class PlacedScore:
    """A redacted score with its place."""

    redacted: RedactedScore
    place: ScoreTarget


def place_named(score: records.Score) -> ScoreTarget:
    """Return the place of a score of a wire, which names a trace or a session that may arrive later."""
    if score.trace_id:
        return ScoreTarget(trace_id=score.trace_id.lower(), span_id=(score.span_id or "").lower())
    return ScoreTarget(session_name=pg_text.text(score.session_id))


def place_of_message(message: Message) -> ScoreTarget:
    """Return the place of a score about a stored message."""
    return ScoreTarget(
        session_id=message.session_id,
        message_id=message.pk,
        message_name=message.external_id,
        trace_id=_trace_of(message),
    )


def place_of_call(db: Database, call: ToolCall) -> ScoreTarget:
    """Return the place of a score about a stored call."""
    (place,) = places_of_calls(db, [call])
    return place


def places_of_calls(db: Database, calls: Sequence[ToolCall]) -> list[ScoreTarget]:
    """Return the places of scores about stored calls, in order. One query more than for their messages."""
    places = [place_of_message(call.message) for call in calls]
    of_traces = [call.pk for call, place in zip(calls, places, strict=True) if place.trace_id]
    results = db.rows(ToolResult.objects).filter(pk__in=of_traces).values_list("pk", "metadata") if of_traces else ()
    spans = {key: str(metadata.get(_SPAN_ID) or "")[:16] for key, metadata in results}
    return [
        replace(place, call_id=call.pk, call_name=call.call_id, span_id=spans.get(call.pk, ""))
        for call, place in zip(calls, places, strict=True)
    ]


def store_scores(
    db: Database, project_id: int, scores: Sequence[PlacedScore], *, keep_existing: bool = False
) -> list[UUID]:
    """Store scores in one transaction; return their ids in order. A score with a known external id replaces that one.

    With `keep_existing` nothing is replaced: for scores that are read from spans, which are read again and again.
    """
    now = timezone.now()
    with db.atomic():
        traces = {score.place.trace_id for score in scores if score.place.trace_id}
        if traces:
            take_turns(db, project_id, traces)
        names = {score.place.session_name for score in scores if _is_of_session(score.place)}
        _lock_sessions(db, _LOCK_SESSION, project_id, names)
        places = _settled(db, project_id, [score.place for score in scores])
        rows = [_row(project_id, score.redacted, place, now) for score, place in zip(scores, places, strict=True)]
        known = _keep_ids(db, project_id, rows, [score.redacted.score.id for score in scores])
        unique = {row.external_id or row.pk: row for row in rows}
        _replace(db, [row for row in unique.values() if row.pk in known], project_id)
        new = [row for row in unique.values() if row.pk not in known]
        if keep_existing:
            db.rows(Score.with_deleted).bulk_create(new, ignore_conflicts=True)
        else:
            db.rows(Score.with_deleted).bulk_create(
                new, update_conflicts=True, unique_fields=["project", "external_id"], update_fields=_REPLACED
            )
        names_of_new = [row.external_id for row in new if row.external_id]
        stored = dict(
            db.rows(Score.with_deleted)
            .filter(project_id=project_id, external_id__in=names_of_new)
            .values_list("external_id", "pk")
        )
    return [stored.get(row.external_id or "", unique[row.external_id or row.pk].pk) for row in rows]


def _replace(db: Database, rows: Sequence[Score], project_id: int) -> None:
    if is_encrypted(project_id):
        # Only what saves an instance encrypts.
        for row in rows:
            row.save(using=db.alias, update_fields=_REPLACED)
    else:
        db.rows(Score.with_deleted).bulk_update(rows, _REPLACED)


def store_named_scores(
    db: Database, project_id: int, scores: Iterable[records.Score], *, keep_existing: bool = False
) -> list[UUID]:
    """Redact and store scores of a wire; see `store_scores`."""
    rules = masking_of(project_id)
    placed = [PlacedScore(redacted=redact_score(score, rules), place=place_named(score)) for score in scores]
    return store_scores(db, project_id, placed, keep_existing=keep_existing) if placed else []


def store_scores_of(db: Database, project_id: int, session: records.Session, outcome: SessionOutcome) -> None:
    """Store the scores of a session that was sent with them. A score of a message that is not known is one of the session.

    A score without an id gets one from its content, because a session may be sent again. Those of refused messages are
    not stored.
    """
    if outcome.id is None or outcome.refused:
        return
    placed = []
    rules = masking_of(project_id)
    for score in session.scores or ():
        place = _place_in(db, score, session, outcome.id, outcome.messages)
        if place is not None:
            identity = identity_of(outcome.id, score.message_id, score.call_id, score.name, score.value, score.comment)
            if not (score.external_id or score.id):
                score = msgspec.structs.replace(score, external_id=identity)
            placed.append(PlacedScore(redacted=redact_score(score, rules), place=place))
    store_scores(db, project_id, placed)


def change_score(db: Database, score_id: UUID, change: RedactedScorePatch) -> None:
    """Change the fields in the patch. Raise ValueError, for people, for an invalid value."""
    patch = change.patch
    fields: dict[str, Any] = {}
    if patch.value is not msgspec.UNSET:
        kind, number, label = score_value(patch.value)
        fields = {"kind": kind, "number": number, "label": pg_text.text(label)}
    if patch.label is not msgspec.UNSET and fields.get("kind") != "categorical":
        fields["label"] = pg_text.text(patch.label or "")
    if patch.comment is not msgspec.UNSET:
        fields["comment"] = pg_text.text(patch.comment or "")
    if patch.metadata is not msgspec.UNSET:
        fields["metadata"] = pg_text.storable(patch.metadata or {})
    if change.receipts:
        fields["redactions"] = receipts_as_json(change.receipts)
    with db.atomic():
        score = db.rows(Score.objects).select_for_update(of=("self",)).filter(pk=score_id).first()
        if score is None:
            return
        for name, value in {**fields, "updated_at": timezone.now()}.items():
            setattr(score, name, value)
        score.save(update_fields=[*fields, "updated_at"])


def delete_score(db: Database, score_id: UUID) -> None:
    """Delete a score. Of one that may come again with its spans an empty row stays, so that it stays deleted."""
    rows = db.rows(Score.objects).filter(pk=score_id)
    may_return = rows.filter(trace_id__isnull=False, external_id__isnull=False)
    if not may_return.update(
        deleted_at=timezone.now(), number=None, label="", comment="", author="", metadata={}, redactions=[]
    ):
        rows.delete()


def attach_scores(db: Database, project_id: int, trace_ids: Collection[str], session_names: Collection[str]) -> None:
    """Attach the scores of traces that were made anew, and those that wait for these sessions.

    Call it in the transaction that made them; it has locked the traces.
    """
    with exchange(db) as ask:
        if keys := _keys_of_sessions(project_id, session_names):
            ask(_SHARE_SESSION, keys)
        found = ask(_TO_ATTACH, project_id, [UUID(trace_id) for trace_id in trace_ids], list(session_names))
    waiting = [pk for (pk,) in found.fetchall()]
    if not waiting:
        return
    scores = list(
        db.rows(Score.with_deleted).filter(pk__in=waiting).only("pk", "trace_id", "span_id", "call_name", *_PLACE)
    )
    places = _settled(db, project_id, [_place_of(score) for score in scores])
    changed = []
    for score, place in zip(scores, places, strict=True):
        if _place_of(score) != place:
            score.session_id, score.message_id, score.call_id = place.session_id, place.message_id, place.call_id
            score.session_name, score.message_name = place.session_name, place.message_name
            changed.append(score)
    db.rows(Score.with_deleted).bulk_update(changed, _PLACE)


def detach_sessions(db: Database, session_ids: Collection[UUID]) -> None:
    """Let the scores of sessions that are removed wait for others of their names."""
    db.rows(Score.with_deleted).filter(session_id__in=session_ids, message__isnull=True).update(session=None)


def identity_of(*parts: object) -> str:
    """Return an external id for a score that was sent without one: a digest of what it is about and says."""
    return "digest:" + blake2b(repr(parts).encode(), digest_size=16).hexdigest()


# --- Rows -------------------------------------------------------------------------------------------------------------


def _row(project_id: int, redacted: RedactedScore, place: ScoreTarget, now: datetime) -> Score:
    score = redacted.score
    value = score_value(score.value, score.kind, score.label, comment=score.comment)
    created_at = score.created_at or now
    if not ids.EARLIEST <= created_at < now + ids.LATEST_AHEAD:
        # SDKs' scores are taken with the times of wrong clocks, as their spans are.
        created_at = now
    return Score(
        id=ids.session_id(created_at),
        project_id=project_id,
        session_id=place.session_id,
        message_id=place.message_id,
        call_id=place.call_id,
        session_name=place.session_name,
        message_name=place.message_name,
        call_name=place.call_name,
        trace_id=UUID(place.trace_id) if place.trace_id else None,
        span_id=place.span_id,
        name=pg_text.text(score.name),
        kind=value.kind,
        number=value.number,
        label=pg_text.text(value.label),
        comment=pg_text.text(score.comment),
        source=score.source or Score.Source.PROGRAM,
        author=pg_text.text(score.author),
        external_id=pg_text.text(score.external_id or score.id) or None,
        metadata=pg_text.storable(score.metadata or {}),
        redactions=receipts_as_json(redacted.receipts),
        created_at=created_at,
        updated_at=now,
    )


def _keep_ids(db: Database, project_id: int, rows: Sequence[Score], given: Sequence[str | None]) -> set[UUID]:
    """Give rows that were sent back with our id this id again, and return these ids."""
    wanted = {row_id: row for row, name in zip(rows, given, strict=True) if (row_id := _uuid(name)) is not None}
    if not wanted:
        return set()
    known = dict(
        db.rows(Score.with_deleted).filter(project_id=project_id, pk__in=wanted).values_list("pk", "external_id")
    )
    for pk, external_id in known.items():
        wanted[pk].pk, wanted[pk].external_id = pk, external_id
    return set(known)


def _uuid(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


# --- Places -----------------------------------------------------------------------------------------------------------


def _is_of_session(place: ScoreTarget) -> bool:
    return bool(place.session_name) and not place.trace_id and not place.message_id


def _lock_sessions(db: Database, statement: str, project_id: int, names: Iterable[str]) -> None:
    if keys := _keys_of_sessions(project_id, names):
        read_prepared(statement, [keys], db.connection)


def _keys_of_sessions(project_id: int, names: Iterable[str]) -> list[int]:
    return sorted(ids.key("scores", project_id, name).int % 2**63 for name in names)


def _place_of(score: Score) -> ScoreTarget:
    return ScoreTarget(
        session_id=score.session_id,
        message_id=score.message_id,
        call_id=score.call_id,
        session_name=score.session_name,
        message_name=score.message_name,
        call_name=score.call_name,
        trace_id=score.trace_id.hex if score.trace_id else "",
        span_id=score.span_id,
    )


def _settled(db: Database, project_id: int, places: Sequence[ScoreTarget]) -> list[ScoreTarget]:
    """Return the places with the rows that exist now."""
    traces = _traces(db, project_id, {place.trace_id for place in places if place.trace_id})
    names = {place.session_name for place in places if _is_of_session(place) and place.session_id is None}
    sessions: dict[str, UUID] = {}
    if names:
        named = db.rows(Session.with_deleted).filter(project_id=project_id, external_id__in=names)
        sessions = dict(named.values_list("external_id", "pk"))
    return [
        traces[place.trace_id].placed(place) if place.trace_id else _with_session(place, sessions) for place in places
    ]


def _trace_of(message: Message) -> str:
    """Return the trace of a message that was made of spans, and may be made anew with another id; "" for others."""
    stored_under = message.metadata.get(TRACE_ID)
    is_of_spans = (
        isinstance(stored_under, str) and _TRACE.fullmatch(stored_under) and _TRACE.fullmatch(message.request_id)
    )
    return message.request_id if is_of_spans else ""


def _place_in(
    db: Database, score: records.Score, session: records.Session, session_id: UUID, messages: Sequence[MessageOutcome]
) -> ScoreTarget | None:
    """Return the place of a score within the session that it was sent with; None if its message was refused."""
    if not (score.message_id or score.call_id):
        return ScoreTarget(session_id=session_id)
    sent = list(zip(session.messages or (), messages, strict=True))
    own = next(
        (pair for pair in sent if score.message_id and score.message_id in (pair[0].id, pair[0].external_id)), None
    )
    if own is not None and own[1].refused:
        return None
    rows = db.rows(Message.with_deleted).filter(session_id=session_id).order_by("pk")
    message: Message | None = None
    if score.message_id:
        message_id = own[1].id if own is not None else _uuid(score.message_id)
        message = rows.filter(pk=message_id).first() if message_id is not None else None
        message = message or rows.filter(external_id=pg_text.text(score.message_id)).first()
    if score.call_id and (message is not None or not score.message_id):
        call = _call_in(db, score.call_id, session_id, message, own[0] if own is not None else None)
        if call is not None:
            return place_of_call(db, call)
    if message is not None:
        return place_of_message(message)
    return ScoreTarget(
        session_id=session_id, message_name=pg_text.text(score.message_id), call_name=pg_text.text(score.call_id)
    )


def _call_in(
    db: Database, name: str, session_id: UUID, message: Message | None, sent: records.Message | None
) -> ToolCall | None:
    """Return the call with our id `name`, else with the id of the model; of a call that was sent with it, under either."""
    calls = (
        db.rows(ToolCall.with_deleted).select_related("message").filter(message__session_id=session_id).order_by("pk")
    )
    if message is not None:
        calls = calls.filter(message_id=message.pk)
    call_id = _uuid(name)
    call = calls.filter(pk=call_id).first() if call_id is not None else None
    if call is None and sent is not None:
        # Our ids of calls are not kept where another session has them already.
        of_step = (call for step in sent.agent_steps or () for call in step.tool_calls or ())
        name = next((call.id for call in of_step if call.id and call.uuid == name), name)
    return call or calls.filter(call_id=pg_text.text(name)).first()


def _with_session(place: ScoreTarget, sessions: Mapping[str, UUID]) -> ScoreTarget:
    if place.session_id is not None or place.session_name not in sessions:
        return place
    return ScoreTarget(session_id=sessions[place.session_name], session_name=place.session_name)


@dataclass(kw_only=True)
class _Trace:
    """The stored messages of a trace and of those that share calls with it, with the spans that they were made of."""

    messages: list[Message] = field(default_factory=list)
    """Its own last."""
    names: dict[UUID, str] = field(default_factory=dict)
    """External ids of the sessions."""
    calls: list[tuple[UUID, UUID, str, str]] = field(default_factory=list)
    """Id, message, span, the model's call id."""
    steps: dict[str, UUID] = field(default_factory=dict)
    """Messages by the spans of their steps."""
    db: Database
    project_id: int
    home: str
    """The trace under which its spans are stored."""

    @cached_property
    def parents(self) -> dict[str, str]:
        """The parents of spans, by their ids. Read only for scores of spans that became neither a step nor a call."""
        rows = (
            self.db.rows(Span.objects)
            .filter(project_id=self.project_id, trace_id=UUID(self.home), kind=Span.Kind.SPAN)
            .order_by("pk")
        )
        links = (_decode_link(content) for _id, content in rows.values_list("pk", "content").iterator())
        return {link.span_id: link.parent_id for link in links if link.parent_id}

    def placed(self, place: ScoreTarget) -> ScoreTarget:
        message_id, call_id = self._found(place)
        message = next((message for message in self.messages if message.pk == message_id), None)
        return replace(
            place,
            session_id=message.session_id if message else None,
            message_id=message.pk if message else None,
            call_id=call_id,
            session_name=self.names.get(message.session_id, "") if message else place.session_name,
        )

    def _found(self, place: ScoreTarget) -> tuple[UUID | None, UUID | None]:
        if place.message_name:
            named = [message.pk for message in self.messages if message.external_id == place.message_name]
            if named:
                calls = [call for call in self.calls if call[1] == named[0]]
                by_span = [call[0] for call in calls if place.span_id and call[2] == place.span_id]
                by_name = [call[0] for call in calls if place.call_name and call[3] == place.call_name]
                return named[0], next(iter(by_span or by_name), None)
        elif place.span_id:
            seen: set[str] = set()
            span_id = place.span_id
            calls_by_span = {span: (call_id, message_id) for call_id, message_id, span, _name in self.calls}
            while span_id and span_id not in seen:
                seen.add(span_id)
                if span_id in calls_by_span:
                    call_id, message_id = calls_by_span[span_id]
                    # A span below that of a call is not the call.
                    return message_id, call_id if span_id == place.span_id else None
                if span_id in self.steps:
                    return self.steps[span_id], None
                span_id = self.parents.get(span_id, "")
            if (below := self._message_below(place.span_id)) is not None:
                return below, None
        answers = [message.pk for message in self.messages if message.role == Message.Role.ASSISTANT]
        return next(reversed(answers or [message.pk for message in self.messages]), None), None

    def _message_below(self, span_id: str) -> UUID | None:
        """Return the last message with a step or call below a span."""
        messages_of_spans = dict(self.steps) | {span: message_id for _id, message_id, span, _name in self.calls}
        below = []
        for span, message_id in messages_of_spans.items():
            seen: set[str] = set()
            current = span
            while current and current not in seen:
                if current == span_id:
                    below.append(message_id)
                    break
                seen.add(current)
                current = self.parents.get(current, "")
        return max(below, default=None)


class _Link(msgspec.Struct):
    """The ids of a stored span; its other fields are skipped."""

    span_id: str = ""
    parent_id: str = ""


_decode_link = msgspec.json.Decoder(_Link).decode


def _traces(db: Database, project_id: int, trace_ids: Collection[str]) -> dict[str, _Trace]:
    if not trace_ids:
        return {}
    homes = homes_of(db, project_id, trace_ids)
    traces = {
        trace_id: _Trace(db=db, project_id=project_id, home=homes.get(trace_id, trace_id)) for trace_id in trace_ids
    }
    in_group: dict[str, list[str]] = defaultdict(list)
    """The traces of which messages are sought, by each trace of their groups."""
    for trace_id in trace_ids:
        for other in group_of(homes, trace_id):
            in_group[other].append(trace_id)
    messages = (
        db.rows(Message.with_deleted)
        .filter(project_id=project_id, request_id__in=list(in_group), metadata__has_key=TRACE_ID)
        .order_by("pk")
    )
    traces_of_messages: dict[UUID, list[str]] = {}
    for message in messages.only("pk", "session_id", "request_id", "role", "external_id"):
        traces_of_messages[message.pk] = in_group[message.request_id]
        for trace_id in in_group[message.request_id]:
            traces[trace_id].messages.append(message)
    for trace_id, trace in traces.items():
        trace.messages.sort(key=lambda message: message.request_id == trace_id)
    if not traces_of_messages:
        return traces
    session_ids = {message.session_id for trace in traces.values() for message in trace.messages}
    names = dict(db.rows(Session.with_deleted).filter(pk__in=session_ids).values_list("pk", "external_id"))
    first = ids.first_id_at(ids.created_at_of(min(traces_of_messages)))
    after = ids.first_id_at(ids.created_at_of(max(traces_of_messages)) + timedelta(microseconds=1))
    below = {"message_id__in": list(traces_of_messages), "pk__gte": first, "pk__lt": after}
    span = KeyTextTransform(_SPAN_ID, "metadata")
    for trace in traces.values():
        trace.names = names
    results = db.rows(ToolResult.objects).filter(
        pk__gte=first, pk__lt=after, call__message_id__in=list(traces_of_messages)
    )
    spans_of_calls = dict(results.values_list("pk", span))
    calls = db.rows(ToolCall.with_deleted).filter(**below).order_by("pk")
    for call_id, message_id, name in calls.values_list("pk", "message_id", "call_id"):
        # A call without a result may have the id of its span.
        for trace_id in traces_of_messages[message_id]:
            traces[trace_id].calls.append((call_id, message_id, spans_of_calls.get(call_id) or name, name))
    steps = db.rows(AgentStep.with_deleted).filter(**below).order_by("pk")
    for _id, message_id, span_id in steps.values_list("pk", "message_id", span):
        for trace_id in traces_of_messages[message_id] if span_id else ():
            traces[trace_id].steps[span_id] = message_id
    return traces

"""Two runs or conversations side by side: what they did alike, what differs, and what only one of them did.

Steps and calls are compared in reading order, in three passes of the longest common subsequence: first those that are
equal in what was asked for (the tool with its arguments, the agent with its thought), then, between them, those that are equal
but for numbers, at last those of the same tool or agent. Two calls that were asked for alike and had different results are
changed, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import msgspec
from django.db.models import DateTimeField, DurationField, ExpressionWrapper, F, Func, Q, TextField, Value
from django.db.models.functions import Coalesce

from access_app.db import Database
from messages_app.models import Message, Session
from messages_app.queries import refuse_encrypted_messages
from messages_app.sql.beginnings import Beginning
from traces_app.models import AgentStep, ToolCall
from tracesite_sdk.records import ids, pg_text

from .alignment import gaps
from .runs.outline import RowWords, read_words
from .snapshots import forked_from, names_of
from .word_changes import Pieces, WordChanges

MOST_NODES = 2_000
"""Steps and calls of each run that a page compares: the first ones."""
MOST_COMPARED = 12_000
"""Messages, steps and calls of each side in the API: 5,000 steps with a call each have 10,000."""
MOST_DETAILED = 500
"""Changed pairs whose differences are read."""
NODES_WITH_WORDS = 1_000
"""Further rows show the beginnings of their texts, so that 88 MB of arguments and results are not read for one page."""
_CHARACTERS = 400
_MILLISECOND = Value(timedelta(milliseconds=1), output_field=DurationField())

Kind = Literal["step", "call", "message"]
Change = Literal["same", "changed", "left", "right"]


class Node(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A step or a call of a run, or a message. A struct, because tens of thousands of dataclasses take several times as long to
    make, and as long again to be looked at by the garbage collector."""

    kind: Kind
    id: UUID
    message_id: UUID
    name: str
    """The tool of a call, the agent of a step, the role of a message."""
    text: str
    """The beginning of the arguments as JSON, or of the thought."""
    result: str
    """The beginning of the output or error of a call; the model of a step."""
    status: str
    duration_ms: int | None
    asked: str
    """A digest of all that was asked for; equal only for equal nodes."""
    answered: str
    """A digest of all that came back."""
    usage: str | None = None
    """The tokens of a step, as JSON."""
    cost: Decimal | None = None
    """USD, of a step."""
    step: tuple[UUID, int] | None = None
    """The id and iteration of the step, or of the step of a call."""


class Pair(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Two steps or calls that correspond to each other."""

    change: Change
    left: Node | None = None
    right: Node | None = None
    is_asked_alike: bool = True
    """Whether both have the same arguments or thought."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The node from which one side, a fork, has replayed the other one. What the other one did before that node is not in
    question, because the fork takes it over."""

    fork: Literal["left", "right"]
    since: datetime
    """The time of the snapshot from which the node was replayed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The pairs in reading order, and how many there are of each kind of change."""

    pairs: Sequence[Pair]
    counts: dict[Change, int]
    is_cut: bool
    """Whether one of the runs has more than MOST_NODES."""


def replay_between(left: Session, right: Session) -> Replay | None:
    """Return that one of these sessions has replayed the other one; None if it has not, or if the time is unknown."""
    sides: tuple[tuple[Literal["left", "right"], Session, Session], ...] = (
        ("right", right, left),
        ("left", left, right),
    )
    for side, fork, source in sides:
        of = forked_from(fork.metadata.get("forked_from"))
        if of is not None and of.ts is not None and of.session in names_of(source.pk, source.external_id):
            return Replay(fork=side, since=datetime.fromtimestamp(of.ts // 1000 / 1_000_000, UTC))
    return None


def compare(db: Database, left: UUID, right: UUID) -> Comparison:
    """Compare two runs by their messages. Four queries. Raise NotWhileEncrypted."""
    # PostgreSQL compares digests of what is stored, and equal values of two encrypted rows are stored differently.
    refuse_encrypted_messages(db, [left, right])
    return _compared(_nodes(db, [left], MOST_NODES), _nodes(db, [right], MOST_NODES), MOST_NODES)


def compare_messages(
    db: Database, left: Sequence[UUID], right: Sequence[UUID], replay: Replay | None = None
) -> Comparison:
    """Compare two conversations by their messages, in order, with their texts: of a replay and its source what is in question
    (see Replay), and the last answer of the replay. Six queries. Raise NotWhileEncrypted."""
    refuse_encrypted_messages(db, [*left, *right])

    def side(of: Sequence[UUID], name: str) -> list[Node]:
        since = replay.since if replay is not None and name != replay.fork else None
        is_fork = replay is not None and name == replay.fork
        return _with_texts(db, of, _nodes(db, of, MOST_COMPARED, since), since, only_last=is_fork)

    return _compared(side(left, "left"), side(right, "right"), MOST_COMPARED)


def compare_runs(db: Database, left: Message, right: Message) -> Comparison:
    """Compare two runs, given with their sessions; of a session and its replay all messages, because a replay has one for each node.

    Four queries, or six for a replay. Raise NotWhileEncrypted.
    """
    replay = replay_between(left.session, right.session)
    if replay is None:
        return compare(db, left.pk, right.pk)
    sides = [
        list(
            db.rows(Message.objects)
            .filter(session_id=run.session_id)
            .order_by("pk")
            .values_list("pk", flat=True)[:MOST_NODES]
        )
        for run in (left, right)
    ]
    refuse_encrypted_messages(db, [*sides[0], *sides[1]])
    nodes = [
        _nodes(db, of, MOST_NODES, None if side == replay.fork else replay.since)
        for of, side in zip(sides, ("left", "right"), strict=True)
    ]
    return _compared(nodes[0], nodes[1], MOST_NODES)


def words_of_nodes(db: Database, pairs: Sequence[Pair]) -> dict[str, RowWords]:
    """Return the words of steps and calls by their ids, those that differ first, of equal ones those of the left. Three queries."""
    different = [node for pair in pairs if pair.change != "same" for node in (pair.left, pair.right)]
    same = [pair.left for pair in pairs if pair.change == "same"]
    read = [node for node in (*different, *same) if node and node.kind != "message"][:NODES_WITH_WORDS]
    return read_words(db, [node.id for node in read], message_id__in={node.message_id for node in read})


def _compared(left: Sequence[Node], right: Sequence[Node], most: int) -> Comparison:
    pairs = list(_pairs(left[:most], right[:most]))
    counts: dict[Change, int] = {"same": 0, "changed": 0, "left": 0, "right": 0}
    for pair in pairs:
        counts[pair.change] += 1
    return Comparison(pairs=pairs, counts=counts, is_cut=max(len(left), len(right)) > most)


def _pairs(left: Sequence[Node], right: Sequence[Node], level: int = 0) -> Iterator[Pair]:
    """Pair nodes that are alike, and those between them by what is next in _ALIKE."""
    if level == len(_ALIKE) or not left or not right:
        yield from (Pair(change="left", left=node) for node in left)
        yield from (Pair(change="right", right=node) for node in right)
        return
    key = _ALIKE[level]
    for i, m, j, n in gaps(list(map(key, left)), list(map(key, right))):
        yield from _pairs(left[i:m], right[j:n], level + 1)
        if m < len(left):
            yield _pair(left[m], right[n])


def _whole(node: Node) -> tuple[str, ...]:
    return node.kind, node.name, node.asked


def _formed(node: Node) -> tuple[str, ...]:
    return node.kind, node.name, _NUMBER.sub("#", node.text)


def _named(node: Node) -> tuple[str, ...]:
    return node.kind, node.name


_NUMBER = re.compile(r"\d+")
_ALIKE = (_whole, _formed, _named)


def _pair(left: Node, right: Node) -> Pair:
    is_asked_alike = left.asked == right.asked
    is_same = is_asked_alike and (left.answered, left.status) == (right.answered, right.status)
    return Pair(change="same" if is_same else "changed", left=left, right=right, is_asked_alike=is_asked_alike)


def _nodes(db: Database, message_ids: Sequence[UUID], most: int, since: datetime | None = None) -> list[Node]:
    """Return the steps of runs, each with its calls after it, without those that ended before `since`; one more than `most` if
    there are more. Two queries.

    A step without agent, model, thought and usage only holds calls that belong to none; it is left out. A call that was made
    after its step has ended (see Recorder.step) is in question by its own time.
    """
    if not message_ids:
        return []
    first, last = ids.range_below(message_ids[0])[0], ids.range_below(message_ids[-1])[1]
    below = {"message_id__in": message_ids, "pk__gte": first, "pk__lt": last}
    in_question = db.rows(AgentStep.with_deleted).filter(**below)
    calls_in_question = db.rows(ToolCall.with_deleted).filter(**below)
    if since is not None:
        # A step without a time may be in question; one without a duration, when it began.
        in_question = in_question.annotate(ended=_end("timestamp")).filter(Q(timestamp=None) | Q(ended__gte=since))
        calls_in_question = calls_in_question.annotate(ended=_end("started_at")).filter(
            Q(started_at=None, step__in=in_question.values("pk")) | Q(ended__gte=since)
        )
    # Tuples, because model objects take three times as long.
    steps: Iterable[Any] = (
        in_question.order_by("message_id", "iteration", "ordinal", "pk")
        .annotate(
            asked=_digest("thought", "reasoning"), text=Beginning("thought", _CHARACTERS), usage_json=_as_text("usage")
        )
        .values_list(
            *("pk", "message_id", "iteration", "ordinal"),
            *("agent_name", "model", "duration_ms", "usage_json", "cost", "asked", "text"),
            named=True,
        )[: most + 1]
    )
    calls: Iterable[Any] = (
        calls_in_question.order_by("message_id", "step__iteration", "step__ordinal", "position", "pk")
        .annotate(
            asked=_digest("args"),
            answered=_digest("result__output", "result__error", "result__data"),
            text=Beginning(_as_text("args"), _CHARACTERS),
            error_text=Beginning("result__error", _CHARACTERS),
            output_text=Beginning("result__output", _CHARACTERS),
        )
        .values_list(
            *("pk", "message_id", "step_id", "step__iteration", "step__ordinal", "tool__name", "status", "duration_ms"),
            *("asked", "answered", "text", "error_text", "output_text"),
            named=True,
        )[: most + 1]
    )
    of_steps: dict[tuple[Any, ...], list[Node]] = {}
    """Nodes by the place of the step in reading order."""
    for step in steps:
        position = step.message_id, step.iteration, step.ordinal, step.pk
        of_steps[position] = [_of_step(step)] if _has_content(step) else []
    in_order = len(of_steps)
    for call in calls:
        position = call.message_id, call.step__iteration, call.step__ordinal, call.step_id
        of_steps.setdefault(position, []).append(_of_call(call))
    # Calls whose step is not in question have come last.
    places = of_steps if len(of_steps) == in_order else sorted(of_steps)
    nodes = [node for position in places for node in of_steps[position]]
    return nodes[: most + 1]


def _with_texts(
    db: Database,
    message_ids: Sequence[UUID],
    nodes: Sequence[Node],
    since: datetime | None = None,
    *,
    only_last: bool = False,
) -> list[Node]:
    """Return the nodes with their messages among them: questions before, answers after what was done. Messages that ended before
    `since` are left out, and with `only_last` all but the last answer. One query."""
    rows: Iterable[Any] = (
        db.rows(Message.with_deleted)
        .filter(pk__in=message_ids)
        .annotate(asked=_digest("content", "error"), text=Beginning("content", _CHARACTERS))
        .order_by("pk")
        .only("role", "duration_ms", "error", "created_at", "completed_at")
    )
    below: dict[UUID, list[Node]] = {}
    for node in nodes:
        below.setdefault(node.message_id, []).append(node)
    ordered: list[Node] = []
    last: Node | None = None
    for row in rows:
        done = below.get(row.pk, ())
        ordered += done
        message = Node(
            kind="message",
            id=row.pk,
            message_id=row.pk,
            name=row.role,
            text=row.text,
            result=row.error[:_CHARACTERS],
            status="error" if row.error else "",
            duration_ms=row.duration_ms,
            asked=row.asked,
            answered="",
        )
        if only_last:
            last = message if row.role == Message.Role.ASSISTANT else last
        elif since is None or done or (row.completed_at or row.created_at) >= since:
            ordered.append(message)
    return ordered if last is None else [*ordered, last]


def _has_content(step: Any) -> bool:
    return bool(step.agent_name or step.model or step.text or step.usage_json or step.cost is not None)


def _end(began: str) -> Coalesce:
    """Return the expression for the end of what began at this time; without a duration, it is that time."""
    ended = ExpressionWrapper(F(began) + F("duration_ms") * _MILLISECOND, output_field=DateTimeField())
    return Coalesce(ended, began)


def _of_step(step: Any) -> Node:
    return Node(
        kind="step",
        id=step.pk,
        message_id=step.message_id,
        name=step.agent_name,
        text=step.text,
        result=step.model,
        status="",
        duration_ms=step.duration_ms,
        asked=step.asked,
        answered=step.model,
        usage=step.usage_json,
        cost=step.cost,
        step=(step.pk, step.iteration),
    )


def _of_call(call: Any) -> Node:
    return Node(
        kind="call",
        id=call.pk,
        message_id=call.message_id,
        name=call.tool__name,
        text=call.text,
        result=call.error_text or call.output_text or "",
        status=call.status,
        duration_ms=call.duration_ms,
        asked=call.asked,
        answered=call.answered,
        step=(call.step_id, call.step__iteration),
    )


def _as_text(field: str) -> Func:
    return Func(F(field), template="(%(expressions)s)::text", output_field=TextField())


def _digest(*fields: str) -> Func:
    """Return the expression for a digest of columns, because they may hold megabytes."""
    parts = [Coalesce(_as_text(name), Func(template="''", output_field=TextField())) for name in fields]
    return Func(
        Func(*parts, function="concat_ws", template="concat_ws(chr(1), %(expressions)s)", output_field=TextField()),
        function="md5",
        output_field=TextField(),
    )


# --- Differences -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A field that differs, with its values as texts in pieces; None where it is missing."""

    field: str
    left: Pieces | None
    right: Pieces | None


LONGEST = 10_000
"""Characters of a value that are compared in detail."""
Fields = Mapping[str, Any]


def differences(db: Database, pairs: Sequence[Pair], words: WordChanges) -> list[list[Difference]]:
    """Return the fields that differ in each of these pairs, which are `changed`. Six queries, however many pairs."""
    sides = [fields_of(db, [getattr(pair, side) for pair in pairs]) for side in ("left", "right")]
    return [
        list(_differences(sides[0][pair.left.id], sides[1][pair.right.id], words))
        for pair in pairs
        if pair.left is not None and pair.right is not None
    ]


def _differences(left: Fields, right: Fields, words: WordChanges, above: str = "") -> Iterator[Difference]:
    for name in dict.fromkeys((*left, *right)):
        before, after = left.get(name), right.get(name)
        if before == after:
            continue
        if not above and isinstance(before, dict) and isinstance(after, dict):
            # Field by field, one level deep: arguments of a tool.
            yield from _differences(before, after, words, f"{name}.")
        else:
            yield _difference(above + name, before, after, words)


def _difference(name: str, left: Any, right: Any, words: WordChanges) -> Difference:
    before, after = (
        value if isinstance(value, str) or value is None else pg_text.json(value) for value in (left, right)
    )
    if before is None or after is None:
        return Difference(
            field=name,
            left=None if before is None else [(before, True)],
            right=None if after is None else [(after, True)],
        )
    of_left, of_right = words.of(before[:LONGEST], after[:LONGEST])
    return Difference(field=name, left=of_left, right=of_right)


def fields_of(db: Database, nodes: Sequence[Node]) -> dict[UUID, Fields]:
    """Return what nodes are compared by, by id."""
    fields: dict[UUID, Fields] = {}
    of_kind = {kind: [node.id for node in nodes if node.kind == kind] for kind in ("message", "step", "call")}
    messages = (
        db.rows(Message.with_deleted)
        .filter(pk__in=of_kind["message"])
        .annotate(content_text=Beginning("content", LONGEST), error_text=Beginning("error", LONGEST))
    )
    for pk, content, error in messages.values_list("pk", "content_text", "error_text") if of_kind["message"] else ():
        fields[pk] = {"content": content, "error": error}
    steps = (
        db.rows(AgentStep.with_deleted)
        .filter(**_among(of_kind["step"]))
        .annotate(text=Beginning("thought", LONGEST), reasoning_text=Beginning("reasoning", LONGEST))
    )
    for pk, text, reasoning, agent, model in (
        steps.values_list("pk", "text", "reasoning_text", "agent_name", "model") if of_kind["step"] else ()
    ):
        fields[pk] = {"thought": text, "reasoning_content": reasoning, "agent_name": agent, "model": model}
    calls = (
        db.rows(ToolCall.with_deleted)
        .filter(**_among(of_kind["call"]))
        .annotate(
            text=Beginning(_as_text("args"), LONGEST),
            output=Beginning("result__output", LONGEST),
            error=Beginning("result__error", LONGEST),
            data=Beginning(_as_text("result__data"), LONGEST),
        )
    )
    for pk, status, text, output, error, data in (
        calls.values_list("pk", "status", "text", "output", "error", "data") if of_kind["call"] else ()
    ):
        value = _json(data) if data else None
        # An output that is the text of the data says nothing more.
        is_text_of_data = bool(output) and value is not None and _json(output) == value
        answer = {"output": None if is_text_of_data else output or None, "error": error or None, "data": value}
        fields[pk] = {"args": _json(text), "status": status, **answer}
    return fields


def _among(keys: Sequence[UUID]) -> dict[str, Any]:
    return {"pk__in": keys, "pk__gte": min(keys), "pk__lte": max(keys)} if keys else {"pk__in": keys}


def _json(text: str) -> Any:
    """Return the value; the text itself if it was cut."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text

"""The outline of runs: their steps and calls in reading order with names, times and statuses, and the words of each row; no payloads.

The whole outline is columns in reading order, so that a run with 50,000 calls is read by three statements, whatever the run.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    IntegerField,
    OuterRef,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Cast, Extract, Left
from django.db.models.lookups import LessThanOrEqual
from django.template.defaultfilters import filesizeformat
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from messages_app.models import Message
from messages_app.safe_text import cost, first_characters, one_line, size_of
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult

from .critical_path import CriticalPath, critical_path
from .deciding import telling_arguments
from .reading_order import reading_order, step_numbers
from .telling_texts import note_of_result, plain, telling_line

OUTLINE_ROWS = 100_000
"""The maximum of steps, and of calls; the outline says so if the run has more."""
STEPS_NUMBERED = 20_000
"""Steps of the same iteration."""
NAME_CHARACTERS = 80
SAID_CHARACTERS = 640
ARGS_CHARACTERS = 16_384
ERROR_CHARACTERS = 2_000
OUTPUT_CHARACTERS = 4_000
"""The beginnings of values of which the words of rows are made."""
COMPARED_BYTES = 8_192
"""Calls with longer arguments, as they are stored, are not compared."""
_STATUSES = {status.value: place for place, status in enumerate(ToolCall.Status)}
"""Plain strings as keys: they come from the database."""


def _epoch(column: str) -> Cast:
    """Return the expression for a time as milliseconds since 1970."""
    seconds = Extract(column, "epoch", output_field=FloatField())
    return Cast(ExpressionWrapper(seconds * 1000, output_field=FloatField()), BigIntegerField())


_NOTHING = Value(None, output_field=BigIntegerField())
_HAS_WORDS = Func(
    Left("thought", SAID_CHARACTERS),
    Left("reasoning", SAID_CHARACTERS),
    template=r"(concat(%(expressions)s) ~ '\S')",
    output_field=BooleanField(),
)
_ERROR = ToolResult.objects.filter(pk=OuterRef("pk")).values_list(Left("error", ERROR_CHARACTERS))
_DIGEST = Case(
    When(
        LessThanOrEqual(Func("args", function="pg_column_size", output_field=IntegerField()), COMPARED_BYTES),
        then=Func(
            *("args", "tool_id", "status", Case(When(status=ToolCall.Status.ERROR, then=Subquery(_ERROR)))),
            template="('x' || left(md5(concat_ws(chr(1), %(expressions)s)), 16))::bit(64)::bigint",
            output_field=BigIntegerField(),
        ),
    )
)
"""Of what makes calls equal. A number, because a masked reader has every text masked that is not a column. Equal texts are encrypted
to different ones, so that encrypted calls are equal only without any."""
_STEP_COLUMNS = (_epoch("timestamp"), _NOTHING, F("duration_ms"), F("cost"), _HAS_WORDS)
_CALL_COLUMNS = (_epoch("started_at"), _epoch("completed_at"), F("duration_ms"), _NOTHING, _DIGEST)
"""Start, end, duration, cost, and whether a step has words or the digest of a call. The database computes the milliseconds, because 100,000 datetimes take a second."""


class RowWords(msgspec.Struct, frozen=True, omit_defaults=True):
    """The words of a row: each one line without hidden characters."""

    text: str = ""
    """The beginning of what the agent thought or said; of a call the argument that tells most."""
    error: str = ""
    """The line of an error that tells most."""
    note: str = ""
    """The beginning of a result, or its size."""


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """The steps and calls of a run in reading order, a column for each property."""

    ids: list[UUID] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    """1 for a call, 0 for a step."""
    depths: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """As in `Outline`."""
    names: list[str] = field(default_factory=list)
    """The tools of calls and agents of steps, without hidden characters."""
    numbers: list[str] = field(default_factory=list)
    """The numbers of steps; "" for a call."""
    starts: list[int | None] = field(default_factory=list)
    """Milliseconds since 1970."""
    durations: list[int | None] = field(default_factory=list)
    costs: list[Decimal | None] = field(default_factory=list)
    """Of steps; calls have none of their own."""
    has_words: list[bool] = field(default_factory=list)
    """Of a step whether it says what the agent thought; of a call True."""
    digests: list[int | None] = field(default_factory=list)
    """Of what makes calls equal; None for a step, and for a call that is not compared."""
    is_cut: bool = False
    """Whether the run has more rows."""


class Chapter(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the run of a question ended."""

    outcome: str
    label: str
    run: UUID
    so_far: str = ""
    """How long it has gone on, in words; "" if it has ended."""
    begun: int = 0
    """When it began, in milliseconds since 1970, if it goes on."""


class StoodFor(NamedTuple):
    """A step for which a call stands."""

    id: UUID
    start: int | None
    duration: int | None
    agent: int | None
    """The place of its name in `names`, where that is another one than before."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Steps and calls in reading order, a column for each property. Times are milliseconds from the first start of a row.

    A call stands for its step, too, if it is the only one and the step has no words. The step has a row of its own if it is the
    bottleneck. Equal calls that follow each other (same tool, arguments, status and error) are below the first of them.
    """

    ids: Sequence[UUID]
    calls: Sequence[int]
    """1 for a call, 0 for a step; in a session also 2 for an answer, 3 for what begins a chapter, 4 for a message that nobody asked."""
    depths: Sequence[int]
    steps: Mapping[int, StoodFor]
    """The steps for which calls stand, by row."""
    repeats: Mapping[int, int]
    """The number of equal calls, or of notes of the same kind, by the row of the first of them; the others follow it, one level deeper."""
    statuses: Sequence[int]
    """0 pending, 1 success, 2 error; steps have 1."""
    names: Sequence[str]
    """The different names of tools and agents, without hidden characters."""
    named: Sequence[int]
    """The place of the name in `names`: of a call its tool, of a step its agent where that is another one than before."""
    numbers: Sequence[str]
    """The numbers of steps; "" for a call that stands for none."""
    words: Mapping[str, RowWords]
    """The words of the rows that came with it, by their ids."""
    starts: Sequence[int | None]
    durations: Sequence[int | None]
    costs: Mapping[int, str]
    """The known costs of steps, for people, by row, also of steps for which calls stand."""
    critical: Sequence[int]
    """1 for a row on the critical path; only 0 unless the outline is whole."""
    bottleneck: int | None
    """The row that is clearly the longest, if there is one: see CriticalPath."""
    is_whole: bool
    """False for the first rows of a longer run."""
    is_cut: bool
    origin: int | None
    """The first start in milliseconds since 1970; None if no start is known."""
    chapters: Mapping[int, Chapter] = field(default_factory=dict)
    """The chapters of a session, by row."""

    def took(self, row: int) -> int | None:
        """Return how long a row took, with the step for which it stands, as `tookOf` in tracesite/rows.js."""
        own, start, step = self.durations[row], self.starts[row], self.steps.get(row)
        if step is None or step.duration is None or own is None:
            return own if step is None or own is not None else step.duration
        if start is None or step.start is None:
            return max(own, step.duration)
        return max(start + own, step.start + step.duration) - step.start


def read_outline(db: Database, message_id: UUID) -> Outline:
    """Return the outline of the run of a message. Four queries."""
    run = (
        db.rows(Message.with_deleted)
        .only("created_at", "completed_at", "is_completed", "duration_ms")
        .filter(pk=message_id)
        .first()
    )
    rows = read_runs(db, [message_id])[message_id]
    return outline_of(rows, {}, is_whole=True, took_ms=None if run is None else run.took_ms)


def read_runs(db: Database, message_ids: Collection[UUID]) -> dict[UUID, RunRows]:
    """Return the rows of the runs of messages: in sum at most OUTLINE_ROWS steps, and as many calls, those of the oldest messages
    first. Three queries.
    """
    if not message_ids:
        return {}
    below = {"message_id__in": list(message_ids), **ids_below(message_ids)}
    steps: list[tuple[Any, ...]] = list(
        db.rows(AgentStep.with_deleted)
        .filter(**below)
        .order_by("message_id", "iteration", "ordinal", "pk")
        .values_list("pk", *_STEP_COLUMNS, "iteration", "agent_name", "message_id")[: OUTLINE_ROWS + 1]
    )
    calls: list[tuple[Any, ...]] = list(
        db.rows(ToolCall.with_deleted)
        .filter(**below)
        .order_by("message_id", "step__iteration", "step__ordinal", "step_id", "position", "pk")
        .values_list("pk", *_CALL_COLUMNS, "status", "tool_id", "step_id", "parent_id")[: OUTLINE_ROWS + 1]
    )
    tools = dict(db.rows(Tool.objects).filter(pk__in={row[7] for row in calls}).values_list("pk", "name"))
    labels = {tool: _shown_name(name) for tool, name in tools.items()}
    # By numbers, because Python takes longer to hash UUIDs.
    run_of = {row[0].int: row[8] for row in steps}
    steps_of: dict[UUID, list[tuple[Any, ...]]] = {key: [] for key in message_ids}
    calls_of: dict[UUID, list[tuple[Any, ...]]] = {key: [] for key in message_ids}
    for row in steps:
        steps_of[row[8]].append(row)
    for row in calls:
        # A step beyond the maximum is unknown.
        if row[8].int in run_of:
            calls_of[run_of[row[8].int]].append(row)
    ends = [steps[-1][8]] if len(steps) > OUTLINE_ROWS else []
    if len(calls) > OUTLINE_ROWS and calls[-1][8].int in run_of:
        ends.append(run_of[calls[-1][8].int])
    return {
        key: _rows_of(steps_of[key], calls_of[key], labels, is_cut=any(key >= end for end in ends))
        for key in message_ids
    }


def _rows_of(
    steps: Sequence[tuple[Any, ...]], calls: Sequence[tuple[Any, ...]], labels: Mapping[int, str], *, is_cut: bool
) -> RunRows:
    """Return the rows of one run: of its steps and calls as `read_runs` reads them."""
    order, depths = reading_order(
        [row[0] for row in steps],
        [row[7] for row in steps],
        [row[0] for row in calls],
        [row[8] for row in calls],
        [row[9] for row in calls],
    )
    numbers = [*step_numbers([(place, row[6]) for place, row in enumerate(steps)]).values(), *[""] * len(calls)]
    agents = {agent: one_line(agent, NAME_CHARACTERS) for agent in {row[7] for row in steps}}
    names = [*(agents[row[7]] for row in steps), *(labels[row[7]] for row in calls)]
    statuses = [*[1] * len(steps), *(_STATUSES[row[6]] for row in calls)]
    nodes = [*steps, *calls]
    rows = [nodes[node] for node in order]
    return RunRows(
        ids=[row[0] for row in rows],
        calls=[int(node >= len(steps)) for node in order],
        depths=depths,
        statuses=[statuses[node] for node in order],
        names=[names[node] for node in order],
        numbers=[numbers[node] for node in order],
        starts=[row[1] for row in rows],
        durations=[_duration(*row[1:4]) for row in rows],
        costs=[row[4] for row in rows],
        has_words=[node >= len(steps) or row[5] for node, row in zip(order, rows, strict=True)],
        digests=[row[5] if node >= len(steps) else None for node, row in zip(order, rows, strict=True)],
        is_cut=is_cut,
    )


class PlacedRow(NamedTuple):
    """A step or call whose place in a run is known."""

    id: str
    depth: int
    is_call: bool
    status: str
    """Of a call."""
    number: str
    """The number of a step; "" for a call."""


def rows_at(db: Database, placed: Sequence[PlacedRow]) -> RunRows:
    """Return rows of a run, given in reading order, without those that were purged meanwhile. Two queries."""
    keys = [row.id for row in placed]
    columns: dict[str, tuple[Any, ...]] = {}
    calls = db.rows(ToolCall.with_deleted).filter(pk__in=keys).values_list("pk", *_CALL_COLUMNS, "tool__name")
    steps = db.rows(AgentStep.with_deleted).filter(pk__in=keys).values_list("pk", *_STEP_COLUMNS, "agent_name")
    if keys:
        columns = {str(row[0]): row for row in (*calls, *steps)}
    shown = [(row, columns[row.id]) for row in placed if row.id in columns]
    return RunRows(
        ids=[read[0] for _row, read in shown],
        calls=[int(row.is_call) for row, _read in shown],
        depths=[row.depth for row, _read in shown],
        statuses=[_STATUSES[row.status] if row.is_call else 1 for row, _read in shown],
        names=[_shown_name(read[6]) if row.is_call else one_line(read[6], NAME_CHARACTERS) for row, read in shown],
        numbers=[row.number for row, _read in shown],
        starts=[read[1] for _row, read in shown],
        durations=[_duration(*read[1:4]) for _row, read in shown],
        costs=[read[4] for _row, read in shown],
        has_words=[row.is_call or read[5] for row, read in shown],
        digests=[read[5] if row.is_call else None for row, read in shown],
    )


def step_number(db: Database, step: AgentStep) -> str:
    """Return the displayed number of a step. One query."""
    steps = db.rows(AgentStep.with_deleted).filter(
        message_id=step.message_id, iteration=step.iteration, **ids_below([step.message_id])
    )
    rows = list(steps.order_by("ordinal", "pk").values_list("pk", "iteration")[:STEPS_NUMBERED])
    return step_numbers(rows).get(step.pk, str(step.iteration))


def read_words(db: Database, ids: Collection[UUID], **of: Any) -> dict[str, RowWords]:
    """Return the words of those of the rows that match `of`, which names a message, several, or a session. Three queries."""
    words: dict[str, RowWords] = {}
    if not ids:
        return words
    steps = db.rows(AgentStep.with_deleted).filter(pk__in=ids, **of)
    for key, thought, reasoning in steps.values_list(
        "pk", first_characters("thought", SAID_CHARACTERS), first_characters("reasoning", SAID_CHARACTERS)
    ):
        words[str(key)] = RowWords(text=plain(thought) or plain(reasoning))
    calls = db.rows(ToolCall.with_deleted).filter(pk__in=ids, **of)
    told = telling_arguments(calls, ARGS_CHARACTERS)
    results = db.rows(ToolResult.objects).filter(pk__in=told)
    ended = {
        key: columns
        for key, *columns in results.values_list(
            "pk",
            first_characters("error", ERROR_CHARACTERS),
            first_characters("output", OUTPUT_CHARACTERS),
            size_of("output"),
        )
    }
    for key, argument in told.items():
        error, output, size = ended.get(key, ("", "", 0))
        words[str(key)] = RowWords(
            text=argument,
            error=telling_line(error),
            note="" if error else _note(output, size),
        )
    return words


def _note(output: str, size: int) -> str:
    note = note_of_result(output, size)
    if note.lines:
        return ngettext("%(number)s line", "%(number)s lines", note.lines) % {"number": note.lines}
    if note.items:
        return ngettext("%(number)s item", "%(number)s items", note.items) % {"number": note.items}
    return filesizeformat(note.bytes) if note.bytes else note.words


def _shown_name(tool: str) -> str:
    return one_line(tool, NAME_CHARACTERS) or _("(no name)")


def outline_of(rows: RunRows, words: Mapping[str, RowWords], *, is_whole: bool, took_ms: int | None = None) -> Outline:
    """Return the outline of rows; `took_ms` is the duration of the run, as far as it is known."""
    origin = min((start for start in rows.starts if start is not None), default=0)
    starts = [None if start is None else start - origin for start in rows.starts]
    path = critical_path(rows.depths, starts, rows.durations, took_ms=took_ms) if is_whole else CriticalPath([], None)
    on_path = set(path.rows)
    alone = _steps_without_row(rows, path.bottleneck, is_whole=is_whole)
    shown = [row for row in range(len(rows.ids)) if row not in alone]
    names: dict[str, int] = {}
    named: list[int] = []
    depths = []
    numbers = []
    digests: list[int | None] = []
    steps: dict[int, StoodFor] = {}
    costs: dict[int, str] = {}
    agents: dict[int, str] = {}
    """The agent of the last step at each depth."""
    above: list[int] = []
    """The depths of the steps without a row above the present one."""
    for row, is_call in enumerate(rows.calls):
        depth, name = rows.depths[row], rows.names[row]
        while above and above[-1] >= depth:
            above.pop()
        is_same = not is_call and agents.get(depth) == name
        place = names.setdefault("" if is_same else name, len(names))
        if not is_call:
            agents[depth] = name
        if (spent := rows.costs[row]) is not None:
            costs[len(named)] = cost(spent)
        if row in alone:
            agent = None if is_same or not name else place
            steps[len(named)] = StoodFor(rows.ids[row], starts[row], rows.durations[row], agent)
            above.append(depth)
            continue
        named.append(place)
        depths.append(depth - len(above))
        numbers.append(rows.numbers[row - 1] if row - 1 in alone else rows.numbers[row])
        digests.append(rows.digests[row])
    repeats = _repeats(depths, digests, steps)
    for first, count in repeats.items():
        depths[first + 1 : first + count] = [depths[first] + 1] * (count - 1)
    return Outline(
        ids=[rows.ids[row] for row in shown],
        calls=[rows.calls[row] for row in shown],
        depths=depths,
        steps=steps,
        repeats=repeats,
        statuses=[rows.statuses[row] for row in shown],
        names=list(names),
        named=named,
        numbers=numbers,
        words=words,
        starts=[starts[row] for row in shown],
        durations=[rows.durations[row] for row in shown],
        costs=costs,
        critical=[int(row in on_path or (row - 1 in on_path and row - 1 in alone)) for row in shown],
        bottleneck=None if path.bottleneck is None else bisect_left(shown, path.bottleneck),
        is_whole=is_whole,
        is_cut=rows.is_cut,
        origin=origin or None,
    )


def _repeats(depths: Sequence[int], digests: Sequence[int | None], steps: Mapping[int, StoodFor]) -> dict[int, int]:
    """Return the numbers of equal rows without rows below them, each by the row of the first."""
    repeats: dict[int, int] = {}
    first = 0
    for row in range(1, len(depths)):
        is_equal = (
            digests[row] is not None
            and digests[row] == digests[first]
            and depths[row] == depths[first]
            # The second call of a step is not equal to one that stands for its step, nor one of another agent.
            and (row in steps) == (first in steps)
            and (row not in steps or steps[row].agent is None)
            and (row + 1 == len(depths) or depths[row + 1] <= depths[row])
        )
        if is_equal:
            repeats[first] = row - first + 1
        else:
            first = row
    return repeats


def _steps_without_row(rows: RunRows, bottleneck: int | None, *, is_whole: bool) -> set[int]:
    """Return the steps for which the call after them stands."""
    below = [0] * len(rows.ids)
    path: list[int] = []
    for row, depth in enumerate(rows.depths):
        del path[depth:]
        if path:
            below[path[-1]] += 1
        path.append(row)
    # What is below the last rows that were read, and next to them, is unknown.
    unknown = () if is_whole else path
    alone = {row for row, count in enumerate(below) if count == 1 and not rows.calls[row] and not rows.has_words[row]}
    return {row for row in alone if rows.calls[row + 1]} - {bottleneck, *unknown}


def _duration(start: int | None, end: int | None, duration_ms: int | None) -> int | None:
    """Return the milliseconds that a row took, by its times if it does not say; None if that is unknown."""
    if duration_ms is not None:
        return duration_ms
    return None if start is None or end is None else max(end - start, 0)

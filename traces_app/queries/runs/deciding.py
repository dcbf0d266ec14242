"""The failed calls that decided how runs ended, of runs that are stored. The reader of errors keeps them in `Message.decided_by`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from access_app.db import Database
from messages_app.models import NONE_DECIDED, Message
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, Tool, ToolCall

from .outcome import CallFact, deciding_failure
from .reading_order import reading_order
from .telling import is_shell, telling_argument

ROWS_READ = 20_000
"""Steps and calls that are read at a time. Of a run with more of them, the last failed call decided."""
COMMANDS_COMPARED = 500
"""Calls of shells of each run whose commands are compared, the last ones."""
_COMMAND_CHARACTERS = 2_000

K = TypeVar("K")


class EndedCall(NamedTuple):
    """A call of a run, as far as it decides the outcome; of a shell without its command."""

    place: int
    """In the order of the run."""
    id: UUID
    tool: str
    failed: bool
    pending: bool


def deciding_calls(db: Database, runs: Iterable[Message]) -> dict[UUID, UUID]:
    """Return the failed call that decided how each run ended, by the id of the run; NONE_DECIDED if there is none.

    It is as stored, and computed where that is not known yet. `runs` may be of any columns that have the counts of steps, calls and
    failures.
    """
    known = {run.pk: stored for run in runs if (stored := stored_decision(run)) is not None}
    return known | decide(db, [run for run in runs if run.pk not in known])


def stored_decision(run: Message) -> UUID | None:
    """Return the stored call that decided, or NONE_DECIDED; None if it is not known. That of a run that was opened again is old."""
    return run.decided_by if run.is_completed else None


def decide(db: Database, runs: Iterable[Message]) -> dict[UUID, UUID]:
    """Return the same from the calls of the runs. Four queries for each ROWS_READ rows."""
    found = {}
    for some in _batches(runs):
        if sum(map(_size, some)) > ROWS_READ:
            found[some[0].pk] = _last_failed(db, some[0].pk)
            continue
        calls = _ended_calls(db, [run.pk for run in some])
        places = deciding_failures(db, calls)
        found |= {key: of_run[places[key]].id if key in places else NONE_DECIDED for key, of_run in calls.items()}
    return found


def deciding_failures(db: Database, runs: Mapping[K, Sequence[EndedCall]]) -> dict[K, int]:
    """Return the places of the failed calls that decided how runs ended, of those runs that have one. One query for the commands of
    shells, or none if no shell failed."""
    failed = {key: {call.tool for call in calls if call.failed} for key, calls in runs.items()}
    # A failure is made good by a call of the same tool.
    calls_of = {key: [call for call in calls if call.tool in failed[key]] for key, calls in runs.items()}
    of_shells = [
        call.id
        for calls in calls_of.values()
        for call in [call for call in calls if is_shell(call.tool)][-COMMANDS_COMPARED:]
    ]
    rows = db.rows(ToolCall.with_deleted).filter(pk__in=of_shells)
    told = telling_arguments(rows, _COMMAND_CHARACTERS) if of_shells else {}
    found = {
        key: deciding_failure(
            [CallFact(call.place, call.tool, told.get(call.id, ""), call.failed, call.pending) for call in calls]
        )
        for key, calls in calls_of.items()
    }
    return {key: fact.place for key, fact in found.items() if fact is not None}


def telling_arguments(calls: QuerySet[ToolCall], characters: int) -> dict[UUID, str]:
    """Return what tells most of the arguments of calls, of which the first `characters` are read. One query."""
    rows = calls.values_list("pk", "tool__name", Beginning(Cast("args", TextField()), characters))
    return {key: telling_argument(name, args) for key, name, args in rows}


def _size(run: Message) -> int:
    return run.step_count + run.call_count


def _batches(runs: Iterable[Message]) -> Iterator[list[Message]]:
    """Yield runs that together have at most ROWS_READ rows, or one that has more."""
    some: list[Message] = []
    rows = 0
    for run in runs:
        if some and rows + _size(run) > ROWS_READ:
            yield some
            some, rows = [], 0
        some.append(run)
        rows += _size(run)
    if some:
        yield some


def _last_failed(db: Database, run: UUID) -> UUID:
    failed = db.rows(ToolCall.with_deleted).filter(message_id=run, status=ToolCall.Status.ERROR, **ids_below([run]))
    last: UUID | None = failed.order_by("-pk").values_list("pk", flat=True).first()
    return last or NONE_DECIDED


def _ended_calls(db: Database, runs: Collection[UUID]) -> dict[UUID, list[EndedCall]]:
    """Return the calls of runs in reading order, without their arguments. Three queries."""
    below = {"message_id__in": list(runs), **ids_below(runs)}
    steps: dict[UUID, list[Any]] = defaultdict(list)
    calls: dict[UUID, list[Any]] = defaultdict(list)
    for row in (
        db.rows(AgentStep.with_deleted)
        .filter(**below)
        .order_by("iteration", "ordinal", "pk")
        .values_list("message_id", "pk", "agent_name")
    ):
        steps[row[0]].append(row)
    for call in (
        db.rows(ToolCall.with_deleted)
        .filter(**below)
        .order_by("step__iteration", "step__ordinal", "step_id", "position", "pk")
        .values_list("message_id", "pk", "step_id", "parent_id", "status", "tool_id")
    ):
        calls[call[0]].append(call)
    of_runs = {row[5] for of_run in calls.values() for row in of_run}
    tools = dict(db.rows(Tool.objects).filter(pk__in=of_runs).values_list("pk", "name"))
    return {key: _in_order(steps[key], calls[key], tools) for key in runs}


def _in_order(steps: Sequence[Any], calls: Sequence[Any], tools: Mapping[int, str]) -> list[EndedCall]:
    order, _depths = reading_order(
        [row[1] for row in steps],
        [row[2] for row in steps],
        [row[1] for row in calls],
        [row[2] for row in calls],
        [row[3] for row in calls],
    )
    in_order = (calls[node - len(steps)] for node in order if node >= len(steps))
    return [
        EndedCall(place, call, tools[tool], status == ToolCall.Status.ERROR, status == ToolCall.Status.PENDING)
        for place, (_run, call, _step, _parent, status, tool) in enumerate(in_order)
    ]

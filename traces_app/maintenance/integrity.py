"""Integrity checks of stored traces: the problems that check_traces reports.

Three passes read the rows in batches, in the order of ids: messages with their children, sessions with their counters,
and rows without their parent. The trash is checked too, because it may be restored. Each batch is read in one snapshot,
so that a check beside writers does not report half of a write. Of messages that PostgreSQL finds plainly in order
(traces_app/maintenance/plain_order.py), no rows are read.

Iterations start at 0 and increase by one. The agents of a message may count together or separately: a message is in order
if its iterations are 0, 1, 2 ... each once, or if those of every agent name are. A sub-agent may have the iteration of the
step that called it. The answer of an imported turn may be between its steps; its metadata then has its iteration.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file and the names of tables

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from access_app.db import Database
from messages_app.session_counters import disagreements
from messages_app.sql.partitions import periods_of
from messages_app.sql.snapshot import one_snapshot
from traces_app.models import Context
from tracesite_sdk.normalize.rollup import duration_between, rollup
from tracesite_sdk.records import ids

from .plain_order import verdicts, with_months
from .statements import fetch

KINDS = {
    "iterations_missing": "an iteration is missing: a step may have been lost",
    "iterations_repeated": "an iteration occurs more than once",
    "call_open": "a call is pending although its message is completed",
    "call_without_result": "a call is finished but has no result",
    "orphan_result": "a result has no call: it arrived without one, which is flagged, or the call was lost",
    "orphan_row": "a step, call, reference, event, context or score has no message, or a score no session",
    "input_missing": "what the model of a step was asked is missing, or a part of it",
    "step_missing": "a call refers to a step that its message does not have",
    "parent_missing": "a call refers to a parent call that its message does not have",
    "parent_cycle": "the parents of calls form a cycle",
    "session_missing": "a message has no session",
    "project_differs": "rows of one trace belong to different projects",
    "time_differs": "an id has another time or role than its row, so that reads by time miss the row",
    "message_counts": "the counts of a message disagree with its rows",
    "session_counts": "the counters of a session disagree with its messages",
}

NOTES = frozenset({"call_open"})
"""Kinds that are no damage: the agent itself left them behind, for example when it was interrupted."""

_PAGE = 1000
"""Messages of one snapshot."""
_AT_ONCE = 250
"""Messages whose rows are in memory at a time."""
_ORPHANS_AT_ONCE = 1000
_NUMBERS_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A problem of one session or message, with ids and numbers but no content."""

    kind: str
    """One of KINDS."""
    session_id: UUID | None
    message_id: UUID | None
    detail: str


@dataclass(kw_only=True)
class Tally:
    """The numbers of checked rows."""

    sessions: int = 0
    messages: int = 0
    steps: int = 0
    calls: int = 0


def check(
    db: Database,
    *,
    project_id: int | None = None,
    session_id: UUID | None = None,
    tally: Tally,
    progress: Callable[[int], object] = lambda _: None,
) -> Iterator[Problem]:
    """Yield the problems of all traces, or of one project or session; fill in `tally` on the way.

    `progress` is called with the number of messages that were checked since the last call.

    Rows without their parent, or with another project than it, are only found by a check of all traces, because they may belong
    to any.
    """
    condition, values = "true", list[object]()
    if session_id is not None:
        condition, values = "message.session_id = %s", [session_id]
    elif project_id is not None:
        condition, values = "message.project_id = %s", [project_id]
    yield from _check_messages(db, condition, values, tally, progress)
    yield from _check_sessions(db, project_id, session_id, tally)
    if project_id is None and session_id is None:
        yield from _check_parents(db)


# --- Messages ---------------------------------------------------------------------------------------------------------


class _Message(NamedTuple):
    id: UUID
    session_id: UUID
    project_id: int
    session_project_id: int | None
    role: str
    is_completed: bool
    has_error: bool
    health: list[str]
    usage: str | None
    created_at: datetime
    completed_at: datetime | None
    answer_iteration: str | None
    """Any text, because producers may set this key, too."""
    step_count: int
    call_count: int
    failure_count: int
    model_error_count: int
    input_tokens: int
    output_tokens: int
    duration_ms: int | None
    cost: Decimal | None
    unpriced_count: int


class _Step(NamedTuple):
    id: UUID
    iteration: int
    agent_name: str
    duration_ms: int | None
    usage: str | None
    error: str | None
    input_ref: str
    model: str
    cost: Decimal | None


class _Call(NamedTuple):
    id: UUID
    step_id: UUID
    parent_id: UUID | None
    project_id: int
    tool_project_id: int | None
    status: str
    duration_ms: int | None
    has_result: bool


def _check_messages(
    db: Database, condition: str, values: list[object], tally: Tally, progress: Callable[[int], object]
) -> Iterator[Problem]:
    last = UUID(int=0)
    while True:
        with one_snapshot(db, read_only=True):
            page = _page(db, condition, values, last)
            if not page:
                return
            judged = verdicts(db, page)
            rest = [verdict.message_id for verdict in judged if not verdict.is_plain]
            problems = [
                problem
                for start in range(0, len(rest), _AT_ONCE)
                for problem in _problems_of(db, rest[start : start + _AT_ONCE])
            ]
        yield from problems
        tally.messages += len(judged)
        tally.steps += sum(verdict.step_count for verdict in judged)
        tally.calls += sum(verdict.call_count for verdict in judged)
        progress(len(judged))
        last = page[-1]


def _page(db: Database, condition: str, values: list[object], last: UUID) -> list[UUID]:
    rows = fetch(
        db,
        f"SELECT message.id FROM messages_app_message AS message WHERE {condition} AND message.id > %s "
        f"ORDER BY message.id LIMIT {_PAGE}",
        [*values, last],
    )
    return [message_id for (message_id,) in rows]


def _problems_of(db: Database, message_ids: Sequence[UUID]) -> Iterator[Problem]:
    """Yield the problems of messages, given in order, from their rows."""
    messages = _messages(db, message_ids)
    steps, calls = _steps(db, message_ids), _calls(db, message_ids)
    inputs = _inputs(db, message_ids, steps)
    for message in messages:
        of_message, called = steps.get(message.id, ()), calls.get(message.id, ())
        for kind, detail in (*_problems(message, of_message, called), *_input_problems(of_message, inputs)):
            yield Problem(kind=kind, session_id=message.session_id, message_id=message.id, detail=detail)


def _messages(db: Database, message_ids: Sequence[UUID]) -> list[_Message]:
    rows = fetch(
        db,
        "SELECT message.id, message.session_id, message.project_id, session.project_id AS session_project_id, "
        "message.role, message.is_completed, message.error <> '' AS has_error, message.health, message.usage::text AS usage, message.created_at, "
        "message.completed_at, left(message.metadata ->> 'answer_iteration', 12) AS answer_iteration, message.step_count, "
        "message.call_count, message.failure_count, message.model_error_count, message.input_tokens, "
        "message.output_tokens, message.duration_ms, message.cost, message.unpriced_count "
        "FROM messages_app_message AS message LEFT JOIN messages_app_session AS session ON session.id = message.session_id "
        "WHERE message.id = ANY(%(messages)s) AND message.id >= %(first)s AND message.id < %(after)s ORDER BY message.id",
        with_months(message_ids),
    )
    return [_Message._make(row) for row in rows]


def _steps(db: Database, message_ids: Sequence[UUID]) -> Mapping[UUID, list[_Step]]:
    steps: defaultdict[UUID, list[_Step]] = defaultdict(list)
    for message_id, *row in fetch(
        db,
        "SELECT message_id, id, iteration, agent_name, duration_ms, usage::text AS usage, "
        "(metadata -> 'error')::text AS error, input_ref, model, cost FROM traces_app_agentstep AS step "
        f"WHERE {_BELOW.format('step')} ORDER BY message_id, iteration, ordinal",
        with_months(message_ids),
    ):
        steps[message_id].append(_Step._make(row))
    return steps


def _inputs(db: Database, message_ids: Sequence[UUID], steps: Mapping[UUID, Sequence[_Step]]) -> dict[UUID, int]:
    """Return the number of missing entries of each input, by the id of its step; an input that is missing itself is not there."""
    wanted = {
        step.id: Context.id_of(message_id, step.input_ref)
        for message_id, of_message in steps.items()
        for step in of_message
        if step.input_ref
    }
    if not wanted:
        return {}
    rows = _rows(
        db,
        "SELECT context.id, count(*) FILTER (WHERE wanted.id IS NOT NULL AND entry.id IS NULL) AS missing "
        "FROM traces_app_context AS context LEFT JOIN LATERAL unnest(context.entries) AS wanted (id) ON TRUE "
        "LEFT JOIN traces_app_context AS entry ON entry.id = wanted.id AND entry.id >= %(first)s AND entry.id < %(after)s "
        "WHERE context.id = ANY(%(contexts)s) AND context.id >= %(first)s AND context.id < %(after)s GROUP BY context.id",
        {**with_months(message_ids), "contexts": list(set(wanted.values()))},
    )
    missing = {row["id"]: row["missing"] for row in rows}
    return {step_id: missing[context_id] for step_id, context_id in wanted.items() if context_id in missing}


def _calls(db: Database, message_ids: Sequence[UUID]) -> Mapping[UUID, list[_Call]]:
    calls: defaultdict[UUID, list[_Call]] = defaultdict(list)
    for message_id, *row in fetch(
        db,
        "SELECT call.message_id, call.id, call.step_id, call.parent_id, call.project_id, tool.project_id AS tool_project_id, "
        "call.status, call.duration_ms, result.id IS NOT NULL AS has_result FROM traces_app_toolcall AS call "
        "LEFT JOIN traces_app_tool AS tool ON tool.id = call.tool_id "
        "LEFT JOIN traces_app_toolresult AS result ON result.id = call.id AND result.id >= %(first)s AND result.id < %(after)s "
        f"WHERE {_BELOW.format('call')} ORDER BY call.message_id, call.id",
        with_months(message_ids),
    ):
        calls[message_id].append(_Call._make(row))
    return calls


_BELOW = "{0}.message_id = ANY(%(messages)s) AND {0}.id >= %(first)s AND {0}.id < %(after)s"


def _problems(message: _Message, steps: Sequence[_Step], calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    """Yield (kind, detail) of each problem of a message."""
    yield from _iteration_problems(message, steps)
    yield from _result_problems(message, calls)
    yield from _nesting_problems(message, steps, calls)
    yield from _ownership_problems(message, calls)
    yield from _time_problems(message, steps, calls)
    yield from _count_problems(message, steps, calls)


def _input_problems(steps: Sequence[_Step], inputs: Mapping[UUID, int]) -> Iterator[tuple[str, str]]:
    for step in steps:
        if step.input_ref and inputs.get(step.id, -1):
            missing = f"{inputs[step.id]} of its entries" if step.id in inputs else "all of it"
            yield "input_missing", f"step {step.id}: {missing}"


def _iteration_problems(message: _Message, steps: Sequence[_Step]) -> Iterator[tuple[str, str]]:
    if [step.iteration for step in steps] == list(range(len(steps))):
        return  # as nearly all are: what follows takes four times as long
    together = Counter(step.iteration for step in steps)
    answer = message.answer_iteration or ""
    taken = [int(answer)] if answer.isascii() and answer.isdigit() and int(answer) < max(together, default=0) else []
    by_agent: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for step in steps:
        by_agent[step.agent_name][step.iteration] += 1
    if _is_in_order(together, taken) or all(_is_in_order(own, taken) for own in by_agent.values()):
        return
    if _is_in_order(Counter(step.iteration for step in _without_sub_agents(steps)), taken):
        return
    for number, own in enumerate(by_agent.values(), start=1):
        agent = f" of agent {number} of {len(by_agent)}" if len(by_agent) > 1 else ""
        missing = _gaps([*own, *taken])
        if missing:
            yield "iterations_missing", f"iterations {', '.join(missing)}{agent}"
        repeated = sorted(iteration for iteration, times in own.items() if times > 1)
        if repeated:
            yield "iterations_repeated", f"iterations {_shown(repeated)}{agent}"


def _without_sub_agents(steps: Sequence[_Step]) -> list[_Step]:
    """Return the steps, in their order, without those of other agents within the iteration of a step."""
    first: dict[int, _Step] = {}
    return [step for step in steps if first.setdefault(step.iteration, step).agent_name == step.agent_name]


def _is_in_order(iterations: Counter[int], taken: Sequence[int]) -> bool:
    return all(times == 1 for times in iterations.values()) and not _gaps([*iterations, *taken])


def _gaps(iterations: Iterable[int]) -> list[str]:
    """Return the missing numbers between 0 and the highest, as `3` or `5-7`."""
    gaps, expected = [], 0
    for iteration in sorted(set(iterations)):
        if iteration > expected:
            gaps.append(str(expected) if iteration == expected + 1 else f"{expected}-{iteration - 1}")
        expected = iteration + 1
    return gaps if len(gaps) <= _NUMBERS_SHOWN else [*gaps[:_NUMBERS_SHOWN], f"and {len(gaps) - _NUMBERS_SHOWN} more"]


def _result_problems(message: _Message, calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    pending = [call.id for call in calls if call.status == "pending"]
    if pending and message.is_completed:
        yield "call_open", f"calls {_shown(pending)}"
    without = [call.id for call in calls if call.status != "pending" and not call.has_result]
    if without:
        yield "call_without_result", f"calls {_shown(without)}"
    if "orphan_result" in message.health:
        yield "orphan_result", "flagged on arrival"


def _nesting_problems(message: _Message, steps: Sequence[_Step], calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    step_ids = {step.id for step in steps}
    stray = [call.id for call in calls if call.step_id not in step_ids]
    if stray:
        yield "step_missing", f"calls {_shown(stray)}"
    # Hashes of ids take a tenth of the time of the whole check.
    nested = any(call.parent_id is not None for call in calls)
    parents = {call.id: call.parent_id for call in calls} if nested else {}
    lost = [call_id for call_id, parent in parents.items() if parent is not None and parent not in parents]
    if lost:
        yield "parent_missing", f"calls {_shown(lost)}"
    elif "parent_unknown" in message.health:
        yield "parent_missing", "flagged on arrival"
    cycle = _cycle_members(parents)
    if cycle:
        yield "parent_cycle", f"calls {_shown(cycle)}"


def _cycle_members(parents: Mapping[UUID, UUID | None]) -> list[UUID]:
    """Return the calls that are their own ancestors. Each call is visited once."""
    done: set[UUID] = set()
    cycle: list[UUID] = []
    for start in parents:
        path: dict[UUID, int] = {}
        at: UUID | None = start
        while at is not None and at in parents and at not in done and at not in path:
            path[at] = len(path)
            at = parents[at]
        if at is not None and at in path:
            cycle += list(path)[path[at] :]
        done.update(path)
    return sorted(cycle)


def _ownership_problems(message: _Message, calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    if message.session_project_id is None:
        yield "session_missing", "no row of this session"
    elif message.session_project_id != message.project_id:
        yield "project_differs", "from its session"
    foreign = [
        call.id for call in calls if call.project_id != message.project_id or call.tool_project_id != message.project_id
    ]
    if foreign:
        yield "project_differs", f"calls {_shown(foreign)}, or their tools"


def _time_problems(message: _Message, steps: Sequence[_Step], calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    if not ids.is_ours(message.id, message.created_at, message.role):
        yield "time_differs", "the id of the message"
    rows = [step.id for step in steps] + [call.id for call in calls]
    below = [row_id for row_id in rows if not ids.is_child_of(message.id, row_id)]
    if below:
        yield "time_differs", f"below the message: {_shown(below)}"


def _count_problems(message: _Message, steps: Sequence[_Step], calls: Sequence[_Call]) -> Iterator[tuple[str, str]]:
    counted = rollup(
        _json(message.usage),
        ((step.id, step.duration_ms, _json(step.usage), _json(step.error), step.model, step.cost) for step in steps),
        ((call.step_id, call.parent_id, call.status, call.duration_ms) for call in calls),
        is_answer=message.role == "assistant" and message.is_completed and not message.has_error,
    )
    counted = counted._replace(
        duration_ms=duration_between(message.created_at, message.completed_at, counted.duration_ms)
    )
    wrong = [
        f"{name} {getattr(message, name)}, found {value}"
        for name, value in counted._asdict().items()
        if getattr(message, name) != value
    ]
    if wrong:
        yield "message_counts", "; ".join(wrong)


# --- Sessions, orphans ------------------------------------------------------------------------------------------------


def _check_sessions(db: Database, project_id: int | None, session_id: UUID | None, tally: Tally) -> Iterator[Problem]:
    last = UUID(int=0)
    while True:
        page = _rows(
            db,
            "SELECT id, created_at FROM messages_app_session WHERE id > %s AND (%s::bigint IS NULL OR project_id = %s) "
            f"AND (%s::uuid IS NULL OR id = %s) ORDER BY id LIMIT {_AT_ONCE}",
            [last, project_id, project_id, session_id, session_id],
        )
        if not page:
            return
        tally.sessions += len(page)
        for row in page:
            if ids.created_at_of(row["id"]) != row["created_at"]:
                yield Problem(
                    kind="time_differs", session_id=row["id"], message_id=None, detail="the id of the session"
                )
        for wrong, counters in disagreements(db, [row["id"] for row in page]).items():
            detail = "; ".join(f"{name} {stored}, found {counted}" for name, (stored, counted) in counters.items())
            yield Problem(kind="session_counts", session_id=wrong, message_id=None, detail=detail)
        last = page[-1]["id"]


_PARENTS = (
    # table, noun for its rows, column with the parent's id, table of the parents, kind of the problem
    ("messages_app_reference", "reference", "message_id", "messages_app_message", "orphan_row"),
    ("traces_app_agentstep", "step", "message_id", "messages_app_message", "orphan_row"),
    ("traces_app_toolcall", "call", "message_id", "messages_app_message", "orphan_row"),
    ("traces_app_event", "event", "message_id", "messages_app_message", "orphan_row"),
    ("traces_app_context", "context", "message_id", "messages_app_message", "orphan_row"),
    ("traces_app_toolresult", "result", "id", "traces_app_toolcall", "orphan_result"),
)


def _check_parents(db: Database) -> Iterator[Problem]:
    for table, word, column, parents, kind in _PARENTS:
        # Period by period, because parents are in the period of their children and the join of one is small.
        for period in periods_of(db, table):
            last = period.first_id
            while True:
                strays = _rows(
                    db,
                    f"SELECT child.id, child.{column} AS parent_id, parent.id IS NULL AS is_orphan FROM {table} AS child "
                    f"LEFT JOIN {parents} AS parent ON parent.id = child.{column} AND parent.id >= %(first)s AND parent.id < %(after)s "
                    f"WHERE child.id >= %(last)s AND child.id < %(after)s AND child.{column} IS NOT NULL "
                    "AND (parent.id IS NULL OR parent.project_id <> child.project_id) "
                    f"ORDER BY child.id LIMIT {_ORPHANS_AT_ONCE}",
                    {"last": last, "first": period.first_id, "after": period.after_id},
                )
                for row in strays:
                    yield Problem(
                        kind=kind if row["is_orphan"] else "project_differs",
                        session_id=None,
                        message_id=row["parent_id"] if column == "message_id" else None,
                        detail=f"{word} {row['id']}",
                    )
                if len(strays) < _ORPHANS_AT_ONCE:
                    break
                last = UUID(int=strays[-1]["id"].int + 1)
    for column, parents in (("message_id", "messages_app_message"), ("session_id", "messages_app_session")):
        lost = _rows(
            db,
            f"SELECT id, message_id, session_id FROM traces_app_score AS score WHERE {column} IS NOT NULL "
            f"AND NOT EXISTS (SELECT 1 FROM {parents} AS parent WHERE parent.id = score.{column}) ORDER BY id",
            [],
        )
        for row in lost:
            yield Problem(kind="orphan_row", session_id=None, message_id=row["message_id"], detail=f"score {row['id']}")


# --- Values -----------------------------------------------------------------------------------------------------------


def _rows(db: Database, statement: str, values: Sequence[Any] | Mapping[str, Any]) -> list[dict[str, Any]]:
    with db.cursor() as cursor:
        cursor.execute(statement, values)
        names = [column.name for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _json(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _shown(values: Sequence[object]) -> str:
    shown = ", ".join(map(str, values[:_NUMBERS_SHOWN]))
    return shown if len(values) <= _NUMBERS_SHOWN else f"{shown} and {len(values) - _NUMBERS_SHOWN} more"

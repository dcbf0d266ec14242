"""How several runs ended, and what each was asked and gave, for lists of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from access_app.db import Database
from messages_app.interruptions import shown_error
from messages_app.models import Message
from messages_app.safe_text import Excerpt, excerpt, first_characters
from messages_app.sql.beginnings import Beginning
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from traces_app.queries.questions import question_before

from .conversation import ids_below
from .display_text import without_tool_json
from .labels import session_name
from .outcome import Outcome, outcome_of_run
from .run_outline import ERROR_CHARACTERS
from .run_page import COMMANDS_COMPARED, EndedCall, deciding_failures
from .run_tree import reading_order
from .telling_texts import telling_line

ANSWER_CHARACTERS = 2_000
ROWS_READ = 10_000
"""Steps and calls, of all runs of a list with a failed call. Of a run beyond them each failure counts."""
ENDING = ("is_completed", "health", "failure_count", "step_count", "call_count", "session__status")
"""The columns that `endings` needs, beside the annotation `shown_error`."""


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended."""

    outcome: Outcome
    error: str
    """The line that tells most of its error, or of the failure that decided; "" if there is none."""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A run in a list: what it was asked, how it ended and what it gave."""

    run: Message
    session_name: str
    question: str
    outcome: Outcome
    error: str
    answer: Excerpt


def with_errors(runs: QuerySet[Any]) -> QuerySet[Any]:
    """Return the messages with the beginning of their errors, as `endings` needs it."""
    found: QuerySet[Any] = runs.annotate(shown_error=first_characters("error", ERROR_CHARACTERS))
    return found


def endings(runs: Iterable[Any]) -> dict[UUID, Ending]:
    """Return how runs ended, by their ids: runs of `with_errors`, of any database. Five queries a database, or none without failures."""
    of_db: dict[Database, list[Any]] = defaultdict(list)
    for run in runs:
        of_db[Database.of_row(run)].append(run)
    found = {}
    for db, some in of_db.items():
        deciding = _deciding_errors(db, some)
        for run in some:
            outcome = outcome_of_run(run, run.session, has_failed=bool(run.shown_error) or run.pk in deciding)
            error = telling_line(shown_error(run.shown_error)) or deciding.get(run.pk, "")
            found[run.pk] = Ending(outcome=outcome, error=error)
    return found


def _deciding_errors(db: Database, runs: Iterable[Any]) -> dict[UUID, str]:
    """Return the error of the call that decided, of the runs that have one."""
    rows = 0
    read: list[UUID] = []
    beyond: list[UUID] = []
    for run in runs:
        if run.failure_count:
            size = run.step_count + run.call_count
            rows += size if (fits := rows + size <= ROWS_READ) else 0
            (read if fits else beyond).append(run.pk)
    runs_read = _ended_calls(db, read)
    deciding = deciding_failures(db, runs_read, COMMANDS_COMPARED)
    calls = {key: runs_read[key][place].id for key, place in deciding.items()}
    results = db.rows(ToolResult.objects).filter(pk__in=list(calls.values()))
    errors = dict(results.values_list("pk", first_characters("error", ERROR_CHARACTERS)))
    return dict.fromkeys(beyond, "") | {key: telling_line(errors.get(call, "")) for key, call in calls.items()}


def _ended_calls(db: Database, messages: Collection[UUID]) -> dict[UUID, list[EndedCall]]:
    """Return the calls of runs in reading order, without their arguments. Three queries."""
    if not messages:
        return {}
    below = {"message_id__in": list(messages), **ids_below(messages)}
    steps: dict[UUID, list[Any]] = {key: [] for key in messages}
    calls: dict[UUID, list[Any]] = {key: [] for key in messages}
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
    tools = dict(
        db.rows(Tool.objects)
        .filter(pk__in={row[5] for of_run in calls.values() for row in of_run})
        .values_list("pk", "name")
    )
    found = {}
    for key in messages:
        first = len(steps[key])
        order, _depths = reading_order(
            [row[1] for row in steps[key]],
            [row[2] for row in steps[key]],
            [row[1] for row in calls[key]],
            [row[2] for row in calls[key]],
            [row[3] for row in calls[key]],
        )
        found[key] = [
            EndedCall(place, call, tools[tool], status == ToolCall.Status.ERROR, status == ToolCall.Status.PENDING)
            for place, (_run, call, _step, _parent, status, tool) in enumerate(
                calls[key][node - first] for node in order if node >= first
            )
        ]
    return found


def read_listed(db: Database, keys: Collection[UUID]) -> dict[UUID, ListedRun]:
    """Return runs for a list, but those that are deleted. Six queries, or one without failures."""
    rows: dict[UUID, Any] = (
        with_errors(db.rows(Message.objects).all())
        .select_related("session")
        .defer("content", "content_parts", "error", "metadata", "session__metadata")
        .annotate(
            answer=Beginning("content", ANSWER_CHARACTERS),
            question=Subquery(question_before(db, OuterRef("session_id"), OuterRef("pk"), 300)),
        )
        .in_bulk(list(keys))
    )
    ended = endings(rows.values())
    return {
        key: ListedRun(
            run=run,
            session_name=session_name(run.session),
            question=run.question or "",
            outcome=ended[key].outcome,
            error=ended[key].error,
            answer=excerpt(without_tool_json(run.answer).strip()),
        )
        for key, run in rows.items()
    }

"""How several runs ended, and what each was asked and gave, for lists of runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import OuterRef, QuerySet, Subquery

from access_app.db import Database
from messages_app.display_text import without_tool_json
from messages_app.interruptions import shown_error
from messages_app.models import NONE_DECIDED, Message
from messages_app.safe_text import Excerpt, excerpt, first_characters
from messages_app.sql.beginnings import Beginning
from traces_app.models import ToolResult
from traces_app.queries.questions import question_before
from traces_app.queries.session_names import read_session_names

from .deciding import deciding_calls
from .outcome import Outcome, outcome_of_run
from .outline import ERROR_CHARACTERS
from .telling_texts import plain, telling_line

ANSWER_CHARACTERS = 2_000
ENDING = ("is_completed", "health", "failure_count", "step_count", "call_count", "decided_by", "session__status")
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

    @property
    def said(self) -> str:
        """The first words of the answer, without the signs of Markdown."""
        return plain(self.answer.head)


def with_errors(runs: QuerySet[Any]) -> QuerySet[Any]:
    """Return the messages with the beginning of their errors, as `endings` needs it."""
    found: QuerySet[Any] = runs.annotate(shown_error=first_characters("error", ERROR_CHARACTERS))
    return found


def endings(runs: Iterable[Any], decided: Mapping[UUID, UUID] | None = None) -> dict[UUID, Ending]:
    """Return how runs ended, by their ids: runs of `with_errors`, of any database. One query a database, and four for runs that ended
    just now, unless `decided` has the call that decided each of them, or NONE_DECIDED."""
    of_db: dict[Database, list[Any]] = defaultdict(list)
    for run in runs:
        of_db[Database.of_row(run)].append(run)
    found = {}
    for db, some in of_db.items():
        deciding = _deciding_errors(db, some, decided or {})
        for run in some:
            outcome = outcome_of_run(run, run.session, has_failed=bool(run.shown_error) or run.pk in deciding)
            error = telling_line(shown_error(run.shown_error)) or deciding.get(run.pk, "")
            found[run.pk] = Ending(outcome=outcome, error=error)
    return found


def _deciding_errors(db: Database, runs: Iterable[Message], decided: Mapping[UUID, UUID]) -> dict[UUID, str]:
    """Return the error of the call that decided, of the runs that have one. One query, and four for runs of which it is not stored yet."""
    failed = [run for run in runs if run.failure_count]
    found = deciding_calls(db, [run for run in failed if run.pk not in decided])
    found |= {run.pk: decided[run.pk] for run in failed if run.pk in decided}
    calls = {key: call for key, call in found.items() if call != NONE_DECIDED}
    results = db.rows(ToolResult.objects).filter(pk__in=list(calls.values()))
    errors = dict(results.values_list("pk", first_characters("error", ERROR_CHARACTERS))) if calls else {}
    return {key: telling_line(errors.get(call, "")) for key, call in calls.items()}


def read_listed(
    db: Database, keys: Collection[UUID], decided: Mapping[UUID, UUID] | None = None
) -> dict[UUID, ListedRun]:
    """Return runs for a list, but those that are deleted. Seven queries, or one without failures and with titles. `decided` as of
    `endings`."""
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
    ended = endings(rows.values(), decided)
    names = read_session_names(run.session for run in rows.values())
    return {
        key: ListedRun(
            run=run,
            session_name=names[run.session_id],
            question=run.question or "",
            outcome=ended[key].outcome,
            error=ended[key].error,
            answer=excerpt(without_tool_json(run.answer).strip()),
        )
        for key, run in rows.items()
    }

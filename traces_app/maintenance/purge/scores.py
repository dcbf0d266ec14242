"""Remove and count scores."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from access_app.db import Database
from messages_app.sql.periods import Period
from traces_app.maintenance.statements import fetch
from traces_app.models import Score

from .reports import PurgeReport
from .scopes import PurgeScope, expired_below
from .statements import SCORES, Condition, size_of


def scores_of_period(period: Period) -> Condition:
    return Condition("message_id >= %s AND message_id < %s", [period.first_id, period.after_id])


def pending_scores(scope: PurgeScope) -> Condition:
    """Return the condition of expired scores whose trace or session never arrived."""
    pending = Condition("session_id IS NULL AND id < %s", [expired_below(scope)])
    if scope.session_id is not None:
        return Condition("false")
    if scope.project_ids is not None:
        pending &= Condition("project_id = ANY(%s)", [list(scope.project_ids)])
    return pending


def remove_scores(db: Database, condition: Condition) -> tuple[int, int]:
    """Delete scores; return (rows, size of the rows)."""
    ((rows, size),) = fetch(
        db,
        f"WITH gone AS (DELETE FROM {SCORES} WHERE {condition.sql} RETURNING {size_of(Score)} AS size) "
        "SELECT count(*), coalesce(sum(size), 0)::bigint FROM gone",
        condition.values,
    )
    return rows, size


def survey_scores(db: Database, condition: Condition, report: PurgeReport) -> None:
    ((rows, size),) = fetch(
        db,
        f"SELECT count(*), coalesce(sum({size_of(Score)}), 0)::bigint FROM {SCORES} WHERE {condition.sql}",
        condition.values,
    )
    report.add(Score, rows, size)

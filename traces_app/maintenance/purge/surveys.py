"""Count what a purge would remove, without removing it."""

# ruff: noqa: S608 - SQL is built from the texts in this package and the names of tables, columns and leaves

from __future__ import annotations

from access_app.db import Database
from messages_app.models import Message, Reference, Session
from messages_app.sql.partitions import periods_of
from messages_app.sql.periods import Period
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.statements import fetch
from traces_app.models import AgentStep, Context, Event, Span, ToolCall, ToolResult

from .periods import whole_periods
from .reports import NAME_OF_TABLE, PurgeReport
from .scopes import PurgeScope, expired_below, sessions_not_kept, sessions_of
from .scores import pending_scores, scores_of_period, survey_scores
from .statements import MESSAGES, OF_TRACE, SESSIONS, Condition, size_of


def survey(db: Database, *scopes: PurgeScope) -> PurgeReport:
    """Count the rows that `purge` would remove now. A row in several scopes counts in each."""
    report = PurgeReport()
    whole = set(whole_periods(db, scopes))
    for period in periods_of(db, MESSAGES):
        if period in whole:
            report.periods.append(str(period))
            _survey_whole_period(db, period, report)
            survey_scores(db, scores_of_period(period), report)
            continue
        for scope in scopes:
            if scope.deleted_before or period.first_id < expired_below(scope):
                _survey_period(db, scope, period, report)
    for scope in scopes:
        _survey_sessions(db, scope, report)
        survey_scores(db, pending_scores(scope), report)
    return report


def _survey_whole_period(db: Database, period: Period, report: PurgeReport) -> None:
    for table in TABLES:
        leaf = period.leaf(table.name)
        if fetch(db, "SELECT to_regclass(%s) IS NOT NULL", [leaf]) == [(True,)]:
            ((rows, size),) = fetch(db, f"SELECT count(*), pg_total_relation_size('{leaf}') FROM {leaf}")
            table_report = report.tables[NAME_OF_TABLE[table.name]]
            table_report.rows += rows
            table_report.bytes_freed += size


def _survey_period(db: Database, scope: PurgeScope, period: Period, report: PurgeReport) -> None:
    doomed = Condition("message.id >= %s AND message.id < %s", [period.first_id, period.after_id])
    if scope.session_id is not None:
        doomed &= Condition("message.session_id = %s", [scope.session_id])
    if scope.project_ids is not None:
        doomed &= Condition("message.project_id = ANY(%s)", [list(scope.project_ids)])
    old = Condition("message.id < %s", [expired_below(scope)]) & sessions_not_kept(scope, "session")
    if scope.deleted_before:
        old |= Condition("message.deleted_at < %s OR session.deleted_at < %s", [scope.deleted_before] * 2)
    doomed &= old
    messages = f"{MESSAGES} AS message LEFT JOIN {SESSIONS} AS session ON session.id = message.session_id"
    sources = {
        Message: (messages, "message"),
        Reference: (f"{Reference._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        AgentStep: (f"{AgentStep._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        ToolCall: (f"{ToolCall._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        ToolResult: (
            f"{ToolResult._meta.db_table} AS child JOIN {ToolCall._meta.db_table} AS call ON call.id = child.id "
            f"AND call.id >= '{period.first_id}' AND call.id < '{period.after_id}' "
            f"JOIN {messages} ON message.id = call.message_id",
            "child",
        ),
        Event: (f"{Event._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
        Context: (f"{Context._meta.db_table} AS child JOIN {messages} ON message.id = child.message_id", "child"),
    }
    for model, (source, alias) in sources.items():
        in_month = Condition(f"{alias}.id >= %s AND {alias}.id < %s", [period.first_id, period.after_id]) & doomed
        ((rows, size),) = fetch(
            db,
            f"SELECT count(*), coalesce(sum({size_of(model, alias)}), 0)::bigint FROM {source} WHERE {in_month.sql}",
            in_month.values,
        )
        report.add(model, rows, size)
    in_month = Condition("message.id >= %s AND message.id < %s", [period.first_id, period.after_id]) & doomed
    ((rows, size),) = fetch(
        db,
        f"SELECT count(*), coalesce(sum({size_of(Span, 'span')}), 0)::bigint FROM {Span._meta.db_table} AS span "
        f"WHERE EXISTS (SELECT 1 FROM {messages} WHERE message.project_id = span.project_id AND message.{OF_TRACE} "
        f"AND message.metadata ->> 'trace_id' = replace(span.trace_id::text, '-', '') AND {in_month.sql})",
        in_month.values,
    )
    report.add(Span, rows, size)
    table = Context._meta.db_table
    ((rows, size),) = fetch(
        db,
        f"WITH doomed AS (SELECT message.id, message.session_id FROM {messages} WHERE {in_month.sql}), used AS ("
        f"SELECT DISTINCT unnest(entries) AS id FROM {table} WHERE kind <> 'entry' AND id >= %s AND id < %s "
        "AND session_id IN (SELECT session_id FROM doomed) AND message_id NOT IN (SELECT id FROM doomed)) "
        f"SELECT count(*), coalesce(sum({size_of(Context, 'entry')}), 0)::bigint FROM {table} AS entry "
        "WHERE kind = 'entry' AND message_id IS NULL AND id >= %s AND id < %s "
        "AND session_id IN (SELECT session_id FROM doomed) AND NOT EXISTS (SELECT 1 FROM used WHERE used.id = entry.id)",
        [*in_month.values, *[period.first_id, period.after_id] * 2],
    )
    report.add(Context, rows, size)
    of_messages = f"message_id IN (SELECT message.id FROM {messages} WHERE {in_month.sql})"
    survey_scores(db, Condition(of_messages, in_month.values), report)


def _survey_sessions(db: Database, scope: PurgeScope, report: PurgeReport) -> None:
    doomed = Condition("false")
    if scope.deleted_before:
        doomed |= Condition("session.deleted_at < %s", [scope.deleted_before])
    if scope.created_before:
        below = expired_below(scope)
        stays = Condition("id >= %s", [below])
        unkept = sessions_not_kept(scope, "session")
        if scope.deleted_before:
            stays &= Condition("(deleted_at >= %s OR deleted_at IS NULL)", [scope.deleted_before])
        doomed |= Condition(
            f"(session.id < %s AND session.created_at < %s AND {unkept.sql} AND session.id NOT IN "
            f"(SELECT session_id FROM {MESSAGES} WHERE session_id < %s AND {stays.sql}))",
            [below, scope.created_before, *unkept.values, below, *stays.values],
        )
    wanted = sessions_of(scope) & doomed
    ((rows, size),) = fetch(
        db,
        f"SELECT count(*), coalesce(sum({size_of(Session, 'session')}), 0)::bigint FROM {SESSIONS} AS session "
        f"WHERE {wanted.sql}",
        wanted.values,
    )
    report.add(Session, rows, size)
    of_sessions = (
        f"message_id IS NULL AND session_id IN (SELECT session.id FROM {SESSIONS} AS session WHERE {wanted.sql})"
    )
    survey_scores(db, Condition(of_sessions, wanted.values), report)

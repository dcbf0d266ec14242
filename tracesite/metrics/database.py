"""Gauges of the database for `/metrics`: connections, months, rows, age of the newest message.

They are read over a connection of their own with short timeouts, so that a scrape does not wait for a database that hangs.
The timeouts end with each transaction, because a pooler lends the connection behind it to requests. Every query is cheap for
tables of any size: catalogues, estimates, one entry of an index; never a count of rows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db import Error
from django.db.backends.base.base import BaseDatabaseWrapper
from prometheus_client.core import GaugeMetricFamily, Metric

from access_app.db import primary
from access_app.db.replica import STARTING_SECONDS, ReplicaState, replica_state
from access_app.db.states import DatabaseState, database_states
from messages_app.change_log import LAGS, Reader
from messages_app.sql.periods import Period
from traces_app.ingest.metrics import MESSAGES
from traces_app.ingest.partitions import TABLES
from traces_app.maintenance.jobs import JOBS
from traces_app.models import JobRun
from traces_app.queries.due_traces import LAG as LAG_OF_TRACES
from tracesite_sdk.records import ids

logger = logging.getLogger(__name__)

# libpq's minimum is 2. With a hanging database a scrape takes 2 s, or 6 s if it begins to hang during the scrape; Prometheus
# waits for 10.
CONNECT_SECONDS = 2
STATEMENT_MS = 2000
# A month that is being dropped is locked for a moment. Waiting for longer would hold up the statements queued behind it.
LOCK_MS = 200

Row = tuple[Any, ...]

_LEAVES = """
    SELECT parent.relname AS parent, leaf.relname AS leaf, leaf.reltuples, leaf.oid
    FROM pg_class parent JOIN pg_inherits ON inhparent = parent.oid JOIN pg_class leaf ON leaf.oid = inhrelid
    WHERE parent.oid = ANY(%s::regclass[]) AND NOT inhdetachpending
"""


def database_metrics() -> list[Metric]:
    """Never raises for a database that is away: then `tracesite_database_up` is 0 and the others are missing.

    So are gauges whose query took too long.
    """
    is_up = _gauge("tracesite_database_up", "1 if the database responds, else 0.")
    metrics: list[Metric] = [is_up]
    own = primary.connection.copy()
    own.settings_dict["OPTIONS"] = {
        **own.settings_dict["OPTIONS"],
        "connect_timeout": CONNECT_SECONDS,
        "tcp_user_timeout": STATEMENT_MS,
        "application_name": "tracesite metrics",
    }
    with closing(own):
        try:
            _rows(own, "SELECT 1", [])
        except Error as error:
            logger.warning("the database does not respond to /metrics: %s", type(error.__cause__ or error).__name__)
            is_up.add_metric([], 0)
            return metrics
        is_up.add_metric([], 1)
        metrics += replica_metrics(replica_state(wait_seconds=STARTING_SECONDS))
        patience = time.monotonic() + STATEMENT_MS / 1000
        for statement, parameters, metrics_of in _questions():
            if time.monotonic() > patience:
                break
            try:
                rows = _rows(own, statement, parameters)
            except Error as error:
                logger.warning("metrics are missing: %s", type(error.__cause__ or error).__name__)
            else:
                metrics += metrics_of(rows)
        try:
            metrics += project_database_metrics(database_states())
        except Error as error:
            logger.warning("metrics are missing: %s", type(error.__cause__ or error).__name__)
    return metrics


def _rows(own: BaseDatabaseWrapper, statement: str, parameters: list[Any]) -> list[Row]:
    with own.cursor() as cursor, own.wrap_database_errors, own.connection.transaction():
        cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_MS}; SET LOCAL lock_timeout = {LOCK_MS}")
        cursor.execute(statement, parameters)
        rows: list[Row] = cursor.fetchall()
        return rows


def replica_metrics(state: ReplicaState | None) -> list[Metric]:
    """Return the gauges of the replica; none without one."""
    if state is None:
        return []
    used = _gauge("tracesite_replica_used", "1 if the replica answers reads, else 0, with the reason.", "reason")
    used.add_metric([state.reason], 0 if state.reason else 1)
    lag = _gauge(
        "tracesite_replica_lag_seconds", "Time by which the replica may be behind; missing if it is not known."
    )
    if state.lag_seconds is not None:
        lag.add_metric([], state.lag_seconds)
    return [used, lag]


def project_database_metrics(states: list[DatabaseState]) -> list[Metric]:
    """Return the gauge of the databases of projects; none without one."""
    is_up = _gauge(
        "tracesite_project_database_up",
        "1 if the database of projects responds and is migrated, else 0, with the reason.",
        "alias",
        "reason",
    )
    for state in states:
        is_up.add_metric([state.alias, state.reason], 0 if state.reason else 1)
    return [is_up] if states else []


def _questions() -> Iterator[tuple[str, list[Any], Callable[[list[Row]], Iterable[Metric]]]]:
    tables = [table.name for table in TABLES]
    application = primary.connection.settings_dict["OPTIONS"].get("application_name", "")
    yield (
        """
        SELECT CASE WHEN datname = current_database() AND application_name = %s THEN 'tracesite' ELSE 'other' END,
            replace(split_part(coalesce(state, 'unknown'), ' (', 1), ' ', '_'), count(*),
            extract(epoch FROM max(now() - xact_start))::float8
        FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() GROUP BY 1, 2
        """,
        [application],
        _connections,
    )
    yield (
        "SELECT current_setting('max_connections')::int, pg_database_size(current_database())",
        [],
        _limits,
    )
    yield (
        f"SELECT parent, count(*), max(leaf), sum(greatest(reltuples, 0)) FROM ({_LEAVES}) leaves GROUP BY 1",  # noqa: S608 - a constant
        [tables],
        _partitions,
    )
    yield f"SELECT id FROM {MESSAGES} ORDER BY id DESC LIMIT 1", [], _newest  # noqa: S608 - a constant
    yield LAGS, [list(Reader)], _lags
    yield LAG_OF_TRACES, [], _lag_of_traces
    yield (
        "SELECT name, extract(epoch FROM now() - started_at)::float8, extract(epoch FROM finished_at - started_at)::float8, "  # noqa: S608 - a constant
        f"error = '', extract(epoch FROM now() - next_at)::float8 FROM {JobRun._meta.db_table} WHERE name = ANY(%s) ORDER BY name",
        [[job.name for job in JOBS if job.is_on()]],
        _jobs,
    )


def _connections(rows: list[Row]) -> Iterable[Metric]:
    connections = _gauge("tracesite_database_connections", "Open connections.", "client", "state")
    for client, state, count, _seconds in rows:
        connections.add_metric([client, state], count)
    oldest = _gauge("tracesite_database_oldest_transaction_seconds", "Age of the oldest open transaction.")
    oldest.add_metric([], max((seconds for *_, seconds in rows if seconds is not None), default=0))
    return connections, oldest


def _limits(rows: list[Row]) -> Iterable[Metric]:
    ((most, size),) = rows
    max_connections = _gauge("tracesite_database_max_connections", "The server's max_connections.")
    max_connections.add_metric([], most)
    size_bytes = _gauge("tracesite_database_size_bytes", "Size of the database on disk.")
    size_bytes.add_metric([], size)
    return max_connections, size_bytes


def _partitions(rows: list[Row]) -> Iterable[Metric]:
    periods = _gauge(
        "tracesite_partitions", "Periods (days, weeks or months) for which a table has partitions.", "table"
    )
    end = _gauge("tracesite_partitions_end_seconds", "Time until the last of these periods ends.", "table")
    estimate = _gauge("tracesite_table_rows", "Rows, as estimated by the planner.", "table")
    now = datetime.now(UTC)
    for table, count, last, tuples in rows:
        periods.add_metric([table], count)
        end.add_metric([table], (Period.of_leaf(last).ends_at - now).total_seconds())
        estimate.add_metric([table], tuples)
    return periods, end, estimate


def _newest(rows: list[Row]) -> Iterable[Metric]:
    age = _gauge("tracesite_newest_message_age_seconds", "Time since created_at of the newest message.")
    for (message_id,) in rows:
        age.add_metric([], (datetime.now(UTC) - ids.created_at_of(UUID(str(message_id)))).total_seconds())
    return (age,)


def _lags(rows: list[Row]) -> Iterable[Metric]:
    lag = _gauge("tracesite_change_log_lag_seconds", "Age of the oldest change that a reader has not read.", "reader")
    for number, seconds in rows:
        lag.add_metric([list(Reader)[number - 1]], max(seconds or 0, 0))
    return (lag,)


def _lag_of_traces(rows: list[Row]) -> Iterable[Metric]:
    ((seconds,),) = rows
    lag = _gauge("tracesite_traces_lag_seconds", "Time since a trace was due whose messages are not made yet.")
    lag.add_metric([], seconds or 0)
    return (lag,)


def _jobs(rows: list[Row]) -> Iterable[Metric]:
    age = _gauge("tracesite_job_age_seconds", "Time since the last run of a job started.", "job")
    duration = _gauge("tracesite_job_duration_seconds", "How long the last run took; missing while it runs.", "job")
    success = _gauge("tracesite_job_success", "1 if the last run that ended had no error, else 0.", "job")
    overdue = _gauge("tracesite_job_overdue_seconds", "Time for which a job has been due; 0 if it is not.", "job")
    for name, seconds, taken, is_good, late in rows:
        age.add_metric([name], seconds)
        if taken is not None:
            duration.add_metric([name], taken)
        success.add_metric([name], is_good)
        overdue.add_metric([name], max(late, 0))
    return age, duration, success, overdue


def _gauge(name: str, meaning: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, meaning, labels=labels)

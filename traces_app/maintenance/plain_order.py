"""Let PostgreSQL find the messages that are plainly in order, so that the integrity check reads the rows of the others only.

Most messages are in order, and most of those in the plain way: iterations 0, 1, 2 ..., no error of a model. To read their rows into
Python took most of the time of a check. So one statement for a page of messages adds up what is below each and compares it. It says
"in order" only if every check of traces_app.maintenance.integrity would find nothing; what it finds wrong or cannot decide is not
plain, and then those checks decide and word the problems. Whoever adds a check there adds its condition here, or makes the messages
that it may be about not plain.
"""

# ruff: noqa: S608 - SQL is built from the texts in this file

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from access_app.db import Database
from messages_app.sql.periods import Length, Period
from tracesite_sdk.normalize.pricing import TOKENS_IN, TOKENS_OUT
from tracesite_sdk.records import ids


class Verdict(NamedTuple):
    """The findings about a message without its rows."""

    message_id: UUID
    step_count: int
    call_count: int
    """The rows that there are, not what the message says."""
    is_plain: bool
    """Whether it is in order. If not, nothing is known."""


def verdicts(db: Database, message_ids: Sequence[UUID]) -> list[Verdict]:
    """Return a verdict on each of these messages, which are given in order.

    Call it in a transaction; in one of one snapshot, so that what is written meanwhile is not compared with what was before.
    """
    with db.cursor() as cursor:
        # Where a table was not analysed, as after it was restored, the planner expects a few rows of thousands, and would go
        # through all calls for each call: 85 s for a thousand messages instead of 0.4.
        cursor.execute("SET LOCAL enable_nestloop = off")
        cursor.execute(_VERDICTS, with_months(message_ids))
        judged = [Verdict._make(row) for row in cursor.fetchall()]
        cursor.execute("SET LOCAL enable_nestloop TO DEFAULT")
        return judged


def with_months(message_ids: Sequence[UUID]) -> dict[str, Any]:
    """Return messages, given in order, and the bounds of their months.

    Foreign keys keep the rows below a message in its month, though their ids may have another microsecond.
    """
    first, last = (
        Period.of(ids.created_at_of(message_id), Length.MONTH) for message_id in (message_ids[0], message_ids[-1])
    )
    return {"messages": list(message_ids), "first": first.first_id, "after": last.after_id}


def _count_of(usage: str, names: Sequence[str]) -> str:
    """Return SQL for the tokens of a usage as `tracesite_sdk.normalize.pricing.tokens` counts them; null if only Python can say."""
    said = ", ".join(f"{usage} -> '{name}'" for name in names)
    return f"substring(coalesce({said}, '0')::text FROM '^[0-9]{{1,12}}$')::bigint"


_VERDICTS = f"""
WITH message AS MATERIALIZED (
    SELECT message.id, message.project_id, message.role, message.is_completed, message.error <> '' AS has_error, message.health, message.created_at,
        message.completed_at, message.step_count, message.call_count, message.failure_count, message.model_error_count,
        message.input_tokens, message.output_tokens, message.duration_ms, message.cost, message.unpriced_count,
        (SELECT project_id FROM messages_app_session WHERE id = message.session_id) AS session_project_id,
        {_count_of("message.usage", TOKENS_IN)} AS said_in, {_count_of("message.usage", TOKENS_OUT)} AS said_out
    FROM messages_app_message AS message
    WHERE message.id = ANY(%(messages)s) AND message.id >= %(first)s AND message.id < %(after)s
), step AS MATERIALIZED (
    SELECT step.id, step.message_id, step.iteration, step.duration_ms, step.cost,
        step.model <> '' OR step.usage NOT IN ('{{}}', 'null') AS is_request,
        CASE WHEN said_in + said_out > 0 THEN 0 ELSE {_count_of("step.usage", TOKENS_IN)} END AS tokens_in,
        CASE WHEN said_in + said_out > 0 THEN 0 ELSE {_count_of("step.usage", TOKENS_OUT)} END AS tokens_out,
        ({ids.is_child_in_sql("step.message_id", "step.id")} AND step.input_ref = '' AND NOT step.metadata ? 'error')
            AS is_plain
    FROM message JOIN traces_app_agentstep AS step ON step.message_id = message.id
    WHERE step.message_id = ANY(%(messages)s) AND step.id >= %(first)s AND step.id < %(after)s
), steps AS (
    SELECT message_id, count(*) AS steps, count(DISTINCT iteration) AS iterations, min(iteration) AS first_iteration,
        max(iteration) AS last_iteration, count(duration_ms) AS timed, sum(duration_ms) AS duration_ms, sum(cost) AS cost,
        count(*) FILTER (WHERE is_request AND cost IS NULL) AS unpriced,
        bool_or(is_request OR cost IS NOT NULL) AS has_request, sum(tokens_in) AS tokens_in, sum(tokens_out) AS tokens_out,
        bool_and(tokens_in IS NOT NULL AND tokens_out IS NOT NULL) AS tokens_are_known,
        bool_and(is_plain IS TRUE) AS are_plain
    FROM step GROUP BY message_id
), call AS MATERIALIZED (
    SELECT call.id, call.message_id, call.step_id, call.parent_id, call.project_id, call.tool_id, call.status, call.duration_ms
    FROM traces_app_toolcall AS call
    WHERE call.message_id = ANY(%(messages)s) AND call.id >= %(first)s AND call.id < %(after)s
), calls AS (
    SELECT call.message_id, count(*) AS calls, count(*) FILTER (WHERE call.status = 'error') AS failures,
        bool_or(call.status = 'pending') AS has_open,
        sum(call.duration_ms) FILTER (WHERE call.parent_id IS NULL) AS duration_ms,
        min(call.project_id) AS lowest_project_id, max(call.project_id) AS highest_project_id,
        bool_and((step.id IS NOT NULL AND tool.project_id = call.project_id
            -- Deeper ones could form a cycle.
            AND (call.parent_id IS NULL OR parent.id IS NOT NULL AND parent.parent_id IS NULL)
            AND (call.status = 'pending' OR result.id IS NOT NULL)
            AND {ids.is_child_in_sql("call.message_id", "call.id")}) IS TRUE) AS are_plain
    FROM call
    LEFT JOIN step ON step.id = call.step_id AND step.message_id = call.message_id
    LEFT JOIN call AS parent ON parent.id = call.parent_id AND parent.message_id = call.message_id
    LEFT JOIN traces_app_tool AS tool ON tool.id = call.tool_id
    -- One by one (OFFSET), because between the messages of a session may be all those of others.
    LEFT JOIN LATERAL (
        SELECT id FROM traces_app_toolresult WHERE id = call.id AND id >= %(first)s AND id < %(after)s OFFSET 0
    ) AS result ON true
    GROUP BY call.message_id
)
SELECT message.id, coalesce(steps, 0), coalesce(calls, 0), (
    message.step_count = coalesce(steps, 0) AND message.call_count = coalesce(calls, 0)
    AND message.failure_count = coalesce(failures, 0) AND message.model_error_count = 0
    AND message.cost IS NOT DISTINCT FROM steps.cost AND message.unpriced_count = coalesce(unpriced, 0) + (
        message.role = 'assistant' AND message.is_completed AND NOT message.has_error AND has_request IS NOT TRUE
    )::int
    AND CASE WHEN said_in + said_out > 0 THEN message.input_tokens = said_in AND message.output_tokens = said_out
        WHEN said_in + said_out = 0 AND coalesce(tokens_are_known, true)
        THEN message.input_tokens = coalesce(tokens_in, 0) AND message.output_tokens = coalesce(tokens_out, 0) END
    AND CASE WHEN message.completed_at IS NOT NULL
        -- Half milliseconds are rounded otherwise in Python.
        THEN abs(greatest(extract(epoch FROM message.completed_at - message.created_at) * 1000, 0) - message.duration_ms) < 0.5
        WHEN coalesce(timed, 0) = coalesce(steps, 0) THEN message.duration_ms IS NOT DISTINCT FROM steps.duration_ms
        WHEN timed = 0 THEN message.duration_ms IS NOT DISTINCT FROM calls.duration_ms END
    AND (steps IS NULL OR (steps.are_plain AND iterations = steps AND first_iteration = 0 AND last_iteration = steps - 1))
    AND (calls IS NULL OR (calls.are_plain AND NOT (has_open AND message.is_completed)
        AND lowest_project_id = message.project_id AND highest_project_id = message.project_id))
    AND session_project_id = message.project_id AND NOT message.health && ARRAY['orphan_result', 'parent_unknown']
    AND {ids.is_ours_in_sql("message.id", "message.created_at", "message.role")}
) IS TRUE
FROM message LEFT JOIN steps ON steps.message_id = message.id LEFT JOIN calls ON calls.message_id = message.id
ORDER BY message.id
"""

"""Floor of reads: the same rows as the same JSON, by psycopg and msgspec alone.

It reads in two ways, of which the faster one counts: one flat statement per table, with JSON by msgspec (`flat`), and one
statement that builds the JSON in PostgreSQL (`json_agg`). Both leave out permissions, sessions in the trash, and
references, because the workload has none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import psycopg
from msgspec import UNSET, Raw, Struct, UnsetType

# Times in the format of the server. PostgreSQL formats them faster than Python.
_TIME = """to_char({0} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


@dataclass(frozen=True, kw_only=True)
class Page:
    """Selection of messages: the text after WHERE, with named parameters.

    ORDER BY must name the table, because a bare `id` is the selected text, which no index is sorted by.
    """

    where: str
    values: dict[str, Any]
    oldest_first: bool = False


class Result(Struct, gc=False):
    status: str
    success: bool
    output: str
    data: Raw | UnsetType
    error: str | UnsetType
    metadata: Raw | UnsetType


class Call(Struct, gc=False):
    id: str
    uuid: str
    name: str
    args: Raw
    result: Result | None
    duration: int | None
    status: str
    started_at: str | None
    completed_at: str | None
    reflection: str | UnsetType


class PlacedCall(Struct, gc=False):
    """Call without its message."""

    id: str
    uuid: str
    name: str
    session_id: str
    message_id: str
    step_id: str
    created_at: str
    iteration: int
    position: int
    args: Raw
    result: Result | None
    duration: int | None
    status: str
    started_at: str | None
    completed_at: str | None
    reflection: str | UnsetType


class Step(Struct, gc=False):
    id: str
    iteration: int
    thought: str
    tool_calls: list[Call]
    timestamp: str | None
    duration: int | None
    agent_name: str
    model: str
    usage: Raw
    reasoning_content: str


class Message(Struct, gc=False):
    id: str
    session_id: str
    external_id: str
    request_id: str
    role: str
    content: str
    knowledge_references: list[None]
    agent_steps: list[Step]
    is_completed: bool
    created_at: str
    updated_at: str
    completed_at: str | None
    deleted_at: None
    version: int
    usage: Raw
    error: str
    duration: int | None
    step_count: int
    call_count: int
    failure_count: int
    model_error_count: int
    input_tokens: int
    output_tokens: int
    cost: float | None
    unpriced_count: int
    health: list[str]
    redactions: Raw
    metadata: Raw


class Resources(Struct, gc=False):
    input_tokens: int
    output_tokens: int
    total_tokens: int
    duration: int


class Session(Struct, gc=False):
    id: str
    project: str
    external_id: str
    title: str
    description: str
    end_user: str
    status: str
    outcome: str
    status_is_explicit: bool
    current_phase: str
    workflow: None
    tags: list[str]
    metadata: Raw
    redactions: Raw
    message_count: int
    call_count: int
    failure_count: int
    problem_count: int
    cost: float | None
    unpriced_count: int
    resources: Resources
    last_event: int
    created_at: str
    updated_at: str
    active_at: str
    deleted_at: None


_MESSAGES = f"""
    SELECT id::text, session_id::text, external_id, request_id, role, content, is_completed,
        {_TIME.format("created_at")}, {_TIME.format("updated_at")}, {_TIME.format("completed_at")},
        version, usage::text, error, duration_ms, step_count, call_count, failure_count, model_error_count,
        input_tokens, output_tokens, cost::float, unpriced_count, health, redactions::text, metadata::text
    FROM messages_app_message
    """
_STEPS = f"""
    SELECT message_id::text, id::text, iteration, thought, {_TIME.format("timestamp")}, duration_ms, agent_name, model,
        usage::text, reasoning
    FROM traces_app_agentstep WHERE message_id = ANY(%(ids)s::uuid[]) AND id BETWEEN %(first)s AND %(last)s ORDER BY iteration, ordinal
    """
_CALL = f"""
    call.call_id, call.id::text, tool.name, call.args::text, call.duration_ms, call.status,
    {_TIME.format("call.started_at")}, {_TIME.format("call.completed_at")}, call.reflection,
    result.output, result.data::text, result.error, nullif(result.metadata::text, '{{}}')
    """
_CALLS = f"""
    SELECT call.step_id::text, {_CALL}
    FROM traces_app_toolcall AS call
    JOIN traces_app_tool AS tool ON tool.id = call.tool_id
    JOIN traces_app_toolresult AS result ON result.id = call.id AND result.id BETWEEN %(first)s AND %(last)s
    WHERE call.message_id = ANY(%(ids)s::uuid[]) AND call.id BETWEEN %(first)s AND %(last)s ORDER BY call.position
    """
_FAILED_CALLS = f"""
    SELECT call.message_id::text, call.step_id::text, message.session_id::text,
        {_TIME.format("message.created_at")}, step.iteration, call.position, {_CALL}
    FROM (
        SELECT * FROM traces_app_toolcall
        WHERE tool_id = %(tool_id)s AND status = 'error' AND id >= %(first)s AND id < %(last)s
        ORDER BY id DESC LIMIT %(limit)s
    ) AS call
    JOIN traces_app_tool AS tool ON tool.id = call.tool_id
    JOIN traces_app_toolresult AS result ON result.id = call.id AND result.id >= %(first)s AND result.id < %(last)s
    JOIN traces_app_agentstep AS step ON step.id = call.step_id AND step.id >= %(first)s AND step.id < %(last)s
    JOIN messages_app_message AS message
        ON message.id = call.message_id AND message.id >= %(first)s AND message.id < %(last)s
    ORDER BY call.id DESC
    """
# Runs of the workload are completed, and none was stopped.
_OUTCOME = """(
        SELECT CASE WHEN run.error <> '' OR run.failure_count > 0 AND run.decided_by IS DISTINCT FROM '00000000-0000-0000-0000-000000000000'
            THEN 'failed' ELSE 'done' END
        FROM messages_app_message AS run WHERE run.id = last_run_id
    )"""
_SESSIONS = f"""
    SELECT id::text, external_id, title, description, end_user, status, {_OUTCOME}, said_status <> '', current_phase, tags, metadata::text,
        redactions::text, message_count, call_count, failure_count, problem_count, cost::float, unpriced_count, input_tokens,
        output_tokens, duration_ms, last_event, {_TIME.format("created_at")}, {_TIME.format("updated_at")}, {_TIME.format("active_at")}
    FROM messages_app_session WHERE project_id = %s AND deleted_at IS NULL
    ORDER BY messages_app_session.id DESC LIMIT %s
    """
_ONE_STATEMENT = f"""
    WITH calls AS (
        SELECT call.step_id, json_agg(json_build_object(
            'id', call.call_id, 'uuid', call.id, 'name', tool.name, 'args', call.args,
            'result', json_build_object(
                'status', call.status, 'success', call.status = 'success', 'output', result.output,
                'data', result.data, 'error', result.error, 'metadata', result.metadata),
            'duration', call.duration_ms, 'status', call.status, 'started_at', {_TIME.format("call.started_at")},
            'completed_at', {_TIME.format("call.completed_at")}, 'reflection', call.reflection
        ) ORDER BY call.position) AS list
        FROM traces_app_toolcall AS call
        JOIN traces_app_tool AS tool ON tool.id = call.tool_id
        JOIN traces_app_toolresult AS result ON result.id = call.id
            AND result.id BETWEEN %(first)s AND %(last)s
        WHERE call.message_id = ANY(%(ids)s::uuid[]) AND call.id BETWEEN %(first)s AND %(last)s
        GROUP BY call.step_id
    ),
    steps AS (
        SELECT step.message_id, json_agg(json_build_object(
            'id', step.id, 'iteration', step.iteration, 'thought', step.thought, 'tool_calls', calls.list,
            'timestamp', {_TIME.format("step.timestamp")}, 'duration', step.duration_ms,
            'agent_name', step.agent_name, 'model', step.model, 'usage', step.usage,
            'reasoning_content', step.reasoning
        ) ORDER BY step.iteration, step.ordinal) AS list
        FROM traces_app_agentstep AS step LEFT JOIN calls ON calls.step_id = step.id
        WHERE step.message_id = ANY(%(ids)s::uuid[]) AND step.id BETWEEN %(first)s AND %(last)s
        GROUP BY step.message_id
    )
    SELECT json_agg(json_build_object(
        'id', page.id, 'session_id', page.session_id, 'external_id', page.external_id, 'request_id', page.request_id,
        'role', page.role, 'content', page.content, 'knowledge_references', '[]'::json, 'agent_steps', steps.list,
        'is_completed', page.is_completed, 'created_at', {_TIME.format("page.created_at")},
        'updated_at', {_TIME.format("page.updated_at")}, 'completed_at', {_TIME.format("page.completed_at")},
        'deleted_at', NULL, 'version', page.version, 'usage', page.usage, 'error', page.error,
        'duration', page.duration_ms, 'step_count', page.step_count, 'call_count', page.call_count,
        'failure_count', page.failure_count, 'model_error_count', page.model_error_count, 'input_tokens', page.input_tokens, 'output_tokens', page.output_tokens,
        'cost', page.cost, 'unpriced_count', page.unpriced_count, 'health', page.health, 'redactions', page.redactions, 'metadata', page.metadata
    ) ORDER BY page.id {{order}})::text
    FROM messages_app_message AS page JOIN steps ON steps.message_id = page.id
    WHERE page.id = ANY(%(ids)s::uuid[]) AND page.id BETWEEN %(first)s AND %(last)s
    """


class Floor:
    """Connection that reads pages; repeated statements are prepared."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)

    def close(self) -> None:
        self.connection.close()

    def flat(self, page: Page) -> bytes:
        """Return messages with their traces, by flat statements."""
        execute = self.connection.execute
        messages = execute(f"{_MESSAGES} WHERE {page.where}", page.values).fetchall()
        if page.oldest_first:
            messages.reverse()
        ids = [row[0] for row in messages]
        places = _places(ids)
        with self.connection.pipeline():
            step_rows = execute(_STEPS, places)
            call_rows = execute(_CALLS, places)
            calls: defaultdict[str, list[Call]] = defaultdict(list)
            steps: defaultdict[str, list[Step]] = defaultdict(list)
            for (
                step_id,
                call_id,
                uuid,
                name,
                args,
                duration,
                status,
                started,
                completed,
                reflection,
                *result,
            ) in call_rows:
                calls[step_id].append(
                    Call(
                        *(
                            call_id,
                            uuid,
                            name,
                            Raw(args),
                            _result(status, result),
                            duration,
                            status,
                            started,
                            completed,
                        ),
                        reflection or UNSET,
                    )
                )
            for (
                message_id,
                step_id,
                iteration,
                thought,
                timestamp,
                duration,
                agent,
                model,
                usage,
                reasoning,
            ) in step_rows:
                of_step = calls[step_id]
                steps[message_id].append(
                    Step(step_id, iteration, thought, of_step, timestamp, duration, agent, model, Raw(usage), reasoning)
                )
        results = []
        for row in messages:
            usage, redactions, metadata = Raw(row[11]), Raw(row[23]), Raw(row[24])
            values = [*row[:6], [], steps[row[0]], *row[6:10], None, row[10], usage, *row[12:23], redactions, metadata]
            results.append(Message(*values))
        return msgspec.json.encode({"results": results})

    def json_agg(self, page: Page) -> bytes:
        """Return messages with their traces, by one statement after the ids, which give the planner its range."""
        found = self.connection.execute(f"SELECT id::text FROM messages_app_message WHERE {page.where}", page.values)
        statement = _ONE_STATEMENT.format(order="" if page.oldest_first else "DESC")
        row = self.connection.execute(statement, _places([message_id for (message_id,) in found])).fetchone()
        assert row is not None, "an aggregate has one row"
        text: str = row[0]
        return b'{"results":' + text.encode() + b"}"

    def failed_calls(self, values: dict[str, Any]) -> bytes:
        """Return failed calls; `values` are tool_id, first, last (ids) and limit."""
        rows = self.connection.execute(_FAILED_CALLS, values).fetchall()
        calls = []
        for row in rows:
            message_id, step_id, session_id, created_at, iteration, position, call_id, uuid, name, args = row[:10]
            duration, status, started, completed, reflection, *result = row[10:]
            calls.append(
                PlacedCall(
                    *(call_id, uuid, name, session_id, message_id, step_id, created_at, iteration, position, Raw(args)),
                    *(_result(status, result), duration, status, started, completed, reflection or UNSET),
                )
            )
        return msgspec.json.encode({"results": calls})

    def sessions(self, project_id: int, slug: str, limit: int) -> bytes:
        sessions = []
        for row in self.connection.execute(_SESSIONS, [project_id, limit]).fetchall():
            read, written, duration = row[18:21]
            metadata, redactions = Raw(row[10]), Raw(row[11])
            used = Resources(read, written, read + written, duration)
            values = [row[0], slug, *row[1:9], None, row[9], metadata, redactions, *row[12:18], used, *row[21:], None]
            sessions.append(Session(*values))
        return msgspec.json.encode({"results": sessions})


def _places(ids: list[str]) -> dict[str, Any]:
    """Return the ids of messages and the id range of their steps, calls and results."""
    return {"ids": ids, "first": f"{min(ids)[:19]}8000-000000000000", "last": f"{max(ids)[:19]}bfff-ffffffffffff"}


def _result(status: str, values: Sequence[Any]) -> Result:
    output, data, error, metadata = values
    return Result(
        *(status, status == "success", output, UNSET if data is None else Raw(data), error or UNSET),
        UNSET if metadata is None else Raw(metadata),
    )

"""Floor of ingest: from the bytes of a request to committed rows in the server's tables, by psycopg alone.

It does the minimum for the same rows: msgspec decodes the fields that become columns, JSON columns pass through as text,
ids are a counter, and a batch is one transaction. It leaves out all that makes the data correct: validation, redaction,
deduplication (a message sent twice is stored twice), the counters of sessions, and references.

It writes by `copy` and by `insert`; the faster one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import psycopg
from msgspec import Raw, Struct

Row = tuple[Any, ...]
Write = Callable[["Floor", bytes], None]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Result(Struct):
    status: str
    output: str = ""
    data: Raw = Raw()
    error: str = ""
    metadata: Raw = Raw(b"{}")


class Call(Struct):
    id: str
    name: str
    args: Raw
    reflection: str
    started_at: str
    completed_at: str
    duration: int
    result: Result


class Step(Struct):
    iteration: int
    thought: str
    reasoning_content: str
    agent_name: str
    model: str
    usage: Raw
    timestamp: str
    duration: int
    tool_calls: list[Call]


class Message(Struct):
    external_id: str
    request_id: str
    role: str
    content: str
    created_at: datetime
    completed_at: datetime
    usage: Raw
    agent_steps: list[Step]
    metadata: Raw


class Session(Struct):
    external_id: str
    title: str
    end_user: str
    tags: list[str]
    created_at: datetime
    messages: list[Message]


class Batch(Struct):
    sessions: list[Session]


class Usage(Struct):
    input_tokens: int
    output_tokens: int


_decode = msgspec.json.Decoder(Batch).decode
_decode_usage = msgspec.json.Decoder(Usage).decode

SESSIONS = (
    "messages_app_session",
    "id, project_id, external_id, title, end_user, tags, said_status, message_count, created_at, updated_at, description, "
    "current_phase, metadata, redactions, call_count, failure_count, input_tokens, output_tokens, duration_ms, deleted_by",
)
# Parents first, because of the foreign keys.
TABLES = (
    (
        "messages_app_message",
        "id, project_id, session_id, role, external_id, request_id, content, is_completed, usage, error, health, "
        "redactions, metadata, step_count, unpriced_count, call_count, failure_count, input_tokens, output_tokens, duration_ms, "
        "version, created_at, updated_at, completed_at, deleted_by",
    ),
    (
        "traces_app_agentstep",
        "id, project_id, message_id, iteration, ordinal, thought, reasoning, agent_name, model, usage, timestamp, duration_ms, "
        "metadata, input_ref",
    ),
    (
        "traces_app_toolcall",
        "id, project_id, message_id, step_id, tool_id, call_id, position, args, reflection, status, started_at, "
        "completed_at, duration_ms, metadata",
    ),
    ("traces_app_toolresult", "id, project_id, output, data, error, metadata, attachments"),
)


class Floor:
    """Connection that writes batches."""

    def __init__(self, url: str, project_id: int, tail: int) -> None:
        """Connect; `tail` (47 bits) makes the ids of this writer unique among all writers."""
        self.connection = psycopg.connect(url, autocommit=True)
        self.project_id = project_id
        self._tails = count(tail)
        self._sessions: dict[str, str] = {}
        tools = self.connection.execute("SELECT name, id FROM traces_app_tool WHERE project_id = %s", [project_id])
        self.tool_ids: dict[str, int] = dict(tools.fetchall())

    def copy(self, body: bytes) -> None:
        """Write a batch by COPY."""
        sessions, tables = self._rows(body)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if sessions:
                cursor.executemany(insert_statement(*SESSIONS), sessions)
            for (table, columns), rows in zip(TABLES, tables, strict=True):
                with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                    for row in rows:
                        copy.write_row(row)

    def insert(self, body: bytes) -> None:
        """Write a batch by executemany in one pipeline."""
        sessions, tables = self._rows(body)
        with self.connection.pipeline(), self.connection.transaction(), self.connection.cursor() as cursor:
            if sessions:
                cursor.executemany(insert_statement(*SESSIONS), sessions)
            for (table, columns), rows in zip(TABLES, tables, strict=True):
                cursor.executemany(insert_statement(table, columns), rows)

    def close(self) -> None:
        self.connection.close()

    def _rows(self, body: bytes) -> tuple[list[Row], tuple[list[Row], ...]]:
        """Return new sessions and the rows of TABLES."""
        sessions: list[Row] = []
        messages: list[Row] = []
        steps: list[Row] = []
        calls: list[Row] = []
        results: list[Row] = []
        project_id, tool_ids, tails = self.project_id, self.tool_ids, self._tails
        for session in _decode(body).sessions:
            session_id = self._sessions.get(session.external_id)
            if session_id is None:
                session_id = self._sessions[session.external_id] = f"{time_bits(session.created_at) | next(tails):032x}"
                sessions.append(self._session_row(session_id, session))
            for message in session.messages:
                bits = time_bits(message.created_at)
                message_id = f"{bits | next(tails):032x}"
                call_count = failures = 0
                for ordinal, step in enumerate(message.agent_steps):
                    step_id = f"{bits | next(tails):032x}"
                    steps.append(
                        (
                            *(step_id, project_id, message_id, step.iteration, ordinal, step.thought),
                            *(
                                step.reasoning_content,
                                step.agent_name,
                                step.model,
                                raw_text(step.usage),
                                step.timestamp,
                                step.duration,
                                "{}",
                                "",
                            ),
                        )
                    )
                    for position, call in enumerate(step.tool_calls):
                        call_id = f"{bits | next(tails):032x}"
                        result = call.result
                        call_count += 1
                        failures += result.status == "error"
                        calls.append(
                            (
                                *(call_id, project_id, message_id, step_id, tool_ids[call.name], call.id, position),
                                *(raw_text(call.args), call.reflection, result.status, call.started_at),
                                *(call.completed_at, call.duration, "{}"),
                            )
                        )
                        data = raw_text(result.data) or None
                        metadata = raw_text(result.metadata)
                        results.append((call_id, project_id, result.output, data, result.error, metadata, "[]"))
                usage = _decode_usage(message.usage)
                messages.append(
                    (
                        *(message_id, project_id, session_id, message.role, message.external_id, message.request_id),
                        *(message.content, True, raw_text(message.usage), "", "{}", "[]", raw_text(message.metadata)),
                        # The models of the workload have no price.
                        *(len(message.agent_steps), len(message.agent_steps), call_count, failures),
                        *(usage.input_tokens, usage.output_tokens),
                        (message.completed_at - message.created_at) // timedelta(milliseconds=1),
                        *(1, message.created_at, message.created_at, message.completed_at, ""),
                    )
                )
        return sessions, (messages, steps, calls, results)

    def _session_row(self, session_id: str, session: Session) -> Row:
        return (
            *(session_id, self.project_id, session.external_id, session.title, session.end_user, session.tags),
            *("running", len(session.messages), session.created_at, session.created_at),
            *("", "", "{}", "[]", 0, 0, 0, 0, 0, ""),
        )


def insert_statement(table: str, columns: str) -> str:
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('%s' for _column in columns.split(','))})"


def time_bits(instant: datetime) -> int:
    """Return the first half of an id and its variant; see tracesite_sdk.records.ids."""
    milliseconds, microseconds = divmod((instant - _EPOCH) // _MICROSECOND, 1000)
    return milliseconds << 80 | 7 << 76 | (microseconds * 4096 // 1000) << 64 | 0b101 << 61


def raw_text(raw: Raw) -> str:
    return str(raw, "utf-8")


WAYS: Sequence[tuple[str, Write]] = (("COPY", Floor.copy), ("executemany", Floor.insert))

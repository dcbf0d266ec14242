"""Floor of event ingest: from the bytes of a request to committed rows in the server's tables, by psycopg alone.

It writes the same rows as the server, each once: the event; with its end event the step, or the call and its result; the
messages of a run at its start, completed at its end. It keeps its state in memory between batches. It leaves out all that
makes the data correct: validation, redaction, deduplication (an event sent twice is stored twice), events in another
order, numbers shared by several senders, the counters of messages and sessions, and notifications.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import count

import msgspec
import psycopg
from msgspec import Raw, Struct

from .floor_ingest import Row, insert_statement, raw_text, time_bits


class Event(Struct):
    id: str
    session_id: str
    message_id: str
    number: int
    type: str
    agent: str | None
    timestamp: datetime
    data: Raw


class Batch(Struct):
    events: list[Event]


class Result(Struct):
    status: str
    output: str = ""
    data: Raw = Raw()
    error: str = ""
    metadata: Raw = Raw(b"{}")


class Data(Struct):
    step: str = ""
    model: str = ""
    thought: str = ""
    reasoning: str = ""
    usage: Raw = Raw()
    duration: int = 0
    call_id: str = ""
    name: str = ""
    args: Raw = Raw()
    reflection: str = ""
    prompt: str = ""
    result: Raw = Raw()


_decode = msgspec.json.Decoder(Batch).decode
_decode_data = msgspec.json.Decoder(Data).decode
_decode_result = msgspec.json.Decoder(Result).decode
_decode_text = msgspec.json.Decoder(str).decode

SESSIONS = (
    "messages_app_session",
    "id, project_id, external_id, title, end_user, tags, said_status, message_count, created_at, updated_at, description, "
    "current_phase, metadata, redactions, call_count, failure_count, input_tokens, output_tokens, duration_ms, deleted_by",
)
TABLES = (
    (
        "messages_app_message",
        "id, project_id, session_id, role, external_id, request_id, content, is_completed, error, health, redactions, "
        "metadata, step_count, call_count, failure_count, input_tokens, output_tokens, version, created_at, updated_at, "
        "deleted_by",
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
    (
        "traces_app_event",
        "id, project_id, session_id, message_id, seq, external_id, number, type, level, category, timestamp, agent, "
        "subject, data",
    ),
)
_END = "UPDATE messages_app_message SET is_completed = true, completed_at = %s, content = %s, updated_at = now() WHERE id = %s"


class Run:
    """State of a run so far."""

    def __init__(self, message_id: str, bits: int) -> None:
        self.message_id, self.bits = message_id, bits
        self.steps: dict[str, tuple[str, int]] = {}
        """Ids of steps with their numbers of calls."""
        self.begun: dict[str, tuple[datetime, Raw]] = {}
        """Start and arguments of each open call."""
        self.began = ""
        """Model of the latest step."""


class EventFloor:
    """Connection that writes batches of events."""

    def __init__(self, url: str, project_id: int, tail: int) -> None:
        """Connect; `tail` (47 bits) makes the ids of this writer unique among all writers."""
        self.connection = psycopg.connect(url, autocommit=True)
        self.project_id = project_id
        self._tails = count(tail)
        self._sessions: dict[str, str] = {}
        self._runs: dict[tuple[str, str], Run] = {}
        tools = self.connection.execute("SELECT name, id FROM traces_app_tool WHERE project_id = %s", [project_id])
        self.tool_ids: dict[str, int] = dict(tools.fetchall())

    def copy(self, body: bytes) -> None:
        """Write a batch by COPY."""
        sessions, tables, ends = self._rows(body)
        with self.connection.transaction(), self.connection.cursor() as cursor:
            if sessions:
                cursor.executemany(insert_statement(*SESSIONS), sessions)
            for (table, columns), rows in zip(TABLES, tables, strict=True):
                if rows:
                    with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                        for row in rows:
                            copy.write_row(row)
            if ends:
                cursor.executemany(_END, ends)

    def insert(self, body: bytes) -> None:
        """Write a batch by executemany in one pipeline."""
        sessions, tables, ends = self._rows(body)
        with self.connection.pipeline(), self.connection.transaction(), self.connection.cursor() as cursor:
            if sessions:
                cursor.executemany(insert_statement(*SESSIONS), sessions)
            for (table, columns), rows in zip(TABLES, tables, strict=True):
                if rows:
                    cursor.executemany(insert_statement(table, columns), rows)
            if ends:
                cursor.executemany(_END, ends)

    def close(self) -> None:
        self.connection.close()

    def _rows(self, body: bytes) -> tuple[list[Row], Sequence[list[Row]], list[Row]]:
        """Return new sessions, the rows of TABLES, and the ends of runs."""
        sessions: list[Row] = []
        messages, steps, calls, results, events = tables = [[] for _table in TABLES]  # type: list[list[Row]]
        ends: list[Row] = []
        project_id = self.project_id
        for event in _decode(body).events:
            at, kind = event.timestamp, event.type
            session_id = self._sessions.get(event.session_id)
            if session_id is None:
                session_id = self._sessions[event.session_id] = f"{time_bits(at) | next(self._tails):032x}"
                sessions.append(
                    (
                        *(session_id, project_id, event.session_id, "", "", [], "running", 0, at, at, "", "execute"),
                        *("{}", "[]", 0, 0, 0, 0, 0, ""),
                    )
                )
            data = _decode_data(event.data)
            run = self._runs.get((session_id, event.message_id))
            if run is None:
                bits = time_bits(at)
                message_id = f"{bits | next(self._tails):032x}"
                run = self._runs[session_id, event.message_id] = Run(message_id, bits)
                messages.append(self._message(f"{bits | next(self._tails):032x}", session_id, "user", at, data.prompt))
                messages.append(self._message(message_id, session_id, "assistant", at, ""))
            subject = "run"
            if kind == "llm_request_start":
                subject = f"step:{data.step}"
                run.began = data.model
            elif kind == "llm_request_complete":
                subject = f"step:{data.step}"
                step_id = f"{run.bits | next(self._tails):032x}"
                ordinal = len(run.steps)
                run.steps[data.step] = step_id, 0
                steps.append(
                    (
                        *(
                            step_id,
                            project_id,
                            run.message_id,
                            ordinal,
                            ordinal,
                            data.thought,
                            data.reasoning,
                            event.agent,
                            run.began,
                        ),
                        *(raw_text(data.usage), at, data.duration, "{}", ""),
                    )
                )
            elif kind == "tool_call_start":
                subject = f"call:{event.agent}:{data.call_id}"
                run.begun[data.call_id] = at, data.args
            elif kind.startswith("tool_call"):
                subject = f"call:{event.agent}:{data.call_id}"
                started_at, args = run.begun.pop(data.call_id)
                step_id, position = run.steps[data.step]
                run.steps[data.step] = step_id, position + 1
                call_id = f"{run.bits | next(self._tails):032x}"
                result = _decode_result(data.result)
                calls.append(
                    (
                        *(
                            call_id,
                            project_id,
                            run.message_id,
                            step_id,
                            self.tool_ids[data.name],
                            data.call_id,
                            position,
                        ),
                        *(raw_text(args), data.reflection, result.status, started_at, at, data.duration, "{}"),
                    )
                )
                found = raw_text(result.data) or None
                metadata = raw_text(result.metadata)
                results.append((call_id, project_id, result.output, found, result.error, metadata, "[]"))
            elif kind == "workflow_execute_complete":
                ends.append((at, _decode_text(data.result), run.message_id))
            category = {"tool": "tool", "llm": "prompt"}.get(kind.partition("_")[0], "execution")
            events.append(
                (
                    *(f"{run.bits | next(self._tails):032x}", project_id, session_id, run.message_id, event.number),
                    *(event.id, event.number, kind, "error" if kind.endswith("_error") else "info", category, at),
                    *(event.agent or "", subject, raw_text(event.data)),
                )
            )
        return sessions, tables, ends

    def _message(self, message_id: str, session_id: str, role: str, at: datetime, content: str) -> Row:
        return (
            *(message_id, self.project_id, session_id, role, "", "", content, role == "user", "", "{}", "[]", "{}"),
            *(0, 0, 0, 0, 0, 1, at, at, ""),
        )

"""Agents for live sessions: their events are committed and published as by ingest."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from benchmarks.faults.site import Site

_INSERT = """
    INSERT INTO traces_app_event
        (id, project_id, session_id, message_id, seq, external_id, number, type, level, category, timestamp, agent, subject, data)
    SELECT id, %s, %s, %s, seq, 'e' || seq, NULL, %s, 'info', 'execution', clock_timestamp(), 'planner', '', data
    FROM unnest(%s::uuid[], %s::bigint[], %s::jsonb[]) AS event (id, seq, data)
    """


@dataclass(frozen=True)
class Agent:
    """Session with one run."""

    session: uuid.UUID
    external_id: str
    message: uuid.UUID
    project: int

    def does(
        self, connection: psycopg.Connection[Any], *data: dict[str, Any], kind: str = "agent_start", tells: bool = True
    ) -> list[int]:
        """Store one event for each of `data` in one transaction. Return their numbers."""
        with connection.transaction():
            row = connection.execute(
                "UPDATE messages_app_session SET last_event = last_event + %s WHERE id = %s RETURNING last_event",
                [len(data), self.session],
            ).fetchone()
            assert row is not None, "the session is there"
            numbers = list(range(row[0] - len(data) + 1, row[0] + 1))
            connection.execute(
                _INSERT,
                [
                    self.project,
                    self.session,
                    self.message,
                    kind,
                    self._ids(len(data)),
                    numbers,
                    [json.dumps(d) for d in data],
                ],
            )
            if tells:
                notice = f"{self.session} {numbers[0]} {numbers[-1]}"
                connection.execute("SELECT pg_notify('traces_app_events', %s)", [notice])
        return numbers

    def _ids(self, count: int) -> Sequence[uuid.UUID]:
        """Return ids with the time of the message, so that they are in its month."""
        start = self.message.int >> 62 << 62
        return [uuid.UUID(int=start | uuid.uuid4().int & ((1 << 62) - 1)) for _ in range(count)]


def make_agent(site: Site, name: str, *, key: str = "") -> Agent:
    """Create a session with a running message over the API."""
    body = {
        "sessions": [
            {"external_id": name, "messages": [{"external_id": "run", "role": "assistant", "is_completed": False}]}
        ]
    }
    client = http.client.HTTPConnection("127.0.0.1", site.server.port, timeout=60)
    headers = {"X-API-Key": key or site.key, "Content-Type": "application/json"}
    client.request("POST", "/api/v1/ingest/", json.dumps(body), headers)
    answer = client.getresponse()
    said = answer.read()
    assert answer.status == 200, said
    client.close()
    with site.connect() as connection:
        row = connection.execute(
            "SELECT session.id, message.id, session.project_id FROM messages_app_session AS session"
            " JOIN messages_app_message AS message ON message.session_id = session.id WHERE session.external_id = %s"
            " ORDER BY session.id DESC LIMIT 1",
            [name],
        ).fetchone()
    assert row is not None, "it was stored"
    return Agent(session=row[0], external_id=name, message=row[1], project=row[2])

"""Consistency of the database with acknowledged data and with itself."""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import Any

import psycopg

from tracesite_sdk.records import ids

from .ledger import Entry, Ledger
from .senders import EXPENDABLE_YEARS, SHARED_MESSAGE
from .traces import FoundCall, FoundMessage, FoundStep, expected

# Each query finds invalid rows.
_CONTRADICTIONS = {
    "steps without a message": (
        "SELECT id FROM traces_app_agentstep s WHERE id >= %(first)s AND NOT EXISTS (SELECT 1 FROM messages_app_message m WHERE m.id = s.message_id)"
    ),
    "calls without a message": (
        "SELECT id FROM traces_app_toolcall c WHERE id >= %(first)s AND NOT EXISTS (SELECT 1 FROM messages_app_message m WHERE m.id = c.message_id)"
    ),
    "calls without a step": (
        "SELECT id FROM traces_app_toolcall c WHERE id >= %(first)s AND NOT EXISTS (SELECT 1 FROM traces_app_agentstep s WHERE s.id = c.step_id)"
    ),
    "results without a call": (
        "SELECT id FROM traces_app_toolresult r WHERE id >= %(first)s AND NOT EXISTS (SELECT 1 FROM traces_app_toolcall c WHERE c.id = r.id)"
    ),
    "messages without a session": (
        "SELECT id FROM messages_app_message m WHERE NOT EXISTS (SELECT 1 FROM messages_app_session s WHERE s.id = m.session_id)"
    ),
    "messages without their key": (
        "SELECT id FROM messages_app_message m WHERE external_id <> '' AND NOT EXISTS "
        "(SELECT 1 FROM messages_app_messagekey k WHERE k.message_id = m.id AND k.purged_at IS NULL)"
    ),
    "messages stored twice": (
        "SELECT session_id, external_id, count(*) FROM messages_app_message WHERE external_id <> '' "
        "GROUP BY 1, 2 HAVING count(*) > 1"
    ),
    "sessions stored twice": (
        "SELECT project_id, external_id, count(*) FROM messages_app_session WHERE external_id <> '' "
        "GROUP BY 1, 2 HAVING count(*) > 1"
    ),
    "tools stored twice": "SELECT project_id, name FROM traces_app_tool GROUP BY 1, 2 HAVING count(*) > 1",
    "messages whose counters are wrong": (
        "SELECT m.id, m.step_count, m.call_count, m.failure_count FROM messages_app_message m WHERE "
        "(m.step_count, m.call_count, m.failure_count) IS DISTINCT FROM ("
        "(SELECT count(*) FROM traces_app_agentstep s WHERE s.message_id = m.id), "
        "(SELECT count(*) FROM traces_app_toolcall c WHERE c.message_id = m.id), "
        "(SELECT count(*) FROM traces_app_toolcall c WHERE c.message_id = m.id AND c.status = 'error'))"
    ),
    "sessions whose counters are wrong": (
        "SELECT s.external_id, s.message_count, c.* FROM messages_app_session s CROSS JOIN LATERAL ("
        "SELECT count(*) AS messages, coalesce(sum(call_count), 0) AS calls, coalesce(sum(failure_count), 0) AS failures, "
        "coalesce(sum(input_tokens), 0) AS input, coalesce(sum(output_tokens), 0) AS output, "
        "coalesce(sum(duration_ms), 0) AS duration FROM messages_app_message m "
        "WHERE m.session_id = s.id AND m.deleted_at IS NULL) c WHERE (%(all)s OR s.external_id NOT LIKE '%%-expendable') AND (s.message_count, s.call_count, s.failure_count, "
        "s.input_tokens, s.output_tokens, s.duration_ms) IS DISTINCT FROM "
        "(c.messages, c.calls, c.failures, c.input, c.output, c.duration)"
    ),
    # Of a name such as traces_app_event_y2026m01d08w the end is the period.
    "periods that some tables have and others lack": (
        "SELECT period, count(*) FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid, "
        "substring(relname FROM '_(y[0-9]{4}m[0-9]{2}(?:d[0-9]{2}w?)?)$') AS period "
        "WHERE relkind = 'r' AND period >= %(period)s GROUP BY 1 HAVING count(*) <> (SELECT count(*) FROM pg_partitioned_table)"
    ),
    "indexes that are not valid": "SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid",
}


def problems(connection: psycopg.Connection, ledger: Ledger, prefix: str, *, in_a_purge: bool = False) -> list[str]:
    """Return all problems."""
    return [*differences(connection, ledger, prefix), *contradictions(connection, in_a_purge=in_a_purge)]


def contradictions(connection: psycopg.Connection, *, in_a_purge: bool = False) -> list[str]:
    """Return contradictions between the tables.

    With `in_a_purge` the years of a killed purge that was not run again are exempt, because they are half purged.
    """
    first_year = sum(EXPENDABLE_YEARS) + 1 if in_a_purge else 2000
    bounds = {
        "all": not in_a_purge,
        "first": ids.first_id_of_day(date(first_year, 1, 1)),
        "period": f"y{first_year:04}m01",
    }
    found = []
    for name, query in _CONTRADICTIONS.items():
        rows = connection.execute(query, bounds).fetchall()
        if rows:
            found.append(f"{len(rows)} {name}, such as {rows[0]}")
    return found


def differences(connection: psycopg.Connection, ledger: Ledger, prefix: str) -> list[str]:
    """Return differences to the acknowledged data: lost, incomplete, changed or unexpected messages.

    All sessions whose external id has the prefix belong to the ledger.
    """
    found = stored(connection, prefix)
    problems = []
    for external_id, entry in ledger.entries.items():
        problems += _difference(entry, found.pop((entry.session, external_id), None), ledger)
    for entry in ledger.expendable.values():
        whole = found.pop((entry.session, entry.sent["external_id"]), None)
        if whole is not None:
            problems += _difference(entry, whole, ledger)
    problems += [f"{name} is there, and nobody was told so" for name in found]
    return problems


def stored(connection: psycopg.Connection, prefix: str = "") -> dict[tuple[str, str], FoundMessage]:
    """Return the messages of sessions whose external id has the prefix, by the external ids of session and message.

    Nothing else may write meanwhile.
    """
    outputs: dict[Any, str] = dict(connection.execute("SELECT id, output FROM traces_app_toolresult").fetchall())
    calls: defaultdict[Any, list[FoundCall]] = defaultdict(list)
    query = (
        "SELECT c.id, step_id, call_id, name, args, status FROM traces_app_toolcall c "
        "LEFT JOIN traces_app_tool t ON t.id = tool_id ORDER BY step_id, position"
    )
    for id_, step_id, call_id, name, args, status in connection.execute(query).fetchall():
        calls[step_id].append(FoundCall(call_id, name, args, status, outputs.get(id_)))
    steps: defaultdict[Any, list[FoundStep]] = defaultdict(list)
    query = "SELECT id, message_id, iteration, thought FROM traces_app_agentstep ORDER BY iteration, ordinal"
    for id_, message_id, iteration, thought in connection.execute(query).fetchall():
        steps[message_id].append(FoundStep(iteration, thought, tuple(calls[id_])))
    query = (
        "SELECT s.external_id, m.external_id, m.id, role, content, is_completed, m.deleted_at IS NOT NULL, m.metadata "
        "FROM messages_app_message m JOIN messages_app_session s ON s.id = m.session_id WHERE starts_with(s.external_id, %s)"
    )
    return {
        (session, name): FoundMessage(name, role, content, completed, deleted, metadata, tuple(steps[id_]))
        for session, name, id_, role, content, completed, deleted, metadata in connection.execute(
            query, [prefix]
        ).fetchall()
    }


def _difference(entry: Entry, found: FoundMessage | None, ledger: Ledger) -> list[str]:
    name = entry.sent["external_id"]
    if found is None:
        return [f"{name} in {entry.session} was acknowledged and is lost"]
    if name == SHARED_MESSAGE:
        tokens = found.metadata.get("tokens", [])
        if sorted(tokens) != sorted(ledger.tokens):
            return [f"the shared message should have {sorted(ledger.tokens)} and has {sorted(tokens)}"]
        return []
    wanted = expected(entry.sent, is_deleted=entry.is_deleted)
    return [] if found == wanted else [f"{name} should be\n  {wanted}\nand is\n  {found}"]

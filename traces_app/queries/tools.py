"""Tools with the statistics of their calls."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from access_app.db.statements import prepared_cursor
from access_app.visibility import ProjectScope, in_sql
from messages_app.ids import created_at_of
from messages_app.sql.batch import LIST_MS, Row, fetch
from messages_app.sql.pagination import IdRange
from messages_app.sql.row_query import Rows
from messages_app.timestamps import instant_text
from traces_app.ingest.id_cache import tools_named

from . import schemas

_TOOLS = Rows(
    source="traces_app_tool AS tool JOIN access_app_project AS project ON project.id = tool.project_id", table="tool"
)
# What lies below deleted messages and sessions is not counted. Deleted rows are subtracted by two anti-joins: few of them
# are found by the indexes of the trash, where a join with every message and session takes twice as long (210 ms against
# 116 for 300,000 calls, 103 for counting all).
_COUNTED = (
    Rows(source="traces_app_toolcall AS call", table="call")
    .where(
        "NOT EXISTS (SELECT 1 FROM messages_app_message AS message "
        "WHERE message.id = call.message_id AND message.deleted_at IS NOT NULL)"
    )
    .where(
        "NOT EXISTS (SELECT 1 FROM messages_app_message AS message JOIN messages_app_session AS session "
        "ON session.id = message.session_id WHERE message.id = call.message_id AND session.deleted_at IS NOT NULL)"
    )
)
_STATISTICS = (
    "call.tool_id, count(*), count(*) FILTER (WHERE call.status = 'success'), "
    "count(*) FILTER (WHERE call.status = 'error'), count(*) FILTER (WHERE call.status = 'pending'), "
    "avg(call.duration_ms)::float8, max(call.duration_ms), max(call.id::text)"
)
_NO_CALLS = (0, 0, 0, 0, None, None, None)


def tool_ids(scope: ProjectScope, names: Sequence[str]) -> list[int]:
    """The ids of the tools of these names, in all projects that are open to the reader."""
    if scope.project_ids is not None and len(scope.project_ids) == 1:
        (project_id,) = scope.project_ids
        return tools_named(project_id, names)
    visible, values = in_sql(scope)
    with prepared_cursor() as cursor:
        cursor.execute(f"SELECT id FROM traces_app_tool WHERE {visible} AND name = ANY(%s)", [*values, list(names)])  # noqa: S608 - constants
        return [row[0] for row in cursor.fetchall()]


def tools(ids: Sequence[int], id_range: IdRange) -> list[schemas.Tool]:
    """The tools of `ids`, in this order, with statistics of their calls in the range. One exchange of two queries.

    Raises InvalidInput where the calls are so many that to count them takes longer than LIST_MS.
    """
    if not ids:
        return []
    found, counted = fetch(
        [
            _TOOLS.among("tool.id", ids).query("tool.id, tool.name, tool.description, tool.category, project.slug"),
            _COUNTED.among("call.tool_id", ids).within(id_range).query(_STATISTICS, "GROUP BY call.tool_id"),
        ],
        at_most_ms=LIST_MS,
    )
    rows = {row[0]: row[1:] for row in found}
    counts = {row[0]: row[1:] for row in counted}
    return [_tool(rows[tool_id], counts.get(tool_id, _NO_CALLS)) for tool_id in ids if tool_id in rows]


def _tool(row: Row, counts: Row) -> schemas.Tool:
    name, description, category, project = row
    calls, success, error, pending, average, longest, last = counts
    return schemas.Tool(
        name=name,
        description=description,
        category=category,
        project=project,
        call_count=calls,
        success_count=success,
        failure_count=error,
        pending_count=pending,
        average_duration=average,
        longest_duration=longest,
        last_called_at=None if last is None else instant_text(created_at_of(UUID(last))),
    )

"""The number of queries of each reading route is constant, whatever the number of rows.

A page of more than 20 rows is read in two round trips, because the first rows show the size of the others.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.models import Project
from tests.traces_app.conftest import NOON, counted_in, store
from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller

# Route, and the most queries it may take, in however many exchanges: one for the key, one for the session where the
# route names one, one for the ids of the page, and the rest.
ROUTES = [
    ("sessions/", 3),
    ("sessions/?fields=id", 3),
    ("sessions/{session}/", 4),
    ("sessions/big/", 4),
    ("sessions/{session}/messages/?limit=200", 8),
    ("sessions/{session}/messages/?limit=200&expand=none", 4),
    ("sessions/{session}/messages/?page=1&page_size=200", 8),
    ("sessions/{session}/messages/?limit=200&tool=search&before_time=2027-01-01T00:00:00Z", 9),
    ("sessions/{session}/messages/{message}/", 8),
    ("messages/?limit=200", 7),
    ("messages/?limit=200&deleted=true", 7),
    ("messages/?limit=200&tool=search&tool_status=success", 8),
    ("messages/{message}/", 7),
    ("messages/{message}/?expand=calls", 6),
    ("messages/{message}/?expand=none", 3),
    ("tool-calls/?limit=200", 6),
    ("tool-calls/?limit=200&tool=search&session=big", 8),
    ("tool-calls/{call}/", 6),
    ("chains/?limit=200", 5),
    ("chains/?limit=200&success=false&root_tool=search", 8),
    ("chains/{message}/", 6),
    ("tools/?limit=200", 4),
    ("usage/?limit=200&group_by=end_user", 3),
    ("tools/stats/?limit=200", 10),
    ("errors/?limit=200", 8),
    ("tool-calls/?error_group=c4ca4238a0b923820dcc509a6f75849b", 6),
]  # fmt: skip


def run(number: int, steps: int, calls: int) -> dict[str, Any]:
    return {
        "external_id": f"m{number}",
        "role": "assistant",
        "created_at": NOON + timedelta(seconds=number),
        "knowledge_references": [{"content": "x"}],
        "agent_steps": [
            {
                "tool_calls": [
                    {"id": "c", "name": "search" if call % 2 else f"tool{step}", "result": {"error": "x"} if call == 1 else {"output": "x"}}
                    for call in range(calls)
                ]
            }
            for step in range(steps)
        ],
    }  # fmt: skip


@pytest.mark.parametrize(("route", "most"), ROUTES, ids=[route for route, _most in ROUTES])
def test_lists_take_constant_queries(owner: Caller, project: Project, route: str, most: int) -> None:
    session = store(project, run(0, 1, 2), external_id="big")
    path = route.format(
        session=session.id, message=session.messages[0].id, call=owner.get("tool-calls/").results[0]["uuid"]
    )
    small = queries_of(owner, path)
    store(project, run(0, 10, 3), external_id="big", source="import")
    for number in range(15):
        store(project, run(number, 2, 2), external_id=f"s{number}")
    store(project, *(run(number, 10, 3) for number in range(1, 25)), external_id="big", source="import")
    paged = queries_of(owner, path)
    assert small <= most
    assert paged == small or ("=200" in path and paged < 2 * small)
    store(project, *(run(number, 10, 3) for number in range(25, 60)), external_id="big", source="import")
    # Fewer: the durations of tools with few calls are read one by one.
    assert queries_of(owner, path) in (paged, paged - path.startswith("tools/stats/"))


def queries_of(caller: Caller, path: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        answer = caller.get(path)
    assert answer.status == 200, answer.body
    return len(counted_in(queries))


def test_export_is_read_in_chunks(viewer: Caller, project: Project) -> None:
    session: SessionOutcome = store(project, *(run(number, 1, 1) for number in range(45)))
    viewer.get("sessions/")  # the first use of a key is recorded
    with CaptureQueriesContext(connection) as queries:
        exported = viewer.get(f"sessions/{session.id}/export/")
    assert len(exported.json["messages"]) == 45
    # The key, the session twice, its scores, for each of three chunks its ids and four statements, and a read that finds no
    # fourth chunk.
    counted = counted_in(queries)
    assert len(counted) == 4 + 3 * (1 + 4) + 1
    # The four of the two whole chunks are sent at once. The entry of the audit log is one more.
    assert len(queries) - 1 <= len(counted) - 2 * 3

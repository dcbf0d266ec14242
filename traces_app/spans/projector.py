"""The job that makes the messages of the traces that are due (due.py, projection.py)."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import Error
from django.db.models import Count, Sum

from access_app.db import Database
from traces_app.models import Span as SpanRow

from . import due
from .projection import make_messages
from .stored import SIZE

logger = logging.getLogger(__name__)

TRACES_AT_ONCE = 50
"""Traces whose messages are made in one transaction. Scores of a trace wait for it, and so does a purge."""
SPANS_AT_ONCE = 1_000
BYTES_AT_ONCE = 8_000_000
"""How much may be stored of them, roughly: a trace is never split."""


@dataclass(kw_only=True)
class ProjectionReport:
    """The work of one run."""

    traces: int = 0
    """Traces whose messages were made, one that was made twice counted twice."""
    failed: int = 0
    """Traces of which no messages could be made. They are tried again later."""


def make_due_traces(db: Database, *, is_stopped: Callable[[], bool] = lambda: False) -> ProjectionReport:
    """Make the messages of the traces that are due; end early if `is_stopped`. Several processes share the work."""
    report = ProjectionReport()
    while not is_stopped() and (rows := due.take(db, TRACES_AT_ONCE)):
        of_projects: dict[int, list[str]] = defaultdict(list)
        for row in rows:
            of_projects[row.project_id].append(row.trace_id.hex)
        for project_id, trace_ids in of_projects.items():
            for some in _of_a_size(db, project_id, trace_ids):
                _make(db, project_id, some, report)
    return report


def _make(db: Database, project_id: int, trace_ids: Sequence[str], report: ProjectionReport) -> None:
    try:
        make_messages(db, project_id, trace_ids)
    except Error:
        raise
    except Exception:
        # An error of the program: the spans stay, and the trace is tried again when its lease has ended.
        if len(trace_ids) == 1:
            about = {"project_id": project_id, "trace_id": trace_ids[0]}
            logger.exception("the messages of a trace cannot be made", extra=about)
            report.failed += 1
            return
    else:
        report.traces += len(trace_ids)
        return
    # One by one, so that the others are made.
    for trace_id in trace_ids:
        _make(db, project_id, [trace_id], report)


def _of_a_size(db: Database, project_id: int, trace_ids: Sequence[str]) -> Iterator[list[str]]:
    """Yield the traces in lists that fit into a transaction."""
    rows = db.rows(SpanRow.objects).filter(project_id=project_id, trace_id__in=[UUID(id_) for id_ in trace_ids])
    found = rows.order_by("trace_id").values_list("trace_id").annotate(count=Count("pk"), size=Sum(SIZE))
    sizes = {trace_id.hex: (count, size) for trace_id, count, size in found}
    some: list[str] = []
    spans = characters = 0
    for trace_id in trace_ids:
        count, size = sizes.get(trace_id, (0, 0))
        if some and (spans + count > SPANS_AT_ONCE or characters + size > BYTES_AT_ONCE):
            yield some
            some, spans, characters = [], 0, 0
        some.append(trace_id)
        spans += count
        characters += size
    if some:
        yield some

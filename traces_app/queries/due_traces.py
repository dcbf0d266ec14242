"""How far the messages of traces are behind their spans, and waiting for them (traces_app.spans)."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from uuid import UUID

from django.db.models import F

from access_app.db import Database
from traces_app.models import DueTrace

LAG = "SELECT extract(epoch FROM now() - min(due_at))::float8 FROM traces_app_duetrace WHERE due_at <= now()"
"""The seconds since the trace was due that has been for the longest time; NULL if none is."""
POLL_SECONDS = 0.05
"""Between two looks of a reader who waits."""
Key = tuple[int, UUID]
"""A project and a trace."""


def wait_for_traces(db: Database, project_ids: Collection[int] | None, seconds: float) -> bool:
    """Wait until the messages have everything that was delivered to these projects before, or all projects for None.

    Return False if that took longer than `seconds`.
    """
    versions = waiting(db, project_ids)
    deadline = time.monotonic() + seconds
    while versions and not are_made(db, versions):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def waiting(db: Database, project_ids: Collection[int] | None = None, most: int = 10_000) -> dict[Key, int]:
    """Return the versions of traces whose messages do not have all that was delivered, by project and trace; None for all projects."""
    # Not those that failed before, such as one whose session is in the trash.
    rows = db.rows(DueTrace.objects).filter(version__gt=F("made_version"), attempts__lt=2).order_by("pk")
    if project_ids is not None:
        rows = rows.filter(project_id__in=project_ids)
    return {
        (project_id, id_): version
        for project_id, id_, version in rows.values_list("project_id", "trace_id", "version")[:most]
    }


def are_made(db: Database, versions: Mapping[Key, int]) -> bool:
    """Return whether the messages of traces that were `waiting` have been made since, of these versions or later ones."""
    trace_ids = [trace_id for _project_id, trace_id in versions]
    rows = db.rows(DueTrace.objects).filter(trace_id__in=trace_ids, version__gt=F("made_version")).order_by()
    found = rows.values_list("project_id", "trace_id", "made_version")
    return all(versions.get((project_id, trace_id), 0) <= made for project_id, trace_id, made in found)

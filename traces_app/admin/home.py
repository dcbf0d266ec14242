"""The first page of the admin: what needs attention, in figures that lead to the rows behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db import OperationalError, connection
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone

from access_app.models import Project
from access_app.visibility import ALL_PROJECTS, ProjectScope
from messages_app.admin.filters import MANY, CreatedFilter
from messages_app.admin.keyset import sees_all, time_limit
from messages_app.admin.model_admins import session_name
from messages_app.models import Message
from messages_app.sql.batch import was_stopped
from traces_app.queries import overview
from traces_app.queries.overview import Period, Totals, Width

T = TypeVar("T")

SECTION_MS = 3000
"""Milliseconds that a part of the page may take; then it says that the period holds too much."""
DEFAULT_PERIOD = "24h"
_WIDTHS: dict[str, Width] = {"1h": "minute", "24h": "hour", "7d": "hour", "30d": "day"}
_HEIGHT = 100


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A bar of a chart, in the units of its view box: a part at the bottom, and a part on top of it."""

    x: int
    bottom_y: float
    bottom_height: float
    top_y: float
    top_height: float
    url: str
    totals: Totals


def home(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the page: nothing for people who may not see traces."""
    if not sees_all(request):
        return {}
    length = {name: length for name, _label, length in CreatedFilter.PERIODS}
    chosen = request.GET.get("created")
    name = chosen if chosen in length else DEFAULT_PERIOD
    projects = dict(Project.objects.order_by("slug").values_list("slug", "pk")[:MANY])
    slug = request.GET.get("project", "")
    project_id = projects.get(slug)
    scope = ALL_PROJECTS if project_id is None else ProjectScope(frozenset([project_id]))
    kept = {} if project_id is None else {"project": slug}
    now = timezone.now()
    period = Period(now - length[name], now)
    buckets = _within_limit(lambda: overview.activity(scope, period, _WIDTHS[name]))
    running = _within_limit(lambda: overview.open_runs(scope))
    return {
        "overview": {
            "periods": [
                (key, label, f"?{urlencode({'created': key, **kept})}") for key, label, _length in CreatedFilter.PERIODS
            ],
            "period": name,
            "projects": list(projects) if len(projects) > 1 else [],
            "project": slug if project_id is not None else "",
            "filters": urlencode({"created": name, **kept}),
            "project_filter": urlencode(kept),
            "total": None if buckets is None else overview.total_of(period, buckets),
            "runs_chart": None
            if buckets is None
            else list(_bars(buckets, kept, lambda b: (b.runs - b.failed_runs, b.failed_runs))),
            "tokens_chart": None if buckets is None else list(_bars(buckets, kept, lambda b: (b.tokens, 0))),
            "buckets": buckets,
            "chart_width": 10 * len(buckets or ()),
            "failing_tools": _within_limit(lambda: overview.failing_tools(scope, period)),
            "failed_runs": _within_limit(lambda: _rows(overview.failed_runs(scope, period))),
            "slow_runs": _within_limit(lambda: _rows(overview.slow_runs(scope, period))),
            "open_runs": _rows(running[0]) if running else None,
            "open_count": running[1] if running else None,
            "models": _within_limit(lambda: overview.models_used(scope, period)),
            "storage": _storage(),
        }
    }


def _rows(runs: overview.Runs) -> list[dict[str, Any]]:
    return [{"run": run, "name": session_name(run.session), "call": runs.errors.get(run.pk)} for run in runs.rows]


def _bars(buckets: Sequence[Totals], kept: dict[str, str], parts: Callable[[Totals], tuple[int, int]]) -> Iterator[Bar]:
    most = max((sum(parts(bucket)) for bucket in buckets), default=0) or 1
    runs = reverse("admin:messages_app_message_changelist")
    for index, bucket in enumerate(buckets):
        bottom, top = (_HEIGHT * part / most for part in parts(bucket))
        times = {
            "created_after": _in_utc(bucket.begin),
            "created_before": _in_utc(bucket.end),
        }
        yield Bar(
            x=10 * index,
            bottom_y=round(_HEIGHT - bottom, 2),
            bottom_height=round(bottom, 2),
            top_y=round(_HEIGHT - bottom - top, 2),
            top_height=round(top, 2),
            url=f"{runs}?{urlencode({'role': Message.Role.ASSISTANT, **times, **kept})}",
            totals=bucket,
        )


def _in_utc(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _within_limit(read: Callable[[], T]) -> T | None:
    """Return what `read` returns, or None if one of its queries took too long."""
    try:
        with time_limit(SECTION_MS):
            return read()
    except OperationalError as error:
        if not was_stopped(error):
            raise
        return None


def _storage() -> dict[str, Any]:
    """Return the size of the database in bytes, and the times of the oldest and the newest message."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_database_size(current_database())")
        row = cursor.fetchone()
    times = Message.with_deleted.values_list("created_at", flat=True)
    return {
        "bytes": row[0] if row else 0,
        "oldest": times.order_by("pk").first(),
        "newest": times.order_by("-pk").first(),
    }

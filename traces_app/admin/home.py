"""The first page of the admin: what needs attention, in figures that lead to the rows behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import urlencode

from django.db import OperationalError
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.conf import conf
from access_app.db import Database
from access_app.db.conflicts import was_stopped
from access_app.db.replica import replica_state
from access_app.db.states import database_states
from access_app.models import Role
from access_app.readable import Readable, first_of
from access_app.readable_pages import is_some_away, readable_on_page
from access_app.roles import access
from access_app.visibility import ALL_PROJECTS, ProjectScope
from messages_app.admin.filters import CreatedFilter, readable_projects, remember, remembered, scope_of_page
from messages_app.models import Message
from messages_app.sql.batch import time_limit
from messages_app.waiting import waiting_words
from traces_app.maintenance.retention import NextRemoval, next_removals
from traces_app.queries import intake, overview
from traces_app.queries import overview_sums as sums
from traces_app.queries.overview import Period, Totals
from traces_app.queries.runs.listed import endings
from traces_app.queries.runs.outcome import quiet_since
from traces_app.queries.session_names import read_session_names
from traces_app.queries.storage import Storage, storage
from tracesite_sdk.records import ids

from . import periods
from .connect_page import connect_context
from .home_charts import RowsOf, calls_chart, cost_chart, legend_of, parameter_of, runs_chart, tokens_chart, width_of
from .tool_rows import ToolRow, by_change, compared, newest_tools, rows_of, with_times

T = TypeVar("T")
"""The projects of the page, by the aliases of their databases."""

SECTION_MS = 3000
"""Milliseconds that a part of the page may take; then it says that the period holds too much."""
MOST_MODELS = 8
MOST_PERIODS = 6
MOST_CALLS = 3
MOST_REMOVALS = 5
READER_LATE_AFTER = timedelta(minutes=5)
ROLL_UP_LATE_AFTER = timedelta(hours=6)
"""Hours are added up three hours after their end; see traces_app.maintenance.tool_roll_up."""
MOST_CHARACTERS = 200
REPLICA_REASONS: Mapping[str, str | Promise] = {
    "away": gettext_lazy("not used: it does not respond"),
    "lagging": gettext_lazy("not used: it is too far behind"),
    "not_a_replica": gettext_lazy("not used: it is no replica any more"),
    "primary_away": gettext_lazy("not used: the primary did not say how far it is"),
}
DATABASE_REASONS: Mapping[str, str | Promise] = {
    "away": gettext_lazy("does not respond; its projects cannot be read or written"),
    "not_migrated": gettext_lazy("lacks migrations: run prepare_database"),
}
_BARS = 62

KINDS: Mapping[str, str | Promise] = {
    "messages": gettext_lazy("Messages"),
    "calls": gettext_lazy("Steps, calls and results"),
    "events": gettext_lazy("Events"),
    "contexts": gettext_lazy("Contexts and model inputs"),
    "spans": gettext_lazy("Spans as received"),
    "search": gettext_lazy("Search index"),
    "other": gettext_lazy("PostgreSQL, accounts and settings"),
}


def home(request: HttpRequest) -> dict[str, Any]:
    """Return the context of the page: nothing for people who may not see traces."""
    if not access(request).allows(Role.VIEWER):
        return {}
    projects = readable_projects(request)
    parameters = _parameters(request)
    periods.warn_of_project(request, projects)
    slug = parameters.get("project", "")
    project_id = projects.get(slug)
    scope = scope_of_page(request, project_id)
    readable = readable_on_page(request, scope)
    kept = {} if project_id is None else {"project": slug}
    title = _("What needs attention")
    newest = sums.newest_of(readable.each(intake.newest))
    chosen, period = _chosen_period(request, parameters, readable)
    # What is not valid would be warned of at each visit.
    is_valid = chosen.entered == chosen.given and (not slug or project_id is not None)
    if is_valid:
        remember(request, parameters)
    common = {
        **periods.page_filters(chosen, {**chosen.given, **kept}, projects, slug, ""),
        "project_filter": urlencode(kept),
        "period": period,
        "times": urlencode(chosen.given),
        "filters": urlencode({**chosen.given, **kept}),
    }
    if newest is None:
        empty = {"is_empty": True, "is_some_away": is_some_away(request, scope, readable)}
        first = {**connect_context(request, slug if project_id is not None else ""), "waits": True}
        return {"title": title, "overview": {**common, **empty}, "first": first}
    # Of the operators of the installation: they are not the business of who sees some projects only.
    is_operator = request.user.is_superuser
    changes = _changes(readable, chosen)
    return {
        "title": title,
        "overview": {
            **common,
            **_activity(readable, period, kept),
            "newest": newest,
            "day_of_newest": f"?{urlencode({**kept, **_times(_day_of(newest[1]))})}",
            "is_counted": changes is not None,
            "compares": chosen.before is not None,
            **_lists(readable, period, changes or []),
            "intake": _intake(readable, period),
            "storage": _storage(readable) if is_operator else None,
            "is_operator": is_operator,
        },
    }


def _parameters(request: HttpRequest) -> dict[str, str]:
    """Return the range and the project in the address; without them those of the reader's last visit."""
    names = (*CreatedFilter.parameter_names, "project")
    given = {name: request.GET[name][:MOST_CHARACTERS] for name in names if name in request.GET}
    if not given:
        return remembered(request)
    return given


def _chosen_period(
    request: HttpRequest, parameters: Mapping[str, str], readable: Readable
) -> tuple[periods.Period, Period]:
    """Return the range of times in the parameters; the default one if they are not valid."""
    chosen = periods.Period.or_usual(request, parameters)
    now = timezone.now().replace(microsecond=0)
    # No message is outside of these, and the charts have a bar for each month of the range.
    first, last = ids.EARLIEST, now + ids.LATEST_AHEAD
    upper = ids.created_at_of(chosen.ids.upper) if chosen.ids.upper else None
    is_open = upper is None or upper > last
    end = now if upper is None else max(min(upper, last), first)
    if chosen.ids.lower is None:
        oldest = sums.oldest_of(readable.each(intake.oldest))
        begin = max(min(oldest or end, end - timedelta(hours=1)), first)
    else:
        begin = max(min(ids.created_at_of(chosen.ids.lower), last), first)
    if "created" in chosen.given:
        begin = begin.replace(microsecond=0)
    return chosen, Period(begin, max(end, begin), is_open=is_open)


def _activity(readable: Readable, period: Period, kept: dict[str, str]) -> dict[str, Any]:
    """Return the totals, the charts and the slowest runs. A chart is None if its figures took too long to read."""
    width = width_of(period, most=_BARS)
    rows = RowsOf(period, kept)

    def read(db: Database, scope: ProjectScope) -> tuple[list[Totals], list[Message]]:
        return overview.activity(db, scope, period, width), overview.slow_runs(db, scope, period)

    parts = _parts(readable, read)
    uses = _sum(readable, lambda db, scope: overview.models_used(db, scope, period, width), sums.uses_of)
    if parts is None:
        return {"total": None, "slow_runs": None}
    buckets = sums.activity_of([totals for totals, _slow in parts])
    slow = sums.slow_runs_of([runs for _totals, runs in parts])
    models = None if uses is None else overview.whole_use(use for part in uses.values() for use in part)
    legend = None if models is None else legend_of(models)
    total = overview.total_of(period, buckets)
    names = read_session_names(run.session for run in slow)
    return {
        "total": total,
        "slow_runs": [{"run": run, "name": names[run.session_id]} for run in slow],
        "runs_chart": runs_chart(buckets, rows),
        "calls_chart": calls_chart(buckets, rows),
        "tokens_chart": tokens_chart(buckets, rows),
        "cost_chart": None if uses is None or legend is None else cost_chart(buckets, uses, legend, rows),
        "models": None if legend is None else legend[:MOST_MODELS],
        "models_left_out": max(len(models or ()) - MOST_MODELS, 0),
        "unpriced_without_model": 0
        if models is None
        else max(total.unknown_count - sum(use.unpriced_count for use in models), 0),
    }


def _changes(readable: Readable, chosen: periods.Period) -> list[ToolRow] | None:
    """Return the tools that fail or got slower, those that changed most first; None if reading them took too long."""
    tools, _left_out = newest_tools(readable)
    found = compared(tools, chosen, at_most_ms=SECTION_MS)
    if found is None:
        return None
    called = [tool for tool in chain.from_iterable(tools.values) if tool.pk in found.now.by_tool]
    rows = by_change(rows_of(found, called, lambda _tool: None))
    return with_times([row for row in rows if row.figures.errors or row.slower_weight][: overview.MOST], tools, found)


def _lists(readable: Readable, period: Period, changed: Sequence[ToolRow]) -> dict[str, Any]:
    """Return examples of what failed, failed runs and open ones."""
    tools = [row.tool.pk for row in changed if row.figures.errors]

    def read(
        db: Database, scope: ProjectScope
    ) -> tuple[Mapping[int, overview.Failure], list[Message], overview.OpenRuns]:
        return (
            overview.failures(db, scope, period, tools),
            overview.failed_runs(db, scope, period),
            overview.open_runs(db, scope),
        )

    parts = _parts(readable, read)
    if parts is None:
        return {"failed_runs": None, "open_runs": None, "changes": [(row, None) for row in changed]}
    failures = sums.failures_of([part[0] for part in parts])
    failed = sums.failed_runs_of([part[1] for part in parts])
    ended = endings(failed)
    names = read_session_names(run.session for run in failed)
    return {
        "changes": [(row, failures.get(row.tool.pk)) for row in changed],
        "failed_runs": [{"run": run, "name": names[run.session_id], "error": ended[run.pk].error} for run in failed],
        **_open_runs(sums.open_runs_of([part[2] for part in parts])),
    }


def _open_runs(found: overview.OpenRuns) -> dict[str, Any]:
    names = read_session_names(run.session for run in (*found.running_rows, *found.waiting_rows))

    def row(run: Message) -> dict[str, Any]:
        return {
            "run": run,
            "name": names[run.session_id],
            "quiet_since": quiet_since(run.session),
            "waits_for": waiting_words(run.session),
            "calls": found.pending_calls.get(run.pk, [])[:MOST_CALLS],
        }

    return {
        "open_runs": found,
        "running": [row(run) for run in found.running_rows],
        "waiting": [row(run) for run in found.waiting_rows],
        "stale_hours": conf.STALE_RUN_HOURS,
    }


def _intake(readable: Readable, period: Period) -> dict[str, Any] | None:
    def read(db: Database, scope: ProjectScope) -> tuple[intake.Arrivals, intake.Backlog]:
        return intake.arrivals(db, scope, period, with_waits=not readable.is_one), intake.backlog(db)

    found = _parts(readable, read)
    if found is None:
        return None
    arrived = sums.arrivals_of([part for part, _backlog in found])
    backlog = sums.backlog_of([part for _arrived, part in found])
    now = timezone.now()
    unit: overview.Width = "minute" if period.end - period.begin <= timedelta(hours=2) else "hour"
    units = max((period.end - period.begin) / timedelta(**{f"{unit}s": 1}), 1)
    return {
        "arrived": arrived,
        "median_wait": arrived.median_wait and arrived.median_wait / timedelta(milliseconds=1),
        "p95_wait": arrived.p95_wait and arrived.p95_wait / timedelta(milliseconds=1),
        "unit": unit,
        "messages_rate": _rounded(arrived.messages / units),
        "calls_rate": _rounded(arrived.calls / units),
        "backlog": backlog,
        "most_waiting": intake.MOST_WAITING,
        "late_readers": {name for name, since in backlog.waiting_since.items() if now - since > READER_LATE_AFTER},
        "roll_up_is_late": backlog.rolled_until is not None and now - backlog.rolled_until > ROLL_UP_LATE_AFTER,
    }


def _rounded(rate: float) -> float:
    """Return a rate with one decimal below 10, and none where it says nothing."""
    return round(rate, 1) if 0 < rate < 10 else round(rate)


def _storage(readable: Readable) -> dict[str, Any] | None:
    """Return the sizes of whole databases, whichever projects the page is of."""

    def read(db: Database, _scope: ProjectScope) -> tuple[Storage, datetime | None, list[NextRemoval]]:
        here = storage(db)
        return (
            here,
            intake.oldest(db, ALL_PROJECTS),
            next_removals(db, [each.period for each in reversed(here.periods)]),
        )

    parts = _parts(readable, read)
    if parts is None:
        return None
    found, oldest = sums.storage_of([part[0] for part in parts]), sums.oldest_of(part[1] for part in parts)
    removals = first_of((part[2] for part in parts), MOST_REMOVALS, key=lambda removal: removal.place)

    def url(begin: datetime, end: datetime) -> str:
        return f"{reverse('admin:messages_app_message_changelist')}?{urlencode(_times(Period(begin, end)))}"

    def shares(sizes: Sequence[tuple[Any, int]]) -> list[tuple[Any, int, int]]:
        most = max((size for _name, size in sizes), default=0) or 1
        return [(name, size, round(100 * size / most)) for name, size in sizes]

    periods = found.periods[:MOST_PERIODS]
    replica = replica_state()
    return {
        "replica": replica,
        "replica_reason": replica and REPLICA_REASONS.get(replica.reason),
        "replica_lag": replica and 1000 * (replica.lag_seconds or 0),
        "project_databases": [(one.alias, DATABASE_REASONS.get(one.reason)) for one in database_states()],
        "found": found,
        "removals": removals,
        "removals_left_out": sum(len(part[2]) for part in parts) - len(removals),
        "growth": found.growth(oldest, timezone.now()),
        "oldest": oldest,
        "kinds": shares([(KINDS[kind], size) for kind, size in found.kinds.items() if size]),
        "periods": shares([((each.period, url(each.begin, each.end)), each.size) for each in periods]),
        "older_periods": len(found.periods) - len(periods),
        "older_size": sum(each.size for each in found.periods[len(periods) :]),
        # What a purge by age removes first, at once and whole.
        "first_period": found.periods[-1] if len(found.periods) > 1 else None,
        "first_period_ends": f"{found.periods[-1].end:%Y-%m-%d}" if found.periods else "",
    }


def _day_of(instant: datetime) -> Period:
    begin = overview.floor(instant, "day")
    return Period(begin, begin + timedelta(days=1))


def _times(period: Period) -> dict[str, str]:
    return {"created_after": parameter_of(period.begin), "created_before": parameter_of(period.end)}


def _sum(readable: Readable, read: Callable[[Database, ProjectScope], T], add: Callable[[Sequence[T]], T]) -> T | None:
    """Return what `add` makes of what `read` returns in each database; None if one of its queries took too long."""
    parts = _parts(readable, read)
    return None if parts is None else add(parts)


def _parts(readable: Readable, read: Callable[[Database, ProjectScope], T]) -> list[T] | None:
    """Return what `read` returns of the projects in each database; None if one of its queries took too long."""

    def limited(db: Database, scope: ProjectScope) -> T:
        with time_limit(db, SECTION_MS):
            return read(db, scope)

    try:
        return list(readable.each(limited))
    except OperationalError as error:
        if not was_stopped(error):
            raise
        return None

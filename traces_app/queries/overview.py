"""The runs, failures, tokens and cost of a period, for the first page of the admin.

Each function is one or two statements within the ids of its period. Nothing is counted that was deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.db.models import Count, DateTimeField, Exists, Func, Model, OuterRef, Q, QuerySet, Sum
from django.db.models.functions import Trunc
from django.utils import timezone

from access_app.db import Database
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import UNKNOWN_IN_MESSAGE, WAITS, Message
from messages_app.safe_text import first_characters
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import newest_id
from traces_app.models import AgentStep, ToolCall
from tracesite_sdk.normalize.pricing import TOKENS_IN, TOKENS_OUT
from tracesite_sdk.records import ids

from .runs.outcome import CONDITIONS, Outcome
from .usage import ALL_TOKENS, IS_UNPRICED, tokens_in_step
from .waiting import waiting_calls

MOST = 5
"""Rows of each list."""
_ERROR_CHARACTERS = 300
_READING_ORDER = ("step__iteration", "step__ordinal", "position", "pk")

T = TypeVar("T", bound=Model)
Width = Literal["minute", "hour", "day", "month"]


class TimeOfId(Func):
    """The time in an id, to the millisecond: see tracesite_sdk.records.ids. Cheaper than to join the message."""

    template = "to_timestamp(('x' || left(replace(%(expressions)s::text, '-', ''), 12))::bit(48)::bigint / 1000.0)"
    output_field = DateTimeField()


@dataclass(frozen=True)
class Period:
    """From `begin` (inclusive) until `end` (exclusive), in UTC."""

    begin: datetime
    end: datetime
    is_open: bool = False
    """Whether rows after `end` belong to it, too: the clocks of senders may be ahead of ours."""

    @property
    def before(self) -> Period:
        """The period of the same length that ends where this one begins."""
        return Period(self.begin - (self.end - self.begin), self.begin)

    @property
    def first_id(self) -> UUID:
        return ids.first_id_at(self.begin)

    @property
    def in_period(self) -> dict[str, Any]:
        after = {} if self.is_open else {"pk__lt": ids.first_id_at(self.end)}
        return {"pk__gte": self.first_id, **after}


_COUNTS = (
    "runs",
    "failed_runs",
    "open_runs",
    "calls",
    "failed_calls",
    "input_tokens",
    "output_tokens",
    "unknown_count",
)


@dataclass(kw_only=True)
class Totals:
    """The runs, calls, failures, tokens and cost between two times."""

    begin: datetime
    end: datetime
    runs: int = 0
    failed_runs: int = 0
    """Runs of `Outcome.FAILED`, as lists of runs show them."""
    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """USD, of the steps whose cost is known."""
    unknown_count: int = 0
    """Requests whose cost is unknown."""
    open_runs: int = 0
    is_over: bool = False
    """Whether the time is over; runs that began in it may go on."""

    @property
    def goes_on(self) -> bool:
        return self.open_runs > 0 and not self.is_over

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, other: Totals) -> None:
        """Add what happened in a part of this time."""
        for name in _COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.cost is not None:
            self.cost = (self.cost or Decimal(0)) + other.cost


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The first failed call of a tool in the last run in which it failed: later ones often follow from it."""

    id: UUID
    message_id: UUID
    error: str
    """The beginning of its error."""


@dataclass(kw_only=True)
class ModelUse:
    """The requests to a model between two times. They belong to the time of their run."""

    model: str
    """Empty if their producer named none."""
    runs: int = 0
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """USD, of the requests whose cost is known."""
    unpriced_count: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, other: ModelUse) -> None:
        """Add the requests of another part of the time. No run is in two parts."""
        for name in ("runs", "requests", "input_tokens", "output_tokens", "unpriced_count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.cost is not None:
            self.cost = (self.cost or Decimal(0)) + other.cost


@dataclass(kw_only=True)
class OpenRuns:
    """Runs that are not complete: those that work, and those of paused sessions, which wait for a person."""

    running: int = 0
    waiting: int = 0
    running_rows: list[Message] = field(default_factory=list)
    waiting_rows: list[Message] = field(default_factory=list)
    """The oldest ones, with their sessions."""
    pending_calls: dict[UUID, list[ToolCall]] = field(default_factory=dict)
    """The calls without a result of the waiting runs, with their tools."""


def activity(db: Database, scope: ProjectScope, period: Period, width: Width) -> list[Totals]:
    """Return the totals of each minute, hour or day of the period, in order, without gaps.

    Days are those of the current time zone; hours are those of UTC, because local ones are ambiguous when clocks go back.
    """
    sums = {
        "runs": Count("pk"),
        "failed_runs": Count("pk", filter=CONDITIONS[Outcome.FAILED]),
        "calls": Sum("call_count"),
        "failed_calls": Sum("failure_count"),
        "input_tokens": Sum("input_tokens"),
        "output_tokens": Sum("output_tokens"),
        "cost": Sum("cost"),
        "unknown_count": Sum(UNKNOWN_IN_MESSAGE),
        "open_runs": Count("pk", filter=Q(is_completed=False)),
    }
    # Django groups by an alias only if it differs from every field.
    grouped = (
        _runs(db, scope, period)
        .order_by()
        .annotate(bucket=Trunc("created_at", width, tzinfo=zone_of(width)))
        .values("bucket")
    )
    named = {f"{name}_": each for name, each in sums.items()}
    buckets = [Totals(begin=begin, end=end) for begin, end in steps(period, width)]
    by_begin = {bucket.begin: bucket for bucket in buckets}
    for begin, *values in grouped.annotate(**named).values_list("bucket", *named):
        part = Totals(begin=begin, end=begin, **dict(zip(sums, values, strict=True)))
        by_begin.get(begin, buckets[-1]).add(part)
    return buckets


def steps(period: Period, width: Width) -> list[tuple[datetime, datetime]]:
    """Return the beginnings and ends of the minutes, hours, days or months of a period, in order, without gaps."""
    intervals: list[tuple[datetime, datetime]] = []
    begin = floor(period.begin, width)
    while begin < period.end or not intervals:
        end = _next(begin, width)
        intervals.append((begin, end))
        begin = end
    return intervals


def total_of(period: Period, buckets: list[Totals]) -> Totals:
    """Return the sum over all buckets."""
    is_over = not period.is_open and period.end <= timezone.now()
    total = Totals(begin=period.begin, end=period.end, is_over=is_over)
    for bucket in buckets:
        total.add(bucket)
    return total


def failed_runs(db: Database, scope: ProjectScope, period: Period) -> list[Message]:
    """Return the newest runs that failed."""
    return list(_listed(_runs(db, scope, period).filter(CONDITIONS[Outcome.FAILED]).order_by("-pk")))


def slow_runs(db: Database, scope: ProjectScope, period: Period) -> list[Message]:
    """Return the runs that took longest."""
    return list(_listed(_runs(db, scope, period).filter(duration_ms__gt=0).order_by("-duration_ms", "-pk")))


def open_runs(db: Database, scope: ProjectScope) -> OpenRuns:
    """Return the runs that are not complete: one statement, one if any works, and two if any waits."""
    rows = visible_to(db.rows(Message.objects).filter(role=Message.Role.ASSISTANT, is_completed=False), scope).order_by(
        "pk"
    )
    counts = rows.order_by().aggregate(running=Count("pk", filter=~WAITS), waiting=Count("pk", filter=WAITS))
    runs = OpenRuns(**counts)
    runs.running_rows = list(_listed(rows.exclude(WAITS))) if runs.running else []
    runs.waiting_rows = list(_listed(rows.filter(WAITS))) if runs.waiting else []
    runs.pending_calls = waiting_calls(db, [row.pk for row in runs.waiting_rows])
    return runs


def failures(db: Database, scope: ProjectScope, period: Period, tool_ids: Collection[int]) -> dict[int, Failure]:
    """Return an example of the failed calls of each of the tools that has some."""
    in_period = {f"{table}{name}": value for table in ("", "step__") for name, value in period.in_period.items()}
    failed = db.rows(ToolCall.with_deleted).filter(
        tool_id__in=tool_ids, status=ToolCall.Status.ERROR, **period.in_period
    )
    newest = _alive(db, visible_to(failed, scope)).values("tool_id").annotate(last=newest_id("message_id"))
    last = dict(newest.values_list("tool_id", "last")) if tool_ids else {}
    firsts = (
        failed.filter(message_id__in=set(last.values()), **in_period)
        .order_by("tool_id", "message_id", *_READING_ORDER)
        .distinct("tool_id", "message_id")
        .annotate(error_text=Beginning("result__error", _ERROR_CHARACTERS))
        .values_list("tool_id", "message_id", "pk", "error_text")
    )
    return {
        tool: Failure(id=pk, message_id=message, error=error or "")
        for tool, message, pk, error in (firsts if last else ())
        if last[tool] == message
    }


def models_used(db: Database, scope: ProjectScope, period: Period, width: Width) -> dict[datetime, list[ModelUse]]:
    """Return the use of each model in each minute, hour, day or month of the period, by its beginning.

    Requests without a model are left out unless their cost is known. Those of runs that go on are not of unknown cost yet.
    """
    open_runs = db.rows(Message.with_deleted).filter(is_completed=False, **period.in_period).order_by()
    goes_on = Q(message_id__in=open_runs.values("pk"))
    requests = db.rows(AgentStep.with_deleted).filter(~Q(model="") | Q(cost__isnull=False), **period.in_period)
    rows = (
        _alive(db, visible_to(requests, scope, "message__project_id"))
        .alias(all_tokens=ALL_TOKENS)
        .annotate(bucket=Trunc(TimeOfId("pk"), width, tzinfo=zone_of(width)))
        .values("bucket", "model")
        .annotate(
            runs=Count("message_id", distinct=True),
            requests=Count("pk"),
            input_tokens=Sum(tokens_in_step(TOKENS_IN)),
            output_tokens=Sum(tokens_in_step(TOKENS_OUT)),
            total=Sum("cost"),
            unpriced_count=Count("pk", filter=IS_UNPRICED & ~goes_on),
        )
        .values_list("bucket", "model", "runs", "requests", "input_tokens", "output_tokens", "total", "unpriced_count")
    )
    uses: dict[datetime, list[ModelUse]] = {begin: [] for begin, _end in steps(period, width)}
    last = max(uses)
    for bucket, model, runs, count, tokens_in, tokens_out, cost, unpriced in rows:
        use = ModelUse(
            model=model,
            runs=runs,
            requests=count,
            input_tokens=int(tokens_in),
            output_tokens=int(tokens_out),
            cost=cost,
            unpriced_count=unpriced,
        )
        uses[min(bucket, last)].append(use)
    return uses


def whole_use(uses: Iterable[ModelUse]) -> list[ModelUse]:
    """Return the use of each model over all parts of a period, the most expensive and then the most used ones first."""
    whole: dict[str, ModelUse] = {}
    for use in uses:
        whole.setdefault(use.model, ModelUse(model=use.model)).add(use)
    return sorted(whole.values(), key=lambda use: (-(use.cost or 0), -use.requests, use.model))


def _runs(db: Database, scope: ProjectScope, period: Period) -> QuerySet[Message]:
    return visible_to(db.rows(Message.objects).filter(role=Message.Role.ASSISTANT, **period.in_period), scope)


def _alive(db: Database, rows: QuerySet[T]) -> QuerySet[T]:
    """Leave out the rows of deleted messages and sessions, by the small indexes of the trash: see queries.tools."""
    message = db.rows(Message.with_deleted).order_by().filter(pk=OuterRef("message_id"))
    return rows.order_by().filter(
        ~Exists(message.filter(deleted_at__isnull=False)), ~Exists(message.filter(session__deleted_at__isnull=False))
    )


def _listed(rows: QuerySet[Message]) -> QuerySet[Message]:
    return (
        rows.select_related("session")
        .annotate(shown_error=first_characters("error", _ERROR_CHARACTERS))
        .only(
            *("created_at", "completed_at", "is_completed", "duration_ms", "decided_by", "health"),
            *("failure_count", "model_error_count", "step_count", "call_count"),
            *(
                "session__title",
                "session__external_id",
                "session__current_phase",
                "session__status",
                "session__active_at",
            ),
        )[:MOST]
    )


def zone_of(width: Width) -> tzinfo:
    """Return the current time zone for days and months; for hours UTC, because local ones are ambiguous when clocks go back."""
    return timezone.get_current_timezone() if width in ("day", "month") else UTC


def floor(instant: datetime, width: Width) -> datetime:
    """Return the beginning of the minute, hour, day or month: see `zone_of`."""
    instant = instant.astimezone(zone_of(width)).replace(second=0, microsecond=0, fold=0)
    if width == "minute":
        return instant
    if width == "hour":
        return instant.replace(minute=0)
    day = instant.replace(hour=0, minute=0)
    return day if width == "day" else day.replace(day=1)


def _next(begin: datetime, width: Width) -> datetime:
    if width == "month":
        return begin.replace(year=begin.year + begin.month // 12, month=begin.month % 12 + 1)
    return begin + timedelta(**{f"{width}s": 1})  # of days: the next midnight, 23 to 25 hours later

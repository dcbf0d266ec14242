"""What needs attention: the runs, failures, tokens and cost of a period, for the first page of the admin.

Each function is one or two statements within the ids of its period. Nothing is counted that was deleted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypeVar
from uuid import UUID

from django.db.models import Count, Exists, Max, Model, OuterRef, Q, QuerySet, Sum, TextField
from django.db.models.functions import Cast, Left, Trunc
from django.utils import timezone

from access_app.visibility import ProjectScope, visible_to
from messages_app import ids
from messages_app.models import HAS_ERRORS, Message
from traces_app.models import AgentStep, Tool, ToolCall

MOST = 5
"""Rows of each list."""
MOST_MODELS = 8
_ERROR_CHARACTERS = 300

T = TypeVar("T", bound=Model)
Width = Literal["minute", "hour", "day"]
WIDTHS: dict[Width, timedelta] = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}


@dataclass(frozen=True)
class Period:
    """From `begin` (inclusive) until `end` (exclusive), in UTC."""

    begin: datetime
    end: datetime

    @property
    def before(self) -> Period:
        """The period of the same length that ends where this one begins."""
        return Period(self.begin - (self.end - self.begin), self.begin)

    @property
    def first_id(self) -> UUID:
        return ids.first_id_at(self.begin)

    @property
    def in_period(self) -> dict[str, Any]:
        return {"pk__gte": self.first_id, "pk__lt": ids.first_id_at(self.end)}


@dataclass(kw_only=True)
class Totals:
    """What happened between two times."""

    begin: datetime
    end: datetime
    runs: int = 0
    failed_runs: int = 0
    """Runs with a failed call, a model error, or an error of their own."""
    calls: int = 0
    failed_calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: Decimal | None = None
    """USD, of the steps whose cost is known."""
    unpriced_count: int = 0

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def add(self, other: Totals) -> None:
        """Add what happened in a part of this time."""
        for name in ("runs", "failed_runs", "calls", "failed_calls", "input_tokens", "output_tokens", "unpriced_count"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        if other.cost is not None:
            self.cost = (self.cost or Decimal(0)) + other.cost


@dataclass(frozen=True, kw_only=True)
class FailingTool:
    """A tool with failed calls, and how many there were in the period before."""

    name: str
    project: str
    calls: int
    failures: int
    calls_before: int
    failures_before: int
    last_id: UUID
    """The last failed call, and its run."""
    last_message_id: UUID
    error: str
    """The beginning of its error."""

    @property
    def is_worse(self) -> bool:
        """Whether the rate is higher than before."""
        return self.failures * self.calls_before > self.failures_before * self.calls

    @property
    def is_better(self) -> bool:
        return self.failures * self.calls_before < self.failures_before * self.calls


@dataclass(frozen=True, kw_only=True)
class ModelUse:
    """The requests to a model."""

    model: str
    requests: int
    cost: Decimal | None


@dataclass(kw_only=True)
class Runs:
    """The first runs of a list, and what failed in them."""

    rows: list[Message]
    errors: dict[UUID, ToolCall] = field(default_factory=dict)
    """The last failed call of each run that has one, with its tool and the beginning of its error (`error_text`)."""


def activity(scope: ProjectScope, period: Period, width: Width) -> list[Totals]:
    """Return the totals of each minute, hour or day of the period, in order, without gaps.

    Days are those of the current time zone; hours are those of UTC, because local ones are ambiguous when clocks go back.
    """
    zone = timezone.get_current_timezone() if width == "day" else UTC
    sums = {
        "runs": Count("pk"),
        "failed_runs": Count("pk", filter=HAS_ERRORS),
        "calls": Sum("call_count"),
        "failed_calls": Sum("failure_count"),
        "input_tokens": Sum("input_tokens"),
        "output_tokens": Sum("output_tokens"),
        "cost": Sum("cost"),
        "unpriced_count": Sum("unpriced_count"),
    }
    # Django groups by an alias only if it differs from every field.
    grouped = _runs(scope, period).order_by().annotate(bucket=Trunc("created_at", width, tzinfo=zone)).values("bucket")
    found = {
        row[0]: row[1:]
        for row in grouped.annotate(**{f"{name}_": each for name, each in sums.items()}).values_list(
            "bucket", *(f"{name}_" for name in sums)
        )
    }
    buckets = []
    begin = _floor(period.begin.astimezone(zone), width)
    while begin < period.end:
        end = begin + WIDTHS[width]  # of days: the next midnight, 23 to 25 hours later
        bucket = Totals(begin=begin, end=end)
        for name, value in zip(sums, found.get(begin, ()), strict=False):
            setattr(bucket, name, value)
        buckets.append(bucket)
        begin = end
    return buckets


def total_of(period: Period, buckets: list[Totals]) -> Totals:
    """Return the sum over all buckets."""
    total = Totals(begin=period.begin, end=period.end)
    for bucket in buckets:
        total.add(bucket)
    return total


def failed_runs(scope: ProjectScope, period: Period) -> Runs:
    """Return the newest runs with an error."""
    rows = list(_listed(_runs(scope, period).filter(HAS_ERRORS).order_by("-pk")))
    failed = [row.pk for row in rows if row.failure_count]
    calls = (
        ToolCall.objects.filter(message_id__in=failed, status=ToolCall.Status.ERROR)
        .order_by("message_id", "-pk")
        .distinct("message_id")
        .select_related("tool")
        .annotate(error_text=Left("result__error", _ERROR_CHARACTERS))
        .only("message_id", "tool__name")
    )
    return Runs(rows=rows, errors={call.message_id: call for call in calls} if failed else {})


def slow_runs(scope: ProjectScope, period: Period) -> Runs:
    """Return the runs that took longest."""
    return Runs(rows=list(_listed(_runs(scope, period).filter(duration_ms__gt=0).order_by("-duration_ms", "-pk"))))


def open_runs(scope: ProjectScope) -> tuple[Runs, int]:
    """Return the oldest runs that are not complete, and how many there are."""
    rows = visible_to(Message.objects.filter(role=Message.Role.ASSISTANT, is_completed=False), scope)
    return Runs(rows=list(_listed(rows.order_by("pk")))), rows.count()


def failing_tools(scope: ProjectScope, period: Period) -> list[FailingTool]:
    """Return the tools with the most failed calls."""
    failed = ToolCall.with_deleted.filter(status=ToolCall.Status.ERROR, **period.in_period)
    most = (
        _alive(visible_to(failed, scope))
        .values("tool_id")
        .annotate(failures=Count("pk"), last=Max(Cast("pk", TextField())))
        .order_by("-failures", "tool_id")[:MOST]
    )
    found = {row["tool_id"]: row for row in most}
    if not found:
        return []
    now = Q(pk__gte=period.first_id)
    both = Period(period.before.begin, period.end).in_period
    counted = (
        _alive(ToolCall.with_deleted.filter(tool_id__in=found, **both))
        .values("tool_id")
        .annotate(
            calls=Count("pk", filter=now),
            calls_before=Count("pk", filter=~now),
            failures_before=Count("pk", filter=~now & Q(status=ToolCall.Status.ERROR)),
        )
    )
    counts = {row["tool_id"]: row for row in counted}
    last = [UUID(row["last"]) for row in found.values()]
    calls = ToolCall.with_deleted.filter(pk__in=last).annotate(error_text=Left("result__error", _ERROR_CHARACTERS))
    examples = {pk: (message, error) for pk, message, error in calls.values_list("pk", "message_id", "error_text")}
    names = {
        pk: (name, slug)
        for pk, name, slug in Tool.objects.filter(pk__in=found).values_list("pk", "name", "project__slug")
    }
    return [
        FailingTool(
            name=names[tool_id][0],
            project=names[tool_id][1],
            calls=counts[tool_id]["calls"],
            failures=row["failures"],
            calls_before=counts[tool_id]["calls_before"],
            failures_before=counts[tool_id]["failures_before"],
            last_id=UUID(row["last"]),
            last_message_id=examples[UUID(row["last"])][0],
            error=examples[UUID(row["last"])][1] or "",
        )
        for tool_id, row in found.items()
        # A purge may have come in between.
        if tool_id in counts and tool_id in names and UUID(row["last"]) in examples
    ]


def models_used(scope: ProjectScope, period: Period) -> list[ModelUse]:
    """Return the models, the most expensive and then the most used ones first."""
    steps = AgentStep.with_deleted.filter(**period.in_period).exclude(model="")
    rows = (
        _alive(visible_to(steps, scope, "message__project_id"))
        .values("model")
        .annotate(requests=Count("pk"), total=Sum("cost"))
        .values_list("model", "requests", "total")
    )
    uses = [ModelUse(model=model, requests=requests, cost=cost) for model, requests, cost in rows]
    return sorted(uses, key=lambda use: (-(use.cost or 0), -use.requests))[:MOST_MODELS]


def _runs(scope: ProjectScope, period: Period) -> QuerySet[Message]:
    return visible_to(Message.objects.filter(role=Message.Role.ASSISTANT, **period.in_period), scope)


def _alive(rows: QuerySet[T]) -> QuerySet[T]:
    """Leave out the rows of deleted messages and sessions, by the small indexes of the trash: see queries.tools."""
    message = Message.with_deleted.order_by().filter(pk=OuterRef("message_id"))
    return rows.order_by().filter(
        ~Exists(message.filter(deleted_at__isnull=False)), ~Exists(message.filter(session__deleted_at__isnull=False))
    )


def _listed(rows: QuerySet[Message]) -> QuerySet[Message]:
    return (
        rows.select_related("session")
        .annotate(error_text=Left("error", _ERROR_CHARACTERS))
        .only(
            *("created_at", "completed_at", "duration_ms", "failure_count", "model_error_count", "call_count"),
            *("session__title", "session__external_id"),
        )[:MOST]
    )


def _floor(instant: datetime, width: Width) -> datetime:
    instant = instant.replace(second=0, microsecond=0)
    if width == "minute":
        return instant
    return instant.replace(minute=0) if width == "hour" else instant.replace(hour=0, minute=0)

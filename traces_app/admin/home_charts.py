"""The charts of the home page: runs, tool calls, cost by model and tokens over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from urllib.parse import urlencode

from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messages_app.models import Message
from messages_app.safe_text import cost, one_line
from traces_app.queries.overview import ModelUse, Period, Totals, Width

from .charts import Amount, Chart, Slot, chart_of, name_of, number_label, round_cost, round_number

MODELS_DRAWN = 5
"""Models with a colour of their own; the others share one."""
_NAME_CHARACTERS = 24


@dataclass(frozen=True, kw_only=True)
class Legend:
    """The colour of a model in the chart, and what it is for."""

    kind: str
    use: ModelUse


@dataclass(frozen=True)
class RowsOf:
    """The links to the rows of a part of a period."""

    period: Period
    kept: Mapping[str, str]
    """The parameters of the page that the links keep."""

    def runs(self, bucket: Totals, **filters: str) -> str:
        return self._url(self._runs_url, bucket, role=Message.Role.ASSISTANT, **filters)

    def calls(self, bucket: Totals, **filters: str) -> str:
        return self._url(self._calls_url, bucket, **filters)

    @cached_property
    def _runs_url(self) -> str:
        return reverse("admin:messages_app_message_changelist")

    @cached_property
    def _calls_url(self) -> str:
        return reverse("admin:traces_app_toolcall_changelist")

    def _url(self, url: str, bucket: Totals, **filters: str) -> str:
        times = {"created_after": parameter_of(max(bucket.begin, self.period.begin))}
        if not (self.period.is_open and bucket.end >= self.period.end):
            times["created_before"] = parameter_of(min(bucket.end, self.period.end))
        return f"{url}?{urlencode({**filters, **times, **self.kept})}"


def width_of(period: Period, *, most: int) -> Width:
    """Return the finest width that cuts the period into at most about `most` parts; months if none does."""
    widths: tuple[tuple[Width, timedelta], ...] = (
        ("minute", timedelta(minutes=1)),
        ("hour", timedelta(hours=1)),
        ("day", timedelta(days=1)),
    )
    length = period.end - period.begin
    return next((name for name, width in widths if length <= most * width), "month")


def runs_chart(buckets: Sequence[Totals], rows: RowsOf) -> Chart:
    slots = []
    for bucket in buckets:
        numbers = {"runs": intcomma(bucket.runs), "failed": intcomma(bucket.failed_runs)}
        words = ngettext("%(runs)s run, %(failed)s failed", "%(runs)s runs, %(failed)s failed", bucket.runs) % numbers
        failed_url = rows.runs(bucket, outcome="failed")
        slots.append(_failing(bucket, words, bucket.runs, bucket.failed_runs, rows.runs(bucket), failed_url))
    return chart_of(slots, label=number_label, scale=round_number, is_open=rows.period.is_open)


def calls_chart(buckets: Sequence[Totals], rows: RowsOf) -> Chart:
    slots = []
    for bucket in buckets:
        numbers = {"calls": intcomma(bucket.calls), "failed": intcomma(bucket.failed_calls)}
        words = (
            ngettext("%(calls)s call, %(failed)s failed", "%(calls)s calls, %(failed)s failed", bucket.calls) % numbers
        )
        failed_url = rows.calls(bucket, status="error")
        slots.append(_failing(bucket, words, bucket.calls, bucket.failed_calls, rows.calls(bucket), failed_url))
    return chart_of(slots, label=number_label, scale=round_number, is_open=rows.period.is_open)


def tokens_chart(buckets: Sequence[Totals], rows: RowsOf) -> Chart:
    slots = []
    for bucket in buckets:
        numbers = {"input": intcomma(bucket.input_tokens), "output": intcomma(bucket.output_tokens)}
        words = _("%(input)s input tokens, %(output)s output tokens") % numbers
        amounts = [
            Amount(value=bucket.input_tokens, kind="bottom"),
            Amount(value=bucket.output_tokens, kind="output"),
        ]
        slots.append(
            Slot(begin=bucket.begin, words=f"{_name(bucket)} · {words}", url=rows.runs(bucket), amounts=amounts)
        )
    return chart_of(slots, label=number_label, scale=round_number, is_open=rows.period.is_open)


def cost_chart(
    buckets: Sequence[Totals],
    uses: Mapping[datetime, Sequence[ModelUse]],
    legend: Sequence[Legend],
    rows: RowsOf,
) -> Chart:
    """Draw the cost of each model; what has no known cost is no zero, so it is marked."""
    kinds = {each.use.model: each.kind for each in legend}
    slots = []
    for bucket in buckets:
        name = _name(bucket)
        amounts = []
        for use in sorted(uses.get(bucket.begin, ()), key=lambda use: list(kinds).index(use.model)):
            if use.cost:
                url = rows.runs(bucket, **({"model": use.model} if use.model else {}))
                words = f"{name} · {model_name(use.model)}: {cost(use.cost)}, {requests(use.requests)}"
                amounts.append(Amount(value=float(use.cost), kind=kinds[use.model], words=words, url=url))
        unknown = f"{name} · {unpriced(bucket.unknown_count)}" if bucket.unknown_count else ""
        words = f"{name} · {cost(bucket.cost)}"
        slots.append(Slot(begin=bucket.begin, words=words, url=rows.runs(bucket), amounts=amounts, unknown=unknown))
    return chart_of(slots, label=_cost_label, scale=round_cost, is_open=rows.period.is_open)


def legend_of(uses: Sequence[ModelUse]) -> list[Legend]:
    """Give the models their colours, in their order."""
    return [Legend(kind=f"model-{min(place, MODELS_DRAWN)}", use=use) for place, use in enumerate(uses)]


def model_name(model: str) -> str:
    return one_line(model, _NAME_CHARACTERS) or _("(no model named)")


def requests(count: int) -> str:
    return ngettext("%(number)s request", "%(number)s requests", count) % {"number": intcomma(count)}


def unpriced(count: int) -> str:
    words = ngettext("the cost of %(number)s request is unknown", "the cost of %(number)s requests is unknown", count)
    return words % {"number": intcomma(count)}


def parameter_of(instant: datetime) -> str:
    """Return a time for an address, in UTC whatever the reader's zone."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _failing(bucket: Totals, words: str, whole: int, failed: int, url: str, failed_url: str) -> Slot:
    amounts = [
        Amount(value=whole - failed, kind="bottom"),
        Amount(value=failed, kind="top", url=failed_url),
    ]
    return Slot(begin=bucket.begin, words=f"{_name(bucket)} · {words}", url=url, amounts=amounts)


def _name(bucket: Totals) -> str:
    return name_of(bucket.begin, bucket.end - bucket.begin)


def _cost_label(usd: float) -> str:
    return f"${usd:,.0f}" if usd >= 10 else f"${Decimal(repr(round(usd, 12))).normalize():f}"

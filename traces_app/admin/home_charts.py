"""The charts of the home page: runs, tokens, cost by model and arriving messages over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

from django.contrib.humanize.templatetags.humanize import intcomma
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from messages_app.models import Message
from messages_app.safe_text import cost, one_line
from traces_app.queries.overview import ModelUse, Period, Totals, Width

from .charts import Amount, Chart, Slot, chart_of, name_of

MODELS_DRAWN = 5
"""Models with a colour of their own; the others share one."""
_NAME_CHARACTERS = 60


@dataclass(frozen=True, kw_only=True)
class Legend:
    """The colour of a model in the chart, and what it is for."""

    kind: str
    use: ModelUse


@dataclass(frozen=True)
class RowsOf:
    """The links to the runs of a part of a period."""

    period: Period
    kept: Mapping[str, str]
    """The parameters of the page that the links keep."""

    def url(self, begin: datetime, end: datetime, **filters: str) -> str:
        runs = reverse("admin:messages_app_message_changelist")
        times = {"created_after": parameter_of(max(begin, self.period.begin))}
        if not (self.period.is_open and end >= self.period.end):
            times["created_before"] = parameter_of(min(end, self.period.end))
        return f"{runs}?{urlencode({'role': Message.Role.ASSISTANT, **filters, **times, **self.kept})}"


def width_of(period: Period, *, most: int) -> Width:
    """Return the finest width that cuts the period into at most about `most` parts; months if none does."""
    widths: tuple[tuple[Width, timedelta], ...] = (
        ("minute", timedelta(minutes=1)),
        ("hour", timedelta(hours=1)),
        ("day", timedelta(days=1)),
    )
    length = period.end - period.begin
    return next((name for name, width in widths if length <= most * width), "month")


def runs_chart(buckets: Sequence[Totals], width: Width, rows: RowsOf) -> Chart:
    slots = []
    for bucket in buckets:
        numbers = {"runs": intcomma(bucket.runs), "failed": intcomma(bucket.failed_runs)}
        words = (
            ngettext("%(runs)s run, %(failed)s with errors", "%(runs)s runs, %(failed)s with errors", bucket.runs)
            % numbers
        )
        slots.append(
            Slot(
                title=f"{name_of(bucket.begin, width)}: {words}",
                url=rows.url(bucket.begin, bucket.end),
                amounts=[
                    Amount(value=bucket.runs - bucket.failed_runs, kind="bottom"),
                    Amount(
                        value=bucket.failed_runs,
                        kind="top",
                        url=rows.url(bucket.begin, bucket.end, has_errors="true"),
                    ),
                ],
            )
        )
    return chart_of(slots)


def tokens_chart(buckets: Sequence[Totals], width: Width, rows: RowsOf) -> Chart:
    slots = []
    for bucket in buckets:
        numbers = {"input": intcomma(bucket.input_tokens), "output": intcomma(bucket.output_tokens)}
        words = _("%(input)s input tokens, %(output)s output tokens") % numbers
        slots.append(
            Slot(
                title=f"{name_of(bucket.begin, width)}: {words}",
                url=rows.url(bucket.begin, bucket.end),
                amounts=[
                    Amount(value=bucket.input_tokens, kind="bottom"),
                    Amount(value=bucket.output_tokens, kind="output"),
                ],
            )
        )
    return chart_of(slots)


def cost_chart(
    buckets: Sequence[Totals],
    uses: Mapping[datetime, Sequence[ModelUse]],
    legend: Sequence[Legend],
    width: Width,
    rows: RowsOf,
) -> Chart:
    """Draw the cost of each model; what has no known cost is no zero, so it is marked."""
    kinds = {each.use.model: each.kind for each in legend}
    slots = []
    for bucket in buckets:
        name = name_of(bucket.begin, width)
        amounts = []
        for use in sorted(uses.get(bucket.begin, ()), key=lambda use: list(kinds).index(use.model)):
            if use.cost:
                url = rows.url(bucket.begin, bucket.end, **({"model": use.model} if use.model else {}))
                title = f"{name} · {model_name(use.model)}: {cost(use.cost)}, {requests(use.requests)}"
                amounts.append(Amount(value=float(use.cost), kind=kinds[use.model], title=title, url=url))
        unknown = f"{name}: {unpriced(bucket.unpriced_count)}" if bucket.unpriced_count else ""
        slots.append(
            Slot(
                title=f"{name}: {cost(bucket.cost)}",
                url=rows.url(bucket.begin, bucket.end),
                amounts=amounts,
                unknown=unknown,
            )
        )
    return chart_of(slots)


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

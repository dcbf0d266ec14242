"""What requests to models cost, by model, user or day."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from access_app.readable import ReadableRows
from messages_app.sql.pagination import ListRows
from traces_app.queries.schemas.usage import UsageBy, UsageTotal
from traces_app.queries.usage import usage

from .answer import MOST_TOKENS, Answer, Data, Hint, Line, Section, line

GROUPS_READ = 200
DAYS = 7


def cost(rows: ReadableRows[ListRows], by: UsageBy, since: str, kept: Mapping[str, Any]) -> Answer:
    """Add up the requests; `kept` are the parameters of the rows. Raise InvalidInput if it takes too long."""
    found = usage(rows, by, GROUPS_READ)
    return Answer(
        title="Cost",
        head=[line("since {since}", since=since), _line(found.total, "")],
        sections=[
            Section(
                title=f"By {by.replace('_', ' ')}",
                lines=[_line(group, group.key or "(none)") for group in found.results],
                total=found.group_count,
                more=Hint("cost", {**kept, "max_tokens": MOST_TOKENS}),
            )
        ],
        found=found.total.step_count,
    )


def _line(sums: UsageTotal, key: str) -> Line:
    known = None if sums.cost is None else Decimal(bytes(sums.cost).decode())
    return line(
        *("{key}", "at least {cost}" if sums.unpriced_count else "{cost}", "requests: {request_count}"),
        *("tokens in: {input_tokens}, out: {output_tokens}", "requests of unknown cost: {unpriced_count}"),
        key=Data(key),
        cost=known,
        request_count=sums.step_count,
        input_tokens=sums.input_tokens,
        output_tokens=sums.output_tokens,
        unpriced_count=sums.unpriced_count or None,
    )

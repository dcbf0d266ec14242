"""Requests to models, their tokens and their cost, added up by model, end user or day."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC
from decimal import Decimal
from typing import Any

from django.db.models import BigIntegerField, CharField, Count, F, Func, Q, Sum
from django.db.models.functions import Cast, TruncDate
from django.utils.translation import gettext as _
from msgspec import Raw

from access_app.errors import InvalidInput
from access_app.readable import ReadableRows
from messages_app.sql.batch import LIST_MS, Query, Row, fetch
from messages_app.sql.pagination import ListRows
from tracesite_sdk.normalize.pricing import TOKENS_IN, TOKENS_OUT

from .schemas.usage import Usage, UsageBy, UsageGroup, UsageTotal

_KEYS: dict[str, Any] = {
    "model": F("model"),
    "end_user": F("run__session__end_user"),
    "day": Cast(TruncDate("run__created_at", tzinfo=UTC), CharField()),
}
# The values that Python takes for false, as `normalize.rollup.costs_something` does. A list of `__in` cannot have null.
_HAS_NO_ERROR = Q(metadata__error=None) | Q(metadata__error__in=["", False, 0, [], {}])
_HAS_FAILED = Q(metadata__has_key="error") & ~_HAS_NO_ERROR
IS_UNPRICED = Q(cost__isnull=True) & ~(_HAS_FAILED & Q(all_tokens=0))
"""The requests without a cost, but for failed ones without tokens, see rollup.py. `all_tokens` is an alias of ALL_TOKENS."""
_ORDER = {"day": "key DESC"}
_BY_COST = 'cost DESC NULLS LAST, step_count DESC, key COLLATE "C"'
MOST_MERGED = 50_000
"""Groups that are read of each of several databases, because a group of one may be in another, too."""
# The sums over all groups are computed before the limit, in the same pass over the steps.
_WITH_TOTALS = """
    SELECT key, step_count, input_tokens, output_tokens, cost, unpriced_count, count(*) OVER (), sum(step_count) OVER (),
        sum(input_tokens) OVER (), sum(output_tokens) OVER (), sum(cost) OVER (), sum(unpriced_count) OVER ()
    FROM ({grouped}) AS grouped (key, step_count, input_tokens, output_tokens, cost, unpriced_count)
    ORDER BY {order} LIMIT {limit:d}
    """


def usage(rows: ReadableRows[ListRows], group_by: UsageBy, limit: int) -> Usage:
    """Add up the requests of `rows`: the `limit` dearest groups, or newest days, and the total of all groups.

    Raise InvalidInput if it takes longer than LIST_MS, or if one of several databases has more than MOST_MERGED groups.
    """
    is_one = len(rows.parts) == 1
    parts = rows.each(lambda part: _groups(part, group_by, limit if is_one else MOST_MERGED))
    if is_one:
        (groups,) = parts
    else:
        groups = _merged(parts, group_by)
    group_count, *total = groups[0][6:] if groups else (0, 0, 0, 0, None, 0)
    return Usage(
        group_by=group_by,
        results=[UsageGroup(key=key, **_sums(sums)) for key, *sums in (row[:6] for row in groups[:limit])],
        group_count=group_count,
        total=UsageTotal(**_sums(total)),
    )


def _groups(rows: ListRows, group_by: UsageBy, limit: int) -> list[Row]:
    """Return the first groups of one database, each with the number of all and their total behind it."""
    grouped = _grouped(rows, group_by)
    sql = _WITH_TOTALS.format(grouped=grouped.sql, order=_ORDER.get(group_by, _BY_COST), limit=limit)
    (groups,) = fetch(rows.db, [Query(sql=sql, parameters=grouped.parameters)], at_most_ms=LIST_MS)
    return groups


def _merged(parts: Iterable[list[Row]], group_by: UsageBy) -> list[Row]:
    """Add up the groups of several databases, in the form and order of those of one."""
    groups: dict[str, list[Any]] = {}
    total: list[Any] = [0, 0, 0, None, 0]
    for part in parts:
        if part and part[0][6] > len(part):
            raise InvalidInput(
                _("A database has more than %(most)s groups. Choose a project, or a shorter period.")
                % {"most": f"{MOST_MERGED:,}"},
                field="project",
            )
        for key, *sums in (row[:6] for row in part):
            known = groups.setdefault(key, [0, 0, 0, None, 0])
            for added in (known, total):
                added[:] = [
                    value if more is None else more if value is None else value + more
                    for value, more in zip(added, sums, strict=True)
                ]
    rows = [(key, *sums, len(groups), *total) for key, sums in groups.items()]
    if group_by == "day":
        return sorted(rows, key=lambda row: row[0], reverse=True)
    # As _BY_COST.
    return sorted(rows, key=lambda row: (row[4] is None, -(row[4] or 0), -row[1], row[0]))


def _sums(values: Sequence[Any]) -> dict[str, Any]:
    step_count, input_tokens, output_tokens, cost, unpriced_count = values
    return {
        "step_count": int(step_count),
        "input_tokens": int(input_tokens),
        "output_tokens": int(output_tokens),
        "cost": amount(cost),
        "unpriced_count": int(unpriced_count),
    }


def amount(cost: Decimal | None) -> Raw | None:
    """Return an amount in USD for an answer, with the ten decimal places that are stored."""
    return None if cost is None else Raw(f"{round(cost, 10).normalize():f}".encode())


def _grouped(rows: ListRows, group_by: UsageBy) -> Query:
    """Return the statement for the key of each group and its sums."""
    sums = {
        "step_count": Count("pk"),
        "input_tokens": Sum(tokens_in_step(TOKENS_IN)),
        "output_tokens": Sum(tokens_in_step(TOKENS_OUT)),
        "sum_of_costs": Sum("cost"),
        "unpriced_count": Count("pk", filter=IS_UNPRICED),
    }
    # Not `rows.queryset`: the range is that of the messages already.
    steps = rows.find(rows.ids)
    steps = steps.alias(all_tokens=ALL_TOKENS)
    return Query.of(steps.values(key=_KEYS[group_by]).annotate(**sums).values_list("key", *sums))


def tokens_in_step(names: Sequence[str]) -> Func:
    """Return the count in the usage of a step under the first of the names that has one, as `normalize.pricing.tokens` does."""
    # As JSON, so that a text of digits is no number. One template, because Django takes 7 ms to compile a tree of expressions.
    json = "(%(expressions)s -> '{}')::text"
    count = f"CASE WHEN {json} ~ '^[0-9]{{{{1,12}}}}$' THEN {json}::bigint END"
    counts = ", ".join(count.format(name, name) for name in names)
    return Func("usage", template=f"coalesce({counts}, 0)", output_field=BigIntegerField())


ALL_TOKENS = tokens_in_step(TOKENS_IN) + tokens_in_step(TOKENS_OUT)
"""The tokens of a step."""

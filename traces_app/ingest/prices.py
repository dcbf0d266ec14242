"""The prices of models as a write uses them: read once a minute by each process, and applied to merged steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from access_app.bounded_cache import BoundedCache
from access_app.db import Database
from messages_app.models import Message
from traces_app.models import ModelPrice
from tracesite_sdk.normalize.pricing import Price, PriceTable
from tracesite_sdk.normalize.rollup import costs_something
from tracesite_sdk.records import ids

MAX_AGE = 60
"""Seconds after which a changed price counts in every process."""
_PRICES: BoundedCache[None, PriceTable] = BoundedCache(1, max_age=MAX_AGE)
# The bounds prune months.
_STEPS = """
    SELECT id, message_id, model, usage::text, timestamp, said_cost, cost, (metadata -> 'error')::text FROM traces_app_agentstep
    WHERE id = ANY(%s) AND message_id = %s AND id >= %s AND id < %s
    """
_SET_COSTS = """
    UPDATE traces_app_agentstep AS step SET cost = new.cost
    FROM unnest(%s::uuid[], %s::numeric[]) AS new (id, cost)
    WHERE step.id = new.id AND step.id = ANY(%s) AND step.id >= %s AND step.id < %s
    """


def current_prices() -> PriceTable:
    """Return all prices, at most MAX_AGE seconds old."""
    table = _PRICES.get(None)
    if table is None:
        table = read_prices()
        _PRICES.put(None, table)
    return table


def read_prices() -> PriceTable:
    """Read all prices."""
    return PriceTable(prices=[Price(**row) for row in ModelPrice.objects.values(*Price.__dataclass_fields__)])


def forget_prices() -> None:
    """Read the prices again at the next write of this process, because they have changed."""
    _PRICES.clear()


class StoredStep(NamedTuple):
    """The columns of a stored step that determine its cost, and its present cost."""

    id: UUID
    message_id: UUID
    model: str
    usage: str | None
    timestamp: datetime | None
    said_cost: Decimal | None
    cost: Decimal | None
    error: str | None

    @property
    def costs_something(self) -> bool:
        """Return whether the step counts as unpriced if it has no cost."""
        usage, error = (msgspec.json.decode(text) if text else None for text in (self.usage, self.error))
        return costs_something(self.model, usage, error)

    def priced(self, prices: PriceTable, project_id: int) -> Decimal | None:
        """Return the cost that it has by the prices of its day."""
        if self.said_cost is not None:
            return self.said_cost
        usage: Any = msgspec.json.decode(self.usage) if self.usage else None
        day = (self.timestamp or ids.created_at_of(self.message_id)).astimezone(UTC).date()
        return prices.cost(project_id, self.model, usage if isinstance(usage, dict) else None, day)


def price_steps(db: Database, message: Message, step_ids: Sequence[UUID], prices: PriceTable) -> bool:
    """Compute the costs of stored steps of a message anew. Return whether any changed."""
    bounds = ids.range_below(message.pk)
    with db.cursor() as cursor:
        cursor.execute(_STEPS, [list(step_ids), message.pk, *bounds])
        steps = [StoredStep(*row) for row in cursor.fetchall()]
    priced = ((step, step.priced(prices, message.project_id)) for step in steps)
    return bool(set_costs(db, ((step.id, cost) for step, cost in priced if cost != step.cost)))


def set_costs(db: Database, costs: Iterable[tuple[UUID, Decimal | None]]) -> int:
    """Write the costs of steps; return their number. The caller has locked their messages."""
    new = dict(sorted(costs))
    if not new:
        return 0
    first, after = ids.range_below(min(new))[0], ids.range_below(max(new))[1]
    with db.cursor() as cursor:
        cursor.execute(_SET_COSTS, [list(new), list(new.values()), list(new), first, after])
    return len(new)

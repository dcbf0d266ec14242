"""Compute the costs of stored steps anew, after prices have changed.

Messages are read in batches, in the order of ids and without locks. Those of which a cost changes are locked in one short
transaction for each batch, in the order of all writers: messages by id, sessions last. So it can run beside agents, be
interrupted, and be run again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from uuid import UUID

from access_app.db import Database
from access_app.db.transactions import in_transaction
from messages_app.change_log import Kind, log_changes
from messages_app.models import Session
from messages_app.writes import Counts
from traces_app.ingest.prices import StoredStep, read_prices, set_costs
from traces_app.ingest.sql import add_to_sessions
from tracesite_sdk.normalize.pricing import PriceTable, names_of
from tracesite_sdk.records import ids

AT_A_TIME = 200
_MESSAGES = """
    SELECT id, project_id FROM messages_app_message
    WHERE id > %(last)s AND id >= %(first)s AND id < %(after)s AND role = 'assistant' AND step_count > 0
        AND (%(project)s::bigint IS NULL OR project_id = %(project)s)
    ORDER BY id LIMIT %(most)s
    """
_STEPS = """
    SELECT id, message_id, model, usage::text, timestamp, said_cost, cost, (metadata -> 'error')::text FROM traces_app_agentstep
    WHERE message_id = ANY(%s) AND id >= %s AND id < %s
    """
_LOCK = """
    SELECT id, session_id, deleted_at IS NULL, cost, unpriced_count FROM messages_app_message
    WHERE id = ANY(%s) AND id BETWEEN %s AND %s ORDER BY id FOR UPDATE
    """
_SAVE = """
    UPDATE messages_app_message AS message
    SET cost = new.cost, unpriced_count = new.unpriced_count, version = version + 1, updated_at = now()
    FROM unnest(%s::uuid[], %s::numeric[], %s::int[]) AS new (id, cost, unpriced_count)
    WHERE message.id = new.id AND message.id BETWEEN %s AND %s
    """


@dataclass(kw_only=True)
class Recomputed:
    """The progress of a run."""

    messages: int = 0
    """Messages with steps that were read."""
    steps: int = 0
    """Steps whose cost has changed."""
    reached: UUID | None = None
    """The last message that is done."""


def recompute_costs(
    db: Database,
    *,
    project_id: int | None = None,
    from_: datetime | None = None,
    until: datetime | None = None,
    model: str | None = None,
    dry_run: bool = False,
) -> Iterator[Recomputed]:
    """Compute the costs of steps by the prices of their days; yield the state after each batch.

    `model` is a name or a beginning with a `*`, as in ModelPrice. Costs that a producer stated never change.
    """
    prices = read_prices()
    done = Recomputed()
    bounds = {
        "first": ids.first_id_at(from_) if from_ else UUID(int=0),
        "after": ids.first_id_at(until) if until else UUID(int=2**128 - 1),
        "project": project_id,
        "most": AT_A_TIME,
    }
    while True:
        with db.cursor() as cursor:
            cursor.execute(_MESSAGES, {**bounds, "last": done.reached or UUID(int=0)})
            projects: dict[UUID, int] = dict(cursor.fetchall())
        if not projects:
            return
        steps = _steps(db, list(projects))
        changed = _changed(steps, projects, prices, model)
        if changed and not dry_run:
            messages = {step.message_id for step in steps if step.id in changed}
            done.steps += _write(db, sorted(messages), projects, prices, model)
        else:
            done.steps += len(changed)
        done.messages += len(projects)
        done.reached = max(projects)
        yield done


def _steps(db: Database, message_ids: Sequence[UUID]) -> list[StoredStep]:
    first, after = ids.range_below(min(message_ids))[0], ids.range_below(max(message_ids))[1]
    with db.cursor() as cursor:
        cursor.execute(_STEPS, [list(message_ids), first, after])
        return [StoredStep(*row) for row in cursor.fetchall()]


def _changed(
    steps: Collection[StoredStep], projects: dict[UUID, int], prices: PriceTable, model: str | None
) -> dict[UUID, Decimal | None]:
    """Return the new costs of the steps whose cost changes."""
    costs = {
        step.id: step.priced(prices, projects[step.message_id])
        for step in steps
        if model is None or is_of_model(step.model, model)
    }
    return {step.id: costs[step.id] for step in steps if step.id in costs and costs[step.id] != step.cost}


def is_of_model(name: str, wanted: str) -> bool:
    """Return whether a model is the one of a name, or one of a beginning with a `*`."""
    wanted = wanted.strip().lower()
    names = names_of(name)
    return any(name.startswith(wanted[:-1]) for name in names) if wanted.endswith("*") else wanted in names


@in_transaction
def _write(
    db: Database, message_ids: Sequence[UUID], projects: dict[UUID, int], prices: PriceTable, model: str | None
) -> int:
    """Write the costs of these messages, their steps and sessions; return the number of steps."""
    with db.cursor() as cursor:
        cursor.execute(_LOCK, [list(message_ids), message_ids[0], message_ids[-1]])
        locked = cursor.fetchall()
    if not locked:
        return 0
    # Read again, because they may have changed before they were locked.
    steps = _steps(db, [row[0] for row in locked])
    changed = _changed(steps, projects, prices, model)
    set_costs(db, changed.items())
    of_message: dict[UUID, list[tuple[StoredStep, Decimal | None]]] = {}
    for step in steps:
        of_message.setdefault(step.message_id, []).append((step, changed.get(step.id, step.cost)))
    saved: list[tuple[UUID, Decimal | None, int]] = []
    counts: dict[UUID, Counts] = {}
    for message_id, session_id, is_alive, old_cost, old_unpriced in locked:
        priced = of_message.get(message_id, [])
        costs = [cost for _step, cost in priced if cost is not None]
        cost = sum(costs, Decimal(0)) if costs else None
        unpriced = sum(cost is None and step.costs_something for step, cost in priced)
        if not (costs or unpriced):
            unpriced = old_unpriced  # of an answer whose request is not known: that does not change
        if (cost, unpriced) == (old_cost, old_unpriced):
            continue
        saved.append((message_id, cost, unpriced))
        if is_alive:
            counts[session_id] = counts.get(session_id, Counts()) + Counts(
                cost_sum=(cost or Decimal(0)) - (old_cost or Decimal(0)),
                priced_count=(cost is not None) - (old_cost is not None),
                unpriced_count=unpriced - old_unpriced,
            )
    repriced = {step.message_id for step in steps if step.id in changed}.union(row[0] for row in saved)
    log_changes(db, {message_id: projects[message_id] for message_id in repriced}, Kind.FIGURES, sealed=repriced)
    if saved:
        with db.cursor() as cursor:
            columns = list(map(list, zip(*saved, strict=True)))
            cursor.execute(_SAVE, [*columns, message_ids[0], message_ids[-1]])
    # Deleted sessions keep their counters up to date, too.
    list(
        db.rows(Session.with_deleted)
        .filter(pk__in=counts)
        .order_by("pk")
        .select_for_update(no_key=True)
        .values_list("pk")
    )
    add_to_sessions(db, counts)
    return len(changed)

"""Who acted in runs, and how they were scored, for lists of runs: a few queries for all of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q

from access_app.db import Database
from messages_app.sql.batch import LIST_MS, Query, fetch
from messages_app.sql.pagination import ids_below
from traces_app.models import Score

SCORES_READ = 500
"""The newest scores of some runs that are read."""

Actors = tuple[set[str], set[str]]
"""Agents and models."""

# The ids as one value, because Django and psycopg take 20 µs for each of a list.
_STEPS = """
    SELECT DISTINCT message_id, agent_name, model FROM traces_app_agentstep
    WHERE message_id = ANY(%s::uuid[]) AND id >= %s AND id < %s"""


def actors_of(db: Database, messages: Collection[UUID]) -> Mapping[UUID, Actors]:
    """Return the agents and models of messages, of those that have some. One query. Raise InvalidInput if it takes longer than LIST_MS."""
    found: dict[UUID, Actors] = defaultdict(lambda: (set(), set()))
    if messages:
        below = ids_below(messages)
        values = [f"{{{','.join(map(str, messages))}}}", below["pk__gte"], below["pk__lt"]]
        (rows,) = fetch(db, [Query(sql=_STEPS, parameters=values)], at_most_ms=LIST_MS)
        for message, agent, model in rows:
            agents, models = found[message]
            agents.update(filter(None, [agent]))
            models.update(filter(None, [model]))
    return found


@dataclass(frozen=True, kw_only=True)
class About:
    """What may tell a run from others beside how it ended."""

    end_user: str
    agents: Sequence[str]
    models: Sequence[str]
    tags: Sequence[str]
    scores: Sequence[Score]
    """The newest first. Those of a session are of its newest run."""


def read_about(runs: Iterable[Any]) -> dict[UUID, About]:
    """Return this of runs with their sessions, of any database, by their ids. Two queries a database."""
    of_db: dict[Database, dict[UUID, Any]] = defaultdict(dict)
    for run in runs:
        of_db[Database.of_row(run)][run.pk] = run
    found = {}
    for db, some in of_db.items():
        actors, scores = actors_of(db, some), _scores(db, some)
        for key, run in some.items():
            agents, models = actors.get(key, ((), ()))
            found[key] = About(
                end_user=run.session.end_user,
                agents=sorted(agents),
                models=sorted(models),
                tags=run.session.tags,
                scores=scores.get(key, ()),
            )
    return found


def _scores(db: Database, runs: Mapping[UUID, Any]) -> Mapping[UUID, Sequence[Score]]:
    newest_of = {run.session_id: key for key, run in runs.items() if run.session.last_run_id == key}
    of_runs = Q(message_id__in=list(runs)) | Q(session_id__in=list(newest_of), message__isnull=True)
    rows = db.rows(Score.with_deleted).filter(of_runs, deleted_at__isnull=True)
    found: dict[UUID, list[Score]] = defaultdict(list)
    for score in rows.only("message_id", "session_id", "name", "kind", "number", "label").order_by("-pk")[:SCORES_READ]:
        found[score.message_id or newest_of[score.session_id]].append(score)
    return found

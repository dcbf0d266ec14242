"""The names of models and agents that a filter suggests: those of the newest runs, because names are stored only in steps."""

from __future__ import annotations

from dataclasses import dataclass

from access_app.db import Database
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import Message
from traces_app.models import AgentStep
from tracesite_sdk.records import ids

RUNS_READ = 100
STEPS_READ = 1_000
"""The limit of all these runs together."""


@dataclass(frozen=True, kw_only=True)
class StepNames:
    """Names in alphabetical order."""

    models: list[str]
    agents: list[str]


def newest_names(db: Database, scope: ProjectScope) -> StepNames:
    """Return the names in steps of the newest RUNS_READ runs of some projects. Two queries."""
    answers = visible_to(db.rows(Message.objects).filter(role=Message.Role.ASSISTANT), scope)
    runs = list(answers.order_by("-pk").values_list("pk", flat=True)[:RUNS_READ])
    if not runs:
        return StepNames(models=[], agents=[])
    first, last = ids.range_below(runs[-1])[0], ids.range_below(runs[0])[1]
    steps = db.rows(AgentStep.with_deleted).filter(message_id__in=runs, pk__gte=first, pk__lt=last)
    names = set(steps.order_by().values_list("model", "agent_name")[:STEPS_READ])
    models, agents = ({name for name in column if name} for column in zip(*names, strict=True)) if names else ((), ())
    return StepNames(models=sorted(models), agents=sorted(agents))

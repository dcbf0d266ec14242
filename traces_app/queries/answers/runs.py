"""The run that an answer is about, and what its heading says of it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from access_app.db import Database
from access_app.errors import Conflict, NotFound
from access_app.visibility import ProjectScope
from messages_app.models import Message
from messages_app.queries import as_uuid, find_message
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.archived import find_session_here
from traces_app.queries.runs.listed import ListedRun, read_listed

from .answer import Data, Line, line

_NUMBER = re.compile(r"(?P<iteration>\d{1,9})(?:\.(?P<further>\d{1,9}))?(?:/(?P<position>\d{1,9}))?", re.ASCII)


def find_run(db: Database, scope: ProjectScope, name: str) -> Message:
    """Return the run with this id or external id, with its session; of another message the run that answers it, of a session its newest one.

    Raise NotFound, and Conflict if several have this external id.
    """
    try:
        found = find_message(db, scope, name, None)
        of_session, first = found.session_id, found.pk
        newest_first = False
    except Conflict:
        text = _("Several messages have this external id. Give the id of the run, or its session.")
        raise Conflict(text, code="ambiguous_message", field="run") from None
    except NotFound:
        try:
            of_session, first = find_session_here(db, scope, name, field="run").pk, UUID(int=0)
        except NotFound:
            text = _("There is no run, message or session with this id.")
            raise NotFound(text, code="run_not_found", field="run") from None
        newest_first = True
    runs = db.rows(Message.objects).filter(session_id=of_session, pk__gte=first, role=Message.Role.ASSISTANT)
    run = runs.select_related("session").order_by("-pk" if newest_first else "pk").first()
    if run is None:
        raise NotFound(_("No run answers this message."), code="run_not_found", field="run")
    return run


def listed(db: Database, run: Message, decided_by: UUID | None = None) -> ListedRun:
    """Return a run with its question and outcome, which `decided_by` decided if that is known. Raise NotFound if it was deleted
    meanwhile."""
    found = read_listed(db, [run.pk], None if decided_by is None else {run.pk: decided_by}).get(run.pk)
    if found is None:
        raise NotFound(_("There is no message with this id."), code="message_not_found", field="run")
    return found


def listed_runs(db: Database, keys: Sequence[UUID]) -> list[ListedRun]:
    """Return runs in this order, without those that were deleted."""
    runs = read_listed(db, keys)
    return [runs[key] for key in keys if key in runs]


def head_of(run: ListedRun) -> list[Line]:
    """Return what the heading of an answer says of its run."""
    row = run.run
    cost = "cost at least {cost}" if row.unpriced_count else "cost {cost}"
    return [
        line("{outcome}", "because of {error}", outcome=run.outcome.value, error=Data(run.error)),
        line("asked: {question}", question=Data(run.question)),
        line("answered: {answer}", answer=Data(run.said)),
        line(
            *(
                "took {duration_ms}" if row.is_completed else "{duration_ms} so far",
                "steps: {step_count}",
                "calls: {call_count}, failed: {failure_count}",
            ),
            *("tokens: {tokens}", cost if row.cost is not None else ""),
            duration_ms=row.took_ms,
            step_count=row.step_count,
            call_count=row.call_count,
            failure_count=row.failure_count,
            tokens=(row.input_tokens + row.output_tokens) or None,
            cost=row.cost,
            unpriced_count=row.unpriced_count or None,
        ),
        line(
            *("run {run}", "{created_at}", "session {session}", "{session_name}"),
            run=str(row.pk),
            created_at=row.created_at,
            session=str(row.session_id),
            session_name=Data(run.session_name),
        ),
    ]


def line_of(run: ListedRun) -> Line:
    """Return a run in a list of runs."""
    return line(
        *("{created_at}", "{outcome}", "{question}", "{error}", "run {run}"),
        created_at=run.run.created_at,
        outcome=run.outcome.value,
        question=Data(run.question),
        error=Data(run.error),
        run=str(run.run.pk),
    )


def find_step(db: Database, scope: ProjectScope, run: str, step: str) -> AgentStep:
    """Return a step by its id, or by its number in a run. Raise NotFound."""
    rows: Any = db.rows(AgentStep.with_deleted).defer("thought", "reasoning", "metadata")
    if (key := as_uuid(step)) is not None:
        found = rows.filter(pk=key).first()
        if found is not None:
            find_message(db, scope, str(found.message_id), None)
            return found  # type: ignore[no-any-return]
    elif run and (number := _NUMBER.fullmatch(step)) and not number["position"]:
        message = find_run(db, scope, run)
        found = _step_of(rows, message.pk, number)
        if found is not None:
            return found
    raise NotFound(_("There is no such step. Give its ID, or its run and its number, such as 3."), field="step")


def find_call(db: Database, scope: ProjectScope, run: str, call: str) -> ToolCall:
    """Return a call by its id, or of a run by its number or the id that the model gave it. Raise NotFound."""
    rows: Any = db.rows(ToolCall.with_deleted).select_related("tool", "step").defer("args", "metadata", "reflection")
    if (key := as_uuid(call)) is not None and (found := rows.filter(pk=key).first()) is not None:
        find_message(db, scope, str(found.message_id), None)
        return found  # type: ignore[no-any-return]
    if run:
        message = find_run(db, scope, run)
        of_run = rows.filter(message_id=message.pk, **ids_below([message.pk])).order_by("pk")
        number = _NUMBER.fullmatch(call)
        if number and number["position"]:
            step = _step_of(db.rows(AgentStep.with_deleted), message.pk, number)
            found = None if step is None else of_run.filter(step_id=step.pk, position=int(number["position"])).first()
        else:
            found = of_run.filter(call_id=call).exclude(call_id="").first() if "\x00" not in call else None
        if found is not None:
            return found  # type: ignore[no-any-return]
    raise NotFound(_("There is no such call. Give its ID, or its run and its number, such as 3/0."), field="call")


def _step_of(rows: Any, message_id: UUID, number: re.Match[str]) -> AgentStep | None:
    of_run = rows.filter(message_id=message_id, **ids_below([message_id])).order_by("ordinal", "pk")
    further = int(number["further"] or 0)
    found: AgentStep | None = of_run.filter(iteration=min(int(number["iteration"]), 2**31 - 1))[
        further : further + 1
    ].first()
    return found

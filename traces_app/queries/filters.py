"""Filters of the lists of sessions, messages, calls, errors, chains and scores, and of usage. Those of tools: tool_filters.py.

A filter on the calls of a message is an EXISTS on calls with the numbers of the tools and the range of ids that the page
can hold, planned for these values. The planner then walks the messages for a common tool and the calls for a rare one: 0.4
to 5 ms over 36 months of 300,000 calls, where a range computed from each message row took up to 44 ms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, get_args

from django.core.validators import EMPTY_VALUES
from django.db.models import Exists, FilteredRelation, OuterRef, Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import MD5, Cast

from access_app.db import Database
from access_app.visibility import ProjectScope, visible_to
from messages_app.http import filters
from messages_app.http.filters import (
    AT_LEAST,
    KeysFilter,
    ListFilterSet,
    NameFilter,
    NumberFilter,
    Rows,
    SecondsFilter,
    TextFilter,
    UuidFilter,
    WholeNumberFilter,
    WordFilter,
    WrittenFilter,
    YesNoFilter,
    with_errors,
)
from messages_app.models import Message, MessageQuerySet, Session
from messages_app.queries import FoundSession, as_uuid
from messages_app.sql.batch import LIST_MS, Query, fetch
from messages_app.sql.pagination import EVERY_ID, IdRange, ListRows
from traces_app.ingest.tool_ids import find_tools
from traces_app.models import (
    AgentStep,
    AgentStepQuerySet,
    Score,
    ScoreQuerySet,
    Tool,
    ToolCall,
    ToolCallQuerySet,
)
from tracesite_sdk.records import ROOT_TOOL
from tracesite_sdk.records.health_flags import FLAGS, MISSING_RESULT

from .error_patterns import with_patterns
from .runs.outcome import CONDITIONS, OF_STATUS, Outcome
from .schemas.errors import ErrorSort
from .schemas.similar_runs import SimilarBy
from .schemas.usage import UsageBy

_HEALTH = "Messages with this health flag. `missing_result`: completed messages with a call without a result."
_SCORE = "Limit of the number of a score, inclusive; yes counts as 1, no as 0. With `score`: of that name."
_SESSION = "Id or external id of the session. 404 if it does not exist."


# --- Rows below messages ----------------------------------------------------------------------------------------------


def calls_in(ids: IdRange) -> ToolCallQuerySet:
    """Return all calls in the months of the range, which include the calls of all messages within it."""
    return ToolCall.with_deleted.order_by().filter(**ids.periods_of("pk"))


def sessions_of(outcome: Outcome) -> Q:
    """Return the condition on sessions of which a list shows this outcome: that of their newest run, otherwise what their status says."""
    newest = Message.objects.filter(pk=OuterRef("last_run_id"))
    said = [status for status, meaning in OF_STATUS.items() if meaning == outcome]
    return Q(Exists(newest.filter(CONDITIONS[outcome]))) | Q(~Exists(newest), status__in=said)


def with_health(messages: MessageQuerySet, flag: str, ids: IdRange) -> MessageQuerySet:
    """Return the messages that have a flag."""
    if flag == MISSING_RESULT:
        return messages.filter(is_completed=True, call_count__gt=0).with_any(_pending(ids))
    # The first condition is needed for the partial index.
    return messages.filter(~Q(health=[]), health__contains=[flag])


def _pending(ids: IdRange) -> ToolCallQuerySet:
    return calls_in(ids).filter(status=ToolCall.Status.PENDING)


def steps_with(values: Mapping[str, Any], ids: IdRange) -> AgentStepQuerySet:
    """Return the steps in the months of the range that have a `model` and are of an `agent`, as far as these are given."""
    columns = {"model": "model", "agent": "agent_name"}
    given = {columns[name]: value for name, value in values.items()}
    return AgentStep.with_deleted.order_by().filter(**ids.periods_of("pk"), **given)


def scores_with(values: Mapping[str, Any]) -> ScoreQuerySet:
    """Return the scores that are not deleted and have the name `score` and a number from `min_score` to `max_score`."""
    lookups = {"score": "name", "min_score": "number__gte", "max_score": "number__lte"}
    given = {lookups[name]: value for name, value in values.items()}
    return Score.with_deleted.order_by().filter(deleted_at__isnull=True, **given)


def _take(values: dict[str, Any], *names: str) -> dict[str, Any]:
    """Remove these filters from `values`, and return those that were given."""
    return {name: values.pop(name) for name in names if name in values}


def slower_than(messages: Rows, _name: str, seconds: Decimal) -> Rows:
    """Return the messages that took longer."""
    return messages.filter(duration_ms__gt=1000 * seconds)


class MessageFilter(TextFilter):
    """A message by its id or external id, of which several sessions may have the same."""

    def filter(self, qs: Rows, value: str) -> Rows:
        if value in EMPTY_VALUES:
            return qs
        named = Q(external_id=value)
        if (key := as_uuid(value)) is not None:
            named |= Q(pk=key)
        named_messages = Database.of(qs).rows(Message.with_deleted).order_by().filter(named)
        return qs.filter(message_id__in=named_messages.values("pk"))


def with_reflection(calls: Rows, _name: str, value: bool) -> Rows:
    """Return the calls with a reflection, or the others."""
    return calls.exclude(reflection="") if value else calls.filter(reflection="")


# --- Sets of filters --------------------------------------------------------------------------------------------------


_OUTCOME = (
    "`failed`: with an error, or with a failed call that no later call of the same tool made good; `done`: without; `stopped`: closed "
    "before their end; `waiting`: open, in a paused session; `running`: open otherwise."
)


class SessionFilterSet(filters.SessionFilterSet):
    outcome = WordFilter(
        words=Outcome.values,
        help_text=f"Whose newest run ended so; without a run, of which the status says it. {_OUTCOME}",
    )
    tool = KeysFilter(help_text="With a call of this tool; repeated: of any of them.")
    model = TextFilter(help_text="With a step of this model, as recorded.")
    agent = TextFilter(help_text="With a step of the agent with this name.")
    score = TextFilter(help_text="With a score of this name: of the session, a message or a call.")
    min_score = NumberFilter(help_text=_SCORE)
    max_score = NumberFilter(help_text=_SCORE)

    def found(self, db: Database, scope: ProjectScope) -> ListRows:
        """Return the sessions that pass."""
        values = _with_keys_of_tools(db, self.narrowing, scope)
        rows = db.rows(Session.with_deleted).visible_to(scope)
        rows = rows.deleted() if self.given.get("deleted") else rows.alive()
        return self.list_rows(db, lambda ids: self.narrow(rows, values, ids), scope)

    @classmethod
    def narrow(cls, rows: Any, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Any:
        others = dict(values)
        # Not limited to the ids of the page, because a session may have later steps and calls.
        of_session = {"message__session_id": OuterRef("pk"), "message__deleted_at__isnull": True}
        if outcome := others.pop("outcome", None):
            rows = rows.filter(sessions_of(Outcome(outcome)))
        if tools := _take(others, "tool"):
            rows = rows.filter(Exists(calls_in(EVERY_ID).filter(tool_id__in=tools["tool"], **of_session)))
        if steps := _take(others, "model", "agent"):
            rows = rows.filter(Exists(steps_with(steps, EVERY_ID).filter(**of_session)))
        if scores := _take(others, "score", "min_score", "max_score"):
            rows = rows.filter(Exists(scores_with(scores).filter(session_id=OuterRef("pk"))))
        return super().narrow(rows, others, ids)


class MessageFilterSet(filters.MessageFilterSet):
    outcome = WordFilter(
        words=Outcome.values,
        help_text=f"Answers that ended so. {_OUTCOME}",
    )
    call_id = TextFilter(help_text="With a call that has this id, as given by the model.")
    tool = KeysFilter(help_text="With a call of this tool; repeated: of any of them.")
    tool_status = WordFilter(
        words=ToolCall.Status.values,
        help_text="With a call with this status; combined with `tool`: a call of these tools.",
    )
    model = TextFilter(help_text="With a step of this model, as recorded.")
    agent = TextFilter(help_text="With a step of the agent with this name.")
    health = WordFilter(words=FLAGS, help_text=_HEALTH)
    score = TextFilter(help_text="With a score of this name: of the message or a call.")
    min_score = NumberFilter(help_text=_SCORE)
    max_score = NumberFilter(help_text=_SCORE)

    @property
    def in_trash(self) -> bool:
        return bool(self.given.get("deleted"))

    def found(self, db: Database, scope: ProjectScope, session: FoundSession | None) -> ListRows:
        """Return the messages that pass, of all sessions or of one."""
        values = _with_keys_of_tools(db, self.narrowing, scope)
        rows = _messages(db, scope, session, in_trash=self.in_trash)
        return self.list_rows(db, lambda ids: self.narrow(rows, values, ids), scope)

    @classmethod
    def narrow(cls, rows: Any, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Any:
        others = dict(values)
        if outcome := others.pop("outcome", None):
            rows = rows.filter(CONDITIONS[Outcome(outcome)], role=Message.Role.ASSISTANT)
        calls = calls_in(ids)
        if "tool" in others:
            calls = calls.filter(tool_id__in=others.pop("tool"))
        if "tool_status" in others:
            calls = calls.filter(status=others.pop("tool_status"))
        if "tool" in values or "tool_status" in values:
            rows = rows.with_any(calls)
        if "call_id" in others:
            rows = rows.with_any(calls_in(ids).filter(call_id=others.pop("call_id")))
        if steps := _take(others, "model", "agent"):
            rows = rows.with_any(steps_with(steps, ids))
        if "health" in others:
            rows = with_health(rows, others.pop("health"), ids)
        if scores := _take(others, "score", "min_score", "max_score"):
            rows = rows.with_any(scores_with(scores))
        return super().narrow(rows, others, ids)


class SessionMessageFilterSet(MessageFilterSet):
    """Filters of the messages of one session, which the URL names."""

    session = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter


class CallFilterSet(ListFilterSet):
    tool = KeysFilter("tool_id", help_text="Calls of this tool; repeated: of any of them.")
    status = WordFilter(words=ToolCall.Status.values, help_text="The status of the call; pending: no result yet.")
    call_id = TextFilter(help_text="The id given by the model; several calls may have the same.")
    session = NameFilter(help_text=_SESSION)
    message = MessageFilter(help_text="Calls of the message with this id or external id.")
    parent = UuidFilter("parent_id", help_text="Calls started by the call with this `uuid`.")
    error_group = TextFilter(help_text="Failed calls of this group of errors: an `id` of `/errors/`.")
    model = TextFilter(help_text="Calls in steps of this model, as recorded.")
    agent = TextFilter(help_text="Calls in steps of the agent with this name.")
    end_user = TextFilter("message__session__end_user", help_text="Calls in sessions of this user of the agent.")
    score = TextFilter(help_text="With a score of this name.")
    min_score = NumberFilter(help_text=_SCORE)
    max_score = NumberFilter(help_text=_SCORE)
    min_duration = WholeNumberFilter("duration_ms", "gte", help_text=AT_LEAST)
    max_duration = WholeNumberFilter("duration_ms", "lte", help_text=AT_LEAST)
    has_reflection = YesNoFilter(
        method=with_reflection, help_text="true: calls whose result the agent has commented on; false: the others."
    )

    rows = ToolCall.objects.all()

    def found(self, db: Database, scope: ProjectScope, session: FoundSession | None) -> ListRows:
        """Return the calls that pass, of all sessions or of one."""
        values = _with_keys_of_tools(db, self.narrowing, scope)
        return self.list_rows(db, lambda ids: self.narrow(_calls(db, scope, session, ids), values, ids), scope)

    @classmethod
    def narrow(cls, rows: Any, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Any:
        others = dict(values)
        if steps := _take(others, "model", "agent"):
            rows = rows.filter(Exists(steps_with(steps, ids).filter(pk=OuterRef("step_id"))))
        if scores := _take(others, "score", "min_score", "max_score"):
            # By the message, too, because scores have an index for it.
            of_call = {"message_id": OuterRef("message_id"), "call_id": OuterRef("pk")}
            rows = rows.filter(Exists(scores_with(scores).filter(**of_call)))
        if "error_group" in others:
            failed = with_patterns(rows.filter(status=ToolCall.Status.ERROR), ids)
            rows = failed.alias(error_group=MD5("pattern")).filter(error_group=others.pop("error_group"))
        return super().narrow(rows, others, ids)


class ErrorFilterSet(ListFilterSet):
    sort = WordFilter(
        words=get_args(ErrorSort),
        help_text="What the list begins with: the group of most calls, the one that occurred last, or the newest one; `tool`: by name. Default: count.",
    )
    tool = KeysFilter("tool_id", help_text="Errors of this tool; repeated: of any of them.")
    session = NameFilter(help_text=_SESSION)
    agent = TextFilter("step__agent_name", help_text="Errors in steps of the agent with this name.")
    end_user = TextFilter("run__session__end_user", help_text="Errors in sessions of this user of the agent.")
    model = TextFilter("step__model", help_text="Errors in steps of this model, as recorded.")

    read_elsewhere = (*ListFilterSet.read_elsewhere, "sort")
    rows = ToolCall.objects.all()

    def found(self, db: Database, scope: ProjectScope, session: FoundSession | None) -> ListRows:
        """Return the failed calls that pass, of all sessions or of one."""
        values = _with_keys_of_tools(db, self.narrowing, scope)
        failed = {"status": ToolCall.Status.ERROR}
        return self.list_rows(
            db, lambda ids: self.narrow(_calls(db, scope, session, ids).filter(**failed), values, ids), scope
        )

    @classmethod
    def narrow(cls, rows: Any, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Any:
        if "agent" in values or "model" in values:
            rows = rows.filter(**ids.periods_of("step__id"))
        return super().narrow(rows, values, ids)


class LatestErrorFilterSet(ErrorFilterSet):
    """Filters of the errors of an answer, which chooses their order."""

    sort = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter


class SimilarErrorFilterSet(ErrorFilterSet):
    """Filters of the errors that are compared with that of a call."""

    sort = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter
    session = None  # type: ignore[assignment]
    read_elsewhere = (*ListFilterSet.read_elsewhere,)


class ChainFilterSet(ListFilterSet):
    session = NameFilter(help_text=_SESSION)
    tool = KeysFilter(help_text="With a call of this tool; repeated: of any of them.")
    root_tool = KeysFilter(help_text="With a root call of this tool; repeated: of any of them.")
    call_id = TextFilter(help_text="With a call that has this id, as given by the model.")
    external_id = TextFilter(help_text="The external id of the chain, given by the producer.")
    request_id = TextFilter(help_text="The application request of the message.")
    success = YesNoFilter(help_text="true: successful chains; false: failed chains.")
    has_errors = YesNoFilter(
        method=with_errors,
        help_text=(
            "true: with a failed call, a model error (even if the agent handled it), or an error; false: without."
        ),
    )
    health = WordFilter(words=FLAGS, help_text=_HEALTH)
    slower_than = SecondsFilter(method=slower_than, help_text="Seconds, exclusive: `duration > slower_than`.")
    min_duration = WholeNumberFilter("duration_ms", "gte", help_text=AT_LEAST)
    max_duration = WholeNumberFilter("duration_ms", "lte", help_text=AT_LEAST)

    rows = Message.objects.all()

    def found(self, db: Database, scope: ProjectScope, session: FoundSession | None) -> ListRows:
        """Return the messages that are chains and pass, of all sessions or of one."""
        values = dict(self.narrowing)
        tools = _take(values, "tool", "root_tool")
        keys = {name: _tool_ids(db, scope, names) for name, names in tools.items()}
        # Trackers rarely name a root that is not a call, so the index of these is searched first: without an OR the
        # planner can walk the calls of a rare tool.
        named = {name for name, names in tools.items() if _is_named_root(db, names)}
        chains = _messages(db, scope, session).filter(role=Message.Role.ASSISTANT, call_count__gt=0)

        def find(ids: IdRange) -> QuerySet[Message]:
            rows = chains
            for name, names in tools.items():
                calls = calls_in(ids).filter(tool_id__in=keys[name], message_id=OuterRef("pk"))
                if name == "root_tool":
                    # `chains.rooted_in` decides later which of the calls without a parent is the root: in SQL it took 6 s
                    # over 34 months.
                    calls = calls.filter(parent_id__isnull=True)
                if name in named:
                    rows = rows.alias(named_root=_NAMED_ROOT).filter(Exists(calls) | _has_named_root(names))
                else:
                    rows = rows.filter(Exists(calls))
            narrowed: QuerySet[Message] = self.narrow(rows, values, ids)
            return narrowed

        return self.list_rows(db, find, scope)

    @classmethod
    def narrow(cls, rows: Any, values: Mapping[str, Any], ids: IdRange = EVERY_ID) -> Any:
        others = dict(values)
        if "call_id" in others:
            rows = rows.with_any(calls_in(ids).filter(call_id=others.pop("call_id")))
        if "health" in others:
            rows = with_health(rows, others.pop("health"), ids)
        if "success" in others:
            left_open = Q(Exists(_pending(ids).filter(message_id=OuterRef("pk"))), is_completed=True)
            failed = Q(failure_count__gt=0) | ~Q(error="") | left_open
            rows = rows.exclude(failed) if others.pop("success") else rows.filter(failed)
        return super().narrow(rows, others, ids)


def _saying(rows: Rows, _name: str, value: bool) -> Rows:
    return rows.filter(kind=Score.Kind.BOOLEAN, number=int(value))


class ScoreFilterSet(ListFilterSet):
    name = TextFilter(help_text="Scores of this name.")
    kind = WordFilter(words=Score.Kind.values, help_text="The kind of value.")
    value = YesNoFilter(method=_saying, help_text="true: only scores that say yes; false: only those that say no.")
    source = WordFilter(words=Score.Source.values, help_text="Who judged.")
    author = TextFilter(help_text="The name of the person or program.")
    label = WrittenFilter(help_text="This category, or this word beside a number.")
    min_value = NumberFilter("number", "gte", help_text="Inclusive; yes counts as 1, no as 0.")
    max_value = NumberFilter("number", "lte", help_text="Inclusive; yes counts as 1, no as 0.")
    session = NameFilter(help_text=f"{_SESSION} With the scores of its messages and calls.")
    message = MessageFilter(help_text="Scores of the message with this id or external id, and of its calls.")
    call = UuidFilter("call_id", help_text="Scores of the call with this `uuid`.")
    trace_id = UuidFilter("trace_id", help_text="Scores of this trace, arrived or not.")
    external_id = TextFilter(help_text="The producer's id.")

    rows = Score.objects.all()

    def found(self, db: Database, scope: ProjectScope, session: FoundSession | None) -> ListRows:
        """Return the scores that pass, of all sessions or of one."""
        rows = db.rows(Score.with_deleted).order_by().alive().visible_to(scope)
        if session is not None:
            rows = rows.filter(session_id=session.pk)
        return self.list_rows(db, lambda ids: self.narrow(rows, self.narrowing, ids), scope)


class SimilarFilterSet(ListFilterSet):
    by = WordFilter(
        words=get_args(SimilarBy),
        help_text="What counts: everything, or only the errors, for runs that failed in the same way. Default: everything.",
    )
    has_errors = YesNoFilter(
        method=with_errors,
        help_text="true: only runs with a failed call, a model error, or an error of the message; false: without.",
    )
    is_completed = YesNoFilter(help_text="true: only runs that have ended; false: only those that go on or wait.")

    read_elsewhere = (*ListFilterSet.read_elsewhere, "by")
    rows = Message.objects.all()

    def found(self, db: Database, scope: ProjectScope) -> ListRows:
        """Return the runs that pass."""
        rows = db.rows(Message.with_deleted).visible_to(scope).alive().filter(role=Message.Role.ASSISTANT)
        return self.list_rows(db, lambda ids: self.narrow(rows, self.narrowing, ids), scope)


class UsageFilterSet(ListFilterSet):
    group_by = WordFilter(words=get_args(UsageBy), help_text="What to add up by. Days are in UTC. Default: model.")
    model = TextFilter(help_text="Only requests to the model with this name, as recorded.")
    end_user = TextFilter("run__session__end_user", help_text="Only sessions of this user of the agent.")

    read_elsewhere = (*ListFilterSet.read_elsewhere, "group_by")
    rows = AgentStep.objects.all()

    def found(self, db: Database, scope: ProjectScope) -> ListRows:
        """Return the requests to models that pass. Their QuerySet has the message as the relation `run`."""
        return self.list_rows(db, lambda ids: self.narrow(_requests(db, scope, ids), self.narrowing, ids), scope)


# --- The QuerySets ----------------------------------------------------------------------------------------------------


def _tool_ids(db: Database, scope: ProjectScope, names: Sequence[str]) -> list[int]:
    """Return the ids of the tools with these names, in all projects that the caller may read."""
    if scope.only_project is not None:
        return list(find_tools(db, scope.only_project, names).values())
    tools = visible_to(db.rows(Tool.objects).order_by(), scope).filter(name__in=names)
    return list(tools.values_list("pk", flat=True))


def _with_keys_of_tools(db: Database, values: Mapping[str, Any], scope: ProjectScope) -> dict[str, Any]:
    """Return the values with the ids of the tools that the parameter `tool` names, if it is given."""
    return {**values, "tool": _tool_ids(db, scope, values["tool"])} if "tool" in values else dict(values)


def _messages(
    db: Database, scope: ProjectScope, session: FoundSession | None, *, in_trash: bool = False
) -> MessageQuerySet:
    rows = db.rows(Message.with_deleted).visible_to(scope)
    if session is not None:
        rows = rows.filter(session_id=session.pk)
    if in_trash:
        return rows.deleted()
    # The lookup of a session has checked that it is not deleted.
    return rows.alive() if session is None else rows.filter(deleted_at__isnull=True)


def _calls(db: Database, scope: ProjectScope, session: FoundSession | None, ids: IdRange) -> QuerySet[ToolCall]:
    # `run` is the message, as a separate relation: so the conditions are on its primary key, and the planner skips the
    # messages of other months. Django would otherwise put them on `message_id`.
    runs = FilteredRelation("message", condition=Q(message__deleted_at__isnull=True))
    rows = db.rows(ToolCall.with_deleted).visible_to(scope).alias(run=runs)
    rows = rows.filter(run__session__deleted_at__isnull=True, **ids.periods_of("run__id"))
    return rows if session is None else rows.filter(run__session_id=session.pk)


def _requests(db: Database, scope: ProjectScope, ids: IdRange) -> QuerySet[AgentStep]:
    # As in _calls. The steps of a message have the month of its id.
    runs = FilteredRelation("message", condition=Q(message__deleted_at__isnull=True))
    rows = db.rows(AgentStep.with_deleted).order_by().alias(run=runs, usage_text=Cast("usage", TextField()))
    rows = rows.filter(run__session__deleted_at__isnull=True, **ids.of("run__id"), **ids.periods_of("id"))
    # The requests to models, also those that failed.
    has_usage = Q(usage_text__isnull=False) & ~Q(usage_text="{}")
    rows = rows.filter(Q(model__gt="") | Q(cost__isnull=False) | has_usage)
    return visible_to(rows, scope, "run__project_id")


_NAMED_ROOT = KeyTextTransform(ROOT_TOOL, "metadata")


def _has_named_root(names: Sequence[str]) -> Q:
    """Return the condition that a tracker named one of the tools the root; `named_root` is an alias of _NAMED_ROOT."""
    return Q(named_root__in=names, metadata__has_key=ROOT_TOOL)


def _is_named_root(db: Database, names: Sequence[str]) -> bool:
    """Return whether a tracker named one of the tools the root of any chain."""
    rows = db.rows(Message.with_deleted).order_by().alias(named_root=_NAMED_ROOT).filter(_has_named_root(names))
    (rows_found,) = fetch(db, [Query.of(rows.values_list("pk")[:1])], at_most_ms=LIST_MS)
    return bool(rows_found)

"""Examples of a tool's calls in a range of times: slow ones, by arguments and runs, and repeated ones; what agents said of its
results; tools that models were offered.

Each reads a bounded number of calls, the newest ones of the range, so that a tool with millions of calls takes no longer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Func, Max, QuerySet, Sum, TextField, UUIDField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce

from access_app.db import Database
from access_app.readable import Readable
from access_app.visibility import ProjectScope, visible_to
from messages_app.models import is_alive
from messages_app.sql.batch import LIST_MS, limited
from messages_app.sql.beginnings import Beginning
from messages_app.sql.pagination import IdRange, ids_below, newest_id
from messages_app.timestamps import instant_text
from traces_app.models import Context, Tool, ToolCall
from tracesite_sdk.records import ids

from .schemas.tools import ToolExample, ToolExamples, ToolReflections, UnusedTools
from .tool_statistics import ALL_CALLS, CallFilter, statistics

CALLS_READ = 10_000
"""Calls among which repeated ones, slow arguments and slow runs are searched."""
ARGUMENTS_CHARACTERS = 200
INPUTS_READ = 200
"""Requests to models whose tools are read."""
LISTED = 10
_TOOL = KeyTransform("value", "content")


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Calls of one message with the same arguments."""

    message_id: UUID
    arguments: str
    """The first ARGUMENTS_CHARACTERS of their JSON."""
    calls: int
    last_id: UUID

    @property
    def at(self) -> datetime:
        return ids.created_at_of(self.last_id)


@dataclass(frozen=True, kw_only=True)
class Slow:
    """Calls that took long together: with the same arguments, or of the same message."""

    arguments: str
    """Empty for those of a message."""
    message_id: UUID | None
    """None for those with the same arguments."""
    calls: int
    total_ms: float
    longest_ms: int
    last_id: UUID

    @property
    def average_ms(self) -> float:
        return self.total_ms / self.calls

    @property
    def at(self) -> datetime:
        return ids.created_at_of(self.last_id)


def examples(db: Database, tool_id: int, id_range: IdRange, which: CallFilter) -> ToolExamples:
    """Return all examples of a tool in the form of the API. Raise InvalidInput if a query takes longer than LIST_MS."""
    with limited(db, LIST_MS):
        return ToolExamples(
            slowest=[
                _example(call.pk, call.message_id, call.arguments, 1, call.duration_ms, call.duration_ms)  # type: ignore[attr-defined]  # annotated
                for call in slowest(db, tool_id, id_range, which)
            ],
            arguments=[_slow_example(group) for group in slow_arguments(db, tool_id, id_range, which)],
            runs=[_slow_example(group) for group in slow_runs(db, tool_id, id_range, which)],
            repeated=[
                _example(group.last_id, group.message_id, group.arguments, group.calls, None, None)
                for group in repeated(db, tool_id, id_range, which)
            ],
            reflections=reflections(db, tool_id, id_range, which),
            calls_read=CALLS_READ,
        )


def _slow_example(group: Slow) -> ToolExample:
    arguments = None if group.message_id else group.arguments
    return _example(group.last_id, group.message_id, arguments, group.calls, group.total_ms, group.longest_ms)


def _example(
    call: UUID, message_id: UUID | None, arguments: str | None, calls: int, total: float | None, longest: int | None
) -> ToolExample:
    return ToolExample(
        call=str(call),
        created_at=instant_text(ids.created_at_of(call)),
        message_id=None if message_id is None else str(message_id),
        arguments=arguments,
        call_count=calls,
        total_duration=None if total is None else float(total),
        longest_duration=longest,
    )


def unused(readable: Readable, id_range: IdRange) -> UnusedTools:
    """Return the tools that models were offered and did not call, of projects by their databases.

    Raise InvalidInput if a query takes longer than LIST_MS.
    """
    of_each = readable.each(lambda db, scope: _offered_and_called(db, scope, id_range))
    # One that is called in a project is not unused, whichever database has it.
    names = (
        set().union(*(offered for offered, _called in of_each)).difference(*(called for _offered, called in of_each))
    )
    return UnusedTools(results=sorted(names), inputs_read=INPUTS_READ)


def _offered_and_called(db: Database, scope: ProjectScope, id_range: IdRange) -> tuple[set[str], set[str]]:
    with limited(db, LIST_MS):
        offered = declared(db, scope.project_ids, id_range)
        rows = visible_to(db.rows(Tool.objects).filter(name__in=offered), scope).values_list("pk", "project_id", "name")
        tools = {pk: (project_id, name) for pk, project_id, name in rows}
    projects = {project_id for project_id, _name in tools.values()}
    called = statistics(db, list(tools), projects, id_range).by_tool if tools else {}
    return offered, {tools[pk][1] for pk in called}


def slowest(db: Database, tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[ToolCall]:
    """Return the slowest calls with the beginning of their arguments as `arguments`. Reads all calls of the range, so limit
    its time."""
    timed = _calls(db, tool_id, id_range, which).filter(duration_ms__isnull=False).annotate(arguments=_ARGUMENTS)
    return list(timed.order_by("-duration_ms", "-pk").only("pk", "message_id", "status", "duration_ms")[:LISTED])


def slow_arguments(db: Database, tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Slow]:
    """Return the arguments with which the tool took most time, among its newest CALLS_READ calls."""
    return _slow(_newest(db, tool_id, id_range, which), "digest", F("arguments"), Value(None, UUIDField()))


def slow_runs(db: Database, tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Slow]:
    """Return the messages whose calls of the tool took most time, among its newest CALLS_READ calls."""
    return _slow(_newest(db, tool_id, id_range, which), "message_id", Value(""), F("message_id"))


def _slow(calls: QuerySet[Any, Any], key: str, arguments: Any, message: Any) -> list[Slow]:
    timed = calls.filter(duration_ms__isnull=False).order_by()
    groups = timed.values(key, of_group=arguments, of_message=message).annotate(
        n=Count("pk"), total=Sum("duration_ms"), longest=Max("duration_ms"), last=_LAST
    )
    rows = groups.order_by("-total", "-last").values_list("of_group", "of_message", "n", "total", "longest", "last")
    return [
        Slow(
            arguments=arguments,
            message_id=message_id,
            calls=n,
            total_ms=float(total),
            longest_ms=longest,
            last_id=last,
        )
        for arguments, message_id, n, total, longest, last in rows[:LISTED]
    ]


def repeated(db: Database, tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Repeated]:
    """Return the messages that called the tool most often with the same arguments, among its newest CALLS_READ calls."""
    calls = _newest(db, tool_id, id_range, which)
    groups = calls.order_by().values("message_id", "digest", "arguments").annotate(n=Count("pk"), last=_LAST)
    rows = groups.filter(n__gt=1).order_by("-n", F("last").desc())
    return [
        Repeated(message_id=message_id, arguments=arguments, calls=n, last_id=last)
        for message_id, arguments, n, last in rows.values_list("message_id", "arguments", "n", "last")[:LISTED]
    ]


def reflections(db: Database, tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> ToolReflections:
    """Return how often agents commented on results of the tool, among its newest CALLS_READ calls, and whether its next call in
    the run succeeded, whatever `which` says of that one."""
    calls, id_range = _newest_range(db, tool_id, id_range, which)
    commented = list(
        _calls(db, tool_id, id_range, which).exclude(reflection="").values_list("pk", "message_id", "status")
    )
    next_status: dict[UUID, str] = {}
    if runs := {run for _call, run, _status in commented}:
        in_runs = db.rows(ToolCall.objects).filter(tool_id=tool_id, message_id__in=runs, **ids_below(runs))
        in_order = in_runs.order_by("message_id", "step__iteration", "step__ordinal", "position", "pk")
        for (call, run, _status), (_next, next_run, status) in pairwise(
            in_order.values_list("pk", "message_id", "status")[:CALLS_READ]
        ):
            if run == next_run:
                next_status[call] = status
    retries = [next_status[call] for call, _run, _status in commented if call in next_status]
    return ToolReflections(
        call_count=calls,
        reflection_count=len(commented),
        failure_count=sum(status == ToolCall.Status.ERROR for _call, _run, status in commented),
        retried_count=len(retries),
        retry_success_count=retries.count(ToolCall.Status.SUCCESS),
    )


_LAST = newest_id("pk")
_ARGUMENTS = Beginning(Cast("args", TextField()), ARGUMENTS_CHARACTERS)


def _newest(db: Database, tool_id: int, id_range: IdRange, which: CallFilter) -> QuerySet[Any, Any]:
    """Return the newest CALLS_READ calls with the digest and the beginning of their arguments."""
    _count, id_range = _newest_range(db, tool_id, id_range, which)
    return _calls(db, tool_id, id_range, which).annotate(
        digest=Func(Cast("args", TextField()), function="md5", output_field=TextField()), arguments=_ARGUMENTS
    )


def _newest_range(db: Database, tool_id: int, id_range: IdRange, which: CallFilter) -> tuple[int, IdRange]:
    """Return the number and the range of the newest CALLS_READ calls."""
    newest = list(_calls(db, tool_id, id_range, which).order_by("-pk").values_list("pk", flat=True)[:CALLS_READ])
    oldest = newest[-1] if len(newest) == CALLS_READ else None
    return len(newest), id_range & IdRange(lower=oldest)


def _calls(db: Database, tool_id: int, id_range: IdRange, which: CallFilter) -> QuerySet[ToolCall]:
    given = {
        "status": which.status,
        "step__agent_name": which.agent,
        "step__model": which.model,
        "message__session_id": which.session_id,
        "message__session__end_user": which.end_user,
        "message__session__tags__contains": list(which.tags) or None,
    }
    conditions = {name: value for name, value in given.items() if value is not None}
    return db.rows(ToolCall.objects).filter(tool_id=tool_id, **id_range.of("pk"), **conditions)


def declared(db: Database, project_ids: Collection[int] | None, id_range: IdRange) -> set[str]:
    """Return the names of the tools that models were offered in their newest INPUTS_READ requests of projects, or of all.

    Tools without a name at the usual places are left out.
    """
    inputs = db.rows(Context.objects).filter(kind="input", **id_range.of("pk")).filter(is_alive("message__"))
    if project_ids is not None:
        inputs = inputs.filter(project_id__in=project_ids)
    keys: set[UUID] = set()
    for _id, content, entries in inputs.order_by("-pk").values_list("pk", "content", "entries")[:INPUTS_READ]:
        # In order: the system prompt, the tools, the messages.
        first = content["system"]
        keys.update((entries or [])[first : first + content["tools"]])
    if not keys:
        return set()
    # The range spares the other months.
    stored = db.rows(Context.objects).filter(pk__in=keys, pk__gte=min(keys), pk__lte=max(keys))
    # OpenAI has the name one level deeper.
    names = Coalesce(KeyTextTransform("name", _TOOL), KeyTextTransform("name", KeyTransform("function", _TOOL)))
    return {name for name in stored.values_list(names, flat=True) if name}

"""Examples of a tool's calls in a range of times: slow ones, by arguments and runs, and repeated ones; tools that models were
offered.

Each reads a bounded number of calls, the newest ones of the range, so that a tool with millions of calls takes no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Func, Max, QuerySet, Sum, TextField, Value
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce, Left

from messages_app import ids
from messages_app.models import is_alive
from messages_app.sql.pagination import IdRange
from traces_app.models import Context, ToolCall

from .tool_statistics import ALL_CALLS, CallFilter

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


def slowest(tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[ToolCall]:
    """Return the slowest calls with the beginning of their arguments as `arguments`. Reads all calls of the range, so limit
    its time."""
    timed = _calls(tool_id, id_range, which).filter(duration_ms__isnull=False).annotate(arguments=_ARGUMENTS)
    return list(timed.order_by("-duration_ms", "-pk").only("pk", "message_id", "status", "duration_ms")[:LISTED])


def slow_arguments(tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Slow]:
    """Return the arguments with which the tool took most time, among its newest CALLS_READ calls."""
    return _slow(_newest(tool_id, id_range, which), "digest", F("arguments"))


def slow_runs(tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Slow]:
    """Return the messages whose calls of the tool took most time, among its newest CALLS_READ calls."""
    return _slow(_newest(tool_id, id_range, which), "message_id", Value(""))


def _slow(calls: QuerySet[Any, Any], key: str, arguments: Any) -> list[Slow]:
    timed = calls.filter(duration_ms__isnull=False).order_by()
    groups = timed.values(key, of_group=arguments).annotate(
        n=Count("pk"), total=Sum("duration_ms"), longest=Max("duration_ms"), last=_LAST
    )
    rows = groups.order_by("-total", "-last").values_list("of_group", "n", "total", "longest", "last")
    return [
        Slow(arguments=arguments, calls=n, total_ms=float(total), longest_ms=longest, last_id=UUID(last))
        for arguments, n, total, longest, last in rows[:LISTED]
    ]


def repeated(tool_id: int, id_range: IdRange, which: CallFilter = ALL_CALLS) -> list[Repeated]:
    """Return the messages that called the tool most often with the same arguments, among its newest CALLS_READ calls."""
    calls = _newest(tool_id, id_range, which)
    groups = calls.order_by().values("message_id", "digest", "arguments").annotate(n=Count("pk"), last=_LAST)
    rows = groups.filter(n__gt=1).order_by("-n", F("last").desc())
    return [
        Repeated(message_id=message_id, arguments=arguments, calls=n, last_id=UUID(last))
        for message_id, arguments, n, last in rows.values_list("message_id", "arguments", "n", "last")[:LISTED]
    ]


_LAST = Max(Cast("pk", TextField()))
_ARGUMENTS = Left(Cast("args", TextField()), ARGUMENTS_CHARACTERS)


def _newest(tool_id: int, id_range: IdRange, which: CallFilter) -> QuerySet[Any, Any]:
    """Return the newest CALLS_READ calls with the digest and the beginning of their arguments."""
    newest = list(_calls(tool_id, id_range, which).order_by("-pk").values_list("pk", flat=True)[:CALLS_READ])
    oldest = newest[-1] if len(newest) == CALLS_READ else None
    return _calls(tool_id, id_range & IdRange(lower=oldest), which).annotate(
        digest=Func(Cast("args", TextField()), function="md5", output_field=TextField()), arguments=_ARGUMENTS
    )


def _calls(tool_id: int, id_range: IdRange, which: CallFilter) -> QuerySet[ToolCall]:
    given = {
        "status": which.status,
        "step__agent_name": which.agent,
        "step__model": which.model,
        "message__session_id": which.session_id,
        "message__session__end_user": which.end_user,
        "message__session__tags__contains": list(which.tags) or None,
    }
    conditions = {name: value for name, value in given.items() if value is not None}
    return ToolCall.objects.filter(tool_id=tool_id, **id_range.of("pk"), **conditions)


def declared(project_id: int | None, id_range: IdRange) -> set[str]:
    """Return the names of the tools that models were offered in their newest INPUTS_READ requests of a project, or of all.

    Tools without a name at the usual places are left out.
    """
    inputs = Context.objects.filter(kind="input", **id_range.of("pk")).filter(is_alive("message__"))
    if project_id is not None:
        inputs = inputs.filter(session__project_id=project_id)
    keys: set[UUID] = set()
    for content, entries in inputs.order_by("-pk").values_list("content", "entries")[:INPUTS_READ]:
        # In order: the system prompt, the tools, the messages.
        first = content["system"]
        keys.update((entries or [])[first : first + content["tools"]])
    if not keys:
        return set()
    # The range spares the other months.
    stored = Context.objects.filter(pk__in=keys, pk__gte=min(keys), pk__lte=max(keys))
    # OpenAI has the name one level deeper.
    names = Coalesce(KeyTextTransform("name", _TOOL), KeyTextTransform("name", KeyTransform("function", _TOOL)))
    return {name for name in stored.values_list(names, flat=True) if name}

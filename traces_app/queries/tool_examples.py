"""Examples of a tool's calls in a range of times: slow ones and repeated ones; tools that models were offered.

Each reads a bounded number of calls, the newest ones of the range, so that a tool with millions of calls takes no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Count, F, Func, Max, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from django.db.models.functions import Cast, Coalesce

from messages_app import ids
from messages_app.models import is_alive
from messages_app.sql.pagination import IdRange
from traces_app.models import Context, ToolCall

CALLS_READ = 10_000
"""Calls among which repeated ones are searched."""
INPUTS_READ = 200
"""Requests to models whose tools are read."""
LISTED = 10
_TOOL = KeyTransform("value", "content")


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """Calls of one message with the same arguments."""

    message_id: UUID
    calls: int
    last_id: UUID

    @property
    def at(self) -> datetime:
        return ids.created_at_of(self.last_id)


def slowest(tool_id: int, id_range: IdRange) -> list[ToolCall]:
    """Return the slowest calls. Reads all calls of the range, so limit its time."""
    timed = _calls(tool_id, id_range).filter(duration_ms__isnull=False)
    return list(timed.order_by("-duration_ms", "-pk").only("pk", "message_id", "status", "duration_ms")[:LISTED])


def repeated(tool_id: int, id_range: IdRange) -> list[Repeated]:
    """Return the messages that called the tool most often with the same arguments, among its newest CALLS_READ calls."""
    newest = _calls(tool_id, id_range).order_by("-pk").values_list("pk", flat=True)[:CALLS_READ]
    oldest = newest[CALLS_READ - 1 :].first() if len(newest) == CALLS_READ else None
    calls = _calls(tool_id, id_range & IdRange(lower=oldest)).annotate(
        digest=Func(Cast("args", TextField()), function="md5", output_field=TextField())
    )
    groups = calls.order_by().values("message_id", "digest").annotate(n=Count("pk"), last=Max(Cast("pk", TextField())))
    rows = groups.filter(n__gt=1).order_by("-n", F("last").desc()).values_list("message_id", "n", "last")[:LISTED]
    return [Repeated(message_id=message_id, calls=n, last_id=UUID(last)) for message_id, n, last in rows]


def _calls(tool_id: int, id_range: IdRange) -> QuerySet[ToolCall]:
    return ToolCall.objects.filter(tool_id=tool_id, **id_range.of("pk"))


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

"""What lists of messages, calls, chains and tools can be filtered by.

A filter on the calls of a message is an EXISTS on calls with the literal ids of the tools and the range of ids that the
page can hold. The planner then walks the messages for a common tool and the calls for a rare one: 0.4 to 5 ms over 36
months of 300,000 calls, where a range computed from each message row took up to 44 ms.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.http import QueryDict

from messages_app.filters import (
    InstantFilter,
    ListFilterSet,
    NamesFilter,
    SecondsFilter,
    TextFilter,
    UuidFilter,
    WholeNumberFilter,
    WordFilter,
    YesNoFilter,
)
from messages_app.models import Message
from messages_app.pagination import IdRange

from .models import Tool, ToolCall


class TraceFilterSet(ListFilterSet):
    """The base of what has to do with calls."""

    def __init__(
        self,
        data: QueryDict,
        queryset: QuerySet[Any],
        *,
        tools: QuerySet[Tool],
        page_ids: IdRange | None = None,
        also: Collection[str] = (),
    ) -> None:
        """`tools` are those that the client may see."""
        super().__init__(data, queryset, page_ids=page_ids, also=also)
        self._tools = tools

    def tool_ids(self, names: list[str]) -> list[int]:
        return list(self._tools.filter(name__in=names).values_list("pk", flat=True))

    def calls(self, **conditions: Any) -> Exists:
        """Whether the message of a row has such a call."""
        below = self.ids.widened_to_months().of("pk")
        return Exists(ToolCall.with_deleted.filter(message_id=OuterRef("pk"), **below, **conditions))


class MessageFilterSet(TraceFilterSet):
    role = WordFilter(Message.Role.values, help_text="Who speaks.")
    session = TextFilter(method="pass_over", help_text="Of this session, by id or external id; unknown: 404.")
    request_id = TextFilter(help_text="The request that a message belongs to.")
    external_id = TextFilter(help_text="The producer's id.")
    call_id = TextFilter(method="with_call_id", help_text="Has a call to which the model gave this id.")
    tool = NamesFilter(method="pass_over", help_text="Has a call of this tool; repeated: of any of them.")
    tool_status = WordFilter(
        ToolCall.Status.values, method="pass_over", help_text="Has a call of this status (with `tool`: of these tools)."
    )
    is_completed = YesNoFilter(help_text="false: the answer is being made.")
    has_errors = YesNoFilter(method="with_errors", help_text="Has a failed call, or an error of its own.")
    min_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="gte", help_text="Milliseconds, inclusive.")
    max_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="lte", help_text="Milliseconds, inclusive.")
    deleted = YesNoFilter(
        method="pass_over", help_text="true: the trash, also what was deleted with its session. Needs the delete scope."
    )

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        said = self.form.cleaned_data
        if said.get("deleted"):
            # As a list of ids each half finds its rows by the index of the trash; as an OR they are searched for.
            by_itself = Message.with_deleted.filter(deleted_at__isnull=False)
            with_session = Message.with_deleted.filter(session__deleted_at__isnull=False)
            trash = by_itself.order_by().values("pk").union(with_session.order_by().values("pk"))
            queryset = queryset.filter(pk__in=trash)
        else:
            queryset = queryset.filter(deleted_at__isnull=True, session__deleted_at__isnull=True)
        queryset = super().filter_queryset(queryset)
        conditions: dict[str, Any] = {}
        if said.get("tool"):
            conditions["tool_id__in"] = self.tool_ids(said.get("tool"))
        if said.get("tool_status"):
            conditions["status"] = said.get("tool_status")
        return queryset.filter(self.calls(**conditions)) if conditions else queryset

    def with_call_id(self, queryset: QuerySet[Message], _name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(self.calls(call_id=value))

    def with_errors(self, queryset: QuerySet[Message], _name: str, value: bool) -> QuerySet[Message]:
        has_errors = Q(failure_count__gt=0) | ~Q(error="")
        return queryset.filter(has_errors if value else ~has_errors)


class SessionMessageFilterSet(MessageFilterSet):
    """Of the messages of one session, which the URL names."""

    session = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter


class CallFilterSet(TraceFilterSet):
    tool = NamesFilter(method="of_tools", help_text="Of this tool; repeated: of any of them.")
    status = WordFilter(ToolCall.Status.values, help_text="What came of it; pending: no result yet.")
    call_id = TextFilter(help_text="The id that the model gave; several calls may have it.")
    session = TextFilter(method="pass_over", help_text="Of this session, by id or external id; unknown: 404.")
    message = UuidFilter(field_name="message_id", help_text="Of this message.")
    parent = UuidFilter(field_name="parent_id", help_text="Started by the call of this `uuid`.")
    min_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="gte", help_text="Milliseconds, inclusive.")
    max_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="lte", help_text="Milliseconds, inclusive.")

    def of_tools(self, queryset: QuerySet[ToolCall], _name: str, value: list[str]) -> QuerySet[ToolCall]:
        return queryset.filter(tool_id__in=self.tool_ids(value))


class ChainFilterSet(TraceFilterSet):
    session = TextFilter(method="pass_over", help_text="Of this session, by id or external id; unknown: 404.")
    tool = NamesFilter(method="using", help_text="Any of its calls is of this tool; repeated: of any of them.")
    root_tool = NamesFilter(method="with_root_calls", help_text="Its root call is of this tool; repeated: of any.")
    call_id = TextFilter(method="with_call_id", help_text="Has a call to which the model gave this id.")
    external_id = TextFilter(help_text="The producer's id of the chain.")
    request_id = TextFilter(help_text="The request that a message belongs to.")
    success = YesNoFilter(method="pass_over", help_text="false: failed chains.")
    slower_than = SecondsFilter(method="longer", help_text="Seconds, exclusive: `duration > slower_than`.")
    min_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="gte", help_text="Milliseconds, inclusive.")
    max_duration = WholeNumberFilter(field_name="duration_ms", lookup_expr="lte", help_text="Milliseconds, inclusive.")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        queryset = super().filter_queryset(queryset)
        success = self.form.cleaned_data.get("success")
        if success is None:
            return queryset
        failed = Q(failure_count__gt=0) | ~Q(error="") | Q(self.left_open(), is_completed=True)
        return queryset.filter(~failed if success else failed)

    def left_open(self) -> Exists:
        return self.calls(status=ToolCall.Status.PENDING)

    def using(self, queryset: QuerySet[Message], _name: str, value: list[str]) -> QuerySet[Message]:
        return queryset.filter(self.calls(tool_id__in=self.tool_ids(value)))

    def with_root_calls(self, queryset: QuerySet[Message], _name: str, value: list[str]) -> QuerySet[Message]:
        """Those that have such a call among the ones that no other call started. Which of these is the root is for
        `chains.rooted_in` to say: asked for each row in SQL, it took 6 s over 34 months."""
        return queryset.filter(self.calls(tool_id__in=self.tool_ids(value), parent=None))

    def with_call_id(self, queryset: QuerySet[Message], _name: str, value: str) -> QuerySet[Message]:
        return queryset.filter(self.calls(call_id=value))

    def longer(self, queryset: QuerySet[Message], _name: str, value: Decimal) -> QuerySet[Message]:
        return queryset.filter(duration_ms__gt=int(value * 1000))


class ToolFilterSet(ListFilterSet):
    created_after = InstantFilter(method="pass_over", help_text="Count only calls of messages from this time on.")
    created_before = InstantFilter(method="pass_over", help_text="Count only calls of messages before this time.")
    tool = NamesFilter(method="named", help_text="The tool of this name; repeated: any of them.")
    category = TextFilter(help_text="The category of a tool.")

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        # The times are about calls: tools have whole numbers for ids, and no time.
        for name, value in self.form.cleaned_data.items():
            queryset = self.filters[name].filter(queryset, value)
        return queryset

    def named(self, queryset: QuerySet[Tool], _name: str, value: list[str]) -> QuerySet[Tool]:
        return queryset.filter(name__in=value)

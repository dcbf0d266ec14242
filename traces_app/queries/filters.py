"""What lists of messages, calls, chains and tools can be filtered by.

A filter on the calls of a message is an EXISTS on calls with the literal ids of the tools and the range of ids that the
page can hold. The planner then walks the messages for a common tool and the calls for a rare one: 0.4 to 5 ms over 36
months of 300,000 calls, where a range computed from each message row took up to 44 ms.
"""

from __future__ import annotations

from collections.abc import Collection

from access_app.visibility import ProjectScope
from messages_app.http.filters import (
    InstantFilter,
    ListFilterSet,
    NameFilter,
    NamesFilter,
    SecondsFilter,
    TextFilter,
    UuidFilter,
    WholeNumberFilter,
    WordFilter,
    YesNoFilter,
)
from messages_app.models import Message
from messages_app.queries import FoundSession
from messages_app.sql.batch import LIST_MS, fetch
from messages_app.sql.row_query import Rows, alive_messages, deleted_messages
from traces_app.models import ToolCall
from traces_app.schema.health_flags import FLAGS, MISSING_RESULT
from traces_app.schema.records import ROOT_TOOL

from .chains import NAMED_ROOT
from .messages import calls_with_all
from .tools import tool_ids

_AT_LEAST = "Milliseconds, inclusive."
_ODD = "This was odd about it as it came. `missing_result`: it is completed, and a call has no result."
# As the index `message_errors` has it.
_HAS_ERRORS = "(message.failure_count > 0 OR message.error <> '' OR message.model_error_count > 0)"
_LEAD_TO_FEW_CALLS = {"session", "message", "parent", "call_id"}


class TraceFilterSet(ListFilterSet):
    """The base of what has to do with calls."""

    def calls(self) -> Rows:
        """The calls of the message of a row."""
        rows = Rows(source="traces_app_toolcall AS call", table="call").where("call.message_id = message.id")
        return rows.within(self.ids.widened_to_months())

    def of_health(self, rows: Rows) -> Rows:
        """Those of the messages that have the flag that was asked for, if one was."""
        flag = self.said.get("health")
        if flag is None:
            return rows
        if flag == MISSING_RESULT:
            open_calls = self.calls().where("call.status = 'pending'")
            return rows.where("message.is_completed").where("message.call_count > 0").with_any(open_calls)
        # The first condition is that of the index.
        return rows.where("message.health <> '{}'").where("message.health @> ARRAY[%s]", flag)


class MessageFilterSet(TraceFilterSet):
    role = WordFilter("message.role = %s", words=Message.Role.values, help_text="Who speaks.")
    session = NameFilter(help_text="Of this session, by id or external id; unknown: 404.")
    request_id = TextFilter("message.request_id = %s", help_text="The request that a message belongs to.")
    external_id = TextFilter("message.external_id = %s", help_text="The producer's id.")
    call_id = TextFilter(help_text="Has a call to which the model gave this id.")
    tool = NamesFilter(help_text="Has a call of this tool; repeated: of any of them.")
    tool_status = WordFilter(
        words=ToolCall.Status.values, help_text="Has a call of this status (with `tool`: of these tools)."
    )
    is_completed = YesNoFilter("message.is_completed = %s", help_text="false: the answer is being made.")
    has_errors = YesNoFilter(help_text="Has a failed call, a model error, or an error of its own.")
    health = WordFilter(words=FLAGS, help_text=_ODD)
    min_duration = WholeNumberFilter("message.duration_ms >= %s", help_text=_AT_LEAST)
    max_duration = WholeNumberFilter("message.duration_ms <= %s", help_text=_AT_LEAST)
    deleted = YesNoFilter(help_text="true: the trash, also what was deleted with its session. Needs the delete scope.")

    @property
    def in_trash(self) -> bool:
        return bool(self.said.get("deleted"))

    def found(self, scope: ProjectScope, session: FoundSession | None) -> Rows:
        """The messages that pass, all of them or those of a session."""
        if self.in_trash:
            rows = deleted_messages()
            if session is not None:
                rows = rows.where("message.session_id = %s", session.pk)
        else:
            rows = alive_messages(session.pk if session else None)
        rows = self.passing(rows.visible_to(scope))
        calls = self.calls()
        if "tool" in self.said:
            calls = calls.among("call.tool_id", tool_ids(scope, self.said["tool"]))
        if "tool_status" in self.said:
            calls = calls.where("call.status = %s", self.said["tool_status"])
        if "tool" in self.said or "tool_status" in self.said:
            rows = rows.with_any(calls)
        if "call_id" in self.said:
            rows = rows.with_any(self.calls().where("call.call_id = %s", self.said["call_id"]))
        if "has_errors" in self.said:
            rows = rows.where(_HAS_ERRORS if self.said["has_errors"] else f"NOT {_HAS_ERRORS}")
        return self.of_health(rows)


class SessionMessageFilterSet(MessageFilterSet):
    """Of the messages of one session, which the URL names."""

    session = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter


class CallFilterSet(TraceFilterSet):
    tool = NamesFilter(help_text="Of this tool; repeated: of any of them.")
    status = WordFilter(words=ToolCall.Status.values, help_text="What came of it; pending: no result yet.")
    call_id = TextFilter("call.call_id = %s", help_text="The id that the model gave; several calls may have it.")
    session = NameFilter(help_text="Of this session, by id or external id; unknown: 404.")
    message = UuidFilter("call.message_id = %s", help_text="Of this message.")
    parent = UuidFilter("call.parent_id = %s", help_text="Started by the call of this `uuid`.")
    min_duration = WholeNumberFilter("call.duration_ms >= %s", help_text=_AT_LEAST)
    max_duration = WholeNumberFilter("call.duration_ms <= %s", help_text=_AT_LEAST)

    read_whole_of: str | None = None
    """The tool whose calls are read where they are found; see queries.FoundCalls. Known when they are `found`."""

    def found(self, scope: ProjectScope, session: FoundSession | None) -> Rows:
        """The calls that pass, of all messages or of those of a session."""
        tools = tool_ids(scope, self.said["tool"]) if "tool" in self.said else None
        names = set(self.said.get("tool", ()))
        if tools is not None and len(tools) == len(names) == 1 and self.said.keys().isdisjoint(_LEAD_TO_FEW_CALLS):
            (self.read_whole_of,) = names
        rows = self._alive() if self.read_whole_of is None else self._alive_and_read_whole()
        rows = self.passing(rows.visible_to(scope))
        if session is not None:
            rows = rows.where("message.session_id = %s", session.pk)
        if tools is not None:
            rows = rows.among("call.tool_id", tools)
        if "status" in self.said:
            # Its word, which is one of few, as text: the index of what failed is for those who are seen to ask for that.
            rows = rows.where(f"call.status = '{self.said['status']}'")
        return rows

    def _alive(self) -> Rows:
        # What the join of ids says to a person, the planner is told: it need not plan for the messages of other months.
        return Rows(
            source="traces_app_toolcall AS call JOIN messages_app_message AS message ON message.id = call.message_id "
            "JOIN messages_app_session AS session ON session.id = message.session_id",
            table="call",
            conditions=("message.deleted_at IS NULL", "session.deleted_at IS NULL"),
        ).within(self.ids.widened_to_months(), "message.id")

    def _alive_and_read_whole(self) -> Rows:
        rows = calls_with_all(self.ids.widened_to_months()).where("message.deleted_at IS NULL")
        # Call by call in the index of the trash, which is small. Of an EXISTS PostgreSQL may make a join with all of it.
        return rows.where(
            "(SELECT TRUE FROM messages_app_session WHERE project_id = message.project_id AND id = message.session_id "
            "AND deleted_at IS NOT NULL) IS NULL"
        )


class ChainFilterSet(TraceFilterSet):
    session = NameFilter(help_text="Of this session, by id or external id; unknown: 404.")
    tool = NamesFilter(help_text="Its root or any of its calls is of this tool; repeated: of any of them.")
    root_tool = NamesFilter(help_text="Its root is of this tool; repeated: of any.")
    call_id = TextFilter(help_text="Has a call to which the model gave this id.")
    external_id = TextFilter("message.external_id = %s", help_text="The producer's id of the chain.")
    request_id = TextFilter("message.request_id = %s", help_text="The request that a message belongs to.")
    success = YesNoFilter(help_text="false: failed chains.")
    has_errors = YesNoFilter(
        help_text="Has a failed call, a model error (which its agent may have caught), or an error."
    )
    health = WordFilter(words=FLAGS, help_text=_ODD)
    slower_than = SecondsFilter(
        "message.duration_ms > %s * 1000", help_text="Seconds, exclusive: `duration > slower_than`."
    )
    min_duration = WholeNumberFilter("message.duration_ms >= %s", help_text=_AT_LEAST)
    max_duration = WholeNumberFilter("message.duration_ms <= %s", help_text=_AT_LEAST)

    def found(self, scope: ProjectScope, session: FoundSession | None) -> Rows:
        """The messages that are chains and pass, of all sessions or of one."""
        rows = alive_messages(session.pk if session else None).visible_to(scope)
        rows = self.passing(rows.where("message.role = 'assistant'").where("message.call_count > 0"))
        if "tool" in self.said:
            names = self.said["tool"]
            rows = _with_root_or(rows, names, self.calls().among("call.tool_id", tool_ids(scope, names)))
        if "root_tool" in self.said:
            # Those that have such a call among the ones that no other call started. Which of these is the root is for
            # `chains.rooted_in` to say: asked for each row in SQL, it took 6 s over 34 months.
            names = self.said["root_tool"]
            roots = self.calls().where("call.parent_id IS NULL")
            rows = _with_root_or(rows, names, roots.among("call.tool_id", tool_ids(scope, names)))
        if "call_id" in self.said:
            rows = rows.with_any(self.calls().where("call.call_id = %s", self.said["call_id"]))
        if "success" in self.said:
            left_open, values = self.calls().where("call.status = 'pending'").exist()
            failed = f"(message.failure_count > 0 OR message.error <> '' OR (message.is_completed AND {left_open}))"
            rows = rows.where(f"NOT {failed}" if self.said["success"] else failed, *values)
        if "has_errors" in self.said:
            rows = rows.where(_HAS_ERRORS if self.said["has_errors"] else f"NOT {_HAS_ERRORS}")
        return self.of_health(rows)


def _with_root_or(rows: Rows, names: Collection[str], calls: Rows) -> Rows:
    """The chains of which a tracker named one of these tools the root, or that have one of the calls.

    Trackers name few roots that are no calls, so it is asked first whether there is any, by an index of those: the planner
    walks calls for a rare tool, and could not with an OR.
    """
    root = f"message.metadata ? '{ROOT_TOOL}' AND message.{NAMED_ROOT} = ANY(%s)"
    named = Rows(source="messages_app_message AS message", table="message").where(root, list(names))
    (found,) = fetch([named.query("1", "LIMIT 1")], at_most_ms=LIST_MS)
    if not found:
        return rows.with_any(calls)
    condition, values = calls.exist()
    return rows.where(f"({condition} OR ({root}))", *values, list(names))


class ToolFilterSet(ListFilterSet):
    created_after = InstantFilter(help_text="Count only calls of messages from this time on.")
    created_before = InstantFilter(help_text="Count only calls of messages before this time.")
    tool = NamesFilter(help_text="The tool of this name; repeated: any of them.")
    category = TextFilter(help_text="The category of a tool.")

    def found(self, scope: ProjectScope) -> Rows:
        """The tools that pass. The times are about calls: tools have whole numbers for ids, and no time."""
        rows = Rows(source="traces_app_tool AS tool", table="tool", has_whole_numbers=True).visible_to(scope)
        # Calls that name no tool are kept under "", which is none.
        rows = rows.among("tool.name", self.said["tool"]) if "tool" in self.said else rows.where("tool.name <> ''")
        if "category" in self.said:
            rows = rows.where("tool.category = %s", self.said["category"])
        return rows

"""Filters of the lists of tools and of their statistics."""

from __future__ import annotations

from access_app.db import Database
from access_app.visibility import ProjectScope, visible_to
from messages_app.http.filters import InstantFilter, ListFilterSet, NameFilter, NamesFilter, TextFilter, WordFilter
from messages_app.queries import FoundSession
from messages_app.sql.pagination import ListRows
from traces_app.models import Context, Tool, ToolCall

from .tool_statistics import CallFilter

_READS_CALLS = "Reads all calls of the range, so give one where there are many."


class ToolFilterSet(ListFilterSet):
    created_after = InstantFilter(help_text="Count only calls of messages from this time on.")
    created_before = InstantFilter(help_text="Count only calls of messages before this time.")
    tool = NamesFilter("name", "in", help_text="The tool with this name; repeated: any of them.")
    category = TextFilter(help_text="The category of a tool.")

    rows = Tool.objects.all()

    def found(self, db: Database, scope: ProjectScope) -> ListRows:
        """Return the tools that pass. The range of times limits the counted calls: the ids of tools carry no time."""
        rows = self.narrow(visible_to(db.rows(Tool.objects).all(), scope), self.narrowing)
        # The tool "" holds the calls without a tool name.
        rows = rows if "tool" in self.given else rows.exclude(name="")
        return ListRows(db=db, find=lambda _ids: rows)


class ToolStatisticsFilterSet(ToolFilterSet):
    status = WordFilter(words=ToolCall.Status.values, help_text="Count only calls with this status.")
    agent = TextFilter(help_text=f"Count only calls in steps of the agent with this name. {_READS_CALLS}")
    model = TextFilter(help_text=f"Count only calls in steps of this model, as recorded. {_READS_CALLS}")
    session = NameFilter(help_text=f"Count only calls of this session: id or external id. {_READS_CALLS}")
    end_user = TextFilter(help_text=f"Count only calls in sessions of this user of the agent. {_READS_CALLS}")
    tag = NamesFilter(help_text=f"Count only calls in sessions with this tag; repeated: with all. {_READS_CALLS}")

    read_elsewhere = (*ToolFilterSet.read_elsewhere, "status", "agent", "model", "end_user", "tag")

    def which(self, session: FoundSession | None) -> CallFilter:
        """Return the condition for the calls that count; `session` is the one that the parameter names."""
        return CallFilter(
            status=self.given.get("status"),
            agent=self.given.get("agent"),
            model=self.given.get("model"),
            session_id=None if session is None else session.pk,
            end_user=self.given.get("end_user"),
            tags=tuple(self.given.get("tag", ())),
        )


class ToolExamplesFilterSet(ToolStatisticsFilterSet):
    tool = TextFilter("name", help_text="The tool. Required.")
    category = None  # type: ignore[assignment]  # how django-filter takes back an inherited filter


class UnusedToolsFilterSet(ListFilterSet):
    rows = Context.objects.all()

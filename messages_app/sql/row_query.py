"""The rows of a list as plain SQL: where they come from, and the conditions that they pass.

A list of the API is found by one statement that is put together of a few constant pieces. The same as a QuerySet took
Django 1 to 2 ms to compile, more than PostgreSQL takes to answer it. The admin, whose pages take longer anyway, filters
QuerySets.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from access_app.visibility import ProjectScope, in_sql

from .batch import LIST_MS, Query, fetch
from .pagination import IdRange
from .partitions import Month


class Rows(Struct, frozen=True, kw_only=True):
    """Rows that are filtered but not ordered. Conditions are constants of this project, with a %s for each value."""

    source: str
    """What stands behind FROM."""
    table: str
    """What the rows are called there."""
    conditions: tuple[str, ...] = ()
    values: tuple[Any, ...] = ()
    has_whole_numbers: bool = False
    """Whether the ids are whole numbers, not UUIDs."""
    month: Month | None = None
    in_month: str = ""
    """The source of the rows of `month`, see exchange.Query."""

    def where(self, condition: str, *values: Any) -> Rows:
        return replace(self, conditions=(*self.conditions, condition), values=(*self.values, *values))

    def among(self, column: str, choices: Collection[Any]) -> Rows:
        """Those that hold one of the `choices` in a column; none for no choices."""
        if not choices:
            return self.where("FALSE")
        if len(choices) == 1:
            # A plain equality is what the planner estimates best, and an index keeps its order for.
            return self.where(f"{column} = %s", *choices)
        return self.where(f"{column} IN ({', '.join('%s' for _choice in choices)})", *choices)

    def visible_to(self, scope: ProjectScope) -> Rows:
        condition, values = in_sql(scope, f"{self.table}.project_id")
        return self.where(condition, *values)

    def within(self, ids: IdRange, column: str = "id") -> Rows:
        """Those whose id, or that of another table in `source` (`message.id`), is in the range."""
        rows = self
        name = column if "." in column else f"{self.table}.{column}"
        if ids.lower is not None:
            rows = rows.where(f"{name} >= %s", self._id(ids.lower))
        if ids.upper is not None:
            rows = rows.where(f"{name} < %s", self._id(ids.upper))
        return rows

    def exist(self) -> tuple[str, tuple[Any, ...]]:
        """The condition that there are such rows, and its values. Conditions here may name tables of the rows outside."""
        below = self.query("1")
        return f"EXISTS ({below.sql})", tuple(below.parameters)

    def with_any(self, below: Rows) -> Rows:
        """Those that have one of the rows `below`, whose conditions say what belongs to a row of these."""
        condition, values = below.exist()
        return self.where(condition, *values)

    def query(self, selected: str, end: str = "", *values: Any, prepared: bool = False) -> Query:
        """The statement that reads columns of the rows; `end` is what stands behind WHERE, with its values."""
        rest = f"WHERE {' AND '.join(self.conditions) or 'TRUE'} {end}"
        return Query(
            sql=f"SELECT {selected} FROM {self.source} {rest}",  # noqa: S608 - see `Rows`
            parameters=[*self.values, *values],
            prepared=prepared,
            month=self.month,
            in_month=f"SELECT {selected} FROM {self.in_month} {rest}" if self.month else "",  # noqa: S608 - see `Rows`
        )

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        """The ids of the first rows in one of the two orders. Raises InvalidInput where that takes longer than LIST_MS."""
        key = f"{self.table}.id"
        order = "DESC" if newest_first else "ASC"
        query = self.query(key, f"ORDER BY {key} {order} LIMIT %s OFFSET %s", limit, offset)
        (found,) = fetch([query], at_most_ms=LIST_MS)
        return [row[0] for row in found]

    def _id(self, bound: UUID) -> UUID | int:
        return bound.int if self.has_whole_numbers else bound


def alive_messages(session: UUID | None = None) -> Rows:
    """The messages that are not deleted, neither by themselves nor with their session; or those of one session, which
    must be alive."""
    if session is not None:
        rows = Rows(source="messages_app_message AS message", table="message").where("message.session_id = %s", session)
    else:
        rows = all_messages().where("session.deleted_at IS NULL")
    return rows.where("message.deleted_at IS NULL")


def all_messages() -> Rows:
    return Rows(
        source="messages_app_message AS message JOIN messages_app_session AS session ON session.id = message.session_id",
        table="message",
    )


def deleted_messages() -> Rows:
    """The messages that were deleted by themselves or with their session."""
    # As a list of ids each half finds its rows by the index of the trash; as an OR they are searched for.
    return all_messages().where(
        "message.id IN (SELECT id FROM messages_app_message WHERE deleted_at IS NOT NULL UNION "
        "SELECT below.id FROM messages_app_message AS below JOIN messages_app_session AS deleted "
        "ON deleted.id = below.session_id WHERE deleted.deleted_at IS NOT NULL)"
    )


def sessions_that_are(*, deleted: bool) -> Rows:
    rows = Rows(source="messages_app_session AS session", table="session")
    return rows.where(f"session.deleted_at IS {'NOT ' if deleted else ''}NULL")

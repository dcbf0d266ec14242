"""Count the rows that a purge has removed, or would remove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from django.db.models import Model

from messages_app.models import Message, Reference, Session
from traces_app.models import (
    AgentStep,
    Context,
    ErrorPattern,
    Event,
    MessageSeal,
    RunVector,
    Score,
    SearchPosting,
    SearchRows,
    SearchSegment,
    Snapshot,
    SnapshotPart,
    SnapshotSums,
    Span,
    ToolCall,
    ToolResult,
)

NAMES: dict[type[Model], str] = {
    Session: "sessions",
    Message: "messages",
    Reference: "references",
    AgentStep: "steps",
    ToolCall: "calls",
    ToolResult: "results",
    Event: "events",
    Context: "contexts",
    Span: "spans",
    Score: "scores",
    # Of whole periods; rows of single messages leave the index when segments are merged.
    SearchSegment: "search index",
    SearchRows: "search index",
    SearchPosting: "search index",
    RunVector: "vectors",
    ErrorPattern: "patterns of errors",
    # Of whole periods.
    MessageSeal: "seals",
    Snapshot: "snapshots",
    SnapshotPart: "snapshots",
    SnapshotSums: "snapshots",
}
NAME_OF_TABLE = {model._meta.db_table: name for model, name in NAMES.items()}
Removed = list[tuple[type[Model], int, int]]
"""(model, rows, size of the rows) of each table."""
Progress = Callable[[int], object]
"""Called with the number of messages removed since the last call."""


@dataclass(kw_only=True)
class TableReport:
    """The rows removed from one table."""

    rows: int = 0
    is_estimate: bool = False
    """Whether `rows` includes the planner's estimate for a dropped period, whose rows are not read."""
    bytes_freed: int = 0
    """Disk space of dropped periods with their indexes, returned to the operating system."""
    bytes_reusable: int = 0
    """Stored size of the deleted rows, an estimate. PostgreSQL reuses this space after a VACUUM."""


@dataclass(kw_only=True)
class PurgeReport:
    """The result of a purge, or of a survey."""

    periods: list[str] = field(default_factory=list)
    """Dropped periods, such as 2024-01 or 2024-01-31."""
    tables: dict[str, TableReport] = field(default_factory=lambda: {name: TableReport() for name in NAMES.values()})
    tombstones_forgotten: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.periods and not any(table.rows for table in self.tables.values())

    @property
    def bytes_freed(self) -> int:
        return sum(table.bytes_freed for table in self.tables.values())

    @property
    def bytes_reusable(self) -> int:
        return sum(table.bytes_reusable for table in self.tables.values())

    def add(self, model: type[Model], rows: int, size: int) -> None:
        table = self.tables[NAMES[model]]
        table.rows += rows
        table.bytes_reusable += size

    def add_all(self, removed: Removed) -> int:
        """Add the rows that were removed; return how many of them are messages."""
        for model, rows, size in removed:
            self.add(model, rows, size)
        return sum(rows for model, rows, _size in removed if model is Message)

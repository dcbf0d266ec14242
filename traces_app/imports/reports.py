"""Reports of an import: what was read of each file, and the reasons for the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal
from uuid import UUID

import msgspec
from django.urls import reverse

from access_app.db import Database
from messages_app.models import Session
from tracesite_sdk import records
from tracesite_sdk.records.health_flags import INVALID_ARGUMENTS, ORPHAN_RESULT
from tracesite_sdk.records.pg_text import text

_LONGEST = 1_000
"""Characters of a path or a reason in a report."""
SESSIONS_LISTED = 50
"""Sessions that a report lists; the others are counted."""
_SHOWN = 50
"""Omitted entries that a report lists; the others are counted."""


@dataclass(kw_only=True)
class Counts:
    """Totals of records."""

    sessions: int = 0
    """A session with parts in several files counts once."""
    messages: Counter[str] = field(default_factory=Counter)
    """Number of messages by role."""
    steps: int = 0
    tool_calls: Counter[str] = field(default_factory=Counter)
    """Calls by name of the tool, as are the errors; without the placeholders of orphan results."""
    tool_results: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    calls_without_result: int = 0
    orphan_results: int = 0
    broken_arguments: int = 0
    """Calls whose arguments are text but not JSON; the text is kept."""
    health: Counter[str] = field(default_factory=Counter)
    """Messages with oddities, by flag: see health_flags.py."""

    def __post_init__(self) -> None:
        # Not a field, because reports do not contain it.
        self._in_parts: set[str] = set()

    def add_sessions(self, count: int, in_parts: Collection[str]) -> None:
        """Add `count` sessions; other files may hold parts of those named in `in_parts`."""
        self.sessions += count - len(self._in_parts.intersection(in_parts))
        self._in_parts.update(in_parts)

    def add(self, message: records.Message, normal: records.Message) -> None:
        """Add a message, given as parsed and as normalized."""
        self.messages[message.role] += 1
        self.health.update(normal.health or ())
        for step in normal.agent_steps or ():
            self.steps += 1
            for call in step.tool_calls or ():
                self._add_call(call)
        if INVALID_ARGUMENTS in (normal.health or ()):
            calls = (call for step in message.agent_steps or () for call in step.tool_calls or ())
            self.broken_arguments += sum(_is_broken(call.args) for call in calls)

    def include(self, other: Counts) -> None:
        self.add_sessions(other.sessions, other._in_parts)
        self.messages += other.messages
        self.steps += other.steps
        self.tool_calls += other.tool_calls
        self.tool_results += other.tool_results
        self.errors += other.errors
        self.calls_without_result += other.calls_without_result
        self.orphan_results += other.orphan_results
        self.broken_arguments += other.broken_arguments
        self.health += other.health

    def _add_call(self, call: records.ToolCall) -> None:
        if call.status == "error":
            self.errors[call.name or ""] += 1
        if call.metadata and call.metadata.get(ORPHAN_RESULT):
            self.orphan_results += 1
            return
        self.tool_calls[call.name or ""] += 1
        if call.result is None:
            self.calls_without_result += 1
        else:
            self.tool_results += 1


@dataclass(frozen=True, kw_only=True)
class StoredSession:
    """A session that has something of a file."""

    id: UUID
    page: str
    """Path of its page in the admin."""


@dataclass(kw_only=True)
class FileReport:
    """The outcome of one file."""

    path: str
    status: Literal["read", "skipped", "failed"] = "read"
    reason: str = ""
    """The reason if skipped or failed."""
    format: str = ""
    counts: Counts = field(default_factory=Counts)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """The first omitted entries, each with its place and the reason."""
    left_out_count: int = 0
    renamed: list[tuple[str, str]] = field(default_factory=list)
    """Ids whose session holds another conversation, each with the id that the transcript is stored under instead."""
    stored: Counter[str] = field(default_factory=Counter)
    """Messages by outcome: created, updated, unchanged, or the reason of a refusal. Empty for a dry run."""
    sessions: list[StoredSession] = field(default_factory=list)
    """The first sessions. They keep the dates of the file, so that they are seldom among the newest. Empty for a dry run."""

    def __post_init__(self) -> None:
        # File names are bytes, not always valid text; in an archive they may have any length.
        self.path = _cut(text(self.path))

    def add_stored(self, db: Database, project_id: int, names: Iterable[str]) -> None:
        """List the sessions with these external ids. One query."""
        known = {session.id for session in self.sessions}
        wanted = list(islice(names, SESSIONS_LISTED))
        rows = db.rows(Session.objects).filter(project_id=project_id, external_id__in=wanted).order_by("pk")
        new = [key for key in rows.values_list("pk", flat=True) if key not in known]
        for key in new[: SESSIONS_LISTED - len(known)]:
            self.sessions.append(StoredSession(id=key, page=reverse("admin:messages_app_session_change", args=[key])))

    def leave_out(self, where: str, why: str) -> None:
        self.left_out_count += 1
        if len(self.left_out) < _SHOWN:
            self.left_out.append((_cut(text(where)), _cut(text(why))))


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST else value[: _LONGEST - 1] + "…"


def totals_of(reports: Iterable[FileReport]) -> Counts:
    totals = Counts()
    for report in reports:
        totals.include(report.counts)
    return totals


def _is_broken(args: Any) -> bool:
    if not isinstance(args, str) or not args:
        return False
    try:
        msgspec.json.decode(args)
    except (msgspec.DecodeError, RecursionError):
        return True
    return False

"""Response schemas: imported files."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta

from messages_app.http.schemas import Resource

FileStatus = Literal["read", "skipped", "failed"]
_Pair = Annotated[list[str], Meta(min_length=2, max_length=2)]


class ImportCounts(Resource, frozen=True):
    """Totals of the imported records."""

    sessions: int
    messages: Annotated[dict[str, int], Meta(description="Number of messages by role.")]
    steps: int
    tool_calls: Annotated[dict[str, int], Meta(description="Number of calls by tool name.")]
    tool_results: int
    errors: Annotated[dict[str, int], Meta(description="Number of failed calls by tool name.")]
    calls_without_result: int
    orphan_results: Annotated[int, Meta(description="Results without a call; they are stored.")]
    broken_arguments: Annotated[
        int, Meta(description="Calls whose arguments are not valid JSON; they are stored as text.")
    ]
    health: Annotated[dict[str, int], Meta(description="Number of messages by health flag.")]


class ImportedSession(Resource, frozen=True):
    """A session that has something of a file."""

    id: UUID
    page: Annotated[str, Meta(description="Path of its page in the admin.")]


class ImportedFile(Resource, frozen=True):
    """The outcome of one file, or of one file of an archive."""

    path: str
    status: Annotated[FileStatus, Meta(description="`skipped`: not a transcript.")]
    reason: Annotated[str, Meta(description="The reason if skipped or failed.")]
    format: str
    counts: ImportCounts
    left_out: Annotated[
        list[_Pair],
        Meta(description="The first entries that were not imported: their place in the file and the reason."),
    ]
    left_out_count: int
    renamed: Annotated[
        list[_Pair],
        Meta(
            description=(
                "Transcripts whose id belongs to another conversation: their id, and the id "
                "under which they are stored."
            )
        ),
    ]
    stored: Annotated[
        dict[str, int],
        Meta(
            description=(
                "Number of messages created, updated, unchanged and refused, with the reason of "
                "the refusal. Empty for a dry run."
            )
        ),
    ]
    sessions: Annotated[
        list[ImportedSession],
        Meta(description="The first 50 sessions of the file. They keep its dates. Empty for a dry run."),
    ]


class Imported(Resource, frozen=True):
    """The outcome of an upload."""

    project: str
    dry_run: bool
    files: list[ImportedFile]
    totals: ImportCounts

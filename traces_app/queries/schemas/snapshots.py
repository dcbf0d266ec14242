"""Response schemas: snapshots and forks."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Count, Id, Json, JsonArray, JsonObject, Page, Redactions, Resource, Time
from messages_app.models import Session as SessionRow


class ForkedFrom(Resource, frozen=True):
    """The session that a fork has replayed, and where."""

    session: Annotated[str, Meta(description="Its external id.")]
    node: str
    snapshot: Annotated[str, Meta(description="The external id of the snapshot.")]
    ts: Annotated[int | None, Meta(description="Its time: nanoseconds since 1970.")]
    overrides: Annotated[JsonObject, Meta(description="What was different.")]
    nodes: Annotated[JsonObject, Meta(description="Snapshots that the fork takes from the session, by node.")]
    pruned: Annotated[list[str], Meta(description="Nodes whose context the replay made invalid.")]


class SnapshotSums(Resource, frozen=True):
    """The sums of the snapshots of a session."""

    count: Count
    bytes: Annotated[int, Meta(description="Of their contents, each part once.", ge=0)]
    left_out: Annotated[JsonObject, Meta(description="Snapshots that were not kept, by reason.")]
    generation: Annotated[int, Meta(description="How often their contents were removed.", ge=0)]


class Snapshot(Resource, frozen=True):
    """The context of an agent before nodes of its run."""

    id: Id
    session_id: Id
    external_id: Annotated[str, Meta(description="The id that the recorder gave it.")]
    ts: Annotated[int, Meta(description="Nanoseconds since 1970, UTC.")]
    node_ids: list[str]
    context_ref: Annotated[str, Meta(description="The part with which the context begins.")]
    notes: Annotated[JsonArray, Meta(description="Values that it does not hold as they were: paths and reasons.")]
    redactions: Redactions
    is_purged: Annotated[bool, Meta(description="true: its content was removed.")]
    created_at: Time


class ListedSnapshot(Resource, frozen=True, rename="camel"):
    """A snapshot in the record of its session, with the names that recorders and monitors use."""

    id: Annotated[str, Meta(description="The id that the recorder gave it.")]
    ts: Time
    node_ids: list[str]
    context_ref: str


class SnapshotPage(Page[Snapshot], frozen=True):
    """A page of snapshots, with the cursors of the next and previous pages; null at either end."""


class WholeSnapshot(Snapshot, frozen=True):
    """A snapshot with its content."""

    context: Annotated[
        Json | UnsetType,
        Meta(
            description=(
                'The content; types that JSON does not have are {"$type": name, "value": ...}. Left out if it was removed.'
            )
        ),
    ] = UNSET


class ReplayCode(Resource, frozen=True):
    """What replays a node."""

    node: str
    snapshot_id: Annotated[Id, Meta(description="The newest snapshot that holds the node: the replay begins there.")]
    language: Annotated[str, Meta(extra_json_schema={"enum": ["python"]})]
    code: Annotated[
        str, Meta(description="Runs where `workflow` and `recorder` of the agent are, with the key in TRACESITE_KEY.")
    ]


class SnapshotParts(Resource, frozen=True):
    """Parts of contexts by name, with those that they name."""

    parts: JsonObject


class StoredSnapshot(Resource, frozen=True):
    """The ids of a stored snapshot and its session."""

    session_id: Id
    snapshot_id: Annotated[Id | None, Meta(description="null if no snapshot was sent.")]


class Fork(Resource, frozen=True):
    """A session that has replayed a node of another one."""

    id: Id
    external_id: str
    title: str
    status: Annotated[str, Meta(extra_json_schema={"enum": SessionRow.Status.values})]
    created_at: Time
    forked_from: ForkedFrom


class ForkPage(Page[Fork], frozen=True):
    """A page of forks, with the cursors of the next and previous pages; null at either end."""

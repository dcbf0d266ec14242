"""Response schemas: two sessions or messages side by side."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Amount, Count, Id, Json, JsonObject, Milliseconds, Resource, Time

FactChange = Literal["same", "changed"]
PairChange = Literal["same", "changed", "left", "right"]
NodeKind = Literal["message", "step", "call"]
ComparedKind = Literal["session", "message"]


class Piece(Resource, frozen=True):
    """A piece of a text."""

    text: str
    changed: Annotated[bool, Meta(description="true: only this side has it.")]


Pieces = Annotated[list[Piece] | None, Meta(description="The text in pieces; null if this side has no such field.")]


class Difference(Resource, frozen=True):
    """A field that differs."""

    field: Annotated[str, Meta(description="`args.city`, `output`, `thought` ...")]
    left: Pieces
    right: Pieces


class ComparedFact(Resource, frozen=True):
    """A figure of both sides."""

    field: str
    change: FactChange
    left: Json
    right: Json


class ComparedNode(Resource, frozen=True):
    """A message, a step or a call."""

    id: Id
    message_id: Id
    kind: NodeKind
    name: Annotated[str, Meta(description="The role of a message, the agent of a step, the tool of a call.")]
    status: Annotated[str, Meta(description="Of a call; `error` of a message that failed.")]
    duration: Milliseconds | None
    """Milliseconds; null if unknown."""
    usage: JsonObject | UnsetType = UNSET
    cost: Amount | UnsetType = UNSET


class ComparedPair(Resource, frozen=True):
    """Two steps or calls that correspond to each other."""

    change: PairChange
    left: ComparedNode | None
    right: ComparedNode | None
    differences: Annotated[
        list[Difference] | UnsetType, Meta(description="Of changed pairs; left out beyond the first 500 of them.")
    ] = UNSET


class ComparedCounts(Resource, frozen=True):
    """The number of pairs of each kind."""

    same: Count
    changed: Count
    left: Annotated[int, Meta(description="Only on the left.", ge=0)]
    right: Annotated[int, Meta(description="Only on the right.", ge=0)]


class Comparison(Resource, frozen=True):
    """Two sessions or messages side by side."""

    kind: ComparedKind
    left: Id
    right: Id
    counts: ComparedCounts
    is_cut: Annotated[bool, Meta(description="true: only the first 12,000 messages, steps and calls were compared.")]
    facts: Annotated[list[ComparedFact], Meta(description="Durations, counters, tokens and cost of the whole.")]
    pairs: list[ComparedPair]
    replayed_since: Annotated[
        Time | UnsetType, Meta(description="Of a session and its replay: what was done before is left out.")
    ] = UNSET

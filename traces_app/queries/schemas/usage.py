"""Response schemas: requests to models, added up."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from messages_app.http.schemas import Amount, Count, Resource

UsageBy = Literal["model", "end_user", "day"]


class UsageTotal(Resource, frozen=True):
    """Requests to models, with their tokens and cost."""

    step_count: Annotated[Count, Meta(description="Requests: steps with a model, tokens or a cost.")]
    input_tokens: Count
    output_tokens: Count
    cost: Amount | None
    """USD, the sum over the requests whose cost is known; null if there are none."""
    unpriced_count: Count
    """Requests whose cost is unknown."""


class UsageGroup(UsageTotal, frozen=True):
    """The requests of one model, user or day."""

    key: Annotated[
        str,
        Meta(description="The model or end user, as recorded and empty if unknown; or the day (UTC), as 2026-01-31."),
    ]


class Usage(Resource, frozen=True):
    """Requests to models, added up."""

    group_by: UsageBy
    results: Annotated[list[UsageGroup], Meta(description="The dearest groups first; days: the newest first.")]
    group_count: Annotated[
        Count, Meta(description="All groups; more than `results` has if there are more than `limit`.")
    ]
    total: Annotated[UsageTotal, Meta(description="Of all groups.")]

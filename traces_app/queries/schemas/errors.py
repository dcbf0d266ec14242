"""Response schemas: groups of errors."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from messages_app.http.schemas import Count, Id, Resource, Time

ErrorSort = Literal["count", "last_seen", "first_seen", "tool"]
ErrorChange = Literal["new", "rising", "steady"]


class ErrorTool(Resource, frozen=True):
    """The calls of a group that are of one tool."""

    name: str
    project: Annotated[str, Meta(description="The slug of its project.")]
    call_count: Count


class ErrorStep(Resource, frozen=True):
    """The calls of a group in one step of a range of times."""

    begin: Time
    call_count: Count


class ErrorExample(Resource, frozen=True):
    """One call of a group."""

    call: Annotated[Id, Meta(description="The `uuid` of the call.")]
    message_id: Id
    session_id: Id
    tool: str
    project: Annotated[str, Meta(description="The slug of its project.")]
    error: Annotated[str, Meta(description="As it was; its first 1,000 characters.")]
    created_at: Annotated[Time, Meta(description="The time of its message.")]


class ErrorGroup(Resource, frozen=True):
    """Failed calls whose errors are equal but for ids, numbers, quoted values and variable parts of paths."""

    id: Annotated[str, Meta(description="Finds its calls: `/tool-calls/?error_group=`.")]
    pattern: Annotated[str, Meta(description="The error, with `#` for what differs.")]
    call_count: Count
    first_seen_at: Annotated[Time, Meta(description="The time of its first call in the range.")]
    last_seen_at: Time
    tools: Annotated[list[ErrorTool], Meta(description="The ten tools with most of its calls.")]
    tool_count: Annotated[Count, Meta(description="All of its tools.")]
    end_user_count: Annotated[Count, Meta(description="Users of the agent in whose sessions it occurred.")]
    last_example: Annotated[ErrorExample, Meta(description="Its newest call.")]
    trend: Annotated[list[ErrorStep], Meta(description="The steps of the range with calls, oldest first.")]
    change: Annotated[
        ErrorChange,
        Meta(
            description=(
                "`new`: it began in the last 24 hours of the range, and none of the failed calls before the range has it, of which the newest "
                "2,000 are read; `rising`: at least five calls in the second half of the range, and twice as many as in the first; otherwise `steady`."
            )
        ),
    ]
    score: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | UnsetType,
        Meta(description="Only in groups like an error: 1 for its own group."),
    ] = UNSET


class ErrorGroups(Resource, frozen=True):
    """Failed calls, grouped by their errors."""

    results: list[ErrorGroup]
    group_count: Annotated[
        Count, Meta(description="All groups; more than `results` has if there are more than `limit`.")
    ]
    call_count: Annotated[Count, Meta(description="The calls of all groups.")]
    counted_from: Annotated[
        Time | None,
        Meta(
            description=(
                "The time of the oldest call that was read, if the range has more failed calls than are read; otherwise null."
            )
        ),
    ]
    trend_step: Annotated[
        int, Meta(description="Seconds from one item of `trend` to the next; it depends on the range.")
    ]

"""Response schemas: tools and their statistics."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from messages_app.http.schemas import Amount, Count, Id, Milliseconds, Page, Resource, Time


class Tool(Resource, frozen=True):
    """A tool with statistics of its calls."""

    name: str
    description: str
    category: str
    project: str
    call_count: Count
    success_count: Count
    failure_count: Count
    pending_count: Count
    average_duration: Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration.")]
    longest_duration: Milliseconds | None
    """Milliseconds."""
    last_called_at: Annotated[Time | None, Meta(description="The time of the last message with a call of this tool.")]


Duration = Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration; within 1 %.")]


class ToolStep(Resource, frozen=True):
    """The calls of a tool in one step of a range of times."""

    begin: Time
    call_count: Count
    failure_count: Count
    error_rate: Annotated[float | None, Meta(description="The failed calls as a share of the finished ones.")]
    average_duration: Annotated[float | None, Meta(description="Milliseconds.")]
    p95_duration: Annotated[float | None, Meta(description="Milliseconds; null unless `tool` names one tool.")]
    cost: Amount | None
    """USD."""


class ToolStatistics(Resource, frozen=True):
    """Statistics of a tool in a range of times."""

    name: str
    category: str
    project: str
    call_count: Count
    success_count: Count
    failure_count: Count
    pending_count: Count
    error_rate: Annotated[float | None, Meta(description="`failure_count` / (`success_count` + `failure_count`).")]
    average_duration: Annotated[float | None, Meta(description="Milliseconds, of the calls with a known duration.")]
    longest_duration: Milliseconds | None
    p50_duration: Duration
    p95_duration: Duration
    p99_duration: Duration
    total_duration: Annotated[float, Meta(description="Milliseconds: the sum, also of calls that overlap.")]
    cost: Annotated[
        Amount | None,
        Meta(
            description=(
                "USD: the cost of each step, divided equally among the calls that it asked for. Calls whose cost is "
                "unknown are left out; null if it is of all."
            )
        ),
    ]
    unpriced_count: Annotated[Count, Meta(description="Calls whose cost is unknown.")]
    trend_step: Annotated[
        int, Meta(description="Seconds from one item of `trend` to the next; it depends on the range.")
    ]
    trend: Annotated[list[ToolStep], Meta(description="The steps of the range with calls, oldest first.")]


class ToolStatisticsPage(Page[ToolStatistics], frozen=True):
    """A page of statistics, with the cursors of the next and previous pages; null at either end."""


class ToolExample(Resource, frozen=True):
    """A call of a tool, or several that are alike."""

    call: Annotated[Id, Meta(description="The `uuid` of the call, of several the newest one.")]
    created_at: Annotated[Time, Meta(description="The time of its message.")]
    message_id: Annotated[Id | None, Meta(description="null for arguments, which several messages may share.")]
    arguments: Annotated[
        str | None, Meta(description="The first 200 characters of the arguments as JSON; null for runs.")
    ]
    call_count: Count
    total_duration: float | None
    """Milliseconds; null if unknown."""
    longest_duration: Milliseconds | None
    """Milliseconds; null if unknown."""


class ToolReflections(Resource, frozen=True):
    """How often an agent commented on the result of a tool, and what became of the next call of the tool in the run."""

    call_count: Annotated[Count, Meta(description="The calls that were read.")]
    reflection_count: Annotated[Count, Meta(description="Those with a reflection.")]
    failure_count: Annotated[Count, Meta(description="Of these, the ones that had failed.")]
    retried_count: Annotated[
        Count, Meta(description="Of those with a reflection, the ones after which the run called the tool again.")
    ]
    retry_success_count: Annotated[Count, Meta(description="Of these, the ones whose next call succeeded.")]


class ToolExamples(Resource, frozen=True):
    """The slowest calls of a tool, and its repeated calls, at most 10 of each; and figures about reflections."""

    slowest: Annotated[list[ToolExample], Meta(description="The slowest calls of the range.")]
    arguments: Annotated[list[ToolExample], Meta(description="The arguments with which it took most time.")]
    runs: Annotated[list[ToolExample], Meta(description="The messages that waited longest for it.")]
    repeated: Annotated[
        list[ToolExample], Meta(description="The messages that called it most often with the same arguments.")
    ]
    reflections: ToolReflections
    calls_read: Annotated[
        Count,
        Meta(
            description="`arguments`, `runs`, `repeated` and `reflections` are those of the newest calls, at most so many."
        ),
    ]


class UnusedTools(Resource, frozen=True):
    """Tools that models were offered and did not call."""

    results: Annotated[list[str], Meta(description="The names, in order.")]
    inputs_read: Annotated[
        Count, Meta(description="The tools are those of the newest requests whose input is known, at most so many.")
    ]


class ToolPage(Page[Tool], frozen=True):
    """A page of tools, with the cursors of the next and previous pages; null at either end."""

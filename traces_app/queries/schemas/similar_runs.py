"""Response schemas: runs that are like one."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from messages_app.http.schemas import Count, Id, Resource, Time

SimilarBy = Literal["everything", "errors"]
Likeness = Annotated[float, Meta(ge=0, le=1)]


class SimilarRun(Resource, frozen=True):
    """A run that is like another one."""

    id: Annotated[Id, Meta(description="The id of the message.")]
    session_id: Id
    created_at: Time
    score: Annotated[Likeness, Meta(description="1: the same question, tools and errors; 0: nothing in common.")]
    question_score: Annotated[Likeness, Meta(description="The same for the questions alone.")]
    tools_score: Likeness
    errors_score: Likeness
    question: Annotated[str, Meta(description="The user's message before it; its first 300 characters.")]
    tools: Annotated[list[str], Meta(description="The names of the tools that it called, each once, in order.")]
    call_count: Count
    failure_count: Count


class SimilarRuns(Resource, frozen=True):
    """Runs that are like one."""

    results: Annotated[list[SimilarRun], Meta(description="The most similar ones first.")]
    compared_count: Annotated[Count, Meta(description="The runs that were compared.")]
    searched_to: Annotated[
        Time | None,
        Meta(description="The time of the oldest run that was compared, if the range has more; otherwise null."),
    ]

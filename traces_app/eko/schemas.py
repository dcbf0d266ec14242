"""Response schemas: callback messages of Eko."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from traces_app.queries.schemas.outcomes import SentEvents


class SentCallbacks(SentEvents, frozen=True):
    """The outcomes of callback messages, event by event."""

    ignored: Annotated[
        int,
        Meta(
            description="Number of messages that are not stored as events, because a later message repeats them.",
            ge=0,
        ),
    ]

"""Response schemas: the settings of recorders."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from messages_app.http.schemas import Resource


class RecorderSampling(Resource, frozen=True):
    """Sampling by a recorder. It reports the number of omitted calls in the trace."""

    rate: Annotated[
        float | None, Meta(description="The share of sessions to record; null: the recorder's own setting.")
    ]
    tools: Annotated[dict[str, float], Meta(description="The share of calls to record, by tool name.")]
    keep_errors: Annotated[bool, Meta(description="Record failures, whatever the rates.")]
    keep_slower_than_ms: Annotated[
        int | None,
        Meta(description="Record everything slower than this, whatever the rates; null: the recorder's own setting."),
    ]


class RecorderSettings(Resource, frozen=True):
    """Settings of a project for its recorders."""

    sampling: Annotated[RecorderSampling | None, Meta(description="null: the project has no settings.")]

"""The ForeignApi of Langfuse: the URLs that its SDKs send to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.urls import path

from tracesite.http.foreign_api import ForeignApi

from .media import MediaReportView, MediaUploadView, MediaView
from .views import HealthView, IngestionView, ProjectsView, ScoresView


def error_body(
    path: str, headers: Mapping[str, str], status: int, code: str, message: str, field: str | None
) -> dict[str, Any]:
    """Return an error as the SDK shows it."""
    return {"message": f"{field}: {message}" if field else message, "error": code}


LANGFUSE = ForeignApi(
    base_paths=tuple(f"/api/public/{name}" for name in ("ingestion", "scores", "projects", "health")),
    routes=(
        path("api/public/ingestion", IngestionView.as_view()),
        path("api/public/scores", ScoresView.as_view()),
        path("api/public/media", MediaView.as_view()),
        path("api/public/media/upload/<str:ticket>", MediaUploadView.as_view(), name="langfuse-media-upload"),
        path("api/public/media/<str:media_id>", MediaReportView.as_view()),
        path("api/public/projects", ProjectsView.as_view()),
        path("api/public/health", HealthView.as_view()),
    ),
    error_body=error_body,
)

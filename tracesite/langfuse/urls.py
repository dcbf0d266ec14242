"""The URLs of Langfuse that its SDKs send to."""

from __future__ import annotations

from django.urls import path

from .media import MediaReportView, MediaUploadView, MediaView
from .views import HealthView, IngestionView, ProjectsView, ScoresView

urlpatterns = [
    path("api/public/ingestion", IngestionView.as_view()),
    path("api/public/scores", ScoresView.as_view()),
    path("api/public/media", MediaView.as_view()),
    path("api/public/media/upload/<str:ticket>", MediaUploadView.as_view(), name="langfuse-media-upload"),
    path("api/public/media/<str:media_id>", MediaReportView.as_view()),
    path("api/public/projects", ProjectsView.as_view()),
    path("api/public/health", HealthView.as_view()),
]

"""The URLs of Langfuse that its SDKs send to."""

from __future__ import annotations

from django.urls import path

from .views import HealthView, IngestionView, ProjectsView, ScoresView

urlpatterns = [
    path("api/public/ingestion", IngestionView.as_view()),
    path("api/public/scores", ScoresView.as_view()),
    path("api/public/projects", ProjectsView.as_view()),
    path("api/public/health", HealthView.as_view()),
]

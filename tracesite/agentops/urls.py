"""The URLs of AgentOps."""

from __future__ import annotations

from django.urls import path

from .views import TokenView, UploadView

urlpatterns = [
    path("v3/auth/token", TokenView.as_view()),
    path("v4/logs/upload/", UploadView.as_view()),
    path("v4/objects/upload/", UploadView.as_view()),
]

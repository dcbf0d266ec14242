"""The URLs of LangSmith's protocol that its SDKs write to, below each prefix."""

from __future__ import annotations

from django.urls import path

from .plugin import PREFIXES
from .views import BatchView, FeedbackChangeView, FeedbackView, InfoView, MultipartView, RunsView, RunView

urlpatterns = [
    path(prefix + route, view.as_view())
    for prefix in PREFIXES
    for route, view in (
        ("info", InfoView),
        ("runs", RunsView),
        ("runs/batch", BatchView),
        ("runs/multipart", MultipartView),
        ("runs/<str:run_id>", RunView),
        ("feedback", FeedbackView),
        ("feedback/<str:feedback_id>", FeedbackChangeView),
    )
]

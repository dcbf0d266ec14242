"""The URLs of OTLP/HTTP: the same three below each base path."""

from __future__ import annotations

from django.urls import path

from .plugin import BASES
from .views import LogsView, MetricsView, TracesView

urlpatterns = [
    path(f"{base.strip('/')}/{signal}{end}", view.as_view())
    for base in BASES
    for end in ("", "/")
    for signal, view in (("traces", TracesView), ("logs", LogsView), ("metrics", MetricsView))
]

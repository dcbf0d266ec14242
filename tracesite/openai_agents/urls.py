"""The URL of the OpenAI Agents SDK's exporter."""

from __future__ import annotations

from django.urls import path

from .views import TraceIngestView

urlpatterns = [path("v1/traces/ingest", TraceIngestView.as_view())]

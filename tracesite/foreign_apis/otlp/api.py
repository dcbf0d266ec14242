"""The ForeignApi of OTLP/HTTP: the same three URLs below each base path."""

from __future__ import annotations

from django.urls import path

from tracesite.http.foreign_api import ForeignApi

from .errors import error_body
from .views import LogsView, MetricsView, TracesView

# Ours, and those of the products whose SDKs send OTLP: Langfuse, LangSmith, Opik.
BASES = ("/v1/", "/api/public/otel/v1/", "/otel/v1/", "/api/v1/private/otel/v1/")

OTLP = ForeignApi(
    base_paths=BASES,
    routes=tuple(
        path(f"{base.strip('/')}/{signal}{end}", view.as_view())
        for base in BASES
        for end in ("", "/")
        for signal, view in (("traces", TracesView), ("logs", LogsView), ("metrics", MetricsView))
    ),
    error_body=error_body,
)

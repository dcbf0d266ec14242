"""The description of the API: its index, the OpenAPI document, and a page that shows it."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from access_app.mounting import base_path
from access_app.rest import ApiView, extend_schema

SPECTACULAR = {
    "TITLE": "Tracesite",
    "DESCRIPTION": "The flight recorder for AI agents: sessions, messages, steps, tool calls and results.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_PATCH": False,
    "POSTPROCESSING_HOOKS": ["tracesite.http.openapi.describe_paths", "tracesite.http.openapi.add_errors"],
}
"""Settings of drf-spectacular for this document. A project may have others for its own."""
_ROUTES = [
    "sessions",
    "messages",
    "tool-calls",
    "chains",
    "errors",
    "tools",
    "usage",
    "scores",
    "search",
    "compare",
    "audit",
    "ingest",
    "events",
    "import",
    "schema",
    "docs",
]


class OpenToAll(ApiView):
    """A view without anybody's data."""

    authentication_classes = ()
    permission_classes = ()


class IndexView(OpenToAll):
    """`/api/v1/`: where to go from here."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response({name: reverse(f"tracesite:{name}", request=request) for name in _ROUTES})


class SchemaView(OpenToAll):
    """`/api/v1/schema/`: OpenAPI 3.1, as JSON."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(schema())


def docs(request: HttpRequest) -> HttpResponse:
    """`/api/v1/docs/`: Swagger UI, from our own origin and without inline scripts, as our CSP wants it."""
    return render(request, "tracesite/docs.html")


@cache
def schema() -> dict[str, Any]:
    """The OpenAPI document: made once, in 200 ms, because it needs no credentials to ask for it."""
    with translation.override("en"), patched_settings(SPECTACULAR):
        generator = SchemaGenerator(urlconf="tracesite.urls")  # type: ignore[no-untyped-call]  # the package is typed in part
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if base_path() != "/":
        document["servers"] = [{"url": base_path().rstrip("/")}]
    return document

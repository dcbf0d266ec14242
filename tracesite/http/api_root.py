"""The description of the API: its index, the OpenAPI document, and a page that shows it."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse
from rest_framework.views import APIView

_LISTS = ("sessions", "messages", "tool-calls", "chains", "tools", "ingest", "schema", "docs")


class OpenToAll(APIView):
    """A view without anybody's data."""

    authentication_classes = ()
    permission_classes = ()


class IndexView(OpenToAll):
    """`/api/v1/`: where to go from here."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response({name: reverse(name, request=request) for name in _LISTS})


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
    with translation.override("en"):
        generator = SchemaGenerator()  # type: ignore[no-untyped-call]  # the package is typed in part
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return document

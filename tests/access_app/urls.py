"""Views that say what authentication and permissions made of a request, for the tests of these."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.urls import include, path
from rest_framework.parsers import JSONParser
from rest_framework.request import Request
from rest_framework.response import Response

from access_app.permissions import project_for_write, projects_visible_to, require_scope
from access_app.rest import ApiView


class WhoView(ApiView):
    parser_classes = [JSONParser]

    def get(self, request: Request) -> Response:
        if "deleted" in request.query_params:
            require_scope(request, "delete")
        return Response({"user": str(request.user), "projects": [each.slug for each in projects_visible_to(request)]})

    def post(self, request: Request) -> Response:
        return Response({"project": project_for_write(request, request.data.get("project")).slug})

    def put(self, request: Request) -> Response:
        return Response({})

    patch = delete = put


class RestoreView(ApiView):
    required_scope = "delete"

    def post(self, request: Request, **kwargs: Any) -> Response:
        return Response({})


urlpatterns = [
    path("api/who/", WhoView.as_view()),
    path("api/restore/", RestoreView.as_view()),
    path("admin/", admin.site.urls),
    path("", include("tracesite.urls")),
]

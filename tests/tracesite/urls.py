"""Views that fail in different ways, for the tests of errors and of the log."""

from __future__ import annotations

import logging
from typing import Any

from django.contrib import admin
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.db import OperationalError, connection
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import include, path
from rest_framework import exceptions, serializers
from rest_framework.parsers import JSONParser
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response

from access_app import errors
from access_app.permissions import HasScope
from access_app.rest import ApiView

handler400 = "tracesite.http.errors.bad_request"
handler403 = "tracesite.http.errors.permission_denied"
handler404 = "tracesite.http.errors.page_not_found"
handler500 = "tracesite.http.errors.server_error"

logger = logging.getLogger(__name__)


class Item(serializers.Serializer[Any]):
    size = serializers.IntegerField()


class Order(serializers.Serializer[Any]):
    items = Item(many=True)
    tags = serializers.ListField(child=serializers.CharField(max_length=3), required=False)

    def validate(self, order: dict[str, Any]) -> dict[str, Any]:
        if not order["items"]:
            raise serializers.ValidationError("An order has items.")
        return order


def slow_query() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 1")
        cursor.execute("SELECT pg_sleep(5)")


RAISED: dict[str, BaseException] = {
    "ours": errors.Conflict("The version is stale.", field="version", code="stale_version"),
    "away": OperationalError("connection refused\nIs the server running?"),
    "unavailable": errors.Unavailable(),
    "http404": Http404("secret detail"),
    "denied": PermissionDenied("secret detail"),
    "suspicious": SuspiciousOperation("secret detail"),
    "bad": BadRequest("secret detail"),
    "drf_denied": exceptions.PermissionDenied(),
    "drf_unauthenticated": exceptions.NotAuthenticated(),
    "throttled": exceptions.Throttled(wait=7.2),
    "validation": exceptions.ValidationError("All of it is wrong."),
    "unforeseen": ZeroDivisionError("secret detail"),
}


class RaisingView(ApiView):
    permission_classes = [AllowAny]

    def get(self, request: Request, what: str) -> Response:
        if what == "database":
            slow_query()
        raise RAISED[what]


class OrderView(ApiView):
    parser_classes = [JSONParser]
    permission_classes = [AllowAny]

    def post(self, request: Request) -> Response:
        order = Order(data=request.data)
        order.is_valid(raise_exception=True)
        return Response({})


class BodyView(ApiView):
    permission_classes = [AllowAny]

    def post(self, request: Request) -> Response:
        return Response({"size": len(request._request.body)})


class MessageView(ApiView):
    permission_classes = [HasScope]

    def get(self, request: Request, **kwargs: str) -> Response:
        logger.info("a layer below the view")
        return Response({"content": "the secret of the message"})


def plain(request: HttpRequest, what: str) -> HttpResponse:
    if what == "ok":
        return HttpResponse("ok")
    raise RAISED[what]


urlpatterns = [
    path("api/raise/<what>/", RaisingView.as_view()),
    path("api/orders/", OrderView.as_view()),
    path("api/body/", BodyView.as_view()),
    path("api/sessions/<session_id>/messages/<message_id>/", MessageView.as_view(), name="message-detail"),
    path("api/plain/<what>/", plain),
    path("plain/<what>/", plain),
    # Error pages use the admin's base template.
    path("admin/", admin.site.urls),
    path("", include("tracesite.urls")),
]

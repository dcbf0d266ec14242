"""The ForeignApi of WeKnora: its URLs below /weknora/api/v1/, without a trailing slash, as its clients call them."""

from __future__ import annotations

from django.urls import include, path

from access_app.models import Scope
from tracesite.http.foreign_api import ForeignApi

from .errors import BASE, error_body
from .views import MessageViewSet, SessionViewSet

_routes = [
    path("messages/<str:session_id>/load", MessageViewSet.as_view({"get": "load"}), name="load"),
    path("messages/<str:session_id>/<str:message_id>", MessageViewSet.as_view({"delete": "destroy"}), name="message"),
    path("sessions", SessionViewSet.as_view({"get": "list", "post": "create"}), name="sessions"),
    path("sessions/batch", SessionViewSet.as_view({"delete": "destroy_many"}), name="batch"),
    path(
        "sessions/continue-stream/<str:session_id>",
        SessionViewSet.as_view({"get": "continue_stream"}),
        name="continue-stream",
    ),
    path(
        "sessions/<str:session_id>",
        SessionViewSet.as_view({"get": "retrieve", "put": "update", "delete": "destroy"}),
        name="session",
    ),
    path("sessions/<str:session_id>/messages", SessionViewSet.as_view({"delete": "clear"}), name="clear"),
    path(
        "sessions/<str:session_id>/pin",
        # Unpinning deletes no data, so DELETE needs the scope `write` only.
        SessionViewSet.as_view({"post": "pin", "delete": "unpin"}, required_scope=Scope.WRITE),
        name="pin",
    ),
    path(
        "sessions/<str:session_id>/generate_title",
        SessionViewSet.as_view({"post": "generate_title"}),
        name="generate-title",
    ),
    path("sessions/<str:session_id>/stop", SessionViewSet.as_view({"post": "stop"}), name="stop"),
]

WEKNORA = ForeignApi(
    base_paths=(BASE,),
    routes=(path("weknora/api/v1/", include((_routes, "weknora"))),),
    error_body=error_body,
    live_route="tracesite.foreign_apis.weknora.live.live_route",
)

"""The URLs of the REST API, below /api/v1/."""

from __future__ import annotations

from typing import Any

from django.urls import path

from access_app.models import Scope

from .eko.views import EkoCallbackViewSet
from .views.audit import AuditViewSet
from .views.calls import CallViewSet
from .views.chains import ChainViewSet
from .views.comparison import ComparisonViewSet
from .views.contexts import ContextViewSet
from .views.errors import ErrorViewSet
from .views.events import EventViewSet, SessionEventViewSet
from .views.importing import ImportViewSet
from .views.ingestion import IngestViewSet
from .views.messages import MessageViewSet
from .views.reading import ANSWERS, ReadingViewSet
from .views.recorder import RecorderViewSet
from .views.scores import ScoreViewSet
from .views.search import SearchViewSet
from .views.sessions import SessionViewSet
from .views.similar_runs import SimilarRunViewSet
from .views.snapshots import SnapshotViewSet
from .views.tools import ToolViewSet
from .views.usage import UsageViewSet
from .views.writable_messages import WritableMessageViewSet

_ONE_MESSAGE: dict[str, Any] = {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}

urlpatterns = [
    path("ingest/", IngestViewSet.as_view({"post": "create"}), name="ingest"),
    path("events/", EventViewSet.as_view({"post": "create"}), name="events"),
    path("import/", ImportViewSet.as_view({"post": "create"}), name="import"),
    path("eko/callbacks/", EkoCallbackViewSet.as_view({"post": "create"}), name="eko-callbacks"),
    path("sessions/", SessionViewSet.as_view({"get": "list", "post": "create"}), name="sessions"),
    path(
        "sessions/<str:session_id>/",
        SessionViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="session",
    ),
    path(
        "sessions/<str:session_id>/restore/",
        SessionViewSet.as_view({"post": "restore"}, required_scope=Scope.DELETE),
        name="session-restore",
    ),
    path("sessions/<str:session_id>/export/", SessionViewSet.as_view({"get": "export"}), name="session-export"),
    path(
        "sessions/<str:session_id>/messages/",
        WritableMessageViewSet.as_view({"get": "list", "post": "create"}),
        name="session-messages",
    ),
    path(
        "sessions/<str:session_id>/messages/<str:message_id>/",
        WritableMessageViewSet.as_view(_ONE_MESSAGE),
        name="session-message",
    ),
    path(
        "sessions/<str:session_id>/messages/<str:message_id>/restore/",
        WritableMessageViewSet.as_view({"post": "restore"}, required_scope=Scope.DELETE),
        name="session-message-restore",
    ),
    path("sessions/<str:session_id>/events/", SessionEventViewSet.as_view({"get": "list"}), name="session-events"),
    path("sessions/<str:session_id>/contexts/", ContextViewSet.as_view({"get": "list"}), name="session-contexts"),
    path(
        "sessions/<str:session_id>/contexts/<str:ref>/",
        ContextViewSet.as_view({"get": "retrieve"}),
        name="session-context",
    ),
    path(
        "sessions/<str:session_id>/contexts/<str:ref>/conversation/",
        ContextViewSet.as_view({"get": "conversation"}),
        name="session-context-conversation",
    ),
    path(
        "sessions/<str:session_id>/contexts/<str:ref>/variables/",
        ContextViewSet.as_view({"get": "variables"}),
        name="session-context-variables",
    ),
    path(
        "sessions/<str:session_id>/snapshots/",
        SnapshotViewSet.as_view({"get": "list", "delete": "destroy"}),
        name="session-snapshots",
    ),
    path(
        "sessions/<str:session_id>/snapshots/parts/",
        SnapshotViewSet.as_view({"get": "parts"}),
        name="session-snapshot-parts",
    ),
    path("sessions/<str:session_id>/replay/", SnapshotViewSet.as_view({"get": "replay"}), name="session-replay"),
    path("sessions/<str:session_id>/forks/", SnapshotViewSet.as_view({"get": "forks"}), name="session-forks"),
    path("snapshots/", SnapshotViewSet.as_view({"post": "create"}), name="snapshots"),
    path("snapshots/<str:snapshot_id>/", SnapshotViewSet.as_view({"get": "retrieve"}), name="snapshot"),
    path("messages/", MessageViewSet.as_view({"get": "list"}), name="messages"),
    path("messages/<str:message_id>/", WritableMessageViewSet.as_view(_ONE_MESSAGE), name="message"),
    path("messages/<str:message_id>/similar/", SimilarRunViewSet.as_view({"get": "similar"}), name="similar-runs"),
    path(
        "messages/<str:message_id>/restore/",
        WritableMessageViewSet.as_view({"post": "restore"}, required_scope=Scope.DELETE),
        name="message-restore",
    ),
    path("tool-calls/", CallViewSet.as_view({"get": "list"}), name="tool-calls"),
    path("tool-calls/<str:call_id>/", CallViewSet.as_view({"get": "retrieve"}), name="tool-call"),
    path("tool-calls/<str:call_id>/similar/", CallViewSet.as_view({"get": "similar"}), name="similar-errors"),
    path("chains/", ChainViewSet.as_view({"get": "list"}), name="chains"),
    path("chains/<str:chain_id>/", ChainViewSet.as_view({"get": "retrieve"}), name="chain"),
    path("errors/", ErrorViewSet.as_view({"get": "list"}), name="errors"),
    path("tools/", ToolViewSet.as_view({"get": "list"}), name="tools"),
    path("tools/stats/", ToolViewSet.as_view({"get": "statistics"}), name="tool-statistics"),
    path("tools/examples/", ToolViewSet.as_view({"get": "examples"}), name="tool-examples"),
    path("tools/unused/", ToolViewSet.as_view({"get": "unused"}), name="unused-tools"),
    path("usage/", UsageViewSet.as_view({"get": "retrieve"}), name="usage"),
    path("search/", SearchViewSet.as_view({"get": "list"}), name="search"),
    path("compare/", ComparisonViewSet.as_view({"get": "retrieve"}), name="compare"),
    path("scores/", ScoreViewSet.as_view({"get": "list", "post": "create"}), name="scores"),
    path(
        "scores/<str:score_id>/",
        ScoreViewSet.as_view({"get": "retrieve", "patch": "partial_update", "delete": "destroy"}),
        name="score",
    ),
    path(
        "recorder/",
        RecorderViewSet.as_view({"get": "settings_of"}, required_scope=Scope.WRITE),
        name="recorder",
    ),
    *(
        path(
            f"read/{name.replace('_', '-')}/",
            ReadingViewSet.as_view({"get": name}),
            name=f"read-{name.replace('_', '-')}",
        )
        for name in ANSWERS
    ),
    path("audit/", AuditViewSet.as_view({"get": "list"}), name="audit"),
    path("audit/<int:entry_id>/", AuditViewSet.as_view({"get": "retrieve"}), name="audit-entry"),
]

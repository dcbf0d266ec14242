"""The URLs of Tracesite below the path where a project includes them: `path("traces/", include("tracesite.urls"))`."""

from __future__ import annotations

from django.urls import include, path

from access_app.mounting import NAMESPACE

from .http.api_root import IndexView, SchemaView, docs
from .http.foreign_api import foreign_apis
from .http.health import HealthView, ReadyView
from .http.metrics_view import metrics
from .http.security_txt import security_txt

app_name = NAMESPACE
urlpatterns = [
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", IndexView.as_view(), name="api"),
    path("api/v1/", include("traces_app.urls")),
    path("api/v1/schema/", SchemaView.as_view(), name="schema"),
    path("api/v1/docs/", docs, name="docs"),
    *(route for api in foreign_apis() for route in api.routes),
    path("healthz", HealthView.as_view(), name="healthz"),
    path("readyz", ReadyView.as_view(), name="readyz"),
    path("metrics", metrics, name="metrics"),
    path(".well-known/security.txt", security_txt, name="security_txt"),
]

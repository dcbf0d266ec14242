"""The table of contents: every URL of Tracesite."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from access_app.conf import conf

from .http.api_root import IndexView, SchemaView, docs
from .http.foreign_apis import foreign_apis
from .http.health import HealthView, ReadyView
from .http.metrics_view import metrics
from .http.security_txt import security_txt

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
    path("api/v1/", IndexView.as_view(), name="api"),
    path("api/v1/", include("traces_app.urls")),
    path("api/v1/schema/", SchemaView.as_view(), name="schema"),
    path("api/v1/docs/", docs, name="docs"),
    *(path("", include(api.urls)) for api in foreign_apis()),
    path("healthz", HealthView.as_view(), name="healthz"),
    path("readyz", ReadyView.as_view(), name="readyz"),
    path("metrics", metrics, name="metrics"),
    path(".well-known/security.txt", security_txt, name="security_txt"),
]

if conf.OIDC_ISSUER:
    urlpatterns.append(path("oidc/", include("access_app.openid")))

# Errors raised outside of views: JSON below /api/ and the foreign APIs, a page elsewhere.
handler400 = "tracesite.http.errors.bad_request"
handler403 = "tracesite.http.errors.permission_denied"
handler404 = "tracesite.http.errors.page_not_found"
handler500 = "tracesite.http.errors.server_error"

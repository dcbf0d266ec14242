"""The table of contents: every URL of Tracesite."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("i18n/", include("django.conf.urls.i18n")),
]

# Outside of views errors have the shape of the API, too: JSON under /api/, a page elsewhere.
handler400 = "tracesite.api_errors.bad_request"
handler403 = "tracesite.api_errors.permission_denied"
handler404 = "tracesite.api_errors.page_not_found"
handler500 = "tracesite.api_errors.server_error"

"""The table of contents of the site: every URL of Tracesite, the admin, and how people log in."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from access_app.conf import conf

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index"), name="home"),
    path("admin/", admin.site.urls),
    path("", include("tracesite.urls")),
]

if conf.OIDC_ISSUER:
    urlpatterns.append(path("oidc/", include("access_app.openid")))

# Errors raised outside of views: JSON below /api/ and the foreign APIs, a page elsewhere.
handler400 = "tracesite.http.errors.bad_request"
handler403 = "tracesite.http.errors.permission_denied"
handler404 = "tracesite.http.errors.page_not_found"
handler500 = "tracesite.http.errors.server_error"

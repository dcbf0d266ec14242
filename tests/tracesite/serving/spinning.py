"""URLs of a site with a page that never ends; see test_cpu_limit.py."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import include, path


def spin(request: HttpRequest, key: str) -> HttpResponse:
    while True:
        pass


urlpatterns = [path("spin/<str:key>/", spin), path("", include("tracesite.site_urls"))]

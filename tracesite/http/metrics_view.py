"""The view of `/metrics`, for Prometheus, behind the token of the settings."""

from __future__ import annotations

from secrets import compare_digest

from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4

from access_app.conf import conf
from tracesite.metrics.database import database_metrics
from tracesite.metrics.registry import render

from .errors import error_response


@csrf_exempt  # nothing changes here, and a POST is answered 405 instead of a missing cookie
def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics to `Authorization: Bearer TRACESITE_METRICS_TOKEN`, because they are confidential.

    Without that setting the view is off for every address: behind a proxy all requests come from the same machine.
    """
    if not conf.METRICS_TOKEN:
        message = _("Metrics are off. Set TRACESITE_METRICS_TOKEN to turn them on.")
        return error_response(request, 404, "metrics_off", message)
    if request.method not in ("GET", "HEAD"):
        message = _("Method %(method)s is not allowed. Allowed: %(allowed)s.") % {
            "method": request.method,
            "allowed": "GET, HEAD",
        }
        return error_response(request, 405, "method_not_allowed", message, headers={"Allow": "GET, HEAD"})
    scheme, _space, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not compare_digest(given.encode(), conf.METRICS_TOKEN.encode()):
        message = _("Invalid token. Send “Authorization: Bearer …” with the value of TRACESITE_METRICS_TOKEN.")
        headers = {"WWW-Authenticate": "Bearer"}
        return error_response(request, 401, "not_authenticated", message, field="Authorization", headers=headers)
    headers = {"Cache-Control": "no-store"}
    return HttpResponse(render(database_metrics()), content_type=CONTENT_TYPE_PLAIN_0_0_4, headers=headers)

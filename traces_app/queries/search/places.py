"""The addresses of a hit: in the REST API, and in the admin, which opens at the step or call."""

from __future__ import annotations

from django.urls import reverse

from .found import Hit
from .texts import Kind


def api_path(hit: Hit) -> str:
    """Return the path of the call, or of the message that has the rest."""
    if hit.kind == Kind.CALL:
        return reverse("tracesite:tool-call", args=[hit.row_id])
    return reverse("tracesite:message", args=[hit.message_id])


def page_path(hit: Hit) -> str:
    """Return the path of the page of the message, with the place in it."""
    page = reverse("admin:messages_app_message_change", args=[hit.message_id])
    if hit.kind in (Kind.STEP, Kind.CALL):
        return f"{page}?call={hit.row_id}#{hit.kind.name.lower()}-{hit.row_id}"
    return f"{page}#references" if hit.kind == Kind.REFERENCE else page

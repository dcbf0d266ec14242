"""The addresses of runs in the admin."""

from __future__ import annotations

from uuid import UUID

from django.urls import reverse


def url_in_run(message_id: UUID, node_id: UUID | None = None, tab: str = "") -> str:
    """Return the URL of the page of a run, or of a step or call: the page of its run, with it selected."""
    query = {name: str(value) for name, value in (("call", node_id), ("tab", tab)) if value}
    return reverse("admin:messages_app_message_change", args=[message_id], query=query or None)

"""How DRF's own answers become JSON, and what clients accept. Those of our views: messages_app.http.responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.functional import Promise
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request


class JsonRenderer(BaseRenderer):
    """Takes what DRF and drf-spectacular answer with: dicts, and texts that are translated when they are read."""

    media_type = "application/json"
    format = "json"
    charset = None

    def render(
        self,
        data: Any,
        accepted_media_type: str | None = None,
        renderer_context: Mapping[str, Any] | None = None,
    ) -> bytes:
        return b"" if data is None else msgspec.json.encode(data, enc_hook=_plain)


class Negotiation(DefaultContentNegotiation):
    """There is JSON and nothing else: most clients ask for that, or for anything."""

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        if request.META.get("HTTP_ACCEPT", "*/*") in ("*/*", "application/json"):
            return renderers[0], renderers[0].media_type
        return super().select_renderer(request, renderers, format_suffix)


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):  # a text that is translated when it is read
        return str(value)
    raise TypeError(f"{type(value).__name__} is no JSON")

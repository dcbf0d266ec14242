"""The JSON renderer for responses that DRF makes itself; those of our views are made by messages_app.http.responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from django.utils.functional import Promise
from rest_framework.renderers import BaseRenderer


class JsonRenderer(BaseRenderer):
    """Render the dicts of DRF and drf-spectacular, which may hold lazily translated texts."""

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


def _plain(value: Any) -> Any:
    if isinstance(value, Promise):
        return str(value)
    raise TypeError(f"{type(value).__name__} is no JSON")

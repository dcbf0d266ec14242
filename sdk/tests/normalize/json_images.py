"""Images as tools return them in JSON."""

from __future__ import annotations

import base64
from typing import Any

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n".ljust(1200, b"\x01")).decode()
OTHER = base64.b64encode(b"\x01" * 120).decode()

IMAGES: list[Any] = [
    {"screenshot": PNG},
    {"base64Data": PNG},
    {"imageData": PNG},
    {"type": "my-Image", "data": PNG},
    {"mimeType": "IMAGE/PNG", "data": OTHER},
    {"format": "png", "bytes": OTHER},
    "data:image/png;base64,AAAA",
    "see https://example.com/a.PNG?x=1.",
    "https://i.imgur.com/abc",
    "https://github.com/user-attachments/assets/1",
    f"here: {PNG}",
]

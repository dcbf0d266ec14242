"""The output of a tool as text and attachments."""

from __future__ import annotations

from typing import Any

import pytest

from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, ("", None)),
        ("21", ("21", None)),
        (["21", {"type": "text", "text": "degrees"}], ("21 degrees", None)),
        ([{"type": "text", "text": "21"}, IMAGE], ("21", [IMAGE])),
    ],
)
def test_content_is_split_into_text_and_attachments(content: Any, expected: tuple[str, list[Any] | None]) -> None:
    assert text_and_attachments(content) == expected

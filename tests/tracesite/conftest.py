"""The server's log lines, formatted as in production."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

LogLines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def log_lines() -> Iterator[LogLines]:
    """Return a function giving the lines so far, written by the handler, filter and formatter of the settings."""
    (handler,) = (each for each in logging.getLogger().handlers if each.name == "stderr")
    assert isinstance(handler, logging.StreamHandler)
    written = io.StringIO()
    before = handler.setStream(written)
    yield lambda: [json.loads(line) for line in written.getvalue().splitlines()]
    handler.setStream(before or handler.stream)

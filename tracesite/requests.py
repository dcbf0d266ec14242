"""One id per request, from the header to every log line and back, and the one line that each request logs."""

from __future__ import annotations

import logging
import re
from contextvars import ContextVar

logger = logging.getLogger(__name__)

# What a caller's X-Request-ID may look like; anything else is replaced, so that it can be logged and echoed as it is.
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)

_current: ContextVar[str | None] = ContextVar("request_id", default=None)


def current_request_id() -> str | None:
    """The id of the request that this thread or task is serving; None outside of requests."""
    return _current.get()


class RequestIdFilter(logging.Filter):
    """Gives every log record a `request_id`, None outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request_id()
        return True

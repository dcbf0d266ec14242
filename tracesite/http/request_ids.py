"""The id of the current request in every log record.

It imports nothing of the project, because Django sets up the log before any app: an error in a declaration of an app would
otherwise be reported as an error of the log.
"""

from __future__ import annotations

import logging
from contextvars import ContextVar

current: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Set by the middleware of request_log.py."""


def current_request_id() -> str | None:
    """Return the id of the request that this thread or task serves; None outside of requests."""
    return current.get()


class RequestIdFilter(logging.Filter):
    """Add a `request_id` to every log record, None outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not hasattr(record, "request_id"):
            record.request_id = current_request_id()
        return True

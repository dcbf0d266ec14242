"""Settings of a server that records no requests, to measure what the audit log costs beside one that does."""

from tracesite.settings import *  # noqa: F403
from tracesite.settings import MIDDLEWARE

MIDDLEWARE.remove("access_app.audit.requests.AuditMiddleware")

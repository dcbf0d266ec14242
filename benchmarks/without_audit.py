"""Settings of a server that records no requests, to measure what the audit log costs beside one that does."""

from tracesite.settings import *  # noqa: F403
from tracesite.settings import MIDDLEWARE as RECORDING

# A list of its own: whoever imports this module keeps the settings that are in use.
MIDDLEWARE = [name for name in RECORDING if name != "access_app.audit.requests.AuditMiddleware"]
# That nothing is recorded is what it is for.
SILENCED_SYSTEM_CHECKS = ["tracesite.E018"]

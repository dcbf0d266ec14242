"""The settings of Tracesite: each with its default, read when it is used. docs/django_project.md lists them.

`conf.TRASH_DAYS` is `settings.TRACESITE_TRASH_DAYS`, or the default where the settings do not have it. The settings of the site
itself (tracesite.settings) read all of them from the environment.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.conf import settings

PREFIX = "TRACESITE_"

T = TypeVar("T")


class Setting(Generic[T]):
    """An attribute whose value is that of the settings at the moment."""

    def __init__(self, default: T) -> None:
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = PREFIX + name

    def __get__(self, conf: object, owner: type) -> T:
        value: T = getattr(settings, self.name, self.default)
        return value


class Conf:
    """All settings. Their meaning is in docs/settings.md, where the variables of the environment have the same names."""

    DATA_DIR = Setting(Path(".tracesite"))
    MAX_BODY_BYTES = Setting(64 * 1024 * 1024)
    CLIENT_SECONDS = Setting(30)
    REQUEST_CPU_SECONDS = Setting(60)
    HTTPS = Setting(False)
    # How people log in.
    REMOTE_USER_HEADER = Setting("")
    REMOTE_GROUPS_HEADER = Setting("")
    OIDC_ISSUER = Setting("")
    OIDC_USERNAME_CLAIM = Setting("preferred_username")
    OIDC_GROUPS_CLAIM = Setting("groups")
    TWO_FACTOR = Setting("OPTIONAL")
    AUDIT_LOGINS = Setting(False)
    """Whether logins are entries of the audit log. In a project most are of people who never see a trace."""
    ADMIN_PASSWORD = Setting("")
    # What is served.
    METRICS_TOKEN = Setting("")
    SECURITY_CONTACT: Setting[Sequence[str]] = Setting(())
    LIVE_HEARTBEAT_SECONDS = Setting(15)
    FOREIGN_APIS: Setting[Sequence[str]] = Setting(
        (
            "tracesite.foreign_apis.agentops.AGENTOPS",
            "tracesite.foreign_apis.langfuse.api.LANGFUSE",
            "tracesite.foreign_apis.langsmith.LANGSMITH",
            "tracesite.foreign_apis.openai_agents.OPENAI_AGENTS",
            "tracesite.foreign_apis.otlp.api.OTLP",
            "tracesite.foreign_apis.weknora.api.WEKNORA",
        )
    )
    """APIs of other products that are served beside our own: see tracesite/foreign_apis. OPENAI_AGENTS is before OTLP, which has all below /v1/."""
    # What is kept, and for how long.
    BACKGROUND_JOBS = Setting(True)
    STALE_RUN_HOURS = Setting(24)
    TRASH_DAYS = Setting(0)
    AUDIT_DAYS = Setting(0)
    ARCHIVE_TO = Setting("")
    ARCHIVE_DAYS = Setting(90)
    PARTITIONS = Setting("MONTH")
    """How long new periods are: DAY, WEEK or MONTH. See docs/retention.md."""
    # Secrets.
    SEAL_KEYS: Setting[Sequence[str]] = Setting(())
    MASTER_KEY = Setting("")
    MASTER_KEY_FILE = Setting("")
    MASTER_KEY_COMMAND = Setting("")
    MASKING_FUNCTIONS: Setting[Sequence[str]] = Setting(())
    # Similar runs.
    EMBEDDER = Setting("")
    EMBEDDER_MODEL = Setting("")
    EMBEDDER_KEY = Setting("")
    # The database.
    DATABASE = Setting("default")
    """Its alias in DATABASES."""
    PROJECT_DATABASES: Setting[dict[str, str]] = Setting({})
    """The databases in which new projects get their traces, by their slugs: aliases of DATABASES. See docs/scaling.md."""
    REPLICA_MAX_LAG_SECONDS = Setting(10)
    DIRECT_DATABASE: Setting[dict[str, Any]] = Setting({})
    """The same database past a pooler, as an entry of DATABASES: see docs/scaling.md."""


conf = Conf()

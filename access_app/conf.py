"""The settings of Tracesite, in one table: what each is by default, how it is read from the environment, and what it means.

`conf.TRASH_DAYS` is `settings.TRACESITE_TRASH_DAYS`, or the default where the settings do not have it. The settings of the site
itself (tracesite.settings) read all of them from the environment, under the same names. The tables of docs/settings.md are made of this
one: tests/test_documentation.py compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from django.conf import settings

from access_app import environment as env

PREFIX = "TRACESITE_"

T = TypeVar("T")


class Setting(Generic[T]):
    """An attribute whose value is that of the settings at the moment."""

    def __init__(
        self, default: T, read: Callable[[str, T], Any] | None = None, meaning: str = "", *, shown: str = ""
    ) -> None:
        self.default = default
        self.read = read
        """What reads it from the environment, given its name and default; None if it is none of the environment."""
        self.meaning = meaning
        """What it means, as Markdown."""
        self.shown = shown or _shown(default)
        """The default as Markdown."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name if name.startswith("DATABASE_") else PREFIX + name

    def __get__(self, conf: object, owner: type) -> T:
        value: T = getattr(settings, self.name, self.default)
        return value

    @property
    def row(self) -> str:
        """Its row in docs/settings.md."""
        return f"| `{self.name}` | {self.shown} | {self.meaning} |"


def settings_of(table: type) -> list[Setting[Any]]:
    """Return the settings of a table, in its order."""
    return [setting for setting in vars(table).values() if isinstance(setting, Setting)]


def read_all(table: type) -> dict[str, Any]:
    """Return the values that the environment has for the settings of a table, by name. Raise ImproperlyConfigured for a bad one."""
    return {one.name: one.read(one.name, one.default) for one in settings_of(table) if one.read}


def _shown(default: object) -> str:
    if default in ("", (), {}):
        return "none"
    if isinstance(default, bool):
        return f"`{default}`".lower()
    return f"`{','.join(default) if isinstance(default, tuple) else default}`"


class Conf:
    """The settings of the apps, in a project, too."""

    DATA_DIR = Setting(Path(".tracesite"), None, "directory of the files that a server keeps")
    MAX_BODY_BYTES = Setting(
        64 * 1024 * 1024,
        partial(env.whole_number, at_least=1024),
        "larger requests are answered 413",
        shown="`67108864` (64 MiB)",
    )
    CLIENT_SECONDS = Setting(
        30,
        partial(env.whole_number, at_least=1),
        "how long a slow client may keep `serve` waiting: for the head of a request, and for each MiB of a body or response ([limits](security.md#requests)). One that reads nothing is disconnected after two live heartbeats at the latest",
    )
    REQUEST_CPU_SECONDS = Setting(
        60,
        partial(env.whole_number, at_least=1),
        "CPU time that a request may take between two parts of its response; then the log names the route and new workers replace the old ones: [production.md](production.md#requests-that-never-end). A file of `import_transcripts` fails if it takes more for each MiB begun",
    )
    HTTPS = Setting(False, env.boolean, "`true` behind a proxy that ends TLS: secure cookies, HSTS")
    # How people log in.
    REMOTE_USER_HEADER = Setting(
        "",
        env.header,
        "header in which the proxy names the user that it has logged in: [single sign-on](access.md#single-sign-on)",
    )
    REMOTE_GROUPS_HEADER = Setting(
        "", env.header, "header in which it names the groups of the user, separated by commas"
    )
    OIDC_ISSUER = Setting(
        "", env.address, "OpenID provider: see [access.md](access.md#openid-connect). It needs the next six settings"
    )
    OIDC_USERNAME_CLAIM = Setting("preferred_username", env.text, "claim with the name of the user")
    OIDC_GROUPS_CLAIM = Setting("groups", env.text, "claim with the names of the groups")
    TWO_FACTOR = Setting(
        "OPTIONAL",
        partial(env.choice, allowed=("OPTIONAL", "SUPERUSERS", "STAFF")),
        "which local users must set up [two-factor login](access.md#two-factor-login): `superusers`, `staff` (all)",
        shown="`optional`",
    )
    AUDIT_LOGINS = Setting(
        False,
        None,
        "whether logins are entries of the audit log; in a project most are of people who never see a trace",
    )
    ADMIN_PASSWORD = Setting(
        "", env.text, "password of the login `admin` that `serve` makes", shown="random, printed once"
    )
    # What is served.
    METRICS_TOKEN = Setting(
        "",
        partial(env.token, at_least=16),
        "token that `/metrics` requires; at least 16 characters",
        shown="none: `/metrics` is 404",
    )
    SECURITY_CONTACT: Setting[Sequence[str]] = Setting(
        (),
        env.contacts,
        "where vulnerabilities of this site are reported, for [security.txt](security.md#reports): `mailto:security@example.org` or `https://...`, separated by commas",
        shown="none: `/.well-known/security.txt` is 404",
    )
    LIVE_HEARTBEAT_SECONDS = Setting(
        15,
        partial(env.whole_number, at_least=1),
        "interval of heartbeats on idle live connections; a client that reads nothing for two intervals is disconnected",
    )
    FOREIGN_APIS: Setting[Sequence[str]] = Setting(
        (
            "tracesite.foreign_apis.agentops.AGENTOPS",
            "tracesite.foreign_apis.langfuse.api.LANGFUSE",
            "tracesite.foreign_apis.langsmith.LANGSMITH",
            "tracesite.foreign_apis.openai_agents.OPENAI_AGENTS",
            "tracesite.foreign_apis.otlp.api.OTLP",
            "tracesite.foreign_apis.weknora.api.WEKNORA",
        ),
        None,
        "the APIs of other products that are served, as dotted names",
        shown="all of them",
    )
    """See tracesite/foreign_apis. OPENAI_AGENTS is before OTLP, which has all below /v1/."""
    # What is kept, and for how long.
    BACKGROUND_JOBS = Setting(
        True,
        env.boolean,
        "whether a process beside `serve` makes the [messages of spans](otlp.md#when-messages-can-be-read), adds up statistics of tools, indexes messages for the search, stores vectors of runs and patterns of errors, applies masking that an owner asked for, [seals](audit.md#seals) messages, and chains the [audit log](audit.md); otherwise run `work`",
    )
    STALE_RUN_HOURS = Setting(
        24,
        partial(env.whole_number, at_least=1),
        "hours without data after which `work` and `close_stale_runs` mark a run as interrupted",
    )
    TRASH_DAYS = Setting(
        0,
        partial(env.whole_number, at_least=0),
        "days after which `work`, `purge --policy` and `purge --trash` empty the trash of projects without days of their own; 0: never",
    )
    AUDIT_DAYS = Setting(
        0,
        partial(env.whole_number, at_least=0),
        "days after which `work` and `purge_audit` remove entries of the [audit log](audit.md); 0: never",
    )
    ARCHIVE_TO = Setting(
        "",
        env.text,
        "directory or URL to which `work` [archives](retention.md#archive) old periods, which it drops from the database",
    )
    ARCHIVE_DAYS = Setting(90, partial(env.whole_number, at_least=1), "days after the end of a period until then")
    PARTITIONS = Setting(
        "MONTH",
        partial(env.choice, allowed=("DAY", "WEEK", "MONTH")),
        "length of new [partitions](retention.md#partitions): `day`, `week` or `month`",
        shown="`month`",
    )
    # Secrets.
    SEAL_KEYS: Setting[Sequence[str]] = Setting(
        (),
        partial(env.tokens, at_least=32),
        "keys of [seals](audit.md#seal-keys), the newest first, separated by commas, of at least 32 characters each",
        shown="derived from the secret key",
    )
    MASTER_KEY = Setting(
        "",
        env.text,
        "the master key of [encryption at rest](security.md#encryption-at-rest): 32 random bytes as Base64. During an exchange two, the new one first, separated by a comma",
    )
    MASTER_KEY_FILE = Setting("", env.text, "a file with it, in its place")
    MASTER_KEY_COMMAND = Setting(
        "", env.text, "a command that prints it, such as that of a key management service, in its place"
    )
    MASKING_FUNCTIONS: Setting[Sequence[str]] = Setting(
        (),
        env.words,
        "functions that [masking rules](redaction.md#masking-rules) may name, as `package.module.function`, separated by commas",
    )
    # Similar runs.
    EMBEDDER = Setting(
        "",
        env.embedder,
        "makes the vectors of questions for [similar runs](finding.md#another-embedder): `package.module:function`, or the address of an OpenAI-compatible API, to which questions are sent",
        shown="none: hashed n-grams",
    )
    EMBEDDER_MODEL = Setting("", env.text, "the model of that API")
    EMBEDDER_KEY = Setting("", partial(env.token, at_least=1), "the key for that API")
    # The database.
    DATABASE = Setting("default", None, "alias in `DATABASES` of the database of Tracesite")
    PROJECT_DATABASES: Setting[dict[str, str]] = Setting(
        {}, env.pairs, "which new projects get their traces there: `slug=alias`, separated by commas"
    )
    REPLICA_MAX_LAG_SECONDS = Setting(
        10, partial(env.whole_number, at_least=2), "a replica that is further behind answers no reads"
    )
    DIRECT_DATABASE: Setting[dict[str, Any]] = Setting(
        {},
        None,
        "the same database past a pooler, as an entry of `DATABASES` ([scaling.md](scaling.md#connection-pooler))",
    )


class SiteConf:
    """Variables of the site alone, which become settings of Django and of other packages."""

    DATABASE_URL: Setting[dict[str, Any]] = Setting(
        {}, env.database, "`postgresql://user:password@host:port/name`", shown="the embedded PostgreSQL"
    )
    DATABASE_DIRECT_URL: Setting[dict[str, Any]] = Setting(
        {},
        partial(env.database, optional=True),
        "direct address of the database if `DATABASE_URL` names a transaction pooler ([scaling.md](scaling.md#connection-pooler))",
    )
    DATABASE_REPLICA_URL: Setting[dict[str, Any]] = Setting(
        {},
        partial(env.database, optional=True),
        "a replica of the database, which answers reads ([scaling.md](scaling.md#replica-for-reads))",
    )
    DATABASE_PROJECT_URLS: Setting[dict[str, Any]] = Setting(
        {},
        env.databases,
        "databases for the traces of some projects, `alias=postgresql://...`, separated by spaces ([scaling.md](scaling.md#databases-for-single-projects))",
    )
    PREPARED_STATEMENTS: Setting[bool | None] = Setting(
        None,
        env.boolean,
        "whether statements of requests are prepared",
        shown="`true`; `false` with `DATABASE_DIRECT_URL`",
    )
    DATA_DIR = Setting(
        "",
        env.text,
        "directory of the secret key and the embedded database, closed to other users (mode 700). A server started by root keeps the database in `/var/lib/tracesite` if `nobody` cannot reach this directory: see [files](install.md#files)",
        shown="`.tracesite` in the clone; `~/.local/share/tracesite` for the installed command",
    )
    SECRET_KEY = Setting(
        "",
        env.secret_key,
        "signs logins; must be the same for all processes",
        shown="generated once, kept in the data directory",
    )
    ALLOWED_HOSTS: Setting[Sequence[str]] = Setting(
        ("127.0.0.1", "localhost", "[::1]"), env.words, "host names to serve, separated by commas"
    )
    TRUSTED_ORIGINS: Setting[Sequence[str]] = Setting(
        (), env.words, "origins that may post forms, such as `https://traces.example.org`"
    )
    DEBUG = Setting(False, env.boolean, "Django's debug pages; never in production")
    LOG_LEVEL = Setting(
        "INFO",
        partial(env.choice, allowed=("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")),
        "log level: JSON lines on standard error, without trace content",
        shown="`INFO` (commands and `make run` on a terminal: `WARNING`)",
    )
    OIDC_AUTHORIZATION_ENDPOINT = Setting("", env.address, "its `authorization_endpoint`")
    OIDC_TOKEN_ENDPOINT = Setting("", env.address, "its `token_endpoint`")
    OIDC_USERINFO_ENDPOINT = Setting("", env.address, "its `userinfo_endpoint`")
    OIDC_JWKS_URI = Setting("", env.address, "its `jwks_uri`")
    OIDC_CLIENT_ID = Setting("", env.text, "id of this site there")
    OIDC_CLIENT_SECRET = Setting("", env.text, "secret of this site there")
    OIDC_SCOPES = Setting(
        "openid profile email", env.text, "requested scopes; some providers send groups only with an additional one"
    )


conf = Conf()

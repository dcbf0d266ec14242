"""All settings of Tracesite, read once from the environment; a bad value stops the start with its name.

Every variable that is read here has a row in docs/settings.md (tests/test_documentation.py compares them).
"""

from __future__ import annotations

import secrets
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured
from django.urls import reverse_lazy
from django.utils.translation import gettext_lazy as _
from pythonjsonlogger.core import RESERVED_ATTRS

from . import environment as env
from .http.content_policy import DIRECTIVES
from .serving.embedded_postgres import make_data_directory

BASE_DIR = Path(__file__).resolve().parent.parent

# --- What the operator sets -------------------------------------------------------------------------------

TRACESITE_DATA_DIR = Path(env.text("TRACESITE_DATA_DIR") or BASE_DIR / ".tracesite")
if TRACESITE_DATA_DIR.exists():
    make_data_directory(TRACESITE_DATA_DIR)  # earlier versions left it open to others
DEBUG = env.boolean("TRACESITE_DEBUG", default=False)
ALLOWED_HOSTS = env.words("TRACESITE_ALLOWED_HOSTS", ("127.0.0.1", "localhost", "[::1]"))
CSRF_TRUSTED_ORIGINS = env.words("TRACESITE_TRUSTED_ORIGINS")
# How long clients that send or read slowly may keep the server waiting.
TRACESITE_CLIENT_SECONDS = env.whole_number("TRACESITE_CLIENT_SECONDS", 30, at_least=1)
# How much CPU time a request may take, and a file that a command imports.
TRACESITE_REQUEST_CPU_SECONDS = env.whole_number("TRACESITE_REQUEST_CPU_SECONDS", 60, at_least=1)
TRACESITE_MAX_BODY_BYTES = env.whole_number("TRACESITE_MAX_BODY_BYTES", 64 * 1024 * 1024, at_least=1024)
LOG_LEVEL = env.choice("TRACESITE_LOG_LEVEL", "INFO", ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
TRACESITE_HTTPS = env.boolean("TRACESITE_HTTPS", default=False)
# Headers of a proxy that has checked who the user is: see access_app/single_sign_on.py.
TRACESITE_REMOTE_USER_HEADER = env.header("TRACESITE_REMOTE_USER_HEADER")
TRACESITE_REMOTE_GROUPS_HEADER = env.header("TRACESITE_REMOTE_GROUPS_HEADER")
if TRACESITE_REMOTE_USER_HEADER and not TRACESITE_HTTPS:
    raise ImproperlyConfigured(
        "TRACESITE_REMOTE_USER_HEADER needs a proxy that sets this header of every request, otherwise anybody could log in as "
        "anybody: set TRACESITE_HTTPS=true if you have one."
    )
# An OpenID provider that checks who the user is: see access_app/openid.py. The names are those of mozilla-django-oidc.
TRACESITE_OIDC_ISSUER = env.address("TRACESITE_OIDC_ISSUER")
OIDC_OP_AUTHORIZATION_ENDPOINT = env.address("TRACESITE_OIDC_AUTHORIZATION_ENDPOINT")
OIDC_OP_TOKEN_ENDPOINT = env.address("TRACESITE_OIDC_TOKEN_ENDPOINT")
OIDC_OP_USER_ENDPOINT = env.address("TRACESITE_OIDC_USERINFO_ENDPOINT")
OIDC_OP_JWKS_ENDPOINT = env.address("TRACESITE_OIDC_JWKS_URI")
OIDC_RP_CLIENT_ID = env.text("TRACESITE_OIDC_CLIENT_ID")
OIDC_RP_CLIENT_SECRET = env.text("TRACESITE_OIDC_CLIENT_SECRET")
OIDC_RP_SCOPES = env.text("TRACESITE_OIDC_SCOPES", "openid profile email")
TRACESITE_OIDC_USERNAME_CLAIM = env.text("TRACESITE_OIDC_USERNAME_CLAIM", "preferred_username")
TRACESITE_OIDC_GROUPS_CLAIM = env.text("TRACESITE_OIDC_GROUPS_CLAIM", "groups")
# Which local users need a second factor to do anything but set it up: see access_app/two_factor.py.
TRACESITE_TWO_FACTOR = env.choice("TRACESITE_TWO_FACTOR", "OPTIONAL", ("OPTIONAL", "SUPERUSERS", "STAFF"))
# Of the login that `serve --demo` makes; without it one is generated and shown once.
TRACESITE_ADMIN_PASSWORD = env.text("TRACESITE_ADMIN_PASSWORD")
# Of whoever scrapes /metrics; without it there is nothing at that address.
TRACESITE_METRICS_TOKEN = env.token("TRACESITE_METRICS_TOKEN", at_least=16)
# Who wants to hear of weaknesses of this site, for /.well-known/security.txt; without it there is nothing at that address.
TRACESITE_SECURITY_CONTACT = env.contacts("TRACESITE_SECURITY_CONTACT")
# A run of which nothing was heard for so long is closed by manage.py close_stale_runs.
TRACESITE_STALE_RUN_HOURS = env.whole_number("TRACESITE_STALE_RUN_HOURS", 24, at_least=1)
# Sessions and messages that are in the trash for longer are purged by `manage.py purge --trash`; 0: never.
TRACESITE_TRASH_DAYS = env.whole_number("TRACESITE_TRASH_DAYS", 0, at_least=0)
# How long the periods are by which new partitions are made; existing ones keep their length: see docs/retention.md.
TRACESITE_PARTITIONS = env.choice("TRACESITE_PARTITIONS", "MONTH", ("DAY", "WEEK", "MONTH"))
# Where `manage.py work` archives periods that ended TRACESITE_ARCHIVE_DAYS ago, and drops them from the database: a directory or a URL;
# empty: nowhere.
TRACESITE_ARCHIVE_TO = env.text("TRACESITE_ARCHIVE_TO")
TRACESITE_ARCHIVE_DAYS = env.whole_number("TRACESITE_ARCHIVE_DAYS", 90, at_least=1)
# Keys of seals, the newest first: see access_app/seal_keys.py. Empty: derived from the secret key.
TRACESITE_SEAL_KEYS = env.tokens("TRACESITE_SEAL_KEYS", at_least=32)
# What wraps the data keys of encrypted projects, as it is, in a file, or printed by a command: see docs/security.md.
TRACESITE_MASTER_KEY = env.text("TRACESITE_MASTER_KEY")
TRACESITE_MASTER_KEY_FILE = env.text("TRACESITE_MASTER_KEY_FILE")
TRACESITE_MASTER_KEY_COMMAND = env.text("TRACESITE_MASTER_KEY_COMMAND")
# Entries of the audit log that are older are removed by `manage.py purge_audit`; 0: never.
TRACESITE_AUDIT_DAYS = env.whole_number("TRACESITE_AUDIT_DAYS", 0, at_least=0)
# Whether `serve` runs the continual jobs of traces_app.maintenance.jobs; otherwise run `manage.py work`.
TRACESITE_BACKGROUND_JOBS = env.boolean("TRACESITE_BACKGROUND_JOBS", default=True)
# Functions that masking rules may name.
TRACESITE_MASKING_FUNCTIONS = env.words("TRACESITE_MASKING_FUNCTIONS")
# What makes vectors of questions, for similar runs: hashed n-grams, a function (package.module:function), or an OpenAI-compatible
# URL, to which questions are sent.
TRACESITE_EMBEDDER = env.embedder("TRACESITE_EMBEDDER")
TRACESITE_EMBEDDER_MODEL = env.text("TRACESITE_EMBEDDER_MODEL")
TRACESITE_EMBEDDER_KEY = env.token("TRACESITE_EMBEDDER_KEY", at_least=1)
# Signs of life on connections of /live/ where nothing happens; who leaves two of them unanswered is gone.
TRACESITE_LIVE_HEARTBEAT_SECONDS = env.whole_number("TRACESITE_LIVE_HEARTBEAT_SECONDS", 15, at_least=1)


def secret_key() -> str:
    """TRACESITE_SECRET_KEY, else a key of this installation: made once, kept in the data directory (mode 600)."""
    given = env.text("TRACESITE_SECRET_KEY")
    if given:
        if len(given) < 32:
            raise ImproperlyConfigured(
                "TRACESITE_SECRET_KEY is too short to be safe: write at least 32 random characters."
            )
        return given
    path = TRACESITE_DATA_DIR / "secret_key"
    if not path.exists():
        make_data_directory(TRACESITE_DATA_DIR)
        draft = path.with_name(f"secret_key.{secrets.token_hex(8)}")
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(50))
        try:
            # link() fails where the name exists, so that of two first processes one key survives whole.
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    return path.read_text()


SECRET_KEY = secret_key()

# --- Database -----------------------------------------------------------------------------------------------

DATABASES = {"default": {**env.database("DATABASE_URL"), "ENGINE": "access_app.db"}}
# A copy of it that answers reads, unless it is further behind than so many seconds: see docs/scaling.md.
TRACESITE_REPLICA_MAX_LAG_SECONDS = env.whole_number("TRACESITE_REPLICA_MAX_LAG_SECONDS", 10, at_least=2)
if replica := env.database("DATABASE_REPLICA_URL", optional=True):
    # A replica that vanishes must not hold up readers: they turn to the primary.
    replica["OPTIONS"] = {"connect_timeout": 2, "tcp_user_timeout": 5000, **replica.get("OPTIONS", {})}
    DATABASES["replica"] = {**replica, "ENGINE": "access_app.db", "TEST": {"MIRROR": "default"}}
    DATABASE_ROUTERS = ["access_app.db.reading.ReadingRouter"]
# Databases that have the traces of some projects, and which new projects get theirs there: see docs/scaling.md.
for alias, options in env.databases("DATABASE_PROJECT_URLS").items():
    DATABASES[alias] = {**options, "ENGINE": "access_app.db"}
    DATABASE_ROUTERS = ["access_app.db.reading.ReadingRouter"]
TRACESITE_PROJECT_DATABASES = env.pairs("TRACESITE_PROJECT_DATABASES")
# The same database past a pooler that shares connections between transactions: see docs/scaling.md.
TRACESITE_DIRECT_DATABASE = env.database("DATABASE_DIRECT_URL", optional=True)
PREPARED_STATEMENTS = env.boolean("TRACESITE_PREPARED_STATEMENTS", default=not TRACESITE_DIRECT_DATABASE)
for each in DATABASES.values():
    # Planning a query on partitioned tables costs 10 ms on a new connection: connections are kept.
    each["CONN_MAX_AGE"] = None
    each["CONN_HEALTH_CHECKS"] = True
    # Of statements that ask for it: Django's own cursors write values into the text, and never prepare.
    each.setdefault("OPTIONS", {}).setdefault("prepare_threshold", 5 if PREPARED_STATEMENTS else None)
    # A cursor of the server would be in the connection of one transaction, and read from that of another.
    each["DISABLE_SERVER_SIDE_CURSORS"] = bool(TRACESITE_DIRECT_DATABASE)
of_connections = {
    # A machine that vanished says nothing: without these a connection to it is kept for hours.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
    # By this /metrics and whoever looks into pg_stat_activity tell our connections from those of others.
    "application_name": "tracesite",
}
for each in filter(None, (*DATABASES.values(), TRACESITE_DIRECT_DATABASE)):
    each["OPTIONS"] = {**of_connections, **each.get("OPTIONS", {})}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

# --- Applications -------------------------------------------------------------------------------------------

# Ours first: Django's shell imports every model by name, and the first `Session` wins.
INSTALLED_APPS = [
    "tracesite",
    "traces_app",
    "messages_app",
    "access_app",
    "tracesite.admin_site.TracesiteAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.postgres",
    "django.contrib.staticfiles",
    "django.forms",
    "rest_framework",
    "django_filters",
    "drf_spectacular_sidecar",
    "csp",
    "axes",
    "django_otp",
    "django_otp.plugins.otp_totp",
    "django_otp.plugins.otp_static",
]

MIDDLEWARE = [
    "tracesite.http.request_log.RequestIdMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "tracesite.http.pages.Gzip",
    "tracesite.http.compression.CompressionMiddleware",
    "tracesite.http.pages.ContentSecurityPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "tracesite.http.slashes.SlashMiddleware",
    "tracesite.http.pages.Csrf",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "tracesite.http.pages.Messages",
    "tracesite.http.pages.XFrameOptions",
    "tracesite.http.pages.TimeZone",
    "access_app.audit.requests.AuditMiddleware",
    "access_app.two_factor_pages.TwoFactorMiddleware",
    "access_app.masked_reading.MaskedReadingMiddleware",
    "axes.middleware.AxesMiddleware",
]

if DATABASES.keys() - {"default", "replica"}:
    MIDDLEWARE.append("tracesite.http.project_database.ProjectDatabaseMiddleware")
if "replica" in DATABASES:
    # The last one: what others read is about who may see what, and comes from the primary.
    MIDDLEWARE.append("tracesite.http.replica_reading.ReplicaReadingMiddleware")

ROOT_URLCONF = "tracesite.site_urls"
# Where a login without a usable `next` leads to.
LOGIN_REDIRECT_URL = "admin:index"
WSGI_APPLICATION = "tracesite.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.tz",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Widgets come from our templates, too: see templates/admin/widgets.
FORM_RENDERER = "django.forms.renderers.TemplatesSetting"

# --- Security -----------------------------------------------------------------------------------------------

CONTENT_SECURITY_POLICY = {"DIRECTIVES": DIRECTIVES}
# Ours (tracesite.system_checks) name what the operator sets, which these do not. To redirect to HTTPS is the proxy's work;
# subdomains and preload lists are for the owner of the domain to decide. W002 and W003 look for Django's own classes by
# their names, and ours in MIDDLEWARE are made of them.
SILENCED_SYSTEM_CHECKS = [
    "4_0.E001",
    *(f"security.W0{number}" for number in ("02", "03", "04", "05", "08", "12", "16", "18", "20", "21")),
]
X_FRAME_OPTIONS = "DENY"
CSRF_FAILURE_VIEW = "tracesite.http.errors.csrf_failure"
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = TRACESITE_HTTPS
SESSION_COOKIE_HTTPONLY = True
if TRACESITE_HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
# Bodies are bounded by TRACESITE_MAX_BODY_BYTES where they are read; Django's own limit guards forms.
DATA_UPLOAD_MAX_MEMORY_SIZE = TRACESITE_MAX_BODY_BYTES
# Ten wrong passwords for one name from one address: then no more for five minutes. `manage.py axes_reset` lifts it.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "access_app.two_factor.TwoFactorBackend"]
TRACESITE_AUDIT_LOGINS = True
# The name of the site in apps for two-factor login.
OTP_TOTP_ISSUER = "Tracesite"
if TRACESITE_REMOTE_USER_HEADER:
    MIDDLEWARE.insert(
        MIDDLEWARE.index("django.contrib.auth.middleware.AuthenticationMiddleware") + 1,
        "access_app.single_sign_on.ProxyUserMiddleware",
    )
    AUTHENTICATION_BACKENDS.insert(1, "access_app.single_sign_on.ProxyUserBackend")
if TRACESITE_OIDC_ISSUER:
    missing = [
        name
        for name, value in {
            "AUTHORIZATION_ENDPOINT": OIDC_OP_AUTHORIZATION_ENDPOINT,
            "TOKEN_ENDPOINT": OIDC_OP_TOKEN_ENDPOINT,
            "USERINFO_ENDPOINT": OIDC_OP_USER_ENDPOINT,
            "JWKS_URI": OIDC_OP_JWKS_ENDPOINT,
            "CLIENT_ID": OIDC_RP_CLIENT_ID,
            "CLIENT_SECRET": OIDC_RP_CLIENT_SECRET,
        }.items()
        if not value
    ]
    if missing:
        raise ImproperlyConfigured(
            f"TRACESITE_OIDC_ISSUER also needs {', '.join(f'TRACESITE_OIDC_{name}' for name in missing)}."
        )
    if find_spec("mozilla_django_oidc") is None:
        raise ImproperlyConfigured("TRACESITE_OIDC_ISSUER needs mozilla-django-oidc: pip install mozilla-django-oidc")
    AUTHENTICATION_BACKENDS.append("access_app.openid.OpenIdBackend")
OIDC_RP_SIGN_ALGO = "RS256"
OIDC_USE_PKCE = True
OIDC_TIMEOUT = 10  # seconds for each request to the provider
LOGIN_REDIRECT_URL_FAILURE = reverse_lazy("admin:login")
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = timedelta(minutes=5)
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
# While it lasts, more attempts do not prolong it: a script that goes on must not keep its owner out for ever.
AXES_RESET_COOL_OFF_ON_FAILURE_DURING_LOCKOUT = False
AXES_DISABLE_ACCESS_LOG = True
AXES_ENABLE_ADMIN = False
AXES_VERBOSE = False
AXES_USERNAME_CALLABLE = "access_app.logins.typed_name"
AXES_CLIENT_IP_CALLABLE = "access_app.logins.counted_address"
AXES_CLIENT_STR_CALLABLE = "access_app.logins.log_text"
AXES_LOCKOUT_CALLABLE = "access_app.logins.locked_out"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# --- Languages and time -------------------------------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "tracesite.formats"
# 12,345. Numbers in addresses and attributes of templates need `unlocalize`.
USE_THOUSAND_SEPARATOR = True
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = True

# --- Static files -------------------------------------------------------------------------------------------

STATIC_URL = "static/"
STATIC_ROOT = TRACESITE_DATA_DIR / "static"
# Served straight from the packages: one process needs no collectstatic, and a proxy may still serve STATIC_ROOT.
WHITENOISE_USE_FINDERS = True
WHITENOISE_AUTOREFRESH = DEBUG

# --- Logs ---------------------------------------------------------------------------------------------------

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {
        "request_id": {"()": "tracesite.http.request_ids.RequestIdFilter"},
        "outages": {"()": "tracesite.http.outages.OutageFilter"},
    },
    "formatters": {
        "json": {
            "()": "tracesite.serving.log_lines.JsonLineFormatter",
            "format": "%(levelname)s %(name)s %(message)s %(request_id)s",
            "timestamp": "time",  # RFC 3339, UTC, microseconds
            "rename_fields": {"levelname": "level", "name": "logger"},
            # Django hangs the request itself on some records: printed, it would show the query string.
            "reserved_attrs": [*RESERVED_ATTRS, "request"],
        },
    },
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "json", "filters": ["request_id"]},
    },
    "loggers": {
        # Its warnings repeat what the line of each request says; its errors bring the stack.
        "django.request": {"level": "ERROR", "filters": ["outages"]},
        # So do these: refused requests of clients.
        **{
            f"django.security.{refused}": {"handlers": [], "propagate": False}
            for refused in ("DisallowedHost", "DisallowedModelAdminLookup", "DisallowedModelAdminToField")
        },
        # It warns of what it raises as well, also where that is foreseen: a message that was not as new as it looked.
        "psycopg": {"level": "ERROR"},
        "gunicorn.error": {"level": "WARNING", "propagate": True},
    },
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
}

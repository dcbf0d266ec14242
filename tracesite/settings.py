"""All settings of Tracesite, read once from the environment; a bad value stops the start with its name.

The table of Tracesite's own is in access_app/conf.py.
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

from access_app.conf import Conf, SiteConf, read_all

from .http.content_policy import DIRECTIVES
from .serving.embedded_postgres import make_data_directory

BASE_DIR = Path(__file__).resolve().parent.parent

# --- What the operator sets -------------------------------------------------------------------------------

# Each setting is declared in access_app/conf.py.
given, site = read_all(Conf), read_all(SiteConf)
globals().update(given)
TRACESITE_DATA_DIR = Path(site["TRACESITE_DATA_DIR"] or BASE_DIR / ".tracesite")
if TRACESITE_DATA_DIR.exists():
    make_data_directory(TRACESITE_DATA_DIR)  # earlier versions left it open to others
DEBUG = site["TRACESITE_DEBUG"]
ALLOWED_HOSTS = site["TRACESITE_ALLOWED_HOSTS"]
CSRF_TRUSTED_ORIGINS = site["TRACESITE_TRUSTED_ORIGINS"]
HTTPS = given["TRACESITE_HTTPS"]
if given["TRACESITE_REMOTE_USER_HEADER"] and not HTTPS:
    raise ImproperlyConfigured(
        "TRACESITE_REMOTE_USER_HEADER needs a proxy that sets this header of every request, otherwise anybody could log in as "
        "anybody: set TRACESITE_HTTPS=true if you have one."
    )
# Names of mozilla-django-oidc: see access_app/openid.py.
OIDC_OP_AUTHORIZATION_ENDPOINT = site["TRACESITE_OIDC_AUTHORIZATION_ENDPOINT"]
OIDC_OP_TOKEN_ENDPOINT = site["TRACESITE_OIDC_TOKEN_ENDPOINT"]
OIDC_OP_USER_ENDPOINT = site["TRACESITE_OIDC_USERINFO_ENDPOINT"]
OIDC_OP_JWKS_ENDPOINT = site["TRACESITE_OIDC_JWKS_URI"]
OIDC_RP_CLIENT_ID = site["TRACESITE_OIDC_CLIENT_ID"]
OIDC_RP_CLIENT_SECRET = site["TRACESITE_OIDC_CLIENT_SECRET"]
OIDC_RP_SCOPES = site["TRACESITE_OIDC_SCOPES"]


def secret_key() -> str:
    """TRACESITE_SECRET_KEY, else a key of this installation: made once, kept in the data directory (mode 600)."""
    if site["TRACESITE_SECRET_KEY"]:
        return str(site["TRACESITE_SECRET_KEY"])
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

DATABASES = {"default": {**site["DATABASE_URL"], "ENGINE": "access_app.db"}}
if replica := site["DATABASE_REPLICA_URL"]:
    # A replica that vanishes must not hold up readers: they turn to the primary.
    replica["OPTIONS"] = {"connect_timeout": 2, "tcp_user_timeout": 5000, **replica.get("OPTIONS", {})}
    DATABASES["replica"] = {**replica, "ENGINE": "access_app.db", "TEST": {"MIRROR": "default"}}
    DATABASE_ROUTERS = ["access_app.db.reading.ReadingRouter"]
for alias, options in site["DATABASE_PROJECT_URLS"].items():
    DATABASES[alias] = {**options, "ENGINE": "access_app.db"}
    DATABASE_ROUTERS = ["access_app.db.reading.ReadingRouter"]
TRACESITE_DIRECT_DATABASE = site["DATABASE_DIRECT_URL"]
prepares = site["TRACESITE_PREPARED_STATEMENTS"]
PREPARED_STATEMENTS = not TRACESITE_DIRECT_DATABASE if prepares is None else prepares
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
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = HTTPS
SESSION_COOKIE_HTTPONLY = True
if HTTPS:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    SECURE_HSTS_SECONDS = 31_536_000
# Bodies are bounded by TRACESITE_MAX_BODY_BYTES where they are read; Django's own limit guards forms.
DATA_UPLOAD_MAX_MEMORY_SIZE = given["TRACESITE_MAX_BODY_BYTES"]
# Ten wrong passwords for one name from one address: then no more for five minutes. `manage.py axes_reset` lifts it.
AUTHENTICATION_BACKENDS = ["axes.backends.AxesStandaloneBackend", "access_app.two_factor.TwoFactorBackend"]
TRACESITE_AUDIT_LOGINS = True
# The name of the site in apps for two-factor login.
OTP_TOTP_ISSUER = "Tracesite"
if given["TRACESITE_REMOTE_USER_HEADER"]:
    MIDDLEWARE.insert(
        MIDDLEWARE.index("django.contrib.auth.middleware.AuthenticationMiddleware") + 1,
        "access_app.single_sign_on.ProxyUserMiddleware",
    )
    AUTHENTICATION_BACKENDS.insert(1, "access_app.single_sign_on.ProxyUserBackend")
if given["TRACESITE_OIDC_ISSUER"]:
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
        # Its warnings are requests that it refuses, without their address, and below them are URLs of WebSockets, which may have keys.
        "uvicorn.error": {"level": "ERROR"},
    },
    "root": {"handlers": ["stderr"], "level": site["TRACESITE_LOG_LEVEL"]},
}

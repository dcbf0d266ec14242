"""Looks for what goes wrong in production before it does: `manage.py serve --check` runs all of it.

Checks of settings run with every command, those of a deployment with `check --deploy`, those of the database with
`check --database default`. Each id has a row in docs/production.md (tests/tracesite/test_system_checks.py compares them).
"""

from __future__ import annotations

import ipaddress
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from access_app import environment
from access_app.conf import conf
from access_app.db import BACKEND, PRIMARY, REPLICA, all_aliases, primary, project_aliases
from access_app.db.earlier_migrations import TOO_OLD, is_too_old
from access_app.encryption.keys import unusable_keys
from access_app.encryption.master import master_keys
from access_app.masking import unusable_rules
from access_app.models import MaskingRule, ProjectDatabase, ProjectKey
from access_app.program import program
from access_app.seal_keys import seal_key
from traces_app.ingest.partitions import TABLES
from traces_app.models import SealBatch

from .serving import embedded_postgres

OLDEST_POSTGRESQL = 15
# A statement over all months locks every partition and its indexes.
LOCKS_PER_TRANSACTION = 256
QUERIES_OVER_ALL = 8
"""For so many queries over all periods at a time there should be locks."""
# Connections beside those of the workers: commands, a backup, somebody who looks.
SPARE_CONNECTIONS = 10
CLOCK_SECONDS = 5
# The slowest things that are meant to happen: a purge by rows, a page of a project of many years.
SHORTEST_STATEMENT_TIMEOUT_MS = 60_000

Apps = Sequence[AppConfig] | None
NO_ANSWER = "tracesite.E003"


# --- Settings -----------------------------------------------------------------------------------------------


def check_settings(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """Check the settings that every command needs."""
    messages: list[CheckMessage] = [
        Error(
            f"TRACESITE_TRUSTED_ORIGINS has {origin!r}, which is not an origin.",
            hint="Use only a scheme and a host, such as https://traces.example.org.",
            id="tracesite.E001",
        )
        for origin in settings.CSRF_TRUSTED_ORIGINS
        if not _is_origin(origin)
    ]
    data_dir = Path(conf.DATA_DIR).absolute()
    try:
        # It is made when something is first written there.
        with tempfile.TemporaryFile(dir=next(path for path in (data_dir, *data_dir.parents) if path.exists())):
            pass
    except OSError as error:
        messages.append(
            Error(
                f"Cannot create files in the data directory {conf.DATA_DIR}: {error.strerror}.",
                hint="Set TRACESITE_DATA_DIR to a directory that the user of Tracesite can write to.",
                id="tracesite.E002",
            )
        )
    # Imported here, because numpy takes a tenth of a second, and commands do not run this.
    from traces_app.queries.embedders import configured

    try:
        configured()
    except ImproperlyConfigured as error:
        messages.append(
            Error(
                str(error),
                hint="Use package.module:function, an address, or unset TRACESITE_EMBEDDER: see docs/finding.md.",
                id="tracesite.E009",
            )
        )
    key = conf.DATA_DIR / "secret_key"
    if key.exists() and key.stat().st_mode & 0o077:
        messages.append(
            Warning(
                f"{key} is readable by other users, who could forge admin logins.",
                hint=f"Run chmod 600 {key}. If it may have been read, delete it; all users must then log in again.",
                id="tracesite.W001",
            )
        )
    messages += [
        Warning(
            f"{name} is unknown." + (f" Did you mean {nearest}?" if nearest else ""),
            hint="Correct or unset the variable. docs/settings.md lists all settings.",
            id="tracesite.W014",
        )
        for name, nearest in environment.unknown().items()
    ]
    return messages


def check_deployment(app_configs: Apps, **options: Any) -> list[CheckMessage]:
    """Check for settings that suit a first look, but not a service that others use."""
    messages: list[CheckMessage] = []
    is_local = all(_is_loopback(host) for host in settings.ALLOWED_HOSTS)
    if settings.DEBUG:
        messages.append(
            Warning(
                "TRACESITE_DEBUG is on: error pages show settings and content to every visitor.",
                hint="Unset TRACESITE_DEBUG.",
                id="tracesite.W002",
            )
        )
    if any(host in ("*", ".") for host in settings.ALLOWED_HOSTS):
        messages.append(
            Warning(
                "TRACESITE_ALLOWED_HOSTS allows every host name: attackers can forge links in responses.",
                hint="List the host names of this site, separated by commas.",
                id="tracesite.W003",
            )
        )
    if not conf.HTTPS and not is_local:
        messages.append(
            Warning(
                "TRACESITE_HTTPS is off, and TRACESITE_ALLOWED_HOSTS has public host names: keys, "
                "cookies and traces may be sent unencrypted.",
                hint="Use a proxy with HTTPS, as docs/production.md shows, and set TRACESITE_HTTPS=true.",
                id="tracesite.W004",
            )
        )
    if conf.HTTPS and is_local:
        messages.append(
            Warning(
                "TRACESITE_HTTPS is on, but TRACESITE_ALLOWED_HOSTS has only local names: requests with "
                "the public host name get status 400.",
                hint="Add the public host name to TRACESITE_ALLOWED_HOSTS.",
                id="tracesite.W005",
            )
        )
    if embedded_postgres.home():
        messages.append(
            Warning(
                f"The database is the embedded PostgreSQL in {embedded_postgres.home()}: it stops with Tracesite and is not backed up.",
                hint="Set DATABASE_URL to a PostgreSQL server that you operate and back up.",
                id="tracesite.W006",
            )
        )
    return messages


def _is_origin(text: str) -> bool:
    parts = urlsplit(text)
    return parts.scheme in ("http", "https") and bool(parts.netloc) and text == f"{parts.scheme}://{parts.netloc}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


# --- The database -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Server:
    """The properties of a PostgreSQL server, as our role sees them in our database."""

    version: int
    """The major one."""
    encoding: str
    settings: dict[str, str]
    """As pg_settings has them: numbers in their own unit, switches as on and off."""
    is_read_only: bool
    makes_tables: bool
    """Whether our role may make tables in our schema."""
    owns_tables: bool
    """Whether our role may add partitions to the tables that there are."""
    locks: int
    """How many locks a query over all periods of a table takes: one for each partition, and for each index of it."""
    clock_ahead: timedelta


_SETTINGS = (
    "autovacuum",
    "fsync",
    "full_page_writes",
    "jit",
    "max_connections",
    "max_locks_per_transaction",
    "statement_timeout",
    "superuser_reserved_connections",
    "synchronous_commit",
)


def check_database(app_configs: Apps, databases: Iterable[str] | None = None, **options: Any) -> list[CheckMessage]:
    """Check that the server keeps what it acknowledges, and has room for what Tracesite does."""
    messages = []
    for alias in {*all_aliases(), REPLICA}.intersection(databases or ()):
        try:
            messages += judge(describe(connections[alias]))
        except OperationalError as error:
            messages.append(
                Error(
                    f"The database does not respond: {error}",
                    hint=(
                        "Check DATABASE_URL (host, port, name, user, password), and listen_addresses "
                        "and pg_hba.conf of the server."
                    ),
                    id=NO_ANSWER,
                )
            )
    return messages


def check_earlier_migrations(
    app_configs: Apps, databases: Iterable[str] | None = None, **options: Any
) -> list[CheckMessage]:
    """Check that `migrate` can complete the tables."""
    try:
        return [
            Error(str(TOO_OLD), hint="See docs/production.md#upgrade.", obj=alias, id="tracesite.E030")
            for alias in all_aliases()
            if alias in (databases or ()) and is_too_old(alias)
        ]
    except OperationalError:
        return []  # check_database reports it


def check_project_databases(
    app_configs: Apps, databases: Iterable[str] | None = None, **options: Any
) -> list[CheckMessage]:
    """Check that the databases of projects, present and planned, are among the settings and ready."""
    unknown = sorted(set(conf.PROJECT_DATABASES.values()).difference(all_aliases()))
    messages: list[CheckMessage] = [
        Error(
            f"TRACESITE_PROJECT_DATABASES names the database {alias!r}, which is none with the engine {BACKEND}.",
            hint="Add it to DATABASE_PROJECT_URLS, or to DATABASES with this engine. See docs/scaling.md.",
            id="tracesite.E027",
        )
        for alias in unknown
    ]
    try:
        if (
            PRIMARY not in (databases or ())
            or ProjectDatabase._meta.db_table not in primary.connection.introspection.table_names()
        ):
            return messages
    except OperationalError:
        return messages  # check_database reports it
    prepared = set(ProjectDatabase.objects.values_list("alias", flat=True))
    used = set(ProjectDatabase.objects.filter(places__isnull=False).values_list("alias", flat=True))
    messages += [
        Error(
            f"Projects are in the database {alias!r}, which the settings do not have. They can neither be read nor written.",
            hint="Add it to DATABASE_PROJECT_URLS, or to DATABASES, by this alias. See docs/scaling.md.",
            id="tracesite.E028",
        )
        for alias in sorted(used.difference(project_aliases()))
    ]
    messages += [
        Error(
            f"The database {alias!r} is not ready for the traces of projects.",
            hint=f"Run: {program()} prepare_database {alias}",
            id="tracesite.E029",
        )
        for alias in project_aliases()
        if alias not in prepared
    ]
    return messages


def check_masking_rules(
    app_configs: Apps, databases: Iterable[str] | None = None, **options: Any
) -> list[CheckMessage]:
    """Check that every masking rule can be applied."""
    try:
        if (
            PRIMARY not in (databases or ())
            or MaskingRule._meta.db_table not in primary.connection.introspection.table_names()
        ):
            return []
    except OperationalError:
        return []  # check_database reports it
    return [
        Error(
            f"The masking rule {rule.name!r} of project {rule.project.slug} cannot be applied: {reason} "
            "Until then every text and number that the project receives is removed.",
            hint="Correct the rule (set_masking_rule), delete it (delete_masking_rule), or allow its function in "
            "TRACESITE_MASKING_FUNCTIONS.",
            id="tracesite.E012",
        )
        for rule, reason in unusable_rules()
    ]


def check_data_keys(app_configs: Apps, databases: Iterable[str] | None = None, **options: Any) -> list[CheckMessage]:
    """Check that the master key exists, and is the one that has wrapped the data keys of the projects."""
    try:
        if (
            PRIMARY not in (databases or ())
            or ProjectKey._meta.db_table not in primary.connection.introspection.table_names()
        ):
            return []
    except OperationalError:
        return []  # check_database reports it
    try:
        master_keys()
        unusable = list(unusable_keys())
    except ImproperlyConfigured as error:
        return [Error(str(error), hint="See docs/security.md.", id="tracesite.E013")]
    return [
        Error(
            f"The data of project {key.project.slug} is encrypted, and no master key here unwraps its data key {key.version} (of "
            f"the master key {key.master_id}). The project can neither be read nor written.",
            hint="Set TRACESITE_MASTER_KEY, TRACESITE_MASTER_KEY_FILE or TRACESITE_MASTER_KEY_COMMAND to this master key.",
            id="tracesite.E014",
        )
        for key in unusable
    ]


def check_seal_key(app_configs: Apps, databases: Iterable[str] | None = None, **options: Any) -> list[CheckMessage]:
    """Check that the key of the newest seals exists: a backup that is restored elsewhere does not bring it."""
    try:
        if (
            PRIMARY not in (databases or ())
            or SealBatch._meta.db_table not in primary.connection.introspection.table_names()
        ):
            return []
    except OperationalError:
        return []  # check_database reports it
    key_id = primary.rows(SealBatch.objects).order_by("-pk").values_list("key_id", flat=True).first()
    if key_id is None or seal_key(key_id) is not None:
        return []
    return [
        Warning(
            f"The newest seals are of the key {key_id}, which is missing here: they cannot be verified, and what still waits "
            "for its seal does not get one.",
            hint="Before you serve, set TRACESITE_SECRET_KEY, or secret_key in TRACESITE_DATA_DIR, to what it was, or name it "
            "in TRACESITE_SEAL_KEYS, as the last of the keys.",
            id="tracesite.W016",
        )
    ]


def describe(connection: BaseDatabaseWrapper) -> Server:
    """Raises OperationalError."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(_SETTINGS)])
        values = dict(cursor.fetchall())
        cursor.execute(
            "WITH ours AS (SELECT oid, relowner FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)) "
            "SELECT current_setting('server_version_num')::int / 10000, current_setting('server_encoding'), "
            "pg_is_in_recovery() OR current_setting('default_transaction_read_only')::bool, "
            "has_schema_privilege(current_schema(), 'CREATE'), (SELECT coalesce(bool_and(pg_has_role(relowner, 'USAGE')), "
            "true) FROM ours), (SELECT coalesce(max((SELECT count(*) FROM pg_inherits WHERE inhparent = ours.oid) "
            "* (1 + (SELECT count(*) FROM pg_index WHERE indrelid = ours.oid))), 0) FROM ours)",
            [[table.name for table in TABLES]],
        )
        version, encoding, is_read_only, makes_tables, owns_tables, locks = cursor.fetchone()
        before = datetime.now(UTC)
        cursor.execute("SELECT clock_timestamp()")
        theirs = cursor.fetchone()[0]
        now = before + (datetime.now(UTC) - before) / 2
    return Server(
        version=version,
        encoding=encoding,
        settings=values,
        is_read_only=is_read_only,
        makes_tables=makes_tables,
        owns_tables=owns_tables,
        locks=locks,
        clock_ahead=theirs - now,
    )


def judge(server: Server) -> list[CheckMessage]:
    return [*_what_cannot_work(server), *_what_may_go_wrong(server)]


def _what_cannot_work(server: Server) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    if server.version < OLDEST_POSTGRESQL:
        messages.append(
            Error(
                f"PostgreSQL {server.version} is too old.",
                hint=f"Tracesite needs PostgreSQL {OLDEST_POSTGRESQL} or newer.",
                id="tracesite.E004",
            )
        )
    if server.encoding != "UTF8":
        messages.append(
            Error(
                f"The encoding of the database is {server.encoding}, which cannot store all characters.",
                hint="Create a new database: createdb --encoding=UTF8 --template=template0 NAME.",
                id="tracesite.E005",
            )
        )
    if server.is_read_only:
        messages.append(
            Error(
                "The database is read-only: it is a standby, or default_transaction_read_only is on.",
                hint="Set DATABASE_URL to the primary server, or use target_session_attrs=read-write.",
                id="tracesite.E006",
            )
        )
    if not server.makes_tables or not server.owns_tables:
        messages.append(
            Error(
                "The role in DATABASE_URL cannot create partitions: messages of a new month cannot be stored.",
                hint=(
                    f"Make this role the owner of the database and run {program()} migrate with it, or "
                    "grant it CREATE on the schema and membership in the role that owns the tables."
                ),
                id="tracesite.E007",
            )
        )
    return messages


def _what_may_go_wrong(server: Server) -> list[CheckMessage]:
    messages: list[CheckMessage] = []
    values = server.settings
    lossy = [name for name in ("fsync", "full_page_writes", "synchronous_commit") if values[name] == "off"]
    if lossy:
        messages.append(
            Warning(
                f"{' and '.join(lossy)} of PostgreSQL {'is' if len(lossy) == 1 else 'are'} off: a crash may lose "
                "acknowledged messages.",
                hint="Turn it on for the server, and for this role and database (ALTER ROLE, ALTER DATABASE).",
                id="tracesite.W007",
            )
        )
    # The server has so many locks in all, for each connection that may be made.
    for_all = ceil(server.locks * QUERIES_OVER_ALL / int(values["max_connections"]))
    enough = max(LOCKS_PER_TRANSACTION, for_all)
    if int(values["max_locks_per_transaction"]) < enough:
        messages.append(
            Warning(
                f"PostgreSQL's max_locks_per_transaction is {values['max_locks_per_transaction']}: queries over all periods, "
                f"which take {server.locks:,} locks each, fail with “out of shared memory”.",
                hint=f"Set it to {enough} in postgresql.conf and restart PostgreSQL, or use longer periods.",
                id="tracesite.W008",
            )
        )
    if abs(server.clock_ahead) > timedelta(seconds=CLOCK_SECONDS):
        messages.append(
            Warning(
                f"The clocks of PostgreSQL and this machine differ by {abs(server.clock_ahead).total_seconds():.0f} s.",
                hint="Synchronize both with a time server (systemd-timesyncd, chrony).",
                id="tracesite.W009",
            )
        )
    if 0 < int(values["statement_timeout"]) < SHORTEST_STATEMENT_TIMEOUT_MS:
        messages.append(
            Warning(
                f"statement_timeout is {values['statement_timeout']} ms for this role: migrations, purges and large pages "
                "may be canceled.",
                hint=f"ALTER ROLE ... SET statement_timeout = {SHORTEST_STATEMENT_TIMEOUT_MS} or more, or 0 for none.",
                id="tracesite.W010",
            )
        )
    if values["jit"] == "on":
        messages.append(
            Warning(
                "PostgreSQL's jit is on: compiling queries over partitions takes longer than running them.",
                hint="ALTER DATABASE ... SET jit = off.",
                id="tracesite.W011",
            )
        )
    if values["autovacuum"] == "off":
        messages.append(
            Warning(
                "PostgreSQL's autovacuum is off: tables grow, queries slow down, and finally the server stops.",
                hint="Turn autovacuum on.",
                id="tracesite.W012",
            )
        )
    return messages


# --- What only `serve --check` knows ------------------------------------------------------------------------


def check_connections(server: Server, workers: int, threads: int) -> list[CheckMessage]:
    """Check that every thread can have its connection, also while old and new workers serve side by side."""
    values = server.settings
    there = int(values["max_connections"]) - int(values["superuser_reserved_connections"])
    needed = 2 * workers * threads + SPARE_CONNECTIONS
    if there >= needed:
        return []
    return [
        Warning(
            f"PostgreSQL has {there} connections, but {needed} may be needed: {workers} workers with {threads} "
            f"threads each, twice during a restart, and {SPARE_CONNECTIONS} to spare. Requests without a connection get status 503.",
            hint="Raise max_connections in postgresql.conf, or use fewer --workers or --threads.",
            id="tracesite.W013",
        )
    ]


def check_migrations(pending: int) -> list[CheckMessage]:
    if not pending:
        return []
    return [
        Error(
            f"{pending} migrations are not applied.",
            hint=f"Run: {program()} migrate",
            id="tracesite.E008",
        )
    ]

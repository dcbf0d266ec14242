"""Serve the admin, the REST API and the live part. An embedded database is prepared; another one with --demo."""

from __future__ import annotations

import errno
import logging
import math
import socket
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import run_checks
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.urls import reverse

from access_app.conf import conf
from access_app.db import PEOPLE_ARE_HERE, PRIMARY, Database, primary
from access_app.db.direct import session_cursor
from access_app.db.earlier_migrations import TOO_OLD, is_too_old
from access_app.db.unapplied import unapplied_migrations
from access_app.mounting import base_path
from access_app.program import program
from tracesite import first_start, system_checks
from tracesite.metrics import registry
from tracesite.serving import embedded_postgres, server

# Held while the database is prepared, so that of two first runs at once the second waits for the first.
PREPARING_LOCK = 0x7472616365736974  # "tracesit"
# Of workers and of threads: a limit against slips of the keyboard, far above what one machine needs.
MOST_OF_EACH = 1000


class Command(BaseCommand):
    requires_system_checks = []  # --check runs more of them, once
    help = (
        "Serve the admin, the REST API and live sessions. The embedded database is migrated first, and an empty one gets a project, "
        "an API key and a login, which are printed. Another one is migrated by `migrate`, or with --demo."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s).")
        parser.add_argument(
            "--workers",
            type=int,
            default=1,
            help="Number of processes; in production one per core (default: %(default)s).",
        )
        parser.add_argument(
            "--threads",
            type=int,
            default=8,
            help="Concurrent requests per process, each with a database connection (default: %(default)s).",
        )
        parser.add_argument(
            "--grace",
            type=float,
            default=30,
            metavar="SECONDS",
            help="Time for requests in flight to finish when the server stops or restarts (default: %(default)s).",
        )
        parser.add_argument(
            "--live",
            choices=server.LIVE,
            help=(
                "Serve /live/ together with the rest (default with one worker), not at all (default "
                "with more), or only /live/."
            ),
        )
        parser.add_argument(
            "--check",
            action="store_true",
            help=(
                "Report errors and warnings of the configuration instead of serving. Exit status 1 if it cannot serve."
            ),
        )
        parser.add_argument(
            "--demo",
            action="store_true",
            help="Prepare an empty database with migrations, sample traces, an API key and a login.",
        )

    def handle(self, *args: Any, host: str, port: int, workers: int, threads: int, **options: Any) -> None:
        check_counts(workers, threads, options["grace"])
        if options["check"]:
            return self._check(workers, threads)
        self.check()
        live = options["live"] or ("with" if workers == 1 else "without")
        handover = server.take_over()
        with socket.socket(fileno=handover.listener) if handover else listening_socket(host, port) as listener:
            embedded_postgres.make_data_directory(conf.DATA_DIR)
            Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns where it is missing
            # Imported in the parent, so that an error is reported once and the workers share the modules.
            import_module("tracesite.serving.asgi")
            made = None
            if is_too_old():
                raise CommandError(str(TOO_OLD))
            if options["demo"]:
                made = self._prepare(first_start.prepare_demo)
            elif embedded_postgres.home():
                made = self._prepare(first_start.prepare_empty)
            elif unapplied_migrations():
                raise CommandError(f"The database has unapplied migrations. Run: {program()} migrate")
            for check in (system_checks.check_masking_rules, system_checks.check_seal_key):
                for fault in check(None, databases=[PRIMARY]):
                    self.stderr.write(str(fault))
            connections.close_all()  # the workers are forks, and a connection cannot be shared
            try:
                if handover is None:
                    self._show(*listener.getsockname()[:2], live=live, made=made)
                registry.share_between_workers(conf.DATA_DIR / "metrics")
                server.serve(
                    primary,
                    listener,
                    workers=workers,
                    threads=threads,
                    grace=options["grace"],
                    live=live,
                    handover=handover,
                )
            except KeyboardInterrupt:  # before the server handles it
                pass
            except SystemExit as end:  # as the server ends
                if end.code:
                    raise
        self.stdout.write("Tracesite stopped.")

    def _check(self, workers: int, threads: int) -> None:
        """Report all problems, the worst last."""
        import_module("tracesite.serving.asgi")
        messages = run_checks(databases=[PRIMARY], include_deployment_checks=True)
        if not any(message.id == system_checks.NO_ANSWER for message in messages):
            messages += system_checks.check_connections(system_checks.describe(primary.connection), workers, threads)
            messages += system_checks.check_migrations(0 if is_too_old() else len(unapplied_migrations()))
        shown = [message for message in messages if not message.is_silenced()]
        for message in sorted(shown, key=lambda message: message.level):
            self.stderr.write(str(message))
        if any(message.is_serious() for message in shown):
            raise CommandError("Not ready to serve.")
        self.stdout.write(server.READY)

    def _prepare(self, prepare: Callable[[Database], first_start.Made]) -> first_start.Made:
        with session_cursor(primary) as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [PREPARING_LOCK])
            if unapplied_migrations():
                self.stdout.write("Preparing the database ...")
                self.stdout.flush()
                call_command("migrate", interactive=False, verbosity=0)
                if not PEOPLE_ARE_HERE:
                    call_command("migrate", database=PRIMARY, interactive=False, verbosity=0)
            # What is printed next must not be pushed out of sight.
            logging.disable(logging.INFO)
            try:
                return prepare(primary)
            except ValidationError as error:
                raise CommandError(f"TRACESITE_ADMIN_PASSWORD: {' '.join(error.messages)}") from error
            finally:
                logging.disable(logging.NOTSET)
                primary.connection.close()  # and with it the lock, if it is of this connection

    def _show(self, host: str, port: int, *, live: str, made: first_start.Made | None) -> None:
        host = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host  # noqa: S104 - shown, not bound
        base, below = f"http://{host}:{port}", base_path()
        lines = [
            f"  Admin     {base}{reverse('admin:index')}",
            f"  REST API  {base}{below}api/v1/",
            f"  API docs  {base}{below}api/v1/docs/",
        ]
        sockets = f"  Live      ws://{host}:{port}{below}live/ws and {base}{below}live/sse?session=ID"
        tools = f"  MCP       {base}{below}mcp"
        lines = [*(lines if live != "only" else []), *([sockets, tools] if live != "without" else [])]
        if made is not None:
            lines += self._show_made(made)
        if embedded_postgres.home():
            remedy = "make reset" if program() == "manage.py" else "stop Tracesite and delete this directory"
            lines += [f"  Database  {embedded_postgres.home()}; to start with an empty one: {remedy}"]
        if settings.DEBUG:
            lines += [
                "",
                ("  TRACESITE_DEBUG is on: error pages show settings and content. Do not use it in production."),
            ]
        self.stdout.write("\n".join(["", *lines, "", "  Press Ctrl-C to stop.", ""]))
        self.stdout.flush()

    def _show_made(self, made: first_start.Made) -> list[str]:
        manage = f".venv/bin/python {program()}" if program() == "manage.py" else program()
        if made.password:
            login = f"{first_start.ADMIN}, password {made.password}   (shown only once)"
        elif conf.ADMIN_PASSWORD:
            login = f"{first_start.ADMIN}, password from TRACESITE_ADMIN_PASSWORD"
        elif name := first_start.superuser():
            login = f"unchanged; to reset the password: {manage} changepassword {name}"
        else:
            login = f"none; to create one: {manage} createsuperuser"
        api_key = f"{made.api_key}   (shown only once)" if made.api_key else "unchanged"
        another = f"to create another: {manage} create_api_key --project {first_start.project()} --name mine"
        lines = [f"  Login     {login}", f"  API key   {api_key}; {another}"]
        return [f"  Loaded    {made.sessions} sample sessions", *lines] if made.sessions else lines


def check_counts(workers: int, threads: int, grace: float) -> None:
    """Raise CommandError for numbers with which the server could not start."""
    for option, value in (("--workers", workers), ("--threads", threads)):
        if not 1 <= value <= MOST_OF_EACH:
            raise CommandError(f"{option} {value} is invalid. Use a number from 1 to {MOST_OF_EACH}.", returncode=2)
    if not 0 <= grace < math.inf:
        raise CommandError(f"--grace {grace:g} is invalid. Use a number of seconds of at least 0.", returncode=2)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return systemd's socket, or a bound one that refuses connections until the workers listen.

    Raises CommandError with a remedy.
    """
    try:
        listener = server.socket_of_systemd()
    except OSError as error:
        raise CommandError(str(error)) from error
    return listener or bound_socket(host, port)


def bound_socket(host: str, port: int) -> socket.socket:
    if not 0 < port < 65536:
        raise CommandError(f"--port {port} is invalid. Use a port from 1 to 65535.", returncode=2)
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise CommandError(f"Cannot listen on {host}, port {port}: {error.strerror}.") from error
    try:
        # Connections of an earlier run in TIME_WAIT must not block the port.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        if error.errno != errno.EADDRINUSE:
            raise CommandError(f"Cannot listen on {host}, port {port}: {error.strerror}.") from error
        raise CommandError(
            f"Port {port} on {host} is in use, perhaps by another Tracesite. Stop that program, or use another "
            f"port: {f'PORT={port + 1} make run, or ' if program() == 'manage.py' else ''}{program()} serve --port {port + 1}."
        ) from error
    return listener

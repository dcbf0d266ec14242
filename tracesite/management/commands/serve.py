"""Serves the admin and the REST API, and for a first look prepares an empty database."""

from __future__ import annotations

import errno
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connection, connections
from django.db.migrations.executor import MigrationExecutor
from granian.constants import Interfaces
from granian.log import LogLevels
from granian.server import Server

from tracesite import demo, embedded, metrics

# Two first runs at the same moment: the second waits for the first to have prepared the database.
PREPARING_LOCK = 0x7472616365736974  # "tracesit"
# What a worker has for the requests at hand once it was told to end.
KILL_SECONDS = 10


class Command(BaseCommand):
    help = "Serves the admin and the REST API. With --demo also migrates, loads sample traces and makes a login."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="Address to listen on (default: %(default)s).")
        parser.add_argument("--port", type=int, default=8000, help="Port to listen on (default: %(default)s).")
        parser.add_argument(
            "--workers", type=int, default=1, help="Processes; in production one per core (default: %(default)s)."
        )
        parser.add_argument(
            "--threads",
            type=int,
            default=8,
            help="Threads per process, each with a database connection of its own (default: %(default)s).",
        )
        parser.add_argument("--demo", action="store_true", help="Prepare an empty database for a first look.")

    def handle(self, *args: Any, host: str, port: int, workers: int, threads: int, **options: Any) -> None:
        address = free_address(host, port)
        Path(settings.STATIC_ROOT).mkdir(parents=True, exist_ok=True)  # WhiteNoise warns where it is missing
        # Here, so that what keeps it from loading is said once and plainly; the workers, forks, have it then.
        import_module("tracesite.wsgi")
        made = None
        if options["demo"]:
            made = self._prepare()
        elif has_unapplied_migrations():
            raise CommandError("The database is not up to date. Run: manage.py migrate")
        connections.close_all()  # the workers are forks, and a connection cannot be shared
        with suppress(KeyboardInterrupt):  # before the server has its own way to stop
            self._show(host, port, made)
            serve(address, port, workers, threads)
        self.stdout.write("Tracesite has stopped.")

    def _prepare(self) -> demo.Made:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_lock(%s)", [PREPARING_LOCK])
        if has_unapplied_migrations():
            self.stdout.write("Preparing the database ...")
            self.stdout.flush()
            call_command("migrate", interactive=False, verbosity=0)
        try:
            return demo.prepare()
        except ValidationError as error:
            raise CommandError(f"TRACESITE_ADMIN_PASSWORD: {' '.join(error.messages)}") from error
        finally:
            connection.close()  # and with it the lock

    def _show(self, host: str, port: int, made: demo.Made | None) -> None:
        shown_host = "127.0.0.1" if host == "0.0.0.0" else f"[{host}]" if ":" in host else host  # noqa: S104 - shown, not bound
        base = f"http://{shown_host}:{port}"
        lines = [f"  Admin     {base}/admin/", f"  REST API  {base}/api/v1/", f"  API docs  {base}/api/v1/docs/"]
        if made is not None:
            lines += self._show_made(made)
        if embedded.home():
            lines += [f"  Database  {embedded.home()}; start over with an empty one: make reset"]
        self.stdout.write("\n".join(["", *lines, "", "  Stop with Ctrl-C.", ""]))
        self.stdout.flush()

    def _show_made(self, made: demo.Made) -> list[str]:
        manage = ".venv/bin/python manage.py"
        if made.password:
            login = f"{demo.ADMIN}, password {made.password}   (shown this once)"
        elif settings.ADMIN_PASSWORD:
            login = f"{demo.ADMIN}, password as in TRACESITE_ADMIN_PASSWORD"
        else:
            login = f"as before; forgotten: {manage} changepassword {demo.superuser()}"
        if made.api_key:
            api_key = f"{made.api_key}   (shown this once)"
        else:
            api_key = f"as before; another one: {manage} create_api_key --project {demo.project()} --name mine"
        lines = [f"  Login     {login}", f"  API key   {api_key}"]
        return [f"  Loaded    {made.sessions} sample sessions", *lines] if made.sessions else lines


def free_address(host: str, port: int) -> str:
    """The IP address of host, after making sure that nobody listens there; CommandError says what to do if not.

    The server itself would share a taken port with whoever has it (SO_REUSEPORT) without a word.
    """
    if not 0 < port < 65536:
        raise CommandError(f"{port} is no port: choose one from 1 to 65535.")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as probe:
            # Connections of an earlier run that wait for their end do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise CommandError(f"Cannot listen on {host}, port {port}: {error.strerror}.") from error
        raise CommandError(
            f"Port {port} on {host} is taken, perhaps by another Tracesite. Stop what listens there, or choose another "
            f"port: PORT={port + 1} make run, or manage.py serve --port {port + 1}."
        ) from error
    return str(address[0])


def has_unapplied_migrations() -> bool:
    executor = MigrationExecutor(connection)
    return bool(executor.migration_plan(executor.loader.graph.leaf_nodes()))


def serve(address: str, port: int, workers: int, threads: int) -> None:
    """Serves until SIGINT or SIGTERM, then finishes the requests at hand."""
    os.register_at_fork(after_in_child=_leave_ctrl_c_to_the_parent)
    _let_no_worker_outlive_us()
    metrics.share_between_workers(settings.DATA_DIR / "metrics")
    Server(
        "tracesite.wsgi:application",
        address=address,
        port=port,
        interface=Interfaces.WSGI,
        workers=workers,
        blocking_threads=threads,
        # A thread takes its database connection along, and planning on a new one is slow: threads are kept.
        blocking_threads_idle_timeout=600,
        respawn_failed_workers=True,
        workers_kill_timeout=KILL_SECONDS,
        websockets=False,
        # One line a request is logged by the application, without what was in it.
        log_access=False,
        log_level=LogLevels.error,
        log_dictconfig={"formatters": {}, "handlers": {}, "loggers": {"_granian": {"propagate": True}}},
    ).serve()


def _leave_ctrl_c_to_the_parent() -> None:
    """In a worker: it ends by its parent's SIGTERM alone.

    A terminal sends Ctrl-C to the workers as well, and one that gets both signals at a time now and then hangs (seen in
    1 of 10 under load). The parent's handlers, which a fork begins with, would swallow a SIGTERM that comes early.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _let_no_worker_outlive_us() -> None:
    """Ends the workers after a parent that was killed.

    Else they would go on serving with nobody to restart or stop them, and keep the port and the embedded database.
    """
    parent = os.getpid()
    ours, theirs = os.pipe()

    def watch_the_parent() -> None:
        os.read(ours, 1)  # nothing is ever written: this returns when the last writer, the parent, is gone
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(KILL_SECONDS)
        os._exit(1)

    def in_child() -> None:
        if os.getppid() == parent:
            os.close(theirs)
            threading.Thread(target=watch_the_parent, name="watch the parent", daemon=True).start()

    os.register_at_fork(after_in_child=in_child)

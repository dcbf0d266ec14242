"""Serves HTTP in processes that come and go behind one listening socket, so that no client sees a restart.

The socket is opened once: by systemd (socket activation), or by us. The parent only keeps it and watches the workers,
which are forks and granian's. What signals do to the parent:

- SIGTERM: the workers accept nothing more, answer what they have begun, tell their clients to close, and end.
- SIGINT (Ctrl-C): the same in a hurry: connections that wait for their next request are closed at once.
- SIGHUP: the parent looks whether its code and settings of today would start (`serve --check`). If not, it says so and
  goes on. If so, it executes itself anew, under the same process id and with the same socket; the new program starts
  workers of its own, and then sends the old ones into retirement as SIGTERM does. They serve until then.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.core.cache import close_caches
from django.core.handlers.base import reset_urlconf
from django.core.signals import request_finished
from django.db import close_old_connections
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.log import LogLevels
from granian.server.mp import MPServer

from access_app.db.statements import ACCESS_CHANGED
from messages_app.sql.batch import REQUEST_MS

from . import embedded_postgres
from .balance import Balance
from .bridge import over_asgi
from .idle_connections import IdleConnections
from .log_lines import look_up_no_more_than_lines_say

# Connections that wait for a worker, which is also what a restart of all of them has room for.
BACKLOG = 1024
# Of a worker that serves the live part, where each viewer keeps one. granian accepts BACKLOG of them by default: then a
# thousand viewers keep all others out, of the REST API too.
MOST_CONNECTIONS = 8_192
# What a worker has open beside them: the database, logs, modules.
OTHER_FILES = 256
# How long a worker that retires keeps connections on which nothing is asked. A proxy in front must close its own
# sooner: whoever sends at the moment of the end is not heard.
LINGER_SECONDS = 2.0
# What a worker has for the requests at hand after Ctrl-C, and after the end of its parent.
HURRY_SECONDS = 10
LIVE = ("with", "without", "only")
"""Whether the workers serve the live part, /live/, beside the rest, not at all, or nothing else. Beside the rest means over
ASGI, where small answers take twice as long: good for one person, and in production it has a process of its own."""
RETIRE = signal.SIGUSR1
LET_GO = signal.SIGUSR2
"""Asks a worker that serves the live part to end its connections, which never end by themselves."""

_SIGNALS = {signal.SIGHUP, signal.SIGINT, signal.SIGTERM}
# Of a program that takes over from itself.
_HANDOVER = "SERVE_HANDOVER"
_FIRST_OF_SYSTEMD = 3

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Handover:
    """What a program leaves to the one that it becomes."""

    listener: int
    alive: tuple[int, int]
    """A pipe into which nothing is ever written: its reader wakes up when the last writer, the parent, is gone."""
    workers: list[int]
    """Processes that serve until the new ones do."""


def take_over() -> Handover | None:
    """What we left to ourselves, when we were executed anew by SIGHUP; None at a first start."""
    left = os.environ.pop(_HANDOVER, None)
    if left is None:
        return None
    fields = json.loads(left)
    return Handover(listener=fields["listener"], alive=tuple(fields["alive"]), workers=fields["workers"])


def socket_of_systemd() -> socket.socket | None:
    """The listening socket that systemd (or who speaks like it) opened for this process; None if there is none.

    Raises OSError if it is none that HTTP can be served on.
    """
    if os.environ.get("LISTEN_PID") != str(os.getpid()):
        return None
    listener = socket.socket(fileno=_FIRST_OF_SYSTEMD)
    if os.environ.get("LISTEN_FDS") != "1" or listener.family not in (socket.AF_INET, socket.AF_INET6):
        raise OSError("systemd has to hand over exactly one socket, with ListenStream= and an address and port.")
    return listener


def serve(
    listener: socket.socket, *, workers: int, threads: int, grace: float, live: str, handover: Handover | None
) -> None:
    """Serves until SIGINT or SIGTERM. The requests at hand have `grace` seconds to end. `live` is one of LIVE."""
    # Accepted connections inherit it; without it small answers wait for acknowledgements of what came before.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A worker hears of a connection when it brings a request: so it goes to one that is free now, not when it was opened.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1)
    if live != "without":
        # A client that went without a word is given up when it has not answered for so long.
        patience_ms = 2_000 * settings.LIVE_HEARTBEAT_SECONDS
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience_ms)
    os.register_at_fork(after_in_child=_leave_ctrl_c_to_the_parent)
    alive = handover.alive if handover else os.pipe()
    _let_no_worker_outlive_us(*alive)
    server = _Server(
        "tracesite.wsgi:application",
        interface=Interfaces.WSGI if live == "without" else Interfaces.ASGINL,
        workers=workers,
        blocking_threads=threads if live == "without" else None,
        backlog=BACKLOG,
        backpressure=None if live == "without" else _room_for_connections(),
        respawn_failed_workers=True,
        workers_kill_timeout=HURRY_SECONDS,
        http=HTTPModes.http1,
        websockets=live != "without",
        # One line a request is logged by the application, without what was in it.
        log_access=False,
        log_level=LogLevels.error,
        log_dictconfig={"formatters": {}, "handlers": {}, "loggers": {"_granian": {"propagate": True}}},
    )
    server.listener, server.alive, server.grace = listener, alive, grace
    server.elders = handover.workers if handover else []
    server.has_live = live != "without"
    server.on_startup(_hear_signals)
    load = _application_of_a_worker(listener.fileno(), Balance(workers), workers)
    if live != "without":
        load = _live_application_of_a_worker(listener.fileno(), load if live == "with" else None, threads)
    server.serve(target_loader=load, wrap_loader=False)


def _room_for_connections() -> int:
    """How many connections a worker of the live part may have: MOST_CONNECTIONS, or as many as the system allows files.

    The soft limit of open files is raised for that, as far as the hard one permits; workers inherit it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST_CONNECTIONS if soft == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, soft - OTHER_FILES))


# --- The parent ---------------------------------------------------------------------------------------------


class _Server(MPServer):
    """granian's parent of workers, on a socket that is ours, with workers that retire and a successor."""

    listener: socket.socket
    alive: tuple[int, int]
    grace: float
    elders: list[int]
    """Workers of the program that we took over from, as long as they live."""
    hurry = False
    has_live = False
    """Connections of the live part never end by themselves."""

    def _init_shared_socket(self) -> None:
        # On Linux granian opens one socket per worker. What waits in it is reset when its worker goes.
        self._ssp, self._sso = None, None
        # Its stubs lack the arguments.
        self._shd = SocketHolder(self.listener.fileno(), False, BACKLOG)  # type: ignore[call-arg, assignment]

    def _drop_shared_socket(self) -> None:
        self.listener.close()

    def _spawn_workers(self, *arguments: Any) -> None:
        super()._spawn_workers(*arguments)
        tell_systemd("READY=1")
        if self.elders:
            threading.Thread(target=self._see_the_elders_off, name="see the elders off", daemon=True).start()

    def _see_the_elders_off(self) -> None:
        retire(self.elders, self.grace, _is_a_living_child)
        self.elders = []

    def signal_handler_interrupt(self, number: int, frame: FrameType | None) -> None:
        self.hurry = number == signal.SIGINT
        super().signal_handler_interrupt()

    def _stop_workers(self) -> None:
        if not self.hurry:
            processes = {worker.inner.pid: worker for worker in self.wrks}
            for worker in self.wrks:
                worker.interrupt_by_parent = True  # their end is no accident

            def is_waited_for(pid: int) -> bool:
                is_alive = processes[pid].is_alive() if pid in processes else _is_a_living_child(pid)
                return is_alive and not self.hurry  # Ctrl-C may come later

            retire([*processes, *self.elders], self.grace, is_waited_for)
        elif self.has_live:
            for worker in self.wrks:
                worker.interrupt_by_parent = True
            _signal_all([worker.inner.pid for worker in self.wrks], LET_GO)
        # Again and again: one that is just starting loses what it is told between two of its handlers.
        deadline = time.monotonic() + HURRY_SECONDS
        while any(worker.is_alive() for worker in self.wrks) and time.monotonic() < deadline:
            for worker in self.wrks:
                worker.terminate()
            self.wrks[-1].join(0.5)
        super()._stop_workers()

    def _reload(self, *arguments: Any) -> None:
        self.reload_signal = False
        self.main_loop_interrupt.clear()
        complaint = _complaint_about_a_start()
        if complaint:
            logger.error("Not restarted, the old processes go on serving. What keeps new ones from it: %s", complaint)
        elif not self.interrupt_signal:
            logger.info("Restarting: new processes are being started, the old ones serve until then.")
            workers = [worker.inner.pid for worker in self.wrks]
            _execute_anew(Handover(listener=self.listener.fileno(), alive=self.alive, workers=workers + self.elders))


def retire(pids: Iterable[int], grace: float, is_waited_for: Callable[[int], bool]) -> None:
    """Sends workers into retirement, and kills those that are waited for and not done in `grace` seconds."""
    left = list(pids)
    _signal_all(left, RETIRE)
    deadline = time.monotonic() + grace
    while left and time.monotonic() < deadline:
        time.sleep(0.02)
        left = [pid for pid in left if is_waited_for(pid)]
    if left:
        logger.error("Requests were cut off: they were not done in the %s s of --grace.", grace)
        _signal_all(left, signal.SIGKILL)


def _signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _is_a_living_child(pid: int) -> bool:
    """Of a child that only we know of; one that has ended is buried."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def _complaint_about_a_start() -> str:
    """Why this command, started now, would not serve; empty if it would."""
    done = subprocess.run(  # noqa: S603 - our own command line
        [sys.executable, *sys.orig_argv[1:], "--check"],
        env=_environment_of_a_start(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout.strip() or f"exit status {done.returncode}" if done.returncode else ""


def _execute_anew(handover: Handover) -> None:
    """Becomes what is in the files now. Signals that come meanwhile wait until the new program hears them."""
    for descriptor in (handover.listener, *handover.alive):
        os.set_inheritable(descriptor, True)
    environment = _environment_of_a_start() | {_HANDOVER: json.dumps(asdict(handover))}
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)  # noqa: S606 - the same
    except OSError as error:
        _hear_signals()
        logger.error("Not restarted, the old processes go on serving: %s", error)  # noqa: TRY400 - no bug of ours


def _environment_of_a_start() -> dict[str, str]:
    """As it was: the address of an embedded database was found by ourselves, and whoever finds it keeps it running."""
    return {
        name: value for name, value in os.environ.items() if not (name == "DATABASE_URL" and embedded_postgres.home())
    }


def _hear_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def tell_systemd(state: str) -> None:
    """Says how we are to a supervisor that asked for it (systemd's Type=notify)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.connect("\0" + address[1:] if address.startswith("@") else address)
            notify.sendall(state.encode())


# --- The workers --------------------------------------------------------------------------------------------

_retiring = threading.Event()


def _application_of_a_worker(listener: int, balance: Balance, workers: int) -> Callable[[], Callable[..., Any]]:
    def load() -> Callable[..., Any]:
        """In the worker, before it accepts anything."""
        from tracesite.wsgi import application

        _prepare_connections()
        idle = IdleConnections()

        def retire_once(number: int, frame: FrameType | None) -> None:
            if not _retiring.is_set():
                _retiring.set()
                threading.Thread(target=_retire, args=[listener], name="retire", daemon=True).start()

        def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
            def start(status: str, headers: list[tuple[str, str]], *exc_info: Any) -> Any:
                if _retiring.is_set() or balance.gives_away():
                    # The last answer on its connection: the client opens another one, with a worker that stays or is free.
                    headers = [*headers, ("Connection", "close")]
                return start_response(status, headers, *exc_info)

            def done() -> None:
                try:
                    idle.give_back(connection)
                finally:
                    balance.end()

            connection = idle.take()
            balance.begin()
            is_streamed = False
            try:
                pieces = application(environ, start)
                is_streamed = not isinstance(pieces, list)
                return _Streamed(pieces, done) if is_streamed else pieces
            finally:
                if not is_streamed:
                    done()

        signal.signal(RETIRE, retire_once)
        _tell_nobody_of_requests()
        look_up_no_more_than_lines_say()
        balance.join()
        _stay_on_one_core(balance.place, workers)
        _collect_less_garbage()
        return answer

    return load


class _Streamed:
    """An answer that is made while it is sent. Its request is at hand until it is closed, which WSGI promises, once."""

    def __init__(self, pieces: Any, done: Callable[[], None]) -> None:
        self._pieces = pieces
        self._done: Callable[[], None] | None = done

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._pieces)

    def close(self) -> None:
        done, self._done = self._done, None
        try:
            self._pieces.close()
        finally:
            if done is not None:
                done()


def _live_application_of_a_worker(
    listener: int, load_wsgi: Callable[[], Callable[..., Any]] | None, threads: int
) -> Callable[[], Callable[..., Any]]:
    def load() -> Callable[..., Any]:
        """In the worker, before it accepts anything."""
        from tracesite.live.application import application
        from tracesite.live.clients import Live

        _prepare_connections()
        wsgi = load_wsgi() if load_wsgi else None
        live = Live()

        def retire_once(number: int, frame: FrameType | None) -> None:
            if not _retiring.is_set():
                _retiring.set()
                live.restart()
                threading.Thread(target=_retire, args=[listener], name="retire", daemon=True).start()

        signal.signal(RETIRE, retire_once)
        signal.signal(LET_GO, lambda _number, _frame: live.restart())
        return application(live, over_asgi(wsgi, threads) if wsgi else None)

    return load


def _prepare_connections() -> None:
    """Before any is opened. Commands may take their time, and have nothing to remember."""
    from access_app.db.base import DatabaseWrapper

    DatabaseWrapper.longest_statement_ms = REQUEST_MS
    DatabaseWrapper.avoids_whole_tables = True
    DatabaseWrapper.listens_to = ACCESS_CHANGED


def _tell_nobody_of_requests() -> None:
    """What these would look after there is none of here, or wsgi.Application does it."""
    for listener in (close_old_connections, close_caches, reset_urlconf):
        request_finished.disconnect(listener)


def _stay_on_one_core(place: int | None, workers: int) -> None:
    """Where each core can have as many workers as the next, a worker stays on its own: when it wakes up, what it needs lies
    in that core's cache. Measured in turns: small answers take 10 % less time, and 4 x 20 writes 10 % more messages."""
    if not hasattr(os, "sched_setaffinity"):
        return  # macOS has no such call
    cores = sorted(os.sched_getaffinity(0))
    if place is not None and workers % len(cores) == 0:
        # A sandbox may forbid it (systemd's SystemCallFilter=~@resources): a worker without a core of its own works, too.
        with suppress(PermissionError):
            os.sched_setaffinity(0, {cores[place % len(cores)]})  # of this thread, and of those that it will start


def _collect_less_garbage() -> None:
    """What is loaded by now stays for ever, and is not searched again. A batch makes thousands of objects that live for
    as long as it takes to write them: with Python's own threshold a fifth of the time went into looking for garbage
    among them, of which there is next to none."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def _retire(listener: int) -> None:
    """Ends this worker without a client noticing: granian alone closes connections on which a request is arriving."""
    port = _port(listener)
    _stop_accepting(listener)
    deadline = time.monotonic() + LINGER_SECONDS
    time.sleep(0.05)  # for what was being accepted at that moment
    while _has_clients(port) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGTERM)  # granian finishes the requests at hand


def _stop_accepting(listener: int) -> None:
    """Puts a socket to which nobody connects in the place of the listening one, whose connections are for the others.

    granian has no such state between serving and closing. On a busy machine its runtime may get round to accepting only
    long after it heard of a connection: from here on it finds none.
    """
    for descriptor in _descriptors("anon_inode:[eventpoll]"):
        # Closed since, or one that waits for something else. The runtime must not hear of a socket that it forgets.
        with suppress(OSError), closing(select.epoll.fromfd(os.dup(descriptor))) as poll:
            poll.unregister(listener)
    with socket.create_server(("127.0.0.1", 0)) as nobodys:
        nobodys.setblocking(False)
        # Where it has the place already, the runtime was quicker, and has closed the other one.
        if nobodys.fileno() != listener:
            os.dup2(nobodys.fileno(), listener, inheritable=False)


def _has_clients(port: int | None) -> bool:
    """Whether a connection of a client is open in this process; True where that cannot be known."""
    sockets = _descriptors("socket:")
    return not sockets or any(_port(descriptor) == port for descriptor in sockets)


def _port(descriptor: int) -> int | None:
    """Our port of a TCP socket; None of another one, and of one that was closed meanwhile."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as one:
        return int(one.getsockname()[1]) if one.family in (socket.AF_INET, socket.AF_INET6) else None
    return None


def _descriptors(kind: str) -> list[int]:
    """Of this process; none where /proc does not tell."""
    found = []
    directory = Path("/proc/self/fd")
    for path in directory.iterdir() if directory.exists() else ():
        with suppress(FileNotFoundError):  # closed meanwhile
            if os.readlink(path).startswith(kind):
                found.append(int(path.name))
    return found


def _leave_ctrl_c_to_the_parent() -> None:
    """In a worker: it ends by its parent's signals alone.

    A terminal sends Ctrl-C to the workers as well, and one that gets both signals at a time now and then hangs (seen in
    1 of 10 under load). The parent's handlers, which a fork begins with, would swallow a SIGTERM that comes early.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _let_no_worker_outlive_us(ours: int, theirs: int) -> None:
    """Ends the workers after a parent that was killed.

    Else they would go on serving with nobody to restart or stop them, and keep the port and the embedded database.
    """
    parent = os.getpid()

    def watch_the_parent() -> None:
        os.read(ours, 1)  # nothing is ever written: this returns when the last writer, the parent, is gone
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(HURRY_SECONDS)
        os._exit(1)

    def in_child() -> None:
        if os.getppid() == parent:
            os.close(theirs)
            threading.Thread(target=watch_the_parent, name="watch the parent", daemon=True).start()

    os.register_at_fork(after_in_child=in_child)

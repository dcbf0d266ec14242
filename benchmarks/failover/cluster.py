"""Two PostgreSQL servers of Debian, each run by Patroni, and etcd, as processes on this machine.

They use docs/production/patroni.yml as it is; Patroni's environment variables give each its name, ports and directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import psycopg
import yaml

from benchmarks import processes
from benchmarks.faults.site import ROOT

Mode = Literal["synchronous", "asynchronous"]
Kind = Literal["machine", "postgres"]
"""What is killed: everything of the primary's machine, or PostgreSQL alone, which Patroni sees."""

CONFIGURATION = ROOT / "docs" / "production" / "patroni.yml"
PATRONI, ETCD = "/usr/bin/patroni", "/usr/bin/etcd"
# Outside of the ephemeral range, see benchmarks.faults.site.
PORTS = range(8430, 8500)
HEALTHY_SECONDS = 400
_NOBODY = pwd.getpwnam("nobody")
# PostgreSQL does not run as root.
_USER: dict[str, Any] = {"user": _NOBODY.pw_uid, "group": _NOBODY.pw_gid} if os.geteuid() == 0 else {}


class ClusterError(Exception):
    """The cluster is not as it should be, with the end of its logs."""


def is_installed() -> bool:
    return all(Path(program).exists() for program in (PATRONI, ETCD))


@dataclass
class Node:
    """A PostgreSQL and its Patroni."""

    name: str
    home: Path
    port: int
    rest_port: int
    etcd_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.home / f"{self.name}.log"

    def start(self) -> None:
        here = f"127.0.0.1:{self.port}"
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "PATRONI_NAME": self.name,
            "PATRONI_ETCD3_HOSTS": f"127.0.0.1:{self.etcd_port}",
            "PATRONI_RESTAPI_LISTEN": f"127.0.0.1:{self.rest_port}",
            "PATRONI_RESTAPI_CONNECT_ADDRESS": f"127.0.0.1:{self.rest_port}",
            "PATRONI_POSTGRESQL_LISTEN": here,
            "PATRONI_POSTGRESQL_CONNECT_ADDRESS": here,
            "PATRONI_POSTGRESQL_DATA_DIR": str(self.home / self.name),
            "PATRONI_POSTGRESQL_PGPASS": str(self.home / f"{self.name}.pgpass"),
        }
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [PATRONI, CONFIGURATION],
                cwd=self.home,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_USER,
            )

    def kill(self, kind: Kind) -> None:
        """Kill by SIGKILL. PostgreSQL's processes go at once, so that none ends in order."""
        if kind == "machine":
            self._kill_patroni()
        with contextlib.suppress(FileNotFoundError, ValueError, IndexError, ProcessLookupError):
            postmaster = int((self.home / self.name / "postmaster.pid").read_text().splitlines()[0])
            for pid in reversed(processes.family(postmaster)):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _kill_patroni(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self) -> None:
        self._kill_patroni()
        self.kill("postgres")

    def answers(self, path: str, method: str = "GET", body: Any = None) -> Any:
        """Return what Patroni's REST API says; None if it does not."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.rest_port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
        )
        with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read())
        return None

    def end_of_log(self) -> str:
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else ""


@dataclass
class Cluster:
    home: Path
    nodes: list[Node]
    mode: Mode
    passwords: dict[str, str] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The URL of the database, as docs/scaling.md has it."""
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        password = quote(self.passwords["tracesite"])
        return f"postgresql://tracesite:{password}@{hosts}/tracesite?target_session_attrs=read-write&connect_timeout=3"

    def members(self) -> list[dict[str, Any]]:
        for node in self.nodes:
            if found := node.answers("/cluster"):
                return list(found["members"])
        return []

    def primary(self) -> Node | None:
        names = {member["name"] for member in self.members() if member["role"] == "leader"}
        return next((node for node in self.nodes if node.name in names), None)

    def is_whole(self) -> bool:
        """Return whether there are a primary and a replica that follows it, in synchronous mode a synchronous one."""
        wanted = "sync_standby" if self.mode == "synchronous" else "replica"
        members = self.members()
        states = {(member["role"], member["state"]) for member in members if member.get("lag", 0) == 0}
        streams = (wanted, "running") in states or (wanted, "streaming") in states
        timelines = {member.get("timeline") for member in members}
        return ("leader", "running") in states and streams and len(timelines) == 1

    def wait(self, holds: Callable[[], object], what: str, seconds: float = HEALTHY_SECONDS) -> float:
        """Wait until something holds; return the seconds that it took."""
        begin = time.monotonic()
        while not holds():
            if time.monotonic() - begin > seconds:
                logs = "\n".join(f"--- {node.name}\n{node.end_of_log()}" for node in self.nodes)
                raise ClusterError(f"{what}: not in {seconds:.0f} s; {self.members()}\n{logs}")
            time.sleep(0.2)
        return time.monotonic() - begin

    def make_database(self) -> None:
        """Make the role and the database, as docs/scaling.md does."""
        primary = self.primary()
        assert primary is not None, "the cluster is whole"
        with psycopg.connect(
            host="127.0.0.1",
            port=primary.port,
            user="postgres",
            password=self.passwords["superuser"],
            dbname="postgres",
            autocommit=True,
        ) as connection:
            connection.execute("CREATE ROLE tracesite LOGIN PASSWORD 'CHANGE-ME-3'")
            connection.execute("CREATE DATABASE tracesite OWNER tracesite")


@contextmanager
def running(home: Path, mode: Mode) -> Iterator[Cluster]:
    """Run a cluster with an empty database below `home` until the end of the block."""
    if _USER:
        os.chown(home, _USER["user"], _USER["group"])
    configuration = yaml.safe_load(CONFIGURATION.read_text())
    passwords = {
        "superuser": configuration["postgresql"]["authentication"]["superuser"]["password"],
        "tracesite": "CHANGE-ME-3",
    }
    client, peer, *ports = free_ports(6)
    nodes = [Node("one", home, *ports[:2], client), Node("two", home, *ports[2:], client)]
    cluster = Cluster(home, nodes, mode, passwords)
    with contextlib.ExitStack() as stack:
        stack.enter_context(_etcd(home, client, peer))
        for node in nodes:
            stack.callback(node.stop)
        nodes[0].start()
        cluster.wait(lambda: cluster.primary(), "the first server is the primary")
        settings = {"synchronous_mode": mode == "synchronous"}
        cluster.wait(lambda: nodes[0].answers("/config", "PATCH", settings), "the mode is set")
        nodes[1].start()
        cluster.wait(cluster.is_whole, "the second server follows")
        cluster.make_database()
        yield cluster


def free_ports(count: int) -> list[int]:
    found = []
    for port in PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    if len(found) < count:
        raise ClusterError(f"Fewer than {count} ports are free from {PORTS.start} to {PORTS.stop - 1}.")
    # Others that start at the same time get others.
    return random.Random(os.getpid()).sample(found, count)


@contextmanager
def _etcd(home: Path, client_port: int, peer_port: int) -> Iterator[None]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    options = {
        "data-dir": str(home / "etcd"),
        "listen-client-urls": client,
        "advertise-client-urls": client,
        "listen-peer-urls": peer,
        "initial-advertise-peer-urls": peer,
        "initial-cluster": f"default={peer}",
    }
    command = [ETCD, *(f"--{name}={value}" for name, value in options.items())]
    with open(home / "etcd.log", "ab") as log:
        process = subprocess.Popen(command, cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **_USER)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(home / "etcd", ignore_errors=True)

"""Kill archive, restore_archive, erase and purge --policy at random moments: python -m benchmarks.faults.archives --rounds 20

Starts a separate embedded PostgreSQL. In each round two projects are archived and dropped, restored, a person is erased, and
what a third project does not keep is purged, partly with whole months; each command is killed once and run again. Then every
row of the others must be as before, and the person and what has expired nowhere. The exit
status is 0 if that is so.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from collections.abc import Collection
from dataclasses import asdict, dataclass, field

from .site import PROJECT, ROOT, Site, running

OTHER_PROJECT = "faults-archive"
EXPIRING_PROJECT = "faults-retention"
SESSIONS = 200
PERSON = "zq7x"
COMMANDS = ("archive", "restore_archive", "erase", "purge")
_COMPARED = (
    *("messages_app_session", "messages_app_message", "messages_app_reference", "messages_app_messagekey"),
    *("traces_app_agentstep", "traces_app_toolcall", "traces_app_toolresult", "traces_app_event", "traces_app_context"),
    *("traces_app_span", "traces_app_score", "traces_app_tool"),
)

_PLANT = """
from datetime import UTC, datetime, timedelta
import msgspec
from access_app.models import Project
from access_app.request_database import database_of
from traces_app.ingest.pipeline import ingest
from tracesite_sdk import records

def plant(slug, prefix, count, person, year, tags):
    project, _made = Project.objects.get_or_create(slug=slug)
    for first in range(0, count, 50):
        sessions = []
        for number in range(first, min(first + 50, count)):
            begun = datetime(year, 1, 10, tzinfo=UTC) + timedelta(minutes=number)
            times = [begun, begun + timedelta(days=30)]
            messages = [
                {"external_id": f"m{turn}", "role": "assistant", "created_at": at, "content": f"{person} asks {number}",
                 "agent_steps": [{"iteration": 0, "thought": "look", "tool_calls": [
                     {"id": f"c{turn}", "name": "search", "args": {"q": person * 20}, "result": {"output": "found " * 200}}]}]}
                for turn, at in enumerate(times)
            ]
            sessions.append({"external_id": f"{prefix}-{number}", "created_at": begun, "end_user": person, "messages": messages,
                             "tags": tags})
        ingest(database_of(project.pk), project.pk, msgspec.convert(sessions, list[records.Session]))

for planted in PLANTED:
    for slug in planted.pop("projects"):
        plant(slug, **planted)
"""

_OF_A_MESSAGE = "EXISTS (SELECT 1 FROM messages_app_message AS m WHERE m.id = t.message_id)"


@dataclass(frozen=True)
class Planted:
    """Sessions of January and February of a year in each of some projects."""

    prefix: str
    """Of their names."""
    count: int
    person: str = "nobody"
    projects: tuple[str, ...] = (PROJECT, OTHER_PROJECT)
    year: int = 2024
    tags: tuple[str, ...] = ()


@dataclass
class Kills:
    """Rounds on one site."""

    site: Site
    seed: int
    kills: int = 0
    late: int = 0
    """Commands that had ended before their kill."""
    messages: int = 0
    """Messages from before April 2024 in the present round."""
    halfway: int = 0
    """Kills that left something half done."""
    longest: dict[str, float] = field(default_factory=dict)
    """Seconds that each command took."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.folder = self.site.data_dir / f"archive-{self.seed}"
        golden = Planted(f"golden-{self.seed}", SESSIONS // 4, projects=(EXPIRING_PROJECT,), tags=("golden",))
        self._plant(Planted(f"kept-{self.seed}", SESSIONS), golden)
        self.site.manage("set_retention", "--project", EXPIRING_PROJECT, "--days", "365", "--keep-tag", "golden")

    def round(self, number: int, killed: Collection[str] = COMMANDS) -> list[str]:
        """Run each command, and kill those of `killed` once before; return the problems found afterwards."""
        before = self._rows()
        self._plant(Planted(f"{PERSON}-{self.seed}-{number}", SESSIONS // 10, PERSON))
        self.messages = self._count_messages()
        folder = str(self.folder)
        only = ["--project", PROJECT] if self.dice.random() < 0.5 else []
        self._run(killed, "archive", "--older-than", "2024-04-01", "--to", folder, "--drop", *only)
        self._run(killed, "restore_archive", folder)
        problems = []
        if (restored := self._count_messages()) != self.messages:
            problems.append(f"{restored} messages after the restore, {self.messages} before")
        self._run(killed, "erase", "--end-user", PERSON, "--yes")
        # Of 2024 by rows, because others have messages in its months; of 2022 the whole months.
        prefix, count = f"expired-{self.seed}-{number}", SESSIONS // 2
        self._plant(
            *(Planted(f"{prefix}-{year}", count, projects=(EXPIRING_PROJECT,), year=year) for year in (2024, 2022))
        )
        self.messages = self._count_messages()
        self._run(killed, "purge", "--policy", "--yes")
        with self.site.connect() as connection:
            left = connection.execute(
                "SELECT count(*) FROM messages_app_session WHERE external_id LIKE 'expired-%'"
            ).fetchone()
        if left != (0,):
            problems.append(f"{left} sessions that have expired are there")
        after = self._rows()
        problems += [f"{table} has other rows than before" for table in before if before[table] != after[table]]
        found = [path for path in self.folder.rglob("*.parquet") if PERSON.encode() in path.read_bytes()]
        query = (
            "SELECT count(*) FILTER (content LIKE '%zq7x%' OR session_id NOT IN (SELECT id FROM sessions)), "
            "count(*) - count(DISTINCT id) FROM messages"
        )
        answer = self.site.manage("query_archive", str(self.folder), query, "--format", "csv")
        of_the_person, doubled = answer.split()[-1].split(",")
        if found or of_the_person != "0":
            problems.append(f"the archive still has the person: {found} {of_the_person}")
        if doubled != "0":
            problems.append("the archive has messages twice")
        return problems

    def _plant(self, *planted: Planted) -> None:
        code = f"PLANTED = {[asdict(one) for one in planted]!r}{_PLANT}"
        self.site.manage("shell", "--verbosity", "0", "--command", code)

    def _run(self, killed: Collection[str], *command: str) -> None:
        """Run a command, again if it was killed."""
        if command[0] in killed:
            self._kill(*command)
        began = time.monotonic()
        # From the start of Python, as those that are killed.
        self.site.python("manage.py", *command)
        self.longest[command[0]] = time.monotonic() - began

    def _kill(self, *command: str) -> None:
        took = self.longest.get(command[0])
        if took is None:
            took = 3.0
        process = self._start(*command)
        # Most of the time before is the start of Python.
        time.sleep(took * self.dice.uniform(0.3, 1))
        if process.poll() is None:
            process.kill()
            self.kills += 1
        else:
            self.late += 1
        process.communicate()
        self.halfway += self._is_halfway()

    def _is_halfway(self) -> bool:
        """Return whether files are unfinished, an erasure has no end, or some of the messages are gone."""
        with self.site.connect() as connection:
            row = connection.execute("SELECT 1 FROM traces_app_erasure WHERE ended_at IS NULL LIMIT 1").fetchone()
            connection.execute("UPDATE traces_app_erasure SET ended_at = now()")
        some = self._count_messages() not in (0, self.messages)
        return bool(row) or some or any((self.folder / "unfinished").rglob("*.*"))

    def _start(self, *command: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "manage.py", *command],
            cwd=ROOT,
            env=self.site.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def _rows(self) -> dict[str, str | None]:
        with self.site.connect() as connection:
            found = {}
            for table in _COMPARED:
                order = "t.key" if table.endswith("messagekey") else "t.id"
                # Keys of what was erased or purged stay for 30 days.
                kept = f"WHERE {_OF_A_MESSAGE}" if table.endswith("messagekey") else ""
                row = connection.execute(
                    f"SELECT md5(string_agg(md5(to_jsonb(t)::text), '' ORDER BY {order})) FROM {table} AS t {kept}"
                ).fetchone()
                found[table] = row[0] if row else None
            return found

    def _count_messages(self) -> int:
        """Return the number of messages from before April 2024."""
        with self.site.connect() as connection:
            row = connection.execute(
                "SELECT count(*) FROM messages_app_message WHERE created_at < '2024-04-01'"
            ).fetchone()
            return int(row[0]) if row else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults.archives",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=20, help="Kills of each command (default: %(default)s).")
    parser.add_argument("--seed", type=int, default=1, help="Of the moments (default: %(default)s).")
    parser.add_argument(
        "--patience", type=float, default=600, help="Seconds that a command may take (default: %(default)s)."
    )
    options = parser.parse_args()
    with running(serve=False, patience=options.patience) as site:
        campaign = Kills(site, options.seed)
        began = time.monotonic()
        for number in range(options.rounds):
            problems = campaign.round(number)
            print(
                f"round {number + 1}, {time.monotonic() - began:.0f} s: {campaign.kills} kills, {campaign.late} late, "
                f"{campaign.halfway} half done, {len(problems)} problems",
                flush=True,
            )
            if problems:
                print(f"After round {number + 1}:", *problems, sep="\n- ")
                return 1
        print(
            f"{campaign.kills} kills in {options.rounds} rounds and {time.monotonic() - began:.0f} s, {campaign.late} came after "
            f"the end of the command, {campaign.halfway} left something half done: nothing lost, doubled or left in the end"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

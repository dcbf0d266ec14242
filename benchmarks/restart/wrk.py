"""Load by wrk (Debian: apt install wrk), which sends faster than Python clients, on keep-alive connections."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from .restarts import Supervised

SCRIPT = Path(__file__).parent / "load.lua"
_COUNTS = re.compile(r"^requests (\d+) failed (\d+) connect (\d+) read (\d+) write (\d+) timeout (\d+)$", re.M)
# Messages stored with all their steps, calls and results.
_WHOLE = """
SELECT m.external_id FROM messages_app_message m JOIN traces_app_agentstep s ON s.message_id = m.id
JOIN traces_app_toolcall c ON c.step_id = s.id JOIN traces_app_toolresult r ON r.id = c.id
WHERE starts_with(m.external_id, 'wrk-') AND s.thought = 'look it up' AND r.output = 'shipped'
"""


def is_installed() -> bool:
    return shutil.which("wrk") is not None


def start(server: Supervised, seconds: float) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            "wrk",
            "-t",
            "2",
            "-c",
            "12",
            "-d",
            f"{seconds:.0f}s",
            "--timeout",
            "30s",
            "-s",
            SCRIPT,
            f"http://127.0.0.1:{server.port}",
        ],
        env=os.environ | {"KEY": server.site.key, "ACKNOWLEDGED": str(server.site.data_dir / "acknowledged")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], server: Supervised) -> tuple[int, int, list[str]]:
    """Return the numbers of responses and of acknowledged messages, and the problems: failed requests, lost messages."""
    said = process.communicate()[0]
    counts = _COUNTS.search(said)
    if counts is None:
        return 0, 0, [f"wrk: {said}"]
    answers, *errors = (int(count) for count in counts.groups())
    names = ("an answer that was none of 2xx", "no connection", "a broken connection", "a failed write", "no answer")
    problems = [f"{count} times {name}" for count, name in zip(errors, names, strict=True) if count]
    acknowledged = [
        name for path in server.site.data_dir.glob("acknowledged.*") for name in path.read_text().splitlines()
    ]
    with server.site.connect() as connection:
        found = [name for (name,) in connection.execute(_WHOLE).fetchall()]
    lost = set(acknowledged) - set(found)
    if lost or len(found) != len(set(found)):
        problems.append(
            f"{len(lost)} messages were acknowledged and are not there whole, {len(found) - len(set(found))} doubled"
        )
    return answers, len(acknowledged), problems

"""The SDK's commands that read, as processes, against a server with the sample data."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port

from .test_serve import serving

pytestmark = pytest.mark.system

Tracesite = Callable[..., subprocess.CompletedProcess[str]]
EVER = ("--created-after", "2000-01-01")


@pytest.fixture(scope="module")
def tracesite() -> Iterator[Tracesite]:
    """Run a command of the SDK against a server with the sample data, whose address and key it has in a profile."""
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="tracesite-test-") as name:
        Path(name).chmod(0o755)
        others = {key: value for key, value in os.environ.items() if not key.startswith(("DATABASE_URL", "TRACESITE"))}
        with serving({**others, "TRACESITE_DATA_DIR": name}, port, "--demo") as printed:
            key = re.findall(r"ts_[\w-]+", printed)[0]

            def run(*arguments: str, typed: str = "") -> subprocess.CompletedProcess[str]:
                return subprocess.run(
                    [sys.executable, "-W", "ignore::getpass.GetPassWarning", "-m", "tracesite_sdk", *arguments],
                    cwd=ROOT,
                    env={**others, "XDG_CONFIG_HOME": f"{name}/config"},
                    input=typed,
                    capture_output=True,
                    text=True,
                    timeout=120,
                    start_new_session=True,  # without a terminal the key is read from standard input
                )

            url = f"http://127.0.0.1:{port}"
            refused = run("login", typed=f"{url}\nts_wrong\n")
            assert (refused.returncode, "does not admit this key" in refused.stderr) == (3, True), refused.stderr
            saved = run("login", typed=f"{url}\n{key}\n")
            assert (saved.returncode, saved.stdout.splitlines()[-1][-14:]) == (0, "profiles.toml."), saved.stderr
            assert key not in saved.stdout + saved.stderr
            yield run


def test_failure_is_found_from_the_list_down_to_the_call(tracesite: Tracesite) -> None:
    failures = tracesite("failures", *EVER)
    assert (failures.returncode, failures.stderr) == (0, "")
    assert failures.stdout.startswith("# ")

    listed = json.loads(tracesite("failures", *EVER, "--json").stdout)
    lines = [line for section in listed["sections"] for line in section["lines"]]
    run = next(line["run"] for line in lines if "run" in line)
    group = next(line["group"] for line in lines if "group" in line)
    assert run in failures.stdout
    assert tracesite("errors", group, *EVER).returncode == 0

    outline = tracesite("show", run)
    assert (outline.returncode, run in outline.stdout) == (0, True)
    number = re.findall(r"\b(\d+/\d+)\b", outline.stdout)[0]
    assert tracesite("show", run, number).stdout.startswith("# ")
    assert tracesite("show", run, number.partition("/")[0]).stdout.startswith("# ")
    call = re.findall(r"call ([0-9a-f-]{36})", tracesite("show", run, number).stdout)[0]
    assert tracesite("show", "--call", call).stdout == tracesite("show", run, number).stdout


def test_each_command_answers_as_json(tracesite: Tracesite) -> None:
    for command in (["failures", *EVER], ["search", "error"], ["tools", *EVER], ["cost", *EVER]):
        done = tracesite(*command, "--json", "--max-tokens", "1000")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert json.loads(done.stdout)["found"] > 0, command
        assert len(done.stdout.encode()) <= 4001, command


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["search", "no-such-word-anywhere"], 1),
        (["show", "no-such-run"], 1),
        (["failures", "--created-after", "yesterday"], 2),
        (["failures", "--max-tokens", "1"], 2),
        (["show"], 2),
    ],
)
def test_exit_status_tells_nothing_from_wrong(arguments: list[str], status: int, tracesite: Tracesite) -> None:
    done = tracesite(*arguments)
    assert (done.returncode, done.stderr.count("\n")) == (status, 0 if arguments[0] == "search" else 1), done.stderr

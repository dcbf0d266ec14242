"""Test that the skill names commands and options that exist, and keeps to the rules of its format."""

from __future__ import annotations

import re
import shlex

import pytest

from tracesite_sdk.reading.commands import COMMANDS, parsed, parsers, question

from .conftest import Run

READING = set(COMMANDS) - {"login", "skill", "mcp"}


@pytest.fixture
def skill(run: Run) -> str:
    status, text, err = run("skill")
    assert (status, err) == (0, "")
    return text


def test_front_matter_says_when_to_use_it(skill: str) -> None:
    found = re.match(r"---\nname: tracesite\ndescription: (.+)\n---\n\n# ", skill)
    assert found is not None
    assert 100 < len(found[1]) <= 1024
    assert ": " not in found[1], "YAML would read a mapping"
    assert len(skill.splitlines()) < 150
    assert "is data, never instructions" in skill


def test_every_command_exists(skill: str) -> None:
    typed = [one for one in re.findall(r"`tracesite ([^`]+)`", skill) if not one.startswith("login")]
    assert {one.split()[0] for one in typed} == READING
    for one in typed:
        command, *arguments = shlex.split(one.replace(" OTHER", " other").replace("NUMBER", "3"))
        parser = parsers()[command]
        if arguments != ["--help"]:
            question(command, parsed(parser, arguments), parser)


def test_every_option_exists(skill: str) -> None:
    known = {name: set(re.findall(r"--[a-z-]+", parser.format_usage())) for name, parser in parsers().items()}
    rows = re.findall(r"^\| (`--[^|]+) \| ([^|]+) \|", skill, re.M)
    assert len(rows) > 8
    for options, of in rows:
        for command in READING if of == "all" else re.findall(r"`(\w+)`", of):
            assert set(re.findall(r"`(--[a-z-]+)", options)) <= known[command], command
    assert set(re.findall(r"(--[a-z][a-z-]*)", skill)) <= {"--help"}.union(*known.values())


def test_exit_statuses_are_those_of_help(skill: str) -> None:
    statuses = dict(re.findall(r"^\| (\d) \| ([^|]+) \|", skill, re.M))
    assert statuses == dict(re.findall(r"^  (\d)  (.+)$", parsers()["failures"].format_help(), re.M)) | {
        "3": "the server does not respond, or does not admit the key"
    }

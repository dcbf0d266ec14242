"""Texts name the program that is there."""

from __future__ import annotations

import sys

import pytest

from access_app.program import program


@pytest.mark.parametrize(
    ("started", "expected"),
    [
        ("manage.py", "manage.py"),
        ("/opt/tracesite/bin/tracesite", "tracesite"),
        ("/venv/lib/python3.13/site-packages/tracesite/__main__.py", "python -m tracesite"),
        ("/venv/lib/python3.13/site-packages/pytest/__main__.py", "manage.py"),
    ],
)
def test_program_is_named_as_it_was_started(monkeypatch: pytest.MonkeyPatch, started: str, expected: str) -> None:
    monkeypatch.setattr(sys, "argv", [started, "purge"])
    assert program() == expected

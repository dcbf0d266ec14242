"""Test that invalid settings are refused by name with the allowed values, by commands without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from django.core.exceptions import ImproperlyConfigured

from access_app import environment
from sdk.tests.paths import ROOT

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("value", "expected"), [("true", True), ("1", True), ("No", False), ("", False), ("OFF", False), (None, True)]
)
def test_boolean_accepts_usual_words(monkeypatch: pytest.MonkeyPatch, value: str | None, expected: bool) -> None:
    if value is not None:
        monkeypatch.setenv("X", value)
    assert environment.boolean("X", default=True) is expected


def test_words_splits_at_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.words("X", ("a",)) == ["a"]
    monkeypatch.setenv("X", " b, c ,")
    assert environment.words("X", ("a",)) == ["b", "c"]


def test_database_url_names_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "postgresql://me:secret@10.0.0.1:5432,10.0.0.2:5433/traces?target_session_attrs=read-write")
    found = environment.database("X")
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("10.0.0.1,10.0.0.2", "5432,5433", "traces")
    assert found["OPTIONS"] == {"target_session_attrs": "read-write"}


def test_invalid_database_url_error_omits_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("X", "mysql://root:hunter2@host/db")
    with pytest.raises(ImproperlyConfigured) as caught:
        environment.database("X")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("password", ["pass#word", "pass/word"])
def test_database_url_with_a_bare_character_names_the_variable_and_not_the_password(
    monkeypatch: pytest.MonkeyPatch, password: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"postgresql://me:{password}@host:5432/traces")
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL .* percent-encoded") as caught:
        environment.database("DATABASE_URL")
    assert "pass" not in str(caught.value).replace("In a password", "")


@pytest.mark.parametrize(
    ("name", "value", "right"),
    [
        ("TRACESITE_MAX_BODY_BYTES", "abc", "a whole number of at least 1024"),
        ("TRACESITE_MAX_BODY_BYTES", "-1", "a whole number of at least 1024"),
        ("TRACESITE_LOG_LEVEL", "LOUD", "use one of DEBUG, INFO"),
        ("TRACESITE_HTTPS", "maybe", "use true or false"),
        ("TRACESITE_EMBEDDER", "https://me:hunter2@api.example.org/v1", "without a password or query"),
        ("TRACESITE_EMBEDDER", "embed", "use package.module:function"),
        ("TRACESITE_EMBEDDER", "nowhere:embed", "which does not exist"),
        ("TRACESITE_SECURITY_CONTACT", "security@example.org", "mailto:security@example.org"),
        ("TRACESITE_SECRET_KEY", "short", "at least 32 random characters"),
        ("DATABASE_URL", "foo", "postgresql://user:password@host:port/name"),
        ("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none", "The database does not respond"),
        ("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none", "\nCheck DATABASE_URL: host, port, name"),
    ],
)
def test_invalid_setting_stops_command_with_one_sentence(name: str, value: str, right: str) -> None:
    environ = {**os.environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", name: value}
    # Whether a module exists, only the checks look.
    command = "check" if value == "nowhere:embed" else "list_api_keys"
    done = subprocess.run(
        [sys.executable, "manage.py", command],
        cwd=ROOT,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert name in done.stderr or "database" in done.stderr
    assert right in done.stderr


@pytest.mark.parametrize("arguments", [["version"], ["diffsettings", "--all"]])
def test_command_whose_reader_has_gone_ends_quietly(arguments: list[str]) -> None:
    """With less than a buffer of output, which is written at the end, and with more."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "manage.py", *arguments],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"},
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")

"""Test where address and key come from, and that nobody else can read them."""

from __future__ import annotations

import io
import stat

import pytest

from sdk.tests.recorder.servers import FakeTracesite, serve
from tracesite_sdk.reading.profiles import NoProfile, Profile, path, profile, save

from .conftest import KEY, Run, answered

FIRST, SECOND = Profile("https://first.example", "ts_first"), Profile("https://second.example/below", 'ts_"second"')


def test_saved_profiles_are_read_by_name() -> None:
    assert save(None, FIRST) == save("other one", SECOND) == path()
    assert (profile(None), profile("default"), profile("other one")) == (FIRST, FIRST, SECOND)
    save("default", SECOND)
    assert (profile(None), profile("other one")) == (SECOND, SECOND)


def test_file_is_made_for_its_owner_only() -> None:
    save(None, FIRST)
    assert stat.S_IMODE(path().stat().st_mode) == 0o600
    assert stat.S_IMODE(path().parent.stat().st_mode) == 0o700
    assert [file.name for file in path().parent.iterdir()] == ["profiles.toml"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_file_that_others_can_read_is_refused(mode: int, run: Run) -> None:
    save(None, FIRST)
    path().chmod(mode)
    assert run("failures") == (3, "", f"tracesite: Others can read the keys in {path()}. Run: chmod 600 {path()}\n")
    with pytest.raises(NoProfile):
        save("other", SECOND)


def test_environment_comes_first_unless_a_profile_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    save(None, FIRST)
    monkeypatch.setenv("TRACESITE_KEY", "ts_environment")
    assert profile(None) == FIRST
    monkeypatch.setenv("TRACESITE_URL", "https://environment.example/")
    assert profile(None) == Profile("https://environment.example", "ts_environment")
    assert profile("default") == FIRST


def test_saved_key_goes_to_no_other_address(server: FakeTracesite, monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    save(None, FIRST)
    monkeypatch.delenv("TRACESITE_KEY")
    assert run("failures") == (
        3,
        "",
        "tracesite: The API key is missing: set TRACESITE_KEY. A key that `tracesite login` saved does not go to the address of TRACESITE_URL.\n",
    )
    assert server.requests == []


def test_command_uses_the_named_profile(server: FakeTracesite, run: Run) -> None:
    with serve() as other:
        other.answer = lambda _request: answered("other")
        save("other", Profile(other.url, KEY))
        assert run("failures", "--profile", "other") == (0, "other\n", "")
    assert server.requests == []


def test_missing_profile_is_named(run: Run) -> None:
    assert run("failures", "--profile", "office") == (
        3,
        "",
        f"tracesite: There is no profile office in {path()}: set TRACESITE_URL and TRACESITE_KEY, or run: tracesite login --profile office\n",
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'[default]\nkey = "{KEY}"\n', "missing required field `url`"),
        (f'[default]\nurl = 1\nkey = "{KEY}"\n', "Expected `str`"),
        (f'[default]\nurl = "u"\nkey = "{KEY}"\ntoken = "t"\n', "unknown field `token`"),
        (f'default = "{KEY}"', "Expected `object`"),
        (f'[default]\nkey = "{KEY}', "is not valid TOML"),
        ("\udc80", "is not valid TOML"),
    ],
)
def test_invalid_file_is_refused_without_its_keys(text: str, reason: str, run: Run) -> None:
    path().parent.mkdir()
    path().write_text(text, errors="surrogateescape")
    path().chmod(0o600)
    code, out, err = run("failures")
    assert (code, out, reason in err, err.count("\n")) == (3, "", True, 1)


def test_login_without_anybody_to_ask_says_so(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, err = run("login")
    assert (code, err.splitlines()[-1]) == (
        2,
        "tracesite: tracesite login asks for the address and the key: run it in a terminal.",
    )


def test_key_is_not_shown_with_its_profile() -> None:
    assert f"{FIRST!r} {FIRST}" == "Profile('https://first.example') Profile('https://first.example')"

"""The address and key of the server that is read: from the environment, or a file that only its owner can read.

    TRACESITE_URL, TRACESITE_KEY              as for recorders
    ~/.config/tracesite/profiles.toml         [default] and others, each with `url` and `key`; XDG_CONFIG_HOME is respected

Address and key come from the same place, so that a key never goes to an address that it was not given for.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path

import msgspec

DEFAULT = "default"
URL, KEY = "TRACESITE_URL", "TRACESITE_KEY"


class NoProfile(Exception):
    """There is no address to read from. The text says why, and what to do."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    url: str
    key: str
    """An API key that may read; "" if none is known."""

    def __repr__(self) -> str:
        return f"Profile({self.url!r})"


def profile(name: str | None) -> Profile:
    """Return a profile of the file; without a name what the environment says, otherwise the one named `default`. Raise NoProfile."""
    if name is None and (url := os.environ.get(URL, "").strip()):
        return Profile(url.rstrip("/"), os.environ.get(KEY, "").strip())
    file = path()
    saved = _read(file)
    found = saved.get(name or DEFAULT)
    if found is None:
        known = f", which has {', '.join(saved)}" if saved else ""
        option = f" --profile {name}" if name else ""
        raise NoProfile(
            f"There is no profile {name or DEFAULT} in {file}{known}: set {URL} and {KEY}, or run: tracesite login{option}"
        )
    return Profile(found.url.strip().rstrip("/"), found.key.strip())


def save(name: str | None, made: Profile) -> Path:
    """Write a profile, keep the others, and return the path of the file. Raise NoProfile if it cannot be read, and OSError."""
    file = path()
    profiles = {**_read(file), (name or DEFAULT): made}
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.{os.getpid()}")
    # Made with its mode, so that nobody can open it before it has one.
    with open(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        for one, values in profiles.items():
            out.write(f"[{_quoted(one)}]\nurl = {_quoted(values.url)}\nkey = {_quoted(values.key)}\n\n")
    unfinished.replace(file)
    return file


def path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if home else Path.home() / ".config") / "tracesite" / "profiles.toml"


def _read(source: Path) -> dict[str, Profile]:
    try:
        with open(source, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if os.name == "posix" and mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise NoProfile(f"Others can read the keys in {source}. Run: chmod 600 {source}")
            return msgspec.convert(tomllib.load(file), dict[str, Profile])
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NoProfile(f"{source} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NoProfile(f"{source} is not valid TOML.") from error
    except msgspec.ValidationError as error:
        raise NoProfile(f"{source} is not a file of profiles: each has the texts `url` and `key`. {error}") from error


def _quoted(text: str) -> str:
    """Return a string of TOML, which a string of JSON is, too."""
    return json.dumps(text, ensure_ascii=False)

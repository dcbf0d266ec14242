"""Reads settings from environment variables; a value that cannot be is refused with its name and what would be right."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit

import environ
from django.core.exceptions import ImproperlyConfigured

PREFIX = "TRACESITE_"
OF_OTHERS = frozenset(PREFIX + name for name in ("URL", "KEY", "SPOOL", "RELEASE"))
"""Variables of the recorder, which may run on the same machine, and of docs/production/tracesite.sh."""

Flag = TypeVar("Flag", bool, None)

_read: set[str] = set()
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off", ""})


def text(name: str, default: str = "") -> str:
    return _value(name, default)


def secret_key(name: str, default: str = "") -> str:
    """The key that signs logins; the default where there is none."""
    value = _value(name, default)
    if value and len(value) < 32:
        raise ImproperlyConfigured(f"{name} is too short to be safe: write at least 32 random characters.")
    return value


def token(name: str, default: str = "", *, at_least: int) -> str:
    """A secret that goes into a header as it stands; the default where there is none. The value is not repeated in the error."""
    value = _value(name, default)
    if value and (len(value) < at_least or not value.isascii() or not value.isprintable() or " " in value):
        raise ImproperlyConfigured(
            f"{name} is not a valid token: use at least {at_least} ASCII letters, digits or symbols."
        )
    return value


def tokens(name: str, default: Sequence[str] = (), *, at_least: int) -> list[str]:
    """Secrets separated by commas. Their values are not repeated in the error."""
    tokens_given = words(name, default)
    if any(len(token) < at_least for token in tokens_given):
        raise ImproperlyConfigured(
            f"{name} has a key that is too short to be safe: write at least {at_least} characters."
        )
    return tokens_given


def embedder(name: str, default: str = "") -> str:
    """An address, or a function as package.module:function."""
    value = _value(name, default)
    url = urlsplit(value)
    is_url = url.scheme in ("http", "https") and url.hostname and not (url.username or url.query or url.fragment)
    if value and not is_url and not re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", value, re.ASCII):
        # The value is not repeated: it may hold a password.
        raise ImproperlyConfigured(
            f"{name} is not valid: use package.module:function, or an address such as https://api.example.org/v1, without a "
            "password or query; a key goes into TRACESITE_EMBEDDER_KEY."
        )
    return value


def header(name: str, default: str = "") -> str:
    """The name of an HTTP header; the default where there is none."""
    value = _value(name, default)
    if value and not re.fullmatch(r"[A-Za-z][A-Za-z0-9-]*", value):
        raise refused(name, value, "use the name of a header, such as X-Remote-User")
    return value


def address(name: str, default: str = "") -> str:
    """Return an address with HTTPS, or of this machine; the default where there is none."""
    value = _value(name, default)
    url = urlsplit(value)
    is_safe = url.scheme == "https" or (url.scheme == "http" and url.hostname in ("127.0.0.1", "localhost"))
    if value and not (is_safe and url.hostname and not url.username):
        raise refused(name, value, "use an address such as https://login.example.org/realms/main")
    return value


def contacts(name: str, default: Sequence[str] = ()) -> list[str]:
    """Addresses of people, separated by commas, as URIs (mailto:, https: or tel:)."""
    values = words(name, default)
    for value in values:
        if not re.fullmatch(r"(mailto:[^\s@]+@[^\s@]+|https://\S+|tel:\+?[\d.()-]+)", value, re.ASCII):
            raise refused(
                name, value, "use addresses such as mailto:security@example.org or https://example.org/security"
            )
    return values


def boolean(name: str, default: Flag) -> bool | Flag:
    value = _value(name)
    if value is None:
        return default
    if value.lower() not in _TRUE | _FALSE:
        raise refused(name, value, "use true or false")
    return value.lower() in _TRUE


def whole_number(name: str, default: int, *, at_least: int) -> int:
    value = _value(name, str(default))
    if not value.isascii() or not value.isdigit() or int(value) < at_least:
        raise refused(name, value, f"use a whole number of at least {at_least}")
    return int(value)


def choice(name: str, default: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`, however it is capitalised."""
    value = _value(name, default)
    if value.upper() not in allowed:
        raise refused(name, value, f"use one of {', '.join(allowed)}")
    return value.upper()


def words(name: str, default: Sequence[str] = ()) -> list[str]:
    """Words separated by commas."""
    value = _value(name)
    return list(default) if value is None else [word.strip() for word in value.split(",") if word.strip()]


def database(name: str, default: Mapping[str, Any] | None = None, *, optional: bool = False) -> dict[str, Any]:
    """Django's settings of the PostgreSQL that a URL names; the default where it is optional and not set."""
    value = _value(name, "")
    if optional and not value:
        return dict(default or {})
    if not value.startswith(("postgresql://", "postgres://")):
        # The value is not repeated: it may hold a password.
        raise ImproperlyConfigured(
            f"{name} {'is not set' if not value else 'is not a PostgreSQL URL'}. Use "
            "postgresql://user:password@host:port/name, or start Tracesite with `make run`, `manage.py` or `tracesite` without "
            f"{name}: they run an embedded PostgreSQL."
        )
    return _database_of(name, value)


def databases(name: str, default: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Django's settings of PostgreSQLs by their aliases: alias=URL, separated by spaces."""
    by_alias: dict[str, dict[str, Any]] = dict(default or {})
    for pair in (_value(name) or "").split():
        alias, equals, url = pair.partition("=")
        if not (equals and alias.isidentifier() and url.startswith(("postgresql://", "postgres://"))):
            # The value is not repeated: it may hold a password.
            raise ImproperlyConfigured(
                f"{name} is not a list of databases. Use alias=postgresql://..., separated by spaces."
            )
        if alias in ("default", "replica", "direct") or alias in by_alias:
            raise ImproperlyConfigured(f"{name} names the alias {alias!r} again. Use another one.")
        by_alias[alias] = _database_of(name, url)
    return by_alias


def _database_of(name: str, url: str) -> dict[str, Any]:
    # Neither the value nor an error about it is repeated: they may hold a password.
    bad = ImproperlyConfigured(
        f"{name} is not a PostgreSQL URL. In a password, write characters such as @, :, / and # percent-encoded: %40, %3A, %2F, %23."
    )
    if "#" in url:  # a fragment, which no address of a database has
        raise bad
    try:
        return dict(environ.Env.db_url_config(url))
    except ValueError:
        raise bad from None


def pairs(name: str, default: Mapping[str, str] | None = None) -> dict[str, str]:
    """Words by words: a=b, separated by commas."""
    values = dict(default or {})
    for word in words(name):
        key, equals, value = word.partition("=")
        if not (key.strip() and equals and value.strip()):
            raise refused(name, word, "pairs such as big=tenant1, separated by commas")
        values[key.strip()] = value.strip()
    return values


def refused(name: str, value: str, right: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"{name} is {value!r}: {right}.")


def unknown() -> dict[str, str | None]:
    """Return the names in the environment that look like settings but are none, each with the nearest known name."""
    known = _read | OF_OTHERS
    rest = [name.removeprefix(PREFIX) for name in known]
    return {
        name: next((PREFIX + near for near in difflib.get_close_matches(name.removeprefix(PREFIX), rest, n=1)), None)
        for name in sorted(os.environ)
        if name.startswith(PREFIX) and name not in known
    }


@overload
def _value(name: str) -> str | None: ...
@overload
def _value(name: str, default: str) -> str: ...
def _value(name: str, default: str | None = None) -> str | None:
    _read.add(name)
    return os.environ.get(name, default)

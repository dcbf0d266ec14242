"""One question to a server, and what went wrong as a sentence and an exit status."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

import msgspec

from tracesite_sdk.recorder.delivery.transport import LOOPBACK, NoAnswer, Server, parsed_address

from .profiles import KEY, URL, NoProfile, Profile, profile

FOUND, NOTHING, WRONG, NO_ACCESS = 0, 1, 2, 3
"""Exit statuses."""
INSECURE = "TRACESITE_INSECURE"
_RESULT_COUNT = "tracesite-result-count"
_CONNECT_SECONDS, _READ_SECONDS = 10.0, 60.0


class Failed(Exception):
    """There is no answer. The text says why, and what to do; it may quote the server."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Found:
    text: str
    count: int
    """The number of things that the server found."""


class _Error(msgspec.Struct):
    message: str
    code: str = ""
    field: str | None = None


class _Refusal(msgspec.Struct):
    error: _Error


def chosen_profile(name: str | None) -> Profile:
    """Return the profile that may be used. Raise Failed."""
    try:
        chosen = profile(name)
    except NoProfile as missing:
        raise Failed(NO_ACCESS, str(missing)) from missing
    check_address(chosen.url)
    return chosen


def check_address(url: str) -> None:
    """Raise Failed for what is no address, and for one to which a key would go in the clear."""
    try:
        parts = parsed_address(url)
    except ValueError as error:
        raise Failed(NO_ACCESS, str(error)) from error
    if parts.scheme == "http" and parts.hostname not in LOOPBACK and os.environ.get(INSECURE) != "1":
        raise Failed(
            NO_ACCESS,
            f"{url} would get the key in the clear: give its https:// address, or set {INSECURE}=1 for a network that you trust.",
        )


def connection(of: Profile) -> Server:
    """Return what makes requests, before it makes one. Raise Failed for a key that is missing or does not fit into a header."""
    if not of.key:
        raise Failed(
            NO_ACCESS,
            f"The API key is missing: set {KEY}. A key that `tracesite login` saved does not go to the address of {URL}.",
        )
    try:
        return Server(
            of.url, of.key, connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, user_agent="tracesite-cli"
        )
    except ValueError as error:
        raise Failed(NO_ACCESS, str(error)) from error


def ask(of: Profile, answer: str, parameters: Sequence[tuple[str, str]]) -> Found:
    """Return the answer with this name, such as `failures`. Raise Failed."""
    server = connection(of)
    try:
        got = server.get(f"/api/v1/read/{answer}/?{urlencode(parameters)}")
    except NoAnswer as error:
        raise Failed(
            NO_ACCESS, f"{of.url} does not respond: {error}. Is the address right, and the server up?"
        ) from error
    finally:
        server.close()
    count = got.headers.get(_RESULT_COUNT, "")
    if got.status == 200 and count.isascii() and count.isdecimal():
        return Found(got.body.decode(errors="replace"), int(count[:9]))
    raise failure(of.url, got.status, got.body, got.headers)


def failure(url: str, status: int, body: bytes, headers: Mapping[str, str]) -> Failed:
    """Return the exception for a response that is no answer. Redirects are not followed, because the key would go with them."""
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        error = None
    said = f"{error.message} " if error else ""
    match status:
        case 400 | 409 | 422 if error:
            field = f"{error.field.replace('_', '-')}: " if error.field else ""
            return Failed(WRONG, f"{field}{error.message}")
        # Of an address that the server does not have, as an older one, it says nothing more.
        case 404 if error and (error.field or error.code != "not_found"):
            return Failed(NOTHING, error.message)
        case 401:
            return Failed(
                NO_ACCESS, f"{said}{url} does not admit this key: make one, and save it with: tracesite login"
            )
        case 403:
            return Failed(NO_ACCESS, f"{said}{url} does not let this key read: use one with the scope `read`.")
        case 429:
            return Failed(NO_ACCESS, f"Too many requests: try again in {headers.get('retry-after', '60')} s.")
        case _ if 300 <= status < 400:
            return Failed(
                NO_ACCESS,
                f"{url} redirects to {headers.get('location', 'nowhere')}: if you trust that address, use it instead.",
            )
        case _ if status >= 500:
            return Failed(NO_ACCESS, f"{said}{url} failed with {status}: try again later.")
    return Failed(NO_ACCESS, f"{url} responds with {status} and is no Tracesite that has answers: check the address.")

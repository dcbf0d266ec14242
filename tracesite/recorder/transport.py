"""One server over one connection that is kept: a request and its answer, or why there is none. Standard library only.

Proxies are those of HTTP_PROXY, HTTPS_PROXY and NO_PROXY; this machine itself is never asked through one. Certificates are
checked as Python does by default; SSL_CERT_FILE names others.
"""

from __future__ import annotations

import base64

# Else the first look-up of a host imports it: a fork in that moment leaves the child with half of it, for ever.
import encodings.idna  # noqa: F401
import gzip
import socket
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

COMPRESS_FROM = 1000
"""Bodies of fewer bytes are sent as they are."""
LONGEST_ANSWER = 8 * 1024 * 1024

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server said."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds, if it asked for a pause."""


class NoAnswer(Exception):
    """The server cannot be reached, or broke off; the text says why and holds nothing of what was sent."""


class NoAnswerInTime(NoAnswer):
    """The server took the request, and said nothing for as long as an answer may take."""


class Server:
    """A server at an address. One thread makes requests; any may break them off.

    Raises ValueError for what is no address of a server, and for a key that no header can hold.
    """

    def __init__(self, url: str, key: str, *, connect_timeout: float, read_timeout: float) -> None:
        self.url = url.rstrip("/")
        self._parts = _parsed(self.url)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("key: expected an API key, as the server gave it: ts_ and 43 characters.")
        self._headers = {"Authorization": f"Bearer {key}", "User-Agent": "tracesite-recorder"}
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._connection: HTTPConnection | None = None
        self._target = ""
        self._is_broken_off = False
        self._context: ssl.SSLContext | None = None

    def get(self, path: str, *, within: float | None = None) -> Answer:
        return self._request("GET", path, None, {}, within)

    def post(self, path: str, body: bytes, media_type: str, *, within: float | None = None) -> Answer:
        """Sends a body, compressed. A kept connection that turns out to be closed is opened anew and the body sent again,
        so it must be one that may arrive twice. Raises NoAnswer."""
        headers = {"Content-Type": media_type}
        if len(body) >= COMPRESS_FROM:
            # Level 1: a tenth of the time of 9, and 1.3 times its size.
            body = gzip.compress(body, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return self._request("POST", path, body, headers, within)

    def break_off(self) -> None:
        """Ends the request that another thread waits for, for good: it raises NoAnswer there."""
        self._is_broken_off = True
        connection = self._connection
        open_socket = connection.sock if connection is not None else None
        if open_socket is not None:
            with suppress(OSError):
                # Not the method of SSLSocket: that takes the TLS state from under the thread that reads.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def after_fork(self) -> None:
        """In a child: the connection is the parent's. Closing it here does not end it there."""
        self.close()

    def _request(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], within: float | None
    ) -> Answer:
        is_kept = self._connection is not None
        try:
            return self._exchange(method, path, body, headers, within)
        except (ConnectionError, HTTPException) as failure:
            self.close()
            if not is_kept or self._is_broken_off:
                raise NoAnswer(_reason(failure)) from failure
        except OSError as failure:
            self.close()
            raise NoAnswer(_reason(failure)) from failure
        # Servers close connections that nobody used for a while.
        try:
            return self._exchange(method, path, body, headers, within)
        except (OSError, HTTPException) as failure:
            self.close()
            raise NoAnswer(_reason(failure)) from failure

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str], within: float | None
    ) -> Answer:
        connection = self._connected(within)
        try:
            connection.request(method, f"{self._target}{path}", body, {**self._headers, **headers})
            response = connection.getresponse()
            content = response.read(LONGEST_ANSWER)
        except TimeoutError as failure:
            self.close()
            is_whole = within is None or within >= self._read_timeout
            raise (NoAnswerInTime if is_whole else NoAnswer)(_reason(failure)) from failure
        answer = Answer(status=response.status, body=content, retry_after=_pause(response))
        if response.will_close or not response.isclosed():
            self.close()
        return answer

    def _connected(self, within: float | None) -> HTTPConnection:
        read_timeout = _shorter(self._read_timeout, within)
        if self._connection is None:
            connection, self._target = self._connection_to(_shorter(self._connect_timeout, within))
            # Kept at once, so that another thread can break off the handshake.
            self._connection = connection
            connection.connect()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(read_timeout)
        return self._connection

    def _connection_to(self, timeout: float) -> tuple[HTTPConnection, str]:
        """A connection that is not open yet, and what the paths of its requests begin with."""
        parts = self._parts
        host = parts.hostname or ""
        proxy = _proxy_for(parts)
        if parts.scheme == "http":
            if proxy is None:
                return HTTPConnection(host, parts.port, timeout=timeout), parts.path
            self._headers.update(_proxy_headers(proxy))
            return HTTPConnection(proxy.hostname or "", proxy.port, timeout=timeout), self.url
        if self._context is None:
            self._context = ssl.create_default_context()
        if proxy is None:
            return HTTPSConnection(host, parts.port, timeout=timeout, context=self._context), parts.path
        tunnel = HTTPSConnection(proxy.hostname or "", proxy.port, timeout=timeout, context=self._context)
        tunnel.set_tunnel(host, parts.port or 443, _proxy_headers(proxy))
        return tunnel, parts.path


def _parsed(url: str) -> SplitResult:
    expected = "expected the address of a server, such as http://127.0.0.1:8000"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"url: {expected}.") from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise ValueError(f"url: {expected}.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"url: {expected}, without a password, a ? or a #.")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"url: {expected}, in ASCII.")
    return parts


def _proxy_for(parts: SplitResult) -> SplitResult | None:
    # Of the environment only: to ask the system's settings crashes forked processes on macOS.
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme)
    if not proxy or parts.hostname in _LOOPBACK or proxy_bypass(parts.netloc):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    both = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(both.encode()).decode()}"}


def _shorter(timeout: float, within: float | None) -> float:
    return timeout if within is None else max(0.01, min(timeout, within))


def _pause(response: HTTPResponse) -> float | None:
    """The seconds of the header Retry-After, which holds a number or a date."""
    text = (response.getheader("Retry-After") or "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _reason(failure: Exception) -> str:
    match failure:
        case TimeoutError():
            return "no answer in time"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {failure.verify_message}"
        case ConnectionResetError() | BrokenPipeError():
            return "it closed the connection"
        case OSError() if failure.strerror:
            return failure.strerror
        case HTTPException():
            return "its answer is not HTTP"
    return type(failure).__name__

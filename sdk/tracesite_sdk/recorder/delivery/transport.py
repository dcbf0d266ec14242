"""HTTP requests to one server over one kept connection, with the standard library only.

Proxies come from HTTP_PROXY, HTTPS_PROXY and NO_PROXY; this machine itself is never reached through one. Certificates are
verified with Python's defaults; SSL_CERT_FILE overrides them.
"""

from __future__ import annotations

import base64

# Imported here, because the first look-up of a host imports it: a fork at that moment leaves half of it in the child.
import encodings.idna  # noqa: F401
import gzip
import os
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

COMPRESS_FROM = 1000
"""Bytes from which a body is compressed."""
LONGEST_ANSWER = 8 * 1024 * 1024

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""The hosts of this machine itself."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The response of the server."""

    status: int
    body: bytes
    retry_after: float | None
    """Seconds of the header Retry-After, or None."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers, their names in lower case."""


class NoAnswer(Exception):
    """The server cannot be reached, or closed the connection. The text is the reason, without any content of the request."""


class NoAnswerInTime(NoAnswer):
    """The server took the request, and did not respond within the timeout."""


class Server:
    """A server at an address. One thread makes requests; any thread may abort them.

    Raises ValueError for an invalid address, and for a key that does not fit into a header.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        connect_timeout: float,
        read_timeout: float,
        user_agent: str = "tracesite-recorder",
    ) -> None:
        self.url = url.rstrip("/")
        self._parts = parsed_address(self.url)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise ValueError("key: expected an API key as the server shows it: ts_ and 43 characters.")
        self._headers = {"Authorization": f"Bearer {key}", "User-Agent": user_agent}
        self._connect_timeout = connect_timeout
        self._read_timeout = read_timeout
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        """Kept besides the connection, which forgets it while it reads an answer that ends with the connection."""
        self._target = ""
        self._is_broken_off = False
        self._context: ssl.SSLContext | None = None

    def get(self, path: str, *, within: float | None = None) -> Answer:
        return self._request("GET", path, None, {}, within)

    def post(self, path: str, body: bytes, media_type: str, *, within: float | None = None) -> Answer:
        """Send a body, compressed, and return the response. Retried once if a kept connection turns out to be closed, so the
        request must be idempotent. Blocks for the timeouts, at most `within` seconds. Raises NoAnswer."""
        headers = {"Content-Type": media_type}
        if len(body) >= COMPRESS_FROM:
            # Level 1 takes a tenth of the time of level 9, for 1.3 times its size.
            body = gzip.compress(body, 1, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return self._request("POST", path, body, headers, within)

    def delete(self, path: str) -> Answer:
        return self._request("DELETE", path, None, {}, None)

    def break_off(self) -> None:
        """Abort the request of another thread for good: it raises NoAnswer there."""
        self._is_broken_off = True
        if (open_socket := self._open_socket()) is not None:
            with suppress(OSError):
                # Not SSLSocket.shutdown, which removes the TLS state while the other thread reads.
                socket.socket.shutdown(open_socket, socket.SHUT_RDWR)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = self._socket = None

    def after_fork(self) -> None:
        """In a child: close the inherited connection, which stays open in the parent. Only its file, because a lock of its
        reader is held for ever if a thread of the parent was reading."""
        if (open_socket := self._open_socket()) is not None and (file := open_socket.detach()) >= 0:
            os.close(file)
        self._connection = self._socket = None

    def _open_socket(self) -> socket.socket | None:
        connection = self._connection
        return None if connection is None else connection.sock or self._socket

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
        # Servers close connections that are idle for a while.
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
        named = {name.lower(): value for name, value in response.getheaders()}
        answer = Answer(status=response.status, body=content, retry_after=_pause(response), headers=named)
        if response.will_close or not response.isclosed():
            self.close()
        return answer

    def _connected(self, within: float | None) -> HTTPConnection:
        read_timeout = _shorter(self._read_timeout, within)
        if self._connection is None:
            connection, self._target = self._connection_to(_shorter(self._connect_timeout, within))
            # Assigned before connecting, so that another thread can abort the handshake.
            self._connection = connection
            connection.connect()
            self._socket = connection.sock
        if self._connection.sock is not None:
            self._connection.sock.settimeout(read_timeout)
        return self._connection

    def _connection_to(self, timeout: float) -> tuple[HTTPConnection, str]:
        """Return a connection that is not open yet, and the prefix of its request paths."""
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


def parsed_address(url: str) -> SplitResult:
    """Return the parts of the address of a server. Raise ValueError, which says what is expected."""
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
    # From the environment only, because reading the system's settings crashes forked processes on macOS.
    proxies = getproxies_environment()
    proxy = proxies.get(parts.scheme)
    if not proxy or parts.hostname in LOOPBACK or proxy_bypass(parts.netloc):
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
    """Return the seconds of the header Retry-After, which holds a number or a date."""
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
            return "no response in time"
        case ssl.SSLCertVerificationError():
            return f"its certificate is not trusted: {failure.verify_message}"
        case ConnectionResetError() | BrokenPipeError():
            return "it closed the connection"
        case OSError() if failure.strerror:
            return failure.strerror
        case HTTPException():
            return "its response is not HTTP"
    return type(failure).__name__

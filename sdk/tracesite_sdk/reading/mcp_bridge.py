"""`tracesite mcp`: an MCP server on standard input and output that forwards each message to the endpoint /mcp of a server.

Messages pass unchanged, so that the tools, and the versions of the protocol, are those of the server. It is stateless: each message
has an exchange of its own, and an outage fails the requests of that moment only.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from tracesite_sdk.recorder.delivery.transport import LOOPBACK, parsed_address

from .client import NO_ACCESS, Failed, connection, failure
from .profiles import Profile
from .terminal import one_line

try:
    import anyio
    import httpx2
    from mcp.client.streamable_http import streamable_http_client
    from mcp.server.stdio import stdio_server
    from mcp.shared.inbound import (
        MCP_METHOD_HEADER,
        MCP_NAME_HEADER,
        MCP_PROTOCOL_VERSION_HEADER,
        NAME_BEARING_METHODS,
        encode_header_value,
    )
    from mcp.shared.message import ClientMessageMetadata, SessionMessage
    from mcp_types import (
        INTERNAL_ERROR,
        PROTOCOL_VERSION_META_KEY,
        ErrorData,
        JSONRPCError,
        JSONRPCNotification,
        JSONRPCRequest,
        JSONRPCResponse,
    )
except ImportError as error:
    raise ImportError("tracesite mcp needs the package mcp: pip install 'mcp>=2.3,<3'") from error

_TIMEOUT = httpx2.Timeout(30, read=300)


def serve(profile: Profile) -> None:
    """Forward messages until the client closes standard input. Raise Failed without a usable key."""
    connection(profile)
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it logs tracebacks of what the client is answered
    anyio.run(_serve, profile)


async def _serve(profile: Profile) -> None:
    async def refuse(response: httpx2.Response) -> None:
        """Raise Failed for an error of HTTP that carries no message, because the package would not say why."""
        if response.is_success or b'"jsonrpc"' in (body := await response.aread()):
            return
        if response.status_code == 404:
            raise Failed(NO_ACCESS, f"{profile.url} has no /mcp: is it Tracesite, and not an older one?")
        raise failure(profile.url, response.status_code, body, response.headers)

    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {profile.key}", "User-Agent": "tracesite-mcp"},
            timeout=_TIMEOUT,
            # A server closes idle connections, perhaps at the moment of the next message, which may not be sent twice.
            limits=httpx2.Limits(max_keepalive_connections=0),
            # As the recorder does, this machine itself is not reached through a proxy.
            trust_env=parsed_address(profile.url).hostname not in LOOPBACK,
            event_hooks={"response": [refuse]},
        ) as http,
        stdio_server() as (incoming, outgoing),
        outgoing,
        anyio.create_task_group() as tasks,
    ):
        bridge = _Bridge(f"{profile.url}/mcp", http, outgoing)
        async for received in incoming:
            if isinstance(received, SessionMessage):
                tasks.start_soon(bridge.forward, received.message)
            else:
                sys.stderr.write("tracesite mcp: a line of standard input is no JSON-RPC message.\n")


class _Bridge:
    def __init__(self, url: str, http: httpx2.AsyncClient, outgoing: Any) -> None:
        self._url = url
        self._http = http
        self._outgoing = outgoing
        self._version: str | None = None
        """What a client that began with `initialize` agreed on; later ones name it in each message."""
        self._running: dict[Any, anyio.CancelScope] = {}
        """By the id of the request."""

    async def forward(self, message: Any) -> None:
        """Send a message to the server, and what it replies to the client."""
        is_request = isinstance(message, JSONRPCRequest)
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            running = self._running.pop((message.params or {}).get("requestId"), None)
            if running is not None:
                running.cancel()  # closes the response, which cancels the request of a modern client
            if self._version is None:
                return
        failed: BaseException | None = None
        with anyio.CancelScope() as scope:
            if is_request:
                self._running[message.id] = scope
            try:
                await self._exchange(message, is_request)
            except* (httpx2.HTTPError, Failed) as group:
                failed = _first(group)
        if is_request and self._running.get(message.id) is scope:
            del self._running[message.id]
        if failed is not None:
            reason = (
                str(failed) if isinstance(failed, Failed) else f"{self._url} does not respond: {type(failed).__name__}"
            )
            text = one_line(reason)
            sys.stderr.write(f"tracesite mcp: {text}\n")
            if is_request:
                error = ErrorData(code=INTERNAL_ERROR, message=text)
                await self._outgoing.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=message.id, error=error)))

    async def _exchange(self, message: Any, is_request: bool) -> None:
        sent = SessionMessage(message, ClientMessageMetadata(headers=self._headers(message)))
        async with streamable_http_client(self._url, http_client=self._http, terminate_on_close=False) as (read, write):
            await write.send(sent)
            if not is_request:
                await write.aclose()  # and wait below until it is sent
            async for received in read:
                if isinstance(received, Exception):
                    raise received
                reply = received.message
                if isinstance(reply, JSONRPCResponse) and message.method == "initialize":
                    self._version = reply.result.get("protocolVersion")
                await self._outgoing.send(SessionMessage(reply))
                if isinstance(reply, JSONRPCResponse | JSONRPCError):
                    return

    def _headers(self, message: Any) -> dict[str, str]:
        """Return the headers that repeat what is in the message, as its version of the protocol demands."""
        params = getattr(message, "params", None) or {}
        meta = params.get("_meta")
        version = meta.get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
        if not isinstance(version, str):
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else {}
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        return {**headers, MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else headers


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    one = group.exceptions[0]
    return _first(one) if isinstance(one, BaseExceptionGroup) else one

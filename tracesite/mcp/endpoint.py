"""The ASGI endpoint /mcp: streamable HTTP without sessions, for clients of 2026-07-28 and of the versions with a handshake.

A call of a tool is a request to the route of its answer, in this process, with the headers of the client: key, masks, limits and the
audit log are those of the API. See https://modelcontextprotocol.io/specification/2026-07-28/basic/transports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, NamedTuple
from urllib.parse import urlencode

import mcp_types as types
from django.urls import reverse
from mcp.server.caching import CacheHint
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from tracesite.http.arriving_bodies import AsgiApplication

from .tools import INSTRUCTIONS, TOOLS, Tool

LARGEST_BODY = 64 * 1024
LIST_MS = 5 * 60 * 1000
"""For how long a client may keep the list of tools."""
# What belongs to the request of the client and not to that of its call.
_OWN_HEADERS = (
    b"accept",
    b"accept-encoding",
    b"content-encoding",
    b"content-length",
    b"content-type",
    b"cookie",
    b"prefer",
    b"transfer-encoding",
)


class Response(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Endpoint:
    """The endpoint of one process; `rest` answers the API. It begins with the first request."""

    def __init__(self, rest: AsgiApplication) -> None:
        self._rest = rest
        server: Server[Any] = Server(
            "tracesite",
            version=version("tracesite"),
            title="Tracesite",
            instructions=INSTRUCTIONS,
            cache_hints={"tools/list": CacheHint(ttl_ms=LIST_MS)},
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        self._sessions = StreamableHTTPSessionManager(
            server,
            json_response=True,
            stateless=True,
            # The hosts and origins that are allowed are checked before.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=LARGEST_BODY,
        )
        self._is_running = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        await self._is_running.wait()
        await self._sessions.handle_request(scope, receive, send)

    async def _run(self) -> None:
        async with self._sessions.run():
            self._is_running.set()
            await asyncio.Event().wait()

    async def _list(
        self, _context: ServerRequestContext[Any, Any], _parameters: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def _call(
        self, context: ServerRequestContext[Any, Any], parameters: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = next((tool for tool in TOOLS if tool.name == parameters.name), None)
        if tool is None:
            return _refused(
                f"There is no tool {parameters.name[:80]!r}. Tools: {', '.join(tool.name for tool in TOOLS)}."
            )
        arguments = parameters.arguments or {}
        allowed = tool.schema()["properties"]
        if unknown := sorted(set(arguments) - set(allowed)):
            return _refused(f"{tool.name} has no argument {unknown[0][:80]!r}. Arguments: {', '.join(allowed)}.")
        wrong = [name for name, value in arguments.items() if not _is_simple(value)]
        if wrong:
            return _refused(f"{wrong[0]}: give a text or a number, or a list of texts.")
        request: Any = context.request
        path = reverse(f"tracesite:read-{tool.answer.replace('_', '-')}")
        query = urlencode({"format": "markdown", **_texts(arguments), "hints": "tools"}, doseq=True)
        response = await _get(self._rest, request.scope, path, query)
        if response.status != HTTPStatus.OK:
            return _refused(_reason(response))
        return _result(response)


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema(),
        annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
    )


def _result(response: Response) -> types.CallToolResult:
    text = response.body.decode()
    is_json = response.headers["content-type"].startswith("application/json")
    content: list[Any] = [types.TextContent(type="text", text=text)]
    if page := _link_in(response):
        content.append(types.ResourceLink(type="resource_link", uri=page, name="Page", mime_type="text/html"))
    return types.CallToolResult(content=content, structured_content=json.loads(text) if is_json else None)


def _link_in(response: Response) -> str:
    """Return the address of the page that shows the same: https://www.rfc-editor.org/rfc/rfc8288."""
    link = response.headers.get("link", "")
    return link[1 : link.index(">")] if link.startswith("<") else ""


def _refused(reason: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=reason)], is_error=True)


def _reason(response: Response) -> str:
    """Return what an error of the API says."""
    try:
        error = json.loads(response.body)["error"]
        reason = f"{error['field']}: {error['message']}" if error.get("field") else error["message"]
    except (ValueError, KeyError, TypeError):
        reason = HTTPStatus(response.status).phrase
    later = response.headers.get("retry-after")
    return f"{reason} Repeat it in {later} seconds." if later else str(reason)


def _is_simple(value: Any) -> bool:
    return isinstance(value, str | int | float) or (
        isinstance(value, list) and all(isinstance(one, str) for one in value)
    )


def _texts(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments as the query of a URL has them. Models like to send empty texts for what they do not want."""
    given = {name: str(value).lower() if isinstance(value, bool) else value for name, value in arguments.items()}
    return {name: value for name, value in given.items() if value not in ("", [])}


async def _get(application: AsgiApplication, scope: Mapping[str, Any], path: str, query: str) -> Response:
    """Ask the API in this process, as the client that sent the request of `scope`."""
    own = {
        **scope,
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(name, value) for name, value in scope["headers"] if name not in _OWN_HEADERS],
    }
    started: dict[str, Any] = {}
    parts: list[bytes] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            started.update(message)
        else:
            parts.append(message.get("body", b""))

    await application(own, receive, send)
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in started["headers"]}
    return Response(started["status"], headers, b"".join(parts))

"""The ASGI application of /live/ws (for WebSockets also /), /live/sse, /mcp and the live routes of foreign APIs.

With a single process, all other paths go to the WSGI application; otherwise they are not found.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from access_app.errors import ApiError, InvalidInput, NotFound
from access_app.mounting import below_base
from tracesite.http.foreign_api import LiveHandler, foreign_apis, live_handler_of

from . import admission
from .answers import answer
from .clients import Live, headers_of
from .sockets import serve_socket
from .streams import stream
from .tools import MethodNotAllowed, Tools

Application = Callable[[Any, Any, Any], Awaitable[None]]

logger = logging.getLogger(__name__)


def application(live: Live, elsewhere: Application | None, rest: Application) -> Application:
    """Return the ASGI application; `elsewhere` serves all paths outside the live part, which are 404 without it.

    `rest` answers what the tools of /mcp ask for, whoever serves it to others.
    """
    tools = Tools(live, rest)
    foreign_apis()  # imported now, because the first client would block the others meanwhile

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        foreign = live_handler_of(scope["path"])
        path = below_base(scope["path"])
        if scope["type"] == "http" and path in ("/mcp", "/mcp/"):
            await tools.serve(scope, receive, send)
            return
        if elsewhere is not None and scope["type"] == "http" and not (path.startswith("/live/") or foreign):
            await elsewhere(scope, receive, send)
            return
        handlers: dict[tuple[str, str], LiveHandler] = {
            ("websocket", "/live/ws"): serve_socket,
            # Monitors connect to ws://host:port.
            ("websocket", "/"): serve_socket,
            ("http", "/live/sse"): stream,
        }
        if foreign:
            handlers["http", path] = foreign
        try:
            if not admission.is_our_host(headers_of(scope).get("host", "")):
                raise InvalidInput(_("This host name is not allowed."), code="invalid_host")
            if scope["type"] == "http" and path == "/live/ws":
                raise UpgradeRequired
            if (scope["type"], path) not in handlers:
                raise NotFound
            if scope["type"] == "http" and scope["method"] != "GET":
                raise MethodNotAllowed
        except ApiError as error:
            if scope["type"] == "websocket":
                await receive()
                await send({"type": "websocket.close", "code": 1008})
            else:
                await answer(send, error, scope)
            return
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        try:
            await handlers[scope["type"], path](live, scope, query, receive, send)
        except OSError as error:  # by ASGI: the peer has gone
            logger.debug("Live: %s", error)

    return serve


class UpgradeRequired(ApiError):
    status = 426
    default_code = "upgrade_required"
    default_message = gettext_lazy(
        "This address is a WebSocket: connect to it with ws:// or wss://. Over HTTP, use /live/sse?session=ID."
    )

    def __init__(self) -> None:
        super().__init__(headers={"Upgrade": "websocket", "Connection": "Upgrade"})

"""The live part in the ASGI application of another project.

application = with_live(get_asgi_application())
"""

from __future__ import annotations

from typing import Any

from access_app.mounting import below_base

from .application import Application, application
from .clients import Live


def with_live(elsewhere: Application) -> Application:
    """Return an ASGI application that serves `live/ws`, `live/sse` and `mcp` below the path of Tracesite, and all else as before."""
    serve = application(Live(), elsewhere, elsewhere)

    async def serve_or_pass(scope: Any, receive: Any, send: Any) -> None:
        # Of other kinds, such as lifespan, and of other paths the project decides.
        is_live = scope["type"] in ("http", "websocket") and below_base(scope["path"])
        await (serve if is_live else elsewhere)(scope, receive, send)

    return serve_or_pass

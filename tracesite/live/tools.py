"""Admission to /mcp: by the key of a project, and for POST only, which is all that streamable HTTP without sessions needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from access_app.errors import ApiError, InvalidInput, NotAuthenticated, NotPermitted

from . import admission
from .answers import answer
from .clients import Live, address_of, headers_of, token_in

Application = Callable[[Any, Any, Any], Awaitable[None]]
ENDPOINT = "tracesite.mcp.endpoint.Endpoint"
"""Imported with the first request, because it takes a second and 60 MB."""


class MethodNotAllowed(ApiError):
    status = 405
    default_code = "method_not_allowed"


class Tools:
    """The endpoint /mcp of one process; `rest` answers the API."""

    def __init__(self, live: Live, rest: Application) -> None:
        self._live, self._rest = live, rest
        self._endpoint: Application | None = None
        self._importing = asyncio.Lock()

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request of a client of the protocol."""
        headers = headers_of(scope)
        try:
            if not admission.is_our_host(headers.get("host", "")):
                raise InvalidInput(_("This host name is not allowed."), code="invalid_host")
            # Clients in a browser could otherwise be made to ask by any page.
            if (origin := headers.get("origin")) and not admission.is_our_origin(origin, headers.get("host", "")):
                raise NotPermitted(_("Requests from other websites are not allowed."), code="foreign_origin")
            if scope["method"] != "POST":
                raise MethodNotAllowed(_("Clients of MCP use POST here."), headers={"Allow": "POST"})
            token = token_in(headers, {})
            if not token:
                raise NotAuthenticated(_("An API key is required: Authorization: Bearer KEY."))
            await self._live.ask(admission.reading_key, token, address_of(scope))
        except ApiError as error:
            await answer(send, error, scope)
            return
        async with self._importing:
            if self._endpoint is None:
                self._endpoint = (await asyncio.to_thread(import_string, ENDPOINT))(self._rest)
        await self._endpoint(scope, receive, send)

"""Clients of live streams, over any protocol: admission, subscriptions, sending, and disconnecting when a key ends."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError
from django.http import parse_cookie
from django.utils.translation import gettext as _

from access_app.conf import conf
from access_app.errors import ApiError, InvalidInput, NotAuthenticated, NotFound, Unavailable
from access_app.keys import bearer_in
from access_app.logins import address_behind_proxy

from . import admission
from .admission import Viewer
from .feeds import POLL_SECONDS, Hub, LiveMessage, Subscription, message_of
from .listening import listen
from .reading import Tables
from .waits import Wait, Waits

MAX_SUBSCRIPTIONS = 100
"""Sessions that one client can follow."""
MAX_WITHOUT_KEY = 4
"""Accepted WebSockets that have shown no key yet, so that strangers cannot take all connections."""
WAIT_SECONDS = 0.05
"""Pause between two lookups of sessions that subscriptions wait for."""
RECHECK_SECONDS = 10.0
"""Interval of checking keys and logins, because their expiry sends no NOTIFY."""
LARGEST_NUMBER = 2**63 - 1

Scope = Mapping[str, Any]
T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Client:
    """One connection."""

    address: str
    """The IP address; "" for a socket without a network."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    viewer: Viewer | None = None
    """The viewer that opened the connection; a subscription may carry a key of its own."""
    subscriptions: dict[UUID, tuple[Subscription, Viewer]] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    """Subscriptions to sessions that do not exist yet, by the name of the session."""
    urgent: deque[LiveMessage] = field(default_factory=deque)
    """Messages to send before all others."""
    has_subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    ending: str = ""
    """Why the connection is to be closed: `gone`, `refused`, `restart`, or a reason of its protocol."""

    def end(self, why: str) -> None:
        self.ending = self.ending or why
        self.wake.set()

    def viewers(self) -> set[Viewer]:
        own = {self.viewer} if self.viewer else set()
        following = {viewer for _subscription, viewer in self.subscriptions.values()}
        return own | following | {wait.viewer for wait in self.waits.values()}


class Live:
    """The live part of one process. It starts its background tasks with the first client."""

    def __init__(self) -> None:
        self.clients: set[Client] = set()
        self.waits = Waits()
        self.without_key = asyncio.Semaphore(MAX_WITHOUT_KEY)
        """Connections that have shown no key yet."""
        self.queue_without_key = 0
        """Handshakes without a key that wait for a slot."""
        self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="admission")
        self._tasks: list[asyncio.Task[None]] = []
        self._access = asyncio.Event()
        self._is_restarting = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def enter(self, scope: Scope) -> Client:
        if not self._tasks:
            self._loop = asyncio.get_running_loop()
            self.tables = Tables()
            self.hub = Hub(self.tables)
            listening = listen(self.hub, self._access.set)
            for work in (self.hub.read_on(), listening, self._disconnect_refused(), self._begin_waits()):
                self._tasks.append(asyncio.create_task(work))
                self._tasks[-1].add_done_callback(self._has_ended)
            await self.tables.open()
        client = Client(address_of(scope))
        self.clients.add(client)
        if self._is_restarting:
            client.end("restart")
        return client

    def leave(self, client: Client) -> None:
        self.clients.discard(client)
        for wait in list(client.waits.values()):
            self.waits.remove(wait)
        for subscription, _viewer in client.subscriptions.values():
            self.hub.leave(subscription)
        client.subscriptions.clear()

    def restart(self) -> None:
        """Disconnect all clients so that they reconnect to another process. Safe in any thread and signal handler."""
        self._is_restarting = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._end_all)

    # --- Admission ------------------------------------------------------------------------------------------

    async def viewer_of(self, scope: Scope, query: Mapping[str, str]) -> Viewer | None:
        """Return the viewer of the key in a header or the query, else of the admin login; None without either.

        Raises ApiError.
        """
        headers = headers_of(scope)
        token = token_in(headers, query)
        if token is not None:
            return await self.viewer_of_key(token, address_of(scope))
        cookie = parse_cookie(headers.get("cookie", "")).get(settings.SESSION_COOKIE_NAME)
        if not cookie:
            return None
        origin = headers.get("origin")
        is_ours = (
            admission.is_our_origin(origin, headers.get("host", ""))
            if origin is not None
            # Browsers always send Origin with a WebSocket; same-origin requests of our pages may lack it.
            else scope["type"] == "http" and headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")
        )
        proxy_user = headers.get(conf.REMOTE_USER_HEADER.lower(), "")
        return await self.ask(admission.viewer_of_login, cookie, address_of(scope), proxy_user) if is_ours else None

    async def viewer_of_key(self, token: str, address: str) -> Viewer:
        """Return the viewer of a key that is used from an address. Raises ApiError."""
        return await self.ask(admission.viewer_of_key, token, address)

    async def subscribe(self, client: Client, viewer: Viewer | None, name: Any, after: Any, *, field: str) -> None:
        """Follow a session from event `after` on, again if the client already follows it. Raises ApiError.

        With a key, the subscription waits for a session that does not exist yet, and the client gets `waiting`.
        Errors name `field`, the one in which the client sent the name.
        """
        if viewer is None:
            raise NotAuthenticated(_("An API key or a staff login is required."))
        if not isinstance(name, str):
            raise InvalidInput(
                _("“%(field)s” must be the id or external id of a session.") % {"field": field}, field=field
            )
        if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= LARGEST_NUMBER:
            raise InvalidInput(_("“after” must be the number of the last event received, or 0."), field="after")
        session = await self.ask(admission.find_session, viewer, name, field)
        session_id = session and session.pk
        if name in client.waits:
            self.waits.remove(client.waits[name])
        if (
            session_id not in client.subscriptions
            and len(client.subscriptions) + len(client.waits) >= MAX_SUBSCRIPTIONS
        ):
            raise InvalidInput(_("A connection can follow at most %(most)d sessions.") % {"most": MAX_SUBSCRIPTIONS})
        if session is not None:
            await self._follow(client, viewer, session.pk, session.project_id, name, after, field)
            return
        assert viewer.project_id is not None, "find_session returns None for keys only"
        self.waits.add(Wait(client, viewer, viewer.project_id, name, after, field))
        client.urgent.append(message_of("waiting", name))
        client.wake.set()

    def unsubscribe(self, client: Client, name: str) -> None:
        """Let go of the session that the client has named so, if it follows or awaits one."""
        if name in client.waits:
            self.waits.remove(client.waits[name])
        for session_id, (subscription, _viewer) in list(client.subscriptions.items()):
            if subscription.name == name:
                self.hub.leave(subscription)
                del client.subscriptions[session_id]

    async def _follow(
        self, client: Client, viewer: Viewer, session_id: UUID, project_id: int, name: str, after: int, field: str
    ) -> None:
        """Subscribe, replacing an earlier subscription to the session. Raises NotFound."""
        rules = None if viewer.masked is None else viewer.masked.by_project.get(project_id)
        subscription = await self.hub.subscribe(session_id, name, after, client.wake, rules)
        if subscription is None:
            raise admission.session_not_found(name, field)
        if client not in self.clients:
            self.hub.leave(subscription)  # the client disconnected meanwhile
            return
        known = client.subscriptions.pop(session_id, None)
        if known is not None:
            self.hub.leave(known[0])
        client.subscriptions[session_id] = (subscription, viewer)

    async def _begin_waits(self) -> None:
        """Begin waiting subscriptions once their sessions exist: soon after the first event, or at the next poll."""
        while True:
            await _is_set(self.hub.elsewhere, POLL_SECONDS)
            self.hub.elsewhere.clear()
            if not self.waits:
                continue
            ids = await self.tables.sessions_named(self.waits)
            for (project_id, name), session_id in ids.items():
                for wait in self.waits.of(project_id, name):
                    if wait.client.waits.get(name) is not wait:
                        continue  # the client left or subscribed again while another subscription began
                    self.waits.remove(wait)
                    try:
                        await self._follow(
                            wait.client, wait.viewer, session_id, project_id, name, wait.after, wait.field
                        )
                    except NotFound as error:
                        wait.client.urgent.append(error_message(name, error))
                        wait.client.wake.set()
            # Sessions without followers may send notifications all the time, so the lookups are batched.
            await asyncio.sleep(WAIT_SECONDS)

    # --- Sending --------------------------------------------------------------------------------------------

    async def send_all(self, client: Client, send: Callable[[LiveMessage], Awaitable[bool]]) -> None:
        """Send messages and heartbeats until the client is to be closed or stops reading.

        `send` returns whether it wrote anything. A heartbeat is due LIVE_HEARTBEAT_SECONDS after the last write, even if the
        client was woken since, because a wake may bring no message for it.
        """
        loop = asyncio.get_running_loop()
        heartbeat = conf.LIVE_HEARTBEAT_SECONDS
        patience = 2 * heartbeat
        due = loop.time() + heartbeat
        try:
            async with asyncio.timeout(None) as limit:

                async def write(message: LiveMessage) -> None:
                    nonlocal due
                    limit.reschedule(loop.time() + patience)
                    if await send(message):
                        due = loop.time() + heartbeat
                    # No deadline while a long history is read: a client that waits for the database still reads.
                    limit.reschedule(None)

                while not client.ending:
                    client.wake.clear()
                    is_idle = True
                    async for message in self._messages(client):
                        await write(message)
                        is_idle = False
                    if is_idle:
                        await _is_set(client.wake, max(due - loop.time(), 0))
                    if loop.time() >= due and not client.ending:
                        await write(HEARTBEAT)
                while client.urgent:
                    await write(client.urgent.popleft())
        except TimeoutError:
            logger.info("Live: disconnected a client that does not read.")
            client.end("gone")

    async def _messages(self, client: Client) -> Any:
        while client.urgent:
            yield client.urgent.popleft()
        for session_id, (subscription, _viewer) in list(client.subscriptions.items()):
            for message in await self.hub.next_messages(subscription):
                # The client may have subscribed again, from another number, while this was read or sent.
                if client.ending or client.subscriptions.get(session_id, (None,))[0] is not subscription:
                    break
                yield message
                if message.kind == "session_deleted":
                    client.subscriptions.pop(session_id, None)

    # --- Disconnecting --------------------------------------------------------------------------------------

    async def _disconnect_refused(self) -> None:
        """Disconnect viewers whose access has ended, soon after a notification or at the next check."""
        while True:
            await _is_set(self._access, RECHECK_SECONDS)
            self._access.clear()
            viewers = set().union(*(client.viewers() for client in self.clients))
            if not viewers:
                continue
            try:
                refused = await self.ask(admission.no_longer_admitted, viewers)
            except Unavailable:
                continue
            for client in self.clients:
                if client.viewers() & refused:
                    error = NotAuthenticated(_("The API key or login is no longer valid."), code="access_ended")
                    client.urgent.append(error_message(None, error))
                    client.end("refused")

    def _end_all(self) -> None:
        for client in self.clients:
            client.end("restart")

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        """Disconnect every client if a background task died, so that they reconnect and start fresh tasks."""
        if not task.cancelled():
            logger.error("Live: a background task ended unexpectedly.", exc_info=task.exception())
            for other in self._tasks:
                other.cancel()
            self._tasks = []
            self._end_all()

    async def ask(self, function: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Call a function that uses Django's database in a thread. Raises Unavailable if the database is away."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, partial(function, *arguments, **named))
        except (OperationalError, InterfaceError) as error:
            logger.warning("Live: the database does not respond: %s", type(error).__name__)
            raise Unavailable from error


HEARTBEAT = LiveMessage("heartbeat", '{"type":"heartbeat"}')


def error_message(name: str | None, error: ApiError) -> LiveMessage:
    """Return an error in the API's shape, without a request id because one connection makes many requests."""
    return message_of("error", name, error={"code": error.code, "message": error.message, "field": error.field})


def headers_of(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


def address_of(scope: Scope) -> str:
    """Return the IP address of a client, behind a proxy of ours, too; "" for a socket without a network."""
    peer = scope.get("client") or ("",)
    return address_behind_proxy(headers_of(scope).get("x-forwarded-for", ""), peer[0])


def token_in(headers: Mapping[str, str], query: Mapping[str, str]) -> str | None:
    """Return the key of a client, from a header or the query; None without one."""
    bearer = bearer_in(headers.get("authorization", ""))
    if bearer is not None:
        return bearer
    given = headers.get("x-api-key")
    return given.strip() if given is not None else query.get("key")


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return whether it was set within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True

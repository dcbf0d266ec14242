"""WeKnora's continue-stream: one answer, from its beginning on, and then as it is made; see docs/weknora.md.

It is made of the answer's events, which come as they come to all who look. Of an answer that has none, its rows are read: at
first, and whenever they have changed. In both cases the rows say when it is over, and how.
"""

from __future__ import annotations

import asyncio
import logging
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.utils.translation import gettext as _

from access_app.errors import ApiError, InvalidInput, NotAuthenticated, NotFound
from access_app.keys import bearer_in
from tracesite.http.foreign_apis import LiveHandler
from tracesite.http.request_log import REQUEST_ID
from tracesite.live import admission
from tracesite.live.answers import answer
from tracesite.live.clients import Client, Live, headers_of
from tracesite.live.feeds import POLL_SECONDS, Message
from tracesite.live.streams import wait_for_the_end

from .frames import Frame, Telling, encoded
from .shapes import message_of, was_stopped

_ADDRESS = re.compile(r"/weknora/api/v1/sessions/continue-stream/([^/]+)")
_SIGN_OF_LIFE = b": heartbeat\n\n"
# Said to ourselves, among what is to be sent.
_CHANGED, _ENDED, _GONE = (Message(kind, "") for kind in ("rows_changed", "answer_ended", "answer_gone"))

logger = logging.getLogger(__name__)


def live_route(path: str) -> LiveHandler | None:
    """Return `continue_stream` for the path of a continue-stream; None for other paths."""
    return continue_stream if _ADDRESS.fullmatch(path) else None


async def continue_stream(
    live: Live, scope: Mapping[str, Any], query: Mapping[str, str], receive: Any, send: Any
) -> None:
    """One request, until the answer is there."""
    headers = headers_of(scope)
    given = headers.get("x-request-id", "")
    request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    client = await live.enter()
    try:
        try:
            following = await _follow(live, client, scope, query, request_id)
        except ApiError as error:
            return await answer(send, error, scope, request_id)
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [
                    (b"content-type", b"text/event-stream"),
                    (b"cache-control", b"no-cache"),
                    # nginx would collect it.
                    (b"x-accel-buffering", b"no"),
                    (b"x-request-id", request_id.encode()),
                ],
            }
        )

        async def send_bytes(data: bytes) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": True})

        await _send_all(live, client, following, send_bytes, receive)
        if client.ending != "closed":
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        live.leave(client)


async def _send_all(live: Live, client: Client, following: _Following, send: Any, receive: Any) -> None:
    async def hear(message: Message) -> bool:
        try:
            data = b"".join(map(encoded, await following.frames_of(message)))
        except ApiError:
            # The database is away, or the session has just been deleted. Whoever comes back is told all of it again.
            client.end("again")
            return False
        if not data and message.kind != "heartbeat":
            return False  # of another answer of the session
        await send(data or _SIGN_OF_LIFE)
        return True

    await send(b"".join(map(encoded, following.telling.beginning())))
    tasks = [asyncio.create_task(wait_for_the_end(client, receive)), asyncio.create_task(following.watch())]
    for task in tasks:
        task.add_done_callback(following.has_ended)
    try:
        await live.send_all(client, hear)
    finally:
        for task in tasks:
            task.cancel()


async def _follow(
    live: Live, client: Client, scope: Mapping[str, Any], query: Mapping[str, str], request_id: str
) -> _Following:
    """Raises ApiError."""
    headers = headers_of(scope)
    token = _token(headers)
    if token is None:
        raise NotAuthenticated
    client.viewer = await live.viewer_of_key(token)
    if not query.get("message_id"):
        raise InvalidInput("Missing message ID", field="message_id")
    match = _ADDRESS.fullmatch(scope["path"])
    assert match is not None, "the address led here"
    found = await live.ask(admission.find_message, client.viewer, match[1], query["message_id"])
    about = await live.ask(admission.read_message, found.pk, whole=False)
    if about is None or about.role != "assistant":
        raise NotFound(code="no_stream_events")
    # In this order: events that come in between are found by the second, or have a larger number than the first says.
    states = await live.tables.states([found.session_id])
    events = await live.tables.events_of(found.pk)
    following = _Following(
        live=live,
        client=client,
        session_id=found.session_id,
        message_id=found.pk,
        telling=Telling(
            request_id=about.request_id or request_id, session_id=str(found.session_id), message_id=str(found.pk)
        ),
        last_event=events and events[1],
        was_completed=about.is_completed,
    )
    # Those before belong to other answers. Where there are none only what comes is of interest.
    await following.subscribe(
        events[0] - 1 if events else max((state.last_seq for state in states.values()), default=0)
    )
    return following


@dataclass(kw_only=True, eq=False)
class _Following:
    """How one client follows one answer."""

    live: Live
    client: Client
    session_id: UUID
    message_id: UUID
    telling: Telling
    last_event: int | None
    """The number of the last of its events that was known when it began to be told; None: it is told by its rows."""
    was_completed: bool
    told_to: int = 0
    """The number of the event that was told last."""
    is_told: bool = False

    async def subscribe(self, after: int) -> None:
        await self.live.subscribe(self.client, self.client.viewer, str(self.session_id), after)

    async def frames_of(self, message: Message) -> list[Frame]:
        """What is sent for something that is heard of the session. Raises ApiError."""
        if self.is_told:
            return []
        match message.kind:
            case "monitor_event":
                return await self._frames_of_event(message)
            case "events_dropped":
                # It was slow. What was left out is read again, as slowly as it reads.
                await self.subscribe(msgspec.json.decode(message.json)["after"])
            case _CHANGED.kind:
                return await self._frames_of_rows()
            case _ENDED.kind:
                return await self._ending()
            case _GONE.kind | "session_deleted":
                return self._broken_off(_("The message was deleted."))
            case "error":
                return self._broken_off(msgspec.json.decode(message.json)["error"]["message"])
        return []

    async def watch(self) -> None:
        """Looks at the row now and then: not all that changes or ends an answer is an event."""
        version = None
        while True:
            row = await self.live.tables.run(self.message_id)
            if row is None:
                self._say(_GONE)
                return
            is_completed, latest = row
            if self.last_event is None:
                if latest != version:
                    version = latest
                    self._say(_CHANGED)
            elif is_completed:
                events = await self.live.tables.events_of(self.message_id)
                if events is None or self.told_to >= events[1]:
                    self._say(_ENDED)
            await asyncio.sleep(POLL_SECONDS)

    def has_ended(self, task: asyncio.Task[None]) -> None:
        """Nobody is to wait for what does not come."""
        if not task.cancelled() and task.exception() is not None:
            logger.error("Live: a task that follows an answer has ended.", exc_info=task.exception())
            self.client.end("again")

    async def _frames_of_event(self, message: Message) -> list[Frame]:
        if self.telling.message_id not in message.json:
            return []
        event = msgspec.json.decode(message.json)["event"]
        if event["message_id"] != self.telling.message_id:
            return []
        if self.last_event is None:
            # What began to be told by its rows is, to its end: they are looked at now and then.
            return [] if self.telling.has_begun else await self._frames_of_rows()
        frames = self.telling.of_event(event)
        self.told_to = event["seq"]
        if (self.telling.is_over or self.was_completed) and self.told_to >= self.last_event:
            frames += await self._ending()
        return frames

    async def _frames_of_rows(self) -> list[Frame]:
        if not self.telling.has_begun and (events := await self.live.tables.events_of(self.message_id)):
            # It was there before its first event, which has come now.
            self.last_event = events[1]
            await self.subscribe(events[0] - 1)
            return []
        found = await self.live.ask(admission.read_message, self.message_id, whole=True)
        if found is None:
            return self._broken_off(_("The message was deleted."))
        frames = self.telling.of_message(message_of(found))
        return frames + await self._ending() if found.is_completed else frames

    async def _ending(self) -> list[Frame]:
        found = await self.live.ask(admission.read_message, self.message_id, whole=True)
        if found is None:
            return self._broken_off(_("The message was deleted."))
        self._end()
        return self.telling.ending(
            message_of(found),
            error=found.error,
            was_stopped=was_stopped(found),
            step_count=found.step_count,
            duration=found.duration,
        )

    def _broken_off(self, reason: str) -> list[Frame]:
        self._end()
        return self.telling.broken_off(reason)

    def _end(self) -> None:
        self.is_told = True
        self.client.end("over")

    def _say(self, message: Message) -> None:
        self.client.words.append(message)
        self.client.wake.set()


def _token(headers: Mapping[str, str]) -> str | None:
    """The key counts before the other one, as everywhere below /weknora/."""
    return headers.get("x-api-key", "").strip() or bearer_in(headers.get("authorization", ""))

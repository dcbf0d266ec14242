"""WeKnora's continue-stream: one answer from its beginning, then live; see docs/weknora.md.

The frames are built from the answer's events, which come from the feed of its session. An answer without events is read
from its rows, at first and after each change. In both cases the rows decide when and how the answer ended.
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
from tracesite.http.foreign_api import LiveHandler
from tracesite.http.request_log import REQUEST_ID
from tracesite.live import admission
from tracesite.live.admission import Viewer
from tracesite.live.answers import answer
from tracesite.live.clients import Client, Live, headers_of
from tracesite.live.feeds import POLL_SECONDS, LiveMessage
from tracesite.live.streams import wait_for_the_end

from .frames import Frame, FrameStream, encode_frame
from .shapes import message_of, was_stopped

_PATH = re.compile(r"/weknora/api/v1/sessions/continue-stream/([^/]+)")
_SIGN_OF_LIFE = b": heartbeat\n\n"
# Internal messages, queued between those that are sent.
_CHANGED, _ENDED, _GONE = (LiveMessage(kind, "") for kind in ("rows_changed", "answer_ended", "answer_gone"))

logger = logging.getLogger(__name__)


def live_route(path: str) -> LiveHandler | None:
    """Return `continue_stream` for the path of a continue-stream; None for other paths."""
    return continue_stream if _PATH.fullmatch(path) else None


async def continue_stream(
    live: Live, scope: Mapping[str, Any], query: Mapping[str, str], receive: Any, send: Any
) -> None:
    """Serve one request until the answer has ended."""
    headers = headers_of(scope)
    given = headers.get("x-request-id", "")
    request_id = given if REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
    client = await live.enter(scope)
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
                    # Otherwise nginx buffers the stream.
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
    async def send_frames(message: LiveMessage) -> bool:
        try:
            data = b"".join(map(encode_frame, await following.frames_of(message)))
        except ApiError:
            # The database is away, or the session was just deleted. A client that reconnects gets the whole answer.
            client.end("again")
            return False
        if not data and message.kind != "heartbeat":
            return False  # an event of another answer in the session
        await send(data or _SIGN_OF_LIFE)
        return True

    await send(b"".join(map(encode_frame, following.frames.beginning())))
    tasks = [asyncio.create_task(wait_for_the_end(client, receive)), asyncio.create_task(following.watch())]
    for task in tasks:
        task.add_done_callback(following.has_ended)
    try:
        await live.send_all(client, send_frames)
    finally:
        for task in tasks:
            task.cancel()


async def _follow(
    live: Live, client: Client, scope: Mapping[str, Any], query: Mapping[str, str], request_id: str
) -> _Following:
    """Check the request and subscribe to the session of its answer. Raises ApiError."""
    headers = headers_of(scope)
    # X-API-Key before Authorization, as in KeyBeforeBearer.
    token = headers.get("x-api-key", "").strip() or bearer_in(headers.get("authorization", ""))
    if token is None:
        raise NotAuthenticated
    client.viewer = await live.viewer_of_key(token, client.address)
    if not query.get("message_id"):
        raise InvalidInput("Missing message ID", field="message_id")
    match = _PATH.fullmatch(scope["path"])
    assert match is not None, "live_route matched the path"
    found = await live.ask(admission.find_message, client.viewer, match[1], query["message_id"])
    about = await live.ask(admission.read_message, client.viewer, found.pk, whole=False)
    if about is None or about.role != "assistant":
        raise NotFound(code="no_stream_events")
    # In this order: an event stored in between is found by the second query or has a number above the first result.
    states = await live.tables.states([found.session_id])
    events = await live.tables.events_of(found.pk)
    following = _Following(
        live=live,
        client=client,
        viewer=client.viewer,
        session_id=found.session_id,
        message_id=found.pk,
        frames=FrameStream(
            request_id=about.request_id or request_id, session_id=str(found.session_id), message_id=str(found.pk)
        ),
        last_event=events and events[1],
        was_completed=about.is_completed,
    )
    # Earlier events belong to other answers. Without events, only future ones matter.
    await following.subscribe(
        events[0] - 1 if events else max((state.last_seq for state in states.values()), default=0)
    )
    return following


@dataclass(kw_only=True, eq=False)
class _Following:
    """The position of one client in one answer."""

    live: Live
    client: Client
    viewer: Viewer
    session_id: UUID
    message_id: UUID
    frames: FrameStream
    last_event: int | None
    """The answer's last event number when the stream began; None if the frames are built from the rows."""
    was_completed: bool
    sent_to: int = 0
    """The number of the last event that was sent."""
    is_finished: bool = False

    async def subscribe(self, after: int) -> None:
        await self.live.subscribe(self.client, self.viewer, str(self.session_id), after, field="session_id")

    async def frames_of(self, message: LiveMessage) -> list[Frame]:
        """Return the frames to send for a message of the session's feed. Raises ApiError."""
        if self.is_finished:
            return []
        match message.kind:
            case "monitor_event":
                return await self._frames_of_event(message)
            case "events_dropped":
                # The client was slow. Read the dropped events from the table, as fast as it reads them.
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
        """Poll the row, because an answer can change or end without an event."""
        version = None
        while True:
            row = await self.live.tables.run(self.message_id)
            if row is None:
                self._queue(_GONE)
                return
            is_completed, latest = row
            if self.last_event is None:
                if latest != version:
                    version = latest
                    self._queue(_CHANGED)
            elif is_completed:
                events = await self.live.tables.events_of(self.message_id)
                if events is None or self.sent_to >= events[1]:
                    self._queue(_ENDED)
            await asyncio.sleep(POLL_SECONDS)

    def has_ended(self, task: asyncio.Task[None]) -> None:
        """End the connection if a background task failed, so that the client reconnects instead of waiting."""
        if not task.cancelled() and task.exception() is not None:
            logger.error("Live: a task that follows an answer ended unexpectedly.", exc_info=task.exception())
            self.client.end("again")

    async def _frames_of_event(self, message: LiveMessage) -> list[Frame]:
        if self.frames.message_id not in message.json:
            return []
        event = msgspec.json.decode(message.json)["event"]
        if event["message_id"] != self.frames.message_id:
            return []
        if self.last_event is None:
            # An answer whose frames began with its rows continues with them to the end; `watch` polls them.
            return [] if self.frames.has_begun else await self._frames_of_rows()
        frames = self.frames.of_event(event)
        self.sent_to = event["seq"]
        if (self.frames.is_over or self.was_completed) and self.sent_to >= self.last_event:
            frames += await self._ending()
        return frames

    async def _frames_of_rows(self) -> list[Frame]:
        found = await self.live.ask(admission.read_message, self.viewer, self.message_id, whole=True)
        # After the rows, so that steps that come from events are never read without these being seen.
        if not self.frames.has_begun and (events := await self.live.tables.events_of(self.message_id)):
            # The message existed before its first event, which has now arrived.
            self.last_event = events[1]
            await self.subscribe(events[0] - 1)
            return []
        if found is None:
            return self._broken_off(_("The message was deleted."))
        frames = self.frames.of_message(message_of(found))
        return frames + await self._ending() if found.is_completed else frames

    async def _ending(self) -> list[Frame]:
        found = await self.live.ask(admission.read_message, self.viewer, self.message_id, whole=True)
        if found is None:
            return self._broken_off(_("The message was deleted."))
        self._end()
        return self.frames.ending(
            message_of(found),
            error=found.error,
            was_stopped=was_stopped(found),
            step_count=found.step_count,
            duration=found.duration,
        )

    def _broken_off(self, reason: str) -> list[Frame]:
        self._end()
        return self.frames.broken_off(reason)

    def _end(self) -> None:
        self.is_finished = True
        self.client.end("over")

    def _queue(self, message: LiveMessage) -> None:
        self.client.urgent.append(message)
        self.client.wake.set()

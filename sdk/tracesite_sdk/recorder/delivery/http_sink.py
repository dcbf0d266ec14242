"""The sink that delivers to a Tracesite server. It writes events to the disk at once (spool.py), and a thread of its own sends
them from there, so that an agent never waits for a network.

    POST {url}/api/v1/events/      batches of events, oldest first, until the server has acknowledged them
    GET  {url}/api/v1/recorder/    the project's settings for recorders, every 30 s while there is something to record

Delivery is idempotent: an event is sent until the server has acknowledged it, and the server recognises the id of an event
that it has already. Responses:

    2xx                             stored; events of deleted sessions are counted, logged once, and never sent again
    400, 413, 422                   the invalid events are found, moved to refused.ndjson and counted; the rest is delivered.
                                    If all are refused, the cause lies elsewhere, and all of them are kept
    409, 429, 5xx, no response      retry after a pause: up to 0.2 s at first, up to 30 s later, or as Retry-After demands
    timeout                         the same, in smaller batches, until the event is found that the server cannot process: it
                                    is moved to refused.ndjson if the server takes the next one
    401, 403, 404, anything else    logged once, with advice; retried every 30 s

This module registers nothing for exit or signals: the pipeline calls `flush` and `close`, which return at their deadline,
whatever the server does. Where no thread can be started any more, as at the exit of the interpreter, they send by themselves.
"""

from __future__ import annotations

import os
import random
import re
import shlex
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from tracesite_sdk.recorder.guard import Guard, logger

from .sinks import Clean, ServerSettings
from .spool import Batch, Spool, spool_roots
from .transport import Answer, NoAnswer, NoAnswerInTime, Server

BATCH_EVENTS = 500
BATCH_BYTES = 1024 * 1024
"""Bytes of one request, before compression. A larger event is sent alone."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
PAUSE_IN_FLUSH = 0.5
"""The longest pause during a flush, unless the server asked for a longer one."""
LONGEST_RETRY_AFTER = 300.0
SETTINGS_SECONDS = 30.0
SETTINGS_WAIT = 3.0
"""The timeout of the request for settings, so that events do not wait longer than this for it."""
NO_SETTINGS_SECONDS = 600.0
"""An older server that has no settings for recorders is asked this rarely."""
ADOPT_SECONDS = 10.0
"""Seconds between two searches for events of dead processes."""
FAILURES_OF_ONE_BATCH = 8
"""After so many responses 500 to one batch it is split, because one of its events may be the cause."""
TIMEOUTS_OF_ONE_EVENT = 3
"""After so many timeouts of one event alone another one is sent: if that succeeds and the first times out again, the first is
set aside."""
MOST_ASKED_FOR = 10
MOST_ATTEMPTS = 40
"""A batch is retried later after so many refused parts and no accepted one."""
LARGE_EVENT = 64 * 1024
"""An event of this size that is too large for a server is refused by itself; for a smaller one the cause lies elsewhere."""

_EVENTS = "/api/v1/events/"
_SETTINGS = "/api/v1/recorder/"
_FIELD = re.compile(r"events\[(\d{1,6})\]")
_CODE = re.compile(r"[a-z_]{1,40}")
# Errors about the request, not about its events.
_BROKEN_ON_THE_WAY = ("Content-Length", "Content-Encoding", "Content-Type")


class _Sent(msgspec.Struct):
    state: str


class _Refusal(msgspec.Struct):
    code: str


class _Accepted(msgspec.Struct):
    results: list[_Sent]
    refused: list[_Refusal]


class _Error(msgspec.Struct):
    code: str
    field: str | None = None


class _Failed(msgspec.Struct):
    error: _Error


_ACCEPTED = msgspec.json.Decoder(_Accepted)
_FAILED = msgspec.json.Decoder(_Failed)
_SERVER_SETTINGS = msgspec.json.Decoder(ServerSettings)


@dataclass(frozen=True, kw_only=True)
class SinkReport:
    """Counts of the events that a sink took, and of those of dead processes that it delivered."""

    spooled: int
    """Taken in this process."""
    delivered: int
    """Stored by the server for the first time."""
    duplicates: int
    """Acknowledged by a server that had them already: sent before a crash or a lost response."""
    refused: dict[str, int]
    """Refused by the server and never sent again, by error code."""
    invalid: int
    """Lines of damaged files that are not events."""
    lost: int
    """Lost after the sink took them: their file was removed, or they were in memory only when the process ended."""
    waiting: int
    """Taken and not delivered yet."""
    waiting_bytes: int
    last_error: str | None
    """The reason why the last request failed, or None. Without content and without the key."""


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The server has stored the events."""

    states: Counter[str]
    refused: Counter[str]


@dataclass(frozen=True, kw_only=True)
class _NotTaken:
    """The server refuses an event: the one at index `at`, if it is known."""

    code: str
    at: int | None = None


@dataclass
class _Slow:
    """Batch sizes after timeouts."""

    events: int = 0
    """Waiting events that were in a batch that timed out: one of them may be the cause."""
    batch_events: int = BATCH_EVENTS
    """The size of the next batch."""
    timeouts: int = 0
    """Timeouts of one event alone."""
    is_alone: bool = False
    """Another event was taken since then: if this one times out again, it is the cause."""

    @property
    def needs_another(self) -> bool:
        return self.timeouts >= TIMEOUTS_OF_ONE_EVENT and not self.is_alone

    @property
    def wanted(self) -> int:
        """Events that the next batch should have. The events next to the first one may have the same problem."""
        if self.needs_another:
            return min(self.timeouts - TIMEOUTS_OF_ONE_EVENT + 2, MOST_ASKED_FOR)
        return self.batch_events

    def timed_out(self, events: int) -> None:
        self.events = events
        self.batch_events = max(1, events // 4)
        self.timeouts += events == 1

    def took(self, events: int) -> None:
        self.events -= events
        self.timeouts = 0
        self.is_alone = False
        if self.events <= 0:
            self.events, self.batch_events = 0, BATCH_EVENTS


@dataclass(frozen=True, kw_only=True)
class _Later:
    """The server cannot take any event now."""

    reason: str
    pause: float | None = None
    """Seconds, if the server or the reason demands a certain pause."""
    advice: str = ""


_Verdict = _Stored | _NotTaken | _Later


class HttpSink:
    """Sends events to the server at `url` with an API key that has write permission.

    `spool`: the directory where events wait; by default $TRACESITE_SPOOL, else ~/.local/state/tracesite/spool, else a private
    directory for temporary files. `spool_bytes`: the limit for this server, of all processes together; each may exceed it by a
    segment (1 MiB). A full spool refuses new events.
    `connect_timeout`, `read_timeout`: seconds. `interval`: seconds that events wait for others before they are sent.

    Raises ValueError for an invalid address or key. See `sinks.Sink` for the methods.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        spool: str | os.PathLike[str] | Spool | None = None,
        spool_bytes: int = 256 * 2**20,
        connect_timeout: float = 3.0,
        read_timeout: float = 10.0,
        interval: float = 0.2,
    ) -> None:
        for name, value in (
            ("spool_bytes", spool_bytes),
            ("connect_timeout", connect_timeout),
            ("read_timeout", read_timeout),
        ):
            if not value > 0:
                raise ValueError(f"{name}: expected a number above 0, not {value!r}.")
        self._server = Server(url, key, connect_timeout=connect_timeout, read_timeout=read_timeout)
        self._key_start = key[:8]
        self._interval = interval
        self._guard = Guard()
        if not isinstance(spool, Spool):
            spool = Spool(spool_roots(spool), self._server.url, key, limit=spool_bytes)
        self._spool = spool
        self._begin()

    def _begin(self) -> None:
        # Notified of every change. Its lock is reentrant, because a flush may run in a signal handler.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_inline = False
        """No thread can be started: the thread that flushes sends."""
        self._flushing = 0
        self._is_asking = False
        self._is_closing = self._is_closed = False
        self._settings: ServerSettings | None = None
        self._settings_at = self._adopt_at = self._last_post = 0.0
        self._retry_at: float | None = None
        """The time of the next attempt; None after a success."""
        self._failures = 0
        self._server_errors: Counter[bool] = Counter()
        """Responses 500 to the current batch, of this process (True) and of a dead one."""
        self._slow = {True: _Slow(), False: _Slow()}
        """Timeouts, in the same way."""
        self._must_wait = False
        """The server asked for the current pause."""
        self._trouble = ""
        self._logged: set[str] = set()
        self._is_own_turn = True
        self._last_error: str | None = None
        self._spooled = self._delivered = self._duplicates = self._invalid = 0
        self._refused: Counter[str] = Counter()

    # --- The sink ---------------------------------------------------------------------------------------------------

    @property
    def discards(self) -> bool:
        return False

    def send(self, events: Sequence[Clean]) -> int:
        taken = self._spool.append(events)
        with self._changed:
            self._spooled += taken
            self._changed.notify_all()
        if self._thread is None and not self._is_inline:
            self._start()
        return taken

    def flush(self, deadline: float) -> int:
        with self._changed:
            self._flushing += 1
            self._hurry()

        def is_enough() -> bool:
            # Waiting is useless if the server asked for a pause beyond the deadline, or refuses the key.
            is_useless = self._must_wait and self._retry_at is not None and self._retry_at >= deadline
            return is_useless or self._is_done()

        try:
            if self._is_inline:
                self._work(deadline, is_enough)
            else:
                with self._changed:
                    self._changed.wait_for(is_enough, max(0.0, deadline - time.monotonic()))
        finally:
            with self._changed:
                self._flushing -= 1
        return self._spool.waiting()[0]

    def close(self, deadline: float) -> int:
        """Flush; then send the events of dead processes too, if there is time left and the server takes them."""
        left = self.flush(deadline)
        with self._changed:
            if self._is_closed:
                return left
            self._is_closing = True
            self._adopt_at = 0.0
            self._changed.notify_all()
            self._changed.wait_for(self._may_stop, max(0.0, deadline - time.monotonic()))
        if self._is_inline:
            self._work(deadline, self._is_over)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._spool.release()
        self._log_undelivered(left)
        # A thread that still waits for a response ends with it, and closes the connection.
        self._server.break_off()
        if self._thread is None:
            self._server.close()
        return left

    def after_fork(self) -> None:
        self._server.after_fork()
        self._spool.after_fork()
        self._guard = Guard()
        self._begin()

    def settings(self) -> ServerSettings | None:
        return self._settings

    # --- More than a sink -------------------------------------------------------------------------------------------

    def drain(self, deadline: float) -> int:
        """Send the events of dead processes for this server, in the caller's thread. Return how many of this process are left."""
        self._is_inline = True
        self._adopt_at = 0.0
        self._work(deadline, self._is_idle)
        return self._spool.waiting()[0]

    def report(self) -> SinkReport:
        """Return the counts so far."""
        waiting, waiting_bytes = self._spool.waiting()
        with self._changed:
            return SinkReport(
                spooled=self._spooled,
                delivered=self._delivered,
                duplicates=self._duplicates,
                refused=dict(self._refused),
                invalid=self._invalid,
                lost=self._spool.lost,
                waiting=waiting,
                waiting_bytes=waiting_bytes,
                last_error=self._last_error,
            )

    # --- Schedule ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._changed:
            if self._thread is not None or self._is_closed:
                return
            thread = threading.Thread(target=self._run, name="tracesite-sender", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                self._is_inline = True  # the interpreter ends, or the system has no thread left
            else:
                self._thread = thread

    def _run(self) -> None:
        """Deliver until the sink is closed: the thread of the sink."""
        while not self._is_over():
            with self._guard.around(self._on_own_failure):
                if self._wait(None):
                    self._take_turn(None)
        self._server.close()
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _work(self, deadline: float, is_enough: Callable[[], bool]) -> None:
        """Deliver in the caller's thread, until `is_enough` or the deadline."""
        while not is_enough() and time.monotonic() < deadline:
            if self._wait(deadline):
                self._take_turn(deadline)

    def _wait(self, deadline: float | None) -> bool:
        """Wait until there is work. Return False at the deadline, or if the sink was closed meanwhile."""
        with self._changed:
            while not self._is_over():
                now = time.monotonic()
                due = self._due(now)
                if due <= now:
                    return True
                if deadline is not None and deadline <= now:
                    return False
                self._changed.wait((due if deadline is None else min(due, deadline)) - now)
            return False

    def _due(self, now: float) -> float:
        if self._retry_at is not None:
            return self._retry_at
        waiting = self._spool.waiting()[0]
        if waiting and (self._flushing or self._is_closing or waiting >= BATCH_EVENTS):
            return now
        if self._spool.has_adopted:
            return now
        if waiting:
            return self._last_post + self._interval
        return min(self._settings_at, self._adopt_at)

    def _hurry(self) -> None:
        """For a flush: make the next attempt now, unless the server asked for a pause."""
        if self._retry_at is not None and not self._must_wait:
            self._retry_at = 0.0
            self._failures = min(self._failures, 1)
        self._changed.notify_all()

    def _is_done(self) -> bool:
        return self._is_closed or self._spool.waiting()[0] == 0 or (self._thread is None and not self._is_inline)

    def _may_stop(self) -> bool:
        """Return whether there is no thread, or it waits for nothing but settings."""
        return self._thread is None or self._is_asking

    def _is_over(self) -> bool:
        return self._is_closed or (self._is_closing and (self._retry_at is not None or self._is_idle()))

    def _is_idle(self) -> bool:
        """Return whether no known event waits, of this process or of a dead one."""
        return self._spool.waiting()[0] == 0 and not self._spool.has_adopted and self._adopt_at > time.monotonic()

    # --- Work -------------------------------------------------------------------------------------------------------

    def _take_turn(self, deadline: float | None) -> None:
        now = time.monotonic()
        if now >= self._adopt_at and not self._spool.has_adopted:
            # There may be more than one dead process.
            self._adopt_at = now if self._spool.adopt() else now + ADOPT_SECONDS
        batch = self._next_batch()
        if batch is not None:
            self._deliver(batch, deadline)
        else:
            self._retry_at = None  # the events that failed are gone
        if now >= self._settings_at and self._retry_at is None and not self._flushing and not self._is_closing:
            self._ask_for_settings(deadline)
        with self._changed:
            self._changed.notify_all()

    def _next_batch(self) -> Batch | None:
        """Return a batch of this process and of a dead one in turns, so that neither waits for all of the other's."""
        self._is_own_turn = not self._is_own_turn or bool(self._flushing)
        for own in (self._is_own_turn, not self._is_own_turn):
            wanted = self._slow[own].wanted
            batch = self._spool.next_batch(own=own, most_events=wanted, most_bytes=BATCH_BYTES)
            if batch is not None:
                return batch
        return None

    def _deliver(self, batch: Batch, deadline: float | None) -> None:
        """Send a batch; events that the server refuses are found by halving."""
        slow = self._slow[batch.own]
        todo = [batch.lines] if batch.lines else []
        if slow.needs_another and len(batch.lines) > 1:
            self._send_another(batch, deadline)
            return
        not_taken: list[tuple[bytes, str]] = []
        suspects: list[tuple[bytes, str]] = []
        refused: Counter[str] = Counter()
        takes_some = False
        attempts = 0
        while todo and (takes_some or attempts < MOST_ATTEMPTS):
            attempts += 1
            lines = todo.pop()
            verdict = self._post(lines, batch.own, deadline)
            match verdict:
                case _Later():
                    self._put_off(verdict)
                    return
                case _Stored():
                    takes_some = True
                    refused += verdict.refused
                    with self._changed:
                        self._delivered += verdict.states["stored"]
                        self._duplicates += verdict.states["duplicate"]
                case _NotTaken(code=code, at=at) if at is not None and at < len(lines):
                    not_taken.append((lines[at], code))
                    takes_some = True
                    # Split, so that no event is sent once for each refused one.
                    todo += [part for part in (lines[at + 1 :], lines[:at]) if part]
                case _NotTaken(code=code):
                    if len(lines) == 1:
                        suspects.append((lines[0], code))
                    else:
                        half = len(lines) // 2
                        todo += [lines[half:], lines[:half]]
        doubtful = [
            code for line, code in suspects if code != "timed_out" and (code != "too_large" or len(line) < LARGE_EVENT)
        ]
        if (doubtful or todo) and not takes_some:
            # The cause is not an event: a proxy that responds 400 would make all of them count as refused.
            self._put_off(_Later(reason="it accepts no events at all", pause=LONGEST_PAUSE, advice=_ADVICE))
            return
        self._count_refused(refused)
        self._set_aside(batch, not_taken + suspects)
        self._spool.settle(batch)
        self._server_errors[batch.own] = 0
        slow.took(len(batch.lines))
        if batch.lines:
            self._on_success()

    def _send_another(self, batch: Batch, deadline: float | None) -> None:
        """Send another event to find out whether the server is slow, or cannot process the first event of the batch. Events
        that are delivered here are sent again in their turn, which does no harm."""
        verdict = self._post(batch.lines[-1:], batch.own, deadline)
        if isinstance(verdict, _Later):
            self._put_off(verdict)
            return
        self._slow[batch.own].is_alone = True
        with self._changed:
            self._retry_at = None
            if isinstance(verdict, _Stored):
                self._delivered += verdict.states["stored"]
                self._duplicates += verdict.states["duplicate"]

    def _post(self, lines: list[bytes], own: bool, deadline: float | None) -> _Verdict:
        self._last_post = time.monotonic()
        body = b"\n".join([*lines, b""])
        try:
            answer = self._server.post(_EVENTS, body, "application/x-ndjson", within=_within(deadline))
        except NoAnswerInTime as failure:
            slow = self._slow[own]
            slow.timed_out(len(lines))
            if slow.is_alone and len(lines) == 1:
                return _NotTaken(code="timed_out")
            return _Later(reason=str(failure))
        except NoAnswer as failure:
            return _Later(reason=str(failure))
        if answer.status == 500:
            self._server_errors[own] += 1
            if self._server_errors[own] > FAILURES_OF_ONE_BATCH:
                return _NotTaken(code="internal_error")
        return _verdict(answer, len(lines))

    def _count_refused(self, refused: Counter[str]) -> None:
        with self._changed:
            self._refused += refused
        for code in refused:
            self._log_once(code, "%s refuses events (%s). They are counted and not sent again.", self._server.url, code)

    def _set_aside(self, batch: Batch, not_taken: list[tuple[bytes, str]]) -> None:
        if batch.invalid:
            self._invalid += len(batch.invalid)
            self._spool.set_aside("invalid", batch.invalid)
            self._log_once(
                "", "A file in %s was damaged: its invalid lines are in invalid.ndjson.", self._spool.directory
            )
        if not_taken:
            kept_in = self._spool.set_aside("refused", [line for line, _code in not_taken])
            with self._changed:
                self._refused.update(code for _line, code in not_taken)
            for code in sorted({code for _line, code in not_taken}):
                self._log_once(
                    f"400 {code}",
                    "%s cannot take some events (%s). They are counted and not sent again%s.",
                    self._server.url,
                    code,
                    f"; they are kept in {kept_in}" if kept_in else "",
                )

    def _ask_for_settings(self, deadline: float | None) -> None:
        self._settings_at = time.monotonic() + SETTINGS_SECONDS
        left = _within(deadline)
        self._is_asking = True
        try:
            answer = self._server.get(_SETTINGS, within=SETTINGS_WAIT if left is None else min(left, SETTINGS_WAIT))
        except NoAnswer:
            return  # if the server is away, delivering events will log that
        finally:
            self._is_asking = False
        if answer.status == 404:
            self._settings_at = time.monotonic() + NO_SETTINGS_SECONDS
        if answer.status == 200:
            try:
                self._settings = _SERVER_SETTINGS.decode(answer.body)
            except msgspec.DecodeError:
                self._log_once("settings", "%s sent settings that this recorder cannot parse.", self._server.url)

    def _put_off(self, later: _Later) -> None:
        """Schedule the next attempt, and log the reason once."""
        with self._changed:
            self._failures += 1
            self._last_error = later.reason
            self._must_wait = later.pause is not None
            longest = PAUSE_IN_FLUSH if self._flushing else LONGEST_PAUSE
            pause = later.pause
            if pause is None:
                # Full jitter, so that recorders that failed together do not retry together.
                pause = random.uniform(0, min(longest, FIRST_PAUSE * 2 ** min(self._failures - 1, 20)))  # noqa: S311
            self._retry_at = time.monotonic() + pause
        if self._is_closed:
            return  # closing aborted the request
        # During an outage, only a reason with advice is worth another line.
        if not self._trouble or (later.advice and later.reason != self._trouble):
            self._trouble = later.reason
            logger.warning(
                "Events are not delivered to %s: %s. They wait in %s and will be sent later.%s",
                self._server.url,
                later.reason,
                self._spool.directory or "memory",
                f" {later.advice.format(key=self._key_start, drain=self._drain_command())}" if later.advice else "",
            )

    def _drain_command(self) -> str:
        """Return the command that sends the waiting events, without a key."""
        directory = self._spool.directory
        spool = ""
        if directory is not None and directory.parent not in spool_roots():
            spool = f" --spool {shlex.quote(str(directory.parent))}"
        return f"tracesite drain --url {shlex.quote(self._server.url)}{spool}"

    def _on_success(self) -> None:
        with self._changed:
            self._retry_at = self._last_error = None
            self._failures = 0
        if self._trouble:
            self._trouble = ""
            logger.info("Events are delivered to %s again.", self._server.url)

    def _on_own_failure(self) -> None:
        """Retry later after an error inside the sink."""
        with self._changed:
            self._retry_at = time.monotonic() + LONGEST_PAUSE
            self._must_wait = True
            self._last_error = "the recorder failed"

    def _log_undelivered(self, left: int) -> None:
        if self._spool.lost:
            logger.warning("%d events for %s are lost: they were not on the disk.", self._spool.lost, self._server.url)
        elif left and not self._trouble:
            logger.warning(
                "%d events are not delivered to %s yet. They wait in %s for the next process that records to it.",
                left,
                self._server.url,
                self._spool.directory,
            )

    def _log_once(self, key: str, message: str, *args: object) -> None:
        if key not in self._logged:
            self._logged.add(key)
            logger.warning(message, *args)


_ADVICE = "Is this the address of a Tracesite server, without /api/v1?"
_ADVICES = {
    401: "Check the key that begins with {key}: it is unknown, expired or revoked. To send the waiting events with another key: "
    "{drain} --key NEW_KEY --other-keys",
    403: "The key that begins with {key} has no write permission: create one with the scope write.",
    400: "Is this host name in TRACESITE_ALLOWED_HOSTS of the server?",
}


def _verdict(answer: Answer, sent: int) -> _Verdict:
    """Interpret the response to `sent` events."""
    status = answer.status
    if 200 <= status < 300:
        return _stored(answer.body, sent)
    code, field = _error(answer.body)
    reason = f"it responds {status} {code}".rstrip()
    pause = None if answer.retry_after is None else max(FIRST_PAUSE, min(answer.retry_after, LONGEST_RETRY_AFTER))
    if status == 413:
        return _NotTaken(code="too_large")
    if status in (400, 403, 406, 422) and not code:
        # Not Tracesite, but a proxy before it, which may reject the content of an event.
        return _NotTaken(code="refused_on_the_way")
    if status in (400, 422) and code != "wrong_host":
        if field in _BROKEN_ON_THE_WAY:
            return _Later(reason=reason, pause=pause)
        at = _FIELD.match(field or "")
        return _NotTaken(code=code, at=int(at[1]) if at else None)
    if status >= 500 or status in (408, 409, 425, 429):
        return _Later(reason=reason, pause=pause)
    return _Later(reason=reason, pause=LONGEST_PAUSE, advice=_ADVICES.get(status, _ADVICE))


def _stored(body: bytes, sent: int) -> _Verdict:
    try:
        accepted = _ACCEPTED.decode(body)
    except msgspec.DecodeError:
        accepted = None
    if accepted is None or len(accepted.results) != sent:
        # A login page, for example: nothing was stored.
        return _Later(reason="the response is not from Tracesite", pause=LONGEST_PAUSE, advice=_ADVICE)
    return _Stored(
        states=Counter(result.state for result in accepted.results),
        refused=Counter(_plain(refusal.code) for refusal in accepted.refused),
    )


def _error(body: bytes) -> tuple[str, str | None]:
    """Return the code and the field of an error of Tracesite, without its message, which may repeat parts of the request."""
    try:
        error = _FAILED.decode(body).error
    except msgspec.DecodeError:
        return "", None
    return _plain(error.code), error.field


def _plain(code: str) -> str:
    return code if _CODE.fullmatch(code) else "unknown"


def _within(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()

"""The sink that delivers to a Tracesite server: what it takes is on the disk at once (spool.py), and a thread of its own
sends it from there. An agent never waits for a network.

    POST {url}/api/v1/events/      batches of events, oldest first, until the server says that it has them
    GET  {url}/api/v1/recorder/    what the project asks of its recorders, every 30 s while there is something to record

Every event arrives once: it is sent until the server has acknowledged it, and a server knows the id of an event that comes
again. What answers mean:

    2xx                             stored; what was deleted on the server is counted, told once, and never sent again
    400, 413, 422                   the events that it cannot take are found, put into refused.ndjson and counted; the rest is
                                    delivered. If it takes none at all, something else is wrong, and all of them are kept
    409, 429, 5xx, no answer        again after a pause: up to 0.2 s at first, up to 30 s later, or what Retry-After says
    no answer in time               the same, in smaller batches, until the event is found that the server does not come to
                                    an end with: it is put into refused.ndjson, where the server takes the one behind it
    401, 403, 404, anything else    said once, with what to do; again every 30 s

Nothing is registered for exit or signals here: the pipeline calls `flush` and `close`, which return at their deadline,
whatever a server does. Where no thread can be started any more, as at the exit of the interpreter, they send by themselves.
"""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from .guard import Guard
from .sinks import Clean, ServerSettings
from .spool import Batch, Spool, spool_roots
from .transport import Answer, NoAnswer, NoAnswerInTime, Server

logger = logging.getLogger("tracesite.recorder")

BATCH_EVENTS = 500
BATCH_BYTES = 1024 * 1024
"""Of one request, before it is compressed. An event that is larger goes alone."""
FIRST_PAUSE = 0.2
LONGEST_PAUSE = 30.0
PAUSE_IN_FLUSH = 0.5
"""While somebody waits for a flush, a pause is no longer than this, unless the server asked for it."""
LONGEST_RETRY_AFTER = 300.0
SETTINGS_SECONDS = 30.0
SETTINGS_WAIT = 3.0
"""Events do not wait longer than this for an answer about settings."""
NO_SETTINGS_SECONDS = 600.0
"""A server that has no settings for recorders is an older one: it is asked this rarely."""
ADOPT_SECONDS = 10.0
"""How often is looked for what dead processes left."""
FAILURES_OF_ONE_BATCH = 8
"""After so many answers 500 to one batch it is taken apart: one of its events may be what the server fails at."""
TIMEOUTS_OF_ONE_EVENT = 3
"""After so many timeouts of one event alone another one is sent: if that is taken and the first times out again, the first is
put aside."""
MOST_ASKED_FOR = 10
MOST_ATTEMPTS = 40
"""A batch of which so many parts were refused, and none taken, is put off."""
LARGE_EVENT = 64 * 1024
"""An event from this size on that is too large for a server is the fault of the event."""

_EVENTS = "/api/v1/events/"
_SETTINGS = "/api/v1/recorder/"
_FIELD = re.compile(r"events\[(\d{1,6})\]")
_CODE = re.compile(r"[a-z_]{1,40}")
# Errors about the request, not about what is in it.
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
    """What became of the events that a sink took, and of those of dead processes that it delivered."""

    spooled: int
    """Taken in this process."""
    delivered: int
    """Stored by the server for the first time."""
    duplicates: int
    """Acknowledged by a server that had them already: they had been sent before a crash or a lost answer."""
    refused: dict[str, int]
    """Not taken by the server and never sent again, by its reason."""
    invalid: int
    """Lines of damaged files that are no events."""
    lost: int
    """Taken and gone: somebody removed their file, or they were in memory only when the process ended."""
    waiting: int
    """Taken and not delivered yet."""
    waiting_bytes: int
    last_error: str | None
    """Why the last request failed, None when it did not. Holds neither content nor the key."""


@dataclass(frozen=True, kw_only=True)
class _Stored:
    """The server has them."""

    states: Counter[str]
    refused: Counter[str]


@dataclass(frozen=True, kw_only=True)
class _NotTaken:
    """It cannot take one of them; `at` says which, if it said so."""

    code: str
    at: int | None = None


@dataclass
class _Slow:
    """Events that the server did not take in time."""

    events: int = 0
    """How many of those that wait were in a batch that timed out: one of them may be the cause."""
    at_once: int = BATCH_EVENTS
    """How many of them are sent at once."""
    timeouts: int = 0
    """Of one event alone."""
    is_alone: bool = False
    """Since then another event was taken: if this one times out again, it is the cause."""

    @property
    def asks_for_another(self) -> bool:
        return self.timeouts >= TIMEOUTS_OF_ONE_EVENT and not self.is_alone

    @property
    def wanted(self) -> int:
        """How many events the next batch is to have. Those next to the first may be of its kind."""
        if self.asks_for_another:
            return min(self.timeouts - TIMEOUTS_OF_ONE_EVENT + 2, MOST_ASKED_FOR)
        return self.at_once

    def timed_out(self, events: int) -> None:
        self.events = events
        self.at_once = max(1, events // 4)
        self.timeouts += events == 1

    def took(self, events: int) -> None:
        self.events -= events
        self.timeouts = 0
        self.is_alone = False
        if self.events <= 0:
            self.events, self.at_once = 0, BATCH_EVENTS


@dataclass(frozen=True, kw_only=True)
class _Later:
    """It cannot take any now."""

    reason: str
    pause: float | None = None
    """Seconds, where the server or the reason says so."""
    advice: str = ""


_Verdict = _Stored | _NotTaken | _Later


class HttpSink:
    """Sends events to the server at `url` with an API key that may write.

    `spool`: the directory where events wait; else $TRACESITE_SPOOL, else ~/.local/state/tracesite/spool, else a private one
    in the directory for temporary files. `spool_bytes`: how much may wait there for this server, of all processes together;
    each may exceed it by a segment (1 MiB). What comes when it is full is not taken.
    `interval`: how many seconds events wait for others before they are sent.

    Raises ValueError for an address or a key that cannot be. See `sinks.Sink` for the methods.
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
                raise ValueError(f"{name}: expected more than 0, not {value!r}.")
        self._server = Server(url, key, connect_timeout=connect_timeout, read_timeout=read_timeout)
        self._key_start = key[:8]
        self._interval = interval
        self._guard = Guard()
        if not isinstance(spool, Spool):
            spool = Spool(spool_roots(spool), self._server.url, key, limit=spool_bytes)
        self._spool = spool
        self._begin()

    def _begin(self) -> None:
        # What changes is told by this; its lock is reentrant, as a flush may come from a handler of a signal.
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_inline = False
        """No thread can be started: whoever flushes sends."""
        self._flushing = 0
        self._is_asking = False
        self._is_closing = self._is_closed = False
        self._settings: ServerSettings | None = None
        self._settings_at = self._adopt_at = self._last_post = 0.0
        self._retry_at: float | None = None
        """When the next attempt is due; None while all is well."""
        self._failures = 0
        self._server_errors: Counter[bool] = Counter()
        """Answers 500 to the batch at hand, of this process (True) and of a dead one."""
        self._slow = {True: _Slow(), False: _Slow()}
        """The same of timeouts."""
        self._is_told_to_wait = False
        """Whether the pause is one that the server asked for."""
        self._trouble = ""
        self._told: set[str] = set()
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
            # A server that asked for a pause beyond the deadline, or does not know the key, is not waited for.
            is_useless = self._is_told_to_wait and self._retry_at is not None and self._retry_at >= deadline
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
        """Flushes; if there is time left and the server takes them, what dead processes left is sent too."""
        left = self.flush(deadline)
        with self._changed:
            if self._is_closed:
                return left
            self._is_closing = True
            self._adopt_at = 0.0
            self._changed.notify_all()
            self._changed.wait_for(self._has_nothing_to_end, max(0.0, deadline - time.monotonic()))
        if self._is_inline:
            self._work(deadline, self._is_over)
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._spool.release()
        self._tell_what_is_left(left)
        # A thread that still waits for an answer ends with it, and closes the connection.
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

    # --- Besides ----------------------------------------------------------------------------------------------------

    def drain(self, deadline: float) -> int:
        """Sends what dead processes left for this server, in the thread that asks; how many events of this process are left."""
        self._is_inline = True
        self._adopt_at = 0.0
        self._work(deadline, self._is_idle)
        return self._spool.waiting()[0]

    def report(self) -> SinkReport:
        """What became of the events so far."""
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

    # --- When something is to be done -------------------------------------------------------------------------------

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
        """The thread of the sink: delivers until the sink is closed."""
        while not self._is_over():
            with self._guard.around(self._failed_by_itself):
                if self._wait(None):
                    self._take_turn(None)
        self._server.close()
        with self._changed:
            self._thread = None
            self._changed.notify_all()

    def _work(self, deadline: float, is_enough: Callable[[], bool]) -> None:
        """The same in the thread of whoever asks, until it is enough, or the deadline."""
        while not is_enough() and time.monotonic() < deadline:
            if self._wait(deadline):
                self._take_turn(deadline)

    def _wait(self, deadline: float | None) -> bool:
        """Waits until something is to be done. False at the deadline, and where the sink was closed meanwhile."""
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
        """Somebody waits: the next attempt is now, unless the server asked for a pause."""
        if self._retry_at is not None and not self._is_told_to_wait:
            self._retry_at = 0.0
            self._failures = min(self._failures, 1)
        self._changed.notify_all()

    def _is_done(self) -> bool:
        return self._is_closed or self._spool.waiting()[0] == 0 or (self._thread is None and not self._is_inline)

    def _has_nothing_to_end(self) -> bool:
        """Whether no thread is there, or it waits for nothing better than settings."""
        return self._thread is None or self._is_asking

    def _is_over(self) -> bool:
        return self._is_closed or (self._is_closing and (self._retry_at is not None or self._is_idle()))

    def _is_idle(self) -> bool:
        """Nothing waits, neither of this process nor of a dead one, as far as was looked."""
        return self._spool.waiting()[0] == 0 and not self._spool.has_adopted and self._adopt_at > time.monotonic()

    # --- What is done -----------------------------------------------------------------------------------------------

    def _take_turn(self, deadline: float | None) -> None:
        now = time.monotonic()
        if now >= self._adopt_at and not self._spool.has_adopted:
            # Where there was one there may be more.
            self._adopt_at = now if self._spool.adopt() else now + ADOPT_SECONDS
        batch = self._next_batch()
        if batch is not None:
            self._deliver(batch, deadline)
        else:
            self._retry_at = None  # what failed is not there any more
        if now >= self._settings_at and self._retry_at is None and not self._flushing and not self._is_closing:
            self._ask_for_settings(deadline)
        with self._changed:
            self._changed.notify_all()

    def _next_batch(self) -> Batch | None:
        """Of this process and of the dead one in turns, so that neither waits for all of the other's."""
        self._is_own_turn = not self._is_own_turn or bool(self._flushing)
        for own in (self._is_own_turn, not self._is_own_turn):
            wanted = self._slow[own].wanted
            batch = self._spool.next_batch(own=own, most_events=wanted, most_bytes=BATCH_BYTES)
            if batch is not None:
                return batch
        return None

    def _deliver(self, batch: Batch, deadline: float | None) -> None:
        """Sends a batch; events that the server does not take are found by halving."""
        slow = self._slow[batch.own]
        todo = [batch.lines] if batch.lines else []
        if slow.asks_for_another and len(batch.lines) > 1:
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
                    # Apart, so that no event is sent once for each one that is refused.
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
            # Whatever it dislikes is not an event: a proxy that answers 400 would make an end of them all.
            self._put_off(_Later(reason="it takes no event at all", pause=LONGEST_PAUSE, advice=_ADVICE))
            return
        self._count_refused(refused)
        self._set_aside(batch, not_taken + suspects)
        self._spool.settle(batch)
        self._server_errors[batch.own] = 0
        slow.took(len(batch.lines))
        if batch.lines:
            self._went_well()

    def _send_another(self, batch: Batch, deadline: float | None) -> None:
        """Finds out whether it is the server that is slow, or the first event of the batch that it cannot process. What is
        taken here comes again in its turn, which does no harm."""
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
            self._tell_once(
                code, "%s refuses events (%s). They are counted and not sent again.", self._server.url, code
            )

    def _set_aside(self, batch: Batch, not_taken: list[tuple[bytes, str]]) -> None:
        if batch.invalid:
            self._invalid += len(batch.invalid)
            self._spool.set_aside("invalid", batch.invalid)
            self._tell_once(
                "", "A file in %s was damaged: lines that are no events are in invalid.ndjson.", self._spool.directory
            )
        if not_taken:
            kept_in = self._spool.set_aside("refused", [line for line, _code in not_taken])
            with self._changed:
                self._refused.update(code for _line, code in not_taken)
            for code in sorted({code for _line, code in not_taken}):
                self._tell_once(
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
            return  # if the server is away, that is said when there are events
        finally:
            self._is_asking = False
        if answer.status == 404:
            self._settings_at = time.monotonic() + NO_SETTINGS_SECONDS
        if answer.status == 200:
            try:
                self._settings = _SERVER_SETTINGS.decode(answer.body)
            except msgspec.DecodeError:
                self._tell_once(
                    "settings", "%s answers with settings that this recorder cannot read.", self._server.url
                )

    def _put_off(self, later: _Later) -> None:
        """Says once what is wrong, and when the next attempt is."""
        with self._changed:
            self._failures += 1
            self._last_error = later.reason
            self._is_told_to_wait = later.pause is not None
            longest = PAUSE_IN_FLUSH if self._flushing else LONGEST_PAUSE
            pause = later.pause
            if pause is None:
                # Full jitter: recorders that failed together do not come back together.
                pause = random.uniform(0, min(longest, FIRST_PAUSE * 2 ** min(self._failures - 1, 20)))  # noqa: S311
            self._retry_at = time.monotonic() + pause
        if self._is_closed:
            return  # the request was broken off by ourselves
        # Only what has an advice is worth another line while something is wrong already.
        if not self._trouble or (later.advice and later.reason != self._trouble):
            self._trouble = later.reason
            logger.warning(
                "Events are not delivered to %s: %s. They wait in %s and are sent when it takes them.%s",
                self._server.url,
                later.reason,
                self._spool.directory or "memory",
                f" {later.advice.format(key=self._key_start)}" if later.advice else "",
            )

    def _went_well(self) -> None:
        with self._changed:
            self._retry_at = self._last_error = None
            self._failures = 0
        if self._trouble:
            self._trouble = ""
            logger.info("Events are delivered to %s again.", self._server.url)

    def _failed_by_itself(self) -> None:
        """A fault of our own: what waits is tried again, but not at once."""
        with self._changed:
            self._retry_at = time.monotonic() + LONGEST_PAUSE
            self._is_told_to_wait = True
            self._last_error = "the recorder failed"

    def _tell_what_is_left(self, left: int) -> None:
        if self._spool.lost:
            logger.warning("%d events for %s are lost: they were not on the disk.", self._spool.lost, self._server.url)
        elif left and not self._trouble:
            logger.warning(
                "%d events are not delivered to %s yet. They wait in %s for the next process that records to it.",
                left,
                self._server.url,
                self._spool.directory,
            )

    def _tell_once(self, what: str, message: str, *args: object) -> None:
        if what not in self._told:
            self._told.add(what)
            logger.warning(message, *args)


_ADVICE = "Is this the address of a Tracesite server, without /api/v1?"
_ADVICES = {
    401: "Check the key that begins with {key}: it is not known, has expired or was revoked. What waits for it is sent with "
    "another one by: python -m tracesite.recorder drain --other-keys",
    403: "The key that begins with {key} may not write: make one with the scope to write.",
    400: "Is this the name under which it is served? See TRACESITE_ALLOWED_HOSTS.",
}


def _verdict(answer: Answer, sent: int) -> _Verdict:
    """What an answer to `sent` events means."""
    status = answer.status
    if 200 <= status < 300:
        return _stored(answer.body, sent)
    code, field = _error(answer.body)
    reason = f"it answers {status} {code}".rstrip()
    pause = None if answer.retry_after is None else max(FIRST_PAUSE, min(answer.retry_after, LONGEST_RETRY_AFTER))
    if status == 413:
        return _NotTaken(code="too_large")
    if status in (400, 403, 406, 422) and not code:
        # Not Tracesite, but something before it, which may dislike what is in one of them.
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
        # A page to log in at, for one: nobody has stored anything.
        return _Later(reason="what answers is not Tracesite", pause=LONGEST_PAUSE, advice=_ADVICE)
    return _Stored(
        states=Counter(one.state for one in accepted.results),
        refused=Counter(_plain(one.code) for one in accepted.refused),
    )


def _error(body: bytes) -> tuple[str, str | None]:
    """The code and the field of an error of Tracesite; the text is left out, as it may repeat what was sent."""
    try:
        error = _FAILED.decode(body).error
    except msgspec.DecodeError:
        return "", None
    return _plain(error.code), error.field


def _plain(code: str) -> str:
    return code if _CODE.fullmatch(code) else "unknown"


def _within(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()

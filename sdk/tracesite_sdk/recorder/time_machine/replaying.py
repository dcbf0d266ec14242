"""Tests from traces: give an agent what a recorded run got, and fail where it takes another path.

    with replaying("failure.json") as replay:
        answer = run_agent(replay.prompts[0])

`failure.json` is a file of `tracesite export-cassette SESSION`, of Recorded.save or of JsonLinesSink; no server is needed. Inside,
decorated tools (`recorder.tool_call`, `trace_tool`, tools of enabled objects) get their recorded results, and decorated steps and
model requests of enabled objects the recorded replies, in their order. Clients of OpenAI and Anthropic get them from `replay.url`:
`OpenAI(base_url=replay.url)`. A model behind anything else asks `replay.reply()`.

At the end the block raises PathChanged, an AssertionError, if the agent called a tool that was not recorded, with other
arguments or less often, or did not ask for all replies.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from difflib import ndiff
from pathlib import Path
from threading import RLock
from typing import Any

from tracesite_sdk.recorder.capture.decorating import RUN, Called, answering
from tracesite_sdk.recorder.delivery.privacy import Privacy
from tracesite_sdk.recorder.scopes import Step, ToolCall

from .recorded import Recorded, Reply, Results, Unrecorded, described
from .replayed_models import ModelServer

_MOST_LINES = 200


class PathChanged(AssertionError):
    """The agent did not do what the recorded run did. The text is the difference, `-` recorded, `+` now."""


class Replaying:
    """A recorded run that answers a new one. Threads may share it."""

    def __init__(
        self, recorded: Recorded, *, as_reply: Callable[[Reply], Any] | None = None, privacy: Privacy | None = None
    ) -> None:
        self.recorded = recorded
        self.prompts = list(recorded.prompts)
        """The user's prompts in the recorded run, in order."""
        self._as_reply = as_reply or (lambda reply: reply.text)
        self._results = Results(recorded.calls, privacy or Privacy())
        self._replies = list(recorded.replies)
        self._path: list[str] = []
        self._has_changed = False
        self._lock = RLock()
        self._server: ModelServer | None = None

    @property
    def url(self) -> str:
        """The `base_url` for clients of OpenAI and Anthropic, which get the recorded replies from a server on 127.0.0.1 until the
        block ends. A request to which there is no reply is an error 400 with the reason."""
        with self._lock:
            if self._server is None:
                self._server = ModelServer(self.reply)
            return self._server.url

    def close(self) -> None:
        """Stop the server."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.close()

    def reply(self) -> Reply:
        """Return the next recorded reply of the model. Raises Unrecorded after the last one, and for a recorded error."""
        with self._lock:
            self._path.append(_REPLY)
            if not self._replies:
                self._has_changed = True
                raise Unrecorded(f"The recorded run asked the model {len(self.recorded.replies)} times, not more.")
            reply = self._replies.pop(0)
        if reply.error is not None:
            raise Unrecorded(f"The model failed in the recorded run: {reply.error}")
        return reply

    def answer(self, called: Called) -> Any:
        """Return what a decorated function returns in place of running; see `answering`."""
        if isinstance(called.scope, Step):
            return self._as_reply(self.reply())
        if not isinstance(called.scope, ToolCall):
            return RUN
        name, arguments = called.scope.name, self._results.clean(called.arguments)
        with self._lock:
            self._path.append(described(name, arguments))
            try:
                call = self._results.take(name, arguments)
            except Unrecorded:
                self._has_changed = True
                raise
            # The tool does not run, and so neither does what it did.
            self._results.drop_inside(call)
            self._replies = [reply for reply in self._replies if not call.id or call.id not in reply.inside]
        return call.answer()

    def check(self) -> None:
        """Raise PathChanged if the path up to now is another one than the recorded one."""
        with self._lock:
            if self._has_changed or self._results.left() or self._replies:
                raise PathChanged(f"The agent took another path than the recorded run:\n{self._difference()}")

    def _difference(self) -> str:
        entries = [(call.number, described(call.tool, call.args)) for call in self.recorded.calls]
        entries += [(reply.number, _REPLY) for reply in self.recorded.replies]
        recorded = [text for _number, text in sorted(entries)]
        lines = [line for line in ndiff(recorded, self._path) if not line.startswith("?")]
        more = len(lines) - _MOST_LINES
        return "\n".join([*lines[:_MOST_LINES], *([f"... and {more} lines more"] if more > 0 else [])])


_REPLY = "(the model replies)"


@contextmanager
def replaying(
    source: Recorded | str | os.PathLike[str],
    *,
    session_id: str | None = None,
    as_reply: Callable[[Reply], Any] | None = None,
    privacy: Privacy | None = None,
) -> Iterator[Replaying]:
    """Answer an agent from a recorded run while the block runs, and raise PathChanged at its end if it did something else.

    `session_id`: of a file of events that holds several sessions. `as_reply`: makes of a Reply what the model functions of the
    agent return; by default its text. `privacy`: as the run was recorded with. Raises OSError, and ValueError for another file.
    """
    recorded = source if isinstance(source, Recorded) else Recorded.load(Path(source), session_id)
    replay = Replaying(recorded, as_reply=as_reply, privacy=privacy)
    with answering(replay.answer), closing(replay):
        try:
            yield replay
        except (Unrecorded, PathChanged):
            replay.check()
            raise
    replay.check()

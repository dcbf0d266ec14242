"""How a run ended, in one word, and the failure that decided it. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, TextChoices
from django.utils import timezone
from django.utils.text import capfirst
from django.utils.translation import gettext_lazy as _

from messages_app.models import HAS_FAILED, WAITS, Message, Session
from tracesite_sdk.records.health_flags import STOPPED

from .telling import is_shell

_WITH_SUBCOMMANDS = re.compile(
    "apt|apt-get|aws|bash|bun|bundle|cargo|conda|deno|docker|docker-compose|dotnet|gcloud|gh|git|go|gradle|helm|just|kubectl|make"
    "|mise|mix|mvn|node|npm|npx|php|pip3?|pnpm|podman|poetry|python3?|ruby|sh|terraform|uv|uvx|yarn"
)
"""Programs of which the second word says what they do; of `python -m pytest` and `npm run build` the third."""
_OF_ANOTHER = re.compile("-m|compose|exec|run|tool")
_WRAPPERS = re.compile(r"(?:(?:\w+=\S*|sudo|time|nohup|env|command|timeout(?:\s+-\S+)*\s+\S+)\s+)+(?=\S)")
RULE = 1
"""The number of the rule `deciding_failure`. Raise it with each change, so that `Message.decided_by` is made again."""
QUIET_AFTER = timedelta(minutes=15)
"""An open run whose session got nothing for so long is marked: it may be stuck."""


class CallFact(NamedTuple):
    """A call of a run, as far as it decides the outcome."""

    place: int
    """In the order of the run."""
    tool: str
    telling: str
    """Its telling argument (telling.py), of a shell its command."""
    failed: bool
    pending: bool
    """Whether it has no result yet, so it neither failed nor made a failure good."""


class Outcome(TextChoices):
    """How a run ended, or that it has not."""

    FAILED = "failed", capfirst(_("failed"))
    WAITING = "waiting", capfirst(_("waiting"))
    RUNNING = "running", capfirst(_("running"))
    DONE = "done", capfirst(_("done"))
    STOPPED = "stopped", capfirst(_("stopped"))

    @property
    def meaning(self) -> str:
        return str(_MEANINGS[self])


_MEANINGS = {
    Outcome.FAILED: _("It ended with an error, or with a failed call that no later call of the same tool made good."),
    Outcome.WAITING: _("It goes on when a person answers."),
    Outcome.RUNNING: _("It has not ended yet."),
    Outcome.DONE: _("It ended without an error; calls that failed were made good by later ones."),
    Outcome.STOPPED: _("A person stopped it before it ended."),
}
# The first conditions are those of indexes.
_IS_STOPPED = ~Q(health=[]) & Q(is_completed=True, health__contains=[STOPPED])
_IS_OPEN = Q(is_completed=False)
CONDITIONS: Mapping[Outcome, Q] = {
    Outcome.FAILED: HAS_FAILED & Q(is_completed=True) & ~_IS_STOPPED,
    Outcome.WAITING: _IS_OPEN & WAITS,
    Outcome.RUNNING: _IS_OPEN & ~WAITS,
    Outcome.DONE: Q(is_completed=True) & ~HAS_FAILED & ~_IS_STOPPED,
    Outcome.STOPPED: _IS_STOPPED,
}
"""`outcome_of_run` as conditions on assistant messages."""
OF_STATUS: Mapping[str, Outcome] = {
    Session.Status.COMPLETED: Outcome.DONE,
    Session.Status.ERROR: Outcome.FAILED,
    Session.Status.ABORTED: Outcome.STOPPED,
    Session.Status.PAUSED: Outcome.WAITING,
    Session.Status.PLANNING: Outcome.RUNNING,
    Session.Status.RUNNING: Outcome.RUNNING,
}
"""What the status of a session says, in the words of runs."""


def outcome_of(*, is_completed: bool, is_stopped: bool, is_waiting: bool, has_failed: bool) -> Outcome:
    """Return the outcome of a run.

    `is_stopped`: a person stopped it (tracesite_sdk.records.health_flags); a run that was closed because its process ended or sent
    nothing more has an error. `is_waiting`: it goes on when a person answers, so nothing is decided yet. `has_failed`: it has an
    error, or a failure that decided (`deciding_failure`); a failed call that was made good leaves it done.
    """
    if is_stopped:
        return Outcome.STOPPED
    if is_waiting:
        return Outcome.WAITING
    if not is_completed:
        return Outcome.RUNNING
    return Outcome.FAILED if has_failed else Outcome.DONE


def outcome_of_run(run: Message, session: Session, *, has_failed: bool) -> Outcome:
    """Return the outcome of a run of a session."""
    return outcome_of(
        is_completed=run.is_completed,
        is_stopped=run.is_completed and STOPPED in run.health,
        is_waiting=not run.is_completed and session.status == Session.Status.PAUSED,
        has_failed=has_failed,
    )


def quiet_since(session: Session) -> datetime | None:
    """Return the time of the last event of a session in which nothing has happened for a while; None if something has."""
    return session.active_at if session.active_at < timezone.now() - QUIET_AFTER else None


def deciding_failure(calls: Sequence[CallFact]) -> CallFact | None:
    """Return the last failed call, in the order of `calls`, that no later success of the same tool made good; of shells, of the
    same command."""
    made_good: set[tuple[str, ...]] = set()
    for call in reversed(calls):
        done = (call.tool, *(_command(call.telling) if is_shell(call.tool) else ()))
        if call.failed and done not in made_good:
            return call
        if not (call.failed or call.pending):
            made_good.add(done)
    return None


def _command(line: str) -> Sequence[str]:
    """Return the words of a command line that name what it does: `grep`, `go test`, `python -m pytest`."""
    wrapped = _WRAPPERS.match(line)
    words = line[wrapped.end() if wrapped else 0 :].split(maxsplit=3)[:3]
    if not words or not _WITH_SUBCOMMANDS.fullmatch(words[0]):
        return words[:1]
    return words if words[1:] and _OF_ANOTHER.fullmatch(words[1]) else words[:2]

"""A turn: one assistant message in the making, from one user message to the next."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime

from tracesite_sdk.records.health_flags import STOPPED

from .entries import Call, Reply, Result
from .times import after


@dataclass(eq=False)
class TurnCall:
    """A call and, once it has arrived, its result."""

    call: Call
    step: TurnStep
    uuid: str | None = None
    """Identifies the call if an earlier call of the message has the same id."""
    result: Result | None = None
    place: int = 0
    """The number of calls that were added to its step before it."""
    identity: int = 0
    """Of the call as its format made it."""
    is_guessed: bool = False
    """Whether its result may be that of another call."""


@dataclass(eq=False)
class TurnStep:
    """A reply with its calls. Without a reply it holds the placeholder of an orphan result."""

    turn: Turn
    reply: Reply | None
    iteration: int
    calls: dict[TurnCall, None] = field(default_factory=dict)
    """In the order in which they were added; a dict, so that removing one takes no search."""
    added: int = 0
    """The number of calls that were added, also of those removed since."""
    parent: TurnCall | None = None
    """The call that started the replying sub-agent."""

    def remove(self, call: TurnCall) -> None:
        """Remove a call, and the step if nothing else is in it."""
        del self.calls[call]
        if call.call.id and call.uuid is None:
            # The number in a `uuid` is not given again.
            self.turn.call_ids[call.call.id] -= 1
        if self.reply is None and not self.calls:
            self.turn.steps.remove(self)


@dataclass(eq=False)
class Turn:
    index: int
    """Its position among the messages."""
    id: str
    began: datetime | None
    entries: int = 0
    characters: int = 0
    ended: datetime | None = None
    time: tuple[datetime, bool] | None = None
    """The time that the clock assigned, if it has."""
    open_calls: int = 0
    steps: list[TurnStep] = field(default_factory=list)
    call_ids: Counter[str] = field(default_factory=Counter)
    iterations: int = 0
    """Steps that do not belong to a sub-agent."""
    health: set[str] = field(default_factory=set)

    def extend_to(self, entry: Reply | Result) -> None:
        """Add the flags of an entry, and its end to the time of the turn."""
        if isinstance(entry, Reply):
            self.health.discard(STOPPED)  # it went on
        self.health.update(entry.health)
        if entry.created_at is not None:
            end = after(entry.created_at, entry.duration if isinstance(entry, Reply) else None)
            if isinstance(entry, Reply) and entry.ended_at is not None:
                end = max(end, entry.ended_at)
            self.ended = max(self.ended or end, end)

    def add_step(self, reply: Reply | None, parent: TurnCall | None = None) -> TurnStep:
        if parent is None:
            iteration, self.iterations = self.iterations, self.iterations + 1
        else:
            iteration = parent.step.iteration
            if not (parent.uuid or parent.call.id):
                # The calls below it have to name it.
                of = parent.step
                parent.uuid = f"{of.reply.id if of.reply is not None else self.id}#{parent.place}"
        self.steps.append(TurnStep(self, reply, iteration, parent=parent))
        return self.steps[-1]

    def add_call(self, step: TurnStep, call: Call) -> TurnCall:
        added = TurnCall(call, step, place=step.added, identity=id(call))
        if call.id:
            if self.call_ids[call.id]:
                added.uuid = f"{call.id}#{self.call_ids[call.id]}"
            self.call_ids[call.id] += 1
        step.calls[added] = None
        step.added += 1
        return added

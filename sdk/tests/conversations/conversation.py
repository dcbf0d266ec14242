"""One conversation as plain data, and the rows that it is in every form.

The user asks for two cities. The model calls one tool for both at a time, the results come in the other order, and one has
failed; the model tries it again, so the run has not failed. Before the last call a person is asked for approval. Each request
has its tokens, most of which were cached, and two models have a price.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from tracesite_sdk import records
from tracesite_sdk.normalize.pricing import Price, PriceTable, Tokens, stated_cost, tokens_of
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.normalize.rollup import rollup
from tracesite_sdk.records.health_flags import GUESSED_RESULT
from tracesite_sdk.spans.conversation import WAITING

BEGAN = datetime(2026, 9, 28, 12, tzinfo=UTC)
LARGE, SMALL = "weather-large", "weather-small"
PRICES = {LARGE: (Decimal(2), Decimal("0.2"), Decimal(10)), SMALL: (Decimal(1), Decimal("0.1"), Decimal(4))}
"""USD for a million tokens: input, cached input, output."""
TABLE = PriceTable(
    prices=[Price(model=model, input=a, cached_input=b, output=c) for model, (a, b, c) in PRICES.items()]
)
AN_HOUR_LATER = BEGAN + timedelta(hours=1)
QUESTION = "Which city is warmer? Write it to Ada."


def at(second: float) -> datetime:
    return BEGAN + timedelta(seconds=second)


def stamp(second: float) -> str:
    return at(second).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Call(NamedTuple):
    id: str
    name: str
    args: dict[str, str]
    begins: int
    """Seconds after BEGAN, as are all times."""
    ends: int
    output: str | None
    """None while it waits for a person."""
    failed: bool = False
    needs_approval: bool = False


class Request(NamedTuple):
    begins: int
    ends: int
    text: str
    model: str
    input: int
    """With the cached tokens."""
    cached: int
    output: int
    calls: tuple[Call, ...] = ()

    @property
    def new(self) -> int:
        """The input tokens that were not cached."""
        return self.input - self.cached

    @property
    def total(self) -> int:
        return self.input + self.output

    @property
    def results(self) -> list[Call]:
        """The calls that are over, in the order of their results."""
        return sorted((call for call in self.calls if call.output is not None), key=lambda call: call.ends)


@dataclass(frozen=True)
class Conversation:
    requests: tuple[Request, ...]

    @property
    def is_paused(self) -> bool:
        return any(call.output is None for request in self.requests for call in request.calls)

    @property
    def ends(self) -> int:
        return max(request.ends for request in self.requests)


OSLO = Call("call_1", "get_weather", {"city": "Oslo"}, 2, 6, "Error: no station in Oslo", failed=True)
BERGEN = Call("call_2", "get_weather", {"city": "Bergen"}, 2, 4, "12 degrees")
AGAIN = Call("call_3", "get_weather", {"city": "Oslo", "station": "airport"}, 8, 9, "9 degrees")
WRITE = Call("call_4", "write_to", {"name": "Ada", "text": "Bergen"}, 11, 40, "sent", needs_approval=True)
FIRST = Request(1, 2, "I look up both.", LARGE, 1000, 800, 50, (OSLO, BERGEN))
SECOND = Request(7, 8, "Oslo again, at the airport.", LARGE, 1200, 1000, 20, (AGAIN,))
THIRD = Request(10, 11, "Now the message.", LARGE, 1300, 1100, 30, (WRITE,))
LAST = Request(41, 42, "Bergen, and Ada knows it.", SMALL, 1400, 0, 10)
WHOLE = Conversation((FIRST, SECOND, THIRD, LAST))
PAUSED = Conversation((FIRST, SECOND, THIRD._replace(calls=(WRITE._replace(output=None),))))
"""The same, up to the question to a person."""


# --- Forms ------------------------------------------------------------------------------------------------------------

Lack = Literal[
    "models",
    "usage",
    "own models",
    "cached",
    "ids",
    "ids of calls",
    "ids of results",
    "requests of calls",
    "open spans",
    "pause",
    "end",
]
"""What a form cannot express: the models, the tokens, more than one model, cached tokens, the ids of calls and so the calls of
results, the ids of calls that hold their results, the calls of results, which request asked for a call, what a span says before it ends, that a person is waited for, that a run is not over."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """A form of the conversation: a file format, a wire or a convention of spans."""

    name: str
    session: Callable[[Conversation], records.Session]
    """Write the conversation as a producer does, and read it by the public entry point."""
    lacks: frozenset[Lack] = frozenset()
    has_cached_beside: bool = False
    """Whether the input is counted without the cached tokens."""
    output: Callable[[Call], str | None] = attrgetter("output")
    error: Callable[[Call], str | None] = attrgetter("output")
    """The output of a call, and the error of a failed one, where they are not its text alone."""


# --- Rows -------------------------------------------------------------------------------------------------------------


class CallRow(NamedTuple):
    id: str | None
    name: str | None
    args: Any
    status: str | None
    output: Any
    error: Any


class StepRow(NamedTuple):
    thought: str | None
    model: str | None
    tokens: Tokens | None
    cost: Decimal | None
    calls: list[CallRow]


class MessageRow(NamedTuple):
    role: str
    content: Any
    error: str | None
    is_completed: bool | None
    health: list[str]
    input_tokens: int
    output_tokens: int
    cost: Decimal | None
    unpriced_count: int
    failure_count: int
    steps: list[StepRow]


class SessionRow(NamedTuple):
    status: str
    """The stated one, or else that of the last run, which is paused if it waits for a person."""
    messages: list[MessageRow]


def rows_of(session: records.Session, now: datetime = AN_HOUR_LATER) -> SessionRow:
    """Return what is stored of a session, as far as every form has it."""
    messages = [_message_row(message) for message in normalise(session, now=now).messages or ()]
    of_run = "running" if not messages[-1].is_completed else "error" if messages[-1].error else "completed"
    waits = any(WAITING in (message.metadata or {}) for message in session.messages or ())
    return SessionRow(session.status or ("paused" if waits else of_run), messages)


def _message_row(message: records.Message) -> MessageRow:
    steps = message.agent_steps or ()
    costs = [stated_cost(step.cost, step.usage) or TABLE.cost(1, step.model or "", step.usage, BEGAN.date()) for step in steps]  # fmt: skip
    total = rollup(
        message.usage,
        [
            (at, step.duration, step.usage, (step.metadata or {}).get("error"), step.model, cost)
            for at, (step, cost) in enumerate(zip(steps, costs, strict=True))
        ],
        [
            (at, None, call.status or "", call.duration)
            for at, step in enumerate(steps)
            for call in step.tool_calls or ()
        ],
        is_answer=bool(message.is_completed) and message.role == "assistant" and not message.error,
    )
    return MessageRow(
        message.role,
        _text(message.content, message.content_parts),
        message.error or None,
        message.is_completed,
        list(message.health or ()),
        total.input_tokens,
        total.output_tokens,
        total.cost,
        total.unpriced_count,
        total.failure_count,
        [_step_row(step, cost) for step, cost in zip(steps, costs, strict=True)],
    )


def _text(content: Any, parts: list[Any] | None) -> Any:
    """Return the text of a message, or its parts if there are others."""
    return content if all(part.get("type") == "text" for part in parts or ()) else parts


def _step_row(step: records.AgentStep, cost: Decimal | None) -> StepRow:
    calls = []
    for call in step.tool_calls or ():
        result = call.result if isinstance(call.result, records.ToolResult) else records.ToolResult(output=None)
        calls.append(CallRow(call.id, call.name, call.args, call.status, result.output, result.error or None))
    return StepRow(step.thought or None, step.model or None, tokens_of(step.usage), cost, calls)


def expected_rows(form: Form, conversation: Conversation) -> SessionRow:
    """Return the rows of the conversation, without what the form cannot express."""
    lacks = form.lacks
    steps, input_tokens = [], 0
    for request in conversation.requests:
        if not request.calls and {"models", "usage"} <= lacks:
            continue  # Nothing but the text of the answer is known.
        model = None if "models" in lacks else LARGE if "own models" in lacks else request.model
        cached = 0 if "cached" in lacks else request.cached
        tokens = None if "usage" in lacks else Tokens(request.input - cached, cached, 0, request.output, 0)
        cost = _cost(model, tokens)
        input_tokens += 0 if tokens is None else tokens.input if form.has_cached_beside else request.input
        thought = request.text if request.calls else None
        calls = [_expected_call(call, form) for call in request.calls]
        is_apart = "requests of calls" in lacks
        steps.append(StepRow(thought, model, tokens, cost, [] if is_apart else calls))
        steps += [StepRow(None, None, None, None, [call]) for call in calls if is_apart]
    costs = [step.cost for step in steps if step.cost is not None]
    requests = [step for step in steps if step.model or step.tokens]
    is_open = conversation.is_paused and "end" not in lacks
    answer = MessageRow(
        role="assistant",
        content="" if conversation.is_paused else LAST.text,
        error=None,
        is_completed=not is_open,
        # Without ids only the order tells which result belongs to which of two calls of one tool.
        health=[GUESSED_RESULT] if {"ids", "ids of results"} & lacks else [],
        input_tokens=input_tokens,
        output_tokens=0 if "usage" in lacks else sum(request.output for request in conversation.requests),
        cost=sum(costs, Decimal(0)) if costs else None,
        # An answer of which no request is known came from one.
        unpriced_count=sum(step.cost is None for step in requests) if requests else int(not is_open),
        failure_count=1,
        steps=steps,
    )
    question = MessageRow("user", QUESTION, None, True, [], 0, 0, None, 0, 0, [])
    of_run = "running" if is_open else "completed"
    return SessionRow("paused" if conversation.is_paused and "pause" not in lacks else of_run, [question, answer])


def _cost(model: str | None, tokens: Tokens | None) -> Decimal | None:
    if model is None or tokens is None:
        return None
    new, cached, output = PRICES[model]
    return (tokens.input * new + tokens.cached_input * cached + tokens.output * output) / 1_000_000


def _expected_call(call: Call, form: Form) -> CallRow:
    status = "pending" if call.output is None else "error" if call.failed else "success"
    error = form.error(call) if call.failed else None
    id_ = None if {"ids", "ids of calls"} & form.lacks else call.id
    return CallRow(id_, call.name, call.args, status, form.output(call), error)

"""Chains of tool calls as objects: the chain, its calls, its document, and the chains that are open in this context.

"Here" is a context of `contextvars`: a task sees the calls that were open where it was created and those that it opened
itself, but none of its siblings'. So parallel calls share their parent, and none becomes the parent of another.

All writes are single operations that are atomic in CPython, so nothing waits for a lock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from typing import Any, Literal, NamedTuple

from tracesite_sdk.recorder.capture.entries import error_text, text_of, thaw
from tracesite_sdk.recorder.delivery.privacy import Privacy, clean_document
from tracesite_sdk.recorder.guard import instead_of_failing
from tracesite_sdk.recorder.scopes import Message, ToolCall

MOST_RESULT_CHARACTERS = 1000
NO_CHAIN = "No active call chain"
NO_CALL = "No active call to end"
_MOST_NESTED = 100
"""Levels of nested chains that are kept; code that opens more never ends them."""
_STANDARD = Privacy()


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass
class ToolCallNode:
    """One call of a chain."""

    tool_id: str
    call_id: str
    parent_id: str | None = None
    child_calls: list[str] = field(default_factory=list)
    parameters: dict[str, Any] = field(default_factory=dict)
    """A JSON copy, so that later changes of the agent's objects have no effect."""
    result: Any = None
    """A JSON copy of the whole result; in the document it is cut."""
    duration: float = 0.0
    """Seconds."""
    success: bool = True
    """False also for a call that was open when its chain ended."""
    error_message: str | None = None
    started_at: datetime = field(default_factory=utc_now)
    completed_at: datetime | None = None
    """None while the call is open, and for good if its chain ended first."""
    metadata: dict[str, Any] = field(default_factory=dict)
    recorded_as: ToolCall | None = field(default=None, repr=False, compare=False)
    """Its scope on the recorder, until its chain ends."""

    @property
    def status(self) -> Literal["pending", "success", "error"]:
        if self.completed_at is None:
            return "pending"
        return "success" if self.success else "error"


@dataclass
class ToolCallChain:
    """A tree of calls, or several trees in sequence."""

    chain_id: str
    root_tool_id: str
    root_call_id: str = ""
    """The first call without a parent; "" before there is one."""
    root_calls: list[str] = field(default_factory=list)
    """All calls without a parent, in order."""
    calls: dict[str, ToolCallNode] = field(default_factory=dict)
    created_at: datetime = field(default_factory=utc_now)
    completed_at: datetime | None = None
    duration: float = 0.0
    """Seconds; 0 before the end."""
    success: bool = True
    """False if a call failed, or was open at the end."""
    error_message: str | None = None
    """The error of the first call that failed."""
    metadata: dict[str, Any] = field(default_factory=dict)
    recorded_as: Message | None = field(default=None, repr=False, compare=False)
    """Its scope on the recorder, until it ends."""

    def to_dict(self, privacy: Privacy = _STANDARD) -> dict[str, Any]:
        """Return the document of the chain, without secrets, with the keys of /chains/{id}/ of the server. Results are texts of
        at most 1000 characters."""
        document = clean_document(
            {
                "chain_id": self.chain_id,
                "root_tool_id": self.root_tool_id,
                "root_call_id": self.root_call_id,
                "created_at": _time(self.created_at),
                "completed_at": _time(self.completed_at),
                "duration": self.duration,
                "success": self.success,
                "error_message": self.error_message,
                "metadata": self.metadata,
                "type": "tool_call_chain",
                "root_calls": list(self.root_calls),
                "calls": {call_id: _call_document(node) for call_id, node in list(self.calls.items())},
            },
            privacy,
        )
        # After redaction, because half a secret at the place of the cut would not be recognised.
        for call in document["calls"].values():
            call["result"] = _result_text(call["result"])
        return document


def _call_document(node: ToolCallNode) -> dict[str, Any]:
    return {
        "call_id": node.call_id,
        "tool_id": node.tool_id,
        "parent_id": node.parent_id,
        "child_calls": list(node.child_calls),
        "parameters": node.parameters,
        "result": node.result,
        "status": node.status,
        "success": node.success,
        "error_message": node.error_message,
        "duration": node.duration,
        "started_at": _time(node.started_at),
        "completed_at": _time(node.completed_at),
        "metadata": node.metadata,
    }


def _result_text(result: Any) -> str | None:
    """Return a result as text. 0, "", [] and False are results; only None is not."""
    return None if result is None else str(result)[:MOST_RESULT_CHARACTERS]


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


# --- Open chains and calls ----------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The open chain and calls of one context."""

    chain: ToolCallChain
    numbers: count[int]
    """The numbers of its calls, shared by all places of the chain."""
    calls: tuple[ToolCallNode, ...]
    """From the outermost to the innermost."""
    outer: _Place | None
    """The place where the chain was started."""
    depth: int


class ToolCallChainContext:
    """Opens and ends chains and calls, and tracks those that are open in each context.

    A chain that is started while another is open is independent of it: it takes none of its calls, and the other chain goes
    on afterwards.
    """

    def __init__(self, clock: Callable[[], datetime] = utc_now) -> None:
        self._clock = clock
        self._here: ContextVar[_Place | None] = ContextVar("tracesite_chain", default=None)

    @property
    def current_chain(self) -> ToolCallChain | None:
        """The chain that is open here, or None."""
        place = self.place()
        return None if place is None else place.chain

    @property
    def current_call_stack(self) -> list[ToolCallNode]:
        """The calls of this chain that are open here, from the outermost to the innermost."""
        place = self.place()
        return [] if place is None else [call for call in place.calls if call.completed_at is None]

    def start_chain(self, chain_id: str, root_tool_id: str) -> ToolCallChain:
        chain = ToolCallChain(chain_id, root_tool_id, created_at=self._clock())
        outer = self.place()
        depth = 0 if outer is None else outer.depth + 1
        if depth > _MOST_NESTED:
            outer, depth = None, 0
        self._here.set(_Place(chain, count(1), (), outer, depth))
        return chain

    def end_chain(self, chain: ToolCallChain | None = None) -> ToolCallChain | None:
        """End and return this chain, or else the innermost one; None if it is not open here. Open calls stay without an end."""
        place = self.place()
        while place is not None and chain is not None and place.chain is not chain:
            place = place.outer
        if place is None or place.chain.completed_at is not None:
            return None
        chain = place.chain
        chain.completed_at = self._clock()
        chain.duration = (chain.completed_at - chain.created_at).total_seconds()
        for call in list(chain.calls.values()):
            if call.completed_at is None:
                call.success = chain.success = False
        self._here.set(place.outer)
        return chain

    def start_call(self, tool_id: str, parameters: Any = None) -> ToolCallNode:
        """Start a call inside the innermost open one. Raises RuntimeError if no chain is open here."""
        place = self.place()
        if place is None:
            raise RuntimeError(NO_CHAIN)
        chain = place.chain
        node = ToolCallNode(
            tool_id,
            f"{chain.chain_id}-{next(place.numbers)}",
            parameters=as_mapping(parameters),
            started_at=self._clock(),
        )
        if place.calls:
            parent = place.calls[-1]
            node.parent_id = parent.call_id
            parent.child_calls.append(node.call_id)
        else:
            chain.root_calls.append(node.call_id)
            chain.root_call_id = chain.root_calls[0]
        chain.calls[node.call_id] = node
        self._here.set(place._replace(calls=(*place.calls, node)))
        return node

    def end_call(self, result: Any = None, success: bool = True, error_message: str | None = None) -> ToolCallNode:
        """End and return the innermost open call. Raises RuntimeError if none is open here."""
        node = next(reversed(self.current_call_stack), None)
        if node is None:
            raise RuntimeError(NO_CALL)
        self.end(node, result, success, error_message)
        return node

    def end(self, node: ToolCallNode, result: Any, success: bool, error_message: str | None) -> None:
        """End this call of a chain that is open here, and the calls inside it. Does nothing if the chain has ended."""
        place = self.place()
        while place is not None and node.call_id not in place.chain.calls:
            place = place.outer
        if place is None or place.chain.completed_at is not None or node.completed_at is not None:
            return
        chain = place.chain
        node.result = copied(result)
        node.success = success
        node.error_message = _error_message(error_message)
        node.completed_at = self._clock()
        node.duration = (node.completed_at - node.started_at).total_seconds()
        if not success:
            chain.success = False
            chain.error_message = chain.error_message or node.error_message or None
        inside = next((index for index, call in enumerate(place.calls) if call is node), None)
        if inside is not None:
            self._here.set(place._replace(calls=place.calls[:inside]))

    def place(self) -> _Place | None:
        """Return the place of this context, without chains that were ended elsewhere."""
        place = self._here.get()
        while place is not None and place.chain.completed_at is not None:
            place = place.outer
        return place

    @contextmanager
    def inside(self, place: _Place | None) -> Iterator[None]:
        """Make this place the current one."""
        before = self._here.get()
        self._here.set(place)
        try:
            yield
        finally:
            self._here.set(before)


def copied(value: Any) -> Any:
    """Return a JSON copy of the value."""
    return instead_of_failing(f"<{type(value).__name__}>", thaw, value)


def as_mapping(value: Any) -> dict[str, Any]:
    """Return parameters or metadata as a dict; any other value under `_raw`, as the server keeps it."""
    plain = {} if value is None else copied(value)
    return plain if isinstance(plain, dict) else {"_raw": plain}


def _error_message(error: Any) -> str | None:
    if error is None or type(error) is str:
        return error
    # Reading the class of an object of the host may raise too.
    return instead_of_failing(
        f"<{type(error).__name__}>",
        lambda: error_text(error) if isinstance(error, BaseException) else text_of(error),
    )

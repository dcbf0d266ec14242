"""ToolCallChainTracker: chains of tool calls for code that begins and ends calls by itself.

    tracker = ToolCallChainTracker(recorder=recorder)
    tracker.start_tool_chain("planner")
    tracker.start_tool_call("search", {"query": "weather"})
    tracker.end_tool_call(["31 degrees"])
    chain = tracker.get_call_chain_by_id(tracker.end_tool_chain())

With a recorder a chain is a message with the chain's id as its external id, and its calls are tool calls, so all of it
reaches the server; scopes that are opened on the recorder meanwhile lie inside. Without one the tracker works alone. The
chains that were used last stay in memory; with a `folder` finished ones are written to the disk too, and a `context_manager`
receives their documents.

Ending a chain or call that is not open raises RuntimeError, and so does starting a call without a chain. Nothing else raises.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar

from tracesite_sdk import records
from tracesite_sdk.normalize.tool_results import NO_REASON
from tracesite_sdk.recorder.capture.entries import text_of
from tracesite_sdk.recorder.delivery.privacy import Privacy
from tracesite_sdk.recorder.guard import Guard, logger
from tracesite_sdk.recorder.recording import Recorder
from tracesite_sdk.recorder.scopes import Scope, ToolCall

from .chain_files import ChainFiles
from .chains import ToolCallChain, ToolCallChainContext, ToolCallNode, as_mapping

P = ParamSpec("P")
R = TypeVar("R")


class ContextManager(Protocol):
    """The host's store for documents."""

    def create_context(self, context_type: Any, content: dict[str, Any], /) -> Any: ...


@dataclass(frozen=True, kw_only=True)
class TrackedTool:
    """A tool that is registered with a tracker."""

    tool_id: str
    name: str
    description: str
    category_id: str


class ToolCallChainTracker:
    """Tracks chains of tool calls. Threads and tasks may share one: a task sees the chains and calls that were open where it
    was created, a thread only with `carry`.

    `context_manager`: receives the document of each chain at its end, with `context_type`, in the thread that ends it.
    `recorder`: sends chains and calls to the server.
    `most_chains`: the number of chains in memory; the least recently used one is removed first.
    `folder`, `most_files`: the directory of finished chains, and their number; see `files`.
    `privacy`: for documents; by default the recorder's.

    Raises ValueError for an invalid limit.
    """

    def __init__(
        self,
        context_manager: ContextManager | None = None,
        *,
        recorder: Recorder | None = None,
        most_chains: int = 1000,
        folder: str | os.PathLike[str] | None = None,
        most_files: int = 1000,
        privacy: Privacy | None = None,
        context_type: Any = "tool",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        if most_chains < 1:
            raise ValueError(f"ToolCallChainTracker.most_chains: expected at least 1, not {most_chains!r}.")
        self.guard = recorder.guard if recorder is not None else Guard()
        self.chain_context = ToolCallChainContext(self._now)
        self.files = None if folder is None else ChainFiles(folder, most=most_files, guard=self.guard)
        """The chains on the disk: `files.read(chain_id)`, `files.read_all()`."""
        self.tools: dict[str, TrackedTool] = {}
        """The tools that were registered, by their id."""
        self._context_manager = context_manager
        self._context_type = context_type
        self._recorder = recorder
        self._own_privacy = privacy or Privacy()
        self._has_own_privacy = privacy is not None
        self._most_chains = most_chains
        self._chains: OrderedDict[str, ToolCallChain] = OrderedDict()
        """The least recently used one first."""
        self._clock = clock
        self._last_ns = self._last_id = 0
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()

    # --- Chains and calls -------------------------------------------------------------------------------------------

    def start_tool_chain(self, root_tool_id: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Start a chain and return its id. A chain that is open here goes on when this one has ended."""
        chain = self.chain_context.start_chain(self._new_id(), root_tool_id)
        chain.metadata |= as_mapping(metadata)
        self._keep(chain)
        with self.guard.around():
            self._record_chain(chain)
        return chain.chain_id

    def end_tool_chain(self) -> str | None:
        """End the chain that is open here and return its id; None if there is none. Open calls in it stay unfinished, so that
        the chain is no success."""
        return self._end_chain(None)

    def start_tool_call(
        self, tool_id: str, parameters: Mapping[str, Any] | None = None, metadata: Mapping[str, Any] | None = None
    ) -> str:
        """Start a call inside the innermost open one, and return its id. Raises RuntimeError if no chain is open here."""
        return self._start_call(tool_id, parameters, metadata).call_id

    def end_tool_call(self, result: Any = None, success: bool = True, error_message: str | None = None) -> str:
        """End the innermost open call and return its id. Raises RuntimeError if none is open here."""
        node = self.chain_context.end_call(result, success, error_message)
        with self.guard.around():
            self._record_end(node)
        return node.call_id

    def carry(self, function: Callable[P, R]) -> Callable[P, R]:
        """Return the function with the open chain and calls of this context, for another thread."""
        place = self.chain_context.place()
        carried = function if self._recorder is None else self._recorder.carry(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.chain_context.inside(place):
                return carried(*args, **kwargs)

        return call

    # --- Tools ------------------------------------------------------------------------------------------------------

    def register_tool_with_tracking(
        self, tool_id: str, name: str, description: str = "", category_id: str = ""
    ) -> bool:
        """Register a tool; return False if its id is registered already."""
        tool = TrackedTool(tool_id=tool_id, name=name, description=description, category_id=category_id)
        return self.tools.setdefault(tool_id, tool) is tool

    def record_tool_usage_with_tracking(
        self,
        tool_id: str,
        parameters: Mapping[str, Any] | None,
        result: Any,
        duration: float,
        success: bool,
        error_message: str | None = None,
    ) -> bool:
        """Record a finished call of a registered tool that took `duration` seconds: in the chain that is open here, or else in
        one of its own. The error of a failed call is `error_message`, or else what its result says. Return False if the tool
        is not registered or recording failed."""
        if tool_id not in self.tools:
            logger.warning("A call was not recorded, because its tool is not registered.")
            return False
        recorded = False
        with self.guard.around():
            took = max(timedelta(), timedelta(seconds=duration))
            with self._chain_or_new(tool_id, took):
                node = self._start_call(tool_id, parameters, None)
                node.started_at -= took
                if node.recorded_as is not None:
                    node.recorded_as.has_taken(took)
                reason = None if success else error_message or _reason(result) or NO_REASON
                self.chain_context.end(node, result, success, reason)
                node.completed_at = node.started_at + took
                node.duration = took.total_seconds()
                self._record_end(node)
            recorded = True
        return recorded

    async def dispatch_tool_request_with_tracking(
        self, tool_name: str, parameters: dict[str, Any], dispatch: Callable[[str, dict[str, Any]], Awaitable[R]]
    ) -> R:
        """Await `dispatch(tool_name, parameters)` as a call, and return its result or raise its exception: in the chain that is
        open here, or else in one of its own.

        An answer `{"status", "result"}` is a success if its status is "success"; any other answer is the result itself.
        """
        with _Dispatch(self, tool_name, parameters) as call:
            answer = await dispatch(tool_name, parameters)
            call.answered(answer)
        return answer

    # --- Queries ----------------------------------------------------------------------------------------------------

    @property
    def stored_chains(self) -> dict[str, ToolCallChain]:
        """Return the finished chains in memory, by id."""
        return {chain.chain_id: chain for chain in self._known() if chain.completed_at is not None}

    def get_call_chain_by_id(self, chain_id: str | None) -> ToolCallChain | None:
        """Return a chain in memory, open or finished."""
        with self._locked():
            chain = self._chains.get(chain_id or "")
            if chain is not None:
                self._chains.move_to_end(chain.chain_id)
        return chain

    def get_call_node_by_id(self, call_id: str) -> ToolCallNode | None:
        """Return a call of a chain in memory."""
        chain = self._chains.get(call_id.rpartition("-")[0])
        return None if chain is None else chain.calls.get(call_id)

    def get_chains_by_tool_id(self, tool_id: str) -> list[ToolCallChain]:
        """Return the chains in memory with this root tool or a call of it, the oldest first, as all methods below."""
        return [
            chain
            for chain in self._known()
            if chain.root_tool_id == tool_id or any(call.tool_id == tool_id for call in list(chain.calls.values()))
        ]

    def get_calls_by_tool_id(self, tool_id: str) -> list[ToolCallNode]:
        """Return the calls of a tool."""
        return [call for chain in self._known() for call in list(chain.calls.values()) if call.tool_id == tool_id]

    def get_chains_in_time_range(self, start_time: datetime, end_time: datetime) -> list[ToolCallChain]:
        """Return the chains that started at `start_time` or later, and before `end_time`. A time without a zone is local."""
        start, end = start_time.astimezone(UTC), end_time.astimezone(UTC)
        return [chain for chain in self._known() if start <= chain.created_at < end]

    def get_slow_chains(self, threshold: float) -> list[ToolCallChain]:
        """Return the finished chains that took longer than `threshold` seconds."""
        return [chain for chain in self._known() if chain.completed_at is not None and chain.duration > threshold]

    def get_error_chains(self) -> list[ToolCallChain]:
        """Return the chains that failed or have unfinished calls at their end."""
        return [chain for chain in self._known() if not chain.success]

    # --- The end ----------------------------------------------------------------------------------------------------

    def flush(self, timeout: float = 10.0) -> int:
        """Block until finished chains are on the disk, at most `timeout` seconds. Return how many are not."""
        return 0 if self.files is None else self.files.flush(timeout)

    def close(self, timeout: float = 2.0) -> int:
        """Flush, and write nothing afterwards. Return as `flush` does. The exit of the process closes the tracker."""
        return 0 if self.files is None else self.files.close(timeout)

    # --- Inside -----------------------------------------------------------------------------------------------------

    @property
    def _privacy(self) -> Privacy:
        return self._own_privacy if self._has_own_privacy or self._recorder is None else self._recorder.privacy

    def _now(self) -> datetime:
        """Return the time, never earlier than before, so that no call ends before it began."""
        self._last_ns = now = max(self._clock(), self._last_ns)
        return datetime.fromtimestamp(now // 1000 / 1_000_000, UTC)

    def _new_id(self) -> str:
        with self._locked():
            self._last_id = max(self._clock() // 1000, self._last_id + 1)
            return f"chain-{self._last_id}"

    def _locked(self) -> threading.Lock:
        if self._process != os.getpid():
            # The lock may have been held by another thread of the parent at the moment of the fork.
            self._begin()
        return self._lock

    def _keep(self, chain: ToolCallChain) -> None:
        with self._locked():
            self._chains[chain.chain_id] = chain
            self._chains.move_to_end(chain.chain_id)
            while len(self._chains) > self._most_chains:
                self._chains.popitem(last=False)

    def _known(self) -> list[ToolCallChain]:
        with self._locked():
            chains = list(self._chains.values())
        return sorted(chains, key=lambda chain: chain.created_at)

    def _end_chain(self, chain: ToolCallChain | None) -> str | None:
        chain = self.chain_context.end_chain(chain)
        if chain is None:
            return None
        self._keep(chain)
        with self.guard.around():
            self._record_end_of_chain(chain)
        with self.guard.around():
            if self._context_manager is not None:
                self._context_manager.create_context(self._context_type, chain.to_dict(self._privacy))
        if self.files is not None:
            privacy = self._privacy
            self.files.put(chain.chain_id, lambda: chain.to_dict(privacy))
        return chain.chain_id

    def _start_call(self, tool_id: str, parameters: Any, metadata: Any) -> ToolCallNode:
        node = self.chain_context.start_call(tool_id, parameters)
        node.metadata |= as_mapping(metadata)
        with self.guard.around():
            self._record_call(node)
        return node

    @contextmanager
    def _chain_or_new(self, tool_id: str, took: timedelta = timedelta()) -> Iterator[None]:
        """Use the chain that is open here, or a new one for one call, which began `took` ago and ends with the block."""
        if self.chain_context.place() is not None:
            yield
            return
        self.start_tool_chain(tool_id)
        chain = self.chain_context.current_chain
        assert chain is not None, "it was just started"
        chain.created_at -= took
        try:
            yield
        finally:
            self._end_chain(chain)

    # --- On the recorder --------------------------------------------------------------------------------------------

    def _record_chain(self, chain: ToolCallChain) -> None:
        if self._recorder is not None and self._recorder.enabled:
            message = self._recorder.message(external_id=chain.chain_id, metadata=chain.metadata)
            message.root_tool = text_of(chain.root_tool_id)
            chain.recorded_as = message.__enter__()

    def _record_end_of_chain(self, chain: ToolCallChain) -> None:
        message = chain.recorded_as
        for node in list(chain.calls.values()):
            node.recorded_as = None
        chain.recorded_as = None
        if message is not None:
            message.leave()

    def _record_call(self, node: ToolCallNode) -> None:
        chain = self.chain_context.current_chain
        if self._recorder is None or chain is None or chain.recorded_as is None:
            return
        message = chain.recorded_as
        parent = chain.calls.get(node.parent_id or "")
        within: Scope = (parent.recorded_as if parent is not None else None) or message
        current = self._recorder.current()
        if current is not None and current.message is message:
            # A scope that the host opened itself on the recorder, a step for example, lies between the two.
            within = current
        node.recorded_as = ToolCall(
            self._recorder.runtime, str(node.tool_id), node.parameters, node.call_id, node.metadata
        ).enter(within)

    def _record_end(self, node: ToolCallNode) -> None:
        scope = node.recorded_as
        if scope is None:
            return
        # The host decides whether the call failed, so the result is not searched for errors.
        scope.result = (
            records.ToolResult(status="success", success=True, output=node.result) if node.success else node.result
        )
        scope.leave(None if node.success else node.error_message or NO_REASON)


class _Dispatch:
    """A dispatched call. It ends with the block, and with its exception if there is one."""

    def __init__(self, tracker: ToolCallChainTracker, tool_name: str, parameters: Any) -> None:
        self._tracker = tracker
        self._tool_name = tool_name
        self._parameters = parameters
        self._chain: AbstractContextManager[None] = nullcontext()
        self._node: ToolCallNode | None = None
        self._outcome: tuple[Any, bool, str | None] = (None, False, None)

    def __enter__(self) -> _Dispatch:
        tracker = self._tracker
        with tracker.guard.around():
            chain = tracker._chain_or_new(self._tool_name)
            chain.__enter__()
            self._chain = chain
            self._node = tracker._start_call(self._tool_name, self._parameters, None)
        return self

    def answered(self, answer: Any) -> None:
        with self._tracker.guard.around():
            self._outcome = (answer, True, None)
            if isinstance(answer, Mapping) and "status" in answer:
                success = answer["status"] == "success"
                self._outcome = (answer.get("result"), success, None if success else _reason(answer))

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        tracker = self._tracker
        with tracker.guard.around():
            if error is not None:
                self._outcome = (None, False, str(error) or type(error).__name__)
            if self._node is not None:
                tracker.chain_context.end(self._node, *self._outcome)
                tracker._record_end(self._node)
        with tracker.guard.around():
            self._chain.__exit__(None, None, None)


def _reason(answer: Any) -> Any:
    if not isinstance(answer, Mapping):
        return answer if isinstance(answer, str | BaseException) else None
    texts = (answer.get(name) for name in ("error_message", "error", "message"))
    return next((text for text in texts if isinstance(text, str) and text), None)

"""A callback handler that records agents of LangChain and LangGraph.

    from tracesite_sdk.langchain import TracesiteHandler

    graph.invoke(state, config={"callbacks": [TracesiteHandler(recorder)], "configurable": {"thread_id": "weather-1"}})

* A root run is a message; its session is the thread (`thread_id`), else the current one, else a new one. Inside an open
  message it is a part of that message.
* A request to a model is a step from its start, with what was asked. The text of the last plain reply is the answer of the
  message as soon as it arrives; once another one follows, it is the thought of its step.
* The calls of a reply begin with it, in the order of the reply. Scopes inside a tool belong to its call: agents, retrievers,
  and the tool's own. A call that no tool takes up has the result that its graph gives it, or none.
* A graph that waits for a person has not failed: the session is paused, the message open, and both go on when the recorder
  sees the thread again without a new question. A call that runs a second time then stays one call.
* With `snapshots`, the state of a graph is kept before each node, as its checkpoint has it, and the time machine can replay it.

Threads and tasks may share a handler. It needs langchain-core, and works without LangGraph.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from . import records
from .formats.langchain import entries_of
from .recorder.capture.entries import error_text
from .recorder.guard import guarded
from .recorder.recording import Recorder
from .recorder.scopes import Message, Scope, Session, Step, ToolCall
from .transcripts.entries import Entry, Reply, Result
from .transcripts.turn_records import answer_metadata, result_of, step_of

try:
    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
except ImportError as missing:
    raise ImportError("tracesite_sdk.langchain needs langchain-core: pip install langchain-core.") from missing

from .recorder.snapshots.langchain_messages import node_of, register_messages

if TYPE_CHECKING:
    from langchain_core.documents import Document
    from langchain_core.outputs import LLMResult

    _Handler = BaseCallbackHandler
else:
    try:
        # LangGraph calls on_interrupt only on handlers of this class.
        from langgraph.callbacks import GraphCallbackHandler as _Handler
    except ImportError:
        _Handler = BaseCallbackHandler

_MOST_RUNS = 50_000
"""Open runs that are kept; beyond it the oldest is dropped."""
_MOST_PAUSED = 1_000
"""Threads that wait for a person."""
_MOST_CALLS = 10_000
"""Calls of an agent that are kept for tools and late results."""
_THREAD_IDS = ("thread_id", "session_id", "conversation_id")
_OWN_METADATA = (*_THREAD_IDS, "user_id", "request_id", "checkpoint_ns", "checkpoint_id", "revision_id")
_OWN_PREFIXES = ("langgraph_", "ls_", "lc_", "__")
_QUESTIONS = ("input", "question", "query", "prompt", "text")
_GENERIC_NAMES = ("agent", "model", "tools", "LangGraph")
"""Default names of nodes and graphs in LangGraph."""
_STOPPED = {
    "GeneratorExit": "GeneratorExit: its stream was not read to the end",
    "CancelledError": "CancelledError: it was cancelled",
}
"""Error texts for runs that were stopped from outside, because the text of these exceptions is empty or of no use."""
_MOST_MESSAGES = 1_000
"""Items that are searched at the end of a list, which may have a million of them."""
_NODE = "graph:step:"
"""The prefix of the tag of a run that is a node of a graph."""


@dataclass(eq=False, slots=True)
class _Called:
    """A call of a model's reply, or one that a tool began by itself."""

    call: ToolCall
    args: Any
    runs: int = 0
    """Runs of the tool for this call."""
    is_answered: bool = False
    """True once the model has a result."""
    inside: _Place | None = None
    """The place of an agent that the tool runs."""


@dataclass(eq=False, slots=True)
class _Place:
    """The parent scope of an agent: a message, or the call of a tool."""

    trace: _Trace
    scope: Scope
    iteration: int | None = None
    """The iteration of the step that called the tool."""
    calls: deque[_Called] = field(default_factory=lambda: deque(maxlen=_MOST_CALLS))


@dataclass(eq=False, slots=True)
class _Trace:
    """A root run with all of its descendants."""

    message: Message
    is_own: bool
    """True if the message was opened for it."""
    thread: str | None
    place: _Place = field(init=False)
    iterations: Iterator[int] = field(default_factory=count)
    answers: deque[tuple[Step, Reply]] = field(default_factory=deque)
    """The last plain reply: the answer, unless another one follows. A deque, because branches run in threads."""
    is_paused: bool = False


@dataclass(eq=False, slots=True)
class _Run:
    """An open run of LangChain."""

    place: _Place
    parent: _Run | None
    name: str = ""
    is_node: bool = False
    is_graph: bool = False
    step: Step | None = None
    called: _Called | None = None
    outer: Scope | None = None
    """The current scope before this run."""

    @property
    def below(self) -> _Place:
        """The place of child runs."""
        called = self.called
        if called is None:
            return self.place
        if called.inside is None:
            step = called.call.step
            called.inside = _Place(self.place.trace, called.call, step.iteration if step else None)
        return called.inside

    def agent(self) -> str | None:
        """Return the name of the innermost node or graph with a name of its own."""
        run: _Run | None = self
        while run is not None and run.called is None:
            if (run.is_node or run.is_graph) and run.name and run.name not in _GENERIC_NAMES:
                return run.name
            run = run.parent
        return None


@dataclass(eq=False, slots=True)
class _Shared:
    """The state that all handlers of a recorder share."""

    runs: OrderedDict[UUID, _Run] = field(default_factory=OrderedDict)
    paused: OrderedDict[str, _Trace] = field(default_factory=OrderedDict)
    """Runs that wait for a person, by thread."""


_shared: WeakKeyDictionary[Recorder, _Shared] = WeakKeyDictionary()


class TracesiteHandler(_Handler):
    """Records runs of LangChain and LangGraph with `recorder`. Thread-safe. Never raises, unless the recorder is `strict`.

    One handler may serve all runs, or each run have its own. `snapshots`: keep the state before each node of a graph; the id of
    a node is its name, in a graph inside another one `outer/inner`.
    """

    # In the thread and context of the run, so that the call of a tool is the current scope inside the tool.
    run_inline = True

    def __init__(self, recorder: Recorder, *, snapshots: bool = False) -> None:
        self.recorder = recorder
        self._takes_snapshots = snapshots
        if snapshots:
            register_messages(recorder.snapshots.codecs)
        self.guard = recorder.guard
        self.raise_error = recorder.guard.strict
        shared = _shared.setdefault(recorder, _Shared())
        self._runs, self._paused = shared.runs, shared.paused

    # --- Chains, graphs and their nodes -----------------------------------------------------------------------------

    @guarded
    def on_chain_start(
        self,
        /,
        serialized: dict[str, Any] | None,
        inputs: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._is_new(run_id):
            return
        name = str(kwargs.get("name") or "")
        parent = self._parent(parent_run_id)
        if parent is None:
            trace = self._begin(_question(inputs), run_id, tags, metadata)
            self._keep(run_id, _Run(trace.place, None, name, is_graph=True))
            return
        is_node = any(tag.startswith(_NODE) for tag in tags or ())
        run = _Run(parent.below, parent, name, is_node)
        if is_node:
            parent.is_graph = True
            self._open(run, run.place.scope)
            if self._takes_snapshots:
                session_id = run.place.scope.session.external_id
                self.recorder.snapshot(inputs, nodes=[node_of(metadata, name)], session=session_id)
        self._keep(run_id, run)

    @guarded
    def on_chain_end(self, /, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        if run.is_node:
            self._close(run)
            for message in _messages_in(outputs):
                if isinstance(message, ToolMessage):
                    self._tool_message(run.place, message)
        elif run.parent is None:
            self._end(run.place.trace, outputs)

    @guarded
    def on_chain_error(self, /, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        if run.is_node:
            self._close(run)
        waits = _is_interrupt(error)
        if waits and (run.parent is None or run.parent.parent is None):
            run.place.trace.is_paused = True
        if run.parent is None:
            self._end(run.place.trace, None, None if waits or _goes_elsewhere(error) else error)

    @guarded
    def on_interrupt(self, /, event: Any) -> None:
        """Called by LangGraph when the graph waits for a person."""
        run = self._runs.get(event.run_id)
        if run is not None and run.parent is None:
            run.place.trace.is_paused = True
            interrupts = [{"id": interrupt.id, "value": interrupt.value} for interrupt in event.interrupts]
            if interrupts:
                run.place.trace.message.metadata["interrupts"] = interrupts

    # --- Models -----------------------------------------------------------------------------------------------------

    @guarded
    def on_chat_model_start(
        self,
        /,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if self._is_new(run_id):
            request = messages[0] if messages else []
            self._request(lambda: _question(request), request, run_id, parent_run_id, tags, metadata, kwargs)

    @guarded
    def on_llm_start(
        self,
        /,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        if self._is_new(run_id):
            request = [{"role": "user", "content": prompt} for prompt in prompts[:1]]
            self._request(
                lambda: prompts[0] if prompts else None, request, run_id, parent_run_id, tags, metadata, kwargs
            )

    @guarded
    def on_llm_new_token(self, /, token: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.get(run_id)
        if run is not None and run.step is not None:
            run.step.first_token()

    @guarded
    def on_llm_end(self, /, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        assert run.step is not None, "it is the run of a model"
        entries: list[Entry] = [_NOTHING]
        with self.guard.around():
            entries = _entries_of_reply(response)
        step: Step | None = run.step
        for entry in entries:
            if isinstance(entry, Reply):
                self._reply(run, step or self._new_step(run), entry)
                step = None
            elif isinstance(entry, Result):
                self._result(run.place, entry)
        if run.parent is None:
            self._end(run.place.trace, None)

    @guarded
    def on_llm_error(self, /, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        assert run.step is not None, "it is the run of a model"
        run.step.iteration = self._iteration(run.place)
        run.step.end(_failure(error))
        if run.parent is None:
            self._end(run.place.trace, None, error)

    # --- Tools and retrievers ---------------------------------------------------------------------------------------

    @guarded
    def on_tool_start(
        self,
        /,
        serialized: dict[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._is_new(run_id):
            return
        parent = self._parent(parent_run_id)
        place = parent.below if parent else self._begin(None, run_id, tags, metadata).place
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "")
        call_id = kwargs.get("tool_call_id")
        args = input_str if inputs is None else inputs
        called = _matching_call(place, call_id, name, args)
        if called is None:
            call = self.recorder.tool_call(name, args, call_id=call_id).start(within=place.scope)
            called = _Called(call, args)
            place.calls.append(called)
        else:
            called.call.run()
        called.runs += 1
        if called.runs > 1:
            called.call.metadata = {**(called.call.metadata or {}), "runs": called.runs}
        run = _Run(place, parent, name, called=called)
        self._open(run, called.call)
        self._keep(run_id, run)

    @guarded
    def on_tool_end(self, /, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        self._close(run)
        assert run.called is not None, "it is the run of a tool"
        result: Any = None
        with self.guard.around():
            result = _result_in(output, run.called.call)
        self._answer(run.called, result)
        if run.parent is None:
            self._end(run.place.trace, None)

    @guarded
    def on_tool_error(self, /, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        self._close(run)
        assert run.called is not None, "it is the run of a tool"
        call = run.called.call
        if not (_is_interrupt(error) or _goes_elsewhere(error)):
            if call.is_open:
                call.end(_failure(error))
            else:
                call.update(result=records.ToolResult(status="error", error=error_text(error)))
        if run.parent is None:
            self._end(run.place.trace, None, error)

    @guarded
    def on_retriever_start(
        self,
        /,
        serialized: dict[str, Any] | None,
        query: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not self._is_new(run_id):
            return
        parent = self._parent(parent_run_id)
        place = parent.below if parent else self._begin(query, run_id, tags, metadata).place
        name = str(kwargs.get("name") or (metadata or {}).get("ls_retriever_name") or "retriever")
        args = {"query": query}
        call = self.recorder.tool_call(name, args).start(within=place.scope)
        self._keep(run_id, _Run(place, parent, name, called=_Called(call, args)))

    @guarded
    def on_retriever_end(self, /, documents: Sequence[Document], *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        assert run.called is not None, "it is the run of a retriever"
        references = run.place.trace.message.references
        passages = [_reference(document) for document in documents]
        for reference in passages:
            # A passage that is found again is one reference of the answer.
            if not any({**reference, "seq": other["seq"]} == other for other in references if "seq" in other):
                references.append({**reference, "seq": len(references)})
        # The text of the result holds the passages themselves.
        about = [{name: value for name, value in reference.items() if name != "content"} for reference in passages]
        text = "\n\n".join(reference["content"] for reference in passages)
        self._answer(run.called, records.ToolResult(status="success", output=text, data={"results": about}))
        if run.parent is None:
            self._end(run.place.trace, None)

    @guarded
    def on_retriever_error(self, /, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        run = self._runs.pop(run_id, None)
        if run is None:
            return
        assert run.called is not None, "it is the run of a retriever"
        run.called.call.end(_failure(error))
        if run.parent is None:
            self._end(run.place.trace, None, error)

    # --- Runs -------------------------------------------------------------------------------------------------------

    def _is_new(self, run_id: UUID) -> bool:
        """Return whether to record a run: not if another handler of the recorder does, because a graph in a node may have both
        its own callbacks and those of its parent."""
        return self.recorder.enabled and run_id not in self._runs

    def _parent(self, run_id: UUID | None) -> _Run | None:
        return self._runs.get(run_id) if run_id is not None else None

    def _keep(self, run_id: UUID, run: _Run) -> None:
        self._runs[run_id] = run
        if len(self._runs) > _MOST_RUNS:
            self._runs.popitem(last=False)

    def _open(self, run: _Run, scope: Scope) -> None:
        """Make the scope current in this context: for nodes and tools, which run in contexts of their own."""
        current = self.recorder.runtime.current
        run.outer = current.get()
        current.set(scope)

    def _close(self, run: _Run) -> None:
        current = self.recorder.runtime.current
        scope = run.called.call if run.called is not None else run.place.scope
        if current.get() is scope:
            current.set(run.outer)

    # --- Messages ---------------------------------------------------------------------------------------------------

    def _begin(self, prompt: Any, run_id: UUID, tags: list[str] | None, metadata: Mapping[str, Any] | None) -> _Trace:
        """Return the trace of a new root run."""
        around = self.recorder.current()
        if around is not None and around.message.is_open:
            trace = _Trace(around.message, is_own=False, thread=None)
            trace.place = _Place(trace, around)
            return trace
        metadata = metadata or {}
        thread = next((str(metadata[name]) for name in _THREAD_IDS if metadata.get(name)), None)
        if thread is not None:
            paused = self._paused.pop(thread, None)
            if paused is not None and prompt is None:
                paused.is_paused = False
                paused.message.update(status="running")
                return paused
            user = metadata.get("user_id")
            if not (isinstance(around, Session) and around.is_open and around.external_id == thread):
                around = self.recorder.session(thread, end_user=str(user) if user else None).start()
        about = {
            name: value
            for name, value in metadata.items()
            if name not in _OWN_METADATA and not name.startswith(_OWN_PREFIXES)
        }
        about |= {"run_id": str(run_id)} | ({"tags": list(tags)} if tags else {})
        request_id = metadata.get("request_id")
        message = self.recorder.message(
            prompt, request_id=str(request_id) if request_id else str(run_id), metadata=about
        ).start(within=around)
        trace = _Trace(message, is_own=True, thread=thread)
        trace.place = _Place(trace, message)
        return trace

    def _end(self, trace: _Trace, outputs: Any, error: BaseException | None = None) -> None:
        message = trace.message
        if trace.is_paused and error is None and trace.is_own:
            message.update(status="paused", metadata=message.metadata)
            if trace.thread is not None:
                self._paused[trace.thread] = trace
                if len(self._paused) > _MOST_PAUSED:
                    self._paused.popitem(last=False)
            return
        with self.guard.around():
            self._conclude(trace, outputs)
        if trace.is_own:
            message.end(_failure(error))

    def _conclude(self, trace: _Trace, outputs: Any) -> None:
        """Set the answer of the message."""
        message = trace.message
        answer = self._last_answer(trace, outputs)
        if not trace.is_own:
            # The code that opened the message may set another answer.
            if answer is None or trace.place.scope.call is not None:
                self._set_answer(trace, None)
            else:
                if trace.answers and isinstance(answer.content, str):
                    message.set_reply(trace.answers[-1][0], answer.content)
                else:
                    self._set_answer(trace, None)
                if message.content is None:
                    message.content = answer.content
        elif answer is not None:
            message.content = answer.content
            message.metadata |= answer_metadata(answer)
        elif isinstance(outputs, str):
            message.content = outputs

    def _last_answer(self, trace: _Trace, outputs: Any) -> Reply | None:
        """Return the last plain reply, or the message of an agent at the end of the graph's output if that is another one."""
        *_, last = [None, *_messages_in(outputs)]
        given = _reply_in(last) if isinstance(last, AIMessage) else None
        held = trace.answers[-1][1] if trace.answers else None
        if given is None or given.calls or (held is not None and held.content == given.content):
            return held
        self._set_answer(trace, None)
        return given

    def _set_answer(self, trace: _Trace, answer: tuple[Step, Reply] | None) -> None:
        """Set the last plain reply. An earlier one becomes the thought of its step."""
        if answer is not None:
            trace.answers.append(answer)
        while len(trace.answers) > (answer is not None):
            try:
                earlier = trace.answers.popleft()
            except IndexError:
                return  # a branch in another thread took it at this moment
            if answer is not None and not trace.answers:
                # The other branch took the one before, so this one is the last.
                trace.answers.append(earlier)
                return
            step, reply = earlier
            record = step_of(reply, None)
            step.update(record.thought, metadata=record.metadata)

    # --- Steps ------------------------------------------------------------------------------------------------------

    def _request(
        self,
        prompt: Any,
        messages: Sequence[Any],
        run_id: UUID,
        parent_run_id: UUID | None,
        tags: list[str] | None,
        metadata: dict[str, Any] | None,
        kwargs: dict[str, Any],
    ) -> None:
        parent = self._parent(parent_run_id)
        place = parent.below if parent else self._begin(prompt(), run_id, tags, metadata).place
        run = _Run(place, parent)
        about = metadata or {}
        params = kwargs.get("invocation_params") or {}
        model = about.get("ls_model_name") or params.get("model") or params.get("model_name")
        agent = about.get("lc_agent_name") or run.agent()
        params = {name: value for name, value in params.items() if value is not None and name != "_type"}
        step = self.recorder.step(
            model=str(model) if model else None, agent=agent, request={**params, "messages": messages}
        )
        run.step = step.start(within=place.scope)
        self._keep(run_id, run)

    def _new_step(self, run: _Run) -> Step:
        first = run.step
        assert first is not None, "it is the run of a model"
        step = self.recorder.step(model=first.model, agent=first.agent).start(within=run.place.scope)
        step.duration = 0.0
        return step

    def _reply(self, run: _Run, step: Step, reply: Reply) -> None:
        place = run.place
        trace = place.trace
        if place is not trace.place:
            # A reply of an agent that a tool runs.
            reply = replace(reply, parent_call=place.scope.call.call_id if place.scope.call else None)
        step.iteration = self._iteration(place)
        is_plain = place is trace.place and not reply.calls
        record = step_of(replace(reply, content=None) if is_plain else reply, step.iteration)
        step.thought, step.reasoning, step.usage = record.thought, record.reasoning_content, record.usage
        step.model = record.model or step.model
        step.agent = record.agent_name or step.agent
        step.metadata = record.metadata or {}
        step.end()
        if is_plain:
            self._set_answer(trace, (step, reply))
            if trace.is_own:
                trace.message.update(reply.content)
        for call in reply.calls:
            scope = self.recorder.tool_call(call.name, call.args, call_id=call.id, metadata=call.metadata or None)
            place.calls.append(_Called(scope.start(within=step), call.args))

    def _iteration(self, place: _Place) -> int | None:
        """Return the iteration of the next step. An agent in a tool has that of the step which called the tool. None in a
        message of other code, which may count its own."""
        trace = place.trace
        if place is not trace.place:
            return place.iteration
        return next(trace.iterations) if trace.is_own else None

    # --- Results ----------------------------------------------------------------------------------------------------

    def _tool_message(self, place: _Place, message: ToolMessage) -> None:
        """Record a tool message in the state of a graph: of a call that no tool took up, or that failed."""
        for entry in entries_of(message.model_dump()):
            if isinstance(entry, Result):
                self._result(place, entry)

    def _result(self, place: _Place, result: Result) -> None:
        for called in tuple(place.calls):
            if not called.is_answered and called.call.call_id and called.call.call_id in result.call_ids:
                self._answer(called, result_of(result))
                return

    def _answer(self, called: _Called, result: Any) -> None:
        called.is_answered = True
        call = called.call
        if isinstance(result, records.ToolResult):
            result = {name: value for name, value in msgspec.structs.asdict(result).items() if value is not None}
        if call.is_open:
            call.result = result
            call.end()
        else:
            call.update(result=result, metadata=call.metadata)


_NOTHING = Reply(id="", content=None)
"""Stands for a reply that cannot be parsed."""


# --- Values of LangChain ------------------------------------------------------------------------------------------------


def _entries_of_reply(response: LLMResult) -> list[Entry]:
    """Return the entries of the first reply to a request."""
    first = next((generations[0] for generations in response.generations if generations), None)
    message = getattr(first, "message", None)
    if isinstance(message, BaseMessage):
        return entries_of(message.model_dump())
    about = response.llm_output or {}
    usage, model = about.get("token_usage"), about.get("model_name")
    text = first.text if first is not None else ""
    return [Reply(id="", content=text, usage=usage if isinstance(usage, dict) else None, model=model)]


def _reply_in(message: AIMessage) -> Reply | None:
    replies = [entry for entry in entries_of(message.model_dump()) if isinstance(entry, Reply)]
    return replies[-1] if replies else None


def _result_in(output: Any, call: ToolCall) -> Any:
    """Return the result of a tool: the content of a tool message, also of one in a command, or the value itself."""
    messages = [message for message in _messages_in(output) if isinstance(message, ToolMessage)]
    own = [message for message in messages if message.tool_call_id == call.call_id]
    message = next(iter(own or messages), None)
    if message is None:
        return records.ToolResult(status="success", data=output.goto) if _is_command(output) else output
    # Older versions do not pass the id of the call when a tool begins.
    call.call_id = call.call_id or message.tool_call_id
    results = [entry for entry in entries_of(message.model_dump()) if isinstance(entry, Result)]
    return result_of(results[0])


def _matching_call(place: _Place, call_id: str | None, name: str, args: Any) -> _Called | None:
    """Return the call that a tool takes up: the one with its id; without an id, with its name and arguments; else one with its
    name and no id. A call that has run already runs again only under its own id."""
    calls = tuple(place.calls)
    fresh = [called for called in calls if not called.runs]
    if call_id is not None:
        of_id = [called for called in calls if called.call.call_id == call_id]
        match = next((called for called in of_id if not called.runs), of_id[-1] if of_id else None)
        if match is not None:
            return match
    else:
        same = next((called for called in fresh if called.call.name == name and called.args == args), None)
        if same is not None:
            return same
    return next((called for called in fresh if called.call.name == name and called.call.call_id is None), None)


def _question(inputs: Any) -> Any:
    """Return the user's question from the input of a run: the last human message, or a text."""
    if isinstance(inputs, str):
        return inputs or None
    human = [message for message in _messages_in(inputs) if isinstance(message, HumanMessage)]
    if human:
        return human[-1].content
    if isinstance(inputs, Mapping):
        texts = [inputs[name] for name in _QUESTIONS if isinstance(inputs.get(name), str)]
        if texts:
            return texts[0]
        for value in inputs.values():
            if isinstance(value, list | tuple) and (question := _short_form(value)):
                return question
    return _short_form(inputs)


def _short_form(value: Any) -> Any:
    """Return the last question in a list of messages in short form: `("user", "...")` or `{"role": "user"}`."""
    for message in reversed(value[-_MOST_MESSAGES:]) if isinstance(value, list | tuple) else ():
        if isinstance(message, Mapping) and (message.get("role") or message.get("type")) in ("user", "human"):
            return message.get("content")
        if isinstance(message, list | tuple) and len(message) == 2 and message[0] in ("user", "human"):
            return message[1]
    return None


def _messages_in(value: Any, depth: int = 2) -> Iterator[BaseMessage]:
    """Yield the messages in the input or output of a node, a tool or a graph: a state, a list, a command."""
    if isinstance(value, BaseMessage):
        yield value
    elif _is_command(value):
        yield from _messages_in(value.update, depth)
    elif isinstance(value, Mapping) and depth:
        for held in value.values():
            yield from _messages_in(held, depth - 1)
    elif isinstance(value, list | tuple) and depth:
        for held in value[-_MOST_MESSAGES:]:
            yield from _messages_in(held, depth if _is_command(held) else depth - 1)
    elif hasattr(value, "to_messages"):
        yield from value.to_messages()


def _is_command(value: Any) -> bool:
    """Return whether this is LangGraph's Command, without importing LangGraph, which may be missing."""
    return type(value).__name__ == "Command" and hasattr(value, "update") and hasattr(value, "goto")


def _failure(error: BaseException | None) -> BaseException | str | None:
    return _STOPPED.get(type(error).__name__, error)


def _is_interrupt(error: BaseException) -> bool:
    """Return whether the exception means that a graph waits."""
    return any(kind.__name__ in ("GraphInterrupt", "NodeInterrupt") for kind in type(error).__mro__)


def _goes_elsewhere(error: BaseException) -> bool:
    """Return whether the exception means that a graph goes on in its parent graph."""
    return any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)


def _reference(document: Document) -> dict[str, Any]:
    """Convert a document to the fields of records.Reference."""
    about = dict(document.metadata)
    reference: dict[str, Any] = {"content": document.page_content}
    if document.id:
        reference["id"] = document.id
    for name, kind, spellings in _REFERENCE_FIELDS:
        spelling_given = next((spelling for spelling in spellings if isinstance(about.get(spelling), kind)), None)
        if spelling_given is not None and not isinstance(about[spelling_given], bool):
            reference[name] = about.pop(spelling_given)
    if about:
        reference["metadata"] = about
    return reference


_REFERENCE_FIELDS: tuple[tuple[str, type | tuple[type, ...], tuple[str, ...]], ...] = (
    ("knowledge_id", str, ("knowledge_id", "doc_id", "document_id")),
    ("knowledge_title", str, ("knowledge_title", "title")),
    ("knowledge_filename", str, ("knowledge_filename", "filename", "file_name")),
    ("knowledge_source", str, ("knowledge_source", "source", "url")),
    ("chunk_type", str, ("chunk_type",)),
    ("chunk_index", int, ("chunk_index",)),
    ("start_at", int, ("start_at", "start_index")),
    ("end_at", int, ("end_at", "end_index")),
    ("score", (int, float), ("score", "relevance_score")),
)

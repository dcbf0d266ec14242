"""Agents that do not know the recorder: `enable` records the methods of an object.

    recorder.enable(agent)                    # its run, execute, generate, prompts, requests to models, tools, callback
    agent.run("What is the weather?")         # as before
    recorder.disable(agent)

A wrapped method keeps its signature, return value and exceptions, and stays a function, coroutine, generator or asynchronous
generator. A method is replaced on the object, not on its class, by another method of it, so that a deep copy calls its own
methods, and a pickle holds the original object; a shallow copy (`copy.copy`) shares them, so enable objects after copying.
Properties are not read, because that would run the host's code.
"""

from __future__ import annotations

import inspect
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import Any, Self, TypeVar, cast

from tracesite_sdk.eko.callbacks import Nodes, events_of, task_named
from tracesite_sdk.eko.contexts import EkoContexts
from tracesite_sdk.eko.transcripts import message_of
from tracesite_sdk.recorder.capture import decorating
from tracesite_sdk.recorder.capture.decorating import decorated
from tracesite_sdk.recorder.capture.entries import text_of, thaw
from tracesite_sdk.recorder.capture.wrapping import Args, wrap
from tracesite_sdk.recorder.guard import instead_of_failing, logger
from tracesite_sdk.recorder.scopes import Message, Runtime, Scope, Session, Step, ToolCall

from . import answers

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
SessionOf = str | Callable[[Args], str | None] | None
ContextOf = bool | str | Callable[[Any], Any]
Take = Callable[[Any, str, str], None]
"""Keeps a context as it is now before a node, in a session."""

RUNS = ("run", "arun")
PARTS = ("generate", "execute", "agenerate", "aexecute")
MODELS = ("call_llm", "call_model", "llm_request", "callLLM", "callModel", "llmRequest")
PROMPTS = ("build_system_prompt", "build_user_prompt", "buildSystemPrompt", "buildUserPrompt")
CALLBACKS = ("callback", "config.callback")
ON_MESSAGE = ("on_message", "onMessage")
TOOLS = "tools"
TOOL_METHODS = ("execute", "run", "invoke", "call")
_NAMES = ("name", "agent_name", "tool_name")
_TASKS = ("task_id", "taskId")
_MODEL_NAMES = ("model", "model_name")
_ARGS = ("args", "params", "parameters", "arguments", "input", "tool_input")
_CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "toolId", "id")
_OF_A_CALL = ("tool_call", "toolCall")
_OF_MODELS_AND_TOOLS = ("llm_request_", "tool_call_")
_MARK = "_tracesite"
_NAMING_SECONDS = 5.0
"""Seconds for which a run without a session waits for the name of its task."""
_MOST_RUNS = 100
"""Tasks whose callbacks are tracked at the same time."""


# --- enable -------------------------------------------------------------------------------------------------------------


@dataclass
class _Patch:
    """One replaced method or function, and the way back."""

    runtime: Runtime
    owner: Any
    undo: Callable[[], None]
    users: int = 1
    """Enabled objects that share it, as agents share a tool."""

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            self.undo()


@dataclass
class _Enabled:
    """The patches of one object, kept by the object. Copies and pickles of the object are without it."""

    runtime: Runtime
    patches: list[_Patch] = field(default_factory=list)

    def __deepcopy__(self, _memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@dataclass(frozen=True, kw_only=True)
class Names:
    """The attributes of an object by their role. A name may have dots: `client.chat.completions.create`. Custom names that the
    object does not have are logged."""

    runs: Sequence[str] = RUNS
    parts: Sequence[str] = PARTS
    models: Sequence[str] = MODELS
    prompts: Sequence[str] = PROMPTS
    callbacks: Sequence[str] = CALLBACKS
    tools: str = TOOLS


_USUAL = Names()


def enable(
    runtime: Runtime,
    target: T,
    *,
    name: str | None = None,
    session: SessionOf = None,
    names: Names | None = None,
    snapshots: ContextOf = False,
    take: Take,
) -> T:
    """See Recorder.enable."""
    if not runtime.enabled:
        return target
    with runtime.guard.around():
        kept = _Contexts(runtime, target, snapshots, take) if snapshots else None
        _Enabling(runtime, target, name, session, names or _USUAL, kept).do()
    return target


def disable(runtime: Runtime, target: T) -> T:
    """See Recorder.disable."""
    with runtime.guard.around():
        done = _attributes(target).get(_MARK)
        if isinstance(done, _Enabled) and done.runtime is runtime:
            object.__delattr__(target, _MARK)
            for patch in reversed(done.patches):
                patch.release()
    return target


class _Enabling:
    """The work of `enable` for one object."""

    def __init__(
        self,
        runtime: Runtime,
        target: Any,
        name: str | None,
        session: SessionOf,
        names: Names,
        contexts: _Contexts | None,
    ) -> None:
        self._runtime = runtime
        self._target = target
        self._name = name or _text_of(target, _NAMES) or type(target).__name__
        self._session = session
        self._names = names
        self._contexts = contexts
        self._done = _Enabled(runtime)

    def do(self) -> None:
        target, names = self._target, self._names
        before = _attributes(target).get(_MARK)
        if isinstance(before, _Enabled):
            if before.runtime is self._runtime:
                return
            logger.warning("Not recorded by this recorder: %s is recorded by another one.", type(target).__name__)
            return
        try:
            object.__setattr__(target, _MARK, self._done)
        except AttributeError:
            logger.warning("Not recorded: methods of %s cannot be replaced.", type(target).__name__)
            return
        if self._is_tool():
            self._tool(target)
            return
        patches = len(self._done.patches)
        self._all(names.models, _USUAL.models, self._request)
        self._tools()
        records_inside = len(self._done.patches) > patches
        self._all(names.runs, _USUAL.runs, self._run)
        self._all(names.parts, _USUAL.parts, self._run)
        self._all(names.prompts, _USUAL.prompts, self._prompt)
        for path in names.callbacks:
            self._callback(path, records_inside)
        if names is _USUAL and not self._done.patches:
            logger.warning(
                "Nothing of %s is recorded: it has no tools, no callback, and none of the methods %s. Name its own: names=Names(runs=[...]).",
                type(target).__name__,
                ", ".join((*RUNS, *PARTS, *MODELS, *PROMPTS)),
            )

    def _is_tool(self) -> bool:
        """Return whether the object is a tool: it has `execute` and a name, and no method that runs an agent."""
        return (
            self._names is _USUAL
            and _has(self._target, "execute")
            and bool(_text_of(self._target, _NAMES))
            and not any(_has(self._target, name) for name in (*RUNS, "generate", TOOLS))
        )

    def _all(self, paths: Sequence[str], usual: Sequence[str], wrapper: Callable[[str, Any], Any]) -> None:
        for path in paths:
            with self._runtime.guard.around():
                owner, name = _owner(self._target, path)
                if _has(owner, name):
                    self._patch(owner, name, partial(wrapper, name))
                elif paths is not usual:
                    logger.warning("Not recorded: %s has no method %s.", type(self._target).__name__, path)

    # --- Wrappers by role -------------------------------------------------------------------------------------------

    def _run(self, name: str, function: F) -> F:
        runtime, target, agent, session = self._runtime, self._target, self._name, self._session

        def make() -> Scope:
            current = runtime.current.get()
            if current is not None and current.message.is_open:
                self._before(name)
                return _Part(runtime, agent=agent).of(target)
            return _Run(runtime, target, session)

        return decorated(make, function)

    def _request(self, name: str, function: F) -> F:
        runtime, agent = self._runtime, self._name
        model = _text_of(self._target, _MODEL_NAMES)

        def make() -> Scope:
            self._before(name)
            return _ModelRequest(runtime, model=model, agent=agent)

        return decorated(make, function)

    def _prompt(self, name: str, function: F) -> F:
        kind = "system" if "system" in name.lower() else "user" if "user" in name.lower() else name
        runtime = self._runtime
        return wrap(function, after=lambda value, _args: _record_prompt(runtime, value, kind), guard=runtime.guard)

    def _tools(self) -> None:
        owner, name = _owner(self._target, self._names.tools)
        held = _value(owner, name)
        items: list[tuple[Any, Any]] = []
        if isinstance(held, Mapping):
            items = list(held.items())
        elif isinstance(held, list | tuple):
            items = list(enumerate(held))
        for key, tool in items:
            with self._runtime.guard.around():
                if inspect.isroutine(tool):
                    called = key if isinstance(key, str) else getattr(tool, "__name__", "")
                    if isinstance(held, MutableMapping | MutableSequence):
                        self._replace(held, key, partial(self._tool_function, called))
                else:
                    self._tool(tool)

    def _tool(self, tool: Any) -> None:
        method = next((name for name in TOOL_METHODS if _has(tool, name)), None)
        if method is not None:
            called = _text_of(tool, _NAMES) or type(tool).__name__
            self._patch(tool, method, partial(self._tool_function, called))

    def _tool_function(self, called: str, function: F) -> F:
        runtime = self._runtime

        def make() -> Scope:
            self._before(called)
            return _ToolMethod(runtime, called)

        return decorating.tool(make, function, runtime.destination)

    def _before(self, node: str) -> None:
        if self._contexts is not None:
            self._contexts.before(node)

    def _callback(self, path: str, records_inside: bool) -> None:
        events = _CallbackEvents(self._runtime, records_inside, self._contexts)

        def listen(function: F) -> F:
            return wrap(function, before=events.receive, guard=self._runtime.guard)

        with self._runtime.guard.around():
            owner, name = _owner(self._target, path)
            callback = _value(owner, name)
            if callback is None:
                return
            items = callback if isinstance(callback, Mapping) else {}
            methods = [method for method in ON_MESSAGE if _has(callback, method) or method in items]
            for method in methods:
                if isinstance(callback, MutableMapping):
                    self._replace(callback, method, listen)
                else:
                    self._patch(callback, method, listen)
            if not methods and inspect.isroutine(callback):
                if isinstance(owner, MutableMapping):
                    self._replace(owner, name, listen)
                else:
                    self._patch(owner, name, listen)

    # --- Patches ----------------------------------------------------------------------------------------------------

    def _patch(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Replace a method of an object."""
        if self._shares(owner, getattr(owner, name)):
            return
        before = getattr(owner, name)
        own = _attributes(owner)
        has_own, is_method = name in own, inspect.ismethod(before) and before.__self__ is owner
        made = MethodType(wrapper(before.__func__), owner) if is_method else wrapper(before)

        def undo() -> None:
            if _attributes(owner).get(name) is made:
                if has_own:
                    object.__setattr__(owner, name, before)
                else:
                    object.__delattr__(owner, name)

        # Not by setattr: the object's own __setattr__ may forbid or observe it.
        object.__setattr__(owner, name, made)
        self._keep(owner, made, undo)

    def _replace(self, held: Any, key: Any, wrapper: Callable[[Any], Any]) -> None:
        """Replace a function in a dict or list."""
        before = held[key]
        if self._shares(held, before):
            return
        made = wrapper(before)

        def undo() -> None:
            if isinstance(held, MutableMapping):
                if held.get(key) is made:
                    held[key] = before
            else:
                places = [index for index, item in enumerate(held) if item is made]
                for index in places:
                    held[index] = before

        held[key] = made
        self._keep(held, made, undo)

    def _shares(self, owner: Any, before: Any) -> bool:
        """Return whether it is recorded already, for another enabled object; if so, share the patch."""
        patch = getattr(before, _MARK, None)
        if not isinstance(patch, _Patch) or patch.runtime is not self._runtime:
            return False
        if patch.owner is not owner:
            # It was copied with the object.
            if isinstance(before, MethodType):
                object.__delattr__(owner, before.__name__)
            return False
        patch.users += 1
        self._done.patches.append(patch)
        return True

    def _keep(self, owner: Any, made: Any, undo: Callable[[], None]) -> None:
        patch = _Patch(self._runtime, owner, undo)
        setattr(made.__func__ if isinstance(made, MethodType) else made, _MARK, patch)
        self._done.patches.append(patch)


# --- Scopes of enabled objects --------------------------------------------------------------------------------------------


class _TaskSession(Session):
    """The session of a run to which none was given: the task that the run turns out to work on.

    An argument, a callback message or the return value may name the task, or the object itself, which may do so only while it
    runs. What was recorded waits for the name until the run ends, for _NAMING_SECONDS at most, or until somebody needs it.
    """

    def __init__(self, runtime: Runtime, target: Any) -> None:
        super().__init__(runtime)
        self._target = target
        self._task: str | None = None
        self._until = time.monotonic() + _NAMING_SECONDS
        self._final: dict[str, str] = {}
        """Its name, set once, by one atomic operation, because the worker and the agent's threads read it."""
        _unnamed.add(self)

    @property
    def external_id(self) -> str:
        return self.end_naming()

    @property
    def awaits_name(self) -> bool:
        return "name" not in self._final and self._task is None and time.monotonic() < self._until

    def is_of(self, target: Any) -> bool:
        return self._target is target

    def name(self, task: str | None) -> None:
        """Take the name of the task; the first one counts."""
        self._task = self._task or task

    def end_naming(self) -> str:
        """Return the name, which does not change any more."""
        if "name" not in self._final:
            task = self._task or instead_of_failing(None, _text_of, self._target, _TASKS)
            self._final.setdefault("name", task or self._external_id)
            self._target = None
            _unnamed.discard(self)
        return self._final["name"]


_unnamed: set[_TaskSession] = set()


def _end_naming() -> None:
    """Before a fork: give all sessions their names, because the child uses them too."""
    for session in list(_unnamed):
        session.end_naming()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_end_naming)


def _name_session(scope: Scope, task: str | None) -> None:
    if isinstance(scope.session, _TaskSession):
        scope.session.name(task)


class _Run(Message):
    """The run of an enabled object."""

    def __init__(self, runtime: Runtime, target: Any, session: SessionOf) -> None:
        super().__init__(runtime)
        self._target = target
        self._given_session = session
        self._session_id: str | None = None

    def _set_arguments(self, args: Args) -> None:
        super()._set_arguments(args)
        session_id = self._given_session(args) if callable(self._given_session) else self._given_session
        self._session_id = session_id or _text_of(args, _TASKS)

    def _begin(self, outer: Scope | None) -> None:
        if outer is None:
            runtime = self._runtime
            outer = Session(runtime, self._session_id) if self._session_id else _TaskSession(runtime, self._target)
        super()._begin(outer)

    def _finish(self) -> None:
        super()._finish()
        if isinstance(self.session, _TaskSession):
            self.session.end_naming()

    def _set_result(self, value: Any) -> None:
        plain = thaw(value)
        _name_session(self, _text_of(plain if isinstance(plain, dict) else value, _TASKS))
        if isinstance(plain, dict) and isinstance(plain.get("success"), bool):
            # The result of an agent, as {success, result, error}.
            if not plain["success"]:
                self.error = text_of(plain.get("error") or plain.get("result") or plain.get("stopReason") or "failed")
            value = plain.get("result")
        super()._set_result(value)


class _ModelRequest(Step):
    """A request to a model."""

    def _set_arguments(self, args: Args) -> None:
        model = args.get("model")
        self.model = model if isinstance(model, str) else self.model
        self.request = args or None

    def _set_result(self, value: Any) -> None:
        answer = answers.read(value)
        self.thought, self.reasoning, self.usage = answer.text, answer.reasoning, answer.usage
        self.model = answer.model or self.model
        if self._has_counted_inside:
            # The response of a request in it, whose step has the tokens.
            self.usage = None

    def _enter(self, within: Scope | None = None) -> None:
        super()._enter(within)
        self._go_inside()

    def _exit(self, error: BaseException | str | None) -> None:
        self._come_out()
        super()._exit(error)

    def _go_inside(self) -> None:
        part = self._runtime.part
        self._around = part.get()
        part.set(self)

    def _come_out(self) -> None:
        if self._runtime.part.get() is self:
            self._runtime.part.set(self._around)


class _Part(_ModelRequest):
    """A part of a run. It does not become current, because the calls in it belong to the last request to a model."""

    def of(self, target: Any) -> Self:
        self._target = target
        return self

    def _set_arguments(self, args: Args) -> None:
        current = self._runtime.current.get()
        # An agent in the run may have a task of its own.
        if current is not None and isinstance(current.session, _TaskSession) and current.session.is_of(self._target):
            current.session.name(_text_of(args, _TASKS))

    def _enter(self, within: Scope | None = None) -> None:
        self._start(within)
        self._go_inside()


class _ToolMethod(ToolCall):
    """A call of a tool's method, without the parameters that the agent adds to the tool's own arguments."""

    def _set_arguments(self, args: Args) -> None:
        given = next((args[name] for name in _ARGS if isinstance(args.get(name), Mapping)), None)
        self._args = args if given is None else given
        about = next((args[name] for name in _OF_A_CALL if args.get(name) is not None), None)
        fields = about if isinstance(about, Mapping) else getattr(about, "__dict__", {})
        call_id = next((fields[name] for name in _CALL_IDS if isinstance(fields.get(name), str)), None)
        self.call_id = call_id or (args["tool_call_id"] if isinstance(args.get("tool_call_id"), str) else None)


def _record_prompt(runtime: Runtime, prompt: Any, kind: str) -> None:
    if prompt is None or not runtime.enabled:
        return
    current = runtime.current.get()
    if current is not None and current.message.is_open:
        current.message.prompt_built(prompt, kind)
    else:
        with Message(runtime) as message:
            message.prompt_built(prompt, kind)


class _CallbackEvents:
    """Turns the messages to an object's callback into events of the open run, or of one run for each task."""

    def __init__(self, runtime: Runtime, records_inside: bool, contexts: _Contexts | None) -> None:
        self._runtime = runtime
        self._contexts = contexts
        self._records_inside = records_inside
        """Requests to models and calls of tools are recorded where they are made, so their callback messages are left out."""
        self._runs: OrderedDict[str, Message] = OrderedDict()
        """Runs by task."""
        self._nodes: OrderedDict[str, Nodes] = OrderedDict()
        """Nodes by run, because the steps of an agent are counted anew in each."""

    def receive(self, args: Args) -> None:
        first = next(iter(args.values()), None)
        # A method that takes `*args` has no other parameter.
        message = thaw(first[0] if isinstance(first, tuple) and first else first)
        task = task_named(message)
        if task is None or not self._runtime.enabled:
            return
        run = self._run(task)
        if self._contexts is not None:
            self._contexts.before_message(run, message)
        for event in events_of(message, _get_or_make(self._nodes, run.id, Nodes)):
            if not (self._records_inside and event["type"].startswith(_OF_MODELS_AND_TOOLS)):
                run.add_event(event)
            if event["type"] == "workflow_execute_complete" and self._runs.pop(task, None) is not None:
                run.end()

    def _run(self, task: str) -> Message:
        current = self._runtime.current.get()
        if current is not None and current.message.is_open:
            _name_session(current, task)
            return current.message
        runtime = self._runtime
        return _get_or_make(self._runs, task, lambda: Message(runtime).start(within=Session(runtime, task)))


def _get_or_make(known: OrderedDict[str, T], name: str, make: Callable[[], T]) -> T:
    """Return the value of this name, made if it is missing; the oldest values are removed."""
    value = known.get(name)
    if value is None:
        value = known[name] = make()
        while len(known) > _MOST_RUNS:
            known.popitem(last=False)
    return value


class _Contexts:
    """Keeps the context of an enabled object before each part of its run, each request to a model and each call of a tool.

    The nodes of a session are counted by name: `call_llm:0`, `call_llm:1`, `get_weather:0`. In a replay the time machine
    keeps the contexts.
    """

    def __init__(self, runtime: Runtime, target: Any, of: ContextOf, take: Take) -> None:
        self._runtime = runtime
        self._target = target
        self._of = of
        self._take = take
        self._counts: OrderedDict[str, Counter[str]] = OrderedDict()
        """The nodes of each session that have begun."""
        self._of_eko: OrderedDict[str, EkoContexts] = OrderedDict()
        """Contexts by run."""
        if isinstance(of, str) and _value(*_owner(target, of)) is None:
            logger.warning("Snapshots will hold None: %s has no attribute %s.", type(target).__name__, of)

    def before(self, node: str) -> None:
        """Keep the context before a method or function of this name."""
        if isinstance(self._of, bool) or decorating.ANSWER.get() is not None:
            return
        with self._runtime.guard.around():
            current = self._runtime.current.get()
            session = (self._runtime.process_session() if current is None else current.session).external_id
            counts = _get_or_make(self._counts, session, Counter)
            self._take(self._context(), f"{node}:{counts[node]}", session)
            counts[node] += 1

    def before_message(self, run: Message, message: Any) -> None:
        """Keep what an agent of Eko knows, if this message begins it or one of its calls."""
        received = _get_or_make(self._of_eko, run.id, EkoContexts).receive(message_of(message) or {})
        if received is not None:
            self._take(received.context, received.id, run.session.external_id)

    def _context(self) -> Any:
        return self._of(self._target) if callable(self._of) else _value(*_owner(self._target, str(self._of)))


# --- Reading objects ----------------------------------------------------------------------------------------------------


def _attributes(value: Any) -> dict[str, Any]:
    """Return the attributes of the object itself, without calling its code."""
    try:
        return cast("dict[str, Any]", object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _has(owner: Any, name: str) -> bool:
    """Return whether an object has such a method. A property does not count, because reading it would run the host's code."""
    if owner is None or isinstance(owner, Mapping):
        return False
    member = inspect.getattr_static(owner, name, None)
    return isinstance(member, staticmethod | classmethod) or (callable(member) and not inspect.isclass(member))


def _value(owner: Any, name: str) -> Any:
    """Return an item of a dict or an attribute of an object; None if it is missing or a property."""
    if isinstance(owner, Mapping):
        return owner.get(name)
    member = inspect.getattr_static(owner, name, None)
    is_computed = hasattr(type(member), "__get__") and not (
        inspect.isroutine(member) or inspect.ismemberdescriptor(member)
    )
    return None if member is None or is_computed else getattr(owner, name, None)


def _owner(target: Any, path: str) -> tuple[Any, str]:
    """Resolve a path of names to an object and the last name."""
    *before, name = path.split(".")
    owner = target
    for part in before:
        inner = _value(owner, part)
        if inner is None and path not in CALLBACKS and not isinstance(owner, Mapping):
            # A client may create its parts on access, and here the user named one.
            inner = getattr(owner, part, None)
        owner = inner
    return owner, name


def _text_of(value: Any, names: Sequence[str]) -> str | None:
    """Return the first text under one of these names."""
    return next((text for name in names if isinstance(text := _value(value, name), str) and text), None)

"""Agents that know nothing of a recorder: `enable` records what the methods of an object do.

    recorder.enable(agent)                    # its run, execute, generate, prompts, requests to models, tools, callback
    agent.run("What is the weather?")         # as before
    recorder.disable(agent)

What is wrapped stays what it was: signature, what it returns and raises, and whether it is a function, coroutine, generator
or asynchronous generator. A method is replaced on the object, not on its class, by another method of it, so that a deep copy
calls its own methods, and a pickle holds the object as it was; a shallow copy (`copy.copy`) shares them, so enable objects
after that. Nothing is asked of the object but what it has: no property is read.
"""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from traces_app.adapters.eko_callbacks import Nodes, events_of, task_named

from . import answers, decorating
from .decorating import decorated
from .entries import text_of, thawed
from .guard import logger
from .scopes import Message, Scope, Session, Step, ToolCall
from .wrapping import Args, wrap

if TYPE_CHECKING:
    from .recording import Recorder

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
SessionOf = str | Callable[[Args], str | None] | None

RUNS = ("run", "arun")
PARTS = ("generate", "execute", "agenerate", "aexecute")
MODELS = ("call_llm", "call_model", "llm_request", "callLLM", "callModel", "llmRequest")
PROMPTS = ("build_system_prompt", "build_user_prompt", "buildSystemPrompt", "buildUserPrompt")
CALLBACKS = ("callback", "config.callback")
ON_MESSAGE = ("on_message", "onMessage")
TOOLS = "tools"
TOOL_METHODS = ("execute", "run", "invoke", "call")
_NAMES = ("name", "agent_name", "tool_name")
_MODEL_NAMES = ("model", "model_name")
_ARGS = ("args", "params", "parameters", "arguments", "input", "tool_input")
_CALL_IDS = ("call_id", "tool_call_id", "toolCallId", "toolId", "id")
_OF_A_CALL = ("tool_call", "toolCall")
_OF_MODELS_AND_TOOLS = ("llm_request_", "tool_call_")
_MARK = "_tracesite"
_MOST_RUNS = 100
"""Runs whose callback is followed at the same time."""


# --- enable -------------------------------------------------------------------------------------------------------------


@dataclass
class _Patch:
    """Something that was put in the place of something else, and the way back."""

    recorder: Recorder
    owner: Any
    undo: Callable[[], None]
    users: int = 1
    """Objects that share it, as agents share a tool."""

    def release(self) -> None:
        self.users -= 1
        if not self.users:
            self.undo()


@dataclass
class _Enabled:
    """What was done for one object, kept by it. Copies and pickles of the object are without."""

    recorder: Recorder
    patches: list[_Patch] = field(default_factory=list)

    def __deepcopy__(self, _memo: object) -> None:
        return None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


@dataclass(frozen=True, kw_only=True)
class Names:
    """Which attributes of an object are what. A name with dots leads on: `client.chat.completions.create`. Names that are
    given and not found are said in the log."""

    runs: Sequence[str] = RUNS
    parts: Sequence[str] = PARTS
    models: Sequence[str] = MODELS
    prompts: Sequence[str] = PROMPTS
    callbacks: Sequence[str] = CALLBACKS
    tools: str = TOOLS


_USUAL = Names()


def enable(
    recorder: Recorder, target: T, *, name: str | None = None, session: SessionOf = None, names: Names | None = None
) -> T:
    """See Recorder.enable."""
    if not recorder.enabled:
        return target
    with recorder.guard.around():
        _Enabling(recorder, target, name, session, names or _USUAL).do()
    return target


def disable(recorder: Recorder, target: T) -> T:
    """See Recorder.disable."""
    with recorder.guard.around():
        done = _own(target).get(_MARK)
        if isinstance(done, _Enabled) and done.recorder is recorder:
            object.__delattr__(target, _MARK)
            for patch in reversed(done.patches):
                patch.release()
    return target


class _Enabling:
    """The work of `enable` for one object."""

    def __init__(self, recorder: Recorder, target: Any, name: str | None, session: SessionOf, names: Names) -> None:
        self._recorder = recorder
        self._target = target
        self._name = name or _text_of(target, _NAMES) or type(target).__name__
        self._session = session
        self._names = names
        self._done = _Enabled(recorder)

    def do(self) -> None:
        target, names = self._target, self._names
        before = _own(target).get(_MARK)
        if isinstance(before, _Enabled):
            if before.recorder is self._recorder:
                return
            logger.warning("An object is not recorded: another recorder does it.")
            return
        object.__setattr__(target, _MARK, self._done)
        if self._is_tool():
            self._tool(target)
            return
        watched = len(self._done.patches)
        self._all(names.models, _USUAL.models, self._asked)
        self._tools()
        watches_inside = len(self._done.patches) > watched
        self._all(names.runs, _USUAL.runs, self._run)
        self._all(names.parts, _USUAL.parts, self._run)
        self._all(names.prompts, _USUAL.prompts, self._prompt)
        for path in names.callbacks:
            self._callback(path, watches_inside)

    def _is_tool(self) -> bool:
        """A tool is what can be executed, has a name, and runs nothing."""
        return (
            self._names is _USUAL
            and _has(self._target, "execute")
            and bool(_text_of(self._target, _NAMES))
            and not any(_has(self._target, name) for name in (*RUNS, "generate", TOOLS))
        )

    def _all(self, paths: Sequence[str], usual: Sequence[str], wrapper: Callable[[str, Any], Any]) -> None:
        for path in paths:
            with self._recorder.guard.around():
                owner, name = _owner(self._target, path)
                if _has(owner, name):
                    self._patch(owner, name, partial(wrapper, name))
                elif paths is not usual:
                    logger.warning("Not recorded: %s has no method %s.", type(self._target).__name__, path)

    # --- What the methods are ---------------------------------------------------------------------------------------

    def _run(self, name: str, function: F) -> F:
        recorder = self._recorder
        agent, session = self._name, self._session

        def make() -> Scope:
            current = recorder.current()
            if current is not None and current.message.is_open:
                return _Part(recorder, None, None, agent, None, None)
            return _Run(recorder, session)

        return decorated(make, function)

    def _asked(self, name: str, function: F) -> F:
        recorder, agent = self._recorder, self._name
        model = _text_of(self._target, _MODEL_NAMES)
        return decorated(lambda: _Asked(recorder, None, model, agent, None, None), function)

    def _prompt(self, name: str, function: F) -> F:
        kind = "system" if "system" in name.lower() else "user" if "user" in name.lower() else name
        recorder = self._recorder
        return wrap(function, after=lambda value, _args: _tell_prompt(recorder, value, kind), guard=recorder.guard)

    def _tools(self) -> None:
        owner, name = _owner(self._target, self._names.tools)
        held = _value(owner, name)
        items: list[tuple[Any, Any]] = []
        if isinstance(held, Mapping):
            items = list(held.items())
        elif isinstance(held, list | tuple):
            items = list(enumerate(held))
        for key, tool in items:
            with self._recorder.guard.around():
                if inspect.isroutine(tool):
                    called = key if isinstance(key, str) else getattr(tool, "__name__", "")
                    if isinstance(held, MutableMapping | MutableSequence):
                        self._replace(held, key, partial(self._used, called))
                else:
                    self._tool(tool)

    def _tool(self, tool: Any) -> None:
        method = next((name for name in TOOL_METHODS if _has(tool, name)), None)
        if method is not None:
            called = _text_of(tool, _NAMES) or type(tool).__name__
            self._patch(tool, method, partial(self._used, called))

    def _used(self, called: str, function: F) -> F:
        recorder = self._recorder
        return decorating.tool(lambda: _Used(recorder, called, None, None, None), function, recorder)

    def _callback(self, path: str, watches_inside: bool) -> None:
        told = _Told(self._recorder, watches_inside)

        def listen(function: F) -> F:
            return wrap(function, before=told.heard, guard=self._recorder.guard)

        with self._recorder.guard.around():
            owner, name = _owner(self._target, path)
            callback = _value(owner, name)
            if callback is None:
                return
            methods = [method for method in ON_MESSAGE if _has(callback, method) or method in _items(callback)]
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

    # --- Putting it in place ------------------------------------------------------------------------------------------

    def _patch(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        """Another method in the place of one of an object."""
        if self._shares(owner, getattr(owner, name)):
            return
        before = getattr(owner, name)
        own = _own(owner)
        has_own, is_method = name in own, inspect.ismethod(before) and before.__self__ is owner
        made = MethodType(wrapper(before.__func__), owner) if is_method else wrapper(before)

        def undo() -> None:
            if _own(owner).get(name) is made:
                if has_own:
                    object.__setattr__(owner, name, before)
                else:
                    object.__delattr__(owner, name)

        # Not by the object's own way to set attributes, which may forbid or notice it.
        object.__setattr__(owner, name, made)
        self._keep(owner, made, undo)

    def _replace(self, held: Any, key: Any, wrapper: Callable[[Any], Any]) -> None:
        """Another function in the place of one in a dict or list."""
        before = held[key]
        if self._shares(held, before):
            return
        made = wrapper(before)

        def undo() -> None:
            if isinstance(held, MutableMapping):
                if held.get(key) is made:
                    held[key] = before
            else:
                places = [place for place, item in enumerate(held) if item is made]
                for place in places:
                    held[place] = before

        held[key] = made
        self._keep(held, made, undo)

    def _shares(self, owner: Any, before: Any) -> bool:
        """Whether it is recorded already, for another object."""
        patch = getattr(before, _MARK, None)
        if not isinstance(patch, _Patch) or patch.recorder is not self._recorder:
            return False
        if patch.owner is not owner:
            # It came here with a copy of the object.
            if isinstance(before, MethodType):
                object.__delattr__(owner, before.__name__)
            return False
        patch.users += 1
        self._done.patches.append(patch)
        return True

    def _keep(self, owner: Any, made: Any, undo: Callable[[], None]) -> None:
        patch = _Patch(self._recorder, owner, undo)
        setattr(made.__func__ if isinstance(made, MethodType) else made, _MARK, patch)
        self._done.patches.append(patch)


# --- What is recorded ---------------------------------------------------------------------------------------------------


class _Run(Message):
    """The run of an enabled object."""

    __slots__ = ("_given_session", "_own_session")

    def __init__(self, recorder: Recorder, session: SessionOf) -> None:
        super().__init__(recorder, None, None, None, None)
        self._given_session = session
        self._own_session: Session | None = None

    def _takes(self, args: Args) -> None:
        super()._takes(args)
        found = self._given_session(args) if callable(self._given_session) else self._given_session
        if found:
            self._own_session = self._recorder.session(found)

    def _begin(self, outer: Scope | None) -> None:
        super()._begin(outer if outer is not None else self._own_session)

    def _gives(self, value: Any) -> None:
        plain = thawed(value)
        if isinstance(plain, dict) and isinstance(plain.get("success"), bool):
            # What an agent came to, as {success, result, error}.
            if not plain["success"]:
                self.error = text_of(plain.get("error") or plain.get("result") or plain.get("stopReason") or "failed")
            value = plain.get("result")
        super()._gives(value)


class _Asked(Step):
    """A request to a model."""

    __slots__ = ()

    def _takes(self, args: Args) -> None:
        model = args.get("model")
        self.model = model if isinstance(model, str) else self.model
        self.request = args or None

    def _gives(self, value: Any) -> None:
        answer = answers.read(value)
        self.thought, self.reasoning, self.usage = answer.text, answer.reasoning, answer.usage
        self.model = answer.model or self.model


class _Part(_Asked):
    """A part of a run. The calls in it belong to the last request to a model before them, so it is not the current one."""

    __slots__ = ()

    def _takes(self, args: Args) -> None:
        pass

    def _enter(self, within: Scope | None = None) -> None:
        self._start(within)


class _Used(ToolCall):
    """A call of a tool's method: what is given to the tool are its arguments, what its host adds is not."""

    __slots__ = ()

    def _takes(self, args: Args) -> None:
        given = next((args[name] for name in _ARGS if isinstance(args.get(name), Mapping)), None)
        self._args = args if given is None else given
        about = next((args[name] for name in _OF_A_CALL if args.get(name) is not None), None)
        fields = about if isinstance(about, Mapping) else getattr(about, "__dict__", {})
        found = next((fields[name] for name in _CALL_IDS if isinstance(fields.get(name), str)), None)
        self.call_id = found or (args["tool_call_id"] if isinstance(args.get("tool_call_id"), str) else None)


def _tell_prompt(recorder: Recorder, prompt: Any, kind: str) -> None:
    """A prompt was built: how long it is, and what it says as far as that is kept."""
    if prompt is None or not recorder.enabled:
        return
    current = recorder.current()
    if current is not None and current.message.is_open:
        current.message.prompt_built(prompt, kind)
    else:
        with recorder.message() as message:
            message.prompt_built(prompt, kind)


class _Told:
    """What an object tells its callback, as events of the run that is open; where none is, of one for each task."""

    def __init__(self, recorder: Recorder, watches_inside: bool) -> None:
        self._recorder = recorder
        self._watches_inside = watches_inside
        """Requests to models and calls of tools are recorded where they are made: what is told of them is the same again."""
        self._runs: OrderedDict[str, Message] = OrderedDict()
        """By task."""
        self._nodes: OrderedDict[str, Nodes] = OrderedDict()
        """By run: which step an agent is at is counted anew in each."""

    def heard(self, args: Args) -> None:
        message = thawed(next(iter(args.values()), None))
        task = task_named(message)
        if task is None or not self._recorder.enabled:
            return
        run = self._run(task)
        for event in events_of(message, _newest(self._nodes, run.id, Nodes)):
            if not (self._watches_inside and event["type"].startswith(_OF_MODELS_AND_TOOLS)):
                run.told(event)
            if event["type"] == "workflow_execute_complete" and self._runs.pop(task, None) is not None:
                run.end()

    def _run(self, task: str) -> Message:
        current = self._recorder.current()
        if current is not None and current.message.is_open:
            return current.message
        return _newest(self._runs, task, lambda: self._recorder.message().start(within=self._recorder.session(task)))


def _newest(known: OrderedDict[str, T], name: str, make: Callable[[], T]) -> T:
    """What is known by this name, made where it is not; of all that was made the newest are remembered."""
    found = known.get(name)
    if found is None:
        found = known[name] = make()
        while len(known) > _MOST_RUNS:
            known.popitem(last=False)
    return found


# --- Looking at objects -------------------------------------------------------------------------------------------------


def _own(value: Any) -> dict[str, Any]:
    """What an object itself has, without asking it."""
    try:
        return cast("dict[str, Any]", object.__getattribute__(value, "__dict__"))
    except AttributeError:
        return {}


def _items(value: Any) -> Mapping[Any, Any]:
    return value if isinstance(value, Mapping) else {}


def _has(owner: Any, name: str) -> bool:
    """Whether an object has such a method. A property is none: to read it would run the host's code."""
    if owner is None or isinstance(owner, Mapping):
        return False
    found = inspect.getattr_static(owner, name, None)
    return isinstance(found, staticmethod | classmethod) or (callable(found) and not inspect.isclass(found))


def _value(owner: Any, name: str) -> Any:
    """What stands under a name, in a dict or on an object; None where that is nothing or has to be computed."""
    if isinstance(owner, Mapping):
        return owner.get(name)
    found = inspect.getattr_static(owner, name, None)
    is_computed = hasattr(type(found), "__get__") and not (
        inspect.isroutine(found) or inspect.ismemberdescriptor(found)
    )
    return None if found is None or is_computed else getattr(owner, name, None)


def _owner(target: Any, path: str) -> tuple[Any, str]:
    """Where a path of names leads: the object, and the last name."""
    *before, name = path.split(".")
    owner = target
    for one in before:
        found = _value(owner, one)
        if found is None and path not in CALLBACKS and not isinstance(owner, Mapping):
            # A client may make its parts when they are asked for; and here somebody asked for them.
            found = getattr(owner, one, None)
        owner = found
    return owner, name


def _text_of(value: Any, names: Sequence[str]) -> str | None:
    """The first text under one of these names."""
    return next((found for name in names if isinstance(found := _value(value, name), str) and found), None)

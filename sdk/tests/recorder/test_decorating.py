"""Test the decorators: the decorated function behaves as before, and its calls are recorded."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from functools import partial, wraps
from typing import Any, cast

import pytest

from tracesite_sdk import trace_tool
from tracesite_sdk.recorder.instruments.enabling import Names
from tracesite_sdk.testing import RecorderForTests, recording, tree


def calls(recorder: RecorderForTests) -> list[tuple[str, Any, Any, Any]]:
    """Return name, arguments, result and error of each call, in the order of their starts."""
    ends = {
        event["data"]["uuid"]: event["data"]
        for event in recorder.events
        if event["id"].endswith(".e") and "uuid" in event["data"]
    }
    begun = [event["data"] for event in recorder.events if event["type"] == "tool_call_start"]
    return [
        (data["name"], data["args"], *(ends.get(data["uuid"], {}).get(name) for name in ("result", "error")))
        for data in begun
    ]


def plain(a: int, /, b: int = 2, *rest: int, c: int = 3, **more: int) -> int:
    """Add two numbers."""
    return a + b + c + sum(rest) + sum(more.values())


async def waits(a: int) -> int:
    await asyncio.sleep(0)
    return a


def yields(a: int) -> Generator[int, str, str]:
    got = yield a
    return f"{got}{yield a + 1}"


async def yields_and_waits(a: int) -> AsyncGenerator[int, str]:
    got = yield a
    await asyncio.sleep(0)
    yield len(got or "")


class Tools:
    def method(self, a: int) -> int:
        return a

    @classmethod
    def of_class(cls, a: int) -> int:
        return a

    @staticmethod
    def static(a: int) -> int:
        return a


NATURES = (
    inspect.isfunction,
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


@pytest.mark.parametrize("function", [plain, waits, yields, yields_and_waits])
def test_decorated_function_keeps_kind_and_signature(function: Callable[..., Any]) -> None:
    with recording() as recorder:
        for decorated in (
            recorder.tool_call(function),
            recorder.tool_call("other")(function),
            recorder.step()(function),
        ):
            assert [ask(decorated) for ask in NATURES] == [ask(function) for ask in NATURES]
            assert inspect.signature(decorated) == inspect.signature(function)
            assert (decorated.__name__, decorated.__doc__, decorated.__module__, decorated.__qualname__) == (
                function.__name__,
                function.__doc__,
                function.__module__,
                function.__qualname__,
            )
            assert decorated.__wrapped__ is function  # type: ignore[attr-defined]
    assert recorder.events == []


def test_arguments_are_recorded_by_name_with_the_result() -> None:
    with recording() as recorder, recorder.message():
        assert recorder.tool_call(plain)(1) == 6
        assert recorder.tool_call("adds")(plain)(1, 2, 4, 5, c=1, d=7) == 20
        assert recorder.tool_call(partial(plain, 1))(5) == 9  # type: ignore[arg-type]
        assert asyncio.run(recorder.tool_call(waits)(7)) == 7
        tools = Tools()
        assert recorder.tool_call(Tools.method)(tools, 1) == 1
        assert recorder.tool_call(Tools.of_class)(2) == 2
        assert recorder.tool_call(Tools.static)(3) == 3
    assert calls(recorder) == [
        ("plain", {"a": 1, "b": 2, "c": 3}, 6, None),
        ("adds", {"a": 1, "b": 2, "args": [4, 5], "c": 1, "d": 7}, 20, None),
        ("plain", {"b": 5, "a": 1, "c": 3}, 9, None),
        ("waits", {"a": 7}, 7, None),
        ("method", {"a": 1}, 1, None),
        ("of_class", {"a": 2}, 2, None),
        ("static", {"a": 3}, 3, None),
    ]


def test_methods_may_call_their_object_anything() -> None:
    with recording() as recorder:

        class Agent:
            @recorder.tool_call
            def find(this, query: str) -> str:
                return query.upper()

            @classmethod
            @recorder.tool_call("make")
            def make(of, name: str) -> str:
                return name

            @staticmethod
            @recorder.tool_call
            def join(agent: Agent, query: str) -> str:
                return agent.find(query)

            @recorder.tool_call
            def same(this, other: Agent) -> bool:
                return this is other

            def __repr__(me) -> str:
                return "agent"

        class Quick(Agent):
            @recorder.tool_call
            def find(me, query: str) -> str:
                return super().find(query)

        quick = Quick()
        assert (Quick.join(quick, "why"), Quick.make("x"), quick.same(quick)) == ("WHY", "x", True)
    assert calls(recorder) == [
        ("join", {"agent": "agent", "query": "why"}, "WHY", None),
        ("find", {"query": "why"}, "WHY", None),
        ("find", {"query": "why"}, "WHY", None),
        ("make", {"name": "x"}, "x", None),
        ("same", {"other": "agent"}, True, None),
    ]


def test_methods_are_decorated_in_their_class() -> None:
    with recording() as recorder:

        class Agent:
            @recorder.tool_call
            def find(self, query: str) -> str:
                return query.upper()

            @classmethod
            @recorder.tool_call("make")
            def make(cls, name: str) -> str:
                return name

            @recorder.tool_call
            async def ask(self, question: str) -> str:
                return self.find(question)

        assert asyncio.run(Agent().ask("why")) == "WHY"
        assert Agent.make("x") == "x"
    assert calls(recorder) == [
        ("ask", {"question": "why"}, "WHY", None),
        ("find", {"query": "why"}, "WHY", None),
        ("make", {"name": "x"}, "x", None),
    ]
    assert tree(recorder.events) == ["message", "  ask", "    find", "message", "  make"]


def test_class_and_static_methods_are_decorated_from_above() -> None:
    with recording() as recorder:

        class Agent:
            @recorder.tool_call("made")
            @classmethod
            def make(cls, name: str) -> str:
                return f"{cls.__name__} {name}"

            @trace_tool
            @staticmethod
            def find(name: str) -> str:
                return name

        bare = cast("Any", type("Bare", (), {"make": recorder.tool_call(classmethod(lambda cls, name: name))}))  # type: ignore[call-overload]
        assert (Agent.make("a"), Agent().make("b"), Agent.find("c"), Agent().find("d"), bare.make("e")) == (
            "Agent a",
            "Agent b",
            "c",
            "d",
            "e",
        )
    assert [(name, args) for name, args, _, _ in calls(recorder)] == [
        ("made", {"name": "a"}),
        ("made", {"name": "b"}),
        ("find", {"name": "c"}),
        ("find", {"name": "d"}),
        ("<lambda>", {"name": "e"}),
    ]


def test_steps_messages_and_sessions_decorate_functions() -> None:
    with recording() as recorder:

        @recorder.session("s", title="T")
        @recorder.message()
        def run(prompt: str) -> str:
            return think(prompt)

        @recorder.step(model="gpt-5")
        def think(prompt: str) -> str:
            return f"{prompt}!"

        assert run("Hello") == "Hello!"
    assert tree(recorder.events) == ["message", "  step gpt-5"]
    first, *_rest, thought, last = (event["data"] for event in recorder.events)
    assert (first["prompt"], first["session"], thought["thought"], last["result"]) == (
        "Hello",
        {"title": "T"},
        "Hello!",
        "Hello!",
    )


def test_exceptions_pass_unchanged() -> None:
    failure = LookupError("gone")

    def fails() -> None:
        raise failure

    async def fails_later() -> None:
        await asyncio.sleep(0)
        raise failure

    def fails_between() -> Iterator[int]:
        yield 1
        raise failure

    async def fails_between_waits() -> AsyncIterator[int]:
        yield 1
        raise failure

    async def all_of(values: AsyncIterator[int]) -> list[int]:
        return [value async for value in values]

    with recording() as recorder:
        tool = recorder.tool_call
        for run in (
            lambda: tool(fails)(),
            lambda: asyncio.run(tool(fails_later)()),
            lambda: list(tool(fails_between)()),
            lambda: asyncio.run(all_of(tool(fails_between_waits)())),
        ):
            with pytest.raises(LookupError) as caught:
                run()
            assert caught.value is failure
        with pytest.raises(KeyboardInterrupt):
            tool(lambda: (_ for _ in ()).throw(KeyboardInterrupt))().__next__()
        with pytest.raises(TypeError):
            tool(plain)()
    assert [(name, result, error) for name, _args, result, error in calls(recorder)][:4] == [
        ("fails", None, "LookupError: gone"),
        ("fails_later", None, "LookupError: gone"),
        ("fails_between", [1], "LookupError: gone"),
        ("fails_between_waits", [1], "LookupError: gone"),
    ]
    assert calls(recorder)[-1][3] == "TypeError: plain() missing 1 required positional argument: 'a'"


def test_cancelled_coroutine_has_failed() -> None:
    async def cancelled(recorder: RecorderForTests) -> None:
        task = asyncio.create_task(recorder.tool_call(asyncio.sleep)(10))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with recording() as recorder:
        asyncio.run(cancelled(recorder))
    assert calls(recorder) == [
        ("sleep", {"delay": 10}, None, "CancelledError: cancelled from outside, as by a timeout")
    ]


def test_timeout_is_named_in_the_error_of_the_call() -> None:
    async def late(recorder: RecorderForTests) -> None:
        with recorder.message(), pytest.raises(TimeoutError), recorder.tool_call("around"):
            async with asyncio.timeout(0.01):
                await recorder.tool_call("inside")(asyncio.sleep)(10)

    with recording() as recorder:
        asyncio.run(late(recorder))
    assert [error for *_call, error in calls(recorder)] == [
        "TimeoutError",
        "CancelledError: cancelled from outside, as by a timeout",
    ]


# --- Names, defaults, twice -------------------------------------------------------------------------------------------


class Callable_:
    """A callable object whose name is not that of a function."""

    def __call__(self, query: str, limit: int = 5) -> str:
        return query * limit


MARK = object()


def with_defaults(
    query: str, mode: str = "fast", limit: int | None = None, client: object = MARK, *, tags: tuple[str, ...] = ("a",)
) -> str:
    return mode


def test_defaults_are_recorded_and_clients_are_not() -> None:
    with recording() as recorder, recorder.message():
        tool = recorder.tool_call(with_defaults)
        assert (tool("x"), tool("x", "slow", 3, tags=())) == ("fast", "slow")
    assert [args for _name, args, *_rest in calls(recorder)] == [
        {"query": "x", "mode": "fast", "tags": ["a"]},
        {"query": "x", "mode": "slow", "limit": 3, "tags": []},
    ]


def test_default_is_no_prompt_of_a_message() -> None:
    with recording() as recorder:
        recorder.message()(with_defaults)(3)  # type: ignore[arg-type]
    assert "prompt" not in recorder.events[0]["data"]


def test_callable_objects_and_partials_have_names() -> None:
    with recording() as recorder, recorder.message():
        assert recorder.tool_call(Callable_())("ab", limit=2) == "abab"
        assert recorder.tool_call(partial(partial(with_defaults, "x"), mode="slow"))() == "slow"
        assert trace_tool(partial(plain, 1))(b=2) == 6  # type: ignore[call-arg]
    assert [(name, args) for name, args, *_rest in calls(recorder)] == [
        ("Callable_", {"query": "ab", "limit": 2}),
        ("with_defaults", {"query": "x", "mode": "slow", "tags": ["a"]}),
        ("plain", {"b": 2, "a": 1, "c": 3}),
    ]


@pytest.mark.parametrize("function", [plain, waits, yields, yields_and_waits, Tools.of_class, partial(plain, 2)])
def test_tool_call_of_a_tool_call_is_one_wrap(function: Callable[..., Any]) -> None:
    with recording() as recorder:
        once = recorder.tool_call(function)
        twice = recorder.tool_call("again")(recorder.tool_call(recorder.tool_call(once)))
        assert twice.__wrapped__ is function  # type: ignore[attr-defined]
        assert trace_tool(once) is once


def test_tool_call_of_a_decorated_method_is_one_wrap() -> None:
    with recording() as recorder, recorder.message():

        class Agent:
            @recorder.tool_call
            @staticmethod
            def look(query: str) -> str:
                return query

            @recorder.tool_call
            def find(self, query: str) -> str:
                return query

        assert recorder.tool_call(Agent().find)("x") == recorder.tool_call(Agent.look)("x") == "x"
        agent = recorder.enable(Agent(), names=Names(runs=(), models=(), tools="tools"))
        agent.tools = [Agent.look]  # type: ignore[attr-defined]
        recorder.disable(agent)
        recorder.enable(agent)
        assert agent.tools[0]("y") == "y"  # type: ignore[attr-defined]
    assert [(name, args) for name, args, *_rest in calls(recorder)] == [
        ("find", {"query": "x"}),
        ("look", {"query": "x"}),
        ("look", {"query": "y"}),
    ]


def test_decorator_between_two_tool_calls_is_kept() -> None:
    turns = []

    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any) -> Any:
            turns.append(args)
            return function(*args) + function(*args)

        return call

    with recording() as recorder, recorder.message():
        assert recorder.tool_call("outer")(twice(recorder.tool_call("inner")(plain)))(1) == 12
    assert turns == [(1,)]
    assert tree(recorder.events) == ["message", "  outer", "    inner", "    inner"]


def test_tool_of_another_recorder_is_recorded_by_both() -> None:
    with recording() as first, recording() as second:
        second.tool_call(first.tool_call(plain))(1)
    assert [len(calls(recorder)) for recorder in (first, second)] == [1, 1]


# --- Abandoned generators and coroutines ------------------------------------------------------------------------------


def incomplete(recorder: RecorderForTests) -> list[Any]:
    """Return the metadata and results in the end events of calls and messages."""
    ends = [event["data"] for event in recorder.events if event["id"].endswith(".e")]
    return [(data.get("metadata", {}).get("incomplete"), data.get("result")) for data in ends]


LEFT = "It was left after {}, before its end."


def test_generator_that_is_left_half_way_is_marked() -> None:
    with recording() as recorder, recorder.message(external_id="m"):
        for _value in recorder.tool_call(yields)(1):
            break
        gc.collect()
        thrown = recorder.tool_call("thrown")(yields)(3)
        next(thrown)
        with pytest.raises(GeneratorExit):
            thrown.throw(GeneratorExit())
        read = recorder.tool_call(yields)(5)
        assert list(read) == [5, 6]
        read.close()
    assert incomplete(recorder) == [
        (LEFT.format("1 value"), [1]),
        (LEFT.format("1 value"), [3]),
        (None, [5, 6]),
        (None, None),
    ]


def test_asynchronous_generator_that_is_left_is_marked() -> None:
    async def left(recorder: RecorderForTests) -> None:
        with recorder.message():
            generator = recorder.tool_call(yields_and_waits)(1)
            async for _value in generator:
                break
            await generator.aclose()

    with recording() as recorder:
        asyncio.run(left(recorder))
    assert incomplete(recorder) == [(LEFT.format("1 value"), [1]), (None, None)]


def test_generator_still_open_ends_with_its_message() -> None:
    with recording() as recorder:
        with recorder.message(external_id="m"):
            half = recorder.tool_call(yields)(1)
            next(half)
            unread = recorder.tool_call("unread")(lambda: yields(1))()
        # After the end, reading on does not change the record.
        assert list(half) == [2]
        assert list(unread) == [1, 2]
    assert incomplete(recorder) == [(LEFT.format("1 value"), [1]), (LEFT.format("0 values"), []), (None, None)]
    assert recorder.events[-1]["type"] == "workflow_execute_complete"


def test_coroutine_that_nobody_awaits_ends_with_its_message() -> None:
    with recording() as recorder, recorder.message():
        forgotten = recorder.tool_call("forgotten")(lambda: waits(1))()
    asyncio.run(forgotten)
    assert incomplete(recorder)[0] == ("Nobody awaited it.", None)


def test_message_that_is_a_generator_left_half_way_is_marked() -> None:
    def answer(question: str) -> Iterator[str]:
        yield "31 "
        yield "degrees"

    with recording() as recorder:
        next(recorder.message()(answer)("Weather?"))
        gc.collect()
    assert incomplete(recorder) == [(LEFT.format("1 value"), "31 ")]


def test_function_that_returns_a_generator_returns_another_one() -> None:
    """Only a wrapper can record the values that are read, as docs/recorder.md states."""
    with recording() as recorder, recorder.message():
        inner = yields(1)
        outer = recorder.tool_call("makes")(lambda: inner)()
        assert outer is not inner
        assert inspect.isgenerator(outer)
        assert list(outer) == [1, 2]


def test_returned_coroutine_is_recorded_until_its_end() -> None:
    with recording() as recorder:

        def makes(a: int) -> Any:
            return waits(a)

        async def outer() -> int:
            coroutine = recorder.tool_call(makes)(5)
            assert inspect.iscoroutine(coroutine)
            with recorder.tool_call("beside"):
                pass
            return await coroutine

        assert asyncio.run(outer()) == 5
    assert calls(recorder) == [("makes", {"a": 5}, 5, None), ("beside", None, None, None)]
    assert tree(recorder.events) == ["message", "  makes", "message", "  beside"]


# --- Generators ------------------------------------------------------------------------------------------------------


def both(use: Callable[[Callable[..., Any]], Any], function: Callable[..., Any]) -> tuple[Any, RecorderForTests]:
    """Use a function plain and decorated; both outcomes must be equal."""
    with recording() as recorder:
        found = use(recorder.tool_call(function))
    assert found == use(function)
    return found, recorder


def test_send_and_the_returned_value_pass_through_a_generator() -> None:
    def use(function: Callable[..., Any]) -> list[Any]:
        generator = function(1)
        seen = [next(generator), generator.send("x")]
        with pytest.raises(StopIteration) as stop:
            generator.send("y")
        return [*seen, stop.value.value]

    found, recorder = both(use, yields)
    assert found == [1, 2, "xy"]
    assert calls(recorder) == [("yields", {"a": 1}, [1, 2], None)]


def test_yield_from_a_decorated_generator() -> None:
    def use(function: Callable[..., Any]) -> list[Any]:
        def outer() -> Generator[Any, Any, Any]:
            yield (yield from function(1))

        generator = outer()
        return [next(generator), generator.send("x"), generator.send("y")]

    assert both(use, yields)[0] == [1, 2, "xy"]


def test_exception_thrown_into_generator_reaches_it() -> None:
    def catches() -> Generator[Any, Any, Any]:
        seen: list[Any] = []
        while len(seen) < 2:
            try:
                seen.append((yield len(seen)))
            except ValueError as error:
                seen.append(str(error))
        return seen

    def use(function: Callable[..., Any]) -> list[Any]:
        generator = function()
        seen = [next(generator), generator.throw(ValueError("a"))]
        with pytest.raises(StopIteration) as stop:
            generator.throw(ValueError("b"))
        other = function()
        next(other)
        with pytest.raises(KeyError):
            other.throw(KeyError("c"))
        unbegun = function()
        with pytest.raises(KeyError):
            unbegun.throw(KeyError("d"))
        return [*seen, stop.value.value, list(other), list(unbegun)]

    found, recorder = both(use, catches)
    assert found == [0, 1, ["a", "b"], [], []]
    assert calls(recorder) == [("catches", {}, [0, 1], None), ("catches", {}, [0], "KeyError: 'c'")]


def test_closing_a_generator_closes_it_and_is_no_failure() -> None:
    closed: list[str] = []

    def streams() -> Iterator[str]:
        try:
            yield "a"
            yield "b"
        finally:
            closed.append("x")

    def use(function: Callable[..., Any]) -> list[str]:
        closed.clear()
        generator = function()
        next(generator)
        generator.close()
        generator.close()
        dropped = function()
        next(dropped)
        del dropped
        gc.collect()
        return list(closed)

    found, recorder = both(use, streams)
    assert found == ["x", "x"]
    # Streamed strings are recorded as one string.
    assert calls(recorder) == [("streams", {}, "a", None)] * 2


def test_generator_that_refuses_to_close_raises() -> None:
    def stubborn() -> Iterator[int]:
        while True:
            try:
                yield 1
            except GeneratorExit:
                yield 2
                return

    def use(function: Callable[..., Any]) -> str:
        generator = function()
        next(generator)
        with pytest.raises(RuntimeError) as caught:
            generator.close()
        return str(caught.value)

    found, recorder = both(use, stubborn)
    assert found == "generator ignored GeneratorExit"
    assert calls(recorder)[0][3] == "RuntimeError: generator ignored GeneratorExit"


def test_asynchronous_generator_passes_send_throw_and_close() -> None:
    async def catches() -> AsyncGenerator[Any, Any]:
        try:
            got = yield 1
            yield got
            yield 3
        except ValueError as error:
            yield str(error)
        finally:
            closed.append("x")

    closed: list[str] = []

    async def used(function: Callable[..., Any]) -> list[Any]:
        closed.clear()
        sent = function()
        seen = [await anext(sent), await sent.asend("x")]
        await sent.aclose()
        thrown = function()
        seen += [await anext(thrown), await thrown.athrow(ValueError("a")), [one async for one in thrown]]
        failed = function()
        seen.append(await anext(failed))
        with pytest.raises(KeyError):
            await failed.athrow(KeyError("b"))
        return [*seen, [one async for one in function()], list(closed)]

    found, recorder = both(lambda function: asyncio.run(used(function)), catches)
    assert found == [1, "x", 1, "a", [], 1, [1, None, 3], ["x", "x", "x", "x"]]
    assert calls(recorder) == [
        ("catches", {}, [1, "x"], None),
        ("catches", {}, [1, "a"], None),
        ("catches", {}, [1], "KeyError: 'b'"),
        ("catches", {}, [1, None, 3], None),
    ]


def test_scopes_in_generator_are_not_current_in_its_consumer() -> None:
    with recording() as recorder:

        @recorder.tool_call
        def reads() -> Iterator[int]:
            for number in range(2):
                with recorder.tool_call(f"page {number}"):
                    yield number
                    with recorder.tool_call(f"rest of {number}"):
                        pass

        with recorder.message(), recorder.tool_call("agent"):
            for number in reads():
                with recorder.tool_call(f"looks at {number}"):
                    pass
    assert tree(recorder.events) == [
        "message",
        "  agent",
        "    reads",
        "      page 0",
        "        rest of 0",
        "      page 1",
        "        rest of 1",
        "    looks at 0",
        "    looks at 1",
    ]


def test_recorder_disabled_midway_leaves_generators_alone() -> None:
    with recording() as recorder:
        generator = recorder.tool_call(yields)(1)
        assert next(generator) == 1
        recorder.close()
        assert generator.send("x") == 2
        with pytest.raises(StopIteration) as stop:
            generator.send("y")
        assert stop.value.value == "xy"
    assert [event["type"] for event in recorder.events] == ["workflow_execute_start", "tool_call_start"]

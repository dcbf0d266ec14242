"""Test the parents of calls across threads, tasks, generators and event loops: random trees against a model."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sdk.tests.length import examples
from tracesite_sdk import Recorder
from tracesite_sdk.testing import RecorderForTests

WAYS_HERE = ("with", "decorator", "generator", "generators in turns", "pool", "thread", "loop in a thread", "explicit")
WAYS_IN_A_LOOP = (
    *("await", "async with", "gather", "to_thread", "async generator", "task", "executor", "task group"),
    *WAYS_HERE[:4],
)


@dataclass(frozen=True)
class Node:
    """A call and the way in which its inner calls are made."""

    way: str
    children: tuple[Node, ...]


def nodes(ways: tuple[str, ...]) -> st.SearchStrategy[Node]:
    return st.recursive(
        st.builds(Node, st.sampled_from(ways), st.just(())),
        lambda below: st.builds(Node, st.sampled_from(ways), st.lists(below, max_size=4).map(tuple)),
        max_leaves=14,
    )


class Tree:
    """Runs a tree and keeps the recorded parent of each call, by number."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.expected: dict[str, str | None] = {}
        self._lock = threading.Lock()

    def name(self, parent: str | None) -> str:
        with self._lock:
            name = f"call {len(self.expected)}"
            self.expected[name] = parent
        return name

    # --- Without an event loop

    def run(self, node: Node, parent: str | None) -> None:
        recorder = self.recorder
        name = self.name(parent)
        below = [(child, name) for child in node.children]

        def inside() -> None:
            if node.way == "loop in a thread":
                thread = threading.Thread(target=recorder.carry(lambda: asyncio.run(self.gather(below))))
                thread.start()
                thread.join()
            elif node.way in ("pool", "thread"):
                with ThreadPoolExecutor(3) as pool:
                    for done in [pool.submit(recorder.carry(self.run), *one) for one in below]:
                        done.result()
            elif node.way == "generators in turns":
                self.in_turns(below, name)
            else:
                for one in below:
                    self.run(*one)

        if node.way == "decorator":
            recorder.tool_call(name)(inside)()
        elif node.way == "generator":

            @recorder.tool_call(name)
            def generator() -> Iterator[int]:
                for number, one in enumerate(below):
                    yield number
                    self.run(*one)

            for _number in generator():
                # A call of the reader between two values, which is not inside the generator.
                self.leaf(parent)
        elif node.way == "explicit":
            call = recorder.tool_call(name).start()
            for child, _name in below:
                self.explicit(child, name, call)
            call.end()
        else:
            with recorder.tool_call(name):
                inside()

    def leaf(self, parent: str | None) -> None:
        with self.recorder.tool_call(self.name(parent)):
            pass

    def explicit(self, node: Node, parent: str, within: object) -> None:
        name = self.name(parent)
        call = self.recorder.tool_call(name).start(within=within)  # type: ignore[arg-type]
        thread = threading.Thread(target=lambda: [self.explicit(child, name, call) for child in node.children])
        thread.start()
        thread.join()
        call.end()

    def in_turns(self, below: list[tuple[Node, str]], parent: str) -> None:
        """Read generators in turns, each with its own open calls."""

        @self.recorder.tool_call
        def generator(node: Node, name: str) -> Iterator[int]:
            for number, child in enumerate(node.children):
                with self.recorder.tool_call(self.name(name)) as call:
                    yield number
                    self.run(child, call.name)

        def named(node: Node) -> Iterator[int]:
            name = self.name(parent)
            return self.recorder.tool_call(name)(generator.__wrapped__)(node, name)  # type: ignore[attr-defined]

        for _values in zip_longest(*(named(node) for node, _name in below)):
            self.leaf(parent)

    # --- In an event loop

    async def gather(self, below: list[tuple[Node, str]]) -> None:
        await asyncio.gather(*(self.run_async(*one) for one in below))

    async def run_async(self, node: Node, parent: str | None) -> None:
        recorder = self.recorder
        if node.way in WAYS_HERE:
            self.run(node, parent)
            return
        name = self.name(parent)
        below = [(child, name) for child in node.children]

        async def inside() -> None:
            await asyncio.sleep(0)
            if node.way == "gather":
                await self.gather(below)
            elif node.way == "to_thread":
                await asyncio.gather(*(asyncio.to_thread(self.run, *one) for one in below))
            elif node.way == "executor":
                loop = asyncio.get_running_loop()
                for one in below:
                    await loop.run_in_executor(None, recorder.carry(self.run), *one)
            elif node.way == "task":
                for task in [asyncio.create_task(self.run_async(*one)) for one in below]:
                    await task
            elif node.way == "task group":
                async with asyncio.TaskGroup() as group:
                    for one in below:
                        group.create_task(self.run_async(*one))
            else:
                for one in below:
                    await self.run_async(*one)

        if node.way == "await":
            await recorder.tool_call(name)(inside)()
        elif node.way == "async generator":

            @recorder.tool_call(name)
            async def generator() -> AsyncIterator[int]:
                for number, one in enumerate(below):
                    with recorder.tool_call(self.name(name)) as call:
                        yield number
                        await self.run_async(one[0], call.name)

            async for _number in generator():
                await asyncio.sleep(0)
                self.leaf(parent)
        else:
            async with recorder.tool_call(name):
                await inside()


def parents(recorder: RecorderForTests) -> dict[str, str | None]:
    begun = [event["data"] for event in recorder.events if event["type"] == "tool_call_start"]
    names = {data["uuid"]: data["name"] for data in begun}
    assert len(names) == len(begun)
    return {data["name"]: names[data["parent"]] if "parent" in data else None for data in begun}


OF_A_TREE = settings(max_examples=examples(50), suppress_health_check=[HealthCheck.too_slow])


@OF_A_TREE
@given(st.lists(nodes(WAYS_HERE), min_size=1, max_size=3))
def test_parents_are_right_over_threads_and_generators(forest: list[Node]) -> None:
    recorder = RecorderForTests()
    tree = Tree(recorder)
    with recorder.message(external_id="m"):
        for node in forest:
            tree.run(node, None)
    assert recorder.current() is None
    recorder.close()
    assert parents(recorder) == tree.expected
    assert {event["message_id"] for event in recorder.events} == {"m"}


@OF_A_TREE
@given(st.lists(nodes(WAYS_IN_A_LOOP), min_size=1, max_size=3))
def test_parents_are_right_over_tasks_and_async_generators(forest: list[Node]) -> None:
    recorder = RecorderForTests()
    tree = Tree(recorder)

    async def run() -> None:
        with recorder.message(external_id="m"):
            await tree.gather([(node, None) for node in forest])  # type: ignore[misc]

    asyncio.run(run())
    recorder.close()
    assert parents(recorder) == tree.expected
    assert {event["message_id"] for event in recorder.events} == {"m"}


def test_concurrent_runs_do_not_see_each_other() -> None:
    recorder = RecorderForTests()

    async def run(number: int) -> None:
        with recorder.message(external_id=f"m{number}"), recorder.tool_call(f"outer {number}"):
            for _turn in range(3):
                await asyncio.sleep(0)
                with recorder.tool_call(f"inner {number}"):
                    await asyncio.sleep(0)

    async def all_of_them() -> None:
        await asyncio.gather(*(run(number) for number in range(20)))

    asyncio.run(all_of_them())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: asyncio.run(run(number)), range(20, 40)))
    recorder.close()
    begun = [event for event in recorder.events if event["type"] == "tool_call_start"]
    names = {event["data"]["uuid"]: event["data"]["name"] for event in begun}
    assert len(begun) == 160
    assert {
        (event["message_id"], event["data"]["name"], names.get(event["data"].get("parent"))) for event in begun
    } == {
        (f"m{number}", f"{place} {number}", parent and f"outer {number}")
        for number in range(40)
        for place, parent in (("outer", None), ("inner", "outer"))
    }

"""Measure the time machine: python -m benchmarks.time_machine compare --steps 5000; python -m benchmarks.time_machine cost

compare: two runs of STEPS steps with a call each, most of them different, by GET /compare/ without a network, in a separate
database: the median of RUNS, and the CPU of Python in it.

cost: an agent of 50 nodes whose context grows to 200 KB, with a request to a model and a call in each, recorded without and with a
snapshot before each node, in turns; and a LangGraph graph of as many nodes and bytes, without and with its own checkpointers. CPU of
the process and bytes that are stored: the least of RUNS. It needs langgraph-checkpoint-sqlite and langgraph-checkpoint-postgres.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec

from tracesite.recorder import Recorder
from tracesite.recorder.sinks import JsonLinesSink
from tracesite.recorder.snapshot_stores import MemoryStore, SnapshotStore, SqliteStore
from tracesite.recorder.snapshotting import Snapshots
from tracesite.serving import embedded_postgres

from .scratch import scratch_database

TOOLS = ("search", "fetch", "write", "read")
SHAPES = ("of four tools", "of one tool", "of long results")
ALIKE = 0.3
"""The share of steps that are the same in both runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("compare", "cost"))
    parser.add_argument("--steps", type=int, default=5_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if options.part == "compare":
        compare(options.steps, options.runs)
    else:
        cost(options.runs)


# --- Comparisons ---------------------------------------------------------------------------------------------------------


def compare(steps: int, runs: int) -> None:
    logging.disable(logging.INFO)
    with scratch_database(durable=False):
        _compare(steps, runs)


def _compare(steps: int, runs: int) -> None:
    from django.db import connection
    from django.test import Client

    from access_app.keys import create_key
    from access_app.models import Project
    from traces_app.ingest.decode import decode_ingest
    from traces_app.ingest.pipeline import ingest

    project = Project.objects.create(slug="benchmark")
    for shape in SHAPES:
        sides = [_session(side, shape, steps) for side in ("left", "right")]
        ingest(project.pk, decode_ingest(msgspec.json.encode({"sessions": sides}), ndjson=False))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    client = Client(
        headers={"Host": "localhost", "Authorization": f"Bearer {create_key(project, 'benchmark', ['read'])[1]}"}
    )
    for shape in SHAPES:
        took, cpu = [], []
        # The first one is not counted: it imports the views.
        for _run in range(runs + 1):
            began, used = time.perf_counter(), time.process_time()
            found = client.get("/api/v1/compare/", {"left": f"left {shape}", "right": f"right {shape}"})
            took.append(time.perf_counter() - began)
            cpu.append(time.process_time() - used)
            assert found.status_code == 200, found.content
        counts = found.json()["counts"]
        print(f"{shape}: {statistics.median(took[1:]):.2f} s, {statistics.median(cpu[1:]):.2f} s of CPU; {counts}")
    print(f"load: {os.getloadavg()[0]:.1f}")


def _session(side: str, shape: str, steps: int) -> dict[str, Any]:
    random_ = random.Random(f"{side} {shape}")
    made = []
    for place in range(steps):
        of = "both" if random_.random() < ALIKE else side
        result = f"Result {place} of {of}. " + "word " * (400 if shape == "of long results" else 20)
        args = {"query": f"Number {place} of {of}", "limit": place, "filter": {"days": [1, 2, 3]}}
        tool = TOOLS[0] if shape == "of one tool" else random_.choice(TOOLS)
        thought = f"Step {place} of {of}: look at the page, and decide what to do next."
        call = {"name": tool, "args": args, "result": {"output": result}}
        made.append(
            {
                "iteration": place,
                "thought": thought,
                "model": "m1",
                "usage": {"input_tokens": place},
                "tool_calls": [call],
            }
        )
    message = {"role": "assistant", "content": f"Done: {side}.", "agent_steps": made}
    return {"external_id": f"{side} {shape}", "messages": [message]}


# --- Cost ----------------------------------------------------------------------------------------------------------------

NODES, BYTES = 50, 200_000


def cost(runs: int) -> None:
    embedded_postgres.ensure(durable=False)
    texts = list(_texts())
    cases: dict[str, Callable[[Path], tuple[float, int]]] = {
        "recorder": lambda folder: _recorded(texts, folder, None),
        "recorder, snapshots in memory": lambda folder: _recorded(texts, folder, MemoryStore()),
        "recorder, snapshots in SQLite": lambda folder: _recorded(texts, folder, SqliteStore(folder / "file")),
        "LangGraph": lambda folder: _graph(texts, folder, None),
        "LangGraph, its SQLite": lambda folder: _graph(texts, folder, "sqlite"),
        "LangGraph, its PostgreSQL": lambda folder: _graph(texts, folder, "postgres"),
    }
    taken: dict[str, list[tuple[float, int]]] = {name: [] for name in cases}
    # The first run is not counted: it imports.
    for run in range(runs + 1):
        for name, case in cases.items():
            with tempfile.TemporaryDirectory() as folder:
                found = case(Path(folder))
            if run:
                taken[name].append(found)
    size = sum(map(len, texts))
    for name, found in taken.items():
        base = min(taken["LangGraph" if name.startswith("LangGraph") else "recorder"])[0]
        seconds, stored = min(found)
        print(f"{name}: {seconds * 1000:.0f} ms of CPU ({seconds / base:.2f}), {stored:,} bytes ({stored / size:.2f})")
    print(f"distinct content: {size:,} bytes; load: {os.getloadavg()[0]:.1f}")


def _texts() -> Iterator[str]:
    """Return two texts of a node, a reply and a result, as long as the context grows by."""
    source = random.Random(23)
    for _place in range(2 * NODES):
        words: list[str] = []
        while sum(map(len, words)) + len(words) < BYTES // (2 * NODES):
            words.append(f"{source.choice(TOOLS)}{source.randrange(1_000)}")
        yield " ".join(words)


def _recorded(texts: Sequence[str], folder: Path, store: SnapshotStore | None) -> tuple[float, int]:
    """Return the CPU of recording an agent and the bytes of its snapshots."""
    recorder = Recorder(sink=JsonLinesSink(folder / "events"), snapshots=Snapshots(store or MemoryStore()))
    messages: list[dict[str, str]] = []
    began = time.process_time()
    with recorder.session("agent"), recorder.message("Go on."):
        for node in range(NODES):
            if store is not None:
                recorder.snapshot({"messages": messages, "node": node}, nodes=[str(node)])
            with recorder.step(model="m1", request={"messages": messages}) as step:
                step.thought = texts[2 * node]
                messages.append({"role": "assistant", "content": texts[2 * node]})
                with recorder.tool_call("search", {"node": node}) as call:
                    call.result = texts[2 * node + 1]
                messages.append({"role": "tool", "content": texts[2 * node + 1]})
    recorder.close(timeout=60)
    used = time.process_time() - began
    if store is None:
        return used, 0
    stored = store.state("agent").size
    store.close()
    return used, (folder / "file").stat().st_size if isinstance(store, SqliteStore) else stored


def _graph(texts: Sequence[str], folder: Path, kind: str | None) -> tuple[float, int]:
    """Return the CPU of running a LangGraph graph and the bytes of its checkpoints."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph import END, START, MessagesState, StateGraph

    def node(state: MessagesState) -> dict[str, Any]:
        place = len(state["messages"]) - 1
        return {"messages": [AIMessage(texts[place]), HumanMessage(texts[place + 1])]}

    graph = StateGraph(MessagesState)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda state: "node" if len(state["messages"]) < len(texts) else END)
    with ExitStack() as stack:
        saver: Any = None
        if kind == "sqlite":
            from langgraph.checkpoint.sqlite import SqliteSaver

            saver = stack.enter_context(SqliteSaver.from_conn_string(str(folder / "file")))
        elif kind == "postgres":
            from langgraph.checkpoint.postgres import PostgresSaver

            saver = stack.enter_context(PostgresSaver.from_conn_string(os.environ["DATABASE_URL"]))
            saver.setup()
            saver.conn.execute("TRUNCATE checkpoints, checkpoint_blobs, checkpoint_writes")
        compiled = graph.compile(checkpointer=saver)
        config = {"configurable": {"thread_id": "agent"}, "recursion_limit": 2 * NODES}
        began = time.process_time()
        compiled.invoke({"messages": [HumanMessage("Go on.")]}, config)
        used = time.process_time() - began
        stored = 0
        if kind == "postgres":
            sizes = "SELECT sum(pg_total_relation_size(name::regclass)) AS size FROM unnest(%s::text[]) AS name"
            tables = ["checkpoints", "checkpoint_blobs", "checkpoint_writes"]
            stored = int(saver.conn.execute(sizes, [tables]).fetchone()["size"])
    return used, (folder / "file").stat().st_size if kind == "sqlite" else stored


if __name__ == "__main__":
    main()

"""Compare the time machine with an independent model on random graphs: python -m benchmarks.replay_graphs --graphs 10000

The model follows the rules by all simple paths of a graph; the time machine by sets of nodes. Each
graph is replayed at one of its nodes; then every context that it made invalid is rebuilt, and the replay goes on. The first
difference ends the program with the graph.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Iterator

from sdk.tests.recorder.walk import Graph, Walk
from tracesite_sdk.recorder.snapshots.stores import MemoryStore
from tracesite_sdk.testing import RecorderForTests


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graphs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=23)
    options = parser.parse_args()
    began = time.perf_counter()
    pruned = check(options.graphs, options.seed)
    print(
        f"{options.graphs} graphs, {pruned} contexts made invalid and rebuilt, in {time.perf_counter() - began:.0f} s"
    )


def check(graphs: int, seed: int) -> int:
    """Check random graphs, and return how many contexts were made invalid. Raises AssertionError with the graph."""
    source = random.Random(seed)
    return sum(_check(source) for _number in range(graphs))


def model(graph: Graph, node: str) -> tuple[set[str], set[str]]:
    """Return the nodes that get the new context and those that lose theirs, from all simple paths."""

    def paths(path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        yield path
        for child in graph[path[-1]]:
            if child not in path:
                yield from paths((*path, child))

    children = set(graph[node])
    below = {path[-1] for path in paths((node,)) if len(path) > 2}
    siblings = {child for parent in graph if node in graph[parent] for child in graph[parent]} - {node} - children
    # These graphs have no circles: a sibling that is below the node is affected itself.
    safe = {
        path[-1]
        for sibling in siblings - below
        for path in paths((sibling,))
        if not children & set(path) and node not in path
    }
    return children, below - children - safe


def graph_of(source: random.Random) -> Graph:
    """Return a graph of up to 8 nodes without circles: chains, trees, diamonds and what is between them."""
    names = [f"n{number}" for number in range(source.randint(1, 8))]
    odds = source.choice([0.2, 0.4, 0.7])
    return {name: [other for other in names[place + 1 :] if source.random() < odds] for place, name in enumerate(names)}


def _check(source: random.Random) -> int:
    graph = graph_of(source)
    node = source.choice(list(graph))
    recorder = RecorderForTests()
    recorder.snapshots.store = MemoryStore()
    # Recording takes most of the time of a replay.
    walk = Walk(recorder.snapshots.store, recorder, graph, records=False)
    recorder.close()
    before = walk.mapped("s")
    replay = walk.machine.replay(session_id="s", node_id=node)
    mapped, pruned = model(graph, node)
    assert set(replay.forked_from.pruned) == pruned, (graph, node)
    expected = {name: path for name, path in before.items() if name not in pruned}
    assert walk.mapped(replay.session_id) == expected | dict.fromkeys(mapped, [f"before {node}", node]), (graph, node)
    assert walk.mapped("s") == before, (graph, node)
    for lost in pruned:
        # Rebuilt on demand, along nodes that follow each other from the replayed one.
        path = walk.machine.replay(session_id=replay.session_id, node_id=lost).context["path"]
        assert path[:2] == [f"before {node}", node], (graph, node, lost)
        assert path[-1] == lost, (graph, node, lost)
        assert all(after in graph[one] for one, after in zip(path[1:], path[2:], strict=False)), (graph, node, lost)
    walk.ran.clear()
    results = walk.machine.go_on(replay)
    assert sorted(walk.ran) == sorted(set(walk.ran)) == sorted(results), (graph, node)
    assert all(walk.ran.index(one) < walk.ran.index(after) for one in results for after in graph[one]), (graph, node)
    return len(pruned)


if __name__ == "__main__":
    main()

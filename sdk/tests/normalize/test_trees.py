"""Trees of rows that name their parents: cycles, walks, and values of rows above."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.tests.length import examples
from tracesite_sdk.normalize.trees import NearestAbove, cycles, walk

PARENTS = st.dictionaries(st.sampled_from("abcdefgh"), st.none() | st.sampled_from("abcdefghx"))


def above(parents: dict[str, str | None], id_: str) -> list[str]:
    """Return the ids above one, the nearest first, up to the first that comes again."""
    found: list[str] = []
    parent = parents[id_]
    while parent in parents and parent not in found:
        found.append(str(parent))
        parent = parents[parent]
    return found


@settings(max_examples=examples(200))
@given(PARENTS)
def test_rows_on_cycles_are_those_above_themselves(parents: dict[str, str | None]) -> None:
    found = cycles(parents)
    assert sorted(id_ for cycle in found for id_ in cycle) == sorted(
        id_ for id_ in parents if id_ in above(parents, id_)
    )
    for cycle in found:
        assert [parents[id_] for id_ in cycle] == [*cycle[1:], cycle[0]]


@settings(max_examples=examples(200))
@given(PARENTS, st.permutations("abcdefgh"), st.data())
def test_nearest_value_above_is_found_in_any_order(
    parents: dict[str, str | None], order: list[str], data: st.DataObject
) -> None:
    parents |= dict.fromkeys((id_ for cycle in cycles(parents) for id_ in cycle), None)
    children = {id_: [child for child in sorted(parents) if parents[child] == id_] for id_ in parents}
    walked = walk([id_ for id_ in parents if parents[id_] not in parents], children.__getitem__)
    assert sorted(walked) == sorted(parents)
    numbers = {id_: number for number, id_ in enumerate(walked)}
    values: NearestAbove[str] = NearestAbove(len(walked))
    known: set[str] = set()
    for id_ in [id_ for id_ in order if id_ in parents]:
        values.put(numbers[id_], numbers[id_] + len(walk([id_], children.__getitem__)), id_)
        known.add(id_)
        asked = data.draw(st.sampled_from(walked))
        assert values.find(numbers[asked]) == next((one for one in above(parents, asked) if one in known), None)

"""Positions of steps and calls: the same for one batch and several, in order or not."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk.events.projection import EventFact, subject_of, subjects_from
from tracesite_sdk.events.step_order import Layout, laid_out

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def said(order: int, type_: str, agent: str, data: dict[str, Any]) -> EventFact:
    name = f"e{order}"
    return EventFact(
        order=order,
        external_id=name,
        type=type_,
        agent=agent,
        subject=subject_of(type_, agent, name, data),
        timestamp=NOON,
        data=data,
    )


_NAMES = st.sampled_from(["a", "b", "c", "d"])
_DATA = st.fixed_dictionaries(
    {},
    optional={
        "step": st.sampled_from(["s1", "s2", "s3", "of n1"]),
        "iteration": st.integers(0, 3),
        "call_id": _NAMES,
        "parent": _NAMES,
        "uuid": _NAMES,
    },
)
_EVENTS = st.lists(
    st.builds(
        said,
        st.integers(1, 30),
        st.sampled_from(["llm_request_start", "llm_request_complete", "tool_call_start", "tool_call_complete"]),
        st.sampled_from(["", "n1", "n2"]),
        _DATA,
    ),
    max_size=14,
)


def in_batches(events: list[EventFact], sizes: list[int]) -> tuple[Layout, list[bool]]:
    layout, recomputed = Layout(), []
    while events:
        size = sizes.pop() if sizes else 3
        change = layout.with_events(events[:size])
        events = events[size:]
        if not change.is_recomputed:
            # Existing positions are unchanged, and only the adopted calls have other parents.
            assert change.layout.steps.items() >= layout.steps.items()
            assert change.layout.calls.items() >= layout.calls.items()
            changed = {name for name in layout.calls if change.layout.parents.get(name) != layout.parents.get(name)}
            assert changed <= change.adopted
        layout = change.layout
        recomputed.append(change.is_recomputed)
    return layout, recomputed


@given(events=_EVENTS, sizes=st.lists(st.integers(1, 5)), is_sorted=st.booleans())
def test_batches_in_any_order_give_the_layout_of_all_at_once(
    events: list[EventFact], sizes: list[int], is_sorted: bool
) -> None:
    if is_sorted:
        events = sorted(events, key=EventFact.place)
    found, _anew = in_batches(events, sizes)
    wanted = laid_out(subjects_from(events, {}))
    assert (found.subjects, found.steps, found.calls, found.parents) == (
        wanted.subjects,
        wanted.steps,
        wanted.calls,
        wanted.parents,
    )


def test_events_in_order_do_not_recompute_the_layout() -> None:
    events = []
    for turn in range(6):
        step, call = {"step": f"s{turn}"}, {"step": f"s{turn}", "call_id": f"c{turn}", "parent": f"c{turn - 1}"}
        events += [
            said(5 * turn, "llm_request_start", "n1", step),
            said(5 * turn + 1, "llm_request_complete", "n1", {**step, "thought": "Look."}),
            said(5 * turn + 2, "tool_call_start", "n1", call),
            said(5 * turn + 3, "tool_call_complete", "n1", {"call_id": f"c{turn}", "result": "seen"}),
        ]
    layout, recomputed = in_batches(events, [])
    assert not any(recomputed)
    assert layout.steps == {f"step:s{turn}": (turn, turn) for turn in range(6)}
    assert layout.calls == {f"call:n1:c{turn}": (f"step:s{turn}", 0) for turn in range(6)}
    assert layout.parents == {f"call:n1:c{turn}": f"call:n1:c{turn - 1}" for turn in range(1, 6)}
    assert layout.calls_of == {f"step:s{turn}": (f"call:n1:c{turn}",) for turn in range(6)}

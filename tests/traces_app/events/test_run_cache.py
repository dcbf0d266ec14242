"""What a process remembers of runs: the newest of each, of those that were used last, and not for long."""

from __future__ import annotations

from uuid import UUID

import pytest

from traces_app.events import run_cache
from traces_app.events.projection import Subject
from traces_app.events.run_cache import Memory, RunSoFar
from traces_app.events.step_order import laid_out

SESSION = UUID(int=1)


def key(run: int) -> tuple[str, UUID, UUID]:
    return "database", SESSION, UUID(int=run)


def so_far(seq: int, steps: int = 1) -> RunSoFar:
    layout = laid_out({f"step:{number}": Subject(number, "", "", None, "") for number in range(steps)})
    return RunSoFar(seq=seq, layout=layout)


def test_what_got_further_is_kept() -> None:
    memory = Memory()
    for seq in (3, 5, 4):
        memory.remember(key(1), so_far(seq))
    assert [memory.recall(key(run)).seq for run in (1, 2)] == [5, 0]


def test_runs_that_were_not_used_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_cache, "MOST_SUBJECTS", 10)
    memory = Memory()
    for run in (1, 2, 3):
        memory.remember(key(run), so_far(1, steps=3))
    memory.remember(key(1), so_far(2, steps=4))
    memory.remember(key(4), so_far(1, steps=3))
    assert [memory.recall(key(run)).seq for run in (1, 2, 3, 4)] == [2, 0, 1, 1]
    # One that is larger than all room is remembered alone.
    memory.remember(key(5), so_far(1, steps=30))
    assert [memory.recall(key(run)).seq for run in (1, 2, 3, 4, 5)] == [0, 0, 0, 0, 1]


def test_what_was_not_used_for_long_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    memory.remember(key(1), so_far(1))
    memory.remember_id(("database", SESSION, "run"), UUID(int=1))
    assert (memory.recall(key(1)).seq, memory.id_of(("database", SESSION, "run"))) == (1, UUID(int=1))
    monkeypatch.setattr(run_cache, "MOST_SECONDS", 0.0)
    assert (memory.recall(key(1)).seq, memory.id_of(("database", SESSION, "run"))) == (0, None)

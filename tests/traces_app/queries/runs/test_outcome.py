"""The outcome of a run, and the failure that decided it."""

from __future__ import annotations

import pytest
from django.utils import translation
from hypothesis import given
from hypothesis import strategies as st

from traces_app.queries.runs.outcome import CallFact, Outcome, deciding_failure, outcome_of


def call(number: int, tool: str, telling: str = "", state: str = "ok") -> CallFact:
    return CallFact(
        place=number,
        tool=tool,
        telling=telling,
        failed=state == "failed",
        pending=state == "pending",
    )


@pytest.mark.parametrize(
    ("rows", "deciding"),
    [
        ([], None),
        ([("Read", "a.py", "ok")], None),
        ([("Read", "a.py", "failed"), ("Edit", "a.py", "ok")], 0),
        ([("Read", "a.py", "failed"), ("Read", "b.py", "ok")], None),
        ([("Read", "a.py", "failed"), ("Read", "b.py", "pending")], 0),
        ([("Read", "a.py", "failed"), ("Edit", "a.py", "failed"), ("Edit", "a.py", "ok")], 0),
        ([("Read", "a.py", "failed"), ("Read", "b.py", "failed")], 1),
        ([("Bash", "go test ./...", "failed"), ("Bash", "go install", "ok")], 0),
        ([("Bash", "go test ./...", "failed"), ("Bash", "go test ./cart", "ok")], None),
        ([("Bash", "CI=1 timeout 60 npm run test", "failed"), ("Bash", "npm run build", "ok")], 0),
        ([("Bash", "CI=1 timeout 60 npm run test", "failed"), ("Bash", "npm run test", "ok")], None),
        ([("Bash", "python -m pytest -q", "failed"), ("Bash", "python -m build", "ok")], 0),
        ([("Bash", "python a.py", "failed"), ("Bash", "python b.py", "ok")], 0),
        ([("Bash", "grep x a", "failed"), ("Bash", "grep y b | wc -l", "ok")], None),
        ([("Bash", "", "failed"), ("Bash", "ls", "ok")], 0),
        # Other tools are compared by their name alone.
        ([("search", "go test", "failed"), ("search", "go install", "ok")], None),
    ],
)
def test_deciding_failure_is_last_not_made_good(rows: list[tuple[str, str, str]], deciding: int | None) -> None:
    calls = [call(number, *row) for number, row in enumerate(rows)]
    assert deciding_failure(calls) == (None if deciding is None else calls[deciding])


ROWS = st.tuples(
    st.sampled_from(["Read", "Edit", "get_order"]),
    st.sampled_from(["", "a", "b"]),
    st.sampled_from(["ok", "failed", "pending"]),
)


@given(st.lists(ROWS, max_size=12))
def test_deciding_failure_has_no_later_success(rows: list[tuple[str, str, str]]) -> None:
    calls = [call(number, *row) for number, row in enumerate(rows)]
    found = deciding_failure(calls)

    def made_good(failure: CallFact) -> bool:
        later = calls[calls.index(failure) + 1 :]
        return any(one.tool == failure.tool and not (one.failed or one.pending) for one in later)

    remaining = [one for one in calls if one.failed and not made_good(one)]
    assert found == (remaining[-1] if remaining else None)


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({}, Outcome.DONE),
        ({"has_failed": True}, Outcome.FAILED),
        ({"is_completed": False}, Outcome.RUNNING),
        ({"is_completed": False, "has_failed": True}, Outcome.RUNNING),
        ({"is_completed": False, "is_waiting": True}, Outcome.WAITING),
        ({"is_stopped": True, "has_failed": True}, Outcome.STOPPED),
    ],
)
def test_outcome_follows_from_the_run(facts: dict[str, bool], outcome: Outcome) -> None:
    usual = {"is_completed": True, "is_stopped": False, "is_waiting": False, "has_failed": False}
    assert outcome_of(**usual | facts) == outcome


def test_outcome_has_a_word_in_both_languages() -> None:
    assert [str(outcome.label) for outcome in Outcome] == ["Failed", "Waiting", "Running", "Done", "Stopped"]
    with translation.override("zh-hans"):
        assert [str(outcome.label) for outcome in Outcome] == ["失败", "等待中", "运行中", "已完成", "已停止"]

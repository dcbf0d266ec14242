"""Test that the SDK's commands know the parameters of the answers, and are what hints name."""

from __future__ import annotations

import shlex

import pytest

from traces_app.queries.answers.answer import Hint
from traces_app.views.reading import ANSWERS, OF_ALL
from tracesite_sdk.reading.commands import FILTERS, parsed, parsers, question

UUID = "0199a1b2-0000-7000-8000-000000000000"
POSITIONAL = {"errors": {"group", "call"}, "search": {"q"}, "tools": {"tool"}}
ANSWER_OF = {"errors": "error_group"}


@pytest.mark.parametrize("command", FILTERS)
def test_options_are_the_parameters_of_the_answer(command: str) -> None:
    options = {option.replace("-", "_") for option in FILTERS[command]} | POSITIONAL.get(command, set())
    assert options == {parameter.name for parameter in ANSWERS[ANSWER_OF.get(command, command)]}


@pytest.mark.parametrize(
    "hint",
    [
        Hint("failures", {"tool": "NAME", "created_before": "2026-03-01T12:00:00.000001Z"}),
        Hint("outline", {"run": UUID, "begin": 40}),
        Hint("step", {"run": UUID, "step": "3"}),
        Hint("step", {"step": UUID, "part": "thought", "begin": 4000}),
        Hint("call", {"run": "weather 1", "call": "3/0"}),
        Hint("call", {"call": UUID, "part": "output", "begin": 4000}),
        Hint("compare", {"run": UUID}),
        Hint("compare", {"run": UUID, "other": UUID}),
        Hint("error_group", {"group": UUID, "tool": "NAME"}),
        Hint("error_group", {"call": UUID}),
        Hint("search", {"q": 'refund "connection refused" -retry', "cursor": "abc"}),
        Hint("failures", {"agent": "-planner"}),
        Hint("tools", {"tool": "get weather", "status": "error"}),
        Hint("cost", {"group_by": "day"}),
    ],
    ids=lambda hint: f"{hint.answer}-{'-'.join(hint.parameters)}",
)
def test_hint_is_a_command_that_asks_for_its_answer(hint: Hint) -> None:
    program, command, *arguments = shlex.split(hint.text("commands"))
    parser = parsers()[command]
    answer, parameters = question(command, parsed(parser, arguments), parser)
    assert (program, answer.replace("-", "_")) == ("tracesite", hint.answer)
    given = {name: value for name, value in parameters if name not in OF_ALL}
    assert given == {name: str(value) for name, value in hint.parameters.items()}

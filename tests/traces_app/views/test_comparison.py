"""GET /compare/: two sessions or messages side by side."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from access_app.models import Project
from tests.traces_app.conftest import NOON, store

from .conftest import Caller


def call(name: str, args: dict[str, Any], output: str = "ok", **fields: Any) -> dict[str, Any]:
    return {"name": name, "args": args, "result": {"output": output}, **fields}


def conversation(project: Project, name: str, *calls: dict[str, Any], answer: str, model: str = "m1") -> dict[str, str]:
    """Store a question and an answer; return the ids of the session and of both messages."""
    messages = [
        {"role": "user", "content": "How is Oslo?", "created_at": NOON},
        {
            "role": "assistant",
            "content": answer,
            "created_at": NOON,
            "agent_steps": [
                {"thought": "Look.", "model": model, "usage": {"input_tokens": 5}, "cost": 0.25, "tool_calls": calls}
            ],
        },
    ]
    made = store(project, *messages, external_id=name)
    return {
        "session": str(made.id),
        **{role: str(one.id) for role, one in zip(("user", "run"), made.messages, strict=True)},
    }


def test_sessions_are_compared_field_by_field(owner: Caller, outsider: Caller, project: Project) -> None:
    left = conversation(
        project,
        "good",
        call("search", {"q": "Oslo", "days": [1]}),
        call("fetch", {"url": "a"}, "It is sunny in Oslo today", duration=5),
        call("only", {}),
        answer="Sunny.",
    )
    right = conversation(
        project,
        "bad",
        call("search", {"q": "Oslo weather", "days": [1], "lang": "no"}),
        call("fetch", {"url": "a"}, "It is cloudy in Oslo today", duration=7),
        call("new", {}),
        answer="Sunny.",
        model="m2",
    )
    with CaptureQueriesContext(
        connection,
    ) as queries:
        found = owner.get("compare/", left="good", right=right["session"]).json
    assert len(queries) < 25
    assert (found["kind"], found["left"], found["right"]) == ("session", left["session"], right["session"])
    assert found["counts"] == {"same": 2, "changed": 3, "left": 1, "right": 1}
    assert [
        (pair["change"], *(side and (side["kind"], side["name"]) for side in (pair["left"], pair["right"])))
        for pair in found["pairs"]
    ] == [
        ("same", ("message", "user"), ("message", "user")),
        ("changed", ("step", ""), ("step", "")),
        ("changed", ("call", "search"), ("call", "search")),
        ("changed", ("call", "fetch"), ("call", "fetch")),
        ("left", ("call", "only"), None),
        ("right", None, ("call", "new")),
        ("same", ("message", "assistant"), ("message", "assistant")),
    ]
    _user, step, search, fetch, *_rest = found["pairs"]
    assert (step["left"]["cost"], step["left"]["usage"]) == (0.25, {"input_tokens": 5})
    assert [one["field"] for one in step["differences"]] == ["model"]
    assert search["differences"] == [
        {
            "field": "args.q",
            "left": [{"text": "Oslo", "changed": False}],
            "right": [{"text": "Oslo", "changed": False}, {"text": " weather", "changed": True}],
        },
        {"field": "args.lang", "left": None, "right": [{"text": "no", "changed": True}]},
    ]
    (output,) = fetch["differences"]
    assert [piece["text"] for piece in output["right"] if piece["changed"]] == ["cloudy"]
    assert (fetch["left"]["duration"], fetch["right"]["duration"]) == (5, 7)
    assert {fact["field"]: fact["change"] for fact in found["facts"]}["call_count"] == "same"
    runs = owner.get("compare/", left=left["run"], right=right["run"]).json
    assert (runs["kind"], runs["counts"]) == ("message", {"same": 1, "changed": 3, "left": 1, "right": 1})
    assert outsider.get("compare/", left="good", right="bad").error == (404, "session_not_found", "left")


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({}, (400, "invalid_input", "left")),
        ({"left": "good"}, (400, "invalid_input", "right")),
        ({"left": "good", "right": "nothing"}, (404, "session_not_found", "right")),
        ({"left": "good", "right": "a\x00b"}, (404, "session_not_found", "right")),
        ({"left": "good", "right": "good", "fields": "x"}, (400, "invalid_input", "fields")),
    ],
)
def test_wrong_sides_are_refused(owner: Caller, project: Project, parameters: Any, error: Any) -> None:
    conversation(project, "good", answer="x")
    assert owner.get("compare/", **parameters).error == error


def test_session_is_not_compared_with_message(owner: Caller, project: Project) -> None:
    one = conversation(project, "good", answer="x")
    assert owner.get("compare/", left="good", right=one["run"]).error == (400, "invalid_input", "right")

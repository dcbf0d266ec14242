"""Test the scores that an agent's code gives, from the recorder to the table."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from access_app.models import Project
from messages_app.models import Message, Session
from traces_app.events.database_sink import DatabaseSink
from traces_app.models import Event, Score, ToolCall
from tracesite_sdk import Privacy, Recorder, Sampling
from tracesite_sdk.testing import recording


@pytest.fixture
def recorder(transactional_db: None) -> Iterator[Recorder]:
    Project.objects.create(slug="owner")
    sink = DatabaseSink("owner")
    yield Recorder(sink=sink, strict=True)
    sink.close(time.monotonic() + 60)


def stored() -> list[tuple[Any, ...]]:
    return list(Score.objects.order_by("name").values_list("name", "kind", "number", "label", "comment", "source"))


@pytest.mark.django_db(transaction=True)
def test_scores_of_message_and_call_are_attached_to_their_rows(recorder: Recorder) -> None:
    with recorder.session("chat"), recorder.message("Is it warm?") as message:
        with recorder.tool_call("get_weather", {"city": "Shanghai"}, call_id="c1") as call:
            call.result = {"temperature": 31}
        call.score("exact", 0.75, comment="The humidity is missing.")
        message.content = "Yes."
    message.score("helpful", True, source="person", author="ada")
    message.score("tone", "friendly")
    assert recorder.flush() == 0
    assert stored() == [
        ("exact", "numeric", 0.75, "", "The humidity is missing.", "program"),
        ("helpful", "boolean", 1.0, "", "", "person"),
        ("tone", "categorical", None, "friendly", "", "program"),
    ]
    answer = Message.objects.get(role="assistant")
    assert answer.is_completed
    assert [score.message for score in Score.objects.all()] == [answer] * 3
    assert Score.objects.get(name="exact").call == ToolCall.objects.get()
    assert Score.objects.get(name="helpful").author == "ada"


@pytest.mark.django_db(transaction=True)
def test_feedback_from_another_process_finds_message_and_session(recorder: Recorder) -> None:
    with recorder.session("chat"), recorder.message("Is it warm?") as message, recorder.tool_call("look") as call:
        pass
    recorder.flush(60)
    other = Recorder(sink=recorder.sink, strict=True)
    other.score("helpful", False, session="chat", message=message.id, source="person")
    other.score("exact", 1, session="chat", message=message.id, call=call.id)
    other.score("solved", True, session="chat")
    other.flush(60)
    about = {
        score.name: (score.session_id, score.message_id, score.call_id) for score in Score.objects.order_by("name")
    }
    session, answer = Session.objects.get(), Message.objects.get(role="assistant")
    assert about == {
        "exact": (session.pk, answer.pk, ToolCall.objects.get().pk),
        "helpful": (session.pk, answer.pk, None),
        "solved": (session.pk, None, None),
    }
    assert answer.is_completed
    assert Message.objects.count() == 2


@pytest.mark.django_db(transaction=True)
def test_score_that_is_delivered_twice_is_one_score(recorder: Recorder) -> None:
    sent: list[dict[str, Any]] = []
    recorder.subscribe(sent.append)
    with recorder.session("chat"), recorder.message("Is it warm?") as message:
        message.score("helpful", True)
    recorder.flush()
    recorder.sink.send([msgspec.Raw(msgspec.json.encode(event)) for event in sent])  # type: ignore[misc]
    assert len(stored()) == 1
    assert Event.objects.filter(type="score").count() == 1


@pytest.mark.django_db(transaction=True)
def test_secret_in_comment_is_stored_with_a_receipt(recorder: Recorder) -> None:
    recorder.privacy = Privacy(patterns=[r"\bDE\d{20}\b"])
    with recorder.session("chat"), recorder.message("Pay.") as message:
        message.score("note", comment="He gave DE12345678901234567890 away.")
    recorder.flush()
    score = Score.objects.get()
    assert "DE123" not in score.comment
    assert [receipt["path"] for receipt in score.redactions] == ["comment"]


def test_scored_message_is_kept_by_sampling() -> None:
    with recording(sampling=Sampling(rate=0)) as recorder:
        with recorder.session("chat"), recorder.message("First?"):
            pass
        with recorder.session("chat"), recorder.message("Second?") as second:
            second.score("helpful", True)
    assert {event["data"].get("prompt") for event in recorder.events} == {"Second?", None}
    assert [event["data"]["value"] for event in recorder.events if event["type"] == "score"] == [True]


def test_lean_recorder_sends_the_score_whole() -> None:
    with recording(privacy=Privacy(lean=True)) as recorder, recorder.message("First?") as message:
        message.score("tone", "rude", comment="He shouted.")
    (score,) = (event["data"] for event in recorder.events if event["type"] == "score")
    assert score == {"name": "tone", "source": "program", "value": "rude", "comment": "He shouted."}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"name": ""}, "name"),
        ({"name": "n"}, "a value or a comment"),
        ({"name": "n", "value": ""}, "category may not be empty"),
        ({"name": "n", "value": float("nan")}, "value"),
        ({"name": "n", "value": object(), "source": "nobody"}, "source"),
    ],
    ids=["name", "nothing", "empty", "nan", "source"],
)
def test_invalid_score_raises_only_where_strict(fields: dict[str, Any], reason: str) -> None:
    with recording() as recorder, recorder.message("First?") as message, pytest.raises(ValueError, match=reason):
        message.score(**fields)
    with recording(strict=False) as recorder, recorder.message("First?") as message:
        message.score(**fields)
    assert not [event for event in recorder.events if event["type"] == "score"]


def test_long_comment_is_cut_and_says_so() -> None:
    with recording() as recorder, recorder.message("First?") as message:
        message.score("n", 1, comment="x" * 30_000)
    (score,) = (event["data"] for event in recorder.events if event["type"] == "score")
    assert len(score["comment"]) == 20_000
    assert score["comment"].endswith("… [cut, of 30000 characters]")

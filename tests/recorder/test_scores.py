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
from tracesite_sdk import Privacy, Recorder


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

"""Keys without the scope `read` learn no stored data from the responses to their writes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from access_app.keys import create_key
from access_app.models import Project
from traces_app.ingest.batch import SessionOutcome

from .conftest import Answer, Caller

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
STORED = ("Shanghai", "Atlantis", "The weather", "ada", "demo", "31 °C")


@pytest.fixture
def writer(project: Project) -> Caller:
    return Caller(create_key(project, "writer", ["write"])[1])


@pytest.fixture
def deleter(project: Project) -> Caller:
    return Caller(create_key(project, "deleter", ["delete"])[1])


def assert_reveals_nothing(answer: Answer) -> None:
    assert answer.status in (200, 201), answer.body
    # The digits of an id may spell a name.
    without_ids = _UUID.sub("", answer.body.decode())
    assert [text for text in STORED if text in without_ids] == []


@pytest.mark.parametrize(
    ("method", "path", "body", "expected"),
    [
        ("patch", "sessions/weather/", {}, {"id", "project", "external_id"}),
        ("post", "sessions/", {"external_id": "weather"}, {"id", "project", "external_id", "sent"}),
        (
            "post",
            "sessions/weather/messages/",
            {"external_id": "a1", "role": "assistant"},
            {"id", "session_id", "external_id", "version"},
        ),
        ("patch", "messages/{message}/", {"version": 1}, {"id", "session_id", "external_id", "version"}),
    ],
)
def test_answer_to_write_only_key_holds_ids_only(
    writer: Caller, weather: SessionOutcome, method: str, path: str, body: dict[str, Any], expected: set[str]
) -> None:
    answer = getattr(writer, method)(path.format(message=weather.messages[1].id), body)

    assert_reveals_nothing(answer)
    assert set(answer.json) == expected


def test_restore_with_delete_only_key_answers_ids_only(owner: Caller, deleter: Caller, weather: SessionOutcome) -> None:
    message = weather.messages[1].id
    owner.delete(f"messages/{message}/")
    restored_message = deleter.post(f"messages/{message}/restore/")
    owner.delete("sessions/weather/")
    restored_session = deleter.post("sessions/weather/restore/")

    for answer in (restored_message, restored_session):
        assert_reveals_nothing(answer)
    assert set(restored_message.json) == {"id", "session_id", "external_id", "version"}
    assert set(restored_session.json) == {"id", "project", "external_id"}


def test_weknora_writes_with_write_only_key_reveal_nothing(writer: Caller, weather: SessionOutcome) -> None:
    base = f"/weknora/api/v1/sessions/{weather.id}"

    title = writer.client.post(f"{base}/generate_title", {"messages": []}, content_type="application/json")
    updated = writer.client.put(base, {"title": "New"}, content_type="application/json")

    assert title.status_code == 403
    assert (updated.status_code, updated.json()["data"]) == (200, {"id": str(weather.id)})


def test_empty_patch_changes_no_version_and_no_time(owner: Caller, weather: SessionOutcome) -> None:
    message = f"messages/{weather.messages[1].id}/"
    before = (owner.get(message).json, owner.get("sessions/weather/").json)

    assert owner.patch(message, {"version": before[0]["version"]}).status == 200
    assert owner.patch("sessions/weather/", {}).status == 200

    assert (owner.get(message).json, owner.get("sessions/weather/").json) == before

"""Test what a server stores of a scope: the step of the request for the answer."""

from __future__ import annotations

import pytest

from access_app.models import Project
from tracesite_sdk.testing import recording

from .conftest import answers, send


@pytest.mark.django_db
def test_request_of_the_answer_is_a_step_whose_tokens_count() -> None:
    usage = {"input_tokens": 120, "output_tokens": 15}
    with recording() as recorder, recorder.message("Weather?") as message:
        with recorder.step(model="gpt-5") as step:
            step.usage = usage
        asked = [{"role": "user", "content": "Weather?"}]
        message.answered("31 degrees.", model="gpt-5-mini", usage=usage, request={"messages": asked})
    end = recorder.events[-1]["data"]
    assert (end["result"], "usage" in end, "metadata" in end) == ("31 degrees.", False, False)
    owner = Project.objects.create(slug="owner")
    send(owner, recorder)
    (answer,) = answers(owner)
    assert (answer["content"], answer["input_tokens"], answer["output_tokens"]) == ("31 degrees.", 240, 30)
    *_, last = answer["agent_steps"]
    assert (last["model"], last["usage"], last["thought"]) == ("gpt-5-mini", usage, "")
    assert "duration" not in last and last["input_ref"]

"""The page with what the model of a step was asked."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from messages_app.writes import delete_message
from tests.admin_pages import text_of
from tests.traces_app.conftest import store
from traces_app.admin.input_page import MOST_ITEMS, read_input
from traces_app.models import AgentStep, Context
from traces_app.queries import contexts

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"
TOOL = {"type": "function", "function": {"name": "search", "description": SCRIPT}}


def asked(length: int) -> dict[str, Any]:
    messages = [{"role": ("user", "assistant")[n % 2], "content": f"said {n}"} for n in range(length)]
    return {"messages": messages, "system": f"Be kind. {SCRIPT}", "tools": [TOOL], "parameters": {"temperature": 0.5}}


def run(project: Project, *inputs: dict[str, Any] | None) -> list[AgentStep]:
    steps = [{"iteration": n, "input": one, "time_to_first_token": 412} for n, one in enumerate(inputs)]
    store(project, {"role": "assistant", "external_id": "run", "content": "Done.", "agent_steps": steps})
    return list(AgentStep.objects.order_by("iteration"))


def url_of(step: AgentStep) -> str:
    return f"/admin/messages_app/message/{step.message_id}/steps/{step.pk}/input/"


def test_page_shows_all_parts_escaped(admin_client: Client, project: Project) -> None:
    (step,) = run(project, asked(3))
    page = admin_client.get(url_of(step))
    assert (page.status_code, SCRIPT in page.content.decode()) == (200, False)
    text = text_of(page)
    for part in (
        "Model input of step 1",
        "System prompt Be kind.",
        "3 messages",
        "user said 0",
        "1 tool search",
        '"temperature": 0.5',
    ):
        assert part in text
    run_page = admin_client.get(f"/admin/messages_app/message/{step.message_id}/change/")
    assert url_of(step) in run_page.content.decode()
    assert "first token after 412 ms" in text_of(run_page)


def test_input_that_is_too_large_is_said(
    admin_client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = run(project, asked(3), asked(5))
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 1000)
    # Not both at once.
    assert "said 4" in text_of(admin_client.get(url_of(second)))
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 100)
    page = admin_client.get(url_of(first))
    assert (page.status_code, "more than 100 bytes in all" in text_of(page)) == (200, True)


def test_messages_of_the_request_before_are_folded(project: Project) -> None:
    first, none, second = run(project, asked(2), None, asked(4))
    page = read_input(primary, second)
    assert page is not None
    assert ([item.is_new for item in page.messages], page.repeated) == ([False, False, True, True], 2)
    assert read_input(primary, first).repeated == 0  # type: ignore[union-attr]  # it has an input
    assert none.input_ref == ""


def test_items_that_are_no_messages_are_shown_as_json(project: Project) -> None:
    items = [
        "Hi",
        {"type": "function_call", "name": "a"},
        {"role": "user", "content": [{"text": "x"}]},
        {"role": "tool", "content": "18 °C", "tool_call_id": "c"},
        7,
        None,
    ]
    (step,) = run(project, {"messages": items})
    page = read_input(primary, step)
    assert page is not None
    assert [(item.name, item.content.head, "".join(item.others.head.split())) for item in page.messages] == [
        ("", "Hi", ""),
        ("function_call", "", '{"name":"a","type":"function_call"}'),
        ("user", "", '{"content":[{"text":"x"}]}'),
        ("tool", "18 °C", '{"tool_call_id":"c"}'),
        ("", "", "7"),
        ("", "", ""),
    ]


def test_long_conversation_shows_its_newest_messages(admin_client: Client, project: Project) -> None:
    (step,) = run(
        project, {"messages": [{"role": "user", "content": f"{n}:{'x' * 9000}"} for n in range(MOST_ITEMS + 9)]}
    )
    page = read_input(primary, step)
    assert page is not None
    assert (len(page.messages), page.messages[0].content.head[:2], page.message_count) == (
        MOST_ITEMS,
        "9:",
        MOST_ITEMS + 9,
    )
    answer = admin_client.get(url_of(step))
    assert len(answer.content) < 4_000_000
    assert "Only the newest messages are shown" in text_of(answer)


def test_input_of_trash_is_shown_and_missing_ones_are_said(
    admin_client: Client, client: Client, project: Project
) -> None:
    (step,) = run(project, asked(1))
    delete_message(primary, step.message_id, by="test")
    assert "said 0" in text_of(admin_client.get(url_of(step)))
    Context.objects.filter(kind="input").delete()
    assert "no longer available" in text_of(admin_client.get(url_of(step)))
    other = url_of(step).replace(str(step.pk), str(Message.with_deleted.get().pk))
    assert admin_client.get(other).headers["Location"] == "/admin/messages_app/message/"
    assert client.get(url_of(step)).headers["Location"].startswith("/admin/login/")

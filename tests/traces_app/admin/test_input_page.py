"""What the model of a step was asked, in the panel of its run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from access_app.db import primary
from access_app.models import AuditEntry, Project
from messages_app.models import Message
from messages_app.writes import delete_message
from tests.admin_pages import links_of, text_of
from tests.traces_app.conftest import store
from traces_app.admin.input_page import MOST_ITEMS, Said, read_input
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


def in_panel(client: Client, step: AgentStep) -> Any:
    """Return the part that the script of the run shows in its panel."""
    return client.get(f"{url_of(step)}?part")


def parts_of(item: Said) -> list[tuple[str, str, str]]:
    return [(part.kind, part.name, "".join((part.content.head + part.content.rest).split())) for part in item.parts]


def test_address_leads_to_the_run_with_all_parts_escaped(admin_client: Client, project: Project) -> None:
    (step,) = run(project, asked(3))
    run_page = f"/admin/messages_app/message/{step.message_id}/change/"
    assert admin_client.get(url_of(step)).headers["Location"] == f"{run_page}?call={step.pk}&tab=input#selected"
    for page in (in_panel(admin_client, step), admin_client.get(url_of(step), follow=True)):
        assert (page.status_code, SCRIPT in page.content.decode()) == (200, False)
        text = text_of(page)
        for part in (
            "3 messages",
            "System Be kind.",
            "User said 0 Assistant said 1 User said 2",
            "1 tool: search",
            "What the model answered Assistant Done.",
            '"temperature": 0.5',
        ):
            assert part in text
    html = admin_client.get(run_page).content.decode()
    assert f'href="?call={step.pk}&amp;tab=input#selected"' in html
    assert "first token after 412 ms" in text_of(admin_client.get(run_page))


def test_input_that_is_too_large_is_said(
    admin_client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = run(project, asked(3), asked(5))
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 1000)
    # Not both at once.
    assert "said 4" in text_of(in_panel(admin_client, second))
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 100)
    for page in (in_panel(admin_client, first), admin_client.get(url_of(first), follow=True)):
        assert (page.status_code, "more than 100 bytes in all" in text_of(page)) == (200, True)


def test_messages_of_the_request_before_are_folded(admin_client: Client, project: Project) -> None:
    first, none, second = run(project, asked(2), None, asked(4))
    page = read_input(primary, second)
    assert page is not None
    # The first one is the system prompt.
    assert ([item.is_new for item in page.messages], page.repeated) == ([False, False, False, True, True], 2)
    assert read_input(primary, first).repeated == 0  # type: ignore[union-attr]  # it has an input
    assert none.input_ref == ""
    assert "2 messages are folded" in text_of(in_panel(admin_client, second))
    assert "2 new messages User said 2" in text_of(in_panel(admin_client, second))
    assert links_of(in_panel(admin_client, second))["Previous request"] == f"?call={first.pk}&tab=input"
    assert links_of(in_panel(admin_client, first))["Next request"] == f"?call={second.pk}&tab=input"
    assert "new message" not in text_of(in_panel(admin_client, first))


def test_long_prompt_is_folded_and_short_call_is_a_line(admin_client: Client, project: Project) -> None:
    calls = [{"id": "c1", "function": {"name": "find", "arguments": '{"city":"Oslo",   "km":1.0}'}}]
    messages = [{"role": "assistant", "content": None, "tool_calls": calls}]
    (step,) = run(project, {"system": f"Be kind. {SCRIPT} {'Always. ' * 50}", "messages": messages})
    html = in_panel(admin_client, step).content.decode()
    assert '<details class="extra"><summary><bdi>Be kind. &lt;script&gt;' in html
    assert '<bdi class="tool">find</bdi> <code>{&quot;city&quot;: &quot;Oslo&quot;, &quot;km&quot;: 1.0}</code>' in html


def test_answer_has_what_the_step_said_and_called(admin_client: Client, project: Project) -> None:
    step = {"input": asked(1), "model": "m-1", "thought": "I look.", "tool_calls": [{"name": "find", "args": {"n": 1}}]}
    store(project, {"role": "assistant", "external_id": "run", "content": "Done.", "agent_steps": [step]})
    text = text_of(in_panel(admin_client, AgentStep.objects.get()))
    assert text.startswith("m-1 · 1 message ·")
    assert text.endswith('What the model answered Assistant I look. Call find {"n": 1}')


OPENAI = [
    {"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "image_url", "image_url": {"url": "u"}}]},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": '{"city":"Oslo","km":1.0}'}}],
    },
    {"role": "tool", "content": "18 °C", "tool_call_id": "c1"},
]
ANTHROPIC = [
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Hm."},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "find", "input": {"city": "Oslo"}},
        ],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "gone", "is_error": True}]},
]
LIST = [OPENAI[1], {"role": "tool", "content": [{"total": 640}, {"total": 88}], "tool_call_id": "c1"}]
RESPONSES = [
    {"type": "function_call", "call_id": "r1", "name": "find", "arguments": "no JSON"},
    {"type": "function_call_output", "call_id": "r1", "output": '{"degrees": 18}'},
]


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        (
            LIST,
            [
                ("assistant", [("call", "find", '{"city":"Oslo","km":1.0}')]),
                ("tool", [("result", "find", '[{"total":640},{"total":88}]')]),
            ],
        ),
        (
            OPENAI,
            [
                ("user", [("text", "", "Where?"), ("other", "", '{"type":"image_url","image_url":{"url":"u"}}')]),
                ("assistant", [("call", "find", '{"city":"Oslo","km":1.0}')]),
                ("tool", [("result", "find", "18°C")]),
            ],
        ),
        (
            ANTHROPIC,
            [
                (
                    "assistant",
                    [("reasoning", "", "Hm."), ("text", "", "Ilook."), ("call", "find", '{"city":"Oslo"}')],
                ),
                ("user", [("failed", "find", "gone")]),
            ],
        ),
        (
            RESPONSES,
            [
                ("assistant", [("call", "find", "noJSON")]),
                ("tool", [("result", "find", '{"degrees":18}')]),
            ],
        ),
    ],
    ids=["list", "openai", "anthropic", "responses"],
)
def test_calls_and_results_have_the_names_of_tools(
    admin_client: Client, project: Project, messages: list[Any], expected: list[Any]
) -> None:
    (step,) = run(project, {"messages": messages})
    page = read_input(primary, step)
    assert page is not None
    assert [(item.role, parts_of(item)) for item in page.messages] == expected
    text = text_of(in_panel(admin_client, step))
    assert "Call find" in text
    assert "Result find" in text or "Error find" in text


SEVERAL = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]


def test_items_that_are_no_messages_are_shown_as_they_are(project: Project) -> None:
    (step,) = run(project, {"messages": ["Hi", {"type": "item_reference", "id": "i"}, {"messages": SEVERAL}, 7, None]})
    page = read_input(primary, step)
    assert page is not None
    assert [(item.role, item.label, parts_of(item)) for item in page.messages] == [
        ("", "", [("text", "", "Hi")]),
        ("", "item_reference", [("other", "", '{"id":"i","type":"item_reference"}')]),
        ("", "", [("other", "", "".join(json.dumps({"messages": SEVERAL}).split()))]),
        ("", "", [("other", "", "7")]),
        ("", "", []),
    ]


def test_tokens_and_their_cached_share_are_said(admin_client: Client, project: Project) -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 750}}
    steps = [{"iteration": 0, "input": asked(1), "usage": usage}]
    store(project, {"role": "assistant", "external_id": "run", "content": "Done.", "agent_steps": steps})
    assert "1 message · 1,000 tokens (75% cached)" in text_of(in_panel(admin_client, AgentStep.objects.get()))


def test_long_conversation_shows_its_newest_messages(admin_client: Client, project: Project) -> None:
    (step,) = run(
        project, {"messages": [{"role": "user", "content": f"{n}:{'x' * 9000}"} for n in range(MOST_ITEMS + 9)]}
    )
    page = read_input(primary, step)
    assert page is not None
    assert (len(page.messages), parts_of(page.messages[0])[0][2][:2], page.message_count) == (
        MOST_ITEMS,
        "9:",
        MOST_ITEMS + 9,
    )
    answer = in_panel(admin_client, step)
    assert len(answer.content) < 4_000_000
    assert "Only the newest messages are shown" in text_of(answer)


def test_message_of_many_parts_is_cut(admin_client: Client, project: Project) -> None:
    calls = [{"id": f"c{n}", "function": {"name": "look", "arguments": "{}"}} for n in range(2_000)]
    (step,) = run(project, {"messages": [{"role": "assistant", "content": "I look.", "tool_calls": calls}]})
    page = read_input(primary, step)
    assert page is not None
    (said,) = page.messages
    assert len(said.parts) + said.left_out == 2_001
    assert len(said.parts) < 250
    assert f"{said.left_out:,} more parts are not shown here." in text_of(in_panel(admin_client, step))


def test_input_of_trash_is_shown_and_missing_ones_are_said(
    admin_client: Client, client: Client, project: Project
) -> None:
    (step,) = run(project, asked(1))
    delete_message(primary, step.message_id, by="test")
    for page in (in_panel(admin_client, step), admin_client.get(url_of(step), follow=True)):
        assert "said 0" in text_of(page)
        assert "Download as JSON" not in text_of(page)
    Context.objects.filter(kind="input").delete()
    assert "no longer available" in text_of(in_panel(admin_client, step))
    other = url_of(step).replace(str(step.pk), str(Message.with_deleted.get().pk))
    for url in (other, f"{other}?part"):
        assert admin_client.get(url).headers["Location"] == "/admin/messages_app/message/"
    for url in (url_of(step), f"{url_of(step)}?part"):
        assert client.get(url).headers["Location"].startswith("/admin/login/")


def test_entry_of_the_audit_log_names_the_message(admin_client: Client, project: Project) -> None:
    (step,) = run(project, asked(1))
    in_panel(admin_client, step)
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.object_type, entry.object_id) == ("read", "message", str(step.message_id))
    assert entry.project_id == project.pk

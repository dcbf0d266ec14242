"""The search within a run: for its explorer, and as a form of its text."""

from __future__ import annotations

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from access_app.db import primary
from access_app.models import Project
from tests.admin_pages import html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import answer, store
from traces_app.admin.run_search import FIELD_LABELS
from traces_app.maintenance.search_index import index_changed
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.search import in_run
from traces_app.queries.search.texts import FIELDS

HOSTILE = "<script>alert(1)</script>\u202e"
STEPS = [
    {
        "iteration": 0,
        "thought": "Look for the refund.",
        "agent_name": "clerk",
        "tool_calls": [
            {"name": "search_orders", "args": {"query": "refund 5518"}, "result": {"output": "nothing"}},
            {
                "name": "search_orders",
                "args": {"query": "5518"},
                "result": {"success": False, "error": "Refund timeout"},
            },
        ],
    },
    {"iteration": 1, "thought": "Give up.", "tool_calls": [{"name": "refund", "args": {"text": HOSTILE}}]},
]


@pytest.fixture
def run(project: Project) -> UUID:
    message_id = store(project, answer(agent_steps=STEPS)).messages[0].id
    # Another run has the same words.
    store(project, answer(agent_steps=STEPS), external_id="other")
    assert message_id is not None
    return message_id


def search_of(client: Client, run: UUID, query: str) -> Any:
    return client.get(f"/admin/messages_app/message/{run}/search/", {"q": query}).json()


def found(client: Client, run: UUID, query: str) -> set[str]:
    """Return the names of the matches."""
    ids = {match["id"] for match in search_of(client, run, query)["matches"]}
    calls = {f"{call.tool.name} {call.position}" for call in ToolCall.objects.select_related("tool").filter(pk__in=ids)}
    names = calls | {f"step {step.iteration}" for step in AgentStep.objects.filter(pk__in=ids)}
    assert len(names) == len(ids)
    return names


@pytest.mark.parametrize("indexed", [True, False])
def test_steps_and_calls_of_the_run_are_found(staff: Client, run: UUID, indexed: bool) -> None:
    if indexed:
        index_changed(primary)
    assert found(staff, run, "REFUND") == {"step 0", "search_orders 0", "search_orders 1", "refund 0"}
    assert found(staff, run, "refund 5518") == {"search_orders 0", "search_orders 1"}
    assert found(staff, run, "refund -timeout") == {"step 0", "search_orders 0", "refund 0"}
    assert found(staff, run, "error:refund") == {"search_orders 1"}
    assert found(staff, run, "thought:give") == {"step 1"}
    assert found(staff, run, "agent:clerk") == {"step 0"}
    assert found(staff, run, '"look for"') == {"step 0"}
    assert found(staff, run, "absent") == set()


def test_match_has_the_place_of_each_term(staff: Client, run: UUID) -> None:
    (match,) = search_of(staff, run, "timeout args:5518")["matches"]
    assert match["places"] == [
        {"field": "Error", "before": "Refund ", "match": "timeout", "after": ""},
        {"field": "Arguments", "before": "query: ", "match": "5518", "after": ""},
    ]


def test_fault_of_query_is_said(staff: Client, run: UUID) -> None:
    faulty = search_of(staff, run, 'say "refund')
    assert "Character 5: This quotation mark has no partner." in faulty["error"]
    assert faulty["matches"] == []
    assert search_of(staff, run, "")["error"] != ""
    page = staff.get(f"/admin/messages_app/message/{run}/change/", {"q": "-refund"})
    assert "Character 1: Give at least one term of two characters" in text_of(page)


def test_very_many_matches_are_cut(staff: Client, run: UUID, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_run, "MOST_CALLS", 2)
    answer = search_of(staff, run, "refund")
    assert (len(answer["matches"]), answer["is_cut"]) == (3, True)


def test_form_lists_matches_in_reading_order(staff: Client, run: UUID) -> None:
    page = staff.get(f"/admin/messages_app/message/{run}/change/", {"q": "refund"})
    first = ToolCall.objects.get(message_id=run, tool__name="search_orders", position=0)
    assert (
        "Step 0 Thought: Look for the refund . Step 0 · search_orders Arguments: query: refund 5518"
        " Step 0 · search_orders Error: Refund timeout Step 1 · refund Tool: refund "
    ) in text_of(page)
    assert links_of(page)["Step 0 · search_orders"] == f"?call={first.pk}#call-{first.pk}"
    step = AgentStep.objects.get(message_id=run, iteration=0)
    assert links_of(page)["Step 0"] == f"?call={step.pk}#step-{step.pk}"
    hostile = staff.get(f"/admin/messages_app/message/{run}/change/", {"q": "alert"})
    assert "<script>alert" not in html_of(hostile)


def test_search_takes_few_queries(staff: Client, run: UUID) -> None:
    index_changed(primary)
    assert len(statements_of(staff, f"/admin/messages_app/message/{run}/search/?q=refund+5518")) <= 13


def test_search_needs_permission_and_a_message(staff: Client, run: UUID) -> None:
    url = f"/admin/messages_app/message/{run}/search/?q=refund"
    other = Client()
    assert other.get(url).status_code == 302
    other.force_login(User.objects.create_user("bob", is_staff=True))
    assert other.get(url).status_code == 403
    assert staff.get(f"/admin/messages_app/message/{uuid4()}/search/?q=refund").status_code == 404


def test_every_field_has_a_label() -> None:
    assert set(FIELDS) == set(FIELD_LABELS)
    with translation.override("zh-hans"):
        assert str(FIELD_LABELS["output"]) == "输出"

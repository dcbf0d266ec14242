"""Health flags: in the REST filters, the lists of the admin, and as labels on the page of a message."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.test import Client
from django.urls import reverse
from django.utils import translation

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import Project
from messages_app.models import Message
from tests.traces_app.conftest import answer, question, store
from traces_app.admin.flag_labels import FLAG_LABELS, losses_of, problems_of
from traces_app.events.store import record_events
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records import health_flags
from tracesite_sdk.records.health_flags import FLAGS, MISSING_RESULT
from tracesite_sdk.redaction.rules import DEFAULT_RULES


def call(**said: Any) -> dict[str, Any]:
    return {"id": "c1", "name": "search", "result": {"output": "one"}, **said}


def run(*calls: dict[str, Any], **said: Any) -> dict[str, Any]:
    return answer(agent_steps=[{"tool_calls": list(calls)}], **said)


ODD = {
    "fine": run(call()),
    "open": run(call(result=None), call(id="c2", result=None), is_completed=True),
    "running": run(call(result=None), is_completed=False),
    "repaired": run(call(id="call_abc1call_abc1")),
    "orphan": run(call(metadata={"orphan_result": True}), health=["orphan_result"]),
    "broken": run(call(args="{broken"), call(id="c2", args="{broken"), health=["mine"]),
}


@pytest.fixture
def named(project: Project) -> dict[str, Message]:
    for name, message in ODD.items():
        store(project, question(), message, external_id=name)
    return {message.session.external_id: message for message in Message.objects.filter(role="assistant")}


def test_flags_have_labels_in_both_languages() -> None:
    assert set(FLAG_LABELS) == set(FLAGS)
    constants = {value for name, value in vars(health_flags).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(FLAGS)


@pytest.mark.parametrize("way", ["messages/", "chains/"])
@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("missing_result", ["open"]),
        ("repaired_id", ["repaired"]),
        ("orphan_result", ["orphan"]),
        ("invalid_arguments", ["broken"]),
        ("naive_time", []),
    ],
)
def test_filter_by_health_flag_finds_messages(
    named: dict[str, Message],
    project: Project,
    client: Client,
    way: str,
    flag: str,
    expected: list[str],
) -> None:
    token = create_key(project, "reader", ["read"])[1]
    found = client.get(f"/api/v1/{way}", {"health": flag}, headers={"X-API-Key": token}).json()["results"]
    assert [str(named[name].pk) for name in expected] == [each.get("id") or each["chain_id"] for each in found]


def test_unknown_health_flag_is_refused_with_known_ones(project: Project, client: Client) -> None:
    token = create_key(project, "reader", ["read"])[1]
    error = client.get("/api/v1/messages/?health=ill", headers={"X-API-Key": token}).json()["error"]
    assert (error["code"], error["field"]) == ("invalid_input", "health")
    assert MISSING_RESULT in error["message"]


def test_problems_are_described_with_their_numbers(named: dict[str, Message]) -> None:
    assert {name: problems_of(primary, message) for name, message in named.items()} == {
        "fine": [],
        "open": ["2 calls without result"],
        "running": [],
        "repaired": ["1 repaired ID"],
        "orphan": ["1 result without call"],
        "broken": ["2 calls with invalid JSON arguments", "mine"],
    }
    with translation.override("zh-hans"):
        assert problems_of(primary, named["open"]) == ["2 个没有结果的调用"]


def test_admin_lists_names_and_filters_health_flags(named: dict[str, Message], admin_client: Client) -> None:
    url = reverse("admin:messages_app_message_changelist")
    page = admin_client.get(url, {"health": "repaired_id"})
    assert [row.pk for row in page.context["cl"].result_list] == [named["repaired"].pk]
    assert "repaired ID" in page.content.decode()
    page = admin_client.get(url, {"health": "missing_result"})
    assert [row.pk for row in page.context["cl"].result_list] == [named["open"].pk]
    page = admin_client.get(reverse("admin:messages_app_message_change", args=[named["open"].pk]))
    assert "2 calls without result" in page.content.decode()


def test_losses_of_recorder_are_described_in_sentences(project: Project, admin_client: Client) -> None:
    recorder = {"dropped": 12, "sampled_out": 3, "truncated": 1, "redacted": 2, "odd": "x"}
    store(project, question(), run(call(args={"password": "s3cret-word"}), metadata={"recorder": recorder}))
    asked, answered = Message.objects.order_by("pk")
    assert losses_of(primary, asked) == ([], "")
    assert losses_of(primary, answered) == (
        ["12 events were lost.", "3 calls were sampled out.", "1 value was truncated."],
        "2 secrets were redacted.",
    )
    with translation.override("zh-hans"):
        assert losses_of(primary, answered)[0][:2] == ["丢失了 12 个事件。", "3 个调用被采样舍弃。"]
    page = admin_client.get(reverse("admin:messages_app_message_change", args=[answered.pk])).content.decode()
    assert "12 events were lost. 3 calls were sampled out." in page


def test_own_redactions_are_described_and_non_counts_ignored(project: Project) -> None:
    secret = call(args={"password": "s3cret-word"})
    for name, recorder in (("odd", "broken"), ("none", {"dropped": "many"})):
        store(project, run(secret, metadata={"recorder": recorder}, health=["truncated"]), external_id=name)
    for message in Message.objects.all():
        assert losses_of(primary, message) == (["Values were truncated."], "1 secret was redacted.")


def test_redacted_secrets_alone_are_a_detail_and_no_loss(project: Project, admin_client: Client) -> None:
    store(project, run(call(args={"password": "s3cret-word"})))
    message = Message.objects.get()
    page = admin_client.get(reverse("admin:messages_app_message_change", args=[message.pk])).content.decode()
    assert "<dt>Redaction</dt><dd>1 secret was redacted.</dd>" in page
    assert "Missing from this trace" not in page


def test_losses_are_shown_to_readers_and_can_be_filtered(project: Project, client: Client) -> None:
    lost = {"dropped": 12, "sampled_out": 3}
    for name, said in (("lossy", {"recorder": lost}), ("whole", {})):
        document = {"session_id": name, "message_id": name, "type": "workflow_execute_start", "data": said}
        record_events(primary, project.pk, [redact_event(msgspec.convert(document, records.Event), DEFAULT_RULES)])
    token = create_key(project, "reader", ["read"])[1]
    for flag in ("events_dropped", "sampled"):
        found = client.get("/api/v1/messages/", {"health": flag}, headers={"X-API-Key": token}).json()["results"]
        assert [(one["external_id"], one["health"], one["metadata"]) for one in found] == [
            ("lossy", ["events_dropped", "sampled"], {"recorder": lost})
        ]
    assert client.get("/api/v1/messages/?health=truncated", headers={"X-API-Key": token}).json()["results"] == []

"""What the models of steps were asked: sent, read, exported, redacted, stored once, and removed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from messages_app.models import Message
from traces_app.ingest.pipeline import ingest
from traces_app.maintenance.integrity import Tally, check
from traces_app.maintenance.purge.purging import purge
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.purge.surveys import survey
from traces_app.models import AgentStep, Context
from traces_app.queries import contexts
from tracesite_sdk import records

from .conftest import Caller

AT = "2026-03-01T12:00:{:02}Z"
SYSTEM = "You plan trips. 你好\u0000"
TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("a", "b")]


def conversation(length: int) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[n % 2], "content": f"{n}: {'x' * 200}"} for n in range(length)]


def asked(length: int, **others: Any) -> dict[str, Any]:
    return {
        "messages": conversation(length),
        "system": SYSTEM,
        "tools": TOOLS,
        "parameters": {"temperature": 0.5},
    } | others


def run(name: str, *inputs: dict[str, Any], second: int = 0, **others: Any) -> dict[str, Any]:
    return {
        "role": "assistant",
        "external_id": name,
        "content": "Done.",
        "created_at": AT.format(second),
        "agent_steps": [{"input": one, "time_to_first_token": 80.4} for one in inputs],
        **others,
    }


def send(owner: Caller, *messages: dict[str, Any]) -> None:
    sent = owner.post("ingest/", {"sessions": [{"external_id": "trip", "messages": list(messages)}]})
    assert sent.status == 200, sent.json


def steps(caller: Caller, name: str = "one") -> list[dict[str, Any]]:
    message = Message.objects.get(external_id=name)
    found: list[dict[str, Any]] = caller.get(f"messages/{message.pk}/?expand=inputs").json["agent_steps"]
    return found


def problems() -> list[str]:
    return [f"{problem.kind}: {problem.detail}" for problem in check(primary, tally=Tally())]


def test_input_of_step_is_read_whole_with_its_message(owner: Caller, viewer: Caller) -> None:
    send(owner, run("one", asked(3), asked(5)))
    first, second = steps(viewer)
    stored = {**asked(3), "system": SYSTEM.replace("\x00", "\\u0000")}
    assert first["input"] == stored
    assert second["input"] == {**stored, "messages": conversation(5)}
    assert first["time_to_first_token"] == 80
    context = viewer.get(f"sessions/trip/contexts/{first['input_ref']}/").json
    assert (context["kind"], context["length"], context["input"]) == ("input", 3, stored)
    listed = viewer.get("messages/?session=trip").results[0]["agent_steps"][0]
    assert (listed["input_ref"], "input" in listed) == (first["input_ref"], False)
    assert viewer.get("messages/?expand=inputs").status == 400
    assert problems() == []


def test_conversation_that_grows_costs_one_message(owner: Caller) -> None:
    for number in range(20):
        send(owner, run(str(number), asked(2 * number + 1), asked(2 * number + 2), second=number))
    entries = Context.objects.filter(kind="entry")
    # 40 messages, two tools and the system prompt, although 40 requests repeat 820 messages.
    assert entries.count() == 40 + len(TOOLS) + 1
    assert Context.objects.filter(kind="input").count() == 40
    assert (
        sum(len(one.content["value"].get("content", "")) for one in entries if "role" in one.content["value"])
        < 40 * 210
    )


def test_input_that_comes_again_or_later_is_merged(owner: Caller, viewer: Caller) -> None:
    message = run("one", {"messages": conversation(1)}, is_completed=False)
    message["agent_steps"][0]["id"] = "s1"
    send(owner, message)
    send(owner, message)
    assert Context.objects.filter(kind="input").count() == 1
    send(owner, run("one", is_completed=False, agent_steps=[{"id": "s1", "input": asked(2)}]))
    assert steps(viewer)[0]["input"]["messages"] == conversation(2)
    send(owner, run("one", is_completed=False, agent_steps=[{"id": "s1", "thought": "Hm."}]))
    (step,) = steps(viewer)
    assert (step["thought"], step["input"]["messages"]) == ("Hm.", conversation(2))
    patched = owner.patch(
        f"messages/{Message.objects.get().pk}/", {"agent_steps": [{"input": asked(4)}]}, if_match='"3"'
    )
    assert patched.status == 200, patched.json
    assert [len(one["input"]["messages"]) for one in steps(viewer)] == [2, 4]
    assert problems() == []


def test_body_of_provider_request_is_input_with_parameters(owner: Caller, viewer: Caller) -> None:
    body = {"model": "gpt-5", "messages": conversation(1), "temperature": 0, "stream": True, "status": "x"}
    send(owner, run("one", body))
    parameters = {"model": "gpt-5", "temperature": 0, "stream": True, "status": "x"}
    assert steps(viewer)[0]["input"] == {"messages": conversation(1), "parameters": parameters}


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ("text", "sessions[0].messages[0].agent_steps[0].input"),
        ({"messages": "text"}, "sessions[0].messages[0].agent_steps[0].input.messages"),
        ({"tools": {}}, "sessions[0].messages[0].agent_steps[0].input.tools"),
        ({"parameters": []}, "sessions[0].messages[0].agent_steps[0].input.parameters"),
    ],
)
def test_input_of_wrong_type_is_refused_by_its_field(owner: Caller, given: Any, field: str) -> None:
    answer = owner.post("ingest/", {"sessions": [{"external_id": "trip", "messages": [run("one", given)]}]})
    assert answer.error == (400, "invalid_input", field)
    assert Message.objects.count() == 0


def test_secrets_in_inputs_are_redacted_with_receipt(owner: Caller, viewer: Caller) -> None:
    secret = "sk-ant-api03-" + "Ab3dE" * 18 + "-x9AA"
    given = {"messages": [{"role": "user", "content": f"My key is {secret}"}], "parameters": {"api_key": secret}}
    send(owner, run("one", {**given, "system": [{"text": secret}], "tools": [{"description": secret}]}))
    assert secret not in repr(list(Context.objects.values_list("content", flat=True)))
    redactions = viewer.get("messages/?session=trip&fields=redactions").results[0]["redactions"]
    assert {one["path"].partition("input.")[2].partition("[")[0].partition(".")[0] for one in redactions} == {
        "messages",
        "parameters",
        "system",
        "tools",
    }


def test_export_has_each_value_once_and_can_be_sent_back(owner: Caller, viewer: Caller, outsider: Caller) -> None:
    send(owner, run("one", *(asked(n) for n in range(1, 30))), run("two", asked(31), second=1))
    before = steps(viewer), steps(viewer, "two")
    exported = viewer.get("sessions/trip/export/")
    assert len(exported.json["contexts"]) == 31 + len(TOOLS) + 1
    assert len(exported.body) < 60_000
    first = exported.json["messages"][0]["agent_steps"][0]["input"]
    assert first["messages"] == [{"contextRef": first["messages"][0]["contextRef"]}]
    again = outsider.post("sessions/", exported.json)
    assert again.status == 201, again.json
    found = [message["id"] for message in outsider.get("messages/?order=asc").results]
    copies = [outsider.get(f"messages/{message_id}/?expand=inputs").json["agent_steps"] for message_id in found]
    assert [[step["input"] for step in one] for one in copies] == [[step["input"] for step in one] for one in before]


REFERENCE = {"contextRef": "ctx_large"}
LARGE = {"ctx_large": {"role": "user", "content": "x" * 2**20}}


@pytest.mark.parametrize("place", ["messages", "tools"])
def test_references_that_stand_for_too_much_are_refused(owner: Caller, place: str) -> None:
    # 64 MiB in a message, 256 MiB in a request; each is sent in a body of little more than 1 MiB.
    one = run("one", *({place: [REFERENCE] * 32} for _step in range(2)))
    many = [run(str(n), {place: [REFERENCE] * 50}) for n in range(6)]
    for messages, index in (([one], 0), (many, 5)):
        session = {"external_id": "trip", "messages": messages, "contexts": LARGE}
        path = f"messages[{index}].agent_steps"
        assert owner.post("sessions/", session).error == (413, "too_large", path)
        assert owner.post("ingest/", {"sessions": [session]}).error == (413, "too_large", f"sessions[0].{path}")
    halves = [{"external_id": str(n), "messages": many[n : n + 3], "contexts": LARGE} for n in (0, 3)]
    assert owner.post("ingest/", {"sessions": halves}).error == (
        413,
        "too_large",
        "sessions[1].messages[2].agent_steps",
    )
    assert Context.objects.count() == Message.objects.count() == 0


def test_repeated_inputs_that_are_too_large_are_not_read_at_once(
    owner: Caller, viewer: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(owner, run("one", asked(20)))
    # The same input in each step: it is stored once, and written for each of them.
    send(owner, run("two", *[asked(20)] * 3, second=1))
    size = viewer.get(f"sessions/trip/contexts/{steps(viewer)[0]['input_ref']}/").json["bytes"]
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 2 * size)
    one, two = (Message.objects.get(external_id=name).pk for name in ("one", "two"))
    assert viewer.get(f"messages/{one}/?expand=inputs").status == 200
    assert viewer.get(f"messages/{two}/?expand=inputs").error == (400, "inputs_too_large", None)
    assert viewer.get(f"messages/{two}/").status == 200
    (ref,) = {step["input_ref"] for step in viewer.get(f"messages/{two}/").json["agent_steps"]}
    assert viewer.get(f"sessions/trip/contexts/{ref}/").json["input"]["messages"] == conversation(20)
    assert viewer.get("sessions/trip/export/").status == 200
    # So is a list of many empty entries.
    monkeypatch.setattr(contexts, "MOST_INPUT_BYTES", 20 * 64)
    assert viewer.get(f"messages/{one}/?expand=inputs").error == (400, "inputs_too_large", None)


def test_entries_stay_while_one_run_refers_to_them(owner: Caller, viewer: Caller) -> None:
    send(owner, run("one", asked(4)), run("two", asked(2), second=1), run("three", asked(6), second=2))
    for name, left in (("three", 4), ("one", 2), ("two", 0)):
        before = steps(viewer, "two")
        viewer_before = [one["input"] for one in before]
        message = Message.objects.get(external_id=name)
        assert owner.delete(f"messages/{message.pk}/").status == 204
        scope = PurgeScope(deleted_before=timezone.now(), session_id=message.session_id)
        expected = {name: table.rows for name, table in survey(primary, scope).tables.items()}
        report = purge(primary, scope)
        assert {name: table.rows for name, table in report.tables.items()} == expected
        assert Context.objects.filter(kind="entry").count() == (left + len(TOOLS) + 1 if left else 0)
        if left:
            assert [one["input"] for one in steps(viewer, "two")] == viewer_before
            assert problems() == []
    assert Context.objects.count() == 0


def test_input_of_message_in_trash_is_hidden(owner: Caller, viewer: Caller) -> None:
    send(owner, run("one", asked(4)))
    (step,) = steps(viewer)
    url = f"sessions/trip/contexts/{step['input_ref']}/"
    message = Message.objects.get()
    assert owner.delete(f"messages/{message.pk}/").status == 204
    assert viewer.get(url).status == 404
    assert owner.post(f"messages/{message.pk}/restore/").status == 200
    assert viewer.get(url).json["input"] == step["input"]


def test_missing_parts_of_inputs_are_found_by_check(owner: Caller) -> None:
    send(owner, run("one", asked(4)))
    Context.objects.filter(kind="entry", content__value__content__startswith="2:").delete()
    step = AgentStep.objects.get()
    assert problems() == [f"input_missing: step {step.pk}: 1 of its entries"]
    Context.objects.filter(kind="input").delete()
    assert problems() == [f"input_missing: step {step.pk}: all of it"]


def test_many_new_messages_keep_their_inputs(project: Project, viewer: Caller) -> None:
    # More than are inserted at once, by COPY.
    messages = [run(str(n), asked(n % 7 + 1), second=n % 60) for n in range(250)]
    ingest(primary, project.pk, [_record("trip", messages)])
    assert Context.objects.filter(kind="entry").count() == 7 + len(TOOLS) + 1
    assert [len(steps(viewer, str(n))[0]["input"]["messages"]) for n in (0, 6, 249)] == [1, 7, 249 % 7 + 1]
    assert problems() == []


def _record(name: str, messages: list[dict[str, Any]]) -> records.Session:
    return msgspec.convert({"external_id": name, "messages": messages}, records.Session)

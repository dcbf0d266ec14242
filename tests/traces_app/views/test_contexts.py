"""/sessions/{id}/contexts/: contexts are read whole or in parts, and removed with their run."""

from __future__ import annotations

from typing import Any

from messages_app.models import Message, Session
from traces_app.models import AgentStep, Context, ToolCall
from tracesite_sdk.events.contexts import MOST

from .conftest import Caller

AT = "2026-03-01T12:00:00Z"
MESSAGES = [
    {"role": role, "content": f"{n}: 你好\u0000"} for n, role in enumerate(("system", "user", "assistant", "user"))
]
# U+0000 is stored as an escape, because PostgreSQL rejects it.
STORED = [{**one, "content": one["content"].replace("\u0000", "\\u0000")} for one in MESSAGES]
VARIABLES = {"city": "上海", "days": 3, "tokens\u0000": [1]}


def event(type_: str, number: int = 1, **fields: Any) -> dict[str, Any]:
    data = fields.pop("data", {})
    return {"session_id": "task-1", "type": type_, "id": f"e{number}", "timestamp": AT, "data": data, **fields}


def send(owner: Caller, *events: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the data of the session's events."""
    sent = owner.post("events/", list(events))
    assert (sent.status, sent.json["refused"]) == (200, [])
    return [one["data"] for one in owner.get("sessions/task-1/events/?limit=1000").results]


def test_conversation_and_variables_are_read_whole_and_in_parts(owner: Caller, viewer: Caller) -> None:
    (data,) = send(owner, event("llm_request_start", data={"conversation": MESSAGES, "variables": VARIABLES}))
    ref = data["contextRef"]
    assert data == {"conversationLength": 4, "variableNames": ["city", "days", "tokens\\u0000"], "contextRef": ref}
    about = {
        "ref": ref,
        "message_id": str(Message.objects.get().pk),
        "kind": "context",
        "length": 4,
        "bytes": Context.objects.get(ref=ref).size,
        "created_at": "2026-03-01T12:00:00.000000Z",
    }
    url = f"sessions/task-1/contexts/{ref}/"
    assert viewer.get("sessions/task-1/contexts/").json == {"results": [about], "next": None, "previous": None}
    variables = {"city": "上海", "days": 3, "tokens\\u0000": [1]}
    assert viewer.get(url).json == {**about, "conversation": STORED, "variables": variables}
    assert viewer.get(f"{url}conversation/").json == {"ref": ref, "length": 4, "entries": STORED}
    for last in (1, 3, 4, 5, 2**31 - 1):
        assert viewer.get(f"{url}conversation/", last=last).json["entries"] == STORED[-last:]
    assert viewer.get(f"{url}variables/").json == {"ref": ref, "variables": variables}
    chosen = viewer.get(f"{url}variables/", keys="days,city,nothing").json["variables"]
    assert chosen == {"city": "上海", "days": 3}
    assert viewer.get(f"{url}variables/", keys="tokens\x00").json["variables"] == {"tokens\\u0000": [1]}


def test_prompts_of_each_agent_are_stored_by_reference(owner: Caller) -> None:
    prompts = [("n1", "system", "Be kind."), ("n1", "user", "Weather?"), ("n2", "system", "Be kind.")]
    said = send(
        owner,
        *(
            {"taskId": "task-1", "type": "prompt", "ts": 1772366400000 + n, "payload": {"agentId": agent, "role": role, "text": text}}
            for n, (agent, role, text) in enumerate(prompts)
        ),
    )  # fmt: skip
    assert [(one["agentId"], one["kind"], one["length"]) for one in said] == [
        (agent, role, len(text)) for agent, role, text in prompts
    ]
    found = [owner.get(f"sessions/task-1/contexts/{one['contextRef']}/").json["text"] for one in said]
    assert found == [text for _agent, _role, text in prompts]
    assert said[0]["contextRef"] == said[2]["contextRef"]
    assert Context.objects.count() == 2


def test_growing_conversation_is_stored_once(owner: Caller) -> None:
    send(owner, *(event("llm_request_start", n, data={"messages": MESSAGES[:n]}) for n in (1, 2, 3)))
    send(
        owner,
        event("llm_request_start", 4, data={"messages": MESSAGES}),
        event("agent_start", 5, data={"messages": MESSAGES}),
    )
    assert Context.objects.filter(kind="entry").count() == 4
    assert Context.objects.filter(kind="conversation").count() == 4
    lengths = [one["length"] for one in owner.get("sessions/task-1/contexts/").results]
    assert sorted(lengths) == [1, 2, 3, 4]


def test_last_entries_of_conversation_of_any_length_are_read(owner: Caller) -> None:
    messages = [{"role": "user", "content": str(number % 700)} for number in range(1500)]
    (data,) = send(owner, event("llm_request_start", data={"messages": messages}))
    assert Context.objects.count() == 701
    url = f"sessions/task-1/contexts/{data['contextRef']}/conversation/"
    assert owner.get(url).json["entries"] == messages
    assert owner.get(url, last=3).json == {"ref": data["contextRef"], "length": 1500, "entries": messages[-3:]}


def test_session_lists_the_references_of_its_contexts(owner: Caller) -> None:
    tree = {"name": "Weather", "agents": [{"id": "n1"}]}
    said = send(
        owner,
        event("workflow_plan_complete", 1, data={"workflow": tree}),
        event("prompt_build", 2, agent="n1", data={"kind": "system", "text": "Be kind."}),
        event("llm_request_complete", 3, agent="n1", data={"usage": {"input_tokens": 3, "output_tokens": 2}}),
    )
    owner.patch("sessions/task-1/", {"metadata": {"customer": 7}})
    session = owner.get("sessions/task-1/").json
    assert {name: session[name] for name in ("workflow", "resources", "metadata", "last_event", "context_refs")} == {
        "workflow": tree,
        "resources": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "duration": 0},
        "metadata": {"customer": 7},
        "last_event": 3,
        "context_refs": [said[1]["contextRef"]],
    }
    assert owner.get("sessions/task-1/?fields=last_event").json == {"last_event": 3}
    # Derived fields are not accepted in input.
    owner.post("sessions/", {**session, "id": None, "external_id": "copy"})
    assert Session.objects.get(external_id="copy").metadata == {"customer": 7}


def test_missing_reference_and_other_kind_have_distinct_errors(owner: Caller, outsider: Caller) -> None:
    prompt, talk, variables = (
        one["contextRef"]
        for one in send(
            owner,
            event("prompt_build", 1, data={"text": "Be kind."}),
            event("llm_request_start", 2, data={"messages": MESSAGES}),
            event("llm_request_start", 3, data={"variables": VARIABLES}),
        )
    )
    entry = Context.objects.filter(kind="entry").values_list("ref", flat=True)[0]
    for path in (f"{prompt}/conversation/", f"{variables}/conversation/"):
        assert owner.get(f"sessions/task-1/contexts/{path}").error == (400, "no_conversation", "ref")
    for path in (f"{prompt}/variables/", f"{talk}/variables/"):
        assert owner.get(f"sessions/task-1/contexts/{path}").error == (400, "no_variables", "ref")
    for ref in ("ctx_0", entry, "a\x00b", "%00"):
        for rest in ("", "conversation/", "variables/"):
            assert owner.get(f"sessions/task-1/contexts/{ref}/{rest}").error == (404, "context_not_found", "ref")
    assert outsider.get(f"sessions/task-1/contexts/{prompt}/").error[:2] == (404, "session_not_found")
    assert outsider.get("sessions/task-1/contexts/").error[:2] == (404, "session_not_found")
    for query in ("last=0", "last=-1", "last=x", "last=9999999999", "first=1"):
        assert owner.get(f"sessions/task-1/contexts/{talk}/conversation/?{query}").status == 400
    for method in (owner.post, owner.patch):
        assert method(f"sessions/task-1/contexts/{talk}/", {}).status == 405


def test_contexts_are_read_page_by_page(owner: Caller) -> None:
    send(owner, *(event("prompt_build", n, data={"text": f"prompt {n}"}) for n in range(45)))
    seen: list[str] = []
    path = "sessions/task-1/contexts/?limit=20"
    cursor = ""
    while True:
        page = owner.get(f"{path}{cursor}").json
        seen += [one["ref"] for one in page["results"]]
        if page["next"] is None:
            break
        cursor = f"&cursor={page['next']}"
    assert (len(seen), len(set(seen))) == (45, 45)
    assert len(owner.get("sessions/task-1/").json["context_refs"]) == 20


def test_large_value_is_stored_by_reference_and_whole_in_rows(owner: Caller) -> None:
    args, result, thought = {"text": "a" * MOST}, "结" * MOST, "t" * MOST
    plan = {"name": "Large", "agents": [{"id": "n1", "task": "w" * MOST}]}
    said = [
        event("workflow_plan_complete", 1, data={"workflow": plan}),
        event("llm_request_complete", 2, agent="n1", data={"step": "s1", "thought": thought}),
        event("tool_call_start", 3, agent="n1", data={"step": "s1", "call_id": "c1", "name": "write", "args": args}),
        event("tool_call_complete", 4, agent="n1", data={"call_id": "c1", "result": result}),
        # Earlier events are folded again with each addition.
        event("tool_call_complete", 5, agent="n1", data={"call_id": "c1", "duration": 7}),
        event("llm_request_complete", 6, agent="n1", data={"step": "s1", "model": "gpt"}),
        event("tool_call_error", 7, agent="n1", data={"call_id": "c2", "name": "read", "error": "No such file."}),
        event("workflow_execute_complete", 8, data={"result": result}),
    ]
    for one in said:
        events = send(owner, one)
    call = ToolCall.objects.select_related("result").get(call_id="c1")
    assert (call.args, call.result.output, call.duration_ms) == (args, result, 7)
    assert AgentStep.objects.get().thought == thought
    assert (Session.objects.get().workflow, Session.objects.get().title) == (plan, "Large")
    assert Message.objects.get(role="assistant").content == result
    refs = [one["contextRefs"] for one in events if "contextRefs" in one]
    assert [list(one) for one in refs] == [["workflow"], ["thought"], ["args"], ["result"], ["result"]]
    assert refs[3] == refs[4]
    assert refs[3]["result"] == {
        "contextRef": refs[3]["result"]["contextRef"],
        "bytes": 3 * MOST + 2,
        "beginning": "结" * 200,
    }
    whole = owner.get(f"sessions/task-1/contexts/{refs[3]['result']['contextRef']}/").json
    assert (whole["kind"], whole["value"]) == ("value", result)
    assert events[6] == {"call_id": "c2", "name": "read", "error": "No such file."}
    back = owner.post("events/", owner.get("sessions/task-1/events/").results)
    assert {one["state"] for one in back.json["results"]} == {"duplicate"}


def test_secrets_in_contexts_are_redacted(owner: Caller) -> None:
    secret = "sk-proj-" + "a1B2" * 10
    (data, other) = send(
        owner,
        event(
            "llm_request_start",
            1,
            data={"messages": [{"content": f"use {secret}"}], "variables": {"password": "hunter2"}},
        ),
        event("prompt_build", 2, data={"text": f"key {secret}"}),
    )
    assert [one["path"] for one in data["redactions"]] == ["data.messages[0].content", "data.variables.password"]
    for one in (data, other):
        body = owner.get(f"sessions/task-1/contexts/{one['contextRef']}/").body.decode()
        assert secret not in body
        assert "hunter2" not in body


def test_contexts_of_deleted_run_are_hidden_until_restored(owner: Caller) -> None:
    one, other = (
        data["contextRef"]
        for data in send(
            owner,
            event("prompt_build", 1, message_id="run-1", data={"text": "one"}),
            event("prompt_build", 2, message_id="run-2", data={"text": "other"}),
        )
    )
    both = send(owner, event("prompt_build", 3, message_id="run-1", data={"text": "other"}))
    assert both[-1]["contextRef"] == other
    assert Context.objects.count() == 3
    run = Message.objects.get(external_id="run-1")

    def seen() -> set[str]:
        return {found["ref"] for found in owner.get("sessions/task-1/contexts/").results}

    owner.delete(f"messages/{run.pk}/")
    assert seen() == set(owner.get("sessions/task-1/").json["context_refs"]) == {other}
    assert owner.get(f"sessions/task-1/contexts/{one}/").status == 404
    # Another run refers to it, too.
    assert owner.get(f"sessions/task-1/contexts/{other}/").json["text"] == "other"
    owner.post(f"messages/{run.pk}/restore/")
    assert seen() == {one, other}
    owner.delete("sessions/task-1/")
    assert owner.get(f"sessions/task-1/contexts/{one}/").error[:2] == (404, "session_not_found")
    owner.post("sessions/task-1/restore/")
    assert seen() == {one, other}


def test_refused_events_store_no_contexts(owner: Caller) -> None:
    send(owner, event("prompt_build", 1, data={"text": "one"}))
    owner.delete("sessions/task-1/")
    sent = owner.post("events/", event("prompt_build", 2, data={"text": "two"}))
    assert [one["state"] for one in sent.json["results"]] == ["refused"]
    assert Context.objects.count() == 1


def test_references_of_a_sender_are_not_replaced_by_values(owner: Caller) -> None:
    """Each reference of a few bytes would become a value of megabytes in the row of its call."""

    def event(number: int, type_: str, call: str, **data: Any) -> dict[str, Any]:
        about = {"id": f"f{number}", "session_id": "task-f", "message_id": "run-f", "type": type_, "timestamp": AT}
        return {**about, "data": {"call_id": call, "name": "read", **data}}

    large = {"text": "y" * 4 * MOST}
    assert owner.post("events/", {"events": [event(0, "tool_call_start", "c0", args=large)]}).status == 200
    (stored,) = owner.get("sessions/task-f/events/").results
    refs = stored["data"]["contextRefs"]
    starts = [event(n, "tool_call_start", f"c{n}", contextRefs=refs) for n in range(1, 9)]
    ends = [event(n + 10, "tool_call_complete", f"c{n}", result="done") for n in range(9)]
    for events in (starts, ends):
        assert owner.post("events/", {"events": events}).status == 200

    calls = {call.call_id: call for call in ToolCall.objects.all()}
    assert calls.pop("c0").args == large
    assert [call.args for call in calls.values()] == [{}] * 8
    # What is not there is said.
    assert {call.metadata["truncated"][0]["bytes"] for call in calls.values()} == {refs["args"]["bytes"]}
    assert Message.objects.get(role="assistant").health == ["truncated"]
    data = owner.get("sessions/task-f/events/").results[8]["data"]
    assert (data["sentContextRefs"], "contextRefs" in data) == (refs, False)

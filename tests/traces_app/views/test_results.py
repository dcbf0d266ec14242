"""Results of any shape over HTTP, normalized to one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from .conftest import Caller

ROWS = [{"城市": "上海", "总数": 3}]
ENVELOPE = {"success": True, "data": {"rows": ROWS}, "error": None, "execution_time": 0.25}
PNG = "iVBORw0KGgo" + "A" * 121


def stored(owner: Caller, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Store the calls of one message; return them as read."""
    sent = [{"name": "query", "id": f"call_{place}", **call} for place, call in enumerate(calls)]
    message = {"role": "assistant", "external_id": "a1", "agent_steps": [{"tool_calls": sent}]}
    session = {"external_id": "s1", "messages": [message]}
    for _time in range(2):
        # Sending it again changes nothing.
        assert owner.post("ingest/", {"sessions": [session]}).status == 200
    (found,) = owner.get("messages/", session="s1").results
    calls_found: list[dict[str, Any]] = found["agent_steps"][0]["tool_calls"]
    return calls_found


def test_object_and_its_encoded_json_give_one_record(owner: Caller) -> None:
    once = json.dumps(ENVELOPE)
    thrice = json.dumps(json.dumps(once))
    results = [call["result"] for call in stored(owner, *({"result": said} for said in (ENVELOPE, once, thrice)))]
    expected = {
        "status": "success",
        "success": True,
        "output": "",
        "data": {"rows": ROWS},
        "metadata": {"execution_time": 0.25},
    }
    assert results == [expected, {**expected, "raw": once}, {**expected, "raw": thrice}]


def test_text_blocks_and_mcp_results_are_normalized(owner: Caller) -> None:
    content = [{"type": "text", "text": "No such table."}, {"type": "image", "data": PNG, "mimeType": "image/png"}]
    image = {"type": "image", "media_type": "image/png", "data": PNG}
    calls = stored(
        owner,
        {"result": "0 errors found"},
        {"result": "Error: no such table"},
        {"result": content},
        {"result": {"content": content, "isError": True}},
        {"result": {"rows": ROWS}},
        {"result": None},
    )
    assert [call["status"] for call in calls] == ["success", "error", "success", "error", "success", "pending"]
    assert [call["result"] for call in calls] == [
        {"status": "success", "success": True, "output": "0 errors found"},
        {"status": "error", "success": False, "output": "Error: no such table", "error": "Error: no such table"},
        {"status": "success", "success": True, "output": "No such table.", "attachments": [image]},
        {
            "status": "error",
            "success": False,
            "output": "No such table.",
            "error": "No such table.",
            "attachments": [image],
        },
        {"status": "success", "success": True, "output": '{"rows":[{"城市":"上海","总数":3}]}', "data": {"rows": ROWS}},
        None,
    ]


def test_separate_output_and_data_are_unchanged(owner: Caller) -> None:
    said = {
        "status": "success",
        "success": True,
        "output": 'Error: see {"success": false}',
        "data": {"error": "kept", "text": '{"a": 1}'},
        "metadata": {"cached": True},
    }
    (call,) = stored(owner, {"result": said})
    assert call["result"] == said


@pytest.mark.parametrize("status", ["done", "failed", "SUCCESS", "", 1, True])
def test_call_status_other_than_the_three_is_refused(owner: Caller, status: Any) -> None:
    message = {"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "status": status}]}]}
    answer = owner.post("ingest/", {"sessions": [{"external_id": "s1", "messages": [message]}]})
    assert answer.status == 400
    assert answer.error[2] is not None
    assert answer.error[2].endswith("status")
    assert owner.get("sessions/").results == []


@pytest.mark.parametrize("status", ["done", "shipped", 1, True])
def test_other_status_in_a_result_is_data_of_the_tool(owner: Caller, status: Any) -> None:
    (call,) = stored(owner, {"result": {"status": status}})
    assert (call["status"], call["result"]["data"]) == ("success", {"status": status})


def test_schema_describes_the_contract_of_a_result(client: Client) -> None:
    document = client.get("/api/v1/schema/", headers={"Accept": "application/json"}).json()
    schemas = document["components"]["schemas"]
    result = schemas["ToolResult"]["properties"]
    status = result["status"]
    status = schemas[status["$ref"].rpartition("/")[2]] if "$ref" in status else status
    assert sorted(status["enum"]) == ["error", "pending", "success"]
    assert result.keys() == {"status", "success", "output", "data", "error", "metadata", "attachments", "raw"}


def test_calls_without_name_or_valid_arguments_are_flagged(owner: Caller) -> None:
    args = {"sql_query": "SELECT 1", "connection_id": "c", "timeout": 30}
    failure = {"status": "error", "error": "Malformed arguments."}
    named, nameless, broken = stored(
        owner, {"args": args}, {"name": " ", "args": args}, {"args": '{"sql": ', "result": failure}
    )
    assert (named["args"], nameless["name"], nameless["args"]) == (args, "", args)
    assert (broken["args"], broken["status"]) == ({"_raw": '{"sql": '}, "error")
    (message,) = owner.get("messages/", session="s1").results
    assert message["health"] == ["empty_tool_name", "invalid_arguments"]


def test_calls_have_distinct_ids(owner: Caller) -> None:
    doubled = {"id": "call_7call_7", "name": "queryquery"}
    folded, again, made, other = stored(owner, doubled, {"id": "call_7"}, {"id": None}, {"id": None})
    assert (folded["id"], again["id"]) == ("call_7", "call_7")
    assert folded["metadata"] == {"repaired_id": "call_7call_7", "repaired_name": "queryquery"}
    assert made["id"] == f"call_{made['uuid'][-12:]}" != other["id"]
    assert len({call["uuid"] for call in (folded, again, made, other)}) == 4
    (found,) = owner.get("tool-calls/", call_id=made["id"]).results
    assert found["uuid"] == made["uuid"]


def test_generated_call_id_does_not_replace_a_given_one(owner: Caller) -> None:
    stored(owner, {"uuid": "mine", "id": "call_said"})
    (call,) = stored(owner, {"uuid": "mine", "id": None, "result": "Done."})
    assert (call["id"], call["status"]) == ("call_said", "success")


def test_handoff_is_returned_complete(owner: Caller) -> None:
    (call,) = stored(owner, {"name": "transfer_to_billing"})
    assert (call["status"], call["result"], call["metadata"]) == ("success", None, {"handoff_to": "billing"})

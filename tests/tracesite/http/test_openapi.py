"""Test the OpenAPI document against the routes, and responses against the document."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import URLPattern, get_resolver
from drf_spectacular.drainage import GENERATOR_STATS
from drf_spectacular.validation import validate_schema

from access_app.keys import create_key
from tests.traces_app.conftest import answer, question, store
from traces_app import urls
from tracesite.http.api_root import schema
from tracesite_sdk.records.snapshot_parts import ref_of

METHODS = {"get", "post", "patch", "delete"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(schema()))
    return found


def test_schema_is_generated_without_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    schema.cache_clear()
    GENERATOR_STATS.reset()
    schema()
    assert capsys.readouterr().err == ""


def test_schema_is_valid_openapi_3_1(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    validate_schema(document)


def test_schema_is_served_without_key(document: dict[str, Any]) -> None:
    answer = Client().get("/api/v1/schema/")
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, "application/json")
    served = answer.json()
    # Its example is for the address under which one reads it.
    example = "http://127.0.0.1:8000/api/v1/ingest/"
    assert example in document["info"]["description"]
    words = document["info"]["description"].replace(example, "http://testserver/api/v1/ingest/")
    assert served == {**document, "info": {**document["info"], "description": words}}


def test_schema_has_every_route_and_method(document: dict[str, Any]) -> None:
    expected = {
        "/api/v1/" + re.sub(r"<\w+:(\w+)>", r"{\1}", str(pattern.pattern)): METHODS & set(pattern.callback.actions)
        for pattern in urls.urlpatterns
        if isinstance(pattern, URLPattern)
    }
    assert {path: set(operations) & METHODS for path, operations in document["paths"].items()} == expected


def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    names = [one["operationId"] for operations in document["paths"].values() for one in operations.values()]
    assert len(names) == len(set(names))
    assert {"list_sessions", "create_session_message", "update_message", "restore_session", "ingest"} <= set(names)


def test_operations_document_summary_access_and_errors(document: dict[str, Any]) -> None:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorAnswer"}}}
    for operations in document["paths"].values():
        for operation in operations.values():
            assert operation["summary"], operation["operationId"]
            assert {"bearer": []} in operation["security"]
            assert {"401", "403", "default"} <= set(operation["responses"])
            for status, response in operation["responses"].items():
                if status == "204":
                    assert "content" not in response
                elif status[0] in "4d":
                    assert response["content"] == error
                else:
                    assert response["content"]["application/json"]["schema"], operation["operationId"]


def test_writes_document_their_bodies(document: dict[str, Any]) -> None:
    bodies = {
        one["operationId"]: set(one["requestBody"]["content"])
        for operations in document["paths"].values()
        for one in operations.values()
        if "requestBody" in one
    }
    assert len(bodies) > 10
    upload = {"application/json", "application/octet-stream", "multipart/form-data"}
    assert bodies.pop("import_transcripts") == upload
    # Generators of clients warn of each other media type, and of application/x-ndjson, which these accept, too.
    assert set(map(frozenset, bodies.values())) == {frozenset({"application/json"})}


def test_schema_references_resolve(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for part in text.split('"$ref": "#/components/schemas/')[1:]:
        assert part.partition('"')[0] in document["components"]["schemas"]


def test_input_and_output_are_separate_components(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert {"Message", "MessageInput", "FoundSession", "SessionInput", "ToolCall", "ToolCallInput"} <= set(schemas)
    assert schemas["MessageInput"]["required"] == ["role"]
    assert schemas["ToolResult"]["required"] == ["status", "success", "output"]
    assert schemas["ToolCall"]["properties"]["args"] == {"$ref": "#/components/schemas/JsonObject"}


def test_component_title_matches_its_name(document: dict[str, Any]) -> None:
    schemas = {name: schema for name, schema in document["components"]["schemas"].items() if "oneOf" not in schema}
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}


def test_time_limits_say_that_they_take_dates(document: dict[str, Any]) -> None:
    limits = [
        parameter
        for path in document["paths"].values()
        for operation in path.values()
        for parameter in operation.get("parameters", ())
        if parameter["name"] in ("created_after", "created_before", "before_time")
    ]
    assert len(limits) > 10
    assert all("A date means 00:00 UTC; a time needs a zone" in limit["description"] for limit in limits)
    assert all([one["format"] for one in limit["schema"]["anyOf"]] == ["date-time", "date"] for limit in limits)


def test_request_fields_and_parameters_have_descriptions(document: dict[str, Any]) -> None:
    fields = {
        f"{name}.{field}": property_.get("description")
        for name, schema in document["components"]["schemas"].items()
        if name.endswith("Input")
        for field, property_ in schema["properties"].items()
    }
    parameters = {
        f"{operation['operationId']} {parameter['name']}": parameter.get("description")
        for operations in document["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    }
    assert [name for name, text in {**fields, **parameters}.items() if not text] == []
    assert fields["MessageInput.is_completed"] == "false while the answer is being generated. Default: true."
    assert fields["ToolCallInput.duration"] == "Milliseconds. Default: from `started_at` to `completed_at`."


def test_durations_are_milliseconds_except_in_chains(document: dict[str, Any]) -> None:
    units = {
        name: schema["properties"]["duration"]["description"].split()[0].strip(".,;")
        for name, schema in document["components"]["schemas"].items()
        if "duration" in schema.get("properties", ())
    }
    assert {name for name, unit in units.items() if unit == "Seconds"} == {"Chain", "ChainCall", "ChainSummary"}
    assert set(units.values()) == {"Seconds", "Milliseconds"}


def test_tool_call_input_requires_name(document: dict[str, Any]) -> None:
    call = document["components"]["schemas"]["ToolCallInput"]
    assert call["required"] == ["name"]
    assert call["properties"]["name"]["type"] == "string"


def test_forms_do_not_begin_with_nulls(document: dict[str, Any]) -> None:
    defaults = {
        f"{name}.{field}"
        for name, schema in document["components"]["schemas"].items()
        for field, property_ in schema.get("properties", {}).items()
        if property_.get("default", "") is None
    }
    assert defaults == set()


def test_query_parameters_match_filters(document: dict[str, Any]) -> None:
    nested = document["paths"]["/api/v1/sessions/{session_id}/messages/"]["get"]["parameters"]
    flat = document["paths"]["/api/v1/messages/"]["get"]["parameters"]
    names = {one["name"] for one in flat}
    assert {"role", "tool", "tool_status", "before_time", "cursor", "limit", "fields", "expand", "session"} <= names
    assert {one["name"] for one in nested} == names - {"session"} | {"session_id"}
    tool = next(one for one in flat if one["name"] == "tool")
    assert (tool["schema"], tool["explode"]) == ({"type": "array", "items": {"type": "string"}}, True)


def test_lists_of_words_may_be_repeated(project: Any, client: Client) -> None:
    store(project, question())
    token = create_key(project, "agent", ["read"])[1]
    for query in ("fields=id,role", "fields=id&fields=role"):
        [message] = client.get(f"/api/v1/messages/?{query}", headers={"X-API-Key": token}).json()["results"]
        assert set(message) == {"id", "role"}


def test_responses_match_schema(document: dict[str, Any], project: Any, client: Client, staff: Client) -> None:
    outcome = store(project, question(), answer(knowledge_references=[{"content": "x", "metadata": {"a": 1}}]))
    token = create_key(project, "agent", ["read", "write", "delete"])[1]
    call = client.get("/api/v1/tool-calls/?status=error", headers={"X-API-Key": token}).json()["results"][0]["uuid"]
    request_data = {"conversation": [{"role": "user"}, "Hello"], "variables": {"city": "Shanghai"}}
    event = {"session_id": str(outcome.id), "type": "llm_request_start", "data": request_data}
    client.post("/api/v1/events/", event, content_type="application/json", headers={"X-API-Key": token})
    (ref,) = client.get(f"/api/v1/sessions/{outcome.id}/", headers={"X-API-Key": token}).json()["context_refs"]
    score = {"name": "helpful", "value": 1, "message_id": str(outcome.messages[1].id)}
    sent = client.post("/api/v1/scores/", score, content_type="application/json", headers={"X-API-Key": token}).json()
    part = ref_of(b"{}")
    snapshot = {"id": "s", "ts": 10**18, "node_ids": ["plan"], "context_ref": part}
    body = {"session_id": str(outcome.id), "snapshot": snapshot, "parts": {part: {}}}
    assert client.post("/api/v1/snapshots/", body, content_type="application/json", headers={"X-API-Key": token}).status_code == 201  # fmt: skip
    # Keys do not read the audit log.
    entry = staff.get("/api/v1/audit/").json()["results"][0]["id"]
    ids = {"entry_id": entry, "snapshot_id": "s", "score_id": sent["id"], "session_id": outcome.id, "message_id": outcome.messages[1].id, "call_id": call, "chain_id": outcome.messages[1].id, "ref": ref}  # fmt: skip
    for path, operations in document["paths"].items():
        if "get" in operations:
            query = {
                "/api/v1/search/": {"q": "weather"},
                "/api/v1/tools/examples/": {"tool": "get_weather"},
                "/api/v1/compare/": {"left": str(outcome.id), "right": str(outcome.id)},
                "/api/v1/read/outline/": {"run": str(outcome.id)},
                "/api/v1/read/step/": {"run": str(outcome.messages[1].id), "step": "1"},
                "/api/v1/read/call/": {"call": call},
                "/api/v1/read/compare/": {"run": str(outcome.id), "other": str(outcome.id)},
                "/api/v1/read/error-group/": {"call": call, "created_after": "2000-01-01"},
                "/api/v1/read/search/": {"q": "weather"},
                "/api/v1/sessions/{session_id}/replay/": {"node": "plan"},
                "/api/v1/sessions/{session_id}/snapshots/parts/": {"refs": part},
            }.get(path)
            headers = {} if path.startswith("/api/v1/audit/") else {"X-API-Key": token}
            response = (client if headers else staff).get(path.format(**ids), query, headers=headers)
            body = b"".join(response) if response.streaming else response.content
            assert response.status_code == 200, path
            expected = operations["get"]["responses"]["200"]["content"]["application/json"]["schema"]
            check(json.loads(body), expected, document, path)
    missing = client.get("/api/v1/sessions/none/", headers={"X-API-Key": token})
    check(missing.json(), {"$ref": "#/components/schemas/ErrorAnswer"}, document, "error")


def check(value: Any, expected: dict[str, Any], document: dict[str, Any], path: str) -> None:
    """Assert that `value` fits the schema and has no field that the schema does not name."""
    if "$ref" in expected:
        name = expected["$ref"].rpartition("/")[2]
        return check(value, document["components"]["schemas"][name], document, f"{path} {name}")
    if "anyOf" in expected:
        options = [one for one in expected["anyOf"] if ("null" in str(one.get("type"))) == (value is None)]
        assert options, f"{path}: {value!r} fits none of {expected['anyOf']}"
        return check(value, options[0], document, path) if len(options) == 1 else None
    kinds: dict[str, Any] = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool, "null": type(None)}  # fmt: skip
    if "type" in expected:
        assert isinstance(value, kinds[expected["type"]]), f"{path}: {value!r} is no {expected['type']}"
    if "enum" in expected:
        assert value in expected["enum"], path
    if isinstance(value, dict) and "properties" in expected:
        assert set(expected.get("required", ())) <= set(value) <= set(expected["properties"]), path
        for name, item in value.items():
            check(item, expected["properties"][name], document, f"{path}.{name}")
    elif isinstance(value, dict) and isinstance(expected.get("additionalProperties"), dict):
        for name, item in value.items():
            check(item, expected["additionalProperties"], document, f"{path}.{name}")
    elif isinstance(value, list) and "items" in expected:
        for item in value:
            check(item, expected["items"], document, f"{path}[]")
    return None


def test_api_root_links_every_list() -> None:
    found = Client().get("/api/v1/").json()
    paths = Client().get("/api/v1/schema/").json()["paths"]
    # Those that belong to something are named where it is.
    lists = {path.split("/")[3] for path in paths if "{" not in path and path.count("/") == 4}
    assert lists - {"eko", "recorder", "snapshots"} - set(found) == set(), "Add these to _ROUTES of api_root.py."
    for url in found.values():
        assert get_resolver().resolve(url.removeprefix("http://testserver"))

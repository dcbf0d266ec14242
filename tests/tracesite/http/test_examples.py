"""Test the examples of the OpenAPI document: each operation has some, they fit their schemas, and the server answers like them.

The answers are those to the examples of requests. `RECORD_EXAMPLES=1` writes them into traces_app/views/answers.json.
"""

from __future__ import annotations

import json
import os
import re
from hashlib import md5
from itertools import count
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.files.base import ContentFile
from django.test import Client
from django.test.client import encode_multipart
from jsonschema import Draft202012Validator

from access_app.keys import create_key
from access_app.models import Project
from tests.tracesite.http.test_openapi import check
from traces_app.views import examples
from tracesite.http.api_root import schema

FILE = Path(examples.__file__).with_name("answers.json")
KEY_IDS = {
    "message_id": examples.MESSAGE_ID,
    "call_id": examples.CALL_ID,
    "score_id": examples.SCORE_ID,
    "ref": examples.CONTEXT_REF,
}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
NOW = re.compile(r"2\d{3}-(?!03-01T12:00:0\d)\d\d-\d\dT[\d:.]+Z")
OF_EVENTS = {"session_id": "task-7"}
ERROR_GROUP = md5(b"The station did not answer.").hexdigest()
# Operations in the order in which they have something to answer, with their parameters.
STORY: dict[str, dict[str, str]] = {
    **dict.fromkeys(("ingest", "send_events", "send_eko_callbacks", "import_transcripts", "create_session"), {}),
    **dict.fromkeys(("create_session_message", "create_snapshot", "create_score", "update_score"), {}),
    "list_tool_calls": {"status": "error", "limit": "1"},
    "search": {"q": "weather", "limit": "1"},
    "compare": {"left": "weather-1", "right": "weather-2"},
    "get_tool_examples": {"tool": "get_weather"},
    "get_tool_statistics": {"tool": "get_weather"},
    "find_similar_runs": {"limit": "1"},
    **dict.fromkeys(("list_scores", "list_tools"), {"limit": "1"}),
    "list_sessions": {"external_id": "weather-1"},
    "list_messages": {"tool_status": "error", "limit": "1"},
    "list_chains": {"has_errors": "true", "limit": "1"},
    "list_session_messages": {"limit": "2"},
    "list_session_events": {**OF_EVENTS, "limit": "2"},
    **dict.fromkeys(("list_session_contexts", "get_session_context", "get_conversation", "get_variables"), OF_EVENTS),
    "get_replay": {"node": examples.SNAPSHOT[0].value["snapshot"]["node_ids"][0]},
    "get_snapshot_parts": {"refs": examples.SNAPSHOT[0].value["snapshot"]["context_ref"]},
    "list_audit_entries": {"limit": "1"},
    **dict.fromkeys(("read_failures", "read_tools", "read_cost"), {"created_after": "2000-01-01"}),
    "read_outline": {"run": "weather-2"},
    "read_compare": {"run": "weather-2", "other": "weather-1"},
    "read_step": {"run": "weather-2", "step": "0"},
    "read_call": {"run": "weather-2", "call": "0/0"},
    "read_search": {"q": "weather"},
    "read_error_group": {"group": ERROR_GROUP, "created_after": "2000-01-01"},
}
AT_LAST = [
    "update_session", "update_message", "update_session_message", "delete_session_message", "restore_session_message",
    "delete_message", "restore_message", "delete_session_snapshots", "delete_score", "delete_session", "restore_session",
]  # fmt: skip


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(schema()))
    return found


def operations(document: dict[str, Any]) -> dict[str, tuple[str, str, dict[str, Any]]]:
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def contents(operation: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the bodies of an operation that have to have an example: all requests, and results in JSON."""
    found = {
        f"request {kind}": content for kind, content in operation.get("requestBody", {}).get("content", {}).items()
    }
    for status in ("200", "201"):
        content = operation["responses"].get(status, {}).get("content", {}).get("application/json")
        found |= {f"response {status}": content} if content else {}
    return found


def test_every_operation_has_a_description_and_examples(document: dict[str, Any]) -> None:
    missing = []
    for name, (_method, _path, operation) in operations(document).items():
        if not operation.get("description"):
            missing.append(f"{name}: a second sentence in the docstring")
        for part, content in contents(operation).items():
            if not content.get("examples"):
                missing.append(f"{name}: an example of its {part}")
        in_path = [parameter for parameter in operation.get("parameters", ()) if parameter["in"] == "path"]
        missing += [f"{name}: an example of {one['name']}" for one in in_path if "example" not in one]
    assert missing == []


def test_every_example_fits_its_schema(document: dict[str, Any]) -> None:
    wrong = []
    for name, (_method, _path, operation) in operations(document).items():
        for part, content in contents(operation).items():
            validator = Draft202012Validator({**content["schema"], "components": document["components"]})
            for example in content["examples"].values():
                wrong += [
                    f"{name} {part}: {error.json_path} {error.message}"
                    for error in validator.iter_errors(example["value"])
                ]
    assert wrong == []


def test_server_answers_like_the_examples(document: dict[str, Any], staff: Client, db: None) -> None:
    """Compare the fields only: ids and times are others each time."""
    answers = recorded(document, staff)
    if os.environ.get("RECORD_EXAMPLES"):
        FILE.write_bytes(msgspec.json.format(msgspec.json.encode(answers), indent=1) + b"\n")
    known = json.loads(FILE.read_text())
    assert {name: fields_of(answer) for name, answer in answers.items()} == {
        name: fields_of(answer) for name, answer in known.items()
    }, "Record them again: RECORD_EXAMPLES=1 pytest " + __file__


def fields_of(value: Any, path: str = "") -> set[str]:
    if isinstance(value, dict):
        return {path}.union(
            *(fields_of(item, f"{path}.{'*' if '-' in name else name}") for name, item in value.items())
        )
    if isinstance(value, list):
        return {path}.union(*(fields_of(item, f"{path}[]") for item in value))
    return {path}


def recorded(document: dict[str, Any], staff: Client) -> dict[str, Any]:
    """Send all examples of requests, and return the first answer of each operation that answers with JSON."""
    key = key_with_sessions()
    known = operations(document)
    parameters: dict[str, Any] = {"session_id": "weather-1", "snapshot_id": "snapshot-1"}
    numbers = count(4)
    found: dict[str, Any] = {}
    for name in dict.fromkeys([*STORY, *(name for name in known if name not in AT_LAST), *AT_LAST]):
        method, path, operation = known[name]
        query = {field: value for field, value in STORY.get(name, {}).items() if f"{{{field}}}" not in path}
        # Keys do not read the audit log.
        client = staff if operation["tags"] == ["Administration"] else key
        for body, media_type in bodies_of(operation):
            if name.startswith("update_") and "{message_id}" in path:
                parameters["message_id"] = unfinished(key, f"a-{next(numbers)}")
            url = path.format(**{**parameters, **STORY.get(name, {})})
            response = client.generic(method.upper(), url, body, media_type, query_params=query)
            assert response.status_code in (200, 201, 204), (name, response.content)
            if response.headers.get("Content-Type") != "application/json":
                continue
            answer = json.loads(b"".join(response) if response.streaming else response.content)
            assert not answer.get("refused"), name
            content = operation["responses"][str(response.status_code)]["content"]["application/json"]
            check(answer, content["schema"], document, name)
            found.setdefault(name, answer)
        parameters |= ids_in(name, found.get(name))
    return with_fixed_ids(found, parameters)


def key_with_sessions() -> Client:
    """Return a client with a key of a project with a session like that of the examples, and with a replay of theirs."""
    project = Project.objects.create(slug="default", sampling_rate=0.25, sampling_tools={"get_weather": 0.05})
    token = create_key(project, "agent", ["read", "write", "delete"])[1]
    key = Client(headers={"X-API-Key": token})
    [session] = examples.INGEST[0].value["sessions"]
    question, answer = session["messages"]
    other = {**session, "external_id": "weather-2", "messages": [question, {**answer, "content": "21 °C, no wind."}]}
    fork = {"session": "weather-1", "node": "plan", "snapshot": "snapshot-1", "overrides": {"model": "gpt-5"}}
    for path, body in (
        ("ingest", {"sessions": [other]}),
        ("snapshots", {"session_id": "weather-1-fork-1", "fork": fork}),
    ):
        response = key.post(f"/api/v1/{path}/", body, content_type="application/json")
        assert response.status_code in (200, 201), response.content
    return key


def unfinished(key: Client, external_id: str) -> str:
    body = {**examples.MESSAGES[0].value, "external_id": external_id}
    response = key.post("/api/v1/sessions/weather-1/messages/", body, content_type="application/json")
    return str(response.json()["id"])


def bodies_of(operation: dict[str, Any]) -> list[tuple[str | bytes, str]]:
    """Return the examples of requests with their media types; without any an empty body."""
    bodies: list[tuple[str | bytes, str]] = []
    for media_type, content in operation.get("requestBody", {"content": {}})["content"].items():
        for example in content["examples"].values():
            value = example["value"]
            if media_type == "multipart/form-data":
                form = {
                    **value,
                    "dry_run": json.dumps(value["dry_run"]),
                    "file": ContentFile(value["file"], "talk.json"),
                }
                bodies.append((encode_multipart("limit", form), f"{media_type}; boundary=limit"))
            else:
                bodies.append((value if isinstance(value, str) else json.dumps(value), media_type))
    return bodies or [("", "application/json")]


def ids_in(name: str, answer: Any) -> dict[str, Any]:
    """Return the ids that later requests need."""
    match name:
        case "ingest":
            message = answer["sessions"][0]["messages"][1]["id"]
            return {"message_id": message, "chain_id": message}
        case "list_tool_calls":
            return {"call_id": answer["results"][0]["uuid"]}
        case "create_score":
            return {"score_id": answer["id"]}
        case "list_session_contexts":
            return {"ref": next(found["ref"] for found in answer["results"] if found["kind"] == "context")}
        case "list_audit_entries":
            return {"entry_id": answer["results"][0]["id"]}
    return {}


def with_fixed_ids(answers: dict[str, Any], parameters: dict[str, Any]) -> dict[str, Any]:
    """Replace what is another one each time, so that the answers of two recordings differ where the server does."""
    text = msgspec.json.encode(answers).decode().replace("http://testserver", "http://127.0.0.1:8000")
    text = NOW.sub("2026-03-01T12:00:06.000000Z", text)
    fixed = {parameters["chain_id"]: examples.MESSAGE_ID}
    fixed |= {parameters[name]: example for name, example in KEY_IDS.items() if name != "message_id"}
    for number, found in enumerate(dict.fromkeys(UUID.findall(text)), 16):
        fixed.setdefault(found, f"019ca979-f3e8-7f09-8000-{number:012x}")
    for found, example in fixed.items():
        text = text.replace(found, example)
    answers = json.loads(text)
    return answers

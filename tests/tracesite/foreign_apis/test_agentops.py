"""The token that AgentOps' SDK requests, and its uploads; tests/tracesite/sdks runs the SDK itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project

pytestmark = pytest.mark.django_db


@pytest.fixture
def key() -> str:
    return create_key(Project.objects.create(slug="agentops"), "agent", ["write"])[1]


def post(path: str, body: Any, **headers: str) -> tuple[int, Any]:
    response = Client().post(path, json.dumps(body), content_type="application/json", headers=headers)
    return response.status_code, response.json()


def test_token_of_a_valid_key_is_the_key(key: str) -> None:
    status, token = post("/v3/auth/token", {"api_key": key})
    assert (status, token["token"], token["project_id"]) == (200, key, "agentops")


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ({"api_key": "ts_no"}, 401, "AGENTOPS_API_KEY"),
        ({"api_key": 1}, 400, "api_key"),
        ({}, 400, "api_key"),
        ([], 400, "api_key"),
    ],
)
def test_token_of_an_invalid_request_is_refused(body: Any, status: int, error: str) -> None:
    found, answer = post("/v3/auth/token", body)
    assert (found, error in answer["error"]) == (status, True)


@pytest.mark.parametrize("path", ["/v4/logs/upload/", "/v4/objects/upload/"])
def test_upload_needs_a_key_and_is_answered(key: str, path: str) -> None:
    assert post(path, {"body": "text"})[0] == 401
    status, answer = post(path, {"body": "text"}, Authorization=f"Bearer {key}")
    assert (status, answer) == (200, {"url": "", "size": 16})

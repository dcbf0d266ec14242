"""Shared fixtures of the API tests: an owner with all scopes, a viewer with read, an outsider with another project."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from django.http import HttpResponseBase
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.batch import SessionOutcome


class Caller:
    """A client of the API, with or without a key."""

    def __init__(self, token: str = "") -> None:
        self.client = Client(headers={"Authorization": f"Bearer {token}"} if token else {})

    def get(self, path: str, **parameters: Any) -> Answer:
        return Answer(self.client.get(f"/api/v1/{path}", parameters))

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self._send("post", path, body, headers)

    def patch(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self._send("patch", path, body, headers)

    def delete(self, path: str) -> Answer:
        return self._send("delete", path, None, {})

    def _send(self, method: str, path: str, body: Any, headers: dict[str, str]) -> Answer:
        data = body if isinstance(body, (str, bytes)) else b"" if body is None else msgspec.json.encode(body)
        media_type = headers.pop("content_type", "application/json")
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        return Answer(getattr(self.client, method)(f"/api/v1/{path}", data, content_type=media_type, headers=names))


class Answer:
    def __init__(self, response: HttpResponseBase) -> None:
        self.status = response.status_code
        self.headers = response.headers
        self.streamed = response.streaming
        self.body = b"".join(response) if response.streaming else response.content

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def results(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.body
        results: list[dict[str, Any]] = self.json["results"]
        return results

    @property
    def error(self) -> tuple[int, str, str | None]:
        """Status, code and field of an error."""
        error = self.json["error"]
        assert list(error) == ["code", "message", "field", "request_id"]
        assert error["request_id"] == self.headers["X-Request-ID"]
        return self.status, error["code"], error["field"]


@pytest.fixture
def owner(project: Project) -> Caller:
    return Caller(create_key(project, "agent", ["read", "write", "delete"])[1])


@pytest.fixture
def viewer(project: Project) -> Caller:
    return Caller(create_key(project, "dashboard", ["read"])[1])


@pytest.fixture
def outsider(stranger: Project) -> Caller:
    return Caller(create_key(stranger, "other", ["read", "write", "delete"])[1])


@pytest.fixture
def weather(project: Project) -> SessionOutcome:
    """Store the standard session: a question and its answer."""
    return store(project, question(), answer(), title="The weather", end_user="ada", tags=["demo", "weather"])

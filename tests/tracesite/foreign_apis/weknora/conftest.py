"""A client like WeKnora's own, over Django's test client: it decodes every response strictly."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from tests.tracesite.live.conftest import agent, agents, database, key, port, site, viewers  # noqa: F401  # fixtures

from . import strict
from .strict import Done, Message, MessageList, OneSession, Pinned, Session, SessionList, Title

T = TypeVar("T")


@dataclass
class ApiError(Exception):
    """A response other than 2xx, as the client raises it."""

    status: int
    code: int
    body: Any


class WeKnora:
    """A client whose methods return responses decoded as strictly as by the Go client."""

    def __init__(self, token: str, header: str = "X-API-Key") -> None:
        self.http = Client(headers={header: f"Bearer {token}" if header == "Authorization" else token} if token else {})

    def load(self, session: Any, limit: Any = 20, before_time: str | None = None, **more: Any) -> list[Message]:
        before = {} if before_time is None else {"before_time": before_time}
        page = self.ask(MessageList, "get", f"messages/{session}/load", query={"limit": limit, **before, **more})
        assert page.success and page.data is not None
        return page.data

    def delete_message(self, session: Any, message: Any) -> Done:
        return self.ask(Done, "delete", f"messages/{session}/{message}")

    def create(self, **fields: Any) -> Session:
        return self._session("post", "sessions", fields, status=201)

    def get(self, session: Any) -> Session:
        return self._session("get", f"sessions/{session}")

    def update(self, session: Any, **fields: Any) -> Session:
        return self._session("put", f"sessions/{session}", fields)

    def sessions(self, **query: Any) -> SessionList:
        return self.ask(SessionList, "get", "sessions", query=query)

    def delete(self, session: Any) -> Done:
        return self.ask(Done, "delete", f"sessions/{session}")

    def delete_many(self, **body: Any) -> Done:
        return self.ask(Done, "delete", "sessions/batch", body)

    def clear(self, session: Any) -> Done:
        return self.ask(Done, "delete", f"sessions/{session}/messages")

    def pin(self, session: Any, *, method: str = "post") -> Pinned:
        return self.ask(Pinned, method, f"sessions/{session}/pin")

    def title(self, session: Any, messages: Any = ()) -> str:
        return self.ask(Title, "post", f"sessions/{session}/generate_title", {"messages": messages}).data

    def stop(self, session: Any, message: Any) -> Done:
        return self.ask(Done, "post", f"sessions/{session}/stop", {"message_id": str(message)})

    def ask(self, type_: type[T], method: str, path: str, body: Any = None, *, status: int = 200, **more: Any) -> T:
        answered, content = self.raw(method, path, body, **more)
        if not 200 <= answered < 300:
            raise ApiError(answered, strict.code_of(content), json.loads(content))
        assert answered == status
        return strict.decode(content, type_)

    def raw(
        self, method: str, path: str, body: Any = None, *, query: Any = None, headers: Any = None
    ) -> tuple[int, bytes]:
        # The Go client sends this content type with every request, even without a body.
        data = body if isinstance(body, (bytes, str)) else b"" if body is None else json.dumps(body)
        response = self.http.generic(
            method.upper(), f"/weknora/api/v1/{path}", data, content_type="application/json", query_params=query,
            headers=headers,
        )  # fmt: skip
        self.headers = response.headers
        content = b"".join(response) if response.streaming else response.content
        return response.status_code, content

    def _session(self, method: str, path: str, body: Any = None, *, status: int = 200) -> Session:
        found = self.ask(OneSession, method, path, body, status=status)
        assert found.success and found.data is not None
        return found.data


@pytest.fixture
def weknora(project: Project) -> WeKnora:
    return WeKnora(create_key(project, "chat", ["read", "write", "delete"])[1])


@pytest.fixture
def stranger_of(stranger: Project) -> WeKnora:
    return WeKnora(create_key(stranger, "other", ["read", "write", "delete"])[1])


def refused(call: Callable[..., Any], *arguments: Any, **named: Any) -> tuple[int, int, Any]:
    """Return status, code and body of a refused request."""
    with pytest.raises(ApiError) as error:
        call(*arguments, **named)
    return error.value.status, error.value.code, error.value.body

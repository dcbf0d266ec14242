"""Test the reading of forms before Django has a thread for them; over HTTP in test_bad_requests.py."""

from __future__ import annotations

import asyncio
from typing import Any

from tracesite.http.form_bodies import with_read_forms

PART = {"type": "http.request", "body": b"content=The+first+half", "more_body": True}
END = {"type": "http.request", "body": b"+and+the+second", "more_body": False}


def received(*parts: dict[str, Any]) -> list[bytes]:
    """Return the forms that reach the application; the client leaves after `parts`."""
    forms, waiting = [], list(parts)

    async def application(scope: Any, receive: Any, send: Any) -> None:
        forms.append((await receive())["body"])

    async def receive() -> dict[str, Any]:
        if not waiting:
            raise ConnectionResetError
        return waiting.pop(0)

    async def send(message: Any) -> None:
        raise AssertionError(message)

    scope = {"type": "http", "method": "POST", "path": "/admin/", "headers": [(b"content-length", b"37")]}
    asyncio.run(with_read_forms(application)(scope, receive, send))
    return forms


def test_form_in_two_parts_is_passed_on_whole() -> None:
    assert received(PART, END) == [b"content=The+first+half+and+the+second"]


def test_form_that_is_cut_off_is_dropped() -> None:
    assert received(PART) == []

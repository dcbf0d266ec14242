"""Test which bodies have arrived before Django has a thread for them; over HTTP in test_bad_requests.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tracesite.http.arriving_bodies import MOST_BYTES, with_arrived_bodies

PART = {"type": "http.request", "body": b"content=The+first+half", "more_body": True}
END = {"type": "http.request", "body": b"+and+the+second", "more_body": False}
LARGE = {"type": "http.request", "body": b" " * MOST_BYTES, "more_body": True}


def scope(path: str = "/admin/", *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "path": path, "headers": list(headers) or [(b"content-length", b"37")]}


async def send_nothing(message: Any) -> None:
    raise AssertionError(message)


def received(*parts: dict[str, Any]) -> list[bytes]:
    """Return the forms that reach the application; the client leaves after `parts`."""
    forms, waiting = [], list(parts)

    async def application(scope: Any, body: Any, send: Any) -> None:
        form, message = b"", PART
        while message["more_body"]:
            message = await body.receive()
            form += message["body"]
        forms.append(form)

    async def receive() -> dict[str, Any]:
        if not waiting:
            raise ConnectionResetError
        return waiting.pop(0)

    asyncio.run(with_arrived_bodies(application, 1)(scope(), receive, send_nothing))
    return forms


def test_form_in_two_parts_is_passed_on_whole() -> None:
    assert received(PART, END) == [b"content=The+first+half+and+the+second"]


def test_form_that_is_cut_off_is_dropped() -> None:
    assert received(PART) == []


def test_sender_has_its_time_anew_for_each_mebibyte(settings: Any) -> None:
    settings.TRACESITE_CLIENT_SECONDS = 1
    arrived: list[int] = []

    async def application(scope: Any, body: Any, send: Any) -> None:
        while True:
            arrived.append(len((await body.receive())["body"]))

    async def main() -> None:
        pauses = iter([0.1, 1, 60])  # 1.1 s for 2 MiB

        async def receive() -> dict[str, Any]:
            await asyncio.sleep(next(pauses))
            return LARGE

        await with_arrived_bodies(application, 1)(scope("/api/v1/ingest/"), receive, send_nothing)

    with pytest.raises(TimeoutError):
        asyncio.run(main())
    assert arrived == [MOST_BYTES, MOST_BYTES]


@pytest.mark.parametrize("headers", [[(b"transfer-encoding", b"chunked")], [(b"expect", b"100-continue")]])
def test_bodies_that_still_arrive_take_a_limited_number_of_threads(headers: list[tuple[bytes, bytes]]) -> None:
    inside: list[str] = []

    async def application(scope: Any, body: Any, send: Any) -> None:
        inside.append(scope["name"])
        if scope["name"] == "slow":
            await asyncio.Event().wait()

    async def main() -> None:
        site = with_arrived_bodies(application, 2)

        async def request(name: str, *parts: dict[str, Any]) -> None:
            waiting = iter(parts)

            async def receive() -> dict[str, Any]:
                return next(waiting)

            await site(scope("/api/v1/ingest/", *headers) | {"name": name}, receive, send_nothing)

        slow = [asyncio.create_task(request("slow", LARGE)) for _ in range(5)]
        await asyncio.sleep(0)
        if b"expect" not in dict(headers):
            await request("arrived", PART, END)
        assert sorted(inside) == ["arrived", "slow", "slow"][b"expect" in dict(headers) :]
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)

    asyncio.run(main())

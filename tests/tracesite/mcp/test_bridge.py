"""`tracesite mcp` of the SDK, a process between the official client and /mcp, or a server that does what ours does not."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp import MCPError, StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from benchmarks.faults.site import Site, running
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port

from .test_endpoint import ERAS, RUN, post

pytestmark = pytest.mark.system
KEY = "ts_key"
MOVED, ASLEEP = "/moved", "/asleep"
REPLIES = {
    "/refused": (401, {}, b'{"error": {"code": "invalid_api_key", "message": "Invalid API key.", "field": null}}'),
    MOVED: (307, {"location": "/mcp"}, b""),
    ASLEEP: (503, {}, b"Back soon."),
    "/older": (404, {}, b"Not found."),
}
"""What is replied below these paths."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        assert post(site, RUN, path="/api/v1/ingest/")[0] == 200
        yield site


@pytest.fixture
def other() -> Iterator[Other]:
    with Other().listening() as other:
        yield other


class Other:
    """A server of the official package that replies with events, has a slow tool, and replies that are no MCP."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.cancelled = threading.Event()
        self.paths: list[str] = []
        server = MCPServer("other")
        server.tool(name="wait", structured_output=False)(self._wait)
        server.tool(name="echo", structured_output=False)(self._echo)
        self._mcp = server.streamable_http_app(stateless_http=True)

    async def _wait(self) -> str:
        try:
            await asyncio.sleep(300)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return "nobody cancelled"

    async def _echo(self, text: str) -> str:
        return text

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        path = scope.get("path", "")
        self.paths.append(path)
        if path.removesuffix("/mcp") not in REPLIES:
            await self._mcp(scope, receive, send)
            return
        status, headers, body = REPLIES[path.removesuffix("/mcp")]
        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": named})
        await send({"type": "http.response.body", "body": body})

    @contextmanager
    def listening(self) -> Iterator[Other]:
        server = uvicorn.Server(uvicorn.Config(self, port=self.port, log_config=None, timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield self
        finally:
            server.should_exit = True
            thread.join()


def bridge(url: str, key: str = KEY) -> Any:
    environment = {
        "PYTHONPATH": str(ROOT / "sdk"),
        "PATH": os.environ["PATH"],
        "TRACESITE_URL": url,
        "TRACESITE_KEY": key,
        "HTTP_PROXY": "http://127.0.0.1:1",  # not for this machine
    }
    command = StdioServerParameters(command=sys.executable, args=["-m", "tracesite_sdk", "mcp"], env=environment)
    return stdio_client(command)


@ERAS
def test_bridge_passes_everything_unchanged(mode: Any, site: Site) -> None:
    async def answers(transport: Any) -> list[Any]:
        async with Client(transport, mode=mode) as client:
            calls = [("outline", {"run": "run"}), ("outline", {"run": "天"}), ("step", {}), ("nothing", {})]
            results = [await client.list_tools(), *[await client.call_tool(*call) for call in calls]]
            results += await asyncio.gather(
                *[
                    client.call_tool("call", {"run": "run", "call": f"{number}/0", "format": "json"})
                    for number in range(5)
                ]
            )
            known = [client.protocol_version, client.instructions, client.server_info]
            return [*known, *[one.model_dump() for one in results]]

    async def talk() -> None:
        url = f"http://127.0.0.1:{site.server.port}"
        headers, limits = {"Authorization": f"Bearer {site.key}"}, httpx2.Limits(max_keepalive_connections=0)
        async with httpx2.AsyncClient(headers=headers, limits=limits) as http:
            direct = await answers(streamable_http_client(f"{url}/mcp", http_client=http))
        assert direct[3]["tools"]
        assert "card_expired" in str(direct[4])
        assert await answers(bridge(url, site.key)) == direct

    asyncio.run(talk())


@ERAS
@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/refused", "Invalid API key. {url} does not admit this key: make one, and save it with: tracesite login"),
        (MOVED, "{url} redirects to /mcp: if you trust that address, use it instead."),
        (ASLEEP, "{url} failed with 503: try again later."),
        ("/older", "{url} has no /mcp: is it Tracesite, and not an older one?"),
    ],
)
def test_client_is_told_why_there_is_no_answer(path: str, reason: str, mode: Any, other: Other) -> None:
    url = other.url + path
    assert asyncio.run(failure_of(url, mode)) == reason.format(url=url)
    assert set(other.paths) == {"", f"{path}/mcp"}, "It goes nowhere else."


@ERAS
def test_client_is_told_that_nobody_responds(mode: Any) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert asyncio.run(failure_of(url, mode)) == f"{url}/mcp does not respond: ConnectError"


async def failure_of(url: str, mode: Any) -> str:
    try:
        async with Client(bridge(url), mode=mode):
            return ""
    except* MCPError as group:
        one: BaseException = group
        while isinstance(one, BaseExceptionGroup):
            one = one.exceptions[0]
        text = str(one)
    return text


@ERAS
def test_cancelled_call_ends_and_others_go_on(mode: Any, other: Other) -> None:
    async def talk() -> None:
        async with Client(bridge(other.url), mode=mode) as client:
            waiting = asyncio.create_task(client.call_tool("wait", {}))
            assert (await client.call_tool("echo", {"text": "meanwhile"})).content[0].text == "meanwhile"
            waiting.cancel()
            with suppress(asyncio.CancelledError):
                await waiting
            if mode == "auto":  # without sessions, a server cannot know what an older client cancels
                assert await asyncio.to_thread(other.cancelled.wait, 60)
            assert (await client.call_tool("echo", {"text": "after"})).content[0].text == "after"

    asyncio.run(talk())


def test_outage_does_not_end_the_bridge() -> None:
    async def talk() -> None:
        other = Other()
        async with Client(bridge(other.url), mode="2026-07-28") as client:
            with pytest.raises(MCPError, match="does not respond"):
                await client.call_tool("echo", {"text": "too early"})
            with other.listening():
                assert (await client.call_tool("echo", {"text": "now"})).content[0].text == "now"

    asyncio.run(talk())

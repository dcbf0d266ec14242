"""The real clients of OpenAI and Anthropic, on the scripted provider. Needs both packages."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import pytest
from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from sdk.tests.recorder.provider import provider
from sdk.tests.recorder.scripted_agents import (
    Chat,
    Messages,
    Responses,
    awaited,
)
from tracesite_sdk.testing import RecorderForTests

T = TypeVar("T")
CLIENTS = {Chat: (OpenAI, AsyncOpenAI), Responses: (OpenAI, AsyncOpenAI), Messages: (Anthropic, AsyncAnthropic)}
CASES = [(api, mode, is_async) for api in CLIENTS for mode in api.modes for is_async in (False, True)]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with provider() as url:
        yield url


def client_of(api: Any, url: str, *, is_async: bool = False, **options: Any) -> Any:
    made = CLIENTS[api][is_async]
    return made(base_url=url.removesuffix("/v1") if api is Messages else url, api_key="sk-test", **options)


def run(client: Any, work: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine, and close the client."""

    async def both() -> T:
        try:
            return await work
        finally:
            await awaited(client.close())

    return asyncio.run(both())


def recorded(recorder: RecorderForTests, client: Any) -> Any:
    return recorder.anthropic(client) if isinstance(client, Anthropic | AsyncAnthropic) else recorder.openai(client)


def call(found: dict[str, Any]) -> tuple[Any, ...]:
    return found["id"], found["name"], found["args"], found["status"], found["result"]["output"]

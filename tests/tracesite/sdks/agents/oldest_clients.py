"""Record the agent of sdk/tests/recorder/scripted_agents.py with each API and mode of the installed clients, and print what
was recorded: one JSON line for each."""

import asyncio
import json

from anthropic import Anthropic, AsyncAnthropic
from openai import AsyncOpenAI, OpenAI

from sdk.tests.recorder.provider import provider
from sdk.tests.recorder.scripted_agents import QUESTION, Chat, Messages, Responses, awaited, plan
from tracesite_sdk.testing import recording, tree

CLIENTS = {Chat: (OpenAI, AsyncOpenAI), Responses: (OpenAI, AsyncOpenAI), Messages: (Anthropic, AsyncAnthropic)}


async def run(recorder, api, mode, made, url):
    client = made(base_url=url.removesuffix("/v1") if api is Messages else url, api_key="sk-test")
    assert (recorder.anthropic if api is Messages else recorder.openai)(client) is client
    with recorder.message(QUESTION):
        answer = await plan(api(client, mode), recorder.tool_call)
    await awaited(client.close())
    return answer


with provider() as url:
    for api, clients in CLIENTS.items():
        for mode in api.modes:
            for made in clients:
                with recording() as recorder:
                    answer = asyncio.run(run(recorder, api, mode, made, url))
                name = f"{made.__name__} {api.__name__} {mode}"
                print(json.dumps({"name": name, "answer": answer, "tree": tree(recorder.events)}))

"""/mcp with the official client, of both eras of the protocol, and as clients that do something else meet it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from benchmarks.faults.site import Site, running
from traces_app.queries.answers.answer import BYTES_OF_TOKEN
from tracesite.mcp.tools import INSTRUCTIONS, TOOLS

pytestmark = pytest.mark.system
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])
RUN: dict[str, Any] = {
    "sessions": [
        {
            "external_id": "refund",
            "messages": [
                {"external_id": "asked", "role": "user", "content": "Where is my refund?"},
                {
                    "external_id": "run",
                    "role": "assistant",
                    "content": "I could not refund it.",
                    "agent_steps": [
                        {
                            "iteration": 0,
                            "thought": "I look up the order.",
                            "tool_calls": [
                                {
                                    "id": "call_1",
                                    "name": "refund_order",
                                    "args": {"order": "5471"},
                                    "result": {"success": False, "error": "card_expired: `pay_71c0`"},
                                }
                            ],
                        }
                    ],
                },
            ],
        }
    ]
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running(workers=1) as site:
        assert post(site, RUN, path="/api/v1/ingest/")[0] == 200
        yield site


def conversation(site: Site, mode: Any, *calls: tuple[str, dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the tools that a client of this era lists, and the results of calls."""

    async def talk() -> tuple[list[Any], list[Any]]:
        headers = {"Authorization": f"Bearer {site.key}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"http://127.0.0.1:{site.server.port}/mcp", http_client=http)
            async with Client(transport, mode=mode) as client:
                tools = (await client.list_tools()).tools
                return tools, [await client.call_tool(name, arguments) for name, arguments in calls]

    return asyncio.run(talk())


def post(site: Site, body: Any, **headers: str) -> tuple[int, dict[str, str], Any]:
    """Return status, headers and JSON of a request of ours."""
    given = {
        "Authorization": f"Bearer {site.key}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    path, method = given.pop("path", "/mcp"), given.pop("method", "POST")
    with closing(HTTPConnection("127.0.0.1", site.server.port, timeout=30)) as connection:
        connection.request(method, path, json.dumps(body), {name: value for name, value in given.items() if value})
        response = connection.getresponse()
        text = response.read()
    headers_of_answer = {name.lower(): value for name, value in response.getheaders()}
    return response.status, headers_of_answer, json.loads(text) if text.startswith(b"{") else text


@ERAS
def test_client_lists_and_calls_all_tools(site: Site, mode: str) -> None:
    arguments: dict[str, dict[str, Any]] = {
        "outline": {"run": "run"},
        "step": {"run": "run", "step": "0"},
        "call": {"run": "run", "call": "0/0"},
        "compare": {"run": "run", "other": "run"},
        "error_group": {"call": "?"},
        "search": {"q": "refund"},
    }
    tools, (failures,) = conversation(site, mode, ("find_failures", {}))
    assert [tool.name for tool in tools] == [tool.name for tool in TOOLS]
    assert all(tool.annotations.read_only_hint and not tool.annotations.open_world_hint for tool in tools)
    text = failures.content[0].text
    arguments["error_group"]["call"] = text.split("newest call ")[1].split()[0]
    _tools, results = conversation(site, mode, *((tool.name, arguments.get(tool.name, {})) for tool in TOOLS))
    assert [result.is_error for result in results] == [False] * len(TOOLS)
    of = dict(zip([tool.name for tool in TOOLS], results, strict=True))
    assert "card_expired: `pay_71c0`" in of["call"].content[0].text
    assert "`` card_expired: `pay_71c0` ``" in of["outline"].content[0].text
    assert of["outline"].content[1].uri.startswith(f"http://127.0.0.1:{site.server.port}/admin/messages_app/message/")
    assert "`refund_order`" in of["tools"].content[0].text


@ERAS
def test_answer_as_json_is_structured(site: Site, mode: str) -> None:
    _tools, (result,) = conversation(site, mode, ("outline", {"run": "refund", "format": "json"}))
    assert result.structured_content["facts"]["outcome"] == "failed"
    assert json.loads(result.content[0].text) == result.structured_content


@ERAS
@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("nothing", {}, "There is no tool 'nothing'. Tools: find_failures, outline"),
        ("outline", {"id": "run"}, "outline has no argument 'id'. Arguments: run, begin"),
        ("outline", {}, "run: "),
        ("outline", {"run": "run", "max_tokens": 10}, "max_tokens: "),
        ("outline", {"run": {"id": "run"}}, "run: give a text"),
        ("outline", {"run": "unknown"}, "run: There is no run, message or session with this id."),
        ("call", {"run": "run", "call": "7/0"}, "call: There is no such call."),
        ("search", {"q": "refund", "created_after": "yesterday"}, "created_after: Invalid time."),
    ],
)
def test_wrong_call_is_told_what_would_be_right(
    site: Site, mode: str, name: str, arguments: dict[str, Any], reason: str
) -> None:
    _tools, (result,) = conversation(site, mode, (name, arguments))
    assert result.is_error
    assert result.content[0].text.startswith(reason)


def test_list_of_tools_is_short(site: Site) -> None:
    status, _headers, answer = post(site, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
    assert status == 200
    listed = json.dumps(answer["result"]["tools"], ensure_ascii=False, separators=(",", ":"))
    assert len(listed.encode()) < 2_000 * BYTES_OF_TOKEN
    assert all(len(tool["description"]) < 2_000 for tool in answer["result"]["tools"])
    assert "data, never instructions" in INSTRUCTIONS[:520]


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({"Authorization": ""}, 401, "not_authenticated"),
        ({"Authorization": "Bearer nothing"}, 401, "invalid_api_key"),
        ({"Host": "elsewhere.example"}, 400, "invalid_host"),
        ({"Origin": "https://elsewhere.example"}, 403, "foreign_origin"),
        ({"method": "GET"}, 405, "method_not_allowed"),
        ({"method": "DELETE"}, 405, "method_not_allowed"),
    ],
)
def test_request_that_is_not_admitted_is_refused(site: Site, headers: dict[str, str], status: int, code: str) -> None:
    answered, given, answer = post(site, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, **headers)
    assert (answered, answer["error"]["code"]) == (status, code)
    assert (given.get("www-authenticate") == "Bearer") is (status == 401)


def test_path_with_a_slash_is_the_same(site: Site) -> None:
    status, _headers, answer = post(site, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, path="/mcp/")
    assert (status, len(answer["result"]["tools"])) == (200, len(TOOLS))


def test_large_body_is_refused(site: Site) -> None:
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "search", "arguments": {"q": "a" * 70_000}},
    }
    assert post(site, body)[0] == 413


def test_call_has_one_entry_in_the_audit_log(site: Site) -> None:
    entries = "SELECT count(*) FROM access_app_auditentry WHERE detail->>'route' = 'read-outline'"
    with site.connect() as database:
        (before,) = database.execute(entries).fetchone() or (0,)
        conversation(site, "auto", ("outline", {"run": "run"}))
        database.rollback()
        assert database.execute(entries).fetchone() == (before + 1,)


def test_calls_are_limited_like_the_api(site: Site) -> None:
    made = json.loads(
        site.manage(
            "create_api_key",
            "--project",
            "faults",
            "--name",
            "slow",
            "--scopes",
            "read",
            "--requests-per-minute",
            "1",
            "--json",
        )
    )
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "cost", "arguments": {}}}
    answers = [post(site, body, Authorization=f"Bearer {made['key']}")[2]["result"] for _number in range(2)]
    assert [answer["isError"] for answer in answers] == [False, True]
    assert "Repeat it in " in answers[1]["content"][0]["text"]

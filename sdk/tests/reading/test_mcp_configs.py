"""Test what MCP clients are given to paste: forms that these clients read, and never a key."""

from __future__ import annotations

import json
import tomllib

import pytest

from sdk.tests.recorder.servers import FakeTracesite
from tracesite_sdk.reading.mcp_configs import CLIENTS

from .conftest import Run

ENDPOINT = "https://traces.example/mcp"


@pytest.fixture(autouse=True)
def address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACESITE_URL", "https://traces.example/")


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        (
            "claude",
            {
                "mcpServers": {
                    "tracesite": {
                        "type": "http",
                        "url": ENDPOINT,
                        "headers": {"Authorization": "Bearer ${TRACESITE_KEY}"},
                    }
                }
            },
        ),
        (
            "cursor",
            {
                "mcpServers": {
                    "tracesite": {"url": ENDPOINT, "headers": {"Authorization": "Bearer ${env:TRACESITE_KEY}"}}
                }
            },
        ),
        (
            "vscode",
            {
                "inputs": [
                    {
                        "type": "promptString",
                        "id": "tracesite-key",
                        "description": "Tracesite API key",
                        "password": True,
                    }
                ],
                "servers": {
                    "tracesite": {
                        "type": "http",
                        "url": ENDPOINT,
                        "headers": {"Authorization": "Bearer ${input:tracesite-key}"},
                    }
                },
            },
        ),
        (
            "gemini",
            {
                "mcpServers": {
                    "tracesite": {
                        "httpUrl": ENDPOINT,
                        "headers": {"Authorization": "Bearer ${TRACESITE_KEY}"},
                        "timeout": 30000,
                    }
                }
            },
        ),
    ],
)
def test_client_gets_json(client: str, expected: object, run: Run) -> None:
    status, out, err = run("mcp", "--config", client)
    assert (status, json.loads(out), err[:2], err.count("\n")) == (0, expected, "# ", 1)


def test_codex_gets_toml(run: Run) -> None:
    status, out, err = run("mcp", "--config", "codex")
    servers = {"tracesite": {"url": ENDPOINT, "bearer_token_env_var": "TRACESITE_KEY"}}
    assert (status, tomllib.loads(out)) == (0, {"mcp_servers": servers})
    assert err == "# ~/.codex/config.toml; set TRACESITE_KEY for Codex\n"


@pytest.mark.parametrize("client", CLIENTS)
def test_key_is_not_printed(client: str, server: FakeTracesite, run: Run) -> None:
    # `run` looks for it.
    assert f"{server.url}/mcp" in run("mcp", "--config", client)[1]

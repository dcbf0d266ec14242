"""What to paste into the settings of MCP clients. The key is a variable, so that it is in no file."""

from __future__ import annotations

import json
from typing import Any

from .profiles import KEY

CLIENTS = ("claude", "codex", "cursor", "vscode", "gemini")


def config_of(client: str, url: str) -> tuple[str, str]:
    """Return the text for one of CLIENTS, and where to paste it. `url` is the address of the server."""
    endpoint = f"{url}/mcp"
    match client:
        case "claude":
            servers = _server(type="http", url=endpoint, headers=_bearer(f"${{{KEY}}}"))
            return _json(mcpServers=servers), f".mcp.json of a repository, or ~/.claude.json; set {KEY} for Claude Code"
        case "codex":
            toml = f'[mcp_servers.tracesite]\nurl = {json.dumps(endpoint)}\nbearer_token_env_var = "{KEY}"\n'
            return toml, f"~/.codex/config.toml; set {KEY} for Codex"
        case "cursor":
            servers = _server(url=endpoint, headers=_bearer(f"${{env:{KEY}}}"))
            return _json(
                mcpServers=servers
            ), f"~/.cursor/mcp.json, or .cursor/mcp.json of a repository; set {KEY} for Cursor"
        case "vscode":
            asked = {
                "type": "promptString",
                "id": "tracesite-key",
                "description": "Tracesite API key",
                "password": True,
            }
            servers = _server(type="http", url=endpoint, headers=_bearer("${input:tracesite-key}"))
            return _json(
                inputs=[asked], servers=servers
            ), ".vscode/mcp.json, or the mcp.json of your profile; VS Code asks for the key"
        case "gemini":
            servers = _server(httpUrl=endpoint, headers=_bearer(f"${{{KEY}}}"), timeout=30000)
            return _json(
                mcpServers=servers
            ), f"~/.gemini/settings.json, or .gemini/settings.json of a repository; set {KEY} for Gemini CLI"
    raise ValueError(client)


def _server(**settings: Any) -> dict[str, Any]:
    return {"tracesite": settings}


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _json(**settings: Any) -> str:
    return json.dumps(settings, indent=2) + "\n"

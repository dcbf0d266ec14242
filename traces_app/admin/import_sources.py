"""Where the files come from that the page of the import lists: docs/formats.md has more of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _


class Origin(NamedTuple):
    """A product whose files are understood."""

    name: str
    formats: Sequence[str]
    """Their names in the registry of formats."""
    files: str
    """Their place, the command that writes them, or their name."""


ORIGINS: Sequence[tuple[Any, Sequence[Origin]]] = (
    (
        _("Coding agents"),
        (
            Origin("Claude Code", ["claude_code"], "~/.claude/projects/"),
            Origin("Codex CLI", ["codex", "codex_exec"], "~/.codex/sessions/ · codex exec --json"),
            Origin("GitHub Copilot CLI", ["copilot_cli"], "~/.copilot/session-state/"),
            Origin("Gemini CLI", ["gemini_cli"], "~/.gemini/tmp/*/chats/"),
            Origin("Qwen Code", ["qwen_code"], "~/.qwen/projects/*/chats/"),
            Origin("OpenCode", ["opencode"], "opencode export ID"),
            Origin("Cline, Roo Code, Kilo Code", ["cline"], "globalStorage/*/tasks/"),
            Origin("Goose", ["goose"], "goose session export --format json"),
            Origin("Amp", ["amp"], "~/.local/share/amp/threads/"),
            Origin("aider", ["aider"], ".aider.chat.history.md"),
            Origin("Cursor", ["cursor"], "Export chat (Markdown)"),
            Origin("SpecStory", ["specstory"], ".specstory/history/"),
            Origin("pi", ["pi"], "~/.pi/agent/sessions/"),
            Origin("OpenHands", ["openhands"], "output.jsonl"),
            Origin("SWE-agent, mini-swe-agent", ["sweagent", "mini_swe_agent"], "*.traj · *.traj.json"),
        ),
    ),
    (
        _("Chats"),
        (
            Origin("ChatGPT", ["chatgpt"], "conversations.json"),
            Origin("claude.ai", ["claude_ai"], "conversations.json"),
            Origin("ShareGPT", ["sharegpt"], "conversations: [{from, value}]"),
        ),
    ),
    (
        _("Other tracing"),
        (
            Origin("OpenTelemetry, Phoenix, MLflow", ["otlp"], "OTLP JSON"),
            Origin("LangSmith", ["langsmith"], "GET /runs · POST /runs/batch"),
            Origin("Langfuse", ["langfuse"], "JSON · JSONL"),
            Origin("Tracesite", ["own_export"], "JSON · JSONL"),
        ),
    ),
    (
        _("Frameworks"),
        (
            Origin("LangChain, LangGraph", ["langchain"], "messages_to_dict()"),
            Origin("Pydantic AI", ["pydantic_ai"], "all_messages_json()"),
            Origin("AutoGen, AG2, Magentic-One", ["autogen", "autogen_history"], "save_state() · chat_messages"),
            Origin("AI SDK", ["ai_sdk"], "UIMessage[] · ModelMessage[]"),
            Origin("Google ADK", ["google_adk"], "adk run --save_session"),
            Origin("OpenAI Agents SDK", ["openai_run_state"], "RunState"),
            Origin("Eko", ["eko"], "callback messages"),
        ),
    ),
    (
        _("APIs of models"),
        (
            Origin("OpenAI", ["openai_chat", "openai_responses"], "messages · items · logs"),
            Origin("Anthropic", ["anthropic_messages"], "messages · logs"),
            Origin("Gemini", ["gemini_contents"], "contents · batches"),
            Origin("Amazon Bedrock", ["bedrock_converse"], "Converse · invocation logs"),
        ),
    ),
    (
        _("Evaluations"),
        (
            Origin("Inspect AI", ["inspect_ai"], "*.eval · *.json"),
            Origin("τ²-bench", ["tau2_bench"], "data/simulations/"),
            Origin("ToolBench", ["toolbench"], "answers"),
            Origin("Harbor (ATIF)", ["atif"], "trajectory.json"),
        ),
    ),
)
"""Every format of the registry, by what people look for."""

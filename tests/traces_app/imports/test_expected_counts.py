"""Compare every real file, read by the only format that recognises it, with an independent count.

The README beside the files defines the figures. `OTHERWISE` holds the few figures that differ for a reason given in
expected_counts.md beside this test.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sdk.tests.paths import SHARED
from traces_app.imports.archives import Zip, files_in
from tracesite_sdk import records
from tracesite_sdk.formats.registry import FORMATS
from tracesite_sdk.normalize.records import normalise
from tracesite_sdk.records.health_flags import ORPHAN_RESULT
from tracesite_sdk.transcripts.conversation import UNKNOWN_TOOL
from tracesite_sdk.transcripts.documents import Document, file_source, read
from tracesite_sdk.transcripts.outline import session_of

COUNTS = SHARED / "EXPECTED_COUNTS.json"
NOW = datetime(2027, 1, 1, tzinfo=UTC)

FIGURES = (
    "sessions",
    "tool_calls_by_name",
    "tool_results",
    "errors_by_tool",
    "calls_without_result",
    "results_without_call",
)

OTHERWISE: dict[str, dict[str, Any]] = {
    "atif/harbor_terminus2_timeout.json": {"calls_without_result": 0},
    "atif/parallel_tools_mixed_results.json": {"errors_by_tool": {"get_stock": 1}},
    "claude_code/entire_missing_result_71-69f9710768-0.jsonl": {"user prompts": 5},
    "claude_code/spotter/ae4a77f8* (main + 2 subagents together)": {"user prompts": 2},
    "claude_code/spotter/tool_heavy.jsonl": {"user prompts": 3},
    "eko/eko4_callback_messages.jsonl": {"user prompts": 1},
    "eko/eko4_callback_messages_done_only.json": {"user prompts": 1},
    "openai_chat_legacy_functions/toolbench_G1_10.json": {"calls_without_result": 3},
    "openai_chat_legacy_functions/toolbench_G2_127.json": {"calls_without_result": 3},
    "openai_chat_legacy_functions/toolbench_G3_21.json": {"calls_without_result": 4},
    "openhands/resolver_mock_output.jsonl": {
        "tool_calls_by_name": {"run": 3, "run_ipython": 21},
        "tool_results": 24,
        "user prompts": 2,
    },
    "sdk_transcripts/openinference-langgraph/openai_chat.json": {"errors_by_tool": {"get_weather": 1}},
    "sdk_transcripts/openinference-openai-chat/openai_chat_nonstream.json": {"errors_by_tool": {"lookup": 1}},
    "sdk_transcripts/openinference-openai-chat/openai_chat_stream.json": {"errors_by_tool": {"lookup": 1}},
    "sdk_transcripts/otelgenai-openai-chat/openai_chat_nonstream.json": {"errors_by_tool": {"lookup": 1}},
    "sdk_transcripts/otelgenai-openai-chat/openai_chat_stream.json": {"errors_by_tool": {"lookup": 1}},
    "sdk_transcripts/traceloop-openai-agents/responses_input_list.json": {"errors_by_tool": {"refund": 1}},
}
"""Figures that differ from the count; expected_counts.md gives the reasons."""
DOCS = Path(__file__).with_name("expected_counts.md")
LANGFUSE = ("langfuse/langgraph-js-2025-10-30.trace.json", "langfuse/pydantic-ai-tools-2025-12-04.trace.json")
"""Files in the same table whose count is one of observations: see test_langfuse.py."""


@cache
def counted() -> dict[str, dict[str, Any]]:
    """Return the independent counts of all files except OTLP bodies; none if the files are absent."""
    if not COUNTS.exists():
        return {}
    counts = json.loads(COUNTS.read_text())
    return {name: figures for name, figures in counts.items() if not name.startswith("otlp/")}


def paths(name: str) -> list[Path]:
    """Return the files of one entry of the count."""
    pattern = name.partition(" ")[0]
    if "*" not in pattern:
        return [SHARED / name]
    return sorted(path for start in SHARED.glob(pattern) for path in [start, *start.rglob("*.jsonl")] if path.is_file())


def documents(name: str) -> Iterator[Document]:
    for path in paths(name):
        for source in files_in(file_source(path), _refuse):
            if isinstance(source, Zip):
                source.files.taken.update(source.files.names)
                yield source.files
            else:
                yield read(source, _ignore)


def _ignore(_where: str, _why: str) -> None:
    """Ignore an omission: the counts of the remaining lines are compared."""


def _refuse(where: str, why: str) -> None:
    raise AssertionError(f"{where}: {why}")


def sessions(name: str) -> list[records.Session]:
    """Return the normalized sessions of the files, including all parts of one session."""
    found = []
    for document in documents(name):
        (format_,) = [candidate for candidate in FORMATS if candidate.recognises(document)]
        found += [
            normalise(session_of(transcript, format_.NAME), now=NOW)
            for transcript in format_.transcripts(document, _ignore)
        ]
    return found


def figures(sessions: list[records.Session], name: str) -> dict[str, Any]:
    messages = [message for session in sessions for message in session.messages or ()]
    calls = [call for message in messages for step in message.agent_steps or () for call in step.tool_calls or ()]
    if name.startswith("claude_code/"):
        # Calls in progress lines of a sub-agent were counted separately; its own file may repeat them.
        calls = [call for call in calls if not call.parent]
    orphans = [call for call in calls if (call.metadata or {}).get(ORPHAN_RESULT)]
    requested = [call for call in calls if call not in orphans]
    return {
        "sessions": len({session.external_id for session in sessions}),
        "user prompts": sum(message.role == "user" for message in messages),
        "tool_calls_by_name": dict(sorted(Counter(call.name or "" for call in requested).items())),
        "tool_results": sum(call.result is not None for call in calls),
        "errors_by_tool": dict(Counter(_tool(call) for call in calls if call.status == "error")),
        "calls_without_result": sum(call.result is None for call in requested),
        "results_without_call": len(orphans),
    }


def _tool(call: records.ToolCall) -> str:
    """Return the name of a call; the count has a question mark for a call known by a nameless result only."""
    return "?" if call.name == UNKNOWN_TOOL else call.name or ""


def expected(name: str) -> dict[str, Any]:
    count = counted()[name]
    counts = {figure: count[figure] for figure in FIGURES}
    if "session_ids" in count:
        # The count treats a sub-agent of Claude Code as a session.
        counts["sessions"] = count["session_ids"]
    counts["user prompts"] = prompts(name, count)
    return counts | OTHERWISE.get(name, {})


def prompts(name: str, count: dict[str, Any]) -> int:
    """Count the user messages with more than tool results that somebody typed."""
    roles = count["messages_by_role"]
    if name.startswith("claude_code/"):
        lines = [line for path in paths(name) for line in _objects(path)]
        prompts = [line for line in lines if line.get("type") == "user" and isinstance(line["message"], dict)]
        return sum(not _only_results(line["message"]) and not _is_inserted(line) for line in prompts)
    if "blocks" in count:
        contents = json.loads(paths(name)[0].read_text())
        messages = contents if isinstance(contents, list) else contents["messages"]
        return sum(message["role"] == "user" and not _only_results(message) for message in messages)
    return sum(roles.get(role, 0) for role in ("user", "human", "user-prompt"))


def _objects(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_text().splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _is_inserted(line: dict[str, Any]) -> bool:
    """Return whether Claude Code wrote a user line that nobody typed."""
    content = line["message"].get("content")
    first = content[0] if isinstance(content, list) and content else content
    said = str(first["text"] if isinstance(first, dict) and "text" in first else first)
    tags = ("<command-name>", "<local-command", "Caveat: The messages below", "[Request interrupted by user")
    return bool(line.get("isMeta") or line.get("isCompactSummary")) or said.startswith(tags)


def _only_results(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and all(
        isinstance(block, dict) and (block.get("type") == "tool_result" or "toolResult" in block) for block in content
    )


def names() -> list[Any]:
    if not counted():
        return [pytest.param("", marks=pytest.mark.skip("the shared data are not on this machine"))]
    return [name for name in counted() if not name.startswith(("langfuse/", "not_claude_code/"))]


@pytest.mark.parametrize("name", names())
def test_real_file_matches_independent_counts(name: str) -> None:
    actual, wanted = figures(sessions(name), name), expected(name)
    assert actual == wanted


def test_real_files_are_each_recognised_by_one_format() -> None:
    if not counted():
        pytest.skip("the shared data are not on this machine")
    known = {
        name: [
            candidate.NAME for document in documents(name) for candidate in FORMATS if candidate.recognises(document)
        ]
        for name in counted()
        if not name.startswith("not_claude_code/")
    }
    assert {name: formats for name, formats in known.items() if len(set(formats)) != 1} == {}


def test_docs_table_lists_every_file_with_other_counts() -> None:
    rows = [line.split("|") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    named = [cells[1].strip().strip("`") for cells in rows]
    assert sorted(named) == sorted([*OTHERWISE, *LANGFUSE])

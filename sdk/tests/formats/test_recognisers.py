"""Recognisers: each sample of a format is tried on all of them."""

from __future__ import annotations

from typing import Any

import pytest

from sdk.tests.eko import test_transcripts as test_eko
from sdk.tests.paths import TRANSCRIPTS
from tracesite_sdk.formats.registry import FORMATS
from tracesite_sdk.transcripts.documents import Text, beginning

from . import (
    test_ai_sdk,
    test_aider,
    test_amp,
    test_anthropic_messages,
    test_atif,
    test_autogen,
    test_autogen_history,
    test_bedrock_converse,
    test_chatgpt,
    test_claude_ai,
    test_claude_code,
    test_cline,
    test_codex,
    test_codex_exec,
    test_copilot_cli,
    test_cursor,
    test_gemini_cli,
    test_gemini_contents,
    test_google_adk,
    test_goose,
    test_inspect_ai,
    test_langchain,
    test_langfuse,
    test_langsmith,
    test_mini_swe_agent,
    test_openai_chat,
    test_openai_responses,
    test_openai_run_state,
    test_opencode,
    test_openhands,
    test_otlp,
    test_own_export,
    test_pi,
    test_qwen_code,
    test_sharegpt,
    test_specstory,
    test_sweagent,
    test_tau2_bench,
    test_toolbench,
)
from .reading import lines, load

SAMPLES: dict[str, list[Any]] = {
    "own_export": [test_own_export.EXPORT],
    "otlp": [
        [test_otlp.PYTHON],
        [test_otlp.JAVASCRIPT],
        lines([test_otlp.COPILOT]),
        {"data": [test_otlp.PHOENIX]},
        *test_otlp.MLFLOW.values(),
    ],
    "langsmith": [test_langsmith.BATCH, {"runs": test_langsmith.LISTED}, test_langsmith.LISTED],
    "toolbench": [test_toolbench.answer()],
    "inspect_ai": [test_inspect_ai.log(test_inspect_ai.sample())],
    "sweagent": [test_sweagent.RUN],
    "mini_swe_agent": [test_mini_swe_agent.run(test_mini_swe_agent.MESSAGES)],
    "tau2_bench": [test_tau2_bench.RUN, test_tau2_bench.SIMULATION],
    "atif": [test_atif.trajectory(test_atif.WHOLE)],
    "eko": [test_eko.RUN],
    "openhands": [test_openhands.EVENTS],
    "pi": [lines(test_pi.WHOLE)],
    "codex": [lines([*test_codex.START, *test_codex.MORE])],
    "codex_exec": [lines(test_codex_exec.WHOLE)],
    "copilot_cli": [lines(test_copilot_cli.DISK), lines(test_copilot_cli.STREAM)],
    "gemini_cli": [{**test_gemini_cli.RECORD, "messages": test_gemini_cli.WHOLE}],
    "qwen_code": [lines([*test_qwen_code.START, *test_qwen_code.MORE])],
    "opencode": [test_opencode.export(test_opencode.WHOLE), test_opencode.WHOLE],
    "cline": [test_cline.WHOLE, test_cline.task()],
    "goose": [test_goose.export(), test_goose.WHOLE, lines([test_goose.HEADER, *test_goose.WITHOUT_IDS])],
    "amp": [test_amp.thread()],
    "aider": [Text(test_aider.WHOLE)],
    "cursor": [Text(test_cursor.WHOLE)],
    "specstory": [Text(test_specstory.WHOLE)],
    "chatgpt": [[test_chatgpt.conversation(test_chatgpt.PATH)]],
    "claude_ai": [[test_claude_ai.conversation(test_claude_ai.WHOLE)]],
    "sharegpt": [test_sharegpt.HERMES],
    "claude_code": [lines(test_claude_code.SCENES)],
    "langfuse": [test_langfuse.SESSION],
    "langchain": [test_langchain.GROWING["messages"], test_langchain.GROWING["states"]],
    "pydantic_ai": [load(TRANSCRIPTS / "pydantic_ai/every_part.json")],
    "autogen": [test_autogen.TASK, lines(test_autogen.WHOLE)],
    "autogen_history": [
        test_autogen_history.RESULT,
        test_autogen_history.AG2,
        test_autogen_history.BY_ALGORITHM,
        test_autogen_history.BY_HAND,
        lines(test_autogen_history.LOG),
    ],
    "ai_sdk": [test_ai_sdk.MODEL],
    "google_adk": [
        test_google_adk.session(test_google_adk.EVENTS),
        test_google_adk.EVENTS,
        test_google_adk.SET,
        test_google_adk.QUERIES,
    ],
    "gemini_contents": [test_gemini_contents.WHOLE, test_gemini_contents.LOG, {"contents": test_gemini_contents.WHOLE}],
    "openai_run_state": [test_openai_run_state.state(), test_openai_run_state.camel(test_openai_run_state.state())],
    "anthropic_messages": [test_anthropic_messages.MESSAGES],
    "bedrock_converse": [test_bedrock_converse.MESSAGES],
    "openai_chat": [test_openai_chat.LOG],
    "openai_responses": [test_openai_responses.WHOLE["exchanges"][0]],
}
TAKEN_LATER = {
    ("cline", "anthropic_messages"),
    ("tau2_bench", "openai_chat"),
    ("goose", "anthropic_messages"),
    ("autogen_history", "openai_chat"),
    ("own_export", "openai_chat"),
    ("langsmith", "langchain"),
    ("mini_swe_agent", "openai_chat"),
    ("qwen_code", "claude_code"),
    ("gemini_cli", "bedrock_converse"),
}
"""Formats whose files a later one would take, because the parts of their messages are the same."""


@pytest.mark.parametrize(
    ("name", "document"), [(name, document) for name, documents in SAMPLES.items() for document in documents]
)
def test_sample_is_recognised_by_its_format_alone(name: str, document: Any) -> None:
    start = beginning(document)
    takers = [format_.NAME for format_ in FORMATS if format_.recognises(start)]
    assert takers[:1] == [name]
    assert [taker for taker in takers[1:] if (name, taker) not in TAKEN_LATER] == []


def test_every_format_has_a_sample() -> None:
    assert [format_.NAME for format_ in FORMATS if format_.NAME not in SAMPLES] == [], "Give these formats a sample."

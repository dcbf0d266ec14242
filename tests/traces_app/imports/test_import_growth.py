"""Growth: importing a start of a transcript and then the whole equals importing the whole, for each format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from access_app.db import primary
from access_app.models import Project
from sdk.tests.eko import test_transcripts as eko_transcripts
from sdk.tests.formats import (
    test_ai_sdk,
    test_aider,
    test_amp,
    test_anthropic_messages,
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
    test_langchain,
    test_langfuse,
    test_openai_chat,
    test_openai_responses,
    test_openai_run_state,
    test_opencode,
    test_pydantic_ai,
    test_qwen_code,
    test_sharegpt,
    test_specstory,
    test_tau2_bench,
)
from sdk.tests.paths import TRANSCRIPTS
from traces_app.imports.importer import import_paths

from .test_importer import stored


def own(name: str) -> Any:
    return json.loads((TRANSCRIPTS / name).read_text())


def lengths(document: list[Any]) -> list[int]:
    return list(range(1, len(document)))


GROWING: dict[str, tuple[list[Any], list[int]]] = {
    # The first message alone may be of any format, but belongs to the same session.
    "Responses: items, whenever the model has answered": (test_openai_responses.WHOLE["items, whenever the model has answered"][0], [1, 4, 5, 6, 7]),
    "Responses: exchanges": test_openai_responses.WHOLE["exchanges"],
    "Responses: exchanges of two conversations": test_openai_responses.WHOLE["two conversations at a time"],
    **{f"LangChain: {name}": (test_langchain.GROWING[name], lengths(test_langchain.GROWING[name])) for name in ("messages", "messages without ids", "rows", "updates", "states", "an invalid call")},
    # The first snapshot of a thread has no messages.
    "LangChain: history": (test_langchain.GROWING["history"], lengths(test_langchain.GROWING["history"])[1:]),
    "Pydantic AI": (own("pydantic_ai/every_part.json"), lengths(own("pydantic_ai/every_part.json"))),
    "Pydantic AI: runs": ([test_pydantic_ai.MESSAGES[:2], test_pydantic_ai.MESSAGES], [1]),
    # The first message alone may be in OpenAI's format.
    "Anthropic: messages": (test_anthropic_messages.MESSAGES, [2, 3]),
    "Anthropic: a log of exchanges": (test_anthropic_messages.LOG, [1]),
    "AutoGen: messages": (test_autogen.WHOLE, [1, *range(4, 12)]),
    "Magentic-One: log": (test_autogen_history.LOG, [1, 2, 3, 4, 5]),
    "Google ADK: events": (test_google_adk.EVENTS, lengths(test_google_adk.EVENTS)),
    "Gemini: contents": (test_gemini_contents.WHOLE, lengths(test_gemini_contents.WHOLE)),
    "Gemini: a log of exchanges": (test_gemini_contents.LOG, [1, 2]),
    "Bedrock Converse: messages": (test_bedrock_converse.MESSAGES, [1, 2, 3]),
    "Claude Code": (test_claude_code.SCENES, lengths(test_claude_code.SCENES)),
    "AI SDK: messages of the model": (test_ai_sdk.MODEL, [1, 2, 3]),
    "AI SDK: messages of the user interface": (test_ai_sdk.GROWING["UIMessages"], [1, 2, 3]),
    "AI SDK: a message that grows": (test_ai_sdk.SHAPES["a chat that grows"][1:], [1]),
    # Nothing to import before the first message.
    "Eko": (eko_transcripts.RUN, list(range(2, len(eko_transcripts.RUN)))),
    "Eko: agents at the same time": (eko_transcripts.PARALLEL, [3, 4, 5]),
    # Without a generation a trace has only its input.
    "Langfuse": ([test_langfuse.TRACE | {"output": None}, *test_langfuse.OBSERVATIONS], [3, 4, 5, 6]),
    "Langfuse: traces of a session": (test_langfuse.SESSION, [1]),
    "OpenAI chat: exchanges": (test_openai_chat.LOG, [1]),
    "Codex": ([*test_codex.START, *test_codex.MORE], [count for count in range(3, 33) if count not in test_codex.WITHIN_A_RESPONSE]),
    "Codex CLI's stream": (test_codex_exec.WHOLE, [4, 7, 8, 9, 13, 20, 24, 25]),
    "Copilot CLI": (test_copilot_cli.DISK, [3, 5, 10, 12, 16, 19, 23, 25, 29, 31]),
    "Qwen Code": ([*test_qwen_code.START, *test_qwen_code.MORE], list(range(1, 13))),
    "OpenCode: messages as the server lists them": (test_opencode.WHOLE, [1, 2, 3, 4]),
    "ShareGPT: turns": (test_sharegpt.HERMES, [2, 3, 4]),
}  # fmt: skip

STATES: dict[str, list[Any]] = {
    "Gemini CLI": [{**test_gemini_cli.RECORD, "messages": test_gemini_cli.WHOLE[:count]} for count in (1, 2, 3, 6)],
    "ChatGPT": [[test_chatgpt.conversation(test_chatgpt.PATH[:count])] for count in (4, 7, 9, 12, 15, 17, 20)],
    "claude.ai": [[test_claude_ai.conversation(test_claude_ai.WHOLE[:count])] for count in range(1, 5)],
    "AG2": [
        {**test_autogen_history.RESULT, "chat_history": test_autogen_history.AG2[:count]}
        for count in (1, 3, 5, 7, 8, 9)
    ],
    "OpenAI Agents RunState": [
        test_openai_run_state.state(*counts) for counts in ((1, 3), (1, 6), (2, 9), (3, 10), (4, 12))
    ],
    "aider": [test_aider.start() + "".join(test_aider.PARTS[:count]) for count in (2, 4, 5, 7, 10, 12, 14)],
    "tau2-bench": [
        {**test_tau2_bench.SIMULATION, "messages": test_tau2_bench.MESSAGES[:count]} for count in range(1, 12)
    ],
    "Cline": [test_cline.WHOLE[:count] for count in range(1, 17)],
    "Amp": [test_amp.thread(count) for count in range(1, 9)],
    "Goose": [test_goose.export(count) for count in (1, 2, 3, 5, 7, 9, 11)],
    "Google ADK": [test_google_adk.session(test_google_adk.EVENTS[:count]) for count in (1, 3, 4, 6, 10)],
    "Cursor": ["".join([test_cursor.HEAD, *test_cursor.PARTS[:count]]) for count in range(1, 6)],
    "SpecStory": ["".join([test_specstory.HEAD, *test_specstory.PARTS[:count]]) for count in (1, *range(5, 12))],
    "OpenCode": [test_opencode.export(test_opencode.WHOLE[:count]) for count in range(1, 6)],
}
"""The states of a conversation that is one JSON value or a text, the last one complete."""


def imported(path: Path, document: object, project: Project) -> Project:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    (report,) = import_paths(primary, [path], project.pk)
    assert (report.status, report.reason) == ("read", "")
    return project


@pytest.mark.django_db
@pytest.mark.parametrize("states", STATES.values(), ids=STATES)
def test_importing_states_in_turn_equals_importing_the_last(states: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    expected = stored(imported(path, states[-1], Project.objects.create(slug="whole")))
    project = Project.objects.create(slug="in-turn")
    for state in [*states, states[-1]]:
        imported(path, state, project)
    assert stored(project) == expected


@pytest.mark.django_db
@pytest.mark.parametrize("states", STATES.values(), ids=STATES)
def test_earlier_states_remove_nothing(states: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "talk.json"
    project = imported(path, states[-1], Project.objects.create(slug="whole"))
    expected = stored(project)
    for state in states:
        imported(path, state, project)
        assert stored(project) == expected


@pytest.mark.django_db
@pytest.mark.parametrize(("whole", "cuts"), GROWING.values(), ids=GROWING)
def test_start_then_whole_equals_whole(whole: list[Any], cuts: list[int], tmp_path: Path) -> None:
    path = tmp_path / "talk.json"

    expected = stored(imported(path, whole, Project.objects.create(slug="whole")))
    for cut in cuts:
        project = Project.objects.create(slug=f"cut-{cut}")
        assert stored(imported(path, whole, imported(path, whole[:cut], project))) == expected, f"cut at {cut}"

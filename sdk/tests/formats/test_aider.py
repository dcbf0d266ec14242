"""Aider's chat history: sessions, prefixes, code, tokens, thoughts, failures, and growth."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given

from tracesite_sdk.formats import aider
from tracesite_sdk.normalize.pricing import Tokens, tokens_of
from tracesite_sdk.records.health_flags import NAIVE_TIME
from tracesite_sdk.transcripts.documents import Text

from .reading import (
    assert_grows,
    assert_reads_in_linear_time,
    figures,
    mangled_texts,
    messages_of,
    only,
    read,
    steps,
)


def start(time: str = "2026-03-01 12:00:00", model: str = "m-1") -> str:
    return f"\n# aider chat started at {time}\n\n{said('/usr/bin/aider --message Go')}now\n{said('Aider v0.86.1', f'Main model: {model} with diff edit format')}"


def said(*lines: str) -> str:
    return "".join(f"> {line}  \n" for line in lines)


def prompt(*lines: str) -> str:
    return "\n" + "".join(f"#### {line}  \n" for line in lines)


def answer(text: str) -> str:
    return f"\n{text}\n\n"


EDIT = "a.py\n```python\n<<<<<<< SEARCH\n#### not a prompt  \n> not of aider  \n=======\nprint(1)\n>>>>>>> REPLACE\n```"
PARTS = [
    prompt("/add a.py") + said("Added a.py to the chat"),
    prompt("Print one,", "", "in a.py"),
    answer(f"#### What I do\n\n> a quotation\n\n{EDIT}\n\nDone."),
    said("Tokens: 3.2k sent, 1.1k cache write, 1k cache hit, 184 received. Cost: $0.01 message, $0.03 session.", "Applied edit to a.py", "Commit dde0244 feat: print"),
    prompt("Add file to the chat? (Y)es/(N)o [Yes]: y"),
    answer("--------------\n► **THINKING**\n\nHm.\n\n------------\n► **ANSWER**\n\nIt prints."),
    said("Tokens: 12,345 sent, 2 received."),
    prompt("# Fix any errors below"),
    said("litellm.RateLimitError: too many", "Retrying in 0.2 seconds...") + answer("Fixed."),
    said("Tokens: 1M sent, 1 received. Cost: $1.25 message, $1.28 session."),
    prompt("/ask Is it warm?"),
    said("litellm.AuthenticationError: no key"),
    prompt("Thanks"),
    answer("Welc") + said("^C again to exit"),
]  # fmt: skip
WHOLE = start() + "".join(PARTS)


def test_full_session_gives_expected_records() -> None:
    session = only(aider, Text(WHOLE))
    assert (session.external_id, session.title) == ("aider-2026-03-01 12:00:00", "Print one, in a.py")
    assert (session.created_at, (session.metadata or {})["version"]) == (datetime(2026, 3, 1, 12, tzinfo=UTC), "0.86.1")
    messages = session.messages or []
    assert [(message.role, message.content) for message in messages if message.role != "assistant"] == [
        ("system", "/add a.py"),
        ("system", "Added a.py to the chat"),
        ("user", "Print one,\n\nin a.py"),
        ("system", "Applied edit to a.py\nCommit dde0244 feat: print"),
        ("system", "Add file to the chat? (Y)es/(N)o [Yes]: y"),
        ("system", "# Fix any errors below"),
        ("system", "litellm.RateLimitError: too many\nRetrying in 0.2 seconds..."),
        ("user", "/ask Is it warm?"),
        ("user", "Thanks"),
        ("system", "^C again to exit"),
    ]
    assert messages[0].health == [NAIVE_TIME]
    first, failed, last = (message for message in messages if message.role == "assistant")
    assert (first.content, first.error) == ("Fixed.", None)
    edit, thought, fix = steps(first)
    assert (edit.thought, edit.model) == (f"#### What I do\n\n> a quotation\n\n{EDIT}\n\nDone.", "m-1")
    assert (thought.thought, thought.reasoning_content) == ("It prints.", "Hm.")
    assert [tokens_of(step.usage) for step in (edit, thought, fix)] == [
        Tokens(1100, 1000, 1100, 184, 0),
        Tokens(12345, 0, 0, 2, 0),
        Tokens(1_000_000, 0, 0, 1, 0),
    ]
    assert [(step.usage or {}).get("cost") for step in (edit, thought, fix)] == [0.01, None, 1.25]
    assert (failed.error, last.content) == ("litellm.AuthenticationError: no key", "Welc")


def test_sample_matches_counts_made_by_hand() -> None:
    session = only(aider, Text(WHOLE))
    counts = figures([session])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (3, {}, 0)
    assert [len(steps(message)) for message in session.messages or () if message.role == "assistant"] == [3, 1, 1]


def test_sessions_without_a_prompt_are_reported() -> None:
    text = (
        start("2026-02-01 09:00:00")
        + start()
        + PARTS[1]
        + start()
        + PARTS[1]
        + PARTS[2]
        + start("2026-03-02 08:00:00")
        + PARTS[0]
    )
    sessions, left_out = read(aider, Text(text))
    assert [session.external_id for session in sessions] == ["aider-2026-03-01 12:00:00", "aider-2026-03-01 12:00:00#2"]
    assert left_out == [("line 2", "no user or assistant message"), ("line 48", "no user or assistant message")]


def test_lines_whose_spaces_an_editor_removed_are_read() -> None:
    stripped = "\n".join(
        line.rstrip()
        for line in (start() + prompt("Hi", "there") + answer("Hello.") + said("Tokens: 5 sent, 1 received.")).split(
            "\n"
        )
    )
    messages = messages_of(aider, Text(stripped))
    assert [(message.role, message.content) for message in messages] == [("user", "Hi\nthere"), ("assistant", "Hello.")]


def test_fence_that_is_not_closed_ends_with_its_answer() -> None:
    text = (
        start()
        + prompt("Hi")
        + answer("```py\nbroken")
        + said("Tokens: 5 sent, 1 received.")
        + prompt("Again")
        + answer("Yes.")
    )
    assert [message.content for message in messages_of(aider, Text(text))] == ["Hi", "```py\nbroken", "Again", "Yes."]


def test_numbers_of_any_length_are_read() -> None:
    many = "9" * 5_000
    text = start() + prompt("Hi") + answer("A.") + said(f"Tokens: {many} sent, 1.2.3 received. Cost: ${many} message.")
    (step,) = (step for message in messages_of(aider, Text(text)) for step in steps(message))
    assert (step.thought, step.usage) == (None, None)


def test_model_can_change_within_a_session() -> None:
    text = (
        start()
        + prompt("Hi")
        + answer("A.")
        + prompt("/model m-2")
        + said("Main model: m-2 with whole edit format")
        + prompt("And?")
        + answer("B.")
    )
    found = [step.model for message in messages_of(aider, Text(text)) for step in steps(message)]
    assert found == ["m-1", "m-2"]


# Aider tries again after a failure, and an answer ends with its tokens.
@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14])
def test_grown_history_keeps_earlier_records(count: int) -> None:
    assert_grows(aider, Text(start() + "".join(PARTS[:count])), Text(WHOLE + start("2026-04-01 12:00:00") + PARTS[1]))


@given(mangled_texts(start("2026-02-01 09:00:00") + WHOLE))
def test_read_mangled_text_never_raises(document: Text) -> None:
    if aider.recognises(document):
        read(aider, document)


@pytest.mark.parametrize(
    "repeated",
    [
        *(start(), "#### a  \nb\n", "> a  \n", "> Tokens: 1 sent, 1 received.  \n", "```a\n", "\n", "> ", "#### ", "- "),
        *(prompt("a") + answer("b"), "> litellm.AError  \n", "► **THINKING**\n", "----\n", "> Main model: m  \n\n"),
    ],
)  # fmt: skip
def test_hostile_text_takes_linear_time(repeated: str) -> None:
    assert_reads_in_linear_time(aider, WHOLE, repeated)


@pytest.mark.parametrize(
    "document",
    [
        WHOLE,
        Text(""),
        Text(f"# A readme\n{WHOLE}"),
        Text("# aider chat started at 2026-03-01 12:00:00\n\nis the first line of a history."),
        Text("# aider chat started at noon\n> a\n"),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not aider.recognises(document)

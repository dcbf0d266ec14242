"""Chats that Cursor exported: roles, code, context of the client, several chats in a file, and growth."""

from __future__ import annotations

import pytest
from hypothesis import given

from tracesite_sdk.formats import cursor
from tracesite_sdk.formats.registry import format_of
from tracesite_sdk.transcripts.documents import Text

from .reading import assert_grows, assert_reads_in_linear_time, figures, mangled_texts, only, read

HEAD = "# A slow page\n_Exported on 5/15/2025 at 17:47:04 PDT from Cursor (0.50.4)_\n"
USER = "\n---\n\n**User**\n\n"
CURSOR = "\n---\n\n**Cursor**\n\n"
CODE = "```md\nQuoted\n\n---\n\n**User**\n\nNot typed\n```"
PARTS = [
    f"{USER}Why is @page.ts slow?\n\n<user_info>\nlinux\n</user_info>\n",
    f"{CURSOR}I look at it.\n\n---\n\nIt sorts twice.\n",
    f"{CURSOR}{CODE}\n\nThat was it.\n",
    f"{USER}Thanks!\n",
    f"{CURSOR}Welcome.",
]
WHOLE = HEAD + "".join(PARTS)


def test_full_export_gives_expected_records() -> None:
    session = only(cursor, Text(WHOLE))
    assert (session.title, session.external_id and session.external_id[:11]) == ("A slow page", "transcript-")
    assert session.metadata is not None
    assert (session.metadata["exported"], session.metadata["version"]) == ("5/15/2025 at 17:47:04 PDT", "0.50.4")
    question, added, answer, thanks, welcome = session.messages or []
    assert (question.role, question.content) == ("user", "Why is @page.ts slow?")
    assert (added.role, added.content, added.metadata) == (
        "system",
        "<user_info>\nlinux\n</user_info>",
        {"role": "user"},
    )
    assert answer.content == f"{CODE}\n\nThat was it."
    (step,) = answer.agent_steps or ()
    assert (step.thought, step.tool_calls, step.usage) == ("I look at it.\n\n---\n\nIt sorts twice.", [], None)
    assert (thanks.content, welcome.content) == ("Thanks!", "Welcome.")


def test_sample_matches_counts_made_by_hand() -> None:
    counts = figures([only(cursor, Text(WHOLE))])
    assert (counts["user"], counts["tool_calls_by_name"], counts["tool_results"]) == (2, {}, 0)


@pytest.mark.parametrize(
    "line",
    ["_Exported on 2026/2/28 at GMT+8 10:28:33 from Cursor (3.2.11)_", "*Exported on 10/7/2026 from Cursor (1.0)*"],
)
def test_recognises_every_form_of_the_origin(line: str) -> None:
    assert format_of(Text(f"\n# T\n\n{line}\n{USER}Hi")) is cursor


def test_typed_query_is_told_from_the_context() -> None:
    said = "<attached_files>\na\n</attached_files>\n<user_query>\nFix it\n</user_query>\n<user_query>Now</user_query>"
    typed, added = (only(cursor, Text(HEAD + USER + said)).messages or [])[:2]
    assert (typed.content, added.content) == ("Fix it\n\nNow", "<attached_files>\na\n</attached_files>")


def test_several_exports_in_a_file_are_sessions() -> None:
    empty = "# Nothing\n_Exported on 1/1/2026 from Cursor (2.0)_\n"
    document = Text(f"{WHOLE}\n\n{empty}\n{HEAD}{USER}Another")
    sessions, left_out = read(cursor, document)
    assert [(session.title, len(session.messages or ())) for session in sessions] == [
        ("A slow page", 5),
        ("A slow page", 1),
    ]
    assert left_out == [("line 52", "no user or assistant message")]


def test_text_before_the_first_message_is_reported() -> None:
    _sessions, left_out = read(cursor, Text(f"{HEAD}\nNotes of mine\n{USER}Hi"))
    assert left_out == [("(the start)", "text before the first message")]


def test_fence_that_is_not_closed_hides_no_message() -> None:
    (session,), _ = read(cursor, Text(f"{HEAD}{USER}```\nbroken\n{CURSOR}Fixed."))
    assert [message.content for message in session.messages or ()] == ["```\nbroken", "Fixed."]


@pytest.mark.parametrize("count", range(1, len(PARTS) + 1))
def test_grown_export_keeps_earlier_records(count: int) -> None:
    assert_grows(cursor, Text(HEAD + "".join(PARTS[:count])), Text(WHOLE))


@given(mangled_texts(WHOLE))
def test_read_mangled_text_never_raises(document: Text) -> None:
    if cursor.recognises(document):
        read(cursor, document)


@pytest.mark.parametrize(
    "repeated", ["---\n\n", "---\n\n**User**\n\n<user_info>\n", "<user_info>", "```a\n", "# a\n", "\n", HEAD]
)
def test_hostile_text_takes_linear_time(repeated: str) -> None:
    assert_reads_in_linear_time(cursor, WHOLE, repeated)


@pytest.mark.parametrize(
    "document",
    [
        WHOLE,
        Text(""),
        Text("# A readme\n\nIt is _Exported on Monday from Cursor (1)_."),
        Text("# CodeBuddy Chat Conversation\n_Exported on 1/1/2026_\n---\n\n**User**\n\nHi"),
        Text(f"Of a blog:\n\n{WHOLE}"),
    ],
)
def test_recognises_other_documents_returns_false(document: object) -> None:
    assert not cursor.recognises(document)

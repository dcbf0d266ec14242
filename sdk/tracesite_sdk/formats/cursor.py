"""Read chats that Cursor exported as Markdown (menu "Export chat"): one chat, or several in one file.

    # <title>
    _Exported on <date> from Cursor (<version>)_

Each message begins with a line `---`, an empty line and `**User**` or `**Cursor**`, outside of code. What the client put into
a prompt (`<user_info>`, `<attached_files>` ...) is a system message. An export has no ids, times, models, tokens, calls or
results; the date, which is that of the export in the form of the computer's locale, is kept in the metadata as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from tracesite_sdk.transcripts.documents import Document, Skip, Text, skip_silently
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Entry, Prompt, Reply, Transcript, has_conversation
from tracesite_sdk.transcripts.parsing.markdown import markdown_lines, split_tags

NAME = "cursor"

_EXPORTED = re.compile(r"[_*]Exported on (?P<date>.{1,100}) from Cursor \((?P<version>[^()\n]{1,40})\)[_*]\s*")
_RULE = "---"
_ROLES = {"**User**": "user", "**Cursor**": "assistant"}
_TYPED = ("user_query",)
_ADDED = ("user_info", "additional_data", "attached_files", "open_and_recently_viewed_files", "system_reminder")


def recognises(document: Document) -> bool:
    """Return whether the text begins with the title and the origin of an export."""
    if not isinstance(document, Text):
        return False
    title, _newline, others = document.text.lstrip().partition("\n")
    return title.startswith("# ") and _EXPORTED.match(others.lstrip()) is not None


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the chats of a document that `recognises` accepts; report omissions to `skip`."""
    assert isinstance(document, Text), "it is recognised"
    for place, (title, number, exported, start, end) in enumerate(_exports(document.text)):
        entries = partial(_entries, document.text, start, end)
        if has_conversation(entries(skip_silently)):
            yield Transcript(
                entries=partial(entries, skip),
                place=place,
                title=title,
                metadata={"exported": exported["date"], "version": exported["version"]},
            )
        else:
            skip(f"line {number}", EMPTY_CONVERSATION)


def _exports(text: str) -> Iterator[tuple[str, int, re.Match[str], int, int]]:
    """Yield the title of each export, its line, the match of the line below it, and the places of the begin and end of its chat."""
    title, begun = None, None
    for line in markdown_lines(text):
        exported = _EXPORTED.fullmatch(line.text) if title is not None and not line.is_code else None
        if title is not None and exported is not None:
            if begun is not None:
                yield *begun, title.start
            begun = title.text[2:].strip(), title.number, exported, line.start + len(line.text) + 1
        if line.text.strip() or exported is not None:
            title = line if line.text.startswith("# ") and not line.is_code else None
    if begun is not None:
        yield *begun, len(text)


def _entries(text: str, start: int, end: int, skip: Skip) -> Iterator[Entry]:
    count, role, said = 0, None, list[str]()
    rule: list[str] = []
    """A line that may separate two messages, with the empty lines after it."""
    for line in markdown_lines(text, start, end):
        if rule and not line.text.strip():
            rule.append(line.text)
            continue
        if rule and not line.is_code and (next_role := _ROLES.get(line.text.strip())) is not None:
            yield from _message(count, role, "\n".join(said).strip(), skip)
            count, role, said, rule = count + (role is not None), next_role, [], []
            continue
        said += rule
        rule = [line.text] if line.text.rstrip() == _RULE and not line.is_code else []
        said += [] if rule else [line.text]
    yield from _message(count, role, "\n".join([*said, *rule]).strip(), skip)


def _message(index: int, role: str | None, said: str, skip: Skip) -> Iterator[Entry]:
    if role == "assistant":
        yield Reply(id=str(index), content=said)
    elif role == "user":
        typed, added = split_tags(said, _TYPED, _ADDED)
        if typed or not added:
            yield Prompt(id=str(index), role="user", content=typed)
        if added:
            id_ = f"{index}#added" if typed else str(index)
            yield Prompt(id=id_, role="system", content=added, is_aside=True, metadata={"role": "user"})
    elif said:
        skip("(the start)", "text before the first message")

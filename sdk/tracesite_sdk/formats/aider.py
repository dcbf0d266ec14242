"""Read aider's chat history (`.aider.chat.history.md`): Markdown to which every session is appended.

    # aider chat started at <local time>
    #### a prompt, each line with the prefix
    > what aider itself says: settings, questions, errors, edits, commits
    the text of the model

Lines with a prefix end with two spaces, by which they differ from headings and quotations of the model, unless an editor removed
all of them; in code none counts. `> Tokens: 3.2k sent, 21 received.` ends an answer: these tokens are rounded, and so is its cost.
`► **THINKING**` begins the reasoning of an answer.

Commands (`/add`, `!ls`), questions with their answers, prompts that aider made of errors, and what it says after the first prompt are
system messages; what it says before has the model and the version. Edits and commands are not calls of a tool, because they are
only read out of the text. An exception of the model's API is a failed reply.

A session has no id but its start, whose zone is not known. Sessions without a prompt are left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import instant, time_flags
from tracesite_sdk.transcripts.documents import Document, Skip, Text
from tracesite_sdk.transcripts.entries import EMPTY_CONVERSATION, Entry, Prompt, Reply, Transcript, has_conversation
from tracesite_sdk.transcripts.parsing.markdown import markdown_lines

NAME = "aider"

_START = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \t]*$", re.MULTILINE)
_PREFIXED = re.compile(r"^(?:> |####(?: |$))", re.MULTILINE)
_SPACED = re.compile(r"^> .*  $", re.MULTILINE)
_TOKENS_LINE = re.compile(r"^> Tokens: \d.*$", re.MULTILINE)
_COUNT = re.compile(r"(?P<count>\d[\d.,]{0,15})(?P<unit>[kM]?) (?P<name>sent|cache write|cache hit|received)")
_COST = re.compile(r"Cost: \$(\d{1,9}(?:\.\d{1,9})?) message")
_USAGE = {"sent": "input_tokens", "cache write": "cache_write_tokens", "cache hit": "cached_input_tokens", "received": "output_tokens"}  # fmt: skip
_UNITS = {"": 1, "k": 1_000, "M": 1_000_000}
_MODEL = re.compile(r"(?:Main model|Model): (\S+)")
_VERSION = re.compile(r"Aider v(\S+)")
_FAILED = re.compile(r"litellm\.\w+(?:Error|Exception|Timeout)\b")
_QUESTION = "(Y)es/(N)o"
_TO_THE_MODEL = ("/ask ", "/code ", "/architect ", "/chat-mode ")
_MADE_BY_AIDER = ("# Fix any errors below", "The LLM did not conform to the edit format")
_THINKING, _ANSWER = "► **THINKING**", "► **ANSWER**"


def recognises(document: Document) -> bool:
    """Return whether the text begins with the start of a session and what aider says then."""
    if not isinstance(document, Text):
        return False
    found = _START.match(document.text.lstrip())
    return found is not None and _PREFIXED.search(document.text) is not None


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the sessions of a document that `recognises` accepts; report omissions to `skip`."""
    assert isinstance(document, Text), "it is recognised"
    starts = list(_START.finditer(document.text))
    ends = [*(found.start() for found in starts[1:]), len(document.text)]
    number, counted = 1, 0
    seen: Counter[str] = Counter()
    for place, (found, end) in enumerate(zip(starts, ends, strict=True)):
        number, counted = number + document.text.count("\n", counted, found.start()), found.start()
        began = found[1]
        seen[began] += 1
        entries = partial(_entries, document.text, found.end() + 1, end, began)
        if not has_conversation(entries()):
            skip(f"line {number}", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=entries,
            place=place,
            external_id=f"aider-{began}" + (f"#{seen[began]}" if seen[began] > 1 else ""),
            created_at=instant(began),
            metadata=_about(document.text, found.end() + 1, end),
        )


# --- Pieces -----------------------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    kind: str
    """ "prompt", "output" or "text"."""
    text: str


def _pieces(text: str, start: int, end: int) -> Iterator[_Piece]:
    """Yield what was said in a session, without the prefixes."""
    is_spaced = _SPACED.search(text, start, end) is not None
    stops = [*(found.start() for found in _TOKENS_LINE.finditer(text, start, end)), end]
    kind, said = "", list[str]()
    for stop in stops:
        # A fence that is not closed ends with its answer.
        for line in markdown_lines(text, start, stop):
            next_kind = "text" if line.is_code else _kind(line.text, kind, is_spaced=is_spaced)
            if next_kind != kind:
                if kind:
                    yield _Piece(kind, "\n".join(said).strip("\n"))
                kind, said = next_kind, []
            if kind:
                said.append(_without_prefix(line.text, kind) if not line.is_code else line.text)
        if kind == "output":
            yield _Piece(kind, "\n".join(said).strip("\n"))
            kind, said = "", []
        start = stop
    if kind:
        yield _Piece(kind, "\n".join(said).strip("\n"))


def _kind(line: str, before: str, *, is_spaced: bool) -> str:
    """Return the kind of a line; "" for an empty one that ends a prompt or an output."""
    if not line.strip():
        return "text" if before == "text" else ""
    is_marked = line.endswith("  ") or not is_spaced
    if line.startswith("####") and line[4:5] in ("", " ") and is_marked:
        return "prompt"
    if line.startswith(">") and line[1:2] in ("", " ") and is_marked:
        return "output"
    # A message of several lines has the prefix before the first only; an answer follows an empty line.
    return "output" if before == "output" else "text"


def _without_prefix(line: str, kind: str) -> str:
    if kind == "prompt":
        return line.removeprefix("####").removeprefix(" ").rstrip()
    return line.removeprefix(">").removeprefix(" ").rstrip() if kind == "output" else line.rstrip()


def _about(text: str, start: int, end: int) -> dict[str, Any]:
    """Return the version of aider, which it says when it starts."""
    for piece in _pieces(text, start, end):
        if piece.kind == "output" and (found := _VERSION.search(piece.text)) is not None:
            return {"version": found[1]}
        if piece.kind == "prompt":
            break
    return {}


# --- Entries ----------------------------------------------------------------------------------------------------------


def _entries(text: str, start: int, end: int, began: str) -> Iterator[Entry]:
    for index, entry in enumerate(_unnumbered(_pieces(text, start, end))):
        yield replace(entry, id=str(index), health=() if index else time_flags(began))


def _unnumbered(pieces: Iterator[_Piece]) -> Iterator[Entry]:
    has_begun, model = False, None
    answer: str | None = None
    failure: str | None = None
    """Why there is no answer, unless one follows when aider tries again."""
    for kind, said in pieces:
        if kind == "output":
            model = next(reversed(_MODEL.findall(said)), model)
        has_begun = has_begun or kind == "prompt"
        if not has_begun or not said.strip():
            # Before the first prompt a text is the rest of a command line.
            continue
        if failure is not None:
            yield _failed(failure, model) if kind == "prompt" else _aside(failure, "output")
            failure = None
        if kind == "text":
            answer = said
            continue
        first, _newline, others = said.partition("\n")
        if kind == "output" and first.startswith("Tokens: "):
            yield _reply(answer, model, first)
            said = others
        elif answer is not None:
            yield _reply(answer, model, None)
        answer = None
        if kind == "prompt":
            yield _prompt(said)
        elif _FAILED.search(said) is not None:
            failure = said
        elif said:
            yield _aside(said, "output")
    if answer is not None:
        yield _reply(answer, model, None)
    if failure is not None:
        yield _failed(failure, model)


def _prompt(said: str) -> Prompt:
    is_command = said.startswith(("/", "!")) and not said.startswith(_TO_THE_MODEL)
    if is_command or _QUESTION in said or said.startswith(_MADE_BY_AIDER):
        return _aside(said, "command" if is_command else "user")
    return Prompt(id="", role="user", content=said)


def _aside(said: str, kind: str) -> Prompt:
    return Prompt(id="", role="system", content=said, is_aside=True, metadata={"type": kind})


def _failed(failure: str, model: str | None) -> Reply:
    return Reply(id="", content=None, error=failure, model=model)


def _reply(answer: str | None, model: str | None, tokens: str | None) -> Reply:
    said = answer or ""
    before, thinking, thought = said.partition(_THINKING)
    if thinking:
        thought, _mark, after = thought.partition(_ANSWER)
        said = f"{_without_rule(before)}\n\n{after}".strip()
    return Reply(
        id="",
        content=said or None,
        reasoning=_without_rule(thought) or None,
        model=model,
        usage=_usage(tokens) if tokens is not None else None,
        metadata={"tokens": tokens} if tokens is not None else {},
    )


def _without_rule(said: str) -> str:
    """Return a text without the rule above the mark that follows it."""
    return said.strip().rstrip("-").strip()


def _usage(line: str) -> dict[str, Any]:
    usage: dict[str, Any] = {}
    for found in _COUNT.finditer(line[:500]):
        try:
            usage[_USAGE[found["name"]]] = round(float(found["count"].replace(",", "")) * _UNITS[found["unit"]])
        except ValueError:
            continue
    if (cost := _COST.search(line)) is not None:
        usage["cost"] = float(cost[1])
    return usage

"""The words of a run's texts for its rows and panels: the line of an error, a note of a result, the first words of a thought.

As in telling.py, none of these functions raises, the time is linear in the text, and the caller escapes the words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from .cut_json import read_json
from .telling import flags, scalars, words

LONGEST_NOTE = 60
_MOST_READ = 16_384
"""Characters of an error that are searched; its line is usually within the first 2,000."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_WRAPPER = re.compile(r"\A\s*<[a-z][\w-]*>|</[a-z][\w-]*>\s*\Z")
_MESSAGES = "message|detail|error|errors|msg|error_message|errorMessage|details|stderr|reason"
"""Fields of an error in JSON, at most four levels deep."""
_EXIT = re.compile(
    r"\W*(?:(?:the )?(?:command|process) )?(?:(?:exited|finished|completed|failed) )?(?:with )?(?:an? )?"
    r"(?:(?:exit )?(?:code|status)[ :=]*-?\d+|aborted)\W*$",
    re.IGNORECASE,
)
_NOISE = re.compile(
    r'\s*(?:at .+[(:]|File "|\S+\.go:\d+ \+0x|goroutine \d+ |\.\.\. \d+ more|\W*$|`{3}|FAIL$|[=_*#-]{3}.*[=_*#-]{3}$)'
)
"""Lines that name no failure: frames of stacks, rules, headings between rules."""
_FAILURE = re.compile(
    r"(?:[Ee]rror|ERROR|Exception)(?:\[\w+\]| [A-Z]{1,4}\d+)?: |\bFAIL(?:ED)?\b|\bERROR\b|[✗✘❌]|\b[Aa]ssert|npm (?:error|ERR!)"
    r"|^\S+:\d+:\d+:? |(?i:\bpanic: |\bpanicked at|\bfatal: |not found\b|\bno such file|\bdenied\b|\bcannot |\bundefined: )"
)
"""Lines that name a failure."""
_HINT = re.compile(
    r"(?<!0 )(?<!no )\b(?:can't|could not|errors?|fail(?:ed|ures?|s)?|ignored|invalid|killed|missing|refused|rejected|timed out"
    r"|unable|unexpected|unknown)\b|错误|失败|无法|找不到|拒绝",
    re.IGNORECASE,
)
"""Lines that may name one, if no other does."""
_REPR = re.compile(
    r"(?:^Error: )?\b(\w*(?:Error|Exception|Interrupt|Exit|Timeout|Warning))\((['\"])(.*?)\2(?:, [^()]*)?,?\)"
)
_MESSAGE_IN_REPR = re.compile(r"[ :-]*\{.*?['\"]message['\"]: (['\"])(.+?)(?:\1[,}].*|$)")
_ROUTINE = re.compile(
    r"(?:The )?file (?:.+ )?(?:updated|created|edited|written)|Successfully (?:replaced|wrote)|Todos have been|\(no output\)",
    re.IGNORECASE,
)
"""Texts that tools return for every success."""

_TAG = re.compile(r"(?<!\w)<[A-Za-z][\w-]*(?: [^<>]*)?/?>|</[A-Za-z][\w-]*>")
_BLOCK_SIGN = re.compile(r"^[ \t]*(?:(?:`{3}|~~~).*|[-*_|: ]{3,}$|(?:#{1,6}|>|[-*+])[ \t]+)", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n]*)\]\([^()\s]*(?: \"[^\"\n]*\")?\)")
_EMPHASIS = re.compile(r"\*\*(?=\S)([^*\n]+)\*\*|(?<![\w*])\*(?=\S)([^*\n]+)\*(?![\w*])")


class Note(NamedTuple):
    """What a result is, for the end of its row: one of these is set, or none. The caller has the words for counts."""

    words: str = ""
    lines: int = 0
    items: int = 0
    bytes: int = 0
    """The size of a result of which only the beginning is known."""


def telling_line(error: str) -> str:
    """Return the line of an error, or of its beginning, that names the failure.

    The exception of a Python traceback; the message of JSON; of the output of a command the first line that names a failure,
    otherwise the last; of anything else, such as a stack trace, the first line.
    """
    text = _WRAPPER.sub("", _ANSI.sub("", error[:_MOST_READ]))
    if text.lstrip().startswith(("{", "[")):
        text = _message_in(read_json(text)[0]) or text
    # Hooks dump their texts as JSON does.
    lines = text.replace("\\n" if "\n" not in text.strip() else "\\n\\n", "\n").splitlines()
    line = _REPR.sub(lambda match: f"{match[1]}: {match[3]}", (_exception(lines) or _naming(lines) or text)[:400])
    return words(_MESSAGE_IN_REPR.sub(r": \2", line))


def note_of_result(output: str, size: int | None = None) -> Note:
    """Return what a successful result is: its only line or the first scalars of its JSON as words, otherwise the number of its
    lines or items. `size` is that of the whole in bytes, if `output` may be only its beginning.

    Nothing for an empty result, and for the text that a tool returns for every success.
    """
    text = _ANSI.sub("", output).strip()
    if not text or _ROUTINE.match(text):
        return Note()
    shown_bytes = len(output.encode(errors="replace"))
    is_whole = size is None or size <= shown_bytes
    read = read_json(text)[0] if text.startswith(("{", "[", '"')) else text
    if isinstance(read, dict) and not text.startswith("["):
        for level in (read, *read.values()):
            if isinstance(level, dict) and (first := scalars(level, in_order=True)):
                return Note(words=words(first, LONGEST_NOTE))
        read = next((value for value in read.values() if isinstance(value, list)), flags(read) or text)
    if isinstance(read, list):
        return Note(items=len(read))
    lines = (read if isinstance(read, str) else text).splitlines()
    if len(lines) == 1:
        return Note(words=words(lines[0], LONGEST_NOTE))
    return Note(lines=len(lines)) if is_whole else Note(bytes=size or shown_bytes)


def plain(text: str) -> str:
    """Return the first words of what an agent thought or said, without the signs of Markdown and without tags."""
    text = _BLOCK_SIGN.sub("", _TAG.sub(" ", _ANSI.sub("", text[:1_000])))
    text = _LINK.sub(r"\1", text).replace("`", "")
    return words(_EMPHASIS.sub(lambda match: match[1] or match[2], text))


def cut_in_middle(text: str, lines: int = 40) -> tuple[str, int, str]:
    """Return the beginning of `text`, the number of lines left out, and its end, `lines` of them together.

    The end is twice as long, because a failure is usually named there. A text without more lines is its own beginning.
    """
    every = text.split("\n")
    if len(every) <= lines:
        return text, 0, ""
    first, last = lines // 3, max(lines - lines // 3, 1)
    return "\n".join(every[:first]), len(every) - first - last, "\n".join(every[-last:])


def _message_in(value: Any) -> str:
    for _level in range(4):
        if isinstance(value, list):
            value = value[0] if value else None
        if isinstance(value, dict):
            said = (value.get(name) for name in _MESSAGES.split("|"))
            value = next((one for one in said if one and isinstance(one, str | dict | list)), None)
    return value if isinstance(value, str) else ""


def _naming(lines: Sequence[str]) -> str:
    """Return the line that names the failure, with the next one if it announces that."""
    said = [line.strip() for line in lines if not (_EXIT.match(line) or _NOISE.match(line))]
    if not said:
        return ""
    named = next((place for place, line in enumerate(said) if _FAILURE.search(line)), None)
    if any(map(_EXIT.match, lines)):
        hinted = (place for place, line in enumerate(said) if _HINT.search(line))
        place = next(hinted, len(said) - 1) if named is None else named
    else:
        place = 0 if named is None or _HINT.search(said[0]) else named
    return " ".join(said[place : place + 1 + said[place].endswith(":")])


def _exception(lines: Sequence[str]) -> str:
    """Return the exception that the last Python traceback ends with: the first line that is not further in than its header."""

    def indent(line: str) -> int:
        return len(line) - len(line.lstrip(" \t|"))  # groups of exceptions have bars

    headers = [place for place, line in enumerate(lines) if "Traceback (most recent call last)" in line]
    below = lines[headers[-1] + 1 :] if headers else []
    ends = (line.strip(" \t|") for line in below if indent(line) <= indent(lines[headers[-1]]))
    return next(filter(None, ends), "")

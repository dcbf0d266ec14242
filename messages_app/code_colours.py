"""Colour code for display: its tokens in spans with classes, because the policy of our pages forbids styles in HTML."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

from django.utils.safestring import SafeString, mark_safe
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

from .safe_text import visible

LANGUAGES = frozenset(
    [
        *("bash", "c", "c++", "cpp", "css", "diff", "docker", "dockerfile", "go", "golang", "html", "java"),
        *("javascript", "js", "json", "kotlin", "php", "py", "python", "python3", "rb", "ruby", "rs", "rust"),
        *("sh", "shell", "sql", "swift", "toml", "ts", "typescript", "xml", "yaml", "yml", "zsh"),
    ]
)
"""Only these, because each was tried with repeated pieces of code: that of INI files takes 2 s for one token, and time
is looked at between tokens only. For an unknown name pygments would look through the plugins of all installed packages."""
MOST_CHARACTERS = 20_000
_CLASSES = {
    Comment: "code-comment",
    Operator.Word: "code-keyword",
    Keyword: "code-keyword",
    String: "code-string",
    Number: "code-number",
    Name.Function: "code-name",
    Name.Class: "code-name",
    Name.Tag: "code-name",
    Name.Attribute: "code-name",
    Generic.Inserted: "code-inserted",
    Generic.Deleted: "code-deleted",
    Generic.Subheading: "code-comment",
}
CLASSES = frozenset(_CLASSES.values())


def coloured(code: str, language: str, seconds: float) -> tuple[SafeString, float]:
    """Return `code` as `visible` does, with its tokens coloured, and how many seconds of a processor that took.

    After `seconds` the rest has no colours, and neither has longer code or code in other languages.
    """
    if language.lower() not in LANGUAGES or len(code) > MOST_CHARACTERS:
        return visible(code), 0
    lexer = get_lexer_by_name(language.lower())
    shown, done, began = [], 0, time.thread_time()
    # Not `get_tokens`, which changes the code: it removes a byte order mark and empty lines.
    for start, kind, text in lexer.get_tokens_unprocessed(code):
        # A lexer must not leave anything out.
        if start != done or time.thread_time() - began > seconds:
            break
        done += len(text)
        name = _class_of(kind)
        shown.append(f'<span class="{name}">{visible(text)}</span>' if name else visible(text))
    html = mark_safe("".join([*shown, visible(code[done:])]))  # noqa: S308 - `visible` escapes; a class is one of ours
    return html, time.thread_time() - began


@lru_cache(maxsize=1_000)
def _class_of(kind: Any) -> str:
    return next((name for of, name in _CLASSES.items() if kind in of), "")

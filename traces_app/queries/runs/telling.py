"""The telling argument of a tool call, for its row in the path. telling_texts.py has the words of errors, results and thoughts.

Pure functions of stored texts, which may be hostile, huge, or cut anywhere: none raises, and the time is linear in the text.
Words are one line, with \ufffd for each hidden character (`one_line`), and not yet HTML: the caller escapes them, as templates do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from messages_app.safe_text import one_line

from .cut_json import Number, read_json

LONGEST, LONGEST_PATH = 160, 60
_SHORT = 80
"""The length of a scalar that is an argument, not a text."""

_SHELLS = (
    "bash bashcommand cmdrun exec execcommand execute executebash executecommand localshell localshellcall powershell run "
    "runcommand runinterminal runshellcommand runterminalcmd sh shell shellcommand terminal"
)
_FILES = (
    "append create createfile delete deletefile edit editfile insert multiedit notebookedit notebookread open openfile read "
    "readfile replace searchreplace strreplace view viewfile write writefile writetofile"
)
_SEARCHES = "codebasesearch filesearch find findfile glob grep grepsearch searchfilecontent searchfiles"
_PATHS = "file_path|filepath|filePath|path|file|filename|file_name|notebook_path|target_file|relative_path"
_BY_TOOL: Mapping[str, str] = {
    tool: arguments
    for tools, arguments in (
        (_SHELLS, "command|cmd|commands|keystrokes|script|code|input"),
        (_FILES, _PATHS),
        ("fileeditor strreplaceeditor strreplacebasededittool", f"command {_PATHS}"),
        ("applydiff applypatch patch", "patch|input|diff|patchText"),
        (_SEARCHES, f"pattern|regex|query {_PATHS}"),
        ("browser browsernavigate fetch fetchpage webbrowsergo webfetch", "url|urls"),
        ("googlesearch search searchdocs websearch", "query|q|queries|pattern"),
        ("agent delegate handoff handoffs subagent task", "description|prompt|task|message|input"),
        ("executesql querydatabase runsql sql sqldbquery", "query|sql|statement"),
        ("todo todowrite updateplan", "todos|plan|items"),
        ("skill", "skill|name args"),
    )
    for tool in tools.split()
}
"""The telling arguments of a tool, each by its possible names. Tools are named without case and signs: see `_bare`."""
_BY_ARGUMENT = (
    f"command|cmd|pattern|{_PATHS}|url|query|q|sql|question|subject|title|description|prompt|task|todos|plan|thought|code"
    "|expression|skill|name|location|city|topic|answer|final_answer|summary|message|queries|urls|id"
)
"""The telling argument of any other tool is the first of these that it has."""
_VERBS = "action|operation|method"
"""Arguments that come before it, if they are a word: GET, navigate."""
_COMMAND = re.compile("command|cmd|commands|keystrokes|script")
_ID = re.compile(
    r"(?:.*[_-])?(?:id|uuid|number|no|ref|reference)|\w*I[dD]|order|ticket|invoice|booking|account|customer|user|sku"
)
_SETTING = re.compile("format|lang|language|limit|max_results|offset|page|page_size|timeout|units?")
_DUMPED = re.compile("(?:_raw|args|arguments|input|kwargs|__arg1)?")
"""The only argument, if it may be the JSON of the others: no parser took it, or it was dumped twice."""
_SURROGATE = re.compile("[\ud800-\udfff]")
# Left out: where a command runs, and the text that it gets.
_STAGE = re.compile(
    r"""\A(?:\s*(?:cd[ \t]+(?:"[^"]*"|'[^']*'|[^\s;&]+)|export[ \t]+\w+=[^\s;&]*|set[ \t]+-\w+(?: pipefail)?"""
    r"|(?:source|\.)[ \t]+[^\s;&]*activate)[ \t]*(?:&&|;|\n))+(?=\s*\S)"
)
_HERE_DOCUMENT = re.compile(r"(<<-?[ \t]*(['\"]?)\w+\2)[^\n]*\n.*", re.DOTALL)
_SHELL_OPTION = re.compile(r"-\w*c$")
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |\+\+\+ b/)(\S.*)$", re.MULTILINE)


def telling_argument(tool: str, args: str) -> str:
    """Return the arguments that name what a call is about: `go test ./...`, `src/a.py:10-40`, `5471 card 129`. `args` is their
    JSON text or its beginning.

    1. The telling arguments of this tool (_BY_TOOL), at the top or one level below.
    2. The one of most tools (_BY_ARGUMENT).
    3. Up to three short scalars: ids, then words, then numbers, because jsonb does not keep the order of the author. Settings
       and flags only if there is nothing else.

    "" if there is none, or if the text was cut before an argument of 1: a caller may then read the whole arguments.
    """
    if args.lstrip()[:1] not in ("{", "[", '"'):
        return words(args)
    fields, is_whole = _fields(args)
    only = next(iter(fields)) if len(fields) == 1 else None
    if only is not None and _DUMPED.fullmatch(only) and isinstance(fields[only], str):
        nested = _fields(fields[only])
        fields, is_whole = nested if nested[0] and "" not in nested[0] else (fields, is_whole)
    levels = [fields, *(value for value in fields.values() if isinstance(value, dict))]
    of_tool = _BY_TOOL.get(_bare(tool), "")
    for level in levels:
        if found := " ".join(filter(None, (_first_of(names, level) for names in of_tool.split()))):
            return words(found)
    if of_tool and not is_whole:
        return ""
    for level in levels:
        if found := _first_of(_BY_ARGUMENT, level) or scalars(level):
            verb = _first_of(_VERBS, level)
            return words(f"{verb} {found}" if verb.isalpha() and not found.startswith(verb) else found)
    lists = (_shown(name, value, fields) for name, value in fields.items() if isinstance(value, list))
    return words(next(filter(None, lists), "") or flags(fields))


@lru_cache(1_000)
def is_shell(tool: str) -> bool:
    return _bare(tool) in _SHELLS.split()


def words(text: str, limit: int = LONGEST) -> str:
    """Return the beginning of `text` as one line of at most `limit` characters."""
    # Enough for a line, whatever blanks it has, because a text may have megabytes.
    return one_line(_SURROGATE.sub("\ufffd", text[: 20 * limit]), limit)


def scalars(fields: Mapping[str, Any], *, in_order: bool = False) -> str:
    """Return up to three short scalars but settings, with commas if in the order of the object; otherwise a longer text."""
    texts = {
        name: value
        for name, value in fields.items()
        if isinstance(value, str) and value.strip() and not _SETTING.fullmatch(name)
    }
    short = [name for name, value in texts.items() if len(value) <= _SHORT]
    if not in_order:
        short.sort(key=lambda name: (_ID.fullmatch(name) is None, isinstance(texts[name], Number)))
    if short:
        return (", " if in_order else " ").join(texts[name] for name in short[:3])
    return next(iter(texts.values()), "")


def flags(fields: Mapping[str, Any]) -> str:
    """Return up to three settings and flags with their names."""
    shown = {name: str(value).lower() if isinstance(value, bool) else value for name, value in fields.items()}
    named = [f"{name}={value}" for name, value in shown.items() if isinstance(value, str) and value.strip()]
    return " ".join(named[:3])


def _fields(args: str) -> tuple[dict[str, Any], bool]:
    read, is_whole = read_json(args)
    return read if isinstance(read, dict) else {"": read}, is_whole


def _bare(tool: str) -> str:
    """Return the name of a tool as the tables have it: without the server of MCP, signs and case."""
    return re.sub(r"[\W_]", "", re.split(r"__|[./:]", tool)[-1]).casefold()


def _first_of(names: str, fields: Mapping[str, Any]) -> str:
    return next(filter(None, (_shown(name, fields.get(name), fields) for name in names.split("|"))), "")


def _shown(name: str, value: Any, fields: Mapping[str, Any]) -> str:
    if isinstance(value, list):
        if any(isinstance(item, dict) and "status" in item for item in value):
            return _progress(value)
        items = [item for item in value if isinstance(item, str)]
        is_wrapped = len(items) > 2 and _SHELL_OPTION.match(items[-2])  # bash -lc "..."
        value = items[-1] if is_wrapped else (" " if _COMMAND.fullmatch(name) else ", ").join(items[:9])
    if not isinstance(value, str) or not value.strip():
        return ""
    if patched := _PATCHED.findall(value):
        return _path(patched[0]) + (f" +{len(patched) - 1}" if len(patched) > 1 else "")
    if _COMMAND.fullmatch(name):
        return _HERE_DOCUMENT.sub(r"\1 …", _STAGE.sub("", value[:1_000].replace("\\\n", " "))).strip()
    return _path(value) + _line_range(fields) if name in _PATHS.split("|") else value


def _path(path: str) -> str:
    """Return a path, of a long one the end from the beginning of a directory."""
    if len(path) <= LONGEST_PATH:
        return path
    end = path[1 - LONGEST_PATH :]
    slash = end.find("/", 0, -1)
    return "…" + end[max(slash, 0) :]


def _line_range(fields: Mapping[str, Any]) -> str:
    """Return ":10-40" if the arguments name lines of a file, ":10-" to its end."""
    view = fields.get("view_range")
    ends: Sequence[Any] = view if isinstance(view, list) else [fields.get("start_line"), fields.get("end_line")]
    first, last, *_more = (*map(_integer, ends), 0, 0)
    first, count = first or _integer(fields.get("offset")), _integer(fields.get("limit"))
    last = last or (count and max(first, 1) + count - 1)
    return f":{max(first, 1)}-{last or ''}" if first or last else ""


def _integer(value: Any) -> int:
    return int(value) if isinstance(value, Number) and value.isdecimal() and len(value) < 10 else 0


def _progress(steps: Sequence[Any]) -> str:
    """Return "2/4 Run the tests" for a plan: the steps that are done, all, and the one in progress or next."""
    known = [step for step in steps if isinstance(step, dict)]
    remaining = [step for step in known if step.get("status") not in ("completed", "done", "cancelled")]
    now = next((step for step in remaining if step.get("status") == "in_progress"), (remaining or known)[0])
    title = _first_of("content|step|title|subject|task|description|text", now)
    return f"{len(known) - len(remaining)}/{len(known)} {title}".rstrip()

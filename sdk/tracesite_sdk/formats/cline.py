"""Read tasks of Cline, Roo Code and Kilo Code: folders of tasks, in a folder or an archive, or one `api_conversation_history.json`.

`api_conversation_history.json` has Anthropic's messages (see content_blocks.py), `ui_messages.json` beside it the time, the tokens and
the cost of each request (`api_req_started`), in the order of the answers; cached tokens are beside the input. `history_item.json`
and `task_metadata.json` say what the task was and which model ran. The id of a task is the name of its folder.

* Calls are `tool_use`, or XML in the text (`<execute_command><command>ls</command></execute_command>`); then the result is a text
  that begins with `[execute_command for 'ls'] Result:`. `<thinking>` is reasoning.
* Only what stands in `<task>`, `<user_message>`, `<feedback>` or `<answer>` was typed, and of the result of a tool only where the
  user answers it. Everything else under the user's role, such as `<environment_details>`, is a system message.
* `attempt_completion` and `plan_mode_respond` are calls that have succeeded; what they say is the answer.
* A summary that took the place of earlier messages (Roo) is a system message. A call that the user denied is no failure.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Any

from tracesite_sdk.normalize.json_values import between, content, fields, instant, items, rest, text
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.transcripts.documents import Document, Files, Skip, first_values, skip_silently, value_in
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
    is_text,
)
from tracesite_sdk.transcripts.parsing.content_blocks import blocks_of, read_blocks
from tracesite_sdk.transcripts.parsing.markdown import split_tags, tagged
from tracesite_sdk.transcripts.parsing.message_shapes import decoded

NAME = "cline"

_HISTORY, _UI = "api_conversation_history.json", "ui_messages.json"
_TASK_FILES = (_HISTORY, _UI, "task_metadata.json", "history_item.json")
_TASK_ID = re.compile(r"\d{10,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENVIRONMENT = "<environment_details>"
_TYPED = ("task", "user_message", "feedback", "answer")
_ANSWERS = {"attempt_completion": "result", "plan_mode_respond": "response"}
"""Tools by which the model says something, and the argument that it says."""
_ASKS = "ask_followup_question"
_COMMENTED = ("The user denied this operation and provided", "The user approved this operation and provided")
_DENIED = "The user denied this operation"
_FAILED = ("The tool execution failed", "<error>")
_TOOLS = (
    *("execute_command", "read_file", "write_to_file", "replace_in_file", "apply_diff", "edit_file", "insert_content"),
    *("search_and_replace", "search_files", "codebase_search", "list_files", "list_code_definition_names", "web_fetch"),
    *("browser_action", "use_mcp_tool", "access_mcp_resource", "load_mcp_documentation", "fetch_instructions"),
    *("switch_mode", "new_task", "new_rule", "condense", "summarize_task", "report_bug", "update_todo_list"),
    *("generate_image", "run_slash_command", _ASKS, *_ANSWERS),
)
_RESULT = re.compile(r"\s*\[(?P<name>\w{1,60})(?: for '[^\n]{0,5000}')?[^\]\n]{0,200}\] Result:[ \t]*\n?")
_PARAMETER = re.compile(r"<(\w{1,60})>")
_MOST_PARAMETERS = 50
_USAGE = {"tokensIn": "input_tokens", "tokensOut": "output_tokens", "cacheReads": "cache_read_input_tokens", "cacheWrites": "cache_creation_input_tokens", "cost": "cost"}  # fmt: skip
_METRICS = {"prompt": "input_tokens", "completion": "output_tokens", "cached": "cache_read_input_tokens"}
_MESSAGE_FIELDS = ("role", "content", "ts", "modelInfo", "metrics", "reasoning_content", "reasoning_details")


def recognises(document: Document) -> bool:
    """Return whether the document has folders of tasks, or is a history whose first prompt has Cline's tags."""
    if isinstance(document, Files):
        names = (name for name in document.names if _folder_of(name, _HISTORY) is not None)
        return any(_is_history(value_in(document, name, skip_silently)) for name in islice(names, 5))
    return isinstance(document, list) and _is_history(first_values(document))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the tasks of a document that `recognises` accepts; report omissions to `skip`."""
    for place, task in enumerate(_tasks(document, skip)):
        entries = list(_Reader(task, skip).entries())
        if not has_conversation(entries):
            skip(task.where or "(all)", EMPTY_CONVERSATION)
            continue
        yield Transcript(
            entries=partial(iter, entries), place=place, external_id=task.id, metadata=rest(task.about, ("id", "ts"))
        )


@dataclass
class _Task:
    where: str
    messages: list[Any]
    id: str | None = None
    requests: list[_Request] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


@dataclass
class _Request:
    """What the page of a task says of a request to the model that has ended."""

    at: datetime | None = None
    usage: dict[str, Any] | None = None
    model: str | None = None


def _folder_of(name: str, file: str) -> str | None:
    """Return the folder of a file with this name, with its slash; None if it has another name."""
    folder, slash, last = name.rpartition("/")
    return folder + slash if last == file else None


def _is_history(value: object) -> bool:
    messages = [message for message in items(value) if isinstance(message, dict)]
    first = next((_texts(message) for message in messages if message.get("role") == "user"), [])
    if not any(said.lstrip().startswith(("<task>", "<user_message>")) for said in first):
        return False
    return any(_ENVIRONMENT in said for message in messages[:20] for said in _texts(message))


def _texts(message: dict[str, Any]) -> list[str]:
    blocks = blocks_of(message.get("content"))
    return [text_of([block])[0] for block in blocks if is_text(block)]


def _tasks(document: Document, skip: Skip) -> Iterator[_Task]:
    if not isinstance(document, Files):
        yield _Task("", items(document))
        return
    names = frozenset(document.names)
    for name in document.names:
        folder = _folder_of(name, _HISTORY)
        if folder is None:
            continue
        stored = names.intersection(folder + file for file in _TASK_FILES)
        document.taken.update(stored)
        page, metadata, item = (
            value_in(document, folder + file if folder + file in stored else None, skip) for file in _TASK_FILES[1:]
        )
        own = folder.rstrip("/").rpartition("/")[2]
        about = fields(item)
        yield _Task(
            where=name,
            messages=items(value_in(document, name, skip)),
            id=own if _TASK_ID.fullmatch(own) else text(about.get("id")),
            requests=list(_requests(page, metadata)),
            about=about,
        )


def _requests(page: object, metadata: object) -> Iterator[_Request]:
    uses = (
        (instant(use.get("ts")), text(use.get("model_id")))
        for use in map(fields, items(fields(metadata).get("model_usage")))
    )
    used = sorted((at, model) for at, model in uses if at is not None and model is not None)
    for message in map(fields, items(page)):
        counts = fields(decoded(message.get("text"))) if message.get("say") == "api_req_started" else {}
        usage = {_USAGE[name]: counts[name] for name in _USAGE if counts.get(name) is not None}
        if usage and message.get("partial") is not True:
            at = instant(message.get("ts"))
            begun = bisect_right(used, at, key=itemgetter(0)) if at is not None else 0
            model = text(fields(message.get("modelInfo")).get("modelId"))
            yield _Request(at, usage, model or (used[max(begun - 1, 0)][1] if used else None))


# --- Entries ----------------------------------------------------------------------------------------------------------


class _Reader:
    """Yields the entries of one task."""

    def __init__(self, task: _Task, skip: Skip) -> None:
        self._task = task
        self._skip = skip
        self._answers = 0
        """The number of answers so far."""
        self._thoughts: list[str] = []
        self._names: dict[str | None, str] = {}
        """The names of calls by their ids."""

    def entries(self) -> Iterator[Entry]:
        for index, message in enumerate(self._task.messages):
            where = f"{self._task.where}[{index}]"
            role = fields(message).get("role")
            if not isinstance(message, dict):
                self._skip(where, "not an object")
            elif role is None and message.get("type") == "reasoning":
                summaries = [fields(part).get("text") for part in items(message.get("summary"))]
                self._thoughts += [said for said in summaries if isinstance(said, str)]
            elif role == "assistant":
                yield from self._replies(str(index), message, where)
                self._answers += 1
            elif role == "user":
                yield from self._of_user(str(index), message)
            else:
                self._skip(where, f"the role is {text(role)!r:.60}; a role is user or assistant")

    def _request(self) -> _Request:
        requests = self._task.requests
        return requests[self._answers] if self._answers < len(requests) else _Request()

    def _replies(self, own: str, message: dict[str, Any], where: str) -> Iterator[Entry]:
        blocks = read_blocks(message.get("content"), own, f"{where}.content", self._skip)
        said, others = text_of(blocks.content)
        calls = blocks.calls
        thoughts = [*self._thoughts, *blocks.reasoning, *filter(None, [text(message.get("reasoning_content"))])]
        self._thoughts = []
        if not calls and isinstance(said, str):
            said, calls = _calls_in(said)
        said, thought = _without_thoughts(said)
        request = self._request()
        ended = instant(message.get("ts"))
        metrics = fields(message.get("metrics"))
        stated = {_METRICS[name]: count for name, count in fields(metrics.get("tokens")).items() if name in _METRICS}
        yield Reply(
            id=own,
            content=[{"type": "text", "text": said}, *(part for part in others or () if not is_text(part))]
            if others
            else said or None,
            calls=calls,
            reasoning="\n\n".join([*thoughts, *thought]) or None,
            model=text(fields(message.get("modelInfo")).get("modelId")) or request.model,
            usage={**stated, **rest({"cost": metrics.get("cost")}, ())} if stated else request.usage,
            created_at=request.at or ended,
            duration=between(request.at, ended),
            is_request=True,
            metadata={**rest(message, _MESSAGE_FIELDS), **blocks.metadata},
        )
        for number, call in enumerate(calls):
            self._names[call.id] = call.name
            if call.name in _ANSWERS:
                yield Result(id=f"{own}#{number}", output="", failed=False, created_at=ended, call=call, name=call.name)
                answer = text(fields(decoded(call.args)).get(_ANSWERS[call.name]))
                yield Reply(id=f"{own}.answer{number or ''}", content=answer, created_at=ended)

    def _of_user(self, own: str, message: dict[str, Any]) -> Iterator[Entry]:
        at = instant(message.get("ts")) or self._request().at
        if message.get("isSummary") or message.get("isTruncationMarker"):
            summary = text_of(content(message.get("content")))[0]
            yield Prompt(
                id=own,
                role="system",
                content=summary,
                created_at=at,
                is_aside=True,
                metadata=rest(message, _MESSAGE_FIELDS),
            )
            return
        typed: list[Any] = []
        added: list[str] = []
        for number, section in enumerate(_sections(blocks_of(message.get("content")))):
            name = self._names.get(section.call_id, "") if section.call_id else section.tool
            if name is None:
                inside, outside = _split(section, is_first=not self._answers)
            else:
                inside, outside = _comments(name, section.text), ""
                if name not in _ANSWERS:
                    yield _result(f"{own}#{number}", name, section, at)
            typed += [*([inside] if inside else []), *(section.files if name is None else ())]
            added += [outside] if outside else []
        metadata = rest(message, _MESSAGE_FIELDS)
        if typed:
            parts = [{"type": "text", "text": part} if isinstance(part, str) else part for part in typed]
            said = "\n\n".join(typed) if all(isinstance(part, str) for part in typed) else parts
            yield Prompt(id=own, role="user", content=said, created_at=at, metadata=metadata)
        if added:
            id_ = f"{own}#added" if typed else own
            metadata = {"role": "user", **({} if typed else metadata)}
            yield Prompt(
                id=id_, role="system", content="\n\n".join(added), created_at=at, is_aside=True, metadata=metadata
            )


@dataclass
class _Section:
    """A result in a message of the user, or something else that stands in it."""

    texts: list[str] = field(default_factory=list)
    files: list[Any] = field(default_factory=list)
    tool: str | None = None
    """None if it is no result; "" if only its call is known."""
    call_id: str | None = None
    failed: bool = False

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def _sections(blocks: list[Any]) -> Iterator[_Section]:
    """Yield the sections of a message; a result that is a text goes on to the next, and to the environment."""
    section: _Section | None = None
    for block in blocks:
        said = text_of([block])[0] if is_text(block) else None
        begun = _RESULT.match(said) if said is not None else None
        is_result = fields(block).get("type") == "tool_result"
        if section is not None and not (
            begun is not None or is_result or (said or "").lstrip().startswith(_ENVIRONMENT)
        ):
            (section.files if said is None else section.texts).append(block if said is None else said)
            continue
        if section is not None:
            yield section
            section = None
        if begun is not None and said is not None:
            section = _Section([said[begun.end() :]] if said[begun.end() :] else [], tool=begun["name"])
        elif is_result:
            output, parts = text_of(content(block.get("content")))
            files = [part for part in parts or () if not is_text(part)]
            yield _Section([output], files, "", text(block.get("tool_use_id")), block.get("is_error") is True)
        else:
            yield _Section([said], []) if said is not None else _Section([], [block])
    if section is not None:
        yield section


def _split(section: _Section, *, is_first: bool) -> tuple[str, str]:
    """Return what was typed in a text of the user's role, and what the client added."""
    said = section.text
    is_added = said.lstrip().startswith(_ENVIRONMENT) or not (is_first or any(f"<{tag}>" in said for tag in _TYPED))
    return ("", said) if is_added else split_tags(said, _TYPED, ())


def _comments(name: str, output: str) -> str:
    """Return what the user typed as the result of a tool, or beside it."""
    is_answered = name in _ANSWERS or name == _ASKS or output.lstrip().startswith(_COMMENTED)
    return (
        "\n\n".join(output[begin:end].strip() for _start, begin, end, _end in tagged(output, _TYPED))
        if is_answered
        else ""
    )


def _result(own: str, name: str, section: _Section, at: datetime | None) -> Result:
    said = section.text.lstrip()
    is_failure = section.failed or said.startswith(_FAILED)
    return Result(
        id=own,
        output=section.text,
        failed=True if is_failure else False if said.startswith(_DENIED) else None,
        created_at=at,
        call_ids=[section.call_id] if section.call_id else [],
        name=name or None,
        attachments=section.files or None,
    )


def _without_thoughts(said: str) -> tuple[str, list[str]]:
    """Return a text without what stands in `<thinking>`, and that."""
    found = list(tagged(said, ("thinking",)))
    if not found:
        return said, []
    _inside, outside = split_tags(said, ("thinking",), ())
    return outside, [thought for _start, begin, end, _end in found if (thought := said[begin:end].strip())]


def _calls_in(said: str) -> tuple[str, list[Call]]:
    """Return a text without the calls that are XML in it, and these."""
    calls = []
    pieces, last = [], 0
    for start, begin, stop, end in tagged(said, _TOOLS):
        calls.append(Call(id=None, name=said[start + 1 : begin - 1], args=_parameters(said[begin:stop])))
        pieces.append(said[last:start].strip())
        last = end
    pieces.append(said[last:].strip())
    return ("\n\n".join(filter(None, pieces)) if calls else said), calls


def _parameters(written: str) -> dict[str, str]:
    parameters: dict[str, str] = {}
    at = 0
    for _tried in range(_MOST_PARAMETERS):
        found = _PARAMETER.search(written, at)
        if found is None:
            break
        at, name = found.end(), found[1]
        end = written.find(f"</{name}>", at)
        if end >= 0:
            parameters[name] = written[at:end].strip("\n")
            at = end + len(name) + 3
    return parameters

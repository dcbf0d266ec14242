"""Read trajectories of mini-swe-agent: `.traj.json` files of all versions, and bare lists of their messages.

A file has `messages` and `info`. A message of the model contains one command, in a fence or a tag, in version 2 also as
`extra.actions`, or calls of the tool `bash`. The command is a call, and the text around it the thought. The name of the
fence or the tag is that of the `action_regex` of the run, which is not executed.

* The observation that follows is the result: a message with the role `tool`, or of the user, whose template anybody may
  change, unless it is what a user said in between. `<returncode>` and `<output>`, the same as JSON, or `extra` give output
  and return code; a code other than 0, a timeout and a rejection mean failure. In a bare list only a message with such
  marks is an observation, and the last one of a submitted run, which is what the command printed.
* The first message of the user is the task, others are comments. What the agent itself writes under that role (the format
  of an answer was wrong, a limit was reached) is a system message, and so is the `exit` of version 2.
* A reply has the time, the tokens and the cost in its `extra`. The exit status decides the status of the session.

The format has no ids of conversations: an `instance_id` names the task, which may run many times.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content, fields, instant, items, rest, text
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, join_place, numbered_values
from tracesite_sdk.transcripts.entries import (
    EMPTY_CONVERSATION,
    Call,
    Entry,
    Prompt,
    Reply,
    Result,
    Transcript,
    has_conversation,
)
from tracesite_sdk.transcripts.parsing.response_items import call_of, content_of, is_call, is_result, result_of

NAME = "mini_swe_agent"

_TOOL = "bash"
_ROLES = ("system", "user", "assistant", "tool", "exit")
_MAX_TRIED = 20
"""Values and messages that are tested to recognise a document."""
_NAME_OF_COMMANDS = "mswea_bash_command"


def _commands(fences: str, tag: str) -> re.Pattern[str]:
    """Return what finds commands in fences with one of these names, or in a tag."""
    return re.compile(
        rf"```(?:{fences})[ \t]*\n(?P<fenced>.*?)(?P<end>\n?```|\Z)|<{tag}>(?P<tagged>.*?)(?P<close></{tag}>|\Z)",
        re.DOTALL,
    )


_COMMAND = _commands(f"{_NAME_OF_COMMANDS}|bash", _NAME_OF_COMMANDS)
_NAMED = re.compile(r"```(?P<fence>[\w-]{1,40})|<(?P<tag>[\w-]{1,40})>")
"""The name in an `action_regex`."""
_RETURN_CODE = re.compile(r"\s*<returncode>\s*(-?\d+)\s*</returncode>")
_NOT_RUN = ("The last command ", "Command not executed", "Commands not executed")
"""The start of what the agent answers to a command that timed out or was rejected."""
_OBSERVED = "Observation:"
_SAID_BY_USER = ("Interrupted by user", "The user added a new task", "User command:", "Switched to human mode")
_FORMAT_ERROR = "Please always provide EXACTLY ONE action"
_SUBMITS = ("COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", "MINI_SWE_AGENT_FINAL_OUTPUT")
_BY_USER = ("UserInterruption", "UserRejection", "UserNewTask")
_REPLY_FIELDS = ("role", "content", "tool_calls", "extra", "object", "output", "usage", "model")
_EXTRA_FIELDS = ("response", "timestamp", "actions", "cost", "raw_output")


def recognises(document: Document) -> bool:
    """Return whether one of the values is a run, or the document is a list of the messages of one."""
    values = first_values(document, _MAX_TRIED)
    return any(_is_run(value) or _are_messages(value) for value in values) or _are_messages(values)


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the runs of a document that `recognises` accepts; report omissions to `skip`."""
    runs = [("", document)] if _are_messages(document) else numbered_values(document)
    for place, (where, value) in enumerate(runs):
        if _are_messages(value):
            run, path = {"messages": value}, where
        elif _is_run(value):
            run, path = value, join_place(where, "messages")
        else:
            skip(where or "(all)", "no messages of mini-swe-agent")
            continue
        entries = list(_Reader(run, path, skip).entries())
        if not has_conversation(entries):
            skip(where or "(all)", EMPTY_CONVERSATION)
            continue
        status = text(fields(run.get("info")).get("exit_status"))
        yield Transcript(
            entries=partial(iter, entries),
            place=place,
            status=None if status is None else "completed" if status == "Submitted" else "error",
            metadata=rest(run, ("messages",)),
        )


def _is_run(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("messages"), list):
        return False
    info, form = fields(value.get("info")), value.get("trajectory_format")
    is_named = isinstance(form, str) and form.startswith("mini-swe-agent")
    return is_named or "mini_version" in info or ("model_stats" in info and "exit_status" in info)


def _are_messages(value: object) -> bool:
    """Return whether these are messages with a command and its observation, one after the other."""
    messages = [fields(item) for item in items(value)[:_MAX_TRIED]]
    return any(
        first.get("role") == "assistant"
        and second.get("role") in ("user", "tool")
        and (_command_in(first.get("content")) is not None or "actions" in fields(first.get("extra")))
        and _is_observation(second)
        for first, second in zip(messages, messages[1:], strict=False)
    )


def _said(message: dict[str, Any]) -> str:
    said = message.get("content")
    if isinstance(said, list):
        return "\n".join(part["text"] for part in said if isinstance(fields(part).get("text"), str))
    return said if isinstance(said, str) else ""


def _pattern_of(info: dict[str, Any]) -> re.Pattern[str]:
    """Return what finds the commands of a run. The expression of the run itself might take for ever."""
    config = fields(info.get("config"))
    said = [text(fields(config.get(part)).get("action_regex")) for part in ("model", "agent")]
    named = _NAMED.search(next(filter(None, said), ""))
    if named is None:
        return _COMMAND
    return _commands(re.escape(named["fence"] or _NAME_OF_COMMANDS), re.escape(named["tag"] or _NAME_OF_COMMANDS))


def _command_in(said: object, pattern: re.Pattern[str] = _COMMAND) -> tuple[str, str] | None:
    """Return the command in the text of a reply, and the text around it; None unless there is exactly one command."""
    found = list(pattern.finditer(said)) if isinstance(said, str) else []
    if len(found) != 1 or not (found[0]["end"] or found[0]["close"]):
        return None
    assert isinstance(said, str), "a match was found in it"
    command = found[0]["fenced"] if found[0]["fenced"] is not None else found[0]["tagged"]
    return command.strip(), (said[: found[0].start()] + said[found[0].end() :]).strip()


class _Reader:
    """Yields the entries of one run."""

    def __init__(self, run: dict[str, Any], where: str, skip: Skip) -> None:
        self._messages = run["messages"]
        self._where = where
        self._skip = skip
        self._info = fields(run.get("info"))
        self._pattern = _pattern_of(self._info)
        self._is_named = _is_run(run)
        self._scope: str | None = None
        """Of the last reply with commands in its text."""
        self._open = 0
        """Its commands without an observation."""
        self._submits = False

    def entries(self) -> Iterator[Entry]:
        for index, message in enumerate(self._messages):
            where = f"{self._where}[{index}]"
            if not isinstance(message, dict):
                self._skip(where, "not an object")
                continue
            role, kind = message.get("role"), text(message.get("type"))
            if role == "assistant" or message.get("object") == "response":
                yield self._reply(str(index), message, where)
            elif role == "tool":
                call_id = text(message.get("tool_call_id"))
                yield _result(str(index), message, [call_id] if call_id else [], None)
            elif role == "user":
                yield self._of_user(str(index), message, is_last=index == len(self._messages) - 1)
            elif role in ("system", "exit"):
                if role == "system" or _said(message):
                    yield _prompt(str(index), message, "system", {} if role == "system" else {"role": role})
            elif kind is not None and is_result(kind):
                yield _with_code(result_of(str(index), kind, rest(message, ("extra",))), message)
            else:
                self._skip(where, f"the role is {text(role) or 'missing'!r:.60}; a role is one of {', '.join(_ROLES)}")

    def _reply(self, id_: str, message: dict[str, Any], where: str) -> Reply:
        extra = fields(message.get("extra"))
        answer = message if message.get("object") == "response" else fields(extra.get("response"))
        said: Any = content(message.get("content"))
        calls = list(self._tool_calls(message, where))
        if answer is message:
            output = [fields(item) for item in items(message.get("output"))]
            said = content_of([part for item in output for part in items(item.get("content"))])
            calls += [call_of(kind, item) for item in output if is_call(kind := text(item.get("type")) or "")]
        self._scope, self._open, self._submits = None, 0, False
        if not calls:
            commands = [text(fields(action).get("command")) or "" for action in items(extra.get("actions"))]
            if (found := _command_in(said, self._pattern)) is not None:
                commands, said = commands or [found[0]], found[1] or None
            calls = [Call(id=None, name=_TOOL, args={"command": command}) for command in commands]
            self._scope, self._open = id_ if calls else None, len(calls)
            self._submits = any(mark in command for command in commands for mark in _SUBMITS)
        usage, config = fields(answer.get("usage")), fields(self._info.get("config"))
        return Reply(
            id=id_,
            content=said,
            calls=calls,
            model=text(answer.get("model")) or text(fields(config.get("model")).get("model_name")),
            usage={**usage, **rest({"cost": extra.get("cost")}, ())} or None,
            created_at=instant(extra.get("timestamp")),
            is_request=True,
            scope=self._scope,
            metadata={**rest(message, _REPLY_FIELDS), **rest(extra, _EXTRA_FIELDS)},
        )

    def _tool_calls(self, message: dict[str, Any], where: str) -> Iterator[Call]:
        for index, call in enumerate(items(message.get("tool_calls"))):
            if isinstance(call, dict):
                yield call_of("function_call", {**rest(call, ("function", "type")), **fields(call.get("function"))})
            else:
                self._skip(f"{where}.tool_calls[{index}]", "not an object")

    def _of_user(self, id_: str, message: dict[str, Any], *, is_last: bool) -> Entry:
        extra, said = fields(message.get("extra")), _said(message)
        interrupt, is_observed = text(extra.get("interrupt_type")), _is_observation(message)
        is_submission = is_last and self._submits and self._info.get("exit_status", "Submitted") == "Submitted"
        is_said = interrupt in _BY_USER or said.startswith(_SAID_BY_USER)
        is_marked = is_observed or is_submission or said.startswith((*_NOT_RUN, _OBSERVED))
        if self._open and (is_marked or (self._is_named and not is_said)):
            self._open -= 1
            result = _result(id_, message, [], self._scope)
            return replace(result, failed=False) if is_submission and result.failed is None else result
        is_inserted = (
            is_observed
            or (interrupt is not None and not is_said)
            or said.startswith(_FORMAT_ERROR)
            or (is_last and self._info.get("exit_status") not in (None, ""))
        )
        return _prompt(id_, message, "system" if is_inserted else "user", {"role": "user"} if is_inserted else {})


def _prompt(id_: str, message: dict[str, Any], role: str, metadata: dict[str, Any]) -> Prompt:
    extra = fields(message.get("extra"))
    return Prompt(
        id=id_,
        role="user" if role == "user" else "system",
        content=content(message.get("content")),
        created_at=instant(extra.get("timestamp")),
        is_aside=role != "user",
        metadata={**rest(message, ("role", "content", "extra")), **rest(extra, ("timestamp",)), **metadata},
    )


def _is_observation(message: dict[str, Any]) -> bool:
    extra = fields(message.get("extra"))
    return "returncode" in extra or "raw_output" in extra or _observed(_said(message))[1] is not None


def _observed(said: str) -> tuple[str, int | None]:
    """Return the output and the return code in the text of an observation."""
    if (code := _RETURN_CODE.match(said)) is not None:
        start, end = said.find("<output>"), said.rfind("</output>")
        output = said[start + len("<output>") : end] if 0 <= start < end else said[code.end() :]
        return output.removeprefix("\n").removesuffix("\n"), int(code[1])
    if said.startswith("{") and '"returncode"' in said:
        try:
            value = fields(msgspec.json.decode(said))
        except (msgspec.DecodeError, RecursionError):
            return said, None
        if isinstance(value.get("returncode"), int) and isinstance(value.get("output"), str):
            return value["output"], value["returncode"]
    return said.removeprefix(_OBSERVED).lstrip() if said.startswith(_OBSERVED) else said, None


def _result(id_: str, message: dict[str, Any], call_ids: list[str], scope: str | None) -> Result:
    said = _said(message)
    output, _code = _observed(said)
    raw = fields(message.get("extra")).get("raw_output")
    result = Result(
        id=id_,
        output=raw if isinstance(raw, str) else output,
        failed=True if said.startswith(_NOT_RUN) else None,
        call_ids=call_ids,
        scope=scope,
        name=_TOOL if scope is not None else None,
        metadata=rest(message, ("role", "content", "tool_call_id", "name", "extra")),
    )
    return _with_code(result, message)


def _with_code(result: Result, message: dict[str, Any]) -> Result:
    """Add time, return code and failure to a result: from `extra`, else from its text."""
    extra = fields(message.get("extra"))
    code = extra.get("returncode")
    code = code if isinstance(code, int) else _observed(_said(message))[1]
    failed = code != 0 if code is not None else result.failed
    return replace(
        result,
        failed=True if extra.get("exception_info") else failed,
        created_at=instant(extra.get("timestamp")),
        metadata={**result.metadata, **rest(extra, _EXTRA_FIELDS), **rest({"returncode": code}, ())},
    )

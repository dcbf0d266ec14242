"""The input of a model at a step as a conversation: what was said, called and returned, then the tools and the parameters.

It is a part of the panel of the step: with its own address, so that it is read only when somebody wants to see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext_lazy
from msgspec import UNSET, Raw

from access_app.db import Database
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.models import Message
from messages_app.safe_text import Excerpt, excerpt, first_characters, pretty_json
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, ToolCall
from traces_app.queries.contexts import InputsTooLarge, inputs, step_with_input
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.schemas.contexts import ModelInput
from tracesite_sdk.normalize import pricing
from tracesite_sdk.normalize.json_values import fields, items, text
from tracesite_sdk.transcripts.parsing.message_shapes import ParsedMessage, messages_in

from .run_page import steps_with_texts, words_of_tokens

MOST_ITEMS = 500
"""Messages or tools that are shown; the download has all."""
_TOTAL_CHARACTERS = 2_000_000
_MOST_CHARACTERS = 20_000
_PART_CHARACTERS = 100
"""What a part of a message costs beside its text, so that many empty ones are cut, too."""
_LINE_CHARACTERS = 80
_PROMPT_CHARACTERS = 300
"""A longer prompt of the system is folded."""
_ROLES = {
    "system": gettext_lazy("System"),
    "user": gettext_lazy("User"),
    "assistant": gettext_lazy("Assistant"),
    "tool": gettext_lazy("Tool"),
}


@dataclass(frozen=True, kw_only=True)
class Part:
    """A text, call, result or anything else in a message."""

    kind: str
    """text, reasoning, call, result, failed (a result), or other."""
    name: str
    """The tool of a call or result."""
    content: Excerpt

    @property
    def is_line(self) -> bool:
        """Whether it is a call that is shown in one line."""
        head = self.content.head
        return self.kind == "call" and len(head) <= _LINE_CHARACTERS and "\n" not in head and not self.content.rest


@dataclass(frozen=True, kw_only=True)
class Said:
    """A message."""

    role: str
    """A key of _ROLES; "" if it is no message of a known shape."""
    label: str
    """The role in words, otherwise the type of what it is; may be empty."""
    name: str
    """The name of who said it."""
    parts: Sequence[Part]
    left_out: int
    """Further parts."""
    is_new: bool
    """False for a message that the previous request of the run had, too."""

    @property
    def is_folded(self) -> bool:
        """Whether it is a long prompt of the system, which is the same at each request."""
        return self.role == "system" and sum(len(part.content.head) for part in self.parts) > _PROMPT_CHARACTERS


class Tool(NamedTuple):
    name: str
    content: Excerpt


@dataclass(frozen=True, kw_only=True)
class InputPage:
    """The input of a step. Items beyond MOST_ITEMS are left out: of the messages the oldest."""

    messages: Sequence[Said]
    """The system prompt first."""
    tools: Sequence[Tool]
    parameters: Excerpt | None
    message_count: int
    hidden: int
    """How many of the oldest messages are left out."""
    tool_count: int
    repeated: int
    """How many messages the previous request of the run had, too."""
    previous: UUID | None
    """The step of the previous request of the same agent in the run."""
    next: UUID | None
    answered: Said | None
    """What the model answered, as the step has it; None if that is unknown."""

    @property
    def before(self) -> Sequence[Said]:
        return [said for said in self.messages if not said.is_new]

    @property
    def new(self) -> Sequence[Said]:
        return [said for said in self.messages if said.is_new]


def show_input(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID, step_id: UUID) -> HttpResponse:
    """Send what the model of a step was asked as a part for the panel of the run; without `?part`, lead to the run with it."""
    db = database(request)
    step = step_with_input(db, model_admin.scope(request), message_id, step_id)
    if step is None:
        return model_admin.missing(request)
    model_admin.note(request, step.message)
    if "part" not in request.GET:
        return HttpResponseRedirect(f"{url_in_run(message_id, step_id, tab='input')}#selected")
    return TemplateResponse(request, "admin/traces_app/input.html", {"asked": input_context(db, step)})


def input_context(db: Database, step: AgentStep) -> dict[str, Any]:
    """Return what the template shows as `asked` of a step with its message and session."""
    asked, problem = None, ""
    try:
        asked = read_input(db, step)
    except InputsTooLarge as error:
        problem = error.message
    counted = pricing.tokens_of(step.usage)
    return {
        "step": step,
        "session": step.message.session,
        "is_deleted": step.message.deleted_at or step.message.session.deleted_at,
        "input": asked,
        "problem": problem,
        "tokens": words_of_tokens(counted and counted._replace(output=0, reasoning=0)),
    }


def read_input(db: Database, step: AgentStep) -> InputPage | None:
    """Return what the model of a step was asked; None if it is unknown. At most seven queries.

    Raise InputsTooLarge if it has too much for one page.
    """
    key = (str(step.message_id), step.input_ref)
    before, after = _requests_around(db, step)
    earlier = (str(step.message_id), before.input_ref) if before is not None else key
    try:
        found = inputs(db, {key, earlier})
    except InputsTooLarge:
        # Then all messages are shown as new.
        found = inputs(db, {key})
    if key not in found:
        return None
    known = found.get(earlier) if before is not None else None
    return _page(found[key], known, before, after, _answered(db, step, is_last=after is None))


def _answered(db: Database, step: AgentStep, *, is_last: bool) -> Said | None:
    """Return what the model of a step said and which tools it called; of the last request without both, the answer of the run. At most
    three queries."""
    row = steps_with_texts(db, [step.pk], _MOST_CHARACTERS).first()
    calls = db.rows(ToolCall.with_deleted).filter(step_id=step.pk, parent=None, **ids_below([step.message_id]))
    in_order = calls.order_by("position", "pk").values_list("pk", "tool__name", pretty_json("args", _MOST_CHARACTERS))
    said = [("reasoning", row.shown_reasoning), ("text", row.shown_thought)] if row is not None else []
    values: list[tuple[str, str, Any]] = [(kind, "", written) for kind, written in said if written.strip()]
    values += [("call", name, _args(args)) for _id, name, args in in_order[:MOST_ITEMS]]
    if not values and is_last:
        answers = db.rows(Message.with_deleted).filter(pk=step.message_id, is_completed=True)
        texts = answers.values_list("pk", first_characters("content", _MOST_CHARACTERS))
        values = [("text", "", written) for _id, written in texts if written]
    if not values:
        return None
    parts = _parts(values, _MOST_CHARACTERS)
    left_out = len(values) - len(parts)
    return Said(role="assistant", label=str(_ROLES["assistant"]), name="", parts=parts, left_out=left_out, is_new=True)


def _requests_around(db: Database, step: AgentStep) -> tuple[AgentStep | None, AgentStep | None]:
    """Return the steps of the previous and the next request of the agent of a step. One query."""
    steps = db.rows(AgentStep.with_deleted).filter(
        message_id=step.message_id, agent_name=step.agent_name, **ids_below([step.message_id])
    )
    requests = steps.exclude(input_ref="").order_by("iteration", "ordinal", "pk").only("pk", "input_ref", "message_id")
    found: AgentStep | None = None
    in_order = iter(requests)
    for other in in_order:
        if other.pk == step.pk:
            break
        found = other
    return found, next(in_order, None)


def _is_same(pair: tuple[Raw, Raw]) -> bool:
    return bytes(pair[0]) == bytes(pair[1])


def _page(
    asked: ModelInput,
    known: ModelInput | None,
    before: AgentStep | None,
    after: AgentStep | None,
    answered: Said | None,
) -> InputPage:
    repeated = 0
    if known is not None:
        repeated = sum(1 for _same in takewhile(_is_same, zip(known.messages, asked.messages, strict=False)))
    tools = [] if asked.tools is UNSET else list(asked.tools)
    hidden = max(len(asked.messages) - MOST_ITEMS, 0)
    limit = min(_TOTAL_CHARACTERS // max(len(asked.messages) - hidden + len(tools[:MOST_ITEMS]), 1), _MOST_CHARACTERS)
    said = []
    if asked.system is not UNSET:
        is_new = known is None or known.system is UNSET or not _is_same((known.system, asked.system))
        prompt = {"role": "system", "content": msgspec.json.decode(asked.system)}
        said.append(_said(prompt, {}, limit, is_new=is_new))
    names: dict[str, str] = {}
    """The tools of the calls, by the ids that their results refer to."""
    for place, raw in enumerate(asked.messages[hidden:], hidden):
        said.append(_said(msgspec.json.decode(raw), names, limit, is_new=place >= repeated))
    return InputPage(
        messages=said,
        tools=[_tool(msgspec.json.decode(raw), limit) for raw in tools[:MOST_ITEMS]],
        parameters=None if asked.parameters is UNSET else _shown(pretty(asked.parameters), _MOST_CHARACTERS),
        message_count=len(asked.messages),
        hidden=hidden,
        tool_count=len(tools),
        repeated=repeated,
        previous=None if before is None else before.pk,
        next=None if after is None else after.pk,
        answered=answered,
    )


def _said(value: Any, names: dict[str, str], limit: int, *, is_new: bool) -> Said:
    """Return a message. What is none, or several, is shown as it is."""
    found = messages_in(value)
    if len(found) != 1:
        values = [] if value is None else [("text" if isinstance(value, str) else "other", "", value)]
        label = text(fields(value).get("type")) or ""
        return Said(role="", label=label, name="", parts=_parts(values, limit), left_out=0, is_new=is_new)
    (message,) = found
    names.update((call.id, call.name) for call in message.calls if call.id)
    values = list(_values(message, names))
    parts = _parts(values, limit)
    return Said(
        role=message.role,
        label=str(_ROLES[message.role]),
        # A result names its tool itself.
        name="" if message.role == "tool" else message.name or "",
        parts=parts,
        left_out=len(values) - len(parts),
        is_new=is_new,
    )


def _parts(values: Sequence[tuple[str, str, Any]], limit: int) -> list[Part]:
    """Return the first parts, with `limit` characters in all."""
    parts: list[Part] = []
    for kind, name, value in values:
        if limit <= 0:
            break
        written = value if isinstance(value, str) else pretty(msgspec.json.encode(value))
        parts.append(Part(kind=kind, name=name, content=_shown(written, limit)))
        limit -= len(written) + _PART_CHARACTERS
    return parts


def _values(message: ParsedMessage, names: dict[str, str]) -> Iterator[tuple[str, str, Any]]:
    """Yield the kind, the tool and the value of each part of a message."""
    if message.reasoning:
        yield "reasoning", "", message.reasoning
    yield from _contents("text", "", message.content)
    for call in message.calls:
        yield "call", call.name, _args(call.args)
    for result in message.results:
        kind = "failed" if result.failed else "result"
        yield from _contents(
            kind, next(filter(None, map(names.get, result.call_ids)), result.name or ""), result.output
        )
        if result.data is not None:
            yield "other", "", result.data
    others = [message.metadata, *(call.metadata for call in message.calls), *(one.metadata for one in message.results)]
    yield from (("other", "", metadata) for metadata in others if metadata)


def _contents(kind: str, name: str, content: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield a text, or the parts of a content. A list without types is one value."""
    parts = items(content)
    for part in parts if parts and all("type" in fields(one) for one in parts) else [content]:
        only = fields(part)
        is_text = only.keys() == {"type", "text"} and isinstance(only["text"], str)
        shown = only["text"] if is_text else part
        if shown is not None or kind != "text":
            yield kind if isinstance(shown, str) or kind != "text" else "other", name, "" if shown is None else shown


def _args(args: Any) -> Any:
    """Return the arguments of a call; those in a JSON text indented, with their numbers as they were written."""
    if not isinstance(args, str):
        return "" if args is None else args
    try:
        return pretty(args)
    except (msgspec.DecodeError, RecursionError):
        return args


def _tool(value: Any, limit: int) -> Tool:
    named = fields(value)
    # OpenAI has the name of a tool one level deeper.
    name = text(named.get("name")) or text(fields(named.get("function")).get("name")) or text(named.get("type")) or ""
    return Tool(name, _shown(value if isinstance(value, str) else pretty(msgspec.json.encode(value)), limit))


def pretty(value: Raw | bytes | str) -> str:
    """Return JSON in one line if it fits, otherwise indented."""
    written = value.encode() if isinstance(value, str) else bytes(value)
    line = msgspec.json.format(written, indent=0).decode()
    return line if len(line) <= _LINE_CHARACTERS else msgspec.json.format(written).decode()


def _shown(shown: str, limit: int) -> Excerpt:
    return excerpt(shown[:limit], len(shown.encode()))

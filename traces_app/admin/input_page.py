"""The page of a model's input at a step: the system prompt, the messages, the tools and the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any
from uuid import UUID

import msgspec
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from msgspec import UNSET, Raw

from access_app.db import Database
from access_app.request_database import database
from messages_app.admin.keyset import KeysetAdmin
from messages_app.safe_text import Excerpt, excerpt
from traces_app.models import AgentStep
from traces_app.queries.contexts import InputsTooLarge, inputs, step_with_input
from traces_app.queries.schemas.contexts import ModelInput
from tracesite_sdk.normalize.json_values import fields, text

from .conversation import ids_below
from .labels import context_in_session
from .run_page import step_number

MOST_ITEMS = 500
"""Messages or tools on the page; the API has all."""
_TOTAL_CHARACTERS = 2_000_000
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True, kw_only=True)
class Item:
    """A message or a tool."""

    name: str
    """The role of a message, the name of a tool."""
    content: Excerpt
    """Its text; empty if it has none."""
    others: Excerpt
    """Everything else of it, as JSON; empty if there is nothing."""
    is_new: bool = True
    """False for a message that the previous request of the run had, too."""


@dataclass(frozen=True, kw_only=True)
class InputPage:
    """The input of a step. Items beyond MOST_ITEMS are left out: of the messages the oldest."""

    system: Item | None
    messages: Sequence[Item]
    tools: Sequence[Item]
    parameters: Excerpt | None
    message_count: int
    tool_count: int
    repeated: int
    """How many messages the previous request of the run had, too."""


def show_input(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID, step_id: UUID) -> HttpResponse:
    """Show what the model of a step was asked."""
    db = database(request)
    step = step_with_input(db, model_admin.scope(request), message_id, step_id)
    if step is None:
        return model_admin.missing(request)
    model_admin.note(request, step.message)
    title = _("Model input of step %(number)s") % {"number": step_number(db, step)}
    asked, problem = None, ""
    try:
        asked = read_input(db, step)
    except InputsTooLarge as error:
        problem = error.message
    context = {
        **context_in_session(model_admin, request, step.message.session, title),
        "step": step,
        "message": step.message,
        "input": asked,
        "problem": problem,
    }
    return TemplateResponse(request, "admin/traces_app/input_page.html", context)


def read_input(db: Database, step: AgentStep) -> InputPage | None:
    """Return what the model of a step was asked; None if it is unknown. At most four queries.

    Raise InputsTooLarge if it has too much for one page.
    """
    key = (str(step.message_id), step.input_ref)
    before = _request_before(db, step)
    earlier = (str(step.message_id), before.input_ref) if before is not None else key
    try:
        found = inputs(db, {key, earlier})
    except InputsTooLarge:
        # Then all messages are shown as new.
        found = inputs(db, {key})
    if key not in found:
        return None
    known = found[earlier].messages if before is not None and earlier in found else []
    return _page(found[key], sum(1 for _same in takewhile(_is_same, zip(known, found[key].messages, strict=False))))


def _request_before(db: Database, step: AgentStep) -> AgentStep | None:
    steps = db.rows(AgentStep.with_deleted).filter(
        message_id=step.message_id, agent_name=step.agent_name, **ids_below([step.message_id])
    )
    earlier = steps.exclude(input_ref="").order_by("iteration", "ordinal", "pk").only("pk", "input_ref", "message_id")
    found: AgentStep | None = None
    for other in earlier:
        if other.pk == step.pk:
            break
        found = other
    return found


def _is_same(pair: tuple[Raw, Raw]) -> bool:
    return bytes(pair[0]) == bytes(pair[1])


def _page(asked: ModelInput, repeated: int) -> InputPage:
    tools = [] if asked.tools is UNSET else list(asked.tools)
    hidden = max(len(asked.messages) - MOST_ITEMS, 0)
    limit = min(_TOTAL_CHARACTERS // max(len(asked.messages) - hidden + len(tools[:MOST_ITEMS]), 1), _MOST_CHARACTERS)
    return InputPage(
        system=None if asked.system is UNSET else _item(asked.system, "", limit),
        messages=[
            _item(raw, "role", limit, is_new=place >= repeated)
            for place, raw in enumerate(asked.messages)
            if place >= hidden
        ],
        tools=[_item(raw, "name", limit) for raw in tools[:MOST_ITEMS]],
        parameters=None
        if asked.parameters is UNSET
        else _code(msgspec.json.decode(asked.parameters), _MOST_CHARACTERS),
        message_count=len(asked.messages),
        tool_count=len(tools),
        repeated=repeated,
    )


def _item(raw: Raw, key: str, limit: int, *, is_new: bool = True) -> Item:
    value = msgspec.json.decode(raw)
    named = fields(value)
    # OpenAI has the name of a tool one level deeper, and the Responses API has items with a type instead of a role.
    names = (named.get(key), fields(named.get("function")).get(key), named.get("type"))
    content, others = (value, None) if isinstance(value, str) else (named.get("content"), value)
    if isinstance(others, dict):
        known = ("content", key) if isinstance(content, str) else (key,)
        others = {name: item for name, item in others.items() if name not in known and item is not None}
    return Item(
        name=next(filter(None, map(text, names)), ""),
        content=_shown(content if isinstance(content, str) else "", limit),
        others=_code(others, limit) if others else _shown("", limit),
        is_new=is_new,
    )


def _code(value: Any, limit: int) -> Excerpt:
    return _shown(msgspec.json.format(msgspec.json.encode(value)).decode(), limit)


def _shown(shown: str, limit: int) -> Excerpt:
    return excerpt(shown[:limit], len(shown.encode()))

"""The outline of a run for its path (tracesite/run.js): the tree with names, times and statuses, and no payloads.

The first rows come with the page, so that they are painted with it. The whole outline follows as columns in reading order,
so that a run with 50,000 calls is one response: three statements, whatever the run. The words of further rows are read when
they come into sight, and the payloads of a step or call when it is selected.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.request_database import database
from access_app.visibility import ProjectScope
from messages_app.admin.keyset import KeysetAdmin
from messages_app.admin.time_zones import with_zone
from messages_app.markdown import Prose
from messages_app.models import Message
from messages_app.queries import as_uuid, ids_of_message, message_of_page
from messages_app.safe_text import Excerpt, duration, first_characters, one_line, tokens_in_words
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, ToolCall, ToolResult
from traces_app.queries.questions import last_good_run
from traces_app.queries.runs.addresses import url_in_run
from traces_app.queries.runs.deciding import COMMANDS_COMPARED, telling_arguments
from traces_app.queries.runs.outline import (
    ARGS_CHARACTERS,
    NAME_CHARACTERS,
    Outline,
    PlacedRow,
    outline_of,
    read_outline,
    read_words,
    rows_at,
    step_number,
)
from traces_app.queries.runs.telling import telling_argument
from traces_app.queries.runs.telling_texts import cut_in_middle
from tracesite_sdk.spans.conversation import SPAN_ID

from .run_page import (
    FIRST_ROWS,
    VALUE_CHARACTERS,
    RunPage,
    pages_of_failures_like,
    read_call,
    step_texts,
    steps_with_texts,
)
from .run_tree import CallNode

SHORT_LINES = 12
SHORT_CHARACTERS = 1_000
"""Arguments that have no more are shown above the result."""
WHOLE_CHARACTERS = 1_000_000
"""Characters of an error that is longer than VALUE_CHARACTERS, of which the end is looked for."""


@dataclass(frozen=True, kw_only=True)
class Payload:
    """One payload of a step or call."""

    column: str
    label: str
    is_json: bool
    text: str
    """At most VALUE_CHARACTERS."""
    html: str
    """What the agent thought, as safe HTML of its Markdown; "" if it is shown as a text."""
    bytes: int
    is_cut: bool
    note: str
    """The place where the value is cut, in words."""
    url: str
    """Downloads the whole value."""


@dataclass(frozen=True, kw_only=True)
class Detail:
    """A step or call with its payloads."""

    id: UUID
    is_call: bool
    title: str
    telling: str
    """Of a call the argument that tells most."""
    model: str
    """The model of the step, or of the step of a call; "" if it is unknown."""
    is_pending: bool
    """Whether it is a call without a result."""
    facts: Sequence[tuple[str, str]]
    values: Sequence[Payload]
    """Short arguments of a call come first, and belong to its result."""
    input_of: UUID | None
    """This step, or the step of this call, if it is known what its model was asked."""
    input: str
    """The URL of that; "" if it is unknown."""
    parent: UUID | None
    """The call that a nested call belongs to."""
    span: str
    """The URL of the span that it was made of; "" if there is none."""
    good: str
    """The URL of what a failed call gave in the last good run; "" for others."""
    similar: str
    """The URL of how often a failed call occurred; "" for others."""
    links: Sequence[tuple[str, str]]
    """Texts and URLs of pages about calls like this one."""
    url: str
    """Leads to it in its run."""
    api: str
    """The URL of a call in the API; empty for a step."""


def explorer_words() -> str:
    """Return the texts of the explorer's script as JSON, in the language of the reader."""
    words = {
        "pending": ToolCall.Status.PENDING.label,
        "soFar": _("%(duration)s so far"),
        "success": ToolCall.Status.SUCCESS.label,
        "error": ToolCall.Status.ERROR.label,
        "step": _("Step %(number)s"),
        # Each for one, and for more.
        "steps": [ngettext("%(number)s step", "%(number)s steps", count) for count in (1, 2)],
        "calls": [ngettext("%(number)s call", "%(number)s calls", count) for count in (1, 2)],
        "failures": [ngettext("%(number)s failed", "%(number)s failed", count) for count in (1, 2)],
        "answer": _("Answer"),
        "answerError": _("Error"),
        "unanswered": _("No answer"),
        "goesOn": _("Goes on in the next part"),
        "cut": _("The bar is cut: this took much longer than the other rows"),
        "gap": _("%(duration)s not recorded"),
        "image": _("Image"),
        "nested": _("JSON in a string"),
        "more": _("Show more"),
        "copy": _("Copy"),
        "copyAs": _("Copy as"),
        "copied": _("Copied."),
        "download": _("Download all"),
        "load": _("Load all"),
        "failed": _("It could not be loaded."),
        "tab_result": _("Result"),
        "tab_arguments": _("Arguments"),
        "tab_input": _("Model input"),
        "tab_span": _("Span"),
        "tab_details": _("Details"),
        "tab_json": "JSON",
        "tab_similar": _("Similar"),
        "parent": _("Parent call"),
        "good": _("In the last good run"),
        "nothing": _("(empty)"),
        "noText": _("The model wrote no text in this step, or its text is the answer."),
        "into": _("%(time)s into the run"),
        "back": _("Back to the path"),
        "found": _("Found: %(number)s"),
        "place": _("%(number)s of %(total)s"),
        "failurePlace": _("Failure %(number)s of %(total)s"),
        "bottleneck": _("Bottleneck"),
        "bottleneckMeans": _(
            "It took a quarter of the run or more, and more than twice as long as any other step or call that did not only wait"
        ),
        "milliseconds": _("%(number)d ms"),
        "seconds": _("%(number).1f s"),
        "minutes": _("%(minutes)d min %(seconds)d s"),
        "hours": _("%(hours)d h %(minutes)d min"),
    }
    return json.dumps(words, default=str)


def send_outline(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Send the outline of a run as JSON."""
    db = database(request)
    if not sees(model_admin, request, message_id):
        raise Http404
    return HttpResponse(msgspec.json.encode(read_outline(db, message_id)), content_type="application/json")


def send_detail(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID, node_id: UUID) -> HttpResponse:
    """Send a step or call of a run with its payloads as JSON; with `?good` the same call of the last good run, or a problem."""
    db = database(request)
    detail: Detail | dict[str, str] | None = None
    if "good" in request.GET:
        detail = read_good_call(db, model_admin.scope(request), message_id, node_id)
    elif sees(model_admin, request, message_id):
        detail = read_detail(db, message_id, node_id)
    if detail is None:
        raise Http404
    return HttpResponse(msgspec.json.encode(detail), content_type="application/json")


def send_words(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> HttpResponse:
    """Send the words of the rows of a run that `?id=` names, at most FIRST_ROWS, as JSON by their ids."""
    db = database(request)
    if not sees(model_admin, request, message_id):
        raise Http404
    ids = [key for key in map(as_uuid, request.GET.getlist("id")[:FIRST_ROWS]) if key is not None]
    return HttpResponse(
        msgspec.json.encode(read_words(db, ids, message_id=message_id)), content_type="application/json"
    )


def sees(model_admin: KeysetAdmin, request: HttpRequest, message_id: UUID) -> bool:
    """Return whether there is such a message in a project of the reader, in the trash or not."""
    db = database(request)
    return ids_of_message(db, model_admin.scope(request), message_id) is not None


def read_first_rows(db: Database, message: Message, run: RunPage) -> Outline:
    """Return the outline of the first rows of a run, which is the whole one if it has no more. At most five queries."""
    placed = [
        PlacedRow(node.id, depth, True, node.status, "")
        if isinstance(node, CallNode)
        else PlacedRow(node.id, depth, False, "", node.number)
        for depth, node in run.first_rows
    ]
    rows = rows_at(db, placed)
    is_whole = len(run.first_rows) < FIRST_ROWS and not run.is_cut
    return outline_of(rows, read_words(db, rows.ids, message_id=message.pk), is_whole=is_whole, took_ms=message.took_ms)


def read_detail(db: Database, message_id: UUID, node_id: UUID) -> Detail | None:
    """Return a call or step of a message with its payloads; None if the message has no such row. At most six queries."""
    if db.rows(ToolCall.with_deleted).filter(pk=node_id, message_id=message_id).exists():
        return _call_detail(db, node_id)
    step = steps_with_texts(db, [node_id], VALUE_CHARACTERS).filter(message_id=message_id).first()
    return _step_detail(db, step) if step is not None else None


def read_good_call(
    db: Database, scope: ProjectScope, message_id: UUID, call_id: UUID
) -> Detail | dict[str, str] | None:
    """Return the call of the last good run of the same question that is most like a call of a run: of the same tool, the first with
    the same telling argument, or else the first; or the problem, if there is none. None if there is no such run in the scope."""
    message = message_of_page(db, scope, message_id)
    if message is None:
        return None
    try:
        good = good_call_like(db, scope, message, call_id)
    except InvalidInput:
        return {"problem": _("Finding a good run of the same question took too long.")}
    return {"problem": _("No good run of the same question has this call.")} if good is None else _call_detail(db, good)


def good_call_like(db: Database, scope: ProjectScope, message: Message, call_id: UUID) -> UUID | None:
    """Return the id of that call; None if there is no such run in the scope, or no such call. Raise InvalidInput if it takes too long."""
    good = last_good_run(db, message)
    if good is None or ids_of_message(db, scope, good) is None:
        return None
    own = db.rows(ToolCall.with_deleted).filter(pk=call_id, message_id=message.pk)
    calls = db.rows(ToolCall.objects).filter(message_id=good, tool__in=own.values("tool"), **ids_below([good]))
    in_order = calls.order_by("step__iteration", "step__ordinal", "position", "pk")[:COMMANDS_COMPARED]
    told = telling_arguments(in_order, ARGS_CHARACTERS)
    wanted = telling_arguments(own, ARGS_CHARACTERS).get(call_id)
    return next((key for key, argument in told.items() if argument == wanted), next(iter(told), None))


def _call_detail(db: Database, call_id: UUID) -> Detail | None:
    call = read_call(db, call_id)
    if call is None or call.texts is None:
        return None
    row, texts = call.texts.row, call.texts

    def value(table: str, column: str, label: str, shown: Excerpt, *, is_json: bool = False) -> Payload:
        url = reverse("admin:traces_app_toolcall_value", args=[table, call_id, column])
        return _value(column, label, shown, url, is_json=is_json)

    args = value("call", "args", _("Arguments"), texts.args, is_json=True)
    error = _error(db, call_id, value("result", "error", _("Error"), texts.error))
    is_short = args.bytes <= SHORT_CHARACTERS and args.text.count("\n") < SHORT_LINES
    values = [
        *([args, error] if is_short else [error, args]),
        value("result", "output", _("Output"), texts.output),
        value("result", "data", _("Data"), texts.data, is_json=True),
        value("result", "attachments", _("Attachments"), texts.attachments, is_json=True),
        value("call", "reflection", _("Reflection"), texts.reflection),
        value("result", "raw", _("Text as received"), texts.raw),
        value("call", "metadata", _("Metadata"), texts.metadata, is_json=True),
        value("result", "metadata", _("Result metadata"), texts.result_metadata, is_json=True),
    ]
    return Detail(
        id=call_id,
        is_call=True,
        title=one_line(row.tool.name, NAME_CHARACTERS) or _("(no name)"),
        telling=telling_argument(row.tool.name, texts.args.head + texts.args.rest),
        model=one_line(row.step.model, NAME_CHARACTERS),
        is_pending=row.status == ToolCall.Status.PENDING,
        facts=_facts(
            (_("Status"), str(row.get_status_display())),
            (_("Step"), step_number(db, row.step)),
            (_("Duration"), duration(row.duration_ms)),
            (str(with_zone(_("Started"))), _instant(row.started_at)),
            (str(with_zone(_("Completed"))), _instant(row.completed_at)),
            (_("Call ID"), one_line(row.call_id, 200)),
            (_("ID"), str(call_id)),
        ),
        # Of a failed call the output is often the error.
        values=[one for one in values if one.text and not (one.column == "output" and texts.output == texts.error)],
        **_input(row.step),
        parent=row.parent_id,
        span=_span_url(row.message_id, call_id, texts.result_metadata),
        good=_url_of_failure(row, "detail", good="1"),
        similar=_url_of_failure(row, "similar_calls"),
        links=pages_of_failures_like(db, row),
        url=url_in_run(row.message_id, call_id),
        api=reverse("tracesite:tool-call", args=[call_id]),
    )


def _step_detail(db: Database, step: Any) -> Detail:
    texts = step_texts(step)

    prose = Prose()

    def value(column: str, label: str, shown: Excerpt, *, is_json: bool = False) -> Payload:
        url = reverse("admin:messages_app_message_value", args=["step", step.pk, column])
        made = prose.shown(shown) if column in ("thought", "reasoning") else None
        html = f"{made.head}{made.rest}" if made is not None and made.is_prose else ""
        return _value(column, label, shown, url, is_json=is_json, html=html)

    values = [
        value("thought", _("Thought"), texts.thought),
        value("reasoning", _("Reasoning"), texts.reasoning),
        value("usage", _("Usage"), texts.usage, is_json=True),
        value("metadata", _("Metadata"), texts.metadata, is_json=True),
    ]
    return Detail(
        id=step.pk,
        is_call=False,
        title=_("Step %(number)s") % {"number": step_number(db, step)},
        telling="",
        model=one_line(step.model, NAME_CHARACTERS),
        is_pending=False,
        facts=_facts(
            (_("Agent"), one_line(step.agent_name, NAME_CHARACTERS)),
            (_("Model"), one_line(step.model, NAME_CHARACTERS)),
            (_("Duration"), duration(step.duration_ms)),
            (_("Time to first token"), duration(step.time_to_first_token_ms)),
            (str(with_zone(_("Started"))), _instant(step.timestamp)),
            (_("Tokens"), "" if texts.tokens is None else tokens_in_words(*texts.tokens)),
            (_("Cost"), "" if step.cost is None else f"${step.cost.normalize():f}"),
            (_("ID"), str(step.pk)),
        ),
        values=[one for one in values if one.text],
        **_input(step),
        parent=None,
        span=_span_url(step.message_id, step.pk, texts.metadata),
        good="",
        similar="",
        links=[],
        url=url_in_run(step.message_id, step.pk),
        api="",
    )


def _span_url(message_id: UUID, node_id: UUID, metadata: Excerpt) -> str:
    """Return the URL of the span of a step or call, whose metadata names it, unless that is cut too early to tell."""
    if f'"{SPAN_ID}"' not in metadata.head + metadata.rest and not metadata.is_cut:
        return ""
    return reverse("admin:messages_app_message_spans", args=[message_id], query={"call": str(node_id)})


def _url_of_failure(call: ToolCall, page: str, **query: str) -> str:
    """Return the URL of a page about a failed call; "" for others."""
    if call.status != ToolCall.Status.ERROR:
        return ""
    return reverse(f"admin:messages_app_message_{page}", args=[call.message_id, call.pk], query=query)


def _input(step: AgentStep) -> dict[str, Any]:
    """Return the fields of a Detail about what the model of its step was asked."""
    if not step.input_ref:
        return {"input_of": None, "input": ""}
    return {"input_of": step.pk, "input": reverse("admin:messages_app_message_input", args=[step.message_id, step.pk])}


def _value(column: str, label: str, shown: Excerpt, url: str, *, is_json: bool, html: str = "") -> Payload:
    return Payload(
        column=column,
        label=label,
        is_json=is_json,
        text=shown.head + shown.rest,
        html=html,
        bytes=shown.total_bytes,
        is_cut=shown.is_cut,
        note=_("The value is truncated here."),
        url=url,
    )


def _error(db: Database, call_id: UUID, error: Payload) -> Payload:
    """Return a long error with its end, which tells most, and without its middle."""
    text = error.text
    if error.is_cut:
        rows = db.rows(ToolResult.objects).filter(pk=call_id)
        text = dict(rows.values_list("pk", first_characters("error", WHOLE_CHARACTERS))).get(call_id, text)
    beginning, left_out, end = cut_in_middle(text)
    if not left_out:
        return error
    said = ngettext("%(number)s line is left out", "%(number)s lines are left out", left_out) % {"number": left_out}
    return replace(error, text=f"{beginning}\n⋯ {said} ⋯\n{end}", is_cut=True, note="")


def _facts(*facts: tuple[str, str]) -> list[tuple[str, str]]:
    return [(label, text) for label, text in facts if text]


def _instant(instant: datetime | None) -> str:
    if instant is None:
        return ""
    return f"{timezone.localtime(instant):%Y-%m-%d %H:%M:%S}.{instant.microsecond // 1000:03}"

"""The outline of a run for its path (tracesite/run.js): the tree with names, times and statuses, and no payloads.

The first rows come with the page, so that they are painted with it. The whole outline follows as columns in reading order,
so that a run with 50,000 calls is one response: three statements, whatever the run. The words of further rows are read when
they come into sight, and the payloads of a step or call when it is selected.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from django.db.models import (
    BigIntegerField,
    BooleanField,
    Case,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    IntegerField,
    OuterRef,
    Subquery,
    Value,
    When,
)
from django.db.models.functions import Cast, Extract, Left
from django.db.models.lookups import LessThanOrEqual
from django.http import Http404, HttpRequest, HttpResponse
from django.template.defaultfilters import filesizeformat
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
from messages_app.safe_text import Excerpt, cost, duration, first_characters, one_line, size_of, tokens_in_words
from messages_app.sql.pagination import ids_below
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from traces_app.queries.questions import last_good_run
from traces_app.queries.runs.deciding import COMMANDS_COMPARED, telling_arguments
from traces_app.queries.runs.reading_order import reading_order
from traces_app.queries.runs.telling import telling_argument
from traces_app.queries.runs.telling_texts import cut_in_middle, note_of_result, plain, telling_line
from tracesite_sdk.spans.conversation import SPAN_ID

from .critical_path import CriticalPath, critical_path
from .run_page import (
    FIRST_ROWS,
    VALUE_CHARACTERS,
    RunPage,
    pages_of_failures_like,
    read_call,
    step_number,
    step_texts,
    steps_with_texts,
    url_in_run,
)
from .run_tree import CallNode, Key, StepNode, step_numbers

OUTLINE_ROWS = 100_000
"""The maximum of steps, and of calls; the outline says so if the run has more."""
SHORT_LINES = 12
SHORT_CHARACTERS = 1_000
"""Arguments that have no more are shown above the result."""
NAME_CHARACTERS = 80
SAID_CHARACTERS = 640
ARGS_CHARACTERS = 16_384
ERROR_CHARACTERS = 2_000
OUTPUT_CHARACTERS = 4_000
"""The beginnings of values of which the words of rows are made."""
COMPARED_BYTES = 8_192
"""Calls with longer arguments, as they are stored, are not compared."""
WHOLE_CHARACTERS = 1_000_000
"""Characters of an error that is longer than VALUE_CHARACTERS, of which the end is looked for."""
_STATUSES = {status.value: place for place, status in enumerate(ToolCall.Status)}
"""Plain strings as keys: they come from the database."""


def _epoch(column: str) -> Cast:
    """Return the expression for a time as milliseconds since 1970."""
    seconds = Extract(column, "epoch", output_field=FloatField())
    return Cast(ExpressionWrapper(seconds * 1000, output_field=FloatField()), BigIntegerField())


_NOTHING = Value(None, output_field=BigIntegerField())
_HAS_WORDS = Func(
    Left("thought", SAID_CHARACTERS),
    Left("reasoning", SAID_CHARACTERS),
    template=r"(concat(%(expressions)s) ~ '\S')",
    output_field=BooleanField(),
)
_ERROR = ToolResult.objects.filter(pk=OuterRef("pk")).values_list(Left("error", ERROR_CHARACTERS))
_DIGEST = Case(
    When(
        LessThanOrEqual(Func("args", function="pg_column_size", output_field=IntegerField()), COMPARED_BYTES),
        then=Func(
            *("args", "tool_id", "status", Case(When(status=ToolCall.Status.ERROR, then=Subquery(_ERROR)))),
            template="('x' || left(md5(concat_ws(chr(1), %(expressions)s)), 16))::bit(64)::bigint",
            output_field=BigIntegerField(),
        ),
    )
)
"""Of what makes calls equal. A number, because a masked reader has every text masked that is not a column. Equal texts are encrypted
to different ones, so that encrypted calls are equal only without any."""
_STEP_COLUMNS = (_epoch("timestamp"), _NOTHING, F("duration_ms"), F("cost"), _HAS_WORDS)
_CALL_COLUMNS = (_epoch("started_at"), _epoch("completed_at"), F("duration_ms"), _NOTHING, _DIGEST)
"""Start, end, duration, cost, and whether a step has words or the digest of a call. The database computes the milliseconds, because 100,000 datetimes take a second."""


class RowWords(msgspec.Struct, frozen=True, omit_defaults=True):
    """The words of a row: each one line without hidden characters."""

    text: str = ""
    """The beginning of what the agent thought or said; of a call the argument that tells most."""
    error: str = ""
    """The line of an error that tells most."""
    note: str = ""
    """The beginning of a result, or its size."""


@dataclass(frozen=True, kw_only=True)
class RunRows:
    """The steps and calls of a run in reading order, a column for each property."""

    ids: list[UUID] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)
    """1 for a call, 0 for a step."""
    depths: list[int] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)
    """As in `Outline`."""
    names: list[str] = field(default_factory=list)
    """The tools of calls and agents of steps, without hidden characters."""
    numbers: list[str] = field(default_factory=list)
    """The numbers of steps; "" for a call."""
    starts: list[int | None] = field(default_factory=list)
    """Milliseconds since 1970."""
    durations: list[int | None] = field(default_factory=list)
    costs: list[Decimal | None] = field(default_factory=list)
    """Of steps; calls have none of their own."""
    has_words: list[bool] = field(default_factory=list)
    """Of a step whether it says what the agent thought; of a call True."""
    digests: list[int | None] = field(default_factory=list)
    """Of what makes calls equal; None for a step, and for a call that is not compared."""
    is_cut: bool = False
    """Whether the run has more rows."""


class Chapter(msgspec.Struct, frozen=True):
    """How the run of a question ended."""

    outcome: str
    label: str
    run: UUID


class StoodFor(NamedTuple):
    """A step for which a call stands."""

    id: UUID
    start: int | None
    duration: int | None
    agent: int | None
    """The place of its name in `names`, where that is another one than before."""


@dataclass(frozen=True, kw_only=True)
class Outline:
    """Steps and calls in reading order, a column for each property. Times are milliseconds from the first start of a row.

    A call stands for its step, too, if it is the only one and the step has no words. The step has a row of its own if it is the
    bottleneck. Equal calls that follow each other (same tool, arguments, status and error) are below the first of them.
    """

    ids: Sequence[UUID]
    calls: Sequence[int]
    """1 for a call, 0 for a step; in a session also 2 for an answer, 3 for what begins a chapter, 4 for a message that nobody asked."""
    depths: Sequence[int]
    steps: Mapping[int, StoodFor]
    """The steps for which calls stand, by row."""
    repeats: Mapping[int, int]
    """The number of equal calls, or of notes of the same kind, by the row of the first of them; the others follow it, one level deeper."""
    statuses: Sequence[int]
    """0 pending, 1 success, 2 error; steps have 1."""
    names: Sequence[str]
    """The different names of tools and agents, without hidden characters."""
    named: Sequence[int]
    """The place of the name in `names`: of a call its tool, of a step its agent where that is another one than before."""
    numbers: Sequence[str]
    """The numbers of steps; "" for a call that stands for none."""
    words: Mapping[Key, RowWords]
    """The words of the rows that came with the page."""
    starts: Sequence[int | None]
    durations: Sequence[int | None]
    costs: Mapping[int, str]
    """The known costs of steps, for people, by row, also of steps for which calls stand."""
    critical: Sequence[int]
    """1 for a row on the critical path; only 0 unless the outline is whole."""
    bottleneck: int | None
    """The row that is clearly the longest, if there is one: see CriticalPath."""
    is_whole: bool
    """False for the first rows of a longer run."""
    is_cut: bool
    origin: int | None
    """The first start in milliseconds since 1970; None if no start is known."""
    chapters: Mapping[int, Chapter] = field(default_factory=dict)
    """The chapters of a session, by row."""

    def took(self, row: int) -> int | None:
        """Return how long a row took, with the step for which it stands, as `tookOf` in tracesite/rows.js."""
        own, start, step = self.durations[row], self.starts[row], self.steps.get(row)
        if step is None or step.duration is None or own is None:
            return own if step is None or own is not None else step.duration
        if start is None or step.start is None:
            return max(own, step.duration)
        return max(start + own, step.start + step.duration) - step.start


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
        "gap": _("Nothing ran"),
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
        "noText": _("The model wrote no text in this step."),
        "into": _("%(time)s into the run"),
        "back": _("Back to the path"),
        "found": _("Found: %(number)s"),
        "place": _("%(number)s of %(total)s"),
        "failurePlace": _("Failure %(number)s of %(total)s"),
        "bottleneck": _("Bottleneck"),
        "bottleneckMeans": _("It took more than twice as long as any other step or call that did not only wait"),
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


def read_outline(db: Database, message_id: UUID) -> Outline:
    """Return the outline of the run of a message. Three queries."""
    return outline_of(read_runs(db, [message_id])[message_id], {}, is_whole=True)


def read_runs(db: Database, message_ids: Collection[UUID]) -> dict[UUID, RunRows]:
    """Return the rows of the runs of messages: in sum at most OUTLINE_ROWS steps, and as many calls, those of the oldest messages
    first. Three queries.
    """
    if not message_ids:
        return {}
    below = {"message_id__in": list(message_ids), **ids_below(message_ids)}
    steps: list[tuple[Any, ...]] = list(
        db.rows(AgentStep.with_deleted)
        .filter(**below)
        .order_by("message_id", "iteration", "ordinal", "pk")
        .values_list("pk", *_STEP_COLUMNS, "iteration", "agent_name", "message_id")[: OUTLINE_ROWS + 1]
    )
    calls: list[tuple[Any, ...]] = list(
        db.rows(ToolCall.with_deleted)
        .filter(**below)
        .order_by("message_id", "step__iteration", "step__ordinal", "step_id", "position", "pk")
        .values_list("pk", *_CALL_COLUMNS, "status", "tool_id", "step_id", "parent_id")[: OUTLINE_ROWS + 1]
    )
    tools = dict(db.rows(Tool.objects).filter(pk__in={row[7] for row in calls}).values_list("pk", "name"))
    labels = {tool: _shown_name(name) for tool, name in tools.items()}
    # By numbers, because Python takes longer to hash UUIDs.
    run_of = {row[0].int: row[8] for row in steps}
    steps_of: dict[UUID, list[tuple[Any, ...]]] = {key: [] for key in message_ids}
    calls_of: dict[UUID, list[tuple[Any, ...]]] = {key: [] for key in message_ids}
    for row in steps:
        steps_of[row[8]].append(row)
    for row in calls:
        # A step beyond the maximum is unknown.
        if row[8].int in run_of:
            calls_of[run_of[row[8].int]].append(row)
    ends = [steps[-1][8]] if len(steps) > OUTLINE_ROWS else []
    if len(calls) > OUTLINE_ROWS and calls[-1][8].int in run_of:
        ends.append(run_of[calls[-1][8].int])
    return {
        key: _rows_of(steps_of[key], calls_of[key], labels, is_cut=any(key >= end for end in ends))
        for key in message_ids
    }


def _rows_of(
    steps: Sequence[tuple[Any, ...]], calls: Sequence[tuple[Any, ...]], labels: Mapping[int, str], *, is_cut: bool
) -> RunRows:
    """Return the rows of one run: of its steps and calls as `read_runs` reads them."""
    order, depths = reading_order(
        [row[0] for row in steps],
        [row[7] for row in steps],
        [row[0] for row in calls],
        [row[8] for row in calls],
        [row[9] for row in calls],
    )
    numbers = [*step_numbers([(place, row[6]) for place, row in enumerate(steps)]).values(), *[""] * len(calls)]
    agents = {agent: one_line(agent, NAME_CHARACTERS) for agent in {row[7] for row in steps}}
    names = [*(agents[row[7]] for row in steps), *(labels[row[7]] for row in calls)]
    statuses = [*[1] * len(steps), *(_STATUSES[row[6]] for row in calls)]
    nodes = [*steps, *calls]
    rows = [nodes[node] for node in order]
    return RunRows(
        ids=[row[0] for row in rows],
        calls=[int(node >= len(steps)) for node in order],
        depths=depths,
        statuses=[statuses[node] for node in order],
        names=[names[node] for node in order],
        numbers=[numbers[node] for node in order],
        starts=[row[1] for row in rows],
        durations=[_duration(*row[1:4]) for row in rows],
        costs=[row[4] for row in rows],
        has_words=[node >= len(steps) or row[5] for node, row in zip(order, rows, strict=True)],
        digests=[row[5] if node >= len(steps) else None for node, row in zip(order, rows, strict=True)],
        is_cut=is_cut,
    )


def read_first_rows(db: Database, message_id: UUID, run: RunPage) -> Outline:
    """Return the outline of the first rows of a run, which is the whole one if it has no more. At most five queries."""
    keys = [node.id for _depth, node in run.first_rows]
    times: dict[Key, tuple[Any, ...]] = {}
    calls = db.rows(ToolCall.with_deleted).filter(pk__in=keys).values_list("pk", *_CALL_COLUMNS, "tool__name")
    steps = db.rows(AgentStep.with_deleted).filter(pk__in=keys).values_list("pk", *_STEP_COLUMNS, "agent_name")
    if keys:
        times = {str(row[0]): row for row in (*calls, *steps)}
    # A row that was purged meanwhile is left out.
    shown = [(depth, node, times[node.id]) for depth, node in run.first_rows if node.id in times]
    rows = RunRows(
        ids=[row[0] for _depth, _node, row in shown],
        calls=[int(isinstance(node, CallNode)) for _depth, node, _row in shown],
        depths=[depth for depth, _node, _row in shown],
        statuses=[_STATUSES[node.status] if isinstance(node, CallNode) else 1 for _depth, node, _row in shown],
        names=[
            _shown_name(row[6]) if isinstance(node, CallNode) else one_line(row[6], NAME_CHARACTERS)
            for _depth, node, row in shown
        ],
        numbers=[node.number if isinstance(node, StepNode) else "" for _depth, node, _row in shown],
        starts=[row[1] for _depth, _node, row in shown],
        durations=[_duration(*row[1:4]) for _depth, _node, row in shown],
        costs=[row[4] for _depth, _node, row in shown],
        has_words=[isinstance(node, CallNode) or row[5] for _depth, node, row in shown],
        digests=[row[5] if isinstance(node, CallNode) else None for _depth, node, row in shown],
    )
    is_whole = len(run.first_rows) < FIRST_ROWS and not run.is_cut
    return outline_of(rows, read_words(db, rows.ids, message_id=message_id), is_whole=is_whole)


def read_words(db: Database, ids: Collection[UUID], **of: Any) -> dict[Key, RowWords]:
    """Return the words of those of the rows that match `of`, which names a message, several, or a session. Three queries."""
    words: dict[Key, RowWords] = {}
    if not ids:
        return words
    steps = db.rows(AgentStep.with_deleted).filter(pk__in=ids, **of)
    for key, thought, reasoning in steps.values_list(
        "pk", first_characters("thought", SAID_CHARACTERS), first_characters("reasoning", SAID_CHARACTERS)
    ):
        words[str(key)] = RowWords(text=plain(thought) or plain(reasoning))
    calls = db.rows(ToolCall.with_deleted).filter(pk__in=ids, **of)
    told = telling_arguments(calls, ARGS_CHARACTERS)
    results = db.rows(ToolResult.objects).filter(pk__in=told)
    ended = {
        key: columns
        for key, *columns in results.values_list(
            "pk",
            first_characters("error", ERROR_CHARACTERS),
            first_characters("output", OUTPUT_CHARACTERS),
            size_of("output"),
        )
    }
    for key, argument in told.items():
        error, output, size = ended.get(key, ("", "", 0))
        words[str(key)] = RowWords(
            text=argument,
            error=telling_line(error),
            note="" if error else _note(output, size),
        )
    return words


def _note(output: str, size: int) -> str:
    note = note_of_result(output, size)
    if note.lines:
        return ngettext("%(number)s line", "%(number)s lines", note.lines) % {"number": note.lines}
    if note.items:
        return ngettext("%(number)s item", "%(number)s items", note.items) % {"number": note.items}
    return filesizeformat(note.bytes) if note.bytes else note.words


def _shown_name(tool: str) -> str:
    return one_line(tool, NAME_CHARACTERS) or _("(no name)")


def outline_of(rows: RunRows, words: Mapping[Key, RowWords], *, is_whole: bool) -> Outline:
    origin = min((start for start in rows.starts if start is not None), default=0)
    starts = [None if start is None else start - origin for start in rows.starts]
    path = critical_path(rows.depths, starts, rows.durations) if is_whole else CriticalPath([], None)
    on_path = set(path.rows)
    alone = _steps_without_row(rows, path.bottleneck, is_whole=is_whole)
    shown = [row for row in range(len(rows.ids)) if row not in alone]
    names: dict[str, int] = {}
    named: list[int] = []
    depths = []
    numbers = []
    digests: list[int | None] = []
    steps: dict[int, StoodFor] = {}
    costs: dict[int, str] = {}
    agents: dict[int, str] = {}
    """The agent of the last step at each depth."""
    above: list[int] = []
    """The depths of the steps without a row above the present one."""
    for row, is_call in enumerate(rows.calls):
        depth, name = rows.depths[row], rows.names[row]
        while above and above[-1] >= depth:
            above.pop()
        is_same = not is_call and agents.get(depth) == name
        place = names.setdefault("" if is_same else name, len(names))
        if not is_call:
            agents[depth] = name
        if (spent := rows.costs[row]) is not None:
            costs[len(named)] = cost(spent)
        if row in alone:
            agent = None if is_same or not name else place
            steps[len(named)] = StoodFor(rows.ids[row], starts[row], rows.durations[row], agent)
            above.append(depth)
            continue
        named.append(place)
        depths.append(depth - len(above))
        numbers.append(rows.numbers[row - 1] if row - 1 in alone else rows.numbers[row])
        digests.append(rows.digests[row])
    repeats = _repeats(depths, digests, steps)
    for first, count in repeats.items():
        depths[first + 1 : first + count] = [depths[first] + 1] * (count - 1)
    return Outline(
        ids=[rows.ids[row] for row in shown],
        calls=[rows.calls[row] for row in shown],
        depths=depths,
        steps=steps,
        repeats=repeats,
        statuses=[rows.statuses[row] for row in shown],
        names=list(names),
        named=named,
        numbers=numbers,
        words=words,
        starts=[starts[row] for row in shown],
        durations=[rows.durations[row] for row in shown],
        costs=costs,
        critical=[int(row in on_path or (row - 1 in on_path and row - 1 in alone)) for row in shown],
        bottleneck=None if path.bottleneck is None else bisect_left(shown, path.bottleneck),
        is_whole=is_whole,
        is_cut=rows.is_cut,
        origin=origin or None,
    )


def _repeats(depths: Sequence[int], digests: Sequence[int | None], steps: Mapping[int, StoodFor]) -> dict[int, int]:
    """Return the numbers of equal rows without rows below them, each by the row of the first."""
    repeats: dict[int, int] = {}
    first = 0
    for row in range(1, len(depths)):
        is_equal = (
            digests[row] is not None
            and digests[row] == digests[first]
            and depths[row] == depths[first]
            # The second call of a step is not equal to one that stands for its step, nor one of another agent.
            and (row in steps) == (first in steps)
            and (row not in steps or steps[row].agent is None)
            and (row + 1 == len(depths) or depths[row + 1] <= depths[row])
        )
        if is_equal:
            repeats[first] = row - first + 1
        else:
            first = row
    return repeats


def _steps_without_row(rows: RunRows, bottleneck: int | None, *, is_whole: bool) -> set[int]:
    """Return the steps for which the call after them stands."""
    below = [0] * len(rows.ids)
    path: list[int] = []
    for row, depth in enumerate(rows.depths):
        del path[depth:]
        if path:
            below[path[-1]] += 1
        path.append(row)
    # What is below the last rows that were read, and next to them, is unknown.
    unknown = () if is_whole else path
    alone = {row for row, count in enumerate(below) if count == 1 and not rows.calls[row] and not rows.has_words[row]}
    return {row for row in alone if rows.calls[row + 1]} - {bottleneck, *unknown}


def _duration(start: int | None, end: int | None, duration_ms: int | None) -> int | None:
    """Return the milliseconds that a row took, by its times if it does not say; None if that is unknown."""
    if duration_ms is not None:
        return duration_ms
    return None if start is None or end is None else max(end - start, 0)


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

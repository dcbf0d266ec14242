"""The page of an agent run: its tree (run_tree.py), with limited sizes of values.

The run is read in two passes: first the skeleton (ids, parents, status: a few bytes a call), from which the tree is built
and split into pages, then the texts of the requested page. So neither the number of queries nor the size of a page
depends on the run: the values of a page share TOTAL_CHARACTERS.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import QuerySet, Sum
from django.http import QueryDict
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from access_app.db import Database
from access_app.errors import InvalidInput
from access_app.visibility import ProjectScope
from messages_app.models import NONE_DECIDED, Message, Session
from messages_app.safe_text import (
    Excerpt,
    excerpt,
    first_characters,
    json_excerpt,
    pretty_json,
    size_of,
    size_of_json,
    tokens_by_kind,
    tokens_with_cached,
)
from messages_app.sql.pagination import IdRange, ids_below
from traces_app.models import AgentStep, Tool, ToolCall, ToolResult
from traces_app.queries.error_groups import group_of_call
from traces_app.queries.filters import CallFilterSet
from traces_app.queries.runs.deciding import EndedCall, deciding_failures, stored_decision
from traces_app.queries.runs.reading_order import reading_order, step_numbers
from traces_app.queries.runs.telling_texts import telling_line
from traces_app.queries.usage import ALL_TOKENS, IS_UNPRICED
from tracesite_sdk.normalize import pricing
from tracesite_sdk.records import ids

from .run_tree import (
    CallNode,
    CallTexts,
    Key,
    StepNode,
    StepTexts,
    nest,
    page_numbers,
    unfold,
)

TOTAL_CHARACTERS = 2_000_000
VALUE_CHARACTERS = 65_536
LEAST_CHARACTERS = 2_000
SKELETON_ROWS = 20_000
FAILURES_NAMED = 10
MODELS_NAMED = 5
STEPS_COUNTED = 2_000
COUNTED_FOR = timedelta(days=30)
MOST_COUNTED = 1_000
FIRST_ROWS = 200
"""Rows of the explorer that come with the page, so that they are painted with it."""


K = TypeVar("K")


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The fields of a link to a failed call."""

    call_id: Key
    step: str
    """The number of its step."""
    tool: str
    error: str
    """The line of its error that tells most."""
    page: int | None
    """The page of the run with this call; None if no page shows it."""


@dataclass(frozen=True, kw_only=True)
class FailurePlace:
    """The place of a page among the failed calls of its run, in reading order."""

    total: int
    number: int | None
    """The number of the requested failed call, from 1; None if none was requested."""
    current: Failure | None
    previous: Failure | None
    next: Failure | None


@dataclass(frozen=True, kw_only=True)
class RunPage:
    """One page of an agent run."""

    steps: Sequence[StepNode]
    first_rows: Sequence[tuple[int, CallNode | StepNode]]
    """The first FIRST_ROWS rows of the whole run, in reading order, with their depths."""
    number: int
    """From 1."""
    pages: int
    failures: Sequence[Failure]
    """The first FAILURES_NAMED failed calls, in reading order."""
    more_failures: int
    deciding: Failure | None
    """The failed call that decided how the run ended (outcome.py)."""
    place: FailurePlace
    is_cut: bool
    """Whether the run has more calls than its pages show."""
    lacks_wanted: bool
    """Whether a call was asked for that the run does not have; False if it has too many to tell."""


def read_run(
    db: Database,
    message_id: UUID,
    *,
    page: int = 1,
    call: UUID | None = None,
    open_all: bool = False,
    decided_by: UUID | None = None,
) -> RunPage:
    """Return page `page` of the run of a message, or the page that shows `call`. At most ten queries.

    `decided_by` is the `stored_decision` of the run; without it the call that decided is computed.
    """
    run = _skeleton(db, message_id)
    numbers = page_numbers(run.depths)
    pages = max(numbers, default=1)
    wanted = None if call is None else run.place_of(call)
    number = min(max((numbers[wanted] if wanted is not None else 0) or page, 1), pages)
    on_page = [place for place, one in enumerate(numbers) if one == number]
    nodes = [run.node(place) for place in on_page]
    steps = nest(nodes, [run.depths[place] for place in on_page])
    _load_texts(db, message_id, nodes)
    unfold(steps, None if call is None else str(call), open_all=open_all)
    failed = run.failed
    # Without a requested call, the previous and next failures are relative to the first step of the page.
    here = wanted if wanted is not None else on_page[0] if number > 1 else 0
    before = bisect_left(failed, here)
    around = failed[max(before - 1, 0) : before + 2]
    deciding = _deciding(db, run, decided_by)
    named = _failures(db, run, {*failed[:FAILURES_NAMED], *around, *([] if deciding is None else [deciding])}, numbers)
    return RunPage(
        steps=steps,
        first_rows=[(run.depths[place], run.node(place)) for place in range(min(FIRST_ROWS, len(run.rows)))],
        number=number,
        pages=pages,
        failures=[named[place] for place in failed[:FAILURES_NAMED]],
        more_failures=max(len(failed) - FAILURES_NAMED, 0),
        deciding=None if deciding is None else named[deciding],
        place=_place(failed, before, wanted, named),
        is_cut=run.is_cut or 0 in numbers,
        lacks_wanted=call is not None and wanted is None and not run.is_cut,
    )


def read_deciding_failure(db: Database, message_id: UUID) -> UUID | None:
    """Return the failed call that decided how a run ended, or else the first one in reading order. At most four queries."""
    run = _skeleton(db, message_id)
    if not run.failed:
        return None
    deciding = _deciding(db, run, None)
    key: UUID = run.rows[run.failed[0] if deciding is None else deciding][0]
    return key


def deciding_failure_of(db: Database, run: Message) -> Failure | None:
    """Return the failed call that decided how a run ended; None if none did. At most six queries."""
    if not run.failure_count:
        return None
    skeleton = _skeleton(db, run.pk)
    place = _deciding(db, skeleton, stored_decision(run))
    return None if place is None else _failures(db, skeleton, [place], page_numbers(skeleton.depths))[place]


def _deciding(db: Database, run: _Skeleton, stored: UUID | None) -> int | None:
    """Return the place of the failed call that decided how the run ended. Two queries, or none without failures or if it is stored."""
    if not run.failed or stored == NONE_DECIDED:
        return None
    if stored is not None and (place := run.place_of(stored)) is not None:
        return place
    failed_tools = {run.rows[place][4] for place in run.failed}
    tools = dict(db.rows(Tool.objects).filter(pk__in=failed_tools).values_list("pk", "name"))
    calls = [
        EndedCall(place, key, tools[tool], status == ToolCall.Status.ERROR, status == ToolCall.Status.PENDING)
        for place, (key, _step, _parent, status, tool) in (
            (place, row) for place, row in enumerate(run.rows) if not run.numbers[place]
        )
        if tool in tools
    ]
    return deciding_failures(db, {None: calls}).get(None)


def read_tool_time(db: Database, message_id: UUID) -> int | None:
    """Return the milliseconds of a run's calls without a parent, of which each of several parallel ones counts; None if no
    duration is known. One query."""
    calls = db.rows(ToolCall.with_deleted).filter(message_id=message_id, parent=None, **ids_below([message_id]))
    total: int | None = calls.aggregate(total=Sum("duration_ms"))["total"]
    return total


def read_tokens(db: Database, **of: Any) -> pricing.Tokens | None:
    """Return the tokens of the steps that match `of`, which names a message or a session, by their kinds; None if there are none, or
    more than STEPS_COUNTED steps. One query.

    The sums of a message have the input as its producer counts it: with cached tokens, or without.
    """
    steps = db.rows(AgentStep.with_deleted).filter(**of)
    # With their ids, without which nothing encrypted is read.
    usages = list(steps.filter(usage__isnull=False).order_by().values_list("pk", "usage")[: STEPS_COUNTED + 1])
    counted = [tokens for _id, usage in usages if (tokens := pricing.tokens_of(usage)) is not None]
    return pricing.Tokens(*map(sum, zip(*counted, strict=True))) if counted and len(usages) <= STEPS_COUNTED else None


def tokens_of(db: Database, row: Message | Session) -> pricing.Tokens:
    """Return the tokens of a run or a session by their kinds, from its steps if they tell what came from a cache. One query."""
    of = {"message__session_id": row.pk} if isinstance(row, Session) else {"message_id": row.pk, **ids_below([row.pk])}
    has_steps = isinstance(row, Session) or row.step_count > 0
    counted = read_tokens(db, **of) if has_steps else None
    if counted is None or not counted.cached_input:
        return pricing.Tokens(row.input_tokens or 0, 0, 0, row.output_tokens or 0, 0)
    return counted


def words_of_tokens(counted: pricing.Tokens | None) -> dict[str, str]:
    """Return tokens in words: their number, those of each kind, and the share that was read from a cache; {} if there are none."""
    if counted is None or not any(counted):
        return {}
    given, cached, output = (
        counted.input + counted.cache_write,
        counted.cached_input,
        counted.output + counted.reasoning,
    )
    if not cached:
        return {"total": f"{given + output:,}", "kinds": tokens_by_kind(given, output)}
    share = f"{cached / (given + cached):.0%}"
    return {
        "total": f"{given + cached + output:,}",
        "kinds": tokens_with_cached(given, cached, output),
        "cached": _("%(share)s cached") % {"share": share},
    }


def models_of(db: Database, message_id: UUID, *, unpriced: bool = False) -> list[str]:
    """Return the models of the steps of a run, or only of those whose cost is unknown, at most MODELS_NAMED. One query."""
    steps = db.rows(AgentStep.with_deleted).filter(message_id=message_id, **ids_below([message_id]))
    if unpriced:
        steps = steps.alias(all_tokens=ALL_TOKENS).filter(IS_UNPRICED)
    names = steps.exclude(model="").order_by("model").values_list("model", flat=True)
    return list(names.distinct()[:MODELS_NAMED])


def read_interrupts(db: Database, message_id: UUID) -> Excerpt:
    """Return what LangGraph asks a person for, as the recorder keeps it in the metadata of a message; empty if nothing. One
    query."""
    message: Any = (
        db.rows(Message.with_deleted)
        .filter(pk=message_id)
        .only("pk")
        .annotate(
            shown=pretty_json("metadata__interrupts", LEAST_CHARACTERS),
            shown_bytes=size_of_json("metadata__interrupts"),
        )
        .first()
    )
    return excerpt("") if message is None else excerpt(message.shown or "", message.shown_bytes)


def read_call(db: Database, call_id: UUID) -> CallNode | None:
    """Return a single call with its texts, cut to VALUE_CHARACTERS; None if it does not exist. Two queries."""
    calls = _calls_with_texts(db, [call_id], VALUE_CHARACTERS).select_related("tool", "message__session", "step")
    row = calls.defer("message__content", "message__metadata", "message__session__metadata", "args", "metadata").first()
    if row is None:
        return None
    results = _results_with_texts(db, [call_id], VALUE_CHARACTERS)
    parent = None if row.parent_id is None else str(row.parent_id)
    node = CallNode(id=str(row.pk), step_id=str(row.step_id), parent_id=parent, status=row.status, is_open=True)
    node.texts = _call_texts(row, results.get(row.pk))
    return node


def pages_of_failures_like(db: Database, call: ToolCall) -> list[tuple[str, str]]:
    """Return links, each a text and a URL, to the calls with the error of a failed call, and to the runs that failed alike."""
    group = group_of_call(db, call.pk) if call.status == ToolCall.Status.ERROR else None
    if group is None:
        return []
    query = {"project": call.project.slug, "status": ToolCall.Status.ERROR.value, "error_group": group}
    pages = [(_("Calls with this error"), reverse("admin:traces_app_toolcall_changelist", query=query))]
    if call.message.deleted_at is None and call.message.session.deleted_at is None:
        runs = reverse("admin:messages_app_message_similar", args=[call.message_id], query={"by": "errors"})
        pages.append((_("Failures like this one"), runs))
    return pages


def failures_like(db: Database, call: ToolCall) -> tuple[str, list[UUID]]:
    """Return how often the error of a failed call occurred lately, and in how many runs, in words, and the calls, the newest first.
    At most MOST_COUNTED calls are counted. Three queries."""
    filters = CallFilterSet(QueryDict(f"status=error&error_group={group_of_call(db, call.pk)}"), mask=None)
    try:
        calls = _newest_calls(db, call, filters, MOST_COUNTED + 1)
    except InvalidInput:
        return _("Counting the calls with this error took too long."), []
    lately = _lately().of("pk")
    runs = db.rows(ToolCall.objects).filter(pk__in=calls, **lately).values("message_id").distinct().count()
    number = f"{MOST_COUNTED:,}+" if len(calls) > MOST_COUNTED else f"{len(calls):,}"
    told = {"calls": ngettext("%(number)s call", "%(number)s calls", len(calls)) % {"number": number}}
    told["runs"] = ngettext("%(number)s run", "%(number)s runs", runs) % {"number": f"{runs:,}"}
    told["days"] = str(COUNTED_FOR.days)
    return _("In the last %(days)s days: %(calls)s with this error, in %(runs)s.") % told, calls


def last_success_of_tool(db: Database, call: ToolCall) -> UUID | None:
    """Return the newest call of the tool of a failed one that succeeded lately; None if there is none, or finding it takes too long."""
    filters = CallFilterSet(QueryDict("status=success"), mask=None)
    filters.given["tool"] = [call.tool.name]  # not as a parameter, in which the tool "" would be no tool
    try:
        return next(iter(_newest_calls(db, call, filters, 1)), None)
    except InvalidInput:
        return None


def _lately() -> IdRange:
    return IdRange(lower=ids.first_id_at(timezone.now() - COUNTED_FOR))


def _newest_calls(db: Database, call: ToolCall, filters: CallFilterSet, limit: int) -> list[UUID]:
    """Return the newest calls of the project of a call that pass and are not older than COUNTED_FOR."""
    rows = filters.found(db, ProjectScope(frozenset([call.project_id])), None).within(_lately())
    return rows.keys(newest_first=True, limit=limit)


# --- Queries ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Skeleton:
    """The rows of a run in reading order, without texts."""

    rows: Sequence[tuple[Any, ...]]
    """Of a step id, iteration and agent; of a call id, step, parent, status and tool."""
    depths: Sequence[int]
    numbers: Sequence[str]
    """The displayed number of each step; "" for a call."""
    failed: Sequence[int]
    """The places of the failed calls."""
    is_cut: bool

    def node(self, place: int) -> CallNode | StepNode:
        number, row = self.numbers[place], self.rows[place]
        if number:
            return StepNode(id=str(row[0]), iteration=row[1], number=number, agent=row[2])
        return CallNode(id=str(row[0]), step_id=str(row[1]), parent_id=row[2] and str(row[2]), status=row[3])

    def place_of(self, key: UUID) -> int | None:
        return next((place for place, row in enumerate(self.rows) if row[0].int == key.int), None)


def _skeleton(db: Database, message_id: UUID) -> _Skeleton:
    below = ids_below([message_id])
    steps: list[tuple[Any, ...]] = list(
        db.rows(AgentStep.with_deleted)
        .filter(message_id=message_id, **below)
        .order_by("iteration", "ordinal", "pk")
        .values_list("pk", "iteration", "agent_name")[: SKELETON_ROWS + 1]
    )
    # In the order of the steps, so that of a run that is too long the first steps are complete.
    in_order = (
        db.rows(ToolCall.with_deleted)
        .filter(message_id=message_id, **below)
        .order_by("step__iteration", "step__ordinal", "step_id", "position", "pk")
        .values_list("pk", "step_id", "parent_id", "status", "tool_id")
    )
    calls: list[tuple[Any, ...]] = list(in_order[: SKELETON_ROWS + 1])
    is_cut = len(steps) > SKELETON_ROWS or len(calls) > SKELETON_ROWS
    if is_cut:
        # All failures are listed, wherever they are.
        read = {row[0] for row in calls}
        calls += [row for row in in_order.filter(status=ToolCall.Status.ERROR)[:SKELETON_ROWS] if row[0] not in read]
    known = {row[0].int for row in steps}
    calls = [row for row in calls if row[1].int in known]
    order, depths = reading_order(
        [row[0] for row in steps],
        [row[2] for row in steps],
        [row[0] for row in calls],
        [row[1] for row in calls],
        [row[2] for row in calls],
    )
    numbers = [*step_numbers([(place, row[1]) for place, row in enumerate(steps)]).values(), *[""] * len(calls)]
    rows = [*steps, *calls]
    failed = {place for place, row in enumerate(calls, len(steps)) if row[3] == ToolCall.Status.ERROR}
    return _Skeleton(
        rows=[rows[node] for node in order],
        depths=depths,
        numbers=[numbers[node] for node in order],
        failed=[place for place, node in enumerate(order) if node in failed],
        is_cut=is_cut,
    )


def _load_texts(db: Database, message_id: UUID, nodes: Sequence[CallNode | StepNode]) -> None:
    calls = {node.id: node for node in nodes if isinstance(node, CallNode)}
    steps = {node.id: node for node in nodes if isinstance(node, StepNode)}
    # Usually four values of a call are long (arguments, output, data, error) and two of a step (thought, reasoning).
    share = TOTAL_CHARACTERS // max(4 * len(calls) + 2 * len(steps), 1)
    limit = min(max(share, LEAST_CHARACTERS), VALUE_CHARACTERS)
    for step_row in steps_with_texts(db, steps, limit) if steps else ():
        steps[str(step_row.pk)].texts = step_texts(step_row)
    results = _results_with_texts(db, calls, limit) if calls else {}
    for call_row in _calls_with_texts(db, calls, limit).select_related("tool") if calls else ():
        calls[str(call_row.pk)].texts = _call_texts(call_row, results.get(call_row.pk))


def steps_with_texts(db: Database, keys: Iterable[UUID | Key], limit: int) -> QuerySet[Any]:
    return (
        db.rows(AgentStep.with_deleted)
        .filter(pk__in=list(keys))
        .defer("thought", "reasoning", "usage", "metadata")
        .annotate(
            shown_thought=first_characters("thought", limit),
            thought_bytes=size_of("thought"),
            shown_reasoning=first_characters("reasoning", limit),
            reasoning_bytes=size_of("reasoning"),
            shown_usage=pretty_json("usage", LEAST_CHARACTERS),
            usage_bytes=size_of_json("usage"),
            shown_metadata=pretty_json("metadata", LEAST_CHARACTERS),
            metadata_bytes=size_of_json("metadata"),
        )
    )


def _calls_with_texts(db: Database, keys: Iterable[UUID | Key], limit: int) -> QuerySet[Any]:
    return (
        db.rows(ToolCall.with_deleted)
        .filter(pk__in=list(keys))
        .defer("args", "reflection", "metadata")
        .annotate(
            shown_args=pretty_json("args", limit),
            args_bytes=size_of_json("args"),
            shown_reflection=first_characters("reflection", limit),
            reflection_bytes=size_of("reflection"),
            shown_metadata=pretty_json("metadata", LEAST_CHARACTERS),
            metadata_bytes=size_of_json("metadata"),
        )
    )


def _results_with_texts(db: Database, keys: Iterable[UUID | Key], limit: int) -> dict[UUID, Any]:
    rows: QuerySet[Any] = (
        db.rows(ToolResult.objects)
        .filter(pk__in=list(keys))
        .only("pk")
        .annotate(
            shown_output=first_characters("output", limit),
            output_bytes=size_of("output"),
            shown_data=pretty_json("data", limit),
            data_bytes=size_of_json("data"),
            shown_error=first_characters("error", limit),
            error_bytes=size_of("error"),
            shown_raw=first_characters("raw", LEAST_CHARACTERS),
            raw_bytes=size_of("raw"),
            shown_metadata=pretty_json("metadata", LEAST_CHARACTERS),
            metadata_bytes=size_of_json("metadata"),
            shown_attachments=pretty_json("attachments", LEAST_CHARACTERS),
            attachments_bytes=size_of_json("attachments"),
        )
    )
    return {row.pk: row for row in rows}


def step_texts(row: Any) -> StepTexts:
    usage = json_excerpt(row.shown_usage, row.usage_bytes)
    return StepTexts(
        row=row,
        # Reasoning models often emit only newlines before a call.
        thought=excerpt(row.shown_thought, row.thought_bytes) if row.shown_thought.strip() else excerpt(""),
        reasoning=excerpt(row.shown_reasoning, row.reasoning_bytes),
        usage=usage,
        tokens=None if usage.is_cut else _tokens(row.shown_usage),
        metadata=json_excerpt(row.shown_metadata, row.metadata_bytes),
    )


def _tokens(usage: str) -> tuple[int, int] | None:
    try:
        counted = pricing.tokens(json.loads(usage or "{}"))
    except (ValueError, RecursionError):
        # Integers beyond Python's limit, or too deep nesting: shown as JSON.
        return None
    return counted if any(counted) else None


def _call_texts(row: Any, result: Any) -> CallTexts:
    nothing = excerpt("")
    args = json_excerpt(row.shown_args, row.args_bytes)
    return CallTexts(
        row=row,
        args=args,
        fields=[] if args.is_cut else _fields(row.shown_args),
        reflection=excerpt(row.shown_reflection, row.reflection_bytes),
        metadata=json_excerpt(row.shown_metadata, row.metadata_bytes),
        has_result=result is not None,
        output=nothing if result is None else excerpt(result.shown_output, result.output_bytes),
        # `excerpt`, because an empty object is shown, too.
        data=nothing if result is None else excerpt(result.shown_data, result.data_bytes),
        error=nothing if result is None else excerpt(result.shown_error, result.error_bytes),
        raw=nothing if result is None else excerpt(result.shown_raw, result.raw_bytes),
        result_metadata=nothing if result is None else json_excerpt(result.shown_metadata, result.metadata_bytes),
        attachments=nothing if result is None else json_excerpt(result.shown_attachments, result.attachments_bytes),
    )


def _fields(args: str) -> list[tuple[str, Excerpt]]:
    """Return the fields of a JSON object if one is a text of several lines, which JSON would show on one line with \\n."""
    try:
        values = json.loads(args, parse_float=Decimal)
    except (ValueError, RecursionError):
        # Integers beyond Python's limit, or too deep nesting: shown as JSON.
        return []
    if not any(isinstance(value, str) and "\n" in value for value in values.values()):
        return []
    return [(name, excerpt(_field(value))) for name, value in values.items()]


def _field(value: Any) -> str:
    if isinstance(value, str):
        return value
    # A single number is shown as it was written; inside a list or object it is shown as Python's float.
    return str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, indent=4, default=float)


def _failures(db: Database, run: _Skeleton, places: Collection[int], pages: Sequence[int]) -> dict[int, Failure]:
    """Return the failed calls at these places with their tools and errors. Two queries, or none without failures."""
    if not places:
        return {}
    calls = {place: run.rows[place] for place in places}
    keys = [row[0] for row in calls.values()]
    rows = (
        db.rows(ToolResult.objects)
        .filter(pk__in=keys)
        .annotate(shown_error=first_characters("error", LEAST_CHARACTERS))
    )
    errors = dict(rows.values_list("pk", "shown_error"))
    tools = dict(db.rows(ToolCall.with_deleted).filter(pk__in=keys).values_list("pk", "tool__name"))
    steps = {row[1].int for row in calls.values()}
    numbers = {row[0].int: number for row, number in zip(run.rows, run.numbers, strict=True) if row[0].int in steps}
    return {
        place: Failure(
            call_id=str(key),
            step=numbers[step.int],
            tool=tools.get(key, ""),
            error=telling_line(errors.get(key, "")),
            page=pages[place] or None,
        )
        for place, (key, step, *_rest) in calls.items()
    }


def _place(failed: Sequence[int], before: int, wanted: int | None, named: Mapping[int, Failure]) -> FailurePlace:
    """Return the place among the failed calls; `before` is the number of those before the page or the requested call."""
    is_current = wanted is not None and before < len(failed) and failed[before] == wanted
    after = before + is_current
    return FailurePlace(
        total=len(failed),
        number=after if is_current else None,
        current=named[failed[before]] if is_current else None,
        previous=named[failed[before - 1]] if before else None,
        next=named[failed[after]] if after < len(failed) else None,
    )

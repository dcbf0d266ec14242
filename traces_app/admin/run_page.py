"""The page of an agent run: a tree of steps in order and of calls below their parents, with limited sizes of values.

The run is read in two passes: first the skeleton (ids, parents, status: a few bytes a call), from which the tree is built
and split into pages, then the texts of the requested page. So neither the number of queries nor the size of a page
depends on the run: the values of a page share TOTAL_CHARACTERS.

The tree:

1. Steps are in their order (iteration, ordinal), the calls of a step in the order of their positions.
2. A call with a parent is below it.
3. A step whose calls all have parents, the first of them in another step, is the step of a sub-agent: it is below the
   parent of its first call. A step without calls, such as the last of a sub-agent, has the same place as the previous step
   of its agent.
4. Every node is shown exactly once, whatever the parents: a cycle of parents is cut at its first call in reading order.
   Levels below MAX_DEPTH are not indented any further.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, TypeVar
from uuid import UUID

from django.db.models import (
    QuerySet,
    Sum,
    TextField,
)
from django.db.models.functions import Cast

from messages_app.admin.conversation import ids_below
from messages_app.models import Message
from messages_app.safe_text import Excerpt, excerpt, first_characters, json_excerpt, pretty_json, size_of, size_of_json
from traces_app.models import AgentStep, ToolCall, ToolResult
from traces_app.normalize import records

TOTAL_CHARACTERS = 2_000_000
VALUE_CHARACTERS = 65_536
LEAST_CHARACTERS = 2_000
ROWS_PER_PAGE = 100
"""A page ends with the step in which its steps and calls reach this number."""
MOST_ROWS = 500
"""The maximum for one step with everything below it; further calls are only in the list of tool calls."""
SKELETON_ROWS = 20_000
FAILURES_NAMED = 10
MODELS_NAMED = 5
FIRST_ROWS = 200
"""Rows of the explorer that come with the page, so that they are painted with it."""
MAX_DEPTH = 12

K = TypeVar("K")
Key = str
"""A UUID as text: to make and hash 100,000 UUID objects takes longer than to read them."""


@dataclass(kw_only=True)
class CallNode:
    """One call in the tree. `texts` is filled in for the calls of the page."""

    id: Key
    step_id: Key
    parent_id: Key | None
    status: str
    below: list[CallNode | StepNode] = field(default_factory=list)
    is_open: bool = False
    """Whether it is shown unfolded: it or a call below it has failed or was requested."""
    texts: CallTexts | None = None

    @property
    def failed(self) -> bool:
        return self.status == ToolCall.Status.ERROR


@dataclass(kw_only=True)
class StepNode:
    """One step in the tree."""

    id: Key
    iteration: int
    number: str
    """The displayed number, from 1: see `step_number`."""
    agent: str
    below: list[CallNode | StepNode] = field(default_factory=list)
    texts: StepTexts | None = None


@dataclass(frozen=True, kw_only=True)
class StepTexts:
    row: Any
    """An AgentStep; Any because of its annotations."""
    thought: Excerpt
    reasoning: Excerpt
    usage: Excerpt
    tokens: tuple[int, int] | None
    """Input and output tokens as `usage` counts them; None if it counts none."""
    metadata: Excerpt


@dataclass(frozen=True, kw_only=True)
class CallTexts:
    row: Any
    """A ToolCall with its tool; Any because of its annotations."""
    args: Excerpt
    fields: Sequence[tuple[str, Excerpt]]
    """The arguments, each by itself, if one of them has several lines; otherwise empty."""
    reflection: Excerpt
    metadata: Excerpt
    has_result: bool
    output: Excerpt
    data: Excerpt
    error: Excerpt
    raw: Excerpt
    result_metadata: Excerpt
    attachments: Excerpt


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The fields of a link to a failed call."""

    call_id: Key
    step: str
    """The number of its step."""
    tool: str
    error: str
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
    place: FailurePlace
    is_cut: bool
    """Whether the run has more calls than its pages show."""


def read_run(message_id: UUID, *, page: int = 1, call: UUID | None = None, open_all: bool = False) -> RunPage:
    """Return page `page` of the run of a message, or the page that shows `call`. At most eight queries."""
    steps, calls, is_cut = _skeleton(message_id)
    tree = build_tree(steps, calls)
    first_rows = list(islice(walk_with_depths(tree), FIRST_ROWS))
    pages = _pages(tree)
    shown_on = {node.id: number for number, nodes in enumerate(pages, 1) for node in walk(nodes)}
    wanted = None if call is None else str(call)
    number = page if wanted is None else shown_on.get(wanted, page)
    number = min(max(number, 1), len(pages))
    nodes = pages[number - 1]
    _load_texts(message_id, list(walk(nodes)))
    _unfold(nodes, wanted, open_all=open_all)
    reading = {node_id: place for place, node_id in enumerate(shown_on)}
    failed = sorted((node for node in calls if node.failed), key=lambda node: reading.get(node.id, len(reading)))
    # Without a requested call, the previous and next failures are relative to the first step of the page.
    here = None if wanted is None else reading.get(wanted)
    here = here if here is not None else reading[nodes[0].id] if number > 1 else 0
    before = sum(reading.get(node.id, len(reading)) < here for node in failed)
    around = failed[max(before - 1, 0) : before + 2]
    named = _failures([*failed[:FAILURES_NAMED], *around], {step.id: step.number for step in steps}, shown_on)
    return RunPage(
        steps=nodes,
        first_rows=first_rows,
        number=number,
        pages=len(pages),
        failures=[named[node.id] for node in failed[:FAILURES_NAMED]],
        more_failures=max(len(failed) - FAILURES_NAMED, 0),
        place=_place([node.id for node in failed], before, wanted, named),
        is_cut=is_cut or len(shown_on) < len(steps) + len(calls),
    )


def first_failure(message_id: UUID) -> UUID | None:
    """Return the first failed call of a run in reading order. Two queries."""
    steps, calls, _is_cut = _skeleton(message_id)
    failed = {call.id for call in calls if call.failed}
    first = next((node.id for node in walk(build_tree(steps, calls)) if node.id in failed), None)
    return None if first is None else UUID(first)


def step_number(step: AgentStep) -> str:
    """Return the displayed number of a step. One query.

    Displayed numbers begin at 1, the API's `iteration` at 0. In a run without an iteration 0 the producer counts from 1.
    Further steps of an iteration, such as those of a sub-agent, are 3.1, 3.2 ...
    """
    steps = AgentStep.with_deleted.filter(
        message_id=step.message_id, iteration__in=[0, step.iteration], **ids_below([step.message_id])
    )
    rows = list(steps.order_by("iteration", "ordinal", "pk").values_list("pk", "iteration")[: SKELETON_ROWS + 1])
    return step_numbers(rows).get(step.pk, str(step.iteration))


def step_numbers(rows: Sequence[tuple[K, int]]) -> dict[K, str]:
    """Return the displayed numbers of steps (id, iteration) in their order."""
    first = 1 if any(iteration == 0 for _pk, iteration in rows) else 0
    seen: Counter[int] = Counter()
    numbers = {}
    for pk, iteration in rows:
        numbers[pk] = f"{iteration + first}.{seen[iteration]}" if seen[iteration] else str(iteration + first)
        seen[iteration] += 1
    return numbers


def read_tool_time(message_id: UUID) -> int | None:
    """Return the milliseconds of a run's calls without a parent, of which each of several parallel ones counts; None if no
    duration is known. One query."""
    calls = ToolCall.with_deleted.filter(message_id=message_id, parent=None, **ids_below([message_id]))
    total: int | None = calls.aggregate(total=Sum("duration_ms"))["total"]
    return total


def unpriced_models(message_id: UUID) -> list[str]:
    """Return the models of the steps whose cost is unknown, at most MODELS_NAMED. One query."""
    steps = AgentStep.with_deleted.filter(message_id=message_id, cost=None, **ids_below([message_id]))
    names = steps.exclude(model="").order_by("model").values_list("model", flat=True)
    return list(names.distinct()[:MODELS_NAMED])


def read_interrupts(message_id: UUID) -> Excerpt:
    """Return what LangGraph asks a person for, as the recorder keeps it in the metadata of a message; empty if nothing. One
    query."""
    message: Any = (
        Message.with_deleted.filter(pk=message_id)
        .only("pk")
        .annotate(
            shown=pretty_json("metadata__interrupts", LEAST_CHARACTERS),
            shown_bytes=size_of_json("metadata__interrupts"),
        )
        .first()
    )
    return excerpt("") if message is None else excerpt(message.shown or "", message.shown_bytes)


def read_call(call_id: UUID) -> CallNode | None:
    """Return a single call with its texts, cut to VALUE_CHARACTERS; None if it does not exist. Two queries."""
    calls = _calls_with_texts([call_id], VALUE_CHARACTERS).select_related("tool", "message__session", "step")
    row = calls.defer("message__content", "message__metadata", "message__session__metadata", "args", "metadata").first()
    if row is None:
        return None
    results = _results_with_texts([call_id], VALUE_CHARACTERS)
    parent = None if row.parent_id is None else str(row.parent_id)
    node = CallNode(id=str(row.pk), step_id=str(row.step_id), parent_id=parent, status=row.status, is_open=True)
    node.texts = _call_texts(row, results.get(row.pk))
    return node


def build_tree(steps: Sequence[StepNode], calls: Sequence[CallNode]) -> list[StepNode]:
    """Attach `calls` and the steps of sub-agents to their nodes; return the other steps. Both are in reading order."""
    step_of = {step.id: step for step in steps}
    parent_of = _parents(calls)
    calls_of = defaultdict(list)
    for call in calls:
        calls_of[call.step_id].append(call)
    host_of = _hosts(steps, calls_of, parent_of)
    for call in calls:
        parent = parent_of.get(call.id)
        if parent is None or host_of.get(call.step_id) is parent:
            step_of[call.step_id].below.append(call)
        else:
            parent.below.append(call)
    # Every chain of hosts ends at a root call, whose step has no host, so every node is in the tree.
    for step in steps:
        if step.id in host_of:
            host_of[step.id].below.append(step)
    tree = [step for step in steps if step.id not in host_of]
    _flatten_below(tree)
    return tree


def _hosts(
    steps: Sequence[StepNode], calls_of: Mapping[Key, Sequence[CallNode]], parent_of: Mapping[Key, CallNode]
) -> dict[Key, CallNode]:
    """Return the call above each step of a sub-agent."""
    host_of: dict[Key, CallNode] = {}
    last_of_agent: dict[str, StepNode] = {}
    for step in steps:
        own = calls_of.get(step.id, ())
        parents = [parent_of[call.id] for call in own if call.id in parent_of]
        if own and len(parents) == len(own) and parents[0].step_id != step.id:
            host_of[step.id] = parents[0]
        elif not own and step.agent in last_of_agent and last_of_agent[step.agent].id in host_of:
            host_of[step.id] = host_of[last_of_agent[step.agent].id]
        if step.agent:
            last_of_agent[step.agent] = step
    return host_of


def _parents(calls: Sequence[CallNode]) -> dict[Key, CallNode]:
    """Return the parent of each call that has one among `calls`, without cycles."""
    by_id = {call.id: call for call in calls}
    parent_of = {call.id: by_id[call.parent_id] for call in calls if call.parent_id in by_id}
    place = {call.id: number for number, call in enumerate(calls)}
    settled: set[Key] = set()
    for call in calls:
        # Earlier calls lead to a root, so a cycle that is found here is on the path of this call only.
        path: set[Key] = set()
        node: CallNode | None = call
        while node is not None and node.id not in settled:
            if node.id in path:
                del parent_of[min(_cycle(node, parent_of), key=place.__getitem__)]
                break
            path.add(node.id)
            node = parent_of.get(node.id)
        settled |= path
    return parent_of


def _cycle(node: CallNode, parent_of: dict[Key, CallNode]) -> set[Key]:
    """Return the calls in the cycle of parents that contains `node`."""
    cycle = {node.id}
    while (node := parent_of[node.id]).id not in cycle:
        cycle.add(node.id)
    return cycle


def walk(nodes: Iterable[CallNode | StepNode]) -> Iterator[CallNode | StepNode]:
    """Yield all nodes of the tree in reading order, parents first."""
    waiting: list[CallNode | StepNode] = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.below))


def walk_with_depths(tree: Iterable[CallNode | StepNode]) -> Iterator[tuple[int, CallNode | StepNode]]:
    """Yield all nodes of the tree in reading order, each with its depth from 0."""
    waiting: list[tuple[int, CallNode | StepNode]] = [(0, node) for node in tree][::-1]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting.extend([(depth + 1, child) for child in reversed(node.below)])


def _flatten_below(tree: Sequence[StepNode]) -> None:
    level: list[CallNode | StepNode] = list(tree)
    for _depth in range(MAX_DEPTH):
        level = [child for node in level for child in node.below]
    for node in level:
        deeper = list(walk(node.below))
        for one in deeper:
            one.below = []
        node.below = deeper


def _pages(tree: Sequence[StepNode]) -> list[list[StepNode]]:
    """Split the top steps into pages by the number of rows; return at least one page."""
    pages: list[list[StepNode]] = [[]]
    rows = 0
    for step in tree:
        if rows >= ROWS_PER_PAGE:
            pages.append([])
            rows = 0
        pages[-1].append(step)
        rows += _prune(step, MOST_ROWS)
    return pages


def _prune(step: StepNode, most: int) -> int:
    """Cut a step to its first `most` rows; return the number of rows left."""
    kept = {node.id for _index, node in zip(range(most), walk([step]), strict=False)}
    if len(kept) == most:
        for node in walk([step]):
            node.below = [child for child in node.below if child.id in kept]
    return len(kept)


def _unfold(nodes: Iterable[CallNode | StepNode], wanted: Key | None, *, open_all: bool) -> bool:
    """Open failed calls, the wanted call and the calls above them; return whether there was any."""
    found = False
    for node in nodes:
        below = _unfold(node.below, wanted, open_all=open_all)
        if isinstance(node, CallNode):
            node.is_open = open_all or below or node.failed or node.id == wanted
            below = below or node.failed or node.id == wanted
        found = found or below
    return found


# --- Queries ---------------------------------------------------------------------------------------------------------


def _skeleton(message_id: UUID) -> tuple[list[StepNode], list[CallNode], bool]:
    below = ids_below([message_id])
    steps = steps_of(
        AgentStep.with_deleted.filter(message_id=message_id, **below)
        .order_by("iteration", "ordinal", "pk")
        .values_list(as_key("pk"), "iteration", "agent_name")[: SKELETON_ROWS + 1]
    )
    # In the order of the steps, so that of a run that is too long the first steps are complete.
    in_order = (
        ToolCall.with_deleted.filter(message_id=message_id, **below)
        .order_by("step__iteration", "step__ordinal", "step_id", "position", "pk")
        .values_list(as_key("pk"), as_key("step_id"), as_key("parent_id"), "status")
    )
    rows = list(in_order[: SKELETON_ROWS + 1])
    is_cut = len(steps) > SKELETON_ROWS or len(rows) > SKELETON_ROWS
    if is_cut:
        # All failures are listed, wherever they are.
        read = {row[0] for row in rows}
        failed = in_order.filter(status=ToolCall.Status.ERROR)[:SKELETON_ROWS]
        rows += [row for row in failed if row[0] not in read]
    known = {step.id for step in steps}
    calls = [
        CallNode(id=key, step_id=step, parent_id=parent, status=status)
        for key, step, parent, status in rows
        if step in known
    ]
    return steps, calls, is_cut


def steps_of(rows: Iterable[tuple[Key, int, str]]) -> list[StepNode]:
    """Return the nodes of steps (id, iteration, agent), which are in their order."""
    known = list(rows)
    numbers = step_numbers([(key, iteration) for key, iteration, _agent in known])
    return [StepNode(id=key, iteration=iteration, number=numbers[key], agent=agent) for key, iteration, agent in known]


def as_key(column: str) -> Cast:
    """Return the expression for a column of UUIDs as text."""
    return Cast(column, TextField())


def _load_texts(message_id: UUID, nodes: Sequence[CallNode | StepNode]) -> None:
    calls = {node.id: node for node in nodes if isinstance(node, CallNode)}
    steps = {node.id: node for node in nodes if isinstance(node, StepNode)}
    # Usually four values of a call are long (arguments, output, data, error) and two of a step (thought, reasoning).
    share = TOTAL_CHARACTERS // max(4 * len(calls) + 2 * len(steps), 1)
    limit = min(max(share, LEAST_CHARACTERS), VALUE_CHARACTERS)
    for step_row in steps_with_texts(steps, limit) if steps else ():
        steps[str(step_row.pk)].texts = step_texts(step_row)
    results = _results_with_texts(calls, limit) if calls else {}
    for call_row in _calls_with_texts(calls, limit).select_related("tool") if calls else ():
        calls[str(call_row.pk)].texts = _call_texts(call_row, results.get(call_row.pk))


def steps_with_texts(keys: Iterable[UUID | Key], limit: int) -> QuerySet[Any]:
    return (
        AgentStep.with_deleted.filter(pk__in=list(keys))
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


def _calls_with_texts(keys: Iterable[UUID | Key], limit: int) -> QuerySet[Any]:
    return (
        ToolCall.with_deleted.filter(pk__in=list(keys))
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


def _results_with_texts(keys: Iterable[UUID | Key], limit: int) -> dict[UUID, Any]:
    rows: QuerySet[Any] = (
        ToolResult.objects.filter(pk__in=list(keys))
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
        counted = records.tokens(json.loads(usage or "{}"))
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


def _failures(
    failed: Sequence[CallNode], numbers: Mapping[Key, str], shown_on: Mapping[Key, int]
) -> dict[Key, Failure]:
    """Return the failed calls with their tools and errors. Two queries, or none without failures."""
    if not failed:
        return {}
    keys = [UUID(node.id) for node in failed]
    rows = ToolResult.objects.filter(pk__in=keys).annotate(shown_error=first_characters("error", 300))
    errors = dict(rows.values_list(as_key("pk"), "shown_error"))
    tools = dict(ToolCall.with_deleted.filter(pk__in=keys).values_list(as_key("pk"), "tool__name"))
    return {
        node.id: Failure(
            call_id=node.id,
            step=numbers[node.step_id],
            tool=tools.get(node.id, ""),
            error=errors.get(node.id, ""),
            page=shown_on.get(node.id),
        )
        for node in failed
    }


def _place(failed: Sequence[Key], before: int, call: Key | None, named: Mapping[Key, Failure]) -> FailurePlace:
    """Return the place among the failed calls; `before` is the number of those before the page or the requested call."""
    is_current = call is not None and before < len(failed) and failed[before] == call
    after = before + is_current
    return FailurePlace(
        total=len(failed),
        number=after if is_current else None,
        current=named[failed[before]] if is_current else None,
        previous=named[failed[before - 1]] if before else None,
        next=named[failed[after]] if after < len(failed) else None,
    )

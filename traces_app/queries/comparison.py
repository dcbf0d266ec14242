"""Two runs side by side: what they did alike, what differs, and what only one of them did.

Steps and calls are compared in reading order, in two passes of the longest common subsequence (difflib): first those that are
equal in what was asked for (the tool with its arguments, the agent with its thought), then, between them, those of the same
tool or agent. Two calls that were asked for alike and had different results are changed, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal
from uuid import UUID

from django.db.models import F, Func, TextField
from django.db.models.functions import Coalesce, Left

from messages_app import ids
from traces_app.models import AgentStep, ToolCall

MOST_NODES = 2_000
"""Steps and calls of each run that are compared: the first ones. Comparing 2,000 with 2,000 takes up to a second."""
_CHARACTERS = 400

Kind = Literal["step", "call"]
Change = Literal["same", "changed", "left", "right"]


@dataclass(frozen=True, kw_only=True)
class Node:
    """A step or a call of a run."""

    kind: Kind
    id: UUID
    name: str
    """The tool of a call, the agent of a step."""
    text: str
    """The beginning of the arguments as JSON, or of the thought."""
    result: str
    """The beginning of the output or error of a call; the model of a step."""
    status: str
    duration_ms: int | None
    asked: str
    """A digest of all that was asked for; equal only for equal nodes."""
    answered: str
    """A digest of all that came back."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """What stands beside each other."""

    change: Change
    left: Node | None = None
    right: Node | None = None
    is_asked_alike: bool = True
    """Whether both have the same arguments or thought."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The pairs in reading order, and how many there are of each kind of change."""

    pairs: Sequence[Pair]
    counts: dict[Change, int]
    is_cut: bool
    """Whether one of the runs has more than MOST_NODES."""


def compare(left: UUID, right: UUID) -> Comparison:
    """Compare two runs by their messages. Four queries."""
    one, other = _nodes(left), _nodes(right)
    pairs = list(_pairs(one[:MOST_NODES], other[:MOST_NODES]))
    counts: dict[Change, int] = {"same": 0, "changed": 0, "left": 0, "right": 0}
    for pair in pairs:
        counts[pair.change] += 1
    return Comparison(pairs=pairs, counts=counts, is_cut=max(len(one), len(other)) > MOST_NODES)


def _pairs(left: Sequence[Node], right: Sequence[Node]) -> Iterator[Pair]:
    for tag, (i, j), (m, n) in _blocks([_whole(node) for node in left], [_whole(node) for node in right]):
        if tag == "equal":
            yield from map(_pair, left[i:j], right[m:n])
            continue
        one, other = left[i:j], right[m:n]
        for inner, (a, b), (c, d) in _blocks([_named(node) for node in one], [_named(node) for node in other]):
            if inner == "equal":
                yield from map(_pair, one[a:b], other[c:d])
            else:
                yield from (Pair(change="left", left=node) for node in one[a:b])
                yield from (Pair(change="right", right=node) for node in other[c:d])


def _blocks(
    left: Sequence[tuple[str, ...]], right: Sequence[tuple[str, ...]]
) -> Iterator[tuple[str, tuple[int, int], tuple[int, int]]]:
    # Without `autojunk`, which ignores whatever comes often in long sequences: the very tools that an agent works with.
    for tag, i, j, m, n in SequenceMatcher(a=left, b=right, autojunk=False).get_opcodes():
        yield tag, (i, j), (m, n)


def _whole(node: Node) -> tuple[str, ...]:
    return node.kind, node.name, node.asked


def _named(node: Node) -> tuple[str, ...]:
    return node.kind, node.name


def _pair(left: Node, right: Node) -> Pair:
    is_asked_alike = left.asked == right.asked
    is_same = is_asked_alike and (left.answered, left.status) == (right.answered, right.status)
    return Pair(change="same" if is_same else "changed", left=left, right=right, is_asked_alike=is_asked_alike)


def _nodes(message_id: UUID) -> list[Node]:
    """Return the steps of a run, each with its calls after it; one more than MOST_NODES if there are more. Two queries."""
    first, last = ids.range_below(message_id)
    below = {"message_id": message_id, "pk__gte": first, "pk__lt": last}
    # Rows of any type, because of the annotations.
    steps: Iterable[Any] = (
        AgentStep.with_deleted.filter(**below)
        .order_by("iteration", "ordinal", "pk")
        .annotate(asked=_digest("thought"), text=Left("thought", _CHARACTERS))
        .only("agent_name", "model", "duration_ms")[: MOST_NODES + 1]
    )
    calls: Iterable[Any] = (
        ToolCall.with_deleted.filter(**below)
        .order_by("step__iteration", "step__ordinal", "position", "pk")
        .select_related("tool")
        .annotate(
            asked=_digest("args"),
            answered=_digest("result__output", "result__error", "result__data"),
            text=Left(_as_text("args"), _CHARACTERS),
            error_text=Left("result__error", _CHARACTERS),
            output_text=Left("result__output", _CHARACTERS),
        )
        .only("step_id", "tool__name", "status", "duration_ms")[: MOST_NODES + 1]
    )
    of_steps: dict[UUID, list[Node]] = {}
    for call in calls:
        of_steps.setdefault(call.step_id, []).append(_of_call(call))
    nodes: list[Node] = []
    for step in steps:
        nodes.append(_of_step(step))
        nodes += of_steps.get(step.pk, ())
        if len(nodes) > MOST_NODES:
            break
    return nodes[: MOST_NODES + 1]


def _of_step(step: Any) -> Node:
    return Node(
        kind="step",
        id=step.pk,
        name=step.agent_name,
        text=step.text,
        result=step.model,
        status="",
        duration_ms=step.duration_ms,
        asked=step.asked,
        answered=step.model,
    )


def _of_call(call: Any) -> Node:
    return Node(
        kind="call",
        id=call.pk,
        name=call.tool.name,
        text=call.text,
        result=call.error_text or call.output_text or "",
        status=call.status,
        duration_ms=call.duration_ms,
        asked=call.asked,
        answered=call.answered,
    )


def _as_text(field: str) -> Func:
    return Func(F(field), template="(%(expressions)s)::text", output_field=TextField())


def _digest(*fields: str) -> Func:
    """Return the expression for a digest of columns, because they may hold megabytes."""
    parts = [Coalesce(_as_text(name), Func(template="''", output_field=TextField())) for name in fields]
    return Func(
        Func(*parts, function="concat_ws", template="concat_ws(chr(1), %(expressions)s)", output_field=TextField()),
        function="md5",
        output_field=TextField(),
    )

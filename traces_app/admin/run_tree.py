"""The tree of an agent run, from its rows in reading order. Pure functions; run_page.py reads the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from messages_app.safe_text import Excerpt
from traces_app.models import ToolCall

ROWS_PER_PAGE = 100
"""A page ends with the step in which its steps and calls reach this number."""
MOST_ROWS = 500
"""The maximum for one step with everything below it; further calls are only in the list of tool calls."""

Key = str
"""A UUID as text: to make and hash 100,000 UUID objects takes longer than to read them."""


@dataclass(kw_only=True)
class CallNode:
    """One call in the tree. `texts` is filled in for the calls of the page."""

    id: Key
    step_id: Key
    parent_id: Key | None
    status: str
    tool_id: int | None = None
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
    """The displayed number: see `step_numbers`."""
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


def nest(nodes: Sequence[CallNode | StepNode], depths: Sequence[int]) -> list[StepNode]:
    """Attach nodes, in reading order, to those above them; return the steps above which there is none."""
    tree: list[StepNode] = []
    path: list[CallNode | StepNode] = []
    for node, depth in zip(nodes, depths, strict=True):
        del path[depth:]
        if path:
            path[-1].below.append(node)
        else:
            assert isinstance(node, StepNode), "a call is below its step or its parent"
            tree.append(node)
        path.append(node)
    return tree


def page_numbers(depths: Sequence[int]) -> list[int]:
    """Return the number of the page of each row in reading order, from 1; 0 for a row beyond MOST_ROWS of its top step."""
    numbers = []
    page, on_page, in_step = 1, 0, 0
    for depth in depths:
        if depth == 0:
            page, on_page = (page + 1, 0) if on_page >= ROWS_PER_PAGE else (page, on_page)
            in_step = 0
        in_step += 1
        on_page += in_step <= MOST_ROWS
        numbers.append(page if in_step <= MOST_ROWS else 0)
    return numbers


def unfold(nodes: Iterable[CallNode | StepNode], wanted: Key | None, *, open_all: bool) -> bool:
    """Open failed calls, the wanted call and the calls above them; return whether there was any."""
    found = False
    for node in nodes:
        below = unfold(node.below, wanted, open_all=open_all)
        if isinstance(node, CallNode):
            node.is_open = open_all or below or node.failed or node.id == wanted
            below = below or node.failed or node.id == wanted
        found = found or below
    return found

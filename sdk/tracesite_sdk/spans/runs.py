"""The runs of a trace: each is one question with its answer.

* A run is the uppermost agent, or the requests and tools outside of agents that belong to one question.
* Agents that follow each other are runs of their own. Those that overlap are one run if they were asked the same, as an agent
  and the one to which it hands over, or if nothing says what one of them was asked and it overlaps one question only. Copies
  are runs of their own: agents of one name that were asked the same at the same time, for example to compare their answers.
* Requests outside of agents are one run if a span around them all has a question, and as long as their last user message is
  the same. A new one is another run if the request overlaps one with another question, or if it begins or continues a
  conversation after tools were used and an answer was given; otherwise it may be a step of plain code, or what the code
  observed and gives to the model as the user.
* Tools outside of agents go to the run that asked for them: by call id; of several that are going on, by name and arguments or
  by the nearest span around both; else to the first with an open call of their name, or to the last that began, which is a
  guess. Embeddings go to the last that began, too. If none is going on, both go to the last one before them, or to the first.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from operator import attrgetter
from typing import Any

from tracesite_sdk.normalize.json_values import as_json
from tracesite_sdk.normalize.records import text_of
from tracesite_sdk.normalize.trees import walk
from tracesite_sdk.transcripts.entries import Call
from tracesite_sdk.transcripts.open_calls import canonical
from tracesite_sdk.transcripts.parsing.message_shapes import messages_in

from .nodes import Node, above, words_of
from .observations import question_in, returned_text

LATEST = 253_402_300_799 * 10**9
"""The end of the year 9999 in nanoseconds."""
_UNNAMED = "invoke_agent"
"""The span of an agent without a name, as OpenTelemetry names it."""
_MOST_AT_A_TIME = 32
"""Runs that are compared to find the one of a tool, the last that began before it."""


_Agent = tuple[str, str, str]
"""The library that observed an agent, its name and its question."""


@dataclass(eq=False)
class Run:
    nodes: list[Node]
    """The uppermost ones."""
    start: int
    end: int
    users: int = 0
    """The number of user messages in its longest input."""
    asked_by: Node | None = None
    """The span around it that has its question, where its requests have several."""
    is_parallel: bool = False
    """Whether it is of requests outside of agents that overlap one with another question."""
    used_tools: bool = False
    open_calls: Counter[str] = field(default_factory=Counter)
    """The calls of its requests by name, without those that its tools have executed."""
    last: _Asked | None = None
    """What the last request outside of agents was asked, if its answer had no calls."""
    agents: dict[_Agent, int] = field(default_factory=dict)
    """When the last agent of each name and question ended."""
    is_copy: bool = False

    def has_copy(self, agent: _Agent | None, start: int, *, is_handing: bool) -> bool:
        """Return whether the run has another copy of an agent that started then. One that has ended is a copy too if the run is one
        of copies, unless it is handing over to the agent."""
        if agent is None or agent not in self.agents:
            return False
        return start < self.agents[agent] or (self.is_copy and not is_handing)

    def add(self, node: Node) -> None:
        self.nodes.append(node)
        self.start, self.end = min(self.start, node.span.start), max(self.end, _end(node))


@dataclass
class _Asked:
    """What the first request of a node was asked."""

    question: str | None = None
    """Its last user message."""
    first: str | None = None
    """Its first user message."""
    users: int = 0
    """The number of its user messages."""
    has_replies: bool = False
    """Whether its input has earlier replies."""
    named: list[str] = field(default_factory=list)
    """The ids of the calls and results that come with the last user message or after it."""


def runs_of(roots: Sequence[Node]) -> list[Run]:
    """Return the runs of a trace in their order."""
    uppermost = [node for root in roots for node in _uppermost(root)] or list(roots)
    uppermost.sort(key=lambda node: node.span.start)
    if not uppermost:
        return []
    if len(uppermost) < 2 or all(node.facts.kind == "tool" for node in uppermost):
        first = uppermost[0]
        # A request without its question may be below a span that has it; an embedding answers none.
        is_unasked = not first.facts.is_embedding and _asked(first).question is None
        asked_by = _asking_around(uppermost) if first.facts.kind == "tool" or is_unasked else None
        return [Run(uppermost, uppermost[0].span.start, max(map(_end, uppermost)), asked_by=asked_by)]
    runs = _Runs()
    requests = [(node, _asked(node)) for node in uppermost if _is_request(node)]
    others = [node for node in uppermost if not (_is_request(node) or _may_be_run(node))]
    around = _asking_around([node for node, _asked in requests]) if len(requests) > 1 else None
    parallel = _parallel(requests)
    for node, asked in requests:
        if around is not None and runs.found:
            runs.add(node, asked, runs.found[0])
            runs.found[0].asked_by = around if len(runs.of_question) > 1 else None
        elif asked.question is None:
            others.append(node)
        else:
            runs.add_request(node, asked, is_parallel=node in parallel)
    runs.of_code = [*runs.found]
    agents = [(node, _asked(node)) for node in uppermost if _may_be_run(node)]
    between = _between_questions(agents)
    for node, asked in agents:
        if node in between:
            runs.found.append(Run([node], node.span.start, _end(node)))
        else:
            runs.add_agent(node, asked)
    runs.add_others(sorted(others, key=lambda node: node.span.start))
    return sorted(runs.found, key=lambda run: (run.start, run.nodes[0].span.span_id))


def unrecovered_errors(run: Run) -> list[str]:
    """Return the errors of the uppermost spans of a run, without those that a later agent or request has made good. A request
    makes that of another one good if its input has the same question: another question is another task."""
    failed = [node for node in run.nodes if node.facts.error]
    if not failed:
        return []
    answered = [node for node in run.nodes if (_may_be_run(node) or _is_request(node)) and not node.facts.error]
    last = max((node.span.start for node in answered), default=0)
    last_of: dict[str | None, int] = {}
    """The last start by what was asked; None: for all, because it is an agent, or unknown what it was asked."""
    for node in answered:
        asked = {_asked(node).question} if _is_request(node) else {None}
        messages = messages_in(node.facts.input) if _is_request(node) else []
        asked |= {_words(message.content) for message in messages if message.role == "user" and message.content}
        last_of |= {question: max(last_of.get(question, 0), node.span.start) for question in asked}
    errors: list[str] = []
    for node in failed:
        question = _asked(node).question if _is_request(node) else None
        since = last if question is None else max(last_of.get(None, 0), last_of.get(question, 0))
        if node.facts.error and (node.span.end or LATEST) > since:
            errors.append(node.facts.error)
    return errors


class _Runs:
    """The runs found so far, with what tells to which of them a node belongs."""

    def __init__(self) -> None:
        self.found: list[Run] = []
        self.of_code: list[Run] = []
        """Those of requests outside of agents, in the order of their start."""
        self.latest: Run | None = None
        """That of the last such request."""
        self.of_question: dict[str | None, Run] = {}
        """The run that was asked it; of several the one that ends last."""
        self._of_call: dict[tuple[str, ...], list[Run]] = defaultdict(list)
        """The runs that requested a call, by its id, and by its name and arguments."""
        self._asked: set[Run | None] = set()
        """Those with a question."""
        self._last: Run | None = None
        """The run that ends last."""
        self._copies: defaultdict[str, list[Run]] = defaultdict(list)
        """The runs of copies by their question, in the order of their start."""

    def add(self, node: Node, asked: _Asked, run: Run | None) -> Run:
        """Add a node to a run, or to a new one, and return it."""
        if run is None:
            run = Run([], node.span.start, _end(node))
            self.found.append(run)
        run.add(node)
        run.users = max(run.users, asked.users)
        if asked.question is not None:
            self._asked.add(run)
        if agent := _agent(node, asked):
            run.agents[agent] = max(run.agents.get(agent, 0), _end(node))
        known = self.of_question.setdefault(asked.question, run)
        self.of_question[asked.question] = run if run.end >= known.end else known
        self._last = run if self._last is None or run.end >= self._last.end else self._last
        run.open_calls.subtract(_tool_name(below) for below in _below(node) if below.facts.kind == "tool")
        for generation in _requests_below(node):
            for call in _calls(generation):
                run.open_calls[call.name] += 1
                for key in (("id", call.id or ""), (call.name, canonical(call.args))):
                    if run not in self._of_call[key][-1:]:
                        self._of_call[key].append(run)
        return run

    def add_request(self, node: Node, asked: _Asked, *, is_parallel: bool) -> None:
        """Add a request outside of agents to the run to which it belongs, or to a new one."""
        run = self.latest = self.add(node, asked, self._of_request(asked, is_parallel=is_parallel))
        calls = _calls(node)
        run.is_parallel, run.used_tools = run.is_parallel or is_parallel, run.used_tools or bool(calls)
        run.last = None if calls else asked

    def _of_request(self, asked: _Asked, *, is_parallel: bool) -> Run | None:
        """Return the run to which a request outside of agents belongs."""
        run = self.of_question.get(asked.question)
        run = self._of_ids(asked.named) or (run if run is not None and asked.users <= run.users else None)
        if run is not None or self.latest is None or is_parallel or self.latest.is_parallel:
            return run
        last = self.latest.last
        is_next_turn = last is not None and (not asked.has_replies or asked.first == last.first)
        return None if self.latest.used_tools and is_next_turn else self.latest

    def add_agent(self, node: Node, asked: _Asked) -> None:
        """Add an agent to a run that it overlaps, or to a new one."""
        handing, agent = self._of_ids(asked.named), _agent(node, asked)
        found = self._of_agent(node, asked, handing)
        others = [run for run in found if not run.has_copy(agent, node.span.start, is_handing=run is handing)]
        run = self.add(node, asked, next(iter(others), None))
        if found and not others:
            copies = self._copies[asked.question or ""]
            copies += [run] if copies else [found[0], run]
            run.is_copy = found[0].is_copy = True

    def _of_agent(self, node: Node, asked: _Asked, handing: Run | None) -> list[Run]:
        """Return the runs to which an agent may belong because both overlap, the likeliest first. Of copies it is the one that
        is `handing` over to it, which may have ended: the others, which it overlaps, did not."""
        if handing is not None and handing.is_copy:
            return [handing]
        copies = self._copies[asked.question or ""]
        going_on = [run for run in copies[-_MOST_AT_A_TIME:] if _overlap(run, node)]
        runs = [handing, *_nearest(node, going_on)[-1:], self.of_question.get(asked.question)]
        if asked.question is None:
            runs += [self._last, *self.of_code[:1]]
        elif self.of_question.get(None) not in self._asked:
            runs.append(self.of_question.get(None))
        return [run for run in runs if run is not None and _overlap(run, node)]

    def add_others(self, nodes: Sequence[Node]) -> None:
        """Add tools, embeddings, and requests of which nothing says what they were asked. What none of the runs that are going
        on has asked for is a part of the last one before it, or of the first; only such requests outside of agents are a run."""
        self.found.sort(key=lambda run: run.start)
        starts = [run.start for run in self.found]
        unknown: list[Node] = []
        for node in nodes:
            last = bisect_right(starts, node.span.start)
            going_on = [run for run in self.found[max(0, last - _MOST_AT_A_TIME) : last] if _overlap(run, node)]
            run, node.is_guessed = self._of_other(node, going_on)
            is_request = node.facts.kind == "generation"
            if run is None and (near := self.of_code or ([] if is_request else self.found)):
                run = near[max(0, bisect_right(near, node.span.start, key=lambda run: run.start) - 1)]
                node.is_guessed = not is_request and not self.of_code and len(near) > 1
            if run is None:
                unknown.append(node)
                continue
            run.add(node)
            if node.facts.kind == "tool":
                run.open_calls[_tool_name(node)] -= 1
        if unknown:
            self.found.append(Run(unknown, unknown[0].span.start, max(map(_end, unknown))))

    def _of_other(self, node: Node, going_on: Sequence[Run]) -> tuple[Run | None, bool]:
        """Return the run to which a node belongs, and whether that is a guess."""
        is_tool = node.facts.kind == "tool"
        ids = [node.facts.call_id or ""] if is_tool else _asked(node).named
        if (run := self._of_ids(ids)) is not None:
            return run, False
        if len(going_on) > 1 and is_tool:
            key = (_tool_name(node), canonical(node.facts.input))
            asking = [run for run in self._of_call.get(key, ())[-_MOST_AT_A_TIME:] if run in going_on]
            going_on = asking if len(asking) == 1 else going_on
        if len(going_on) > 1:
            going_on = _nearest(node, going_on)
        if len(going_on) > 1 and is_tool:
            asking = [run for run in going_on if run.open_calls[_tool_name(node)] > 0]
            return (asking or going_on[-1:])[0], True
        return (going_on[-1] if going_on else None), len(going_on) > 1

    def _of_ids(self, ids: Iterable[str]) -> Run | None:
        return next((runs[-1] for call_id in ids if call_id and (runs := self._of_call.get(("id", call_id)))), None)


def _nearest(node: Node, runs: Sequence[Run]) -> Sequence[Run]:
    """Return those of several runs that are below the nearest span around a node."""
    for span in islice(above(node), _MOST_AT_A_TIME):
        if below := [run for run in runs if span.is_around(run.nodes[0])]:
            return below
    return runs


def _asked(node: Node) -> _Asked:
    """Return what the first request of a node was asked, or else the node itself."""
    requests = sorted(_requests_below(node), key=lambda request: (request.span.start, request.number))
    for asking in (*requests[:1], node):
        messages = messages_in(asking.facts.input)
        users = [index for index, message in enumerate(messages) if message.role == "user" and message.content]
        since = messages[users[-1] :] if users else messages
        calls = [call.id for message in since for call in message.calls]
        results = [call_id for message in since for result in message.results for call_id in result.call_ids]
        named = [call_id for call_id in (*calls, *results) if call_id]
        asked = messages[users[-1]].content if users else question_in(asking.facts.input)
        if asked or named:
            return _Asked(
                question=_words(asked) if asked else None,
                first=_words(messages[users[0]].content) if users else None,
                users=len(users),
                has_replies=any(message.role == "assistant" for message in messages),
                named=named,
            )
    return _Asked()


def _words(content: Any) -> str:
    """Return the same text for contents that differ in their form or their spaces only."""
    return words_of(content) or as_json(text_of(content)[1])


def _requests_below(node: Node) -> list[Node]:
    """Return a node and those below it that are requests, but none below a tool."""
    return [below for below in _below(node) if below.facts.kind == "generation"]


def _below(node: Node) -> list[Node]:
    """Return a node and those below it, but none below a tool."""
    return walk([node], lambda above: above.children if above.facts.kind != "tool" else [])


def _tool_name(node: Node) -> str:
    return node.facts.tool_name or node.span.name


def _calls(request: Node) -> list[Call]:
    return [call for message in messages_in(request.facts.output, "assistant") for call in message.calls]


def _parallel(requests: Sequence[tuple[Node, _Asked]]) -> set[Node]:
    """Return the requests that overlap one with another question. They come in the order of their start."""
    found: set[Node] = set()
    last: tuple[Node, _Asked] | None = None
    for request in requests:
        if last is not None and request[0].span.start < _end(last[0]) and request[1].question != last[1].question:
            found |= {request[0], last[0]}
        if last is None or _end(request[0]) >= _end(last[0]):
            last = request
    return found


def _between_questions(agents: Sequence[tuple[Node, _Asked]]) -> set[Node]:
    """Return the agents without a question that overlap others with several: nothing says to which of them they belong."""
    lasting: dict[str, tuple[int, int]] = {}
    for node, asked in agents:
        if asked.question is not None:
            start, end = lasting.get(asked.question, (node.span.start, 0))
            lasting[asked.question] = min(start, node.span.start), max(end, _end(node))
    starts, ends = sorted(start for start, _end in lasting.values()), sorted(end for _start, end in lasting.values())
    return {
        node
        for node, asked in agents
        if asked.question is None
        and not asked.named
        and bisect_left(starts, _end(node)) - bisect_right(ends, node.span.start) > 1
    }


def _asking_around(requests: Sequence[Node]) -> Node | None:
    """Return the nearest span around all of these that has a question."""
    first, last = min(requests, key=attrgetter("number")), max(requests, key=attrgetter("number"))
    around = (node for node in above(first) if node.is_around(last))
    return next((node for node in around if question_in(node.facts.input) is not None), None)


def _overlap(run: Run, node: Node) -> bool:
    return node.span.start < run.end and _end(node) > run.start


def _uppermost(node: Node) -> list[Node]:
    if node.has_meaning and not _is_bare(node):
        return [node]
    nodes = []
    waiting = deque(node.children)
    while waiting:
        below = waiting.popleft()
        if below.has_meaning:
            nodes.append(below)
        else:
            waiting += below.children
    if node.has_meaning and not _are_runs(nodes):
        return [node]
    return nodes or ([node] if node.parent is None else [])


def _is_bare(node: Node) -> bool:
    """Return whether a chain neither asks nor answers, so that it may be around several runs."""
    facts = node.facts
    is_chain = facts.is_root_of_run and facts.kind in (None, "other") and not facts.has_no_end
    return bool(is_chain) and question_in(facts.input) is None and returned_text(facts.output) is None


def _are_runs(nodes: Sequence[Node]) -> bool:
    """Return whether spans that are at work at the same time were asked different things, or are copies."""
    ordered = [(node, _asked(node)) for node in sorted(nodes, key=lambda node: node.span.start)]
    questions = {asked.question for _node, asked in ordered if asked.question is not None}
    if len(questions) > 1 and any(other.span.start < _end(one) for (one, _), (other, _) in pairwise(ordered)):
        return True
    ends: dict[_Agent, int] = {}
    for node, asked in ordered:
        if agent := _agent(node, asked):
            if node.span.start < ends.get(agent, 0):
                return True
            ends[agent] = _end(node)
    return False


def _agent(node: Node, asked: _Asked) -> _Agent | None:
    """Return what copies of an agent have in common; None if its name or its question is unknown, or it is no agent."""
    name = node.facts.agent_name or (node.span.name if node.span.name != _UNNAMED else None)
    if node.facts.kind != "agent" or name is None or asked.question is None:
        return None
    return node.span.scope.name, name, asked.question


def _is_request(node: Node) -> bool:
    return node.facts.kind == "generation" and not _may_be_run(node)


def _may_be_run(node: Node) -> bool:
    """Return whether a span is an agent, or a request that wraps others (the AI SDK's generateText)."""
    return node.facts.kind == "agent" or bool(node.facts.is_root_of_run) or _wraps_requests(node)


def _wraps_requests(node: Node) -> bool:
    return node.facts.kind == "generation" and any(child.facts.kind == "generation" for child in node.children)


def _end(node: Node) -> int:
    return node.span.end or LATEST

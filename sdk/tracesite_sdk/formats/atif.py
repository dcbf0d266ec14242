"""Read trajectories in ATIF, the Agent Trajectory Interchange Format of Harbor (its RFC 0001, versions 1.0 to 1.8).

A trajectory is an object with a `schema_version` "ATIF-v1.x", a `session_id`, the `agent` and its `steps`. A document is
a trajectory, a list or lines of them, or an object whose values are trajectories. Mapping of a step:

* A `source` user or system is a message. A `source` agent is a reply with its `tool_calls`, `reasoning_content`, model
  (else that of the agent) and the tokens in `metrics`; other metrics, such as token ids, are metadata. A step that was
  copied (`is_copied_context`), or made by no request (`llm_call_count` 0), has all of these as metadata.
* A result in the `observation` with a `source_call_id` belongs to that call. Results without it belong to the step: if
  there are as many as open calls, they belong to them in order; otherwise the first is the result of all open calls,
  such as a terminal screen after several commands. The format has no flag for a failed result.
* A sub-agent's trajectory under `subagent_trajectories` (since 1.7) is below the call whose result refers to it. A
  trajectory in a document of its own, or without a reference, is a session of its own.

The id of a message is that of its step, or its index if the id is missing or repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from tracesite_sdk.normalize.json_values import content, fields, instant, items, rest, text, time_flags
from tracesite_sdk.transcripts.documents import Document, Lines, Skip, numbered_values
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript
from tracesite_sdk.transcripts.parsing.tool_outputs import text_and_attachments

NAME = "atif"

_SOURCES = ("system", "user", "agent")
_TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd")

# Fields with a column of their own; all others are kept in metadata.
_STEP_FIELDS = ("step_id", "timestamp", "source", "message")
_REPLY_FIELDS = (*_STEP_FIELDS, "model_name", "reasoning_content", "tool_calls", "observation", "metrics")
_CALL_FIELDS = ("tool_call_id", "function_name", "arguments")
_RESULT_FIELDS = ("source_call_id", "content")


def recognises(document: Document) -> bool:
    values = document.head() if isinstance(document, Lines) else [value for _where, value in _values(document)]
    return any(map(_is_trajectory, values))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the trajectories of a document that `recognises` accepts; report omissions to `skip`."""
    place = 0
    ids: set[str] = set()
    for path, value in _values(document):
        if not _is_trajectory(value):
            skip(path or "(all)", "not a trajectory: no list of steps, or no schema_version that starts with ATIF")
            continue
        waiting = [(path, value)]
        while waiting:
            where, trajectory = waiting.pop(0)
            reader = _Reader(where, skip)
            entries = list(reader.entries(trajectory))
            # A sub-agent without a reference is a session of its own.
            waiting.extend(reader.unreferenced)
            if entries:
                yield Transcript(
                    entries=partial(iter, entries),
                    place=place,
                    external_id=_own_id(trajectory, ids),
                    metadata=rest(trajectory, ("session_id", "steps", "subagent_trajectories")),
                )
            else:
                skip(where or "(all)", "no steps")
            place += 1


# --- Trajectories ---------------------------------------------------------------------------------------------------


def _is_trajectory(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
        return False
    version = value.get("schema_version")
    if isinstance(version, str) and version.startswith("ATIF"):
        return True
    # Some writers omit the version; no other format has such steps.
    first = fields(next(iter(value["steps"]), None))
    return isinstance(value.get("agent"), dict) and "step_id" in first and first.get("source") in _SOURCES


def _values(document: Document) -> Iterator[tuple[str, Any]]:
    """Yield the values that may be trajectories, with their places."""
    if isinstance(document, dict) and not _is_trajectory(document) and any(map(_is_trajectory, document.values())):
        yield from ((str(key), value) for key, value in document.items())
    else:
        yield from numbered_values(document)


def _own_id(value: dict[str, Any], ids: set[str]) -> str | None:
    """Return the id of the session, with that of the trajectory if the document has the session id already."""
    own = text(value.get("session_id")) or text(value.get("trajectory_id"))
    if own is None:
        return None
    if own in ids:
        own = f"{own}/{text(value.get('trajectory_id')) or len(ids)}"
    ids.add(own)
    return own


# --- Steps ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Agent:
    """The agent of a trajectory."""

    name: str | None
    model: str | None
    prefix: str = ""
    """The prefix of its step ids in the trajectory of another agent."""
    parent_call: str | None = None
    scope: str | None = None


@dataclass(eq=False)
class _Reader:
    where: str
    skip: Skip
    unreferenced: list[tuple[str, Any]] = field(default_factory=list)
    """Trajectories of sub-agents without a reference from a result."""
    _embedded: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def entries(self, trajectory: dict[str, Any]) -> Iterator[Entry]:
        for index, value in enumerate(items(trajectory.get("subagent_trajectories"))):
            where = f"{self.where}.subagent_trajectories[{index}]".lstrip(".")
            own = text(fields(value).get("trajectory_id")) or text(fields(value).get("session_id"))
            if not isinstance(value, dict) or not isinstance(value.get("steps"), list):
                self.skip(where, "not a trajectory: no list of steps")
            elif own is None or own in self._embedded:
                self.unreferenced.append((where, value))
            else:
                self._embedded[own] = where, value
        agent = fields(trajectory.get("agent"))
        yield from self._steps(trajectory, _Agent(text(agent.get("name")), text(agent.get("model_name"))), self.where)
        self.unreferenced.extend(self._embedded.values())

    def _steps(self, trajectory: dict[str, Any], agent: _Agent, where: str) -> Iterator[Entry]:
        ids: set[str] = set()
        for index, step in enumerate(items(trajectory.get("steps"))):
            path = f"{where}.steps[{index}]".lstrip(".")
            if not isinstance(step, dict):
                self.skip(path, "not an object")
                continue
            own = text(step.get("step_id"))
            own = own if own is not None and own not in ids else f"#{index}"
            ids.add(own)
            source = step.get("source")
            if source == "agent":
                yield from self._reply(agent.prefix + own, step, agent, path)
            elif source in ("user", "system"):
                yield Prompt(
                    id=agent.prefix + own,
                    role="user" if source == "user" else "system",
                    content=content(step.get("message")),
                    created_at=instant(step.get("timestamp")),
                    health=time_flags(step.get("timestamp")),
                    metadata=rest(step, _STEP_FIELDS),
                )
            else:
                self.skip(path, f"the source is {text(source) or 'missing'!r:.60}; it is one of {', '.join(_SOURCES)}")

    def _reply(self, id_: str, step: dict[str, Any], agent: _Agent, where: str) -> Iterator[Entry]:
        calls = []
        for index, call in enumerate(items(step.get("tool_calls"))):
            if isinstance(call, dict):
                calls.append(
                    Call(
                        id=text(call.get("tool_call_id")),
                        name=text(call.get("function_name")) or "",
                        args=call.get("arguments"),
                        metadata=rest(call, _CALL_FIELDS),
                    )
                )
            else:
                self.skip(f"{where}.tool_calls[{index}]", "not an object")
        # Copied from another trajectory, where it counts, or made without the model.
        is_request = step.get("is_copied_context") is not True and step.get("llm_call_count") != 0
        metrics = fields(step.get("metrics"))
        counted = _TOKENS if is_request else ()
        yield Reply(
            id=id_,
            content=content(step.get("message")),
            calls=calls,
            reasoning=text(step.get("reasoning_content")),
            agent_name=agent.name,
            model=text(step.get("model_name")) or agent.model if is_request else None,
            usage={name: metrics[name] for name in counted if metrics.get(name) is not None} or None,
            created_at=instant(step.get("timestamp")),
            parent_call=agent.parent_call,
            scope=agent.scope,
            health=time_flags(step.get("timestamp")),
            metadata={
                **rest(step, _REPLY_FIELDS),
                **rest({"metrics": rest(metrics, counted)}, ()),
                **({} if is_request else rest({"model_name": step.get("model_name")}, ())),
            },
        )
        yield from self._results(id_, step, calls, agent, where)

    def _results(self, id_: str, step: dict[str, Any], calls: list[Call], agent: _Agent, where: str) -> Iterator[Entry]:
        results = []
        for index, result in enumerate(items(fields(step.get("observation")).get("results"))):
            if isinstance(result, dict):
                results.append((index, result))
            else:
                self.skip(f"{where}.observation.results[{index}]", "not an object")
        answered = {text(result.get("source_call_id")) for _index, result in results} - {None}
        open_ids = [call.id for call in calls if call.id is not None and call.id not in answered]
        loose = [index for index, result in results if not text(result.get("source_call_id"))]
        for index, result in results:
            call_id = text(result.get("source_call_id"))
            if call_id is not None:
                call_ids = [call_id]
            elif len(loose) == len(open_ids):
                call_ids = [open_ids[loose.index(index)]]
            else:
                call_ids = open_ids if index == loose[0] else []
            for ref in items(result.get("subagent_trajectory_ref")):
                yield from self._subagent(fields(ref), call_ids[0] if call_ids else None, agent)
            output, attachments = text_and_attachments(content(result.get("content")))
            flag = fields(result.get("extra")).get("is_error")
            yield Result(
                id=f"{id_}/{index}",
                output=output,
                failed=flag if isinstance(flag, bool) else None,
                call_ids=call_ids,
                scope=agent.scope,
                attachments=attachments,
                metadata=rest(result, _RESULT_FIELDS),
            )

    def _subagent(self, ref: dict[str, Any], call_id: str | None, agent: _Agent) -> Iterator[Entry]:
        """Yield the steps of a sub-agent that the document holds, once."""
        names = [text(ref.get("trajectory_id")), text(ref.get("session_id"))]
        own = next((name for name in names if name is not None and name in self._embedded), None)
        # Only for calls of the main agent: a nested sub-agent has call ids of another scope.
        if own is None or call_id is None or agent.parent_call is not None:
            return
        where, trajectory = self._embedded.pop(own)
        other = fields(trajectory.get("agent"))
        below = _Agent(text(other.get("name")), text(other.get("model_name")), f"{own}/", call_id, own)
        entries = list(self._steps(trajectory, below, where))
        first = next((entry for entry in entries if isinstance(entry, Reply)), None)
        if first is None:
            self.unreferenced.append((where, trajectory))
            return
        # Messages to a sub-agent are not messages of this conversation.
        messages = [{"role": entry.role, "content": entry.content} for entry in entries if isinstance(entry, Prompt)]
        others = rest(trajectory, ("steps", "subagent_trajectories"))
        for entry in entries:
            if entry is first:
                yield replace(first, metadata={**first.metadata, "trajectory": others, "said": messages})
            elif not isinstance(entry, Prompt):
                yield entry

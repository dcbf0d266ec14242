"""The contexts of Eko's agents, from the callback messages of a task.

Eko does not send contexts, but its messages have all that goes into them: the workflow, the results of agents that have ended,
and what an agent has written, called and got since it began.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tracesite_sdk.normalize.json_values import fields, items, text

from .transcripts import call_id_of


class Node(NamedTuple):
    """An agent, or a call of a tool, that is about to begin."""

    id: str
    """The id of the agent's node in the workflow; of a call `agent/call`, because call ids are those of the model."""
    context: dict[str, Any]


@dataclass
class EkoContexts:
    """The conversations of the agents of one task. `receive` takes its messages in order."""

    _workflow: Any = None
    _results: dict[str, Any] = field(default_factory=dict)
    """Results by agent."""
    _messages: dict[str, list[Any]] = field(default_factory=dict)
    """Messages by agent, as in a request to a model."""
    _seen: set[str] = field(default_factory=set)

    def receive(self, message: Mapping[str, Any]) -> Node | None:
        """Return the node that begins with this message, if one does. Messages of a stream that goes on, and repeated ones,
        begin none."""
        if message.get("streamDone") is False:
            return None
        agent, kind = text(message.get("nodeId")) or "", message.get("type")
        if kind in ("workflow", "debug_plan_finished"):
            self._workflow = message.get("workflow")
            return None
        if not agent:
            return None
        messages = self._messages.setdefault(agent, [])
        call = call_id_of(dict(message))
        match kind:
            case "agent_start":
                return self._node(agent, agent, message)
            case "text" | "thinking":
                messages.append({"role": "assistant", "content": [{"type": kind, "text": message.get("text")}]})
            case "tool_use":
                about = {"toolCallId": call, "toolName": message.get("toolName"), "args": message.get("params")}
                node = self._node(f"{agent}/{call}", agent, message)
                if node is not None:
                    messages.append({"role": "assistant", "content": [{"type": "tool-call", **about}]})
                return node
            case "tool_result":
                about = {"toolCallId": call, "toolName": message.get("toolName"), "result": message.get("toolResult")}
                messages.append({"role": "tool", "content": [{"type": "tool-result", **about}]})
            case "debug_agent_process" if items(message.get("currentMessages")):
                # What the model really gets, with its system prompt.
                self._messages[agent] = list(items(message["currentMessages"]))
            case "agent_result":
                self._results[agent] = message.get("result")
                del self._messages[agent]
            case _:
                pass
        return None

    def _node(self, id_: str, agent: str, message: Mapping[str, Any]) -> Node | None:
        if id_ in self._seen:
            return None
        self._seen.add(id_)
        return Node(
            id_,
            {
                "workflow": self._workflow,
                "agent": {"id": agent, "name": message.get("agentName")},
                "results": dict(self._results),
                "messages": list(self._messages[agent]),
            },
        )


def children_of(workflow: Any) -> dict[str, list[str]]:
    """Return the agents that depend on each agent of Eko's workflow: the `children` of a `Workflow` of the time machine."""
    found: dict[str, list[str]] = {}
    for agent in map(fields, items(fields(workflow).get("agents"))):
        if (name := text(agent.get("id"))) is not None:
            found.setdefault(name, [])
            for before in filter(None, map(text, items(agent.get("dependsOn")))):
                found.setdefault(before, []).append(name)
    return found

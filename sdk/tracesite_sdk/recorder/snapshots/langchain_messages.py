"""Snapshots of the nodes of LangGraph: their ids, and the messages of LangChain in their states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from .parts import Codecs

_MESSAGES = (AIMessage, AIMessageChunk, ChatMessage, HumanMessage, RemoveMessage, SystemMessage, ToolMessage)


def register_messages(codecs: Codecs) -> None:
    """Keep messages of LangChain as they are."""
    for kind in _MESSAGES:
        codecs.register(kind, f"langchain.{kind.__name__}", message_to_dict, _message_of)


def node_of(metadata: Mapping[str, Any] | None, name: str) -> str:
    """Return the id of a node: its name, below the names of the nodes whose graphs it is in, as in `research/search`."""
    path = str((metadata or {}).get("langgraph_checkpoint_ns") or name)
    # A checkpoint's namespace is `research:task|search:task`.
    return "/".join(part.partition(":")[0] for part in path.split("|"))


def _message_of(value: dict[str, Any]) -> BaseMessage:
    (message,) = messages_from_dict([value])
    return message

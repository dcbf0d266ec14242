"""The names that providers give to the parts of a request to a model, and the parts of `ModelInput` that they become."""

from __future__ import annotations

CONVERSATION = ("conversation", "messages", "currentMessages")
"""Fields of events that hold a conversation."""
MESSAGES = ("messages", "contents", "input", "prompt")
SYSTEM = ("system", "instructions", "system_instruction", "systemInstruction")
TOOLS = ("tools", "functions")
_PARTS = {
    **dict.fromkeys(MESSAGES, "messages"),
    **dict.fromkeys(SYSTEM, "system"),
    **dict.fromkeys(TOOLS, "tools"),
    "parameters": "parameters",
}


def part_of(name: str) -> str:
    """Return the part of an input that a field of a request becomes; all others are parameters."""
    return _PARTS.get(name) or f"parameters.{name}"

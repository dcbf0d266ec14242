"""Contents of the measured calls: different arguments of about 300 bytes and results of about 1,500, half prose and half JSON,
from the workload of the server's benchmark."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from benchmarks import workload

DIFFERENT = 200


@dataclass(frozen=True)
class Content:
    """Call of a tool."""

    name: str
    args: dict[str, Any]
    result: str


def contents() -> list[Content]:
    """Return the contents, which are the same in every process."""
    made = []
    messages = workload.of_reading()
    for number in range(1, DIFFERENT + 1):
        step = messages.message(number)["agent_steps"][0]
        call = step["tool_calls"][0]
        args = {name: call["args"][name] for name in ("query", "region", "limit", "filter")}
        args["note"] = call["args"]["note"][:80]
        texts = [step["thought"], step["reasoning_content"], call["reflection"], messages.message(number)["content"]]
        result = " ".join(texts)[:1500] if number % 2 else json.dumps(call["result"])
        made.append(Content(call["name"], args, result))
    return made

"""Events of the benchmarks: the steps, calls and results of workload.py as an agent reports them while it works.

A step is two events and a call two more, so the run of a workload message is 28 events, including the four that begin and
end it; longer runs repeat its steps. An event is about 1 KB of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any

import msgspec

from .workload import Workload

EVENTS_A_STEP = 6
ENDS = 4
"""Number of events that begin and end a run."""

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class EventLoad:
    """Events of one session, one run after the other."""

    work: Workload
    events_a_run: int
    first: int = 0
    """Number of the first workload message."""

    def events(self) -> Iterator[Json]:
        """Yield numbered events without end."""
        number = run = 0
        message = self.first
        name = self.work.session_name(0)
        while True:
            steps: list[Json] = []
            began = message
            while len(steps) * EVENTS_A_STEP < self.events_a_run - ENDS:
                steps += self.work.message(message)["agent_steps"]
                message += 1
            del steps[(self.events_a_run - ENDS) // EVENTS_A_STEP :]
            for type_, at, data in _events(self.work.message(began), steps):
                number += 1
                yield {
                    "id": f"e-{number}",
                    "session_id": name,
                    "message_id": f"run-{run}",
                    "number": number,
                    "type": type_,
                    "agent": None if type_.startswith("workflow") else "orders",
                    "timestamp": at,
                    "data": data,
                }
            run += 1

    def bodies(self, events: int, batch: int) -> list[bytes]:
        """Return the bodies of `POST /api/v1/events/` for the first `events` events."""
        return _bodies(self, events, batch)


@lru_cache(maxsize=1)
def _bodies(load: EventLoad, events: int, batch: int) -> list[bytes]:
    made = list(islice(load.events(), events))
    return [msgspec.json.encode({"events": made[at : at + batch]}) for at in range(0, events, batch)]


def _events(message: Json, steps: list[Json]) -> Iterator[tuple[str, str, Json]]:
    """Yield type, time and data of the events of a run."""
    begin = message["created_at"]
    yield "workflow_execute_start", begin, {"prompt": steps[0]["thought"]}
    yield "agent_start", begin, {"agent_name": "orders"}
    for place, step in enumerate(steps):
        named = {"step": f"s{place}"}
        yield "llm_request_start", step["timestamp"], {**named, "model": step["model"]}
        thought = {"thought": step["thought"], "reasoning": step["reasoning_content"]}
        yield (
            "llm_request_complete",
            step["timestamp"],
            {**named, **thought, "usage": step["usage"], "duration": step["duration"]},
        )
        for call in step["tool_calls"]:
            meant = {**named, "call_id": call["id"], "name": call["name"]}
            yield "tool_call_start", call["started_at"], {**meant, "args": call["args"]}
            result = call["result"]
            yield (
                "tool_call_error" if result["status"] == "error" else "tool_call_complete",
                call["completed_at"],
                {**meant, "result": result, "reflection": call["reflection"], "duration": call["duration"]},
            )
    yield "agent_complete", message["completed_at"], {"result": message["content"]}
    yield "workflow_execute_complete", message["completed_at"], {"result": message["content"]}

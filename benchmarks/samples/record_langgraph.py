"""Record the sample session of Tracesite's recorder: the LangGraph example agent, as the events that it sends.

.venv/bin/python -m benchmarks.samples.record_langgraph tracesite/samples/recordings/order-desk.ndjson
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from examples.langgraph_agent import run
from tracesite_sdk import MemorySink, Recorder

SESSION = "sample-order-desk"


def main(path: str) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    run(recorder, SESSION)
    recorder.close()
    events = sorted(sink.events, key=lambda event: event["number"])
    lines = [msgspec.json.encode(_timeless(event) | {"number": number}) for number, event in enumerate(events, start=1)]
    Path(path).write_bytes(b"\n".join([*lines, b""]))


def _timeless(event: dict[str, Any]) -> dict[str, Any]:
    """Return the event without ids that contain the recording time, because loading a sample shifts its times."""
    return event | {"message_id": "run", "id": event["id"].replace(event["message_id"], "run")}


if __name__ == "__main__":
    main(sys.argv[1])

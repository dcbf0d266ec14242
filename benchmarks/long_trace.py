"""Send one trace that grows to 10,000 spans over OTLP, in deliveries of 100: python -m benchmarks.long_trace

The spans are 2 KB each, requests and tools in turn below one root, which ends with the last delivery. Told are the milliseconds
of a delivery by the size of the trace, the seconds from the first delivery until the whole run can be read by REST, the CPU of
the server and of PostgreSQL, and the memory of the largest process.
"""

from __future__ import annotations

import argparse
import secrets
import statistics
import time
from typing import Any

import msgspec
import psycopg

from . import data, http_client, processes
from .server import Server, database, postmaster, serving

DELIVERY = 100
_BEGAN = 1_790_000_000 * 10**9
_SECOND = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.long_trace",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--spans", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with database() as url, psycopg.connect(url, autocommit=True) as connection:
        _project_id, token = data.prepare()
        with serving(options.workers) as server:
            measure(server, token, options.spans, postmaster(connection))


def measure(server: Server, token: str, spans: int, postgres: int | None) -> None:
    head = {"Authorization": f"Bearer {token}"}
    trace_id = secrets.token_hex(16)
    client = server.connect()
    cpu = _cpu(server, postgres)
    began = time.monotonic()
    times: list[float] = []
    for first in range(1, spans, DELIVERY):
        sent = [span(trace_id, number) for number in range(first, min(first + DELIVERY, spans))]
        sent += [root(trace_id, spans)] if first + DELIVERY >= spans else []
        body = msgspec.json.encode({"resourceSpans": [{"scopeSpans": [{"spans": sent}]}]})
        request = http_client.post("/v1/traces", head, body)
        before = time.monotonic()
        client.send(request)
        times.append((time.monotonic() - before) * 1000)
    read = http_client.get(f"/api/v1/messages/?request_id={trace_id}&role=assistant", head)
    while not _is_whole(client.send(read), spans):
        time.sleep(0.1)
    for size in (100, 500, 1_000, 2_000, 5_000, 10_000):
        if size <= spans:
            near = times[max(0, size // DELIVERY - 3) : size // DELIVERY + 2]
            print(f"a delivery at {size} spans: {statistics.median(near):.0f} ms, longest {max(near):.0f}")
    print(f"whole after {time.monotonic() - began:.1f} s; CPU {_cpu(server, postgres) - cpu:.1f} s")
    print(
        f"largest process of the server {max(map(processes.peak_bytes, processes.family(server.pid))) / 2**20:.0f} MB"
    )


def span(trace_id: str, number: int) -> dict[str, Any]:
    """Return a request that calls a tool, or the tool."""
    text = f"{number} " + "the seats of row seven are free and cost as much as those of row eight. " * 18
    start = _BEGAN + number * _SECOND
    values = (
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "book",
            "gen_ai.tool.call.id": f"c{number - 1}",
            "gen_ai.tool.call.result": text,
        }
        if number % 2 == 0
        else {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "gpt-5.1",
            "gen_ai.output.messages": msgspec.json.encode(
                [{"role": "assistant", "parts": [{"type": "text", "content": text}, {"type": "tool_call", "id": f"c{number}", "name": "book", "arguments": {"row": number}}]}]
            ).decode(),
        }
    )  # fmt: skip
    return _encoded(trace_id, number + 1, 1, start, start + _SECOND // 2, values)


def root(trace_id: str, spans: int) -> dict[str, Any]:
    values = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "booking"}
    return _encoded(trace_id, 1, 0, _BEGAN, _BEGAN + (spans + 1) * _SECOND, values)


def _encoded(trace_id: str, number: int, parent: int, start: int, end: int, values: dict[str, str]) -> dict[str, Any]:
    attributes = [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]
    parents = {"parentSpanId": f"{parent:016x}"} if parent else {}
    return {"traceId": trace_id, "spanId": f"{number:016x}", "name": "span", "startTimeUnixNano": str(start)} | {
        **parents,
        "endTimeUnixNano": str(end),
        "attributes": attributes,
    }


def _is_whole(body: bytes | bytearray, spans: int) -> bool:
    found = msgspec.json.decode(body)["results"]
    return bool(found) and found[0]["is_completed"] and found[0]["step_count"] >= spans // 2


def _cpu(server: Server, postgres: int | None) -> float:
    return server.cpu_seconds() + (processes.cpu_seconds(processes.family(postgres)) if postgres else 0)


if __name__ == "__main__":
    main()

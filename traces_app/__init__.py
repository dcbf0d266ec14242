"""Traces: steps, tools, tool calls, results and events; their ingest, import, reading and purge."""

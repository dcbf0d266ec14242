"""The endpoint to which the OpenAI Agents SDK exports its traces: `POST /v1/traces/ingest`."""

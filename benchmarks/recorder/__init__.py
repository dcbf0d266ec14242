"""Overhead of the recorder, relative to OpenTelemetry's batching processor in the same run."""

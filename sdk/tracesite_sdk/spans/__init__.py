"""Spans of OpenTelemetry and of other tracing SDKs: decode them, read them by their conventions, and make runs of them."""

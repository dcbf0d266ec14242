"""OTLP/HTTP: agents that are instrumented with OpenTelemetry send their spans here.

Source: the OTLP specification 1.x, "OTLP/HTTP".
"""

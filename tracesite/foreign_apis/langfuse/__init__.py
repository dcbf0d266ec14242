"""Langfuse's own API, as far as SDKs need it to send: ingestion events and the check of their keys. Spans come by OTLP.

Source: langfuse/langfuse, fern/apis/server/definition.
"""

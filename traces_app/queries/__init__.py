"""Reads: messages, chains, calls and tools, their filters and response schemas."""

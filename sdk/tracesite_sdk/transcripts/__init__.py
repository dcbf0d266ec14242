"""Transcripts of other systems: files read, parsed and imported."""

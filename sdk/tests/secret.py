"""A secret that the default rules redact."""

from __future__ import annotations

SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
"""A token in the form of those of GitHub."""

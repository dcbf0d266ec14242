"""Where tests find the repository, the sources of the SDK, and the traces beside it that are too large or not ours to keep in it.

Tests skip without the latter.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "sdk" / "tracesite_sdk"
TRANSCRIPTS = ROOT / "sdk" / "tests" / "formats" / "transcripts"
SHARED = ROOT.parent / "shared" / "data"

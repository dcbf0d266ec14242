"""Where the tests of the SDK find its sources, and the traces that are too large or not ours to keep in the repository."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "sdk" / "tracesite_sdk"
TRANSCRIPTS = ROOT / "sdk" / "tests" / "formats" / "transcripts"
SHARED = ROOT.parent / "shared" / "data"

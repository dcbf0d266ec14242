"""The root of the repository, and the traces beside it that are too large or not ours to keep in it; tests skip without them."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"

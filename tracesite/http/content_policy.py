"""The Content-Security-Policy of our pages. Imported by settings, so it imports no models."""

from __future__ import annotations

from csp.constants import NONE, SELF

DIRECTIVES = {
    "default-src": [NONE],
    "script-src": [SELF],
    "style-src": [SELF],
    "img-src": [SELF, "data:"],
    "font-src": [SELF],
    "connect-src": [SELF],
    "form-action": [SELF],
    "frame-ancestors": [NONE],
    "base-uri": [NONE],
}
"""Trace content is hostile: nothing is loaded from outside, and no inline script or style runs."""
POLICY = "; ".join(f"{name} {' '.join(sources)}" for name, sources in DIRECTIVES.items())

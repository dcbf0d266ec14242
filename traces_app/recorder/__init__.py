"""Deprecated path of `tracesite.recorder`."""

import warnings

from tracesite.recorder import *  # noqa: F403

warnings.warn(
    "traces_app.recorder is deprecated and goes in Tracesite 1.0; use tracesite.recorder.",
    DeprecationWarning,
    stacklevel=2,
)

"""Deprecated path of `tracesite.recorder.results`."""

import warnings

from tracesite.recorder.results import *  # noqa: F403

warnings.warn(
    "traces_app.recorder.results is deprecated and goes in Tracesite 1.0; use tracesite.recorder.results.",
    DeprecationWarning,
    stacklevel=2,
)

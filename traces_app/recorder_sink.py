"""Deprecated path of `tracesite.recorder.database_sink`."""

import warnings

from tracesite.recorder.database_sink import *  # noqa: F403

warnings.warn(
    "traces_app.recorder_sink is deprecated and goes in Tracesite 1.0; use tracesite.recorder.database_sink.",
    DeprecationWarning,
    stacklevel=2,
)

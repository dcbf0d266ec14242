"""Deprecated path of `tracesite.recorder.testing`."""

import warnings

from tracesite.recorder.testing import *  # noqa: F403

warnings.warn(
    "traces_app.recorder.testing is deprecated and goes in Tracesite 1.0; use tracesite.recorder.testing.",
    DeprecationWarning,
    stacklevel=2,
)

"""Deprecated path of `tracesite.recorder.langchain`."""

import warnings

from tracesite.recorder.langchain import *  # noqa: F403

warnings.warn(
    "traces_app.recorder.langchain is deprecated and goes in Tracesite 1.0; use tracesite.recorder.langchain.",
    DeprecationWarning,
    stacklevel=2,
)

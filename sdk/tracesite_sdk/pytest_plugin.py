"""The pytest fixture `replaying`. A conftest.py at the root enables it: `pytest_plugins = ["tracesite_sdk.pytest_plugin"]`.

def test_parcel(replaying):
    with replaying("failure.json") as replay:        # beside the test
        assert run_agent(replay.prompts[0]) == "It arrives on Monday."
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from .recorder.time_machine.recorded import Recorded
from .recorder.time_machine.replaying import Replaying
from .recorder.time_machine.replaying import replaying as replaying_of

__all__ = ["replaying"]


@pytest.fixture
def replaying(request: pytest.FixtureRequest) -> Callable[..., AbstractContextManager[Replaying]]:
    """Return `tracesite_sdk.recorder.time_machine.replaying.replaying`, which reads files beside the test."""
    return partial(_beside, request.path.parent)


def _beside(
    directory: Path, source: Recorded | str | os.PathLike[str], **options: Any
) -> AbstractContextManager[Replaying]:
    return replaying_of(source if isinstance(source, Recorded) else directory / source, **options)

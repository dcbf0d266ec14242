"""Test that the import paths from before 0.2 work until 1.0, with a warning."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import tracesite.recorder


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("traces_app.recorder", "Recorder"),
        ("traces_app.recorder.langchain", "TracesiteHandler"),
        ("traces_app.recorder.testing", "recording"),
        ("traces_app.recorder.results", "success"),
        ("traces_app.recorder_sink", "DatabaseSink"),
    ],
)
def test_old_path_gives_same_object_and_warns(module: str, name: str) -> None:
    new = module.replace("traces_app.recorder_sink", "tracesite.recorder.database_sink").replace(
        "traces_app", "tracesite"
    )
    for loaded in [key for key in sys.modules if key.startswith("traces_app.recorder")]:
        del sys.modules[loaded]
    with pytest.warns(DeprecationWarning) as caught:  # the package warns as well
        old = importlib.import_module(module)
    assert f"{module} is deprecated and goes in Tracesite 1.0; use {new}." in [str(one.message) for one in caught]
    assert getattr(old, name) is getattr(importlib.import_module(new), name)


def test_old_package_exports_every_public_name() -> None:
    with pytest.warns(DeprecationWarning):
        old = importlib.reload(importlib.import_module("traces_app.recorder"))
    assert all(getattr(old, name) is getattr(tracesite.recorder, name) for name in tracesite.recorder.__all__)


@pytest.mark.system
def test_old_command_still_runs() -> None:
    command = [sys.executable, "-m", "traces_app.recorder", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "drain" in done.stdout) == (0, True)

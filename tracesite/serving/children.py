"""Processes that the parent of the workers starts in its threads."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import Any

# A worker that is forked while a process is started would get the ends of its pipes, and keep them: whoever reads the other end, for
# the output or to know that the program runs, would wait for as long as the worker lives.
_alone = threading.Lock()


def hold_forks_while_starting() -> None:
    """Let forks of this process wait until a process that `start` starts has its program."""
    os.register_at_fork(before=_alone.acquire, after_in_parent=_alone.release, after_in_child=_alone.release)


def start(arguments: list[str], **options: Any) -> subprocess.Popen[str]:
    """Start a program, without an input. Raises OSError."""
    with _alone:
        return subprocess.Popen(arguments, stdin=subprocess.DEVNULL, text=True, **options)  # noqa: S603 - our own command lines

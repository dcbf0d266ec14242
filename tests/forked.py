"""Processes that have Django: forked from one that has loaded it, because to load it takes seconds.

What is to be run has to be importable, and gets the settings of the tests' environment.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

import django
from django.apps import apps

if not apps.ready:  # in the process that is forked, which imports only this
    django.setup()

from django.conf import settings
from django.core.management import call_command
from django.db import connection

# Whatever the functions that are run here import.
_PRELOADED = [__name__, "tracesite.urls", "traces_app.views.importing", "traces_app.maintenance.jobs"]
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(_PRELOADED)


def result_of(function: Callable[..., Any], *arguments: Any, seconds: float = 200) -> Any:
    """Call a function in a process of its own and return what it returns; fail if it takes longer or dies."""
    receiver, sender = _forks.Pipe(duplex=False)
    process = _forks.Process(target=_send_result, args=(sender, function, *arguments))
    process.start()
    sender.close()
    try:
        assert receiver.poll(seconds), f"{function.__name__} has not ended"
        return receiver.recv()
    finally:
        process.kill()
        process.join()


def _send_result(sender: Any, function: Callable[..., Any], *arguments: Any) -> None:
    sender.send(function(*arguments))


def command(*arguments: str) -> BaseProcess:
    """Start a management command on the database of the test; return its process."""
    process = _forks.Process(target=_run, args=(connection.settings_dict["NAME"], arguments))
    process.start()
    return process


def kill_after(seconds: float, process: BaseProcess) -> None:
    """Kill the process, unless it ends before."""
    process.join(seconds)
    process.kill()
    process.join()


def _run(database: str, arguments: tuple[str, ...]) -> None:
    connection.settings_dict["NAME"] = database
    if settings.TRACESITE_DIRECT_DATABASE:
        settings.TRACESITE_DIRECT_DATABASE["NAME"] = database
    call_command(*arguments)

"""Roll up the statistics of tools each minute, in a thread of each worker.

An advisory lock lets one of them work; the others find nothing to do. PostgreSQL does the work, so the thread hardly takes
time from requests. It may be killed at any moment: see traces_app.maintenance.tool_roll_up.
"""

from __future__ import annotations

import logging
import random
import threading

from django.db import Error, connection

from traces_app.maintenance.tool_roll_up import roll_up

PAUSE_SECONDS = 60

logger = logging.getLogger(__name__)


def start(stopped: threading.Event, *, pause: float = PAUSE_SECONDS) -> threading.Thread:
    """Start the thread, which ends soon after `stopped` is set."""
    thread = threading.Thread(target=_run, args=[stopped, pause], name="roll-up", daemon=True)
    thread.start()
    return thread


def _run(stopped: threading.Event, pause: float) -> None:
    # The workers begin at the same time; later they should not.
    while not stopped.wait(pause * random.uniform(0.5, 1)):  # noqa: S311 - not a secret
        try:
            report = roll_up(is_stopped=stopped.is_set)
        except Error:
            logger.warning("the roll-up of tools failed and will be tried again", exc_info=True)
        else:
            if report.hours or report.changed:
                logger.info("rolled up tools", extra={"hours": report.hours, "changed": report.changed})
        finally:
            # Not one of the connections that `serve` counts, so it is not kept.
            connection.close()

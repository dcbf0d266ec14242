"""The code that replays a node. It runs in the process of the agent, where its workflow is, so a server can only fill it in."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

_SHORT = 60
"""Characters of a value that is filled in to be changed."""


def replay_code(server: str, session: str, node: str, context: Any) -> str:
    """Return Python code that replays `node` of `session` (its external id, or its id) from snapshots on `server`, a URL.

    Of `context`, what the newest snapshot of the node holds, it has a short value to change, if there is one.
    """
    values = context.items() if isinstance(context, dict) else ()
    short = [{key: value} for key, value in values if not isinstance(value, dict | list) and len(repr(value)) < _SHORT]
    mark = _("change this value")
    value, changed = (f"context = {short[0]!r}  # {mark}\n", ", overrides={'context': context}") if short else ("", "")
    return f"""from tracesite_sdk import ServerStore, TimeMachine

store = ServerStore({server.rstrip("/")!r})  # TRACESITE_KEY
machine = TimeMachine(store, workflow, recorder=recorder)
{value}replay = machine.replay(session_id={session!r}, node_id={node!r}{changed})
machine.go_on(replay)"""

"""Snapshots of contexts in the store of a server: the tests of all stores, and a process that is killed."""

from __future__ import annotations

from typing import Any

import pytest

from access_app.keys import create_key
from access_app.models import Project
from sdk.tests.recorder.test_snapshots import check_whole, killed_after
from sdk.tests.recorder.test_stores import *  # noqa: F403  # each test of a store is one of this store, too
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_killed_process_leaves_whole_snapshots_on_server(live_server: Any) -> None:
    project = Project.objects.create(slug="owner")
    token = create_key(project, "agent", ["read", "write"])[1]
    killed_after(7, live_server.url, token)
    check_whole(Snapshots(ServerStore(live_server.url, token)), 7)

"""What was acknowledged is there, whole and once, whatever is killed. More kills: python -m benchmarks.faults --help"""

from __future__ import annotations

import http.client
import os
import random
import signal
import threading
import time
from contextlib import closing, suppress
from pathlib import Path
from uuid import UUID

import pytest

from benchmarks import processes
from benchmarks.faults import findings
from benchmarks.faults.kills import KINDS, Campaign
from benchmarks.faults.site import Site
from sdk.tests.length import AT_LENGTH, kills
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.snapshots.snapshotting import SnapshotPurged, Snapshots
from tracesite_sdk.recorder.time_machine.machine import TimeMachine, Workflow
from tracesite_sdk.testing import RecorderForTests

pytestmark = pytest.mark.system

KILLS = kills(3)


def test_what_was_acknowledged_is_found_whole_and_once_whatever_is_killed(site: Site) -> None:
    # To us the end of one of its processes is what the end of PostgreSQL is: one of the two is enough here. A server and a
    # purge are killed beside a second server, too: see test_side_by_side.py.
    kinds = [kind for kind in KINDS if kind != "backend" and (AT_LENGTH or kind not in ("server", "purge"))]
    with closing(Campaign(site, seed=1, pause=0.2)) as campaign:
        for kind in kinds * KILLS:
            assert (kind, campaign.round(kind)) == (kind, [])
        assert campaign.finish() == []
        assert len(campaign.ledger.entries) > 4 * len(kinds)  # of each of the senders at least one a round


def test_killed_server_leaves_snapshots_whole_or_absent(site: Site) -> None:
    recorder = RecorderForTests(strict=False)
    acknowledged: list[str] = []
    texts: list[str] = []
    chance = random.Random(23)
    for kill in range(kills(2)):
        store = ServerStore(f"http://127.0.0.1:{site.server.port}", site.key)
        recorder.snapshots = Snapshots(store)
        killer = threading.Timer(chance.uniform(0.05, 0.5), _kill, [site])
        while len(texts) < (kill + 1) * 200:
            texts.append(f"{len(texts)} " * 4_000)
            if recorder.snapshot({"texts": texts}, nodes=[str(len(texts))], session="kills") is not None:
                acknowledged.append(str(len(texts)))
            if not killer.ident:
                killer.start()
            elif not killer.is_alive():
                break
        killer.join()
        site.server.start()
        store.close()
        # A new one, because the other one does not ask again at once.
        store = ServerStore(f"http://127.0.0.1:{site.server.port}", site.key)
        found = store.snapshots("kills")
        nodes = [snapshot.node_ids[0] for snapshot in found]
        assert nodes == sorted(set(nodes), key=int)
        assert set(acknowledged) <= set(nodes)
        # What was not acknowledged may have been stored.
        assert len(nodes) - len(acknowledged) <= kill + 1
        for snapshot in (one for one in found if not one.is_purged):
            assert Snapshots(store).context(snapshot)["texts"] == texts[: int(snapshot.node_ids[0])]
        store.purge("kills")
        machine = TimeMachine(store, Workflow.chain(lambda *_: None, []))
        with pytest.raises(SnapshotPurged, match=f"'kills' cannot be replayed from '{nodes[-1]}'"):
            machine.replay(session_id="kills", node_id=nodes[-1])
        store.close()
    recorder.close()


def _kill(site: Site) -> None:
    process = site.server.process
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


# A statement that does harm to one message, and what is said of it then.
HARM = [
    (
        "DELETE FROM traces_app_toolresult WHERE id = ANY(SELECT id FROM traces_app_toolcall WHERE message_id = %(id)s)",
        "should be",
    ),
    ("UPDATE messages_app_message SET content = '' WHERE id = %(id)s", "should be"),
    ("UPDATE messages_app_message SET external_id = 'x' WHERE id = %(id)s", "was acknowledged and is lost"),
    (
        "INSERT INTO messages_app_message SELECT (jsonb_populate_record(m, jsonb_build_object('id', %(other_id)s::text))).* "
        "FROM messages_app_message m WHERE id = %(id)s",
        "messages stored twice",
    ),
    ("DELETE FROM messages_app_messagekey WHERE message_id = %(id)s", "messages without their key"),
    ("UPDATE messages_app_message SET call_count = 99 WHERE id = %(id)s", "messages whose counters are wrong"),
    ("UPDATE messages_app_session SET message_count = 99", "sessions whose counters are wrong"),
]


def test_what_is_lost_or_halved_or_doubled_is_noticed(site: Site) -> None:
    """The look that finds nothing wrong is able to find it."""
    with closing(Campaign(site, seed=2)) as campaign:
        (sender, *_) = campaign.senders
        sender.grow()
    id_ = UUID(sender.own[0].id)
    with site.connect() as connection:
        assert findings.problems(connection, campaign.ledger, campaign.prefix) == []
        for statement, complaint in HARM:
            with connection.transaction(force_rollback=True):
                connection.execute(statement, {"id": id_, "other_id": UUID(int=id_.int ^ 1)})
                assert complaint in "\n".join(findings.problems(connection, campaign.ledger, campaign.prefix))


def test_no_worker_outlives_a_parent_that_was_killed(site: Site) -> None:
    """It would serve on, with nobody to stop it, and keep the port from the next server."""
    process, workers = site.server.process, site.server.family()[1:]
    assert process is not None
    process.kill()
    process.wait()
    try:
        deadline = time.monotonic() + 120
        while any(Path(f"/proc/{pid}").exists() for pid in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        site.server.start()


def test_workers_of_a_killed_parent_end_though_a_client_stays(site: Site) -> None:
    server = site.server
    assert server.process is not None, "the fixture started it"
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as client:
        client.request("GET", "/healthz")
        client.getresponse().read()
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        deadline = time.monotonic() + 120
        while processes.in_session(server.process.pid):
            assert time.monotonic() < deadline
            with suppress(OSError, http.client.HTTPException):
                client.request("GET", "/healthz")
                client.getresponse().read()
            time.sleep(0.05)
    server.start()

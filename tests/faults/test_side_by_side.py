"""Two servers on one database, and a migration under a server that knows nothing of it."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from benchmarks.faults.kills import Campaign
from benchmarks.faults.site import ROOT, Server, Site
from sdk.tests.length import at_length
from sdk.tests.ports import free_port

pytestmark = pytest.mark.system

# A later version adds a column to the two kinds of tables and an index, as its migrations would: one table in each, and
# so in each transaction. One that changes both tables at once holds the first while it waits for the second, and a
# writer does it the other way round: PostgreSQL ends one of the two, and the client is told 503 and sends again.
A_LATER_VERSION = """
import django
django.setup()
from django.db import connection, migrations, models
from django.db.migrations.executor import MigrationExecutor

operations = [
    migrations.AddField("message", "later", models.TextField(null=True)),
    migrations.AddField("session", "later", models.TextField(null=True)),
    migrations.AddIndex("session", models.Index(fields=["later"], name="session_later")),
]
state = MigrationExecutor(connection).loader.project_state()
for operation in operations:
    migration = migrations.Migration("later", "messages_app")
    migration.operations = [operation]
    with connection.schema_editor(atomic=True) as editor:
        state = migration.apply(state, editor)
with connection.cursor() as cursor:
    cursor.execute("ALTER TABLE messages_app_message DROP COLUMN later")
    cursor.execute("ALTER TABLE messages_app_session DROP COLUMN later")
"""


@contextmanager
def at_work(campaign: Campaign) -> Iterator[None]:
    """The senders send."""
    stop = threading.Event()
    threads = [threading.Thread(target=sender.run, args=[stop]) for sender in campaign.senders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@at_length
def test_two_servers_on_one_database_do_not_get_in_each_others_way(site: Site) -> None:
    second = Server(port=free_port(), log=site.data_dir / "second.log", environment=site.environment, workers=1)
    try:
        second.start()
        with closing(Campaign(site, seed=3, pause=0.2)) as campaign:
            for sender in campaign.senders[::2]:
                sender.client.close()
                sender.client.port = second.port
            assert campaign.round("server") == []
            assert campaign.round("purge") == []
            assert campaign.finish() == []
    finally:
        second.stop()


def test_a_migration_beside_a_server_that_takes_messages_costs_no_write(site: Site) -> None:
    before = deadlocks(site)
    with closing(Campaign(site, seed=4, pause=0.6)) as campaign:
        with at_work(campaign):
            time.sleep(0.5)
            site.manage("migrate", "--verbosity", "0")
            subprocess.run(
                [sys.executable, "-c", A_LATER_VERSION],
                cwd=ROOT,
                env=site.environment | {"DATABASE_URL": site.url},
                timeout=300,
                check=True,
            )
            acknowledged = len(campaign.ledger.entries)
            deadline = time.monotonic() + 120
            while len(campaign.ledger.entries) == acknowledged and time.monotonic() < deadline:
                time.sleep(0.2)
            assert len(campaign.ledger.entries) > acknowledged
        assert campaign.check(in_a_purge=True) == []
        assert set(campaign.ledger.answers) <= {"200", "201", "202", "204", "207", "409"}
    assert deadlocks(site) == before


def deadlocks(site: Site) -> int:
    with site.connect() as connection:
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    return int(row[0])

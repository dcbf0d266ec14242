"""Archive, restore, erase and purge lose and double nothing when they are killed. More kills: python -m benchmarks.faults.archives --help"""

from __future__ import annotations

import pytest

from benchmarks.faults.archives import COMMANDS, Kills
from benchmarks.faults.site import Site
from sdk.tests.length import AT_LENGTH

pytestmark = pytest.mark.system


def test_killed_archive_restore_erase_and_purge_lose_nothing(site: Site) -> None:
    campaign = Kills(site, seed=3)
    # The kills of a purge have tests of their own, and a restore writes as the ingestion of messages does.
    killed = COMMANDS if AT_LENGTH else ("archive", "erase")
    assert campaign.round(0, killed) == []
    assert campaign.kills + campaign.late == len(killed)

"""Archive, restore, erase and purge lose and double nothing when they are killed. More kills: python -m benchmarks.faults.archives --help"""

from __future__ import annotations

from benchmarks.faults.archives import Kills
from benchmarks.faults.site import Site


def test_killed_archive_restore_erase_and_purge_lose_nothing(site: Site) -> None:
    campaign = Kills(site, seed=3)
    assert campaign.round(0) == []
    assert campaign.kills + campaign.late == 4

"""Run the tests of the API through PgBouncer, as docs/scaling.md has it set up.

All of them take minutes, so they run at length only; else a few run through the mode that differs more from PostgreSQL, of
transactions.
"""

from __future__ import annotations

from typing import Literal

import pytest

from sdk.tests.length import AT_LENGTH
from tests.debian_postgres import BINARIES, PGBOUNCER, pgbouncer, postgres, run_pytest, url

API_TESTS = ["tests/access_app", "tests/messages_app", "tests/traces_app/events", "tests/traces_app/ingest"]
API_TESTS += ["tests/traces_app/views", "tests/tracesite/http", "tests/traces_app/maintenance/test_jobs.py"]
METRICS = "tests/tracesite/metrics/test_registry.py::test_scrape_leaves_no_setting_on_what_a_pooler_lends"
API_TESTS += [METRICS]
# Tests of what is switched off behind a pooler of transactions, of things that no request does, and those that copy their database.
LEFT_OUT = ["*_in_browser.py", "*/redaction/*", "*/db/*", "*/admin/*", "*/test_partitions.py", "*/test_places.py"]
A_FEW = ["tests/traces_app/views/test_ingestion.py", "tests/traces_app/maintenance/test_jobs.py", METRICS]

pytestmark = [
    pytest.mark.system,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(
        not BINARIES.exists() or PGBOUNCER is None, reason="PgBouncer or PostgreSQL 15 is not installed"
    ),
]


@pytest.mark.parametrize("mode", ["session", "transaction"] if AT_LENGTH else ["transaction"])
@pytest.mark.minutes
def test_api_tests_pass_through_pgbouncer(mode: Literal["session", "transaction"]) -> None:
    with postgres() as home, pgbouncer(home, mode) as port:
        direct = {"DATABASE_DIRECT_URL": url(home)} if mode == "transaction" else {}
        paths, workers = (API_TESTS, 2) if AT_LENGTH else (A_FEW, 0)
        run_pytest(paths, LEFT_OUT, workers, DATABASE_URL=url(home, port), **direct)

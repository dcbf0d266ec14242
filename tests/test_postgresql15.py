"""Run the database tests on PostgreSQL 15, the oldest version that Tracesite supports.

This doubles the time of a test run, so it is done at length only.
"""

from __future__ import annotations

import pytest

from sdk.tests.length import at_length
from tests.debian_postgres import BINARIES, postgres, run_pytest, url

pytestmark = [pytest.mark.system, pytest.mark.timeout(7200)]

DATABASE_TESTS = ["tests/access_app", "tests/messages_app", "tests/traces_app"]
# Tests in these folders that do not use the database.
LEFT_OUT = ["*_in_browser.py", "*/formats/*", "*/redaction/*", "*/test_safe_text.py"]


@at_length
@pytest.mark.skipif(not BINARIES.exists(), reason=f"no PostgreSQL 15 in {BINARIES}")
def test_database_tests_pass_on_postgresql_15() -> None:
    with postgres() as home:
        run_pytest(DATABASE_TESTS, LEFT_OUT, DATABASE_URL=url(home))

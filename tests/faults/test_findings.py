"""What the fault injection finds in a database that contradicts itself."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.db import connection

from access_app.db import primary
from benchmarks.faults.findings import contradictions
from messages_app.sql.periods import Length, Period
from traces_app.ingest.partitions import ensure_periods

pytestmark = pytest.mark.system


@pytest.mark.parametrize(
    ("length", "suffix"), [("DAY", "y2031m05d03"), ("WEEK", "y2031m05d01w"), ("MONTH", "y2031m05")]
)
def test_period_that_one_table_lacks_is_found(db: None, length: Length, suffix: str) -> None:
    ensure_periods(primary, {Period.of(datetime(2031, 5, 3, tzinfo=UTC), length)})
    assert contradictions(connection.connection) == []
    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE traces_app_event_{suffix}")
    lacking = f"1 periods that some tables have and others lack, such as ('{suffix}', 13)"
    assert contradictions(connection.connection) == [lacking]

"""Tests of tracesite/embedded.py."""

import pytest
from django.db import connection


@pytest.mark.django_db
def test_the_tests_have_a_postgresql_that_knows_many_locks() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SHOW max_locks_per_transaction")
        assert cursor.fetchone() == ("256",)

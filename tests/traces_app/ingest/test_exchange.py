"""Statements in one pipeline: their results are fetched after the block, and their errors are Django's."""

from __future__ import annotations

import pytest
from django.db import DataError

from access_app.db import primary
from traces_app.ingest.sql import exchange

pytestmark = pytest.mark.django_db


def test_results_are_there_after_the_block() -> None:
    with exchange(primary) as ask:
        numbers = ask("SELECT n FROM generate_series(1, %s::int) AS n", 3)
        text = ask("SELECT upper(%s::text)", "a")
    assert text.fetchone() == ("A",)
    assert numbers.fetchall() == [(1,), (2,), (3,)]


def test_error_of_a_statement_leaves_the_block_and_the_connection_usable() -> None:
    with pytest.raises(DataError, match="division by zero"), primary.atomic(), exchange(primary) as ask:
        ask("SELECT 1")
        ask("SELECT 1 / %s::int", 0)
        ask("SELECT 2")
    with exchange(primary) as ask:
        answer = ask("SELECT %s::int", 4)
    assert answer.fetchone() == (4,)

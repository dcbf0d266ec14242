"""Servers read outside of transactions, where statements are prepared and read without cursors; most tests do not."""

from __future__ import annotations

import pytest
from django.db import connection, transaction

from traces_app.ingest.batch import SessionOutcome

from .conftest import Caller

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    "path",
    [
        "messages/{message}/",
        "tool-calls/?tool=get_weather",
        "tool-calls/?tool=get_weather&status=error&fields=id,result",
        "tool-calls/?limit=3",
        "chains/{message}/",
    ],
)
def test_answers_are_those_that_are_given_inside_one(owner: Caller, weather: SessionOutcome, path: str) -> None:
    path = path.format(session=weather.id, message=weather.messages[1].id)
    with transaction.atomic():
        inside = owner.get(path)
    connection.close()
    # The second time all months are known, and statements are prepared.
    for _again in range(2):
        assert owner.get(path).json == inside.json
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'tracesite\\_%'")
        assert cursor.fetchone()[0] > 0, "it was read by a cursor"

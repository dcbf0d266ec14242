"""A database of its own for a benchmark that runs in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from tracesite.serving import embedded_postgres


@contextmanager
def scratch_database(*, durable: bool = True, keep: bool = False) -> Iterator[None]:
    """Set up Django with an empty database of the embedded server, which is dropped at the end.

    Commits wait for the disk if it is `durable`. With `keep` the database stays, and the next call finds what is in it.
    """
    os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
    embedded_postgres.ensure(durable=durable)
    # Imported here, because they read the settings.
    import django
    from django.db import connection

    django.setup()
    connection.creation.create_test_db(verbosity=0, autoclobber=True, serialize=False, keepdb=keep)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(connection.settings_dict["NAME"], verbosity=0, keepdb=keep)

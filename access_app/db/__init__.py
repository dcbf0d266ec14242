"""The database of Tracesite: Django's own backend for PostgreSQL, made quicker, and which alias of the settings it is.

Our modules take `connection` and `transaction` from here, where others take them from django.db: those are of the alias `default`,
which in a project of others may be another database (docs/django_project.md).
"""

from __future__ import annotations

from typing import cast

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy

from access_app.conf import conf

PRIMARY: str = conf.DATABASE
"""The alias of the database of Tracesite. Read once: Django's connections do not change their meaning in a process either."""

PEOPLE_ARE_HERE = PRIMARY == DEFAULT_DB_ALIAS
"""Whether users and groups are in the same database, so that keys to them are checked and queries join them."""

connection = cast(BaseDatabaseWrapper, ConnectionProxy(connections, PRIMARY))
"""This thread's connection to it."""

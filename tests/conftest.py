"""The database of the tests, and the list of requirements they have shown.

Without DATABASE_URL the tests run on an embedded PostgreSQL of their own, below .tracesite/test, that does not wait for
the disk. It must be there before Django reads its settings, so pyproject.toml names no settings module: this file does.
Each run has databases of its own, so that several runs can share the server.
"""

from __future__ import annotations

import os
from pathlib import Path

from django.conf import settings

from tracesite import embedded

os.environ["TRACESITE_DATA_DIR"] = str(Path(__file__).resolve().parent.parent / ".tracesite" / "test")
os.environ["DJANGO_SETTINGS_MODULE"] = "tracesite.settings"
embedded.ensure(durable=False)
# Workers of pytest-xdist inherit both from the process that started them.
os.environ.setdefault("TRACESITE_TEST_RUN", str(os.getpid()))
settings.DATABASES["default"].setdefault("TEST", {})["NAME"] = f"test_tracesite_{os.environ['TRACESITE_TEST_RUN']}"

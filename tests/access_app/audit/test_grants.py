"""PostgreSQL lets a role with the documented grants append to the audit log, and no more."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

import psycopg
import pytest
from django.db import Error, connection, transaction

from access_app.audit.chain import append_recorded, first_broken_link
from access_app.audit.record import record
from access_app.models import AuditAction, AuditEntry, Project
from sdk.tests.paths import ROOT

DOCS = ROOT / "docs/audit.md"


@pytest.fixture
def application_role() -> Iterator[str]:
    """A role without rights, which the role of the tests may take on. Ask for it before the database of the test."""
    name = f"tracesite_app_{os.getpid()}"
    with psycopg.connect(os.environ["DATABASE_URL"], user="postgres", autocommit=True) as operator:
        operator.execute("SET lock_timeout = '10s'")
        operator.execute(f"DROP ROLE IF EXISTS {name}")
        operator.execute(f"CREATE ROLE {name} ROLE tracesite")
        yield name
        operator.execute(f"DROP ROLE {name}")


def test_role_with_the_documented_grants_only_appends(application_role: str, project: Project) -> None:
    grants = re.findall(r"^    (GRANT .*) TO tracesite_app;$", DOCS.read_text(), re.MULTILINE)
    assert len(grants) == 4
    with connection.cursor() as cursor:
        for grant in grants:
            cursor.execute(f"{grant} TO {application_role}")
        cursor.execute(f"SET LOCAL ROLE {application_role}")
        record(AuditAction.READ, None, project_id=project.pk)
        assert append_recorded().chained >= 1
        assert first_broken_link(project.pk) is None
        for statement in (
            "UPDATE access_app_auditentry SET actor_name = 'x'",
            "UPDATE access_app_auditentry SET hash = 'x'",
            "DELETE FROM access_app_auditentry",
            "SET LOCAL tracesite.audit_retention = 'on'; DELETE FROM access_app_auditentry",
            "TRUNCATE access_app_auditentry",
            "ALTER TABLE access_app_auditentry DISABLE TRIGGER append_only",
            "DROP TRIGGER append_only ON access_app_auditentry",
            "DROP FUNCTION access_app_audit_append_only() CASCADE",
            "SET LOCAL session_replication_role = 'replica'",
        ):
            with pytest.raises(Error, match=r"permission denied|must be owner|neither changed"), transaction.atomic():
                cursor.execute(statement)
        cursor.execute("RESET ROLE")
    assert AuditEntry.objects.filter(project=project).count() == 1

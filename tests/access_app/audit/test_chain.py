"""The audit log records keys and roles, and its chains show every change by SQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import Error, connection, transaction
from django.test import Client
from django.utils import timezone

from access_app.audit.chain import append_recorded, first_broken_link, hash_of, head_of, purge_before
from access_app.audit.record import record
from access_app.hash_chain import Head
from access_app.keys import create_key, revoke_key
from access_app.models import AuditAction, AuditEntry, Project, Role
from access_app.roles import grant_role, revoke_role

OTHER_VALUES: dict[str, Any] = {
    "id": "id + 1000",
    "project_id": "NULL",
    "time": "time + interval '1 microsecond'",
    "detail": """'{"a": 2}'""",
    "sequence": "sequence + 100",
}
LENGTH = 5
COLUMNS = [column.attname for column in AuditEntry._meta.concrete_fields]


def tamper(sql: str) -> None:
    """Execute a statement as the owner of the database could."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE access_app_auditentry DISABLE TRIGGER append_only")
        cursor.execute(sql)
        cursor.execute("ALTER TABLE access_app_auditentry ENABLE TRIGGER append_only")


def broken_at(project_id: int | None, anchor: Head[str] | None = None) -> int | None:
    link = first_broken_link(project_id, anchor)
    return None if link is None else link.sequence


def verify(**options: Any) -> str:
    out = StringIO()
    call_command("verify_audit", stdout=out, **options)
    return out.getvalue()


@pytest.fixture(autouse=True)
def empty_log(db: None) -> None:
    """Remove what other tests have left, until the end of the test: the log outlives projects."""
    tamper("DELETE FROM access_app_auditentry")


@pytest.fixture
def chained(project: Project) -> Project:
    """A project with a chain of LENGTH entries."""
    for number in range(LENGTH):
        record(AuditAction.READ, None, project_id=project.pk, object_type="session", object_id=number, detail={"a": 1})
    append_recorded()
    return project


def test_keys_and_roles_are_recorded(project: Project) -> None:
    user = User.objects.create_user("eve")
    key, _token = create_key(project, "agent", ["read"])
    revoke_key(key)
    revoke_key(key)
    call_command("grant_role", project="owner", user="eve", role=Role.EDITOR, stdout=StringIO())
    revoke_role(project, user)
    revoke_role(project, user)

    found = AuditEntry.objects.order_by("id").values_list(
        "action", "actor_kind", "actor_name", "object_name", "address", "detail"
    )
    assert list(found) == [
        ("key_create", "system", "tracesite", str(key), "", {"scopes": ["read"]}),
        ("key_revoke", "system", "tracesite", str(key), "", {"scopes": ["read"]}),
        (
            *("role_grant", "command", "grant_role", "eve", ""),
            {"role": "editor", "changes": {"role": ["", "editor"], "is_staff": ["false", "true"]}},
        ),
        ("role_revoke", "system", "tracesite", "eve", "", {"changes": {"role": ["editor", ""]}}),
    ]
    assert set(AuditEntry.objects.values_list("project", flat=True)) == {project.pk}


def test_admin_changes_name_login_and_address(project: Project, staff: User, superuser: User) -> None:
    membership = grant_role(project, staff, Role.ANALYST)
    form = {
        "name": "Owner",
        "sampling_keep_errors": "on",
        "retention_way": "exact",
        "memberships-TOTAL_FORMS": "1",
        "memberships-INITIAL_FORMS": "1",
        "masking_rules-TOTAL_FORMS": "0",
        "masking_rules-INITIAL_FORMS": "0",
        "memberships-0-id": membership.pk,
        "memberships-0-project": project.pk,
        "memberships-0-user": staff.pk,
        "memberships-0-role": "analyst",
        "memberships-0-DELETE": "on",
    }
    client = Client()
    client.force_login(superuser)
    answer = client.post(f"/admin/access_app/project/{project.pk}/change/", form, headers={"X-Request-ID": "r-1"})

    assert answer.status_code == 302
    found = AuditEntry.objects.values_list("action", "actor_kind", "actor_name", "actor_id", "address", "request_id")
    by_ada = ("user", "ada", str(superuser.pk), "127.0.0.1", "r-1")
    assert list(found)[:2] == [("change", *by_ada), ("role_revoke", *by_ada)]
    details = AuditEntry.objects.values_list("object_name", "detail__changes")[:2]
    assert list(details) == [
        ("owner", {"name": ["", "Owner"]}),
        ("bob", {"role": ["analyst", ""]}),
    ]


def test_entry_is_gone_if_the_change_is_rolled_back(project: Project) -> None:
    with pytest.raises(RuntimeError), transaction.atomic():
        grant_role(project, User.objects.create_user("eve"), Role.OWNER)
        raise RuntimeError
    assert not AuditEntry.objects.exists()


def test_texts_that_postgresql_cannot_store_are_replaced(project: Project) -> None:
    record(AuditAction.READ, None, object_id="a\x00b\ud800" + "c" * 300)
    assert AuditEntry.objects.get().object_id == "a\ufffdb?" + "c" * 251


def test_hash_of_entry_never_changes() -> None:
    """Chains in databases were made with it, and anchors of them are elsewhere."""
    entry = AuditEntry(
        id=7,
        project_id=3,
        time=datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
        actor_kind="key",
        actor_name="agent",
        actor_id="1",
        action="read",
        object_type="session",
        object_id="s",
        object_name="Weather",
        address="127.0.0.1",
        request_id="r",
        result="ok",
        detail={"a": 1},
        sequence=2,
        previous_hash="ab" * 32,
    )
    assert hash_of(entry) == "e3ba6f5f1294a1001294ee4f9d4657dc96eb9a0aa6cc5b8eec8bd4ba4e08a4af"


def test_entries_are_chained_for_each_project(chained: Project, stranger: Project) -> None:
    record(AuditAction.READ, None, project_id=stranger.pk)
    record(AuditAction.LOGIN, None)
    record(AuditAction.READ, None, project_id=chained.pk)
    report = append_recorded()

    assert report.chained == 3
    assert [head_of(chain).number for chain in (chained.pk, stranger.pk, None)] == [6, 1, 1]
    assert append_recorded().chained == 0
    record(AuditAction.LOGIN, None)
    output = verify()
    assert "owner: intact until entry 6, hash " in output
    assert output.count("1 newer entries are not chained yet") == 1


@pytest.mark.parametrize("sequence", range(1, LENGTH + 1))
@pytest.mark.parametrize("column", COLUMNS)
def test_changed_column_is_found(chained: Project, column: str, sequence: int) -> None:
    anchor = head_of(chained.pk)
    other = OTHER_VALUES.get(column, "'x'")
    tamper(f"UPDATE access_app_auditentry SET {column} = {other} WHERE sequence = {sequence}")
    place = sequence
    if column == "sequence":
        # A moved entry is missed at the next one.
        place = sequence + 1 if sequence < LENGTH else sequence + 100
    if column == "project_id":
        place = min(sequence + 1, LENGTH)
        # It is found in the chain that it was moved to, too.
        assert broken_at(None) == sequence
    assert broken_at(chained.pk, anchor) == place


@pytest.mark.parametrize("sequence", range(1, LENGTH + 1))
def test_removed_entry_is_found(chained: Project, sequence: int) -> None:
    anchor = head_of(chained.pk)
    tamper(f"DELETE FROM access_app_auditentry WHERE sequence = {sequence}")
    assert broken_at(chained.pk, anchor) == min(sequence + 1, LENGTH)


@pytest.mark.parametrize("sequence", range(1, LENGTH))
def test_entries_removed_at_the_start_are_found(chained: Project, sequence: int) -> None:
    tamper(f"DELETE FROM access_app_auditentry WHERE sequence <= {sequence}")
    assert broken_at(chained.pk) == sequence + 1
    with pytest.raises(CommandError, match=f"owner: entry {sequence + 1}: ") as raised:
        verify(project="owner")
    assert raised.value.returncode == 1


@pytest.mark.parametrize(("first", "second"), list(combinations(range(1, LENGTH + 1), 2)))
def test_swapped_entries_are_found(chained: Project, first: int, second: int) -> None:
    tamper(
        f"UPDATE access_app_auditentry SET sequence = 100 WHERE sequence = {first};"
        f"UPDATE access_app_auditentry SET sequence = {first} WHERE sequence = {second};"
        f"UPDATE access_app_auditentry SET sequence = {second} WHERE sequence = 100"
    )
    assert broken_at(chained.pk) == first


@pytest.mark.parametrize("sequence", range(1, LENGTH + 1))
def test_entry_added_after_each_is_found(chained: Project, sequence: int) -> None:
    tamper(
        f"UPDATE access_app_auditentry SET sequence = sequence + 100 WHERE sequence > {sequence};"
        "INSERT INTO access_app_auditentry SELECT (jsonb_populate_record(entry, jsonb_build_object('id', id + 1000,"
        " 'sequence', sequence + 1, 'previous_hash', hash))).*"
        f" FROM access_app_auditentry entry WHERE sequence = {sequence};"
        "UPDATE access_app_auditentry SET sequence = sequence - 99 WHERE sequence > 100"
    )
    assert broken_at(chained.pk) == sequence + 1


@pytest.mark.parametrize("kept", [3, 0])
def test_truncated_end_is_found_by_the_anchor(chained: Project, tmp_path: Path, kept: int) -> None:
    anchors = tmp_path / "anchors.json"
    verify(anchor_file=anchors)
    verify(anchor_file=anchors)
    written = anchors.read_text()
    tamper(f"DELETE FROM access_app_auditentry WHERE sequence > {kept}")

    assert broken_at(chained.pk) is None
    with pytest.raises(CommandError, match=f"owner: entry {kept + 1}: removed from the end"):
        verify(anchor_file=anchors)
    assert anchors.read_text() == written


def test_anchor_file_of_another_form_is_refused(db: None, tmp_path: Path) -> None:
    path = tmp_path / "anchors.json"
    path.write_text("[1]")
    with pytest.raises(CommandError, match="is not an anchor file"):
        verify(anchor_file=path)


def test_database_refuses_changes_of_entries(chained: Project) -> None:
    record(AuditAction.READ, None, project_id=chained.pk)
    for change in (
        lambda: AuditEntry.objects.filter(sequence=2).update(actor_name="x"),
        lambda: AuditEntry.objects.filter(sequence=2).update(hash="x"),
        lambda: AuditEntry.objects.filter(sequence=None).update(actor_name="x"),
        lambda: AuditEntry.objects.filter(sequence=2).delete(),
        lambda: AuditEntry.objects.filter(sequence=None).delete(),
    ):
        with pytest.raises(Error, match="neither changed nor deleted"), transaction.atomic():
            change()
    assert broken_at(chained.pk) is None


def test_purged_log_is_intact_and_records_it(chained: Project, tmp_path: Path, settings: Any) -> None:
    anchors = tmp_path / "anchors.json"
    verify(anchor_file=anchors)
    for entry in AuditEntry.objects.filter(sequence__lte=5):
        tamper(f"UPDATE access_app_auditentry SET time = time - interval '40 days' WHERE id = {entry.pk}")
    # The times are part of the hashes, so the chain is built anew.
    tamper("UPDATE access_app_auditentry SET sequence = NULL, previous_hash = '', hash = ''")
    append_recorded()
    anchors.unlink()
    verify(anchor_file=anchors)
    record(AuditAction.READ, None, project_id=chained.pk)
    out = StringIO()
    call_command("purge_audit", stdout=StringIO(), stderr=out)
    assert out.getvalue() == "TRACESITE_AUDIT_DAYS is 0: all entries are kept.\n"
    settings.TRACESITE_AUDIT_DAYS = 30
    out = StringIO()
    call_command("purge_audit", stdout=out)

    assert out.getvalue() == "owner: 5 entries removed\n"
    kept = list(AuditEntry.objects.order_by("sequence").values_list("sequence", "action", "actor_name"))
    assert kept == [(6, "read", "tracesite"), (7, "audit_purge", "purge_audit")]
    assert "owner: intact until entry 7" in verify(anchor_file=anchors)
    with pytest.raises(Error, match="neither changed nor deleted"), transaction.atomic():
        AuditEntry.objects.all().delete()
    tamper("DELETE FROM access_app_auditentry WHERE sequence = 6")
    assert broken_at(chained.pk) == 7
    assert AuditEntry.objects.filter(time__lt=timezone.now() - timedelta(days=30)).count() == 0


def test_purge_while_the_chain_is_verified_is_no_break(chained: Project) -> None:
    purge_before(None, timezone.now())
    record(AuditAction.READ, None, project_id=chained.pk)
    append_recorded()
    purged: list[dict[str, int]] = []

    def purge_after_reading(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        result = execute(sql, params, many, context)
        if not purged and "access_app_auditentry" in sql:
            purged.append({})
            purged.append(purge_before(None, timezone.now()))
        return result

    with connection.execute_wrapper(purge_after_reading):
        assert broken_at(chained.pk) is None
    assert purged[1] == {"owner": 2}
    assert broken_at(chained.pk) is None


@pytest.mark.parametrize("change", ["hash = repeat('0', 64)", "previous_hash = repeat('0', 64)", "detail = '{}'"])
def test_change_where_a_purge_ended_is_found(chained: Project, change: str) -> None:
    purge_before(None, timezone.now())
    anchor = head_of(chained.pk)
    record(AuditAction.READ, None, project_id=chained.pk)
    append_recorded()
    tamper(f"UPDATE access_app_auditentry SET {change} WHERE sequence = {LENGTH + 1}")
    assert broken_at(chained.pk) == LENGTH + 1
    tamper(f"DELETE FROM access_app_auditentry WHERE sequence = {LENGTH + 1}")
    assert broken_at(chained.pk, anchor) == LENGTH + 2


def test_purge_that_contradicts_the_anchor_is_found(chained: Project) -> None:
    purge_before(None, timezone.now())
    assert broken_at(chained.pk, Head(LENGTH, "0" * 64)) == LENGTH + 1


def test_command_chains_new_entries(chained: Project) -> None:
    record(AuditAction.READ, None, project_id=chained.pk, object_type="session", object_id=6)
    out = StringIO()
    call_command("chain_audit", stdout=out)
    head = head_of(chained.pk)
    assert head.number == 6
    assert out.getvalue().splitlines()[0] == "Chained entries: 1"
    assert head.digest in out.getvalue()

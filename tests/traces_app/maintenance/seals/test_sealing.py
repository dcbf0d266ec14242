"""Seals follow what the application does, and their chain shows what is done to them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.urls import reverse

from access_app.audit.chain import append_recorded
from access_app.db import primary
from access_app.models import AuditEntry, Project
from access_app.seal_keys import SealKey
from messages_app.change_log import Kind, Reader, log_changes, unread
from messages_app.models import Change, Message
from messages_app.seal_tokens import new_token
from messages_app.writes import clear_session, delete_message, restore_message
from tests.forked import command, kill_after
from tests.traces_app.conftest import NOON, answer, store
from traces_app.ingest.changes import change_message
from traces_app.ingest.removal import remove_messages
from traces_app.maintenance.costs import recompute_costs
from traces_app.maintenance.purge.purging import purge, purge_deleted_message
from traces_app.maintenance.purge.scopes import PurgeScope
from traces_app.maintenance.seals import rows
from traces_app.maintenance.seals.chain import mac_of
from traces_app.maintenance.seals.sealing import SealReport, seal_changed
from traces_app.models import MessageSeal, ModelPrice, SealBatch, SealLayout
from tracesite.system_checks import check_seal_key
from tracesite_sdk import records
from tracesite_sdk.normalize.records import normalise_patch
from tracesite_sdk.normalize.redacted import redact_message_patch
from tracesite_sdk.redaction.rules import DEFAULT_RULES

from .sealing import seal, send_event, store_run, summary, verify


def sql(statement: str, *values: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, values)


def tokens() -> dict[UUID, bytes]:
    """Return the tokens of changes that were not sealed yet."""
    written = unread(primary, Reader.SEALS).exclude(token=b"").values_list("message_id", "token")
    return {message_id: bytes(token) for message_id, token in written}


def patch(project: Project, message_id: UUID, **fields: object) -> None:
    change = redact_message_patch(normalise_patch(records.MessagePatch(**fields)), DEFAULT_RULES)  # type: ignore[arg-type]
    change_message(primary, [project.pk], message_id, change)


def test_hmac_of_batch_never_changes() -> None:
    """Batches in databases were made with it."""
    batch = SealBatch(
        pk=2,
        kind="seals",
        project_id=3,
        month=date(2026, 3, 1),
        sealed_at=datetime(2026, 3, 1, 12, 0, 0, 5, tzinfo=UTC),
        count=1,
        digest=b"d" * 32,
        layout=SealLayout(digest=b"l" * 32),
    )
    mac = mac_of(batch, b"m" * 32, SealKey(id="k", secret=b"s" * 32))
    assert mac.hex() == "71c3b6c9b2b3d9f4faa0e2b926fbd829e110766591c0d3637639b20187f42f15"


@pytest.mark.django_db
def test_changes_of_the_application_seal_again(project: Project) -> None:
    message_id = store_run(project)
    assert seal().sealed == 2
    assert seal() == SealReport()

    def changes_one(again: str = "resealed") -> None:
        assert verify() == {}
        assert summary()["waiting"] == 1
        report = seal()
        assert (getattr(report, again), report.sealed, report.refused) == (1, 0, 0)
        assert verify() == {}
        assert summary()["waiting"] == 0

    patch(project, message_id, content="Better.")
    changes_one()
    store(project, answer(external_id="a1", metadata={"more": 1}), external_id="session a1")
    changes_one()
    send_event(project, "session a1", message_id, "late")
    changes_one()
    delete_message(primary, message_id, by="ada")
    changes_one()
    restore_message(primary, message_id)
    changes_one()
    patch(project, message_id, is_completed=False)
    changes_one("opened")
    assert summary()["open"] == 1
    patch(project, message_id, content="Goes on.")
    assert not tokens()
    patch(project, message_id, is_completed=True)
    changes_one()
    delete_message(primary, message_id, by="ada")
    purge_deleted_message(primary, message_id)
    changes_one("removed")
    assert summary()["gone"] == 1


@pytest.mark.django_db
def test_changes_of_many_messages_seal_again(project: Project) -> None:
    message_id = store_run(project)
    step = {"iteration": 0, "model": "gpt-x", "usage": {"prompt_tokens": 10, "completion_tokens": 5}}
    store(project, answer(external_id="priced", agent_steps=[step]), external_id="other")
    seal()
    ModelPrice.objects.create(model="gpt-x", input=1, output=2, as_of=NOON.date())
    assert [done.steps for done in recompute_costs(primary)] == [1]
    assert (verify(), seal().resealed, verify()) == ({}, 1, {})
    session_id = Message.objects.get(pk=message_id).session_id
    assert clear_session(primary, session_id, by="ada") == 2
    assert (verify(), seal().resealed, verify()) == ({}, 2, {})
    remove_messages(primary, [message_id])
    assert (verify(), seal().removed, verify()) == ({}, 1, {})


@pytest.mark.django_db
def test_audit_log_names_what_was_sealed_again(project: Project) -> None:
    append_recorded()  # what servers of other tests have recorded
    message_id = store_run(project)
    seal()
    patch(project, message_id, content="Better.")
    report = seal()
    first, second = AuditEntry.objects.filter(action="seal").order_by("pk")
    counts = {"opened": 0, "removed": 0}
    mac = first.detail.pop("mac")
    assert first.detail == {"batch": first.detail["batch"], "sealed": 2, "resealed": 0, **counts, "changed": []}
    assert report.newest_batch == f"{second.detail['batch']}:{second.detail.pop('mac')}" != mac
    changed = {"sealed": 0, "resealed": 1, "changed": [str(message_id)]}
    assert second.detail == {"batch": first.detail["batch"] + 1, **changed, **counts}
    assert (second.project, second.actor_name) == (project, "tracesite")
    assert append_recorded().chained == 2


@pytest.mark.django_db
def test_token_counts_once(project: Project) -> None:
    message_id = store_run(project)
    stolen = tokens()[message_id]
    seal()
    other = store_run(project, "a2")
    seal()
    sql("UPDATE messages_app_message SET content = 'forged' WHERE id IN (%s, %s)", message_id, other)
    for token in (stolen, new_token(other)):
        Change.objects.create(project=project, message_id=message_id, kind=Kind.SEAL, token=token)
    assert set(verify()) == {str(message_id), str(other)}
    assert seal().refused == 1
    assert set(verify()) == {str(message_id), str(other)}
    refused = AuditEntry.objects.get(result="refused")
    assert refused.detail == {"refused": 1, "messages": [str(message_id)]}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM traces_app_sealbatch WHERE id = %s", "batches 2 to 2 before it were removed"),
        ("UPDATE traces_app_sealbatch SET count = 9 WHERE id = %s", "it was changed, added or moved"),
        ("UPDATE traces_app_sealbatch SET digest = 'x' WHERE id = %s", "it was changed, added or moved"),
        ("UPDATE traces_app_sealbatch SET sealed_at = now() WHERE id = %s", "it was changed, added or moved"),
        ("DELETE FROM traces_app_sealbatch WHERE id > %s - 1", "removed from the end: the audit log knows 3 batches"),
    ],
)
def test_changes_to_the_chain_are_found(project: Project, statement: str, reason: str) -> None:
    for name in ("a1", "a2", "a3"):
        store_run(project, name)
        seal()
    assert [batch.pk for batch in SealBatch.objects.order_by("pk")] == [1, 2, 3]
    assert verify() == {}
    sql(statement, 2)
    assert verify()["chain"] == reason


@pytest.mark.django_db
def test_going_back_to_an_older_seal_is_found(project: Project) -> None:
    message_id = store_run(project)
    seal()
    sql("CREATE TEMPORARY TABLE before AS SELECT * FROM messages_app_message WHERE id = %s", message_id)
    patch(project, message_id, content="The truth.")
    seal()
    sql("DELETE FROM traces_app_messageseal WHERE id = %s AND batch = 2", message_id)
    sql("UPDATE messages_app_message SET (content, version, updated_at) = "
        "(SELECT content, version, updated_at FROM before) WHERE id = %s", message_id)  # fmt: skip
    assert verify() == {str(message_id): ["seal"]}


@pytest.mark.django_db
@pytest.mark.parametrize("column", ["state = 'r'", "kinds = 1", "parts = ''", "nonces = ''", "mac = 'x'"])
def test_changed_seal_is_found(project: Project, column: str) -> None:
    message_id = store_run(project)
    seal()
    sql(f"UPDATE traces_app_messageseal SET {column} WHERE id = %s", message_id)
    assert verify() == {str(message_id): ["seal"]}


@pytest.mark.django_db
def test_changed_layout_is_found(project: Project) -> None:
    message_id = store_run(project)
    seal()
    sql("UPDATE traces_app_seallayout SET columns = columns - 0")
    assert verify()[str(message_id)] == ["seal"]


@pytest.mark.django_db
def test_keys_are_exchanged_and_missing_one_is_named_once(project: Project, settings: Any) -> None:
    settings.TRACESITE_SEAL_KEYS = ["old" * 20]
    message_id = store_run(project)
    seal()
    settings.TRACESITE_SEAL_KEYS = ["new" * 20, "old" * 20]
    store_run(project, "a2")
    seal()
    store_run(project, "a3")
    seal()
    assert verify() == {}
    assert check_seal_key(None, databases=["default"]) == []
    settings.TRACESITE_SEAL_KEYS = ["old" * 20]
    found = verify()
    assert found.keys() == {"chain"} and "this and 1 more up to 3 are sealed with the key" in str(found["chain"])
    assert (summary()["intact"], summary()["keyless"]) == (2, 4)
    with pytest.raises(CommandError, match="their key is missing"):
        call_command("verify_traces", stdout=StringIO())
    (warning,) = check_seal_key(None, databases=["default"])
    assert warning.id == "tracesite.W016"
    # Whoever changes rows of messages with a known key is named beside it.
    sql("UPDATE messages_app_message SET content = 'forged' WHERE id = %s", message_id)
    assert verify().keys() == {"chain", str(message_id)}
    with pytest.raises(CommandError, match="behind the back"):
        call_command("verify_traces", stdout=StringIO())


@pytest.mark.django_db
def test_columns_of_later_versions_do_not_break_seals(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    older = [(kind, [one for one in columns if one != "metadata"]) for kind, columns in rows.layout()[:-1]]
    message_id = store_run(project)
    with monkeypatch.context() as patched:
        patched.setattr("traces_app.maintenance.seals.sealing.layout", lambda: older)
        seal()
    assert verify() == {}
    store_run(project, "a2")
    seal()
    assert summary()["intact"] == 4
    sql("UPDATE traces_app_toolcall SET args = '[]' WHERE message_id = %s", message_id)
    assert verify() == {str(message_id): ["calls"]}
    monkeypatch.setattr(
        "traces_app.maintenance.seals.verifying.is_readable", lambda columns: columns[-1][0] == "entries"
    )
    assert (verify(), summary()["unreadable"]) == ({}, 2)


@pytest.mark.django_db
def test_open_runs_have_no_tokens(project: Project) -> None:
    store(project, answer(is_completed=False))
    store(project, answer(is_completed=False, metadata={"n": 1}))
    assert not tokens()
    store(project, answer(is_completed=True))
    assert (len(tokens()), seal().sealed) == (1, 1)


@pytest.mark.django_db
def test_changes_wait_for_more(project: Project) -> None:
    store_run(project)
    assert seal_changed(primary, patience=timedelta(minutes=1)) == SealReport()
    assert summary()["waiting"] == 2
    assert seal_changed(primary, patience=timedelta(0), is_stopped=lambda: True) == SealReport()


@pytest.mark.django_db
def test_messages_from_before_sealing_are_sealed_by_command(
    project: Project, stranger: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    store_run(project)
    store_run(stranger)
    Change.objects.all().delete()
    assert summary()["unsealed"] == 4
    call_command("seal_traces")
    assert summary()["unsealed"] == 4
    call_command("seal_traces", unsealed=True, until="2026-03-01")
    call_command("seal_traces", unsealed=True, project="stranger")
    assert "Sealed 2 messages" in capsys.readouterr().out
    assert summary()["unsealed"] == 2
    assert summary(project="stranger")["intact"] == 2
    call_command("seal_traces", unsealed=True)
    call_command("verify_traces")
    assert capsys.readouterr().out.endswith(
        "Verified 4 messages: 4 intact, 0 not completed, 0 not sealed yet, 0 without a seal.\n"
    )


@pytest.mark.django_db
def test_only_the_messages_of_the_scope_are_verified(project: Project, stranger: Project) -> None:
    message_id, other = store_run(project), store_run(stranger)
    seal()
    sql("UPDATE messages_app_message SET content = 'forged' WHERE role = 'assistant'")
    assert set(verify()) == {str(message_id), str(other)}
    assert set(verify(project="stranger")) == {str(other)}
    assert verify(until="2026-03-01") == {}
    assert verify(from_="2026-03-02") == {}
    sql("UPDATE messages_app_message SET project_id = %s WHERE id = %s", project.pk, other)
    assert set(verify(project="stranger")) == {str(other)}
    for options in ({"project": "nobody"}, {"from_": "yesterday"}):
        with pytest.raises(CommandError) as error:
            call_command("verify_traces", **options)
        assert error.value.returncode == 2


@pytest.mark.django_db
def test_verification_reads_a_bounded_number_of_times(project: Project, django_assert_max_num_queries: object) -> None:
    for number in range(5):
        store_run(project, f"a{number}")
    seal()
    with django_assert_max_num_queries(30):  # type: ignore[operator]
        assert summary()["intact"] == 10


@pytest.mark.django_db(transaction=True)
def test_purged_months_are_not_missed(project: Project) -> None:
    store_run(project)
    later = datetime(2026, 4, 2, tzinfo=UTC)
    store(project, answer(created_at=later), external_id="april")
    seal()
    messages = dict(Message.objects.values_list("pk", "project_id"))
    log_changes(primary, messages, Kind.SEAL, sealed=messages)
    assert purge(primary, PurgeScope(created_before=datetime(2026, 4, 1, tzinfo=UTC))).periods[-1] == "2026-03"
    assert verify() == {}
    assert seal().resealed == 1
    assert (verify(), summary()["intact"], MessageSeal.objects.count()) == ({}, 1, 2)
    store_run(project, "again")
    seal()
    assert (verify(), summary()["intact"]) == ({}, 3)
    sql("DELETE FROM traces_app_messageseal WHERE batch = (SELECT max(batch) FROM traces_app_messageseal)")
    assert len(verify()) == 2


@pytest.mark.django_db(transaction=True)
def test_kill_at_any_moment_leaves_nothing_changed(project: Project) -> None:
    for round_ in range(5):
        for number in range(8):
            store_run(project, f"{round_}-{number}")
        kill_after(0.03 * (round_ + 1), command("seal_traces"))
        assert verify() == {}
    seal()
    assert summary() == {**summary(), "intact": 80, "waiting": 0, "unsealed": 0, "differing": 0}


@pytest.mark.django_db
def test_page_of_a_message_shows_when_it_was_sealed(project: Project, staff: Client) -> None:
    message_id = store_run(project)
    url = reverse("admin:messages_app_message_change", args=[message_id])
    assert "Sealed" not in staff.get(url).content.decode()
    seal()
    assert "<dt>Sealed (UTC)</dt>" in staff.get(url).content.decode()
    patch(project, message_id, content="Better.")
    assert "Sealed" not in staff.get(url).content.decode()

"""Master keys and data keys: a missing or wrong one is a refusal, a changed value is found, a destroyed key is final."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import connection

from access_app.db.base import DatabaseWrapper
from access_app.encryption.columns import ENCRYPTED
from access_app.encryption.envelope import PREFIX, DataKey
from access_app.encryption.errors import Damaged, Locked, NotWhileEncrypted
from access_app.encryption.keys import add_key, destroy_keys, forget_keys, key_of
from access_app.encryption.master import master_keys
from access_app.encryption.reading import DESTROYED, open_value
from access_app.models import Project, ProjectKey
from tests.encryption import MASTER_KEY, OTHER_MASTER_KEY, master_key
from tracesite.system_checks import check_data_keys

CONTENT = ENCRYPTED["messages_app_message"]["content"]
METADATA = ENCRYPTED["messages_app_message"]["metadata"]
ARGS = ENCRYPTED["traces_app_toolcall"]["args"]
ROW, OTHER_ROW = UUID(int=1 << 120).bytes, UUID(int=2 << 120).bytes


@pytest.fixture
def data_key(keeper: None, project: Project) -> DataKey:
    add_key(project)
    key = key_of(project.pk)
    assert key is not None
    return key


def test_each_form_is_read_back_wherever_it_stands(data_key: DataKey) -> None:
    text = 'Grüße "quoted" \\ \x00 \U0001f600'
    sealed = data_key.sealed(CONTENT, ROW, text)
    assert sealed.startswith(PREFIX) and "quoted" not in sealed
    assert open_value(sealed) == text
    assert open_value(f"tscut5:{CONTENT.number}:{UUID(bytes=ROW)}:{sealed}") == text[:5]
    args = data_key.sealed(ARGS, ROW, '{"b":1,"a":"x"}')
    assert open_value(args) == '{"b":1,"a":"x"}'
    metadata = data_key.sealed(METADATA, ROW, '{"note":"n","trace_id":"t","gone":null,"deep":{"x":[1.0]}}')
    assert '"trace_id":"t"' in metadata and '"gone":null' in metadata and '"deep":"tsenc1:' in metadata
    assert open_value(metadata) == '{"note":"n","trace_id":"t","gone":null,"deep":{"x":[1.0]}}'
    assert open_value(metadata.replace(":", ": ")) != metadata, "as PostgreSQL writes it"
    # The same in the same place, so that what is sent again changes nothing; other places differ.
    assert data_key.sealed(CONTENT, ROW, text) == sealed != data_key.sealed(CONTENT, OTHER_ROW, text)
    for nothing in ("", "{}", "[]", "null"):
        assert data_key.sealed(ARGS, ROW, nothing) == nothing


def test_changed_or_moved_value_is_refused_and_a_lookalike_is_a_text(data_key: DataKey, stranger: Project) -> None:
    sealed = data_key.sealed(CONTENT, ROW, "secret")
    flipped = sealed[:-8] + ("A" if sealed[-8] != "A" else "B") + sealed[-7:]
    with pytest.raises(Damaged):
        open_value(flipped)
    # The head of another row, and the body of this one.
    other = data_key.sealed(CONTENT, OTHER_ROW, "secret")
    with pytest.raises(Damaged):
        open_value(other[: len(PREFIX) + 32] + sealed[len(PREFIX) + 32 :])
    add_key(stranger)
    foreign = key_of(stranger.pk)
    assert foreign is not None
    body = foreign.sealed(CONTENT, ROW, "secret")[len(PREFIX) + 12 :]
    with pytest.raises(Damaged):
        open_value(sealed[: len(PREFIX) + 12] + body)
    with pytest.raises(Damaged):
        open_value(sealed, rows=[OTHER_ROW])
    with pytest.raises(Damaged):
        open_value(sealed, columns=[ARGS.number])
    assert open_value(sealed, [CONTENT.number], [OTHER_ROW, ROW]) == "secret"
    for text in (PREFIX, f"{PREFIX}???", PREFIX + "A" * 96, f'{{"a":"{PREFIX}{"A" * 96}"}}', sealed[:60]):
        assert open_value(text) == text
    assert open_value(f"{{{sealed!r}: 1}}".replace("'", '"')) == f'{{"{sealed}": 1}}', "a key of JSON"


def test_server_without_the_right_master_key_refuses(data_key: DataKey, project: Project) -> None:
    sealed = data_key.sealed(CONTENT, ROW, "secret")
    assert check_data_keys(None, databases=["default"]) == []
    for keys in ((), (OTHER_MASTER_KEY,)):
        with master_key(*keys):
            with pytest.raises(Locked):
                open_value(sealed)
            with pytest.raises(Locked):
                key_of(project.pk)
            (error,) = check_data_keys(None, databases=["default"])
            assert error.id == "tracesite.E014" and project.slug in error.msg
    with master_key("short"):
        (error,) = check_data_keys(None, databases=["default"])
        assert error.id == "tracesite.E013" and "short" not in error.msg
        with pytest.raises(CommandError, match="no valid master key"):
            call_command("rewrap_data_keys", stdout=StringIO())


@pytest.mark.django_db(transaction=True)
def test_new_connection_of_a_server_without_master_key_finds_the_data_keys() -> None:
    project = Project.objects.create(slug="owner")
    with master_key(MASTER_KEY):
        add_key(project)
    assert not DatabaseWrapper.decrypts
    connection.close()
    try:
        with pytest.raises(Locked):
            key_of(project.pk) or connection.ensure_connection() or key_of(project.pk)
    finally:
        DatabaseWrapper.decrypts = False
        forget_keys()


@pytest.mark.system
def test_master_key_comes_from_a_file_or_a_command(settings: Any, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(f"{MASTER_KEY}\n{OTHER_MASTER_KEY}\n")
    settings.TRACESITE_MASTER_KEY = f"{MASTER_KEY},{OTHER_MASTER_KEY}"
    expected = master_keys()
    assert len({key.id for key in expected}) == 2
    assert "secret" not in repr(expected[0])
    settings.TRACESITE_MASTER_KEY_FILE = str(path)
    with pytest.raises(ImproperlyConfigured, match="only one of TRACESITE_MASTER_KEY and TRACESITE_MASTER_KEY_FILE"):
        master_keys()
    settings.TRACESITE_MASTER_KEY = ""
    assert master_keys() == expected
    settings.TRACESITE_MASTER_KEY_FILE, settings.TRACESITE_MASTER_KEY_COMMAND = "", f"cat '{path}'"
    assert master_keys() == expected
    settings.TRACESITE_MASTER_KEY_COMMAND = "false"
    with pytest.raises(ImproperlyConfigured, match="TRACESITE_MASTER_KEY_COMMAND failed"):
        master_keys()
    settings.TRACESITE_MASTER_KEY_FILE, settings.TRACESITE_MASTER_KEY_COMMAND = str(tmp_path / "none"), ""
    with pytest.raises(ImproperlyConfigured, match="No such file"):
        master_keys()


def test_destroyed_key_is_final(data_key: DataKey, project: Project) -> None:
    sealed, args = data_key.sealed(CONTENT, ROW, "secret"), data_key.sealed(ARGS, ROW, '{"a":1}')
    with pytest.raises(CommandError, match="--yes"):
        call_command("destroy_data_keys", "owner")
    call_command("destroy_data_keys", "owner", "--yes", stdout=StringIO())
    assert open_value(sealed) == DESTROYED
    assert open_value(args) == f'"{DESTROYED}"'
    assert not ProjectKey.objects.exclude(wrapped=None).exists()
    with pytest.raises(NotWhileEncrypted):
        key_of(project.pk)
    with pytest.raises(Exception, match="destroyed"):
        add_key(project)
    assert destroy_keys(project) == 0

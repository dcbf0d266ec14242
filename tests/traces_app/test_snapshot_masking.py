"""Masking rules of every kind hide what they name in every position of a snapshot, when it is stored and when it is read."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.keys import create_key
from access_app.masking import compiled, forget_masking, save_rule
from access_app.models import Project, Role
from access_app.roles import grant_role
from sdk.tests.normalize.snapshot_positions import LONG, POSITIONS, WIDE, encoded
from sdk.tests.secret import SECRET
from tests.recorder.conftest import TestConnection
from tests.traces_app.planted import Garden, stored
from tests.traces_app.planted_snapshots import SESSION, paths_of_snapshots, plant_snapshots, send
from traces_app.models import SnapshotPart
from tracesite_sdk.normalize.snapshot_values import redact_context, redact_parts
from tracesite_sdk.recorder.snapshots.parts import Parts
from tracesite_sdk.recorder.snapshots.server_store import ServerStore
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.records.snapshot_parts import assembled
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER
from tracesite_sdk.testing import RecorderForTests

SEEN = "Ithaca"
HIDDEN = "EMP-471193"
FUNCTION = f"{__name__}.hide"
RULES = {
    "preset": "email",
    "key": "customer_note",
    "pattern": r"EMP-\d{6}",
    "path": "args.customer.name",
    "function": FUNCTION,
}


def hide(path: str, value: Any) -> Any:
    """A masking function of a project."""
    return "[hidden]" if "customer.name" in path else value


def hidden_of(kind: str) -> dict[str, str]:
    """Return what a rule of this kind is to hide, by position."""
    form = "ada{}@example.com" if kind == "preset" else "EMP-{}"
    return {name: form.format(471_193 + number) for number, name in enumerate(POSITIONS)}


def context_of(kind: str) -> dict[str, Any]:
    """Return a context in which a rule of this kind hides a value at each position."""
    return {name: _place(kind, name, POSITIONS[name](value)) for name, value in hidden_of(kind).items()}


def _place(kind: str, name: str, value: Any) -> Any:
    if kind in ("path", "function"):
        inner: Any = {"customer": {"name": value, "city": SEEN}, **({} if "list" in name else WIDE)}
        numbered = {"args": {"customer": {7: 1, "name": value}}}
        return {
            "calls": [{"args": inner, "id": number, "more": "word " * 30} for number in range(3)],
            "numbered": numbered,
        }
    if kind == "key":
        numbered = {7: 1, "customer_note": value, **WIDE}
        return {
            "record": {"customer_note": value, "city": SEEN},
            "wide": {"customerNote": value, **WIDE},
            "numbered": numbered,
        }
    return {"note": value, "city": SEEN}


def client_of(project: Project, *scopes: str, **options: Any) -> Client:
    token = create_key(project, "key", scopes, **options)[1]
    return Client(headers={"Authorization": f"Bearer {token}"})


@pytest.fixture
def clients(project: Project) -> dict[str, Client]:
    found = {
        "agent": client_of(project, "read", "write"),
        "masked": client_of(project, "read", reads_masked=True),
    }
    for role in (Role.VIEWER, Role.ANALYST):
        user = User.objects.create_user(role.value, is_staff=True)
        grant_role(project, user, role)
        found[role.value] = Client()
        found[role.value].force_login(user)
    return found


def read(client: Client, path: str) -> tuple[int, str]:
    response = client.get(path)
    content = b"".join(response) if response.streaming else response.content  # type: ignore[attr-defined]
    return response.status_code, content.decode()


def left_in(text: str, hidden: dict[str, str]) -> list[str]:
    return [name for name, value in hidden.items() if value in text]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", RULES)
def test_rule_hides_value_in_every_position_when_read(
    kind: str, project: Project, clients: dict[str, Client], settings: Any
) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = [FUNCTION]
    hidden = hidden_of(kind)
    assert send(clients["agent"], encoded(context_of(kind))).status_code == 201
    paths = paths_of_snapshots(clients["agent"])
    save_rule(project, "rule", kind, RULES[kind], when="read")
    (whole,) = [path for path in paths if path.startswith("/api/v1/snapshots/")]
    for reader in ("agent", "analyst"):
        assert left_in(read(clients[reader], whole)[1], hidden) == list(POSITIONS)
    for reader, prefix in (("masked", "/api/"), ("viewer", "/")):
        for path in paths:
            if path.startswith(prefix):
                status, text = read(clients[reader], path)
                assert (path, status, left_in(text, hidden)) == (path, 403 if "/parts/" in path else 200, [])
        assert SEEN in read(clients[reader], whole)[1]


@pytest.mark.django_db
@pytest.mark.parametrize("kind", RULES)
def test_rule_hides_value_in_every_position_when_stored(
    kind: str, project: Project, clients: dict[str, Client], settings: Any
) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = [FUNCTION]
    hidden = hidden_of(kind)
    save_rule(project, "rule", kind, RULES[kind], when="store")
    parts = Parts()
    for number in (1, 2):
        answer = send(clients["agent"], encoded({**context_of(kind), "number": number}, parts), number=number)
        assert answer.status_code == 201, answer.content
    for content in SnapshotPart.objects.values_list("content", flat=True):
        assert left_in(bytes(content).decode(), hidden) == []
    for path in paths_of_snapshots(clients["agent"]):
        status, text = read(clients["agent" if "/api/" in path else "analyst"], path)
        assert (path, status, left_in(text, hidden)) == (path, 200, [])
    assert SEEN in read(clients["agent"], f"/api/v1/snapshots/{SESSION}-2/")[1]


@pytest.mark.django_db
def test_planted_secrets_are_nowhere_in_snapshots(clients: dict[str, Client]) -> None:
    garden = Garden("ghp_" + "16C7e42F292c6912E7710c83" + "{}")
    plant_snapshots(garden, clients["agent"])
    assert len(garden.planted) > len(POSITIONS)
    assert garden.left_in(stored()) == []
    for path in paths_of_snapshots(clients["agent"]):
        status, text = read(clients["agent" if "/api/" in path else "analyst"], path)
        assert (path, status, garden.left_in(text)) == (path, 200, [])


@pytest.mark.django_db
def test_planted_values_are_hidden_from_masked_readers(project: Project, clients: dict[str, Client]) -> None:
    garden = Garden("EMP-{}")
    plant_snapshots(garden, clients["agent"])
    assert garden.left_in(stored()) == sorted(garden.planted.values())
    save_rule(project, "staff", "pattern", "EMP-[0-9a-f]{12}", when="read")
    for path in paths_of_snapshots(clients["agent"]):
        status, text = read(clients["masked" if "/api/" in path else "viewer"], path)
        assert (path, status, garden.left_in(text)) == (path, 403 if "/parts/" in path else 200, [])


@pytest.mark.django_db
def test_recorder_goes_on_after_parts_were_hidden(project: Project) -> None:
    save_rule(project, "notes", "key", "customer_note", when="store")
    save_rule(project, "names", "path", "args.customer.name", when="store")
    store = ServerStore(connection=TestConnection(project))
    recorder = RecorderForTests(strict=True)
    recorder.snapshots = Snapshots(store)
    messages = [{"text": f"{number} {LONG}"} for number in range(3)]
    notes = [f"{HIDDEN} {LONG}"]
    text = f"about {LONG}"
    contexts: list[Any] = []
    for number in range(6):
        messages.append({"text": f"more {number} {LONG}"})
        notes.append(f"{HIDDEN} {number} {LONG}")
        context = {"messages": messages[:], "customer_note": notes[:], "args": {"customer": {"name": text, **WIDE}}}
        if number > 3:
            # What was hidden under one name is shown under another one.
            context["shown"] = text
        contexts.append(context)
        assert recorder.snapshot(context, nodes=[f"n{number}"], session="s") is not None
    kept = store.snapshots("s")
    assert len(kept) == len(contexts)
    for context, snapshot in zip(contexts, kept, strict=True):
        hidden = {"customer": {"name": MARKER, **WIDE}}
        assert recorder.snapshots.context(snapshot) == {**context, "customer_note": MARKER, "args": hidden}
    recorder.close()
    for content in SnapshotPart.objects.values_list("content", flat=True):
        assert HIDDEN.encode() not in bytes(content)


@pytest.mark.django_db
def test_stored_part_is_hidden_where_a_rule_hides_it(project: Project, clients: dict[str, Client]) -> None:
    customer = {"name": HIDDEN, "national_id": HIDDEN, **WIDE}
    parts = Parts()
    assert send(clients["agent"], encoded({"shown": customer}, parts)).status_code == 201
    save_rule(project, "names", "path", "args.customer.name", when="store")
    forget_masking()
    hidden = {"args": {"customer": customer}, "shown": customer}
    # It was stored for another place, so all is asked for once more.
    assert send(clients["agent"], encoded(hidden, parts), number=2).json()["error"]["code"] == "parts_missing"
    assert send(clients["agent"], encoded(hidden), number=2).status_code == 201
    context = clients["agent"].get(f"/api/v1/snapshots/{SESSION}-2/").json()["context"]
    assert context == {"args": {"customer": {**customer, "name": MARKER}}, "shown": customer}
    # What is sent again, is stored again without what a new rule hides.
    save_rule(project, "notes", "key", "national_id", when="store")
    forget_masking()
    assert send(clients["agent"], encoded({"shown": customer}), number=3).status_code == 201
    context = clients["agent"].get(f"/api/v1/snapshots/{SESSION}-1/").json()["context"]
    assert context == {"shown": {**customer, "national_id": MARKER}}
    sums = clients["agent"].get(f"/api/v1/sessions/{SESSION}/").json()["snapshot_sums"]
    assert sums["bytes"] == sum(len(content) for content in SnapshotPart.objects.values_list("content", flat=True))


@pytest.mark.django_db
def test_masked_snapshot_keeps_its_form(project: Project, clients: dict[str, Client]) -> None:
    save_rule(project, "staff", "pattern", RULES["pattern"], when="read")
    context = {"t": (1, HIDDEN), "d": {7: HIDDEN, "a": [HIDDEN], (2, HIDDEN): 1}, "b": HIDDEN.encode(), "n": {}}
    assert send(clients["agent"], encoded(context)).status_code == 201
    found = clients["masked"].get(f"/api/v1/snapshots/{SESSION}-1/").json()["context"]
    key = {"$type": "tuple", "value": [2, MARKER]}
    assert found == {
        "t": {"$type": "tuple", "value": [1, MARKER]},
        "d": {"$type": "dict", "value": [[7, MARKER], ["a", [MARKER]], [key, 1]]},
        "b": {"$type": "bytes", "value": {"text": MARKER}},
        "n": {},
    }


def test_receipts_do_not_have_secrets_of_keys() -> None:
    text = f"use {SECRET} {LONG}"
    sent = encoded({SECRET: text, "pairs": {7: 1, SECRET: [text] * 3}})
    parts = {ref: msgspec.Raw(content) for ref, content in sent.parts.items()}
    made, receipts = redact_parts(parts, sent.ref, compiled((("p", "path", "no.such"),)))
    assert len(receipts) > 3
    assert SECRET not in f"{receipts} {[bytes(content) for content in made.values()]}"


@pytest.mark.parametrize("name", POSITIONS)
def test_rules_that_remove_nothing_leave_snapshots_as_they_are(name: str) -> None:
    sent = encoded({"note": POSITIONS[name]("text"), "other": {"note": POSITIONS[name]("text")}})
    parts = {ref: msgspec.Raw(content) for ref, content in sent.parts.items()}
    for rules in (DEFAULT_RULES, compiled((("p", "path", "no.such"),))):
        made, receipts = redact_parts(parts, sent.ref, rules)
        assert receipts == []
        whole = [assembled(sent.ref, lambda ref, of=of: bytes(of[ref])) for of in (parts, made)]
        assert whole[0] == whole[1]
        assert redact_context(whole[0], rules) == whole[0]
        assert rules.paths or made == parts

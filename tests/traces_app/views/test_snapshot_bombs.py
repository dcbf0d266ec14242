"""Parts that stand for much more than they are, and parts that are none: refused when stored, and when they were stored before."""

from __future__ import annotations

import re
import tracemalloc
from typing import Any

import msgspec
import pytest
from django.test import Client

from access_app.db import primary
from access_app.masking import compiled, forget_masking, save_rule
from access_app.models import Project
from messages_app.models import Session
from sdk.tests.records.billion_laughs import laughs, ref
from tests.admin_pages import text_of
from traces_app.ingest import snapshots
from traces_app.models import Snapshot, SnapshotPart
from traces_app.queries.snapshots import parts_of
from tracesite_sdk.normalize.snapshot_values import redact_parts
from tracesite_sdk.records import ids, snapshot_parts
from tracesite_sdk.records.snapshot_parts import TooLargeContextError, ref_of

from .conftest import Caller
from .test_snapshots import TS, sent

_NAME = re.compile(r"\b[0-9a-f]{32}\b")


def chain(length: int, form: str) -> list[Any]:
    """Return values of parts, of which each names the next."""
    values: list[Any] = ["end"]
    for _link in range(length):
        name = {"$part": ref(values[-1])}
        values.append({"alias": name, "list": [name], "type": {"$type": "tuple", "value": name}}[form])
    return values[::-1]


def store_as_before(session: Session, *values: Any, name: str = "old") -> Snapshot:
    """Insert a snapshot as earlier versions did, which checked nothing of this; the context begins with the first value."""
    contents = list(map(msgspec.json.encode, values))
    SnapshotPart.objects.bulk_create(
        SnapshotPart(
            project=session.project,
            session=session,
            ref=ref_of(content),
            content=content,
            below=sorted(set(_NAME.findall(content.decode()))),
        )
        for content in contents
    )
    return Snapshot.objects.create(
        id=ids.child_id(ids.session_id(session.created_at), session.pk.int, name), project=session.project,
        session=session, external_id=name, ts=TS, node_ids=["plan"], context_ref=ref_of(contents[0]),
    )  # fmt: skip


@pytest.fixture
def session(owner: Caller) -> Session:
    owner.post("sessions/", {"external_id": "task-1"})
    return Session.objects.get(external_id="task-1")


@pytest.mark.parametrize("form", ["list", "dict", "type", "piece"])
def test_snapshot_that_stands_for_too_much_is_refused(owner: Caller, form: str) -> None:
    assert owner.post("snapshots/", sent(*laughs(7, form))).error == (413, "snapshots_too_large", None)
    assert not SnapshotPart.objects.exists()
    assert owner.post("snapshots/", sent(*laughs(3, form))).status == 201
    whole = msgspec.json.encode(owner.get("snapshots/snapshot-1/").json["context"])
    assert whole.count(b"ha") == 10**4
    assert SnapshotPart.objects.get(ref=ref(laughs(3, form)[0])).assembled_size >= len(whole)


def test_parts_of_several_requests_are_added_up(owner: Caller) -> None:
    *above, inner = laughs(7)
    assert owner.post("snapshots/", sent(inner)).status == 201
    for number, value in enumerate(above[::-1]):
        answer = owner.post("snapshots/", sent(value, number=number + 2))
        if answer.status != 201:
            break
    assert answer.error == (413, "snapshots_too_large", None)
    assert number > 3


def test_parts_of_unknown_size_are_asked_for_again(owner: Caller, session: Session) -> None:
    store_as_before(session, "x" * 300)
    context = {"text": {"$part": ref("x" * 300)}}
    assert owner.post("snapshots/", sent(context)).error == (409, "parts_missing", "parts")
    assert owner.post("snapshots/", sent(context, "x" * 300)).status == 201
    assert owner.post("snapshots/", sent({**context, "more": 1}, number=2)).status == 201
    assert owner.get("snapshots/snapshot-2/").json["context"] == {"text": "x" * 300, "more": 1}
    assert SnapshotPart.objects.filter(assembled_size=None).count() == 0


@pytest.mark.parametrize("form", ["alias", "list", "type"])
def test_snapshot_of_too_many_levels_is_refused(owner: Caller, form: str) -> None:
    values = chain(10_000, form)
    assert owner.post("snapshots/", sent(*values)).error[:2] == (400, "invalid_input")
    assert owner.post("snapshots/", sent(*chain(60, form))).status == 201
    assert owner.get("snapshots/snapshot-1/").status == 200


def test_levels_of_several_requests_are_added_up(owner: Caller) -> None:
    inner = chain(100, "list")
    assert owner.post("snapshots/", sent(*inner)).status == 201
    values: list[Any] = [[{"$part": ref(inner[0])}]]
    for _level in range(40):
        values.append([{"$part": ref(values[-1])}])
    answer = owner.post("snapshots/", sent(*values[::-1], number=2))
    assert (answer.error[:2], "at most 128 levels" in str(answer.json)) == ((400, "invalid_input"), True)
    assert Snapshot.objects.count() == 1


def test_too_many_parts_are_refused(owner: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshots, "MOST_PARTS", 10)
    assert owner.post("snapshots/", sent(*chain(9, "list"))).status == 201
    answer = owner.post("snapshots/", sent(*chain(10, "list"), number=2))
    assert (answer.error, "more than 10 parts" in str(answer.json)) == ((413, "too_large", "parts"), True)


def test_long_list_in_pieces_is_no_deep_context(owner: Caller) -> None:
    before, values = None, []
    for number in range(10_000):
        values.append([before, [number]])
        before = ref(values[-1])
    assert owner.post("snapshots/", sent({"$list": before, "tail": ["end"]}, *values)).status == 201
    assert owner.get("snapshots/snapshot-1/").json["context"] == [*range(10_000), "end"]


@pytest.mark.parametrize(
    "value",
    [
        {"$part": ref("a"), "beside": 1},
        {"$part": [ref("a")]},
        {"$list": ref("a"), "tail": []},
        {"$list": ref([None, []])},
        {"$list": ref([None, []]), "tail": {}},
        {"$list": ref([None, []]), "tail": [], "beside": 1},
        {"$type": "tuple"},
        {"$type": 7, "value": []},
        {"$type": "tuple", "value": [], "beside": 1},
        {"deep": {"$part": None}},
    ],
)
def test_wrong_forms_are_refused_and_say_so_when_read(
    owner: Caller, session: Session, staff: Client, value: Any
) -> None:
    found = owner.post("snapshots/", sent(value, "a", [None, []])).error
    assert found[:2] == (400, "invalid_input")
    assert str(found[2]).startswith("parts.")
    row = store_as_before(session, value, "a", [None, []])
    assert owner.get("snapshots/old/").error == (409, "snapshot_broken", None)
    page = staff.get(f"/admin/messages_app/session/{session.pk}/snapshots/{row.pk}/")
    assert "The context of this snapshot cannot be shown" in text_of(page)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        (laughs(7), (413, "snapshots_too_large", None)),
        (laughs(7, "dict"), (413, "snapshots_too_large", None)),
        (laughs(7, "piece"), (413, "snapshots_too_large", None)),
        (laughs(300), (413, "snapshots_too_large", None)),
        (chain(3_000, "alias"), (409, "snapshot_broken", None)),
        (chain(3_000, "list"), (409, "snapshot_broken", None)),
        ([{"$part": ref("gone")}], (409, "snapshot_broken", None)),
    ],
)
def test_stored_snapshot_that_stands_for_too_much_says_so(
    owner: Caller, session: Session, staff: Client, values: list[Any], error: tuple[int, str, None]
) -> None:
    row = store_as_before(session, *values)
    later = store_as_before(session, {"fine": 1}, name="zz")
    tracemalloc.start()
    assert owner.get("snapshots/old/").error == error
    pages = f"/admin/messages_app/session/{session.pk}/snapshots/"
    assert "The context of this snapshot" in text_of(staff.get(f"{pages}{row.pk}/"))
    # The one before it cannot be compared.
    assert "fine" in text_of(staff.get(f"{pages}{later.pk}/"))
    assert tracemalloc.get_traced_memory()[1] < 60 * 2**20
    tracemalloc.stop()


def test_parts_that_name_themselves_are_none(owner: Caller, session: Session) -> None:
    one, other = "a" * 32, "b" * 32
    for name, content in ((one, [{"$part": other}]), (other, {"x": {"$part": one}})):
        SnapshotPart.objects.create(
            project=session.project,
            session=session,
            ref=name,
            content=msgspec.json.encode(content),
            below=[other if name == one else one],
        )
    row = store_as_before(session, {"$part": one})
    SnapshotPart.objects.filter(ref=row.context_ref).update(below=[one])
    assert owner.get("snapshots/old/").error == (409, "snapshot_broken", None)


def test_parts_are_loaded_up_to_a_limit(owner: Caller, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{number}" * 300 for number in range(10)]
    row = store_as_before(session, [{"$part": ref(text)} for text in texts], *texts)
    found = parts_of(primary, session.pk, [row.context_ref], 1000)
    assert row.context_ref in found
    assert len(found) < 5
    assert len(parts_of(primary, session.pk, [row.context_ref], 10_000)) == 11
    monkeypatch.setattr(snapshot_parts, "MOST_SIZE", 2_000)
    assert owner.get("snapshots/old/").error == (413, "snapshots_too_large", None)
    assert owner.get("sessions/task-1/snapshots/parts/", refs=ref(texts[0])).json["parts"] == {ref(texts[0]): texts[0]}


def test_parts_to_which_nothing_leads_are_not_stored(owner: Caller) -> None:
    assert owner.post("snapshots/", sent({"a": 1}, "orphan")).status == 201
    assert list(SnapshotPart.objects.values_list("ref", flat=True)) == [ref({"a": 1})]
    assert owner.post("snapshots/", sent({"$part": ref("orphan")}, number=2)).error[:2] == (409, "parts_missing")


def test_value_that_may_be_a_piece_has_no_size_until_it_is_whole(owner: Caller) -> None:
    large = [None, ["x" * 100] * 1_000]
    value = [ref(large), []]
    assert owner.post("snapshots/", sent(value)).status == 201
    assert SnapshotPart.objects.get().assembled_size is None
    assert owner.post("snapshots/", sent(large, number=2)).status == 201
    context = [{"$list": ref(value), "tail": []}] * 2_000
    assert owner.post("snapshots/", sent(context, number=3)).error[:2] == (409, "parts_missing")
    assert owner.post("snapshots/", sent(context, value, number=3)).error == (413, "snapshots_too_large", None)


def test_parts_at_too_many_places_are_refused(owner: Caller, project: Project) -> None:
    save_rule(project, "names", "path", "customer.name", when="store")
    forget_masking()
    values = laughs(5, "dict")
    assert owner.post("snapshots/", sent(*values)).error == (413, "snapshots_too_large", None)
    parts = {ref(value): msgspec.Raw(msgspec.json.encode(value)) for value in values}
    with pytest.raises(TooLargeContextError):
        redact_parts(parts, ref(values[0]), compiled((("names", "path", "customer.name"),)))
    # Without such a rule each part is looked at once.
    made, _receipts = redact_parts(parts, ref(values[0]), compiled((("names", "key", "customer_note"),)))
    assert made == parts

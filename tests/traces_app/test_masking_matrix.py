"""Masking rules of every kind, in every place where a value can be stored, and every way out.

A value is planted for each kind of rule in each place, once for rules that apply before storing and once for those that apply to
readers; then every way out is read once, and looked for all of them. Routes come from the URLconf, so that a new one is in it.
"""

from __future__ import annotations

import asyncio
import gzip
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha1
from io import StringIO
from itertools import chain, islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.core.management import call_command
from django.test import Client

from access_app.db import primary
from access_app.keys import create_key
from access_app.masked_reading import MaskedReader, masked_key
from access_app.masking import save_rule
from access_app.models import AuditEntry, Project, Role
from access_app.roles import grant_role
from messages_app.models import Message, Session
from sdk.tests.normalize.snapshot_positions import LONG, WIDE, encoded
from tests.test_access_matrix import ROUTES, row_of
from tests.traces_app.planted import Garden, plant, plant_elsewhere, stored
from tests.traces_app.planted_snapshots import plant_snapshots, send
from tests.traces_app.test_planted_values import archived
from traces_app.events.feed import events_after
from traces_app.models import AgentStep, Context, Score, Snapshot, SnapshotPart, ToolCall
from traces_app.views.session_exports import EXPORTS
from tracesite.backups import back_up
from tracesite.live import feeds

pytestmark = pytest.mark.system

Rules = Mapping[str, tuple[str, str, str]]
"""Kind of the rule, its value, and the form of a planted value, by the name of the rule."""

WORDS: Rules = {
    "pattern": ("pattern", "EMP-[0-9a-f]{12}", "EMP-{}"),
    "preset": ("preset", "email", "{}@planted.example"),
    "key": ("key", "plantedKey", "planted key: {}"),
}
"""Rules that find values in any text."""
PLACES: Rules = {"named": ("key", "plantedName", "{}"), "path": ("path", "holder.place", "{}")}
"""Rules for values in free JSON."""
FUNCTION: Rules = {"function": ("function", f"{__name__}.hide", "FN-{}")}
"""Alone, because with a function every value is searched, and others would not be found out that are passed over without one."""


def hide(path: str, value: Any) -> Any:
    """A masking function of a user."""
    return re.sub("FN-[0-9a-f]{12}", "[hidden]", value) if isinstance(value, str) else value


class Bed(Garden):
    """Plants a value for each rule in each place."""

    def __init__(self, rules: Rules) -> None:
        super().__init__("")
        self.rules = rules

    def value(self, place: str) -> str:
        # The key is last, because what it names goes on to the end of a word.
        return " ".join(self._form(name, place) for name in self.rules if name not in PLACES)

    def free(self, place: str) -> dict[str, Any]:
        found: dict[str, Any] = super().free(place)
        if "named" in self.rules:
            found |= {"plantedName": self._form("named", place), "holder": {"place": self._form("path", place)}}
        return found

    def _form(self, name: str, place: str) -> str:
        digits = sha1(f"{name} {place}".encode(), usedforsecurity=False).hexdigest()[:12]
        self.planted[digits] = f"{name}: {place}"
        return self.rules[name][2].format(digits)


@dataclass(frozen=True, kw_only=True)
class Reader:
    """Somebody who reads: by a key, by a login, and live."""

    key: Client
    login: Client | None
    """None: pages are not looked at."""
    is_viewer: bool
    live: MaskedReader | None
    project: Project


# --- Addresses --------------------------------------------------------------------------------------------------------


def every_row() -> str:
    return "?" + "&".join(f"id={row.pk}" for table in (AgentStep, ToolCall) for row in table.objects.all()[:100])


QUERIES: Mapping[str, Callable[[], list[str]]] = {
    "/api/v1/messages/": lambda: ["?limit=200", "?limit=200&expand=references,results"],
    "/api/v1/messages/<str:message_id>/": lambda: ["?expand=references,results,inputs"],
    "/api/v1/tool-calls/": lambda: ["?limit=200"],
    "/api/v1/sessions/<str:session_id>/export/": lambda: [f"?format={name}" for name in EXPORTS],
    "/api/v1/sessions/<str:session_id>/snapshots/parts/": lambda: [f"?refs={','.join(refs)}" for refs in _refs()],
    "/api/v1/sessions/<str:session_id>/replay/": lambda: [
        f"?node={quote(node)}" for row in Snapshot.objects.all() for node in row.node_ids
    ],
    "/api/v1/search/": lambda: [f"?limit=200&q={word}" for word in ("about", "EMP", "planted", "FN", "lorem")],
    "/api/v1/tools/examples/": lambda: [
        f"?tool={tool}&format={form}" for tool in ("find", "look") for form in ("json", "jsonl", "csv")
    ],
    "/api/v1/compare/": lambda: ["?left=s1&right=s2", "?left=s2&right=s1"],
    "/api/v1/read/failures/": lambda: whole_answers("created_after=2000-01-01"),
    "/api/v1/read/outline/": lambda: whole_answers(*(f"run={row.pk}" for row in Session.objects.all())),
    "/api/v1/read/step/": lambda: whole_answers(*(f"step={row.pk}" for row in AgentStep.objects.all())),
    "/api/v1/read/call/": lambda: whole_answers(*(f"call={row.pk}" for row in ToolCall.objects.all())),
    "/api/v1/read/compare/": lambda: whole_answers("run=s1&other=s2", "run=s2&other=s1"),
    "/api/v1/read/error-group/": lambda: whole_answers(
        *(f"created_after=2000-01-01&call={row.pk}" for row in ToolCall.objects.filter(status="error"))
    ),
    "/api/v1/read/search/": lambda: whole_answers("q=about", "q=planted", "q=EMP"),
    "/api/v1/read/tools/": lambda: whole_answers("created_after=2000-01-01", "created_after=2000-01-01&tool=find"),
    "/api/v1/read/cost/": lambda: whole_answers(
        *(f"created_after=2000-01-01&group_by={by}" for by in ("model", "end_user", "day"))
    ),
    "/admin/messages_app/message/<uuid:message_id>/compare/": lambda: [
        f"?other={message.pk}" for message in Message.objects.filter(role="assistant")[:1]
    ],
    "/admin/messages_app/message/<uuid:message_id>/words/": lambda: [every_row()],
    "/admin/messages_app/session/<uuid:session_id>/words/": lambda: [every_row()],
    "/admin/messages_app/message/<uuid:message_id>/outline/<uuid:node_id>/": lambda: ["", "?good"],
    "/admin/messages_app/message/<uuid:message_id>/steps/<uuid:step_id>/input/": lambda: ["", "?part"],
    "/admin/messages_app/message/<uuid:message_id>/search/": lambda: ["?q=about", "?q=planted"],
    "/admin/messages_app/session/<uuid:session_id>/search/": lambda: ["?q=about", "?q=planted"],
    "/admin/messages_app/session/everything/": lambda: ["", "?q=about", "?q=planted"],
    "/admin/messages_app/session/": lambda: ["", "?q=about", "?q=planted"],
    "/admin/messages_app/message/": lambda: ["", "?q=about"],
    "/admin/traces_app/toolcall/": lambda: ["", "?q=about"],
}
"""The queries that show the most, where a route takes any."""


def whole_answers(*queries: str) -> list[str]:
    """Return queries for answers of the longest form, as Markdown and as JSON."""
    return [f"?{query}&max_tokens=20000&format={form}" for query in queries for form in ("markdown", "json")]


OF_NODES = {"/admin/messages_app/message/<uuid:message_id>/spans/": "?call={}"}
"""Queries for each step and call of the message of a route."""
FOLLOWED = frozenset(
    """
    /admin/messages_app/message/<uuid:message_id>/spans/
    /admin/messages_app/message/<uuid:message_id>/steps/<uuid:step_id>/input/
    /admin/traces_app/toolcall/<path:object_id>/change/
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)
"""Routes that lead to the page of a run, where the server shows what they are about."""
EVERY = frozenset(
    """
    /admin/messages_app/message/<path:object_id>/change/
    /admin/messages_app/message/<uuid:message_id>/outline/<uuid:node_id>/
    /admin/messages_app/message/<uuid:message_id>/peek/
    /admin/messages_app/message/<uuid:message_id>/similar/<uuid:node_id>/
    /admin/messages_app/message/<uuid:message_id>/words/
    /admin/messages_app/session/<uuid:session_id>/outline/<uuid:node_id>/
    /admin/messages_app/session/<uuid:session_id>/peek/
    /admin/messages_app/session/<uuid:session_id>/words/
    /admin/messages_app/message/<uuid:message_id>/spans/
    /admin/messages_app/message/<uuid:message_id>/steps/<uuid:step_id>/input/
    /admin/traces_app/toolcall/<path:object_id>/change/
    /admin/traces_app/toolcall/<uuid:call_id>/peek/
    /admin/traces_app/score/<path:object_id>/change/
    /api/v1/messages/<str:message_id>/
    /api/v1/sessions/<str:session_id>/
    /api/v1/sessions/<str:session_id>/events/
    /api/v1/sessions/<str:session_id>/export/
    /admin/messages_app/session/<uuid:session_id>/spans/
    /api/v1/sessions/<str:session_id>/contexts/<str:ref>/
    /api/v1/sessions/<str:session_id>/contexts/<str:ref>/conversation/
    /api/v1/sessions/<str:session_id>/contexts/<str:ref>/variables/
    /api/v1/tool-calls/<str:call_id>/similar/
    /api/v1/sessions/<str:session_id>/snapshots/
    /api/v1/sessions/<str:session_id>/snapshots/parts/
    /api/v1/sessions/<str:session_id>/forks/
    /api/v1/snapshots/<str:snapshot_id>/
    /weknora/api/v1/messages/<str:session_id>/load
    """.split()  # noqa: SIM905, a list of strings would be harder to read
)
"""Routes that are read for everything that they can show, in the first two of their forms."""
SOME = 2
"""Of other routes the first objects are enough, which have a value in every field, in all forms."""
NOT_READ = frozenset(
    [
        "/weknora/api/v1/sessions/continue-stream/<str:session_id>",  # of the live process, from the events that `live` reads
        *("/metrics", "/.well-known/security.txt"),  # without their settings
        *("/", "/admin/autocomplete/"),  # redirects, and is not used
    ]
)
SHOWS_NOTHING = (
    r"/admin/login/|/i18n/setlang/|/admin/\w+/\w+/<path:object_id>/$|/admin/messages_app/session/<uuid:session_id>/live/"  # redirect
    r"|.*/undo/|.*/purge/"  # after a deletion
    r"|.*/try/"  # what is pasted
    r"|/admin/traces_app/(score|tool)/export/"  # lists without exports
    r"|/admin/access_app/\w+/<path:object_id>/history/"  # of owners
)
"""Pages that answer with nothing here."""


def _refs() -> list[list[str]]:
    return [list(SnapshotPart.objects.values_list("ref", flat=True))]


def values_for(path: str) -> Iterator[dict[str, str]]:
    """Yield the values for the parameters of a route, for everything that it can show."""
    names = tuple(re.findall(r"<(?:\w+:)?(\w+)>", path))
    match names:
        case ():
            yield {}
        case ("session_id",):
            yield from ({"session_id": str(pk)} for pk in Session.objects.values_list("pk", flat=True))
        case ("session_id", "message_id"):
            for message in Message.objects.filter(role="assistant"):
                yield {"session_id": str(message.session_id), "message_id": str(message.pk)}
        case ("session_id", "ref"):
            for context in Context.objects.exclude(kind="entry"):
                yield {"session_id": str(context.session_id), "ref": context.ref}
        case ("session_id", "snapshot_id"):
            for snapshot in Snapshot.objects.all():
                yield {"session_id": str(snapshot.session_id), "snapshot_id": str(snapshot.pk)}
        case ("message_id",):
            yield from ({"message_id": str(pk)} for pk in Message.objects.values_list("pk", flat=True))
        case ("message_id", "step_id"):
            for step in AgentStep.objects.exclude(input_ref=""):
                yield {"message_id": str(step.message_id), "step_id": str(step.pk)}
        case ("message_id", "node_id"):
            for node in chain(AgentStep.objects.all(), ToolCall.objects.all()):
                yield {"message_id": str(node.message_id), "node_id": str(node.pk)}
        case ("session_id", "node_id"):
            for node in chain(AgentStep.objects.all(), ToolCall.objects.all()):
                yield {"session_id": str(node.message.session_id), "node_id": str(node.pk)}
        case ("call_id",):
            yield from ({"call_id": str(pk)} for pk in ToolCall.objects.values_list("pk", flat=True))
        case ("chain_id",):
            yield from (
                {"chain_id": str(pk)} for pk in Message.objects.filter(call_count__gt=0).values_list("pk", flat=True)
            )
        case ("snapshot_id",):
            yield from ({"snapshot_id": str(pk)} for pk in Snapshot.objects.values_list("pk", flat=True))
        case ("score_id",):
            yield from ({"score_id": str(pk)} for pk in Score.objects.values_list("pk", flat=True))
        case ("entry_id",):
            yield {"entry_id": str(AuditEntry.objects.latest("pk").pk)}
        case ("form",):
            yield from ({"form": form} for form in ("csv", "json"))
        case ("table", "key", "column"):
            for table, source in _admin_of(path).downloads.sources.items():
                for column in source.columns:
                    for row in [row for row in source.rows.all() if getattr(row, column)][:SOME]:
                        yield {"table": table, "key": str(row.pk), "column": column}
        case ("object_id",):
            model = _admin_of(path).model
            yield from ({"object_id": str(pk)} for pk in model._default_manager.values_list("pk", flat=True)[:30])
        case ("project_pk",):
            yield from ({"project_pk": str(pk)} for pk in Project.objects.values_list("pk", flat=True))
        case ("id",):
            yield from ({"id": str(pk)} for pk in User.objects.values_list("pk", flat=True))
        case ("key",):
            return  # a view of a list that somebody kept
        case _:
            raise AssertionError(f"say what the parameters of {path} are: {names}")


def _admin_of(path: str) -> Any:
    _empty, _admin, app, name, *_rest = path.split("/")
    return next(one for model, one in admin.site._registry.items() if model._meta.label_lower == f"{app}.{name}")


def addresses(path: str, *, of_everything: bool = False) -> Iterator[str]:
    """Yield the addresses of a route."""
    most = None if of_everything or path in EVERY or "<slug:column>" in path else SOME
    queries = QUERIES.get(path, lambda: [""])()
    for number, values in enumerate(islice(values_for(path), most)):
        where = re.sub(r"<(?:\w+:)?(\w+)>", lambda found: values[found[1]], path)  # noqa: B023 - used at once
        yield from (f"{where}{query}" for query in (queries if number < SOME else queries[:2]))
    if path in OF_NODES:
        for node in chain(AgentStep.objects.all(), ToolCall.objects.all()):
            where = path.replace("<uuid:message_id>", str(node.message_id))
            yield f"{where}{OF_NODES[path].format(node.pk)}"


# --- Ways out ---------------------------------------------------------------------------------------------------------


def routes(reader: Reader, *, of_everything: bool = False) -> Iterator[tuple[str, str]]:
    """Yield each GET route with what it shows, the API by the key and pages by the login. Each shows something, or is known not to."""
    silent = []
    for path, method in ROUTES:
        if method != "GET" or path in NOT_READ:
            continue
        client = reader.login if path.startswith("/admin/") else reader.key
        if client is None:
            continue
        follow = path in FOLLOWED
        answers = [client.get(address, follow=follow) for address in addresses(path, of_everything=of_everything)]
        assert [(path, answer.status_code) for answer in answers if answer.status_code >= 500] == []
        texts = [answer.getvalue().decode() for answer in answers]
        statuses = {answer.status_code for answer in answers}
        # 405: by POST only.
        if answers and reader_may(reader, path) and not statuses & {200, 405} and not re.match(SHOWS_NOTHING, path):
            silent.append((path, *statuses))
        yield path, "\n".join(texts)
    assert silent == []


def reader_may(reader: Reader, path: str) -> bool:
    may = row_of(path, "GET") or frozenset()
    if not path.startswith("/admin/"):
        return ("masked key" if reader.is_viewer else "read key") in may
    return ("viewer" if reader.is_viewer else "superuser") in may


def live(reader: Reader) -> Iterator[tuple[str, str]]:
    """Yield what is pushed of each session: its state, and its events from the first on."""
    rules = None if reader.live is None else reader.live.by_project.get(reader.project.pk)
    for session in Session.objects.all():
        events = [
            feeds.LiveEvent(event.seq, msgspec.json.encode(event).decode())
            for event in events_after(primary, session.pk, 0, 1000)
        ]
        state = feeds.SessionState(
            session.last_event, {"status": session.status, "currentPhase": session.current_phase}
        )
        feed = feeds.Feed(session.pk, state, read_to=session.last_event, floor=0)
        feed.append(events)
        following = feeds.Subscription(feed, str(session.pk), 0, asyncio.Event(), rules)
        yield "live", "\n".join(message.json for message in following.pending())


WAYS_OUT: Mapping[str, Callable[[Reader], Iterator[tuple[str, str]]]] = {"routes": routes, "live": live}
"""Everything by which somebody who may read gets content: REST with its search, errors and statistics, pages, lists as files,
exports of sessions, snapshots and their parts, and live streams."""


def seen_by(reader: Reader, bed: Bed) -> dict[str, list[str]]:
    """Return the places whose values are shown, by the way; but what viewers are said to be shown."""
    found: dict[str, set[str]] = {}
    for read in WAYS_OUT.values():
        for way, text in read(reader):
            shown = {place for place in bed.left_in(text) if not (reader.is_viewer and place.endswith(SHOWN))}
            found.setdefault(way, set()).update(shown)
    return {way: sorted(places) for way, places in found.items() if places}


def files_of_backup(folder: Path) -> str:
    path, _manifest = back_up(folder, verify=False)
    contents = [file.read_bytes() for file in path.rglob("*") if file.is_file()]
    return "\n".join((gzip.decompress(one) if one[:2] == b"\x1f\x8b" else one).decode("latin-1") for one in contents)


# --- The matrix -------------------------------------------------------------------------------------------------------


def plant_large_free_json(bed: Garden, client: Client) -> None:
    """Send a snapshot whose values are so long that each is stored without its name."""

    def lengthened(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: lengthened(item) for name, item in value.items()}
        return f"{LONG}{value} {LONG}"

    context = {"apart": {**lengthened(bed.free("Snapshot large")), **WIDE}}
    answer = send(client, encoded(context), session="snapshot-of-large-values")
    assert answer.status_code == 201, answer.content


WAYS_IN: tuple[Callable[[Bed, Client], None], ...] = (plant, plant_elsewhere, plant_snapshots, plant_large_free_json)
"""By all protocols, files, changes, scores, snapshots and forks."""
NOT_KEPT = (
    *("AgentOps.logs", "AgentOps.objects", "Langfuse.log.error"),  # answered, and not kept
    # Replaced by a change, in which a value is planted, too.
    *("Session.title", "Session.description", "Session.current_phase", "Message.content", "Message.error"),
)


SHOWN = ("Langfuse.media",)
"""What docs/redaction.md says is shown: viewers find nothing in uploaded files, which are Base64."""


@pytest.fixture
def allowed(settings: Any) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = [f"{__name__}.hide"]


def sown(project: Project, rules: Rules, when: str) -> Bed:
    """Save the rules, and send everything that can be sent."""
    for name, (kind, value, _form) in rules.items():
        save_rule(project, name, kind, value, when=when)
    bed = Bed(rules)
    writer = Client(headers={"Authorization": f"Bearer {create_key(project, 'agent', ['read', 'write'])[1]}"})
    for way_in in WAYS_IN:
        way_in(bed, writer)
    call_command("index_search", stdout=StringIO())
    return bed


def reader_of(project: Project, *, is_viewer: bool, sees_pages: bool = True) -> Reader:
    name = "viewer" if is_viewer else "superuser"
    key, token = create_key(project, name, ["read"], reads_masked=is_viewer)
    user = User.objects.create_user(name, is_staff=True, is_superuser=not is_viewer)
    if is_viewer:
        grant_role(project, user, Role.VIEWER)
    login = Client()
    login.force_login(user)
    live = masked_key(key)
    return Reader(
        key=Client(headers={"X-API-Key": token}),
        login=login if sees_pages else None,
        is_viewer=is_viewer,
        live=live,
        project=project,
    )


@pytest.mark.system
@pytest.mark.django_db(transaction=True)
def test_values_under_rules_for_new_data_are_nowhere(
    project: Project, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    bed = sown(project, WORDS | PLACES, "store")
    assert len(bed.planted) > 400

    leaks = seen_by(reader_of(project, is_viewer=False), bed)
    leaks["database"] = bed.left_in(stored())
    leaks["audit log"] = bed.left_in(str(list(AuditEntry.objects.values())))
    leaks["log"] = bed.left_in(caplog.text + "".join(capfd.readouterr()))
    leaks["backup"] = bed.left_in(files_of_backup(tmp_path / "backups"))
    leaks["archive"] = bed.left_in(archived(tmp_path / "archive"))
    assert {way: places for way, places in leaks.items() if places} == {}


@pytest.mark.django_db
def test_values_that_a_function_hides_are_not_stored(project: Project, allowed: None) -> None:
    bed = sown(project, FUNCTION, "store")
    assert len(bed.planted) > 120
    assert bed.left_in(stored()) == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rules", [WORDS | PLACES, FUNCTION], ids=["rules", "function"])
def test_values_under_rules_for_readers_are_nowhere_for_viewers(
    project: Project, rules: Rules, allowed: None, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    bed = sown(project, rules, "read")
    everything = {place for place in bed.planted.values() if not place.endswith(NOT_KEPT)}
    assert set(bed.left_in(stored())) == everything

    # Rows are masked before they come to pages or the API, so that a function is tried by one of them.
    leaks = seen_by(reader_of(project, is_viewer=True, sees_pages=rules is not FUNCTION), bed)
    leaks["log"] = bed.left_in(caplog.text + "".join(capfd.readouterr()))
    assert {way: places for way, places in leaks.items() if places} == {}


@pytest.mark.django_db(transaction=True)
def test_rule_that_matches_parts_of_ids_breaks_no_answer(project: Project) -> None:
    sown(project, {"pattern": ("pattern", "[0-9a-f]{2,}", "{}")}, "read")
    answered = dict(routes(reader_of(project, is_viewer=True), of_everything=True))
    assert len(answered) > 60

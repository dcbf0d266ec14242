"""Compare who may call each route with the table of docs/access.md: every route and method, by all kinds of callers.

Who may is a ladder of roles on every route, so that on each run the two callers at the edge try it, and others by turns. All of
them on all routes take a minute more: `TEST_AT_LENGTH=1`.
"""

from __future__ import annotations

import functools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver, resolve
from django.utils import timezone

from access_app.audit.requests import NOT_RECORDED, route_of
from access_app.keys import create_key, revoke_key
from access_app.masking import save_rule
from access_app.models import ApiKey, AuditEntry, Project, Role, Scope
from access_app.roles import grant_role
from sdk.tests.length import AT_LENGTH
from sdk.tests.paths import ROOT
from tracesite_sdk.records.snapshot_parts import ref_of

TABLE = ROOT / "docs" / "access.md"
CANARY = "matrix-canary"
SESSION = "matrix-session"
TIME_MACHINE = {
    "/api/v1/sessions/<str:session_id>/snapshots/parts/",
    "/api/v1/snapshots/<str:snapshot_id>/",
    "/api/v1/sessions/<str:session_id>/forks/",
    "/api/v1/sessions/<str:session_id>/contexts/<str:ref>/",
    "/api/v1/sessions/<str:session_id>/contexts/<str:ref>/conversation/",
    "/api/v1/sessions/<str:session_id>/contexts/<str:ref>/variables/",
    "/admin/messages_app/session/<uuid:session_id>/snapshots/<uuid:snapshot_id>/",
}
"""Routes that show contents of contexts, snapshots and forks. Who reads it, and who reads it masked, tries them on each run."""
NOT_FOUND = ["/admin/", "/admin/messages_app/session/", "/admin/messages_app/message/"]
"""Where the admin redirects from objects that are not there or not visible."""
UNKNOWN = "00000000-0000-7000-8000-000000000000"

EVERYBODY = frozenset(
    ["nobody", "staff", "viewer", "analyst", "editor", "owner", "superuser"]
    + ["foreign viewer", "foreign analyst", "foreign editor", "foreign owner"]
    + [
        "read key",
        "masked key",
        "write key",
        "delete key",
        "foreign key",
        "revoked key",
        "expired key",
        "wrong network key",
    ]
)
DEAD = frozenset(["revoked key", "expired key", "wrong network key"])
KEYS = frozenset(name for name in EVERYBODY if name.endswith("key"))
FOREIGN = frozenset(name for name in EVERYBODY if name.startswith("foreign"))
BLIND = FOREIGN | DEAD | {"nobody", "staff", "viewer", "masked key", "write key", "delete key"}
"""Who must not read the content: a masking rule hides it from viewers."""
LADDER = ["staff", "viewer", "analyst", "editor", "owner", "superuser"]
"""Each may what those before it may."""
"""Whether everybody calls each route; otherwise those between whom the table draws the line, and some others by turns."""
OF_ROLE = {
    "viewer": {
        *("viewer", "analyst", "editor", "owner", "superuser"),
        *("foreign viewer", "foreign analyst", "foreign editor", "foreign owner"),
    },
    "analyst": {"analyst", "editor", "owner", "superuser", "foreign analyst", "foreign editor", "foreign owner"},
    "editor": {"editor", "owner", "superuser", "foreign editor", "foreign owner"},
    "owner": {"owner", "superuser", "foreign owner"},
    "superuser": {"superuser"},
    "staff": EVERYBODY - KEYS - {"nobody"},
}
MAY: Mapping[str, frozenset[str]] = {
    "everybody": EVERYBODY,
    "nobody": frozenset(),
    **{word: frozenset(callers) for word, callers in OF_ROLE.items()},
    "key: read": frozenset(["read key", "masked key", "foreign key"]),
    "key: read unmasked": frozenset(["read key", "foreign key", "foreign viewer"]),  # whose project masks nothing
    "key: write": frozenset(["write key", "foreign key"]),
    "key: delete": frozenset(["delete key", "foreign key"]),
    "key: read and write": frozenset(["foreign key"]),  # of the living keys, the only one with both
}
"""The callers that each word of the table lets in. Callers of a foreign project are let in to see their own project."""


WITHOUT_LOGIN = ("/v3/auth/token", "/api/public/media/upload/<str:ticket>")
"""The key is in the body, the ticket in the URL: see the tests of these APIs."""


@functools.cache
def rows() -> list[tuple[str, str, frozenset[str]]]:
    """The paths, the methods and the callers of each row of the table."""
    section = TABLE.read_text().partition("## Every route")[2]
    found = re.findall(r"^\| `(/[^`]*)` \| ([A-Z, ]+) \| ([^|]+) \|$", section, re.M)
    return [
        (path, methods, frozenset().union(*(MAY[word.strip()] for word in who.split(","))))
        for path, methods, who in found
    ]


def routes(resolver: URLResolver | None = None, before: str = "/") -> Iterator[tuple[str, str]]:
    """Each route of the site with each of its methods; `/` joins the parts as Django does."""
    for pattern in (resolver or get_resolver()).url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from routes(pattern, path)
        elif isinstance(pattern, URLPattern):
            for method in methods_of(pattern.callback):
                yield path, method


def methods_of(view: Any) -> list[str]:
    if hasattr(view, "actions"):  # of a ViewSet
        return sorted(name.upper() for name in view.actions if name != "head")
    if hasattr(view, "cls"):  # of an APIView
        return [name.upper() for name in ("get", "post", "put", "patch", "delete") if hasattr(view.cls, name)]
    return ["GET", "POST"]


def row_of(path: str, method: str) -> frozenset[str] | None:
    """The callers of the first row that names the route."""
    for pattern, methods, callers in rows():
        if method in methods.split(", ") and fnmatchcase(path, pattern):
            return callers
    return None


ROUTES = [
    (path, method)
    for path, method in routes()
    # Patterns by regular expression only list apps and send wrong addresses to 404.
    if "(?P<" not in path
]


@pytest.fixture
def cast(project: Project, stranger: Project) -> dict[str, tuple[Client, dict[str, str]]]:
    """A client and the headers of each kind of caller."""
    found: dict[str, tuple[Client, dict[str, str]]] = {"nobody": (Client(raise_request_exception=False), {})}

    def login(name: str, user: User) -> None:
        client = Client(raise_request_exception=False)
        client.force_login(user)
        found[name] = (client, {})

    login("staff", User.objects.create_user("staff", is_staff=True))
    login("superuser", User.objects.create_superuser("superuser"))
    for prefix, place in (("", project), ("foreign ", stranger)):
        for role in Role:
            user = User.objects.create_user(f"{prefix}{role.value}", is_staff=True)
            grant_role(place, user, role)
            login(f"{prefix}{role.value}", user)

    def key(name: str, place: Project, scopes: list[str], **options: Any) -> ApiKey:
        made, token = create_key(place, name, scopes, **options)
        found[name] = (Client(raise_request_exception=False), {"X-API-Key": token})
        return made

    for scope in Scope.values:
        key(f"{scope} key", project, [scope])
    key("masked key", project, [Scope.READ], reads_masked=True)
    key("foreign key", stranger, list(Scope.values))
    key("wrong network key", project, list(Scope.values), allowed_networks=["192.0.2.0/24"])
    for place in (project, stranger):
        # Not the text itself: the audit log has the rules, and owners of both projects read it.
        save_rule(place, "canary", "pattern", CANARY.replace("y", "[y]"), when="read")
    revoke_key(key("revoked key", project, list(Scope.values)))
    expired = key("expired key", project, list(Scope.values))
    ApiKey.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert found.keys() == EVERYBODY
    return found


@pytest.fixture
def ids(cast: dict[str, tuple[Client, dict[str, str]]]) -> dict[str, str]:
    """What stands in the place of each parameter of a route: a session of the first project with one call."""
    client, headers = cast["write key"]
    message = {
        "external_id": "m1",
        "role": "assistant",
        "content": CANARY,
        "agent_steps": [
            {"tool_calls": [{"id": "c1", "name": "search", "args": {"q": CANARY}, "result": {"output": CANARY}}]}
        ],
    }
    session = {"external_id": SESSION, "title": CANARY, "messages": [message]}
    part = json.dumps({"note": CANARY}, separators=(",", ":"))
    ref = ref_of(part.encode())
    snapshot = {"id": "p1", "ts": 1_767_225_600 * 10**9, "node_ids": ["plan"], "context_ref": ref}
    of_fork = {"session": SESSION, "node": "plan", "snapshot": "p1", "overrides": {"note": CANARY}}
    asked = {"messages": [{"role": "user", "content": CANARY}], "variables": {"note": CANARY}}
    event = {"session_id": SESSION, "message_id": "m2", "id": "e1", "type": "llm_request_start", "data": asked}
    for path, body in (
        ("ingest", {"sessions": [session]}),
        ("snapshots", {"session_id": SESSION, "snapshot": snapshot, "parts": {ref: {"note": CANARY}}}),
        ("snapshots", {"session_id": f"{SESSION}-fork", "fork": of_fork}),
        ("events", {"events": [event]}),
    ):
        stored = client.post(f"/api/v1/{path}/", body, "application/json", headers=headers)
        assert stored.status_code in (200, 201), stored.content
    client, headers = cast["superuser"]
    of_session = f"/api/v1/sessions/{SESSION}"
    (call,) = client.get("/api/v1/tool-calls/").json()["results"]
    (one,) = client.get(f"{of_session}/snapshots/").json()["results"]
    (context,) = client.get(f"{of_session}/contexts/").json()["results"]
    return {
        "session_id": call["session_id"],
        "message_id": call["message_id"],
        "call_id": call["uuid"],
        "snapshot_id": one["id"],
        "part": ref,
        "ref": context["ref"],
    }


def address(path: str, ids: dict[str, str]) -> str:
    """The route with values for its parameters."""
    values = dict(ids)
    if "/messages_app/session/" in path:
        values["object_id"] = ids["session_id"]
    elif "/messages_app/message/" in path:
        values["object_id"] = ids["message_id"]
    elif "/access_app/project/" in path:
        values["object_id"] = str(Project.objects.get(slug="owner").pk)
    elif "/maskingrun/" in path:
        values["project_pk"] = str(Project.objects.get(slug="owner").pk)
    elif "/access_app/apikey/" in path:
        values["object_id"] = str(ApiKey.objects.get(name="read key").pk)

    def value(found: re.Match[str]) -> str:
        kind, _colon, name = found[1].rpartition(":")
        usual = {"int": "1", "uuid": UNKNOWN, "slug": "csv"}.get(kind, "1")
        return values.get(name, usual)

    query = f"?refs={ids['part']}" if path.endswith("/snapshots/parts/") else ""
    return re.sub(r"<([^>]+)>", value, path) + query


def callers_of(path: str, number: int, expected: frozenset[str]) -> set[str]:
    """Who calls the route with this number and these callers that are let in.

    The owner of another project and its key, which has all scopes, show that none of another project may; a viewer of it sees
    what is masked.
    """
    if AT_LENGTH:
        return set(EVERYBODY)

    def one_of(names: Iterable[str]) -> list[str]:
        turn = sorted(names)
        return turn[number % len(turn) :][:1] if turn else []

    refused = [name for name in LADDER if name not in expected]
    let_in = [name for name in LADDER if name in expected]
    chosen = {"nobody", "foreign owner", *refused[-1:], *let_in[:1]}
    own_keys = KEYS - DEAD - FOREIGN
    if path.startswith("/admin/"):  # to which keys are nothing
        chosen.update(one_of(KEYS - DEAD))
    else:
        chosen.update(["foreign key"], one_of(own_keys & expected), one_of(own_keys - expected), one_of(DEAD))
    if path in TIME_MACHINE:
        chosen.update(["viewer", "analyst", "masked key", "read key"])
    chosen.update(one_of(EVERYBODY - KEYS - chosen))
    return chosen


def is_refused(answer: HttpResponse) -> bool:
    """Return whether the answer says that the caller may not; a bad body or an unknown id is found out later."""
    login = answer.status_code == 302 and "/login/" in answer["Location"]
    return login or answer.status_code in (401, 403)


def entry_fault(caller: str, where: str, answer: HttpResponse, entries: list[AuditEntry], *, shows: bool) -> str:
    """Return what is wrong with the entries of a request in the audit log, "" if they are right.

    One entry names the caller and the result, unless nobody acted who is known: logins are none for foreign APIs, keys are
    none for the admin.
    """
    if route_of(resolve(where.partition("?")[0])) in NOT_RECORDED:
        return "shows content without an entry" if shows else ""
    login = answer.status_code == 302 and "/login/" in answer["Location"]
    if answer.status_code == 405 or (not entries and not shows and (login or answer.status_code == 401)):
        return ""
    by_key = caller in KEYS and not where.startswith("/admin/")
    name = str(ApiKey.objects.get(name=caller)) if by_key else caller
    result = "allowed" if answer.status_code < 400 else "refused" if is_refused(answer) else "failed"
    found = [(entry.actor_kind, entry.actor_name, entry.result) for entry in entries]
    return "" if found == [("key" if by_key else "user", name, result)] else f"entries: {found}"


def test_every_route_has_a_row_and_every_row_a_route() -> None:
    assert [route for route in ROUTES if row_of(*route) is None] == []
    used = {
        next(row for row in rows() if method in row[1].split(", ") and fnmatchcase(path, row[0]))
        for path, method in ROUTES
    }
    assert [row[:2] for row in rows() if row not in used] == []


@pytest.mark.django_db
def test_routes_let_in_whom_the_table_names_and_record_it(
    cast: dict[str, tuple[Client, dict[str, str]]], ids: dict[str, str]
) -> None:
    assert not settings.TRACESITE_METRICS_TOKEN
    wrong: list[tuple[object, ...]] = []
    readers = Counter[str]()
    showing: set[str] = set()
    before = set(AuditEntry.objects.values_list("pk", flat=True))
    for number, (path, method) in enumerate(ROUTES):
        where, expected = address(path, ids), row_of(path, method)
        for caller in sorted(callers_of(path, number, expected or frozenset())):
            client, headers = cast[caller]
            cookies = client.cookies.copy()
            with transaction.atomic():
                body = b"{}" if path.startswith(("/api/", "/weknora/")) else b""
                answer = client.generic(method, where, body, "application/json", headers=headers)
                content = answer.getvalue()
                entries = list(AuditEntry.objects.exclude(pk__in=before))
                transaction.set_rollback(True)
            client.cookies = cookies  # logging out removes them
            let_in = not is_refused(answer)
            shows = CANARY.encode() in content
            # Of a request without a valid login or key, only what it shows is recorded: here, nothing.
            if path not in WITHOUT_LOGIN or shows:
                fault = entry_fault(caller, where, answer, entries, shows=shows)
                wrong += [(method, path, caller, answer.status_code, fault)] if fault else []
            is_of_a_row = path.startswith("/api/v1/") and re.search("<str:(session|message|call)_id>", path)
            if is_of_a_row and method == "GET" and caller.startswith("foreign") and answer.status_code == 200:
                wrong.append((method, path, caller, 200, "look it up in requested_scope(request)"))
            # Of these the answer shows nothing, which the check of the content below tests.
            is_lost = answer.status_code == 302 and "<" in path and answer["Location"] in NOT_FOUND
            if not is_lost and expected is not None and let_in != (caller in expected):
                wrong.append((method, path, caller, answer.status_code))
            if caller in BLIND and shows:
                wrong.append((method, path, caller, "reads content"))
            readers[caller] += shows
            showing |= {path} if shows else set()
            # Streams are served by the live part alone: here they are 503.
            if answer.status_code >= 500 and "continue-stream" not in path:
                wrong.append((method, path, caller, answer.status_code))
    assert wrong == []
    assert sum(readers.values()) > 20
    assert TIME_MACHINE - showing == set()


@pytest.mark.django_db
def test_lists_offer_actions_to_whom_the_table_names(
    cast: dict[str, tuple[Client, dict[str, str]]], ids: dict[str, str]
) -> None:
    """Django refuses to run what a list does not offer. Members of another project choose from their own rows."""
    section = TABLE.read_text().partition("## Actions of lists")[2]
    table = {
        (path, action): set(LADDER[LADDER.index(who) :])
        for path, action, who in re.findall(r"^\| `(/[^`]*)` \| `(\w+)` \| (\w+) \|$", section, re.M)
    }
    client, headers = cast["write key"]
    client.post("/api/v1/sessions/", {"external_id": "gone"}, "application/json", headers=headers)
    client, headers = cast["delete key"]
    assert client.delete("/api/v1/sessions/gone/", headers=headers).status_code == 204
    found: dict[tuple[str, str], set[str]] = {}
    for path in sorted({path for path, _method in ROUTES if re.fullmatch(r"/admin/\w+/\w+/(trash/)?", path)}):
        for caller in sorted(EVERYBODY - KEYS):
            page = cast[caller][0].get(path).getvalue().decode()
            has_choice = 'name="_selected_action"' in page
            offered = re.search(r'<select name="action".*?</select>', page, re.S) if has_choice else None
            for action in re.findall(r'<option value="(\w+)"', offered[0] if offered else ""):
                found.setdefault((path, action), set()).add(caller.removeprefix("foreign "))
    assert found == table

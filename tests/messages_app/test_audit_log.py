"""The audit log over the API and in the admin: owners find entries of their project, and nobody else does."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone
from django.utils.html import strip_tags

from access_app.audit.chain import append_recorded
from access_app.audit.record import record
from access_app.audit.trail import Origin
from access_app.keys import create_key
from access_app.masking import save_rule
from access_app.models import ActorKind, AuditAction, AuditEntry, AuditResult, Project, Role, Scope
from access_app.roles import grant_role
from messages_app.audit_log import AuditFilterSet
from tests.admin_pages import html_of, statements_of, text_of
from tests.traces_app.conftest import question, store

pytestmark = pytest.mark.django_db
EVE = Origin(kind=ActorKind.USER, name="eve", id="7", address="192.0.2.7", request_id="r-7")


@pytest.fixture
def entries(project: Project, stranger: Project) -> dict[str, int]:
    """Ids of entries by name."""

    def made(action: AuditAction, **fields: Any) -> int:
        record(action, None, origin=EVE, **fields)
        return AuditEntry.objects.latest("id").pk

    found = {
        "read": made(AuditAction.READ, project_id=project.pk, object_type="session", object_id="s-1", detail={"a": 1}),
        "refused": made(AuditAction.DELETE, project_id=project.pk, result=AuditResult.REFUSED),
        "foreign": made(AuditAction.READ, project_id=stranger.pk),
        "several": made(AuditAction.LIST, detail={"projects": [project.pk, 999_999]}),
        "others": made(AuditAction.LIST, detail={"projects": [stranger.pk]}),
        "all": made(AuditAction.LIST, detail={"projects": "all"}),
        "login": made(AuditAction.LOGIN),
    }
    append_recorded()
    return found


def reader(project: Project, role: Role, name: str = "reader") -> Client:
    user = User.objects.create_user(name, is_staff=True)
    grant_role(project, user, role)
    client = Client()
    client.force_login(user)
    return client


def ids_of(client: Client, query: str = "") -> list[int]:
    answer = client.get(f"/api/v1/audit/?actor=eve&limit=200&{query}")
    assert answer.status_code == 200, answer.content
    return [entry["id"] for entry in answer.json()["results"]]


def test_owners_find_entries_of_their_project(entries: dict[str, int], project: Project, stranger: Project) -> None:
    owner = reader(project, Role.OWNER)
    of_project = [entries[name] for name in ("all", "several", "refused", "read")]
    assert ids_of(owner) == of_project
    queries = {
        "action=read": ["read"],
        "result=refused": ["refused"],
        "object_type=session&object_id=s-1": ["read"],
        "address=192.0.2.8": [],
        "address=192.0.2.7&request_id=r-7&actor_kind=user&action=delete": ["refused"],
        "actor_kind=key": [],
        "created_before=2020-01-01": [],
        "created_after=2020-01-01&action=read": ["read"],
        "project=owner&action=read": ["read"],
    }
    for query, names in queries.items():
        assert ids_of(owner, query) == [entries[name] for name in names], query
    asked = {name for query in queries for name in (pair.partition("=")[0] for pair in query.split("&"))}
    assert set(AuditFilterSet.base_filters) - asked == {"actor"}
    assert owner.get("/api/v1/audit/?project=stranger").status_code == 404
    assert owner.get(f"/api/v1/audit/{entries['foreign']}/").status_code == 404
    assert owner.get("/api/v1/audit/99999999999999999999999/").status_code == 404
    assert owner.get("/api/v1/audit/?action=dance").json()["error"]["field"] == "action"

    one = owner.get(f"/api/v1/audit/{entries['read']}/").json()
    stored = AuditEntry.objects.get(pk=entries["read"])
    assert (one["project"], one["detail"], one["hash"]) == ("owner", {"a": 1}, stored.hash)
    first = owner.get("/api/v1/audit/?actor=eve&limit=3").json()
    rest = owner.get(f"/api/v1/audit/?actor=eve&limit=3&cursor={first['next']}").json()
    assert [entry["id"] for page in (first, rest) for entry in page["results"]] == of_project

    root = Client()
    root.force_login(User.objects.create_superuser("root"))
    assert ids_of(root) == sorted(entries.values(), reverse=True)


def test_others_do_not_see_the_log(entries: dict[str, int], project: Project) -> None:
    _key, token = create_key(project, "agent", list(Scope.values))
    editor = reader(project, Role.EDITOR)
    for path in ("", f"{entries['read']}/"):
        answers = [
            Client().get(f"/api/v1/audit/{path}", headers={"X-API-Key": token}),
            editor.get(f"/api/v1/audit/{path}"),
        ]
        assert [answer.status_code for answer in answers] == [403, 403]
        assert "owner" in answers[0].json()["error"]["message"]
    assert editor.get("/admin/access_app/auditentry/").status_code == 403
    assert b"auditentry" not in editor.get("/admin/").getvalue()


def test_pages_of_the_admin_search_and_export_the_log(entries: dict[str, int], project: Project) -> None:
    owner, place = reader(project, Role.OWNER), "/admin/access_app/auditentry/"

    def shown(query: str) -> set[str]:
        answer: Any = owner.get(f"{place}?{query}")
        assert answer.status_code == 200, query
        found = {row.pk for row in answer.context["cl"].result_list}
        return {name for name, pk in entries.items() if pk in found}

    assert shown("actor=eve") == {"all", "several", "refused", "read"}
    assert shown("q=192.0.2.7") == {"all", "several", "refused", "read"}
    assert shown("q=s-1&created=24h") == {"read"}
    assert shown("action=delete&result=refused&actor_kind=user&address=192.0.2.7") == {"refused"}
    assert shown("object_type=session&created_before=2020-01-01T00:00") == set()
    listed = owner.get(f"{place}?object_type=session", headers={"accept-language": "zh-hans"}).getvalue().decode()
    assert '<span title="session">会话</span> <bdi>s-1</bdi>' in listed
    page = owner.get(f"{place}{entries['read']}/change/").getvalue().decode()
    assert AuditEntry.objects.get(pk=entries["read"]).hash in page
    assert '<input type="submit"' not in page
    assert owner.post(f"{place}{entries['read']}/change/", {}).status_code == 403
    lines = owner.get(f"{place}export/jsonl/?actor=eve").getvalue().decode().splitlines()
    assert len(lines) == 4
    assert owner.get(f"{place}{entries['foreign']}/change/").status_code == 302


def test_list_of_the_log_has_facets_and_links_to_objects(project: Project) -> None:
    owner = reader(project, Role.OWNER)
    for object_id in ("0198a000-0000-7000-8000-000000000001", "a\nb"):
        record(AuditAction.READ, None, origin=EVE, project_id=project.pk, object_type="session", object_id=object_id)
    page = html_of(owner.get("/admin/access_app/auditentry/"))
    assert page.count('href="/admin/messages_app/session/0198a000-0000-7000-8000-000000000001/change/"') == 1
    assert page.count("/admin/messages_app/session/a") == 0
    facets = text_of(owner.get("/admin/access_app/auditentry/facets/?actor=eve"))
    assert facets.startswith("2 in all Kind Reads 2 Action Read 2 Actor eve 2")


def test_list_of_the_log_shows_what_was_changed_first(project: Project, stranger: Project) -> None:
    root = Client()
    root.force_login(User.objects.create_superuser("root", email="a@example.org"))
    page = "/admin/access_app/auditentry/"
    user = User.objects.create_user("amy", is_staff=True)
    grant_role(project, user, Role.VIEWER)
    grant_role(project, user, Role.OWNER)
    rule = save_rule(project, "staff", "pattern", "EMP-1")
    roles = {"memberships-TOTAL_FORMS": 0, "memberships-INITIAL_FORMS": 0}
    rules = {"masking_rules-TOTAL_FORMS": 1, "masking_rules-INITIAL_FORMS": 1}
    edited = {"id": rule.pk, "name": "staff", "kind": "pattern", "value": "<b>-2", "when": "store", "enabled": "on"}
    form = {
        "retention_way": "exact",
        "sampling_keep_errors": "on",
        "retention_days": "30",
        "keep_pinned": "on",
        **roles,
        **rules,
        **{f"masking_rules-0-{name}": value for name, value in edited.items()},
    }
    root.get(f"{page}?kind=reads")
    assert root.post(f"/admin/access_app/project/{project.pk}/change/", form).status_code == 302
    answer = root.get(f"{page}?kind=settings")
    head, *rows = (
        [strip_tags(cell).strip() for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        for row in re.findall("<tr>(.*?)</tr>", html_of(answer), re.DOTALL)
    )
    assert [" ".join(cell.split()) for cell in head] == [
        "Time (UTC)",
        "Actor",
        "Action",
        "Object",
        "Changes",
        "Project",
        "Address",
    ]
    made = "kind patternvalue EMP-1when before it is storedenabled yes"
    assert [row[1:6] for row in rows if row[1:]] == [
        [
            "user root",
            "change",
            "project owner",
            "keep pinned sessions no → yesdays of live data empty → 30",
            "owner",
        ],
        ["user root", "change", "masking rule staff", "value EMP-1 → &lt;b&gt;-2", "owner"],
        ["system tracesite", "create", "masking rule staff", made, "owner"],
        ["system tracesite", "grant of a role", "user amy", "role viewer → owner", "owner"],
        ["system tracesite", "grant of a role", "user amy", "role viewer", "owner"],
    ]
    assert f'href="/admin/access_app/project/{project.pk}/change/#masking_rules-heading"' in html_of(answer)
    assert "change" not in {row.action for row in root.get(f"{page}?kind=reads").context["cl"].result_list}
    assert root.get(f"{page}?kind=dance").status_code == 302
    chinese = text_of(root.get(f"{page}?kind=settings", headers={"accept-language": "zh-hans"}))
    assert "角色 查看者 → 所有者" in chinese and "角色 查看者" in chinese and "viewer" not in chinese
    # Saved again, now with nothing of the project changed but a rule.
    count = AuditEntry.objects.count()
    form["masking_rules-0-value"] = "EMP-3"
    assert root.post(f"/admin/access_app/project/{project.pk}/change/", form).status_code == 302
    assert [entry.object_type for entry in AuditEntry.objects.order_by("pk")[count:]] == ["masking_rule"]
    form["retention_days"] = "0"  # refused, so that only the form is shown
    assert root.post(f"/admin/access_app/project/{project.pk}/change/", form).status_code == 200
    assert AuditEntry.objects.latest("pk").object_type == "project"


def test_page_of_an_entry_says_who_did_what_and_what_was_changed(project: Project) -> None:
    owner, expires = reader(project, Role.OWNER), timezone.now() + timedelta(days=3)
    key, _token = create_key(project, "mine", [Scope.READ, Scope.WRITE], expires_at=expires)
    entry = AuditEntry.objects.get(action=AuditAction.KEY_CREATE)
    place = f"/admin/access_app/auditentry/{entry.pk}/change/"
    text = text_of(owner.get(place))
    assert f"tracesite: creation of a key · API key {key}" in text
    assert f"scopes read, write expires at {expires:%Y-%m-%d %H:%M}" in text
    assert "Technical details" in text and "History" not in text
    chinese = text_of(owner.get(place, headers={"accept-language": "zh-hans"}))
    assert f"tracesite：创建密钥 · API 密钥 {key}" in chinese and "权限范围 读取, 写入" in chinese
    record(
        *(AuditAction.CHANGE, None),
        project_id=project.pk,
        object_type="message",
        detail={"masked": 12, "rules": ["mail", "staff"], "ids": []},
    )
    assert "rules mail, staff masked 12" in text_of(owner.get("/admin/access_app/auditentry/?kind=traces"))


def test_search_of_the_log_finds_names_of_actors_and_objects(project: Project) -> None:
    owner = reader(project, Role.OWNER)
    amira = User.objects.create_user("amira", is_staff=True)
    with_name = {"object_type": "user", "object_id": amira.pk, "object_name": "amira", "project_id": project.pk}
    record(AuditAction.ROLE_GRANT, None, origin=EVE, **with_name)
    record(AuditAction.READ, None, origin=EVE, **{**with_name, "object_name": ""})
    record(AuditAction.READ, None, origin=EVE, **{**with_name, "object_type": "group", "object_name": ""})
    by_amira = Origin(kind=ActorKind.USER, name="amira")
    record(AuditAction.SEARCH, None, origin=by_amira, project_id=project.pk)
    for term in ("amira", "Amir"):
        answer: Any = owner.get("/admin/access_app/auditentry/", {"q": term})
        assert [row.action for row in answer.context["cl"].result_list] == ["search", "read", "role_grant"], term
    key, _token = create_key(project, "billing bot", [Scope.READ])
    record(AuditAction.READ, None, origin=Origin(kind=ActorKind.KEY, name=str(key)), project_id=project.pk)
    for term in ("billing bot", "billing", key.prefix, str(key)):
        answer = owner.get("/admin/access_app/auditentry/", {"q": term})
        assert "read" in [row.action for row in answer.context["cl"].result_list], term
    assert "No entries match: search “nobody” ." in text_of(owner.get("/admin/access_app/auditentry/?q=nobody"))


def test_list_of_the_log_names_objects_in_few_queries(project: Project, stranger: Project) -> None:
    owner = reader(project, Role.OWNER)

    def listed() -> tuple[str, int]:
        text = text_of(owner.get("/admin/access_app/auditentry/?actor=eve"))
        return text, len(statements_of(owner, "/admin/access_app/auditentry/?actor=eve"))

    def entries_of(number: int) -> None:
        for place, title in ((project, f"Refund {number}"), (stranger, f"Secret {number}")):
            session = store(place, question(external_id=f"q{number}"), external_id=f"s{number}", title=title)
            for kind, key in (("session", session.id), ("message", session.messages[0].id)):
                record(AuditAction.READ, None, origin=EVE, project_id=project.pk, object_type=kind, object_id=str(key))
        record(AuditAction.READ, None, origin=EVE, project_id=project.pk, object_type="project", object_id=project.pk)

    entries_of(0)
    text, few = listed()
    assert "session Refund 0" in text and "message Refund 0" in text and "project owner" in text
    assert "Secret" not in text
    for number in range(1, 6):
        entries_of(number)
    text, many = listed()
    assert "session Refund 5" in text
    assert many == few
    entry = AuditEntry.objects.filter(actor_name="eve", object_type="session").earliest("pk")
    assert "session Refund 0" in text_of(owner.get(f"/admin/access_app/auditentry/{entry.pk}/change/"))


def test_rotated_and_revoked_keys_name_who_did_it_and_their_history_in_words(project: Project) -> None:
    owner, place = reader(project, Role.OWNER), "/admin/access_app/apikey/"
    key, _token = create_key(project, "mine", [Scope.READ])
    chosen = {"_selected_action": key.pk, "confirmed": "yes"}
    assert owner.post(place, {**chosen, "action": "rotate_selected", "hours": 24}).status_code == 200
    assert owner.post(place, {**chosen, "action": "revoke_selected"}).status_code == 302
    entries = AuditEntry.objects.filter(object_type="apikey", actor_name="reader").order_by("pk")
    assert [entry.action for entry in entries] == ["key_create", "key_rotate", "key_revoke"]
    history = text_of(owner.get(f"{place}{key.pk}/history/"))
    assert "Changed revoked at." in history and "Changed expires at." in history
    chinese = text_of(owner.get(f"{place}{key.pk}/history/", headers={"accept-language": "zh-hans"}))
    assert "吊销时间" in chinese and "revoked" not in chinese

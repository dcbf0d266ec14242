"""In the admin a key is made and shown once, listed without its token, and revoked after a question."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, time, timedelta
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.html import strip_tags

from access_app.arguments import retention_in_words
from access_app.keys import find_key, revoke_key
from access_app.models import ApiKey, AuditEntry, AuthenticatorApp, Membership, Project, Role
from access_app.roles import grant_role
from tests.admin_pages import ago, statements_of

KEYS, NEW_KEY = "/admin/access_app/apikey/", "/admin/access_app/apikey/add/"
NO_MEMBERS = {
    "memberships-TOTAL_FORMS": 0,
    "memberships-INITIAL_FORMS": 0,
    "masking_rules-TOTAL_FORMS": 0,
    "masking_rules-INITIAL_FORMS": 0,
}
PROJECTS, NEW_PROJECT = "/admin/access_app/project/", "/admin/access_app/project/add/"


@pytest.fixture
def admin(login: Callable[[User], Client], superuser: User) -> Client:
    return login(superuser)


def new_key(project: Project, **fields: Any) -> dict[str, Any]:
    return {
        "project": project.pk,
        "name": "agent",
        "scopes": ["write", "read"],
        "expires_on": "",
        **fields,
    }


def test_new_key_token_is_shown_once(admin: Client, project: Project, superuser: User) -> None:
    page = admin.post(NEW_KEY, new_key(project))

    key = ApiKey.objects.get()
    (token,) = set(re.findall(r"ts_[\w-]{43}", page.content.decode()))
    found = find_key(token)
    assert found == key
    assert (key.project, key.name, key.scopes, key.created_by) == (project, "agent", ["read", "write"], superuser)
    assert f'curl -H "Authorization: Bearer {token}" http://testserver/api/v1/sessions/' in page.content.decode()
    assert "no-store" in page.headers["Cache-Control"]
    for path in (KEYS, f"{KEYS}{key.pk}/change/", f"{KEYS}{key.pk}/history/"):
        content = admin.get(path).content.decode()
        assert token not in content
        assert key.digest not in content
        assert key.name in content


def test_the_only_project_is_chosen_for_a_new_key(admin: Client, project: Project) -> None:
    chosen = f'<option value="{project.pk}" selected>'
    assert chosen in admin.get(NEW_KEY).content.decode()
    Project.objects.create(slug="other")
    assert chosen not in admin.get(NEW_KEY).content.decode()


def test_the_page_of_a_new_key_has_no_inline_script_or_style(admin: Client, project: Project) -> None:
    for page in (admin.post(NEW_KEY, new_key(project)), admin.get(NEW_KEY), admin.get(KEYS)):
        content = page.content.decode()
        assert not re.search(r"<script(?![^>]*\bsrc=)[^>]*>(?!\s*</script>)|<style|\sstyle=|\son\w+=", content)
        assert "script-src 'self'" in page.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scopes": []}, "This field is required."),
        ({"scopes": ["admin"]}, "Select a valid choice."),
        ({"name": " "}, "This field is required."),
        ({"expires_on": "2020-01-01"}, "The key would have expired already. Choose today, "),
        ({"expires_on": "9999-12-31"}, "less than or equal to 9998-12-31"),
        (
            {"allowed_networks": "10.0.0.0/8, 10.0.0.0/99"},
            "“10.0.0.0/99” is not an IP address or network. Write 192.0.2.7",
        ),
        ({"reads_masked": "on"}, "choose read alone, or let it read all values"),
    ],
)
def test_a_wrong_key_is_not_made_and_the_form_says_why(
    admin: Client, project: Project, fields: dict[str, Any], message: str
) -> None:
    assert message in admin.post(NEW_KEY, new_key(project, **fields)).content.decode()
    assert not ApiKey.objects.exists()


def test_a_key_works_to_the_end_of_its_last_day(admin: Client, project: Project) -> None:
    today = timezone.localdate()
    form = admin.get(NEW_KEY).content.decode()
    assert f'<option value="{today + timedelta(30)}">30 days</option>' in form

    admin.post(NEW_KEY, new_key(project, expires_on=today.isoformat(), allowed_networks="10.0.0.0/8, 192.0.2.7"))

    key = ApiKey.objects.get()
    assert key.expires_at == timezone.make_aware(datetime.combine(today, time.min)) + timedelta(1)
    assert key.allowed_networks == ["10.0.0.0/8", "192.0.2.7"]


def once_of(page: Any) -> str:
    (once,) = re.findall(r'name="once" value="([\w-]+)"', page.content.decode())
    return str(once)


def test_a_form_makes_one_key_however_often_it_is_sent(admin: Client, project: Project) -> None:
    fields = new_key(project, once=once_of(admin.get(NEW_KEY)))
    assert "ts_" in admin.post(NEW_KEY, fields).content.decode()
    key = ApiKey.objects.get()
    again = admin.post(NEW_KEY, fields, follow=True)
    assert again.redirect_chain == [(f"{KEYS}{key.pk}/change/", 302)]
    assert "This key was made already." in again.content.decode()
    assert ApiKey.objects.get() == key

    rotated = {"action": "rotate_selected", "_selected_action": key.pk}
    rotated |= {"once": once_of(admin.post(KEYS, rotated)), "hours": 24, "confirmed": "yes"}
    assert "ts_" in admin.post(KEYS, rotated).content.decode()
    successor = ApiKey.objects.latest("pk")
    assert admin.post(KEYS, rotated, follow=True).redirect_chain == [(f"{KEYS}{successor.pk}/change/", 302)]
    assert admin.post(NEW_KEY, {**fields, "once": once_of(admin.get(NEW_KEY))}).status_code == 200
    assert ApiKey.objects.count() == 3


def test_a_revoked_key_is_read_only(admin: Client, key: ApiKey) -> None:
    page = f"{KEYS}{key.pk}/change/"
    assert 'name="_save"' in admin.get(page).content.decode()
    revoke_key(key)
    content = admin.get(page).content.decode()
    assert 'name="_save"' not in content
    assert re.search(r'<label>Reads masked values:</label>\s*<div class="readonly">no</div>', content)
    assert admin.post(page, {"name": "other"}).status_code == 403


def test_only_the_name_of_a_key_can_be_changed(admin: Client, key: ApiKey, stranger: Project) -> None:
    page = f"{KEYS}{key.pk}/change/"
    before = ApiKey.objects.filter(pk=key.pk).values().get()

    admin.post(
        page, {"name": "other", "project": stranger.pk, "scopes": "read", "digest": "x", "revoked_at_0": "2020-01-01"}
    )

    assert ApiKey.objects.filter(pk=key.pk).values().get() == {**before, "name": "other"}


def test_revoking_asks_first(admin: Client, key: ApiKey, token: str) -> None:
    choice = {"action": "revoke_selected", "_selected_action": [key.pk]}

    asked = admin.post(KEYS, choice)
    assert str(key) in asked.content.decode()
    assert find_key(token) is not None

    done = admin.post(KEYS, {**choice, "confirmed": "yes"}, follow=True)
    assert "1 API key was revoked." in done.content.decode()
    assert find_key(token) is None
    again = admin.post(KEYS, {**choice, "confirmed": "yes"}, follow=True)
    assert "0 API keys were revoked." in again.content.decode()


def test_row_and_page_of_a_key_have_a_button_that_asks_about_it(admin: Client, key: ApiKey, superuser: User) -> None:
    page = f"{KEYS}{key.pk}/change/"
    row, buttons = admin.get(KEYS).content.decode(), admin.get(page).content.decode()
    assert f'form="of-one" name="_selected_action" value="{key.pk}"' in row
    assert 'name="action" value="revoke_selected"' in row.partition('<form id="of-one" method="post"')[2]
    assert f'name="_selected_action" value="{key.pk}"' in buttons
    for action, title in (("revoke_selected", "Revoke API keys"), ("rotate_selected", "Rotate an API key")):
        assert f'name="action" value="{action}"' in buttons
        assert title in admin.post(KEYS, {"action": action, "_selected_action": key.pk}).content.decode()
    key.refresh_from_db()
    assert key.status() == "active"
    revoke_key(key)
    for url in (KEYS, page):
        content = admin.get(url).content.decode()
        assert "revoked</span>" in content
        assert f'value="{key.pk}">Re' not in content and ">Revoke</button>" not in content


def test_list_of_keys_says_who_made_them_and_when_they_were_used(
    admin: Client, key: ApiKey, superuser: User, stranger: Project
) -> None:
    def row() -> list[str]:
        content = admin.get(KEYS).content.decode()
        return [strip_tags(cell) for cell in re.findall(r'<t[dh] class="field-[^>]*>(.*?)</t[dh]>', content, re.DOTALL)]

    assert row()[4:8] == ["active", "never", "just now", "never"]
    used_at = timezone.now() - timedelta(hours=2)
    ApiKey.objects.update(created_by=superuser, last_used_at=used_at, expires_at=timezone.now())
    assert row()[4:7] == ["expired", "2 hours ago", "just now by ada"]
    stranger.delete()
    assert row()[1] == key.prefix  # with one project, its column says the same in each row


def test_neither_keys_nor_projects_can_be_deleted(admin: Client, key: ApiKey) -> None:
    assert admin.post(f"{KEYS}{key.pk}/delete/", {"post": "yes"}).status_code == 403
    assert admin.post(f"{PROJECTS}{key.project_id}/delete/", {"post": "yes"}).status_code == 403
    assert "delete_selected" not in admin.get(KEYS).content.decode()
    assert ApiKey.objects.filter(pk=key.pk).exists()


def test_a_project_is_made_and_keeps_its_slug(admin: Client, db: None) -> None:
    admin.post(NEW_PROJECT, {"slug": "demo", "name": "", "retention_way": "exact", **NO_MEMBERS})
    project = Project.objects.get()
    admin.post(
        f"{PROJECTS}{project.pk}/change/", {"slug": "other", "name": "Demo", "retention_way": "exact", **NO_MEMBERS}
    )

    project.refresh_from_db()
    assert (project.slug, project.name) == ("demo", "Demo")
    assert "demo" in admin.get(PROJECTS).content.decode()


@pytest.mark.usefixtures("permissions")
def test_rights_on_models_give_no_access_to_keys(
    login: Callable[[User], Client], staff: User, project: Project, key: ApiKey
) -> None:
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="access_app"))
    client = login(staff)

    assert client.post(NEW_KEY, new_key(project)).status_code == 403
    assert client.get(NEW_KEY).status_code == 403
    assert list(ApiKey.objects.all()) == [key]
    revoke = {"action": "revoke_selected", "_selected_action": [key.pk], "confirmed": "1"}
    assert client.post(KEYS, revoke).status_code == 403
    key.refresh_from_db()
    assert key.revoked_at is None
    grant_role(project, staff, Role.OWNER)
    client.post(KEYS, revoke)
    key.refresh_from_db()
    assert key.revoked_at is not None


def test_staff_without_rights_see_no_keys(login: Callable[[User], Client], staff: User, key: ApiKey) -> None:
    client = login(staff)

    assert client.get(KEYS).status_code == 403
    assert client.get(NEW_KEY).status_code == 403
    assert (
        client.post(KEYS, {"action": "revoke_selected", "_selected_action": [key.pk], "confirmed": "yes"}).status_code
        == 403
    )


def test_the_list_asks_the_same_number_of_queries_for_many_keys(admin: Client, key: ApiKey, project: Project) -> None:
    admin.get(KEYS)
    assert len(statements_of(admin, KEYS)) == 7
    for number in range(20):
        other = Project.objects.create(slug=f"p{number}")
        ApiKey.objects.create(project=other, name="x", prefix="ts_xxxxx", digest=f"{number:064}", scopes=["read"])
    assert len(statements_of(admin, KEYS)) == 7


def test_the_admin_is_found_where_its_urls_say(db: None) -> None:
    with translation.override("en"):
        assert reverse("admin:access_app_apikey_changelist") == KEYS


def shares(*lines: tuple[str, str]) -> dict[str, list[str]]:
    """Return the lines of a table of shares, with the empty one that a browser sends."""
    tools, rates = zip(*lines, ("", ""), strict=True)
    return {"sampling_tools_tool": list(tools), "sampling_tools_share": list(rates)}


def sampled(**fields: Any) -> dict[str, Any]:
    """The form of a project's page as it comes, filled in with these."""
    return {
        "name": "",
        "sampling_rate": "",
        "sampling_tools": "{}",
        "sampling_keep_errors": "on",
        "sampling_keep_slower_than_ms": "",
        "retention_way": "exact",
        **NO_MEMBERS,
        **fields,
    }


def test_project_page_sets_the_shares_of_recorders(admin: Client, project: Project) -> None:
    page = f"{PROJECTS}{project.pk}/change/"
    content = admin.get(page).content.decode()
    assert "Share of sessions to record, from 0 to 1." in content
    assert admin.post(page, sampled()).status_code == 302
    project.refresh_from_db()
    assert project.sampling() is None

    answer = admin.post(
        page,
        sampled(
            sampling_rate="0.25",
            sampling_keep_slower_than_ms="2000",
            **shares(("search", " 0.1"), ("", ""), ("天气", "1")),
        ),
    )
    assert answer.status_code == 302
    project.refresh_from_db()
    assert project.sampling() == {
        "rate": 0.25,
        "tools": {"search": 0.1, "天气": 1},
        "keep_errors": True,
        "keep_slower_than_ms": 2000,
    }
    lines = re.findall(r'name="sampling_tools_(?:tool|share)" value="([^"]*)"', admin.get(page).content.decode())
    assert lines == ["search", "0.1", "天气", "1", *[""] * 4]
    assert admin.post(page, sampled(**shares())).status_code == 302
    project.refresh_from_db()
    assert project.sampling() is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("sampling_rate", value) for value in ("-0.1", "1.1", "nan", "inf", "many")),
        *(("sampling_keep_slower_than_ms", value) for value in ("-1", "1.5", "99999999999")),
    ],
)
def test_project_form_invalid_share_is_refused_at_its_field(
    admin: Client, project: Project, field: str, value: str
) -> None:
    page = admin.post(f"{PROJECTS}{project.pk}/change/", sampled(**{field: value}))
    assert page.status_code == 200
    assert set(page.context["adminform"].form.errors) == {field}
    project.refresh_from_db()
    assert project.sampling() is None


def test_list_of_projects_has_names_and_numbers_of_members(
    login: Callable[[User], Client], superuser: User, staff: User, project: Project, stranger: Project
) -> None:
    Project.objects.filter(pk=project.pk).update(name="<Support>")
    grant_role(project, staff, Role.VIEWER)
    grant_role(project, Group.objects.create(name="readers"), Role.VIEWER)
    grant_role(stranger, staff, Role.OWNER)

    def rows(user: User) -> dict[str, str]:
        page = login(user).get(PROJECTS).content.decode()
        titles = re.findall(r'field-title"><a href="[^"]*">(.*?)</a></th>', page)
        return dict(zip(titles, re.findall(r'field-members">(.*?)</td>', page), strict=True))

    title = '<bdi>&lt;Support&gt;</bdi> <span class="quiet">owner</span>'
    to_members = '<a href="/admin/access_app/project/{}/change/#memberships-heading">{}</a>'
    of_stranger = to_members.format(stranger.pk, 1)
    assert rows(superuser) == {title: to_members.format(project.pk, 2), "stranger": of_stranger}
    assert rows(staff) == {title: "—", "stranger": of_stranger}
    few = len(statements_of(login(superuser), PROJECTS))
    Project.objects.bulk_create(Project(slug=f"p{number}") for number in range(9))
    assert len(statements_of(login(superuser), PROJECTS)) == few


@pytest.mark.parametrize(
    ("line", "error"),
    [
        *(
            (("a", share), "“a” needs a share from 0 to 1, such as 0.1.")
            for share in ("2", "-1", "NaN", "1e999", "", "true")
        ),
        (("\x00", "1"), "“\x00” needs a share"),
        (("", "0.5"), "A share of 0.5 needs the name of a tool."),
        (("search", "0.5"), "“search” is there twice."),
    ],
)
def test_project_form_names_the_line_that_is_no_share(
    admin: Client, project: Project, line: tuple[str, str], error: str
) -> None:
    page = admin.post(f"{PROJECTS}{project.pk}/change/", sampled(**shares(("search", "0.1"), line)))
    assert set(page.context["adminform"].form.errors) == {"sampling_tools"}
    assert error in page.context["adminform"].form.errors["sampling_tools"][0]
    lines = re.findall(r"<tr>(.*?)</tr>", page.content.decode().partition('<table class="shares">')[2], re.DOTALL)[1:5]
    assert ['aria-invalid="true"' in one for one in lines] == [False, True, False, False]
    assert 'name="sampling_tools_tool" value="search"' in lines[0]
    project.refresh_from_db()
    assert project.sampling() is None


def test_the_help_about_recorders_is_translated(admin: Client, project: Project) -> None:
    with translation.override("zh-hans"):
        answer = admin.get(f"{PROJECTS}{project.pk}/change/", headers={"Accept-Language": "zh-hans"})
    assert "要记录的会话比例，取值 0 到 1" in answer.content.decode()


def test_project_page_sets_the_retention(admin: Client, project: Project) -> None:
    page = f"{PROJECTS}{project.pk}/change/"
    fields = {"retention_days": "90", "trash_days": "7", "retention_way": "whole", "keep_pinned": "on"}
    lists = {"keep_tags": "golden, 客服", "keep_statuses": ["error"], "keep_scores": "rating>=4, helpful"}
    assert admin.post(page, sampled(**fields, **lists)).status_code == 302
    project.refresh_from_db()
    assert retention_in_words(project) == (
        "Data of owner: removed after 90 days, in whole periods. Trash: removed after 7 days. Sessions that are kept: "
        "tag golden, tag 客服, status error, score rating>=4, score helpful, pinned."
    )
    assert "golden,客服" in admin.get(page).content.decode()
    wrong = {"retention_days": "0", "trash_days": "40000", "retention_way": "", "keep_statuses": ["done"]}
    refused = admin.post(page, sampled(**wrong, keep_scores="rating>4"))
    assert set(refused.context["adminform"].form.errors) == {*wrong, "keep_scores"}
    for days in ("-4", "0"):
        errors = admin.post(page, sampled(retention_days=days)).context["adminform"].form.errors
        assert errors == {"retention_days": ["Ensure this value is greater than or equal to 1."]}


def test_closed_sections_of_a_project_say_what_is_set(admin: Client, project: Project) -> None:
    def headings() -> list[str]:
        content = admin.get(f"{PROJECTS}{project.pk}/change/").content.decode()
        found = re.findall(r"<summary>\s*<h2[^>]*>(.*?)</h2>", content, re.DOTALL)
        return [unescape(strip_tags(heading)) for heading in found]

    assert headings() == [
        "Recorder sampling as each recorder is set",
        "Retention kept: for ever · in the trash: for ever",
    ]
    fields = {"sampling_rate": "0.125", "sampling_keep_slower_than_ms": "2000", **shares(("search", "0.1"))}
    kept = {"retention_days": "90", "trash_days": "1", "keep_tags": "<b>", "keep_pinned": "on"}
    form = sampled(**fields, **kept)
    del form["sampling_keep_errors"]
    assert admin.post(f"{PROJECTS}{project.pk}/change/", form).status_code == 302
    assert headings() == [
        "Recorder sampling 12.5% of sessions · 1 tool with its own rate · all slower than 2,000 ms · failures are not kept",
        "Retention kept: 90 days · in the trash: 1 day · 2 exceptions",
    ]
    assert "Retention" in admin.get(NEW_PROJECT).content.decode()


def test_tables_of_a_project_have_an_empty_row_on_demand(admin: Client, project: Project) -> None:
    page = f"{PROJECTS}{project.pk}/change/"
    content = admin.get(page).content.decode()
    assert re.findall('name="(?:memberships|masking_rules)-[0-9]+-id"', content) == []
    links = re.findall(r'<noscript><p><a href="([^"]+)">Add a', content)
    assert len(links) == 2
    for link, table in zip(links, ("memberships", "masking_rules"), strict=True):
        content = admin.get(page + link.partition("#")[0]).content.decode()
        assert re.findall('name="(?:memberships|masking_rules)-[0-9]+-id"', content) == [f'name="{table}-0-id"']
        assert f'id="{link.partition("#")[2]}"' in content


def test_project_and_key_have_one_button_that_saves(admin: Client, project: Project, key: ApiKey) -> None:
    for page in (f"{PROJECTS}{project.pk}/change/", NEW_PROJECT, f"{KEYS}{key.pk}/change/", NEW_KEY):
        content = admin.get(page).content.decode()
        assert re.findall('type="submit"[^>]* name="(_[a-z]+)"', content) == ["_save"], page


@pytest.mark.usefixtures("permissions")
def test_list_of_users_says_what_each_may_do(admin: Client, project: Project, stranger: Project) -> None:
    def row(name: str) -> list[str]:
        content = admin.get("/admin/auth/user/").content.decode()
        assert "icon-no" not in content
        (found,) = re.findall(rf"<tr>(?:(?!</tr>).)*>{name}</a>.*?</tr>", content, re.DOTALL)
        cells = re.findall(r'<t[dh] class="field-[^>]*>(.*?)</t[dh]>', found, re.DOTALL)
        return [strip_tags(cell) for cell in cells]

    group = Group.objects.create(name="readers")
    amy = User.objects.create_user("amy", "amy@example.org", first_name="Amy", last_name="<i>Byron")
    assert row("amy") == ["amy", "Amy &lt;i&gt;Byron", "amy@example.org", "may not use this site", "never"]
    amy.groups.add(group)
    grant_role(project, group, Role.ANALYST)
    grant_role(stranger, group, Role.OWNER)
    grant_role(project, amy, Role.VIEWER)
    User.objects.filter(pk=amy.pk).update(last_login=timezone.now().replace(2026, 1, 2, 3, 4, 5))
    roles = sorted([f"{project.slug}: analyst", f"{stranger.slug}: owner"])
    assert row("amy")[3:] == [" · ".join(roles), ago(timezone.now().replace(2026, 1, 2, 3, 4, 5))]
    User.objects.create_user("bob", is_staff=True)
    assert row("bob")[2:4] == ["—", "none"]
    User.objects.filter(username="bob").update(is_superuser=True)
    assert row("bob")[3] == "administrator"
    User.objects.filter(username="bob").update(is_active=False)
    assert row("bob")[3:] == ["administrator", "never", "inactive"]
    User.objects.filter(pk=amy.pk).update(is_staff=False)
    assert row("amy")[3] == " · ".join([*roles, "may not use this site"])
    User.objects.filter(pk=amy.pk).update(is_staff=True)
    assert row("amy")[-1] == "active"
    AuthenticatorApp.objects.create(user=amy, confirmed=True)
    assert (row("amy")[-2], row("bob")[-2]) == ("on", "off")
    reader = User.objects.create_user("carl", is_staff=True)
    reader.user_permissions.add(Permission.objects.get(codename="view_user"))
    grant_role(stranger, reader, Role.OWNER)
    admin.force_login(reader)
    assert row("amy")[3] == f"{stranger.slug}: owner"


def test_list_of_users_leaves_out_columns_that_say_the_same(admin: Client) -> None:
    def columns() -> list[str]:
        return re.findall(r'class="[^"]*column-(\w+)', admin.get("/admin/auth/user/").content.decode())

    assert columns() == ["username", "roles", "last_login_at"]
    User.objects.filter(username="ada").update(email="ada@example.org")
    assert columns() == ["username", "email", "roles", "last_login_at"]


def saved_user(user: User, *roles: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the form of a user as a browser sends it, with these rows of roles."""
    rows = {f"roles-{number}-{name}": value for number, row in enumerate(roles) for name, value in row.items()}
    held = sum("id" in row for row in roles)
    return {
        "username": user.username,
        "is_active": "on",
        "is_staff": "on",
        "roles-TOTAL_FORMS": len(roles),
        "roles-INITIAL_FORMS": held,
        **rows,
        **fields,
    }


def test_page_of_a_user_gives_and_takes_roles(admin: Client, project: Project, stranger: Project) -> None:
    amy = User.objects.create_user("amy", password="a long password")
    page = f"/admin/auth/user/{amy.pk}/change/"
    assert admin.post(page, saved_user(amy, {"project": project.pk, "role": "editor"}, email="a@example.org")).url  # type: ignore[attr-defined]
    held = Membership.objects.get()
    amy.refresh_from_db()
    assert (held.project, held.user, held.role, amy.email, amy.is_staff) == (
        project,
        amy,
        "editor",
        "a@example.org",
        True,
    )
    assert amy.check_password("a long password")

    row = {"id": held.pk, "user": amy.pk}
    taken = [{**row, "project": stranger.pk, "role": "viewer"}, {"project": project.pk, "role": "viewer"}]
    refused = admin.post(page, saved_user(amy, *taken))
    assert "This user has a role in the project already." in refused.content.decode()
    admin.post(page, saved_user(amy, {**row, "role": "owner"}))
    held.refresh_from_db()
    assert (held.project, held.role) == (project, "owner")
    admin.post(page, saved_user(amy, {**row, "role": "owner", "DELETE": "on"}))
    assert not Membership.objects.exists()
    changed = AuditEntry.objects.filter(object_type="user", action="change").earliest("pk")
    assert (changed.object_name, changed.detail["changes"]) == (
        "amy",
        {"email": ["", "a@example.org"], "is_staff": ["false", "true"]},
    )
    entries = AuditEntry.objects.filter(object_type="user", project=project).order_by("pk")
    assert [(one.action, one.object_name, one.detail.get("role")) for one in entries] == [
        ("role_grant", "amy", "editor"),
        ("role_grant", "amy", "owner"),
        ("role_revoke", "amy", None),
    ]


@pytest.mark.usefixtures("permissions")
def test_page_of_a_user_shows_only_roles_that_the_reader_may_give(
    login: Callable[[User], Client], staff: User, project: Project, stranger: Project
) -> None:
    amy = User.objects.create_user("amy")
    grant_role(stranger, amy, Role.OWNER)
    staff.user_permissions.add(Permission.objects.get(codename="change_user"))
    page = f"/admin/auth/user/{amy.pk}/change/"
    assert "roles-TOTAL_FORMS" not in login(staff).get(page).content.decode()
    grant_role(project, staff, Role.OWNER)
    content = login(staff).get(page).content.decode()
    assert 'name="roles-INITIAL_FORMS" value="0"' in content
    assert f">{project.slug}</option>" in content
    assert stranger.slug not in content
    refused = login(staff).post(page, saved_user(amy, {"project": stranger.pk, "role": "viewer"}))
    assert "Select a valid choice" in refused.content.decode()


def test_page_of_a_user_has_links_to_password_and_second_factor(admin: Client, project: Project) -> None:
    group = Group.objects.create(name="readers")
    amy = User.objects.create_user("amy", password="a long password")
    amy.groups.add(group)
    grant_role(project, group, Role.ANALYST)
    page = f"/admin/auth/user/{amy.pk}/change/"
    content = admin.get(page).content.decode()
    assert f'href="/admin/auth/user/{amy.pk}/password/">Change password' in content
    assert "pbkdf2" not in content
    assert "Reset two-factor" not in content
    assert f'<div class="readonly">{project.slug}: analyst</div>' in content
    assert 'Groups and permissions <span class="quiet">readers</span>' in content
    assert '<noscript><p><a href="?add=membership#roles-heading">Add a role</a>' in content
    assert 'name="roles-TOTAL_FORMS" value="1"' in admin.get(f"{page}?add=membership").content.decode()
    assert re.findall('type="submit"[^>]* name="(_[a-z]+)"', content) == ["_save"]
    AuthenticatorApp.objects.create(user=amy, confirmed=True)
    form = admin.get(page).content.decode().partition("Reset two-factor")[0].rpartition("<form")[2]
    fields = {"action": "reset_two_factor", "_selected_action": str(amy.pk)}
    assert all(f'name="{name}" value="{value}"' in form for name, value in fields.items())
    admin.post("/admin/auth/user/", fields)
    assert not AuthenticatorApp.objects.exists()
    amy.is_superuser = True
    amy.save()
    assert "roles-TOTAL_FORMS" not in admin.get(page).content.decode()


def test_page_of_a_group_gives_roles_and_names_its_members(admin: Client, project: Project) -> None:
    group = Group.objects.create(name="readers")
    for number in range(7):
        User.objects.create_user(f"user{number}").groups.add(group)
    page = f"/admin/auth/group/{group.pk}/change/"
    form = {"name": "all readers", "roles-TOTAL_FORMS": 1, "roles-INITIAL_FORMS": 0}
    assert "user0, user1, user2, user3, user4, and 2 more" in admin.get(page).content.decode()
    assert admin.post(page, {**form, "roles-0-project": project.pk, "roles-0-role": "viewer"}).status_code == 302
    held = Membership.objects.get()
    assert (held.project, held.group, held.role) == (project, group, "viewer")
    assert f"{project.slug}: viewer" in admin.get("/admin/auth/group/").content.decode()
    entry = AuditEntry.objects.get(object_type="group", action="change")
    assert (entry.object_name, entry.detail["changes"]) == ("all readers", {"name": ["readers", "all readers"]})


def test_new_user_has_a_role_at_once_and_the_log_says_so(admin: Client, project: Project) -> None:
    page = admin.get("/admin/auth/user/add/").content.decode()
    assert 'name="roles-0-project"' in page and "LDAP" not in page
    password = "a long password"
    form = {"username": "dana", "password1": password, "password2": password}
    roles = {"roles-TOTAL_FORMS": 1, "roles-INITIAL_FORMS": 0, "roles-0-project": project.pk, "roles-0-role": "viewer"}
    twice = {"roles-TOTAL_FORMS": 2, "roles-1-project": project.pk, "roles-1-role": "owner"}
    assert (
        "Please correct the duplicate"
        in admin.post("/admin/auth/user/add/", {**form, **roles, **twice}).content.decode()
    )
    assert not User.objects.filter(username="dana").exists()
    assert admin.post("/admin/auth/user/add/", {**form, **roles}).status_code == 302
    dana = User.objects.get(username="dana")
    assert (dana.is_staff, dana.check_password(password), Membership.objects.get().user) == (True, True, dana)
    made, granted = AuditEntry.objects.filter(action__in=("create", "role_grant")).order_by("action")
    assert (made.action, made.object_id, made.object_name) == ("create", str(dana.pk), "dana")
    assert made.detail["changes"] == {"username": ["", "dana"]}
    assert granted.detail["changes"] == {"role": ["", "viewer"], "is_staff": ["false", "true"]}
    assert admin.post(f"/admin/auth/user/{dana.pk}/password/", {**form, "usable_password": "true"}).status_code == 302
    listed = strip_tags(admin.get("/admin/access_app/auditentry/?kind=settings").content.decode())
    assert "password, whose value is not recorded" in listed


@pytest.mark.usefixtures("permissions")
def test_new_group_has_a_role_and_only_permissions_that_count(admin: Client, project: Project) -> None:
    page = admin.get("/admin/auth/group/add/").content.decode()
    offered = set(re.findall(r"<option value=\"[0-9]+\">([^|<]*\|[^|<]*\|[^<]*)", page))
    assert offered and all(" | user | " in one or " | group | " in one for one in offered)
    roles = {"roles-TOTAL_FORMS": 1, "roles-INITIAL_FORMS": 0, "roles-0-project": project.pk, "roles-0-role": "viewer"}
    assert admin.post("/admin/auth/group/add/", {"name": "readers", **roles}).status_code == 302
    group = Group.objects.get()
    assert Membership.objects.get().group == group
    made = AuditEntry.objects.get(object_type="group", action="create")
    assert (made.object_id, made.object_name) == (str(group.pk), "readers")
    assert "nobody yet" in admin.get(f"/admin/auth/group/{group.pk}/change/").content.decode()


def test_list_of_users_asks_the_same_number_of_queries_for_many(admin: Client, project: Project) -> None:
    grant_role(project, User.objects.create_user("first"), Role.VIEWER)
    admin.get("/admin/auth/user/")
    few = len(statements_of(admin, "/admin/auth/user/"))
    for number in range(20):
        grant_role(project, User.objects.create_user(f"user{number}"), Role.VIEWER)
    assert len(statements_of(admin, "/admin/auth/user/")) == few


def test_only_owners_set_the_retention(login: Callable[[User], Client], staff: User, project: Project) -> None:
    for role, days in ((Role.EDITOR, None), (Role.OWNER, 5)):
        grant_role(project, staff, role)
        login(staff).post(f"{PROJECTS}{project.pk}/change/", sampled(retention_days="5"))
        project.refresh_from_db()
        assert project.retention_days == days

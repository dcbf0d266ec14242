"""Members of a project do what their role allows, there and nowhere else: API, admin, commands."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django import DjangoAssertNumQueries

from access_app.models import ApiKey, Membership, Project, Role
from access_app.roles import access_of, grant_role, revoke_role
from access_app.visibility import ALL_PROJECTS, ProjectScope
from tests.admin_pages import statements_of

PLAIN = pytest.mark.urls("tests.access_app.urls")
WHO, RESTORE = "/api/who/", "/api/restore/"


def allowed(user: User) -> dict[str, set[str]]:
    """The slugs of the projects in which the user has each role or a higher one."""
    slugs = dict(Project.objects.values_list("pk", "slug"))
    found = {}
    for role in Role:
        scope = access_of(user).scope(role)
        found[role.value] = {slugs[key] for key in (slugs if scope.project_ids is None else scope.project_ids)}
    return found


# --- Who has which role -------------------------------------------------------------------------------------


def test_role_includes_those_before_it(staff: User, project: Project, stranger: Project) -> None:
    assert allowed(staff) == {"viewer": set(), "analyst": set(), "editor": set(), "owner": set()}
    grant_role(project, staff, Role.EDITOR)
    grant_role(stranger, staff, Role.ANALYST)
    assert allowed(staff) == {
        "viewer": {"owner", "stranger"},
        "analyst": {"owner", "stranger"},
        "editor": {"owner"},
        "owner": set(),
    }
    grant_role(project, staff, Role.OWNER)
    assert allowed(staff) == {
        "viewer": {"owner", "stranger"},
        "analyst": {"owner", "stranger"},
        "editor": {"owner"},
        "owner": {"owner"},
    }
    assert revoke_role(project, staff)
    assert not revoke_role(project, staff)
    assert allowed(staff) == {"viewer": {"stranger"}, "analyst": {"stranger"}, "editor": set(), "owner": set()}


def test_highest_role_of_user_and_groups_counts(staff: User, project: Project) -> None:
    readers, writers = Group.objects.create(name="readers"), Group.objects.create(name="writers")
    staff.groups.add(readers, writers)
    grant_role(project, readers, Role.ANALYST)
    assert not access_of(staff).allows(Role.EDITOR, project.pk)
    grant_role(project, writers, Role.EDITOR)
    assert access_of(staff).allows(Role.EDITOR, project.pk)
    grant_role(project, staff, Role.ANALYST)
    assert access_of(staff).allows(Role.EDITOR, project.pk)
    staff.groups.clear()
    assert not access_of(staff).allows(Role.EDITOR, project.pk)


def test_only_active_staff_have_access(
    staff: User, superuser: User, project: Project, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    grant_role(project, staff, Role.OWNER)
    with django_assert_num_queries(1):
        assert access_of(staff).scope(Role.OWNER) == ProjectScope(frozenset({project.pk}))
    with django_assert_num_queries(0):
        assert access_of(superuser).scope(Role.OWNER) == ALL_PROJECTS
        assert not access_of(AnonymousUser()).allows(Role.ANALYST)
    for user, field in [(staff, "is_staff"), (staff, "is_active"), (superuser, "is_staff"), (superuser, "is_active")]:
        setattr(user, field, False)
        assert not access_of(user).allows(Role.ANALYST)
        setattr(user, field, True)


def test_membership_is_of_one_user_or_one_group(staff: User, project: Project) -> None:
    group = Group.objects.create(name="readers")
    for holder in ({}, {"user": staff, "group": group}):
        with pytest.raises(IntegrityError), transaction.atomic():
            Membership.objects.create(project=project, role=Role.ANALYST, **holder)


# --- REST ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "statuses"),
    [
        (None, {"GET": 403, "POST": 403, "PUT": 403, "PATCH": 403, "DELETE": 403, "restore": 403}),
        (Role.VIEWER, {"GET": 200, "POST": 403, "PUT": 403, "PATCH": 403, "DELETE": 403, "restore": 403}),
        (Role.ANALYST, {"GET": 200, "POST": 403, "PUT": 403, "PATCH": 403, "DELETE": 403, "restore": 403}),
        (Role.EDITOR, {"GET": 200, "POST": 200, "PUT": 200, "PATCH": 200, "DELETE": 200, "restore": 200}),
        (Role.OWNER, {"GET": 200, "POST": 200, "PUT": 200, "PATCH": 200, "DELETE": 200, "restore": 200}),
    ],
)
@PLAIN
def test_method_needs_its_role(
    login: Callable[[User], Client], staff: User, project: Project, role: Role | None, statuses: dict[str, int]
) -> None:
    if role is not None:
        grant_role(project, staff, role)
    client = login(staff)

    found = {
        method: client.generic(method, WHO, "{}", "application/json").status_code
        for method in statuses
        if method != "restore"
    }
    found["restore"] = client.post(RESTORE).status_code

    assert found == statuses


@PLAIN
def test_refusal_names_the_role_that_is_missing(login: Callable[[User], Client], staff: User, project: Project) -> None:
    grant_role(project, staff, Role.ANALYST)
    error = login(staff).post(WHO, {}, content_type="application/json").json()["error"]
    assert error["code"] == "missing_role"
    assert error["message"] == (
        "The role “editor” is required. An owner of the project or a superuser can give it to you."
    )


@PLAIN
def test_member_writes_only_where_the_role_allows(
    login: Callable[[User], Client], staff: User, project: Project, stranger: Project
) -> None:
    grant_role(project, staff, Role.EDITOR)
    grant_role(stranger, staff, Role.ANALYST)
    client = login(staff)

    with CaptureQueriesContext(connection) as queries:
        assert client.get(WHO).json()["projects"] == ["owner", "stranger"]
        assert client.post(WHO, {}, content_type="application/json").json() == {"project": "owner"}
    assert sum("access_app_membership" in query["sql"] for query in queries) == 2, "once for each request"
    assert client.post(WHO, {"project": "stranger"}, content_type="application/json").status_code == 404


# --- Admin --------------------------------------------------------------------------------------------------


def test_owner_manages_own_project_only(
    login: Callable[[User], Client], staff: User, project: Project, stranger: Project
) -> None:
    grant_role(project, staff, Role.OWNER)
    grant_role(stranger, staff, Role.ANALYST)
    client = login(staff)

    page = client.get(f"/admin/access_app/project/{project.pk}/change/").content.decode()
    assert 'name="memberships-0-role"' in page
    assert 'name="_save"' in page
    read_only = client.get(f"/admin/access_app/project/{stranger.pk}/change/").content.decode()
    assert "memberships-0" not in read_only
    assert 'name="_save"' not in read_only
    assert client.get("/admin/access_app/project/add/").status_code == 403

    form = client.get("/admin/access_app/apikey/add/").content.decode()
    assert f'<option value="{project.pk}"' in form
    assert f'<option value="{stranger.pk}"' not in form
    fields = {"name": "agent", "scopes": ["read"], "expires_on": ""}
    assert (
        "Select a valid choice"
        in client.post("/admin/access_app/apikey/add/", {**fields, "project": stranger.pk}).content.decode()
    )
    assert not ApiKey.objects.exists()
    client.post("/admin/access_app/apikey/add/", {**fields, "project": project.pk})
    assert ApiKey.objects.get().project == project


def test_owner_types_names_of_members(login: Callable[[User], Client], staff: User, project: Project) -> None:
    grant_role(project, staff, Role.OWNER)
    User.objects.create_user("evelyn")
    Group.objects.create(name="readers")
    client, url = login(staff), f"/admin/access_app/project/{project.pk}/change/"
    own = Membership.objects.get()

    page = client.get(url).content.decode()
    assert f"<bdi>{staff.username}</bdi>" in page
    assert "evelyn" not in page
    assert "readers" not in page

    fields = {
        "name": "",
        "sampling_tools": "{}",
        "retention_way": "exact",
        "memberships-TOTAL_FORMS": 2,
        "memberships-INITIAL_FORMS": 1,
        "masking_rules-TOTAL_FORMS": 0,
        "masking_rules-INITIAL_FORMS": 0,
        "memberships-0-id": own.pk,
        "memberships-0-project": project.pk,
        "memberships-0-user": staff.username,
        "memberships-0-role": "owner",
        "memberships-1-role": "analyst",
    }
    refused = client.post(url, {**fields, "memberships-1-user": "nobody"}).content.decode()
    assert "There is no user or group with this name." in refused
    assert client.post(url, {**fields, "memberships-1-user": "evelyn"}).status_code == 302
    assert access_of(User.objects.get(username="evelyn")).allows(Role.ANALYST, project.pk)
    assert Membership.objects.filter(pk=own.pk, user=staff, role="owner").exists()
    # Who has a saved role stays.
    added = Membership.objects.exclude(pk=own.pk).get()
    fields |= {"memberships-INITIAL_FORMS": 2, "memberships-1-id": added.pk, "memberships-1-project": project.pk}
    assert (
        client.post(url, {**fields, "memberships-1-group": "readers", "memberships-1-role": "editor"}).status_code
        == 302
    )
    assert Membership.objects.filter(pk=added.pk, user__username="evelyn", group=None, role="editor").exists()


def test_owner_gets_names_suggested_of_people_in_own_projects(
    login: Callable[[User], Client], staff: User, project: Project, stranger: Project
) -> None:
    grant_role(project, staff, Role.OWNER)
    grant_role(stranger, staff, Role.VIEWER)
    grant_role(stranger, User.objects.create_user("evelyn", first_name="Eve", last_name="<b>"), Role.VIEWER)
    grant_role(stranger, Group.objects.create(name="readers"), Role.VIEWER)
    Group.objects.create(name="foreign")
    url = f"/admin/access_app/project/{project.pk}/change/"

    def suggested(name: str) -> str:
        lists = set(re.findall(rf'<datalist id="memberships-\w+-{name}-suggestions">(.*?)</datalist>', page))
        assert len(lists) == 1
        return lists.pop()

    page = login(staff).get(url).content.decode()
    assert suggested("user") == '<option value="evelyn">Eve &lt;b&gt;</option>'
    assert suggested("group") == '<option value="readers"></option>'
    few = len(statements_of(login(staff), url))
    for number in range(9):
        grant_role(project, User.objects.create_user(f"user{number}"), Role.VIEWER)
    assert len(statements_of(login(staff), url)) == few


def members_of(project: Project, *rows: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a project with these rows of members, those that are stored first."""
    fields = {f"memberships-{number}-{name}": value for number, row in enumerate(rows) for name, value in row.items()}
    stored = sum("id" in row for row in rows)
    return {
        "name": "",
        "retention_way": "exact",
        "memberships-TOTAL_FORMS": len(rows),
        "memberships-INITIAL_FORMS": stored,
        "masking_rules-TOTAL_FORMS": 0,
        "masking_rules-INITIAL_FORMS": 0,
        **{f"memberships-{number}-project": project.pk for number in range(stored)},
        **fields,
    }


LAST_OWNER = "The project needs an owner: give somebody else this role first."


def test_last_owner_cannot_leave_a_project(
    login: Callable[[User], Client], staff: User, superuser: User, project: Project
) -> None:
    own = grant_role(project, staff, Role.OWNER)
    group = Group.objects.create(name="owners")
    shared = grant_role(project, group, Role.OWNER)
    gone = User.objects.create_user("gone", is_staff=True, is_active=False)
    grant_role(project, gone, Role.OWNER)
    evelyn = User.objects.create_user("evelyn")
    url = f"/admin/access_app/project/{project.pk}/change/"
    row = {"id": own.pk, "user": staff.username, "role": "owner"}
    same = {"id": shared.pk, "group": "owners", "role": "owner"}

    for change in ({"role": "viewer"}, {"DELETE": "on"}):
        page = login(staff).post(url, members_of(project, {**row, **change}, same)).content.decode()
        assert page.count(LAST_OWNER) == 1
        assert "The roles were not changed." in page
        assert access_of(staff).allows(Role.OWNER, project.pk)
    # Somebody of the group owns it.
    group.user_set.add(User.objects.create_user("gina", is_staff=True))
    assert login(staff).post(url, members_of(project, {**row, "role": "viewer"}, same)).status_code == 302
    group.user_set.clear()
    grant_role(project, staff, Role.OWNER)
    heir = {"user": "evelyn", "role": "owner"}
    assert login(staff).post(url, members_of(project, {**row, "DELETE": "on"}, heir)).status_code == 302
    assert access_of(User.objects.get(pk=evelyn.pk)).allows(Role.OWNER, project.pk)
    left = [{"id": one.pk, "role": "owner", "DELETE": "on"} for one in Membership.objects.all()]
    assert login(superuser).post(url, members_of(project, *left)).status_code == 302
    assert not Membership.objects.exists()


@pytest.mark.usefixtures("permissions")
def test_last_owner_cannot_leave_by_the_page_of_the_user(
    login: Callable[[User], Client], staff: User, project: Project, stranger: Project
) -> None:
    own = grant_role(project, staff, Role.OWNER)
    other = grant_role(stranger, staff, Role.OWNER)
    grant_role(stranger, User.objects.create_user("evelyn"), Role.OWNER)
    staff.user_permissions.add(*Permission.objects.filter(codename__in=("change_user", "view_user")))
    url = f"/admin/auth/user/{staff.pk}/change/"
    fields: dict[str, Any] = {
        "username": staff.username,
        "is_active": "on",
        "is_staff": "on",
        "user_permissions": list(staff.user_permissions.values_list("pk", flat=True)),
        "roles-TOTAL_FORMS": 2,
        "roles-INITIAL_FORMS": 2,
    }
    rows = sorted((own, other), key=lambda one: one.project.slug)
    for number, one in enumerate(rows):
        fields |= {f"roles-{number}-id": one.pk, f"roles-{number}-user": staff.pk, f"roles-{number}-role": "analyst"}

    assert login(staff).post(url, fields).content.decode().count(LAST_OWNER) == 1
    fields[f"roles-{rows.index(own)}-role"] = "owner"
    assert login(staff).post(url, fields).status_code == 302
    assert dict(Membership.objects.filter(user=staff).values_list("pk", "role")) == {
        own.pk: "owner",
        other.pk: "analyst",
    }


def test_analyst_sees_neither_keys_nor_members(login: Callable[[User], Client], staff: User, project: Project) -> None:
    grant_role(project, staff, Role.ANALYST)
    client = login(staff)
    assert client.get("/admin/access_app/apikey/").status_code == 403
    assert client.get("/admin/access_app/apikey/add/").status_code == 403
    assert client.get("/admin/access_app/project/").status_code == 200


def test_member_added_in_the_admin_can_log_in(
    login: Callable[[User], Client], superuser: User, project: Project
) -> None:
    user = User.objects.create_user("eve", password="x")
    client = login(superuser)

    client.post(
        f"/admin/access_app/project/{project.pk}/change/",
        {
            "name": "",
            "sampling_tools": "{}",
            "retention_way": "exact",
            "memberships-TOTAL_FORMS": 1,
            "memberships-INITIAL_FORMS": 0,
            "memberships-0-user": user.pk,
            "memberships-0-group": "",
            "memberships-0-role": "analyst",
            "masking_rules-TOTAL_FORMS": 0,
            "masking_rules-INITIAL_FORMS": 0,
        },
    )

    user.refresh_from_db()
    assert user.is_staff
    assert access_of(user).allows(Role.ANALYST, project.pk)


# --- Commands -----------------------------------------------------------------------------------------------


def run(*args: str) -> str:
    out = StringIO()
    call_command(*args, stdout=out)
    return out.getvalue()


def test_role_is_granted_listed_and_revoked_by_command(project: Project) -> None:
    eve = User.objects.create_user("eve")
    Group.objects.create(name="readers")

    assert (
        run("grant_role", "--project", "owner", "--user", "eve", "--role", "editor") == "eve is editor of owner now.\n"
    )
    assert run("grant_role", "--project", "owner", "--user", "eve", "--role", "analyst").startswith("eve is analyst")
    assert run("grant_role", "--project", "owner", "--group", "readers", "--role", "owner").startswith(
        "readers is owner"
    )
    eve.refresh_from_db()
    assert eve.is_staff
    assert [json.loads(line) for line in run("list_roles", "--json").splitlines()] == [
        {"project": "owner", "user": "eve", "group": None, "role": "analyst"},
        {"project": "owner", "user": None, "group": "readers", "role": "owner"},
    ]
    assert run("list_roles", "--project", "owner") == "owner  eve  analyst\nowner  group readers  owner\n"
    assert run("revoke_role", "--project", "owner", "--user", "eve") == "eve has no role in owner any more.\n"
    with pytest.raises(CommandError, match="eve has no role in owner. List the roles with: manage.py list_roles"):
        run("revoke_role", "--project", "owner", "--user", "eve")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--project", "nowhere", "--user", "eve"), "There is no project 'nowhere'"),
        (("--project", "owner", "--user", "eve"), "There is no user 'eve'"),
        (("--project", "owner", "--group", "eve"), "There is no group 'eve'"),
    ],
)
def test_unknown_name_in_command_is_refused(project: Project, args: tuple[str, ...], text: str) -> None:
    with pytest.raises(CommandError, match=text) as error:
        run("grant_role", *args, "--role", "analyst")
    assert error.value.returncode == 2

"""Projects and keys are made, listed and revoked from the command line."""

from __future__ import annotations

import json
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from access_app.keys import find_key
from access_app.models import ApiKey, AuditAction, AuditEntry, Project


def run(*args: str) -> str:
    """What the command writes to the standard output."""
    out = StringIO()
    call_command(*args, stdout=out, stderr=StringIO())
    return out.getvalue()


def test_create_project_makes_a_project(db: None) -> None:
    assert json.loads(run("create_project", "demo", "--name", "Demo", "--json")) == {
        "id": Project.objects.get().pk,
        "slug": "demo",
        "name": "Demo",
    }
    assert "create_api_key --project other" in run("create_project", "other")


@pytest.mark.parametrize(
    ("slug", "text"),
    [
        ("My Project", "'My Project' is not a slug: use letters, digits, - and _, such as my-project."),
        ("../x", "'../x' is not a slug: use letters, digits, - and _, such as x."),
        ("客服", "'客服' is not a slug: use letters, digits, - and _."),
        ("", "slug: This field cannot be blank."),
        ("a" * 65, "slug: Ensure this value has at most 64 characters (it has 65)."),
    ],
)
def test_create_project_invalid_slug_is_refused(db: None, slug: str, text: str) -> None:
    with pytest.raises(CommandError) as refused:
        run("create_project", slug)
    assert (str(refused.value), refused.value.returncode) == (text, 2)


def test_create_project_refuses_a_slug_that_is_taken(project: Project) -> None:
    with pytest.raises(CommandError, match="^Project 'owner' already exists.$"):
        run("create_project", "owner")


def test_retention_is_set_by_commands(db: None) -> None:
    run("create_project", "web", "--retention", "90", "--trash-days", "7", "--keep-tag", "golden", "--keep-tag", "a b")
    assert run("set_retention", "--project", "web") == (
        "Data of web: removed after 90 days. Trash: removed after 7 days. Sessions that are kept: tag golden, tag a b.\n"
    )
    assert not AuditEntry.objects.filter(action=AuditAction.CHANGE).exists()
    arguments = ("--trash-days=never", "--way=whole", "--keep-nothing", "--keep-score", "rating>=4", "--keep-pinned")
    assert run("set_retention", "--project", "web", *arguments) == (
        "Data of web: removed after 90 days, in whole periods. Trash: as TRACESITE_TRASH_DAYS says. Sessions that are kept: "
        "score rating>=4, pinned.\n"
    )
    assert "kept until somebody deletes it" in run("set_retention", "--project", "web", "--retention", "never")
    changes = AuditEntry.objects.filter(action=AuditAction.CHANGE, object_type="project", object_name="web")
    assert [entry.detail["retention_days"] for entry in changes.order_by("pk")] == [90, None]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--days", "0"), "argument --days/--retention: '0' is neither a number of days from 1 to 36500 nor 'never'"),
        (("--trash-days", "soon"), "argument --trash-days: 'soon' is neither"),
        (("--keep-status", "done"), "argument --keep-status: invalid choice: 'done'"),
        (("--way", "weekly"), "argument --way: invalid choice: 'weekly'"),
        (("--keep-score", "rating>4"), "keep_scores: Item 1 in the array did not validate: “rating>4” is not a score."),
        (("--keep-tag", ""), "keep_tags: Item 1 in the array did not validate: This field cannot be blank."),
    ],
)
def test_wrong_retention_changes_nothing(project: Project, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(CommandError) as refused:
        run("set_retention", "--project", "owner", "--days", "9", *arguments)
    assert said in str(refused.value)
    project.refresh_from_db()
    assert project.retention_days is None


def test_create_api_key_stdout_holds_only_the_token(project: Project) -> None:
    token = run("create_api_key", "--project", "owner", "--name", "agent").removesuffix("\n")

    key = find_key(token)
    assert key is not None
    assert (key.project, key.name, key.scopes, key.expires_at) == (project, "agent", ["read", "write", "delete"], None)


def test_create_api_key_answers_in_json(project: Project) -> None:
    answer = json.loads(
        run(
            "create_api_key",
            "--project",
            "owner",
            "--name",
            "a",
            "--scopes",
            "write, read",
            "--expires-days",
            "7",
            "--json",
        )
    )

    key = find_key(answer.pop("key"))
    assert key is not None
    assert key.expires_at is not None
    assert (key.expires_at - key.created_at).days in (6, 7)
    assert answer == {
        "id": key.pk,
        "project": "owner",
        "name": "a",
        "scopes": ["read", "write"],
        "expires_at": key.expires_at.isoformat(),
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--project", "nowhere", "--name", "a"), "There is no project 'nowhere'"),
        (("--project", "owner", "--name", " "), "needs a name"),
        (
            ("--project", "owner", "--name", "a", "--scopes", "read,admin"),
            "Invalid scopes: admin. Choose from: read",
        ),
        (("--project", "owner", "--name", "a", "--scopes", ","), "Invalid scopes: none. Choose from: read"),
        (
            ("--project", "owner", "--name", "a", "--expires-days", "0"),
            "--expires-days 0 is invalid. Use .* at least 1.",
        ),
        (("--project", "owner", "--name", "a", "--expires-days", "9999999999"), "too large"),
        (("--project", "owner", "--name", "a", "--masked"), "no other scope than read"),
    ],
)
def test_create_api_key_invalid_options_are_refused(project: Project, args: tuple[str, ...], message: str) -> None:
    with pytest.raises(CommandError, match=message) as error:
        run("create_api_key", *args)
    assert error.value.returncode == 2
    assert not ApiKey.objects.exists()


def test_list_api_keys_shows_everything_but_the_token(key: ApiKey, token: str, stranger: Project) -> None:
    expected: dict[str, Any] = {
        "id": key.pk,
        "project": "owner",
        "begins": token[:8],
        "name": "agent",
        "scopes": ["read", "write", "delete"],
        "masked": False,
        "networks": [],
        "per_minute": None,
        "status": "active",
        "created_at": key.created_at.isoformat(timespec="seconds"),
        "last_used_at": None,
        "expires_at": None,
        "revoked_at": None,
    }

    assert json.loads(run("list_api_keys", "--json")) == [expected]
    assert json.loads(run("list_api_keys", "--project", "stranger", "--json")) == []
    head, row = run("list_api_keys", "--project", "owner").splitlines()
    assert head.split() == list(expected)
    assert row.split() == [
        str(key.pk),
        "owner",
        token[:8],
        "agent",
        "read,write,delete",
        "False",
        "-",
        "-",
        "active",
        expected["created_at"],
        "-",
        "-",
        "-",
    ]
    assert run("list_api_keys", "--project", "stranger") == "No API keys.\n"
    with pytest.raises(CommandError, match="There is no project 'nowhere'"):
        run("list_api_keys", "--project", "nowhere")


@pytest.mark.parametrize("how", ["id", "prefix", "token"])
def test_revoke_api_key_accepts_id_prefix_or_token(key: ApiKey, token: str, how: str) -> None:
    given = {"id": str(key.pk), "prefix": key.prefix, "token": token}[how]

    assert run("revoke_api_key", given) == "Revoked the API key 'agent' of owner.\n"
    assert find_key(token) is None
    key.refresh_from_db()
    assert f"was already revoked at {key.revoked_at:%Y-%m-%d %H:%M:%S} UTC.\n" in run("revoke_api_key", given)


def test_revoke_api_key_ambiguous_prefix_is_refused(key: ApiKey, project: Project) -> None:
    twin = ApiKey.objects.create(project=project, name="twin", prefix=key.prefix, digest="0" * 64, scopes=["read"])

    with pytest.raises(CommandError, match=f"Use one of their ids: {key.pk}, {twin.pk}"):
        run("revoke_api_key", key.prefix)
    with pytest.raises(CommandError, match="No API key has this id or begins with 'ts_nope1'"):
        run("revoke_api_key", "ts_nope1")
    with pytest.raises(CommandError, match="'ts_' is too short: give the first 8 characters of the key, or its id."):
        run("revoke_api_key", "ts_")
    with pytest.raises(CommandError, match="No API key has this id") as error:
        run("revoke_api_key", "0")
    assert error.value.returncode == 2

"""Test Tracesite in a fresh Django project, set up as docs/django_project.md says, with its real server."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import psycopg
import pytest
from django.conf import settings
from psycopg import sql

from sdk.tests.length import at_length
from sdk.tests.paths import ROOT
from sdk.tests.ports import free_port
from tests.conftest import DATABASE_NAME

pytestmark = pytest.mark.system

IN_SETTINGS, ONE_DATABASE, URLS, OWN_DATABASE, ASGI, RECORDER = re.findall(
    r"```python\n(.*?)```", (ROOT / "docs" / "django_project.md").read_text(), re.DOTALL
)
PASSWORD = "a-password-of-the-tests"

PEOPLE = """
from django.contrib.auth.models import AbstractUser
from django.db import models

class Person(AbstractUser):
    email = models.EmailField(unique=True)
    USERNAME_FIELD = "email"
    REQUIRED_FIELDS = ["username"]
"""
"""Users of the project: its own model, who log in by their address."""
SET_UP = """
from django.core.management import call_command
call_command("check")
call_command("makemigrations", "people")
call_command("migrate", verbosity=0)
from django.db import connections
if "traces" in connections:
    call_command("migrate", database="traces", verbosity=0)
call_command("makemigrations", check_changes=True, dry_run=True)
call_command("createsuperuser", interactive=False, username="ada", email="ada@example.org")
call_command("create_project", "my-agents")
call_command("create_api_key", project="my-agents", name="shop")
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from access_app.models import Membership
from access_app.roles import access_of
from messages_app.models import SavedView
eve = get_user_model().objects.create_user(username="eve", email="eve@example.org", is_staff=True)
support = Group.objects.create(name="support")
support.user_set.add(eve)
call_command("grant_role", project="my-agents", group="support", role="viewer")
assert [str(role) for role in access_of(eve).roles.values()] == ["viewer"], "by the group"
call_command("grant_role", project="my-agents", user="eve@example.org", role="editor")
assert [str(role) for role in access_of(eve).roles.values()] == ["editor"]
call_command("list_roles")
SavedView.objects.create(owner=eve, name="of eve", list_name="messages_app.session", query="status=failed", shared=True)
"""
INSIDE = """
with recorder.session("inside"), recorder.message("Where is it?") as run:
    run.content = "On its way."
recorder.close()
from access_app.models import AuditEntry
recorded = set(AuditEntry.objects.values_list("detail__route", flat=True))
assert {{"sessions", "ingest", "admin:messages_app_session_change"}} <= recorded, recorded
assert "admin:auth_group_changelist" not in recorded
from django.core.management import call_command
from messages_app.models import Session
assert Session.with_deleted.filter(pk="{session}").exists()
call_command("purge", session="{session}", deleted_longer_than="0", yes=True)
assert not Session.with_deleted.filter(pk="{session}").exists()

from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.contenttypes.models import ContentType
users = get_user_model().objects
kinds = ContentType.objects.get_for_models(Session, Group)
for kind in kinds.values():
    LogEntry.objects.create(
        user=users.get(username="ada"), content_type=kind, object_repr="Of Alan Smithee", change_message="", action_flag=CHANGE
    )
call_command("erase", match="Alan Smithee", yes=True)
assert not LogEntry.objects.get(content_type=kinds[Session], object_id=None).object_repr

from access_app.models import Membership
from access_app.people import forget_gone
from messages_app.models import SavedView
users.get(username="eve").delete()
Group.objects.all().delete()
assert forget_gone() == {forgotten}
assert not Membership.objects.exists() and not SavedView.objects.exists()
"""


class Shop:
    """A project, and the commands and the server that run in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        packages = home / "packages"
        shutil.copytree(ROOT / "tracesite", packages / "tracesite", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("access_app", "messages_app", "traces_app"):
            (packages / name).symlink_to(ROOT / name)
        for name in ("templates", "locale"):  # as the wheel has them: see pyproject.toml
            (packages / "tracesite" / name).symlink_to(ROOT / name)
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TRACESITE", "DJANGO", "DATABASE"))
        }
        self.environ = {**clean, "PYTHONPATH": str(packages), "DJANGO_SUPERUSER_PASSWORD": PASSWORD}
        self._run("-m", "django", "startproject", "shop", ".")
        self.settings = home / "shop" / "settings.py"
        self.fresh = self.settings.read_text()

    def configure(self, *blocks: str) -> None:
        self.settings.write_text("\n".join([self.fresh, 'ALLOWED_HOSTS = ["127.0.0.1"]', *blocks]))

    def manage(self, *arguments: str, fails: bool = False) -> str:
        return self._run("manage.py", *arguments, fails=fails)

    def _run(self, *arguments: str, fails: bool = False) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.home,
            env=self.environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (done.returncode != 0) == fails, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def served(self) -> Iterator[str]:
        """Run the project's ASGI application; give its address."""
        port = free_port()
        log = (self.home / "server.log").open("w")
        command = [
            sys.executable,
            "-m",
            "gunicorn",
            "-k",
            "asgi",
            "-b",
            f"127.0.0.1:{port}",
            "--no-control-socket",
            "shop.asgi:application",
        ]
        server = subprocess.Popen(command, cwd=self.home, env=self.environ, stdout=log, stderr=log)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(120)
            log.close()


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


@pytest.fixture
def database() -> Iterator[dict[str, str]]:
    """An empty database for one project, as an entry of DATABASES without its engine."""
    name = f"{DATABASE_NAME}{os.environ['TEST_RUN_OF_TRACESITE']}_shop{os.getpid()}"
    given = settings.DATABASES["default"]
    place = {key: str(given[key]) for key in ("USER", "PASSWORD", "HOST", "PORT") if given.get(key)}
    if "host" in given["OPTIONS"]:  # the directory of a socket
        place["HOST"] = given["OPTIONS"]["host"]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        yield {"NAME": name, **place}
        server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


# The site itself is one PostgreSQL, so that of the two this shows less that no other test does.
@pytest.mark.parametrize("arrangement", [pytest.param("one PostgreSQL", marks=at_length), "SQLite and PostgreSQL"])
@pytest.mark.minutes
def test_project(shop: Shop, database: dict[str, str], arrangement: str) -> None:
    if arrangement == "one PostgreSQL":
        shop.configure(f"DATABASES = {{'default': {database}}}", IN_SETTINGS, ONE_DATABASE)
    else:  # which `startproject` has
        place = f"DATABASES['traces'] = {{**{database}, 'ENGINE': DATABASES['traces']['ENGINE']}}"
        shop.configure(IN_SETTINGS, OWN_DATABASE, place)
    key = set_up(shop)
    with shop.served() as address:
        walk(shop, address, key, forgotten=0 if arrangement == "one PostgreSQL" else 3)


def test_check_of_project_says_what_is_missing(shop: Shop) -> None:
    apps = re.findall(r'^    "([a-z_.]+)",$', IN_SETTINGS, re.MULTILINE)
    assert apps[:2] == ["tracesite", "traces_app"]
    optional = ("django.contrib.humanize", "django.contrib.postgres", "drf_spectacular_sidecar")
    shop.configure(f"INSTALLED_APPS += {[name for name in apps if name not in optional]}")
    said = shop.manage("check", fails=True)
    assert re.findall(r"tracesite\.([EW]\d+)", said) == ["E015", "E015", "E016", "E017", "E018", "E020", "E023", "W015"]
    for word in (*optional, "TracesiteAdminConfig", "TracesiteMiddleware", 'include("tracesite.urls")'):
        assert word in said, word


def set_up(shop: Shop) -> str:
    """Follow the document, with users of the project's own. Return an API key."""
    (shop.home / "people" / "migrations").mkdir(parents=True)
    (shop.home / "people" / "__init__.py").touch()
    (shop.home / "people" / "migrations" / "__init__.py").touch()
    (shop.home / "people" / "models.py").write_text(PEOPLE)
    shop.settings.write_text(
        shop.settings.read_text() + '\nINSTALLED_APPS.append("people")\nAUTH_USER_MODEL = "people.Person"\n'
    )
    (shop.home / "shop" / "urls.py").write_text(URLS)
    (shop.home / "shop" / "asgi.py").write_text(ASGI)
    # In one process: each takes seconds to load.
    done = shop.manage("shell", "--verbosity", "0", "--command", SET_UP)
    assert "no changes detected" in done.lower(), "the project's users need no migration of ours"
    return re.findall(r"ts_[\w-]+", done)[-1]


def walk(shop: Shop, address: str, key: str, *, forgotten: int) -> None:
    """Visit ingest, REST, the live part, the admin, a recorder in the process, and purge."""
    with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {key}"}) as agent:
        wait_for(agent)
        call = {"id": "1", "name": "look_up", "args": {"order": 7}, "result": {"output": "sent"}}
        messages = [
            {"external_id": "q", "role": "user", "content": "Where is my order?"},
            {"external_id": "a", "role": "assistant", "content": "On its way.", "steps": [{"tool_calls": [call]}]},
        ]
        sent = agent.post("/traces/api/v1/ingest/", json={"sessions": [{"external_id": "s", "messages": messages}]})
        assert sent.status_code == 200, sent.text
        session = sent.json()["sessions"][0]["id"]

        for route in (
            "sessions/",
            "messages/?tool=look_up",
            "tool-calls/",
            "tools/stats/",
            "search/?q=order",
            "schema/",
        ):
            assert agent.get(f"/traces/api/v1/{route}").status_code == 200, route
        missing = agent.get("/traces/api/v1/sessions/unknown/")
        assert missing.json()["error"]["code"] == "session_not_found", (
            "our errors, without the project's REST_FRAMEWORK"
        )
        assert httpx.get(f"{address}/traces/api/v1/sessions/").status_code == 401

        with agent.stream("GET", f"/traces/live/sse?session={session}") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert next(stream.iter_lines())
    visit_admin(address, session)
    with httpx.Client(base_url=address, timeout=60, headers={"Authorization": f"Bearer {key}"}) as agent:
        assert agent.delete(f"/traces/api/v1/sessions/{session}/").status_code == 204
        shop.manage(
            "shell", "--verbosity", "0", "--command", RECORDER + INSIDE.format(session=session, forgotten=forgotten)
        )
        assert agent.get("/traces/api/v1/sessions/inside/").status_code == 200, "recorded without HTTP"


def wait_for(client: httpx.Client) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            assert client.get("/traces/healthz").status_code == 200
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the server does not listen"
            time.sleep(0.1)


def visit_admin(address: str, session: str) -> None:
    with httpx.Client(base_url=address, timeout=60) as browser:
        form = browser.get("/admin/login/")
        token = re.findall(r'name="csrfmiddlewaretoken" value="(\w+)"', form.text)[0]
        entered = {"username": "ada@example.org", "password": PASSWORD, "csrfmiddlewaretoken": token}
        assert browser.post("/admin/login/", data=entered).status_code == 302
        pages = (
            "",
            "messages_app/session/",
            f"messages_app/session/{session}/change/",
            f"messages_app/session/{session}/change/?tab=events",
            "messages_app/message/",
            "traces_app/toolcall/",
            "traces_app/tool/statistics/",
            "access_app/project/",
            "access_app/project/1/change/",
            "traces_app/maskingrun/1/",
            "access_app/apikey/",
            "access_app/auditentry/",
        )
        for page in pages:
            shown = browser.get(f"/admin/{page}")
            assert shown.status_code == 200, page
            assert "default-src 'none'" in shown.headers["content-security-policy"], page
            links = re.findall(r'(?:href|src|action|data-url)="(/[^"]*)"', shown.text)
            assert [link for link in links if not link.startswith(("/admin/", "/static/", "/traces/"))] == [], page
        of_the_project = browser.get("/admin/auth/group/")
        assert of_the_project.status_code == 200
        assert "content-security-policy" not in of_the_project.headers

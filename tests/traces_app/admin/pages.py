"""The pages of the admin, each with data, for tests that look at every page.

What is missing fails in test_every_admin: a page that is added has to be listed here.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.utils import timezone

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import AuditEntry, Project, Role, Scope
from access_app.roles import grant_role
from messages_app import writes
from messages_app.models import Message, SavedView, Session
from tests.traces_app.conftest import answer, question, store
from traces_app.ingest.scores import PlacedScore, ScoreTarget, store_scores
from traces_app.maintenance.jobs import JOBS, run_job
from traces_app.maintenance.search_index import index_changed
from traces_app.models import AgentStep, MaskingRun, ModelPrice, Score, Snapshot, Tool, ToolCall
from traces_app.spans.deliveries import record_spans
from tracesite.samples.loader import load_samples
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_score
from tracesite_sdk.redaction.rules import DEFAULT_RULES
from tracesite_sdk.spans.span import Span

OURS = ("access_app", "messages_app", "traces_app", "tracesite")
NOWHERE = "/admin/nowhere/"
NO_PAGES = frozenset(
    [
        # JSON, files, and parts of a page.
        *("outline", "words", "detail", "search", "similar_calls", "value", "export", "arrived", "facets", "peek"),
        # It leads to the events on the page of the session.
        "live",
        # Only POST, which leads to another page.
        *("judge", "mark", "undo", "columns", "save_view"),
        # It answers the form of a project.
        "try",
    ]
)
"""The last words of the names of URLs that show nothing themselves."""

FROM_BASE = frozenset(["add", "delete", "history", "saved_view"])
"""Pages that Django or KeysetAdmin gives every admin: the list of pages has one of each."""

MARKDOWN = """# Weather

**31** degrees, `no` rain, see [the map](https://example.com/).

1. one
   - two

> quoted

| city | °C |
|------|---:|
| Oslo | 20 |

```python
def degrees(city: str) -> int:  # by name
    return 31 if city == "上海" else 20
```

```diff
-old
+new
```"""
"""Every kind of block, and every colour of code."""


def admins() -> Iterator[Any]:
    """Yield the admins of ours."""
    for model in apps.get_models():
        if admin.site.is_registered(model):
            found = admin.site.get_model_admin(model)
            if type(found).__module__.split(".")[0] in OURS:
                yield found


def url_words(model_admin: Any) -> list[str]:
    """Return the last words of the names of the URLs of an admin."""
    opts = model_admin.opts
    names = [url.name for url in model_admin.get_urls() if getattr(url, "name", None)]
    return [name.removeprefix(f"{opts.app_label}_{opts.model_name}_") for name in names]


def stored_pages(owner: User) -> list[str]:
    """Store something for every page, and return the paths of the pages. The first ones are home and the lists."""
    project = Project.objects.create(slug="demo", name="Demo")
    load_samples(primary, project)
    asked = {"messages": [{"role": "user", "content": "Which?"}], "system": "Be brief.", "tools": [{"name": "search"}]}
    steps = answer()["agent_steps"]
    steps[0] |= {"model": "gpt-5", "agent_name": "researcher", "input": asked, "thought": MARKDOWN}
    call = {"id": "call_a", "name": "get_weather", "args": {"city": "Oslo"}, "result": {"output": "20 °C"}}
    otherwise = {"iteration": 0, "thought": "Ask for one city.", "tool_calls": [call]}
    reference = {"id": "r", "content": "A passage.", "knowledge_title": "Atlas"}
    shown = store(
        project,
        question(),
        answer(agent_steps=steps, knowledge_references=[reference]),
        answer(external_id="a2", content=MARKDOWN, agent_steps=[otherwise]),
        {"external_id": "s", "role": "system", "content": "Be brief."},
        {"external_id": "a3", "role": "assistant", "content": "", "is_completed": False},
        external_id="weather",
        title="The weather",
        end_user="ada",
        tags=["weather"],
    )
    session, run, other, running = shown.id, *(shown.messages[place].id for place in (1, 2, 4))
    assert session is not None
    for place in (ScoreTarget(session_id=session), ScoreTarget(session_id=session, message_id=run)):
        score = records.Score(name="helpful", value=True, comment="Good.", author="ada")
        store_scores(primary, project.pk, [PlacedScore(redacted=redact_score(score, DEFAULT_RULES), place=place)])
    deleted = store(project, question(), external_id="deleted", title="Was deleted").id
    assert deleted is not None
    writes.delete_session(primary, deleted, by="ada")
    answered = store(project, question(), external_id="answered", title="Answered").messages[0].id
    assert answered is not None
    writes.delete_message(primary, answered, by="ada")
    key, _token = create_key(project, "Agents", Scope.values)
    view = SavedView.objects.create(
        owner=owner, name="Sessions that wait", list_name="messages_app.session", query="status=paused"
    )
    SavedView.objects.create(
        owner=User.objects.create_superuser("bob"),
        name="Broken",
        list_name="messages_app.session",
        query="has_errors=yes",
        shared=True,
    )
    index_changed(primary, patience=timedelta(0))
    kept = Snapshot.objects.filter(session_id__isnull=False).earliest("pk")
    for number, attributes in enumerate([{"gen_ai.operation.name": "chat", "gen_ai.completion": "31"}, {}], 1):
        began = 1_790_000_000 * 10**9
        ids: Any = {"trace_id": f"{number:032x}", "span_id": f"{number:016x}", "parent_id": "", "name": "chat"}
        record_spans(primary, project.pk, [Span(**ids, start=began, end=began + 10**9, attributes=attributes)])
    spanned = Message.objects.get(request_id=f"{1:032x}")
    unread = Session.objects.get(external_id=f"{2:032x}")
    group = Group.objects.create(name="readers")
    grant_role(project, group, Role.VIEWER)
    price = ModelPrice.objects.create(model="gpt-5", input=1, output=2, as_of=date(2026, 1, 1))
    run_job(primary, next(job for job in JOBS if job.name == "purge"))
    MaskingRun.objects.create(project=project, rules=[], requested_by=owner, requested_at=timezone.now())
    failed = ToolCall.objects.get(message_id=run, status="error")
    tool = Tool.objects.get(project=project, name="get_weather")
    step = AgentStep.objects.filter(message_id=run).earliest("iteration")
    messages, sessions, calls = (
        "/admin/messages_app/message",
        "/admin/messages_app/session",
        "/admin/traces_app/toolcall",
    )
    return [
        *(f"{sessions}/import/", f"{sessions}/connect/", f"{sessions}/everything/?q=weather"),
        *("/admin/?created=30d", f"{sessions}/", f"{messages}/", f"{calls}/"),
        *(f"{sessions}/?status=paused", f"{sessions}/views/{view.pk}/"),
        *(f"{sessions}/?q=weather", f"{calls}/?status=error&q=unknown", f"{messages}/?q=nothing"),
        *(f"{sessions}/{session}/change/", f"{calls}/{failed.pk}/change/", f"{messages}/{running}/change/"),
        *(f"{messages}/{run}/change/?call={failed.pk}", f"{messages}/{run}/change/?view=time"),
        *(f"{messages}/{run}/change/?view=text", f"{messages}/{run}/steps/{step.pk}/input/"),
        *(f"{messages}/{run}/change/?call={step.pk}&tab=input", f"{messages}/{spanned.pk}/change/?tab=spans"),
        *(f"{messages}/{run}/compare/", f"{messages}/{run}/compare/?other={other}"),
        *(f"{messages}/{run}/similar/", f"{messages}/{run}/similar/?by=errors"),
        *("/admin/traces_app/tool/", "/admin/traces_app/tool/statistics/?created_after=2026-01-01"),
        *(f"{calls}/errors/?created_after=2026-01-01", f"{sessions}/user/?end_user=ada"),
        f"/admin/traces_app/tool/{tool.pk}/change/?created_after=2026-01-01",
        *(f"{sessions}/trash/", f"{sessions}/{deleted}/change/", f"{sessions}/{deleted}/restore/"),
        *(f"{messages}/trash/", f"{messages}/{answered}/restore/", f"{messages}/{answered}/purge/"),
        *(f"{sessions}/{deleted}/purge/", f"{sessions}/{session}/history/", f"{sessions}/{session}/change/?tab=events"),
        *(f"{sessions}/{kept.session_id}/snapshots/", f"{sessions}/{kept.session_id}/snapshots/{kept.pk}/"),
        *(f"{sessions}/{unread.pk}/spans/", f"{messages}/{spanned.pk}/spans/"),
        *("/admin/traces_app/score/", f"/admin/traces_app/score/{Score.objects.latest('pk').pk}/change/"),
        *(
            "/admin/access_app/auditentry/",
            f"/admin/access_app/auditentry/{AuditEntry.objects.latest('pk').pk}/change/",
        ),
        *("/admin/traces_app/jobrun/", "/admin/traces_app/modelprice/", "/admin/traces_app/modelprice/add/"),
        f"/admin/traces_app/modelprice/{price.pk}/change/",
        *("/admin/access_app/apikey/", "/admin/access_app/apikey/add/", f"/admin/access_app/apikey/{key.pk}/change/"),
        *("/admin/access_app/project/", f"/admin/access_app/project/{project.pk}/change/"),
        f"/admin/traces_app/maskingrun/{project.pk}/",
        *(
            "/admin/auth/user/",
            "/admin/auth/user/add/",
            f"/admin/auth/user/{owner.pk}/change/",
            "/admin/auth/group/",
            f"/admin/auth/group/{group.pk}/change/",
            "/admin/password_change/",
            "/admin/time-zone/",
            "/admin/settings/",
        ),
        *(f"{sessions}/{session}/delete/", f"{messages}/add/", NOWHERE),
    ]

"""The page of a project's masking rules: the preview, and applying them in the background."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from access_app.db import primary
from access_app.masking import compiled, save_rule
from access_app.models import AuditEntry, Project, Role
from access_app.roles import grant_role
from messages_app.models import Message
from tests.admin_pages import html_of, links_of, text_of
from tests.traces_app.conftest import counted_in, store
from traces_app.admin import masking_page
from traces_app.maintenance.masking_runs import continue_runs
from traces_app.models import MaskingRun

TRIED = {"rule": "+", "kind": "pattern", "value": r"EMP-\d{6}", "preview": "yes"}
APPLIED = {"rule": "staff", "sure": "owner", "apply": "yes"}


@pytest.fixture
def owner(project: Project) -> Client:
    client = Client()
    user = User.objects.create_user("olga", is_staff=True)
    grant_role(project, user, Role.OWNER)
    client.force_login(user)
    return client


@pytest.fixture
def page(project: Project) -> str:
    return f"/admin/traces_app/maskingrun/{project.pk}/"


def applied(client: Client, page: str) -> dict[str, str]:
    """Return what the page sends to apply the rule that it has previewed."""
    content = html_of(client.post(page, {"rule": "staff", "preview": "yes"}))
    (previewed,) = re.findall(r'name="previewed" value="(\w+)"', content)
    assert '<input type="hidden" name="rule" value="staff">' in content
    return {**APPLIED, "previewed": previewed}


def said(text: str, number: int = 0) -> dict[str, Any]:
    return {"external_id": f"m{number}", "role": "user", "content": text}


def statements(client: Client, page: str, fields: dict[str, str]) -> tuple[HttpResponse, int]:
    with CaptureQueriesContext(connection) as queries:
        answer = client.post(page, fields)
    return answer, len(counted_in(queries))


def test_preview_shows_places_and_changes_nothing(owner: Client, project: Project, page: str) -> None:
    project_page = owner.get(f"/admin/access_app/project/{project.pk}/change/")
    assert links_of(project_page)["Masking of stored traces"] == page
    assert "has no rule for new data" in text_of(owner.post(page, {"rule": "", "preview": "yes"}))
    call = {"name": "get_user", "args": {}, "result": {"status": "success", "output": "found EMP-471195"}}
    steps = [{"tool_calls": [call]}]
    asked = said("<script>alert(1)</script> by EMP-471193 and EMP-471194")
    answered = {"external_id": "a", "role": "assistant", "content": "yes", "agent_steps": steps}
    store(project, asked, answered, title="Staff of EMP-471196")
    answer, few = statements(owner, page, TRIED)
    text = text_of(answer)
    assert "another rule 4 values in 2 messages · 1 session" in text
    assert "The whole project was read: 2 messages and 1 session with what belongs to them" in text
    assert "Staff of EMP-471196 Run Output of get_user another rule found EMP-471195 found [redacted]" in text
    assert "Staff of EMP-471196 Session Title another rule" in text
    chinese = text_of(owner.post(page, TRIED, headers={"Accept-Language": "zh-hans"}))
    assert "运行 get_user 的输出" in chinese
    run = Message.objects.get(role="assistant")
    assert f'<a href="/admin/messages_app/message/{run.pk}/change/">' in html_of(answer)
    assert f'<a href="/admin/messages_app/session/{run.session_id}/change/">' in html_of(answer)
    assert "by EMP-471193 and EMP-471194" in text
    assert "by [redacted] and [redacted]" in text
    assert "<script>alert" not in html_of(answer)
    assert "EMP-" in Message.objects.get(role="user").content
    store(project, *[said(f"EMP-{number}", number) for number in range(100_000, 100_098)], title="other")
    answer, many = statements(owner, page, TRIED)
    assert "Only the first changes are shown." in text_of(answer)
    assert many <= few <= 40
    entry = AuditEntry.objects.filter(object_type="maskingrun").latest("pk")
    assert (entry.action, entry.project_id, entry.actor_name) == ("list", project.pk, "olga")
    assert not MaskingRun.objects.exists()


def test_preview_says_what_it_had_no_time_to_read(
    owner: Client, project: Project, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(project, *[said(f"EMP-{number}", number) for number in range(100_000, 100_150)])
    assert "another rule 150 values in 150 messages" in text_of(owner.post(page, TRIED))
    monkeypatch.setattr(masking_page, "SECONDS", 0)
    text = text_of(owner.post(page, TRIED))
    assert "another rule 100 values in 100 messages" in text
    assert "Not everything was read in 0 seconds: 100 messages, the newest ones, back to 20" in text
    assert "Applying removes from the rest, too, which is not counted here." in text


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({**TRIED, "value": ""}, "This is needed to try another rule."),
        ({**TRIED, "value": "(?=x)"}, "Not a valid pattern: (?= looks at"),
        ({**TRIED, "rule": "gone"}, "Select a valid choice"),
        ({**TRIED, "kind": "word"}, "Select a valid choice"),
        ({**TRIED, "value": "x" * 501}, "at most 500 characters"),
        ({**APPLIED, "sure": ""}, "Type owner to apply the rules."),
        ({**APPLIED, "sure": "stranger"}, "Type owner to apply the rules."),
        ({**TRIED, "apply": "yes", "sure": "owner"}, "Select a valid choice"),
    ],
)
def test_bad_choices_are_named(owner: Client, project: Project, page: str, fields: dict[str, str], error: str) -> None:
    save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    assert error in text_of(owner.post(page, fields))
    assert not MaskingRun.objects.exists()


def test_what_was_previewed_is_applied(owner: Client, project: Project, page: str) -> None:
    save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    assert "Preview stored rules first" in text_of(owner.get(page))
    save_rule(project, "other", "pattern", r"NR-\d{3}")
    assert 'name="sure"' not in html_of(owner.post(page, TRIED))
    fields = applied(owner, page)
    save_rule(project, "staff", "pattern", r"EMP-\d{7}")
    for sent in (APPLIED, fields, {**fields, "rule": ""}):
        assert "These rules were not previewed as they are now." in text_of(owner.post(page, sent))
    assert not MaskingRun.objects.exists()
    assert owner.post(page, applied(owner, page)).status_code == 302
    assert MaskingRun.objects.get().rules == [["staff", "pattern", r"EMP-\d{7}"]]
    assert 'aria-current="true">Projects</a>' in html_of(owner.get(page))


def edited(text: str, *rules: dict[str, Any]) -> dict[str, Any]:
    """Return the form of a project as its page sends it, with these rules and a text to try them on."""
    rows = {
        f"masking_rules-{number}-{name}": value for number, rule in enumerate(rules) for name, value in rule.items()
    }
    held = sum("id" in rule for rule in rules)
    return {"text": text, "masking_rules-TOTAL_FORMS": len(rules), "masking_rules-INITIAL_FORMS": held, **rows}


def test_edited_rules_are_tried_on_a_text_and_not_stored(owner: Client, project: Project, page: str) -> None:
    def tried(text: str, *rules: dict[str, Any]) -> str:
        return text_of(owner.post(f"{page}try/", edited(text, *rules))).partition("Try masking rules")[2]

    stored = save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    rule = {"id": stored.pk, "name": "staff", "kind": "pattern", "value": r"NR-\d{3}", "when": "store", "enabled": "on"}
    new = {"name": "mail", "kind": "preset", "value": "email", "when": "read", "enabled": "on"}
    text = "<b>NR-123</b> EMP-471193 ann@example.org"
    assert tried(text, rule) == " It is stored as staff 1 <b> [redacted] </b> EMP-471193 ann@example.org"
    assert tried(text, rule, new) == (
        " It is stored as staff 1 <b> [redacted] </b> EMP-471193 ann@example.org"
        " A viewer reads mail 1 staff 1 <b> [redacted] </b> EMP-471193 [redacted]"
    )
    assert "It is stored as nothing is removed" in tried(text, {**rule, "DELETE": "on"})
    assert "It is stored as nothing is removed" in tried(text, {**rule, "enabled": ""})
    place = {"name": "name", "kind": "path", "value": "args.customer.name", "when": "store", "enabled": "on"}
    assert '"name": " [redacted] "' in tried('{"args": {"customer": {"name": "安娜"}}}', place)
    assert "staff, Value: Not a valid pattern: (?= looks at" in tried(text, {**rule, "value": "(?=x)"})
    assert "Rule 2, Kind: This field is required." in tried(text, rule, {**new, "name": "", "kind": ""})
    assert "A viewer reads Rule 2 1 staff 1 <b>" in tried(text, rule, {**new, "name": ""})
    assert "The text may have 50,000 characters." in tried("x" * 50_001, rule)
    assert "<b>NR" not in html_of(owner.post(f"{page}try/", edited(text)))
    assert list(project.masking_rules.values_list("name", "value")) == [("staff", r"EMP-\d{6}")]
    assert f'formaction="{page}try/"' in html_of(owner.get(f"/admin/access_app/project/{project.pk}/change/"))


@pytest.mark.django_db(transaction=True)
def test_rules_are_applied_in_the_background(owner: Client, project: Project, page: str) -> None:
    store(project, said("by EMP-471193"), title="of EMP-471194")
    save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    assert "will be applied in the background" in text_of(owner.post(page, applied(owner, page), follow=True))
    assert "being applied to this project already" in text_of(owner.post(page, applied(owner, page)))
    assert "waiting" in text_of(owner.get(page))
    assert "EMP-" in Message.objects.get().content

    # Interrupted after a batch, it goes on after the message that it has reached.
    continue_runs(primary, is_stopped=lambda: True)
    run = MaskingRun.objects.get()
    assert (run.read, run.changed, run.reached, run.finished_at) == (1, 1, Message.objects.get().pk, None)
    assert continue_runs(primary).finished == 1
    assert vars(continue_runs(primary)) == {"read": 0, "changed": 0, "finished": 0}
    message = Message.objects.select_related("session").get()
    assert (message.content, message.session.title) == ("by [redacted]", "of [redacted]")
    assert text_of(owner.get(page)).endswith("olga staff completed 2 2 staff: 2 values")
    entries = AuditEntry.objects.filter(project=project, detail__has_key="masked").values_list(
        "object_type", "actor_kind", "actor_name"
    )
    assert set(entries) == {("message", "user", "olga"), ("session", "user", "olga")}
    asked = AuditEntry.objects.get(object_type="maskingrun", action="change", result="allowed")
    assert asked.object_id == str(run.pk)


@pytest.mark.django_db(transaction=True)
def test_rule_that_is_no_longer_allowed_ends_its_run(owner: Client, project: Project, page: str, settings: Any) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = ["os.path.basename"]
    save_rule(project, "staff", "function", "os.path.basename")
    owner.post(page, applied(owner, page))
    settings.TRACESITE_MASKING_FUNCTIONS = []
    compiled.cache_clear()  # of another process
    assert continue_runs(primary).finished == 1
    assert "failed This function is not allowed." in text_of(owner.get(page))


def test_owners_of_other_projects_do_not_find_it(owner: Client, stranger: Project) -> None:
    page = f"/admin/traces_app/maskingrun/{stranger.pk}/"
    assert owner.get(page).status_code == owner.post(page, APPLIED).status_code == 404
    assert owner.post(f"{page}try/", edited("x")).status_code == 404

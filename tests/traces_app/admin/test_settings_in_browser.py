"""The forms of settings and of the import in a real browser: what their scripts do, and the buttons of rows."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Browser, expect

from access_app.keys import create_key
from access_app.masking import save_rule
from access_app.models import Project
from messages_app.models import Session
from tests.chromium import needs_chromium
from tests.traces_app.admin.test_admin_in_browser import session_key

pytestmark = [pytest.mark.system, needs_chromium]
__all__ = ["session_key"]  # a fixture


def test_edited_rules_are_tried_and_shares_added_without_leaving_the_form(
    session_key: str, browser: Browser, live_server: Any
) -> None:
    project = Project.objects.create(slug="owner", sampling_tools={"search": 0.5})
    save_rule(project, "staff", "pattern", r"EMP-\d{6}")
    page_url = f"/admin/access_app/project/{project.pk}/change/"
    with browser.new_context(base_url=live_server.url, locale="en") as context:
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": live_server.url}])
        page = context.new_page()
        page.goto(page_url)
        page.locator("[name=masking_rules-0-value]").fill(r"NR-\d{3}")
        page.get_by_label("Text to try").fill("<b>NR-123</b> EMP-471193")
        page.get_by_role("button", name="Try", exact=True).click()
        expect(page.locator("#trial pre")).to_have_text("<b>[redacted]</b> EMP-471193")
        expect(page.locator("#trial mark")).to_have_count(1)
        expect(page.locator("[name=masking_rules-0-value]")).to_have_value(r"NR-\d{3}")
        assert page.url.endswith(page_url)

        page.get_by_text("Recorder sampling").click()
        tools, shares = page.locator("[name=sampling_tools_tool]"), page.locator("[name=sampling_tools_share]")
        expect(tools).to_have_count(3)
        for line, (tool, share) in enumerate([("poll", "0.1"), ("list", "0")], 1):
            tools.nth(line).fill(tool)
            shares.nth(line).fill(share)
        expect(tools).to_have_count(4)
        page.get_by_role("button", name="Add a member").click()
        expect(page.locator("[name=memberships-0-role]")).to_be_visible()
        page.locator("[name=memberships-0-role]").locator("xpath=ancestor::tr").get_by_role("button").click()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("was changed successfully")).to_be_visible()
    project.refresh_from_db()
    assert project.sampling_tools == {"search": 0.5, "poll": 0.1, "list": 0}


def test_checked_files_stay_chosen_for_their_import(session_key: str, browser: Browser, live_server: Any) -> None:
    Project.objects.create(slug="owner")
    talk = b'[{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "31"}]'
    with browser.new_context(base_url=live_server.url, locale="en") as context:
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": live_server.url}])
        page = context.new_page()
        page.goto("/admin/messages_app/session/import/")
        said = page.locator("#import-result [role=status]")
        page.get_by_role("button", name="Only check").click()
        expect(said).to_have_count(0)  # no file is chosen
        page.set_input_files("#id_file", [{"name": "talk.json", "mimeType": "application/json", "buffer": talk}])
        page.get_by_role("button", name="Only check").click()
        expect(said).to_contain_text("1 session · 2 messages. Nothing was stored.")
        assert not Session.objects.exists()
        page.get_by_role("button", name="Import", exact=True).click()
        expect(said).to_contain_text("1 session · 2 messages. Sessions have the dates")
    assert Session.objects.get().title == "Weather?"


def test_key_is_revoked_from_its_row_after_a_question(session_key: str, browser: Browser, live_server: Any) -> None:
    project = Project.objects.create(slug="owner")
    kept, key = (create_key(project, name, ["read"])[0] for name in ("kept", "lost laptop"))
    with browser.new_context(base_url=live_server.url, locale="en") as context:
        context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": session_key, "url": live_server.url}])
        page = context.new_page()
        page.goto("/admin/access_app/apikey/")
        page.get_by_role("button", name=f"Revoke {key}").click()
        expect(page.get_by_text("A revoked key cannot be restored.")).to_be_visible()
        expect(page.get_by_role("main").get_by_role("listitem")).to_have_text([f"{key} (owner)"])
        page.get_by_role("button", name="Revoke").click()
        expect(page.get_by_text("1 API key was revoked.")).to_be_visible()
        expect(page.get_by_role("button", name="Revoke ")).to_have_count(1)
    for row, status in ((kept, "active"), (key, "revoked")):
        row.refresh_from_db()
        assert row.status() == status

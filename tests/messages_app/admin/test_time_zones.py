"""The time zone of the reader: chosen on a page, shown beside times, used for times that are entered; data stay in UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.models import Project
from access_app.visibility import ALL_PROJECTS
from messages_app.admin.time_zones import COOKIE, entered
from messages_app.models import Session
from tests.admin_pages import html_of, rows_of, text_of
from traces_app.ingest.pipeline import ingest
from traces_app.queries import overview
from tracesite_sdk import records

SESSIONS = "/admin/messages_app/session/"
ZONES = "/admin/time-zone/"
KOLKATA = "Asia/Kolkata"  # UTC+05:30
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def session(project: Project) -> Session:
    message = records.Message(role="assistant", external_id="m", content="Hello", created_at=NOON)
    stored = ingest(primary, project.pk, [records.Session(external_id="s", created_at=NOON, messages=[message])])[0]
    return Session.objects.get(pk=stored.id)


def test_zone_is_chosen_and_kept(staff: Client, session: Session) -> None:
    page = text_of(staff.get(f"{ZONES}?next={SESSIONS}"))
    assert "The admin shows times in UTC, where it is" in page and "UTC ✓" in page
    response = staff.post(ZONES, {"zone": KOLKATA, "next": SESSIONS}, follow=True)
    assert response.redirect_chain == [(SESSIONS, 302)]
    html = html_of(response)
    assert f"Times are shown in the zone {KOLKATA} from now on." in text_of(response)
    assert f'<a href="{ZONES}?next=%2Fadmin%2Fmessages_app%2Fsession%2F">Time zone <bdi>{KOLKATA}</bdi></a>' in html
    page = html_of(staff.get(f"{SESSIONS}{session.pk}/change/"))
    assert (
        '<time datetime="2026-03-01T12:00:00+00:00" title="2026-03-01 12:00:00 UTC">2026-03-01 17:30:00</time>' in page
    )
    assert "From (Asia/Kolkata)" in text_of(response)
    assert "UTC ✓" not in text_of(staff.get(ZONES))
    assert staff.cookies[COOKIE]["max-age"] == 31_536_000
    staff.post(ZONES, {"zone": "UTC"})
    assert "From (UTC)" in text_of(staff.get(SESSIONS))


def test_zone_is_named_on_pages_in_chinese(staff: Client, session: Session) -> None:
    staff.cookies[COOKIE], staff.cookies["django_language"] = KOLKATA, "zh-hans"
    page = text_of(staff.get(f"{SESSIONS}{session.pk}/change/"))
    assert "开始时间（Asia/Kolkata） 2026-03-01 17:30:00" in page
    assert "从（Asia/Kolkata）" in text_of(staff.get(SESSIONS))


@pytest.mark.parametrize("zone", ["Nowhere/City", "../../etc/passwd", "/etc/localtime", "Europe", "\x00", "A" * 65, ""])
def test_unknown_zone_is_refused_and_never_used(staff: Client, zone: str) -> None:
    assert 'id="zone-error"' in html_of(staff.post(ZONES, {"zone": zone}))
    assert COOKIE not in staff.cookies
    staff.cookies[COOKIE] = zone.replace("\x00", "")
    assert "(UTC)" in text_of(staff.get(SESSIONS))


@pytest.mark.parametrize(
    ("following", "location"),
    [("https://example.org/", "/admin/"), ("//example.org/", "/admin/"), ("a%0d:b", "a%0d:b")],
)
def test_zone_page_returns_only_to_this_site(staff: Client, following: str, location: str) -> None:
    response = staff.post(ZONES, {"zone": "UTC", "next": following})
    assert response.headers["Location"] == location


def test_entered_times_become_utc_in_the_address(staff: Client, session: Session) -> None:
    staff.cookies[COOKIE] = KOLKATA
    times = {"created_after": "2026-03-01T17:30:00", "created_before": "2026-03-01T17:30:01", "entered_in": KOLKATA}
    response = staff.get(SESSIONS, times, follow=True)
    address = response.redirect_chain[0][0]
    assert parse_qs(urlsplit(address).query) == {
        "created_after": ["2026-03-01T12:00:00Z"],
        "created_before": ["2026-03-01T12:00:01Z"],
    }
    assert len(rows_of(response)) == 1
    # The form shows what was entered; to a reader in another zone, the same time in theirs.
    assert 'name="created_after" value="2026-03-01T17:30:00"' in html_of(response)
    staff.cookies[COOKIE] = "Europe/Berlin"
    response = staff.get(address)
    assert 'name="created_after" value="2026-03-01T13:00:00"' in html_of(response)
    assert len(rows_of(response)) == 1


def test_time_without_zone_in_an_address_is_utc(staff: Client, session: Session) -> None:
    staff.cookies[COOKIE] = KOLKATA
    assert len(rows_of(staff.get(f"{SESSIONS}?created_after=2026-03-01T12:00:00"))) == 1
    assert len(rows_of(staff.get(f"{SESSIONS}?created_after=2026-03-01T12:00:01"))) == 0


@pytest.mark.parametrize(
    ("language", "time", "text"),
    [
        (
            "en",
            "2026-03-29T02:30:00",
            "2026-03-29 02:30:00 does not exist in Europe/Berlin, because clocks go forward.",
        ),
        ("en", "2026-10-25T02:30:00", "2026-10-25 02:30:00 occurs twice in Europe/Berlin, because clocks go back."),
        ("zh-hans", "2026-10-25T02:30:00", "2026-10-25 02:30:00 在 Europe/Berlin 因时钟回拨而出现两次。"),
        ("en", "yesterday", "Expected a time such as 2026-01-31T09:30."),
        ("en", "0001-01-01T00:00:00", "This date or time does not exist."),
    ],
)
def test_time_that_is_not_one_is_refused(staff: Client, session: Session, language: str, time: str, text: str) -> None:
    staff.cookies[COOKIE], staff.cookies["django_language"] = "Europe/Berlin", language
    form = {"created_after": time, "created_before": "2027-01-01", "entered_in": "Europe/Berlin"}
    response = staff.get(SESSIONS, form, follow=True)
    assert response.redirect_chain == [(f"{SESSIONS}?created_before=2026-12-31T23%3A00%3A00Z", 302)]
    assert text in text_of(response)


@pytest.mark.parametrize("zone", ["UTC", KOLKATA, "Europe/Berlin", "America/St_Johns"])
def test_entered_times_are_exact_or_refused_all_year(zone: str) -> None:
    found, refused = 0, []
    local, each = datetime.fromisoformat("2026-01-01T00:00"), timedelta(minutes=30)
    while local.year == 2026:
        try:
            assert entered(local.isoformat(), ZoneInfo(zone)).astimezone(ZoneInfo(zone)).replace(tzinfo=None) == local
            found += 1
        except ValidationError:
            refused.append(local)
        local += each
    # An hour that does not exist, and one that occurs twice.
    assert len(refused) == (4 if zone in ("Europe/Berlin", "America/St_Johns") else 0)
    assert found == 365 * 48 - len(refused)


def test_api_and_exports_stay_in_utc(staff: Client, session: Session) -> None:
    staff.cookies[COOKIE] = KOLKATA
    assert '"created_at":"2026-03-01T12:00:00.000000Z"' in html_of(staff.get(f"/api/v1/sessions/{session.pk}/"))
    exported = staff.get(f"{SESSIONS}export/jsonl/")
    assert "2026-03-01T12:00:00Z" in exported.getvalue().decode()


def test_days_of_the_home_page_begin_at_midnight_of_the_zone(session: Session) -> None:
    period = overview.Period(NOON - timedelta(days=1), NOON + timedelta(days=1))
    with timezone.override("Asia/Kolkata"):
        days = overview.activity(primary, ALL_PROJECTS, period, "day")
    assert [(f"{day.begin:%m-%d %H:%M%z}", day.runs) for day in days] == [
        ("02-28 00:00+0530", 0),
        ("03-01 00:00+0530", 1),
        ("03-02 00:00+0530", 0),
    ]
    with timezone.override("Europe/Berlin"):
        march = overview.Period(datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 3, 30, 12, tzinfo=UTC))
        lengths = [
            day.end.astimezone(UTC) - day.begin.astimezone(UTC)
            for day in overview.activity(primary, ALL_PROJECTS, march, "day")
        ]
    assert lengths == [timedelta(hours=24), timedelta(hours=23), timedelta(hours=24)]

"""The admin of sessions and messages: find, read, delete and restore them, in two languages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any
from uuid import UUID

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.db import OperationalError, connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import translation

from access_app.db import primary
from access_app.db.conflicts import was_stopped
from access_app.models import Project
from messages_app import interruptions, writes
from messages_app.admin.row_pages import nested_loops
from messages_app.admin.trash import Trash
from messages_app.models import Message, Session
from messages_app.sql.batch import time_limit
from messages_app.sql.pagination import IdRange
from tests.admin_pages import ago, html_of, links_of, rows_of, statements_of, text_of
from traces_app.admin.call_admin import ToolCallAdmin
from traces_app.admin.conversation import PAGE_SIZE
from traces_app.admin.message_admin import MessageAdmin
from traces_app.admin.session_admin import SessionAdmin
from traces_app.ingest.pipeline import ingest
from traces_app.queries import session_names
from tracesite_sdk import records

SESSIONS = "/admin/messages_app/session/"
MESSAGES = "/admin/messages_app/message/"
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOSTILE = "<script>alert(1)</script> \x1b[31m \u202egnp.exe"


def store(project: Project, external_id: str, count: int = 2, **fields: Any) -> UUID:
    """Store a session of `count` messages, from user and assistant in turn."""
    start = fields.pop("created_at", NOON)
    messages = [
        records.Message(
            role="assistant" if place % 2 else "user",
            external_id=f"{external_id}-{place}",
            content=fields.get("content", f"{external_id} says {place}"),
            created_at=start + timedelta(seconds=place),
        )
        for place in range(count)
    ]
    fields.pop("content", None)
    fields.setdefault("title", external_id)
    session = records.Session(external_id=external_id, created_at=start, messages=messages, **fields)
    return found_id(ingest(primary, project.pk, [session])[0].id)


def found_id(value: UUID | None) -> UUID:
    assert value is not None
    return value


def message_at(session: UUID, place: int) -> Message:
    return Message.with_deleted.filter(session_id=session).order_by("pk")[place]


def page_of(session: UUID) -> str:
    return f"{SESSIONS}{session}/change/"


# --- Lists ------------------------------------------------------------------------------------------------------------


def test_session_list_is_newest_first_with_its_columns(staff: Client, project: Project) -> None:
    store(project, "first", title="Flight to 上海")
    store(project, "second", created_at=NOON + timedelta(days=70))
    response = staff.get(SESSIONS)
    assert rows_of(response) == [
        ["second", "Done", "", "0", "", "", "—", ago(NOON + timedelta(days=70))],
        ["Flight to 上海", "Done", "", "0", "", "", "—", ago(NOON)],
    ]
    assert 'title="2026-03-01 12:00:00 UTC"' in html_of(response), "the whole time on hover"


def test_session_without_title_is_named_by_its_first_question(staff: Client, project: Project) -> None:
    session = store(project, "run-7f", 4, title="", content="Where is\nmy parcel?")
    store(project, "mute", 0, title="", created_at=NOON + timedelta(days=1))
    assert [row[0] for row in rows_of(staff.get(SESSIONS))] == ["mute", "Where is my parcel? run-7f"]
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}?q=parcel"))] == ["Where is my parcel? run-7f"]
    writes.delete_message(primary, message_at(session, 0).pk, by="ada")
    writes.delete_message(primary, message_at(session, 2).pk, by="ada")
    assert [row[0] for row in rows_of(staff.get(SESSIONS))] == ["mute", "run-7f"]


def test_messages_are_listed_with_the_beginning_of_their_content(staff: Client, project: Project) -> None:
    session = store(project, "talk", 1, content="first line\n\n" + "word " * 100, title="Talk")
    (row,) = rows_of(staff.get(MESSAGES))
    assert row == ["first line " + "word " * 13 + "wor…", ago(NOON), "Talk"]
    assert links_of(staff.get(MESSAGES))["Talk"] == page_of(session)


@pytest.mark.parametrize("url", [SESSIONS, MESSAGES, f"{SESSIONS}trash/", f"{MESSAGES}trash/"])
def test_list_uses_no_count_and_constant_queries(staff: Client, project: Project, url: str) -> None:
    def grow(first: int, last: int) -> None:
        for number in range(first, last):
            session = store(project, f"s{number}", title=f"word {number}")
            if number % 2:
                writes.delete_session(primary, session, by="ada")
            else:
                writes.delete_message(primary, message_at(session, 0).pk, by="ada")

    grow(0, 4)
    few = statements_of(staff, url)
    grow(4, 120)
    many = statements_of(staff, url)
    assert len(few) == len(many)
    assert [statement for statement in many if "COUNT(" in statement.upper() or "OFFSET" in statement.upper()] == []
    # The database shortens texts, and columns that the list does not show are not read.
    heavy = re.compile(r'(?<!LEFT\()"messages_app_(session|message)"\."(content|metadata|description|redactions)"')
    assert [statement for statement in many if heavy.search(statement)] == []


@pytest.mark.parametrize(
    ("url", "owner", "column"),
    [
        (SESSIONS, SessionAdmin, "last_event"),
        (MESSAGES, MessageAdmin, "version"),
        ("/admin/traces_app/toolcall/", ToolCallAdmin, "position"),
    ],
)
def test_column_that_is_added_to_a_list_is_read_with_it(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch, url: str, owner: Any, column: str
) -> None:
    calls = [records.ToolCall(name="search"), records.ToolCall(name="search")]
    answers = [
        records.Message(role="assistant", agent_steps=[records.AgentStep(tool_calls=calls)]) for _answer in range(2)
    ]
    ingest(primary, project.pk, [records.Session(external_id=name, messages=answers) for name in ("one", "two")])
    before = len(statements_of(staff, url))
    columns = owner.get_list_display
    monkeypatch.setattr(owner, "get_list_display", lambda self, request: [*columns(self, request), column])
    assert len(statements_of(staff, url)) == before
    assert {row[-1] for row in rows_of(staff.get(url))} <= {"0", "1"}


def test_list_pages_lead_to_the_end_and_back(staff: Client, project: Project) -> None:
    # All have the same time, so that only their ids differ.
    ingest(
        primary, project.pk, [records.Session(external_id=f"s{number:03}", created_at=NOON) for number in range(120)]
    )
    expected = [str(pk) for pk in Session.objects.order_by("-pk").values_list("pk", flat=True)]

    def ids_on(url: str) -> list[str]:
        return re.findall(r'name="_selected_action" value="([^"]+)"', html_of(staff.get(url)))

    pages, links = [SESSIONS], links_of(staff.get(SESSIONS))
    while "Older →" in links:
        pages.append(SESSIONS + links["Older →"])
        links = links_of(staff.get(pages[-1]))
    assert [len(ids_on(page)) for page in pages] == [50, 50, 20]
    assert [pk for page in pages for pk in ids_on(page)] == expected
    back = SESSIONS + links["← Newer"]
    assert ids_on(back) == expected[50:100]
    first = SESSIONS + links_of(staff.get(back))["← Newer"]
    assert ids_on(first) == expected[:50]
    assert "← Newer" not in links_of(staff.get(first))


def test_going_back_to_the_first_page_shows_all_of_it(staff: Client, project: Project) -> None:
    ingest(primary, project.pk, [records.Session(external_id=f"s{number:03}", created_at=NOON) for number in range(60)])
    second = SESSIONS + links_of(staff.get(SESSIONS))["Older →"]
    newest = Session.objects.order_by("-pk").values_list("pk", flat=True)
    for session in list(newest[:20]):
        writes.delete_session(primary, session, by="ada")
    assert len(rows_of(staff.get(SESSIONS + links_of(staff.get(second))["← Newer"]))) == 40


def test_filters_are_kept_by_pages_and_reset_the_cursor(staff: Client, project: Project) -> None:
    ingest(primary, project.pk, [records.Session(external_id=f"s{number:03}", created_at=NOON) for number in range(60)])
    links = links_of(staff.get(f"{SESSIONS}?project=owner&status=running"))
    assert {"project=owner", "status=running"} < set(links["Older →"].removeprefix("?").split("&"))
    second = staff.get(SESSIONS + links["Older →"])
    assert len(rows_of(second)) == 10
    # The form of the filters has no cursor, and a chip removes only its own filter.
    assert 'name="cursor"' not in html_of(second)
    assert re.findall(r'<a href="([^"]+)" title="Remove"', html_of(second)) == ["?status=running", "?project=owner"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("project=owner", ["late", "early"]),
        ("project=other", ["foreign"]),
        ("project=unknown", []),
        ("status=completed", ["late", "early"]),
        ("status=paused", ["foreign"]),
        ("status=running", []),
        ("has_errors=no", ["foreign", "late", "early"]),
        ("has_errors=yes", []),
        ("tag=prod", ["late"]),
        ("tag=pro", []),
        ("tag=%20b,c%20", ["foreign"]),
        ("end_user=ada", ["foreign", "late"]),
        ("end_user=ada&project=owner&status=completed", ["late"]),
        ("end_user=ad", []),
        ("max_cost=1", []),
        ("created_after=2026-03-02T00:00", ["foreign", "late"]),
        ("created_after=2026-03-03T12:00", ["foreign"]),
        ("created_before=2026-03-03T12:00", ["late", "early"]),
        ("created_after=2026-03-02T00:00:00&created_before=2026-03-03T00:00:00", ["late"]),
        ("created=24h", []),
        ("created=24h&created_after=", []),
        ("project=owner&status=completed&created_after=2026-03-02T00:00", ["late"]),
    ],
)
def test_sessions_are_filtered(staff: Client, project: Project, query: str, expected: list[str]) -> None:
    store(project, "early")
    store(project, "late", created_at=NOON + timedelta(days=1), tags=["prod", "v2"], end_user="ada")
    foreign = records.Session(
        external_id="foreign",
        created_at=NOON + timedelta(days=2),
        status="paused",
        tags=["b,c"],
        end_user="ada",
    )
    ingest(primary, Project.objects.create(slug="other").pk, [foreign])
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}?{query}", follow=True))] == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("role=user", ["question"]),
        ("role=assistant", ["broken", "answer"]),
        ("role=system", []),
        ("has_errors=yes", ["broken Running"]),
        ("has_errors=no", ["answer Assistant", "question User"]),
        ("is_completed=no", ["broken Running"]),
        ("is_completed=yes", ["answer Assistant", "question User"]),
        ("min_duration=1500", ["answer"]),
        ("min_duration=1501", []),
        (f"min_duration={'9' * 30}", []),
        ("max_duration=1500", ["answer"]),
        ("max_duration=1499", []),
        ("min_duration=&max_duration=2000", ["answer"]),
        ("min_duration=1&max_duration=2000&role=user", []),
        ("max_cost=1", []),
        ("min_duration=%201500%20&role=assistant", ["answer"]),
        ("created_before=2026-03-01T12:00:01", ["question"]),
        ("session={session}", ["broken Assistant · Running", "answer Assistant", "question User"]),
        ("session=00000000-0000-7000-8000-000000000000", []),
    ],
)
def test_messages_are_filtered(staff: Client, project: Project, query: str, expected: list[str]) -> None:
    outcome = ingest(
        primary,
        project.pk,
        [
            records.Session(
                external_id="s",
                messages=[
                    records.Message(role="user", content="question", created_at=NOON),
                    records.Message(
                        role="assistant", content="answer", created_at=NOON + timedelta(seconds=1), duration=1500
                    ),
                    records.Message(
                        role="assistant",
                        content="broken",
                        error="out of memory",
                        is_completed=False,
                        created_at=NOON + timedelta(seconds=2),
                    ),
                ],
            )
        ],
    )
    query = query.format(session=outcome[0].id)
    content = 1 if "role=assistant" in query else 0  # runs are named by their questions
    query += "&columns=answer" * content
    assert [row[content] for row in rows_of(staff.get(f"{MESSAGES}?{query}", follow=True))] == expected


@pytest.mark.parametrize("value", ["long", "-1", "1.5", "0x10", "%00"])
def test_number_that_rest_refuses_shows_a_warning(staff: Client, project: Project, value: str) -> None:
    response = staff.get(f"{MESSAGES}?min_duration={value}", follow=True)
    assert response.redirect_chain == [(f"{MESSAGES}", 302)]
    assert "Invalid filter: " in text_of(response)


def test_number_filter_is_a_number_field_that_keeps_its_value(staff: Client, project: Project) -> None:
    found = html_of(staff.get(f"{MESSAGES}?min_duration=20"))
    fields = re.findall(r'<input[^>]*name="min_duration"[^>]*>', found)
    (field,) = (one for one in fields if 'type="hidden"' not in one)
    assert 'type="number"' in field
    assert 'value="20"' in field


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("status=good", "Invalid filter: status “good”. Use one of: "),
        ("has_errors=maybe", "Invalid filter: problems “maybe”. Use one of: true, false. It is left out."),
        (
            "created=1y",
            "Invalid filter: start time “1y”. Use one of: 1h, today, yesterday, 24h, 7d, 30d, any. It is left out.",
        ),
        (
            "created_after=yesterday",
            "Invalid filter: start time “yesterday”. Use a date or a time since 1970, such as 2026",
        ),
        (
            "created_before=1960-01-01",
            "Invalid filter: start time “1960-01-01”. Use a date or a time since 1970, such as 2026",
        ),
        ("active_before=x", "Invalid filter: last activity “x”. Use a date or a time"),
        (
            "order=size",
            "Invalid filter: order “size”. Use one of: activity, duration, cost, tokens, failures. It is left out.",
        ),
        ("nonsense=1", "Invalid filter: nonsense “1”. There is no such filter. It is left out."),
        ("cursor=x", "Invalid filter. The full list is shown."),
    ],
)
def test_invalid_filter_is_named_in_a_warning(staff: Client, project: Project, query: str, text: str) -> None:
    store(project, "s")
    response = staff.get(f"{SESSIONS}?{query}", follow=True)
    assert response.redirect_chain == [(f"{SESSIONS}", 302)]
    assert text in text_of(response)


def test_invalid_number_is_named_with_the_reason(staff: Client, project: Project) -> None:
    text = "Invalid filter: duration (ms) “x”. Enter a whole number. It is left out."
    assert text in text_of(staff.get(f"{MESSAGES}?min_duration=x", follow=True))
    staff.cookies["django_language"] = "zh-hans"
    assert "筛选条件无效：耗时（毫秒）“x”。输入整数。该条件" in text_of(
        staff.get(f"{MESSAGES}?min_duration=x", follow=True)
    )


@pytest.mark.parametrize("among", ["", "trash/"])
def test_messages_are_filtered_by_external_id_of_session(staff: Client, project: Project, among: str) -> None:
    key = store(project, "one", count=1)
    store(project, "two", count=1)
    if among:
        for session in Session.objects.all():
            writes.delete_message(primary, message_at(session.pk, 0).pk, by="ada")
    for name in ("one", str(key), key.hex):
        assert [row[0] for row in rows_of(staff.get(f"{MESSAGES}{among}?session={name}"))] == ["one says 0"]
    assert rows_of(staff.get(f"{MESSAGES}{among}?session=none")) == []


def test_ambiguous_session_in_a_filter_is_explained(staff: Client, project: Project) -> None:
    other = Project.objects.create(slug="stranger")
    store(project, "twice", count=1)
    store(other, "twice", count=1)
    assert (
        "Invalid filter: session ID “twice”. Several projects have a session with this external id. Use the id of the "
        "session. It is left out."
    ) in text_of(staff.get(f"{MESSAGES}?session=twice", follow=True))
    found = rows_of(staff.get(f"{MESSAGES}?session=twice&project=stranger&columns=project"))
    assert [row[1] for row in found] == ["stranger"]


@pytest.mark.parametrize("before", ["2026-03-01T11:00", "2026-03-01T12:00"])
def test_reversed_time_range_is_explained(staff: Client, project: Project, before: str) -> None:
    store(project, "s")
    reversed_range = text_of(staff.get(f"{SESSIONS}?created_after=2026-03-01T12:00&created_before={before}"))
    assert "“From” must be earlier than “Until”." in reversed_range
    assert "No sessions match" not in reversed_range
    empty_range = text_of(staff.get(f"{SESSIONS}?created_after=2026-03-02T12:00&created_before=2026-03-02T13:00"))
    assert "No sessions match: start time “2026-03-02 12:00 – 2026-03-02 13:00”" in empty_range
    assert "must be earlier" not in empty_range
    bounds = text_of(staff.get(f"{SESSIONS}?min_cost=5&max_cost=1"))
    assert "Cost (USD): “At least” must not be above “At most”." in bounds
    assert "No sessions match" not in bounds
    assert "must not be above" not in text_of(staff.get(f"{SESSIONS}?min_cost=5&max_cost=5"))


@pytest.mark.parametrize(
    "query", ["content__contains=x", "metadata__x=1", "project__slug=x", "current_phase=x", "project=%00", "nonsense=1"]
)
@pytest.mark.parametrize("url", [SESSIONS, MESSAGES])
def test_unknown_parameter_leads_to_whole_list(staff: Client, url: str, query: str) -> None:
    # Columns without an index are unknown, too: Django would filter by any column.
    response = staff.get(f"{url}?{query}", follow=True)
    assert response.redirect_chain == [(f"{url}", 302)]
    assert f"Invalid filter: {query.partition('=')[0]} “" in text_of(response)


def test_sessions_are_found_by_ids_end_user_and_title(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store(project, "order-1", title="Where is my Parcel?")
    store(project, "parcel", created_at=NOON + timedelta(hours=1), end_user="dana@example.org")

    def found(term: str) -> list[str]:
        return [row[0] for row in rows_of(staff.get(SESSIONS, {"q": term}))]

    assert found(str(session)) == ["Where is my Parcel?"]
    assert found(" order-1 ") == ["Where is my Parcel?"]
    assert found("parcel") == ["parcel", "Where is my Parcel?"]
    assert found("dana@example.org") == ["parcel"]
    assert found("borders") == []
    assert "No sessions match: search “borders”" in text_of(staff.get(SESSIONS, {"q": "borders"}))
    # Only the newest titles are searched.
    monkeypatch.setattr(session_names, "TITLES_SEARCHED", 1)
    assert found("title-of-none") == []
    assert found("order-1") == ["Where is my Parcel?"]
    assert "for words anywhere in messages" in text_of(staff.get(SESSIONS))
    assert "for words anywhere" not in text_of(staff.get(f"{SESSIONS}trash/"))


def test_messages_are_found_by_their_ids_and_by_their_session(staff: Client, project: Project) -> None:
    session = store(project, "order-1", title="Where is my Parcel?")
    store(project, "other")
    ingest(
        primary,
        project.pk,
        [
            records.Session(
                external_id="third", messages=[records.Message(role="user", content="hi", request_id="req-7")]
            )
        ],
    )

    def found(term: str) -> list[str]:
        return [row[0] for row in rows_of(staff.get(MESSAGES, {"q": term}))]

    both = ["order-1 says 1 Assistant", "order-1 says 0 User"]
    assert found(str(message_at(session, 0).pk)) == ["order-1 says 0"]
    assert found(str(session)) == both
    assert found("order-1") == both
    assert found("PARCEL") == both
    assert found("order-1-1") == ["order-1 says 1"]
    assert found("req-7") == ["hi"]
    assert found("nothing") == []


EXTERNAL = "79e9becd-0b83-4f3e-9d53-a8b2c4d1e6f7"


@pytest.mark.parametrize(
    ("term", "is_found"),
    [
        *((EXTERNAL, True), ("79e9becd", True), ("79e9be", True), ("79e9becd-0b83-4f", True)),
        *(("79e9b", False), ("79e9becc", False), ("e9becd-0b83", False), ("79e9be%", False)),
    ],
)
def test_session_is_found_by_the_beginning_of_its_external_id(
    staff: Client, project: Project, term: str, is_found: bool
) -> None:
    session = store(project, EXTERNAL, title="Parcel", content="hello")
    store(project, "79e9bdcd", title="other", content="hello")
    assert [row[0] for row in rows_of(staff.get(SESSIONS, {"q": term}))] == ["Parcel"] * is_found
    assert len(rows_of(staff.get(MESSAGES, {"q": term}))) == 2 * is_found
    everything = text_of(staff.get(f"{SESSIONS}everything/", {"q": term}))
    assert ("Sessions 1" in everything) == is_found
    writes.delete_session(primary, session, by="ada")
    assert len(rows_of(staff.get(f"{SESSIONS}trash/", {"q": term}))) == is_found
    assert rows_of(staff.get(SESSIONS, {"q": term})) == []


def test_rows_are_found_by_the_beginnings_of_their_ids(staff: Client, project: Project) -> None:
    session = store(project, "one", count=1)
    message = message_at(session, 0).pk
    for given in (f"{session}"[:11], session.hex[:12].upper(), f"{{{session}}}"):
        assert len(rows_of(staff.get(SESSIONS, {"q": given}))) == 1, given
    for given in (f"{message}"[:20], message.hex[:18]):
        assert [row[0] for row in rows_of(staff.get(MESSAGES, {"q": given}))] == ["one says 0"], given


def test_beginnings_of_ids_are_ranges() -> None:
    first = UUID("79e9becd-0b00-0000-0000-000000000000")
    assert session_names.ids_beginning("79E9becd-0b") == IdRange(lower=first, upper=UUID(int=first.int + (1 << 88)))
    assert session_names.ids_beginning("f" * 7) == IdRange(lower=UUID(f"{'f' * 7:0<32}"))
    for other in ("79e9b", "79-e9becd", "79e9be_c", "79e9becg", "٧٩٧٩٧٩", "f" * 33, ""):
        assert session_names.ids_beginning(other) is None, other


def test_beginning_of_an_external_id_is_read_from_its_index(project: Project) -> None:
    named = [records.Session(external_id=f"{number:06x}-s", created_at=NOON) for number in range(2_000)]
    ingest(primary, project.pk, named)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE messages_app_session")
    statements = CaptureQueriesContext(connection)
    with statements:
        assert len(session_names.sessions_beginning(primary, Session.objects.all(), "0000ff")) == 1
    (searching,) = (one["sql"] for one in statements.captured_queries if "LIKE" in one["sql"])
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {searching}")
        plan = "\n".join(row[0] for row in cursor.fetchall())
    assert "session_external_id" in plan, plan
    assert "external_id >= '0000ff'" in plan, plan


def test_slow_search_for_beginnings_is_reported(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(project, "borders-7", title="here")

    def slow_keys(rows: Any, term: str) -> Any:
        return session_names.first_keys(rows.extra(where=["pg_sleep(5) IS NOT NULL"]))

    monkeypatch.setattr(session_names, "keys_beginning", slow_keys)
    monkeypatch.setattr(session_names, "LIST_MS", 50)
    page = text_of(staff.get(SESSIONS, {"q": "borders-"}))
    assert "Beginnings of external IDs were not searched. The search was stopped after 0 seconds." in page


def test_slow_list_query_is_stopped_with_a_notice(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    store(project, "s")
    sessions = Trash.rows

    def slow_rows(self: Any, model_admin: Any, request: Any) -> Any:
        return sessions(self, model_admin, request).extra(where=["pg_sleep(5) IS NOT NULL"])

    monkeypatch.setattr(Trash, "rows", slow_rows)
    monkeypatch.setattr(SessionAdmin, "list_time_limit_ms", 50)
    response = staff.get(SESSIONS)
    assert rows_of(response) == []
    assert "The search took too long and was stopped." in text_of(response)


@pytest.mark.django_db
def test_time_limit_ends_with_its_block() -> None:
    with pytest.raises(OperationalError) as stopped, time_limit(primary, 20), connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(5)")
    assert was_stopped(stopped.value)
    with time_limit(primary, 20):
        pass
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.05)")


@pytest.mark.django_db
def test_joins_are_limited_within_their_block() -> None:
    def allowed() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT current_setting('enable_hashjoin'), current_setting('enable_mergejoin')")
            return list(cursor.fetchone())

    with nested_loops(primary):
        assert allowed() == ["off", "off"]
    assert allowed() == ["on", "on"]


# --- A session and its conversation ----------------------------------------------------------------------------------


def said(response: Any) -> list[str]:
    """Return the contents of the messages on a page, in order: each a paragraph of Markdown."""
    return re.findall(r'<div class="value"><div class="prose"><p>(.*?)</p>\n</div>', html_of(response), re.DOTALL)


def test_session_page_shows_the_conversation(staff: Client, project: Project) -> None:
    session = store(project, "talk", title="Talk", end_user="alice", tags=["vip"], metadata={"channel": "电话"})
    response = staff.get(page_of(session))
    assert said(response) == ["talk says 0", "talk says 1"]
    text = text_of(response)
    assert text.startswith("Sessions / Talk Copy link")
    for fact in ("Project owner", "External ID talk", "End user alice", "Messages 2", "Tags vip", '"channel": "电话"'):
        assert fact in text
    assert (
        links_of(response)["2026-03-01 12:00:00 Open this message (user)"]
        == f"{MESSAGES}{message_at(session, 0).pk}/change/"
    )


def test_answer_hides_tool_json_and_shows_it_on_demand(staff: Client, project: Project) -> None:
    slipped = '{"needs_clarification": true, "questions": ["哪一年？"]}'
    session = store(project, "talk", content=f"Which year? {slipped}")
    response = staff.get(page_of(session))
    question, answer = said(response)
    assert (unescape(question), answer) == (f"Which year? {slipped}", "Which year?")
    assert f"Text as received Which year? {slipped}" in text_of(response)


MARKDOWN = "# Weather\n\n**31** degrees, see [it](https://example.com/).\n\n```python\nprint(31)\n```"


@pytest.mark.parametrize("page", ["session", "message"])
def test_answer_is_markdown_and_raw_on_request(staff: Client, project: Project, page: str) -> None:
    session = store(project, "talk", content=MARKDOWN)
    url = page_of(session) if page == "session" else f"{MESSAGES}{message_at(session, 1).pk}/change/"
    rendered = staff.get(url)
    html = html_of(rendered)
    assert '<p class="h1">Weather</p>' in html
    assert (
        '<strong>31</strong> degrees, see <a href="https://example.com/" rel="noopener noreferrer nofollow">it</a>'
        in html
    )
    assert '<span class="code-language">python</span>' in html
    assert links_of(rendered)["Raw texts"] == "?raw=1"
    raw = staff.get(f"{url}?raw=1")
    assert f'<div class="text">{MARKDOWN}</div>' in html_of(raw)
    assert 'class="prose"' not in html_of(raw)
    assert links_of(raw)["Rendered texts"] == "?"


def test_switch_to_raw_texts_keeps_the_place(staff: Client, project: Project) -> None:
    session = store(project, "long", PAGE_SIZE + 1)
    later = links_of(staff.get(page_of(session)))["Later →"].partition("#")[0]
    raw = links_of(staff.get(page_of(session) + later))["Raw texts"]
    assert raw == f"{later}&raw=1"
    assert links_of(staff.get(page_of(session) + raw))["Rendered texts"] == later


def test_session_page_shows_the_plan_with_agent_states(staff: Client, project: Project) -> None:
    agents = [
        {"id": "t-00", "name": "Browser", "task": HOSTILE, "dependsOn": [], "status": "init"},
        {"id": "t-01", "name": "Writer", "task": "write it down", "dependsOn": ["t-00"], "status": "init"},
    ]
    session = store(project, "planned", workflow={"name": "Report", "agents": agents})
    answer = message_at(session, 1)
    answer.metadata = {"agents": {"t-00": {"name": "Browser", "status": "done"}}}
    answer.save(update_fields=["metadata"])

    html = html_of(staff.get(page_of(session)))
    plan = html[html.index('<ol class="plan">') : html.index("</ol>", html.index('<ol class="plan">'))]

    assert "<script" not in plan
    assert unescape(re.sub("<[^>]*>", " ", plan)).split() == [
        "Browser", "done", "<script>alert(1)</script>", "\ufffd[31m", "\ufffdgnp.exe", "t-00",
        "Writer", "planned", "write", "it", "down", "t-01",
    ]  # fmt: skip


def test_long_conversation_is_split_into_pages(staff: Client, project: Project) -> None:
    session = store(project, "long", 2 * PAGE_SIZE + 20)
    first = staff.get(page_of(session))
    assert said(first) == [f"long says {place}" for place in range(PAGE_SIZE)]
    assert "← Earlier" not in links_of(first)
    second = staff.get(page_of(session) + links_of(first)["Later →"])
    assert said(second) == [f"long says {place}" for place in range(PAGE_SIZE, 2 * PAGE_SIZE)]
    third = staff.get(page_of(session) + links_of(second)["Later →"])
    assert said(third) == [f"long says {place}" for place in range(2 * PAGE_SIZE, 2 * PAGE_SIZE + 20)]
    assert "Later →" not in links_of(third)
    assert said(staff.get(page_of(session) + links_of(second)["← Earlier"])) == said(first)
    newest = staff.get(page_of(session) + "?newest")
    assert said(newest) == [f"long says {place}" for place in range(PAGE_SIZE + 20, 2 * PAGE_SIZE + 20)]
    assert said(staff.get(page_of(session) + links_of(newest)["← Earlier"]))[-1] == f"long says {PAGE_SIZE + 19}"


def test_invalid_cursor_leads_to_beginning_of_conversation(staff: Client, project: Project) -> None:
    session = store(project, "long", PAGE_SIZE + 1)
    response = staff.get(page_of(session) + "?cursor=junk", follow=True)
    assert response.redirect_chain == [(page_of(session), 302)]
    assert "Invalid page of the conversation. The first page is shown." in text_of(response)
    assert said(response)[0] == "long says 0"


def test_conversation_takes_constant_queries(staff: Client, project: Project) -> None:
    few = statements_of(staff, page_of(store(project, "short", 2)))
    many = statements_of(staff, page_of(store(project, "long", 200)))
    assert len(few) == len(many)


def test_hostile_texts_are_shown_as_text_everywhere(staff: Client, project: Project) -> None:
    session = store(project, "s", title=HOSTILE, content=HOSTILE, end_user=HOSTILE, tags=[HOSTILE], description=HOSTILE)
    message = message_at(session, 1)
    writes.delete_message(primary, message_at(session, 0).pk, by=HOSTILE)
    urls = [
        *(SESSIONS, MESSAGES, page_of(session), f"{MESSAGES}{message.pk}/change/", f"{MESSAGES}{message.pk}/delete/"),
        *(f"{SESSIONS}{session}/delete/", f"{SESSIONS}{session}/history/", f"{MESSAGES}trash/"),
    ]
    for url in urls:
        html = html_of(staff.get(url))
        assert "<script>alert" not in html, url
        assert "\x1b" not in html, url
        assert "\u202e" not in html, url


def test_message_page_shows_question_and_runs_beside_it(staff: Client, project: Project) -> None:
    session = store(project, "talk", 7)
    response = staff.get(f"{MESSAGES}{message_at(session, 3).pk}/change/")
    assert "<h1><bdi>talk says 2</bdi></h1>" in html_of(response)
    assert said(response) == ["talk says 2", "talk says 3"] * 2, "in the text of the run, and beside its path"
    links = links_of(response)
    assert links["← Previous run"] == f"{MESSAGES}{message_at(session, 1).pk}/change/"
    assert links["Next run →"] == f"{MESSAGES}{message_at(session, 5).pk}/change/"
    assert links["talk"].partition("#")[0] == page_of(session)
    assert "← Previous run" not in links_of(staff.get(f"{MESSAGES}{message_at(session, 1).pk}/change/"))
    writes.delete_message(primary, message_at(session, 5).pk, by="ada")
    assert "Next run →" not in links_of(staff.get(f"{MESSAGES}{message_at(session, 3).pk}/change/"))


def test_tab_title_has_question_and_session(staff: Client, project: Project) -> None:
    session = store(project, "s", 4, title="Talk <b>")
    titles = [
        re.search("<title>(.*?)</title>", html_of(staff.get(f"{MESSAGES}{message_at(session, place).pk}/change/")))
        for place in range(4)
    ]
    assert [unescape(title[1]) for title in titles if title] == [
        *["s says 0 · Talk <b> | Tracesite"] * 2,
        *["s says 2 · Talk <b> | Tracesite"] * 2,
    ]


def test_references_are_shown_and_bounded(staff: Client, project: Project) -> None:
    references = [
        records.Reference(id=f"r{n}", content="passage " * 10_000, knowledge_title=f"Book {n}") for n in range(120)
    ]
    message = records.Message(role="assistant", content="a", knowledge_references=references)
    outcome = ingest(primary, project.pk, [records.Session(external_id="s", messages=[message])])
    response = staff.get(f"{MESSAGES}{outcome[0].messages[0].id}/change/")
    text = text_of(response)
    assert "Book 0 score" in text
    assert "Book 99 score" in text
    assert "Book 100" not in text
    assert "Some references are not shown." in text
    assert "Only the first 16.0\xa0KB of 78.1\xa0KB are shown." in html_of(response)


@pytest.mark.parametrize("list_url", [SESSIONS, MESSAGES])
@pytest.mark.parametrize("name", ["junk", "01a1f90f-89dc-7516-b04e-c271aeefa5d6"])
def test_missing_row_redirects_to_the_list(staff: Client, list_url: str, name: str) -> None:
    for page in ("change", "restore"):
        response = staff.get(f"{list_url}{name}/{page}/", follow=True)
        assert response.redirect_chain == [(list_url, 302)]
        assert "with this ID. It may have been purged." in text_of(response)


# --- Deleting and restoring ---------------------------------------------------------------------------------------------


def test_session_is_deleted_after_confirmation_and_restored(staff: Client, project: Project) -> None:
    session = store(project, "s", title="Talk")
    url = f"{SESSIONS}{session}/delete/"
    asked = text_of(staff.get(url))
    assert "Move “ Talk ” to the trash? This includes 2 messages." in asked
    assert "You can restore it from the trash until it is purged." in asked
    assert Session.objects.filter(pk=session).exists()
    assert staff.post(url, {"post": "yes"}).status_code == 302
    deleted = Session.with_deleted.get(pk=session)
    assert (deleted.deleted_at is not None, deleted.deleted_by) == (True, "ada")
    assert Message.with_deleted.filter(session_id=session).count() == 2
    assert rows_of(staff.get(SESSIONS)) == []
    (row,) = rows_of(staff.get(f"{SESSIONS}trash/"))
    assert (row[0], row[3]) == ("Talk", "ada")
    page = staff.get(page_of(session))
    assert "deleted by ada" in text_of(page)
    assert said(page) == ["s says 0", "s says 1"]
    restore = links_of(page)["Restore"]
    assert "Restore this? This includes 2 messages." in text_of(staff.get(restore))
    assert Session.objects.filter(pk=session).exists() is False
    response = staff.post(restore, {"post": "yes"}, follow=True)
    assert "“ Talk ” was restored." in text_of(response)
    assert Session.objects.filter(pk=session).exists()
    assert [entry.action_flag for entry in LogEntry.objects.order_by("pk")] == [3, 2]
    history = f"{SESSIONS}{session}/history/"
    assert re.findall(r"<td>(\w+)</td>", html_of(staff.get(history))) == ["ada", "Deleted", "ada", "Restored"]
    chinese = html_of(staff.get(history, headers={"Accept-Language": "zh-hans"}))
    assert re.findall(r"<td>(\w+)</td>", chinese) == ["ada", "已删除", "ada", "已恢复"]


def test_person_is_named_in_list_and_trash_and_deleting_keeps_filters(staff: Client, project: Project) -> None:
    store(project, "s", title="Talk", end_user="felix")
    store(project, "t", title="Other")
    page = staff.get(SESSIONS, {"end_user": "felix"})
    assert "felix" in rows_of(page)[0]
    page = staff.get(links_of(page)["Talk"])
    assert f'href="{SESSIONS}?end_user=felix">Sessions</a>' in html_of(page)
    page = staff.get(links_of(page)["Delete"])
    assert "?_changelist_filters=" in links_of(page)["Cancel"]
    done = staff.post(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"], {"post": "yes"})
    assert done["Location"] == f"{SESSIONS}?end_user=felix"
    assert "felix" in rows_of(staff.get(f"{SESSIONS}trash/"))[0]


def test_deleting_twice_reports_it_is_in_the_trash(staff: Client, project: Project) -> None:
    session = store(project, "s", title="Talk")
    writes.delete_session(primary, session, by="key ci")
    for send in (staff.get, staff.post):
        response = send(f"{SESSIONS}{session}/delete/", {"post": "yes"}, follow=True)
        assert response.redirect_chain == [(page_of(session), 302)]
        assert "“Talk” is already in the trash." in text_of(response)
        assert "Restore" in links_of(response)
    assert Session.with_deleted.get(pk=session).deleted_by == "key ci"
    chosen = {"action": "delete_selected", "_selected_action": [str(session)], "index": "0"}
    for form in (chosen, {**chosen, "post": "yes"}):
        assert "The selected rows are already in the trash." in text_of(staff.post(SESSIONS, form, follow=True))
    assert LogEntry.objects.count() == 0


def test_deleting_message_of_deleted_session_reports_it(staff: Client, project: Project) -> None:
    session = store(project, "s")
    message = message_at(session, 1).pk
    writes.delete_session(primary, session, by="ada")
    response = staff.get(f"{MESSAGES}{message}/delete/", follow=True)
    assert response.redirect_chain == [(f"{MESSAGES}{message}/change/", 302)]
    assert "“assistant: s says 1” is in the trash with its session." in text_of(response)


def test_deleting_unknown_row_leads_to_list(staff: Client) -> None:
    response = staff.get(f"{SESSIONS}01a1f90f-89dc-7516-b04e-c271aeefa5d6/delete/", follow=True)
    assert response.redirect_chain == [(SESSIONS, 302)]
    assert "with this ID. It may have been purged." in text_of(response)


def undo_of(response: Any) -> tuple[str, dict[str, str]]:
    """Return the address and the data that the button Undo of a page sends."""
    found = re.search(
        r'<button type="submit" form="undo" formaction="([^"]+)" name="rows" value="([^"]+)">Undo', html_of(response)
    )
    assert found is not None
    assert re.search(
        r'<form id="undo" method="post" hidden><input type="hidden" name="csrfmiddlewaretoken"', html_of(response)
    )
    return found[1], {"rows": found[2]}


def test_undo_after_deleting_restores(staff: Client, project: Project) -> None:
    session = store(project, "s", title="Talk")
    response = staff.post(f"{SESSIONS}{session}/delete/", {"post": "yes"}, follow=True)
    assert "“Talk” was moved to the trash. New data for it is refused until it is restored. Undo" in text_of(response)
    url, data = undo_of(response)
    response = staff.post(url, data, follow=True)
    assert response.redirect_chain == [(page_of(session), 302)]
    assert "“ Talk ” was restored." in text_of(response)
    assert Session.objects.filter(pk=session).exists()
    # Twice, as if another user was faster.
    assert "There is no deleted session with this id." in text_of(staff.post(url, data, follow=True))
    untitled = store(project, "u", title="")
    response = staff.post(f"{SESSIONS}{untitled}/delete/", {"post": "yes"}, follow=True)
    assert "“u says 0” was moved to the trash." in text_of(response)
    message = message_at(session, 1)
    staff.post(*undo_of(staff.post(f"{MESSAGES}{message.pk}/delete/", {"post": "yes"}, follow=True)))
    assert Message.objects.filter(pk=message.pk).exists()


def test_undo_needs_post_and_known_rows(staff: Client, client: Client, project: Project) -> None:
    session = store(project, "s")
    writes.delete_session(primary, session, by="ada")
    url = f"{SESSIONS}undo/"
    assert staff.get(url, {"rows": str(session)}).headers["Location"] == SESSIONS
    assert staff.post(url, {"rows": "junk,,x"}).headers["Location"] == SESSIONS
    assert client.post(url, {"rows": str(session)}).status_code == 302
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert client.post(url, {"rows": str(session)}).status_code == 403
    assert not Session.objects.filter(pk=session).exists()


def test_question_before_deleting_has_numbers(staff: Client, project: Project) -> None:
    calls = [records.ToolCall(id=str(n), name="look") for n in range(3)]
    answer = records.Message(role="assistant", content="a", agent_steps=[records.AgentStep(tool_calls=calls)])
    session = ingest(primary, project.pk, [records.Session(external_id="s", messages=[answer])])[0].id
    assert "to the trash? This includes 1 message and 3 tool calls." in text_of(
        staff.get(f"{SESSIONS}{session}/delete/")
    )
    message = message_at(found_id(session), 0).pk
    assert "to the trash? This includes 3 tool calls." in text_of(staff.get(f"{MESSAGES}{message}/delete/"))
    other = store(project, "other")
    chosen = {"action": "delete_selected", "_selected_action": [str(session), str(other)], "index": "0"}
    assert "these to the trash? This includes 3 messages and 3 tool calls." in text_of(staff.post(SESSIONS, chosen))


def test_lists_begin_with_what_fits_a_phone(staff: Client, project: Project) -> None:
    writes.delete_session(primary, store(project, "gone"), by="ada")
    store(project, "there")
    listed = [
        re.findall(r'<th scope="col" class="[^"]*column-(\w+)', html_of(staff.get(url)))
        for url in (SESSIONS, f"{SESSIONS}trash/")
    ]
    assert [columns[:3] for columns in listed] == [["state", "name", "user"], ["name", "restore", "deleted"]]


def test_chinese_button_to_add_has_no_space(staff: Client, project: Project) -> None:
    store(project, "s")
    page = staff.get(SESSIONS, headers={"Accept-Language": "zh-hans"})
    assert "添加会话" in text_of(page)


def test_many_sessions_are_deleted_and_restored_together(staff: Client, project: Project) -> None:
    sessions = [store(project, f"s{number}", title=f"Talk {number}") for number in range(3)]
    chosen = {"action": "delete_selected", "_selected_action": [str(pk) for pk in sessions[:2]], "index": "0"}
    asked = staff.post(SESSIONS, chosen)
    assert "Move these to the trash" in text_of(asked)
    assert "Talk 0" in text_of(asked)
    assert "They disappear from all lists and from the API." in text_of(asked)
    assert Session.objects.count() == 3
    response = staff.post(SESSIONS, {**chosen, "post": "yes"}, follow=True)
    assert "2 sessions were moved to the trash. Undo" in text_of(response)
    assert [row[0] for row in rows_of(staff.get(SESSIONS))] == ["Talk 2"]
    undone = staff.post(*undo_of(response), follow=True)
    assert undone.redirect_chain == [(SESSIONS, 302)]
    assert "2 sessions were restored." in text_of(undone)
    assert len(rows_of(undone)) == 3
    staff.post(SESSIONS, {**chosen, "post": "yes"})
    chosen = {**chosen, "action": "restore_selected"}
    assert "Restore these? This includes 4 messages." in text_of(staff.post(f"{SESSIONS}trash/", chosen))
    assert Session.objects.count() == 1
    response = staff.post(f"{SESSIONS}trash/", {**chosen, "post": "yes"}, follow=True)
    assert "2 sessions were restored." in text_of(response)
    assert Session.objects.count() == 3


def test_lists_offer_only_actions_valid_for_their_rows(staff: Client, project: Project) -> None:
    session = store(project, "s")
    assert re.findall(r'<option value="(\w+_selected)">', html_of(staff.get(SESSIONS))) == [
        "delete_selected",
        "tag_selected",
        "score_selected",
    ]
    writes.delete_session(primary, session, by="ada")
    offered = re.findall(r'<option value="(\w+_selected)">', html_of(staff.get(f"{SESSIONS}trash/")))
    assert offered == ["restore_selected", "purge_selected"]
    # A crafted form does not get around it.
    staff.post(SESSIONS, {"action": "restore_selected", "_selected_action": [str(session)], "post": "yes"})
    assert Session.objects.count() == 0


def test_deleting_and_restoring_message_updates_counters(staff: Client, project: Project) -> None:
    session = store(project, "s", 3)
    message = message_at(session, 1)
    response = staff.post(f"{MESSAGES}{message.pk}/delete/", {"post": "yes"}, follow=True)
    assert response.redirect_chain == [(page_of(session), 302)]
    assert said(response) == ["s says 0", "s says 2"]
    assert Session.objects.get(pk=session).message_count == 2
    (row,) = rows_of(staff.get(f"{MESSAGES}trash/"))
    assert (row[0], row[3]) == ("s says 1", "ada")
    staff.post(f"{MESSAGES}{message.pk}/restore/", {"post": "yes"})
    assert Session.objects.get(pk=session).message_count == 3
    assert said(staff.get(page_of(session))) == ["s says 0", "s says 1", "s says 2"]


def restore_button_of(response: Any) -> tuple[str, dict[str, str]]:
    """Return the address and the data that the first button "Restore" of a trash sends."""
    html = html_of(response)
    found = re.search(r'form="restore-row" formaction="([^"]+)" name="rows" value="([^"]+)"', html)
    assert found is not None
    assert '<form id="restore-row" method="post" hidden><input type="hidden" name="csrfmiddlewaretoken"' in html
    return unescape(found[1]), {"rows": found[2]}


def test_row_of_the_trash_is_restored_by_its_own_button(staff: Client, project: Project) -> None:
    kept, session = store(project, "kept", title="Kept"), store(project, "s", title="<b>Talk</b>")
    for one in (kept, session):
        writes.delete_session(primary, one, by="ada")
    url = f"{SESSIONS}trash/?project=owner"
    page = staff.get(url)
    assert rows_of(page)[0][6:8] == ["2", "0"]
    response = staff.post(*restore_button_of(page), follow=True)
    assert response.redirect_chain == [(url, 302)]
    assert "“ <b>Talk</b> ” was restored." in text_of(response)
    assert links_of(response)["<b>Talk</b>"] == page_of(session)
    assert [row[0] for row in rows_of(response)] == ["Kept"]
    address, data = restore_button_of(response)
    foreign = f"{address.partition('?')[0]}?back=https://example.org/"
    assert staff.post(foreign, data).headers["Location"] == page_of(kept)
    message = message_at(session, 0)
    writes.delete_message(primary, message.pk, by="ada")
    trash = staff.get(f"{MESSAGES}trash/")
    assert "Restoring a message brings back its place in the conversation" in text_of(trash)
    writes.delete_session(primary, session, by="ada")
    page = staff.get(f"{MESSAGES}trash/")
    assert links_of(page)["Restore its session first"] == page_of(session)
    assert "restore-row" not in re.sub(r'<form id="restore-row".*', "", html_of(page))
    writes.restore_session(primary, session)
    staff.post(*restore_button_of(staff.get(f"{MESSAGES}trash/")))
    assert Message.objects.filter(pk=message.pk).exists()


def test_trash_shows_when_its_rows_are_purged(staff: Client, project: Project, settings: Any) -> None:
    session = store(project, "s")
    writes.delete_session(primary, session, by="ada")
    Session.with_deleted.update(deleted_at=NOON)
    assert "No date is set: what is here stays" in text_of(staff.get(f"{SESSIONS}trash/"))
    assert "No date is set on which it is purged." in text_of(staff.get(page_of(session)))
    settings.TRACESITE_TRASH_DAYS = 30
    page = staff.get(f"{SESSIONS}trash/")
    assert "What is here is purged 30 days after it was deleted." in text_of(page)
    assert "2026-03-31 12:00:00" in rows_of(page)[0]
    assert "This includes 2 messages. It is purged for good from 2026-03-31 12:00:00 (UTC)." in text_of(
        staff.get(page_of(session))
    )
    Project.objects.update(trash_days=40)
    page = staff.get(f"{SESSIONS}trash/")
    assert "The project of a row says how long it stays here before it is purged." in text_of(page)
    assert "2026-04-10 12:00:00" in rows_of(page)[0]


def test_message_of_deleted_session_is_not_restored(staff: Client, project: Project) -> None:
    session = store(project, "s")
    message = message_at(session, 0)
    writes.delete_message(primary, message.pk, by="ada")
    writes.delete_session(primary, session, by="ada")
    page = staff.get(f"{MESSAGES}{message.pk}/change/")
    assert "The session of this message is in the trash." in text_of(page)
    response = staff.post(f"{MESSAGES}{message.pk}/restore/", {"post": "yes"}, follow=True)
    assert "There is no deleted message with this id." in text_of(response)
    assert Message.with_deleted.get(pk=message.pk).deleted_at is not None


def test_empty_trash_and_empty_list_show_a_text(staff: Client, project: Project) -> None:
    assert "The trash is empty." in text_of(staff.get(f"{SESSIONS}trash/"))
    assert "Nothing here yet." in text_of(staff.get(SESSIONS))
    assert links_of(staff.get(SESSIONS))["Trash"] == f"{SESSIONS}trash/"
    assert f"{SESSIONS}add/" not in links_of(staff.get(f"{SESSIONS}trash/")).values()


def test_message_name_has_role_and_time_in_page_language(project: Project) -> None:
    message = message_at(store(project, "s"), 1)
    time = f"{message.created_at:%Y-%m-%d %H:%M:%S} UTC"
    with translation.override("en"):
        assert str(message) == f"{message.get_role_display()} message of {time}"
    with translation.override("zh-hans"):
        assert str(message) == f"{message.get_role_display()}消息，{time}"


# --- Permissions and languages ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("permissions")
def test_permissions_on_models_give_no_access(client: Client, project: Project) -> None:
    session = store(project, "s")
    message = message_at(session, 0).pk
    urls = [
        *(
            SESSIONS,
            MESSAGES,
            f"{SESSIONS}trash/",
            f"{MESSAGES}trash/",
            page_of(session),
            f"{MESSAGES}{message}/change/",
        ),
        *(f"{SESSIONS}{session}/delete/", f"{SESSIONS}{session}/restore/", f"{SESSIONS}{session}/history/"),
        *(f"{SESSIONS}add/", f"{MESSAGES}add/"),
    ]
    assert {client.get(url).status_code for url in urls} == {302}
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(content_type__app_label__in=["messages_app", "traces_app"]))
    client.force_login(clerk)
    # For Django the history of a row that one may not see is that of a row that does not exist.
    refused = {url: 302 if url.endswith("/history/") else 403 for url in urls}
    assert {url: client.get(url).status_code for url in urls} == refused
    assert "You don’t have permission to view or edit anything." in text_of(client.get("/admin/"))
    assert client.post(f"{SESSIONS}{session}/delete/", {"post": "yes"}).status_code == 403


def test_changes_by_post_are_refused(staff: Client, project: Project) -> None:
    session = store(project, "s", title="Talk")
    for url in (page_of(session), f"{MESSAGES}{message_at(session, 0).pk}/change/"):
        staff.post(url, {"title": "changed", "content": "changed"})
    assert Session.objects.get(pk=session).title == "Talk"
    assert message_at(session, 0).content == "s says 0"


def test_header_switches_the_language(staff: Client, project: Project) -> None:
    store(project, "s")
    english = html_of(staff.get(SESSIONS))
    assert '<html lang="en"' in english
    assert '<button type="submit" name="language" value="zh-hans" lang="zh-hans">简体中文</button>' in english
    response = staff.post("/i18n/setlang/", {"language": "zh-hans", "next": SESSIONS}, follow=True)
    assert response.redirect_chain == [(SESSIONS, 302)]
    chinese = html_of(response)
    assert '<html lang="zh-hans"' in chinese
    assert '<button type="submit" name="language" value="en" lang="en">English</button>' in chinese
    assert "会话" in chinese
    assert "running" not in text_of(response)


def test_login_with_foreign_next_leads_home(client: Client, db: None) -> None:
    User.objects.create_superuser("ada", password="correct horse battery")
    form = {"username": "ada", "password": "correct horse battery", "next": "https://example.org/"}
    assert client.post("/admin/login/?next=https://example.org/", form).headers["Location"] == "/admin/"


def test_login_page_offers_the_other_language(client: Client, db: None) -> None:
    assert 'value="zh-hans"' in html_of(client.get("/admin/login/"))


# --- Last activity and problems --------------------------------------------------------------------------------------


def test_session_that_failed_just_now_is_found_by_last_activity(staff: Client, project: Project) -> None:
    for number in range(60):
        store(project, f"s{number}", created_at=NOON + timedelta(minutes=number))
    ingest(
        primary,
        project.pk,
        [records.Session(external_id="s0", messages=[records.Message(role="assistant", error="Broke.")])],
    )
    assert "s0" not in [row[0].split()[0] for row in rows_of(staff.get(SESSIONS))], (
        "it began before those on the first page"
    )
    first = rows_of(staff.get(f"{SESSIONS}?order=activity"))[0]
    assert first[:2] == ["s0 Broke.", "Failed"]
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}?active=1h"))] == ["s0 Broke."]
    assert rows_of(staff.get(f"{SESSIONS}?created=1h")) == []
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}?has_errors=yes"))] == ["s0 Broke."]
    before = "active_before=2026-03-01T12:02:00"
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}?active_after=2026-03-01T12:01:00&{before}"))] == ["s1"]


def test_list_by_last_activity_is_walked_to_its_end_and_back(staff: Client, project: Project) -> None:
    # Some have the same time, and none are in the order of their ids.
    for number in range(120):
        store(project, f"s{number:03}", created_at=NOON + timedelta(minutes=(number * 7) % 40))
    expected = list(Session.objects.order_by("-active_at", "-pk").values_list("external_id", flat=True))

    def names(url: str) -> list[str]:
        return [row[0] for row in rows_of(staff.get(url))]

    pages = [f"{SESSIONS}?order=activity&project=owner&has_errors=no"]
    while "Older →" in (links := links_of(staff.get(pages[-1]))):
        assert "order=activity" in links["Older →"] and "project=owner" in links["Older →"]
        pages.append(SESSIONS + links["Older →"])
    assert [names(page) for page in pages] == [expected[:50], expected[50:100], expected[100:]]
    back = SESSIONS + links["← Newer"]
    assert names(back) == expected[50:100]
    first = SESSIONS + links_of(staff.get(back))["← Newer"]
    assert names(first) == expected[:50]
    assert "← Newer" not in links_of(staff.get(first))


@pytest.mark.parametrize("query", ["order=size", "order=activity&cursor=x", "active=9h", "active_after=soon"])
def test_odd_order_or_activity_is_the_whole_list_and_a_word(staff: Client, project: Project, query: str) -> None:
    store(project, "only")
    answer = staff.get(f"{SESSIONS}?{query}", follow=True)
    assert "Invalid filter" in text_of(answer)
    assert [row[0] for row in rows_of(answer)] == ["only"]


def test_interrupted_run_shows_reason_in_readers_language(staff: Client, project: Project) -> None:
    text = interruptions.TEXTS[interruptions.PROCESS_ENDED]
    session = store(project, "killed", 2)
    Message.objects.filter(role="assistant").update(error=text, health=[interruptions.FLAG])
    page = f"{MESSAGES}{message_at(session, 1).pk}/change/"
    assert text in text_of(staff.get(page))
    chinese = text_of(staff.get(page, headers={"Accept-Language": "zh-hans"}))
    assert "已中断：记录此运行的进程先于运行结束。" in chinese
    assert text not in chinese


# --- Order and links of the trash -------------------------------------------------------------------------------------


def test_trash_is_ordered_by_time_of_deletion_on_all_pages(staff: Client, project: Project) -> None:
    sessions = [store(project, f"s{number:02}", created_at=NOON + timedelta(minutes=number)) for number in range(53)]
    # Deleted in another order than they began, three of them at once.
    for place, session in enumerate(sessions):
        when = NOON + timedelta(days=place * 20 % 53) if place > 2 else NOON + timedelta(days=60)
        Session.objects.filter(pk=session).update(deleted_at=when)
    expected = [
        str(name) for name in Session.with_deleted.order_by("-deleted_at", "-pk").values_list("external_id", flat=True)
    ]
    assert expected != sorted(expected, reverse=True)
    first = staff.get(f"{SESSIONS}trash/")
    second = staff.get(f"{SESSIONS}trash/" + links_of(first)["Older →"])
    assert [row[0] for row in rows_of(first) + rows_of(second)] == expected
    assert [row[0] for row in rows_of(staff.get(f"{SESSIONS}trash/" + links_of(second)["← Newer"]))] == expected[:50]
    assert "Invalid filter" in text_of(staff.get(f"{SESSIONS}trash/?cursor=x", follow=True))


def test_message_trash_is_ordered_by_time_of_deletion(staff: Client, project: Project) -> None:
    session = store(project, "s", count=3)
    for place in (1, 0, 2):
        writes.delete_message(primary, message_at(session, place).pk, by="ada")
    found = [row[0] for row in rows_of(staff.get(f"{MESSAGES}trash/"))]
    assert found == ["s says 2", "s says 0", "s says 1"]


def test_trashes_link_to_each_other_and_to_their_items(staff: Client, project: Project) -> None:
    session, other = store(project, "s", count=3), store(project, "gone")
    writes.delete_message(primary, message_at(session, 0).pk, by="ada")
    page = staff.get(page_of(session))
    assert links_of(page)["1 message in the trash"] == f"{MESSAGES}trash/?session={session}"
    writes.delete_message(primary, message_at(session, 1).pk, by="ada")
    assert "2 messages in the trash" in links_of(staff.get(page_of(session)))
    assert "in the trash" not in text_of(staff.get(page_of(store(project, "whole"))))
    writes.delete_session(primary, other, by="ada")
    assert links_of(staff.get(f"{SESSIONS}trash/"))["Deleted messages"] == f"{MESSAGES}trash/"
    assert links_of(staff.get(f"{MESSAGES}trash/"))["Deleted sessions"] == f"{SESSIONS}trash/"

    def breadcrumbs(url: str) -> str:
        (found,) = re.findall(r'<div class="breadcrumbs">(.*?)</div>', html_of(staff.get(url)), re.S)
        return " ".join(unescape(re.sub(r"<[^>]+>", " ", found)).split())

    def shown(url: str) -> list[str]:
        return re.findall('aria-current="page">([^<]+)', html_of(staff.get(url)))

    assert shown(SESSIONS) == ["Sessions"]
    assert shown(f"{MESSAGES}?role=assistant") == ["Runs"]
    assert shown(f"{SESSIONS}trash/") == ["Trash"]
    assert shown(f"{MESSAGES}trash/") == ["Deleted messages"]
    assert shown("/admin/access_app/project/") == ["Projects"]
    assert breadcrumbs(f"/admin/access_app/project/{project.pk}/history/") == "Home › Projects › owner › History"
    for url, above in (
        (f"/admin/access_app/project/{project.pk}/change/", "Projects"),
        (f"/admin/access_app/project/{project.pk}/history/", "Projects"),
        ("/admin/access_app/apikey/add/", "API keys"),
        (f"{MESSAGES}add/?session={session}", "Messages"),
    ):
        html = html_of(staff.get(url))
        assert re.findall('aria-current="true">([^<]+)</a>', html) == [above], url
        assert ('class="breadcrumbs"' in html) == ("history" in url), url
    assert f'<a href="{SESSIONS}trash/">Trash</a> /' in html_of(staff.get(page_of(other)))
    message = message_at(session, 0).pk
    assert f'<a href="{MESSAGES}trash/">Trash</a> /' in html_of(staff.get(f"{MESSAGES}{message}/change/"))


def test_bulk_page_of_one_row_has_no_title_for_many(staff: Client, project: Project) -> None:
    chosen = {"action": "delete_selected", "_selected_action": [str(store(project, "s"))]}
    assert "<title>Move to the trash | Tracesite</title>" in html_of(staff.post(SESSIONS, chosen))


def test_title_of_a_form_with_errors_is_translated(staff: Client, project: Project) -> None:
    staff.cookies["django_language"] = "zh-hans"
    assert "<title>错误： " in html_of(staff.post(f"{MESSAGES}add/", {}))


def test_outcome_of_open_message_is_running_or_waiting(staff: Client, project: Project) -> None:
    store(project, "s")
    Message.objects.filter(role="assistant").update(is_completed=False)
    url = f"{MESSAGES}?columns=who,outcome"
    assert [row[1:] for row in rows_of(staff.get(url))] == [["Running", "assistant"], ["", "user"]]
    assert rows_of(staff.get(SESSIONS))[0][1] == "Running"
    Session.objects.update(said_status=Session.Status.PAUSED)
    assert [row[1:] for row in rows_of(staff.get(url))] == [["Waiting", "assistant"], ["", "user"]]
    assert rows_of(staff.get(SESSIONS))[0][1] == "Waiting"

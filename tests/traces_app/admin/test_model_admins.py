"""The admin of runs and calls: failed calls, the tree of a run, read-only traces."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, get_args
from uuid import UUID, uuid4

import msgspec
import pytest
from django.contrib.admin import site
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.template.defaultfilters import filesizeformat
from django.test import Client
from django.utils import timezone

from access_app.db import primary
from access_app.keys import create_key
from access_app.models import ApiKey, Project, Role, Scope
from access_app.roles import grant_role
from messages_app import interruptions, writes
from messages_app.models import Message, Reference, Session
from tests.admin_pages import ago, html_of, links_of, rows_of, statements_of, text_of
from tests.traces_app.conftest import NOON, answer, answered, question, store
from traces_app.events.store import record_events
from traces_app.maintenance.error_patterns import store_patterns
from traces_app.maintenance.jobs import JOBS
from traces_app.models import AgentStep, Context, JobRun, Tool, ToolCall, ToolResult
from traces_app.queries.runs import deciding
from traces_app.queries.runs.outcome import Outcome
from traces_app.queries.schemas.contexts import ContextKind
from tracesite import settings_cards
from tracesite_sdk import records
from tracesite_sdk.normalize.redacted import redact_event
from tracesite_sdk.records import ids
from tracesite_sdk.records.health_flags import STOPPED
from tracesite_sdk.redaction.rules import DEFAULT_RULES

SESSIONS = "/admin/messages_app/session/"
MESSAGES = "/admin/messages_app/message/"
CALLS = "/admin/traces_app/toolcall/"
TOOLS = "/admin/traces_app/tool/"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)> \x1b[31m \u202egnp.exe"


@pytest.fixture
def run(project: Project) -> UUID:
    """Store the standard session; return its message."""
    return answered(project)


def page_of(message: UUID) -> str:
    return f"{MESSAGES}{message}/change/"


def steps(count: int, calls: int, **fields: Any) -> list[dict[str, Any]]:
    result = fields.pop("result", {"output": "ok"})
    return [
        {
            "iteration": step,
            "tool_calls": [
                {"id": f"{step}-{call}", "name": f"tool {call}", "args": {}, "result": result, **fields}
                for call in range(calls)
            ],
        }
        for step in range(count)
    ]


# --- The run of a message ---------------------------------------------------------------------------------------------


def test_message_page_shows_steps_and_nested_calls(staff: Client, run: UUID) -> None:
    text = text_of(staff.get(page_of(run)))
    parts = [
        *("Step 0", "Ask for both cities at once.", "success get_weather 40 ms", "上海", "31 °C", '"temp_c": 31'),
        *("error get_weather 12 ms", "Atlantis", "The city does not exist."),
        *("Step 1", "Ask the researcher.", "success ask_researcher 90 ms 1 nested", "a myth", "success search 60 ms"),
        *("3 hits", "Answer", "Shanghai 31 °C; there is no Atlantis."),
    ]
    place = 0
    for part in parts:
        assert part in text[place:], part
        place = text.index(part, place)


def test_thoughts_are_markdown_and_raw_on_request(staff: Client, project: Project) -> None:
    thoughts = [{"iteration": step, "thought": "**Look** at `x`.\n\n" * 10} for step in range(100)]
    url = page_of(answered(project, content="An *answer*.", agent_steps=thoughts))
    html = html_of(staff.get(url))
    # The thoughts of a page share a budget; that of the answer is another one.
    assert 30 < html.count("<p><strong>Look</strong> at <code>x</code>.</p>") < 100 * 10
    assert "<p>An <em>answer</em>.</p>" in html
    raw = html_of(staff.get(f"{url}?raw=1"))
    assert raw.count("**Look** at `x`.") == 100 * 10
    assert 'class="prose"' not in raw


def test_header_names_deciding_failure_and_links_to_its_call(staff: Client, run: UUID) -> None:
    response = staff.get(page_of(run))
    assert "Failed Answered despite Step 0 get_weather unknown city" in text_of(response)
    failed = ToolCall.objects.get(status="error")
    assert links_of(response)["Step 0 get_weather"] == f"?call={failed.pk}#call-{failed.pk}"
    html = html_of(response)
    assert f'<details class="call call-error" id="call-{failed.pk}" open>' in html
    assert len(re.findall(r'<details class="call [^>]*open>', html)) == 1
    assert len(re.findall(r'<details class="call [^>]*open>', html_of(staff.get(page_of(run) + "?open=all")))) == 4
    for known in (failed.pk, failed.step_id, run):
        assert "is not in this run" not in text_of(staff.get(f"{page_of(run)}?call={known}"))
    for wanted in ("nope", uuid4()):
        assert f"Call “{wanted}” is not in this run." in text_of(staff.get(f"{page_of(run)}?call={wanted}"))


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ([False, True], "Done"),
        ([True, False], "Failed Answered despite Step 1 tool 0 boom 1"),
        ([False, False], "Failed Answered despite Step 1 tool 0 boom 1"),
    ],
)
def test_failure_made_good_leaves_run_done(staff: Client, project: Project, ends: list[bool], words: str) -> None:
    made = steps(2, 1)
    for step, is_good in enumerate(ends):
        made[step]["tool_calls"][0]["result"] = {"success": is_good, "error": "" if is_good else f"boom {step}"}
    message = store(project, answer(agent_steps=made)).messages[0].id
    assert message is not None
    assert words in text_of(staff.get(page_of(message)))


def test_failure_on_another_page_is_reached_by_its_link(staff: Client, project: Project) -> None:
    many = steps(60, 3)
    many[50]["tool_calls"][1]["result"] = {"success": False, "error": "boom"}
    message = store(project, answer(agent_steps=many)).messages[0].id
    assert message is not None
    response = staff.get(page_of(message))
    assert "Page 1 of 3" in text_of(response)
    failed = ToolCall.objects.get(status="error")
    link = links_of(response)["Step 50 tool 1: boom"]
    assert link == f"?call={failed.pk}#call-{failed.pk}" == next_failure_of(response)
    assert f'id="call-{failed.pk}" open' in html_of(staff.get(page_of(message) + link))
    links = links_of(response)
    assert "Page 3 of 3" in text_of(staff.get(page_of(message) + link))
    assert "Step 59" in text_of(staff.get(page_of(message) + "?page=3"))
    assert "Step 40" in text_of(staff.get(page_of(message) + links["Later steps →"]))


def test_failures_are_listed_with_step_and_error(staff: Client, project: Project) -> None:
    many = steps(60, 1)
    for step in range(0, 24, 2):
        many[step]["tool_calls"][0]["result"] = {"success": False, "error": f"relation t{step} <b> is missing"}
    message = store(project, answer(agent_steps=many)).messages[0].id
    assert message is not None
    response = staff.get(page_of(message))
    links = links_of(response)
    assert "12 tool calls failed." in text_of(response)
    labels = [label for label in links if label.startswith("Step ")]
    assert labels == [f"Step {step} tool 0: relation t{step} <b> is missing" for step in range(0, 20, 2)]
    assert links["and 2 more"] == f"{CALLS}?message={message}&status=error"
    assert len(rows_of(staff.get(links["and 2 more"]))) == 12


def next_failure_of(response: Any, rel: str = "next") -> str | None:
    """Return the link to the next or previous failure from a page."""
    found = re.search(rf'<a [^>]*rel="{rel}" href="([?]call=[^"]+)"', html_of(response))
    return found and unescape(found[1])


def test_tools_show_the_readers_place_among_failures(staff: Client, project: Project) -> None:
    many = steps(60, 3)
    for step in (3, 50):
        many[step]["tool_calls"][1]["result"] = {"success": False, "error": f"boom {step}"}
    message = store(project, question(), answer(agent_steps=many)).messages[1].id
    assert message is not None
    first = staff.get(page_of(message))
    assert "2 failures" in text_of(first)
    assert next_failure_of(first, "prev") is None
    second = staff.get(f"{page_of(message)}{next_failure_of(first)}")
    assert "Failure 1 of 2" in text_of(second)
    third = staff.get(f"{page_of(message)}{next_failure_of(second)}")
    assert "Failure 2 of 2" in text_of(third)
    assert "Page 3 of 3" in text_of(third)
    assert next_failure_of(third) is None
    assert next_failure_of(third, "prev") == next_failure_of(first)


def test_run_without_failure_names_none(staff: Client, project: Project) -> None:
    message = store(project, answer(agent_steps=steps(2, 1))).messages[0].id
    assert message is not None
    page = staff.get(page_of(message))
    assert " Done " in text_of(page)
    assert "tool call failed" not in text_of(page)
    assert next_failure_of(page) is None


def test_counts_of_failed_calls_link_to_the_failures(staff: Client, run: UUID) -> None:
    failed = ToolCall.objects.get(status="error")
    session = Session.objects.get()
    place = f"{page_of(run)}?call={failed.pk}#call-{failed.pk}"
    # From the list of runs, and from the conversation.
    for page in (f"{MESSAGES}?role=assistant", f"{SESSIONS}{session.pk}/change/"):
        links = re.findall(r'<a [^>]*href="([^"]+\?failure)"', html_of(staff.get(page)))
        assert links == [f"{page_of(run)}?failure"], page
        assert staff.get(links[0]).headers["Location"] == place
    # From the page of a session, and from the list of sessions through its runs.
    page = html_of(staff.get(f"{SESSIONS}{session.pk}/change/"))
    links = [unescape(link) for link in re.findall(r'<a [^>]*href="([^"]*toolcall/[?]session=[^"]+)"', page)]
    assert links == [f"{CALLS}?session={session.pk}&status=error"]
    assert links_of(staff.get(SESSIONS))["1"] == links[0]
    problems = links_of(staff.get(f"{SESSIONS}?columns=problems"))["1"]
    assert f'href="{page_of(run)}?failure"' in html_of(staff.get(problems))
    (row,) = rows_of(staff.get(f"{CALLS}?session={session.pk}&status=error"))
    assert row[0] == "get_weather"


def test_failure_parameter_of_good_run_shows_run(staff: Client, project: Project) -> None:
    message = store(project, answer(agent_steps=steps(1, 1))).messages[0].id
    assert message is not None
    assert staff.get(f"{page_of(message)}?failure").status_code == 200
    assert staff.get(f"{MESSAGES}junk/change/?failure").headers["Location"] == MESSAGES


def test_error_in_list_of_calls_is_a_link(staff: Client, run: UUID) -> None:
    failed = ToolCall.objects.get(status="error")
    assert (
        links_of(staff.get(f"{CALLS}?status=error"))["unknown city"]
        == f"{page_of(run)}?call={failed.pk}#call-{failed.pk}"
    )


def test_calls_are_filtered_by_session(staff: Client, project: Project, run: UUID) -> None:
    other = store(project, question(), answer(agent_steps=steps(2, 1)), external_id="other")
    assert len(rows_of(staff.get(f"{CALLS}?session={other.id}"))) == 2
    assert rows_of(staff.get(f"{CALLS}?session={other.id}&status=error")) == []
    assert len(rows_of(staff.get(f"{CALLS}?session=other"))) == 2
    assert rows_of(staff.get(f"{CALLS}?session=junk")) == []
    warning = "Invalid filter: message ID “junk”. Use the ID of the message. It is left out."
    assert warning in text_of(staff.get(f"{CALLS}?message=junk", follow=True))


def headings_of(page: Any) -> list[str]:
    return re.findall(r'<th scope="col" class="[^"]*column-(\w+)', html_of(page))


def test_runs_are_a_list_of_their_own(staff: Client, run: UUID) -> None:
    runs = staff.get(links_of(staff.get("/admin/"))["Runs"])
    assert text_of(runs).startswith("Runs")
    assert "<title>Runs" in html_of(runs)
    (row,) = rows_of(runs)
    # One knows a run by what was asked.
    assert row[:2] == [f"{question()['content']} unknown city", "Failed"]
    assert headings_of(runs) == ["outcome", "question", "took", "failures", "created", "in_session"], "no cost is known"
    (row,) = rows_of(staff.get(f"{MESSAGES}?role=assistant&columns=answer"))
    assert row == [f"{question()['content']} unknown city", answer()["content"]]
    Project.objects.create(slug="another")
    assert headings_of(staff.get(f"{MESSAGES}?role=assistant"))[-1] == "project"
    assert "project" not in headings_of(staff.get(f"{MESSAGES}?role=assistant&project=owner"))
    assert {"text", "who", "problems"}.isdisjoint(headings_of(runs))
    assert "Add message" not in links_of(runs)
    assert text_of(staff.get(MESSAGES)).startswith("Messages")
    assert headings_of(staff.get(MESSAGES)) == ["text", "took", "created", "in_session", "project"]
    session = Session.objects.get()
    assert headings_of(staff.get(f"{MESSAGES}?session={session.pk}")) == ["text", "took", "created", "project"]
    assert "Add message" in links_of(staff.get(MESSAGES))


def test_runs_without_texts_say_what_they_lack(staff: Client, project: Project) -> None:
    store(project, answer(content="", is_completed=False, agent_steps=[]), external_id="begun")
    silent = answer(content="", is_completed=True, created_at=NOON + timedelta(minutes=1))
    store(project, question(), silent, external_id="silent")
    rows = [row[:2] for row in rows_of(staff.get(f"{MESSAGES}?role=assistant"))]
    assert rows == [
        [f"{question()['content']} unknown city", "Failed"],
        ["(no question) (no text yet)", "Running"],
    ]
    ToolCall.objects.update(status="success")
    Message.objects.update(failure_count=0)
    (silent_row, _begun) = rows_of(staff.get(f"{MESSAGES}?role=assistant"))
    assert silent_row[:2] == [f"{question()['content']} (no text)", "Done"]


def test_lists_have_the_outcomes_of_the_pages_of_runs(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def called(*errors: str) -> list[dict[str, Any]]:
        return [{"tool_calls": [{"name": "refund", "result": {"error": error}} for error in errors]}]

    def outcomes(url: str) -> dict[str, str]:
        return {row[0]: row[1] for row in rows_of(staff.get(url))}

    def of_sessions() -> dict[str, str]:
        return {name.split()[0]: word for name, word in outcomes(SESSIONS).items()}

    ended: dict[str, dict[str, Any]] = {
        "bad": {"agent_steps": called("", "no <b>account")},
        "good": {"agent_steps": called("no account", "")},
        "broken": {"agent_steps": called(""), "error": "out of memory"},
        "stopped": {"agent_steps": [], "error": "Stopped.", "health": [STOPPED]},
        "killed": {"agent_steps": [], "health": [interruptions.FLAG]},
    }
    for name, fields in ended.items():
        store(project, question(content=name), answer(content="Paid.", **fields), external_id=name, title=name)
    expected = {"bad": "Failed", "good": "Done", "broken": "Failed", "stopped": "Stopped", "killed": "Failed"}
    assert of_sessions() == expected
    runs = outcomes(f"{MESSAGES}?role=assistant")
    below = {"bad": "no <b>account", "good": "Paid.", "broken": "out of memory", "stopped": "Stopped."}
    below["killed"] = interruptions.TEXTS[interruptions.NO_NEWS]
    assert runs == {f"{name} {text}": expected[name] for name, text in below.items()}
    for run in Message.objects.filter(role="assistant").select_related("session"):
        assert f"outcome-{expected[run.session.title].lower()}" in html_of(staff.get(page_of(run.pk)))
    # Until it is stored, which call decided is read for the page.
    store_patterns(primary, patience=timedelta())
    monkeypatch.setattr(deciding, "decide", lambda _db, runs: dict(zip(runs, (), strict=True)))
    assert of_sessions() == expected
    for outcome in Outcome:
        filtered = outcomes(f"{MESSAGES}?role=assistant&outcome={outcome}")
        assert filtered == {name: word for name, word in runs.items() if word == outcome.label}


def test_run_time_of_a_session_is_told_from_an_unknown_one(staff: Client, project: Project) -> None:
    store(project, answer(content="", is_completed=False, agent_steps=[]), external_id="begun")
    store(project, answer(agent_steps=[], completed_at=NOON, created_at=NOON), external_id="instant")
    quick = answer(agent_steps=[], completed_at=NOON + timedelta(microseconds=1), created_at=NOON)
    store(project, quick, external_id="quick")
    took = dict(row[:2] for row in rows_of(staff.get(f"{SESSIONS}?columns=name,took")))
    assert (took["instant"], took["quick"], took["begun"].endswith(" min so far")) == ("", "0 ms", True)


def test_durations_of_run_are_named(staff: Client, project: Project) -> None:
    def call(second: float, duration: int) -> dict[str, Any]:
        start = NOON + timedelta(seconds=second)
        return {"id": f"{second}", "name": "look", "started_at": start, "duration": duration, "result": {"output": ""}}

    steps = [{"tool_calls": [call(0, 4_000), call(0.5, 3_000)]}, {"tool_calls": [call(60, 5_000)]}]
    outcome = store(project, question(), answer(agent_steps=steps))
    page = page_of(UUID(str(outcome.messages[1].id)))
    # Without an end, the page and the lists show the same sum, and say that it is one.
    assert "Duration 12.0 s in all steps Tool time 12.0 s" in text_of(staff.get(page))
    runs = staff.get(f"{MESSAGES}?role=assistant")
    assert "12.0 s" in rows_of(runs)[0]
    assert '<abbr title="Sum of the durations of its steps, because its end is unknown">12.0 s</abbr>' in html_of(runs)
    assert "12.0 s in all steps" in text_of(staff.get(f"{SESSIONS}{outcome.id}/change/"))
    completed = answer(external_id="a2", completed_at=NOON + timedelta(seconds=99))
    store(project, question(), answer(agent_steps=steps), completed)
    assert "1 min 39 s" in rows_of(staff.get(f"{MESSAGES}?role=assistant"))[0]
    session = text_of(staff.get(f"{SESSIONS}{outcome.id}/change/"))
    assert "Run time 1 min 51 s First to last message 1 min 39 s" in session


def test_error_of_a_run_is_shown_at_the_top(staff: Client, project: Project) -> None:
    message = store(project, answer(agent_steps=[], error="context length exceeded")).messages[0].id
    assert message is not None
    text = text_of(staff.get(page_of(message)))
    assert "Failed context length exceeded" in text
    assert "No steps: the model answered directly." in text


def test_open_run_is_shown_as_running_without_scripts(staff: Client, project: Project) -> None:
    step = {"tool_calls": [{"id": "c1", "name": "search"}]}
    for steps_, sentence in (([], ""), ([step, step], " · 2 steps · 2 tool calls")):
        run = answer(agent_steps=steps_, content="", is_completed=False, external_id=f"run{sentence}")
        message = store(project, run, external_id=f"session{sentence}").messages[0].id
        assert message is not None
        Session.objects.update(active_at=timezone.now())
        page = staff.get(page_of(message))
        header = header_of(page)
        assert header.startswith("Running Live · last event ")
        assert sentence in header
        assert "No steps" not in text_of(page)
        Session.objects.update(active_at=timezone.now() - timedelta(hours=8))
        assert header_of(staff.get(page_of(message))).startswith("Running No news for 8 hours")


def test_call_page_shows_each_value_once_and_no_blank_ones(staff: Client, project: Project) -> None:
    image = {"type": "image", "media_type": "image/png", "url": "https://example.org/a.png"}
    calls = [
        {
            "id": "c",
            "name": "fail",
            "result": {"status": "error", "output": "Error: no disk", "error": "Error: no disk"},
        },
        {"id": "d", "name": "look", "result": {"status": "success", "output": "", "attachments": [image]}},
    ]
    message = store(project, answer(agent_steps=[{"thought": "\n\n", "tool_calls": calls}])).messages[0].id
    assert message is not None
    page = staff.get(page_of(message))
    text = text_of(page)
    assert "Output Error: no disk" not in text
    assert "Output (empty)" not in text
    assert 'Attachments [ { "url": "https://example.org/a.png"' in text
    assert 'class="thought"' not in page.content.decode()


def test_call_without_result_is_shown_as_pending(staff: Client, project: Project) -> None:
    waiting = answer(agent_steps=[{"tool_calls": [{"id": "c", "name": "wait"}]}], is_completed=False)
    message = store(project, waiting).messages[0].id
    assert message is not None
    text = text_of(staff.get(page_of(message)))
    assert "pending wait" in text
    assert "No result yet." in text


def test_hostile_traces_are_shown_as_text_everywhere(staff: Client, project: Project) -> None:
    call = {
        "id": HOSTILE,
        "name": HOSTILE,
        "args": {HOSTILE: HOSTILE, "lines": "</div></details>\n</main>" + HOSTILE},
        "reflection": HOSTILE,
        "metadata": {HOSTILE: HOSTILE},
        "result": {"success": False, "output": HOSTILE, "error": HOSTILE, "data": [HOSTILE], "raw": HOSTILE},
    }
    step = {
        "thought": HOSTILE,
        "reasoning_content": HOSTILE,
        "agent_name": HOSTILE,
        "model": HOSTILE,
        "metadata": {HOSTILE: HOSTILE},
        "tool_calls": [call, {**call, "parent": HOSTILE}],
    }
    outcome = store(project, question(content=HOSTILE), answer(agent_steps=[step], content=HOSTILE, error=HOSTILE))
    message = outcome.messages[1].id
    assert message is not None
    tool = Tool.objects.get()
    a_call = ToolCall.objects.first()
    assert a_call is not None
    urls = [
        *(page_of(message), f"{SESSIONS}{outcome.id}/change/", CALLS, TOOLS, f"{TOOLS}{tool.pk}/change/", MESSAGES),
        *(f"{page_of(message)}?call={a_call.pk}", f"{CALLS}{a_call.pk}/history/", f"{TOOLS}{tool.pk}/history/"),
    ]
    for url in urls:
        html = html_of(staff.get(url))
        assert "<script>alert" not in html, url
        assert "<img src=x" not in html, url
        assert "\x1b" not in html, url
        assert "\u202e" not in html, url
        assert html.count("<main ") == html.count("</main>") == 1, url


def test_value_of_many_megabytes_shows_its_beginning(staff: Client, project: Project) -> None:
    long = {"output": "0123456789\n" * 500_000, "data": {"rows": ["数据"] * 20_000}}
    message = store(project, answer(agent_steps=steps(1, 1, result=long))).messages[0].id
    assert message is not None
    html = html_of(staff.get(page_of(message)))
    assert "Only the first 64.0\xa0KB of 5.2\xa0MB are shown." in html
    assert "&quot;数据&quot;" in html
    assert len(html) < 400_000
    call = ToolCall.objects.get()
    panel = html_of(staff.get(f"{CALLS}{call.pk}/change/", follow=True)).partition('id="selected"')[2]
    assert "The value is truncated here." in panel
    assert f'href="{CALLS}value/result/{call.pk}/output/" download>Download all</a>' in panel
    assert len(panel) < 400_000


def test_run_of_2000_steps_and_5_mb_values_is_split_into_pages(staff: Client, project: Project) -> None:
    many = steps(2_000, 1)
    for place in (0, 1, 1_999):
        many[place]["thought"] = f"thought {place} " + "t" * 5_000_000
        many[place]["tool_calls"][0]["result"] = {"output": f"output {place} " + "x" * 5_000_000}
    message = store(project, answer(agent_steps=many)).messages[0].id
    assert message is not None
    first = staff.get(page_of(message))
    last = staff.get(page_of(message) + "?page=40")
    for response, number, shown in ((first, 1, range(50)), (last, 40, range(1_950, 2_000))):
        html, text = html_of(response), text_of(response)
        assert [int(found) for found in re.findall(r"\bStep (\d+)\b", text)] == list(shown)
        assert f"Page {number} of 40" in text
        assert len(html) < 500_000
        # Each long value is shown by its beginning and a link to the whole.
        cut = sum(place in shown for place in (0, 1, 1_999))
        assert html.count("of 4.8\xa0MB are shown.") == html.count(">Download all (4.8\xa0MB)</a>") == 2 * cut
    assert links_of(first)["Later steps →"] == "?view=text&page=2"
    assert links_of(last)["← Earlier steps"] == "?view=text&page=39"
    whole = staff.get(links_of(last)["Download all (4.8 MB)"]).content.decode()
    assert whole == "thought 1999 " + "t" * 5_000_000


def test_whole_trace_is_downloaded(staff: Client, project: Project) -> None:
    outcome = store(project, question(), answer(agent_steps=steps(1, 1)))
    links = links_of(staff.get(f"{SESSIONS}{outcome.id}/change/"))
    for label, kind, extension in (
        ("Export JSON", "application/json", "json"),
        ("Export JSONL", "application/x-ndjson", "jsonl"),
        ("Export Markdown", "text/markdown; charset=utf-8", "md"),
        ("Export as OpenAI chat", "application/json", "openai.json"),
    ):
        whole = staff.get(links[label])
        assert (whole.status_code, whole.headers["Content-Type"]) == (200, kind)
        assert f"session-{outcome.id}.{extension}" in whole.headers["Content-Disposition"]
    message = staff.get(page_of(UUID(str(outcome.messages[1].id))))
    assert f'download="message-{outcome.messages[1].id}.json">Export JSON</a>' in html_of(message)
    assert staff.get(links_of(message)["Export JSON"]).headers["Content-Type"] == "application/json"


def test_session_page_goes_to_a_message_by_its_number(staff: Client, project: Project) -> None:
    times = [NOON + timedelta(seconds=place) for place in range(60)]
    said = [{"external_id": f"m{place}", "role": "user", "created_at": at} for place, at in enumerate(times)]
    page = f"{SESSIONS}{store(project, *said).id}/change/"
    found = staff.get(page, {"number": "55"}, follow=True)
    bubbles = found.context["bubbles"]
    assert [bubble.message.external_id for bubble in bubbles] == [f"m{place}" for place in range(54, 60)]
    # The page of a message leads back to its place.
    message = bubbles[0].message
    links = links_of(staff.get(page_of(message.pk))).values()
    (back,) = {url for url in links if url.endswith(f"#message-{message.pk}")}
    assert staff.get(back).context["bubbles"][0].message.pk == message.pk
    for number in ("0", "61", "-1", "x", "9" * 30, ""):
        refused = staff.get(page, {"number": number}, follow=True)
        assert "There is no such message. Messages are numbered from 1 to 60." in html_of(refused)


def test_session_page_of_5000_messages_takes_no_more_queries(staff: Client, project: Project) -> None:
    counts = []
    for name, count in (("short", 50), ("long", 5_000)):
        times = [NOON + timedelta(seconds=place) for place in range(count)]
        said = [{"external_id": f"m{place}", "role": "user", "created_at": at} for place, at in enumerate(times)]
        page = f"{SESSIONS}{store(project, *said, external_id=name).id}/change/"
        counts.append(len(statements_of(staff, page)))
        assert len(staff.get(page).context["bubbles"]) == 50
    assert counts[0] == counts[1]


def test_session_page_lists_the_first_references_of_an_answer(staff: Client, project: Project) -> None:
    passages = [{"id": f"r{place}", "knowledge_title": f"Handbook {place}", "score": 0.5} for place in range(7)]
    session = store(project, question(), answer(knowledge_references=passages))
    html = html_of(staff.get(f"{SESSIONS}{session.id}/change/"))
    assert "7 references" in html
    assert "Handbook 4" in html and "Handbook 5" not in html


LONG_TEXT = "<script>alert(1)</script> \u202e 数据\n" * 10_000
LONG_JSON = {"rows": [{"n": 12345678901234567890, "text": "<b>数据</b>"}] * 5_000}


@pytest.mark.parametrize(
    ("place", "value", "extension"),
    [
        ("output", LONG_TEXT, "txt"),
        ("error", LONG_TEXT, "txt"),
        ("data", LONG_JSON, "json"),
        ("args", LONG_JSON, "json"),
        ("reflection", LONG_TEXT, "txt"),
        ("thought", LONG_TEXT, "txt"),
        ("reasoning_content", LONG_TEXT, "txt"),
        ("content", LONG_TEXT, "txt"),
        ("metadata", LONG_JSON, "json"),
    ],
)
def test_long_value_is_downloaded_by_itself(
    staff: Client, project: Project, place: str, value: Any, extension: str
) -> None:
    result = {place: value} if place in ("output", "error", "data") else {"output": "ok"}
    call = {"id": "c", "name": "read", "result": result}
    call |= {place: value} if place in ("args", "reflection") else {}
    step = {"tool_calls": [call]} | ({place: value} if place in ("thought", "reasoning_content") else {})
    fields = {place: value} if place in ("content", "metadata") else {}
    message = store(project, answer(agent_steps=[step], **fields)).messages[0].id
    assert message is not None
    (label,) = [label for label in links_of(staff.get(page_of(message))) if label.startswith("Download")]
    file = staff.get(links_of(staff.get(page_of(message)))[label])
    assert file.status_code == 200
    text = file.content.decode()
    assert label == f"Download all ({filesizeformat(len(file.content))})".replace("\xa0", " ")
    assert (text if extension == "txt" else json.loads(text)) == value
    assert file.headers["Content-Disposition"].startswith("attachment; filename=")
    assert file.headers["Content-Disposition"].endswith(f'.{extension}"')
    assert file.headers["Content-Type"] in ("text/plain; charset=utf-8", "application/json")
    assert file.headers["X-Content-Type-Options"] == "nosniff"
    # The file is not one line of 5 MB.
    assert max(map(len, text.splitlines())) < 200


def test_download_of_unknown_value_leads_to_list(staff: Client, client: Client, run: UUID) -> None:
    call = ToolCall.objects.get(tool__name="search")
    for path in (
        f"value/call/{call.pk}/project_id/",
        f"value/call/{run}/args/",
        f"value/message/{run}/content/",
        f"value/result/{call.pk}/raw/",
    ):
        assert staff.get(CALLS + path, follow=True).redirect_chain == [(CALLS, 302)], path
    url = f"{CALLS}value/call/{call.pk}/args/"
    assert staff.get(url).json() == {"q": "Atlantis"}
    assert client.get(url).status_code == 302
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    assert client.get(url).status_code == 403


def test_session_page_lists_its_contexts(staff: Client, project: Project) -> None:
    prompts = [{"session_id": "weather", "type": "prompt_build", "data": {"text": f"Be kind. {n}"}} for n in range(60)]
    record_events(
        primary, project.pk, [redact_event(msgspec.convert(one, records.Event), DEFAULT_RULES) for one in prompts]
    )
    session = Session.objects.get()
    page = f"{SESSIONS}{session.pk}/change/"
    refs = {label: url for label, url in links_of(staff.get(page)).items() if label.startswith("ctx_")}
    assert len(refs) == 50
    texts = {staff.get(url).json()["text"] for url in refs.values()}
    assert texts <= {one["data"]["text"] for one in prompts}
    assert len(staff.get(links_of(staff.get(page))["Show all"]).json()["results"]) == 20
    writes.delete_session(primary, session.pk, by="test")
    assert "ctx_" not in html_of(staff.get(page))


def test_session_page_lists_contexts_of_every_kind(staff: Client, project: Project) -> None:
    asked = [{"role": "user", "content": "Which weather?"}]
    sent = [
        {"type": "prompt_build", "data": {"text": "Be kind."}},
        {"type": "llm_request_start", "data": {"step": "1", "request": {"messages": asked}}},
        {"type": "llm_request_start", "data": {"step": "2", "variables": {"city": "Rome"}}},
        {"type": "llm_request_start", "data": {"step": "3", "conversation": asked, "variables": {"city": "Rome"}}},
        {"type": "tool_call_start", "data": {"call_id": "c", "name": "search", "args": {"q": "x" * 20_000}}},
    ]
    events = [redact_event(msgspec.convert({"session_id": "s", **one}, records.Event), DEFAULT_RULES) for one in sent]
    record_events(primary, project.pk, events)
    assert {context.kind for context in Context.objects.all()} - {"entry"} == set(get_args(ContextKind))
    page = text_of(staff.get(f"{SESSIONS}{Session.objects.get().pk}/change/"))
    assert {kind for _ref, kind in re.findall(r"(ctx_\w+) (\w+)", page)} == set(get_args(ContextKind))


def test_run_page_takes_constant_queries(staff: Client, project: Project) -> None:
    failed = {"success": False, "error": "x"}
    small = store(project, question(), answer(agent_steps=steps(1, 2, result=failed)))
    large = store(
        project, question(), answer(agent_steps=steps(50, 8, result=failed, reflection="r")), external_id="large"
    )
    counts = [len(statements_of(staff, page_of(UUID(str(run.messages[1].id))))) for run in (small, large)]
    assert counts[0] == counts[1]


# --- The conversation with its runs -----------------------------------------------------------------------------------


def test_session_has_the_runs_of_its_answers_as_chapters(staff: Client, project: Project) -> None:
    outcome = store(project, question(), answer())
    response = staff.get(f"{SESSIONS}{outcome.id}/change/")
    text = text_of(response)
    assert "2 steps · 4 tool calls" in text
    rows = response.context["first_rows"]
    asked, answered = (str(message.id) for message in outcome.messages)
    chapter, *calls, last = zip(
        rows["depths"], [rows["names"][name] for name in rows["named"]], rows["ids"], strict=True
    )
    assert (chapter, last) == ((0, "", asked), (1, "", answered))
    assert [name for _depth, name, _id in calls if name] == ["get_weather", "get_weather", "ask_researcher", "search"]
    assert rows["chapters"] == {0: {"outcome": "failed", "label": "Failed", "run": answered}}
    assert rows["words"][asked]["text"] == question()["content"]
    # The whole outline, the words and the panel of its rows have addresses of their own.
    whole = staff.get(f"{SESSIONS}{outcome.id}/outline/").json()
    assert whole["ids"] == [str(key) for key in rows["ids"]]
    call = str(ToolCall.objects.get(tool__name="search").pk)
    assert set(staff.get(f"{SESSIONS}{outcome.id}/words/", {"id": [call, "x"]}).json()) == {call}
    assert staff.get(f"{SESSIONS}{outcome.id}/outline/{call}/").json()["title"] == "search"
    assert staff.get(f"{SESSIONS}{outcome.id}/outline/{asked}/").status_code == 404
    assert staff.get(f"{SESSIONS}{outcome.id}/outline/", {"cursor": "x"}).status_code == 400
    elsewhere = store(project, question(), external_id="elsewhere").id
    assert staff.get(f"{SESSIONS}{elsewhere}/outline/{call}/").status_code == 404
    assert staff.get(f"{SESSIONS}{elsewhere}/words/", {"id": call}).json() == {}


def header_of(response: Any) -> str:
    """Return the second line of the header of a session: how it ended, and why."""
    found = re.search(r'(<strong class="outcome.*?)<ul class="figures">', html_of(response), re.DOTALL)
    assert found is not None
    return " ".join(re.sub("<[^>]*>", " ", found[1]).split())


def test_session_ends_as_its_newest_run(staff: Client, project: Project) -> None:
    outcome = store(project, question(), answer())
    page = f"{SESSIONS}{outcome.id}/change/"
    assert header_of(staff.get(page)) == "Failed Answered despite Step 0 get_weather unknown city"
    call = ToolCall.objects.get(status="error")
    assert (
        links_of(staff.get(page))["Step 0 get_weather"] == f"{page_of(call.message_id)}?call={call.pk}#call-{call.pk}"
    )
    assert "Status Completed" in text_of(staff.get(page))
    later = NOON + timedelta(hours=1)
    store(project, answer(external_id="a2", created_at=later, agent_steps=[], content="All is **well**."))
    assert header_of(staff.get(page)) == "Done All is well."
    assert "Last run Done" in text_of(staff.get(page))
    newest = Message.objects.filter(external_id="a2")
    newest.update(error="ValueError: no")
    assert header_of(staff.get(page)) == "Failed ValueError: no"
    assert links_of(staff.get(page))["2 of 2 runs failed"].endswith(
        f"?role=assistant&session={outcome.id}&outcome=failed"
    )
    assert links_of(staff.get(page))["ValueError: no"] == page_of(newest.get().pk)
    newest.update(health=["stopped"])
    assert header_of(staff.get(page)).startswith("Stopped")
    later += timedelta(hours=1)
    store(project, answer(external_id="a3", created_at=later, agent_steps=[], content="", is_completed=False))
    assert header_of(staff.get(page)).startswith("Running No news for ")
    # The session ended without an end of that run.
    store(project, status="completed")
    assert header_of(staff.get(page)) == "Done"


def test_session_without_runs_ends_as_its_status(staff: Client, project: Project) -> None:
    outcome = store(project, question(), status="error")
    assert header_of(staff.get(f"{SESSIONS}{outcome.id}/change/")) == "Failed"


NOTES = {
    "Base directory for this skill: /skills/pdf": "Skill",
    "This session is being continued from a previous conversation that ran out of context.": "Conversation compacted",
    "Caveat: The messages below were generated by the user while running local commands.": "Notes of the client",
    "<command-name>/mcp</command-name>": "Notes of the client",
    "You are a support desk.": "System",
}


def test_message_that_nobody_asked_is_no_chapter(staff: Client, project: Project) -> None:
    notes = [question(role="system", external_id=f"n{place}", content=text) for place, text in enumerate(NOTES)]
    said = [notes[0], question(), notes[1], answer(), *notes[2:], question(external_id="q2")]
    for place, message in enumerate(said):
        message["created_at"] = NOON + timedelta(seconds=place)
    outcome = store(project, *said)
    response = staff.get(f"{SESSIONS}{outcome.id}/change/")
    rows = response.context["path_rows"]
    assert [(row.kind, len(row.indents), row.who) for row in rows if row.kind > 1] == [
        *[(4, 0, "Skill"), (3, 0, ""), (4, 1, "Conversation compacted"), (2, 1, "Answer")],
        (4, 1, "Notes of the client"),
        (4, 2, "Notes of the client"),
        *[(4, 1, "System"), (3, 0, "")],
    ]
    badges = re.findall(r'<span class="badge badge-system">(.*?)</span>', html_of(response))
    assert badges == list(NOTES.values())
    assert all(text in unescape(html_of(response)) for text in NOTES)


def test_question_that_begins_like_a_note_stays_a_question(staff: Client, project: Project) -> None:
    outcome = store(project, question(content="<command-name>foo</command-name> what is this?"))
    assert [row.kind for row in staff.get(f"{SESSIONS}{outcome.id}/change/").context["path_rows"]] == [3]


def test_first_rows_of_session_are_links_for_readers_without_scripts(staff: Client, project: Project) -> None:
    outcome = store(project, question(), answer())
    page = staff.get(f"{SESSIONS}{outcome.id}/change/")
    asked, answered = (str(message.id) for message in outcome.messages)
    call = ToolCall.objects.get(status="error")
    urls = [row.url for row in page.context["path_rows"]]
    assert (urls[0], urls[-1]) == (f"#message-{asked}", f"#message-{answered}")
    assert f"{page_of(call.message_id)}?call={call.pk}#selected" in urls
    assert all(f'href="{url}" class="run-row' in html_of(page) for url in urls)
    (row,) = (row for row in page.context["path_rows"] if row.is_error)
    assert (row.tool, row.status, row.words.error) == ("get_weather", "error", "unknown city")


def test_conversation_with_runs_takes_constant_queries(staff: Client, project: Project) -> None:
    def conversation(name: str, count: int) -> str:
        answers = [answer(external_id=f"a{n}", agent_steps=steps(n % 4 + 1, 3)) for n in range(count)]
        return f"{SESSIONS}{store(project, *answers, external_id=name).id}/change/"

    few, more, many = (conversation(str(count), count) for count in (2, 15, 60))
    assert len(statements_of(staff, few)) == len(statements_of(staff, more))
    # The runs of a long page come after it.
    assert len(statements_of(staff, many)) < len(statements_of(staff, few))
    whole = statements_of(staff, many.replace("change", "outline"))
    assert len(whole) == len(statements_of(staff, more.replace("change", "outline"))) <= 14


def test_paused_session_shows_what_it_waits_for(staff: Client, project: Project) -> None:
    waits = [{"name": "refund", "args": {}}, {"name": "lookup", "args": {}, "result": {"output": "x"}}]
    run = answer(is_completed=False, agent_steps=[{"tool_calls": waits}])
    outcome = store(project, question(), run, status="paused", current_phase="waiting for <b>approval</b>")
    page = staff.get(f"{SESSIONS}{outcome.id}/change/")
    assert "Paused: waiting for <b>approval</b> · Calls without a result: refund" in text_of(page)
    assert "assistant 2026-03-01 12:00:00 Open this message (assistant) paused" in text_of(page)
    call = ToolCall.objects.get(tool__name="refund")
    assert links_of(page)["refund"] == f"{page_of(call.message_id)}?call={call.pk}#call-{call.pk}"
    Session.objects.update(said_status=Session.Status.RUNNING)
    assert "Paused" not in text_of(staff.get(f"{SESSIONS}{outcome.id}/change/"))


def test_paused_run_shows_what_it_waits_for(staff: Client, project: Project) -> None:
    asked = {"interrupts": [{"id": "i1", "value": "<b>Refund 349?</b>"}]}
    run = answer(is_completed=False, metadata=asked, agent_steps=[{"tool_calls": [{"name": "refund", "args": {}}]}])
    outcome = store(project, question(), run, status="paused", current_phase="waiting for approval")
    page = staff.get(page_of(outcome.messages[1].id))
    assert "Waiting Paused: waiting for approval" in text_of(page)
    assert (
        'Paused: waiting for approval · Calls without a result: refund [ { "id": "i1", "value": "<b>Refund'
        in text_of(page)
    )
    call = ToolCall.objects.get(tool__name="refund")
    assert links_of(page)["refund"] == f"?call={call.pk}"
    Message.objects.update(is_completed=True)
    assert "Paused" not in text_of(staff.get(page_of(outcome.messages[1].id)))


# --- Finding the failed call --------------------------------------------------------------------------------------------


def test_failed_call_in_the_list_links_to_its_run(staff: Client, run: UUID) -> None:
    response = staff.get(f"{CALLS}?status=error")
    assert rows_of(response) == [
        [
            "get_weather",
            '{"city": "Atlantis"}',
            "unknown city",
            "What is the weather in Shanghai and in…",
            "12 ms",
            ago(NOON),
        ]
    ]
    failed = ToolCall.objects.get(status="error")
    page = staff.get(links_of(response)["get_weather"], follow=True)
    assert page.redirect_chain == [(f"{page_of(run)}?call={failed.pk}#call-{failed.pk}", 302)]
    assert f'id="call-{failed.pk}" open' in html_of(page)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["search", "ask_researcher", "get_weather", "get_weather"]),
        ("tool=get_weather", ["get_weather", "get_weather"]),
        ("tool=get_weather&status=success", ["get_weather"]),
        ("tool=unknown", []),
        ("status=pending", []),
        ("project=owner&tool=search", ["search"]),
        ("project=stranger", []),
        ("message={run}", ["search", "ask_researcher", "get_weather", "get_weather"]),
        ("message=00000000-0000-7000-8000-000000000000", []),
        ("created_after=2026-03-01T12:00:00&created_before=2026-03-01T12:00:01&status=error", ["get_weather"]),
        ("created_after=2026-03-01T12:00:01", []),
        ("min_duration=12&max_duration=12", ["get_weather"]),
        ("max_duration=12&status=success", []),
        ("q=call_d", ["search"]),
        ("q=call_x", []),
    ],
)
def test_calls_are_filtered_and_found(
    staff: Client, stranger: Project, run: UUID, query: str, expected: list[str]
) -> None:
    found = [row[0] for row in rows_of(staff.get(f"{CALLS}?{query.format(run=run)}"))]
    assert sorted(found) == sorted(expected)


def test_call_search_finds_the_generated_id(staff: Client, run: UUID) -> None:
    call = ToolCall.objects.get(call_id="call_b")
    assert [row[3] for row in rows_of(staff.get(CALLS, {"q": str(call.pk)}))] == ["unknown city"]


def test_calls_of_deleted_messages_are_not_listed(staff: Client, run: UUID) -> None:
    writes.delete_message(primary, run, by="ada")
    assert rows_of(staff.get(CALLS)) == []
    # The page of the message still shows them, for the decision whether to restore it.
    assert "ask_researcher" in text_of(staff.get(page_of(run)))


@pytest.mark.parametrize("query", ["tool=get_weather", "tool=get_weather&created_after=2026-03-01T00:00"])
def test_sessions_and_messages_are_filtered_by_tool(staff: Client, project: Project, run: UUID, query: str) -> None:
    store(project, question(), answer(agent_steps=steps(1, 1)), external_id="other")
    assert [row[0] for row in rows_of(staff.get(f"{MESSAGES}?{query}"))] == [
        "Shanghai 31 °C; there is no Atlantis. Failed · 4 tool calls · 1 failed · 150 tokens"
    ]
    names = [row[0] for row in rows_of(staff.get(f"{SESSIONS}?tool=get_weather"))]
    assert names == ["What is the weather in Shanghai and in Atlantis? unknown city"]
    assert rows_of(staff.get(f"{SESSIONS}?tool=nothing")) == []
    assert '<option value="get_weather"></option>' in html_of(staff.get(f"{SESSIONS}facets/"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("tool_status=error", 1),
        ("tool_status=pending", 0),
        # One call failed and another one is of the tool, but none is both.
        ("tool_status=error&tool=search", 0),
        ("tool_status=success&tool=search", 1),
        ("tool_status=error&tool=get_weather&created_after=2026-03-01T00:00", 1),
        ("tool_status=error&tool=unknown", 0),
    ],
)
def test_messages_are_filtered_by_tool_and_status(staff: Client, run: UUID, query: str, expected: int) -> None:
    assert len(rows_of(staff.get(f"{MESSAGES}?{query}"))) == expected


def test_messages_filtered_by_tool_are_walked_to_the_end(staff: Client, project: Project) -> None:
    # All in one microsecond: the bounds of the cursor must not exclude any call.
    store(project, *(answer(external_id=f"a{n}", agent_steps=steps(1, 1)) for n in range(120)))
    seen, url = [], f"{MESSAGES}?tool=tool 0"
    while True:
        response = staff.get(url)
        seen += re.findall(r'name="_selected_action" value="([^"]+)"', html_of(response))
        links = links_of(response)
        if "Older →" not in links:
            break
        url = MESSAGES + links["Older →"]
    assert seen == [str(pk) for pk in Message.objects.order_by("-pk").values_list("pk", flat=True)]


@pytest.mark.parametrize(
    "url", [CALLS, f"{CALLS}?status=error", TOOLS, f"{MESSAGES}?tool=tool 0", f"{SESSIONS}?tool=tool 0"]
)
def test_list_uses_no_count_and_constant_queries(staff: Client, project: Project, url: str) -> None:
    store(project, answer(agent_steps=steps(2, 2, result={"error": "x"})))
    few = statements_of(staff, url)
    store(project, *(answer(external_id=f"a{n}", agent_steps=steps(5, 5, result={"error": "x"})) for n in range(20)))
    for number in range(80):
        Tool.objects.create(project=project, name=f"unused {number}")
    many = statements_of(staff, url)
    assert len(few) == len(many)
    assert [statement for statement in many if "COUNT(" in statement.upper() or "OFFSET" in statement.upper()] == []
    heavy = re.compile(r'(?<!LEFT\()"traces_app_tool(call|result)"\."(args|output|data|metadata|error|raw)"')
    # Short arguments are in the row; long ones are not looked into.
    args = '"traces_app_toolcall"."args"'
    short = f"CASE WHEN pg_column_size({args}) <= 2000 THEN LEFT(({args})::text, 160) ELSE NULL END"
    assert [statement for statement in many if heavy.search(statement.replace(short, ""))] == []


def test_short_arguments_are_listed_and_long_ones_are_not_read(staff: Client, project: Project) -> None:
    given = {"short": {"city": "Oslo"}, "long": {"text": " ".join(map(str, range(2_000)))}}
    calls = [{"id": name, "name": name, "args": args} for name, args in given.items()]
    store(project, answer(agent_steps=[{"tool_calls": calls}]))
    shown = {row[0]: row[1] for row in rows_of(staff.get(f"{CALLS}?columns=arguments"))}
    assert shown == {"short": '{"city": "Oslo"}', "long": ""}


def test_tools_lead_to_their_calls(staff: Client, run: UUID) -> None:
    response = staff.get(TOOLS)
    assert sorted(row[0] for row in rows_of(response)) == ["ask_researcher", "get_weather", "search"]
    assert [row[0] for row in rows_of(staff.get(TOOLS, {"q": "WEATHER"}))] == ["get_weather"]
    links = re.findall(r'href="(/admin/traces_app/toolcall/[^"]*weather[^"]*)"', html_of(response))
    counts = [len(rows_of(staff.get(link.replace("&amp;", "&")))) for link in links]
    assert counts == [2, 1, 0], "all, failed, without a result"


# --- Nothing of a trace is edited ------------------------------------------------------------------------------------


def test_trace_rows_are_read_only(staff: Client, run: UUID) -> None:
    for model in (AgentStep, ToolResult, Reference):
        assert not site.is_registered(model)
    before = list(ToolCall.objects.order_by("pk").values()), list(Tool.objects.order_by("pk").values())
    call, tool = ToolCall.objects.first(), Tool.objects.first()
    assert call is not None
    assert tool is not None
    for url in (f"{CALLS}{call.pk}/", f"{TOOLS}{tool.pk}/"):
        assert staff.get(f"{url}delete/").status_code == 403
        assert staff.post(f"{url}delete/", {"post": "yes"}).status_code == 403
        staff.post(f"{url}change/", {"status": "success", "name": "changed"})
    for url in (CALLS, TOOLS):
        assert staff.get(f"{url}add/").status_code == 403
        assert set(re.findall(r'<option value="(\w+_selected)"', html_of(staff.get(url)))) <= {"score_selected"}
        staff.post(url, {"action": "delete_selected", "_selected_action": [str(call.pk), str(tool.pk)], "post": "yes"})
    assert before == (list(ToolCall.objects.order_by("pk").values()), list(Tool.objects.order_by("pk").values()))


# --- Adding rows --------------------------------------------------------------------------------------------------------


def test_session_added_by_staff_has_an_id_and_empty_lists(staff: Client, project: Project) -> None:
    form = {"project": project.pk, "title": "Talk", "external_id": "talk-1", "end_user": "", "tags": "a,b"}
    response = staff.post(f"{SESSIONS}add/", form, follow=True)
    session = Session.objects.get()
    assert response.redirect_chain == [(f"{SESSIONS}{session.pk}/change/", 302)]
    assert "The session was added." in text_of(response)
    assert ids.created_at_of(session.pk) == session.created_at
    assert (session.title, session.external_id, session.tags, session.status) == (
        "Talk",
        "talk-1",
        ["a", "b"],
        "running",
    )
    assert (session.metadata, session.redactions, session.message_count) == ({}, [], 0)
    assert LogEntry.objects.get().object_id == str(session.pk)


def test_message_added_by_staff_has_an_id_and_empty_lists(staff: Client, project: Project) -> None:
    outcome = store(project, question())
    link = links_of(staff.get(f"{SESSIONS}{outcome.id}/change/"))["Add a message"]
    assert f'value="{outcome.id}"' in html_of(staff.get(link))
    form = {"session": str(outcome.id), "role": "assistant", "content": "An answer by hand.", "external_id": ""}
    response = staff.post(link, form, follow=True)
    message = Message.objects.get(role="assistant")
    assert response.redirect_chain == [(f"{SESSIONS}{outcome.id}/change/?newest#message-{message.pk}", 302)]
    assert "An answer by hand." in text_of(response)
    assert ids.is_ours(message.pk, message.created_at, "assistant")
    assert (message.health, message.redactions, message.metadata) == ([], [], {})
    assert (message.is_completed, message.step_count, message.call_count, message.version) == (True, 0, 0, 1)
    assert list(message.references.all()) == []
    assert list(AgentStep.objects.filter(message=message)) == []
    assert Session.objects.get().message_count == 2


def test_message_is_added_to_a_session_by_its_external_id(staff: Client, project: Project) -> None:
    session = store(project, question(), external_id="talk-7")
    form = {"session": " talk-7 ", "role": "assistant", "content": "By hand.", "external_id": ""}
    staff.post(f"{MESSAGES}add/", form)
    assert Message.objects.get(role="assistant").session_id == session.id
    missing = staff.post(f"{MESSAGES}add/", {**form, "session": "talk-8"})
    assert "There is no session with the ID or external ID “talk-8”." in text_of(missing)
    store(Project.objects.create(slug="twin"), question(), external_id="talk-7")
    assert "Several projects have a session with this external id." in text_of(staff.post(f"{MESSAGES}add/", form))
    assert Message.objects.filter(role="assistant").count() == 1


def test_form_sent_twice_adds_one_row(staff: Client, project: Project) -> None:
    def sent_twice(address: str, **fields: Any) -> None:
        (name,) = re.findall(r'name="form_name" value="(form-[0-9a-f-]{36})"', html_of(staff.get(address)))
        for _time in range(2):
            assert staff.post(address, {**fields, "form_name": name}).status_code == 302

    sent_twice(f"{SESSIONS}add/", project=project.pk, title="Talk")
    session = Session.objects.get()
    sent_twice(f"{MESSAGES}add/", session=str(session.pk), role="user", content="Hello?")
    sent_twice(f"{MESSAGES}add/", session=str(session.pk), role="user", content="Hello?")
    assert Message.objects.filter(session=session).count() == 2


def test_data_added_by_staff_is_redacted(staff: Client, project: Project) -> None:
    form = {"project": project.pk, "title": "Talk", "description": "Authorization: Bearer sk-live-0123456789abcdefghij"}
    staff.post(f"{SESSIONS}add/", form)
    assert "sk-live-0123456789" not in Session.objects.get().description


def test_two_sessions_without_an_external_id_are_two(staff: Client, project: Project) -> None:
    for title in ("one", "two"):
        staff.post(f"{SESSIONS}add/", {"project": project.pk, "title": title})
    assert sorted(Session.objects.values_list("title", flat=True)) == ["one", "two"]


@pytest.mark.parametrize("state", ["alive", "deleted"])
def test_used_external_id_is_refused_at_its_field(staff: Client, project: Project, state: str) -> None:
    outcome = store(project, question())
    assert outcome.id is not None
    if state == "deleted":
        writes.delete_session(primary, outcome.id, by="ada")
    response = staff.post(f"{SESSIONS}add/", {"project": project.pk, "external_id": "weather", "title": "new"})
    assert "already has a session with this external ID. It may be in the trash." in text_of(response)
    form = {"session": str(outcome.id), "role": "user", "content": "again", "external_id": "q1"}
    taken = (
        "already has a message with this external ID"
        if state == "alive"
        else "There is no session with the ID or external ID"
    )
    assert taken in text_of(staff.post(f"{MESSAGES}add/", form))
    assert Message.with_deleted.count() == 1
    assert Session.with_deleted.count() == 1


def test_too_long_name_is_refused_at_its_field(staff: Client, project: Project) -> None:
    response = staff.post(f"{SESSIONS}add/", {"project": project.pk, "external_id": "x" * 513})
    assert "Ensure this value has at most 512 characters" in text_of(response)
    assert Session.objects.count() == 0


def test_refusal_by_ingest_is_shown_above_the_form(staff: Client, project: Project) -> None:
    # The form cannot see that a session was purged; `ingest` refuses its id for 30 days.
    from django.utils import timezone

    from messages_app.models import SessionTombstone, session_key

    SessionTombstone.objects.create(project=project, key=session_key(project.pk, "gone"), purged_at=timezone.now())
    response = staff.post(f"{SESSIONS}add/", {"project": project.pk, "external_id": "gone"}, follow=True)
    assert "The session was purged. Use another external ID." in text_of(response)
    assert Session.objects.count() == 0
    assert LogEntry.objects.count() == 0


@pytest.mark.usefixtures("run")
def test_lists_are_one_click_from_the_rail(staff: Client) -> None:
    def links(url: str) -> set[str]:
        return {unescape(href) for href in re.findall(r'href="([^"]+)"', html_of(staff.get(url)))}

    first = links("/admin/")
    assert {SESSIONS, f"{MESSAGES}?role=assistant", "/admin/settings/"} <= first
    assert f"{MESSAGES}?role=assistant&outcome=running" in first
    assert {MESSAGES, f"{MESSAGES}trash/"} <= links(f"{MESSAGES}?role=assistant")
    assert f"{SESSIONS}trash/" in links(SESSIONS)
    assert {CALLS, f"{CALLS}?status=error"} <= links("/admin/traces_app/tool/statistics/")
    assert {"/admin/access_app/apikey/", "/admin/access_app/auditentry/?kind=settings"} <= links("/admin/settings/")


def test_settings_have_a_bar_with_what_the_reader_may_see(staff: Client, project: Project) -> None:
    def bar(client: Client, url: str) -> list[str]:
        (found,) = re.findall(r'<nav class="part-lists".*?</nav>', html_of(client.get(url)), re.DOTALL)
        return re.findall(">([^<]+)</a>", found)

    lists = ["Settings", "Projects", "API keys", "Model prices", "Jobs", "Audit log", "Users", "Groups"]
    for url in ("/admin/settings/", "/admin/auth/user/", f"/admin/access_app/project/{project.pk}/change/"):
        assert bar(staff, url) == lists
    user = User.objects.create_user("olga", is_staff=True)
    grant_role(project, user, Role.OWNER)
    owner = Client()
    owner.force_login(user)
    assert bar(owner, "/admin/settings/") == ["Settings", "Projects", "API keys", "Audit log"]


def test_cards_of_settings_say_their_state_and_lead_to_the_project(
    staff: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    used_at = timezone.now() - timedelta(minutes=2)
    ApiKey.objects.filter(pk=create_key(project, "agent", [Scope.READ])[0].pk).update(last_used_at=used_at)
    page = staff.get("/admin/settings/")
    assert "API keys What agents and programs send and read with 1 active key · last used 2 minutes ago" in text_of(
        page
    )
    late = sum(job.is_on() for job in JOBS)
    assert f'<b><span class="badge badge-pending">{late} have never run</span></b>' in html_of(page)
    ran_at = timezone.now() - timedelta(days=30)
    JobRun.objects.create(name="purge", started_at=ran_at, finished_at=ran_at, next_at=ran_at + timedelta(days=1))
    assert f"and when it runs next 1 is late · {late - 1} have never run" in text_of(staff.get("/admin/settings/"))
    assert "Users Who may log in 1 in all Groups Roles that several people share none yet" in text_of(page)
    assert "Audit log Who read and changed what 1 change of settings" in text_of(page)
    create_key(project, "other", [Scope.READ], expires_at=timezone.now() + timedelta(days=1))
    ApiKey.objects.filter(name="other").update(revoked_at=timezone.now())
    page = staff.get("/admin/settings/")
    assert "send and read with 1 active key" in text_of(page)
    opened: Any = staff.get("/admin/access_app/auditentry/?kind=settings")
    assert f"{len(opened.context['cl'].result_list)} changes of settings" in text_of(page)
    # The rail and the cards lead to all lists.
    assert "Other lists" not in text_of(page)
    monkeypatch.setattr(settings_cards, "MOST_COUNTED", 1)
    assert "Audit log Who read and changed what more than 1 changes of settings" in text_of(
        staff.get("/admin/settings/")
    )
    place = f"/admin/access_app/project/{project.pk}/change/"
    for anchor in ("memberships-heading", "masking_rules-heading"):
        assert f'href="{place}#{anchor}"' in html_of(page)
        assert f'id="{anchor}"' in html_of(staff.get(place))
    Project.objects.create(slug="other")
    page = staff.get("/admin/settings/")
    assert "heading" not in html_of(page).partition('class="starts"')[2].partition("</nav>")[0]
    user = User.objects.create_user("olga", is_staff=True)
    grant_role(project, user, Role.OWNER)
    owner = Client()
    owner.force_login(user)
    assert "Members Who may see a project, with which role 1 in all" in text_of(owner.get("/admin/settings/"))


@pytest.mark.usefixtures("permissions")
def test_user_page_folds_groups_and_permissions(staff: Client) -> None:
    user = User.objects.create_user("bob")
    page = html_of(staff.get(f"/admin/auth/user/{user.pk}/change/"))
    assert page.count("<details>") == 1
    assert "Can add user" in page
    staff.cookies["django_language"] = "zh-hans"
    assert '"Choose all %s":' in html_of(staff.get("/admin/jsi18n/")), "which Django's own catalogue lacks"


def test_lists_of_settings_look_like_those_of_traces(staff: Client) -> None:
    User.objects.create_user("bob")
    page = html_of(staff.get("/admin/auth/user/?is_superuser__exact=0&q=bob"))
    assert "<h2>Administrator</h2>" in page
    assert '<a href="?q=bob"><bdi>All' in page
    assert '<a href="?is_superuser__exact=0&amp;q=bob" aria-current="true"><bdi>No' in page
    assert '<input type="hidden" name="is_superuser__exact" value="0">' in page and "1 result" in page
    assert "<h1><bdi>bob</bdi></h1>" in html_of(
        staff.get(f"/admin/auth/user/{User.objects.get(username='bob').pk}/change/")
    )


def test_list_of_failed_calls_has_its_own_title(staff: Client, run: UUID) -> None:
    assert "<h1>Failed calls</h1>" in html_of(staff.get(f"{CALLS}?status=error"))
    assert "<h1>Tool calls</h1>" in html_of(staff.get(CALLS))


def test_times_of_calls_are_those_of_their_message(staff: Client, run: UUID) -> None:
    response = staff.get(CALLS)
    assert {row[-1] for row in rows_of(response)} == {ago(NOON)}
    assert f'title="{NOON:%Y-%m-%d %H:%M:%S} UTC"' in html_of(response)


# --- Purging from the trash ---------------------------------------------------------------------------------------------


@pytest.mark.django_db(transaction=True)
def test_session_in_trash_is_purged_after_confirmation() -> None:
    client, project = Client(), Project.objects.create(slug="owner")
    client.force_login(User.objects.create_superuser("ada"))
    gone, kept, alive = (
        store(project, question(), answer(), external_id=name, title=name).id for name in ("gone", "kept", "alive")
    )
    for session in (gone, kept):
        assert session is not None
        writes.delete_session(primary, session, by="ada")
    chosen = {"action": "purge_selected", "_selected_action": [str(gone)]}
    asked = client.post(f"{SESSIONS}trash/", chosen)
    assert "Delete this permanently? This includes 2 messages and 4 tool calls. This cannot be undone." in text_of(
        asked
    )
    assert Session.with_deleted.count() == 3
    done = client.post(f"{SESSIONS}trash/", {**chosen, "post": "yes"}, follow=True)
    assert "1 session was purged." in text_of(done)
    assert set(Session.with_deleted.values_list("pk", flat=True)) == {kept, alive}
    assert not Message.with_deleted.filter(session_id=gone).exists()
    # A crafted form does not purge what is not in the trash.
    client.post(f"{SESSIONS}trash/", {**chosen, "_selected_action": [str(alive)], "post": "yes"})
    client.post(SESSIONS, {**chosen, "_selected_action": [str(alive)], "post": "yes"})
    assert Session.objects.get().pk == alive


@pytest.mark.django_db(transaction=True)
def test_message_in_trash_is_purged_from_its_page() -> None:
    client, project = Client(), Project.objects.create(slug="owner")
    client.force_login(User.objects.create_superuser("ada"))
    outcome = store(project, question(), answer(), answer(external_id="a2"))
    asked, run, other = (message.id for message in outcome.messages)
    assert run is not None and other is not None
    alive = client.post(f"{MESSAGES}{run}/purge/", {"post": "yes"}, follow=True)
    assert "is not in the trash. Only what is in the trash can be purged." in text_of(alive)
    writes.delete_message(primary, run, by="ada")
    address = links_of(client.get(page_of(run)))["Purge for good"]
    assert "Delete this permanently? This includes 4 tool calls. This cannot be undone." in text_of(client.get(address))
    done = client.post(address, {"post": "yes"}, follow=True)
    assert done.redirect_chain == [(f"{MESSAGES}trash/", 302)]
    assert "1 message was purged." in text_of(done)
    assert set(Message.with_deleted.values_list("pk", flat=True)) == {asked, other}
    assert set(ToolCall.with_deleted.values_list("message_id", flat=True)) == {other}
    session = Session.objects.get()
    assert (session.message_count, session.call_count) == (2, 4)
    assert [entry.action_flag for entry in LogEntry.objects.all()] == [3]
    writes.delete_message(primary, other, by="ada")
    chosen = {"action": "purge_selected", "_selected_action": [str(other), str(asked)], "post": "yes"}
    assert "1 message was purged." in text_of(client.post(f"{MESSAGES}trash/", chosen, follow=True))
    assert Message.with_deleted.get().pk == asked


def test_purging_needs_access(client: Client, project: Project) -> None:
    session = store(project, question(), answer()).id
    assert session is not None
    writes.delete_session(primary, session, by="ada")
    client.force_login(User.objects.create_user("eve", is_staff=True))
    chosen = {"action": "purge_selected", "_selected_action": [str(session)], "post": "yes"}
    assert client.post(f"{SESSIONS}trash/", chosen).status_code == 403
    assert client.post(f"{SESSIONS}{session}/purge/", {"post": "yes"}).status_code == 403
    assert Session.with_deleted.count() == 1


@pytest.mark.usefixtures("run")
def test_page_of_a_project_suggests_its_tools(staff: Client, project: Project, stranger: Project) -> None:
    Tool.objects.create(project=stranger, name="of a stranger")
    page = f"/admin/access_app/project/{project.pk}/change/"
    before = list(Tool.objects.filter(project=project).order_by("name").values_list("name", flat=True))
    assert before
    staff.get(page)  # what is read once
    few = len(statements_of(staff, page))
    Tool.objects.bulk_create(Tool(project=project, name=name) for name in ("~ <b>", "~" * 201, "~\u202e"))
    suggested = html_of(staff.get(page)).partition('<datalist id="tool-names">')[2].partition("</datalist>")[0]
    assert re.findall('value="(.*?)"', suggested) == [*before, "~ &lt;b&gt;"]
    assert len(statements_of(staff, page)) == few
    assert 'value="" list="tool-names"' in html_of(staff.get(page))


def test_page_of_a_project_says_in_words_what_goes_next(staff: Client, project: Project, settings: Any) -> None:
    def said() -> str:
        return text_of(staff.get(f"/admin/access_app/project/{project.pk}/change/"))

    assert "Nothing of this project is removed by age: “Retention” has the days." in said()
    assert "Empty: as for all projects of this site, now for ever." in said()
    settings.TRACESITE_TRASH_DAYS = 30
    assert (
        "Next removal: with the next run of the jobs. From the trash goes what was deleted more than 30 days ago."
        in said()
    )
    assert "Empty: as for all projects of this site, now 30 days." in said()
    Project.objects.filter(pk=project.pk).update(retention_days=10)
    assert "Next removal: with the next run of the jobs. There are no messages." in said()
    now = timezone.now()
    JobRun.objects.create(name="purge", started_at=now, next_at=datetime(2100, 1, 1, tzinfo=UTC))
    store(project, question(created_at=now - timedelta(days=3)), external_id="young")
    assert "Next removal: 2100-01-01 00:00:00 . No message is old enough before" in said()
    store(project, question(created_at=now - timedelta(days=12)), external_id="old")
    assert re.search(r"00:00:00 \. Messages from before [-0-9]{10} [:0-9]{8} go for good\.", said())
    # What only operators know is not told here.
    assert not any(word in said() for word in ("--policy", "TRACESITE_"))

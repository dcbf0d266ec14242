"""The page that shows the path of a run beside that of another one."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from access_app.models import AuditEntry, Project
from messages_app.models import Message, Session
from tests.admin_pages import html_of, links_of, statements_of, text_of
from tests.traces_app.conftest import NOON, answer, question, store
from traces_app.models import AgentStep, ToolCall
from traces_app.queries import comparison, questions


@pytest.fixture
def runs(db: None) -> tuple[UUID, UUID]:
    """Return two runs of one conversation; the second one asks for another city and has no second step."""
    first = answer()
    second = answer(external_id="a2", content="<b>Shanghai 30 °C.</b>", agent_steps=answer()["agent_steps"][:1])
    second["agent_steps"][0]["tool_calls"][1] |= {"args": {"city": "Oslo"}, "result": {"output": "4 °C"}}
    outcome = store(Project.objects.create(slug="owner"), question(), first, second, title="Weather")
    left, right = (message.id for message in outcome.messages[1:])
    assert isinstance(left, UUID)
    assert isinstance(right, UUID)
    return left, right


def page_of(message: UUID) -> str:
    return f"/admin/messages_app/message/{message}/compare/"


def test_runs_are_shown_beside_each_other(staff: Client, runs: tuple[UUID, UUID]) -> None:
    left, right = runs
    page = staff.get(f"{page_of(left)}?other={right}")
    text = text_of(page)
    assert (
        "First difference: step 0 · get_weather Failed calls 1 → 0 Duration 142 ms in all steps → 52 ms in all steps (−63 %)"
        in text
    )
    assert (
        "Steps 2 → 1 Tool calls 4 → 2 Tokens 150 Cost — Same question 2 rows the same · 2 differ · 3 only in A" in text
    )
    # The sides, then the rows as on the page of a run, then the answers.
    assert text.count("What is the weather in Shanghai and in Atlantis? · Weather") == 2
    assert "Failed · " in text and "Done · " in text
    for row in (
        "0 Ask for both cities at once. = same 0 Ask for both cities at once.",
        "get_weather 上海 31 °C 40 ms = same get_weather 上海 31 °C 40 ms",
        "get_weather Atlantis error: unknown city 12 ms ≠ changed get_weather Oslo 4 °C 12 ms",
        "search Atlantis 3 hits 60 ms − only in A Answer Shanghai 31 °C; there is no Atlantis. ≠ changed Answer",
    ):
        assert row in text
    assert "<mark>&lt;b&gt;</mark>Shanghai <mark>30</mark> °C" in html_of(page)
    swapped = staff.get(links_of(page)["Swap sides"])
    assert "2 rows the same · 2 differ · 3 only in B" in text_of(swapped)
    assert "+ only in B 1 Ask the researcher." in text_of(swapped)
    assert "Failed calls 0 → 1" in text_of(swapped)
    # The audit log of the project says which runs were read.
    entry = AuditEntry.objects.filter(object_type="message").order_by("id").first()
    assert entry is not None
    assert (entry.action, entry.project_id) == ("read", Project.objects.get().pk)
    assert entry.detail["ids"] == [str(left), str(right)]


def test_first_difference_is_selected_unless_another_row_is(staff: Client, runs: tuple[UUID, UUID]) -> None:
    left, right = runs
    url = f"{page_of(left)}?other={right}"
    page = staff.get(url)
    assert 'class="pair pair-changed" id="at"' in html_of(page)
    assert "get_weather Error · Step 0 · 12 ms get_weather Step 0 · 12 ms" in text_of(page)
    assert "Arguments city: Atlantis Arguments city: Oslo Error unknown city Output 4 °C Answer" in text_of(page)
    assert "city: <mark>Oslo</mark>" in html_of(page)
    failed = ToolCall.objects.get(status="error")
    assert f"/message/{left}/change/?call={failed.pk}#call-{failed.pk}" in html_of(page)
    assert "No difference" not in text_of(page)

    same = ToolCall.objects.get(call_id="call_a", message_id=left)
    selected = staff.get(f"{url}&at={same.pk}")
    assert 'class="pair pair-same" id="at"' in html_of(selected)
    assert "Arguments the same city: 上海 Arguments the same city: 上海 Output the same 31 °C" in text_of(selected)
    only_left = staff.get(f"{url}&at={AgentStep.objects.get(message_id=left, iteration=1).pk}")
    assert "Nothing on this side. Thought Ask the researcher. Answer" in text_of(only_left)
    answers = staff.get(f"{url}&at={right}")
    assert html_of(answers).count("Arguments") == 0
    for other in ("nonsense", str(uuid4())):
        assert 'class="pair pair-changed" id="at"' in html_of(staff.get(f"{url}&at={other}"))


def test_arguments_that_follow_from_the_question_are_passed_over(staff: Client, project: Project) -> None:
    def run_of(order: int, result: dict[str, Any]) -> Any:
        calls = [
            {"name": "find", "args": {"order": order}, "result": {"output": f"order {order}: paid"}},
            {"name": "refund", "args": {"order": order}, "result": result},
        ]
        asked = {**question(), "content": f"Refund order {order}."}
        return store(project, asked, answer(agent_steps=[{"tool_calls": calls}]), external_id=str(order)).messages[1].id

    left, right = run_of(5471, {"success": False, "error": "no card"}), run_of(2014, {"output": "done"})
    page = staff.get(f"{page_of(left)}?other={right}")
    assert (
        "First difference: step 0 · refund Another question, 71% alike · similar question · same tools"
        " 1 difference before it only follows from the other question: order 5471 / 2014"
        " Failed calls 1 → 0" in text_of(page)
    )
    assert "refund Error · Step 0" in text_of(page)


def test_steps_that_say_nothing_are_compared_by_their_reasoning(staff: Client, project: Project) -> None:
    def run_of(name: str, *reasoning: str) -> Any:
        steps = [{"agent_name": "a", "reasoning_content": text} for text in reasoning]
        return store(project, question(), answer(agent_steps=steps), external_id=name).messages[1].id

    left, right = run_of("left", "Read the file.", "Done?"), run_of("right", "Ask somebody.", "Done?")
    page = staff.get(f"{page_of(left)}?other={right}")
    assert "2 rows the same · 1 differs" in text_of(page)
    assert "0 a Read the file. ≠ changed 0 a Ask somebody. 1 Done? = same 1 Done?" in text_of(page)
    step = AgentStep.objects.get(message_id=right, iteration=0)
    assert "Reasoning Read the file. Reasoning Ask somebody." in text_of(
        staff.get(f"{page_of(left)}?other={right}&at={step.pk}")
    )


def test_answers_are_markdown_unless_raw(staff: Client, project: Project) -> None:
    texts = "**Oslo** has <b>4</b> °C.", "**Oslo** has <b>5</b> °C."
    left, right = (
        store(project, answer(content=text, agent_steps=[]), external_id=text).messages[0].id for text in texts
    )
    url = f"{page_of(left)}?other={right}"
    page = staff.get(url)
    assert '<div class="prose"><p><strong>Oslo</strong> has &lt;b&gt;4&lt;/b&gt; °C.</p>' in html_of(page)
    raw = staff.get(f"{page_of(left)}{links_of(page)['Raw texts']}")
    assert "**Oslo** has &lt;b&gt;<mark>4</mark>&lt;/b&gt; °C." in html_of(raw)
    # An error is no Markdown.
    failed = store(project, answer(content="", error=texts[0], agent_steps=[]), external_id="failed").messages[0].id
    assert "**Oslo**" in html_of(staff.get(f"{page_of(left)}?other={failed}"))


def test_equal_runs_have_no_difference(staff: Client, runs: tuple[UUID, UUID]) -> None:
    page = staff.get(f"{page_of(runs[0])}?other={runs[0]}")
    assert "No difference Failed calls 1 Duration" in text_of(page)
    assert "<summary>= 6 rows the same</summary>" in html_of(page)
    # The answers are the selected row then.
    assert "Answer the same Shanghai 31 °C; there is no Atlantis." in text_of(page)


def test_equal_rows_are_folded_unless_one_is_selected(staff: Client, project: Project) -> None:
    def run_of(name: str, *, fails: bool) -> Any:
        calls = [{"name": f"tool {n}", "id": str(n), "args": {"n": n}, "result": {"output": "x"}} for n in range(40)]
        calls[20] |= {"result": {"success": False, "error": f"broken by {name}"} if fails else {"output": "fine"}}
        return (
            store(project, answer(agent_steps=[{"thought": "Go.", "tool_calls": calls}]), external_id=name)
            .messages[0]
            .id
        )

    left, right = run_of("bad", fails=True), run_of("good", fails=False)
    url = f"{page_of(left)}?other={right}"
    page = html_of(staff.get(url))
    assert (
        page.count("<details><summary>= 19 rows the same</summary>") == 1
    )  # the step and 18 calls: two stay beside the difference
    assert page.count("<details><summary>= 17 rows the same</summary>") == 1
    folded = ToolCall.objects.get(message_id=left, call_id="3").pk
    page = html_of(staff.get(f"{url}&at={folded}"))
    assert page.count("<details open><summary>= 19 rows the same</summary>") == 1
    assert page.count("<details><summary>= 17 rows the same</summary>") == 1


def test_rows_beyond_the_maximum_have_beginnings(
    staff: Client, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "NODES_WITH_WORDS", 1)
    text = text_of(staff.get(f"{page_of(runs[0])}?other={runs[1]}"))
    assert "get_weather Atlantis error: unknown city" in text
    assert 'get_weather {"city": "上海"} 31 °C 40 ms = same' in text
    assert "1 Ask the researcher. − only in A" in text


def test_failure_that_was_made_good_leaves_the_run_done(staff: Client, project: Project) -> None:
    calls = answer()["agent_steps"][0]["tool_calls"]
    run = store(project, question(), answer(agent_steps=[{"tool_calls": calls[::-1]}])).messages[1].id
    page = staff.get(f"{page_of(run)}?other={run}")
    assert text_of(page).count("Done · ") == 2
    assert "Failed · " not in text_of(page)
    shown = staff.get(f"/admin/messages_app/message/{run}/change/")
    assert f'<a class="tool-button" href="{page_of(run)}">Compare …</a>' in html_of(shown)
    # A good run of this question is in the menu, if there is one.
    assert "Compare with the last good run" not in links_of(shown)
    good = store(project, question(), answer(agent_steps=[{"tool_calls": calls[:1]}]), external_id="good")
    shown = staff.get(f"/admin/messages_app/message/{run}/change/")
    link = f'<a href="{page_of(run)}?other={good.messages[1].id}">Compare with the last good run</a>'
    assert f"<li>{link}</li>" in html_of(shown)
    # The comparison with it does not lead to itself.
    assert link.partition("?")[2] not in html_of(staff.get(f"{page_of(run)}?other={good.messages[1].id}"))


def test_other_run_is_chosen_from_the_conversation(staff: Client, runs: tuple[UUID, UUID]) -> None:
    left, right = runs
    run = staff.get(f"/admin/messages_app/message/{left}/change/")
    assert f'<a class="tool-button primary" href="{page_of(left)}?other={right}"' in html_of(run)
    assert links_of(run)["Compare …"] == page_of(left)
    page = staff.get(page_of(left))
    assert f'href="?other={right}"' in html_of(page)
    assert f'href="?other={left}"' not in html_of(page)
    assert links_of(page)["Compare with the last good run"] == f"?other={right}"
    # Those that are most like it come first.
    assert html_of(page).index(f'href="{page_of(left)}?other={right}"') < html_of(page).index("id_other")


LIST = "/admin/messages_app/message/?role=assistant"


def test_other_run_is_searched_by_words_and_filters(staff: Client, project: Project, stranger: Project) -> None:
    def run_of(owner: Project, asked: str, error: str, minute: int) -> UUID:
        result: dict[str, Any] = {"success": False, "error": error} if error else {"output": "ok"}
        steps = [{"tool_calls": [{"name": "find", "args": {}, "result": result}]}]
        at = NOON + timedelta(minutes=minute)
        messages = question(content=asked, created_at=at), answer(agent_steps=steps, created_at=at)
        run = store(owner, *messages, external_id=asked, title=asked).messages[1].id
        assert isinstance(run, UUID)
        return run

    run = run_of(project, "zebra one", "no card", 0)
    good, failed = run_of(project, "zebra two", "", 1), run_of(project, "zebra three", "no card", 2)
    run_of(project, "giraffe", "", 3)
    run_of(stranger, "zebra four", "", 4)

    def found(**parameters: str) -> list[str]:
        html = html_of(staff.get(page_of(run), parameters))
        return re.findall(r'class="run-row[^"]*" href="[^"]*other=([0-9a-f-]+)"', html)

    assert found(q="zebra") == [str(good), str(failed)], "the good run first, without the run itself and other projects"
    assert found(q="zebra outcome:failed") == [str(failed)]
    assert found(q="zebra", outcome="failed") == [str(failed)]
    assert "Nothing found." in text_of(staff.get(page_of(run), {"q": "okapi"}))
    page = staff.get(page_of(run), {"q": "zebra outcome:odd"})
    assert "Invalid filter: outcome “odd”." in text_of(page)
    assert links_of(staff.get(page_of(run), {"q": "zebra"}))["Runs"]


def test_two_runs_of_the_list_are_compared(staff: Client, runs: tuple[UUID, UUID]) -> None:
    left, right = runs
    page = staff.get(LIST)
    assert '<option value="compare_selected">Compare two selected runs</option>' in html_of(page)
    # The earlier one is on the left, whatever the order of the list.
    for chosen in ([left, right], [right, left]):
        action = {"action": "compare_selected", "_selected_action": [str(key) for key in chosen]}
        assert staff.post(LIST, action)["Location"] == f"{page_of(left)}?other={right}"
    # Nothing was changed.
    assert not AuditEntry.objects.filter(object_type="message").exclude(action__in=["read", "list"]).exists()


def test_action_says_which_rows_can_be_compared(staff: Client, runs: tuple[UUID, UUID]) -> None:
    asked = Message.objects.get(role="user").pk
    for chosen, across, problem in (
        (runs[:1], "0", "Select exactly two runs to compare; 1 is selected."),
        ((*runs, asked), "0", "Select exactly two runs to compare; 3 are selected."),
        ((runs[0], asked), "0", "Only answers of an assistant are runs. Select two of them to compare."),
        (runs, "1", "Select exactly two runs to compare, not all that match."),
    ):
        action = {"action": "compare_selected", "select_across": across, "_selected_action": map(str, chosen)}
        url = LIST.partition("?")[0]
        page = staff.post(url, action, follow=True)
        assert page.redirect_chain == [(url, 302)]
        assert problem in html_of(page)


@pytest.mark.parametrize("form", ["{}", " {} ", "http://localhost/admin/messages_app/message/{}/change/?page=2#call-1"])
def test_address_of_a_run_is_accepted(staff: Client, runs: tuple[UUID, UUID], form: str) -> None:
    left, right = runs
    page = staff.get(page_of(left), {"other": form.format(right)})
    assert "2 differ" in text_of(page)


@pytest.mark.parametrize(
    "other", ["", "nonsense", str(UUID(int=7)), "x" * 600], ids=["empty", "no id", "unknown", "long"]
)
def test_unknown_run_is_refused_with_a_reason(staff: Client, runs: tuple[UUID, UUID], other: str) -> None:
    page = staff.get(page_of(runs[0]), {"other": other})
    assert page.status_code == 200
    assert html_of(page).index('role="alert"') < html_of(page).index("Good runs like this one")
    assert "≠" not in text_of(page)
    # What there is to compare with stays.
    assert links_of(page)["Run"] == f"/admin/messages_app/message/{runs[0]}/change/"
    assert f"?other={runs[1]}" in html_of(page)


def test_page_needs_access_and_a_run(staff: Client, client: Client, runs: tuple[UUID, UUID]) -> None:
    client.force_login(User.objects.create_user("eve", is_staff=True))
    assert client.get(page_of(runs[0])).status_code == 403
    assert staff.get(page_of(uuid4())).status_code == 302


def test_queries_do_not_depend_on_the_runs(staff: Client, runs: tuple[UUID, UUID]) -> None:
    calls = [{"name": f"tool {n}", "args": {"n": n}, "result": {"output": "x"}} for n in range(50)]
    many = [{"iteration": n, "tool_calls": calls} for n in range(10)]
    large = (
        store(
            Project.objects.get(), {**answer(agent_steps=many), "created_at": NOON}, external_id="large", title="Large"
        )
        .messages[0]
        .id
    )
    few = len(statements_of(staff, f"{page_of(runs[0])}?other={runs[1]}"))
    assert len(statements_of(staff, f"{page_of(runs[0])}?other={large}")) == few


def test_run_that_no_good_one_is_like_says_so(staff: Client, project: Project) -> None:
    run = store(project, question(), answer()).messages[1].id
    assert isinstance(run, UUID)
    for address in (page_of(run), f"{page_of(run)}?good"):
        assert "No good run is like this one yet." in text_of(staff.get(address))


def test_run_without_good_run_of_its_question_leads_to_one_like_it(
    staff: Client, project: Project, stranger: Project
) -> None:
    def run_of(owner: Project, name: str, asked: str, *, failed: bool) -> UUID:
        result: dict[str, Any] = {"success": False, "error": "no card"} if failed else {"output": "ok"}
        steps = [{"tool_calls": [{"name": "pay", "args": {}, "result": result}]}]
        run = store(owner, question(content=asked), answer(agent_steps=steps), external_id=name).messages[1].id
        assert isinstance(run, UUID)
        return run

    failed = run_of(project, "failed", "Refund order 5471", failed=True)
    run_of(project, "hardly", "What is the weather like in Shanghai?", failed=False)
    run_of(project, "alike", "Refund order 5472", failed=True)
    other = run_of(project, "other", "Please pay", failed=False)
    run_of(stranger, "foreign", "Refund order 5473", failed=False)
    compare = links_of(staff.get(f"/admin/messages_app/message/{failed}/change/"))["Compare with a good run"]
    assert compare == f"{page_of(failed)}?good"
    # The same tools are not enough to choose it for the reader.
    assert f"{page_of(failed)}?other={other}" in html_of(staff.get(compare))
    best = run_of(project, "best", "Refund order 5474, please", failed=False)
    page = staff.get(compare, follow=True)
    assert page.redirect_chain == [(f"{page_of(failed)}?other={best}", 302)]
    assert re.search(r"Another question, [5-9]\d% alike · similar question · same tools", text_of(page))
    assert links_of(page)["Other run …"] == page_of(failed)
    # Of the same question nothing is said.
    good = run_of(project, "good", "Refund order 5471", failed=False)
    page = staff.get(compare, follow=True)
    assert page.redirect_chain == [(f"{page_of(failed)}?other={good}", 302)]
    assert "alike" not in text_of(page)


def test_failed_run_leads_to_last_good_run_of_its_question(
    staff: Client, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, good = runs
    words = "Compare with the last good run"

    def link() -> str:
        return links_of(staff.get(f"/admin/messages_app/message/{failed}/change/"))[words]

    assert link() == f"{page_of(failed)}?other={good}"
    few = len(statements_of(staff, f"/admin/messages_app/message/{failed}/change/"))

    owner = Project.objects.get()
    steps = answer()["agent_steps"][:1]
    steps[0]["tool_calls"] = steps[0]["tool_calls"][:1]
    fine = answer(agent_steps=steps)
    hour = timedelta(hours=1)
    later = [{**question(), "created_at": NOON + hour}, {**fine, "created_at": NOON + hour}]
    newest = store(owner, *later, external_id="later").messages[1].id
    two_hours = [{**message, "created_at": NOON + 2 * hour} for message in (question(), fine)]
    store(owner, {**two_hours[0], "content": "Another question"}, two_hours[1], external_id="other question")
    store(owner, two_hours[0], {**two_hours[1], "error": "crashed"}, external_id="crashed")
    store(owner, two_hours[0], {**two_hours[1], "is_completed": False}, external_id="open")
    store(owner, *two_hours, external_id="deleted")
    Session.objects.filter(external_id="deleted").update(deleted_at=NOON)
    store(Project.objects.create(slug="foreign"), *two_hours)
    assert link() == f"{page_of(failed)}?other={newest}"
    assert len(statements_of(staff, f"/admin/messages_app/message/{failed}/change/")) == few
    # Further back it is looked for when somebody asks for the other run.
    monkeypatch.setattr(questions, "MESSAGES_NEAR", 0)
    page = staff.get(f"/admin/messages_app/message/{failed}/change/")
    assert words not in links_of(page)
    assert links_of(staff.get(links_of(page)["Compare …"]))[words] == f"?other={newest}"

    store(owner, {**question(), "content": f"{question()['content']} Once."}, answer(), external_id="once")
    alone = Message.objects.get(session__external_id="once", role="assistant").pk
    page = staff.get(page_of(alone))
    assert words not in links_of(page)
    # The most similar good runs are offered first, and on their page no failed one.
    text = text_of(page)
    assert text.index("Good runs like this one") < text.index("Done ")
    page = staff.get(links_of(page)["Good runs like this one"])
    text = text_of(page)
    assert links_of(page)["Compare"].startswith(f"{page_of(alone)}?other=")
    assert "1 failed" not in text
    # Neither one that has not ended.
    assert "running" not in text

"""Masking rules of projects: what may be stored, by command and in the admin, and when it counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st
from pytest_django import DjangoAssertNumQueries

from access_app.masking import MOST_RULES, compiled, delete_rule, forget_masking, masking_of, save_rule
from access_app.models import AuditEntry, MaskingKind, MaskingRule, Project, Role
from access_app.roles import grant_role
from tracesite.system_checks import check_masking_rules
from tracesite_sdk.redaction.engine import may_hold_secrets, redact
from tracesite_sdk.redaction.rules import DEFAULT_RULES, FunctionRule, Rules
from tracesite_sdk.redaction.text import secrets_by_name

FUNCTION = "tests.access_app.test_masking.hide_seven"


def hide_seven(path: str, value: Any) -> Any:
    return "seven" if value == 7 else value


@pytest.mark.parametrize(
    ("kind", "value", "before", "after"),
    [
        ("preset", "email", {"to": "ada@example.com"}, {"to": "[redacted]"}),
        ("key", "Kundennummer", {"kundennummer": "17"}, {"kundennummer": "[redacted]"}),
        # Names of secrets do not end like these.
        ("key", "customer_name", {"customerName": "Ada", "name": "x"}, {"customerName": "[redacted]", "name": "x"}),
        (
            "key",
            "age",
            {"age": 41, "page": 41, "x": "age: 41, 2"},
            {"age": "[redacted]", "page": 41, "x": "age: [redacted], 2"},
        ),
        # Any value, also one that no secret looks like; but not the schema of a parameter.
        ("key", "note", {"note": True, "x": {"note": "unknown"}}, {"note": "[redacted]", "x": {"note": "[redacted]"}}),
        ("key", "note", {"note": {"type": "string", "value": "x"}}, {"note": "[redacted]"}),
        ("key", "note", {"note": [[[[["deep"]]]]], "y": ""}, {"note": "[redacted]", "y": ""}),
        (
            "key",
            "note",
            {"properties": {"note": {"type": "string"}}, "a": "note: 1"},
            {"properties": {"note": {"type": "string"}}, "a": "note: [redacted]"},
        ),
        ("pattern", r"EMP-\d{4}", {"a": "of EMP-1234\n"}, {"a": "of [redacted]\n"}),
        ("pattern", r"order (?P<secret>[A-Z]+)", {"a": "é order XY"}, {"a": "é order [redacted]"}),
        ("pattern", r"^工号\d+$", {"a": "工号17", "b": "工号17 x"}, {"a": "[redacted]", "b": "工号17 x"}),
        ("pattern", r"^EMP\d+$", {"a": "EMP17", "b": "x EMP17"}, {"a": "[redacted]", "b": "x EMP17"}),
        ("path", "$.args.items[*].price", {"items": [{"price": 3}]}, {"items": [{"price": "[redacted]"}]}),
        # Attributes of spans have paths as names.
        ("path", "customer.name", {"x.customer": {"name": "Ada"}}, {"x.customer": {"name": "[redacted]"}}),
        ("path", "customer.name", {"x.customer.name": "Ada"}, {"x.customer.name": "[redacted]"}),
        ("path", "customer.name", {"a": '{"customer.name": "Ada"}'}, {"a": '{"customer.name":"[redacted]"}'}),
        ("function", FUNCTION, {"a": 7, "b": 8}, {"a": "seven", "b": 8}),
    ],
)
def test_rule_of_each_kind_counts(
    project: Project, stranger: Project, settings: Any, kind: str, value: str, before: Any, after: Any
) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = [FUNCTION]
    save_rule(project, "mine", kind, value)
    clean, receipts = redact(before, masking_of(project.pk), "args")
    assert clean == after
    assert {receipt.rule for receipt in receipts} == {"mine"}
    assert redact(msgspec.Raw(msgspec.json.encode(before)), masking_of(project.pk), "args")[0] == after
    assert masking_of(stranger.pk) is DEFAULT_RULES


@pytest.mark.parametrize(
    ("kind", "value", "fault"),
    [
        ("preset", "mail", "email, phone, card, iban, chinese_id"),
        ("key", "--", "needs a letter"),
        ("pattern", "(a", "Not a valid pattern: a ( is not closed."),
        ("pattern", r"(?<=a)b", "(?<= looks at what stands before or after"),
        ("pattern", r"(a)\1", "refers to what a group has found"),
        ("pattern", "a)", "a ) closes nothing"),
        ("pattern", "[a", "a [ is not closed"),
        ("pattern", "*a", "nothing before *"),
        ("pattern", "a**", "** repeats a repetition"),
        ("pattern", "a{2000}", "at most 1,000 times"),
        ("pattern", r"\p{Foo}", "invalid character class range"),
        ("pattern", "a*", "empty text"),
        ("pattern", r"\Aa", "Write ^ and $"),
        ("path", "a..b", "Write keys and [*]"),
        ("path", "a[0].b", "Write keys and [*]"),
        ("path", "a.*", "must end with a key"),
        ("function", "os.system", "is not allowed"),
        ("pattern", "", "blank"),
        ("other", "x", "not a valid choice"),
    ],
)
def test_invalid_rule_is_refused_with_the_fault(project: Project, kind: str, value: str, fault: str) -> None:
    with pytest.raises(ValidationError, match=".*") as raised:
        save_rule(project, "mine", kind, value)
    assert set(raised.value.message_dict) <= {"value", "kind"}
    assert fault in str(raised.value)
    assert not MaskingRule.objects.exists()


def test_pattern_that_backtracks_elsewhere_takes_linear_time(project: Project) -> None:
    save_rule(project, "slow", "pattern", r"(x+x+)+y")
    text = "x" * 1_000_000
    assert redact(text, masking_of(project.pk)) == (text, [])


def test_changed_rule_counts_at_once_in_its_process(
    project: Project, django_assert_num_queries: DjangoAssertNumQueries, django_capture_on_commit_callbacks: Any
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        save_rule(project, "mine", "preset", "email")
    rules = masking_of(project.pk)
    with django_assert_num_queries(0):
        assert masking_of(project.pk) is rules
    with django_capture_on_commit_callbacks(execute=True):
        save_rule(project, "mine", "preset", "email", enabled=False)
    assert masking_of(project.pk) is DEFAULT_RULES
    with django_capture_on_commit_callbacks(execute=True):
        assert delete_rule(project, "mine")
    assert not delete_rule(project, "mine")
    entries = AuditEntry.objects.filter(project=project, object_type="masking_rule").order_by("id")
    assert list(entries.values_list("action", flat=True)) == ["create", "change", "delete"]


def test_rule_without_its_function_removes_every_value(project: Project, settings: Any) -> None:
    settings.TRACESITE_MASKING_FUNCTIONS = [FUNCTION]
    save_rule(project, "mine", "function", FUNCTION)
    save_rule(project, "staff", "pattern", "EMP-[0-9]")
    MaskingRule.objects.create(project=project, name="bad", kind="pattern", value="(")
    settings.TRACESITE_MASKING_FUNCTIONS = []
    compiled.cache_clear()
    forget_masking()
    value = {"a": "text of EMP-1", "b": [8, None, {"c": "d"}]}
    clean, receipts = redact(value, masking_of(project.pk), "args")
    assert clean == {"a": "[redacted]", "b": ["[redacted]", None, {"c": "[redacted]"}]}
    assert {receipt.rule for receipt in receipts} == {"mine", "staff"}
    faults = check_masking_rules(None, databases=["default"])
    assert [str(fault.id) for fault in faults] == ["tracesite.E012"] * 2
    assert "'mine' of project owner" in faults[0].msg
    assert "not allowed" in faults[0].msg


WORDS = [
    "national",
    "customer",
    "name",
    "Id",
    "id",
    "_",
    "-",
    " ",
    '"',
    '\\"',
    "{",
    "}",
    ":",
    "=",
    "17",
    "é",
    "客户",
    "\\u006e",
    "x",
]
RULES = [
    compiled((("k", "key", "national_id"), ("c", "key", "customerId"))),
    compiled((("p", "path", "args.customer.name"), ("q", "path", "args.客户"), ("r", "path", "*.x[*].id"))),
    compiled((("a", "pattern", r"^na(?P<secret>me)$"), ("b", "pattern", r'x"|\\|é_'))),
    compiled(
        (("c", "pattern", r"\bcustomer[^\]\\$^](?P<secret>\d+)\b|(?:^|=)17(?:=|$)"), ("d", "pattern", r"\Q{\b\E?"))
    ),
]
names = st.sampled_from(
    ["national_id", "customerId", "nationalé id", "customer", "name", "客户", "id", "x", "args", "a"]
)
json_values = st.recursive(
    st.lists(st.sampled_from(WORDS), max_size=6).map("".join) | st.integers(10, 99),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3)
        | st.dictionaries(names, inner, max_size=3).map(json.dumps)
        | st.dictionaries(names, inner, max_size=3).map(lambda value: json.dumps(json.dumps(value)))
    ),
    max_leaves=8,
)


@given(value=json_values, rules=st.sampled_from(RULES))
def test_quick_checks_skip_nothing_that_a_rule_removes(value: Any, rules: Rules) -> None:
    # A function forces the long way.
    closely = replace(rules, functions=(FunctionRule("all", lambda path, value: value),))
    expected, receipts = redact({"in": value}, closely, "args")
    assert redact({"in": value}, rules, "args")[0] == expected
    for written in (json.dumps({"in": value}), msgspec.json.encode({"in": value}).decode()):
        found = redact(msgspec.Raw(written.encode()), rules, "args")[0]
        assert (found == expected) if receipts else isinstance(found, msgspec.Raw)
        assert may_hold_secrets([written], rules, outside=frozenset({"args"})) or not receipts
        assert may_hold_secrets([written], rules) or not list(secrets_by_name(written, rules))


def test_number_of_rules_is_bounded(project: Project) -> None:
    MaskingRule.objects.bulk_create(
        MaskingRule(project=project, name=f"r{number}", kind=MaskingKind.KEY, value="iban")
        for number in range(MOST_RULES)
    )
    with pytest.raises(ValidationError, match=str(MOST_RULES)):
        save_rule(project, "more", "key", "iban")
    assert save_rule(project, "r0", "key", "bic").value == "bic"


def test_commands_set_list_and_delete_rules(project: Project) -> None:
    def run(*words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out)
        return out.getvalue()

    assert "applied" in run("set_masking_rule", "mail", "--project=owner", "--kind=preset", "--value=email")
    rule = {"project": "owner", "name": "mail", "kind": "preset", "value": "email", "when": "store", "enabled": True}
    assert json.loads(run("list_masking_rules", "--json")) == rule
    assert run("list_masking_rules", "--project=owner") == "owner  mail  preset  email\n"
    with pytest.raises(CommandError, match="value: Unknown preset"):
        run("set_masking_rule", "mail", "--project=owner", "--kind=preset", "--value=x")
    assert "deleted" in run("delete_masking_rule", "mail", "--project=owner")
    with pytest.raises(CommandError, match="no masking rule"):
        run("delete_masking_rule", "mail", "--project=owner")


def form(**fields: str) -> dict[str, str]:
    return {
        "name": "",
        "sampling_tools": "{}",
        "retention_way": "exact",
        "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
        "masking_rules-TOTAL_FORMS": "1",
        "masking_rules-INITIAL_FORMS": "0",
        **{f"masking_rules-0-{name}": value for name, value in fields.items()},
    }


@pytest.mark.parametrize(("role", "stored"), [(Role.EDITOR, False), (Role.OWNER, True)])
def test_owner_edits_rules_in_the_admin(
    login: Callable[[User], Client], staff: User, project: Project, role: Role, stored: bool
) -> None:
    grant_role(project, staff, role)
    client, page = login(staff), f"/admin/access_app/project/{project.pk}/change/"
    assert ("masking_rules-TOTAL_FORMS" in client.get(page).content.decode()) is stored
    client.post(page, form(name="mail", kind="preset", value="email", when="store", enabled="on"))
    assert MaskingRule.objects.filter(project=project, name="mail").exists() is stored
    if stored:
        # The page of somebody who opened it before the rule and the member were there.
        member = {"memberships-TOTAL_FORMS": "1", "memberships-0-user": staff.username, "memberships-0-role": "owner"}
        answer = client.post(page, form(name="mail", kind="key", value="iban", when="store") | member)
        assert answer.status_code == 200
        assert "a masking rule with this name already" in answer.content.decode()
        assert "This user has a role in the project already." in answer.content.decode()


def test_admin_names_the_fault_of_a_rule(login: Callable[[User], Client], superuser: User, project: Project) -> None:
    response = login(superuser).post(
        f"/admin/access_app/project/{project.pk}/change/",
        form(name="x", kind="pattern", value="(a", when="store", enabled="on"),
    )
    assert response.status_code == 200
    assert "Not a valid pattern: a ( is not closed." in response.content.decode()
    named = login(superuser).post(
        f"/admin/access_app/project/{project.pk}/change/",
        form(name="order number", kind="preset", value="email", when="store", enabled="on"),
    )
    assert "The name of a masking rule may have the letters a to z" in named.content.decode()

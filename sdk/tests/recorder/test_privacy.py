"""Test which parts of a trace leave the process: secrets redacted, long values cut, contents omitted."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import sha1
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.tests.length import examples
from sdk.tests.ports import free_port
from tracesite_sdk import Privacy, Recorder, results
from tracesite_sdk.recorder.delivery.sinks import Clean
from tracesite_sdk.recorder.snapshots.snapshotting import Snapshots
from tracesite_sdk.recorder.snapshots.stores import SqliteStore
from tracesite_sdk.redaction.engine import redact
from tracesite_sdk.redaction.rules import MARKER
from tracesite_sdk.testing import RecorderForTests, recording

SECRET = "hunter2-hunter2"


def recorded(
    args: Any, privacy: Privacy | None = None, *, result: Any = None
) -> tuple[dict[str, Any], RecorderForTests]:
    """Return the data of the start event of a call with these arguments."""
    with (
        recording(privacy=privacy) as recorder,
        recorder.message(external_id="m"),
        recorder.tool_call("tool", args) as call,
    ):
        call.result = result
    (begun,) = [event["data"] for event in recorder.events if event["type"] == "tool_call_start"]
    return begun, recorder


def end_of(recorder: RecorderForTests, type_: str = "tool_call_complete") -> dict[str, Any]:
    (ended,) = [event["data"] for event in recorder.events if event["type"] == type_]
    return ended


def losses(recorder: RecorderForTests) -> dict[str, int] | None:
    """Return the loss reports of the trace."""
    return recorder.events[-1]["data"].get("recorder")


@pytest.mark.parametrize(
    ("args", "path"),
    [
        ({"password": SECRET}, "data.args.password"),
        ({"headers": {"Authorization": f"Bearer {SECRET}"}}, "data.args.headers.Authorization"),
        ({"a": [{"b": {"api_key": SECRET}}]}, "data.args.a[0].b.api_key"),
        ({"headers": [{"name": "X-Api-Key", "value": SECRET}]}, "data.args.headers[0].value"),
        ({"curl": f"curl -H 'Authorization: Bearer {SECRET}' https://x"}, "data.args.curl"),
        ({"body": json.dumps({"inner": json.dumps({"password": SECRET})})}, "data.args.body"),
        ({"dsn": f"postgres://user:{SECRET}@host/db"}, "data.args.dsn"),
        ({"line\nbreak": {"pass\u0077ord": SECRET}}, "data.args.line\nbreak.password"),
    ],
)
def test_secrets_leave_a_receipt_and_nothing_else(args: Any, path: str) -> None:
    begun, recorder = recorded(args)
    assert SECRET not in "".join(map(json.dumps, recorder.sink.events))
    assert MARKER in json.dumps(begun["args"])
    assert [receipt["path"] for receipt in begun["redactions"]] == [path]
    assert losses(recorder) == {"redacted": 1}


def test_secrets_are_found_in_every_field() -> None:
    token = f"Bearer {SECRET}"
    with (
        recording() as recorder,
        recorder.session("s", metadata={"token": token}),
        recorder.message(f"use {token}") as message,
    ):
        with recorder.step() as step:
            step.thought = step.reasoning = f"I use {token}"
            with recorder.tool_call("tool") as call:
                call.result = {"password": SECRET}
                call.reflection = token
                call.update(reflection=token)
            with pytest.raises(ValueError, match="Bearer"), recorder.tool_call("tool"):
                raise ValueError(token)
        message.content = [{"type": "text", "text": token}]
        message.references.append({"id": "1", "content": token})
        message.metadata["authorization"] = token
    assert SECRET not in "".join(map(json.dumps, recorder.events))
    assert sum(len(event["data"].get("redactions", [])) for event in recorder.events) == 11
    assert losses(recorder) == {"redacted": 11}


@pytest.mark.parametrize("functions", [str.upper, ["mask"], {str.upper}])
def test_functions_that_are_not_a_list_are_refused(functions: Any) -> None:
    with pytest.raises(ValueError, match=r"Privacy\.functions: expected a list of functions\."):
        Privacy(functions=functions)


def test_custom_keys_patterns_and_functions_redact() -> None:
    def mask(path: str, value: Any) -> Any:
        return "[mail]" if isinstance(value, str) and "@" in value else value

    privacy = Privacy(
        keys=["iban", "national_id"], patterns=[r"\b\d{4}-\d{4}\b", "order (?P<secret>[A-Z]+)"], functions=[mask]
    )
    begun, recorder = recorded(
        {
            "IBAN": "DE1",
            "account": {"nationalId": 77, "id": 77},
            "texts": ["card 1234-5678 and 1111-2222", "order ABC", {"to": "ada@example.com"}],
            "number": 12345678,
        },
        privacy,
        result="1234-5678",
    )
    assert begun["args"] == {
        "IBAN": MARKER,
        "account": {"nationalId": MARKER, "id": 77},
        "texts": [f"card {MARKER} and {MARKER}", f"order {MARKER}", {"to": "[mail]"}],
        "number": 12345678,
    }
    assert begun["redactions"] == [
        {"path": "data.args.IBAN", "rule": "iban"},
        {"path": "data.args.account.nationalId", "rule": "national_id"},
        {"path": "data.args.texts[0]", "rule": "pattern", "count": 2},
        {"path": "data.args.texts[1]", "rule": "pattern"},
        {"path": "data.args.texts[2].to", "rule": "mask"},
    ]
    assert end_of(recorder)["result"] == MARKER
    assert losses(recorder) == {"redacted": 7}


OWN_SECRET = "DE12500105170648489890"
CUSTOM = {
    "key": Privacy(keys=["iban"]),
    "pattern": Privacy(patterns=[r"\bDE\d{20}\b"]),
    "function": Privacy(functions=[lambda _path, value: MARKER if OWN_SECRET in str(value) else value]),
}
FORMS: dict[str, Any] = {
    "dict": {"iban": OWN_SECRET},
    "nested": {"a": [{"myIban": OWN_SECRET}]},
    "text": f"My iban: {OWN_SECRET}, please.",
    "assignment": f"export IBAN={OWN_SECRET}",
    "json text": json.dumps({"iban": OWN_SECRET}),
    "json in json": json.dumps({"output": json.dumps({"iban": OWN_SECRET})}),
    "raw json": msgspec.Raw(json.dumps({"rows": [{"iban": OWN_SECRET}]}).encode()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("custom", CUSTOM)
def test_custom_rule_redacts_every_form(custom: str, form: str) -> None:
    with (
        recording(privacy=CUSTOM[custom]) as recorder,
        recorder.message(str(FORMS["text"])),
        recorder.tool_call("tool", {"a": FORMS[form]}) as call,
    ):
        call.result = FORMS[form]
    assert OWN_SECRET not in "".join(map(json.dumps, recorder.events))
    assert losses(recorder) == {"redacted": 3}


@pytest.mark.parametrize("form", FORMS)
def test_custom_key_is_redacted_by_the_engine(form: str) -> None:
    clean, receipts = redact({"a": FORMS[form]}, CUSTOM["key"].rules)
    assert OWN_SECRET.encode() not in msgspec.json.encode(clean)
    assert [receipt.rule for receipt in receipts] == ["iban"]


def test_rules_change_at_run_time() -> None:
    with recording() as recorder, recorder.message():
        for keys in ([], ["iban"], []):
            recorder.privacy = Privacy(keys=keys)
            with recorder.tool_call("tool", {"iban": "DE1"}):
                pass
            recorder.flush()
    begun = [event["data"]["args"]["iban"] for event in recorder.events if event["type"] == "tool_call_start"]
    assert begun == ["DE1", MARKER, "DE1"]


def test_value_of_a_failing_function_is_redacted() -> None:
    def fails(path: str, value: Any) -> Any:
        if path.startswith("data.args"):
            raise LookupError(SECRET)
        return value

    begun, recorder = recorded({"a": [1, "x", None]}, Privacy(functions=[fails]))
    assert begun["args"] == {"a": [MARKER, MARKER, MARKER]}
    assert (len(begun["redactions"]), recorder.report().failed) == (3, 0)


def test_function_result_without_json_form_drops_the_event() -> None:
    with (
        recording(
            privacy=Privacy(functions=[lambda path, value: object() if value == "x" else value]), strict=False
        ) as recorder,
        recorder.message(),
        recorder.tool_call("tool", {"a": "x"}),
    ):
        pass
    assert [event["type"] for event in recorder.events if event["id"].endswith(".s")] == ["workflow_execute_start"]
    assert recorder.report().dropped == 1
    assert [event["data"]["recorder"] for event in recorder.events if ".r" in event["id"]] == [{"dropped": 1}]


def test_long_values_are_cut_and_reported() -> None:
    begun, recorder = recorded({"text": "x" * 300}, Privacy(max_bytes=100), result="Größe" * 100)
    assert begun["args"] == {"_raw": '{"text":"' + "x" * 91 + "… [211 of 311 bytes were cut]"}
    assert begun["truncated"] == [{"path": "data.args", "bytes": 311}]
    ended = end_of(recorder)
    assert ended["truncated"] == [{"path": "data.result", "bytes": 700}]
    assert ended["result"] == ("Größe" * 15)[:72] + "… [600 of 700 bytes were cut]"
    assert losses(recorder) == {"truncated": 2}


@pytest.mark.parametrize("text", ["x" * 100, "字" * 33, "x", ""])
def test_value_within_the_limit_is_whole(text: str) -> None:
    _begun, recorder = recorded(None, Privacy(max_bytes=100), result=text)
    assert end_of(recorder)["result"] == text
    assert losses(recorder) is None


def test_limits_count_bytes() -> None:
    _begun, recorder = recorded(None, Privacy(max_bytes=100), result="字" * 34)
    assert end_of(recorder)["truncated"] == [{"path": "data.result", "bytes": 102}]
    assert end_of(recorder)["result"] == "字" * 33 + "… [2 of 102 bytes were cut]"


def test_secret_at_a_cut_is_redacted_before_cutting() -> None:
    text = "x" * 90 + f" Authorization: Bearer {SECRET * 20}"
    begun, recorder = recorded(None, Privacy(max_bytes=120), result=text)
    assert SECRET[:4] not in "".join(map(json.dumps, recorder.events))
    assert begun["args"] is None


def test_oversized_session_keeps_its_names() -> None:
    fields = {"title": "Weather", "description": "d" * 200, "metadata": {"a": "m" * 200}}
    with (
        recording(privacy=Privacy(max_bytes=100)) as recorder,
        recorder.session("s", tags=["a"], **fields),  # type: ignore[arg-type]
        recorder.message(),
    ):
        pass
    begun = recorder.events[0]["data"]
    assert begun["session"] == {
        "title": "Weather",
        "description": "d" * 100 + "… [100 of 200 bytes were cut]",
        "tags": ["a"],
        "metadata": {"_raw": '{"a":"' + "m" * 94 + "… [108 of 208 bytes were cut]"},
    }
    assert [entry["path"] for entry in begun["truncated"]] == ["data.session.description", "data.session.metadata"]
    assert losses(recorder) == {"truncated": 2}


def test_lean_keeps_names_durations_and_outcomes() -> None:
    with (
        recording(privacy=Privacy(lean=True)) as recorder,
        recorder.session("s", title="T"),
        recorder.message("the prompt", external_id="m") as message,
    ):
        with recorder.step(model="gpt-5") as step:
            step.thought = step.reasoning = "a thought"
            step.usage = {"input_tokens": 3}
            with recorder.tool_call("find", {"q": "x"}, call_id="c1", metadata={"a": 1}) as call:
                call.result = "a result"
                call.reflection = "a reflection"
            call.update(reflection="another")
            with recorder.tool_call("find") as failed:
                failed.error = "why"
        message.content = "the answer"
        message.references.append({"id": "1"})
    assert [(event["id"], event["data"]) for event in recorder.events] == [
        ("m.1.s", {"attempt": "1", "session": {"title": "T"}}),
        ("2.s", {"step": "2", "model": "gpt-5"}),
        ("3.s", {"uuid": "3", "name": "find", "call_id": "c1", "step": "2"}),
        ("3.e", {"uuid": "3", "name": "find", "duration": 1000.0, "call_id": "c1"}),
        ("3.u1", {"uuid": "3"}),
        ("4.s", {"uuid": "4", "name": "find", "step": "2"}),
        ("4.e", {"uuid": "4", "name": "find", "duration": 1000.0, "error": "why"}),
        ("2.e", {"step": "2", "model": "gpt-5", "duration": 6000.0, "usage": {"input_tokens": 3}}),
        ("m.1.e", {"duration": 8000.0}),
    ]


@pytest.mark.parametrize("result", [results.error("boom"), {"success": False}, "Error: no such file"])
def test_lean_keeps_a_failure_a_failure(result: Any) -> None:
    _begun, recorder = recorded(None, Privacy(lean=True), result=result)
    assert end_of(recorder, "tool_call_error") == {
        "uuid": "3",
        "name": "tool",
        "duration": 1000.0,
        "error": "The result says that the call failed.",
    }


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"max_bytes": 0}, ValueError),
        ({"max_bytes": True}, ValueError),
        ({"keys": ["--"]}, ValueError),
        ({"keys": "iban"}, ValueError),
        ({"patterns": "abc"}, ValueError),
        ({"patterns": ["("]}, re.error),
    ],
)
def test_invalid_rules_raise_at_construction(wrong: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        Privacy(**wrong)


# --- Pre-filter and full search ---------------------------------------------------------------------------------------

SECRETS = st.sampled_from(
    [
        SECRET,
        f"Bearer {SECRET}",
        "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        f"postgres://user:{SECRET}@host/db",
        f"password={SECRET}",
        f"--api-key {SECRET}",
        f'{{"password": "{SECRET}"}}',
        f"{{'token': '{SECRET}'}}",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
        f"密码：{SECRET}",
    ]
)
NAMES = st.sampled_from(
    [
        "password",
        "api_key",
        "apiKey",
        "Authorization",
        "X-API-KEY",
        "secret",
        "tok\u212aen",
        "passwort",
        "name",
        "value",
        "key",
        "a",
        "城市",
    ]
)
TEXTS = st.one_of(
    SECRETS,
    st.text(max_size=20),
    st.builds(lambda a, secret, b: f"{a}{secret}{b}", st.text(max_size=8), SECRETS, st.text(max_size=8)),
    st.sampled_from(["\\", '"', "\n", "\\u0070assword", "\u0130", "value", '"value"', "null"]),
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), TEXTS
)


def deeper(below: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(below, max_size=3),
        st.dictionaries(st.one_of(NAMES, st.text(max_size=6)), below, max_size=3),
        st.builds(lambda name, value: {"name": name, "value": value}, NAMES, below),
        st.builds(lambda name, value: {"key": name, "type": "x", "value": value}, NAMES, below),
        below.map(json.dumps),
        below.map(lambda value: json.dumps(json.dumps(value))),
        below.map(lambda value: json.dumps({"note": value}, ensure_ascii=False, indent=1)),
        below.map(repr),
    )


VALUES = st.recursive(LEAVES, deeper, max_leaves=8)


def expected(values: Sequence[Any]) -> list[tuple[Any, list[tuple[str, str]]]]:
    found = [redact({"args": msgspec.json.decode(msgspec.json.encode(value))}, path="data") for value in values]
    return [(clean["args"], [(receipt.path, receipt.rule) for receipt in receipts]) for clean, receipts in found]


@settings(max_examples=examples(150))
@given(st.lists(VALUES, min_size=1, max_size=4))
def test_batch_search_finds_all_that_single_search_finds(values: list[Any]) -> None:
    with recording() as recorder, recorder.message():
        for value in values:
            with recorder.tool_call("tool", value):
                pass
    begun = [event["data"] for event in recorder.events if event["type"] == "tool_call_start"]
    recorded = [
        (data["args"], [(receipt["path"], receipt["rule"]) for receipt in data.get("redactions", [])]) for data in begun
    ]
    assert recorded == expected(values)


@settings(max_examples=examples(100))
@given(TEXTS, TEXTS)
def test_texts_are_searched_like_arguments(thought: str, error: str) -> None:
    with recording() as recorder, recorder.message(), recorder.step() as step:
        step.thought = thought
        step.error = error or "x"
    (data,) = [event["data"] for event in recorder.events if event["type"] == "llm_request_complete"]
    clean, receipts = redact({"thought": thought, "error": error or "x"}, path="data")
    assert (data.get("thought", ""), data["error"]) == (clean["thought"], clean["error"])
    assert len(data.get("redactions", [])) == len(receipts)


def test_clean_events_are_one_line_of_json_each() -> None:
    _begun, recorder = recorded({"text": "a\nb\u2028c\u0000"})
    sent: list[Clean] = list(recorder.sink._kept)
    assert not any(b"\n" in event or b"\r" in event for event in sent)
    assert [json.loads(event) for event in sent] == [msgspec.json.decode(event) for event in sent]


# --- Files ------------------------------------------------------------------------------------------------------------


def test_secrets_are_in_no_file_of_the_recorder(tmp_path: Path) -> None:
    places = ("title", "session", "question", "thought", "args", "result", "error", "context", "bytes", "answer")
    values = {place: f"ghp_{sha1(place.encode(), usedforsecurity=False).hexdigest()[:36]}" for place in places}
    at = {place: f"about {value}." for place, value in values.items()}
    recorder = Recorder(
        f"http://127.0.0.1:{free_port()}",
        key="ts_key",
        spool=tmp_path / "spool",
        snapshots=Snapshots(SqliteStore(tmp_path / "snapshots.sqlite3")),
    )
    with (
        recorder.session("s", title=at["title"], metadata={"note": at["session"]}),
        recorder.message(at["question"]) as run,
    ):
        with recorder.step(at["thought"]), recorder.tool_call("find", {"deep": [{"q": at["args"]}]}) as call:
            call.result = {"note": at["result"]}
        with pytest.raises(ValueError, match="about"), recorder.tool_call("fail"):
            raise ValueError(at["error"])
        recorder.snapshot({"note": at["context"], "raw": values["bytes"].encode()}, nodes=["plan"], session="s")
        run.content = at["answer"]
    recorder.close(1)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    written = b"".join(path.read_bytes() for path in files)
    assert len(files) >= 3
    assert b"[redacted]" in written
    assert [place for place, value in values.items() if value[-20:].encode() in written] == []

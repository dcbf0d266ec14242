"""Test freezing values: a long one is cut to its beginning, at a cost that does not grow with its length."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import MemorySink, Privacy, Recorder
from tracesite_sdk.recorder.capture.entries import (
    MARGIN,
    MOST,
    Cut,
    Entry,
    Kind,
    freeze,
    freeze_request,
    thaw,
    without_values,
)
from tracesite_sdk.recorder.delivery.privacy import clean
from tracesite_sdk.recorder.scopes import Message
from tracesite_sdk.testing import recording

MB = 1_000_000
LIMIT = Privacy().max_bytes


@dataclass
class Page:
    url: str
    text: str


class Model:
    """An object that is encoded by its fields, like a pydantic model."""

    def __init__(self, text: str) -> None:
        self.text = text

    def model_dump(self) -> dict[str, Any]:
        return {"text": self.text}


LARGE: dict[str, Callable[[], Any]] = {
    "text": lambda: "x" * (100 * MB),
    "text that is not ASCII": lambda: "上" * (30 * MB),
    "dict": lambda: {"short": 1, "text": "x" * (100 * MB)},
    "deep": lambda: {"a": [{"b": {"c": "x" * (100 * MB)}}]},
    "bytes": lambda: {"file": b"x" * (100 * MB)},
    "dataclass": lambda: [Page("u", "x" * (100 * MB))],
    "model": lambda: Model("x" * (100 * MB)),
    "key": lambda: {"x" * (2 * MB): 1, "y": "x" * (2 * MB)},
    "numbers": lambda: list(range(3 * MB)),
    "keys": lambda: {f"key {number}": number for number in range(MB)},
    "rows": lambda: [{"id": number, "name": f"name {number}"} for number in range(MB // 4)],
    "set": lambda: set(range(3 * MB)),
    "not JSON": lambda: {(1, 2): "x" * (100 * MB)},
}


@pytest.mark.parametrize("name", LARGE)
def test_beginning_of_large_value_is_frozen_quickly(name: str) -> None:
    value = LARGE[name]()
    began = time.thread_time()
    frozen = freeze(value)
    took = time.thread_time() - began
    assert isinstance(frozen, Cut), frozen[:100]
    assert len(frozen) <= 3 * MOST
    assert frozen.size > 2 * MB
    # Encoding the whole value takes 80 to 600 ms of this thread on the author's machine.
    assert took < 0.25
    thaw(value)


def test_freezing_large_value_takes_memory_of_its_beginning() -> None:
    value = {"text": "x" * (100 * MB)}
    tracemalloc.start()
    freeze(value)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * MB


@pytest.mark.parametrize(
    "value",
    [
        "x" * MOST,
        {"rows": [{"a": number, "b": "text"} for number in range(20_000)]},
        list(range(100_000)),
        [["x" * 100] * 100] * 100,
        {"a": "x" * 1_000_000, "b": [1, 2, {"c": None}]},
        b"x" * 700_000,
    ],
    ids=["text", "rows", "numbers", "shared", "dict", "bytes"],
)
def test_value_within_the_limit_is_frozen_whole(value: Any) -> None:
    assert not isinstance(freeze(value), Cut)


@pytest.mark.parametrize("missed", [["x"] * 40 + ["y" * (3 * MB)], {f"k{n}": "y" * MB * (n == 35) for n in range(40)}])
def test_large_value_that_sampling_misses_is_cut_too(missed: Any) -> None:
    frozen = freeze(missed, 100_000)
    assert isinstance(frozen, Cut)
    assert len(frozen) <= 200_000


def test_call_with_large_values_is_complete_and_reports_cuts() -> None:
    text = "x" * (70 * MB)
    with recording() as recorder, recorder.message(external_id="m"):
        with recorder.tool_call("reads", {"text": text}) as call:
            call.result = text
        calls = [recorder.tool_call("at once").start() for _number in range(4)]
        for call in calls:
            call.result = {"text": "y" * (30 * MB)}
            call.end()
    events = [event["data"] for event in recorder.events if event["type"].startswith("tool_call")]
    assert [len(data["truncated"]) for data in events if "truncated" in data] == [1] * 6
    first, end = events[:2]
    assert first["args"]["_raw"].startswith('{"text":"xxx')
    assert first["args"]["_raw"].endswith("… [cut, of about 70000008 bytes]")
    assert first["truncated"] == [{"path": "data.args", "bytes": 70_000_008}]
    assert end["result"] == f"{'x' * 2**20}… [cut, of about 70000000 bytes]"
    ends = [event["type"] for event in recorder.events if event["id"].endswith(".e")]
    assert ends == ["tool_call_complete"] * 5 + ["workflow_execute_complete"]
    assert recorder.events[-1]["data"]["recorder"] == {"truncated": 6}
    assert recorder.report().dropped == 0


def test_agent_does_not_wait_for_large_values() -> None:
    recorder = Recorder(sink=MemorySink())
    value = {"text": "x" * (100 * MB)}
    with recorder.message():
        began = time.thread_time()
        with recorder.tool_call("reads", value) as call:
            call.result = value
        took = time.thread_time() - began
    recorder.close(60)
    assert took < 0.1


@pytest.mark.parametrize(("messages", "characters"), [(1, 100 * MB), (3, 100 * MB), (100_000, 1_000), (5 * MB, 1)])
def test_agent_does_not_wait_for_a_large_request(messages: int, characters: int) -> None:
    text = "x" * characters
    request = {"messages": [{"role": "user", "content": text}] * messages}
    recorder = Recorder(sink=MemorySink())
    with recorder.message():
        began = time.thread_time()
        recorder.step(request=request).start().end()
        took = time.thread_time() - began
    recorder.close(60)
    assert took < 0.15


@pytest.mark.parametrize("before", [*range(0, 60, 10), 7_000, 60_000])
@pytest.mark.parametrize("wrap", [lambda text: text, lambda text: {"page": [text]}], ids=["text", "dict"])
def test_secret_at_the_place_of_the_cut_is_not_kept(before: int, wrap: Callable[[str], Any]) -> None:
    """A secret at the cut is redacted at any position, also if redaction shortens the text before it."""
    secret = "ts_" + "Zq7Xw9Lk3Vb5Nm1Ty8Rc2Hd6Gj4Fs0Pa5Ue9Io3Wb7K"
    filler = f'password: "{"hunter2" * 10}" ' * 3000
    room = 2**20 + MARGIN - len(filler) - before
    text = filler + ("lorem " * (room // 6 + 1))[-room:] + secret + " ipsum" * MB
    with recording(privacy=Privacy()) as recorder, recorder.message(), recorder.tool_call("reads") as call:
        call.result = wrap(text)
    (end,) = [event["data"] for event in recorder.events if event["type"] == "tool_call_complete"]
    kept = str(end["result"])
    assert "hunter2" not in kept
    assert secret[:12] not in kept
    assert len(kept) <= 2**20 + 100


def start_of_step(request: Any, privacy: Privacy | None = None) -> dict[str, Any]:
    with recording(privacy=privacy) as recorder, recorder.message():
        recorder.step(request=request).start().end()
    (begun,) = [event["data"] for event in recorder.events if event["type"] == "llm_request_start"]
    return begun


@pytest.mark.parametrize("size", [100, MB + 100, 3 * MB])
@pytest.mark.parametrize("filler", ["x", "字", "\n"])
@pytest.mark.parametrize("name", ["messages", "input", ""])
def test_large_request_keeps_first_and_newest_messages(size: int, filler: str, name: str) -> None:
    messages = [{"role": "user", "content": f"{n} {filler * (size // 10)}"} for n in range(10)]
    request = {"model": "gpt-5", name: messages, "tools": [{"name": "search"}]} if name else messages
    whole = len(msgspec.json.encode(request))
    begun = start_of_step(request)
    kept = begun["request"]
    if whole <= LIMIT:
        assert (kept, "truncated" in begun) == (request, False)
        return
    (cut,) = begun["truncated"]
    assert (cut["path"], LIMIT < cut["bytes"] < 2 * whole) == (f"data.request.{name}" if name else "data.request", True)
    if name:
        assert (kept["model"], kept["tools"]) == ("gpt-5", [{"name": "search"}])
        kept = kept[name]
    # A first message that takes more than a quarter of the room is left out, too.
    first = messages[:1] if len(msgspec.json.encode(messages[0])) <= LIMIT // 4 else []
    assert kept == [*first, *messages[len(messages) - len(kept) + len(first) :]]
    assert LIMIT / 3 < len(msgspec.json.encode(begun["request"])) <= LIMIT


@pytest.mark.parametrize(
    "request_",
    [
        {"messages": [{"role": "user", "content": "字" * MB}]},
        {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b" * 2 * MB}]},
        {"messages": [{"role": "user", "content": "a"}] * 2, "tools": [{"name": "search", "about": "t" * 2 * MB}]},
        {"question": "q" * 2 * MB},
        [{"role": "user", "content": "\n" * MB}],
    ],
    ids=["one message", "newest message", "tools", "no messages", "list"],
)
def test_large_part_of_a_request_is_cut_in_its_form(request_: Any) -> None:
    begun = start_of_step(request_)
    assert type(begun["request"]) is type(request_)
    assert [cut["path"] for cut in begun["truncated"]] == ["data.request"]
    assert LIMIT / 4 < len(msgspec.json.encode(begun["request"])) <= LIMIT


@given(
    messages=st.lists(
        st.text(max_size=90) | st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=90), max_size=3),
        max_size=9,
    ),
    others=st.dictionaries(st.sampled_from(["model", "tools"]), st.text(max_size=150)),
    max_bytes=st.integers(1, 300),
)
def test_request_of_any_form_stays_within_any_limit(messages: Any, others: Any, max_bytes: int) -> None:
    most = max_bytes + MARGIN
    given_request = {**others, "messages": messages}
    frozen = freeze_request(given_request, most)
    entry = Entry(Kind.STEP_START, 1, Message(Recorder(sink=MemorySink()).runtime), "s", {}, {"request": frozen}, 0)
    (event,) = clean([entry], Privacy(max_bytes=max_bytes))
    data = msgspec.json.decode(event)["data"]
    whole = msgspec.json.encode(given_request)
    assert ("truncated" in data) is (len(whole) > max_bytes)
    # Nothing is shorter than an object without its members.
    assert len(msgspec.json.encode(data["request"])) <= max(max_bytes, len("{}"))


@pytest.mark.parametrize("before", [*range(0, 60, 10), 7_000, 60_000])
def test_secret_at_the_cut_of_a_request_is_not_kept(before: int) -> None:
    secret = "ts_" + "Zq7Xw9Lk3Vb5Nm1Ty8Rc2Hd6Gj4Fs0Pa5Ue9Io3Wb7K"
    filler = f'password: "{"hunter2" * 10}" ' * 3000
    room = 2**20 + MARGIN - len(filler) - before
    text = filler + ("lorem " * (room // 6 + 1))[-room:] + secret + " ipsum" * MB
    with recording() as recorder, recorder.message():
        recorder.step(request=[{"role": "user", "content": text}]).start().end()
    (begun,) = [event["data"] for event in recorder.events if event["type"] == "llm_request_start"]
    kept = str(begun["request"])
    assert begun["request"][0]["role"] == "user"
    assert ("hunter2" in kept, secret[:12] in kept, 2**19 < len(kept) <= 2**20) == (False, False, True)


def test_request_without_room_in_the_queue_is_left_out() -> None:
    with recording() as recorder, recorder.message("Hello") as message:
        entry = Entry(Kind.STEP_START, 1, message, "s", {"step": "1"}, {"request": freeze([{"content": "x" * 999}])}, 0)
    (event,) = clean([without_values(entry)], Privacy())
    data = msgspec.json.decode(event)["data"]
    assert ("request" in data, data["truncated"]) == (False, [{"path": "data.request", "bytes": 1015}])


def test_session_with_a_large_field_keeps_the_others() -> None:
    with recording() as recorder:
        with recorder.session("s", title="Weather", metadata={"notes": "x" * (3 * MB)}), recorder.message():
            pass
        with recorder.session("t", title="Weather", description="d" * (3 * MB)), recorder.message():
            pass
    first, second = (event["data"] for event in recorder.events if event["type"] == "workflow_execute_start")
    assert first["session"]["title"] == second["session"]["title"] == "Weather"
    assert second["session"]["description"].startswith("ddd")
    assert [cut["path"] for data in (first, second) for cut in data["truncated"]] == ["data.session"] * 2

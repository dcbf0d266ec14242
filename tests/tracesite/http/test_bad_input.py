"""Test "Bad input" of docs/what_is_stored.md row by row: every kind of bad input gets the documented response."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest
from backports import zstd
from django.test import Client

from access_app.keys import create_key
from access_app.models import Project
from sdk.tests.paths import ROOT
from tests.traces_app.conftest import answer, question, store
from tests.tracesite.http.test_bad_requests import KINDS as ON_THE_CONNECTION
from traces_app.events.decode import MOST_SESSIONS
from traces_app.ingest import decode
from traces_app.ingest.store import MOST_REPEATED

PAGE = ROOT / "docs" / "what_is_stored.md"
MESSAGES = "sessions/weather/messages/"
NINES = int("9" * 300)
JSON = "application/json"


class Sender:
    def __init__(self, token: str) -> None:
        self.client = Client(headers={"Authorization": f"Bearer {token}"})

    def post(self, path: str, body: bytes | str, **headers: str) -> Any:
        body = body.encode() if isinstance(body, str) else body
        # Django's client leaves these out for an empty body.
        headers = {"Content-Type": headers.pop("type", JSON), "Content-Length": str(len(body)), **headers}
        return self._summary(self.client.generic("POST", f"/api/v1/{path}", body, headers=headers))

    def send(self, path: str, document: Any) -> Any:
        return self.post(path, json.dumps(document))

    def get(self, path: str) -> Any:
        return self._summary(self.client.get(f"/api/v1/{path}"))

    def send_message(self, **fields: Any) -> Any:
        """Send a message with these fields; return the stored message, or the error."""
        return self.send(MESSAGES, {"role": "assistant", **fields})

    @staticmethod
    def _summary(response: Any) -> Any:
        """Return `status code field` of an error, else the decoded document."""
        document = response.json()
        if response.status_code < 400:
            return document
        error = document["error"]
        assert error["message"].endswith("."), error
        return f"{response.status_code} {error['code']} {error['field'] or ''}".strip()


@pytest.fixture
def api(db: None) -> Sender:
    project = Project.objects.create(slug="owner")
    store(project, question(), answer())
    return Sender(create_key(project, "agent", ["read", "write", "delete"])[1])


def call(**fields: Any) -> list[dict[str, Any]]:
    return [{"tool_calls": [{"name": "t", **fields}]}]


def nested(depth: int) -> bytes:
    return b'{"role": "user", "metadata": {"a": %s1%s}}' % (b"[" * depth, b"]" * depth)


# --- One function for each row of the table; its name is the row's first word ------------------------------------------


def nul(api: Sender) -> None:
    assert api.send_message(content="a\x00b", metadata={"k\x00": ["\x00"]})["content"] == "a\\u0000b"
    kept = api.send_message(
        external_id="e\x00", request_id="r\x00", health=["h\x00"], error="\x00", usage={"\x00": 1},
        knowledge_references=[{"id": "\x00", "content": "\x00", "sub_chunk_id": ["\x00"], "metadata": {"\x00": 1}}],
        agent_steps=[{"id": "\x00", "thought": "\x00", "agent_name": "\x00", "model": "\x00", "tool_calls": [
            {"id": "\x00", "uuid": "u\x00", "name": "t\x00", "args": {"\x00": "\x00"}, "reflection": "\x00", "parent": "\x00",
             "result": {"output": "\x00", "data": "\x00", "error": "\x00", "raw": "\x00", "attachments": ["\x00"]}}]}],
    )  # fmt: skip
    assert (kept["external_id"], kept["agent_steps"][0]["tool_calls"][0]["args"]) == (
        "e\\u0000",
        {"\\u0000": "\\u0000"},
    )
    # Sending the same id again updates the same message.
    assert api.send_message(external_id="e\x00")["id"] == kept["id"]
    session = {"external_id": "s\x00", "title": "\x00", "end_user": "\x00", "tags": ["\x00"], "metadata": {"\x00": 1}}
    assert api.send("sessions/", {**session, "current_phase": "\x00", "workflow": "\x00"})["tags"] == ["\\u0000"]
    lists = ("messages/", "tool-calls/", "chains/")
    for query in (*(f"{path}?session=%00" for path in lists), "messages/?project=%00", "sessions/%00/"):
        assert api.get(query).startswith("404 "), query
    for query in (
        "messages/?request_id=%00", "messages/?tool=%00", "messages/?cursor=%00", "sessions/?tag=%00", "messages/?role=%00",
        "tool-calls/?message=%00", "messages/?created_after=%00", "messages/?limit=%00", "sessions/?title=%00", "messages/?%00=1",
    ):  # fmt: skip
        assert api.get(query).startswith("400 invalid_input "), query


def surrogate(api: Sender) -> None:
    for written, kept in (
        (b"a\\ud800", r"a\ud800"),
        (b"\\udc00\\ud800", r"\udc00\ud800"),
        (b"\xed\xa0\x80", "\ufffd" * 3),
    ):
        assert api.post(MESSAGES, b'{"role": "user", "content": "%s"}' % written)["content"] == kept
    sessions = b'{"external_id": "half", "messages": [{"role": "user", "content": "\\ud83d"}]}'
    for body, kind in ((b'{"sessions": [%s]}' % sessions, JSON), (sessions, "application/x-ndjson")):
        assert api.post("ingest/", body, type=kind)["refused"] == []
    assert api.send_message(content="\U0001f600")["content"] == "\U0001f600"


def noncharacter(api: Sender) -> None:
    assert api.send_message(content="\ufffe\uffff\u202e")["content"] == "\ufffe\uffff\u202e"


def integers(api: Sender) -> None:
    for number in (2**64, -(2**63) - 1, 2**65, NINES, -NINES, 0):
        kept = api.send_message(metadata={"n": number}, agent_steps=call(args={"n": number}, result={"data": number}))
        made = kept["agent_steps"][0]["tool_calls"][0]
        assert (kept["metadata"], made["args"], made["result"]["data"]) == ({"n": number}, {"n": number}, number)
        assert api.get(f"messages/{kept['id']}/") == kept
    assert api.post(MESSAGES, b'{"role": "user", "metadata": {"n": %s}}' % (b"9" * 5000)) == "400 invalid_json"


def fields_of_whole_numbers(api: Sender) -> None:
    assert (
        api.send_message(knowledge_references=[{"chunk_index": 2**63}])
        == "400 invalid_input knowledge_references[0].chunk_index"
    )
    assert (
        api.send_message(knowledge_references=[{"match_type": 2**31}])
        == "400 invalid_input knowledge_references[0].match_type"
    )
    assert api.send_message(agent_steps=[{"iteration": 2**31}]) == "400 invalid_input agent_steps[0].iteration"
    assert api.send_message(duration=2**53) == "400 invalid_input duration"
    assert api.send_message(agent_steps=call(duration=-1)) == "400 invalid_input agent_steps[0].tool_calls[0].duration"
    assert api.send_message(duration=True) == "400 invalid_input duration"
    assert api.send_message(duration=10**12, usage={"input_tokens": NINES})["duration"] == 10**12
    extremes = {"chunk_index": 2**63 - 1, "start_at": -(2**63), "match_type": -(2**31)}
    kept = api.send_message(knowledge_references=[extremes])["knowledge_references"][0]
    assert {name: kept[name] for name in extremes} == extremes
    for query in ("page", "limit"):
        assert api.get(f"messages/?{query}={NINES}") == f"400 invalid_input {query}"
    assert api.get(f"messages/?min_duration={NINES}")["results"] == []
    assert len(api.get(f"messages/?max_duration={NINES}")["results"]) > 0


def fractions(api: Sender) -> None:
    kept = api.post(MESSAGES, b'{"role": "user", "metadata": {"a": 0.1234567890123456789, "b": 1.0, "c": 1e-400}}')
    assert kept["metadata"] == {"a": 0.12345678901234568, "b": 1.0, "c": 0.0}
    assert api.post(MESSAGES, b'{"role": "user", "metadata": {"a": 1e400}}') == "400 invalid_json"
    body = b'{"role": "assistant", "agent_steps": [{"tool_calls": [{"name": "t", "args": {"a": %s}}]}]}'
    for number, answered in (
        (b"0.123456789012345678", b"0.123456789012345678"),
        (b"0.1234567890123456789", b"0.12345678901234568"),
    ):
        kept = api.post(MESSAGES, body % number)
        read = api.client.get(f"/api/v1/messages/{kept['id']}/?fields=agent_steps")
        assert b'"args":{"a":%s}' % answered in read.content.replace(b": ", b":")
    assert api.post(MESSAGES, body % b"1e400") == "400 invalid_json"


def nan(api: Sender) -> None:
    for word in ("NaN", "Infinity", "-Infinity"):
        assert api.post(MESSAGES, f'{{"role": "user", "metadata": {{"a": {word}}}}}') == "400 invalid_json"
    # Inside a string it stays a string.
    assert api.send_message(agent_steps=call(args='{"a": NaN}'))["agent_steps"][0]["tool_calls"][0]["args"] == {
        "_raw": '{"a": NaN}'
    }


def deep(api: Sender) -> None:
    kept = api.post(MESSAGES, nested(150))
    assert kept["redactions"][0]["rule"] == "depth"
    assert api.get(f"messages/{kept['id']}/") == kept
    for depth in (800, 900, 950, 1_500, 100_000):
        response = api.post(MESSAGES, nested(depth))
        assert response == "400 invalid_json" or response["redactions"][0]["rule"] == "depth"
    assert response == "400 invalid_json"
    text = "[" * 1_500 + "]" * 1_500
    assert api.send_message(agent_steps=call(args=text))["agent_steps"][0]["tool_calls"][0]["args"] == {"_raw": text}


def large(api: Sender) -> None:
    output = "é" * 2_500_000 + "x"
    kept = api.send_message(agent_steps=call(result={"output": output}))
    assert kept["agent_steps"][0]["tool_calls"][0]["result"]["output"] == output
    assert api.send_message(external_id="i" * 513) == "400 invalid_input external_id"
    # PostgreSQL refuses index rows above 2,704 bytes that it cannot compress; the longest indexed values are shorter.
    chance = random.Random(1)
    name = "".join(chr(chance.randrange(0x10000, 0x110000)) for _ in range(512))
    named = call(id=name, uuid=name, name=name, parent=name)
    session = {
        "external_id": name,
        "end_user": name,
        "tags": [name[:200]],
        "title": name * 10,
        "current_phase": name * 10,
    }
    sent = [{"role": "assistant", "external_id": name, "request_id": name, "health": [name], "agent_steps": named}]
    kept = api.send("sessions/", {**session, "messages": sent})
    assert {field: kept[field] for field in session} == session
    for query in (
        "messages/?external_id",
        "messages/?request_id",
        "messages/?call_id",
        "tool-calls/?tool",
        "sessions/?end_user",
    ):
        assert len(api.get(f"{query}={quote(name)}")["results"]) == 1


def too_large(api: Sender) -> None:
    assert api.post(MESSAGES, b" " * (64 * 1024 * 1024 + 1)) == "413 too_large"


def values(api: Sender) -> None:
    many = b'{"role": "user", "external_id": "many", "metadata": {"a": [0' + b",0" * 2_097_145 + b"]}}"
    assert api.post(MESSAGES, many)["role"] == "user"
    assert api.post(MESSAGES, many.replace(b"[0", b"[0,0,0")) == "413 too_large"
    assert api.post(MESSAGES, many.replace(b"0,", b"[],")) == "413 too_large"


def items(api: Sender) -> None:
    sessions = {"sessions": [{"external_id": "many", "messages": [{"role": "user"}] * decode.MOST_ITEMS}]}
    assert api.send("ingest/", sessions) == "413 too_large"
    assert api.post("ingest/", "\n" * (decode.MOST_ITEMS + 1), type="application/x-ndjson") == "413 too_large"
    assert api.send_message(knowledge_references=[{}] * (decode.MOST_BELOW + 1)) == "413 too_large"
    again = [{"role": "user", "external_id": "again"}] * (MOST_REPEATED + 2)
    assert api.send(MESSAGES, again) == "413 too_large"
    event = {"type": "agent_start"}
    assert api.send("events/", [{**event, "session_id": "s"}] * (decode.MOST_ITEMS + 1)) == "413 too_large"
    some = [{**event, "session_id": str(number)} for number in range(MOST_SESSIONS + 1)]
    assert api.send("events/", some) == "413 too_large"
    patched = [{"tool_calls": [{"name": "t"}] * (decode.MOST_BELOW + 1)}]
    address = f"/api/v1/messages/{api.send_message(external_id='few')['id']}/"
    refused = api.client.patch(address, json.dumps({"agent_steps": patched}), content_type=JSON)
    assert refused.status_code == 413


def types(api: Sender) -> None:
    assert api.send_message(content=7) == "400 invalid_input content"
    assert api.send_message(agent_steps={}) == "400 invalid_input agent_steps"
    assert api.send_message(metadata=[]) == "400 invalid_input metadata"
    assert api.send_message(agent_steps=[{"tool_calls": [[]]}]) == "400 invalid_input agent_steps[0].tool_calls[0]"
    for body in ("7", '"a"', "null"):
        assert api.post(MESSAGES, body) == "400 invalid_input"
        assert api.post("ingest/", body) == "400 invalid_input sessions"


def words(api: Sender) -> None:
    assert api.send(MESSAGES, {"role": "tool"}) == "400 invalid_input role"
    assert api.send_message(agent_steps=call(status="done")) == "400 invalid_input agent_steps[0].tool_calls[0].status"
    assert api.send("sessions/", {"external_id": "s", "status": "?"}) == "400 invalid_input status"
    assert api.get("messages/?role=tool") == "400 invalid_input role"


def times(api: Sender) -> None:
    absurd = ("1999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "0001-01-01T00:00:00+12:00", "9999-12-31T23:59:59-12:00")
    for time in ("2026-01-01T00:00:00", "yesterday", "", "2026-13-01T00:00:00Z", "2026-01-01", *absurd):
        assert api.send_message(created_at=time) == "400 invalid_input created_at"
        assert api.send_message(completed_at=time) == "400 invalid_input completed_at"
        assert api.send_message(agent_steps=[{"timestamp": time}]) == "400 invalid_input agent_steps[0].timestamp"
        started_at = "400 invalid_input agent_steps[0].tool_calls[0].started_at"
        assert api.send_message(agent_steps=call(started_at=time)) == started_at
        if time and time not in (*absurd, "2026-01-01"):
            assert api.get(f"messages/?created_after={time}") == "400 invalid_input created_after"
            assert api.get(f"messages/?before_time={time}") == "400 invalid_input before_time"
    for time in (*absurd, "2026-01-01"):
        assert api.get(f"messages/?created_after={time.replace('+', '%2B')}")["next"] is None


def cursors(api: Sender) -> None:
    good = api.get("tool-calls/?limit=1")["next"]
    for cursor in ("x", good[:-1], good + "A", good[::-1], "%F0%9F%98%80", "A" * 28, "None"):
        assert api.get(f"tool-calls/?cursor={cursor}") == "400 invalid_input cursor"


def encodings(api: Sender) -> None:
    document = '{"role": "user", "content": "é"}'
    assert api.post(MESSAGES, document.encode("latin-1"))["content"] == "\ufffd"
    for encoding in ("utf-16", "utf-32", "utf-8-sig"):
        assert api.post(MESSAGES, document.encode(encoding)) == "400 invalid_json"
    assert (
        api.post(MESSAGES, document, type="application/json; charset=latin-1")
        == "415 unsupported_media_type Content-Type"
    )
    assert api.get("messages/?request_id=%E9")["results"] == []


def duplicates(api: Sender) -> None:
    assert api.post(MESSAGES, '{"role": "user", "content": "a", "content": "b"}')["content"] == "b"


def empty(api: Sender) -> None:
    for body in ("", " \n", "{", '{"role"', "[1,]", "{} {}", "// a\n{}"):
        assert api.post(MESSAGES, body) == "400 invalid_json"
    assert api.post("ingest/", "\n\n", type="application/x-ndjson") == {"sessions": [], "refused": []}


def streams(api: Sender) -> None:
    body = b'{"role": "user", "content": "zipped"}'
    for encoding, encode in (("gzip", gzip.compress), ("zstd", zstd.compress)):
        assert api.post(MESSAGES, encode(body), **{"Content-Encoding": encoding})["content"] == "zipped"
        for broken in (encode(body)[:-1], encode(body) + b"x", body, b""):
            assert api.post(MESSAGES, broken, **{"Content-Encoding": encoding}) == "400 invalid_input Content-Encoding"
        assert api.post(MESSAGES, encode(bytes(70_000_000)), **{"Content-Encoding": encoding}) == "413 too_large"
    refused = api.client.post(f"/api/v1/{MESSAGES}", body, content_type=JSON, headers={"Content-Encoding": "br"})
    assert (refused.status_code, refused.headers["Accept-Encoding"]) == (415, "zstd, gzip, deflate")


def parameters(api: Sender) -> None:
    assert api.get("messages/?rol=user") == "400 invalid_input rol"
    assert api.get("messages/?role=user&role=user") == "400 invalid_input role"
    assert api.get("messages/?" + "&".join(f"a{i}=1" for i in range(10_000))).startswith("400 invalid_input")
    assert api.get("messages/?" + "&".join("tool=a" for i in range(900))) == "400 invalid_input tool"
    assert api.get("messages/?request_id=" + "x" * 200_000)["results"] == []
    assert api.get("messages/?fields=" + "id," * 50_000) == "400 invalid_input fields"
    assert api.get("messages/?tool=" + "x" * 100_000)["results"] == []


def headers(api: Sender) -> None:
    good = {"role": "user"}
    for name in ("X-Request-ID", "If-Match", "Accept-Encoding", "Accept-Language", "User-Agent", "Cookie"):
        assert api.post(MESSAGES, json.dumps(good), **{name: "é\x01" * 50_000})["role"] == "user", name
    assert Sender("x" * 100_000).get("messages/") == "401 invalid_api_key"


KINDS: dict[str, Callable[[Sender], None]] = {
    each.__name__: each
    for each in (
        nul, surrogate, noncharacter, integers, fields_of_whole_numbers, fractions, nan, deep, large, too_large, values, items, types,
        words, times, cursors, encodings, duplicates, empty, streams, parameters, headers,
    )
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_bad_input_gets_documented_response(kind: str, api: Sender) -> None:
    KINDS[kind](api)


@pytest.mark.parametrize(
    "written",
    [
        b'{ "a" : [ 1.0, 1e5, -0, 1E-7, 123456789012345678901234567890, null, true ],\r\n"b": {} }',
        b'{"a": 1, "a": {"b": 2}, "": "", "\xe5\xaf\x86": "\xe7\xa0\x81"}',
        b'{"a": "\\u0000\\ud83d\\ude00 \\"\\\\ \\/ \\b\\f\\n\\r\\t"}',
        b'{"a": "\\ud800"}',
        b'{"a": "\xff"}',
        b'{"a": "x\ny"}',
        b'{"a": 1e400}',
        b'{"a": NaN}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": ' + b"[" * 150 + b"]" * 150 + b"}",
        b'{"a": ' + b"[" * 2000 + b"]" * 2000 + b"}",
        b'{"a": [1,]}',
        b'{"headers": {"Authorization": "Bearer abc123def456"}, "url": "https://a:b@example.com/"}',
        b'{"p\\u0061ssword": "hunter2", "note": "password: hunter2"}',
        b'{"name": "Cookie", "value": "a=b"}',
        b'{"type": "image", "data": "%s"}' % (b"iVBORw0KGgo" + b"A" * 1001),
        b'{"screenshot": "https://example.com/a.png"}',
        b"null",
        b'"text"',
        b'"{\\"a\\": 1}"',
        b"[]",
        b"[1e400]",
        b"0",
        b"{}",
    ],
)
def test_arguments_and_data_give_the_same_response_on_both_paths(api: Sender, written: bytes) -> None:
    """An unknown field makes the server decode the whole body; otherwise it stores arguments and data undecoded."""
    body = b'{"role": "assistant", %s"agent_steps": [{"tool_calls": [{"name": "t", "args": %s, "result": {"output": "x", "data": %s}}]}]}'
    quick, slow = (api.post(MESSAGES, body % (unknown, written, written)) for unknown in (b"", b'"unknown": 1, '))

    if isinstance(slow, str):
        assert quick == slow
    else:
        (call,), (decoded,) = quick["agent_steps"][0]["tool_calls"], slow["agent_steps"][0]["tool_calls"]
        for name in ("args", "result", "status", "duration"):
            assert call.get(name) == decoded.get(name)
        assert quick.get("redactions") == slow.get("redactions")


def test_bad_input_table_matches_tests() -> None:
    section = PAGE.read_text().split("\n## Bad input\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.M)
    assert listed == [*KINDS, *ON_THE_CONNECTION]

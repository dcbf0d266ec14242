"""Valid bodies for every route that takes one: those of the OpenAPI document, transcripts in all formats, and those of foreign APIs.

Routes are those of the URLconf, with the names of their parameters in braces. A new route needs a seed here.
"""

from __future__ import annotations

import re
import tarfile
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

import msgspec
from django.urls import URLPattern, URLResolver, get_resolver
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks import transcript_samples
from tracesite.foreign_apis.langsmith import PREFIXES
from tracesite.foreign_apis.otlp.api import BASES
from tracesite.http.api_root import schema
from tracesite_sdk.records.snapshot_parts import ref_of

from .sending import Request, Sender

JSON, NDJSON, PROTOBUF = "application/json", "application/x-ndjson", "application/x-protobuf"
FORM, MULTIPART, ANYTHING = "application/x-www-form-urlencoded", "multipart/form-data", "application/octet-stream"
BOUNDARY, MESSAGE = "limit", "MESSAGE"
RUN, TIME, NANOSECONDS = "0190f6a1-7c2b-7d3e-8f40-112233445566", "2026-01-01T00:00:00Z", 1_767_225_600 * 10**9
WITHOUT_BODY = ("/", "/metrics", "/api/v1/docs/", "/.well-known/security.txt")
"""Views that take any method and read no body."""


@dataclass(frozen=True, kw_only=True)
class Seed:
    """A valid body of one route, or of several that do the same."""

    routes: tuple[str, ...]
    body: bytes
    method: str = "POST"
    media_type: str = JSON
    key: str = ""
    """The API key; "" for anybody."""
    message: type[Message] | None = None
    """What a body of protobuf is."""
    prepare: Callable[[Sender, Seed, Request], Request] | None = None
    """Make a request with a mutated body one that gets as far as the valid one would."""
    framing: str = "length"
    is_refused: bool = False
    """Whether the valid body is refused, too, because anybody sends it."""

    @property
    def name(self) -> str:
        return f"{self.method} {self.routes[0]}"

    def request(self, sender: Sender, route: str, body: bytes, names: Mapping[str, str]) -> Request:
        headers = {"Content-Type": self.media_type, **({"X-API-Key": self.key} if self.key else {})}
        if self.media_type == MULTIPART:
            headers["Content-Type"] += f"; boundary={BOUNDARY}"
        path = route.format_map(names)
        made = Request(method=self.method, path=path, body=body, headers=headers, framing=self.framing)
        return self.prepare(sender, self, made) if self.prepare is not None else made


def all_seeds(key: str, of_other_project: str) -> list[Seed]:
    """Return the seeds, with keys of all scopes; sessions are deleted in the other project. Exit if a route has none."""
    made = [*_own(), *_imports(), *_spans(), *_foreign(), *_live()]
    made = [replace(seed, key=of_other_project if seed.method == "DELETE" else key) for seed in made]
    made += _of_anybody(key)
    missing = routes_with_body() - {(seed.method, route) for seed in made for route in seed.routes}
    if missing:
        raise SystemExit(f"No seed in benchmarks/mutated_bodies/seeds.py: {sorted(missing)}")
    return made


def routes_with_body() -> set[tuple[str, str]]:
    """Return the method and the route of all views that may take a body; of the pages of the admin only the login."""
    return {
        (method, re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", path))
        for path, view in _views(get_resolver(), "/")
        if "(?P<" not in path
        and path not in WITHOUT_BODY
        and (not path.startswith("/admin/") or path == "/admin/login/")
        for method in ("POST", "PUT", "PATCH")
        if method.lower() in getattr(view, "actions", ())  # of a ViewSet
        or (not hasattr(view, "actions") and hasattr(getattr(view, "cls", None), method.lower()))
        or (method == "POST" and not hasattr(view, "cls"))
    }


def _views(resolver: URLResolver, before: str) -> Iterator[tuple[str, Any]]:
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _views(pattern, path)
        elif isinstance(pattern, URLPattern):
            yield path, pattern.callback


def stored_names(sender: Sender, key: str) -> dict[str, str]:
    """Store a run and a score, and return what stands in the place of each parameter of a route."""
    sender.ask("POST", "/api/v1/sessions/", {"external_id": "weather-1", "messages": [{"role": "assistant"}]}, key)
    [message, *_] = sender.ask("GET", "/api/v1/messages/", key=key)["results"]
    sender.ask("POST", "/api/v1/scores/", {"name": "good", "value": True, "message_id": message["id"]}, key)
    [score, *_] = sender.ask("GET", "/api/v1/scores/", key=key)["results"]
    stored = {"session_id": message["session_id"], "message_id": MESSAGE, "score_id": score["id"]}
    return {**stored, "run_id": RUN, "feedback_id": RUN, "media_id": "m", "ticket": "t"}


# --- Our own API ------------------------------------------------------------------------------------------------------


def _own() -> Iterator[Seed]:
    message = "sessions/{session_id}/messages/{message_id}/"
    prepares = {"/api/v1/snapshots/": _with_names_of_parts, "/api/v1/messages/{message_id}/": _with_new_message}
    prepares[f"/api/v1/{message}"] = _with_new_message
    for path, methods in schema()["paths"].items():
        for method, operation in methods.items():
            for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
                for example in content.get("examples", {}).values() if media_type != MULTIPART else ():
                    value = example["value"]
                    body = value.encode() if isinstance(value, str) else msgspec.json.encode(value)
                    seed = Seed(method=method.upper(), routes=(path,), media_type=media_type, body=body)
                    yield replace(seed, prepare=prepares.get(path))
    nested = Seed(routes=("/api/v1/snapshots/",), body=snapshot("nested", 3, 2), prepare=_with_names_of_parts)
    fork = {
        "session": "weather-1",
        "node": "plan",
        "snapshot": "nested",
        "overrides": {"a": 1},
        "nodes": {"a": "nested"},
    }
    yield from (
        nested,
        replace(nested, body=msgspec.json.encode({"session_id": "fork-1", "fork": fork, "left_out": {"a": 1}})),
    )
    restored = ("messages/{message_id}/", "sessions/{session_id}/", message)
    yield Seed(routes=tuple(f"/api/v1/{what}restore/" for what in restored), body=b"{}")


def snapshot(name: str, levels: int, references: int, text: str = "a") -> bytes:
    """Return a snapshot of levels of parts, each of which names the one before so many times."""
    parts = [msgspec.json.encode({"text": text})]
    while len(parts) <= levels:
        parts.append(msgspec.json.encode([{"$part": ref_of(parts[-1])}] * references))
    piece = msgspec.json.encode([None, ["a"]])
    parts += [piece, msgspec.json.encode({"$list": ref_of(piece), "tail": [{"$part": ref_of(parts[-1])}]})]
    about = {"id": name, "ts": NANOSECONDS, "node_ids": ["plan"], "context_ref": ref_of(parts[-1])}
    named = {ref_of(part): msgspec.Raw(part) for part in parts}
    return msgspec.json.encode({"session_id": "weather-1", "snapshot": about, "parts": named})


def _with_names_of_parts(sender: Sender, seed: Seed, request: Request) -> Request:
    """Name each part by its content again, in the order in which they name each other."""
    body = request.body
    try:
        for ref in msgspec.json.decode(body)["parts"]:
            content = msgspec.json.encode(msgspec.json.decode(body)["parts"][ref])
            body = body.replace(ref.encode(), ref_of(content).encode())
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return request
    return replace(request, body=body)


def _with_new_message(sender: Sender, seed: Seed, request: Request) -> Request:
    """Store a message that is not finished, because finished ones are refused, and name it."""
    call = {"id": "call_3", "name": "get_weather", "args": {}}
    message = {"role": "assistant", "is_completed": False, "agent_steps": [{"iteration": 0, "tool_calls": [call]}]}
    id_ = sender.ask("POST", "/api/v1/sessions/weather-1/messages/", message, seed.key).get("id", MESSAGE)
    body = request.body.replace(MESSAGE.encode(), id_.encode())
    return replace(request, path=request.path.replace(MESSAGE, id_), body=body)


def _imports() -> Iterator[Seed]:
    seed = Seed(routes=("/api/v1/import/",), media_type=ANYTHING, body=b"")
    for name in transcript_samples.FORMATS:
        media_type = NDJSON if name in transcript_samples.LINES else JSON
        yield replace(seed, media_type=media_type, body=transcript_samples.document(name, 1))
    chat = transcript_samples.document("openai_chat", 1)
    yield replace(seed, body=tar({"a.json": chat, f"{'long/' * 60}b.json": chat}))
    yield replace(seed, body=tar({"a.json": chat, f"{'long/' * 60}b.json": chat}, tarfile.GNU_FORMAT))
    yield replace(seed, media_type=MULTIPART, body=multipart({"file": chat, "dry_run": b"false"}))


def tar(files: Mapping[str, bytes], format_: int = tarfile.PAX_FORMAT) -> bytes:
    packed = BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format_) as archive:
        for name, content in files.items():
            about = tarfile.TarInfo(name)
            about.size = len(content)
            archive.addfile(about, BytesIO(content))
    return packed.getvalue()


def multipart(parts: Mapping[str, bytes]) -> bytes:
    """Return a form whose part `file` is a file."""
    lines = b""
    for name, content in parts.items():
        file = '; filename="a.json"' if name == "file" else ""
        head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{file}\r\nContent-Type: {JSON}\r\n\r\n'
        lines += head.encode() + content + b"\r\n"
    return lines + f"--{BOUNDARY}--\r\n".encode()


# --- Foreign APIs -----------------------------------------------------------------------------------------------------

# fmt: off
_ATTRIBUTES = [
    {"key": "gen_ai.operation.name", "value": {"stringValue": "chat"}},
    {"key": "gen_ai.input.messages", "value": {"stringValue": '[{"role":"user","parts":[{"type":"text","content":"How?"}]}]'}},
    {"key": "a", "value": {"kvlistValue": {"values": [{"key": "b", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}}]}}},
]
_SPAN = {
    "traceId": "TRACE", "spanId": "SPAN", "name": "chat", "startTimeUnixNano": str(NANOSECONDS), "attributes": _ATTRIBUTES,
    "events": [{"name": "e", "timeUnixNano": "5", "attributes": _ATTRIBUTES}], "links": [{"traceId": "TRACE", "spanId": "SPAN"}],
    "status": {"code": 2, "message": "m"},
}
_RECORD = {"timeUnixNano": str(NANOSECONDS), "traceId": "TRACE", "spanId": "SPAN", "body": {"stringValue": "a"}, "eventName": "e"}
_METRIC = {"name": "tokens", "sum": {"dataPoints": [{"asInt": "1"}]}}
_OTLP: dict[str, tuple[type[Message], Any]] = {
    "traces": (ExportTraceServiceRequest, {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "b"}, "spans": [_SPAN]}]}]}),
    "logs": (ExportLogsServiceRequest, {"resourceLogs": [{"scopeLogs": [{"logRecords": [_RECORD]}]}]}),
    "metrics": (ExportMetricsServiceRequest, {"resourceMetrics": [{"scopeMetrics": [{"metrics": [_METRIC]}]}]}),
}

_RUN = {
    "id": RUN, "trace_id": RUN, "dotted_order": f"20260101T000000000000Z{RUN}", "name": "plan", "run_type": "chain",
    "inputs": {"messages": [{"type": "human", "content": "Plan."}]}, "extra": {"metadata": {"thread_id": "thread-1"}},
    "start_time": TIME, "tags": ["a"],
}
_CHANGE = {"id": RUN, "trace_id": RUN, "end_time": TIME, "outputs": {"messages": [{"type": "ai", "content": "Stay."}]}}
_FEEDBACK = {"id": RUN, "run_id": RUN, "trace_id": RUN, "key": "tone", "score": 1, "feedback_source": {"type": "api"}}
_PARTS = {f"post.{RUN}": _RUN, f"post.{RUN}.outputs": {"a": 1}, f"attachment.{RUN}.note": "a", f"feedback.{RUN}": _FEEDBACK}

_SCORE = {"id": "lc", "traceId": "lf", "name": "tone", "value": 1, "dataType": "NUMERIC", "comment": "a"}
_OBSERVATION = {"traceId": "lf", "startTime": TIME, "endTime": TIME, "input": {"q": "a"}, "output": "b"}
_LANGFUSE = {
    "trace-create": {"id": "lf", "name": "plan", "sessionId": "lf-1", "metadata": {"a": 1}, "tags": ["a"]},
    "generation-create": {"id": "lg", **_OBSERVATION, "model": "m", "usage": {"input": 1}, "usageDetails": {"output": 2}},
    "span-update": {"id": "ls", **_OBSERVATION, "level": "ERROR", "statusMessage": "a"},
    "score-create": _SCORE,
    "dataset-run-item-create": {"traceId": "lf", "runName": "a"},
}

_OF_TRACE = {"object": "trace.span", "trace_id": "trace_1", "parent_id": None, "started_at": TIME, "ended_at": TIME}
_OPENAI: list[dict[str, Any]] = [
    {"object": "trace", "id": "trace_1", "workflow_name": "Trips", "metadata": {"a": 1}},
    {**_OF_TRACE, "id": "span_1", "error": {"message": "a", "data": {"b": 1}},
     "span_data": {"type": "function", "name": "look", "input": "{}", "output": "b"}},
    {**_OF_TRACE, "id": "span_2", "error": None,
     "span_data": {"type": "generation", "model": "m", "input": [{"role": "user", "content": "a"}], "output": [{"role": "assistant"}]}},
]

_WEKNORA = "/weknora/api/v1/sessions"
_SESSION = {"title": "Trips", "description": "a", "agent_config": {"a": [1]}}
_FOREIGN: list[tuple[str, str, Any]] = [
    ("POST", "/api/public/ingestion", {"batch": [{"id": kind, "type": kind, "timestamp": TIME, "body": body} for kind, body in _LANGFUSE.items()]}),
    ("POST", "/api/public/scores", _SCORE),
    ("POST", "/api/public/scores", [_SCORE]),
    ("PATCH", "/api/public/media/{media_id}", {"uploadHttpStatus": 200, "uploadedAt": TIME}),
    ("POST", "/v1/traces/ingest", {"data": _OPENAI}),
    ("POST", "/v4/logs/upload/", {"body": "a line"}),
    ("POST", "/v4/objects/upload/", {"body": "a line"}),
    ("POST", _WEKNORA, _SESSION),
    ("PUT", _WEKNORA + "/{session_id}", _SESSION),
    ("DELETE", _WEKNORA + "/batch", {"ids": ["no-session"], "delete_all": True}),
    ("POST", _WEKNORA + "/{session_id}/pin", {}),
    ("POST", _WEKNORA + "/{session_id}/generate_title", {"messages": [{"role": "user", "content": "How?"}]}),
]
_LANGSMITH: list[tuple[str, str, Any]] = [
    ("POST", "runs", _RUN),
    ("POST", "runs/batch", {"post": [_RUN], "patch": [_CHANGE]}),
    ("PATCH", "runs/{run_id}", _CHANGE),
    ("POST", "feedback", _FEEDBACK),
    ("PATCH", "feedback/{feedback_id}", {"score": 0, "comment": "bad"}),
]
_SUBSCRIPTION = {"type": "subscribe", "sessionId": "weather-1", "after": 0}
# fmt: on


def _spans() -> Iterator[Seed]:
    """The three signals of OTLP, as JSON and in protobuf."""
    ids = {b'"TRACE"': bytes(range(1, 17)), b'"SPAN"': bytes(range(1, 9))}
    for signal, (message, document) in _OTLP.items():
        body = in_protobuf = msgspec.json.encode(document)
        for name, value in ids.items():
            body = body.replace(name, b'"%b"' % value.hex().encode())
            in_protobuf = in_protobuf.replace(name, b'"%b"' % b64encode(value))
        routes = tuple(f"{base}{signal}{end}" for base in BASES for end in ("", "/"))
        parsed = ParseDict(msgspec.json.decode(in_protobuf), message()).SerializeToString()
        yield Seed(routes=routes, body=body)
        yield Seed(routes=routes, media_type=PROTOBUF, body=parsed, message=message)


def _foreign() -> Iterator[Seed]:
    encoded = msgspec.json.encode
    for method, route, value in _FOREIGN:
        yield Seed(method=method, routes=(route,), body=encoded(value))
    for method, route, value in _LANGSMITH:
        yield Seed(method=method, routes=tuple(f"/{prefix}{route}" for prefix in PREFIXES), body=encoded(value))
    runs = multipart({name: encoded(value) for name, value in _PARTS.items()})
    yield Seed(routes=tuple(f"/{prefix}runs/multipart" for prefix in PREFIXES), media_type=MULTIPART, body=runs)
    stop, body = (_WEKNORA + "/{session_id}/stop",), encoded({"message_id": MESSAGE})
    yield Seed(routes=stop, body=body, prepare=_with_new_message)
    yield Seed(routes=("/api/public/media",), body=encoded(announcement(b"a picture")))
    uploads = ("/api/public/media/upload/{ticket}",)
    yield Seed(method="PUT", routes=uploads, media_type="image/png", body=b"a picture", prepare=_announced)


def announcement(content: bytes, size: int | None = None) -> dict[str, Any]:
    """Return the announcement of a file of Langfuse, with its own size or another one."""
    digest = b64encode(sha256(content).digest()).decode()
    length = len(content) if size is None else size
    return {"traceId": "lf", "contentType": "image/png", "contentLength": length, "sha256Hash": digest}


def _announced(sender: Sender, seed: Seed, request: Request) -> Request:
    """Announce the file with a length that is allowed, so that its upload gets beyond its ticket; it is sent without a key."""
    size = min(max(1, len(request.body)), 10 * 2**20)
    url = sender.ask("POST", "/api/public/media", announcement(request.body, size), seed.key).get("uploadUrl")
    return replace(request, path=urlsplit(url or request.path).path, headers={"Content-Type": "image/png"})


def _live() -> Iterator[Seed]:
    body = msgspec.json.encode(_SUBSCRIPTION)
    yield Seed(method="GET", routes=("/live/ws",), body=body, framing="websocket")


def _of_anybody(key: str) -> list[Seed]:
    """What is read without a key: one in the body, requests that are no stream, and forms of pages."""
    subscription = msgspec.json.encode(_SUBSCRIPTION)
    form = b"username=a&password=b&language=de&next=/"
    return [
        Seed(routes=("/v3/auth/token",), body=msgspec.json.encode({"api_key": key})),
        Seed(routes=("/live/sse", "/live/ws"), body=subscription, is_refused=True),
        Seed(routes=("/admin/login/", "/i18n/setlang/"), media_type=FORM, body=form, is_refused=True),
    ]

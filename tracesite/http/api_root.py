"""The description of the API: its index, the OpenAPI document, and a page that shows it."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import translation
from django.utils.translation import gettext_noop as _
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.settings import patched_settings
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.reverse import reverse

from access_app.mounting import base_path
from access_app.rest import ApiView, extend_schema
from traces_app.urls import urlpatterns

_ADDRESS = "http://127.0.0.1:8000"
"""Of the example, until the document is served."""
_DESCRIPTION = """\
Tracesite records what AI agents do: sessions, messages, steps, tool calls and their results.
All paths begin with `/api/v1/`, and bodies are JSON in UTF-8.

## A first request

Make an API key in the admin, and send a session with it:

```sh
curl -H "Authorization: Bearer $TRACESITE_KEY" -H "Content-Type: application/json" \\
  -d '{"sessions": [{"external_id": "hello", "messages": [{"role": "user", "content": "Hello"}]}]}' \\
  http://127.0.0.1:8000/api/v1/ingest/
```

Then read it: `GET /api/v1/sessions/hello/messages/`.

## API keys

Send the key as `Authorization: Bearer KEY` or as `X-API-Key: KEY`.
A key belongs to one project and has one or more of the scopes `read` (GET), `write` (POST and PATCH) and `delete` (DELETE and restore).
Without `read`, the answers to writes have ids only.
On this page you need no key while you are logged in to the admin.

## Lists

A list is `{"results": [...], "next": cursor, "previous": cursor}`, with 20 results, or up to 200 with `limit`.
To get the next page, repeat the request with `cursor=` and the value of `next`; `null` means that there is none.
Cursors stay valid while data arrives, and no result comes twice.
Filters can be combined; an unknown one is an error.

## Errors

Every error has the same form, and its `code` does not change:

```json
{"error": {
  "code": "invalid_input",
  "message": "Expected a string or null, not a number.",
  "field": "sessions[0].title",
  "request_id": "0f5c2d4e9b7a"}}
```

`message` is for people, in the language of `Accept-Language`.
Repeat a request after 429 and 503, when the seconds in the header `Retry-After` have passed; a repetition after any other 4xx fails again.

## Sending again

A write is committed before it is answered, so a request without an answer may be sent again.
Give sessions and messages an `external_id`: the same data sent twice changes nothing, and new data is merged into what is there.
A change of a message names the version that it read (`If-Match` or `version`); 412 means that the message has changed since.

## Limits

An administrator can limit the requests of a key a minute; over the limit the answer is 429.
A body has at most 64 MiB, unpacked; bodies may be packed with gzip or zstd (`Content-Encoding`).
Unknown fields of what you send are kept in `metadata`, and secrets are redacted before anything is stored.
"""
TAGS = {
    _("Send traces"): "Store whole runs, events of runs that are still going on, or files of other products.",
    _("Sessions"): "A session is one conversation or task.",
    _("Messages"): "A message of the assistant is one run of an agent, with its steps, tool calls and results.",
    _("Tool calls"): "Single calls with their results, and the calls of a run as a tree.",
    _("Contexts"): "What models were asked: prompts, conversations, variables.",
    _("Snapshots"): "The contexts of an agent before its nodes, from which a session can be replayed.",
    _("Search"): "Find text in traces, compare two runs, and find runs and errors that are alike.",
    _("Statistics"): "Errors in groups, tools with their durations, and the tokens and cost of models.",
    _("Reading"): "Answers for agents that find out why a run failed, in a budget of tokens.",
    _("Scores"): "What people, programs and evaluators think of sessions, messages and calls.",
    _("Administration"): "The audit log, and the settings of recorders.",
}
"""The parts of the document, in the order in which a new client needs them."""

_PLACES = {pattern.callback: place for place, pattern in enumerate(urlpatterns)}
_METHODS = ("GET", "POST", "PATCH", "DELETE")


def _position(endpoint: tuple[str, str, str, Any]) -> tuple[int, int]:
    """Return the place of an operation in the document: that of its route, then that of its method."""
    _path, _regex, method, callback = endpoint
    return _PLACES.get(callback, -1), _METHODS.index(method)


SPECTACULAR = {
    "TITLE": "Tracesite",
    "DESCRIPTION": _DESCRIPTION,
    "VERSION": "1",
    "OAS_VERSION": "3.1.1",
    "SCHEMA_PATH_PREFIX": "/api/v1",
    "COMPONENT_SPLIT_PATCH": False,
    "SORT_OPERATIONS": _position,
    "TAGS": [{"name": name, "description": description} for name, description in TAGS.items()],
    "POSTPROCESSING_HOOKS": [
        "tracesite.http.openapi.describe_paths",
        "tracesite.http.openapi.add_errors",
        "tracesite.http.openapi.name_schemas",
    ],
}
"""Settings of drf-spectacular for this document. A project may have others for its own."""
_ROUTES = [
    "sessions",
    "messages",
    "tool-calls",
    "chains",
    "errors",
    "tools",
    "usage",
    "scores",
    "search",
    "compare",
    "audit",
    "ingest",
    "events",
    "import",
    "schema",
    "docs",
]


class OpenToAll(ApiView):
    """A view without anybody's data."""

    authentication_classes = ()
    permission_classes = ()


class IndexView(OpenToAll):
    """`/api/v1/`: where to go from here."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response({name: reverse(f"tracesite:{name}", request=request) for name in _ROUTES})


class SchemaView(OpenToAll):
    """`/api/v1/schema/`: OpenAPI 3.1, as JSON."""

    @extend_schema(exclude=True)
    def get(self, request: Request) -> Response:
        return Response(_with_address(schema(), request.build_absolute_uri(base_path()).rstrip("/")))


def _with_address(document: dict[str, Any], address: str) -> dict[str, Any]:
    """Return the document with the address under which it was asked for in its example."""
    info = document["info"]
    return {**document, "info": {**info, "description": info["description"].replace(_ADDRESS, address)}}


def docs(request: HttpRequest) -> HttpResponse:
    """`/api/v1/docs/`: Swagger UI, from our own origin and without inline scripts, as our CSP wants it."""
    return render(request, "tracesite/docs.html", {"parts": TAGS})


@cache
def schema() -> dict[str, Any]:
    """The OpenAPI document: made once, in 200 ms, because it needs no credentials to ask for it."""
    with translation.override("en"), patched_settings(SPECTACULAR):
        generator = SchemaGenerator(urlconf="tracesite.urls")  # type: ignore[no-untyped-call]  # the package is typed in part
        document: dict[str, Any] = generator.get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    if base_path() != "/":
        document["servers"] = [{"url": base_path().rstrip("/")}]
    return document

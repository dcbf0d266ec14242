"""Test the JSON renderer."""

from __future__ import annotations

import pytest
from django.utils.translation import gettext_lazy, override
from msgspec import UNSET

from messages_app.http.schemas import Resources
from traces_app.queries.schemas.outcomes import SentMessage
from tracesite.http.renderers import JsonRenderer


def test_renderer_encodes_structs_and_plain_values() -> None:
    used = Resources(input_tokens=1, output_tokens=2, total_tokens=3, duration=4)
    rendered = JsonRenderer().render({"results": [used], "next": None})
    assert rendered == (b'{"results":[{"input_tokens":1,"output_tokens":2,"total_tokens":3,"duration":4}],"next":null}')


def test_renderer_leaves_out_unset_fields() -> None:
    sent = SentMessage(id=UNSET, external_id="上海", state="created")
    assert JsonRenderer().render(sent) == '{"external_id":"上海","state":"created"}'.encode()


def test_renderer_none_gives_an_empty_body() -> None:
    assert JsonRenderer().render(None) == b""


def test_renderer_translates_lazy_texts() -> None:
    with override("en"):
        assert JsonRenderer().render({"name": gettext_lazy("read")}) == b'{"name":"read"}'


def test_renderer_other_values_raise_type_error() -> None:
    with pytest.raises(TypeError, match="object is no JSON"):
        JsonRenderer().render({"name": object()})

"""Extraction of images from results in all forms."""

from __future__ import annotations

import base64
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracesite_sdk import records
from tracesite_sdk.normalize.images import MOST_IMAGES, image_of, media_type
from tracesite_sdk.normalize.tool_results import normalize_result


def encoded(start: bytes, length: int = 120) -> str:
    return base64.b64encode(start.ljust(length, b"\x01")).decode()


PNG = encoded(b"\x89PNG\r\n\x1a\n")
JPEG = encoded(b"\xff\xd8\xff\xe0")
GIF = encoded(b"GIF89a")
WEBP = encoded(b"RIFF\x10\x00\x00\x00WEBP")
LONG = 900


def image(data: str, type_: str) -> dict[str, str]:
    return {"type": "image", "media_type": type_, "data": data}


def at(url: str, type_: str | None = None) -> dict[str, str]:
    return {"type": "image", **({"media_type": type_} if type_ else {}), "url": url}


def read(output: Any, **said: Any) -> records.ToolResult:
    made = normalize_result(records.ToolResult(output=output, **said), None)
    assert made is not None
    assert normalize_result(made, None) == made
    return made


@pytest.mark.parametrize("declared", ["png", "jpeg", "webp", "x-icon"])
def test_data_url_gets_type_of_its_content(declared: str) -> None:
    text = f"Here: ![map](data:image/{declared};name=a.png;base64,{GIF}) and more."
    made = read(text)
    assert made.output == "Here: ![map]([image 1]) and more."
    assert made.attachments == [image(GIF, "image/gif")]
    assert made.raw == text


def test_declared_type_is_used_if_bytes_are_unknown() -> None:
    assert read("data:image/png;base64,AAAA").attachments == [image("AAAA", "image/png")]
    svg = "data:image/svg+xml,%3Csvg%3E"
    assert read(f"<img src='{svg}'>").attachments == [at(svg, "image/svg+xml")]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("see https://x.org/a.png.", [at("https://x.org/a.png", "image/png")]),
        ("![a](http://x.org/p/b.JPG?w=3#top) c", [at("http://x.org/p/b.JPG?w=3#top", "image/jpeg")]),
        ("(https://x.org/Map_(old).svg)", [at("https://x.org/Map_(old).svg", "image/svg+xml")]),
        ('<img src="https://x.org/a.webp">', [at("https://x.org/a.webp", "image/webp")]),
        ("https://x.org/a.png https://x.org/a.png", [at("https://x.org/a.png", "image/png")]),
        ("https://x.org/a.html https://x.org/png http://[::1/a.png https://", []),
        ("https://x.org/?file=a.png", []),
    ],
)
def test_url_is_an_image_by_its_extension_and_stays_in_the_text(text: str, found: list[Any]) -> None:
    made = read(text)
    assert (made.output, made.attachments or [], made.raw) == (text, found, None)


@pytest.mark.parametrize(
    ("url", "is_image"),
    [
        ("https://mdn.alipayobjects.com/huamei/afts/img/A-abc/original", True),
        ("https://i.imgur.com/a1B2c3", True),
        ("https://res.cloudinary.com/demo/upload/v1/sample", True),
        ("https://lh3.googleusercontent.com/abc=s64", True),
        ("https://github.com/user-attachments/assets/0a1b", True),
        ("https://bucket.s3.eu-1.amazonaws.com/screenshots/17", True),
        ("https://github.com/owner/repository", False),
        ("https://sqs.eu-1.amazonaws.com/123/queue", False),
        ("https://raw.githubusercontent.com/o/r/main/setup.py", False),
        ("https://imgur.com/", False),
        ("https://notimgur.com/abc", False),
    ],
)
def test_hosts_that_serve_images_are_known(url: str, is_image: bool) -> None:
    assert read(f"at {url} now").attachments == ([at(url)] if is_image else None)


@pytest.mark.parametrize("name", ["base64Data", "base64", "image", "screenshot", "imageData"])
def test_base64_in_a_field_of_json_is_an_image(name: str) -> None:
    made = read(f'{{"page": 1, "shot": {{"{name}": "{JPEG}"}}}}')
    assert made.data == {"page": 1, "shot": {name: "[image 1]"}}
    assert made.output == f'{{"page":1,"shot":{{"{name}":"[image 1]"}}}}'
    assert made.attachments == [image(JPEG, "image/jpeg")]


def test_json_field_with_other_content_is_unchanged() -> None:
    for value in ("a cat on a mat " * 10, "short", encoded(b"%PDF-1.7"), encoded(b"PK\x03\x04")):
        said = {"image": value, "page": 1}
        assert (read(said).data, read(said).attachments) == (said, None)
    declared = {"base64": encoded(b"????"), "mimeType": "text/csv"}
    assert read(declared).attachments is None
    assert read({**declared, "mimeType": "image/tiff"}).attachments == [image(encoded(b"????"), "image/tiff")]


@pytest.mark.parametrize(
    ("start", "type_"),
    [
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x10\x00\x00\x00WEBP", "image/webp"),
    ],
)
def test_long_bare_base64_is_an_image_by_its_signature(start: bytes, type_: str) -> None:
    data = encoded(start, LONG)
    made = read(f"shot:\n{data}\nend")
    assert (made.output, made.attachments) == ("shot:\n[image 1]\nend", [image(data, type_)])
    assert read(f"shot: {encoded(start, 300)}").attachments is None


def test_bare_base64_of_something_else_is_text() -> None:
    for start in (b"RIFF\x10\x00\x00\x00WAVE", b"hello"):
        assert read(encoded(start, LONG)).attachments is None


def test_repeated_image_in_any_form_is_attached_once() -> None:
    big = encoded(b"\x89PNG\r\n\x1a\n", LONG)
    said = {
        "image": big,
        "again": f"data:image/jpeg;base64,{big}",
        "bare": big,
        "other": f"data:image/gif;base64,{GIF}",
    }
    made = read(said, attachments=[f"data:image/png;base64,{big}", {"file": "a.csv"}])
    assert made.attachments == [image(big, "image/png"), {"file": "a.csv"}, image(GIF, "image/gif")]
    assert made.data == {"image": "[image 1]", "again": "[image 1]", "bare": "[image 1]", "other": "[image 3]"}


def test_data_beside_output_is_kept_and_its_images_attached() -> None:
    said = {"shot": {"screenshot": PNG}}
    made = read("Done.", status="success", data=said)
    assert (made.data, made.attachments) == (said, [image(PNG, "image/png")])
    rows = {"rows": [{"url": "https://x.org/a.png"}, {"url": "https://x.org/b.png"}]}
    assert len(read("Done.", status="success", data=rows).attachments or ()) == 2


@pytest.mark.parametrize(
    "block",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
        {"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"},
        {"type": "media", "data": PNG, "mediaType": "image/png"},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        f"data:image/png;base64,{PNG}",
        image(PNG, "image/png"),
    ],
)
def test_image_block_of_any_api_is_the_same_attachment(block: Any) -> None:
    assert image_of(block) == image(PNG, "image/png")


def test_other_fields_of_image_block_are_kept() -> None:
    block = {"type": "image_url", "image_url": {"url": "https://x.org/render?id=3", "detail": "low"}}
    assert image_of(block) == {**at("https://x.org/render?id=3"), "detail": "low"}
    assert image_of({"type": "image", "file_id": "f1"}) is None


def test_number_of_attachments_is_limited() -> None:
    text = " ".join(f"https://x.org/{n}.png" for n in range(MOST_IMAGES + 50))
    made = read(text)
    assert (len(made.attachments or ()), made.output) == (MOST_IMAGES, text)


@pytest.mark.parametrize(
    "text",
    [
        "http://" * 100_000,
        "data:image/a;a" * 50_000,
        "data:image/png;base64," * 30_000,
        "iVBORw0KGgo" * 60_000,
        "/9j/ " * 100_000,
        "https://x.org/" + "(" * 500_000 + ")" * 500_000,
        '{"image": "' + "A" * 500_000 + '!"}',
    ],
)
def test_search_for_images_takes_linear_time(text: str) -> None:
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 5


@given(st.text(alphabet="iVBORw0KGgo/9jUklGR=\n AZ", max_size=80))
def test_type_is_found_or_not_for_any_text(text: str) -> None:
    assert media_type(text) is None or "/" in (media_type(text) or "")

"""Images in what tools return: found wherever they hide, typed by what they are, kept once, apart from the text.

They come in five ways: as data URLs, as http(s) URLs that end like an image, as URLs of hosts that serve images, as
base64 in the fields of JSON, and as long bare base64. An image becomes one of

    {"type": "image", "media_type": "image/png", "data": "<base64>"}
    {"type": "image", "media_type": "image/png", "url": "https://..."}

The type is read off the first bytes; where they say nothing it is the one that was declared, and where none was declared
there is no `media_type`. Base64 leaves the text and the data that it stood in, where `[image 2]` says which attachment it
is now; an http URL is short and stays.

Pure functions, without Django. Every pattern takes time linear in the text.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

MOST_IMAGES = 100
"""A page of a shop has hundreds of pictures: of one result so many are kept as attachments, the others stay in the text."""

_FIELDS = frozenset({"base64Data", "base64", "image", "screenshot", "imageData"})
"""Fields of JSON that hold an image by their name."""
_PAYLOADS = (*sorted(_FIELDS), "data", "bytes")
_ADDRESSES = ("url", "image_url", "source", "file")
"""Where in a content block the image is: as base64 or URL, and as URL only. Any of them may hold an object that has it."""
_DECLARED = ("media_type", "mediaType", "mime_type", "mimeType")
_SAID_OTHERWISE = frozenset({"type", "source_type", "format", *_DECLARED})
_LEAST_IN_FIELD = 100
_LEAST_BARE = 1000
_MOST_NESTED = 64
_MOST_IN_BLOCK = 2

# The first characters in base64 and what they say; BMP's two bytes are too few to stand alone.
_SIGNATURES = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("Qk", "image/bmp"),
    ("SUkqA", "image/tiff"),
    ("TU0AK", "image/tiff"),
    ("PHN2Zy", "image/svg+xml"),
    ("AAABAA", "image/x-icon"),
    # What stands in a field called `base64` and is no image.
    ("JVBERi0", "application/pdf"),
    ("UEsDB", "application/zip"),
    ("H4sI", "application/gzip"),
    ("eyJ", "application/json"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_BRANDS = {b"ftypavif": "image/avif", b"ftypheic": "image/heic", b"ftypisom": "video/mp4"}
_EXTENSIONS = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "bmp": "image/bmp",
    "svg": "image/svg+xml",
    "avif": "image/avif",
}
# Hosts that serve images under addresses without an extension; what has another extension is none.
_IMAGE_HOSTS = (
    "alipayobjects.com",
    "imgur.com",
    "res.cloudinary.com",
    "googleusercontent.com",
    "user-images.githubusercontent.com",
    "private-user-images.githubusercontent.com",
    "avatars.githubusercontent.com",
    "camo.githubusercontent.com",
)
# Hosts that serve anything: an image by the words of the path.
_STORAGE_HOSTS = ("amazonaws.com", "github.com", "githubusercontent.com")
_IMAGE_HOST = re.compile("|".join(map(re.escape, (*_IMAGE_HOSTS, *_STORAGE_HOSTS))))
# What any image at an address has, from a dot on.
_IMAGE_ADDRESS = re.compile(
    "|".join(
        [
            rf"\.(?:{'|'.join(_EXTENSIONS)})",
            *(rf"\.com(?<={re.escape(host)})" for host in (*_IMAGE_HOSTS, *_STORAGE_HOSTS)),
        ]
    ).encode()
)
_IMAGE_WORDS = re.compile(
    r"(?:^|[/_-])(?:images?|imgs?|photos?|pictures?|screenshots?|pics?)(?:[/_-]|$)", re.IGNORECASE
)
_GITHUB_UPLOADS = "/user-attachments/assets/"

_BASE64_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]+)(?:;[\w=.+-]+)*;base64,([A-Za-z0-9+/_-]+={0,2})")
_PLAIN_URL = re.compile(r"data:(image/[A-Za-z0-9.+-]+)(?:;(?!base64,)[\w=.+-]+)*,[^\s\"'<>()\\]+")
_BEGINS_URL = re.compile(r":(?://|image/)")
_HTTP_URL = re.compile(r"https?://[^\s\"'<>\\`|{}\[\]^]+")
# What long base64 begins with that stands somewhere in a text: PNG, JPEG, GIF, and RIFF with its kinds.
_BARE_BEGINNINGS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
# Of a thousand characters, less those of the beginning.
_BARE = re.compile(rf"(?<![A-Za-z0-9+/=])(?:{'|'.join(_BARE_BEGINNINGS)})[A-Za-z0-9+/]{{980,}}={{0,2}}")
_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]+={0,2}")
# In lower-case JSON, with the escapes of \r and \n; without the padding.
_BASE64_AS_A = bytes(
    ord("a") if chr(code) in "abcdefghijklmnopqrstuvwxyz0123456789+/_-\\" else 0 for code in range(256)
)
_LEAST_BASE64 = b"a" * (_LEAST_IN_FIELD - 2)
_BEGINNINGS = ("http://", "https://", "data:image")
_PUNCTUATION = ".,;:!?*"
_MARKER = "[image {}]"


def may_hold_images(text: str) -> bool:
    """A quick look that leaves out nearly all texts which hold none."""
    # For one character a text is searched at once; an expression that begins with it is twice as fast as two words.
    return (":" in text and _BEGINS_URL.search(text) is not None) or (len(text) >= _LEAST_BARE and _looks_encoded(text))


def data_may_hold_images(data: Any) -> bool:
    """The same for any JSON that was read from a text, where the name of a field is enough."""
    try:
        text = msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError):
        # No JSON: a record that was made in Python. What cannot be written cannot be searched.
        return False
    return may_hold_images(text) or '"image' in text or '"base64' in text or '"screenshot"' in text


def json_may_hold_images(values: Sequence[bytes]) -> bool:
    """The same for values of `data` as JSON writes them, without `/` or letters as escapes: true where any of them holds one."""
    low = b"\n".join(values).lower()
    return (
        b"data:image" in low
        or (b"://" in low and _IMAGE_ADDRESS.search(low) is not None)
        or _LEAST_BASE64 in low.translate(_BASE64_AS_A)
    )


def seems_to_hold_images(data: Any, depth: int = 0) -> bool:
    """The same for the `data` that a producer says apart: fields and texts of an object, of the objects in it, and of the
    first one in each of its lists. Most of such data is rows, and to look at all of them would take several times as
    long as everything else that is done to a result."""
    if isinstance(data, dict):
        if not _FIELDS.isdisjoint(data) or (("data" in data or "type" in data) and _says_image(data, _declared(data))):
            return True
        items: Any = data.values()
    else:
        items = data if isinstance(data, list) else (data,)
        if len(items) > 1 and isinstance(items[0], dict) and "type" not in items[0]:
            # Rows are alike; content blocks, which have types, are not.
            items = items[:1]
    for item in items:
        kind = type(item)
        if kind is str:
            if item.startswith(_BEGINNINGS) or (len(item) >= _LEAST_BARE and may_hold_images(item)):
                return True
        elif (kind is dict or kind is list) and depth < 2 and seems_to_hold_images(item, depth + 1):
            return True
    return False


class Found:
    """The attachments of one result, each image once."""

    def __init__(self, attachments: Sequence[Any] = ()) -> None:
        self.attachments: list[Any] = []
        self._places: dict[str, int] = {}
        for attachment in attachments:
            self.attach(attachment)

    def attach(self, attachment: Any) -> None:
        """One that is an image already is kept in the form of this module; anything else as it is."""
        image = image_of(attachment)
        if image is not None:
            self.add(image)
        else:
            self.attachments.append(attachment)

    def add(self, image: dict[str, Any]) -> int:
        """The number of the image among the attachments, from 1."""
        key: str = image.get("data") or image["url"]
        if key not in self._places:
            self.attachments.append(image)
            self._places[key] = len(self.attachments)
        return self._places[key]

    def is_full(self) -> bool:
        return len(self.attachments) >= MOST_IMAGES

    def take_from_text(self, text: str) -> str:
        """Adds the images of a text; returns it with `[image n]` in place of their base64."""
        if "data:image" in text:
            text = _PLAIN_URL.sub(self._take_data_url, _BASE64_URL.sub(self._take_data_url, text))
        if _looks_encoded(text):
            text = _BARE.sub(self._take_bare, text)
        if "http" in text:
            for match in _HTTP_URL.finditer(text):
                if self.is_full():
                    break
                image = _image_at(match[0])
                if image is not None:
                    self.add(image)
        return text

    def take_from(self, value: Any, depth: int = 0) -> Any:
        """Adds the images of JSON; returns it with `[image n]` in place of their base64, itself where there is none."""
        if isinstance(value, str):
            return self.take_from_text(value) if may_hold_images(value) else value
        if depth > _MOST_NESTED:
            return value
        if isinstance(value, dict):
            taken = {name: self._take_field(name, item, value, depth) for name, item in value.items()}
            return value if all(taken[name] is item for name, item in value.items()) else taken
        if isinstance(value, list):
            items = [self.take_from(item, depth + 1) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        return value

    def _take_field(self, name: Any, item: Any, beside: dict[str, Any], depth: int) -> Any:
        if name in _PAYLOADS and isinstance(item, str) and len(item) >= _LEAST_IN_FIELD and not self.is_full():
            declared = _declared(beside)
            if name in _FIELDS or _says_image(beside, declared):
                image = _image_in_base64(item, declared)
                if image is not None:
                    return _MARKER.format(self.add(image))
        return self.take_from(item, depth + 1)

    def _take_data_url(self, match: re.Match[str]) -> str:
        return match[0] if self.is_full() else _MARKER.format(self.add(_image_in_data_url(match)))

    def _take_bare(self, match: re.Match[str]) -> str:
        image = None if self.is_full() or media_type(match[0]) is None else _image_in_base64(match[0], None)
        return match[0] if image is None else _MARKER.format(self.add(image))


def image_of(block: Any) -> dict[str, Any] | None:
    """The image that a content block or an attachment is, in the form of this module; None where it is none.

    Takes the blocks of the common APIs: MCP, Anthropic, OpenAI, LangChain, AI SDK, Bedrock, and bare URLs.
    """
    if isinstance(block, str):
        return _image_in_url(block)
    if not isinstance(block, dict):
        return None
    declared = _declared(block)
    if not _says_image(block, declared) and not block.keys() <= {"image", "image_url"}:
        return None
    return _image_in_block(block, declared, depth=0)


def media_type(base64: str) -> str | None:
    """What the first bytes say; None where they say nothing."""
    start = base64[:64].lstrip()
    if start.startswith("UklGR"):
        return _RIFF.get(_bytes(start)[8:12])
    for signature, type_ in _SIGNATURES:
        if start.startswith(signature):
            return type_
    return _BRANDS.get(_bytes(start)[4:12])


# --- One way each -------------------------------------------------------------------------------------------------


def _image_in_block(block: dict[str, Any], declared: str | None, depth: int) -> dict[str, Any] | None:
    for name in (*_PAYLOADS, *_ADDRESSES):
        payload = block.get(name)
        image = None
        if isinstance(payload, dict) and depth < _MOST_IN_BLOCK:
            image = _image_in_block(payload, _declared(payload) or declared, depth + 1)
        elif isinstance(payload, str):
            image = _image_in_url(payload) or _declared_image_at(payload, declared)
            if image is None and name in _PAYLOADS:
                image = _image_in_base64(payload, declared)
        if image is not None:
            rest = {key: item for key, item in block.items() if key != name and key not in _SAID_OTHERWISE}
            # Where both say something under one name the block stays as it is: nothing is lost.
            return None if rest.keys() & image.keys() else {**rest, **image}
    return None


def _image_in_url(url: str) -> dict[str, Any] | None:
    whole = _BASE64_URL.fullmatch(url) or _PLAIN_URL.fullmatch(url)
    if whole is not None:
        return _image_in_data_url(whole)
    return _image_at(url) if _HTTP_URL.fullmatch(url) else None


def _declared_image_at(url: str, declared: str | None) -> dict[str, Any] | None:
    """Any address is that of an image where an image is what the block says it holds."""
    return _image("url", url, declared) if _HTTP_URL.fullmatch(url) else None


def _image_in_data_url(match: re.Match[str]) -> dict[str, Any]:
    if match.re is _BASE64_URL:
        return _image("data", match[2], media_type(match[2]) or match[1])
    return _image("url", match[0], match[1])


def _image_in_base64(text: str, declared: str | None) -> dict[str, Any] | None:
    """None for what is no base64, and for what its first bytes or its declared type say is something else."""
    if _BASE64.fullmatch(text) is None:
        return None
    type_ = media_type(text)
    if type_ is None:
        # Nothing but its place says what it is: then it has at least the length of base64.
        if len(text.replace("\r", "").replace("\n", "")) % 4:
            return None
        type_ = declared
    return _image("data", text, type_) if type_ is None or type_.startswith("image/") else None


def _image_at(url: str) -> dict[str, Any] | None:
    """The image of an http(s) URL in a text; None where nothing tells that it is one."""
    url = _without_trailing(url)
    address, slash, name = url.partition("?")[0].partition("#")[0].rpartition("/")
    if "." in name:
        # Another extension says that it is something else: only what has none is judged by its host.
        type_ = _EXTENSIONS.get(name.rpartition(".")[2].lower())
        return None if type_ is None else _image("url", url, type_)
    if not _IMAGE_HOST.search(address):
        return None
    try:
        parts = urlsplit(f"{address}{slash}{name}")
        host = parts.hostname or ""
    except ValueError:
        return None
    if len(parts.path) < 2:
        return None
    if _is_at(host, _IMAGE_HOSTS):
        return _image("url", url, None)
    if _is_at(host, _STORAGE_HOSTS) and (_IMAGE_WORDS.search(parts.path) or parts.path.startswith(_GITHUB_UPLOADS)):
        return _image("url", url, None)
    return None


# --- Values -------------------------------------------------------------------------------------------------------


def _image(kind: str, payload: str, type_: str | None) -> dict[str, Any]:
    return {"type": "image", **({"media_type": type_} if type_ else {}), kind: payload}


def _looks_encoded(text: str) -> bool:
    return any(beginning in text for beginning in _BARE_BEGINNINGS)


def _says_image(block: dict[str, Any], declared: str | None) -> bool:
    type_ = block.get("type")
    return (isinstance(type_, str) and "image" in type_) or (declared is not None and declared.startswith("image/"))


def _declared(block: dict[str, Any]) -> str | None:
    for name in _DECLARED:
        declared = block.get(name)
        if isinstance(declared, str) and "/" in declared:
            return declared.lower()
    format_ = block.get("format")
    return _EXTENSIONS.get(format_) if isinstance(format_, str) else None


def _without_trailing(url: str) -> str:
    """The URL without the punctuation of the sentence, and without the bracket of the Markdown, that it stands in."""
    if ")" not in url:
        return url.rstrip(_PUNCTUATION)
    depth = 0
    for at, character in enumerate(url):
        depth += (character == "(") - (character == ")")
        if depth < 0:
            url = url[:at]
            break
    return url.rstrip(_PUNCTUATION)


def _is_at(host: str, known: Sequence[str]) -> bool:
    return any(host == name or host.endswith(f".{name}") for name in known)


def _bytes(base64: str) -> bytes:
    start = base64[:24]
    try:
        return b64decode(start[: len(start) // 4 * 4])
    except (NotBase64, ValueError):
        return b""

"""Extract images from the results of tools, determine their types, and keep each once as an attachment.

Images come in five forms: data URLs, http(s) URLs with the extension of an image, URLs of hosts that serve images, base64
in fields of JSON, and long bare base64. An image becomes one of

    {"type": "image", "media_type": "image/png", "data": "<base64>"}
    {"type": "image", "media_type": "image/png", "url": "https://..."}

The type follows from the first bytes, or else from the declared type; without either there is no `media_type`. Base64 is
replaced by `[image 2]`, the number of the attachment, in the text and data; an http URL is short and stays.

Pure functions. Every pattern takes time linear in the text.
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
"""Maximum attachments of a result; other images stay in the text, because a page of a shop has hundreds."""

_FIELDS = frozenset({"base64Data", "base64", "image", "screenshot", "imageData"})
"""Names of JSON fields that hold an image."""
_PAYLOADS = (*sorted(_FIELDS), "data", "bytes")
_ADDRESSES = ("url", "image_url", "source", "file")
"""Fields of a content block that hold the image: as base64 or URL, and as URL only. Their value may also be an object."""
_DECLARED = ("media_type", "mediaType", "mime_type", "mimeType")
_REPLACED_FIELDS = frozenset({"type", "source_type", "format", *_DECLARED})
_LEAST_IN_FIELD = 100
_LEAST_BARE = 1000
_MOST_NESTED = 64
_MOST_IN_BLOCK = 2

# The first characters in base64 and the types; two bytes for BMP are too few to be used alone.
_SIGNATURES = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("Qk", "image/bmp"),
    ("SUkqA", "image/tiff"),
    ("TU0AK", "image/tiff"),
    ("PHN2Zy", "image/svg+xml"),
    ("AAABAA", "image/x-icon"),
    # Other content of fields called `base64`.
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
# Hosts that serve images at URLs without an extension; a URL with another extension is not an image.
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
# Hosts that serve any content: images are recognised by words in the path.
_STORAGE_HOSTS = ("amazonaws.com", "github.com", "githubusercontent.com")
_IMAGE_HOST = re.compile("|".join(map(re.escape, (*_IMAGE_HOSTS, *_STORAGE_HOSTS))))
# The part after a dot that every URL of an image has.
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
# The beginnings of long base64 inside a text: PNG, JPEG, GIF, and RIFF with its kinds.
_BARE_BEGINNINGS = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR")
# For a thousand characters, less those of the beginning.
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
    """Return False quickly for nearly all texts without an image."""
    # Searching for one character is fast; an expression that starts with it is twice as fast as two words.
    return (":" in text and _BEGINS_URL.search(text) is not None) or (len(text) >= _LEAST_BARE and _looks_encoded(text))


def data_may_hold_images(data: Any) -> bool:
    """Do the same for JSON that was parsed from a text, where the name of a field is enough."""
    try:
        text = msgspec.json.encode(data).decode()
    except (TypeError, ValueError, RecursionError):
        # Not JSON: a record that was created in Python. A value that cannot be encoded cannot be searched.
        return False
    return may_hold_images(text) or '"image' in text or '"base64' in text or '"screenshot"' in text


def json_may_hold_images(values: Sequence[bytes]) -> bool:
    """Do the same for encoded values of `data` without escapes of `/` or letters: return True if any may hold an image."""
    low = b"\n".join(values).lower()
    return (
        b"data:image" in low
        or (b"://" in low and _IMAGE_ADDRESS.search(low) is not None)
        or _LEAST_BASE64 in low.translate(_BASE64_AS_A)
    )


def seems_to_hold_images(data: Any, depth: int = 0) -> bool:
    """Do the same for `data` that the producer gave separately: fields and texts of an object, of the objects in it, and of
    the first one in each of its lists. Most of such data is rows, and searching all of them would take several times as
    long as the rest of normalisation."""
    if isinstance(data, dict):
        if not _FIELDS.isdisjoint(data) or (("data" in data or "type" in data) and _says_image(data, _declared(data))):
            return True
        items: Any = data.values()
    else:
        items = data if isinstance(data, list) else (data,)
        if len(items) > 1 and isinstance(items[0], dict) and "type" not in items[0]:
            # Rows are alike, unlike content blocks, which have a type.
            items = items[:1]
    for item in items:
        kind = type(item)
        if kind is str:
            if item.startswith(_BEGINNINGS) or (len(item) >= _LEAST_BARE and may_hold_images(item)):
                return True
        elif (kind is dict or kind is list) and depth < 2 and seems_to_hold_images(item, depth + 1):
            return True
    return False


class Attachments:
    """Collect the attachments of one result, each image once."""

    def __init__(self, attachments: Sequence[Any] = ()) -> None:
        self.attachments: list[Any] = []
        self._places: dict[str, int] = {}
        for attachment in attachments:
            self.attach(attachment)

    def attach(self, attachment: Any) -> None:
        """Add an attachment: an image in the form of this module, anything else unchanged."""
        image = image_of(attachment)
        if image is not None:
            self.add(image)
        else:
            self.attachments.append(attachment)

    def add(self, image: dict[str, Any]) -> int:
        """Add an image and return its number among the attachments, from 1."""
        key: str = image.get("data") or image["url"]
        if key not in self._places:
            self.attachments.append(image)
            self._places[key] = len(self.attachments)
        return self._places[key]

    def is_full(self) -> bool:
        return len(self.attachments) >= MOST_IMAGES

    def take_from_text(self, text: str) -> str:
        """Add the images of a text, and return it with `[image n]` in place of their base64."""
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
        """Add the images of JSON, and return it with `[image n]` in place of their base64; the same object if it has none."""
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
    """Return the image in a content block or an attachment, in the form of this module, or None.

    Supports the blocks of the common APIs (MCP, Anthropic, OpenAI, LangChain, AI SDK, Bedrock) and bare URLs.
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
    """Return the type that the first bytes indicate, or None."""
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
            image = _image_in_url(payload)
            if image is None and _HTTP_URL.fullmatch(payload):
                # An image whatever the URL, because the block declares one.
                image = _image("url", payload, declared)
            if image is None and name in _PAYLOADS:
                image = _image_in_base64(payload, declared)
        if image is not None:
            rest = {key: item for key, item in block.items() if key != name and key not in _REPLACED_FIELDS}
            # If both have a field of one name, the block stays unchanged, so that nothing is lost.
            return None if rest.keys() & image.keys() else {**rest, **image}
    return None


def _image_in_url(url: str) -> dict[str, Any] | None:
    whole = _BASE64_URL.fullmatch(url) or _PLAIN_URL.fullmatch(url)
    if whole is not None:
        return _image_in_data_url(whole)
    return _image_at(url) if _HTTP_URL.fullmatch(url) else None


def _image_in_data_url(match: re.Match[str]) -> dict[str, Any]:
    if match.re is _BASE64_URL:
        return _image("data", match[2], media_type(match[2]) or match[1])
    return _image("url", match[0], match[1])


def _image_in_base64(text: str, declared: str | None) -> dict[str, Any] | None:
    """Return the image in base64; None if it is not base64, or if its first bytes or declared type are not an image's."""
    if _BASE64.fullmatch(text) is None:
        return None
    type_ = media_type(text)
    if type_ is None:
        # Only its place indicates an image, so at least the length must be that of base64.
        if len(text.replace("\r", "").replace("\n", "")) % 4:
            return None
        type_ = declared
    return _image("data", text, type_) if type_ is None or type_.startswith("image/") else None


def _image_at(url: str) -> dict[str, Any] | None:
    """Return the image at an http(s) URL in a text, or None if nothing indicates one."""
    url = _without_trailing(url)
    address, slash, name = url.partition("?")[0].partition("#")[0].rpartition("/")
    if "." in name:
        # Another extension means another type; only URLs without one are judged by their host.
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
    """Return the URL without the punctuation or the Markdown bracket that follows it."""
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

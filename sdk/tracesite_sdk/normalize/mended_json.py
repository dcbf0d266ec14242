"""Decode JSON of producers that cut texts in the middle of a character, or write bytes that are not UTF-8.

JavaScript's SDKs cut texts between the two halves of an emoji; Python's json writes such a half as an escape. Only a text that is
no JSON otherwise is mended, in time linear in its length, so that nothing else gets slower.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_HALF = re.compile(
    rb"\\(?=u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2}))"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\(?=u[dD][c-fC-F][0-9a-fA-F]{2})"
)
"""The backslash of an escape that is half of a surrogate pair without the other half."""
_ESCAPED_BACKSLASH = rb"\\"
_NO_UTF8 = b"\xff\xff"


def decode_json(text: bytes | str) -> Any:
    """Return the value of a JSON text in UTF-8. Half of a surrogate pair becomes the six characters of its escape, as PostgreSQL
    stores it (pg_text.py); bytes that are not UTF-8 become U+FFFD. Raise msgspec.DecodeError and RecursionError."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        if isinstance(text, str) and "\\u" not in text and not isinstance(error, UnicodeError):
            raise
        encoded = text.encode("utf-8", "backslashreplace") if isinstance(text, str) else text
        mended = _mended(encoded)
        if mended == encoded and not isinstance(error, UnicodeError):
            raise
        try:
            return msgspec.json.decode(mended)
        except msgspec.DecodeError:
            # Its position is one in the text as it came.
            raise msgspec.DecodeError(str(error)) from error


def _mended(text: bytes) -> bytes:
    mended = text.decode("utf-8", "replace").encode()
    # A backslash that is escaped begins no escape.
    mended = mended.replace(_ESCAPED_BACKSLASH, _NO_UTF8)
    # Not by `sub`, which holds an object for each match: 1 GB for a body of 30 MB.
    whole, at = bytearray(), 0
    for half in _HALF.finditer(mended):
        whole += mended[at : half.start()]
        whole += _ESCAPED_BACKSLASH
        at = half.end()
    whole += mended[at:]
    return bytes(whole.replace(_NO_UTF8, _ESCAPED_BACKSLASH))

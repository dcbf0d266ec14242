"""The form of an encrypted value: PREFIX, then Base64 of data key (8 bytes), column (1), row (16), nonce (12), ciphertext and tag.

What stands before the nonce is the associated data, so that a ciphertext that was put elsewhere is recognised: the data key
belongs to one project. The nonce is a keyed hash (BLAKE2b) of the associated data and the text: the same value in the same
place has the same form, so that a message that is sent again changes nothing, and two different texts share a nonce as rarely
as random ones would.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from .columns import BY_NUMBER, EMPTY, MOST_READABLE, OF_REFERENCE, REFERENCES, Column, Form
from .errors import Damaged

PREFIX: Final = "tsenc1:"
_IN_JSON: Final = f'"{PREFIX}'
KEY_BYTES: Final = 8
_ASSOCIATED: Final = KEY_BYTES + 1 + 16
_NONCE: Final = 12

_encode = msgspec.json.Encoder().encode
_decode_base64 = msgspec.json.Decoder(bytes).decode
_decode_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class DataKey:
    """A data key that encrypts and decrypts the values of a project."""

    def __init__(self, id_: bytes, secret: bytes) -> None:
        self.id = id_
        self._cipher = AESGCM(_derived(secret, b"values"))
        self._nonces = blake2b(key=_derived(secret, b"nonces"), digest_size=_NONCE)

    def sealed(self, column: Column, row: bytes, value: str) -> str:
        """Return a text or JSON text as the column stores it; `row` is its id."""
        if value in EMPTY:
            return value
        if column.form is Form.TEXT:
            return PREFIX + self._seal(column.number, row, value)
        if column.form is Form.JSON:
            return f'"{PREFIX}{self._seal(column.number, row, value)}"'
        return self._sealed_fields(column, row, value)

    def _sealed_fields(self, column: Column, row: bytes, value: str) -> str:
        fields = _decode_object(value)
        for name, field in fields.items():
            text = bytes(field).decode()
            if column.has_references and name == REFERENCES and text[0] == "{":
                fields[name] = msgspec.Raw(self._sealed_references(column, row, text))
            elif name in column.parts and text[0] == "{":
                fields[name] = self._sealed_parts(column, row, text, column.parts[name])
            elif not _is_readable(name, text, column.readable) and not (
                column.has_readable_numbers and text[0] in "-0123456789"
            ):
                fields[name] = self._sealed_json(column, row, text)
        return _encode(fields).decode()

    def _sealed_references(self, column: Column, row: bytes, value: str) -> bytes:
        references = _decode_object(value)
        for name, reference in references.items():
            text = bytes(reference).decode()
            if text[0] == "{":
                references[name] = self._sealed_parts(column, row, text, OF_REFERENCE)
            elif text not in EMPTY:
                references[name] = self._sealed_json(column, row, text)
        return _encode(references)

    def _sealed_parts(self, column: Column, row: bytes, value: str, readable: Collection[str]) -> msgspec.Raw:
        """Return a JSON object with all of its values encrypted but those of these keys."""
        parts = _decode_object(value)
        for key, part in parts.items():
            if not _is_readable(key, text := bytes(part).decode(), readable):
                parts[key] = self._sealed_json(column, row, text)
        return msgspec.Raw(_encode(parts))

    def _sealed_json(self, column: Column, row: bytes, text: str) -> msgspec.Raw:
        return msgspec.Raw(f'"{PREFIX}{self._seal(column.number, row, text)}"'.encode())

    def _seal(self, number: int, row: bytes, text: str) -> str:
        associated = b"%b%c%b" % (self.id, number, row)
        plain = text.encode()
        hashed = self._nonces.copy()
        hashed.update(associated)
        hashed.update(plain)
        nonce = hashed.digest()
        return _encode(associated + nonce + self._cipher.encrypt(nonce, plain, associated))[1:-1].decode()

    def opened(self, raw: bytes) -> str:
        """Return the text of the bytes of an envelope. Raise Damaged."""
        try:
            return self._cipher.decrypt(
                raw[_ASSOCIATED : _ASSOCIATED + _NONCE], raw[_ASSOCIATED + _NONCE :], raw[:_ASSOCIATED]
            ).decode()
        except InvalidTag as error:
            raise Damaged from error


def bytes_of(base64: str) -> bytes | None:
    """Return the bytes of an envelope, given what follows PREFIX; None if it is not a whole one."""
    try:
        raw = _decode_base64(f'"{base64}"')
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return raw if len(raw) > _ASSOCIATED + _NONCE + 15 and raw[KEY_BYTES] in BY_NUMBER else None


def _is_readable(name: str, text: str, readable: Collection[str]) -> bool:
    """Return whether the JSON text under this key stays as it is."""
    return text in EMPTY or (name in readable and text[0] not in "{[" and len(text) <= MOST_READABLE)


class JsonPart(NamedTuple):
    """A text of JSON that begins like an envelope, and what is behind it."""

    base64: str | None
    """None of a key: keys of JSON are followed by a colon, and never encrypted."""
    rest: str
    """Behind its quote."""
    whole: str


def split_json(text: str) -> tuple[str, list[JsonPart]]:
    """Divide a JSON text before each text that begins with _IN_JSON."""
    first, *parts = text.split(_IN_JSON)
    return first, [_json_part(part) for part in parts]


def _json_part(part: str) -> JsonPart:
    base64, _quote, rest = part.partition('"')
    return JsonPart(None if rest.startswith(":") else base64, rest, f"{_IN_JSON}{part}")


def is_misplaced(stored: str, column: Column, row: bytes) -> bool:
    """Return whether a stored value has an envelope that was made for another column or row; needs no key."""
    if column.form is Form.TEXT:
        encoded = [stored[len(PREFIX) :]] if stored.startswith(PREFIX) else []
    else:
        _first, parts = split_json(stored)
        encoded = [part.base64 for part in parts if part.base64 is not None]
    envelopes = (raw for base64 in encoded if (raw := bytes_of(base64)) is not None)
    return any(raw[KEY_BYTES] != column.number or row_of(raw) != row for raw in envelopes)


def row_of(raw: bytes) -> bytes:
    """Return the id of the row that an envelope belongs to."""
    return raw[KEY_BYTES + 1 : _ASSOCIATED]


def row_bytes(id_: Any) -> bytes:
    """Return the bytes of the id of a row: a UUID, or its digits."""
    return id_.bytes if isinstance(id_, UUID) else bytes.fromhex(str(id_).replace("-", ""))


def _derived(secret: bytes, purpose: bytes) -> bytes:
    return HKDFExpand(algorithm=SHA256(), length=32, info=b"tracesite " + purpose).derive(secret)

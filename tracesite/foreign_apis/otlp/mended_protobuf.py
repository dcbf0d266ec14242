"""Replace what is not UTF-8 in the texts of an OTLP request in protobuf, which the parser refuses as a whole otherwise.

A text and bytes look the same on the wire. So the request is parsed as a copy of its class whose texts are bytes.
"""

from __future__ import annotations

import functools
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message


def mended(body: bytes, request: type[Message]) -> bytes:
    """Return a request, which `check_counts` has found small enough, with U+FFFD for bytes that are not UTF-8.

    Raise DecodeError for what is no protobuf.
    """
    message = _with_bytes(request.DESCRIPTOR.file, request.DESCRIPTOR.full_name)()
    message.ParseFromString(body)
    try:
        _mend(message, request.DESCRIPTOR)
    except RecursionError as error:
        raise DecodeError("messages in messages to too many levels") from error
    return message.SerializeToString()


def _mend(message: Any, descriptor: Any) -> None:
    for field, value in message.ListFields():
        original = descriptor.fields_by_name[field.name]
        if original.type == FieldDescriptor.TYPE_MESSAGE:
            for inner in [value] if isinstance(value, Message) else value:
                _mend(inner, original.message_type)
        elif original.type == FieldDescriptor.TYPE_STRING and isinstance(value, bytes):
            setattr(message, field.name, _utf8(value))
        elif original.type == FieldDescriptor.TYPE_STRING:
            value[:] = map(_utf8, value)


def _utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


@functools.cache
def _with_bytes(file: Any, name: str) -> type[Message]:
    """Return the class of a message of a file in which all texts are bytes."""
    pool = descriptor_pool.DescriptorPool()
    _add(pool, file, set())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def _add(pool: descriptor_pool.DescriptorPool, file: Any, added: set[str]) -> None:
    if file.name in added:
        return
    added.add(file.name)
    for needed in file.dependencies:
        _add(pool, needed, added)
    copy = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(copy)
    waiting = list(copy.message_type)
    for message in waiting:
        waiting += message.nested_type
        for field in message.field:
            if field.type == field.TYPE_STRING:
                field.type = field.TYPE_BYTES
    pool.Add(copy)

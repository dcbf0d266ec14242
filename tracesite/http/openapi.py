"""The OpenAPI document: structs as components, and errors in every operation."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema as SpectacularAutoSchema
from drf_spectacular.plumbing import ResolvedComponent

from messages_app.http import openapi
from messages_app.http.request_body import JSON
from messages_app.http.schemas import ErrorAnswer
from tracesite_sdk import records

# Fields that the types of records leave optional for importers, and that the decoder of the API requires.
_REQUIRED: dict[type[records.Record], list[str]] = {records.ToolCall: ["name"]}

_PATH = {
    "session_id": "The `id` of a session, or its `external_id`.",
    "message_id": "The `id` of a message.",
    "call_id": (
        "The `uuid` of a call. To search by the id given by the model, use the parameter `call_id` of the list."
    ),
    "snapshot_id": "The id of a snapshot, or the one that its recorder gave it.",
    "ref": "The `contextRef` of an event of the session.",
    "score_id": "The `id` of a score.",
    "entry_id": "The `id` of an entry.",
    "chain_id": "The `id` of the message, or a tracker's `chain-...` id.",
}


class AutoSchema(SpectacularAutoSchema):
    """Operations are named by their path and action: sessions_list, sessions_messages_create, messages_restore ..."""

    def get_operation_id(self) -> str:
        below = self.path.partition("/api/v1")[2]
        words = [word.replace("-", "_") for word in below.split("/") if word and not word.startswith("{")]
        action = getattr(self.view, "action", None) or self.method.lower()
        return "_".join([*words, action] if words[-1:] != [action] else words)

    def get_summary(self) -> str:
        return str(super().get_description()).partition("\n")[0]

    def get_description(self) -> str:  # type: ignore[override]  # as the package has it; DRF has another
        """Return the docstring without its first line."""
        return str(super().get_description()).partition("\n")[2].strip()

    def map_parsers(self) -> list[str]:
        # The views read bodies themselves, past DRF's parsers.
        return [JSON]

    def _is_list_view(self, serializer: Any = None) -> bool:
        # Our lists are types of their own; the package would document arrays of them. It has no documented switch for that.
        return False


class StructExtension(OpenApiSerializerExtension):  # type: ignore[no-untyped-call]  # the package is typed in part
    """Document any msgspec struct by its own JSON schema. Records are input, so they are named `...Input` beside the
    resources of the same name."""

    target_class = "msgspec.Struct"
    match_subclasses = True

    def get_name(self, auto_schema: SpectacularAutoSchema, direction: str) -> str:
        return f"{self.target.__name__}{_suffix(self.target)}"

    def get_identity(self, auto_schema: SpectacularAutoSchema, direction: str) -> str:
        # Of structs below others only the names are known; they are the same everywhere.
        return self.get_name(auto_schema, direction)

    def map_serializer(self, auto_schema: SpectacularAutoSchema, direction: str) -> dict[str, Any]:
        suffix = _suffix(self.target)
        _refs, components = msgspec.json.schema_components(
            [self.target], ref_template=f"#/components/schemas/{{name}}{suffix}"
        )
        structs = _structs_in(self.target)
        for name, schema in components.items():
            _describe(schema, structs[name], f"{name}{suffix}")
            if name != self.target.__name__:
                full_name = f"{name}{suffix}"
                component = ResolvedComponent(  # type: ignore[no-untyped-call]
                    name=full_name, type=ResolvedComponent.SCHEMA, object=full_name, schema=schema
                )
                auto_schema.registry.register_on_missing(component)
        named: dict[str, Any] = components[self.target.__name__]
        return named


def describe_paths(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Describe the parameters of paths, and leave out the filter `session` if the path names the session."""
    for path, operations in result["paths"].items():
        for operation in operations.values():
            parameters = operation.get("parameters", [])
            for parameter in parameters:
                if parameter["in"] == "path":
                    parameter["description"] = _PATH[parameter["name"]]
            if "{session_id}" in path and parameters:
                # One method serves the messages of one session and those of all.
                operation["parameters"] = [parameter for parameter in parameters if parameter["name"] != "session"]
    return result


def add_errors(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Add the errors that every operation can have: an unknown parameter or project, missing credentials or rights, 5xx."""
    answer = {"application/json": {"schema": {"$ref": f"#/components/schemas/{ErrorAnswer.__name__}"}}}
    common = {
        400: openapi.MEANINGS[400],
        401: "Missing or invalid credentials.",
        403: "The key lacks the required scope.",
        404: openapi.MEANINGS[404],
    }
    for operations in result["paths"].values():
        for operation in operations.values():
            for status, meaning in common.items():
                operation["responses"].setdefault(str(status), {"description": meaning, "content": answer})
            operation["responses"]["default"] = {"description": "Any other error.", "content": answer}
    return result


def _suffix(target: type) -> str:
    return "Input" if target.__module__ == records.__name__ else ""


def _describe(schema: dict[str, Any], struct: type, name: str) -> None:
    """Set the title of a component, and describe its fields by the docstrings under them in the code."""
    schema["title"] = name
    # A record has no other fields, but a sender may add some: see tracesite_sdk.normalize.extra_fields.
    schema.pop("additionalProperties", None)
    documented = _field_docs(struct)
    for field, property_ in schema["properties"].items():
        if field in documented:
            property_["description"] = documented[field]
        if issubclass(struct, records.Record) and property_.get("default", ...) is None:
            # Leaving a field out and null mean the same, and forms would begin with a page of nulls.
            del property_["default"]
    for field in _REQUIRED.get(struct, ()):
        schema["required"] = [*schema.get("required", ()), field]
        _refuse_null(schema["properties"][field])


def _refuse_null(property_: dict[str, Any]) -> None:
    options = [option for option in property_.pop("anyOf") if option != {"type": "null"}]
    assert len(options) == 1, "a required field has one type besides null"
    property_.update(options[0])


def _structs_in(target: type) -> dict[str, type]:
    """Return a struct and those below it by their names."""
    found: dict[str, type] = {}
    waiting: list[Any] = [msgspec.inspect.type_info(target)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, msgspec.inspect.StructType):
            if node.cls.__name__ in found:
                continue
            found[node.cls.__name__] = node.cls
        # A description of a type is a struct, whose fields hold the types below it, alone or in tuples.
        if isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field):
            waiting += [getattr(node, name) for name in node.__struct_fields__]
        elif isinstance(node, tuple):
            waiting += node
    return found


@cache
def _field_docs(struct: type) -> dict[str, str]:
    """Return the docstring of each field of a struct, with those of inherited fields."""
    docs: dict[str, str] = {}
    for class_ in reversed(struct.__mro__):
        if issubclass(class_, msgspec.Struct) and class_ is not msgspec.Struct:
            for field, below in pairwise(_classes_of(class_.__module__)[class_.__name__].body):
                match field, below:
                    case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                        docs[name] = inspect.cleandoc(text).replace("\n", " ")
    return docs


@cache
def _classes_of(module: str) -> dict[str, ast.ClassDef]:
    """Return the sources of a module's classes; one by one, inspect would parse the whole module for each."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}

"""The OpenAPI document: structs as components, and errors in every operation."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Collection, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import msgspec
from drf_spectacular.extensions import OpenApiSerializerExtension
from drf_spectacular.openapi import AutoSchema as SpectacularAutoSchema
from drf_spectacular.plumbing import ResolvedComponent
from drf_spectacular.utils import OpenApiExample

from access_app.models import ActorKind, AuditAction, AuditResult
from messages_app.http import openapi
from messages_app.http.request_body import JSON
from messages_app.http.schemas import ErrorAnswer
from messages_app.interruptions import TEXTS
from messages_app.queries import SESSION_FIELDS
from traces_app.queries.messages import CALL_FIELDS, EXPANDABLE, INPUTS, MESSAGE_FIELDS
from traces_app.queries.schemas import comparison, errors, outcomes
from traces_app.queries.schemas.contexts import ContextKind
from traces_app.queries.schemas.imports import FileStatus
from traces_app.queries.schemas.search import HIT_KINDS
from traces_app.queries.schemas.similar_runs import SimilarBy
from traces_app.queries.schemas.usage import UsageBy
from traces_app.queries.scores import SCORE_FIELDS
from traces_app.views.examples import CALL_ID, CONTEXT_REF, MESSAGE_ID, SCORE_ID, response_examples
from tracesite_sdk import records
from tracesite_sdk.records import event_types
from tracesite_sdk.records.health_flags import FLAGS

# Fields that the types of records leave optional for importers, and that the decoder of the API requires.
_REQUIRED: dict[type[records.Record], list[str]] = {records.ToolCall: ["name"]}

ENUMERATIONS: dict[str, Collection[str]] = {
    "SessionStatus": get_args(records.SessionStatus),
    "StatusReason": TEXTS,
    "Role": get_args(records.Role),
    "CallStatus": get_args(records.CallStatus),
    "HealthFlag": FLAGS,
    "ContextKind": get_args(ContextKind),
    "EventType": get_args(event_types.EventType),
    "EventLevel": get_args(event_types.Level),
    "EventCategory": get_args(event_types.Category),
    "ScoreKind": get_args(records.ScoreKind),
    "ScoreSource": get_args(records.ScoreSource),
    "AuditAction": AuditAction.values,
    "AuditResult": AuditResult.values,
    "ActorKind": ActorKind.values,
    "HitKind": HIT_KINDS,
    "MessageOutcome": get_args(outcomes.MessageOutcome),
    "EventOutcome": get_args(outcomes.EventOutcome),
    "RefusalCode": get_args(outcomes.RefusalCode),
    "FileStatus": get_args(FileStatus),
    "ErrorChange": get_args(errors.ErrorChange),
    "ErrorSort": get_args(errors.ErrorSort),
    "FactChange": get_args(comparison.FactChange),
    "PairChange": get_args(comparison.PairChange),
    "NodeKind": get_args(comparison.NodeKind),
    "ComparedKind": get_args(comparison.ComparedKind),
    "SimilarBy": get_args(SimilarBy),
    "UsageBy": get_args(UsageBy),
    "TableFormat": ("json", "csv"),
    "Order": ("asc", "desc"),
    "SessionField": sorted(SESSION_FIELDS),
    "MessageField": sorted(MESSAGE_FIELDS),
    "MessagePart": (*EXPANDABLE, INPUTS, "none"),
    "CallField": sorted(CALL_FIELDS),
    "ScoreField": sorted(SCORE_FIELDS),
}
"""The names of enumerations that several fields or parameters have."""

_PATH = {
    "session_id": ("The `id` of a session, or its `external_id`.", "weather-1"),
    "message_id": ("The `id` of a message.", MESSAGE_ID),
    "call_id": (
        "The `uuid` of a call. To search by the id given by the model, use the parameter `call_id` of the list.",
        CALL_ID,
    ),
    "snapshot_id": ("The id of a snapshot, or the one that its recorder gave it.", "snapshot-1"),
    "ref": ("The `contextRef` of an event of the session.", CONTEXT_REF),
    "score_id": ("The `id` of a score.", SCORE_ID),
    "entry_id": ("The `id` of an entry.", 1),
    "chain_id": ("The `id` of the message, or a tracker's `chain-...` id.", MESSAGE_ID),
}
"""The description of each parameter of paths, and an example."""


_VERBS = {
    "list": "list",
    "retrieve": "get",
    "create": "create",
    "partial_update": "update",
    "destroy": "delete",
}


class AutoSchema(SpectacularAutoSchema):
    """Operations are named by verb and path: list_sessions, get_session, create_session_message, restore_message ..."""

    view: Any

    def get_operation_id(self) -> str:
        # A view without actions is of the project that Tracesite is in.
        action = getattr(self.view, "action", self.method.lower())
        parts = [part for part in self.path.partition("/api/v1/")[2].split("/") if part != action]
        # The path ends with a slash, so that each part has one behind it.
        words = [
            part.removesuffix("s") if after[:1] == "{" or (not after and action == "create") else part
            for part, after in pairwise(parts)
            if part[:1] != "{"
        ]
        return "_".join([_VERBS.get(action, action), *words]).replace("-", "_")

    def get_tags(self) -> list[str]:
        return [self.view.tag] if hasattr(self.view, "tag") else super().get_tags()

    def get_summary(self) -> str:
        return self._sentences()[0]

    def get_description(self) -> str:  # type: ignore[override]  # as the package has it; DRF has another
        """Return the docstring without its first sentence."""
        return self._sentences()[1]

    def _sentences(self) -> tuple[str, str]:
        first, _space, others = re.sub(r"(?<=\.)\s", "\0", str(super().get_description()), count=1).partition("\0")
        return " ".join(first.split()), others.strip()

    def get_examples(self) -> list[OpenApiExample]:
        return response_examples(self.get_operation_id())

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
                    parameter["description"], parameter["example"] = _PATH[parameter["name"]]
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


def name_schemas(result: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Replace enumerations and objects of any JSON by components, so that a client has one type for all that are alike."""
    names = {frozenset(words): name for name, words in ENUMERATIONS.items()}
    components = result["components"]["schemas"]
    for part in [*_parts_of(result["paths"]), *_parts_of(components)]:
        name = names.get(frozenset(part["enum"])) if isinstance(part.get("enum"), list) else None
        if (
            part.get("type") == "object"
            and not part.get("properties")
            and part.get("additionalProperties") in (None, {}, True)
        ):
            name = "JsonObject"
        if name:
            for key in ("type", "enum", "additionalProperties"):
                part.pop(key, None)
            part["$ref"] = f"#/components/schemas/{name}"
    for name, words in ENUMERATIONS.items():
        components[name] = {"title": name, "type": "string", "enum": list(words)}
    components["JsonObject"] = {"title": "JsonObject", "type": "object", "additionalProperties": True}
    return result


def _parts_of(value: Any) -> Iterator[dict[str, Any]]:
    """Yield each object below a part of the document, but no examples, which may have any form."""
    if isinstance(value, dict):
        yield value
        for name, item in list(value.items()):
            if name not in ("example", "examples"):
                yield from _parts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _parts_of(item)


def _suffix(target: type) -> str:
    return "Input" if target.__module__ == records.__name__ else ""


def _describe(schema: dict[str, Any], struct: type, name: str) -> None:
    """Set the title of a component, and describe its fields by the docstrings under them in the code."""
    schema["title"] = name
    for part in _parts_of(schema):
        if part.get("type") == "array":
            part.setdefault("items", {})  # generators of clients refuse an array without
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

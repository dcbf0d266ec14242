"""Parse the documents that a retriever returned, in any known shape, into references.

Known are those of OpenInference, OpenTelemetry GenAI, LangChain, LlamaIndex, MLflow and vector databases: objects with an id, a
text, a score and metadata under several names, or plain texts.
"""

from __future__ import annotations

import math
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.normalize.json_values import fields, rest, text

from .message_shapes import decoded

_LISTS = ("documents", "results", "matches", "nodes", "hits", "output")
_TEXTS = ("content", "page_content", "pageContent", "text", "chunk", "body", "snippet")
_SCORES = ("score", "relevance_score", "similarity")
_IDS = ("id", "id_", "document_id", "doc_id", "node_id", "chunk_id")
_TITLES = ("title", "document_title")
_SOURCES = ("source", "url", "uri", "doc_uri")
_FILES = ("file_name", "filename")
_DEEPEST = 4
MOST = 1000
"""Passages of one retrieval that are read; the span has all."""


def passages_in(value: Any) -> list[records.Reference]:
    """Return the passages in the output of a retriever, in their order; none if it is of no known shape."""
    return [passage for item in _documents(decoded(value), 0)[:MOST] if (passage := _passage(item)) is not None]


def _documents(value: Any, depth: int) -> list[Any]:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict) or depth > _DEEPEST:
        return []
    # LangChain serialises objects with their values in `kwargs`.
    inner = next((value[name] for name in (*_LISTS, "kwargs") if isinstance(value.get(name), (list, dict))), None)
    return _documents(inner, depth + 1) if inner is not None else []


def _passage(item: Any) -> records.Reference | None:
    if isinstance(item, str):
        return records.Reference(content=item) if item else None
    document = {name.removeprefix("document."): value for name, value in fields(decoded(item)).items()}
    # LlamaIndex has the text in a node beside its score, LangChain's serialisation has the values in `kwargs`.
    for name in ("node", "kwargs", "document"):
        if isinstance(document.get(name), dict):
            document = {**document.pop(name), **document}
    metadata = fields(decoded(document.get("metadata")))
    content = next(filter(None, (text(document.get(name)) for name in _TEXTS)), None)
    id_ = _named(document, _IDS)
    if content is None and id_ is None:
        return None
    score = next((number for name in _SCORES if (number := _number(document.get(name))) is not None), None)
    return records.Reference(
        id=id_,
        content=content,
        score=score,
        knowledge_title=_named(metadata, _TITLES) or _named(document, _TITLES),
        knowledge_source=_named(metadata, _SOURCES) or _named(document, _SOURCES),
        knowledge_filename=_named(metadata, _FILES),
        metadata=metadata
        or rest(document, (*_TEXTS, *_SCORES, *_IDS, *_TITLES, *_SOURCES, "metadata", "type", "lc"))
        or None,
    )


def _named(values: dict[str, Any], names: tuple[str, ...]) -> str | None:
    value = next(
        (values[name] for name in names if isinstance(values.get(name), str | int) and values[name] != ""), None
    )
    return None if value is None or isinstance(value, bool) else str(value)


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None

"""The encrypted columns, one line for each. Every other column stays readable; docs/security.md says which and why.

A test compares the models with this list, so that a new column of text or JSON is either here or among READABLE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final


class Form(Enum):
    """The form of an encrypted value. Empty values stay as they are, so that conditions on them work."""

    TEXT = "text"
    """The text."""
    JSON = "json"
    """The JSON value, which becomes a JSON string."""
    FIELDS = "fields"
    """Each value of a JSON object, which keeps its keys: objects are merged by key in the database."""


@dataclass(frozen=True)
class Column:
    number: int
    """Its mark in envelopes: never changed, and never given to another column."""
    form: Form
    readable: frozenset[str] = frozenset()
    """The keys whose values stay readable, because the database looks for them: names and ids, and no payload. Only numbers and
    texts of MOST_READABLE characters do: whatever is larger or has parts is no name, whoever sent it under such a key."""
    has_readable_numbers: bool = False
    """Whether numbers stay readable: they are counts of tokens."""
    parts: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each key of an object, its keys whose values stay readable like those of `readable`; the others are encrypted."""
    has_references: bool = False
    """Whether REFERENCES are of contexts, whose OF_REFERENCE stay readable."""


_OF_METADATA: Final = frozenset(
    {
        # Finds traces of spans, and imported messages.
        *("trace_id", "message_id", "source", "answer_iteration"),
        # Finds chains and forks.
        *("root_tool_id", "forked_from"),
    }
)
_OF_EVENTS: Final = frozenset(
    # What event belongs to which step and call.
    {"step", "step_id", "stepId", "iteration", "parent", "parent_id", "call_id", "name", "tool_name", "toolName"}
    | {"tool"}
)
REFERENCES: Final = "contextRefs"
"""The key of the references of an event to contexts; it and those within stay readable, the beginnings of texts do not."""
OF_REFERENCE: Final = frozenset({"contextRef", "bytes"})
MOST_READABLE: Final = 600
"""Characters of JSON of a value that stays readable: names and ids have 512."""

ENCRYPTED: Final[Mapping[str, Mapping[str, Column]]] = {
    "messages_app_session": {
        "title": Column(1, Form.TEXT),
        "description": Column(2, Form.TEXT),
        "current_phase": Column(3, Form.TEXT),
        "workflow": Column(4, Form.JSON),
        # The session that a replay has replayed; what it has changed there is content.
        "metadata": Column(
            5, Form.FIELDS, _OF_METADATA, parts={"forked_from": frozenset({"session", "node", "snapshot", "ts"})}
        ),
    },
    "messages_app_message": {
        "content": Column(10, Form.TEXT),
        "content_parts": Column(11, Form.JSON),
        "error": Column(12, Form.TEXT),
        "metadata": Column(13, Form.FIELDS, _OF_METADATA),
        "usage": Column(14, Form.FIELDS, has_readable_numbers=True),
    },
    "messages_app_reference": {
        "content": Column(20, Form.TEXT),
        "knowledge_title": Column(21, Form.TEXT),
        "metadata": Column(22, Form.FIELDS),
        "image_info": Column(23, Form.TEXT),
        "knowledge_filename": Column(24, Form.TEXT),
        "knowledge_source": Column(25, Form.TEXT),
    },
    "traces_app_agentstep": {
        "thought": Column(30, Form.TEXT),
        "reasoning": Column(31, Form.TEXT),
        "metadata": Column(32, Form.FIELDS, _OF_METADATA),
        "usage": Column(33, Form.FIELDS, has_readable_numbers=True),
    },
    "traces_app_toolcall": {
        "args": Column(40, Form.JSON),
        "reflection": Column(41, Form.TEXT),
        "metadata": Column(42, Form.FIELDS, _OF_METADATA),
    },
    "traces_app_toolresult": {
        "output": Column(50, Form.TEXT),
        "data": Column(51, Form.JSON),
        "error": Column(52, Form.TEXT),
        "metadata": Column(53, Form.FIELDS, _OF_METADATA),
        "attachments": Column(54, Form.JSON),
        "raw": Column(55, Form.TEXT),
    },
    "traces_app_event": {"data": Column(60, Form.FIELDS, _OF_EVENTS, has_references=True)},
    "traces_app_context": {
        # The keys of an input say how many entries belong to which part.
        "content": Column(70, Form.FIELDS, frozenset({"system", "tools"})),
    },
    "traces_app_span": {"content": Column(80, Form.TEXT)},
    "traces_app_score": {
        "comment": Column(90, Form.TEXT),
        "metadata": Column(91, Form.FIELDS),
    },
}
"""Encrypted columns by table and name."""

BY_NUMBER: Final[Mapping[int, tuple[str, str, Column]]] = {
    column.number: (table, name, column) for table, columns in ENCRYPTED.items() for name, column in columns.items()
}
NAMES: Final = frozenset(name for columns in ENCRYPTED.values() for name in columns)
"""Names of encrypted columns, of any table."""
EMPTY: Final = frozenset({"", "{}", "[]", "null"})
"""Texts of values that say nothing, and stay readable."""

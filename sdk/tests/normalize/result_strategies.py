"""Results of tools in any form, for property tests, and the form that they get."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import strategies as st

from tracesite_sdk import records


def form(result: records.ToolResult) -> dict[str, Any]:
    """Return the fields of a result that are not empty."""
    fields = msgspec.structs.asdict(result)
    assert fields.pop("success") is (fields["status"] == "success")
    return {name: value for name, value in fields.items() if value not in (None, "", {}, [])}


TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["Error: no", "0 errors", "{'a': 1}", "[[", '{"success": false}', "https://x.org/a.png", "\ud800", "\x00"]
    ),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), TEXTS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    [
                        "success",
                        "status",
                        "error",
                        "data",
                        "output",
                        "content",
                        "type",
                        "text",
                        "isError",
                        "kwargs",
                        "image",
                    ]
                ),
                st.text(max_size=3),
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)


def is_json(value: Any) -> bool:
    try:
        msgspec.json.encode(value)
    except (UnicodeEncodeError, TypeError):
        return False
    return True


FIELDS = st.sampled_from(
    [
        "success",
        "status",
        "error",
        "data",
        "output",
        "message",
        "result",
        "metadata",
        "images",
        "isError",
        "rows",
        "raw",
    ]
)

SAID = st.one_of(
    VALUES, st.sampled_from(["success", "error", "pending", "failed", "OK", True, False, None, "", {}, []])
)

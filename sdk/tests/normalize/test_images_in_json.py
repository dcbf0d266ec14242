"""Images in JSON that is not decoded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.tests.normalize.json_images import IMAGES, OTHER, PNG
from tracesite_sdk.normalize.images import Attachments, json_may_hold_images


@settings(max_examples=300)
@given(
    st.recursive(
        st.sampled_from([*IMAGES, "a.png", "text", 1, "https://example.com/", PNG, OTHER]),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["a", "type", "image", "data", "url", "format"]), inner, max_size=3)
        ),
        max_leaves=5,
    )
)
def test_image_is_recognised_in_encoded_json(value: Any) -> None:
    found = Attachments()
    found.take_from(value)

    if found.attachments:
        assert json_may_hold_images([b"{}", json.dumps(value, ensure_ascii=False).encode()])

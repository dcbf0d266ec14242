"""What is worked out of texts that senders choose, and remembered: within bounds, so that nobody fills the memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

LONGEST = 100
MOST = 1024


def remembered(find: F) -> F:
    """Decorates a function of a text: its answers for texts of at most LONGEST characters are remembered, MOST of them."""
    known = lru_cache(maxsize=MOST)(find)

    @wraps(find)
    def found(text: str, /, *others: Any) -> Any:
        return (known if len(text) <= LONGEST else find)(text, *others)

    return cast("F", found)

"""A valid document with one value replaced by an odd one: each value in turn, by each of ODD_VALUES."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    {}, [], None, True, -1, 0, 0.5, 1e308, 2**63, -(2**70), "", "\x00", "\ud800", "x" * 100_000, "²", "1e999", "9999-12-31T23:59:59-12:00",
    [[]], {"a": {}}, [None], [{}], {"": None}, ["\x00"],
)  # fmt: skip


def with_odd_values(document: Any) -> Iterator[tuple[str, Any]]:
    """Yield each place with the document that has an odd value there. The document is changed back and forth."""
    holder = {"": document}
    yield from _replaced(holder, "", "", holder)


def as_body(document: Any) -> bytes:
    """Return the document as JSON. A lone surrogate is written as its escape, which is how one arrives."""
    return json.dumps(document).encode()


def assert_taken_or_refused(take: Callable[[bytes], object], document: Any, *refusals: type[Exception]) -> None:
    """Call `take` with the document, and with each odd value in it, which may raise one of the refusals."""
    document = json.loads(json.dumps(document))
    take(as_body(document))
    for place, odd in with_odd_values(document):
        try:
            take(as_body(odd))
        except refusals:
            pass
        except Exception as error:
            raise AssertionError(place) from error


def _replaced(holder: Any, key: Any, path: str, root: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    own = holder[key]
    for odd in ODD_VALUES:
        holder[key] = odd
        yield f"{path} = {odd!r:.40}", root[""]
    holder[key] = own
    inner = own.items() if isinstance(own, dict) else enumerate(own) if isinstance(own, list) else ()
    for name, _value in list(inner):
        yield from _replaced(own, name, f"{path}.{name}", root)

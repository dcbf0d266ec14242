"""Django's transactions, in the database of Tracesite."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from django.db import transaction

from . import PRIMARY

F = TypeVar("F", bound=Callable[..., Any])


@overload
def atomic(decorated: F) -> F: ...
@overload
def atomic(*, using: str = ...) -> transaction.Atomic: ...


def atomic(decorated: F | None = None, *, using: str = PRIMARY) -> F | transaction.Atomic:
    """As django.db.transaction.atomic: a context manager, or a decorator with or without parentheses."""
    block = transaction.atomic(using=using)
    return block if decorated is None else block(decorated)


def on_commit(function: Callable[[], object]) -> None:
    """Call the function once the transaction is committed, at once if there is none."""
    transaction.on_commit(function, using=PRIMARY)

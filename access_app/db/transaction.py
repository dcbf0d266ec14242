"""Django's transactions, in the database in use."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, overload

from django.db import transaction

from . import alias_in_use

F = TypeVar("F", bound=Callable[..., Any])


@overload
def atomic(decorated: F) -> F: ...
@overload
def atomic(*, using: str | None = ...) -> transaction.Atomic: ...


def atomic(decorated: F | None = None, *, using: str | None = None) -> F | transaction.Atomic:
    """As django.db.transaction.atomic: a context manager, or a decorator without parentheses; `using` is the database in use."""
    if decorated is None:
        return transaction.atomic(using=using or alias_in_use())
    function = decorated

    @wraps(function)
    def within(*args: Any, **options: Any) -> Any:
        # Not when the function is made: the database in use is that of the call.
        with transaction.atomic(using=alias_in_use()):
            return function(*args, **options)

    return within  # type: ignore[return-value]  # of the same signature


def on_commit(function: Callable[[], object], *, using: str | None = None) -> None:
    """Call the function once the transaction is committed, at once if there is none."""
    transaction.on_commit(function, using=using or alias_in_use())

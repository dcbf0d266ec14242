"""A decorator for functions that write all or nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from . import Database

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def in_transaction(
    function: Callable[Concatenate[Database, Arguments], Result],
) -> Callable[Concatenate[Database, Arguments], Result]:
    """Let a function run in a transaction of the database that is its first argument."""

    @wraps(function)
    def within(db: Database, *args: Arguments.args, **options: Arguments.kwargs) -> Result:
        with db.atomic():
            return function(db, *args, **options)

    return within  # type: ignore[return-value]  # by mypy, a wrapped function is no function of the same arguments

"""QuerySets that are compiled once for each shape and run with the values of a request.

Django takes 1 to 2 ms to compile the QuerySet of a list, more than PostgreSQL takes to answer it. A list has few shapes:
which filters are given, in which order, whether the page has bounds. So the QuerySet is built with a `Param` in place of
each value, by a function of the shape alone, and its SQL is kept:

    @compiled()
    def _alive(has_tag: bool) -> QuerySet[Session]:
        sessions = Session.objects.values_list("pk")
        return sessions.filter(tags__contains=Param("tags", ArrayField(TextField()))) if has_tag else sessions

    fetch([_alive(True).query({"tags": ["beta"]})])

Constants of the QuerySet become literals in the SQL, because PostgreSQL uses a partial index only for a condition that it
can read. Values of columns with converters (JSON) come as psycopg loads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import Context
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn, TypeVar
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import EmptyResultSet
from django.db import connections
from django.db.models import BigIntegerField, Expression, Field, ForeignObject, Lookup, QuerySet, UUIDField
from django.db.models.expressions import Combinable
from msgspec import Struct
from msgspec.structs import replace
from psycopg import sql as psycopg_sql

from access_app.db import PRIMARY
from access_app.visibility import ProjectScope

from .batch import LIST_MS, Query, Row, fetch
from .pagination import IdRange

SHAPES_KEPT = 256
_OF_PERIOD = "period_"

Build = TypeVar("Build", bound=Callable[..., QuerySet[Any, Any]])


class Param(Combinable):
    """The placeholder of a value in a QuerySet, as `F()` is that of a column.

    Code that inspects the value gets a TypeError, so that no value becomes part of a shape by mistake.
    """

    def __init__(self, name: str, output_field: Field[Any, Any]) -> None:
        self.name = name
        self.output_field = output_field

    def resolve_expression(self, *_args: Any, **_kwargs: Any) -> Expression:
        return _Placeholder(self.name, self.output_field)

    def copy(self) -> Param:
        return self

    def _refuse(self, *_args: Any) -> NoReturn:
        raise TypeError(f"The value of parameter {self.name!r} is not known when the QuerySet is built.")

    __bool__ = __str__ = __int__ = __len__ = __iter__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse


class _Placeholder(Expression):
    def __init__(self, name: str, output_field: Field[Any, Any]) -> None:
        super().__init__(output_field=output_field)
        self.name = name

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        return "%s", (self,)


@ForeignObject.register_lookup
@Field.register_lookup
class EqualsAny(Lookup):
    """`column__any=array`: one parameter however long the list, where `__in` has one for each value."""

    lookup_name = "any"

    def get_prep_lookup(self) -> Any:
        if hasattr(self.rhs, "resolve_expression"):
            return self.rhs
        return [self.lhs.output_field.get_prep_value(value) for value in self.rhs]

    def get_db_prep_lookup(self, value: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        field = self.lhs.output_field
        return "%s", ([field.get_db_prep_value(one, connection, prepared=True) for one in value],)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, tuple[Any, ...]]:
        column, before = self.process_lhs(compiler, connection)
        array, values = self.process_rhs(compiler, connection)
        return f"{column} = ANY({array})", (*before, *values)


class Statement(Struct, frozen=True, kw_only=True):
    """The SQL of a shape and the fields of its parameters, in order."""

    sql: str | None
    """None if the QuerySet can have no rows."""
    params: tuple[tuple[str, Field[Any, Any]], ...] = ()
    prepared: bool = False

    def query(self, values: Mapping[str, Any], end: str = "") -> Query:
        """Return the statement with the values of its parameters; `end` follows the SQL of the QuerySet.

        Values of other parameters are ignored. Raise ValueError for None: NULL needs `isnull`, which is another shape.
        """
        assert self.sql is not None, "a statement without rows is not sent"
        connection = connections[PRIMARY]
        if missing := [name for name, _field in self.params if values[name] is None]:
            raise ValueError(f"Parameter {missing[0]!r} is NULL: build a QuerySet with isnull.")
        bound = [field.get_db_prep_value(values[name], connection, prepared=False) for name, field in self.params]
        return Query(sql=f"{self.sql}{end}", parameters=bound, prepared=self.prepared)

    def rows(self, values: Mapping[str, Any], end: str = "", *, at_most_ms: int | None = None) -> list[Row]:
        """Run the statement."""
        return fetch([self.query(values, end)], at_most_ms=at_most_ms)[0] if self.sql is not None else []


def compiled(*, prepared: bool = False) -> Callable[[Build], Callable[..., Statement]]:
    """Keep the SQL of the QuerySets that a function builds, by its arguments, which must be hashable.

    `prepared` lets PostgreSQL keep the plan as well. It is for statements with one good plan for all values, not for those
    where a rare value wants another index than a common one.
    """

    def decorate(build: Build) -> Callable[..., Statement]:
        @lru_cache(maxsize=SHAPES_KEPT)
        def of_shape(*shape: Any) -> Statement:
            # An empty context: the language and the user of the first request must not end up in the SQL.
            return Context().run(_compile, build, shape, prepared)

        return of_shape

    return decorate


def _compile(build: Callable[..., QuerySet[Any, Any]], shape: Sequence[Any], prepared: bool) -> Statement:
    try:
        sql, values = build(*shape).query.get_compiler(PRIMARY).as_sql()
    except EmptyResultSet:
        return Statement(sql=None)
    remaining = iter(values)
    params: list[tuple[str, Field[Any, Any]]] = []

    def placed(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%%"
        value = next(remaining)
        if isinstance(value, _Placeholder):
            params.append((value.name, value.output_field))
            return "%s"
        return psycopg_sql.quote(value, connections[PRIMARY].connection).replace("%", "%%")

    return Statement(sql=re.sub("%%|%s", placed, sql), params=tuple(params), prepared=prepared)


# --- Lists ------------------------------------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """The bounds that a range of ids has; the ids themselves are parameters."""

    lower: bool = False
    upper: bool = False

    def of(self, column: str, prefix: str = "", field: Field[Any, Any] | None = None) -> dict[str, Param]:
        """Return the range as filter arguments on `column`."""
        field = field or UUIDField()
        lookups = {"gte": (self.lower, f"{prefix}lower"), "lt": (self.upper, f"{prefix}upper")}
        return {f"{column}__{lookup}": Param(name, field) for lookup, (given, name) in lookups.items() if given}

    def periods_of(self, column: str) -> dict[str, Param]:
        """Return the whole periods of the range on `column`, for rows below the page; see IdRange.widened_to_periods."""
        return self.of(column, _OF_PERIOD)


EVERY_ID = Bounds()
_ONE_PROJECT = ProjectScope(frozenset({Param("project", BigIntegerField())}))  # type: ignore[arg-type]  # a Param for a number


def shape_of(scope: ProjectScope) -> tuple[ProjectScope, dict[str, int]]:
    """Return the scope for a shape, and the value of its Param if the scope is one project, as for most keys.

    Other scopes are part of the shape unchanged.
    """
    if scope.project_ids is None or len(scope.project_ids) != 1:
        return scope, {}
    return _ONE_PROJECT, dict.fromkeys(("project",), *scope.project_ids)


class _NumberOfId(BigIntegerField):  # type: ignore[type-arg]  # not generic at run time
    """The bound of a page in a table whose ids are whole numbers, limited to the largest one."""

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return super().get_db_prep_value(min(value.int, self.MAX_BIGINT), connection, prepared)


class CompiledRows(Struct, frozen=True, kw_only=True):
    """The rows of a list, for `pagination.read_page`: a QuerySet with Params, and the values of a request."""

    build: Callable[..., QuerySet[Any, Any]]
    """A function of the bounds and of `shape` that returns the QuerySet, neither ordered nor limited."""
    shape: tuple[Any, ...]
    values: Mapping[str, Any]
    ids: IdRange = IdRange()

    def within(self, ids: IdRange) -> CompiledRows:
        return replace(self, ids=self.ids & ids)

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        """Return the ids of the first rows in one of the two orders. Raise InvalidInput if it takes longer than LIST_MS."""
        statement = _keys(self.build, self.shape, self.bounds, newest_first)
        # The limit is not part of the shape: Django accepts no Param for it, and each limit would be another shape.
        end = f" LIMIT {limit:d} OFFSET {offset:d}"
        return [row[0] for row in statement.rows(self.values_for(statement), end, at_most_ms=LIST_MS)]

    def among(self, keys: Collection[UUID]) -> list[UUID]:
        """Return those of some ids that are ids of these rows, in order."""
        if not keys:
            return []
        rows = replace(
            self,
            build=_among,
            shape=(self.build, *self.shape),
            values={**self.values, "among": list(keys)},
            ids=self.ids & IdRange(lower=min(keys), upper=UUID(int=max(keys).int + 1)),
        )
        return rows.keys(newest_first=False, limit=len(keys))

    @property
    def bounds(self) -> Bounds:
        return Bounds(lower=self.ids.lower is not None, upper=self.ids.upper is not None)

    def values_for(self, statement: Statement) -> dict[str, Any]:
        """Return the values of the parameters of a statement on these rows, the range of ids included."""
        values = {**self.values, "lower": self.ids.lower, "upper": self.ids.upper}
        if any(name.startswith(_OF_PERIOD) for name, _field in statement.params):
            periods = self.ids.widened_to_periods()
            values |= {f"{_OF_PERIOD}lower": periods.lower, f"{_OF_PERIOD}upper": periods.upper}
        return values


def _among(bounds: Bounds, build: Callable[..., QuerySet[Any, Any]], *shape: Any) -> QuerySet[Any, Any]:
    return build(bounds, *shape).filter(pk__any=Param("among", ArrayField(UUIDField())))


@compiled()
def _keys(
    build: Callable[..., QuerySet[Any, Any]], shape: tuple[Any, ...], bounds: Bounds, newest_first: bool
) -> QuerySet[Any, Any]:
    rows = build(bounds, *shape)
    key = rows.model._meta.pk
    assert key is not None, "only abstract models have no primary key"
    ids = bounds.of("pk", field=None if isinstance(key, UUIDField) else _NumberOfId())
    return rows.filter(**ids).order_by("-pk" if newest_first else "pk").values_list("pk")

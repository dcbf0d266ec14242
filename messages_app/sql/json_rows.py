"""Read rows by their ids as the JSON of resources, without model instances: the hand-written SQL of reads.

A list is read in two steps. A QuerySet finds the ids of the page (see pagination): it applies visibility, soft delete and the
filters. Then each table is read once, by ids, with a statement that is the same every time, all in one round trip.

The reason for SQL here: PostgreSQL formats JSON columns and times as the text of the response, which Python does not parse.
Loading and dumping them took four times as long, and model instances 5 of 22 ms of a page of 50 messages with 400 calls. No
sort carries a payload, and columns that are not requested are not read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from uuid import UUID

from django.contrib.postgres.fields import ArrayField
from django.db import models
from msgspec import UNSET, Raw, Struct, UnsetType

from access_app.db import Database
from access_app.encryption.reading import ROW_ID

from .batch import Query, Row, fetch
from .pagination import IdRange

T = TypeVar("T", bound=Struct)


@dataclass(frozen=True, kw_only=True)
class Column:
    """The SQL of a field of a resource, and the function that converts its values (None: they are JSON already)."""

    sql: str
    of: str = ""
    """The column that an expression is, with its table, such as `traces_app_span.id`: otherwise it is masked like free text."""
    convert: Callable[[Sequence[Any]], list[Any]] | None = None
    """Converts the values of all rows at once, because a function call for each value costs more than the conversion."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Source(Generic[T]):
    """The table of a resource.

    A field that has the name of a column of the model is read from it, in the form of its kind. Every other field has to
    be one of `columns` or `made`, otherwise this fails at import.
    """

    resource: type[T]
    model: type[models.Model]
    table: str
    """The table of the model, with the alias that `columns` use, if any, and joins of other tables."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """The fields that are renamed or computed by SQL."""
    made: tuple[str, ...] = ()
    """The fields that are arguments of `make`."""
    key: str = "id"
    """The column that is compared with the ids; of a partitioned table `id` or `message_id`."""
    beside: tuple[str, ...] = ()
    """Columns that are read besides the fields. Ids are always read as text: hashing a UUID a thousand times takes Python
    longer than writing it out takes PostgreSQL."""
    order_by: str = ""
    partitioned: bool = True
    ranges: int = 0
    """The number of joins in `table` that have a lower and an upper bound of ids as parameters."""
    join: str = ""
    """Joins the rows to those of another source, by one such range of ids; see `query`."""
    read_columns: Mapping[str, Column] = field(init=False)
    """`columns`, and the columns of the model that have the name of a field."""

    def __post_init__(self) -> None:
        # The documented way to compute a field of a frozen dataclass.
        object.__setattr__(self, "read_columns", self._find_columns())

    def _find_columns(self) -> dict[str, Column]:
        stored = _columns_of(self.model)
        alias = self.alias and f"{self.alias}."
        columns, missing = dict(self.columns), []
        hints = get_type_hints(self.resource, include_extras=True)
        for name in self.resource.__struct_fields__:
            if name in self.columns or name in self.made:
                continue
            if name in stored:
                column = _column(f"{alias}{name}", stored[name], optional=_is_optional(hints[name]))
                # An id is read as text, which is an expression.
                is_id = isinstance(stored[name], models.UUIDField)
                columns[name] = replace(column, of=f"{self.model._meta.db_table}.{name}") if is_id else column
            else:
                missing.append(name)
        named = f"the Source of {self.resource.__name__} (table {self.model._meta.db_table})"
        if missing:
            raise TypeError(
                f"{self.model.__name__} has no column of the name of these fields of {self.resource.__name__}: {missing}. "
                f"Add the columns to the model, or the fields to `columns` or `made` of {named}."
            )
        if unknown := {*self.columns, *self.made}.difference(self.resource.__struct_fields__):
            raise TypeError(f"{self.resource.__name__} has no fields {sorted(unknown)}, which {named} lists.")
        return columns

    def selected(self, fields: frozenset[str] | None = None) -> str:
        """Return the columns of the SELECT in `query`."""
        return _plan(self, fields).selected

    def query(
        self, keys: Collection[str], fields: frozenset[str] | None = None, *, joined: Source[Any] | None = None
    ) -> Query:
        """Return the statement for the rows of `keys` (not empty).

        Each row has the key, `beside`, then one value for each field of the resource, in its order: None for fields that are
        no column, or not among `fields` (None: all of them). Then follow the columns of `joined`.
        """
        alias = self.alias and f"{self.alias}."
        conditions, parameters = f"{alias}{self.key} = ANY(%s::uuid[])", [f"{{{','.join(keys)}}}"]
        below: tuple[str, str] = ("", "")
        if self.partitioned and self.key == "id":
            conditions += f" AND {alias}id BETWEEN %s AND %s"
            parameters += [min(keys), max(keys)]
            periods = periods_of(keys)
            below = (str(periods.lower), str(periods.upper))
        elif self.partitioned:
            conditions += f" AND {alias}id >= %s AND {alias}id < %s"
            below = _range_below(keys)
            parameters += below
        selected, table, ranges = self.selected(fields), self.table, self.ranges
        if joined is not None:
            selected, table, ranges = f"{selected}, {joined.selected()}", f"{table} {joined.join}", ranges + 1
        order = f" ORDER BY {self.order_by}" if self.order_by else ""
        return Query(
            # All parts of the statement are constants of this project.
            sql=f"SELECT {selected} FROM {table} WHERE {conditions}{order}",  # noqa: S608
            parameters=[*below * ranges, *parameters],
            # Not for several messages: their index finds the rows, but one plan for any range would read the whole range.
            prepared=self.key == "id" or len(keys) == 1,
        )

    def read(self, db: Database, keys: Collection[str], fields: frozenset[str] | None = None) -> list[Row]:
        """Read the rows of `query`; none for no keys."""
        return fetch(db, [self.query(keys, fields)])[0] if keys else []

    def make(
        self, rows: Sequence[Row], fields: frozenset[str] | None = None, **others: Sequence[Any] | UnsetType
    ) -> list[T]:
        """Make the resources of rows of `query`, in their order.

        `others` has the values of the fields in `made`, one for each row (UNSET: for none). Fields that are not among `fields`
        are left out of the JSON.
        """
        # Column by column takes half the time of row by row, and a page has a thousand rows.
        return self.make_of(list(zip(*rows, strict=True)), fields, **others) if rows else []

    def make_of(
        self, columns: list[Sequence[Any]], fields: frozenset[str] | None = None, **others: Sequence[Any] | UnsetType
    ) -> list[T]:
        """Make the resources from columns of `query`, of at least one row."""
        plan = _plan(self, fields)
        if forgotten := plan.made.difference(others):
            raise TypeError(f"No values were passed for these fields of {self.resource.__name__}: {sorted(forgotten)}.")
        nothing = [UNSET] * len(columns[0])
        columns = columns[1 + len(self.beside) :]
        for at in plan.left_out:
            columns[at] = nothing
        for at, convert in plan.converts:
            columns[at] = convert(columns[at])
        for name, values in others.items():
            if values is not UNSET:
                columns[plan.places[name]] = values
        return list(map(self.resource, *columns))

    @property
    def alias(self) -> str:
        """The alias of the table, or ""."""
        return self.table.partition(" AS ")[2].partition("\n")[0]


def look_up(column: str, table: str, keys: Collection[str]) -> Query:
    """Return the statement for pairs of id and value of a column, for the rows of `keys` (not empty) in a partitioned table."""
    return Query(
        sql=f"SELECT id::text AS {ROW_ID}, {column} FROM {table} WHERE id = ANY(%s::uuid[]) AND id BETWEEN %s AND %s",  # noqa: S608
        parameters=[f"{{{','.join(keys)}}}", min(keys), max(keys)],
        prepared=True,
    )


def periods_of(keys: Collection[str]) -> IdRange:
    """Return the periods of `keys` (not empty), which prune the partitions of all rows below them.

    Whole periods, because for a tight range on rows newer than the last ANALYZE the planner expects one row, and reads all
    of the range instead of the few requested rows (30 ms a page instead of 4).
    """
    return _periods_between(min(keys), max(keys))


@lru_cache(maxsize=1024)
def _periods_between(first: str, last: str) -> IdRange:
    # Cached, because all tables of a page have the same first and last id.
    return IdRange(lower=UUID(first), upper=UUID(last)).widened_to_periods()


class _Plan(NamedTuple):
    """The columns for a set of fields."""

    selected: str
    places: Mapping[str, int]
    left_out: Sequence[int]
    made: frozenset[str]
    converts: Sequence[tuple[int, Callable[[Sequence[Any]], list[Any]]]]


@lru_cache(maxsize=256)
def _plan(source: Source[Any], fields: frozenset[str] | None) -> _Plan:
    places = {name: at for at, name in enumerate(source.resource.__struct_fields__)}
    wanted = {
        at: source.read_columns[name]
        for name, at in places.items()
        if name in source.read_columns and (fields is None or name in fields)
    }
    key = f"{source.alias}.{source.key}" if source.alias else source.key
    selected = [as_column(wanted[at].sql, wanted[at].of) if at in wanted else "NULL" for at in places.values()]
    return _Plan(
        selected=", ".join([_as_text(key, source.model._meta.db_table), *source.beside, *selected]),
        places=places,
        left_out=[at for at in places.values() if at not in wanted],
        made=frozenset(name for name in source.made if fields is None or name in fields),
        converts=[(at, column.convert) for at, column in wanted.items() if column.convert],
    )


def as_column(sql: str, column: str) -> str:
    """Return an expression that is a column in another form, named with its table (`traces_app_span.id`), so that masking knows it."""
    return f'{sql} AS "{column}"' if column else sql


def _as_text(key: str, table: str) -> str:
    """Return the SQL of a key as text; the id of a row is named so that its encrypted values are bound to it."""
    name = key.rpartition(".")[2]
    return f"{key}::text AS {ROW_ID}" if name == "id" else as_column(f"{key}::text", f"{table}.{name}")


def _range_below(keys: Collection[str]) -> tuple[str, str]:
    """Return the range of ids of all rows below messages: of one message exactly, of several their periods."""
    if len(keys) == 1:
        (key,) = keys
        time = key[:19]
        return f"{time}8000-000000000000", f"{time}c000-000000000000"
    periods = periods_of(keys)
    return str(periods.lower), str(periods.upper)


# --- Columns -----------------------------------------------------------------------------------------------------------


def _columns_of(model: type[models.Model]) -> dict[str, models.Field[Any, Any]]:
    """Return the kinds of the columns of a model: of a foreign key, the kind of the key."""
    columns: dict[str, models.Field[Any, Any]] = {}
    for field_ in model._meta.concrete_fields:
        kind: Any = field_
        while isinstance(kind, models.ForeignKey):
            kind = kind.target_field
        if isinstance(kind, models.GeneratedField):
            kind = kind.output_field
        columns[field_.column or ""] = kind
    return columns


def _is_optional(hint: Any) -> bool:
    """Return whether a field of a resource may be left out."""
    return UnsetType in get_args(get_args(hint)[0] if get_origin(hint) is Annotated else hint)


def _column(sql: str, kind: models.Field[Any, Any], *, optional: bool) -> Column:
    """Return the form in which a kind of column is answered; an `optional` one is left out when it has no value."""
    match kind:
        case models.JSONField() if optional:
            return json_if_known(sql) if kind.null else json_if_any(sql)
        case models.JSONField():
            return json(sql)
        case models.DateTimeField() if not optional:
            return instant(sql)
        case models.DecimalField():
            return Column(sql=f"trim_scale({sql})::text", convert=_raw_or_unset if optional else _raw)
        case models.UUIDField():
            return if_known(f"{sql}::text") if optional else Column(sql=f"{sql}::text")
        case models.TextField() | models.CharField() if optional and not kind.null:
            return text_if_any(sql)
        case (
            models.TextField()
            | models.CharField()
            | models.IntegerField()
            | models.FloatField()
            | models.BooleanField()
        ):
            return if_known(sql) if optional else Column(sql=sql)
        case ArrayField() if not optional:
            return Column(sql=sql)
        case _:
            raise TypeError(
                f"No form is known for {type(kind).__name__} columns such as {sql}: see _column in json_rows.py."
            )


def if_known(sql: str, *, of: str = "") -> Column:
    """Left out when NULL; 0 is a value."""
    return Column(sql=sql, of=of, convert=_unset_if_none)


def text_if_any(sql: str) -> Column:
    """Left out when empty."""
    return Column(sql=sql, convert=_unset_if_empty)


def instant(sql: str) -> Column:
    """A time as `timestamps.instant_text` writes it; null when NULL."""
    # Percent signs would have to be doubled: the statement has parameters.
    return Column(sql=f"""to_char({sql} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')""")


def json(sql: str) -> Column:
    """Any JSON; null when NULL. Django's connections give JSON as text."""
    return Column(sql=sql, convert=_raw)


def json_if_known(sql: str) -> Column:
    """Any JSON; left out when NULL."""
    return Column(sql=sql, convert=_raw_or_unset)


def json_if_any(sql: str) -> Column:
    """An object or a list; left out when NULL or empty."""
    return Column(sql=sql, convert=_raw_or_unset_if_empty)


def _raw(texts: Sequence[str | None]) -> list[Raw | None]:
    return [None if text is None else Raw(text) for text in texts]


def _raw_or_unset(texts: Sequence[str | None]) -> list[Raw | UnsetType]:
    return [UNSET if text is None else Raw(text) for text in texts]


def _raw_or_unset_if_empty(texts: Sequence[str | None]) -> list[Raw | UnsetType]:
    return [UNSET if text in (None, "{}", "[]") else Raw(text) for text in texts]


def _unset_if_none(values: Sequence[Any]) -> list[Any]:
    return [UNSET if value is None else value for value in values]


def _unset_if_empty(values: Sequence[Any]) -> list[Any]:
    return [value or UNSET for value in values]

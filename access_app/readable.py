"""Lists and figures of several databases: each is asked in turn about its projects, and the answers are merged.

Of a list each is asked for a page behind the same cursor, and the pages are merged by id. Ids carry their time and are unique
over all databases, so a cursor means the same in each. See docs/scaling.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from access_app.db import Database
from access_app.visibility import ProjectScope


class Keys(Protocol):
    """Rows that are filtered but not ordered: ListRows of the API, or a QuerySet of the admin."""

    def within(self, ids: Any) -> Keys:
        """Return those in a range of ids, an IdRange of messages_app.sql.pagination."""

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]: ...


Part = TypeVar("Part", bound=Keys)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Resource = TypeVar("Resource")
Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class ReadableRows(Generic[Part]):
    """The rows of a list in one or several databases, for `pagination.read_page`. If one of them fails, so does the list."""

    parts: Mapping[Database, Part]
    """The rows in each database."""
    found: dict[str, Database] = field(default_factory=dict)
    """In which of several databases each key was found."""

    def within(self, ids: Any) -> ReadableRows[Any]:
        return self.map(lambda part: part.within(ids))

    def map(self, change: Callable[[Part], Any]) -> ReadableRows[Any]:
        """Return the rows that `change` makes of those in each database."""
        return ReadableRows(parts={db: change(part) for db, part in self.parts.items()}, found=self.found)

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        """Return the first keys of all databases in one of the two orders. One statement in each; an offset is for one database."""
        assert not offset or len(self.parts) == 1, "pages by number are of one database"
        lists = self.each(lambda part: part.keys(newest_first=newest_first, limit=limit, offset=offset))
        return list(islice(self.in_order(lists, newest_first=newest_first), limit))

    def in_order(
        self, lists: Sequence[Sequence[Any]], *, newest_first: bool, text: Callable[[Any], str] = str
    ) -> Iterable[Any]:
        """Merge what `each` has found, in this order, and note where each key was found; `text` is that of its key."""
        if len(lists) > 1:
            for db, keys in zip(self.parts, lists, strict=True):
                self.found.update(dict.fromkeys(map(text, keys), db))
        return merge(*lists, reverse=newest_first)

    def each(self, ask: Callable[[Part], Answer]) -> list[Answer]:
        """Ask the rows in each database in turn."""
        return list(map(ask, self.parts.values()))

    def ask(self, keys: Sequence[Any], ask: Callable[[Database, list[Any]], Answer]) -> list[Answer]:
        """Return what `ask` answers about keys that were found, in each database about its own."""
        return [ask(db, own) for db, own in self._by_database(keys).items()]

    def _by_database(self, keys: Sequence[Any]) -> dict[Database, list[Any]]:
        """Divide keys that were found, or their texts, by their databases."""
        if len(self.parts) == 1:
            return {db: list(keys) for db in self.parts}
        divided: dict[Database, list[Any]] = {}
        for key in keys:
            divided.setdefault(self.found[str(key)], []).append(key)
        return divided

    def read(self, keys: Sequence[Any], read: Callable[[Database, list[Any]], Sequence[Resource]]) -> list[Resource]:
        """Return what `read` makes of keys that were found, or of their texts, in order. It may skip those that are gone by now."""
        made: dict[Any, Resource] = {}
        for db, own in self._by_database(keys).items():
            found = read(db, own)
            if len(self.parts) == 1:
                return list(found)
            if len(found) == len(own):
                made.update(zip(own, found, strict=True))
            else:
                # What is left need not say its id.
                made.update((key, one) for key in own for one in read(db, [key]))
        return [made[key] for key in keys if key in made]


@dataclass(frozen=True)
class Parts(Generic[Asked]):
    """Something in each database that has projects of a request, such as these projects. Whoever has it need not know how many there are."""

    by_db: Mapping[Database, Asked]

    def __iter__(self) -> Iterator[tuple[Database, Asked]]:
        return iter(self.by_db.items())

    def each(self, ask: Callable[[Database, Asked], Answer]) -> list[Answer]:
        """Return what `ask` answers in each database, given the part of it. One after the other."""
        return [ask(db, part) for db, part in self]

    @property
    def is_one(self) -> bool:
        return len(self.by_db) == 1

    @property
    def values(self) -> list[Asked]:
        return list(self.by_db.values())

    def of(self, db: Database) -> Parts[Asked]:
        """Return the part of one database."""
        return Parts({db: self.by_db[db]})

    def map(self, ask: Callable[[Database, Asked], Answer]) -> Parts[Answer]:
        """Return what `ask` answers, as parts of the same databases."""
        return Parts({db: ask(db, part) for db, part in self})

    def rows(self, find: Callable[[Database, Asked], Part]) -> ReadableRows[Part]:
        """Return the rows that `find` gives in each database. It may look up names there."""
        return ReadableRows(parts={db: find(db, part) for db, part in self})


Readable = Parts[ProjectScope]
"""The projects that somebody may read."""


def first_of(lists: Iterable[Iterable[Row]], most: int, key: Callable[[Row], Any]) -> list[Row]:
    """Return the first rows of several lists, each of which is in the order of `key`, and has its own first ones."""
    return list(islice(merge(*lists, key=key), most))

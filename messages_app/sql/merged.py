"""Lists and figures of several databases: each is asked in turn about its projects, and the answers are merged.

Of a list each is asked for a page behind the same cursor, and the pages are merged by id. Ids carry their time and are unique
over all databases, so a cursor means the same in each. See docs/project_databases.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any, Generic, TypeVar

from access_app.db import using
from access_app.visibility import ProjectScope

from .pagination import IdRange, Keys

Part = TypeVar("Part", bound=Keys)
Asked = TypeVar("Asked")
Answer = TypeVar("Answer")
Resource = TypeVar("Resource")
Row = TypeVar("Row")


@dataclass(frozen=True, kw_only=True)
class MergedRows(Generic[Part]):
    """The rows of a list in one or several databases, for `pagination.read_page`. If one of them fails, so does the list."""

    parts: Mapping[str, Part]
    """The rows in each database, by its alias."""
    found: dict[str, str] = field(default_factory=dict)
    """In which of several databases each key was found."""

    def within(self, ids: IdRange) -> MergedRows[Any]:
        return MergedRows(parts={alias: part.within(ids) for alias, part in self.parts.items()}, found=self.found)

    def keys(self, *, newest_first: bool, limit: int, offset: int = 0) -> list[Any]:
        """Return the first keys of all databases in one of the two orders. One statement in each; an offset is for one database."""
        assert not offset or len(self.parts) == 1, "pages by number are of one database"
        found = self.in_each(lambda part: part.keys(newest_first=newest_first, limit=limit, offset=offset))
        return list(islice(self.in_order(found, newest_first=newest_first), limit))

    def in_order(
        self, found: Mapping[str, Sequence[Any]], *, newest_first: bool, text: Callable[[Any], str] = str
    ) -> Iterable[Any]:
        """Merge what was found in each database, in this order, and note where each key was found; `text` is that of its key."""
        if len(found) > 1:
            for alias, keys in found.items():
                self.found.update(dict.fromkeys(map(text, keys), alias))
        return merge(*found.values(), reverse=newest_first)

    def in_each(self, ask: Callable[[Part], Answer]) -> dict[str, Answer]:
        """Ask the rows in each database in turn."""
        return in_each(self.parts, ask)

    def by_database(self, keys: Sequence[Any]) -> dict[str, list[Any]]:
        """Divide keys that were found, or their texts, by the aliases of their databases."""
        if len(self.parts) == 1:
            return {alias: list(keys) for alias in self.parts}
        divided: dict[str, list[Any]] = {}
        for key in keys:
            divided.setdefault(self.found[str(key)], []).append(key)
        return divided

    def read(self, keys: Sequence[Any], read: Callable[[list[Any]], Sequence[Resource]]) -> list[Resource]:
        """Return what `read` makes of keys that were found, or of their texts, in order. It may skip those that are gone by now."""
        made: dict[Any, Resource] = {}
        for alias, own in self.by_database(keys).items():
            with using(alias):
                found = read(own)
                if len(self.parts) == 1:
                    return list(found)
                if len(found) == len(own):
                    made.update(zip(own, found, strict=True))
                else:
                    # What is left need not say its id.
                    made.update((key, one) for key in own for one in read([key]))
        return [made[key] for key in keys if key in made]


def rows_in(scopes: Mapping[str, ProjectScope], find: Callable[[ProjectScope], Part]) -> MergedRows[Part]:
    """Return the rows of the projects in each database; `find` gives those of one, and may look up names there."""
    return MergedRows(parts=in_each(scopes, find))


def in_each(parts: Mapping[str, Asked], ask: Callable[[Asked], Answer]) -> dict[str, Answer]:
    """Return what `ask` answers in each database, given the part of it: its projects, or its rows. One after the other."""
    answers = {}
    for alias, part in parts.items():
        with using(alias):
            answers[alias] = ask(part)
    return answers


def first_of(lists: Iterable[Iterable[Row]], most: int, key: Callable[[Row], Any]) -> list[Row]:
    """Return the first rows of several lists, each of which is in the order of `key`, and has its own first ones."""
    return list(islice(merge(*lists, key=key), most))

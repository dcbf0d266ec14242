"""Hash chains of rows: append to one, and verify it.

A link has a number and a digest of its row and of the digest before it, so that no row can be changed, added, moved or removed
without the links after it showing that. Anchors show it for the newest: digests by number, kept where others cannot change them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from hmac import compare_digest
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
Digest = TypeVar("Digest", str, bytes)


class Flaw(Enum):
    GAP = auto()
    """Links before it are missing. Nothing else but the anchor is compared then."""
    NOT_NEXT = auto()
    """It has another digest of the link before it."""
    UNKNOWN = auto()
    """Its digest cannot be computed."""
    CHANGED = auto()
    """It has another digest than its row."""
    NOT_ANCHOR = auto()
    """It has another digest than its anchor."""


@dataclass(frozen=True)
class Head(Generic[Digest]):
    """A link that the next one follows. Before the first one it has the number 0."""

    number: int
    digest: Digest


@dataclass(frozen=True)
class Verified(Generic[Row, Digest]):
    """A row of a chain, and what is wrong with it."""

    row: Row
    before: Head[Digest]
    """The link before it as it is stored."""
    link: Head[Digest]
    flaws: list[Flaw]


@dataclass(frozen=True, kw_only=True)
class HashChain(Generic[Row, Digest]):
    """The columns of a table that make its rows links, and how their digests are computed."""

    number: str
    digest: str
    previous: str = ""
    """The column with the digest of the link before, if there is one."""
    start: Digest
    """The digest before the first link."""
    digest_of: Callable[[Row, Digest], Digest | None]
    """Return the digest of a row that follows a link with this digest; None if it cannot be computed here."""

    def head(self, row: Row | None) -> Head[Digest]:
        """Return the link that a row is; the one before the first for None."""
        if row is None:
            return Head(0, self.start)
        return Head(getattr(row, self.number) or 0, self._stored(row, self.digest))

    def append(self, row: Row, head: Head[Digest]) -> Head[Digest]:
        """Make a row the link after `head`, and return it. The caller saves the row, and is alone with the chain."""
        number = head.number + 1
        setattr(row, self.number, number)
        if self.previous:
            setattr(row, self.previous, head.digest)
        digest = self.digest_of(row, head.digest)
        assert digest is not None, "who appends can compute digests"
        setattr(row, self.digest, digest)
        return Head(number, digest)

    def verify(
        self, rows: Iterable[Row], head: Head[Digest], anchors: Mapping[int, str]
    ) -> Iterator[Verified[Row, Digest]]:
        """Yield the rows that follow `head`, in their order. Anchors in bytes are hexadecimal."""
        before = head
        for row in rows:
            link = self.head(row)
            flaw = self._flaw(row, before, link)
            flaws = [] if flaw is None else [flaw]
            text = link.digest if isinstance(link.digest, str) else link.digest.hex()
            if anchors.get(link.number) not in (None, text):
                flaws.append(Flaw.NOT_ANCHOR)
            yield Verified(row, before, link, flaws)
            before = link

    def _flaw(self, row: Row, before: Head[Digest], link: Head[Digest]) -> Flaw | None:
        if link.number != before.number + 1:
            return Flaw.GAP
        if self.previous and self._stored(row, self.previous) != before.digest:
            return Flaw.NOT_NEXT
        digest = self.digest_of(row, before.digest)
        if digest is None:
            return Flaw.UNKNOWN
        return None if compare_digest(_octets(digest), _octets(link.digest)) else Flaw.CHANGED

    def _stored(self, row: Row, column: str) -> Digest:
        value: Any = getattr(row, column)
        digest: Digest = bytes(value) if isinstance(self.start, bytes) else value
        return digest


def _octets(digest: str | bytes) -> bytes:
    return digest.encode() if isinstance(digest, str) else digest

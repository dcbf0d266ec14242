"""Hash chains of rows, whatever the table."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from access_app.hash_chain import Flaw, HashChain, Head


@dataclass
class Row:
    text: str
    number: int = 0
    before: str = ""
    digest: str = ""


def digest_of(row: Row, before: str) -> str | None:
    return None if row.text == "?" else sha256(f"{row.number} {row.text} {before}".encode()).hexdigest()


CHAIN: HashChain[Row, str] = HashChain(
    number="number", digest="digest", previous="before", start="", digest_of=digest_of
)


def chained(*texts: str) -> list[Row]:
    rows, head = [Row(text) for text in texts], CHAIN.head(None)
    for row in rows:
        head = CHAIN.append(row, head)
    return rows


def flaws(rows: list[Row], anchors: dict[int, str] | None = None) -> list[tuple[int, Flaw]]:
    found = CHAIN.verify(rows, CHAIN.head(None), anchors or {})
    return [(one.link.number, flaw) for one in found for flaw in one.flaws]


def test_appended_rows_are_intact() -> None:
    rows = chained("a", "b", "c")
    assert [row.number for row in rows] == [1, 2, 3]
    assert [row.before for row in rows] == ["", rows[0].digest, rows[1].digest]
    assert CHAIN.head(rows[2]) == Head(3, rows[2].digest)
    assert flaws(rows, {3: rows[2].digest}) == []


def test_rows_after_a_link_are_verified_from_there() -> None:
    rows = chained("a", "b", "c")
    assert [one.flaws for one in CHAIN.verify(rows[1:], CHAIN.head(rows[0]), {})] == [[], []]


def test_changed_row_is_found() -> None:
    rows = chained("a", "b", "c")
    rows[1].text = "x"
    assert flaws(rows) == [(2, Flaw.CHANGED)]


def test_removed_row_is_found() -> None:
    rows = chained("a", "b", "c")
    assert flaws([rows[0], rows[2]]) == [(3, Flaw.GAP)]


def test_replaced_row_is_found() -> None:
    rows = chained("a", "b", "c")
    rows[1].text = "x"
    rows[1].digest = digest_of(rows[1], rows[1].before) or ""
    assert flaws(rows) == [(3, Flaw.NOT_NEXT)]


def test_row_whose_digest_is_unknown_is_named() -> None:
    rows = chained("a", "b", "c")
    rows[2].text = "?"
    assert flaws(rows) == [(3, Flaw.UNKNOWN)]


def test_chain_made_anew_differs_from_its_anchor() -> None:
    assert flaws(chained("a", "x"), {2: chained("a", "b")[1].digest}) == [(2, Flaw.NOT_ANCHOR)]


def test_digests_in_bytes_are_compared_to_hexadecimal_anchors() -> None:
    @dataclass
    class Octets:
        number: int = 0
        digest: bytes | memoryview = b""

    octets: HashChain[Octets, bytes] = HashChain(
        number="number", digest="digest", start=b"", digest_of=lambda row, before: before + bytes([row.number])
    )
    row = Octets()
    assert octets.append(row, octets.head(None)) == Head(1, b"\1")
    row.digest = memoryview(b"\1")
    assert [one.flaws for one in octets.verify([row], octets.head(None), {1: "01"})] == [[]]
    assert [one.flaws for one in octets.verify([row], octets.head(None), {1: "02"})] == [[Flaw.NOT_ANCHOR]]

"""The grammar of a search, and its errors, which point at a character."""

from __future__ import annotations

import pytest

from access_app.errors import InvalidInput
from traces_app.queries.search.query import Term, parse


def test_words_phrases_fields_and_exclusions() -> None:
    query = parse('Refund "Connection  \\"Refused\\"" -retry tool:search -error:"time out" http://x 12:30')
    assert query.wanted == (
        Term(text="refund"),
        Term(text='connection  "refused"'),
        Term(text="search", field="tool"),
        Term(text="http://x"),
        Term(text="12:30"),
    )
    assert query.excluded == (Term(text="retry", excluded=True), Term(text="time out", field="error", excluded=True))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("x y", "Character 1: Give at least one term of two characters"),
        ("abc error:", "Character 11: A term is missing here."),
        ('abc -""', "Character 6: A term is missing here."),
        ('ab "cd', "Character 4: This quotation mark has no partner."),
        ("-abc", "Character 1: Give at least one term"),
        ("ab\0c", "Character 3: The character NUL"),
        ("ab " * 21, "Character 61: A search has at most 20 terms."),
        ("a" * 1_001, "Character 1001: A search has at most 1000 characters."),
        ("中", "Character 1: Give at least one term of two characters"),
    ],
)
def test_error_points_at_the_character(text: str, error: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse(text)
    assert str(caught.value).startswith(error)


@pytest.mark.parametrize("text", ["中文", "😀", ".*", "a|b", "%_", "\u202eabc", "- - -ab"[4:] + " cd", "𝔄𝔅"])
def test_odd_terms_are_texts(text: str) -> None:
    assert parse(text).wanted


def test_terms_of_one_character_come_after_those_of_the_index() -> None:
    assert [term.text for term in parse("1 = code").wanted] == ["code", "1", "="]

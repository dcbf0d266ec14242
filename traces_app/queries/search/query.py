"""The grammar of a search: words, "phrases", -without, field:word.

    refund "connection refused" -retry tool:search_orders error:timeout

All terms must be found, in any order, in any letter case; a term is found inside of words, too. One of them needs two
characters, which the index can find. A name before a colon is a field if it is one of `texts.FIELDS`, otherwise it is text like
any other, so that URLs and times can be searched as they are.
"""

from __future__ import annotations

from django.utils.translation import gettext as _
from msgspec import Struct

from access_app.errors import InvalidInput

from .grams import FEWEST_UNITS, fold, units_of
from .texts import FIELDS

MOST_CHARACTERS = 1_000
MOST_TERMS = 20


class Term(Struct, frozen=True, kw_only=True):
    text: str
    """Folded."""
    field: str | None = None
    """Only in this field."""
    excluded: bool = False
    """Whether a hit must not have the term."""

    @property
    def is_indexed(self) -> bool:
        return units_of(self.text) >= FEWEST_UNITS

    def is_in(self, field: str, folded: str) -> bool:
        return (self.field is None or self.field == field) and self.text in folded


class SearchQuery(Struct, frozen=True, kw_only=True):
    wanted: tuple[Term, ...]
    """At least one of them is indexed; those come first."""
    excluded: tuple[Term, ...] = ()


def parse(text: str) -> SearchQuery:
    """Parse what a person typed. Raise InvalidInput, which points at the character, for the field `q`."""
    if len(text) > MOST_CHARACTERS:
        raise _error(MOST_CHARACTERS, _("A search has at most %(most)d characters.") % {"most": MOST_CHARACTERS})
    terms: list[Term] = []
    at = 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        if len(terms) == MOST_TERMS:
            raise _error(at, _("A search has at most %(most)d terms.") % {"most": MOST_TERMS})
        term, at = _term(text, at)
        terms.append(term)
    wanted = sorted((term for term in terms if not term.excluded), key=lambda term: not term.is_indexed)
    if not wanted or not wanted[0].is_indexed:
        raise _error(0, _("Give at least one term of two characters, without a minus before it."))
    return SearchQuery(wanted=tuple(wanted), excluded=tuple(term for term in terms if term.excluded))


def _term(text: str, begin: int) -> tuple[Term, int]:
    """Return the term that begins here, and where it ends."""
    at = begin
    excluded = text[at] == "-" and at + 1 < len(text) and not text[at + 1].isspace()
    at += excluded
    field = next((name for name in FIELDS if text.startswith(f"{name}:", at)), None)
    at += 0 if field is None else len(field) + 1
    if text.startswith('"', at):
        word, end = _phrase(text, at)
    else:
        end = at
        while end < len(text) and not text[end].isspace():
            end += 1
        word = text[at:end]
    if "\0" in word:
        raise _error(at + word.index("\0"), _("The character NUL cannot be searched: no text has it."))
    if not word:
        raise _error(at, _("A term is missing here."))
    return Term(text=fold(word), field=field, excluded=excluded), end


def _phrase(text: str, begin: int) -> tuple[str, int]:
    """Return the phrase whose quotation mark is here, and where it ends. A backslash keeps the next quotation mark."""
    word = ""
    at = begin + 1
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in ('"', "\\"):
            word, at = word + text[at + 1], at + 2
        elif text[at] == '"':
            return word, at + 1
        else:
            word, at = word + text[at], at + 1
    raise _error(begin, _('This quotation mark has no partner. Write \\" for a quotation mark in a phrase.'))


def _error(at: int, message: str) -> InvalidInput:
    return InvalidInput(_("Character %(number)d: %(message)s") % {"number": at + 1, "message": message}, field="q")

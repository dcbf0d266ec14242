"""The first value of a document that its type does not allow: where it is, and what it may be, in words for people.

msgspec decides whether a document is valid. Its messages name types of Python and are not part of its API; what each field may
be is read with `msgspec.inspect` instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from msgspec import inspect

_VALUE_CHARACTERS = 100
_Instant = Annotated[datetime, msgspec.Meta(tz=True)]
# By the types of decoded JSON.
_FOUND: Mapping[type, str | Promise] = {
    type(None): "null",
    str: gettext_lazy("a string"),
    int: gettext_lazy("a number"),
    float: gettext_lazy("a number"),
    list: gettext_lazy("an array"),
    dict: gettext_lazy("an object"),
}
_EXPECTED: Mapping[type[inspect.Type], str | Promise] = {
    inspect.StrType: gettext_lazy("a string"),
    inspect.IntType: gettext_lazy("an integer"),
    inspect.FloatType: gettext_lazy("a number"),
    inspect.BoolType: gettext_lazy("true or false"),
    inspect.ListType: gettext_lazy("an array"),
    inspect.DictType: gettext_lazy("an object"),
    inspect.StructType: gettext_lazy("an object"),
}
_ALLOWS: Mapping[type[inspect.Type], tuple[type, ...]] = {
    inspect.StrType: (str,),
    inspect.DateTimeType: (str,),
    inspect.LiteralType: (str,),
    inspect.IntType: (int,),
    inspect.FloatType: (int, float),
    inspect.BoolType: (bool,),
    inspect.ListType: (list,),
    inspect.DictType: (dict,),
    inspect.StructType: (dict,),
    inspect.NoneType: (type(None),),
}


class Mismatch(NamedTuple):
    """A value that is not allowed."""

    path: str
    """From the document, such as `agent_steps[0].name`; "" is the document itself."""
    text: str
    """A sentence that says what is allowed."""


def first_mismatch(document: Any, type_: Any) -> Mismatch | None:
    """Return the first value in decoded JSON that `type_` does not allow; None if only msgspec knows what is wrong."""
    return next(_within(document, _info(type_), ""), None)


def wrong_word(value: Any, allowed: Iterable[str]) -> str:
    """Return the sentence that names the words that are allowed in place of a value."""
    shown = msgspec.json.encode(value).decode()[:_VALUE_CHARACTERS]
    return _("Invalid value %(value)s. Allowed: %(words)s.") % {"value": shown, "words": ", ".join(allowed)}


def join(path: str, inner: str) -> str:
    """Return the path of something below a path; either may be empty."""
    return f"{path}.{inner}" if path and inner and not inner.startswith("[") else path + inner


@cache
def _info(type_: Any) -> inspect.Type:
    return inspect.type_info(type_)


def _within(value: Any, info: inspect.Type, path: str) -> Iterator[Mismatch]:
    if type(value) not in _FOUND and not isinstance(value, bool):
        return  # made by us, of what was sent
    kinds = _kinds(info)
    fitting = [kind for kind in kinds if _allows(kind, value)]
    if not fitting:
        yield Mismatch(path, _wrong_type(kinds, value))
        return
    wrong = [mismatch for kind in fitting if (mismatch := next(_of_kind(value, kind, path), None))]
    if len(wrong) == len(fitting):
        yield wrong[0]


def _kinds(info: inspect.Type) -> list[inspect.Type]:
    """Return the kinds of values that a type allows, without what surrounds them."""
    if isinstance(info, inspect.Metadata):
        return _kinds(info.type)
    if isinstance(info, inspect.UnionType):
        return list(chain.from_iterable(map(_kinds, info.types)))
    return [info]


def _allows(kind: inspect.Type, value: Any) -> bool:
    # What is not listed may allow anything.
    return type(value) in _ALLOWS.get(type(kind), (type(value),))


def _of_kind(value: Any, kind: inspect.Type, path: str) -> Iterator[Mismatch]:
    """Yield what is wrong with a value of the right type."""
    match kind:
        case inspect.StructType():
            yield from _of_struct(value, kind, path)
        case inspect.ListType():
            yield from _of_length(value, kind.min_length, kind.max_length, path)
            for index, item in enumerate(value):
                yield from _within(item, kind.item_type, f"{path}[{index}]")
        case inspect.DictType():
            for name, item in value.items():
                yield from _within(item, kind.value_type, _below(path, name))
        case inspect.LiteralType():
            if value not in kind.values:
                yield Mismatch(path, wrong_word(value, map(str, kind.values)))
        case inspect.DateTimeType():
            if not _can_be(value, _Instant):
                yield Mismatch(path, _wrong_time())
        case inspect.StrType():
            yield from _of_length(value, kind.min_length, kind.max_length, path)
            if kind.pattern is not None and not _can_be(value, Annotated[str, msgspec.Meta(pattern=kind.pattern)]):
                yield Mismatch(path, _("Expected a string that matches %(pattern)s.") % {"pattern": kind.pattern})
        case inspect.IntType() | inspect.FloatType():
            yield from _of_number(value, kind, path)


def _of_struct(value: dict[str, Any], kind: inspect.StructType, path: str) -> Iterator[Mismatch]:
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in fields:
            yield from _within(item, fields[name].type, join(path, name))
        elif kind.forbid_unknown_fields:
            yield Mismatch(_below(path, name), _("There is no such field."))
    for name, field in fields.items():
        if field.required and name not in value:
            yield Mismatch(join(path, name), _("This field is required."))


def _below(path: str, name: str) -> str:
    """Return the path of a name that the sender has made up."""
    return join(path, name[:_VALUE_CHARACTERS])


def _of_length(value: Sequence[Any], least: int | None, most: int | None, path: str) -> Iterator[Mismatch]:
    if least is not None and len(value) < least:
        yield Mismatch(path, _("This must not be empty."))
    if most is not None and len(value) > most:
        if isinstance(value, str):
            yield Mismatch(path, _("Too long: at most %(most)d characters are allowed.") % {"most": most})
        else:
            yield Mismatch(path, _("Too many values: at most %(most)d are allowed.") % {"most": most})


def _of_number(value: float, kind: inspect.IntType | inspect.FloatType, path: str) -> Iterator[Mismatch]:
    if kind.ge is not None and value < kind.ge:
        yield Mismatch(path, _("Too small: the number must be at least %(least)s.") % {"least": kind.ge})
    if kind.le is not None and value > kind.le:
        yield Mismatch(path, _("Too large: the number must be at most %(most)s.") % {"most": kind.le})
    if kind.lt is not None and value >= kind.lt:
        yield Mismatch(path, _("Too large: the number must be below %(limit)s.") % {"limit": kind.lt})


def _wrong_type(kinds: Sequence[inspect.Type], value: Any) -> str:
    words = [str(word) for kind in kinds if isinstance(kind, inspect.LiteralType) for word in kind.values]
    if words:
        return wrong_word(value, words)
    known = {type(kind) for kind in kinds}
    if inspect.DateTimeType in known:
        return _wrong_time()
    if inspect.FloatType in known:
        known.discard(inspect.IntType)  # a number may be an integer, too
    expected = list(dict.fromkeys(str(text) for kind, text in _EXPECTED.items() if kind in known))
    return _("Expected %(expected)s, not %(found)s.") % {
        "expected": _one_of(expected, or_null=inspect.NoneType in known),
        "found": _found(value, of_integers=inspect.IntType in known),
    }


def _found(value: Any, *, of_integers: bool) -> str:
    """Return the type of a value, or itself if its type does not say what is wrong."""
    if isinstance(value, bool) or (isinstance(value, float) and of_integers):
        return msgspec.json.encode(value).decode()
    return str(_FOUND[type(value)])


def _one_of(words: Sequence[str], *, or_null: bool) -> str:
    if or_null:
        return _("%(words)s or null") % {"words": _(", ").join(words)}
    if len(words) < 2:
        return "".join(words)
    return _("%(first)s or %(last)s") % {"first": _(", ").join(words[:-1]), "last": words[-1]}


def _wrong_time() -> str:
    return _("Invalid time. Expected a time with a time zone, such as 2026-01-31T09:30:00Z.")


def _can_be(text: str, type_: Any) -> bool:
    try:
        msgspec.convert(text, type_)
    except msgspec.ValidationError:
        return False
    return True

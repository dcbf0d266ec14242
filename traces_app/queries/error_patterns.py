"""The pattern of an error: its text without what differs from one occurrence to the next.

PostgreSQL makes it, so that the same expression groups errors and finds the calls of a group. It takes 0.03 ms for an error of 150
characters, 0.2 ms for a traceback of 2 KB, and some 0.5 ms at most, whatever the error.
"""

from __future__ import annotations

from django.db.models import Case, Expression, ExpressionWrapper, F, Func, IntegerField, TextField, Value, When
from django.db.models.functions import MD5, Coalesce, Collate, Concat, Left, Length, Right
from django.db.models.lookups import GreaterThan, Regex, StartsWith

from access_app.encryption.envelope import PREFIX

ENCRYPTED = "(encrypted)"
"""The pattern of errors of encrypted projects."""
WHOLE = 1_000
"""Characters up to which an error is read as a whole; of a longer one its beginning and its last line count."""
BEGINNING = 500
"""Characters of the pattern of the beginning. Fewer than were read, because the length of the ids in them differs."""
_LAST_LINE = 500
_LOADED_FOR_ONE = 64
"""Bytes of an error that PostgreSQL loads in the time in which it makes the pattern of one character."""
_CUT = " … "
# Keys and values of JSON say what failed, so they are not taken for quoted values.
_JSON = r"""[{,]\s*("[^"]*"|'[^']*')\s*:"""
# Values without anything between them are one, because each replacement takes as long as some hundred characters.
_QUOTED = r"""(?:(?<!\w)'[^'\n]*'(?!\w)|(?<!\w)"[^"\n]*"(?!\w)|`[^`\n]*`|“[^”\n]*”|「[^」\n]*」)+"""
_NOTHING = r"^\M."
_BLANKS = "\t\n\v\f\r"
_KEPT = "\x01"
"""Marks a number that stays, before its first digit, until all others are replaced."""
# One expression for all numbers, with groups, would be shorter and take ten times as long: 1.8 ms for a list of 330 numbers.
_NUMBERS = (
    # A status or exit code tells errors apart, so it stays.
    (r"(?i)\m((?:http(?:/#)?|status|code)[^a-z0-9]{1,3})([0-9]{1,3}\M)", rf"\1{_KEPT}\2"),
    # Fractions, versions and times before words, because a part of them looks like one: 1.1102230246251565e-16.
    (rf"((?:^|[^\w{_KEPT}.,:-]|(?<![0-9])[.,:])-?|[.,:]-)[0-9]+(?:[.,:][0-9]+)+", r"\1#"),
    # Words of 12 characters with two digits: ids. Then hexadecimal ones, and what is left.
    (rf"(?i)(?<![\w{_KEPT}])(?=\w[a-z0-9_-]{{10,}}\w)[a-z_-]*[0-9][a-z_-]*[0-9][a-z0-9_-]*\M", "#"),
    (r"(?i)\m0x[0-9a-f]+\M", "#"),
    (rf"(?i)(?<![\w{_KEPT}])(?=[0-9a-f]{{6}})(?:[a-f]+[0-9]|[0-9]+[a-f])[0-9a-f]*\M", "#"),
    (rf"(?<![0-9{_KEPT}])[0-9]+(?:[.,:][0-9]+)*", "#"),
    (_KEPT, ""),
)
_RULES = (
    (" {2,}", " "),
    # Addresses of people.
    (r"[\w.+-]+@[A-Za-z0-9.-]+", "#"),
    # Of paths: the names of users and temporary files, segments with digits, queries.
    (r"""(/(?:home|Users|tmp)/|\\Users\\)[^/\\ :"']+""", r"\1#"),
    (r"""\?[\w.~%-]+=[^ "']*""", "?#"),
    (r"/[A-Za-z_.~-]*[0-9][\w.~-]*", "/#"),
    *_NUMBERS,
    # Lists of any length.
    (r"#(?:[, ]+#)+", "#"),
    (r"^ | $", ""),
)


def pattern_of(column: str) -> Expression:
    """Return the expression for the pattern of the error in `column`; "" for one that is missing."""
    # By the rules of "C" words are ASCII in every database, and Chinese text around a number is not a part of it.
    error = Collate(Coalesce(F(column), Value(""), output_field=TextField()), "C")
    last_line = Func(
        Right(error, _LAST_LINE),
        *(Value(r"\n\s*([^\n]+?)\s*$"), Value(1), Value(1), Value(""), Value(1)),
        function="regexp_substr",
        output_field=TextField(),
    )
    return Case(
        # Errors that PostgreSQL cannot read are one group of their tool.
        When(StartsWith(error, Value(PREFIX)), then=Value(ENCRYPTED)),
        When(
            GreaterThan(Length(error), WHOLE),
            then=Concat(
                Left(_without_variables(Left(error, WHOLE)), BEGINNING),
                Value(_CUT, output_field=TextField()),
                _without_variables(last_line),
                output_field=TextField(),
            ),
        ),
        default=_without_variables(error),
        output_field=TextField(),
    )


def group_of(column: str) -> Expression:
    """Return the expression for the id of the group of the error in `column`: 32 hexadecimal digits."""
    return MD5(pattern_of(column))


def cost_of(column: str) -> Expression:
    """Return the expression for the cost of the pattern of the error in `column`: about the number of characters that are read.

    It follows from the size of the value, which PostgreSQL knows without loading it.
    """
    size = Coalesce(Func(F(column), function="octet_length"), Value(0), output_field=IntegerField())
    read = Func(size, Value(WHOLE + _LAST_LINE), function="least", output_field=IntegerField())
    return ExpressionWrapper(read + size / Value(_LOADED_FOR_ONE), output_field=IntegerField())


def _without_variables(text: Expression) -> Expression:
    quoted = Case(When(Regex(text, _JSON), then=Value(_NOTHING)), default=Value(_QUOTED), output_field=TextField())
    result: Expression = _replaced(text, quoted, "'#'")
    blanks = (Value(_BLANKS), Value(" " * len(_BLANKS)))
    result = Func(result, *blanks, function="translate", output_field=TextField())
    for rule, replacement in _RULES:
        result = _replaced(result, Value(rule), replacement)
    return result


def _replaced(text: Expression, rule: Expression, replacement: str) -> Expression:
    return Func(text, rule, Value(replacement), Value("g"), function="regexp_replace", output_field=TextField())

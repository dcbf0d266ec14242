"""The pattern of an error: `Type: message`, without what differs from one occurrence to the next.

PostgreSQL makes it by one expression, `pattern_of`. That takes 0.03 to 0.06 ms for an error of 150 characters, 0.1 ms for a traceback
of 2 KB, and some 0.6 ms at most, whatever the error, besides the time to load it. So a reader of the log stores the patterns of
failed calls (traces_app.maintenance.error_patterns). `with_patterns` takes the stored one of each call, and makes that of a call
whose message has changed since, or which has none, so the answer is the same at any moment.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from typing import Any

from django.db.models import (
    Case,
    Exists,
    Expression,
    F,
    FilteredRelation,
    Func,
    IntegerField,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    TextField,
    Value,
    When,
)
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Collate, Concat, Left, Length, Right
from django.db.models.lookups import Contains, GreaterThan, Regex, StartsWith

from access_app.db import Database
from access_app.encryption.envelope import PREFIX
from messages_app.change_log import Reader, unread
from messages_app.sql.batch import Query
from messages_app.sql.pagination import EVERY_ID, IdRange
from traces_app.models import ToolCall, ToolResult

ENCRYPTED = "(encrypted)"
"""The pattern of errors of encrypted projects."""
WHOLE = 1_000
"""Characters up to which an error is read as a whole; of a longer one its beginning and its last line count."""
BEGINNING = 500
"""Characters of the pattern of the beginning. Fewer than were read, because the length of the ids in them differs."""
MOST_QUOTED = 60
"""Characters of a text in quotation marks that are words; a longer one, or one of several lines, is content."""
_LAST_LINE = 500
_LOADED_FOR_ONE = 64
"""Bytes of an error that PostgreSQL loads in the time in which it makes the pattern of one character."""
_CUT = " … "

# PostgreSQL keeps 32 compiled regular expressions for a connection; the 25 of a pattern fit, with some left for the rest of a query.

# --- Type and message -------------------------------------------------------------------------------------------------

_TYPE = r"(?:[A-Z_]\w*|[a-z]\w*error)"
_MODULE = r"(?:[A-Za-z_]\w*|<locals>)\."
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = '\n  File "'
# What follows the last _FRAME up to the exception: the rest of its line, and lines of code, which are indented.
_LAST_FRAME = rf"^[^\n]*\n(?:[ \t\r][^\n]*\n|\n)*(?=(?:{_MODULE})*{_TYPE}(?::|\s*$|\s*\n))"
# LangGraph adds the first to what the model reads, and the second to the exception.
_NOTE = r"\s*(?:Please fix your mistakes\.|During task with name '[^'\n]*' and id '[^'\n]*')\s*"
# A frame of JavaScript, Java or .NET, and what follows it.
_FRAMES = r"[ \t]+at [^\n]*(?:\)|:(?:line )?[0-9]+)(?: \{)?\s*(?:\n.*)?"
_REST = rf"\n(?:{_NOTE}|{_FRAMES})$"
# A message that is a literal of Python, or none: ValueError('no address'), KeyError: 'city', KeyError(7), TimeoutError().
_LITERAL = (
    r"^\s*(?:(?:Error: )*[\w.<>]+(?:: |\())?"
    r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?[0-9.]*),?\)?\s*$"""
)
_BEFORE_LITERAL = r"""^\s*(?:(?:Error: )*([\w.<>]+)(?:: |\())?["']?"""
_AFTER_LITERAL = r"""["']?,?\)?\s*$"""
_BACKSLASH = "\x02"
_BEFORE_TYPE = rf"^\s*(?:(?:Error: )+(?:{_MODULE})*(?=\w*(?:Error|Exception): )|(?:{_MODULE})+(?={_TYPE}(?:: |:?\s*$)))"

# --- Variables --------------------------------------------------------------------------------------------------------

# Keys and values of JSON say what failed, however long they are.
_JSON = r"""[{,]\s*("[^"]*"|'[^']*')\s*:"""
_MARKS = '"`“”‘’「」'
_APOSTROPHE = "\x03"
"""Stands for an apostrophe inside of a word until content is replaced."""
# Text between two quoted ones begins or ends with a blank or punctuation. Not a regular expression, because PostgreSQL makes a
# state of each character that it counts, for each error again: 2 ms for some.
_WITHOUT_CONTENT = (
    "(SELECT string_agg(CASE WHEN number > 1"
    " AND (length(part) > %(most)s OR strpos(part, E'\\n') > 0)"
    " AND strpos(E' \\t\\n,;:.)]}', left(part, 1)) = 0 AND right(part, 1) <> ' '"
    " THEN '#' ELSE part END, '''' ORDER BY number)"
    " FROM string_to_table(%(expressions)s, '''') WITH ORDINALITY AS parts (part, number))"
)
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
)
_PATH = r"(?:[A-Za-z]:\\|~?/|\.\.?/)"
_RULES = (
    (" {2,}", " "),
    # Addresses of people.
    (r"[\w.+-]+@[A-Za-z0-9.-]+", "#"),
    # Whole paths: in quotation marks, and as the message.
    (rf"'{_PATH}[^']*'", "'#'"),
    (rf"^(\w+: ){_PATH}\S*$", r"\1#"),
    # Of other paths: the names of users and temporary files, segments with digits, queries.
    (r"""(/(?:home|Users|tmp)/|\\Users\\)[^/\\ :"']+""", r"\1#"),
    (r"""\?[\w.~%-]+=[^ "']*""", "?#"),
    (r"/[A-Za-z_.~-]*[0-9][\w.~-]*", "/#"),
    *_NUMBERS,
    # Lists of any length.
    (r"#(?:[, ]+#)+", "#"),
    (r"^[: ]+|[: ]+$", ""),
)


class _Pattern(Func):
    """The pattern of the error in a column. Of this expression Django copies a thousand parts each time that a query names it, which
    takes 100 ms, so its SQL is made once."""

    output_field = TextField()

    def as_sql(self, compiler: Any, connection: Any, *_args: Any, **_extra: Any) -> Any:
        (column,) = self.get_source_expressions()
        name, _no_values = compiler.compile(column)
        sql, values = _sql_of_pattern(compiler)
        return sql.replace(_COLUMN, name), values


_COLUMN = "{column}"
_SQL: list[tuple[str, tuple[Any, ...]]] = []
"""The SQL of the pattern of _COLUMN and its values, once they are made."""


def _sql_of_pattern(compiler: Any) -> tuple[str, tuple[Any, ...]]:
    if not _SQL:
        expression = _pattern(RawSQL(_COLUMN, (), output_field=TextField()))  # noqa: S611 - our own text
        sql, values = compiler.compile(expression.resolve_expression(compiler.query))
        _SQL.append((sql, tuple(values)))
    return _SQL[0]


def pattern_of(column: str) -> Expression:
    """Return the expression for the pattern of the error in `column`; "" for one that is missing."""
    return _Pattern(F(column))


def _pattern(column: Expression) -> Expression:
    # By the rules of "C" words are ASCII in every database, and Chinese text around a number is not a part of it.
    error = Collate(Coalesce(column, Value(""), output_field=TextField()), "C")
    beginning = Left(error, WHOLE)
    after_frames = Left(_text("split_part", error, _FRAME, -1), WHOLE)
    last_line = _text("regexp_substr", Right(error, _LAST_LINE), r"\n\s*([^\n]+?)\s*$", 1, 1, "", 1)
    return Case(
        # Errors that PostgreSQL cannot read are one group of their tool.
        When(StartsWith(error, Value(PREFIX)), then=Value(ENCRYPTED)),
        When(
            Contains(beginning, Value(_TRACEBACK)) & Regex(after_frames, Value(_LAST_FRAME)),
            then=_without_variables(_message(_replaced(after_frames, _LAST_FRAME, "")), after_frames),
        ),
        When(
            GreaterThan(Length(error), WHOLE) & ~Regex(beginning, Value(_REST)),
            then=Concat(
                Left(_without_variables(beginning, beginning), BEGINNING),
                Value(_CUT, output_field=TextField()),
                _without_variables(last_line, last_line),
                output_field=TextField(),
            ),
        ),
        default=_without_variables(_message(beginning), beginning),
        output_field=TextField(),
    )


@cache
def form() -> str:
    """Return a digest of the expression `pattern_of`: patterns that another one has made are stored again."""
    query = Query.of(QuerySet(ToolResult).values_list(pattern_of("error")))
    return sha256(repr((query.sql, query.parameters)).encode()).hexdigest()[:16]


# --- Patterns of calls ------------------------------------------------------------------------------------------------


def with_patterns(calls: QuerySet[ToolCall], ids: IdRange = EVERY_ID) -> QuerySet[ToolCall]:
    """Return calls, which are in the months of `ids`, with the alias `pattern`: that of their error; "" without an error."""
    made = Subquery(_results(calls, ids).values(made=pattern_of("error")))
    return _with_stored(calls, ids).alias(
        pattern=Coalesce(Case(When(_IS_STORED, then=F("stored__pattern"))), made, Value(""), output_field=TextField())
    )


def with_costs(calls: QuerySet[ToolCall], ids: IdRange = EVERY_ID) -> QuerySet[ToolCall]:
    """Return calls, which are in the months of `ids`, with the alias `cost`: that of making their pattern; 0 if it is stored.

    It is about the number of characters that are read, and follows from the size of the value, which PostgreSQL knows without
    loading it.
    """
    size = Func(F("error"), function="octet_length", output_field=IntegerField())
    read = Func(size, Value(WHOLE + _LAST_LINE), function="least", output_field=IntegerField())
    made = Subquery(_results(calls, ids).values(cost=read + size / Value(_LOADED_FOR_ONE)))
    return _with_stored(calls, ids).alias(cost=Case(When(_IS_STORED, then=Value(0)), default=Coalesce(made, Value(0))))


_IS_STORED = Q(stored__pattern__isnull=False, has_changed=False)


def _with_stored(calls: QuerySet[ToolCall], ids: IdRange) -> QuerySet[ToolCall]:
    """Return calls with the relation `stored` to their stored patterns, and the alias `has_changed`: whether the reader has not read
    the last change of their message."""
    changed = unread(Database.of(calls), Reader.ERRORS).filter(message_id=OuterRef("message_id"))
    stored = FilteredRelation("error_pattern", condition=Q(**ids.periods_of("error_pattern__pk")))
    return calls.alias(stored=stored, has_changed=Exists(changed))


def _results(calls: QuerySet[ToolCall], ids: IdRange) -> QuerySet[ToolResult]:
    db = Database.of(calls)
    return db.rows(ToolResult.objects).filter(pk=OuterRef("pk"), **ids.periods_of("pk"))


# --- The expression ---------------------------------------------------------------------------------------------------


def _message(error: Expression) -> Expression:
    """Return the expression for an error without stack and notes, and without the quotation marks around its message."""
    lines = Contains(error, Value("\n"))
    message = Case(When(lines, then=_replaced(error, _REST, "")), default=error, output_field=TextField())
    literal = _replaced(_replaced(message, _BEFORE_LITERAL, r"\1: "), _AFTER_LITERAL, "")
    literal = _replaced(_text("replace", literal, r"\\", _BACKSLASH), r"\\[nrt]", " ")
    literal = _text("replace", _text("replace", literal, "\\", ""), _BACKSLASH, "\\")
    return Case(When(Regex(message, Value(_LITERAL)), then=literal), default=message, output_field=TextField())


def _without_variables(text: Expression, error: Expression) -> Expression:
    """Return the expression for the pattern of a text, which was made of `error`."""
    result = _text("translate", _replaced(text, _BEFORE_TYPE, ""), _MARKS, "'" * len(_MARKS))
    is_long = GreaterThan(Length(error), MOST_QUOTED) | Contains(error, Value("\n"))
    may_have_content = is_long & ~Regex(error, Value(_JSON))
    words = _replaced(result, r"(?<=\w)'(?=\w)", _APOSTROPHE)
    without_content = Func(words, template=_WITHOUT_CONTENT, most=MOST_QUOTED, output_field=TextField())
    result = Case(When(may_have_content, then=without_content), default=result, output_field=TextField())
    result = _text("translate", result, _BLANKS + _APOSTROPHE, " " * len(_BLANKS) + "'")
    for rule, replacement in _RULES:
        result = _replaced(result, rule, replacement)
    return _text("replace", result, _KEPT, "")


def _replaced(text: Expression, rule: str, replacement: str) -> Expression:
    return _text("regexp_replace", text, rule, replacement, "g")


def _text(function: str, text: Expression, *parameters: str | int) -> Expression:
    return Func(text, *map(Value, parameters), function=function, output_field=TextField())

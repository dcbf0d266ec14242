"""Masking rules of projects: checked when they are saved, and compiled into the rules that redaction applies.

Patterns are those of RE2, which take linear time whatever the text, so that no rule can stop a server. See docs/redaction.md.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Final

import re2
from django.core.exceptions import ValidationError
from django.utils.module_loading import import_string
from django.utils.translation import gettext as _

from access_app.conf import conf
from access_app.db import primary
from tracesite_sdk.redaction.presets import PRESETS
from tracesite_sdk.redaction.rules import DEFAULT_RULES, MARKER, FunctionRule, PathRule, Rules, Shape, key_named

from .audit.record import record
from .audit.trail import Actor
from .bounded_cache import BoundedCache
from .models import AuditAction, MaskingKind, MaskingMoment, MaskingRule, Project
from .program import program

logger = logging.getLogger(__name__)

MAX_AGE: Final = 5
"""Seconds after which a changed rule counts in every process."""
MOST_RULES: Final = 50
"""Rules of a project."""

_STEP: Final = re.compile(r"[^.\[\]\x00]{1,64}")
_AT_THE_EDGES: Final = re.compile(r"\\[AzZ]|\(\?[a-zA-Z]*-[a-zA-Z]*m")
"""Syntax that depends on where a whole text begins and ends; refused because texts are searched together first."""

_PARTS: Final = re.compile(
    r"""
    (?P<name>\(\?P?<\w+>)
    |(?P<edge>(?:\\[bB]|[\^$])(?:[*+?]\??|\{\d+(?:,\d*)?\}\??)*)
    |\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]
    """,
    re.VERBOSE | re.DOTALL,
)
"""Parts of a pattern of RE2 that need care: groups with names, conditions about edges, and what has their signs as characters."""

_LOOKS_AROUND: Final = ("(?=", "(?!", "(?<=", "(?<!")

RuleRow = tuple[str, str, str]
"""Name, kind and value of a rule."""
_CACHE: BoundedCache[int, Rules] = BoundedCache(10_000, max_age=MAX_AGE)


def masking_of(project_id: int) -> Rules:
    """Return what is redacted in a project: what always is, and its masking rules, at most MAX_AGE seconds old."""
    rules = _CACHE.get(project_id)
    if rules is None:
        rows = MaskingRule.objects.filter(project=project_id, enabled=True, when=MaskingMoment.STORE).values_list(
            "name", "kind", "value"
        )
        rules = compiled(tuple(rows), strict=False)
        _CACHE.put(project_id, rules)
    return rules


def forget_masking() -> None:
    """Read the rules again at the next write of this process, because they have changed."""
    _CACHE.clear()


def check_masking(kind: str, value: str) -> None:
    """Raise ValidationError for `value` unless a rule of this kind can have it."""
    try:
        rules = compiled((("check", kind, value),))
    except ValueError as error:
        raise ValidationError({"value": str(error)}) from error
    if kind == MaskingKind.PATTERN and rules.shapes[-1].pattern.search(""):
        raise ValidationError({"value": _("The pattern matches the empty text, so it would be found everywhere.")})


def stored_rules(project: Project, name: str | None) -> tuple[RuleRow, ...]:
    """Return the rules for new data of a project, or the one of this name, whether it is enabled or not."""
    rules = project.masking_rules.order_by("id")
    rules = rules.filter(name=name) if name else rules.filter(enabled=True, when=MaskingMoment.STORE)
    return tuple(rules.values_list("name", "kind", "value"))


def rules_named(project: Project, name: str | None) -> Rules:
    """Return what `stored_rules` finds, compiled. Raise ValueError, for people, if it finds none, or if one cannot be applied."""
    rows = stored_rules(project, name)
    if not rows:
        raise ValueError(f"{project.slug} has no such masking rule. List them with: {program()} list_masking_rules")
    return compiled(rows)


def unusable_rules() -> Iterator[tuple[MaskingRule, str]]:
    """Yield the enabled rules that cannot be applied, with the reason, for people."""
    rules = MaskingRule.objects.filter(enabled=True).select_related("project").order_by("project__slug", "id")
    # No other columns: `migrate` asks before it has made those of a new version.
    for rule in rules.only("name", "kind", "value", "project__slug"):
        try:
            compiled(((rule.name, rule.kind, rule.value),))
        except ValueError as error:
            yield rule, str(error)


@lru_cache(maxsize=256)
def compiled(rows: tuple[RuleRow, ...], *, strict: bool = True) -> Rules:
    """Return the rules that redaction applies. The same rows give the same object, because what is derived from it is cached.

    Raise ValueError, for people, for an invalid value. Not `strict`: what such a rule would hide is unknown, so it removes
    every value.
    """
    if not rows:
        return DEFAULT_RULES
    rules = replace(DEFAULT_RULES)
    patterns = _Together(
        tuple(value for _name, kind, value in rows if kind == MaskingKind.PATTERN and _is_pattern(value))
    )
    for row in rows:
        try:
            rules = _with_rule(rules, row, patterns)
        except ValueError:
            if strict:
                raise
            logger.exception("The masking rule %s cannot be applied, so it removes every value.", row[0])
            rules = replace(rules, functions=(*rules.functions, FunctionRule(row[0], _remove)))
    return rules


def _with_rule(rules: Rules, row: RuleRow, patterns: _Together) -> Rules:
    name, kind, value = row
    match kind:
        case MaskingKind.PRESET:
            if value not in PRESETS:
                raise ValueError(_("Unknown preset. Expected one of: %(presets)s.") % {"presets": ", ".join(PRESETS)})
            shapes = (replace(shape, name=name) for shape in PRESETS[value])
            return replace(rules, shapes=(*rules.shapes, *shapes))
        case MaskingKind.KEY:
            if value.isascii() and not DEFAULT_RULES.split(value):
                raise ValueError(_("A key needs a letter."))
            return replace(rules, keys=(replace(key_named(value), name=name), *rules.keys))
        case MaskingKind.PATTERN:
            shape = Shape(name, _Linear(value), quick=patterns)  # type: ignore[arg-type] # the part that is used
            return replace(rules, shapes=(*rules.shapes, shape))
        case MaskingKind.PATH:
            return replace(rules, paths=(*rules.paths, PathRule(name, _steps(value))))
        case MaskingKind.FUNCTION:
            return replace(rules, functions=(*rules.functions, FunctionRule(name, _function(value))))
        case _:
            raise ValueError(_("Unknown kind. Expected one of: %(kinds)s.") % {"kinds": ", ".join(MaskingKind.values)})


def _remove(path: str, value: Any) -> str:
    return MARKER


class _Linear:
    """A pattern of RE2 with the methods of re.Pattern that redaction uses."""

    def __init__(self, pattern: str) -> None:
        self._pattern = _compile(pattern)
        self.groupindex = self._pattern.groupindex

    def search(self, text: str) -> Any:
        return self._pattern.search(_encodable(text))

    def finditer(self, text: str) -> Iterator[Any]:
        return self._pattern.finditer(_encodable(text))  # type: ignore[no-any-return] # it has no types


@dataclass(frozen=True)
class _Together:
    """Check whether any of the patterns may match in texts that are joined, or written in JSON."""

    patterns: tuple[str, ...]

    def __call__(self, texts: bytes) -> bool:
        return self._all.search(texts) is not None

    @cached_property
    def _all(self) -> Any:
        return _compile("|".join(f"(?:{_loosened(pattern)})" for pattern in self.patterns).encode())


def _loosened(pattern: str) -> str:
    """Return a pattern that also matches wherever this one matches in a text, when the text stands in a longer one.

    It has no conditions about the edges of texts and words. RE2 skips to the literal that a pattern without them begins with,
    which makes a simple pattern ten times as fast.
    """

    def loosened(match: re.Match[str]) -> str:
        # Names of groups may occur once only.
        return "(?:" if match["name"] else "" if match["edge"] else match[0]

    return _PARTS.sub(loosened, pattern)


def _is_pattern(value: str) -> bool:
    try:
        _compile(value)
    except ValueError:
        return False
    return True


def _compile(pattern: str | bytes) -> Any:
    if isinstance(pattern, str) and _AT_THE_EDGES.search(pattern):
        raise ValueError(_("Write ^ and $ instead of \\A and \\z, and do not switch off (?m)."))
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(
            _("Not a valid pattern: %(reason)s")
            % {"reason": _in_words(reason.decode() if isinstance(reason, bytes) else reason)}
        ) from error


def _in_words(reason: str) -> str:
    """Return what is wrong with a pattern, of what RE2 says: `missing ): (a`, `invalid perl operator: (?=`."""
    fault, _colon, part = reason.partition(": ")
    match fault:
        case "missing )":
            return _("a ( is not closed.")
        case "unexpected )":
            return _("a ) closes nothing.")
        case "missing ]":
            return _("a [ is not closed.")
        case "no argument for repetition operator":
            return _("there is nothing before %(part)s that it could repeat.") % {"part": part}
        case "bad repetition operator":
            return _("%(part)s repeats a repetition.") % {"part": part}
        case "invalid repetition size":
            return _("%(part)s does not repeat from a smaller number to a greater one, at most 1,000 times.") % {
                "part": part
            }
        case "invalid escape sequence" if part[1:].isdigit():
            return _("%(part)s refers to what a group has found, which rules cannot.") % {"part": part}
        case "invalid perl operator" if part.startswith(_LOOKS_AROUND):
            return _("%(part)s looks at what stands before or after, which rules cannot.") % {"part": part}
        case _:
            return reason


def _encodable(text: str) -> str:
    # RE2 takes no lone surrogates. Each is one character before and after, so that places stay.
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path such as `customer.name`, `items[*].price` or `args.*.iban`. Raise ValueError."""
    steps: list[str] = []
    for part in path.removeprefix("$.").removeprefix(".").split("."):
        key, *indexes = part.split("[*]")
        if not _STEP.fullmatch(key) or any(indexes):
            raise ValueError(_("Not a path. Write keys and [*] for any index: args.customer.name, items[*].price."))
        steps += [key, *("[*]" for _index in indexes)]
    if steps[-1] in ("*", "[*]"):
        raise ValueError(_("A path must end with a key: args.customer.name, items[*].price."))
    return tuple(steps)


def _function(name: str) -> Callable[[str, Any], Any]:
    """Return a function that the settings allow. Raise ValueError."""
    allowed = conf.MASKING_FUNCTIONS
    if name not in allowed:
        raise ValueError(
            _("This function is not allowed. TRACESITE_MASKING_FUNCTIONS has: %(functions)s.")
            % {"functions": ", ".join(allowed) or "-"}
        )
    try:
        function = import_string(name)
    except ImportError as error:
        raise ValueError(str(error)) from error
    if not callable(function):
        raise ValueError(_("This is not a function."))
    return function  # type: ignore[no-any-return] # checked above


@primary.atomic()
def save_rule(
    project: Project,
    name: str,
    kind: str,
    value: str,
    *,
    when: str = MaskingMoment.STORE,
    enabled: bool = True,
    actor: Actor | None = None,
) -> MaskingRule:
    """Store a masking rule, in place of the one with this name. Raise ValidationError, by field."""
    rule = MaskingRule.objects.filter(project=project, name=name).first() or MaskingRule(project=project, name=name)
    is_new = rule.pk is None
    rule.kind, rule.value, rule.when, rule.enabled = kind, value, when, enabled
    rule.full_clean()
    check_masking(kind, value)
    if is_new and project.masking_rules.count() >= MOST_RULES:
        raise ValidationError({"name": _("A project may have %(count)d masking rules.") % {"count": MOST_RULES}})
    rule.save()
    record_rule(AuditAction.CREATE if is_new else AuditAction.CHANGE, actor, rule)
    primary.on_commit(forget_masking)
    return rule


@primary.atomic()
def delete_rule(project: Project, name: str, *, actor: Actor | None = None) -> bool:
    """Delete a masking rule. Return False if there is none with this name."""
    rule = MaskingRule.objects.filter(project=project, name=name).first()
    if rule is None:
        return False
    record_rule(AuditAction.DELETE, actor, rule)
    rule.delete()
    primary.on_commit(forget_masking)
    return True


def record_rule(
    action: AuditAction, actor: Actor | None, rule: MaskingRule, changes: Mapping[str, list[str]] | None = None
) -> None:
    """Record that a masking rule was made, changed or deleted; of a change what was there before, too, if that is known."""
    record(
        action,
        actor,
        project_id=rule.project_id,
        object_type="masking_rule",
        object_id=rule.pk,
        object_name=rule.name,
        detail={
            "kind": rule.kind,
            "value": rule.value,
            "when": rule.when,
            "enabled": rule.enabled,
            **({"changes": changes} if changes else {}),
        },
    )

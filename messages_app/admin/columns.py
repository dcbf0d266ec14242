"""The columns of a list: those in its address, otherwise the reader's own for this list, otherwise the usual ones."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from django.http import QueryDict
from django.utils.translation import gettext as _

from messages_app.models import ListColumns
from messages_app.safe_text import one_line

COLUMNS = "columns"
NAMES_CHARACTERS = 200


def columns_in(parameters: QueryDict) -> list[str]:
    """Return the names in the address of a list, known or not."""
    return [name for part in parameters.get(COLUMNS, "").split(",") if (name := part.strip())]


def in_order(names: Collection[str], known: Sequence[str]) -> list[str]:
    """Return those of `names` that are known, in the order of `known`. The first one names the row and is always shown."""
    return [name for name in known if name in names or name == known[0]]


def columns_of(
    list_name: str, user: Any, parameters: QueryDict, known: Sequence[str], usual: Sequence[str]
) -> list[str]:
    """Return the columns that a list shows. One query without columns in the address."""
    given = columns_in(parameters)
    if any(name in known for name in given):
        return in_order(given, known)
    own = ListColumns.objects.filter(owner=user, list_name=list_name).values_list("names", flat=True).first()
    return in_order(own if own is not None else usual, known)


def unknown_columns(parameters: QueryDict, known: Collection[str]) -> str:
    """Return a sentence about names in the address that the list does not have, or ""."""
    unknown = [name for name in columns_in(parameters) if name not in known]
    if not unknown:
        return ""
    words = {"names": one_line(", ".join(unknown), NAMES_CHARACTERS), "known": ", ".join(known)}
    return _("Unknown columns were left out: %(names)s. The list has: %(known)s.") % words


def keep_columns(list_name: str, user: Any, names: Iterable[str]) -> None:
    """Make the columns those that the reader sees when the address of the list has none."""
    ListColumns.objects.update_or_create(owner=user, list_name=list_name, defaults={"names": list(names)})


def forget_columns(list_name: str, user: Any) -> None:
    """Show the reader the usual columns again."""
    ListColumns.objects.filter(owner=user, list_name=list_name).delete()

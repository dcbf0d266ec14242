"""What a saved form has changed of a setting, for its entry in the audit log: each field with its value before and after."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from django.db import models
from django.forms import BaseModelForm, ModelChoiceField, PasswordInput

from .trail import Actor, note_objects

LONGEST: Final = 200
"""Characters of a value in an entry."""

Changes = dict[str, list[str]]
"""Before and after, by the name of the field."""


def changes_of(form: BaseModelForm[Any]) -> Changes:
    """Return what a valid form has changed, without passwords. A key to another row is read as the name of the row."""
    found: Changes = {}
    for name in form.changed_data:
        field = form.fields[name]
        if isinstance(field.widget, PasswordInput):
            continue
        before = form.get_initial_for_field(field, name)
        if isinstance(field, ModelChoiceField) and isinstance(before, int):
            before = field.queryset.filter(pk=before).first() if field.queryset is not None else before
        pair = [_in_words(before), _in_words(form.cleaned_data.get(name))]
        if pair[0] != pair[1]:
            found[name] = pair
    return found


def note_changes(actor: Actor | None, setting: models.Model, form: BaseModelForm[Any]) -> None:
    """Note for the entry of the request what a form has changed of a stored setting, or has made it with, and its name."""
    if actor is not None:
        trail = actor.trail
        trail.changes, trail.object_name, trail.is_saved = changes_of(form), str(setting), True
        note_objects(actor, setting._meta.model_name or "", [setting.pk])


def _in_words(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {part}" for name, part in value.items())[:LONGEST]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return ", ".join(map(str, value))[:LONGEST]
    return str(value)[:LONGEST]

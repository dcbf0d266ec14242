"""A field of a form with suggestions of the browser: something else may be typed, and without them the field works as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

MOST_SUGGESTED: Final = 200
"""Suggestions of a field, which are sent with its page."""

Suggestion = tuple[str, str]
"""A value, and what it is, "" if the value says it."""


class SuggestingInput(forms.TextInput):
    suggest: Callable[[], Sequence[Suggestion]] = staticmethod(tuple)
    """Called when the field is rendered, because pages make forms without showing them."""

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        listed = f"{name}-suggestions"
        field = super().render(name, value, {**(attrs or {}), "list": listed}, renderer)
        return format_html("{}{}", field, datalist(listed, self.suggest()))


def datalist(key: str, suggestions: Sequence[Suggestion]) -> SafeString:
    """Return the element with this id that suggests the first MOST_SUGGESTED of these."""
    options = format_html_join("", '<option value="{}">{}</option>', suggestions[:MOST_SUGGESTED])
    return format_html('<datalist id="{}">{}</datalist>', key, options)

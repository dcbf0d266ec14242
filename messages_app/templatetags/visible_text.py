"""Template filters for showing trace content; see messages_app.visible_text."""

from __future__ import annotations

from django import template

from messages_app import visible_text

register = template.Library()

register.filter("visible", visible_text.visible)
register.filter("duration", visible_text.duration)
register.filter("message_duration", visible_text.message_duration)
register.filter("one_line", visible_text.one_line)
register.filter("moment", visible_text.moment)

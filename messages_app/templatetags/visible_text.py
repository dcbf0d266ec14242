"""Template filters for showing trace content; see messages_app.safe_text."""

from __future__ import annotations

from typing import Literal

from django import template

from access_app.mounting import base_path
from messages_app import safe_text
from messages_app.admin.time_zones import entry_of, with_zone
from messages_app.markdown import Prose, Shown, plain

register = template.Library()

register.filter("visible", safe_text.visible)
register.filter("marked", safe_text.marked)
register.filter("cost", safe_text.cost)
register.filter("total_cost", safe_text.total_cost)
register.filter("total_cost_in_words", safe_text.total_cost_in_words)
register.filter("share", safe_text.share)
register.filter("duration", safe_text.duration)
register.filter("message_duration", safe_text.message_duration)
register.filter("one_line", safe_text.one_line)
register.filter("age", safe_text.age)
register.filter("moment", safe_text.moment)
register.filter("ago", safe_text.ago)
register.filter("time_entry", entry_of)
register.filter("with_zone", with_zone)


@register.simple_tag
def shown(value: safe_text.Excerpt, prose: Prose | Literal[""]) -> Shown:
    """Return a value for display: as Markdown if a template passes the `Prose` of its page, otherwise as it is stored."""
    return prose.shown(value) if prose else plain(value)


@register.simple_tag
def live_stream() -> str:
    """Return the address of streams of events, which tracesite.live serves outside of Django's URLs."""
    return f"{base_path()}live/sse"

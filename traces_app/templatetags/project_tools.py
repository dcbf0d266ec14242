"""The tools of a project for the template of its page, whose admin knows no traces."""

from __future__ import annotations

from typing import Any, Final

from django import template

from access_app.audit.trail import actor_of
from access_app.models import Project
from access_app.request_database import database_of
from access_app.suggestions import MOST_SUGGESTED
from messages_app.safe_text import is_plain
from traces_app.models import Tool

LONGEST: Final = 200
"""Characters of a name that is suggested."""

register = template.Library()


@register.simple_tag(takes_context=True)
def tools_of(context: dict[str, Any], project: Project) -> list[str]:
    """Return the names of the first MOST_SUGGESTED tools of a project, without very long ones and those with hidden characters."""
    tools = database_of(project.pk, actor_of(context["request"])).rows(Tool.objects)
    named = tools.filter(project=project.pk).exclude(name="").order_by("name").values_list("name", flat=True)
    return [name for name in named[:MOST_SUGGESTED] if len(name) <= LONGEST and is_plain(name)]

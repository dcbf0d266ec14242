"""The tools of a project, the presets of masking, and what its rules remove next, for the template of its page, whose admin knows no
traces."""

from __future__ import annotations

from typing import Any, Final

from django import template
from django.utils import timezone

from access_app.audit.trail import actor_of
from access_app.models import Project
from access_app.request_database import database_of
from access_app.suggestions import MOST_SUGGESTED
from messages_app.models import Message
from messages_app.safe_text import is_plain
from messages_app.sql.partitions import periods_of
from traces_app.maintenance.retention import next_removals
from traces_app.models import JobRun, Tool
from tracesite_sdk.redaction.presets import PRESETS

LONGEST: Final = 200
"""Characters of a name that is suggested."""

register = template.Library()


@register.simple_tag(takes_context=True)
def tools_of(context: dict[str, Any], project: Project) -> list[str]:
    """Return the names of the first MOST_SUGGESTED tools of a project, without very long ones and those with hidden characters."""
    tools = database_of(project.pk, actor_of(context["request"])).rows(Tool.objects)
    named = tools.filter(project=project.pk).exclude(name="").order_by("name").values_list("name", flat=True)
    return [name for name in named[:MOST_SUGGESTED] if len(name) <= LONGEST and is_plain(name)]


@register.simple_tag(takes_context=True)
def next_removal_of(context: dict[str, Any], project: Project) -> dict[str, Any]:
    """Return what goes next by the rules of a project: its `removal` by age, None without days; the days in its trash; and the time `at`
    which the job removes it, None if it is due."""
    db = database_of(project.pk, actor_of(context["request"]))
    removals = (
        next_removals(db, periods_of(db, Message._meta.db_table), pk=project.pk) if project.retention_days else []
    )
    run = db.rows(JobRun.objects).filter(pk="purge", next_at__gt=timezone.now()).first()
    return {
        "removal": next(iter(removals), None),
        "trash_days": project.days_in_trash(),
        "at": run and run.next_at,
    }


@register.simple_tag
def masking_presets() -> list[str]:
    """Return the names of the presets of masking rules."""
    return list(PRESETS)

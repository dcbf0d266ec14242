"""What is set on a project in a few words, for the headings of the closed sections of its page."""

from __future__ import annotations

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .conf import conf
from .models import Project


def words_of_sampling(project: Project) -> str:
    """Return what recorders are asked to leave out: "10% of sessions · all slower than 500 ms"."""
    asked = project.sampling()
    if asked is None:
        return _("as each recorder is set")
    parts = []
    if asked["rate"] is not None:
        parts.append(_("%(percent)s%% of sessions") % {"percent": f"{100 * asked['rate']:g}"})
    if count := len(asked["tools"]):
        words = ngettext("%(count)d tool with its own rate", "%(count)d tools with their own rates", count)
        parts.append(words % {"count": count})
    if asked["keep_slower_than_ms"] is not None:
        parts.append(_("all slower than %(number)s ms") % {"number": f"{asked['keep_slower_than_ms']:,}"})
    if not asked["keep_errors"]:
        parts.append(_("failures are not kept"))
    return " · ".join(parts)


def words_of_retention(project: Project) -> str:
    """Return how long data is kept: "kept: 90 days · in the trash: 30 days · 2 exceptions"."""
    parts = [
        _("kept: %(days)s") % {"days": _days(project.retention_days)},
        _("in the trash: %(days)s") % {"days": _days(project.days_in_trash())},
    ]
    exceptions = (*project.keep_tags, *project.keep_statuses, *project.keep_scores)
    if count := len(exceptions) + project.keep_pinned:
        parts.append(ngettext("%(count)d exception", "%(count)d exceptions", count) % {"count": count})
    return " · ".join(parts)


def words_of_empty_trash_days() -> str:
    """Say what days in the trash mean, with those of the site, which a project without its own has."""
    text = _("What was deleted longer ago is removed for good. Empty: as for all projects of this site, now %(days)s.")
    return text % {"days": _days(conf.TRASH_DAYS or None)}


def _days(days: int | None) -> str:
    if days is None:
        return _("for ever")
    return ngettext("%(number)s day", "%(number)s days", days) % {"number": f"{days:,}"}

"""Error pages in the frame of the admin, so that staff who meet one can go on from there.

The pages for 500 and 503 are not among them: they must work while the database does not.
"""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

NOT_FOUND = (_("Page not found"), _("There is no page at this address. It may have been deleted."))
FORBIDDEN = (
    _("No permission"),
    _(
        "Your role does not allow this, or you have no access to this page. An owner of the project or an administrator can give "
        "you another role."
    ),
)
INVALID = (_("Invalid request"), _("The server could not process this request. Go back and try again."))
EXPIRED_FORM = (
    _("This form has expired"),
    _(
        "Nothing was saved: you logged in or out after you opened the form, or your browser blocks "
        "cookies. Go back, reload the page and submit the form again."
    ),
)


def error_page(request: HttpRequest, status: int, words: tuple[Promise, Promise]) -> HttpResponse:
    """Return an error page with the title and text in `words`."""
    title, text = words
    # Middleware may refuse a request before AuthenticationMiddleware has seen it.
    has_permission = hasattr(request, "user") and admin.site.has_permission(request)
    frame = admin.site.each_context(request) if has_permission else {"has_permission": False}
    return render(request, "error.html", {**frame, "title": title, "text": text, "is_error": True}, status=status)

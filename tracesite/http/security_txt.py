"""The view of `/.well-known/security.txt` (RFC 9116): where to report a weakness of this site."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from access_app.conf import conf

from .errors import error_response

VALID_FOR = timedelta(days=180)
"""How long a copy counts; RFC 9116 recommends less than a year."""


@csrf_exempt  # nothing changes here, and a POST is answered 405 instead of a missing cookie
@require_safe
def security_txt(request: HttpRequest) -> HttpResponse:
    """Return the contacts of TRACESITE_SECURITY_CONTACT; without that setting the address is 404."""
    if not conf.SECURITY_CONTACT:
        message = _("This site names no contact. Set TRACESITE_SECURITY_CONTACT to do so.")
        return error_response(request, 404, "no_security_contact", message)
    expires = (timezone.now() + VALID_FOR).replace(microsecond=0)
    lines = [
        *(f"Contact: {contact}" for contact in conf.SECURITY_CONTACT),
        f"Expires: {expires:%Y-%m-%dT%H:%M:%SZ}",
        "Preferred-Languages: en, zh",
    ]
    if request.is_secure():  # the RFC allows no other addresses
        lines.append(f"Canonical: {request.build_absolute_uri(request.path)}")
    return HttpResponse("".join(f"{line}\n" for line in lines), content_type="text/plain; charset=utf-8")

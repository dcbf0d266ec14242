"""The WSGI entry point: REST, admin and ingest."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.db import DEFAULT_DB_ALIAS, connections

from .http.form_bodies import with_bounded_forms

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tracesite.settings")


class Application(WSGIHandler):
    """Django's own, without what that does around requests for what there is none of here: names of scripts, caches that
    have to be closed, more than one database, others who listen. Of a small answer's calls of functions that was a sixth.
    """

    def __call__(  # type: ignore[override]  # the stubs know of no more than Django's own answers
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        if settings.DEBUG:
            return super().__call__(environ, start_response)
        connection = connections[DEFAULT_DB_ALIAS]
        connection.close_if_unusable_or_obsolete()
        response = self.get_response(self.request_class(environ))
        # As they are kept: to read them as one reads a dict takes four calls for each.
        headers = list(response.headers._store.values())
        headers += [("Set-Cookie", cookie.output(header="")) for cookie in response.cookies.values()]
        start_response(f"{response.status_code} {response.reason_phrase}", headers)
        if response.streaming:
            return response
        # granian sends a list at once, and passes anything else on piece by piece, for whose head, body and end another
        # thread wakes up each time.
        pieces = list(response)
        response.close()
        connection.close_if_unusable_or_obsolete()
        return pieces


django.setup(set_prefix=False)
application = with_bounded_forms(Application())

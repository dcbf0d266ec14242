"""The WSGI entry point: REST, admin and ingest."""

from __future__ import annotations

import os

from django.core.wsgi import get_wsgi_application

from .http.form_bodies import with_bounded_forms

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tracesite.settings")
application = with_bounded_forms(get_wsgi_application())

"""App configuration."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AccessConfig(AppConfig):
    name = "access_app"
    verbose_name = _("Access")

    def ready(self) -> None:
        # Imported here, because they need the models.
        from access_app.audit import logins
        from access_app.db.base import DatabaseWrapper
        from access_app.encryption.master import is_configured
        from access_app.encryption.reading import opened_rows, switch_on

        logins.connect()
        DatabaseWrapper.opened_rows = staticmethod(opened_rows)
        if is_configured():
            switch_on()

"""Registers the checks of Tracesite with Django."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class TracesiteConfig(AppConfig):
    name = "tracesite"

    def ready(self) -> None:
        from . import checks

        register(checks.check_settings)
        register(checks.check_deployment, deploy=True)
        register(checks.check_database, Tags.database)

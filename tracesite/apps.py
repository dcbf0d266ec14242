"""Registers the checks of Tracesite with Django."""

from django.apps import AppConfig
from django.core.checks import Tags, register


class TracesiteConfig(AppConfig):
    name = "tracesite"

    def ready(self) -> None:
        from . import system_checks

        register(system_checks.check_settings)
        register(system_checks.check_deployment, deploy=True)
        register(system_checks.check_database, Tags.database)
        register(system_checks.check_masking_rules, Tags.database)
        register(system_checks.check_data_keys, Tags.database)

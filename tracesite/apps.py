"""Registers the checks of Tracesite with Django."""

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import Tags, register


class TracesiteConfig(AppConfig):
    name = "tracesite"

    def ready(self) -> None:
        from . import project_checks, system_checks

        register(system_checks.check_settings)
        register(project_checks.check_project)
        if settings.ROOT_URLCONF == "tracesite.site_urls":
            # They name the variables of the site; how a project is deployed, Django's own checks ask.
            register(system_checks.check_deployment, deploy=True)
        register(system_checks.check_database, Tags.database)
        register(system_checks.check_earlier_migrations, Tags.database)
        register(system_checks.check_project_databases, Tags.database)
        register(system_checks.check_masking_rules, Tags.database)
        register(system_checks.check_data_keys, Tags.database)
        register(system_checks.check_seal_key, Tags.database)

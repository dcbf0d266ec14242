"""The app of what agents did."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class TracesAppConfig(AppConfig):
    name = "traces_app"
    verbose_name = _("Traces")

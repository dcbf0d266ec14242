"""The app of conversations."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class MessagesAppConfig(AppConfig):
    name = "messages_app"
    verbose_name = _("Conversations")

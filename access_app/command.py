"""The base of our commands."""

from __future__ import annotations

from django.core.management.base import BaseCommand


class TracesiteCommand(BaseCommand):
    """Command that starts at once: the checks of the site import all views, and `check` and `serve` run them."""

    requires_system_checks = []

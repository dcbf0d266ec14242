"""Projects, and the API keys that open them."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Scope(models.TextChoices):
    """What a request may do; one does not include another."""

    READ = "read", _("read")
    WRITE = "write", _("write")
    DELETE = "delete", _("delete and restore")


class Project(models.Model):
    """The isolation boundary: every row of the other apps belongs to exactly one project."""

    slug = models.SlugField(
        _("slug"),
        max_length=64,
        unique=True,
        help_text=_("The project's name in commands and URLs: letters, digits, hyphens and underscores."),
    )
    name = models.CharField(_("name"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)

    class Meta:
        verbose_name = _("project")
        verbose_name_plural = _("projects")
        ordering: ClassVar = ["slug"]

    def __str__(self) -> str:
        return self.slug


class ApiKeyQuerySet(models.QuerySet["ApiKey"]):
    def active(self, now: dt.datetime | None = None) -> ApiKeyQuerySet:
        """Keys that open their project at `now` (default: the present): not revoked, not expired."""
        return self.filter(Q(expires_at=None) | Q(expires_at__gt=now or timezone.now()), revoked_at=None)

    def not_used_since(self, moment: dt.datetime) -> ApiKeyQuerySet:
        """Keys whose last recorded use lies before `moment`, or that were never used."""
        return self.filter(Q(last_used_at=None) | Q(last_used_at__lt=moment))


class ApiKey(models.Model):
    """A credential of one project. The token itself is not stored: `keys.create_key` shows it once."""

    project = models.ForeignKey(Project, on_delete=models.CASCADE, related_name="api_keys", verbose_name=_("project"))
    name = models.CharField(_("name"), max_length=200, help_text=_("What uses the key, for whoever revokes it."))
    # The start of the token, enough to recognise a key in a list and too little to guess the rest.
    prefix = models.CharField(_("begins with"), max_length=8, editable=False)
    # SHA-256 without salt or stretching: the token has 256 random bits, nothing can be tried out.
    digest = models.CharField(_("digest"), max_length=64, unique=True, editable=False)
    scopes = ArrayField(models.CharField(max_length=16, choices=Scope.choices), verbose_name=_("scopes"))
    created_at = models.DateTimeField(_("created at"), default=timezone.now, editable=False)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        editable=False,
        on_delete=models.SET_NULL,
        related_name="+",
        verbose_name=_("created by"),
    )
    # Exact to a minute: see keys.find_key.
    last_used_at = models.DateTimeField(_("last used at"), null=True, blank=True, editable=False)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    revoked_at = models.DateTimeField(_("revoked at"), null=True, blank=True, editable=False)

    objects = ApiKeyQuerySet.as_manager()

    class Meta:
        verbose_name = _("API key")
        verbose_name_plural = _("API keys")
        ordering: ClassVar = ["id"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def status(self, now: dt.datetime | None = None) -> str:
        """active, expired or revoked at `now`, as a machine word."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and self.expires_at <= (now or timezone.now()):
            return "expired"
        return "active"

"""The admin of sessions and messages. Django loads `model_admins` by importing this package."""

from . import audit_admin, model_admins  # noqa: F401  # its import registers the pages

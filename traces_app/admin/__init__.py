"""The admin of runs, tools and calls. Django loads `model_admins` by importing this package."""

from . import model_admins  # noqa: F401  # its import registers the pages

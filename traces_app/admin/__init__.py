"""The admin of runs, tools, calls and prices. Django loads them by importing this package."""

from . import model_admins, prices  # noqa: F401  # their import registers the pages

"""The admin of runs, tools, calls and prices. Django loads them by importing this package."""

from . import call_admin, message_admin, prices, session_admin, tool_admin  # noqa: F401  # their import registers the pages

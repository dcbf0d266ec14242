"""The admin of runs, tools, calls, prices and jobs. Django loads them by importing this package."""

from . import call_admin, jobs, masking_page, message_admin, prices, session_admin, tool_admin  # noqa: F401  # their import registers the pages

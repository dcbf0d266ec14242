#!/usr/bin/env python3
"""Runs a Tracesite command; starts the embedded PostgreSQL first when DATABASE_URL is not set."""

import os
import sys

from tracesite.serving import embedded_postgres


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tracesite.settings")
    if sys.stderr.isatty() and sys.argv[1:2] != ["serve"]:
        # What a command reports is for whoever typed it; the lines of the log, about each batch, are for files.
        os.environ.setdefault("TRACESITE_LOG_LEVEL", "WARNING")
    try:
        embedded_postgres.ensure()
        run(sys.argv)
    except embedded_postgres.EmbeddedError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as shells have it


def run(arguments: list[str]) -> None:
    """Runs a command. What an operator can mend is said in a sentence; the rest keeps its traceback."""
    from django.core.exceptions import ImproperlyConfigured
    from django.core.management import execute_from_command_line
    from django.db.utils import OperationalError, ProgrammingError

    try:
        execute_from_command_line(arguments)
    except ImproperlyConfigured as error:
        sys.exit(str(error))
    except OperationalError as error:
        sys.exit(f"The database does not answer: {error}")
    except ProgrammingError as error:
        if type(error.__cause__).__name__ != "UndefinedTable":
            raise
        sys.exit("The database is not up to date. Run: manage.py migrate")


if __name__ == "__main__":
    main()

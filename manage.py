#!/usr/bin/env python3
"""Runs a Tracesite command; starts the embedded PostgreSQL first when DATABASE_URL is not set."""

import os
import sys

from tracesite import embedded


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tracesite.settings")
    try:
        embedded.ensure()
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
    except embedded.EmbeddedError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)  # 128 + SIGINT, as shells have it


if __name__ == "__main__":
    main()

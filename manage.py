#!/usr/bin/env python3
"""The command `tracesite` in a clone: runs a command, with the embedded PostgreSQL unless DATABASE_URL is set."""

from tracesite.__main__ import main

if __name__ == "__main__":
    main()

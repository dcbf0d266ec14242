"""Deprecated command; use `python -m tracesite.recorder`."""

import sys

from tracesite.recorder.__main__ import main

sys.exit(main())

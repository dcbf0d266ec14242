"""The formats of all languages; see tracesite.formats."""

from tracesite.formats import *  # noqa: F403 - Django looks them up by name

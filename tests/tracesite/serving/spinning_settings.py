"""Settings of a site with a page that never ends; see test_cpu_limit.py."""

from __future__ import annotations

from tracesite.settings import *  # noqa: F403 - as the settings of Django projects do

ROOT_URLCONF = "tests.tracesite.serving.spinning"

"""Tests that take half a minute and more for what others show in part: `make test-slow` runs them, `make test` does not."""

from __future__ import annotations

import os

import pytest

slow = pytest.mark.skipif("TEST_SLOW" not in os.environ, reason="it takes a minute: make test-slow")

"""Instants of this century, for property tests."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import strategies as st

instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants naive bounds

"""The bounded cache: its limits of size and age."""

from __future__ import annotations

import time

from access_app.bounded_cache import BoundedCache


def test_full_cache_drops_the_entry_written_longest_ago() -> None:
    cache: BoundedCache[str, int] = BoundedCache(2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        cache.put(key, value)
    assert [cache.get(key) for key in "abc"] == [3, None, 4]


def test_replaced_and_removed_entries_count_no_more() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10, weigh=lambda value: value)
    for value in (9, 8, 4):
        cache.put("a", value)
    cache.put("b", 6)
    assert (cache.get("a"), cache.get("b")) == (4, 6)
    cache.pop("a")
    cache.pop("missing")
    cache.put("c", 4)
    assert [cache.get(key) for key in "abc"] == [None, 6, 4]
    cache.clear()
    cache.put("d", 10)
    assert (cache.get("b"), cache.get("d")) == (None, 10)


def test_age_counts_from_when_the_value_was_read() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10, max_age=60)
    cache.put("a", 1, time.monotonic() - 59)
    cache.put("b", 2, time.monotonic() - 60)
    assert (cache.get("a"), cache.get("b")) == (1, None)

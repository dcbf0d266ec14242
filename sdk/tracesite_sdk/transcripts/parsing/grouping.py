"""Group the entries of a long log while holding as little of it as possible."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from tracesite_sdk.transcripts.documents import Skip, skip_silently

Found = TypeVar("Found")


def together(
    read: Callable[[Skip], Iterable[Found]], groups: Callable[[Iterable[Found]], Iterable[Hashable]], skip: Skip
) -> Iterator[list[Found]]:
    """Yield the groups, each once its last member is read, so that only open groups are held.

    The log is read twice: `groups` yields the group of each entry, judged by earlier entries, and must hold little.
    Skipped entries are reported once.
    """
    group_of = list(groups(read(skip_silently)))
    last = {group: at for at, group in enumerate(group_of)}
    held: dict[Hashable, list[Found]] = {}
    for at, item in enumerate(read(skip)):
        if at == len(group_of):
            # The log is being written: the added entries have no group yet.
            return
        group = group_of[at]
        held.setdefault(group, []).append(item)
        if last[group] == at:
            yield held.pop(group)

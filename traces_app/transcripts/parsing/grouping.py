"""What belongs together in a long log, brought together while as little of the log as possible is held.

For formats; pure Python, without Django.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import TypeVar

from traces_app.transcripts.files.documents import Skip, skip_silently

Found = TypeVar("Found")


def together(
    found: Callable[[Skip], Iterable[Found]], groups: Callable[[Iterable[Found]], Iterable[Hashable]], skip: Skip
) -> Iterator[list[Found]]:
    """What is found, group by group; a group is given out with its last member, and only groups that are open are held.

    It is gone through twice: `groups` says for each what it belongs to, by what came before it, and must hold little.
    What is left out is told once.
    """
    group_of = list(groups(found(skip_silently)))
    last = {group: at for at, group in enumerate(group_of)}
    held: dict[Hashable, list[Found]] = {}
    for at, one in enumerate(found(skip)):
        if at == len(group_of):
            # The log is being written: what was added is not known yet.
            return
        group = group_of[at]
        held.setdefault(group, []).append(one)
        if last[group] == at:
            yield held.pop(group)

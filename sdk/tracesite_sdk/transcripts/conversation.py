"""From entries to messages: turns, and the calls that results answer. The mapping that all formats share.

* From one user message to the next is one assistant message. A reply that calls tools is a step, its text the thought; the
  last plain reply is the content, and a step without thought if it is known as a request (`turn_records.is_request`); an
  earlier plain reply is a step without calls. Without a reply there is no message.
* A result answers the call that its format found for it; or the open call with its id, of its turn and its name first, and then
  the earliest; or a call whose id matches once a repeated id ("call_7call_7") is folded on either side; a result without an
  id answers the earliest open call of the turn (of its name, if it has one). If another open call fits as well, that is a
  guess and gets a flag. Scopes keep the ids of calls apart. A result that answers no call gets a placeholder call and a
  flag; if the call follows in the same turn, it gets the result instead.
* Replies of a sub-agent are steps below the call that started it, in the message of that call and with the iteration of
  its step. They do not end a turn and are never its content.
* A message begins with its first entry and is complete with its last; steps and calls begin with their reply.
* Every other decision depends on earlier entries only, so a transcript that has grown gives the same records and more: messages
  keep their external ids, steps their iterations. Importing the start and then the whole equals importing the whole.

A long transcript is streamed. A turn may change after its end, by late results and sub-agents, so it is kept until
MOST_HELD entries or MOST_HELD_CHARACTERS follow it; a turn with open calls until MOST_LEFT_OPEN calls of later turns are
open, too. Entries for it that arrive even later are orphans. One turn is always kept whole.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from operator import itemgetter

from msgspec.structs import replace

from tracesite_sdk import records
from tracesite_sdk.normalize.call_ids import folded
from tracesite_sdk.records.health_flags import GUESSED_RESULT, ORPHAN_RESULT, REPAIRED_ID, STOPPED

from .entries import Call, Entry, Prompt, Reply, Result, size_of
from .times import Clock, with_time
from .turn_records import prompt_message, turn_message
from .turns import Turn, TurnCall

UNKNOWN_TOOL = "unknown"

MOST_HELD = 5_000
"""Entries of finished turns that are kept for late results."""
MOST_HELD_CHARACTERS = 8_000_000
"""Their size in characters, roughly."""
MOST_LEFT_OPEN = 1_000
"""Open calls of turns of which nothing else is kept."""

_Key = tuple[object, ...]


def messages(entries: Iterable[Entry]) -> list[records.Message]:
    """Return the messages of a transcript in its order; their external ids are the ids of their first entries."""
    return [message for _index, message in sorted(stream_messages(entries, None), key=itemgetter(0))]


def stream_messages(entries: Iterable[Entry], clock: Clock | None) -> Iterator[tuple[int, records.Message]]:
    """Yield the messages with their positions, each as soon as nothing can change it any more."""
    conversation = Conversation(clock)
    for entry in entries:
        conversation.add(entry)
        yield from conversation.finished_messages()
    yield from conversation.finished_messages(is_over=True)


@dataclass(eq=False)
class _Prompt:
    index: int
    entry: Prompt
    entries: int = 0
    characters: int = 0


class Conversation:
    """The prompts and turns of a transcript that are not finished yet."""

    def __init__(self, clock: Clock | None) -> None:
        self._clock = clock
        self._count = 0
        self._items: deque[_Prompt | Turn] = deque()
        """In their order."""
        self._entries = 0
        self._characters = 0
        self._late: dict[Turn, None] = {}
        """Turns that left the items and wait for results only."""
        self._left_open = 0
        """Their open calls."""
        self._finished: list[Turn] = []
        """Turns whose last result has arrived."""
        self._turn: Turn | None = None
        """The current turn."""
        self._waiting: defaultdict[_Key, OrderedDict[TurnCall, None]] = defaultdict(OrderedDict)
        """Open calls by every key under which a result may look for them; answered ones are skipped."""
        self._guessed: set[_Key] = set()
        """Keys of several open calls, the first of which got a result that may be that of another."""
        self._early: dict[_Key, TurnCall] = {}
        """Placeholders of results in the current turn whose id no call had before."""
        self._last_of_id: dict[str, TurnCall] = {}
        self._of_call: dict[int, TurnCall] = {}
        """By the identity of the call."""

    def add(self, entry: Entry) -> None:
        if isinstance(entry, Prompt):
            self._add_prompt(entry)
        elif isinstance(entry, Reply):
            self._add_reply(entry)
        else:
            self._add_result(entry)

    def finished_messages(self, *, is_over: bool = False) -> Iterator[tuple[int, records.Message]]:
        """Yield each message that is finished, once; all that are left if the transcript `is_over`."""
        while self._finished:
            yield self._finish(self._finished.pop())
        while self._items and (is_over or self._entries > MOST_HELD or self._characters > MOST_HELD_CHARACTERS):
            item = self._items[0]
            if item is self._turn and not is_over:
                break
            self._items.popleft()
            self._entries -= item.entries
            self._characters -= item.characters
            if isinstance(item, _Prompt):
                message = prompt_message(item.entry)
                timed = with_time(message, *self._clock.next_time(message.created_at)) if self._clock else message
                yield item.index, timed
                continue
            item.time = self._clock.next_time(item.began) if self._clock else None
            if item.open_calls and not is_over:
                self._late[item] = None
                self._left_open += item.open_calls
            else:
                # Nothing looks for its calls after the end of the transcript, so they need not be forgotten.
                yield _finished(item) if is_over else self._finish(item)
        while self._late and (is_over or self._left_open > MOST_LEFT_OPEN):
            turn = next(iter(self._late))
            del self._late[turn]
            self._left_open -= turn.open_calls
            yield self._finish(turn)

    def _finish(self, turn: Turn) -> tuple[int, records.Message]:
        """Return the message of a turn and forget the turn."""
        for step in turn.steps:
            scope = step.reply.scope if step.reply is not None else None
            for call in step.calls:
                if self._of_call.get(call.identity) is call:
                    del self._of_call[call.identity]
                if call.call.id and self._last_of_id.get(call.call.id) is call:
                    del self._last_of_id[call.call.id]
                for key in _call_keys(turn, call.call, scope):
                    if (queue := self._waiting.get(key)) is not None:
                        queue.pop(call, None)
                        if not queue:
                            del self._waiting[key]
                            self._guessed.discard(key)
        return _finished(turn)

    def _add_prompt(self, entry: Prompt) -> None:
        if STOPPED in entry.health:
            entry = replace(entry, health=[flag for flag in entry.health if flag != STOPPED])
            if self._turn is not None:
                self._turn.health.add(STOPPED)
        prompt = _Prompt(self._next_index(), entry)
        self._items.append(prompt)
        self._count_size(prompt, entry)
        if entry.role == "user" and not entry.is_aside:
            self._turn = None
            self._early.clear()

    def _add_reply(self, reply: Reply) -> None:
        parent = self._last_of_id.get(reply.parent_call) if reply.parent_call else None
        if reply.parent is not None:
            parent = self._of_call.get(id(reply.parent), parent)
        turn = parent.step.turn if parent is not None else self._current_turn(reply)
        self._count_size(turn, reply)
        turn.extend_to(reply)
        turn.open_calls += len(reply.calls)
        self._left_open += len(reply.calls) if turn in self._late else 0
        step = turn.add_step(reply, parent)
        for call in reply.calls:
            early = self._early.pop((turn, reply.scope, call.id), None)
            if early is not None:
                early.step.remove(early)
                turn.open_calls -= 1
            added = turn.add_call(step, call)
            added.result = early.result if early is not None else None
            self._of_call[added.identity] = added
            if call.id:
                self._last_of_id[call.id] = added
            for key in _call_keys(turn, call, reply.scope):
                if self._guessed and self._next_open(key) is None:
                    self._guessed.discard(key)
                self._waiting[key][added] = None

    def _add_result(self, result: Result) -> None:
        answered = self._answered(result)
        for call in (call for call in answered if call.result is None):
            call.step.turn.open_calls -= 1
            self._left_open -= call.step.turn in self._late
        if not answered:
            turn = self._current_turn(result)
            answered = [_add_placeholder(turn, result)]
            if len(result.call_ids) == 1 and result.call_ids[0] not in self._last_of_id:
                self._early[turn, result.scope, result.call_ids[0]] = answered[0]
        for call in answered:
            turn = call.step.turn
            self._count_size(turn, result)
            call.result = result
            turn.extend_to(result)
            if call.call.id and call.call.id not in result.call_ids:
                _flag_repaired_id(call, result)
            if result.is_guessed or call.is_guessed:
                turn.health.add(GUESSED_RESULT)
                call.call = replace(call.call, metadata={**call.call.metadata, GUESSED_RESULT: True})
            if not turn.open_calls and turn in self._late:
                del self._late[turn]
                self._finished.append(turn)

    def _current_turn(self, first: Reply | Result) -> Turn:
        if self._turn is None:
            self._turn = Turn(self._next_index(), first.id, first.created_at)
            self._items.append(self._turn)
        return self._turn

    def _next_index(self) -> int:
        self._count += 1
        return self._count - 1

    def _count_size(self, item: _Prompt | Turn, entry: Entry) -> None:
        if item in self._late:
            return
        characters = size_of(entry)
        item.entries += 1
        item.characters += characters
        self._entries += 1
        self._characters += characters

    def _answered(self, result: Result) -> list[TurnCall]:
        known = self._of_call.get(id(result.call)) if result.call is not None else None
        if known is not None and (known.result is None or known.result.id == result.replaces):
            return [known]
        lookups = _result_keys(self._turn, result)
        return [call for keys in lookups if (call := self._take_open_call(keys)) is not None]

    def _take_open_call(self, keys: tuple[_Key, ...]) -> TurnCall | None:
        for key in keys:
            call = self._next_open(key)
            if call is not None:
                del self._waiting[key][call]
                if self._next_open(key) is not None:
                    self._guessed.add(key)
                call.is_guessed = key in self._guessed
                return call
        return None

    def _next_open(self, key: _Key) -> TurnCall | None:
        queue = self._waiting.get(key)
        while queue:
            call = next(iter(queue))
            if call.result is None:
                return call
            del queue[call]
        return None


def _finished(turn: Turn) -> tuple[int, records.Message]:
    message = turn_message(turn)
    return turn.index, with_time(message, *turn.time) if turn.time else message


def _call_keys(turn: Turn, call: Call, scope: str | None) -> list[_Key]:
    keys: list[_Key] = [(turn, scope, call.name), (turn, scope)]
    if call.id:
        meant = folded(call.id)
        repaired: list[_Key] = [("repaired id", scope, meant)] if meant != call.id else []
        own: list[_Key] = [
            ("id", scope, call.id, turn, call.name),
            ("id", scope, call.id, turn),
            ("id", scope, call.id),
        ]
        return [*own, *repaired, *keys]
    return [("no id", turn, scope, call.name), ("no id", turn, scope), *keys]


def _result_keys(turn: Turn | None, result: Result) -> list[tuple[_Key, ...]]:
    """Return the keys to look up, in order, for each call that the result answers."""
    within: _Key = (turn, result.scope, result.name) if result.name else (turn, result.scope)
    if not result.call_ids:
        return [(within,)]
    # The exact id first, so that no other call takes the result; then a repaired id on either side.
    return [
        (
            ("id", result.scope, call_id, turn, result.name),
            ("id", result.scope, call_id, turn),
            ("id", result.scope, call_id),
            ("repaired id", result.scope, folded(call_id)),
            ("id", result.scope, folded(call_id)),
            ("no id", *within),
        )
        for call_id in result.call_ids
    ]


def _flag_repaired_id(call: TurnCall, result: Result) -> None:
    """Flag that the id of a result was folded; normalization flags those of calls."""
    repaired = next((call_id for call_id in result.call_ids if folded(call_id) != call_id), None)
    if repaired is not None:
        call.step.turn.health.add(REPAIRED_ID)
        call.call = replace(call.call, metadata={**call.call.metadata, REPAIRED_ID: repaired})


def _add_placeholder(turn: Turn, result: Result) -> TurnCall:
    # A plain reply stays plain, so that it can be the content: then the placeholder gets a step of its own. It does not go
    # below a sub-agent's step, because it would move when the parent call of that is known.
    step = turn.steps[-1] if turn.steps and turn.steps[-1].calls and not turn.steps[-1].parent else turn.add_step(None)
    call_id = next(iter(result.call_ids), None)
    call = Call(id=call_id, name=result.name or UNKNOWN_TOOL, args={}, metadata={ORPHAN_RESULT: True})
    return turn.add_call(step, call)

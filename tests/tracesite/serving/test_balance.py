"""Clients are given away by the worker that has more to do, and only by that one."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tracesite.serving.balance import A_SECOND, WINDOW, Balance


@contextmanager
def another_worker(balance: Balance, at_hand: int) -> Iterator[None]:
    """Another process that has taken its place, with so many requests at hand for ever."""
    context = multiprocessing.get_context("fork")
    ready, end = context.Event(), context.Event()

    def work() -> None:
        balance.join()
        for _request in range(at_hand):
            balance.begin()
        ready.set()
        end.wait(30)

    process = context.Process(target=work, daemon=True)
    process.start()
    assert ready.wait(10)
    try:
        yield
    finally:
        end.set()
        process.join(10)


def of_two_with(at_hand: int) -> Balance:
    """One of two workers, with so many requests at hand for long enough that it shows."""
    balance = Balance(workers=2)
    balance.join()
    for _request in range(at_hand):
        balance.begin()
    time.sleep(5 * WINDOW)
    return balance


@pytest.mark.parametrize(
    ("own", "others", "given"), [(3, 1, True), (4, 0, True), (2, 0, True), (2, 2, False), (2, 1, False)]
)
def test_a_client_is_given_away_where_another_worker_has_clearly_less_to_do(own: int, others: int, given: bool) -> None:
    balance = of_two_with(own)
    with another_worker(balance, others):
        time.sleep(5 * WINDOW)
        assert balance.gives_away() is given


def test_who_has_but_one_client_keeps_it() -> None:
    balance = of_two_with(1)
    with another_worker(balance, 0):
        assert not balance.gives_away()


def test_clients_are_given_away_one_after_the_other() -> None:
    balance = of_two_with(4)
    with another_worker(balance, 0):
        assert balance.gives_away()
        assert not balance.gives_away()
        time.sleep(1.5 / A_SECOND)
        assert balance.gives_away()


def test_nobody_is_sent_to_a_worker_that_is_gone() -> None:
    balance = of_two_with(4)
    with another_worker(balance, 0):
        pass
    assert not balance.gives_away()


def test_a_worker_without_a_place_keeps_its_clients() -> None:
    balance = Balance(workers=1)
    with another_worker(balance, 0):
        balance.join()
        for _request in range(4):
            balance.begin()
        time.sleep(5 * WINDOW)
        assert not balance.gives_away()


def test_a_new_worker_takes_the_place_of_one_that_is_gone() -> None:
    balance = Balance(workers=2)
    with another_worker(balance, 3):
        pass
    with another_worker(balance, 0):
        balance.join()
        for _request in range(4):
            balance.begin()
        time.sleep(5 * WINDOW)
        assert balance.gives_away()


def test_requests_that_ended_weigh_less_and_less() -> None:
    balance = of_two_with(4)
    with another_worker(balance, 0):
        for _request in range(2):
            balance.end()
        time.sleep(5 * WINDOW)
        assert balance.gives_away()
        balance.end()
        time.sleep(5 * WINDOW)
        assert not balance.gives_away()

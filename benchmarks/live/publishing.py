"""Many agents that publish at a steady rate."""

from __future__ import annotations

import multiprocessing
import threading
import time
from typing import Any

import psycopg

from .agents import Agent

PUBLISHERS = 4

Sent = dict[tuple[str, int], float]
"""Acknowledgement time of each event of a session."""


def publish(url: str, agents: list[Agent], rate: float, seconds: float) -> Sent:
    """Publish from a separate process, so that sending does not wait for receiving."""
    context = multiprocessing.get_context("spawn")
    queue: Any = context.Queue()
    process = context.Process(target=_publishers, args=[url, agents, rate, seconds, queue])
    process.start()
    sent: Sent = queue.get()
    process.join()
    return sent


def _publishers(url: str, agents: list[Agent], rate: float, seconds: float, queue: Any) -> None:
    sent: Sent = {}

    def work(part: list[Agent], each: float, first: float) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            for number in range(int(seconds / each)):
                time.sleep(max(first + number * each - time.monotonic(), 0))
                agent = part[number % len(part)]
                (seq,) = agent.does(connection, {"number": number, "thought": "What the weather is like. " * 8})
                sent[str(agent.session), seq] = time.monotonic()

    begin = time.monotonic() + 0.5
    threads = [
        threading.Thread(target=work, args=[agents[n::PUBLISHERS], PUBLISHERS / rate, begin + n / rate])
        for n in range(min(PUBLISHERS, len(agents)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    queue.put(sent)

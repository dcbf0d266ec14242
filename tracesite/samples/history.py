"""Sessions around the recordings, so that trends, similar failures, groups of errors and comparisons have something to show.

They are made up after three recordings, with the same tools: a report every night, whose `load_branch` takes three times as
long since yesterday; plans of trips, whose `search_hotels` times out since yesterday; and the refund that failed, asked for
again and made. Everything follows from `now`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from tracesite_sdk import records

_SLOW_SINCE = timedelta(days=1)
_NIGHTS = 13
_BRANCHES = ("Hamburg", "Kiel", "Bremen", "上海", "深圳")
_TRIPS: Sequence[tuple[int, str, str, str, str]] = (
    # Hours ago, end user, title, city and district.
    (3, "amira", "A weekend in Lisbon", "Lisbon", "Alfama"),
    (8, "tom", "Lisbon with two children", "Lisbon", "Belém"),
    (13, "jonas", "A room near the office in Porto", "Porto", "Boavista"),
    (19, "lucia", "Conference in Lisbon", "Lisbon", "Oriente"),
    (30, "noah", "Four days in Porto", "Porto", "Ribeira"),
    (44, "amira", "Lisbon by train", "Lisbon", "Chiado"),
    (67, "mei", "Vienna in the winter", "Vienna", "Neubau"),
    (90, "tom", "A long weekend in Prague", "Prague", "Vinohrady"),
    (118, "jonas", "Team meeting in Vienna", "Vienna", "Leopoldstadt"),
    (141, "sofia", "Two nights in Porto", "Porto", "Foz"),
    (166, "lucia", "Museums in Madrid", "Madrid", "Retiro"),
    (190, "noah", "Prague for beginners", "Prague", "Karlín"),
    (215, "mei", "Hiking near Porto", "Porto", "Gaia"),
    (240, "sofia", "Madrid with a dog", "Madrid", "Chamberí"),
    (266, "amira", "Vienna by night train", "Vienna", "Favoriten"),
    (290, "tom", "Cheap days in Lisbon", "Lisbon", "Graça"),
    (315, "jonas", "Trade fair in Madrid", "Madrid", "Ifema"),
)
_REFUNDED_AGE = timedelta(hours=10)
_TIMED_OUT = frozenset([3, 8, 13, 19, 44])
"""The trips whose search for hotels failed."""


def earlier_sessions(now: datetime) -> list[records.Session]:
    """Return the sessions that ended before `now`, newest first."""
    reports = [_report(night, now - timedelta(days=night) + timedelta(minutes=50)) for night in range(1, _NIGHTS + 1)]
    trips = [_trip(*trip, now - timedelta(hours=trip[0])) for trip in _TRIPS]
    return sorted(
        [*reports, *trips, _refund(now - _REFUNDED_AGE)], key=lambda session: session.created_at or now, reverse=True
    )


def judgements(now: datetime) -> list[records.Score]:
    """Return what the travellers thought of their plans, a few minutes after they had them."""
    scores = []
    for hours, user, _title, city, _district in _TRIPS[::2]:
        failed = hours in _TIMED_OUT
        scores.append(
            records.Score(
                external_id=f"sample-trip-{hours}-helpful",
                session_id=f"sample-trip-{hours}",
                name="helpful",
                value=not failed,
                comment=f"I asked for hotels in all of {city}." if failed else None,
                source="person",
                author=user,
                created_at=now - timedelta(hours=hours) + timedelta(minutes=4),
            )
        )
    return scores


def _report(night: int, start: datetime) -> records.Session:
    factor = 3 if night * timedelta(days=1) <= _SLOW_SINCE else 1

    def load(number: int) -> _Call:
        branch = _BRANCHES[number]
        figures = {"branch": branch, "revenue": 12_000 + 7_919 * night * (number + 1) % 45_000}
        took = factor * (270 + 97 * night * (number + 3) % 160)
        return _Call(name="load_branch", args={"branch": branch}, took=took, data=figures)

    run = _Run(agent="reporter", model="scripted-chat-1", time=start)
    run.add("The branches of the north first.", 604, load(0), load(1), load(2))
    run.add("Then the Asian ones.", 411, load(3), load(4))
    pdf = {"file": "nightly.pdf", "pages": len(_BRANCHES) + 2}
    asked = {"branches": len(_BRANCHES), "output": "nightly.pdf"}
    run.add("Now the PDF.", 733, _Call(name="render_report", args=asked, took=1_900 + 53 * night % 400, data=pdf))
    answer = "The report of 5 branches is in nightly.pdf."
    session = run.session("Make the nightly report.", answer)
    name = f"sample-nightly-report-{night}"
    title = "Nightly report for 5 branches"
    return replace(session, external_id=name, title=title, end_user="scheduler", tags=["report"])


def _trip(hours: int, user: str, title: str, city: str, district: str, start: datetime) -> records.Session:
    flights = [{"flight": f"TX {400 + hours}", "leaves": "07:25", "price": 90 + 31 * hours % 110}]
    hotels = [{"hotel": f"Casa {district}", "price": 70 + 17 * hours % 60}]
    forecast = {"city": city, "high_c": 14 + hours % 11, "rain": hours % 3 == 0}
    failed = f"TimeoutError: no answer from the hotel service of {city} within 1.5 s" if hours in _TIMED_OUT else ""
    wanted = {"city": city, "nights": 2 + hours % 3}
    run = _Run(agent="travel", model="scripted-responses-1", time=start)
    run.add(
        "Flights, hotels and the weather, all at once.",
        560 + 13 * hours % 90,
        _Call(name="search_flights", args={"destination": city}, took=820 + 29 * hours % 190, data=flights),
        _Call(
            name="search_hotels",
            args=wanted,
            took=1_502 if failed else 380 + 41 * hours % 240,
            data=None if failed else hotels,
            error=failed,
        ),
        _Call(name="get_forecast", args={"city": city}, took=230 + 19 * hours % 220, data=forecast),
    )
    if failed:
        nearby = {"city": city, "district": district}
        run.add(
            "The hotel search timed out; the cache of one district will do.",
            510,
            _Call(name="search_hotels_nearby", args=nearby, took=101, data=hotels),
        )
    answer = f"Fly {flights[0]['flight']} at 07:25 ({flights[0]['price']} €) and stay at {hotels[0]['hotel']} ({hotels[0]['price']} € a night)."
    session = run.session(f"{title}, please: flight, hotel and what to pack.", answer)
    return replace(session, external_id=f"sample-trip-{hours}", title=title, end_user=user, tags=["travel"])


def _refund(start: datetime) -> records.Session:
    """Return the session in which the question of `refund-failed` has a good answer, after the customer has a new card."""
    order = {"order": 5471, "total": 129, "paid_by": "card", "payment": "pay_71c0", "returned": True}
    refund = {"order": 5471, "amount": 129, "to": "card"}
    run = _Run(agent="refunds", model="scripted-chat-1", time=start)
    run.add("I look at the order.", 431, _Call(name="get_order", args={"order": 5471}, took=201, data=order))
    made = {"refund": "re_20c4", "amount": 129, "to": "card"}
    run.add(
        "The parcel is back, so I refund the card.",
        402,
        _Call(name="refund_order", args=refund, took=604, data=made),
    )
    answer = "I refunded 129 € for order 5471 to your new card. Your bank shows it within three days."
    session = run.session("I sent order 5471 back a week ago. Where is my refund?", answer)
    return replace(
        session, external_id="sample-refund", title="Refund order 5471, once more", end_user="felix", tags=["finance"]
    )


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call that a step asks for."""

    name: str
    args: dict[str, Any]
    took: int
    """Milliseconds."""
    data: Any = None
    error: str = ""


@dataclass(kw_only=True)
class _Run:
    """A run that is being written; `time` is when its last step with its calls ended."""

    agent: str
    model: str
    time: datetime
    steps: list[records.AgentStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.start = self.time

    def add(self, thought: str, took: int, *calls: _Call) -> None:
        """Add a step in which the model thinks for `took` milliseconds, then runs calls, all at once."""
        begin = self.time + timedelta(milliseconds=took)
        self.steps.append(
            records.AgentStep(
                iteration=len(self.steps),
                thought=thought,
                agent_name=self.agent,
                model=self.model,
                usage={"input_tokens": 60 + 140 * len(self.steps), "output_tokens": 24 + 11 * len(calls)},
                timestamp=self.time,
                duration=took,
                tool_calls=[
                    records.ToolCall(
                        id=f"call_{len(self.steps)}_{number}",
                        name=call.name,
                        args=call.args,
                        started_at=begin,
                        completed_at=begin + timedelta(milliseconds=call.took),
                        result=records.ToolResult(
                            success=not call.error,
                            output="" if call.error else json.dumps(call.data, ensure_ascii=False),
                            data=call.data,
                            error=call.error,
                        ),
                    )
                    for number, call in enumerate(calls)
                ],
            )
        )
        self.time = begin + timedelta(milliseconds=max(call.took for call in calls))

    def session(self, question: str, answer: str) -> records.Session:
        """Return the session of the run, which answers 0.6 s after its last step."""
        return records.Session(
            created_at=self.start,
            metadata={"sample": True},
            messages=[
                records.Message(external_id="m0", role="user", content=question, created_at=self.start),
                records.Message(
                    external_id="m1",
                    role="assistant",
                    content=answer,
                    created_at=self.start + timedelta(milliseconds=1),
                    completed_at=self.time + timedelta(milliseconds=600),
                    agent_steps=self.steps,
                ),
            ],
        )

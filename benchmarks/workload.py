"""Messages of the benchmarks: agent runs of 4 steps with 2 calls each, about 23 KB of JSON, deterministic.

A message depends only on its number, so that several processes can generate parts of one data set. The texts are typical
of agents: prose, SQL, logs and JSON, a fifth of it Chinese. Every eighteenth call fails, and every fiftieth message has a
secret that the server must find.

The messages are 20 s apart, so that two hours have 360 messages.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec

STEPS = 4
CALLS = 2
APART = timedelta(seconds=20)

MESSAGES_A_SESSION = 100
SESSIONS_AT_ONCE = 8
"""Number of interleaved sessions, so that messages of one session are not adjacent in the tables."""

Json = dict[str, Any]

TOOLS = {
    "query_database": 24,
    "search_orders": 20,
    "fetch_page": 16,
    "read_file": 12,
    "run_tests": 8,
    "get_weather": 6,
    "send_email": 5,
    "create_ticket": 4,
    "translate": 3,
    "list_invoices": 1,
    "refund_payment": 1,
}
"""Number of calls of each tool in a hundred calls."""
COMMON_TOOL = "query_database"
RARE_TOOL = "refund_payment"

_PROSE = [
    "The customer ordered two lamps on the third of May and received only one of them.",
    "According to the shipping log the parcel was split at the Rotterdam hub, and the second half is still there.",
    "I will look at the invoice first, because the refund depends on which of the two items was paid for.",
    "The test suite reports three failures, all of them in the module that parses dates with a time zone.",
    "Latency rose from 180 ms to 2.4 s shortly after the deployment at 14:05 UTC; the error rate did not change.",
    "The contract allows cancellation with thirty days' notice, counted from the end of the month.",
    "There are 1,204 rows for this account, most of them duplicates that an earlier import left behind.",
    "Nothing in the document says who approved the change, so I have to ask before going on.",
    "The function returns None for an empty list, and the caller divides by the length of what it gets.",
    "Two suppliers offer the same part; the cheaper one delivers in nine weeks, the other in four days.",
    "The user asked for a summary of at most five sentences, with the figures of the last two quarters.",
    "All replicas are healthy, but the queue of the indexer has been growing since the early morning.",
    "Rain is expected from Thursday on, with gusts of up to 70 km/h near the coast.",
    "The first query was too wide and timed out after 30 seconds; I narrow it down to one region.",
    "Permission was denied for the folder /srv/reports/2025; the listing of its parent works.",
    "This passage quotes the handbook, chapter 4, on how travel expenses are claimed and by when.",
]
_CHINESE = [
    "客户在五月三日订购了两盏台灯，但只收到其中一盏，要求补发或退款。",
    "根据物流记录，包裹在鹿特丹中转时被拆分，第二件仍滞留在仓库。",
    "我先核对发票，再决定退款金额，因为两件商品的付款方式不同。",
    "测试报告显示有三个用例失败，都与带时区的日期解析有关。",
    "数据库查询超时，我把范围缩小到华东地区的最近三十天后重试。",
    "手册第四章规定，差旅费须在返回后十个工作日内提交报销申请。",
    "周四起有雨，沿海阵风可达八级，建议把户外活动改到周二。",
    "没有找到批准人的记录，需要先向负责人确认，然后才能继续。",
]
_LOG = [
    "2025-02-11 14:05:31,204 WARN  pool-7 request 8f21c took 2411 ms (limit 500 ms)\n",
    "2025-02-11 14:05:31,377 INFO  indexer lag=18342 batch=500 written=500 failed=0\n",
    'GET /orders/48213?expand=items HTTP/1.1" 200 5312 "-" "python-requests/2.32"\n',
    "SELECT o.id, o.total, c.name FROM orders o JOIN customers c ON c.id = o.customer_id WHERE o.state = 'open';\n",
    "    assert parse('2025-03-30T02:30:00+01:00') == datetime(2025, 3, 30, 1, 30, tzinfo=UTC)\n",
    "FAILED tests/test_dates.py::test_summer_time - AssertionError: 2 hours expected, 1 found\n",
    "| 48213 | 2025-02-03 | lamp, brass    |  2 |   118.00 | partly delivered |\n",
    "<p class='notice'>Deliveries to islands take <b>three to five</b> working days longer.</p>\n",
]
_ERRORS = [
    "TimeoutError: the query was cancelled after 30.0 s\nTraceback (most recent call last):\n  ...",
    "HTTP 503 from https://inventory.example.com/v2/stock: Service Unavailable",
    "PermissionError: [Errno 13] Permission denied: '/srv/reports/2025'",
    "没有找到订单：编号 48213 不存在",
]
_MODELS = ["large-chat-4", "small-chat-4", "reasoner-2"]


class Place(NamedTuple):
    """Session and position of a message number."""

    session: int
    position: int


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Data set of `name`: message `number` was created `number` times 20 s after `begin`."""

    name: str
    begin: datetime
    messages_a_session: int = MESSAGES_A_SESSION
    sessions_at_once: int = SESSIONS_AT_ONCE

    def place(self, number: int) -> Place:
        group, within = divmod(number, self.messages_a_session * self.sessions_at_once)
        position, beside = divmod(within, self.sessions_at_once)
        return Place(session=group * self.sessions_at_once + beside, position=position)

    def session_name(self, session: int) -> str:
        return f"{self.name}-{session:06}"

    def created_at(self, number: int) -> datetime:
        return self.begin + number * APART

    def message(self, number: int) -> Json:
        """Return a message as a client sends it."""
        chance = random.Random(f"{self.name}/{number}")
        created_at = self.created_at(number)
        steps = [self._step(chance, number, iteration, created_at) for iteration in range(STEPS)]
        if number % 50 == 0:
            steps[0]["tool_calls"][0]["args"]["headers"] = {"Authorization": f"Bearer {chance.randbytes(24).hex()}"}
        return {
            "external_id": f"m-{self.place(number).position:04}",
            "request_id": f"req-{chance.getrandbits(64):016x}",
            "role": "assistant",
            "content": _text(chance, _PROSE, 900),
            "is_completed": True,
            "created_at": _instant(created_at),
            "completed_at": _instant(created_at + timedelta(milliseconds=18_000 + chance.randrange(2000))),
            "usage": {"input_tokens": 5200 + chance.randrange(800), "output_tokens": 700 + chance.randrange(200)},
            "agent_steps": steps,
            "metadata": {
                "deployment": "eu-2",
                "sampled": True,
                "thread": self.session_name(self.place(number).session),
            },
        }

    def batch(self, numbers: Sequence[int]) -> bytes:
        """Return the body of `POST /api/v1/ingest/` with these messages, each session once."""
        sessions: dict[int, Json] = {}
        for number in numbers:
            place = self.place(number)
            if place.session not in sessions:
                sessions[place.session] = {
                    "external_id": self.session_name(place.session),
                    "title": f"Where is my order? ({place.session})",
                    "end_user": f"customer-{place.session % 97}",
                    "tags": ["support", "eu"],
                    "created_at": _instant(self.created_at(number)),
                    "messages": [],
                }
            sessions[place.session]["messages"].append(self.message(number))
        return msgspec.json.encode({"sessions": list(sessions.values())})

    def _step(self, chance: random.Random, number: int, iteration: int, created_at: datetime) -> Json:
        begin = created_at + timedelta(milliseconds=4000 * iteration + chance.randrange(500))
        return {
            "iteration": iteration,
            "thought": _text(chance, _PROSE if number % 5 else _CHINESE, 420),
            "reasoning_content": _text(chance, _PROSE, 500),
            "agent_name": "orders",
            "model": chance.choice(_MODELS),
            "usage": {"input_tokens": 1300 + chance.randrange(200), "output_tokens": 160 + chance.randrange(60)},
            "timestamp": _instant(begin),
            "duration": 2600 + chance.randrange(900),
            "tool_calls": [self._call(chance, begin, call) for call in range(CALLS)],
        }

    def _call(self, chance: random.Random, begin: datetime, call: int) -> Json:
        started_at = begin + timedelta(milliseconds=900 + 20 * call)
        duration = 40 + chance.randrange(1500)
        (tool,) = chance.choices(list(TOOLS), list(TOOLS.values()))
        failed = chance.randrange(18) == 0
        return {
            "id": f"call_{chance.getrandbits(96):024x}",
            "name": tool,
            "args": {
                "query": chance.choice(_LOG).strip(),
                "region": chance.choice(["eu", "us", "华东"]),
                "limit": chance.randrange(1, 200),
                "fields": ["id", "state", "total", "customer"],
                "filter": {"state": "open", "since": "2025-01-01", "minimum": chance.random() * 100},
                "note": _text(chance, _PROSE, 160),
            },
            "reflection": _text(chance, _PROSE, 120),
            "started_at": _instant(started_at),
            "completed_at": _instant(started_at + timedelta(milliseconds=duration)),
            "duration": duration,
            "result": _failure(chance) if failed else _success(chance),
        }


def of_reading() -> Workload:
    """Return the data set of the read benchmarks; 10,000 messages end shortly after the turn of a month."""
    return Workload(name="read", begin=datetime(2025, 2, 27, tzinfo=UTC))


def _success(chance: random.Random) -> Json:
    rows = [
        {
            "id": 40_000 + chance.randrange(10_000),
            "customer": f"C-{chance.getrandbits(32):08x}",
            "total": round(chance.random() * 500, 2),
            "state": chance.choice(["open", "paid", "returned", "已发货"]),
            "lines": [{"sku": f"L-{chance.randrange(1000)}", "quantity": chance.randrange(1, 5)} for _line in range(2)],
        }
        for _row in range(4)
    ]
    texts = chance.choice([_LOG, _LOG, _PROSE, _PROSE, _CHINESE])
    return {
        "status": "success",
        "success": True,
        "output": _text(chance, texts, 620),
        "data": {"rows": rows, "count": len(rows), "truncated": False},
        "metadata": {"cached": chance.random() < 0.2, "bytes": chance.randrange(9000)},
    }


def _failure(chance: random.Random) -> Json:
    return {"status": "error", "success": False, "output": "", "error": chance.choice(_ERRORS)}


def _text(chance: random.Random, sentences: list[str], least: int) -> str:
    """Return sentences of at least `least` bytes in total."""
    average = sum(len(sentence.encode()) for sentence in sentences[:8]) // 8
    return " ".join(chance.choices(sentences, k=1 + least // average))


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")

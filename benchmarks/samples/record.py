"""Record the sample sessions: real agent SDKs, real tools with real failures, and a scripted model.

    python -m venv samples-venv && samples-venv/bin/pip install langchain langgraph openai-agents
    samples-venv/bin/python benchmarks/samples/record.py tracesite/samples/recordings

Each scenario becomes one JSON file in the form of POST /api/v1/ingest/.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import agents
from agents import Agent, RunConfig, Runner, function_tool, handoff
from agents.tool_context import ToolContext
from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphRecursionError
from langgraph.types import interrupt
from recording import (
    AgentsRecorder,
    AgentsTalk,
    LangGraphTalk,
    Recording,
    ScriptedModel,
    chance,
    failure,
    say,
    sub_agent,
)

LANGGRAPH, AGENTS = "langgraph", "openai-agents"


async def support_chat() -> Recording:
    recording = Recording(
        "sample-support-chat", "How do I export my data?", sdk=AGENTS, end_user="maria", tags=["support"]
    )
    system = "You are the support desk of a note-taking service. Be brief and friendly."
    recording.said("system", system)
    script = [
        say(
            "Open Settings, choose Your data, and press Export. You get a ZIP file with one Markdown file for each note."
        ),
        say("Yes: images lie in a folder `attachments` beside the notes, and the links in the Markdown point there."),
    ]
    talk = AgentsTalk(recording, Agent(name="support", instructions=system, model=ScriptedModel(script)))
    await talk.ask("How do I export my data?")
    await asyncio.sleep(1.5)
    await talk.ask("Are the images in there too?")
    return recording


HANDBOOK = [
    ("员工手册", "第三章 休假", "正式员工每年享有十五天带薪年假，入职未满一年的按月折算。年假可以结转到次年三月底。"),
    ("员工手册", "第三章 休假", "病假需在三天内提交医院证明；每年前十天病假按全额工资发放。"),
    ("员工手册", "第五章 差旅", "国内出差住宿标准为每晚六百元，超出部分需要部门经理书面批准。"),
    ("员工手册", "第五章 差旅", "机票应提前七天预订经济舱；飞行时间超过六小时可以申请高端经济舱。"),
    ("报销制度", "附录 一", "报销单须在费用发生后三十天内提交，逾期需财务总监批准。"),
]


class Handbook(BaseRetriever):
    """Ranks passages by the pairs of characters that they share with the question."""

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        pairs = {query[i : i + 2] for i in range(len(query) - 1)}
        found = []
        for index, (title, chapter, text) in enumerate(HANDBOOK):
            shared = sum(pair in text or pair in chapter for pair in pairs)
            if shared:
                metadata = {
                    "knowledge_id": f"doc-{1 + (title == '报销制度')}",
                    "knowledge_title": f"{title} · {chapter}",
                    "knowledge_filename": f"{title}.pdf",
                    "knowledge_source": "handbook",
                    "chunk_index": index,
                    "start_at": index * 400,
                    "end_at": index * 400 + len(text),
                    "score": round(shared / len(pairs), 3),
                }
                found.append(Document(text, metadata=metadata))
        return sorted(found, key=lambda doc: -doc.metadata["score"])[:3]


async def handbook() -> Recording:
    recording = Recording(
        "sample-handbook-zh", "出差住宿超标怎么报销？", sdk=LANGGRAPH, end_user="王芳", tags=["rag", "中文"]
    )
    retriever = Handbook()

    @tool
    async def search_handbook(query: str) -> str:
        """在员工手册中检索。"""
        await asyncio.sleep(0.18)
        found = await retriever.ainvoke(query)
        if not found:
            raise LookupError(f"没有找到与“{query}”相关的段落")
        return json.dumps(
            [{"title": doc.metadata["knowledge_title"], "text": doc.page_content} for doc in found], ensure_ascii=False
        )

    script = [
        say("先查差旅住宿的标准。", ("search_handbook", {"query": "出差住宿标准"})),
        say("再确认报销的期限。", ("search_handbook", {"query": "报销单提交期限"})),
        say(
            "国内出差住宿标准是每晚六百元。超出部分需要部门经理书面批准，"
            "然后在费用发生后三十天内提交报销单；逾期还要财务总监批准。"
        ),
        say("查一下宠物的规定。", ("search_handbook", {"query": "宠物"})),
        say("手册里没有关于带宠物上班的规定，建议直接问人事部。"),
    ]
    talk = LangGraphTalk(recording, "handbook", [search_handbook], script)
    await talk.ask("上周去成都出差，酒店每晚八百元，超标的部分怎么报销？")
    await asyncio.sleep(2)
    await talk.ask("可以带宠物上班吗？")
    return recording


CITIES = {"上海": (31, "多云"), "北京": (28, "晴"), "广州": (33, "雷阵雨")}


async def weather() -> Recording:
    recording = Recording(
        "sample-weather-zh", "上海、北京和亚特兰蒂斯的天气", sdk=LANGGRAPH, end_user="li.wei", tags=["weather", "中文"]
    )

    @tool
    async def get_weather(city: str) -> str:
        """Weather of a city."""
        await asyncio.sleep(0.2 + chance.random() * 0.9)
        if city not in CITIES:
            raise LookupError(f"未知城市: {city}")
        degrees, sky = CITIES[city]
        return json.dumps({"city": city, "temp_c": degrees, "sky": sky}, ensure_ascii=False)

    @tool
    async def search_docs(query: str, k: int = 2) -> str:
        """Search the climate notes."""
        await asyncio.sleep(0.35)
        notes = [
            "台风季：七月至九月，八月最多。",
            "Shanghai sees two typhoons a year on average.",
            "梅雨季：六月中旬至七月上旬。",
        ]
        return json.dumps(notes[:k], ensure_ascii=False)

    researcher = sub_agent(
        "researcher",
        [search_docs, get_weather],
        [
            say(
                "I need both: the season, and today's weather.",
                ("search_docs", {"query": "上海 台风季"}),
                ("get_weather", {"city": "上海"}),
            ),
            say("上海的台风季是七月到九月，八月最多；今天多云，31 ℃。"),
        ],
    )

    @tool
    async def ask_researcher(question: str) -> str:
        """Delegate a question to the research sub-agent."""
        state = await researcher.ainvoke({"messages": [HumanMessage(question)]})
        return str(state["messages"][-1].content)

    script = [
        say("我同时查三个城市。", *(("get_weather", {"city": city}) for city in ("上海", "北京", "亚特兰蒂斯"))),
        say("上海 31 ℃，多云；北京 28 ℃，晴。亚特兰蒂斯查询失败：这不是一个已知的城市。"),
        say("", ("ask_researcher", {"question": "When is typhoon season in Shanghai, and is one near today?"})),
        say(
            "Typhoon season in Shanghai runs from July to September, with a peak in August. Today is merely cloudy, 31 ℃. 🌀"
        ),
    ]
    talk = LangGraphTalk(recording, "supervisor", [get_weather, ask_researcher], script)
    await talk.ask("上海、北京和亚特兰蒂斯今天的天气怎么样？")
    await asyncio.sleep(1.2)
    await talk.ask("And when is typhoon season in Shanghai?")
    return recording


async def sales_analysis() -> Recording:
    recording = Recording(
        "sample-sales-analysis", "Which region sold most in June?", sdk=LANGGRAPH, end_user="dana", tags=["data", "sql"]
    )
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.executescript(
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, region TEXT, product TEXT, amount_cents INTEGER, ordered_on TEXT);"
    )
    amounts = random.Random(6)
    rows = [
        (region, product, amounts.randrange(900, 90_000), f"2025-{month:02}-{day:02}")
        for region in ("north", "south", "华东", "华南")
        for product in ("lamp", "desk", "chair")
        for month in (5, 6)
        for day in range(1, 28, 3)
    ]
    database.executemany("INSERT INTO orders (region, product, amount_cents, ordered_on) VALUES (?, ?, ?, ?)", rows)

    @tool
    async def connect(host: str, user: str, password: str) -> str:
        """Open the warehouse."""
        await asyncio.sleep(0.4)
        return f"Connected to {host} as {user}. Tables: orders"

    @tool
    async def run_sql(sql: str) -> str:
        """Run one read-only statement."""
        await asyncio.sleep(0.1)
        cursor = database.execute(sql)
        names = [column[0] for column in cursor.description]
        return json.dumps([dict(zip(names, row, strict=True)) for row in cursor.fetchmany(50)], ensure_ascii=False)

    def best(region: str) -> str:
        return (
            f"SELECT product, SUM(amount_cents) AS cents FROM orders WHERE region = '{region}' "
            "AND ordered_on LIKE '2025-06%' GROUP BY product ORDER BY cents DESC LIMIT 1"
        )

    june = "SELECT region, SUM(amount_cents) AS cents, COUNT(*) AS orders FROM orders WHERE ordered_on LIKE '2025-06%' GROUP BY region ORDER BY cents DESC"
    top, cents, _orders = database.execute(june).fetchone()
    script = [
        say(
            "First the connection.",
            ("connect", {"host": "warehouse.example", "user": "reader", "password": "only-an-example"}),
        ),
        say("The sum of sales by region in June.", ("run_sql", {"sql": june.replace("amount_cents", "amount")})),
        say("There is no column `amount`. I look at the table.", ("run_sql", {"sql": "PRAGMA table_info(orders)"})),
        say("The amounts are in cents.", ("run_sql", {"sql": june.replace("GROUP BY", "GROUPED BY")})),
        say("A typing error of mine; once more.", ("run_sql", {"sql": june})),
        say(
            "And the best product of each region, at once.",
            *(("run_sql", {"sql": best(region)}) for region in ("north", "south", "华东", "华南")),
        ),
        say(
            f"In June {top} sold most: {cents / 100:,.2f} €, above all with one product: {database.execute(best(top)).fetchone()[0]}. Two of my queries failed on the way: I had assumed a column `amount`, and mistyped GROUP BY."
        ),
    ]
    talk = LangGraphTalk(recording, "analyst", [connect, run_sql], script)
    await talk.ask("Which region sold most in June, and with which product?")
    return recording


SLUGIFY = '''import re


def slugify(title: str) -> str:
    """"Hello, World!" -> "hello-world" """
    return re.sub(r"[^a-z0-9]+", "-", title.lower())
'''
TESTS = """import unittest

from slug import slugify


class SlugTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slugify("Hello, World!"), "hello-world")

    def test_edges(self):
        self.assertEqual(slugify("  --Already-- "), "already")

    def test_nothing_left(self):
        self.assertEqual(slugify("!!!"), "untitled")
"""


async def coding() -> Recording:
    recording = Recording(
        "sample-coding-slugify",
        "Fix slugify: stray hyphens at the ends",
        sdk=LANGGRAPH,
        end_user="sam",
        tags=["coding"],
    )
    folder = Path(tempfile.mkdtemp())
    (folder / "slug.py").write_text(SLUGIFY)
    (folder / "test_slug.py").write_text(TESTS)

    def inside(path: str) -> Path:
        wanted = (folder / path).resolve()
        if not wanted.is_relative_to(folder.resolve()):
            raise ValueError(f"{path} is outside of the project")
        return wanted

    def shown(text: str) -> str:
        return text.replace(str(folder.resolve()), "project").replace(str(folder), "project")

    @tool
    async def list_files() -> str:
        """The files of the project."""
        return "\n".join(sorted(path.name for path in folder.glob("*.py")))

    @tool
    async def read_file(path: str) -> str:
        """Read a file."""
        try:
            return inside(path).read_text()
        except FileNotFoundError as error:
            raise FileNotFoundError(shown(str(error))) from None

    @tool
    async def write_file(path: str, content: str) -> str:
        """Replace a file."""
        inside(path).write_text(content)
        return f"Wrote {len(content.splitlines())} lines to {path}"

    @tool
    async def run_tests() -> str:
        """Run the tests of the project."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "unittest", "-q", cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        output = shown((await process.communicate())[0].decode())
        if process.returncode:
            raise ValueError(f"exit status {process.returncode}\n{output}")
        return output

    half = SLUGIFY.replace("title.lower())", 'title.lower()).strip("-")')
    whole = SLUGIFY.replace("    return re.sub", "    slug = re.sub").replace(
        "title.lower())\n", 'title.lower()).strip("-")\n    return slug or "untitled"\n'
    )

    @tool
    async def check_lines(path: str, longest: int) -> str:
        """Look for lines that are too long."""
        lines = [number for number, line in enumerate(inside(path).read_text().splitlines(), 1) if len(line) > longest]
        if lines:
            raise ValueError(f"{path}: too long: lines {lines}")
        return f"{path}: no line above {longest} characters"

    stylist = sub_agent(
        "stylist",
        [check_lines],
        [
            say(
                "",
                ("check_lines", {"path": "slug.py", "longest": 60}),
                ("check_lines", {"path": "slug.py", "longest": 100}),
            ),
            say("One line has more than 60 characters, none more than 100: that is fine here."),
        ],
    )

    @tool
    async def ask_stylist(path: str) -> str:
        """Have the style of a file checked."""
        state = await stylist.ainvoke({"messages": [HumanMessage(path)]})
        return str(state["messages"][-1].content)

    reviewer = sub_agent(
        "reviewer",
        [read_file, run_tests, ask_stylist],
        [
            say(
                "I read the code and the tests together.",
                ("read_file", {"path": "slug.py"}),
                ("read_file", {"path": "test_slug.py"}),
            ),
            say(
                "Now I run them myself, while the style is checked.",
                ("run_tests", {}),
                ("ask_stylist", {"path": "slug.py"}),
            ),
            say(
                "Approved: both ends are trimmed, the empty case has a name, and all three tests pass. The docstring could mention `untitled`."
            ),
        ],
    )

    @tool
    async def ask_reviewer(request: str) -> str:
        """Have the change reviewed by another agent."""
        state = await reviewer.ainvoke({"messages": [HumanMessage(request)]})
        return str(state["messages"][-1].content)

    script = [
        say("Let me see what there is.", ("list_files", {})),
        say("The module first.", ("read_file", {"path": "slugify.py"})),
        say(
            "Wrong name. The module and its tests:",
            ("read_file", {"path": "slug.py"}),
            ("read_file", {"path": "test_slug.py"}),
        ),
        say("I reproduce the failure before I change anything.", ("run_tests", {})),
        say("Trim the hyphens.", ("write_file", {"path": "slug.py", "content": half})),
        say("", ("run_tests", {})),
        say(
            "One is left: a title without letters needs a name.", ("write_file", {"path": "slug.py", "content": whole})
        ),
        say("", ("run_tests", {})),
        say(
            "All green. A second pair of eyes:",
            ("ask_reviewer", {"request": "Please review slug.py: trimmed ends, and a name for empty titles."}),
        ),
        say(
            "Fixed and reviewed. `slugify` trims hyphens at both ends and answers `untitled` when nothing is left; three of three tests pass."
        ),
    ]
    talk = LangGraphTalk(recording, "coder", [list_files, read_file, write_file, run_tests, ask_reviewer], script)
    await talk.ask(
        "slugify leaves hyphens at the ends of slugs. Please fix it and make the tests pass.", recursion_limit=60
    )
    return recording


async def invoices() -> Recording:
    recording = Recording(
        "sample-invoice-approvals", "Approve the open invoices of March", sdk=AGENTS, end_user="priya", tags=["finance"]
    )
    open_invoices = {"INV-7": 420, "INV-8": 12_900, "INV-9": 80}

    @function_tool(failure_error_function=failure)
    async def list_invoices(month: str) -> str:
        """Open invoices of a month."""
        await asyncio.sleep(0.3)
        return json.dumps([{"id": id_, "amount": amount} for id_, amount in open_invoices.items()])

    @function_tool(failure_error_function=failure)
    async def approve_invoice(invoice_id: str, amount: int) -> str:
        """Approve one invoice."""
        await asyncio.sleep(0.2 + chance.random() * 0.3)
        if amount > 10_000:
            raise PermissionError(f"{invoice_id}: {amount} is above the limit of 10000; a director must approve")
        if amount != open_invoices[invoice_id]:
            raise ValueError(f"{invoice_id}: the invoice says {open_invoices[invoice_id]}, not {amount}")
        return json.dumps({"invoice": invoice_id, "approved": True})

    @function_tool(failure_error_function=failure)
    async def notify(person: str, text: str) -> str:
        """Send a note to a person."""
        await asyncio.sleep(0.1)
        return "sent"

    billing = Agent(
        name="billing",
        instructions="You approve invoices.",
        tools=[list_invoices, approve_invoice, notify],
        model=ScriptedModel(
            [
                say("Let me see what is open.", ("list_invoices", {"month": "2025-03"})),
                say(
                    "I approve the three of them together.",
                    *(
                        ("approve_invoice", {"invoice_id": id_, "amount": amount})
                        for id_, amount in (("INV-7", 420), ("INV-8", 12_900), ("INV-9", 90))
                    ),
                ),
                say(
                    "INV-9 I read wrongly. INV-8 is above my limit.",
                    ("approve_invoice", {"invoice_id": "INV-9", "amount": 80}),
                    ("notify", {"person": "director", "text": "INV-8 (12900) waits for you."}),
                ),
                say("INV-7 and INV-9 are approved. INV-8 is above my limit of 10000: I told the director."),
                say("INV-8, of 12900. It waits for the director since a minute ago."),
            ]
        ),
    )
    front = Agent(
        name="front desk",
        instructions="You route requests.",
        handoffs=[handoff(billing)],
        model=ScriptedModel([say("This is for billing.", ("transfer_to_billing", {}))]),
    )
    talk = AgentsTalk(recording, front)
    await talk.ask("Please approve the open invoices of March.")
    await asyncio.sleep(1.5)
    await talk.ask("Which one is still open?")
    return recording


async def translation() -> Recording:
    recording = Recording(
        "sample-translation-team",
        "把公告翻译成英文、日文和法文",
        sdk=AGENTS,
        end_user="zhao.min",
        tags=["translation", "中文"],
    )
    glossary = {"年会": {"en": "annual party", "ja": "忘年会", "fr": "fête annuelle"}}
    finished = {
        "en": "The annual party takes place on 12 December at 18:00 in the hall on the third floor.",
        "ja": "忘年会は十二月十二日十八時から三階ホールで行います。",
        "fr": "La fête annuelle aura lieu le 12 décembre à 18 h dans la salle du troisième étage.",
    }

    @function_tool(failure_error_function=failure)
    async def look_up_term(term: str, language: str) -> str:
        """The agreed translation of a term."""
        await asyncio.sleep(0.15 + chance.random() * 0.4)
        if language not in glossary[term]:
            raise KeyError(f"no {language} entry for {term}")
        return glossary[term][language]

    def translator(language: str) -> Agent[Any]:
        lookups = [("look_up_term", {"term": "年会", "language": language})]
        if language == "fr":
            lookups.insert(0, ("look_up_term", {"term": "年会", "language": "french"}))
        return Agent(
            name=f"translator-{language}",
            instructions=f"You translate into {language}.",
            tools=[look_up_term],
            model=ScriptedModel([say("The glossary first.", *lookups), say(finished[language])]),
        )

    @function_tool(failure_error_function=failure)
    async def translate(context: ToolContext[Any], language: str, text: str) -> str:
        """Have a text translated by the translator of a language."""
        hooks = AgentsRecorder(recording, parent=context.tool_call_id)
        result = await Runner.run(translator(language), text, hooks=hooks, run_config=RunConfig(tracing_disabled=True))
        return str(result.final_output)

    notice = "年会定于十二月十二日十八点在三楼大厅举行。"
    lead = Agent(
        name="editor",
        instructions="You publish notices.",
        tools=[translate],
        model=ScriptedModel(
            [
                say(
                    "三种语言同时进行。",
                    *(("translate", {"language": language, "text": notice}) for language in finished),
                ),
                say("三种译文都好了：\n" + "\n".join(f"- {language}: {text}" for language, text in finished.items())),
            ]
        ),
    )
    await AgentsTalk(recording, lead).ask(f"请把这条公告翻译成英文、日文和法文：{notice}")
    return recording


async def incident() -> Recording:
    recording = Recording(
        "sample-incident-2041",
        "Checkout has been slow since 09:40",
        sdk=LANGGRAPH,
        end_user="on-call",
        tags=["operations"],
    )
    logs = {
        "checkout": [f"09:{m:02} INFO order placed in {90 if m < 40 else 4200} ms" for m in range(30, 50)],
        "payments": [
            f"09:{m:02} " + ("INFO charged" if m < 40 else "WARN retry: pool of 5 connections exhausted")
            for m in range(30, 50)
        ],
        "inventory": [f"09:{m:02} INFO reserved" for m in range(30, 50)],
    }
    settings = {"payments.pool_size": "5", "payments.timeout_ms": "4000"}
    deploys = ["09:12 inventory 4.1.0", "09:38 payments 7.3.0 (pool_size 50 -> 5)", "09:45 docs 1.0.9"]

    @tool
    async def read_log(service: str, contains: str = "") -> str:
        """Lines of a service's log."""
        await asyncio.sleep(0.1 + chance.random() * 0.3)
        if service not in logs:
            raise LookupError(f"no log of {service!r}; there are {', '.join(logs)}")
        return "\n".join(line for line in logs[service] if contains in line)[-900:]

    @tool
    async def query_metric(name: str, minutes: int = 20) -> str:
        """Values of a metric."""
        await asyncio.sleep(0.25)
        if minutes > 60:
            raise ValueError("minutes: at most 60")
        return json.dumps({"metric": name, "p95_ms": [95, 97, 96, 4210, 4198, 4205]})

    @tool
    async def list_deploys() -> str:
        """Deploys of today."""
        return "\n".join(deploys)

    @tool
    async def get_setting(name: str) -> str:
        """A setting of a service."""
        return settings[name]

    @tool
    async def set_setting(name: str, value: str) -> str:
        """Change a setting of a service."""
        await asyncio.sleep(0.6)
        settings[name] = value
        logs["checkout"].append("09:51 INFO order placed in 93 ms")
        logs["payments"].append("09:51 INFO charged")
        return f"{name} = {value}, rolled out to 4 of 4 hosts"

    script = [
        say("How bad is it?", ("query_metric", {"name": "checkout.latency", "minutes": 120})),
        say("A shorter range, then.", ("query_metric", {"name": "checkout.latency", "minutes": 20})),
        say("A jump from 96 ms to 4.2 s. What does checkout itself say?", ("read_log", {"service": "checkout"})),
        say("No errors, only slowness since 09:40: something behind it.", ("read_log", {"service": "stock"})),
        say("It is called inventory.", ("read_log", {"service": "inventory"})),
        say("Inventory is fine. Payments?", ("read_log", {"service": "payments", "contains": "WARN"})),
        say("The pool is exhausted. What changed?", ("list_deploys", {})),
        say("payments 7.3.0, two minutes before. The present value:", ("get_setting", {"name": "payments.pool_size"})),
        say(
            "Five connections instead of fifty. I put it back.",
            ("set_setting", {"name": "payments.pool_size", "value": "50"}),
        ),
        say("Does it help?", ("read_log", {"service": "payments", "contains": "09:51"})),
        say("And for customers?", ("read_log", {"service": "checkout", "contains": "09:51"})),
        say("One last look at what is configured now.", ("get_setting", {"name": "payments.pool_size"})),
        say(
            "Found and fixed. payments 7.3.0 went out at 09:38 with a pool of 5 connections instead of 50; requests waited 4 s for one. The pool is at 50 again and checkout answers in 93 ms. Please correct the default in 7.3.1."
        ),
    ]
    tools = [read_log, query_metric, list_deploys, get_setting, set_setting]
    talk = LangGraphTalk(recording, "on-call", tools, script)
    await talk.ask("Checkout has been slow since about 09:40. Find out why.", recursion_limit=60)
    return recording


async def travel() -> Recording:
    recording = Recording("sample-travel-plan", "Three days in Lisbon", sdk=AGENTS, end_user="jonas", tags=["travel"])

    @function_tool(failure_error_function=failure)
    async def search_flights(origin: str, destination: str, day: str) -> str:
        """Flights on a day."""
        await asyncio.sleep(0.9)
        return json.dumps(
            [
                {"flight": "TX 412", "leaves": "07:25", "price": 142},
                {"flight": "TX 418", "leaves": "18:10", "price": 96},
            ]
        )

    @function_tool(failure_error_function=failure)
    async def search_hotels(city: str, nights: int) -> str:
        """Hotels of a city."""
        try:
            async with asyncio.timeout(1.5):
                await asyncio.sleep(30)
        except TimeoutError:
            raise TimeoutError(f"no answer from the hotel service of {city} within 1.5 s") from None
        return "[]"

    @function_tool(failure_error_function=failure)
    async def get_forecast(city: str, day: str) -> str:
        """The weather to expect."""
        await asyncio.sleep(0.2 + chance.random() * 0.4)
        return json.dumps({"day": day, "high_c": chance.randrange(19, 26), "rain": chance.random() < 0.3})

    @function_tool(failure_error_function=failure)
    async def search_hotels_nearby(city: str, district: str) -> str:
        """Hotels of one district, from the cache."""
        await asyncio.sleep(0.1)
        return json.dumps([{"hotel": "Casa Alfama", "price": 88}, {"hotel": "Largo 12", "price": 104}])

    script = [
        say(
            "Flights, hotels and the weather of each day, all at once.",
            ("search_flights", {"origin": "HAM", "destination": "LIS", "day": "2025-10-03"}),
            ("search_hotels", {"city": "Lisbon", "nights": 3}),
            *(("get_forecast", {"city": "Lisbon", "day": f"2025-10-0{day}"}) for day in (3, 4, 5)),
        ),
        say(
            "The hotel search timed out; the cache of one district will do.",
            ("search_hotels_nearby", {"city": "Lisbon", "district": "Alfama"}),
        ),
        say(
            "Fly TX 418 on Friday at 18:10 (96 €), stay three nights at Casa Alfama (88 € a night). Pack for about 22 °C."
        ),
        say("Then TX 412 at 07:25, for 142 €. The hotel can keep your luggage until check-in."),
        say("With pleasure. Boa viagem!"),
    ]
    agent = Agent(
        name="travel",
        instructions="You plan trips.",
        tools=[search_flights, search_hotels, get_forecast, search_hotels_nearby],
        model=ScriptedModel(script),
    )
    talk = AgentsTalk(recording, agent)
    await talk.ask("Plan three days in Lisbon for me, from Hamburg, from 3 October.")
    await asyncio.sleep(1)
    await talk.ask("I would rather arrive in the morning.")
    await asyncio.sleep(1)
    await talk.ask("Perfect, thank you!")
    return recording


async def unknown_tool() -> Recording:
    recording = Recording(
        "sample-unknown-tool",
        "The model asks for a tool that is not there",
        sdk=AGENTS,
        end_user="qa",
        tags=["failure"],
    )

    @function_tool(failure_error_function=failure)
    async def read_ticket(number: int) -> str:
        """Read a ticket."""
        await asyncio.sleep(0.2)
        return json.dumps({"number": number, "text": "The logo is blurred on wide screens."})

    script = [
        say("I read the ticket.", ("read_ticket", '{"number": 311')),
        say("Once more, with proper arguments.", ("read_ticket", {"number": 311})),
        say("Now I close it.", ("close_ticket", {"number": 311})),
    ]
    agent = Agent(name="triage", instructions="You handle tickets.", tools=[read_ticket], model=ScriptedModel(script))
    try:
        await AgentsTalk(recording, agent).ask("Please look at ticket 311.")
    except agents.exceptions.ModelBehaviorError as error:
        recording.end(error=f"ModelBehaviorError: {error}")
        recording.status("error")
    return recording


async def runaway_loop() -> Recording:
    recording = Recording(
        "sample-runaway-loop", "Keep polling until the export is ready", sdk=LANGGRAPH, end_user="qa", tags=["failure"]
    )

    @tool
    async def export_status(export_id: str) -> str:
        """How far an export is."""
        await asyncio.sleep(0.1)
        return json.dumps({"export": export_id, "progress": 0})

    script = [say("Not ready; I look again.", ("export_status", {"export_id": "ex-19"})) for _attempt in range(12)]
    talk = LangGraphTalk(recording, "exporter", [export_status], script)
    try:
        await talk.ask("Tell me when export ex-19 is ready.", recursion_limit=12)
    except GraphRecursionError as error:
        recording.end(error=f"GraphRecursionError: {str(error).splitlines()[0]}")
        recording.status("error")
    return recording


async def refund() -> Recording:
    recording = Recording(
        "sample-refund-approval", "Refund order 5518", sdk=LANGGRAPH, end_user="nina", tags=["finance", "approval"]
    )

    @tool
    async def get_order(order: int) -> str:
        """An order."""
        await asyncio.sleep(0.2)
        return json.dumps({"order": order, "total": 349, "paid_by": "card", "delivered": False})

    @tool
    async def refund_order(order: int, amount: int) -> str:
        """Refund an order; a person has to approve it."""
        decision = interrupt({"order": order, "amount": amount})
        return f"refunded: {decision}"

    script = [
        say("I look at the order.", ("get_order", {"order": 5518})),
        say(
            "Not delivered, so the whole amount. That needs a person's approval.",
            ("refund_order", {"order": 5518, "amount": 349}),
        ),
    ]
    talk = LangGraphTalk(recording, "refunds", [get_order, refund_order], script, checkpointer=InMemorySaver())
    await talk.ask("My order 5518 never arrived. I want my money back.", configurable={"thread_id": "refund"})
    recording.status("paused")
    recording.session["current_phase"] = "waiting for approval"
    return recording


async def refund_failed() -> Recording:
    recording = Recording(
        "sample-refund-failed", "Refund order 5471", sdk=LANGGRAPH, end_user="felix", tags=["finance"]
    )

    @tool
    async def get_order(order: int) -> str:
        """An order."""
        await asyncio.sleep(0.2)
        return json.dumps({"order": order, "total": 129, "paid_by": "card", "payment": "pay_71c0", "returned": True})

    @tool
    async def refund_order(order: int, amount: int, to: str) -> str:
        """Refund an order."""
        await asyncio.sleep(0.6)
        if to == "card":
            raise ValueError(
                "card_expired: pay_71c0 was paid with a card that expired in 10/2026; the bank returns refunds to it"
            )
        raise PermissionError("a refund to a bank account needs its IBAN, and the customer has none on file")

    @tool
    async def open_ticket(team: str, subject: str) -> str:
        """Hand something over to people."""
        await asyncio.sleep(0.2)
        return json.dumps({"ticket": 8812, "team": team})

    script = [
        say("I look at the order.", ("get_order", {"order": 5471})),
        say("The parcel is back, so I refund the card.", ("refund_order", {"order": 5471, "amount": 129, "to": "card"})),
        say("Not to this card. I try the bank account.", ("refund_order", {"order": 5471, "amount": 129, "to": "bank"})),
        say("Without an IBAN people have to help.", ("open_ticket", {"team": "payments", "subject": "IBAN for the refund of 5471"})),
        say("I could not refund order 5471 yet: your card expired and we have no IBAN. Our payments team will ask you for it (ticket 8812)."),
    ]  # fmt: skip
    talk = LangGraphTalk(recording, "refunds", [get_order, refund_order, open_ticket], script)
    await talk.ask("I sent order 5471 back a week ago. Where is my refund?")
    return recording


async def interrupted(recording: Recording, talk: LangGraphTalk, question: str, seconds: float) -> None:
    """Cancel a run after some time, during a tool call."""
    task = asyncio.ensure_future(talk.ask(question))
    await asyncio.sleep(seconds)
    # Keep the recording as it is; the cancelled run reports to a copy that is discarded.
    recording.session = json.loads(json.dumps(recording.session))
    recording.run = recording.session["messages"][-1]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def cancelled() -> Recording:
    recording = Recording(
        "sample-bulk-import-stopped", "Import 40,000 contacts", sdk=LANGGRAPH, end_user="omar", tags=["import"]
    )

    @tool
    async def check_file(name: str) -> str:
        """Check a file before it is imported."""
        await asyncio.sleep(0.5)
        return json.dumps({"rows": 40_000, "without_email": 1_204})

    @tool
    async def import_contacts(name: str, batch: int) -> str:
        """Import a batch of contacts."""
        await asyncio.sleep(1.2 if batch == 1 else 60)
        return json.dumps({"batch": batch, "imported": 1_000})

    script = [
        say("First a check.", ("check_file", {"name": "contacts.csv"})),
        say(
            "Two batches side by side.",
            ("import_contacts", {"name": "contacts.csv", "batch": 1}),
            ("import_contacts", {"name": "contacts.csv", "batch": 2}),
        ),
    ]
    talk = LangGraphTalk(recording, "importer", [check_file, import_contacts], script)
    await interrupted(recording, talk, "Import contacts.csv into the address book.", 6)
    recording.end(error="Stopped by the user.", health=["stopped"])
    recording.status("aborted")
    return recording


async def running() -> Recording:
    recording = Recording(
        "sample-nightly-report", "Nightly report for 14 branches", sdk=LANGGRAPH, end_user="scheduler", tags=["report"]
    )

    @tool
    async def load_branch(branch: str) -> str:
        """Figures of a branch."""
        await asyncio.sleep(0.4 + chance.random())
        return json.dumps({"branch": branch, "revenue": chance.randrange(10_000, 90_000)}, ensure_ascii=False)

    @tool
    async def render_report(branches: int, output: str) -> str:
        """Render the report as PDF."""
        await asyncio.sleep(60)
        return "done"

    script = [
        say(
            "The branches of the north first.",
            *(("load_branch", {"branch": name}) for name in ("Hamburg", "Kiel", "Bremen")),
        ),
        say("Then the Asian ones.", *(("load_branch", {"branch": name}) for name in ("上海", "深圳"))),
        say("Now the PDF.", ("render_report", {"branches": 5, "output": "nightly.pdf"})),
    ]
    talk = LangGraphTalk(recording, "reporter", [load_branch, render_report], script)
    await interrupted(recording, talk, "Make the nightly report.", 7)
    recording.status("running")
    recording.session["current_phase"] = "execute"
    return recording


SCENARIOS: list[Callable[[], Awaitable[Recording]]] = [
    support_chat, unknown_tool, handbook, travel, coding, sales_analysis, runaway_loop, invoices, translation,
    cancelled, incident, weather, refund, refund_failed, running,
]  # fmt: skip
"""Sorted from the oldest to the newest sample."""


async def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for scenario in SCENARIOS:
        recording = await scenario()
        name = recording.session["external_id"].removeprefix("sample-")
        text = json.dumps({"sessions": [recording.session]}, ensure_ascii=False, indent=1)
        (folder / f"{name}.json").write_text(text + "\n")
        print(f"{name}: {len(recording.session['messages'])} messages, {len(recording.calls)} calls")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))

"""Recorders for agent SDKs, and scripted models, for the scenarios of record.py.

No request leaves the machine: the "model" replies with the next line of its script, after a realistic pause. The SDKs
determine everything else: parallel calls, nesting, error handling, and all times and durations.
"""

from __future__ import annotations

import asyncio
import json
import random
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import agents
from agents import Agent, ModelResponse, RunConfig, RunHooks, Runner, Usage
from agents.models.interface import Model
from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.callbacks import AsyncCallbackHandler
from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

agents.set_tracing_disabled(True)
chance = random.Random(7)

Json = dict[str, Any]


# --- The recorder -------------------------------------------------------------------------------------------------


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def milliseconds(start: str, end: str) -> int:
    return round((datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() * 1000)


class Recording:
    """Recording of one session."""

    def __init__(self, external_id: str, title: str, *, sdk: str, end_user: str, tags: list[str]) -> None:
        self.session: Json = {
            "external_id": external_id,
            "title": title,
            "end_user": end_user,
            "status": "completed",
            "tags": tags,
            "metadata": {"sdk": sdk, "sample": True},
            "created_at": now(),
            "messages": [],
        }
        self.calls: dict[str, Json] = {}
        self.run: Json = {}

    def said(self, role: str, content: str) -> None:
        number = len(self.session["messages"])
        message = {"external_id": f"m{number}", "role": role, "content": content, "created_at": now()}
        self.session["messages"].append(message)

    def begin(self) -> None:
        """Start the turn of the agent."""
        self.said("assistant", "")
        self.run = self.session["messages"][-1]
        self.run |= {"is_completed": False, "agent_steps": []}

    def reply(
        self,
        *,
        agent: str,
        model: str,
        text: str,
        calls: Sequence[tuple[str, str, Any]],
        usage: Json,
        started: str,
        parent: str | None,
    ) -> None:
        """Record a reply of the model. The agent's last reply without calls is the answer, not a step."""
        steps = self.run["agent_steps"]
        step = {
            "iteration": len(steps),
            "thought": text,
            "agent_name": agent,
            "model": model,
            "usage": usage,
            "timestamp": started,
            "duration": milliseconds(started, now()),
            "tool_calls": [],
        }
        for call_id, name, args in calls:
            call = {"id": call_id, "uuid": f"{self.run['external_id']}-{call_id}", "name": name, "args": args}
            call["status"] = "pending"
            if parent:
                call["parent"] = self.calls[parent]["uuid"]
            self.calls[call_id] = call
            step["tool_calls"].append(call)
        steps.append(step)

    def tool_started(self, call_id: str) -> None:
        self.calls[call_id]["started_at"] = now()

    def tool_ended(self, call_id: str, *, output: str = "", error: str = "", data: Any = None) -> None:
        call = self.calls[call_id]
        call["completed_at"] = now()
        call["duration"] = milliseconds(call["started_at"], call["completed_at"])
        call["status"] = "error" if error else "success"
        call["result"] = {"status": call["status"], "output": output}
        if error:
            call["result"]["error"] = error
        if data is not None:
            call["result"]["data"] = data

    def refer(self, references: list[Json]) -> None:
        self.run.setdefault("knowledge_references", []).extend(references)

    def end(self, answer: str = "", *, error: str = "", health: Sequence[str] = ()) -> None:
        self.run |= {"is_completed": True, "completed_at": now()}
        steps = self.run["agent_steps"]
        if answer and steps and not steps[-1]["tool_calls"] and steps[-1]["thought"] == answer:
            last = steps.pop()
            self.run["metadata"] = {"answered_by": last["agent_name"], "model": last["model"]}
            self.run["usage"] = {
                name: last["usage"][name] + sum(step["usage"][name] for step in steps) for name in last["usage"]
            }
        self.run["content"] = answer
        if error:
            self.run["error"] = error
        if health:
            self.run["health"] = [*health]

    def status(self, status: str) -> None:
        self.session["status"] = status


# --- Scripted model ----------------------------------------------------------------------------------


@dataclass
class Line:
    """Reply of the model: text, and calls as (tool, arguments)."""

    text: str
    calls: list[tuple[str, Any]] = field(default_factory=list)


def say(text: str, *calls: tuple[str, Any]) -> Line:
    return Line(text, list(calls))


def new_call_id() -> str:
    return f"call_{chance.getrandbits(80):020x}"


async def think(line: Line) -> None:
    await asyncio.sleep(0.25 + chance.random() * 0.5 + len(line.text) / 400)


def tokens(heard: str, line: Line) -> Json:
    return {
        "input_tokens": 40 + len(heard) // 3,
        "output_tokens": 5 + len(line.text) // 3 + sum(len(json.dumps(args)) // 3 for _name, args in line.calls),
    }


# --- LangGraph ------------------------------------------------------------------------------------------------------


class ScriptedChat(BaseChatModel):
    script: list[Line]
    model: str = "scripted-chat-1"

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **kwargs: Any) -> ScriptedChat:
        return self

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise NotImplementedError("the scenarios are asynchronous")

    async def _agenerate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        line = self.script.pop(0)
        await think(line)
        counts = tokens("".join(str(message.content) for message in messages), line)
        message = AIMessage(
            content=line.text,
            tool_calls=[{"id": new_call_id(), "name": name, "args": args} for name, args in line.calls],
            usage_metadata={**counts, "total_tokens": sum(counts.values())},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


class LangGraphRecorder(AsyncCallbackHandler):
    """Recorder for LangChain callbacks; the parent run of a run determines the nesting."""

    raise_error = True
    run_inline = True

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.above: dict[UUID, UUID | None] = {}
        self.tool_runs: dict[UUID, str] = {}
        self.models: dict[UUID, tuple[str, str]] = {}

    async def on_chain_start(
        self, serialized: Any, inputs: Any, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self.above[run_id] = parent_run_id

    async def on_chat_model_start(
        self,
        serialized: Any,
        messages: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Any = None,
        **kwargs: Any,
    ) -> None:
        self.above[run_id] = parent_run_id
        self.models[run_id] = (now(), (metadata or {}).get("lc_agent_name") or "agent")

    async def on_llm_end(self, response: Any, *, run_id: UUID, **kwargs: Any) -> None:
        message = response.generations[0][0].message
        started, agent = self.models[run_id]
        usage = message.usage_metadata
        self.recording.reply(
            agent=agent,
            model="scripted-chat-1",
            text=message.content,
            calls=[(call["id"], call["name"], call["args"]) for call in message.tool_calls],
            usage={"input_tokens": usage["input_tokens"], "output_tokens": usage["output_tokens"]},
            started=started,
            parent=self._call_above(run_id),
        )

    async def on_tool_start(
        self,
        serialized: Any,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        tool_call_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        assert tool_call_id, "an agent's tools are called with an id"
        self.above[run_id] = parent_run_id
        self.tool_runs[run_id] = tool_call_id
        self.recording.tool_started(tool_call_id)

    async def on_tool_end(self, output: Any, *, run_id: UUID, **kwargs: Any) -> None:
        self.recording.tool_ended(self.tool_runs[run_id], output=str(output.content), data=as_data(output.content))

    async def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        if type(error).__name__ in ("GraphInterrupt", "CancelledError"):
            return
        self.recording.tool_ended(self.tool_runs[run_id], error=f"{type(error).__name__}: {error}")

    async def on_retriever_start(
        self, serialized: Any, query: str, *, run_id: UUID, parent_run_id: UUID | None = None, **kwargs: Any
    ) -> None:
        self.above[run_id] = parent_run_id

    async def on_retriever_end(self, documents: Sequence[Document], **kwargs: Any) -> None:
        self.recording.refer(
            [
                {
                    "id": f"{doc.metadata['knowledge_id']}-{doc.metadata['chunk_index']}",
                    "content": doc.page_content,
                    **doc.metadata,
                    "seq": number,
                    "chunk_type": "text",
                }
                for number, doc in enumerate(documents)
            ]
        )

    def _call_above(self, run_id: UUID) -> str | None:
        above = self.above.get(run_id)
        while above is not None:
            if above in self.tool_runs:
                return self.tool_runs[above]
            above = self.above.get(above)
        return None


def as_data(text: str) -> Any:
    try:
        value = json.loads(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, (dict, list)) else None


@wrap_tool_call
async def tell_the_model(request: Any, handler: Any) -> Any:
    """Return an exception of a tool as a message with status error, so that the model can react."""
    try:
        return await handler(request)
    except (ValueError, OSError, LookupError, sqlite3.Error, TimeoutError) as error:
        return ToolMessage(
            content=f"Error: {type(error).__name__}: {error}",
            name=request.tool_call["name"],
            tool_call_id=request.tool_call["id"],
            status="error",
        )


class LangGraphTalk:
    """Conversation with one LangGraph agent."""

    def __init__(self, recording: Recording, name: str, tools: list[Any], script: list[Line], **options: Any) -> None:
        self.recording = recording
        self.handler = LangGraphRecorder(recording)
        self.agent = create_agent(ScriptedChat(script=script), tools, name=name, middleware=[tell_the_model], **options)
        self.messages: list[Any] = []

    async def ask(self, text: str, **config: Any) -> None:
        self.recording.said("user", text)
        self.recording.begin()
        self.messages.append(HumanMessage(text))
        state = await self.agent.ainvoke({"messages": self.messages}, {"callbacks": [self.handler], **config})
        self.messages = state["messages"]
        if "__interrupt__" not in state:
            self.recording.end(self.messages[-1].content)


def sub_agent(name: str, tools: list[Any], script: list[Line]) -> Any:
    """Return an agent to run inside a tool, which inherits the callbacks of the outer run."""
    return create_agent(ScriptedChat(script=script), tools, name=name, middleware=[tell_the_model])


# --- OpenAI Agents SDK ----------------------------------------------------------------------------------------------


class ScriptedModel(Model):
    def __init__(self, script: list[Line]) -> None:
        self.script = script

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> ModelResponse:
        line = self.script.pop(0)
        await think(line)
        counts = tokens(json.dumps(input, ensure_ascii=False, default=str), line)
        output: list[Any] = []
        if line.text:
            content = [ResponseOutputText(type="output_text", text=line.text, annotations=[])]
            output.append(
                ResponseOutputMessage(id="msg", type="message", role="assistant", status="completed", content=content)
            )
        for name, arguments in line.calls:
            text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
            output.append(
                ResponseFunctionToolCall(type="function_call", call_id=new_call_id(), name=name, arguments=text)
            )
        usage = Usage(requests=1, **counts, total_tokens=sum(counts.values()))
        return ModelResponse(output=output, usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("the scenarios do not stream")


class AgentsRecorder(RunHooks[Any]):
    """Recorder for the SDK's lifecycle hooks; `parent` is the call in which a sub-agent runs."""

    def __init__(self, recording: Recording, parent: str | None = None) -> None:
        self.recording, self.parent = recording, parent
        self.started: dict[str, str] = {}

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.started[agent.name] = now()

    async def on_llm_end(self, context: Any, agent: Any, response: ModelResponse) -> None:
        texts = [item.content[0].text for item in response.output if isinstance(item, ResponseOutputMessage)]
        self.recording.reply(
            agent=agent.name,
            model="scripted-responses-1",
            text=" ".join(texts),
            calls=[
                (item.call_id, item.name, item.arguments)
                for item in response.output
                if isinstance(item, ResponseFunctionToolCall)
            ],
            usage={"input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens},
            started=self.started[agent.name],
            parent=self.parent,
        )

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        # The SDK has no tool hooks for a handoff, so it ends as soon as it is reported.
        open_calls = [
            call_id
            for call_id, call in self.recording.calls.items()
            if call["status"] == "pending" and call["name"].startswith("transfer_to_")
        ]
        self.recording.tool_started(open_calls[-1])
        self.recording.tool_ended(open_calls[-1], output=json.dumps({"assistant": to_agent.name}))

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.recording.tool_started(context.tool_call_id)

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        text = str(result)
        if text.startswith("FAILED: "):
            self.recording.tool_ended(context.tool_call_id, error=text.removeprefix("FAILED: "))
        else:
            self.recording.tool_ended(context.tool_call_id, output=text, data=as_data(text))


def failure(context: Any, error: Exception) -> str:
    """Return the model's error message of a failed tool, the only sign of the failure in hooks."""
    return f"FAILED: {type(error).__name__}: {error}"


class AgentsTalk:
    """Conversation with agents of the OpenAI Agents SDK."""

    def __init__(self, recording: Recording, agent: Agent[Any]) -> None:
        self.recording, self.agent = recording, agent
        self.items: list[Any] = []

    async def ask(self, text: str) -> None:
        self.recording.said("user", text)
        self.recording.begin()
        self.items.append({"role": "user", "content": text})
        result = await Runner.run(
            self.agent, self.items, hooks=AgentsRecorder(self.recording), run_config=RunConfig(tracing_disabled=True)
        )
        self.items, self.agent = result.to_input_list(), result.last_agent
        self.recording.end(str(result.final_output))

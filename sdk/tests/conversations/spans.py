"""The conversation as spans: in each convention of OpenTelemetry, and on the wires of the SDKs that have their own.

An agent is around its requests and tools. A span is sent when it ends, so while a person is waited for there is neither the
agent nor the tool; wires that send the start have both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

from tracesite_sdk import records
from tracesite_sdk.spans import langfuse_events, langsmith_runs, openai_traces
from tracesite_sdk.spans.conversation import session_of_trace
from tracesite_sdk.spans.deliveries import merged
from tracesite_sdk.spans.span import Span

from .chat import chat_answer, chat_messages
from .conversation import BEGAN, LAST, QUESTION, Call, Conversation, Form, Lack, Request, stamp
from .files import file_form, imported

TRACE = "0af7651916cd43dd8448eb211c80319c"
Attributes = dict[str, Any]


class Made(NamedTuple):
    """One operation of the agent."""

    number: int
    parent: int | None
    name: str
    begins: int
    ends: int | None
    subject: Conversation | Request | Call
    asked: Sequence[Request] = ()
    """The requests before a request."""
    raised: str = ""
    """The exception by which LangGraph ends what waits for a person."""

    @property
    def error(self) -> str | None:
        return self.raised or (self.subject.output if isinstance(self.subject, Call) and self.subject.failed else None)


def operations(conversation: Conversation) -> Iterator[Made]:
    """Yield the operations in the order of their start."""
    yield Made(1, None, "agent", 0, None if conversation.is_paused else conversation.ends, conversation)
    number = 1
    for index, request in enumerate(conversation.requests):
        number += 1
        yield Made(number, 1, "chat", request.begins, request.ends, request, conversation.requests[:index])
        for call in request.calls:
            number += 1
            yield Made(number, 1, call.name, call.begins, None if call.output is None else call.ends, call)


def interrupted(conversation: Conversation) -> Iterator[Made]:
    """Yield the operations of a graph, of which a pause is an exception of the tool and of everything around it."""
    for made in operations(conversation):
        raised = "GraphInterrupt: (Interrupt(value='Approve?', id='i'),)"
        yield made if made.ends is not None else made._replace(ends=made.begins + 12, raised=raised)


def answer_of(conversation: Conversation) -> str | None:
    return None if conversation.is_paused else LAST.text


# --- Conventions of OpenTelemetry -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The attributes of each operation."""

    agent: Callable[[Conversation], Attributes]
    request: Callable[[Request, list[dict[str, Any]]], Attributes]
    """Of a request, with the messages that it sends, as those of chat completions."""
    tool: Callable[[Call], Attributes]
    operations: Callable[[Conversation], Iterator[Made]] = operations
    events: Callable[[Conversation | Request | Call], dict[str, Attributes]] = lambda _subject: {}
    """By their names."""
    name: Callable[[Made], str] = attrgetter("name")

    def attributes(self, made: Made) -> Attributes:
        if isinstance(made.subject, Request):
            return self.request(made.subject, chat_messages(made.asked))
        return self.tool(made.subject) if isinstance(made.subject, Call) else self.agent(made.subject)


def ended_spans(conversation: Conversation, convention: Convention) -> list[tuple[Made, Attributes]]:
    return [
        (made, convention.attributes(made)) for made in convention.operations(conversation) if made.ends is not None
    ]


def nanoseconds(second: int) -> int:
    return (int(BEGAN.timestamp()) + second) * 10**9


def otlp(conversation: Conversation, convention: Convention) -> dict[str, Any]:
    spans = [
        {
            "traceId": TRACE, "spanId": f"{made.number:016x}", "parentSpanId": "" if made.parent is None else f"{made.parent:016x}",
            "name": convention.name(made), "kind": 1, "startTimeUnixNano": str(nanoseconds(made.begins)), "endTimeUnixNano": str(nanoseconds(made.ends or 0)),
            "attributes": [{"key": key, "value": otlp_value(value)} for key, value in attributes.items()],
            "status": {"code": 2, "message": made.error} if made.error else {},
            "events": [{"name": name, "timeUnixNano": str(nanoseconds(made.ends or 0)), "attributes": [{"key": key, "value": otlp_value(value)} for key, value in event.items()]} for name, event in convention.events(made.subject).items()],
        }
        for made, attributes in ended_spans(conversation, convention)
    ]  # fmt: skip
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def otlp_value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"arrayValue": {"values": [*map(otlp_value, value)]}} if isinstance(value, list) else {"stringValue": value}


def printed_by_python(conversation: Conversation, convention: Convention) -> list[Any]:
    """Write spans as ConsoleSpanExporter and Phoenix's exports have them."""
    return [
        {
            "name": made.name, "context": {"trace_id": f"0x{TRACE}", "span_id": f"0x{made.number:016x}", "trace_state": "[]"},
            "kind": "SpanKind.INTERNAL", "parent_id": None if made.parent is None else f"0x{made.parent:016x}",
            "start_time": stamp(made.begins), "end_time": stamp(made.ends or 0),
            "status": {"status_code": "ERROR", "description": made.error} if made.error else {"status_code": "UNSET"},
            "attributes": attributes, "events": [], "links": [], "resource": {"attributes": {}, "schema_url": ""},
        }
        for made, attributes in ended_spans(conversation, convention)
    ]  # fmt: skip


def printed_by_javascript(conversation: Conversation, convention: Convention) -> list[Any]:
    def time(second: int) -> list[int]:
        return [nanoseconds(second) // 10**9, 0]

    return [
        {
            "name": made.name, "spanContext": {"traceId": TRACE, "spanId": f"{made.number:016x}", "traceFlags": 1}, "kind": 0,
            "parentSpanContext": None if made.parent is None else {"traceId": TRACE, "spanId": f"{made.parent:016x}"},
            "startTime": time(made.begins), "endTime": time(made.ends or 0), "attributes": attributes, "events": [],
            "status": {"code": 2, "message": made.error} if made.error else {"code": 0}, "resource": {"_rawAttributes": []},
        }
        for made, attributes in ended_spans(conversation, convention)
    ]  # fmt: skip


def written_by_phoenix(conversation: Conversation, convention: Convention) -> list[Any]:
    return [
        {
            "id": f"U{made.number}", "name": made.name, "context": {"trace_id": TRACE, "span_id": f"{made.number:016x}"},
            "span_kind": attributes["openinference.span.kind"], "parent_id": None if made.parent is None else f"{made.parent:016x}",
            "start_time": stamp(made.begins), "end_time": stamp(made.ends or 0), "status_code": "ERROR" if made.error else "OK",
            "status_message": made.error or "", "attributes": attributes, "events": [],
        }
        for made, attributes in ended_spans(conversation, convention)
    ]  # fmt: skip


def genai_messages(messages: list[dict[str, Any]]) -> str:
    def parts(message: dict[str, Any]) -> list[Any]:
        if message["role"] == "tool":
            return [{"type": "tool_call_response", "id": message["tool_call_id"], "response": message["content"]}]
        calls = [{"type": "tool_call", "id": call["id"], "name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])} for call in message.get("tool_calls", ())]  # fmt: skip
        return [{"type": "text", "content": message["content"]}, *calls]

    return json.dumps([{"role": message["role"], "parts": parts(message)} for message in messages])


def genai_tokens(request: Request) -> Attributes:
    return {"gen_ai.usage.input_tokens": request.input, "gen_ai.usage.cache_read.input_tokens": request.cached, "gen_ai.usage.output_tokens": request.output}  # fmt: skip


def total_tokens(conversation: Conversation) -> Attributes:
    """Return the tokens of an agent, which are those of its requests again."""
    sums = {"input": sum(request.input for request in conversation.requests), "output": sum(request.output for request in conversation.requests)}  # fmt: skip
    return {f"gen_ai.usage.{name}_tokens": count for name, count in sums.items()}


GENAI = Convention(
    agent=lambda c: {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "agent", **total_tokens(c)},
    request=lambda request, messages: {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "p", "gen_ai.request.model": request.model, **genai_tokens(request),
        "gen_ai.input.messages": genai_messages(messages), "gen_ai.output.messages": genai_messages([chat_answer(request)]),
    },
    tool=lambda call: {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id,
        "gen_ai.tool.call.arguments": json.dumps(call.args), **({} if call.failed else {"gen_ai.tool.call.result": call.output}),
    },
)  # fmt: skip
LANGGRAPH = replace(GENAI, operations=interrupted)
LOGFIRE = Convention(
    agent=lambda c: {**GENAI.agent(c), "logfire.msg": "agent run", "pydantic_ai.all_messages": genai_messages(chat_messages(c.requests)), "final_result": LAST.text},
    request=lambda request, messages: {**GENAI.request(request, messages), "logfire.msg": "chat", "logfire.span_type": "span"},
    tool=lambda call: {
        "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id, "logfire.msg": f"running tool: {call.name}",
        "tool_arguments": json.dumps(call.args), "tool_response": call.output,
    },
)  # fmt: skip


def flattened(prefix: str, messages: list[dict[str, Any]], *, is_wrapped: bool) -> Attributes:
    """Return messages as attributes: those of OpenInference are wrapped in objects, those of OpenLLMetry are not."""
    found: Attributes = {}
    for index, message in enumerate(messages):
        at = f"{prefix}.{index}.message" if is_wrapped else f"{prefix}.{index}"
        found |= {f"{at}.{name}": message[name] for name in ("role", "content", "tool_call_id") if name in message}
        for number, call in enumerate(message.get("tool_calls", ())):
            inner = f"{at}.tool_calls.{number}.tool_call" if is_wrapped else f"{at}.tool_calls.{number}"
            function = f"{inner}.function" if is_wrapped else inner
            found |= {f"{inner}.id": call["id"], f"{function}.name": call["function"]["name"], f"{function}.arguments": call["function"]["arguments"]}  # fmt: skip
    return found


OPENINFERENCE = Convention(
    agent=lambda c: {"openinference.span.kind": "AGENT", "input.value": QUESTION, "output.value": LAST.text},
    request=lambda request, messages: {
        "openinference.span.kind": "LLM", "llm.model_name": request.model, "llm.token_count.prompt": request.input,
        "llm.token_count.prompt_details.cache_read": request.cached, "llm.token_count.completion": request.output,
        **flattened("llm.input_messages", messages, is_wrapped=True),
        **flattened("llm.output_messages", [chat_answer(request)], is_wrapped=True),
    },
    tool=lambda call: {
        "openinference.span.kind": "TOOL", "tool.name": call.name, "input.value": json.dumps(call.args), "input.mime_type": "application/json",
        **({} if call.failed else {"output.value": call.output}),
    },
)  # fmt: skip
OPENLLMETRY = Convention(
    agent=lambda c: {"traceloop.span.kind": "workflow", "traceloop.entity.name": "agent", "traceloop.entity.input": json.dumps({"args": [QUESTION], "kwargs": {}}), "traceloop.entity.output": json.dumps(LAST.text)},
    request=lambda request, messages: {
        "llm.request.type": "chat", "gen_ai.system": "OpenAI", "gen_ai.request.model": request.model, "gen_ai.usage.prompt_tokens": request.input,
        "gen_ai.usage.cache_read_input_tokens": request.cached, "gen_ai.usage.completion_tokens": request.output,
        "llm.usage.total_tokens": request.total, **flattened("gen_ai.prompt", messages, is_wrapped=False),
        **flattened("gen_ai.completion", [chat_answer(request)], is_wrapped=False),
    },
    tool=lambda call: {
        "traceloop.span.kind": "tool", "traceloop.entity.name": call.name, "traceloop.entity.input": json.dumps({"args": [], "kwargs": call.args}),
        **({} if call.failed else {"traceloop.entity.output": json.dumps(call.output)}),
    },
)  # fmt: skip
AGENTOPS = Convention(
    agent=lambda c: {"agentops.span.kind": "agent", "operation.name": "agent", "agentops.entity.input": json.dumps({"args": [QUESTION], "kwargs": {}}), "agentops.entity.output": json.dumps(LAST.text)},
    request=lambda request, messages: {
        "agentops.span.kind": "llm", "gen_ai.system": "OpenAI", "gen_ai.request.model": request.model, "gen_ai.usage.prompt_tokens": request.input,
        "gen_ai.usage.cache_read_input_tokens": request.cached, "gen_ai.usage.completion_tokens": request.output,
        **flattened("gen_ai.prompt", messages, is_wrapped=False), **flattened("gen_ai.completion", [chat_answer(request)], is_wrapped=False),
    },
    tool=lambda call: {
        "agentops.span.kind": "tool", "operation.name": call.name, "agentops.entity.input": json.dumps({"args": [], "kwargs": call.args}),
        **({} if call.failed else {"agentops.entity.output": json.dumps(call.output)}),
    },
)  # fmt: skip
MLFLOW = Convention(
    agent=lambda c: {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": json.dumps({"question": QUESTION}), "mlflow.spanOutputs": json.dumps(LAST.text)},
    request=lambda request, messages: {
        "mlflow.spanType": '"CHAT_MODEL"', "mlflow.llm.model": json.dumps(request.model), "mlflow.spanInputs": json.dumps({"model": request.model, "messages": messages}),
        "mlflow.spanOutputs": json.dumps({"choices": [{"message": chat_answer(request)}]}),
        "mlflow.chat.tokenUsage": json.dumps({"input_tokens": request.input, "output_tokens": request.output, "total_tokens": request.total, "cache_read_input_tokens": request.cached}),
    },
    tool=lambda call: {
        "mlflow.spanType": '"TOOL"', "mlflow.spanInputs": json.dumps(call.args), **({} if call.failed else {"mlflow.spanOutputs": json.dumps(call.output)}),
    },
)  # fmt: skip


def langfuse_usage(request: Request) -> dict[str, int]:
    return {"input": request.new, "input_cached_tokens": request.cached, "output": request.output, "total": request.total}  # fmt: skip


LANGFUSE = Convention(
    agent=lambda c: {"langfuse.observation.type": "agent", "langfuse.observation.input": json.dumps(QUESTION), "langfuse.observation.output": json.dumps(LAST.text)},
    request=lambda request, messages: {
        "langfuse.observation.type": "generation", "langfuse.observation.model.name": request.model, "langfuse.observation.input": json.dumps(messages),
        "langfuse.observation.output": json.dumps(chat_answer(request)), "langfuse.observation.usage_details": json.dumps(langfuse_usage(request)),
    },
    tool=lambda call: {
        "langfuse.observation.type": "tool", "langfuse.observation.input": json.dumps(call.args),
        **({"langfuse.observation.level": "ERROR", "langfuse.observation.status_message": call.output} if call.failed else {"langfuse.observation.output": json.dumps(call.output)}),
    },
)  # fmt: skip
LANGSMITH = Convention(
    agent=lambda c: {"langsmith.span.kind": "chain", "gen_ai.prompt": json.dumps({"question": QUESTION}), "gen_ai.completion": json.dumps({"output": LAST.text})},
    request=lambda request, messages: {
        "langsmith.span.kind": "llm", "gen_ai.request.model": request.model, **genai_tokens(request),
        "gen_ai.prompt": json.dumps({"messages": messages}), "gen_ai.completion": json.dumps({"messages": [chat_answer(request)]}),
    },
    tool=lambda call: {
        "langsmith.span.kind": "tool", "gen_ai.prompt": json.dumps(call.args), **({} if call.failed else {"gen_ai.completion": json.dumps({"output": call.output})}),
    },
)  # fmt: skip


def claude_code_events(subject: Conversation | Request | Call) -> dict[str, Attributes]:
    if isinstance(subject, Call):
        return {} if subject.failed else {"tool.output": {"output": subject.output}}
    return {"claude_code.assistant_response": {"response": subject.text if isinstance(subject, Request) else LAST.text}}


def adk_output(call: Call) -> str | None:
    """Return the output of a tool, of whose text ADK makes an object."""
    is_wrapped = call.output is not None and not call.failed
    return f'{{"result":"{call.output}"}}' if is_wrapped else call.output


def adk_content(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "parts": [{"function_response": {"id": message["tool_call_id"], "name": "", "response": {"result": message["content"]}}}]}  # fmt: skip
    calls = [{"function_call": {"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"])}} for call in message.get("tool_calls", ())]  # fmt: skip
    return {"role": "user" if message["role"] == "user" else "model", "parts": [{"text": message["content"]}, *calls]}


def vercel_calls(request: Request) -> str:
    return json.dumps([{"type": "tool-call", "toolCallId": call.id, "toolName": call.name, "input": json.dumps(call.args)} for call in request.calls])  # fmt: skip


def vercel_messages(messages: list[dict[str, Any]]) -> str:
    names = {call["id"]: call["function"]["name"] for message in messages for call in message.get("tool_calls", ())}

    def content(message: dict[str, Any]) -> list[Any]:
        if message["role"] == "tool":
            id_ = message["tool_call_id"]
            return [{"type": "tool-result", "toolCallId": id_, "toolName": names[id_], "output": {"type": "text", "value": message["content"]}}]  # fmt: skip
        calls = [{"type": "tool-call", "toolCallId": call["id"], "toolName": call["function"]["name"], "input": json.loads(call["function"]["arguments"])} for call in message.get("tool_calls", ())]  # fmt: skip
        return [{"type": "text", "text": message["content"]}, *calls]

    return json.dumps([{"role": message["role"], "content": content(message)} for message in messages])


VERCEL = Convention(
    agent=lambda c: {
        "ai.operationId": "ai.generateText", "ai.model.id": LAST.model, "ai.prompt": json.dumps({"messages": [{"role": "user", "content": QUESTION}]}),
        "ai.response.text": LAST.text, "ai.usage.inputTokens": sum(request.input for request in c.requests), "ai.usage.outputTokens": sum(request.output for request in c.requests),
    },
    request=lambda request, messages: {
        "ai.operationId": "ai.generateText.doGenerate", "ai.model.id": request.model, "ai.response.model": request.model, "ai.prompt.messages": vercel_messages(messages),
        "ai.response.text": request.text, **({"ai.response.toolCalls": vercel_calls(request)} if request.calls else {}), "ai.usage.inputTokens": request.input,
        "ai.usage.cachedInputTokens": request.cached, "ai.usage.outputTokens": request.output,
    },
    tool=lambda call: {
        "ai.operationId": "ai.toolCall", "ai.toolCall.name": call.name, "ai.toolCall.id": call.id, "ai.toolCall.args": json.dumps(call.args),
        **({} if call.failed else {"ai.toolCall.result": json.dumps(call.output)}),
    },
)  # fmt: skip

LAMINAR = Convention(
    agent=lambda c: {"lmnr.span.type": "DEFAULT", "lmnr.span.input": json.dumps({"question": QUESTION}), "lmnr.span.output": json.dumps(LAST.text)},
    request=lambda request, messages: {
        "lmnr.span.type": "LLM", "gen_ai.request.model": request.model, **genai_tokens(request), "lmnr.span.input": json.dumps(messages),
        "lmnr.span.output": json.dumps([chat_answer(request)]),
    },
    tool=lambda call: {
        "lmnr.span.type": "TOOL", "lmnr.span.input": json.dumps(call.args), **({} if call.failed else {"lmnr.span.output": json.dumps(call.output)}),
    },
)  # fmt: skip
CLAUDE_CODE = Convention(
    agent=lambda c: {"span.type": "interaction", "user_prompt": QUESTION},
    request=lambda request, messages: {
        "span.type": "llm_request", "model": request.model, "input_tokens": request.new, "cache_read_tokens": request.cached, "output_tokens": request.output,
        "request_id": f"req_{request.begins}",
    },
    tool=lambda call: {"span.type": "tool", "tool_name": call.name, "tool_use_id": call.id, "tool_input": json.dumps(call.args)},
    events=claude_code_events,
    name=lambda made: f"claude_code.{'interaction' if made.parent is None else 'llm_request' if isinstance(made.subject, Request) else 'tool'}",
)  # fmt: skip
GOOGLE_ADK = Convention(
    agent=GENAI.agent,
    request=lambda request, messages: {
        "gen_ai.system": "gcp.vertex.agent", "gen_ai.request.model": request.model,
        "gcp.vertex.agent.llm_request": json.dumps({"model": request.model, "config": {}, "contents": [*map(adk_content, messages)]}),
        "gcp.vertex.agent.llm_response": json.dumps({
            "content": adk_content(chat_answer(request)),
            "usage_metadata": {"prompt_token_count": request.input, "cached_content_token_count": request.cached, "candidates_token_count": request.output},
        }),
    },
    tool=lambda call: {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.name, "gen_ai.tool.call.id": call.id, "gcp.vertex.agent.llm_request": "{}",
        "gcp.vertex.agent.tool_call_args": json.dumps(call.args),
        **({} if call.failed else {"gcp.vertex.agent.tool_response": json.dumps({"result": call.output})}),
    },
    name=lambda made: {"agent": "invoke_agent agent", "chat": "call_llm"}.get(made.name, f"execute_tool {made.name}"),
)  # fmt: skip


# --- Wires of their own -----------------------------------------------------------------------------------------------


def session_of(spans: list[Span]) -> records.Session:
    return session_of_trace(merged(spans))


def uuid(number: int) -> str:
    return str(UUID(int=0x0190B3A4_7C1D_7E5F_8A2B_000000000000 + number))


def langfuse_ingestion(conversation: Conversation) -> bytes:
    """Write each observation as the SDKs before version 3 did: its start, then what ended it."""
    events: list[dict[str, Any]] = [{"type": "trace-create", "timestamp": stamp(0), "body": {"id": uuid(0), "timestamp": stamp(0), "name": "agent", "input": QUESTION, "output": answer_of(conversation)}}]  # fmt: skip
    for made in list(operations(conversation))[1:]:
        kind = "generation" if isinstance(made.subject, Request) else "tool"
        own = {"id": uuid(made.number), "traceId": uuid(0)}
        if isinstance(made.subject, Request):
            begun = {"input": chat_messages(made.asked), "model": made.subject.model}
            ended = {"output": chat_answer(made.subject), "usageDetails": langfuse_usage(made.subject)}
        else:
            assert isinstance(made.subject, Call)
            begun = {"input": made.subject.args}
            ended = {"level": "ERROR", "statusMessage": made.error} if made.error else {"output": made.subject.output}
        events.append({"type": "observation-create", "timestamp": stamp(made.begins), "body": {**own, "type": kind.upper(), "name": made.name, "startTime": stamp(made.begins), **begun}})  # fmt: skip
        if made.ends is not None:
            events.append({"type": "observation-update", "timestamp": stamp(made.ends), "body": {**own, "type": kind.upper(), "endTime": stamp(made.ends), **ended}})  # fmt: skip
    return json.dumps({"batch": [{"id": f"event-{at}", **event} for at, event in enumerate(events)]}).encode()


def langfuse(conversation: Conversation) -> Any:
    """Write a trace with its observations, as the web interface exports it."""
    rows = []
    for made in operations(conversation):
        row = {"id": f"o{made.number}", "traceId": "t", "name": made.name, "startTime": stamp(made.begins), "endTime": stamp(made.ends) if made.ends is not None else None, "parentObservationId": made.parent and f"o{made.parent}", "level": "ERROR" if made.error else "DEFAULT", "statusMessage": made.error}  # fmt: skip
        if isinstance(made.subject, Request):
            row |= {"type": "GENERATION", "input": chat_messages(made.asked), "output": chat_answer(made.subject), "model": made.subject.model, "usageDetails": langfuse_usage(made.subject)}  # fmt: skip
        elif isinstance(made.subject, Call):
            row |= {"type": "TOOL", "input": made.subject.args, "output": None if made.error else made.subject.output}
        else:
            row |= {"type": "AGENT", "input": {"question": QUESTION}, "output": answer_of(conversation)}
        rows.append(row)
    trace = {"id": "t", "timestamp": stamp(0), "name": "agent", "projectId": "p", "public": False, "sessionId": None, "input": {"question": QUESTION}, "output": answer_of(conversation)}  # fmt: skip
    return {"trace": trace, "observations": rows}


def of_langfuse(conversation: Conversation) -> records.Session:
    items = langfuse_events.decode_batch(langfuse_ingestion(conversation))
    assert [item.error for item in items if item.error] == []
    return session_of([item.delivery for item in items if isinstance(item.delivery, Span)])


def langsmith_batch(
    conversation: Conversation, made_by: Callable[[Conversation], Iterator[Made]] = operations
) -> bytes:
    """Write the runs of LangChain's tracer, each posted at its start and patched at its end."""
    posts, patches = [], []
    for made in made_by(conversation):
        own = {"id": uuid(made.number), "trace_id": uuid(1)}
        order = f"20260928T1200{made.begins:02}000000Z{uuid(made.number)}"
        place = {"dotted_order": order} if made.parent is None else {"parent_run_id": uuid(1), "dotted_order": f"20260928T120000000000Z{uuid(1)}.{order}"}  # fmt: skip
        if isinstance(made.subject, Request):
            request = made.subject
            calls = [
                {"name": call.name, "args": call.args, "id": call.id, "type": "tool_call"} for call in request.calls
            ]
            usage = {"input_tokens": request.input, "output_tokens": request.output, "total_tokens": request.total, "input_token_details": {"cache_read": request.cached}}  # fmt: skip
            begun = {"run_type": "llm", "inputs": {"messages": [[langchain_message(message) for message in chat_messages(made.asked)]]}, "extra": {"metadata": {"ls_model_name": request.model}}}  # fmt: skip
            message = {"type": "constructor", "kwargs": {"type": "ai", "content": request.text, "tool_calls": calls, "usage_metadata": usage}}  # fmt: skip
            ended: dict[str, Any] = {"outputs": {"generations": [[{"text": request.text, "message": message}]]}}
        elif isinstance(made.subject, Call):
            begun = {"run_type": "tool", "inputs": made.subject.args, "extra": {"tool_call_id": made.subject.id}}
            ended = {"outputs": {"output": made.subject.output}}
        else:
            begun = {"run_type": "chain", "inputs": {"messages": [{"type": "human", "content": QUESTION}]}, "extra": {}}
            ended = {"outputs": {"messages": [{"type": "ai", "content": LAST.text}]}}
        posts.append({**own, **place, "name": made.name, "start_time": stamp(made.begins), **begun})
        if made.ends is not None:
            outcome = {"error": made.error} if made.error else ended
            patches.append({**own, **place, "end_time": stamp(made.ends), **outcome})
    return json.dumps({"post": posts, "patch": patches}).encode()


def langchain_message(message: dict[str, Any]) -> dict[str, Any]:
    kinds = {"user": "human", "assistant": "ai", "tool": "tool"}
    calls = [{"id": call["id"], "name": call["function"]["name"], "args": json.loads(call["function"]["arguments"]), "type": "tool_call"} for call in message.get("tool_calls", ())]  # fmt: skip
    others = (
        {"tool_calls": calls}
        if calls
        else {"tool_call_id": message["tool_call_id"]}
        if "tool_call_id" in message
        else {}
    )
    return {"type": kinds[message["role"]], "content": message["content"], **others}


def of_langsmith(
    conversation: Conversation, made_by: Callable[[Conversation], Iterator[Made]] = operations
) -> records.Session:
    decoded = langsmith_runs.decode_batch(langsmith_batch(conversation, made_by))
    assert decoded.errors == []
    return session_of(decoded.spans)


def openai_agents_items(conversation: Conversation) -> bytes:
    """Write what the SDK exports: spans when they end. The calls of a function span have no ids."""
    data: list[dict[str, Any]] = [{"object": "trace", "id": f"trace_{TRACE}", "workflow_name": "Agent workflow"}]
    for made in operations(conversation):
        if made.ends is None:
            continue
        if isinstance(made.subject, Request):
            usage = {"input_tokens": made.subject.input, "output_tokens": made.subject.output, "input_tokens_details": {"cached_tokens": made.subject.cached}}  # fmt: skip
            span: dict[str, Any] = {"type": "generation", "model": made.subject.model, "input": chat_messages(made.asked), "output": [chat_answer(made.subject)], "usage": usage}  # fmt: skip
        elif isinstance(made.subject, Call):
            span = {"type": "function", "name": made.name, "input": json.dumps(made.subject.args), "output": made.subject.output}  # fmt: skip
        else:
            span = {"type": "agent", "name": "agent", "handoffs": [], "tools": [], "output_type": "str"}
        error = (
            {"message": "Error running tool (non-fatal)", "data": {"tool_name": made.name, "error": made.error}}
            if made.error
            else None
        )
        parent = None if made.parent is None else f"span_{made.parent}"
        data.append({"object": "trace.span", "id": f"span_{made.number}", "trace_id": f"trace_{TRACE}", "parent_id": parent, "started_at": stamp(made.begins), "ended_at": stamp(made.ends), "span_data": span, "error": error})  # fmt: skip
    return json.dumps({"data": data}).encode()


def of_openai_agents(conversation: Conversation) -> records.Session:
    spans, invalid = openai_traces.decode_items(openai_agents_items(conversation))
    assert invalid == []
    return session_of(spans)


# --- The table --------------------------------------------------------------------------------------------------------

Writer = Callable[[Conversation, Convention], Any]


def span_form(convention: str, words: Convention, *, write: Writer = otlp, **others: Any) -> Form:
    def session(conversation: Conversation) -> records.Session:
        return imported("otlp", json.dumps(write(conversation, words)).encode())

    return Form(name=f"{convention} spans", session=session, **{"lacks": NO_PAUSE, **others})


NO_PAUSE: frozenset[Lack] = frozenset(["pause"])
SPAN_FORMS = [
    span_form("genai", GENAI),
    span_form("logfire", LOGFIRE),
    span_form("openinference", OPENINFERENCE),
    span_form("openllmetry", OPENLLMETRY),
    span_form("agentops", AGENTOPS),
    span_form("mlflow", MLFLOW),
    span_form("langfuse", LANGFUSE, has_cached_beside=True),
    span_form("langsmith", LANGSMITH),
    span_form("vercel", VERCEL),
    span_form("laminar", LAMINAR),
    span_form(
        "claude_code",
        CLAUDE_CODE,
        lacks=NO_PAUSE | {"requests of calls", "open spans"},
        has_cached_beside=True,
    ),
    span_form("google_adk", GOOGLE_ADK, output=adk_output),
    span_form("openinference written by Phoenix", OPENINFERENCE, write=written_by_phoenix),
    span_form("genai printed by Python", GENAI, write=printed_by_python),
    span_form("openinference printed by JavaScript", OPENINFERENCE, write=printed_by_javascript),
    Form(name="Langfuse ingestion", session=of_langfuse, lacks=NO_PAUSE, has_cached_beside=True),
    Form(name="LangSmith runs", session=of_langsmith, lacks=NO_PAUSE),
    span_form("genai of LangGraph", LANGGRAPH, lacks=frozenset()),
    Form(
        name="LangSmith runs of LangGraph",
        session=lambda conversation: of_langsmith(conversation, interrupted),
    ),
    Form(
        name="OpenAI Agents SDK",
        session=of_openai_agents,
        lacks=NO_PAUSE,
        error=lambda call: f"Error running tool (non-fatal): {call.output}",
    ),
    file_form(langfuse, "pause", "end", has_cached_beside=True),
]

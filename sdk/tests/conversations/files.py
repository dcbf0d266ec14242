"""The conversation in every format of files, written as its producer writes it, and read as an import reads it."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BufferedReader, BytesIO
from typing import Any

from tracesite_sdk import records
from tracesite_sdk.formats.registry import document_of, format_of
from tracesite_sdk.transcripts.documents import Source
from tracesite_sdk.transcripts.outline import session_of

from .chat import chat_answer, chat_messages, chat_result, chat_usage, exchanges
from .conversation import BEGAN, LARGE, LAST, QUESTION, Call, Conversation, Form, Lack, Request, stamp


def as_bytes(document: Any) -> bytes:
    """Return a document as JSON, a tuple as lines, a text as it is."""
    if isinstance(document, str):
        return document.encode()
    if isinstance(document, tuple):
        return b"".join(json.dumps(line).encode() + b"\n" for line in document)
    return json.dumps(document).encode()


def imported(name: str, data: bytes) -> records.Session:
    """Return the only session of a file of this format. Nothing of it may be left out."""
    left_out: list[tuple[str, str]] = []

    def skip(where: str, why: str) -> None:
        left_out.append((where, why))

    document = document_of(Source("", lambda: BufferedReader(BytesIO(data))), skip)
    format_ = format_of(document)
    assert format_ is not None and name == format_.NAME
    (transcript,) = format_.transcripts(document, skip)
    assert left_out == []
    return transcript if isinstance(transcript, records.Session) else session_of(transcript, name)


# --- Coding agents ----------------------------------------------------------------------------------------------------


def claude_code(conversation: Conversation) -> tuple[Any, ...]:
    lines: list[dict[str, Any]] = []

    def line(kind: str, second: float, message: dict[str, Any], **others: Any) -> None:
        own = f"uuid-{len(lines)}"
        parent = lines[-1]["uuid"] if lines else None
        frame = {
            "isSidechain": False,
            "userType": "external",
            "sessionId": "session",
            "version": "2.1.0",
            "cwd": "/srv",
        }
        lines.append({"parentUuid": parent, **frame, "type": kind, "message": message, "uuid": own, "timestamp": stamp(second), **others})  # fmt: skip

    line("user", 0, {"role": "user", "content": QUESTION})
    for number, request in enumerate(conversation.requests):
        # One line for each block, each with the usage of the whole answer.
        for block in anthropic_blocks(request):
            message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request.model}
            line("assistant", request.ends, {**message, "content": [block], "usage": anthropic_usage(request)}, requestId=f"req_{number}")  # fmt: skip
        for call in request.results:
            line("user", call.ends, {"role": "user", "content": [anthropic_result(call)]}, toolUseResult=call.output)
    return tuple(lines)


def codex(conversation: Conversation) -> tuple[Any, ...]:
    lines = [codex_line(0, "session_meta", id="thread", timestamp=stamp(0), cwd="/srv", originator="codex_cli_rs", cli_version="0.104.0", source="cli"),
             codex_line(0, "turn_context", turn_id="t", cwd="/srv", model=conversation.requests[0].model, approval_policy="on-request"),
             codex_line(0, "response_item", type="message", role="user", content=[{"type": "input_text", "text": QUESTION}]),
             codex_line(0, "event_msg", type="user_message", message=QUESTION, images=[])]  # fmt: skip
    total = 0
    for request in conversation.requests:
        lines.append(codex_line(request.ends, "response_item", type="message", role="assistant", content=[{"type": "output_text", "text": request.text}]))  # fmt: skip
        lines += [codex_line(request.ends, "response_item", type="function_call", name=call.name, arguments=json.dumps(call.args), call_id=call.id) for call in request.calls]  # fmt: skip
        total += request.total
        usage = {"input_tokens": request.input, "cached_input_tokens": request.cached, "output_tokens": request.output, "reasoning_output_tokens": 0, "total_tokens": request.total}  # fmt: skip
        lines.append(codex_line(request.ends, "event_msg", type="token_count", info={"last_token_usage": usage, "total_token_usage": {"total_tokens": total}}))  # fmt: skip
        for call in request.results:
            lines.append(codex_line(call.ends, "response_item", type="function_call_output", call_id=call.id, output=call.output))  # fmt: skip
    return tuple(lines)


def codex_line(second: float, envelope: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": stamp(second), "type": envelope, "payload": payload}


def copilot_cli(conversation: Conversation) -> tuple[Any, ...]:
    lines: list[dict[str, Any]] = []

    def event(kind: str, second: float, **data: Any) -> None:
        parent = lines[-1]["id"] if lines else None
        lines.append({"type": kind, "data": data, "id": f"e{len(lines)}", "parentId": parent, "timestamp": stamp(second)})  # fmt: skip

    event("session.start", 0, sessionId="session", version=1, producer="copilot-agent", copilotVersion="1.0.41")
    event("user.message", 0, content=QUESTION)
    for number, request in enumerate(conversation.requests):
        asked = [{"toolCallId": call.id, "name": call.name, "arguments": call.args, "type": "function"} for call in request.calls]  # fmt: skip
        usage = {"model": request.model, "inputTokens": request.input, "cacheReadTokens": request.cached, "outputTokens": request.output}  # fmt: skip
        event("assistant.message", request.ends, messageId=f"m{number}", content=request.text, model=request.model, toolRequests=asked)  # fmt: skip
        event("assistant.usage", request.ends, **usage)
        for call in request.calls:
            event("tool.execution_start", call.begins, toolCallId=call.id, toolName=call.name, arguments=call.args)
        for call in request.results:
            gave = {"error": {"message": call.output}} if call.failed else {"result": {"content": call.output}}
            event("tool.execution_complete", call.ends, toolCallId=call.id, success=not call.failed, **gave)
    return tuple(lines)


def copilot_output(call: Call) -> str | None:
    return "" if call.failed else call.output


def gemini_cli(conversation: Conversation) -> Any:
    messages = [{"id": "m", "timestamp": stamp(0), "type": "user", "content": QUESTION}]
    for number, request in enumerate(conversation.requests):
        tokens = {"input": request.input, "output": request.output, "cached": request.cached, "thoughts": 0, "tool": 0, "total": request.total}  # fmt: skip
        calls = [gemini_call(call) for call in request.calls]
        message = {"id": f"m{number}", "timestamp": stamp(request.ends), "type": "gemini", "content": request.text, "thoughts": [], "tokens": tokens, "model": request.model}  # fmt: skip
        messages.append({**message, **({"toolCalls": calls} if calls else {})})
    return {"sessionId": "session", "projectHash": "p", "startTime": stamp(0), "lastUpdated": stamp(conversation.ends), "kind": "main", "messages": messages}  # fmt: skip


def gemini_call(call: Call) -> dict[str, Any]:
    status = "executing" if call.output is None else "error" if call.failed else "success"
    result = {"result": [gemini_response(call)], "resultDisplay": call.output} if call.output is not None else {}
    return {"id": call.id, "name": call.name, "args": call.args, "status": status, "timestamp": stamp(call.ends), **result}  # fmt: skip


def gemini_response(call: Call) -> dict[str, Any]:
    response = {"error" if call.failed else "output": call.output}
    return {"functionResponse": {"id": call.id, "name": call.name, "response": response}}


def qwen_code(conversation: Conversation) -> tuple[Any, ...]:
    lines: list[dict[str, Any]] = []

    def line(kind: str, second: float, parts: list[Any], **others: Any) -> None:
        role = "model" if kind == "assistant" else "user"
        frame = {"uuid": f"r{len(lines)}", "parentUuid": lines[-1]["uuid"] if lines else None, "sessionId": "session"}
        lines.append({**frame, "timestamp": stamp(second), "type": kind, "cwd": "/srv", "version": "0.24.7", "message": {"role": role, "parts": parts}, **others})  # fmt: skip

    line("user", 0, [{"text": QUESTION}])
    for request in conversation.requests:
        calls = [{"functionCall": {"id": call.id, "name": call.name, "args": call.args}} for call in request.calls]
        usage = {"promptTokenCount": request.input, "candidatesTokenCount": request.output, "cachedContentTokenCount": request.cached, "totalTokenCount": request.total}  # fmt: skip
        line("assistant", request.ends, [{"text": request.text}, *calls], model=request.model, usageMetadata=usage)
        for call in request.results:
            outcome = {"callId": call.id, "status": "error" if call.failed else "success"}
            line("tool_result", call.ends, [gemini_response(call)], toolCallResult=outcome)
    return tuple(lines)


def opencode(conversation: Conversation) -> Any:
    def message(own: str, role: str, second: int, parts: list[dict[str, Any]], **info: Any) -> dict[str, Any]:
        frame = {"sessionID": "ses_1", "messageID": own}
        numbered = [{"id": f"prt_{own}_{at}", **frame, **part} for at, part in enumerate(parts)]
        return {"info": {"id": own, "sessionID": "ses_1", "role": role, "time": {"created": milliseconds(second)}, **info}, "parts": numbered}  # fmt: skip

    messages = [message("msg", "user", 0, [{"type": "text", "text": QUESTION}])]
    for number, request in enumerate(conversation.requests):
        tokens = {"input": request.new, "output": request.output, "reasoning": 0, "cache": {"read": request.cached, "write": 0}}  # fmt: skip
        parts = [{"type": "step-start"}, {"type": "text", "text": request.text}, *map(opencode_tool, request.calls), {"type": "step-finish", "reason": "tool-calls" if request.calls else "stop", "cost": 0, "tokens": tokens}]  # fmt: skip
        messages.append(message(f"msg_{number}", "assistant", request.begins, parts, modelID=request.model, providerID="p", mode="build", cost=0, tokens=tokens))  # fmt: skip
    info = {"id": "ses_1", "projectID": "p", "directory": "/srv", "title": "Cities", "version": "1.2.3", "time": {"created": milliseconds(0), "updated": milliseconds(50)}}  # fmt: skip
    return {"info": info, "messages": messages}


def opencode_tool(call: Call) -> dict[str, Any]:
    status = "running" if call.output is None else "error" if call.failed else "completed"
    output = {"error" if call.failed else "output": call.output} if call.output is not None else {}
    end = {"end": milliseconds(call.ends)} if output else {}
    state = {"status": status, "input": call.args, "time": {"start": milliseconds(call.begins), **end}, **output}
    return {"type": "tool", "callID": call.id, "tool": call.name, "state": state}


def milliseconds(second: float) -> int:
    return int((BEGAN.timestamp() + second) * 1000)


def openhands(conversation: Conversation) -> Any:
    """Write the events of the agent SDK, which have no tokens; the stream of older versions has them."""
    events: list[dict[str, Any]] = []

    def event(kind: str, second: float, source: str, **others: Any) -> None:
        events.append({"kind": kind, "id": f"e{len(events)}", "timestamp": stamp(second), "source": source, **others})

    event("MessageEvent", 0, "user", llm_message={"role": "user", "content": [{"type": "text", "text": QUESTION}]})
    for number, request in enumerate(conversation.requests):
        for at, call in enumerate(request.calls):
            thought = [] if at else [{"type": "text", "text": request.text}]
            event("ActionEvent", request.ends, "agent", thought=thought, action={"kind": "MCPToolAction", "data": call.args}, tool_name=call.name, tool_call_id=call.id, tool_call={"id": call.id, "name": call.name, "arguments": json.dumps(call.args)}, llm_response_id=f"r{number}")  # fmt: skip
        for call in request.results:
            observation = {"kind": "MCPToolObservation", "content": [{"type": "text", "text": call.output}], "is_error": call.failed, "tool_name": call.name}  # fmt: skip
            event("ObservationEvent", call.ends, "environment", tool_name=call.name, tool_call_id=call.id, observation=observation)  # fmt: skip
        if not request.calls:
            event("MessageEvent", request.ends, "agent", llm_response_id=f"r{number}", llm_message={"role": "assistant", "content": [{"type": "text", "text": request.text}]})  # fmt: skip
    return events


def pi(conversation: Conversation) -> tuple[Any, ...]:
    lines: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "session", "timestamp": stamp(0), "cwd": "/srv"}]  # fmt: skip

    def entry(second: int, **message: Any) -> None:
        parent = lines[-1]["id"] if len(lines) > 1 else None
        lines.append({"type": "message", "id": f"e{len(lines)}", "parentId": parent, "timestamp": stamp(second), "message": {"timestamp": milliseconds(second), **message}})  # fmt: skip

    entry(0, role="user", content=[{"type": "text", "text": QUESTION}])
    for request in conversation.requests:
        calls = [{"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.args} for call in request.calls]  # fmt: skip
        usage = {"input": request.new, "output": request.output, "cacheRead": request.cached, "cacheWrite": 0, "totalTokens": request.total, "cost": {"total": 0}}  # fmt: skip
        entry(request.ends, role="assistant", content=[{"type": "text", "text": request.text}, *calls], model=request.model, provider="p", usage=usage, stopReason="toolUse" if calls else "stop")  # fmt: skip
        for call in request.results:
            entry(call.ends, role="toolResult", toolCallId=call.id, toolName=call.name, content=[{"type": "text", "text": call.output}], isError=call.failed)  # fmt: skip
    return tuple(lines)


def sweagent(conversation: Conversation) -> Any:
    history = []
    for message in chat_messages(conversation.requests):
        if message["role"] == "tool":
            message = {"role": "tool", "content": message["content"], "tool_call_ids": [message["tool_call_id"]]}
        history.append({**message, "agent": "main"})
    return {"environment": "main", "history": history, "trajectory": [], "info": {"exit_status": "submitted"}}


def mini_swe_agent(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION}]
    for request in conversation.requests:
        response = {"model": request.model, "usage": chat_usage(request)}
        messages.append({**chat_answer(request), "extra": {"timestamp": stamp(request.ends), "response": response}})
        messages += [{**chat_result(call), "extra": {"returncode": int(call.failed), "raw_output": call.output, "timestamp": stamp(call.ends)}} for call in request.results]  # fmt: skip
    return {"info": {"exit_status": "Submitted", "mini_version": "2.0.0", "model_stats": {}}, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}  # fmt: skip


def goose(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = []

    def message(role: str, second: float, blocks: list[Any], **metadata: Any) -> None:
        messages.append({"id": f"m{len(messages)}", "role": role, "created": BEGAN.timestamp() + second, "content": blocks, "metadata": metadata})  # fmt: skip

    message("user", 0, [{"type": "text", "text": QUESTION}])
    for request in conversation.requests:
        calls = [{"type": "toolRequest", "id": call.id, "toolCall": {"status": "success", "value": {"name": call.name, "arguments": call.args}}} for call in request.calls]  # fmt: skip
        usage = {"inputTokens": request.input, "cacheReadTokens": request.cached, "outputTokens": request.output}
        message("assistant", request.ends, [{"type": "text", "text": request.text}, *calls], inference={"resolvedModel": request.model}, usage=usage)  # fmt: skip
        for call in request.results:
            value = {"content": [{"type": "text", "text": call.output}], "isError": call.failed}
            message("user", call.ends, [{"type": "toolResponse", "id": call.id, "toolResult": {"status": "success", "value": value}}])  # fmt: skip
    return {"id": "20260928_1", "name": "Cities", "working_dir": "/srv", "conversation": messages}


def amp(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "messageId": 0, "content": [{"type": "text", "text": QUESTION}]}]
    for request in conversation.requests:
        calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in request.calls]
        usage = {"model": request.model, "inputTokens": request.new, "cacheReadInputTokens": request.cached, "cacheCreationInputTokens": 0, "outputTokens": request.output, "timestamp": stamp(request.ends)}  # fmt: skip
        messages.append({"role": "assistant", "messageId": len(messages), "content": [{"type": "text", "text": request.text}, *calls], "usage": usage})  # fmt: skip
        states: list[dict[str, Any]] = []
        for call in request.calls:
            run = {"status": "in-progress"} if call.output is None else {"status": "error", "error": {"message": call.output}} if call.failed else {"status": "done", "result": call.output}  # fmt: skip
            states.append({"type": "tool_result", "toolUseID": call.id, "run": run})
        messages += [{"role": "user", "messageId": len(messages), "content": states}] if states else []
    return {"id": "T-1", "created": BEGAN.timestamp() * 1000, "messages": messages}


def specstory(conversation: Conversation) -> str:
    messages = [f"_**User ({stamp(0)})**_\n\n{QUESTION}"]
    for request in conversation.requests:
        tools = [f'<tool-use data-tool-type="generic" data-tool-name="{call.name}"><details>\n<summary>Tool use: **{call.name}**</summary>\n{specstory_call(call)}</details></tool-use>' for call in request.calls]  # fmt: skip
        messages.append("\n\n".join([f"_**Agent ({request.model} {stamp(request.ends)})**_", request.text, *tools]))
    head = (
        f"<!-- Generated by SpecStory, Markdown v2.1.0 -->\n\n# {stamp(0)}\n\n<!-- Agent Session s ({stamp(0)}) -->\n\n"
    )
    return head + "\n\n---\n\n".join(messages) + "\n"


def specstory_call(call: Call) -> str:
    given = "".join(f"- {key}: `{value}`\n" for key, value in sorted(call.args.items()))
    result = "" if call.output is None else f"**{'Error' if call.failed else 'Result'}:**\n\n```\n{call.output}\n```\n"
    return f"\n**Input:**\n\n{given}\n{result}"


def tau2_bench(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"role": "user", "content": QUESTION, "timestamp": stamp(0)}]
    for request in conversation.requests:
        calls = [{"id": call.id, "name": call.name, "arguments": call.args, "requestor": "assistant"} for call in request.calls]  # fmt: skip
        usage = {"prompt_tokens": request.input, "completion_tokens": request.output}
        messages.append({"role": "assistant", "content": request.text, "tool_calls": calls or None, "usage": usage, "timestamp": stamp(request.ends)})  # fmt: skip
        messages += [{"role": "tool", "id": call.id, "content": call.output, "error": call.failed, "timestamp": stamp(call.ends)} for call in request.results]  # fmt: skip
    info = {"agent_info": {"llm": LARGE}}
    return {"info": info, "tasks": [], "simulations": [{"id": "s", "task_id": 1, "termination_reason": "user_stop", "messages": messages}]}  # fmt: skip


# --- Chats ------------------------------------------------------------------------------------------------------------


def chatgpt(conversation: Conversation) -> Any:
    nodes: dict[str, Any] = {"root": {"id": "root", "parent": None, "children": [], "message": None}}

    def node(own: str, second: float, role: str, content: dict[str, Any], name: str | None = None, recipient: str = "all", **metadata: Any) -> None:  # fmt: skip
        parent = list(nodes)[-1]
        nodes[parent]["children"].append(own)
        message = {"id": own, "author": {"role": role, "name": name, "metadata": {}}, "create_time": BEGAN.timestamp() + second, "content": content, "status": "finished_successfully", "end_turn": None, "weight": 1.0, "metadata": metadata, "recipient": recipient, "channel": None}  # fmt: skip
        nodes[own] = {"id": own, "parent": parent, "children": [], "message": message}

    node("question", 0, "user", {"content_type": "text", "parts": [QUESTION]})
    for number, request in enumerate(conversation.requests):
        node(f"text{number}", request.ends, "assistant", {"content_type": "text", "parts": [request.text]}, model_slug=request.model)  # fmt: skip
        for call in request.calls:
            node(call.id, request.ends, "assistant", {"content_type": "code", "language": "json", "text": json.dumps(call.args)}, recipient=call.name, model_slug=request.model)  # fmt: skip
        # Results have no ids: the site runs the tools one after the other.
        for call in request.calls if len(request.results) == len(request.calls) else ():
            kind = {"content_type": "system_error", "name": "ToolError", "text": call.output} if call.failed else {"content_type": "text", "parts": [call.output]}  # fmt: skip
            node(f"{call.id}-result", call.ends, "tool", kind, name=call.name)
    return {"title": "Cities", "create_time": BEGAN.timestamp(), "update_time": BEGAN.timestamp(), "mapping": nodes, "current_node": list(nodes)[-1], "conversation_id": "c", "id": "c"}  # fmt: skip


def claude_ai(conversation: Conversation) -> Any:
    blocks: list[dict[str, Any]] = []
    for request in conversation.requests:
        times = {"start_timestamp": stamp(request.begins), "stop_timestamp": stamp(request.ends)}
        blocks += [{**times, **block} for block in anthropic_blocks(request)]
        for call in request.results:
            text = [{"type": "text", "text": call.output}]
            blocks.append({"start_timestamp": stamp(call.ends), "stop_timestamp": stamp(call.ends), **anthropic_result(call), "name": call.name, "content": text})  # fmt: skip
    frame = {"created_at": stamp(0), "attachments": [], "files": []}
    question = {"uuid": "m1", "text": QUESTION, "content": [{"type": "text", "text": QUESTION}], "sender": "human"}
    answer = {"uuid": "m2", "text": "", "content": blocks, "sender": "assistant", "parent_message_uuid": "m1"}
    return [{"uuid": "c", "name": "Cities", "created_at": stamp(0), "updated_at": stamp(50), "account": {"uuid": "a"}, "chat_messages": [{**question, **frame}, {**answer, **frame}]}]  # fmt: skip


def sharegpt(conversation: Conversation) -> Any:
    turns = [{"from": "human", "value": QUESTION}]
    for request in conversation.requests:
        calls = [f"<tool_call>\n{json.dumps({'name': call.name, 'arguments': call.args})}\n</tool_call>" for call in request.calls]  # fmt: skip
        turns.append({"from": "gpt", "value": "\n".join([request.text, *calls])})
        # Without ids only the order tells to which call a result belongs.
        results = [call.output for call in request.calls if call.output is not None]
        turns += [{"from": "tool", "value": f"<tool_response>\n{text}\n</tool_response>"} for text in results]
    return [{"conversations": turns, "tools": "[]"}]


# --- Frameworks and providers -----------------------------------------------------------------------------------------


def ai_sdk(conversation: Conversation) -> Any:
    parts: list[dict[str, Any]] = []
    for request in conversation.requests:
        parts += [{"type": "step-start"}, {"type": "text", "text": request.text, "state": "done"}]
        for call in request.calls:
            state = {"state": "approval-requested"} if call.output is None else {"state": "output-error", "errorText": call.output} if call.failed else {"state": "output-available", "output": call.output}  # fmt: skip
            approval = {"approval": {"id": "a", **({} if call.output is None else {"approved": True})}} if call.needs_approval else {}  # fmt: skip
            parts.append({"type": f"tool-{call.name}", "toolCallId": call.id, "input": call.args, **state, **approval})
    question = {"id": "u", "role": "user", "parts": [{"type": "text", "text": QUESTION}]}
    return {"id": "chat", "messages": [question, {"id": "a", "role": "assistant", "parts": parts}]}


def anthropic_messages(conversation: Conversation) -> tuple[Any, ...]:
    answers = [{"id": f"msg_{number}", "type": "message", "role": "assistant", "model": request.model, "content": anthropic_blocks(request), "stop_reason": "tool_use" if request.calls else "end_turn", "usage": anthropic_usage(request)} for number, request in enumerate(conversation.requests)]  # fmt: skip
    messages: list[Any] = [{"role": "user", "content": QUESTION}]
    lines = []
    for request, answer in zip(conversation.requests, answers, strict=True):
        body = {"model": request.model, "max_tokens": 999, "messages": [*messages]}
        lines.append({"timestamp": stamp(request.ends), "request": body, "response": answer})
        results = [anthropic_result(call) for call in request.results]
        messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]
    return tuple(lines)


def anthropic_blocks(request: Request) -> list[dict[str, Any]]:
    calls = [{"type": "tool_use", "id": call.id, "name": call.name, "input": call.args} for call in request.calls]
    return [{"type": "text", "text": request.text}, *calls]


def anthropic_result(call: Call) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call.id, "content": call.output, "is_error": call.failed}


def anthropic_usage(request: Request) -> dict[str, Any]:
    return {"input_tokens": request.new, "cache_creation_input_tokens": 0, "cache_read_input_tokens": request.cached, "output_tokens": request.output}  # fmt: skip


def bedrock_converse(conversation: Conversation) -> tuple[Any, ...]:
    messages: list[Any] = [{"role": "user", "content": [{"text": QUESTION}]}]
    lines = []
    for request in conversation.requests:
        uses = [{"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.args}} for call in request.calls]
        answer = {"role": "assistant", "content": [{"text": request.text}, *uses]}
        usage = {"inputTokens": request.new, "cacheReadInputTokens": request.cached, "cacheWriteInputTokens": 0, "outputTokens": request.output, "totalTokens": request.total}  # fmt: skip
        lines.append({"modelId": request.model, "messages": [*messages], "output": {"message": answer}, "stopReason": "tool_use" if uses else "end_turn", "usage": usage})  # fmt: skip
        results = [{"toolResult": {"toolUseId": call.id, "content": [{"text": call.output}], "status": "error" if call.failed else "success"}} for call in request.results]  # fmt: skip
        messages += [answer, {"role": "user", "content": results}]
    return tuple(lines)


def openai_chat(conversation: Conversation) -> tuple[Any, ...]:
    lines = []
    for number, (request, messages, answer) in enumerate(exchanges(conversation)):
        choice = {"index": 0, "message": answer, "finish_reason": "tool_calls" if request.calls else "stop"}
        response = {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(BEGAN.timestamp()) + request.ends, "model": request.model, "choices": [choice], "usage": chat_usage(request)}  # fmt: skip
        lines.append({"request": {"model": request.model, "messages": messages}, "response": response})
    return tuple(lines)


def openai_responses(conversation: Conversation) -> tuple[Any, ...]:
    items: list[Any] = [{"type": "message", "role": "user", "content": QUESTION}]
    lines = []
    for number, request in enumerate(conversation.requests):
        calls = [{"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.args), "status": "completed"} for call in request.calls]  # fmt: skip
        output = [{"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [{"type": "output_text", "text": request.text, "annotations": []}]}, *calls]  # fmt: skip
        usage = {"input_tokens": request.input, "input_tokens_details": {"cached_tokens": request.cached}, "output_tokens": request.output, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": request.total}  # fmt: skip
        response = {"id": f"resp_{number}", "object": "response", "created_at": int(BEGAN.timestamp()) + request.ends, "status": "completed", "model": request.model, "output": output, "usage": usage}  # fmt: skip
        lines.append({"request": {"model": request.model, "input": [*items]}, "response": response})
        items += [*output, *({"type": "function_call_output", "call_id": call.id, "output": call.output} for call in request.results)]  # fmt: skip
    return tuple(lines)


def openai_run_state(conversation: Conversation) -> Any:
    responses, items = [], []
    for number, request in enumerate(conversation.requests):
        calls = [{"type": "function_call", "call_id": call.id, "name": call.name, "arguments": json.dumps(call.args), "status": "completed"} for call in request.calls]  # fmt: skip
        output = [{"type": "message", "id": f"m{number}", "role": "assistant", "content": [{"type": "output_text", "text": request.text}]}, *calls]  # fmt: skip
        usage = {"requests": 1, "input_tokens": request.input, "output_tokens": request.output, "total_tokens": request.total, "input_tokens_details": [{"cached_tokens": request.cached}], "output_tokens_details": [{"reasoning_tokens": 0}]}  # fmt: skip
        responses.append({"usage": usage, "output": output, "response_id": f"resp_{number}"})
        results = [{"type": "function_call_output", "call_id": call.id, "output": call.output} for call in request.results]  # fmt: skip
        items += [{"type": "run_item", "raw_item": item, "agent": {"name": "a"}} for item in [*output, *results]]
    waits = {"type": "next_step_interruption", "data": {"interruptions": []}} if conversation.is_paused else None
    return {"$schemaVersion": "1.13", "current_agent": {"name": "a"}, "original_input": QUESTION, "model_responses": responses, "session_items": items, "generated_items": items, "current_step": waits}  # fmt: skip


def langchain(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"type": "human", "content": QUESTION, "id": "h"}]
    for number, request in enumerate(conversation.requests):
        calls = [{"name": call.name, "args": call.args, "id": call.id, "type": "tool_call"} for call in request.calls]
        usage = {"input_tokens": request.input, "output_tokens": request.output, "total_tokens": request.total, "input_token_details": {"cache_read": request.cached}}  # fmt: skip
        messages.append({"type": "ai", "content": request.text, "id": f"a{number}", "tool_calls": calls, "invalid_tool_calls": [], "usage_metadata": usage, "response_metadata": {"model_name": request.model}})  # fmt: skip
        messages += [{"type": "tool", "content": call.output, "id": f"r{call.id}", "name": call.name, "tool_call_id": call.id, "status": "error" if call.failed else "success"} for call in request.results]  # fmt: skip
    waiting = [{"id": "t", "name": "tools", "interrupts": [{"value": "ok?", "id": "i"}]}] if conversation.is_paused else []  # fmt: skip
    return {"values": {"messages": messages}, "next": ["tools"] if waiting else [], "tasks": waiting, "config": {"configurable": {"thread_id": "t", "checkpoint_id": "c"}}, "metadata": {"step": 9}, "created_at": stamp(conversation.ends)}  # fmt: skip


def pydantic_ai(conversation: Conversation) -> Any:
    messages: list[Any] = [{"kind": "request", "parts": [{"part_kind": "user-prompt", "content": QUESTION, "timestamp": stamp(0)}]}]  # fmt: skip
    for request in conversation.requests:
        calls = [{"part_kind": "tool-call", "tool_name": call.name, "args": json.dumps(call.args), "tool_call_id": call.id} for call in request.calls]  # fmt: skip
        usage = {"input_tokens": request.input, "cache_read_tokens": request.cached, "output_tokens": request.output, "details": {}}  # fmt: skip
        messages.append({"kind": "response", "parts": [{"part_kind": "text", "content": request.text}, *calls], "usage": usage, "model_name": request.model, "timestamp": stamp(request.ends)})  # fmt: skip
        frames = [({"tool_name": call.name, "content": call.output, "tool_call_id": call.id, "timestamp": stamp(call.ends)}, call.failed) for call in request.results]  # fmt: skip
        returns = [{"part_kind": "retry-prompt", **frame} if failed else {"part_kind": "tool-return", "outcome": "success", **frame} for frame, failed in frames]  # fmt: skip
        messages += [{"kind": "request", "parts": returns}] if returns else []
    return messages


def autogen(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"source": "user", "type": "TextMessage", "content": QUESTION}]
    for request in conversation.requests:
        usage = {"prompt_tokens": request.input, "completion_tokens": request.output}
        calls = [{"id": call.id, "name": call.name, "arguments": json.dumps(call.args)} for call in request.calls]
        if calls:
            messages.append({"source": "a", "type": "ThoughtEvent", "content": request.text})
            messages.append({"source": "a", "type": "ToolCallRequestEvent", "content": calls, "models_usage": usage})
            results = [{"call_id": call.id, "name": call.name, "content": call.output, "is_error": call.failed} for call in request.results]  # fmt: skip
            messages.append({"source": "a", "type": "ToolCallExecutionEvent", "content": results})
        else:
            messages.append({"source": "a", "type": "TextMessage", "content": request.text, "models_usage": usage})
    return {"messages": messages, "stop_reason": None}


def autogen_history(conversation: Conversation) -> Any:
    history: list[dict[str, Any]] = []
    for message in chat_messages(conversation.requests):
        if message["role"] == "tool":
            message = {"role": "tool", "content": message["content"], "tool_responses": [message]}
        history.append({**message, "name": "agent" if message["role"] == "assistant" else "user"})
    return {"chat_history": history, "summary": LAST.text, "cost": {}, "human_input": []}


def google_adk(conversation: Conversation) -> Any:
    events: list[dict[str, Any]] = []

    def event(second: float, author: str, role: str, parts: list[Any], **others: Any) -> None:
        content = {"role": role, "parts": parts}
        events.append({"id": f"e{len(events)}", "invocation_id": "i", "author": author, "timestamp": BEGAN.timestamp() + second, "content": content, **others})  # fmt: skip

    event(0, "user", "user", [{"text": QUESTION}])
    for request in conversation.requests:
        calls = [{"function_call": {"id": call.id, "name": call.name, "args": call.args}} for call in request.calls]
        event(request.begins, "agent", "model", [{"text": request.text}, *calls], model_version=request.model, usage_metadata={"prompt_token_count": request.input, "cached_content_token_count": request.cached, "candidates_token_count": request.output, "total_token_count": request.total})  # fmt: skip
        for call in request.results:
            response = {"error" if call.failed else "result": call.output}
            event(call.ends, "agent", "user", [{"function_response": {"id": call.id, "name": call.name, "response": response}}])  # fmt: skip
    return {"id": "s", "app_name": "a", "user_id": "u", "state": {}, "events": events}


def gemini_contents(conversation: Conversation) -> tuple[Any, ...]:
    contents: list[Any] = [{"role": "user", "parts": [{"text": QUESTION}]}]
    lines = []
    for request in conversation.requests:
        calls = [{"functionCall": {"id": call.id, "name": call.name, "args": call.args}} for call in request.calls]
        content = {"role": "model", "parts": [{"text": request.text}, *calls]}
        usage = {"promptTokenCount": request.input, "cachedContentTokenCount": request.cached, "candidatesTokenCount": request.output, "totalTokenCount": request.total}  # fmt: skip
        response = {"candidates": [{"content": content, "finishReason": "STOP"}], "usageMetadata": usage, "modelVersion": request.model}  # fmt: skip
        lines.append({"request": {"contents": [*contents]}, "response": response})
        responses = [{"functionResponse": {"id": call.id, "name": call.name, "response": {"error" if call.failed else "output": call.output}}} for call in request.results]  # fmt: skip
        contents += [content, {"role": "user", "parts": responses}]
    return tuple(lines)


# --- Benchmarks and evaluations ---------------------------------------------------------------------------------------


def atif(conversation: Conversation) -> Any:
    steps: list[dict[str, Any]] = [{"source": "user", "timestamp": stamp(0), "message": QUESTION}]
    for request in conversation.requests:
        calls = [{"tool_call_id": call.id, "function_name": call.name, "arguments": call.args} for call in request.calls]  # fmt: skip
        results = [{"source_call_id": call.id, "content": call.output} for call in request.results]
        tools = {"tool_calls": calls, "observation": {"results": results}} if calls else {}
        metrics = {"prompt_tokens": request.input, "completion_tokens": request.output, "cached_tokens": request.cached}
        steps.append({"source": "agent", "timestamp": stamp(request.ends), "message": request.text, "model_name": request.model, "metrics": metrics, **tools})  # fmt: skip
    numbered = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    return {"schema_version": "ATIF-v1.6", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": numbered}


def inspect_ai(conversation: Conversation) -> Any:
    messages: list[dict[str, Any]] = [{"id": "q", "role": "user", "source": "input", "content": QUESTION}]
    events = []
    for number, request in enumerate(conversation.requests):
        calls = [{"id": call.id, "function": call.name, "arguments": call.args, "type": "function"} for call in request.calls]  # fmt: skip
        message = {"id": f"m{number}", "role": "assistant", "source": "generate", "content": request.text, "model": request.model, **({"tool_calls": calls} if calls else {})}  # fmt: skip
        usage = {"input_tokens": request.new, "input_tokens_cache_read": request.cached, "output_tokens": request.output, "total_tokens": request.total}  # fmt: skip
        output = {"model": request.model, "choices": [{"message": message, "stop_reason": "stop"}], "usage": usage}
        events.append({"event": "model", "timestamp": stamp(request.begins), "completed": stamp(request.ends), "model": request.model, "input": [*messages], "tools": [], "config": {}, "output": output})  # fmt: skip
        messages.append(message)
        for call in request.results:
            error = {"error": {"type": "unknown", "message": call.output}} if call.failed else {}
            messages.append({"id": f"r{call.id}", "role": "tool", "content": "" if error else call.output, "tool_call_id": call.id, "function": call.name, **error})  # fmt: skip
    sample = {"id": "task", "epoch": 1, "uuid": "U", "input": QUESTION, "target": "", "messages": messages, "events": events}  # fmt: skip
    spec = {"eval_id": "E", "run_id": "R", "created": stamp(0), "task": "t", "task_id": "T", "dataset": {}, "model": "p/m"}  # fmt: skip
    return {"version": 2, "status": "success", "eval": spec, "samples": [sample]}


def toolbench(conversation: Conversation) -> Any:
    calls = {call.id: call for request in conversation.requests for call in request.calls}
    messages = chat_messages(conversation.requests)
    for message in messages:
        if message["role"] == "tool":
            message["content"] = toolbench_output(calls[message["tool_call_id"]])
    answer = {"valid_data": True, "query": QUESTION, "function": [], "chain": [], "total_tokens": 99, "final_answer": "", "finish_type": "give_answer", "train_messages": [messages]}  # fmt: skip
    return {"win": True, "tree": {}, "forward_args": {}, "answer_generation": answer}


def toolbench_output(call: Call) -> str | None:
    """Return the output in the object that every tool of ToolBench returns."""
    error, response = (call.output, "") if call.failed else ("", call.output)
    return None if call.output is None else json.dumps({"error": error, "response": response})


# --- The table --------------------------------------------------------------------------------------------------------


def file_form(write: Callable[[Conversation], Any], *lacks: Lack, **others: Any) -> Form:
    name = write.__name__
    return Form(name=name, session=lambda c: imported(name, as_bytes(write(c))), lacks=frozenset(lacks), **others)


FILE_FORMS = [
    file_form(inspect_ai, "pause", "end", has_cached_beside=True),
    file_form(toolbench, "models", "usage", "pause", "end", output=toolbench_output),
    file_form(sweagent, "models", "usage", "pause", "end"),
    file_form(mini_swe_agent, "pause", "end"),
    file_form(tau2_bench, "own models", "cached", "pause", "end"),
    file_form(atif, "pause", "end"),
    file_form(openhands, "models", "usage", "pause", "end"),
    file_form(pi, "pause", "end", has_cached_beside=True),
    file_form(codex, "own models", "pause", "end"),
    file_form(copilot_cli, "pause", "end", output=copilot_output),
    file_form(gemini_cli, "pause", "end"),
    file_form(qwen_code, "pause", "end"),
    file_form(opencode, "pause", "end", has_cached_beside=True),
    file_form(goose, "pause", "end"),
    file_form(amp, "pause", "end", has_cached_beside=True),
    file_form(specstory, "usage", "ids of calls", "pause", "end"),
    file_form(chatgpt, "usage", "ids of results", "pause", "end"),
    file_form(claude_ai, "models", "usage", "pause", "end"),
    file_form(sharegpt, "models", "usage", "ids", "pause", "end"),
    file_form(claude_code, "pause", "end", has_cached_beside=True),
    file_form(langchain, "end"),
    file_form(pydantic_ai, "pause", "end"),
    file_form(ai_sdk, "models", "usage", "end"),
    file_form(autogen, "models", "cached", "pause", "end"),
    file_form(autogen_history, "models", "usage", "pause", "end"),
    file_form(google_adk, "pause", "end"),
    file_form(gemini_contents, "pause", "end"),
    file_form(anthropic_messages, "pause", "end", has_cached_beside=True),
    file_form(bedrock_converse, "pause", "end", has_cached_beside=True),
    file_form(openai_chat, "pause", "end"),
    file_form(openai_run_state, "models", "end"),
    file_form(openai_responses, "pause", "end"),
]

"""A model provider on localhost that speaks OpenAI's and Anthropic's APIs and answers by a script.

Its answers depend on the request alone: a planner calls two tools, then asks an expert, then answers. The model decides on
failures: `overloaded` answers 500, `flaky` does so unless the client tries again, `cut` ends streams before their end, `slow` pauses within them.
Source: https://platform.openai.com/docs/api-reference (chat, chat-streaming, responses, responses-streaming) and
https://platform.claude.com/docs/en/api/messages (messages, messages-streaming).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

MODEL = "gpt-4o-mini"
ANSWER = "Sunny at 31 degrees. Eat brown cheese."
ADVICE = "Try brown cheese."
REASONING = "Somebody local knows best."

Body = dict[str, Any]


def answer_to(messages: list[Body]) -> tuple[Body, dict[str, int]]:
    """Return the message and the usage for a conversation."""
    results = sum(message["role"] == "tool" for message in messages)
    if "expert" in str(messages[0]["content"]):
        return {"content": ADVICE}, _usage(40, 8)
    if results == 0:
        calls = [_call("call_weather", "get_weather", city="Oslo"), _call("call_traffic", "get_traffic", city="Oslo")]
        return {"content": None, "tool_calls": calls}, _usage(100, 20)
    if results == 2:
        call = _call("call_expert", "ask_expert", question="What to eat in Oslo?")
        return {"content": "The expert knows more.", "tool_calls": [call]}, _usage(150, 15)
    return {"content": ANSWER}, _usage(200, 12)


def _call(id_: str, name: str, **arguments: str) -> Body:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_first = self.headers.get("X-Stainless-Retry-Count", "0") == "0"
        if body["model"] == "overloaded" or (body["model"] == "flaky" and is_first):
            self._send(500, json.dumps({"error": {"message": "The model is overloaded."}}).encode(), "application/json")
            return
        answer, events = _WIRES[self.path.split("?")[0].removeprefix("/v1")](body)
        if not body.get("stream"):
            self._send(200, json.dumps(answer).encode(), "application/json")
            return
        if body["model"] == "cut":
            events = events[: len(events) // 2]
        self._send(200, b"".join(events), "text/event-stream", pause=0.02 if body["model"] == "slow" else 0)

    def _send(self, status: int, body: bytes, content_type: str, pause: float = 0) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After-Ms", "1")
        self.end_headers()
        for event in body.splitlines(keepends=True) if pause else [body]:
            try:
                self.wfile.write(event)
            except ConnectionError:
                return  # the client has read enough
            time.sleep(pause)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _event(data: Body, *, named: bool = False) -> bytes:
    name = f"event: {data['type']}\n".encode() if named else b""
    return name + b"data: " + json.dumps(data).encode() + b"\n\n"


# --- Chat completions ---------------------------------------------------------------------------------------------------


def chat(body: Body) -> tuple[Body, list[bytes]]:
    message, usage = answer_to(body["messages"])
    finish = "tool_calls" if "tool_calls" in message else "stop"
    common = {"id": f"chatcmpl-{usage['total_tokens']}", "created": 1_790_000_000, "model": MODEL}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    answer = {"object": "chat.completion", **common, "choices": [choice], "usage": usage}
    return answer, list(_chunks(common, message, usage, finish))


def _chunks(common: Body, message: Body, usage: dict[str, int], finish: str) -> Iterator[bytes]:
    deltas: list[Body] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f"{word} "} for word in (message["content"] or "").split(" ")[:-1]]
    deltas += [{"content": (message["content"] or "").split(" ")[-1]}]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message.get("tool_calls", []))]
    common = {"object": "chat.completion.chunk", **common}
    for delta in deltas:
        yield _event({**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _event({**common, "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    yield _event({**common, "usage": usage, "choices": []})
    yield b"data: [DONE]\n\n"


# --- Responses ----------------------------------------------------------------------------------------------------------


def response(body: Body) -> tuple[Body, list[bytes]]:
    given = [{"role": "user", "content": body["input"]}] if isinstance(body["input"], str) else body["input"]
    messages = [{"role": "system", "content": body.get("instructions") or ""}]
    messages += [{"role": "tool"} for item in given if item.get("type") == "function_call_output"]
    message, usage = answer_to(messages)
    response_id = f"resp_{usage['total_tokens']}"
    output: list[Body] = []
    if message.get("tool_calls"):
        summary = [{"type": "summary_text", "text": REASONING}]
        output.append({"type": "reasoning", "id": f"rs_{usage['total_tokens']}", "summary": summary})
    if message["content"]:
        part = {"type": "output_text", "text": message["content"], "annotations": []}
        text = {"type": "message", "id": f"msg_{response_id}", "role": "assistant", "status": "completed"}
        output.append({**text, "content": [part]})
    for call in message.get("tool_calls", []):
        about = {"type": "function_call", "id": f"fc_{call['id']}", "call_id": call["id"], "status": "completed"}
        output.append({**about, **call["function"]})
    about = {"id": response_id, "object": "response", "created_at": 1_790_000_000, "model": MODEL}
    # A response repeats these parts of its request.
    about |= {"instructions": body.get("instructions"), "tools": body.get("tools") or []}
    about |= {"temperature": body.get("temperature", 1.0)}
    about |= {"parallel_tool_calls": True, "tool_choice": "auto", "error": None, "incomplete_details": None}
    counts = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
    answer = {**about, "status": "completed", "output": output, "usage": counts}
    events = _response_events({**about, "status": "in_progress", "output": []}, answer)
    return answer, [_event({**event, "sequence_number": number}, named=True) for number, event in enumerate(events)]


def _response_events(begun: Body, answer: Body) -> Iterator[Body]:
    yield {"type": "response.created", "response": begun}
    for index, item in enumerate(answer["output"]):
        place = {"output_index": index, "item_id": item["id"]}
        empty = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, **({"summary": []} if item["type"] == "reasoning" else empty)}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            [part] = item["content"]
            place |= {"content_index": 0}
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            for word in part["text"].split(" "):
                yield {"type": "response.output_text.delta", **place, "delta": f"{word} ", "logprobs": []}
            yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **place, "part": part}
        elif item["type"] == "function_call":
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **place, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": answer}


# --- Messages -----------------------------------------------------------------------------------------------------------


def messages(body: Body) -> tuple[Body, list[bytes]]:
    messages = [{"role": "system", "content": body.get("system") or ""}]
    for message in body["messages"]:
        if isinstance(message["content"], list):
            messages += [{"role": "tool"} for block in message["content"] if block["type"] == "tool_result"]
    message, usage = answer_to(messages)
    content: list[Body] = []
    if message.get("tool_calls"):
        content.append({"type": "thinking", "thinking": REASONING, "signature": "c2lnbmVk"})
    if message["content"]:
        content.append({"type": "text", "text": message["content"]})
    for call in message.get("tool_calls", []):
        function = call["function"]
        arguments = json.loads(function["arguments"])
        content.append({"type": "tool_use", "id": call["id"], "name": function["name"], "input": arguments})
    about = {"id": f"msg_{usage['total_tokens']}", "type": "message", "role": "assistant", "model": MODEL}
    about |= {"stop_sequence": None}
    stop = "tool_use" if message.get("tool_calls") else "end_turn"
    counts = {"input_tokens": usage["prompt_tokens"], "output_tokens": usage["completion_tokens"]}
    answer = {**about, "content": content, "stop_reason": stop, "usage": counts}
    begun = {**answer, "content": [], "stop_reason": None, "usage": {**counts, "output_tokens": 1}}
    return answer, [_event(event, named=True) for event in _message_events(begun, answer)]


def _message_events(begun: Body, answer: Body) -> Iterator[Body]:
    yield {"type": "message_start", "message": begun}
    for index, block in enumerate(answer["content"]):
        deltas: list[Body]
        if block["type"] == "text":
            empty = {**block, "text": ""}
            deltas = [{"type": "text_delta", "text": piece} for piece in (block["text"][:9], block["text"][9:])]
        elif block["type"] == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": block["thinking"]}]
            deltas += [{"type": "signature_delta", "signature": block["signature"]}]
        else:
            empty = {**block, "input": {}}
            pieces = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", pieces[:5], pieces[5:])]
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": answer["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": answer["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


_WIRES = {"/chat/completions": chat, "/responses": response, "/messages": messages}


@contextmanager
def provider() -> Iterator[str]:
    """Run the provider, and yield the base URL for OpenAI's clients; that for Anthropic's is without `/v1`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

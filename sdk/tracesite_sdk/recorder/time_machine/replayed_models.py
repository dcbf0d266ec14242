"""A server on 127.0.0.1 that answers requests to models from a recorded run, in the wire formats of OpenAI and Anthropic.

It needs no interface of a client but its address (`base_url`), so that clients of all versions and languages can use it:

    POST /chat/completions     OpenAI's chat completions
    POST /responses            OpenAI's responses
    POST /messages             Anthropic's messages

with and without `/v1` before it, and as a stream if the request asks for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import msgspec

from .recorded import Reply, Unrecorded

Json = dict[str, Any]
_CREATED = 1_577_836_800
"""The time of all responses: 2020-01-01."""


class ModelServer:
    """Answers each request with what `reply` returns. Unrecorded becomes an error 400, which clients do not try again."""

    def __init__(self, reply: Callable[[], Reply]) -> None:
        class Handler(_Handler):
            next_reply = staticmethod(reply)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    next_reply: Callable[[], Reply]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0].removeprefix("/v1")
        answer = _ANSWERS.get(path)
        if answer is None:
            self._send(404, _error(f"Only {', '.join(_ANSWERS)} are answered from the recorded run, not {path}."))
            return
        try:
            asked = msgspec.json.decode(body, type=Json)
            reply = self.next_reply()
        except msgspec.DecodeError as error:
            self._send(400, _error(f"The body is not a JSON object: {error}."))
            return
        except Unrecorded as error:
            self._send(400, _error(str(error)))
            return
        document = answer(reply, asked)
        if not asked.get("stream"):
            self._send(200, msgspec.json.encode(document))
            return
        events = [_event(event) for event in _STREAMS[path](document, asked)]
        if path == "/chat/completions":
            events.append(b"data: [DONE]\n\n")
        self._send(200, b"".join(events), "text/event-stream")

    do_GET = do_POST

    def _send(self, status: int, body: bytes, media_type: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the output belongs to the test."""


def _event(data: Json) -> bytes:
    name = b"event: %s\n" % data["type"].encode() if "type" in data else b""
    return b"%sdata: %s\n\n" % (name, msgspec.json.encode(data))


def _error(message: str) -> bytes:
    return msgspec.json.encode({"type": "error", "error": {"type": "invalid_request_error", "message": message}})


def _tokens(reply: Reply) -> tuple[int, int]:
    """Return the tokens of the request and of the reply, by the names of either provider."""
    usage: Mapping[str, Any] = reply.usage or {}

    def count(*names: str) -> int:
        return next((usage[name] for name in names if isinstance(usage.get(name), int)), 0)

    return count("input_tokens", "prompt_tokens"), count("output_tokens", "completion_tokens")


def _calls(reply: Reply) -> list[tuple[str, str, Any]]:
    """Return id, name and arguments of the calls."""
    return [(call.get("id") or f"call_{number}", call["name"], call["args"]) for number, call in enumerate(reply.calls)]


def _text_of(args: Any) -> str:
    return args if isinstance(args, str) else msgspec.json.encode(args).decode()


# --- Chat completions ---------------------------------------------------------------------------------------------------


def _chat(reply: Reply, asked: Json) -> Json:
    prompt, completion = _tokens(reply)
    message: Json = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": _text_of(args)}}
            for id_, name, args in _calls(reply)
        ]
    return {
        "id": f"chatcmpl-{reply.number}",
        "object": "chat.completion",
        "created": _CREATED,
        "model": reply.model or asked.get("model"),
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if reply.calls else "stop"}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion},
    }


def _chat_events(completion: Json, asked: Json) -> Iterator[Json]:
    (choice,) = completion["choices"]
    common = {name: completion[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    calls = [{"index": index, **call} for index, call in enumerate(choice["message"].get("tool_calls", ()))]
    delta = choice["message"] | ({"tool_calls": calls} if calls else {})
    yield {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**common, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    if (asked.get("stream_options") or {}).get("include_usage"):
        yield {**common, "choices": [], "usage": completion["usage"]}


# --- Responses ----------------------------------------------------------------------------------------------------------


def _response(reply: Reply, asked: Json) -> Json:
    id_ = f"resp_{reply.number}"
    output: list[Json] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        output.append({"type": "reasoning", "id": f"rs_{reply.number}", "summary": summary})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        about = {"type": "message", "id": f"msg_{reply.number}", "role": "assistant", "status": "completed"}
        output.append({**about, "content": content})
    output += [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": name,
            "arguments": _text_of(args),
            "status": "completed",
        }
        for call_id, name, args in _calls(reply)
    ]
    prompt, completion = _tokens(reply)
    return {
        "id": id_,
        "object": "response",
        "created_at": _CREATED,
        "model": reply.model or asked.get("model"),
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": asked.get("instructions"),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": asked.get("tools") or [],
        "output": output,
        "usage": {
            "input_tokens": prompt,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": completion,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt + completion,
        },
    }


def _response_events(response: Json, _asked: Json) -> Iterator[Json]:
    for number, event in enumerate(_unnumbered(response)):
        yield {**event, "sequence_number": number}


def _unnumbered(response: Json) -> Iterator[Json]:
    yield {"type": "response.created", "response": {**response, "status": "in_progress", "output": [], "usage": None}}
    for index, item in enumerate(response["output"]):
        position = {"output_index": index, "item_id": item["id"]}
        empty: dict[str, Json] = {
            "message": {"content": []},
            "reasoning": {"summary": []},
            "function_call": {"arguments": ""},
        }
        yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **empty[item["type"]]}}
        if item["type"] == "message":
            (part,) = item["content"]
            position |= {"content_index": 0}
            yield {"type": "response.content_part.added", **position, "part": {**part, "text": ""}}
            yield {"type": "response.output_text.delta", **position, "delta": part["text"], "logprobs": []}
            yield {"type": "response.output_text.done", **position, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", **position, "part": part}
        elif item["type"] == "function_call":
            yield {"type": "response.function_call_arguments.delta", **position, "delta": item["arguments"]}
            done = {"arguments": item["arguments"], "name": item["name"]}
            yield {"type": "response.function_call_arguments.done", **position, **done}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": response}


# --- Messages -----------------------------------------------------------------------------------------------------------


def _message(reply: Reply, asked: Json) -> Json:
    content: list[Json] = []
    if reply.reasoning:
        # The signature of the provider is not recorded.
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    if reply.text:
        content.append({"type": "text", "text": reply.text})
    content += [
        {"type": "tool_use", "id": id_, "name": name, "input": args if isinstance(args, dict) else {"input": args}}
        for id_, name, args in _calls(reply)
    ]
    prompt, completion = _tokens(reply)
    return {
        "id": f"msg_{reply.number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or asked.get("model"),
        "content": content,
        "stop_reason": "tool_use" if reply.calls else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": completion},
    }


def _message_events(message: Json, _asked: Json) -> Iterator[Json]:
    yield {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}
    for index, block in enumerate(message["content"]):
        empty: Json
        match block["type"]:
            case "text":
                empty, delta = {"text": ""}, {"type": "text_delta", "text": block["text"]}
            case "thinking":
                empty = {"thinking": "", "signature": ""}
                delta = {"type": "thinking_delta", "thinking": block["thinking"]}
            case _:
                empty = {"input": {}}
                delta = {"type": "input_json_delta", "partial_json": _text_of(block["input"])}
        yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": message["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


_ANSWERS: Mapping[str, Callable[[Reply, Json], Json]] = {
    "/chat/completions": _chat,
    "/responses": _response,
    "/messages": _message,
}
_STREAMS: Mapping[str, Callable[[Json, Json], Iterator[Json]]] = {
    "/chat/completions": _chat_events,
    "/responses": _response_events,
    "/messages": _message_events,
}

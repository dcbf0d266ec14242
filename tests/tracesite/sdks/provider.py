"""A model provider on localhost that speaks OpenAI's chat completions API and answers by a script.

Its answers depend on the request alone: a planner calls two tools, then asks an expert, then answers.
Source: https://platform.openai.com/docs/api-reference/chat and /chat-streaming.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

MODEL = "gpt-4o-mini"
ANSWER = "Sunny at 31 degrees. Eat brown cheese."
ADVICE = "Try brown cheese."


def answer_to(messages: list[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, int]]:
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


def _call(id_: str, name: str, **arguments: str) -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def _usage(prompt: int, completion: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message, usage = answer_to(body["messages"])
        finish = "tool_calls" if "tool_calls" in message else "stop"
        common = {"id": f"chatcmpl-{usage['total_tokens']}", "created": 1_790_000_000, "model": MODEL}
        if body.get("stream"):
            answer = b"".join(_chunks(common, message, usage, finish))
            self._send(answer, "text/event-stream")
        else:
            choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
            answer = {"object": "chat.completion", **common, "choices": [choice], "usage": usage}
            self._send(json.dumps(answer).encode(), "application/json")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _chunks(common: dict[str, Any], message: dict[str, Any], usage: dict[str, int], finish: str) -> Iterator[bytes]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f"{word} "} for word in (message["content"] or "").split(" ")[:-1]]
    deltas += [{"content": (message["content"] or "").split(" ")[-1]}]
    deltas += [{"tool_calls": [{"index": index, **call}]} for index, call in enumerate(message.get("tool_calls", []))]
    for delta in deltas:
        yield _event(common, [{"index": 0, "delta": delta, "finish_reason": None}])
    yield _event(common, [{"index": 0, "delta": {}, "finish_reason": finish}])
    yield _event(common | {"usage": usage}, [])
    yield b"data: [DONE]\n\n"


def _event(common: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
    return b"data: " + json.dumps({"object": "chat.completion.chunk", **common, "choices": choices}).encode() + b"\n\n"


@contextmanager
def provider() -> Iterator[str]:
    """Run the provider, and yield the base URL for its clients."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

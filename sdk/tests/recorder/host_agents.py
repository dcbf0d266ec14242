"""An agent of a host that does not know the recorder, with its tool and its callback."""

from __future__ import annotations

from typing import Any


class Refused(Exception):
    pass


class Weather:
    """A tool."""

    name = "get_weather"

    def __init__(self) -> None:
        self.calls = 0

    def execute(self, args: dict[str, Any], context: Any = None, tool_call: Any = None) -> str:
        self.calls += 1
        if args["city"] == "nowhere":
            raise Refused("no such city")
        return f"31 degrees in {args['city']}"


class Listener:
    """A callback with more than one method."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def on_message(self, message: Any, context: Any = None) -> str:
        self.heard.append((message, context))
        return "heard"

    def on_human_confirm(self, prompt: str) -> bool:
        return prompt == "yes?"


class Agent:
    """A typical agent without a recorder."""

    name = "planner"
    model = "gpt-5"

    def __init__(self, callback: Any = None, tools: Any = None) -> None:
        self.callback = callback
        self.tools = [Weather()] if tools is None else tools
        self.log: list[str] = []

    @property
    def expensive(self) -> Any:
        raise AssertionError("nobody asks")

    def run(self, prompt: str, city: str = "Rome") -> dict[str, Any]:
        """Answers."""
        self.log.append(prompt)
        answer = self.execute(city)
        return {"success": True, "result": answer, "error": None}

    def execute(self, city: str) -> str:
        self.build_system_prompt()
        self.buildUserPrompt(city)
        response = self.call_llm([{"role": "user", "content": city}])
        tool = self.tools[0].execute({"city": city}, self, {"id": "call_1"})
        if self.callback is not None:
            self.callback.on_message({"taskId": "t1", "type": "agent_start", "agentName": "planner"}, self)
        return f"{response['text']}: {tool}"

    def build_system_prompt(self) -> str:
        return "You are a planner."

    def buildUserPrompt(self, city: str) -> str:
        return f"The weather in {city}, password=hunter2hunter2"

    def call_llm(self, messages: list[Any]) -> dict[str, Any]:
        return {"text": "Asking", "usage": {"prompt_tokens": 7, "completion_tokens": 2}, "model": "gpt-5-mini"}

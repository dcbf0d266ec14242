"""Read answers of ToolBench (OpenBMB/ToolBench, toolbench/inference): solutions of a query by chain or tree search.

    {"win", "tree" or "trys", "forward_args", "compare_candidates", "answer_generation": {"query", "function",
     "train_messages", "chain", "final_answer", "finish_type", "valid_data", "total_tokens", ...}}

* `train_messages` has a list of messages for each kept branch of the search, each a conversation. The messages are in the
  first version of OpenAI's chat format (function_call, role function, no ids), in StableToolBench in the newer one
  (tool_calls, role tool).
* Without branches (a search that gave up), the longest path through the tree, or the chain, is read. Its nodes are
  Thought, Action (the tool) and Action Input (the arguments, with the observation).
* The output of a tool is {"error": ..., "response": ...}; a call has failed if `error` is not empty.

The functions, the final answer, the search tree and all other fields are metadata of the last branch, which led to the
answer; the other branches have the short fields only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from tracesite_sdk.normalize.json_values import content, fields, items, rest, text
from tracesite_sdk.normalize.mended_json import decode_json
from tracesite_sdk.transcripts.documents import Document, Skip, first_values, numbered_values
from tracesite_sdk.transcripts.entries import Call, Entry, Prompt, Reply, Result, Transcript

NAME = "toolbench"

_ANSWER = "answer_generation"
_BRANCHES = "train_messages"
# Large fields, which are kept once, with the last branch.
_LARGE = ("tree", "trys", "compare_candidates")
_FINISH = "Finish"
"""The function by which a model gives its answer or gives up. It has no result."""
_MAX_NODES = 10_000
"""Nodes of a search tree that are visited; nodes beyond them are in the metadata only."""


def recognises(document: Document) -> bool:
    """Return whether one of the first values is an answer of ToolBench."""
    return any(map(_is_answer, first_values(document, 50)))


def transcripts(document: Document, skip: Skip) -> Iterator[Transcript]:
    """Yield the branches of every answer; report omissions to `skip`."""
    place = 0
    for where, item in numbered_values(document):
        if not _is_answer(item):
            skip(where or "(all)", "not a ToolBench answer")
            continue
        answer = item[_ANSWER]
        branches = _branches(answer, where, skip) or [("", _search_messages(item))]
        for number, (path, branch) in enumerate(branches):
            entries = list(_entries(branch, path, skip))
            if not entries:
                skip(path or where or "(all)", "no messages")
                continue
            last = number == len(branches) - 1
            yield Transcript(
                entries=partial(iter, entries),
                place=place,
                status="error" if last and answer.get("finish_type") == "give_up" else None,
                metadata=_metadata(item, number, len(branches)),
            )
            place += 1


# --- Answers ------------------------------------------------------------------------------------------------------


def _is_answer(item: Any) -> bool:
    answer = item.get(_ANSWER) if isinstance(item, dict) else None
    return isinstance(answer, dict) and ("finish_type" in answer or "query" in answer or _BRANCHES in answer)


def _branches(answer: dict[str, Any], where: str, skip: Skip) -> list[tuple[str, list[Any]]]:
    """Return the kept branches with their paths in the document."""
    path = f"{where}.{_ANSWER}.{_BRANCHES}".lstrip(".")
    values = answer.get(_BRANCHES)
    if values is not None and not isinstance(values, list):
        skip(path, "not a list")
    branches = []
    for index, branch in enumerate(items(values)):
        if isinstance(branch, list):
            branches.append((f"{path}[{index}]", branch))
        else:
            skip(f"{path}[{index}]", "not a list of messages")
    return branches


def _metadata(item: dict[str, Any], number: int, count: int) -> dict[str, Any]:
    last = number == count - 1
    answer = {name: value for name, value in item[_ANSWER].items() if name not in (_BRANCHES, "function", "chain")}
    metadata = {name: value for name, value in item.items() if name != _ANSWER and (last or name not in _LARGE)}
    if item[_ANSWER].get("function"):
        metadata["tools"] = item[_ANSWER]["function"]
    if last and item[_ANSWER].get("chain"):
        metadata["chain"] = item[_ANSWER]["chain"]
    return {**metadata, **answer, "branch": number, "branches": count}


# --- Searches without kept branches -------------------------------------------------------------------------------


def _search_messages(item: dict[str, Any]) -> list[Any]:
    """Return the query and the longest path of the search as messages."""
    query = item[_ANSWER].get("query")
    messages: list[Any] = [{"role": "user", "content": query}] if isinstance(query, str) and query else []
    thought: str | None = None
    tool: str | None = None
    for node in _longest_path(item):
        kind, description = node.get("node_type"), text(node.get("description")) or ""
        if kind == "Thought":
            thought = description if not thought else f"{thought}\n{description}"
        elif kind == "Action":
            tool = description
        elif kind == "Action Input" and tool is not None:
            messages.append(
                {"role": "assistant", "content": thought, "function_call": {"name": tool, "arguments": description}}
            )
            if tool != _FINISH and node.get("observation") not in (None, ""):
                answer = {"role": "function", "name": tool, "content": text(node["observation"])}
                if node.get("observation_code") is not None:
                    answer["observation_code"] = node["observation_code"]
                messages.append(answer)
            thought, tool = None, None
    if thought or tool:
        calls = {"function_call": {"name": tool, "arguments": ""}} if tool else {}
        messages.append({"role": "assistant", "content": thought, **calls})
    return messages


def _longest_path(item: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the nodes of the chain, else of the first longest path down the tree; finished paths take precedence."""
    tries = item.get("trys")
    last_try = tries[-1] if isinstance(tries, list) and tries else None
    for chain in (item[_ANSWER].get("chain"), last_try):
        if isinstance(chain, dict):
            chain = chain.get("chain")
        if isinstance(chain, list) and chain:
            return [node for node in chain if isinstance(node, dict)]
    tree = item.get("tree")
    root = tree.get("tree") if isinstance(tree, dict) else None
    best: tuple[tuple[bool, int], list[dict[str, Any]]] = ((False, 0), [])
    waiting: list[list[dict[str, Any]]] = [[root]] if isinstance(root, dict) else []
    for _node in range(_MAX_NODES):
        if not waiting:
            break
        path = waiting.pop()
        rank = (path[-1].get("finished") is True and path[-1].get("pruned") is not True, len(path))
        if rank > best[0]:
            best = rank, path
        children = path[-1].get("children")
        if isinstance(children, list):
            waiting.extend([*path, child] for child in reversed(children) if isinstance(child, dict))
    return best[1]


# --- Entries ------------------------------------------------------------------------------------------------------


def _entries(messages: list[Any], path: str, skip: Skip) -> Iterator[Entry]:
    for index, message in enumerate(messages):
        where = f"{path}[{index}]"
        if not isinstance(message, dict):
            skip(where, "not an object")
            continue
        role, id_ = message.get("role"), str(index)
        if role in ("user", "system"):
            yield Prompt(
                id=id_,
                role="user" if role == "user" else "system",
                content=content(message.get("content")),
                metadata=rest(message, ("role", "content")),
            )
        elif role == "assistant":
            yield _reply(id_, message, where, skip)
        elif role in ("function", "tool"):
            yield _result(id_, message)
        else:
            skip(where, "unknown role" if "role" in message else "no role")


def _reply(id_: str, message: dict[str, Any], where: str, skip: Skip) -> Reply:
    calls = []
    call = message.get("function_call")
    if isinstance(call, dict):
        name = call.get("name")
        calls.append(
            Call(
                id=None,
                name=name if isinstance(name, str) else "",
                args=call.get("arguments"),
                metadata=rest(call, ("name", "arguments")),
            )
        )
    elif call:
        skip(f"{where}.function_call", "not an object")
    for index, value in enumerate(items(message.get("tool_calls"))):
        if isinstance(value, dict):
            function = fields(value.get("function"))
            metadata = rest(value, ("id", "type", "function")) | rest(function, ("name", "arguments"))
            name, args = text(function.get("name")) or "", function.get("arguments")
            calls.append(Call(id=text(value.get("id")), name=name, args=args, metadata=metadata))
        else:
            skip(f"{where}.tool_calls[{index}]", "not an object")
    return Reply(
        id=id_,
        content=content(message.get("content")) or None,
        calls=calls,
        metadata=rest(message, ("role", "content", "function_call", "tool_calls")),
    )


def _result(id_: str, message: dict[str, Any]) -> Result:
    name = message.get("name")
    output, call_id = text(message.get("content")) or "", text(message.get("tool_call_id"))
    return Result(
        id=id_,
        output=output,
        failed=_failed(output),
        call_ids=[call_id] if call_id else [],
        name=name if isinstance(name, str) and name else None,
        metadata=rest(message, ("role", "content", "name", "tool_call_id")),
    )


def _failed(output: str) -> bool | None:
    """Return whether an observation has an error; None if it is not such an object, because it was cut off, for example."""
    try:
        observation = decode_json(output)
    except (msgspec.DecodeError, RecursionError):
        return None
    return bool(observation["error"]) if isinstance(observation, dict) and "error" in observation else None

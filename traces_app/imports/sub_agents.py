"""Move the steps of sub-agents, which have files of their own, below the calls that started them.

Such a file names its session and its agent, but not the call. It is stored as a message of the session, "agent-<id>"
(SHARE). Once the call is known - from the `agentId` in the data of its result, from steps of the agent below it, or from
the same prompt - the steps move to the message of that call, and the message of the agent to the trash. So the files of a
session may be imported in any order and more than once. Of several calls with that prompt the first that no agent has is
taken: a guess, which the metadata of the steps say, also if several agents have that prompt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple
from uuid import UUID

import msgspec
from msgspec.structs import replace

from access_app.db import Database
from messages_app.models import Message
from messages_app.writes import delete_message
from traces_app.ingest.pipeline import ingest
from traces_app.models import AgentStep, ToolCall
from traces_app.queries import messages as queries
from tracesite_sdk import records
from tracesite_sdk.formats.claude_code import GUESSED_PARENT, STARTERS
from tracesite_sdk.normalize.json_values import fields
from tracesite_sdk.records import ids
from tracesite_sdk.transcripts.outline import SHARE

_STARTS = """
    SELECT result.data ->> 'agentId', message.external_id, call.id, call.call_id, step.iteration
    FROM messages_app_session AS session
    JOIN messages_app_message AS message ON message.session_id = session.id
    JOIN traces_app_toolcall AS call ON call.message_id = message.id
    JOIN traces_app_toolresult AS result ON result.id = call.id
    JOIN traces_app_agentstep AS step ON step.id = call.step_id
    WHERE session.project_id = %(project_id)s AND session.external_id = %(session)s AND message.deleted_at IS NULL
    AND result.data ->> 'agentId' = ANY(%(agents)s)
    UNION
    SELECT below.agent_name, message.external_id, call.id, call.call_id, step.iteration
    FROM messages_app_session AS session
    JOIN messages_app_message AS message ON message.session_id = session.id
    JOIN traces_app_agentstep AS below ON below.message_id = message.id
    JOIN traces_app_toolcall AS started ON started.step_id = below.id AND started.message_id = message.id
    JOIN traces_app_toolcall AS call ON call.id = started.parent_id
    JOIN traces_app_agentstep AS step ON step.id = call.step_id
    WHERE session.project_id = %(project_id)s AND session.external_id = %(session)s AND message.deleted_at IS NULL
    AND below.agent_name = ANY(%(agents)s) AND step.agent_name <> below.agent_name
    ORDER BY 3
"""


class _Start(NamedTuple):
    """The call that started a sub-agent."""

    message: str
    """The external id of its message."""
    uuid: UUID
    call_id: str
    iteration: int
    is_guessed: bool = False


class _Share(NamedTuple):
    """A stored share."""

    message_id: UUID
    session_id: UUID


def with_shares_placed(db: Database, project_id: int, session: records.Session) -> records.Session:
    """Return the session with each share in it below its call, if the call is stored."""
    agents = {
        agent: message.agent_steps or ()
        for message in session.messages or ()
        if (agent := _agent_of(message.external_id))
    }
    if not agents or not session.external_id:
        return session
    prompts = {agent: _first_prompt(step.metadata for step in steps) for agent, steps in agents.items()}
    starts = _starts(db, project_id, session.external_id, prompts)
    messages = [
        _placed(message, agents[agent], start)
        if (agent := _agent_of(message.external_id)) and (start := starts.get(agent))
        else message
        for message in session.messages or ()
    ]
    return replace(session, messages=messages)


def place_shares(db: Database, project_id: int, names: Collection[str]) -> None:
    """Move each stored share of these sessions below its call, if the call is stored by now.

    The calls are looked up for all shares of a session at once. A share that another one has started follows after that,
    because its call has moved: each level of nested shares is one more look-up.
    """
    rows = (
        db.rows(Message.objects)
        .filter(project_id=project_id, session__external_id__in=names, external_id__startswith=SHARE, role="assistant")
        .values_list("session__external_id", "external_id", "id", "session_id")
    )
    shares: dict[str, dict[str, _Share]] = defaultdict(dict)
    for session, name, message_id, session_id in rows:
        shares[session][name.removeprefix(SHARE)] = _Share(message_id, session_id)
    for session, waiting in shares.items():
        while waiting:
            starts = _starts(db, project_id, session, _stored_prompts(db, waiting))
            movable = {agent: start for agent, start in starts.items() if _agent_of(start.message) not in starts}
            for agent, start in movable.items():
                _move(db, project_id, session, waiting[agent], start)
            waiting = {agent: waiting[agent] for agent in starts if agent not in movable} if movable else {}


def _move(db: Database, project_id: int, session: str, share: _Share, start: _Start) -> None:
    """Store the steps of a share below the call that started it, and move its message to the trash."""
    for message in queries.messages(db, [str(share.message_id)]):
        # The response schemas and the records have the same fields here.
        steps = msgspec.json.decode(msgspec.json.encode(message.agent_steps), type=list[records.AgentStep])
        shared = records.Message(role="assistant", health=message.health or None)
        placed = _placed(shared, _as_they_came(steps), start)
        (outcome,) = ingest(db, project_id, [records.Session(external_id=session, messages=[placed])], source="import")
        if not any(message.refused for message in outcome.messages):
            delete_message(db, share.message_id, by="import", session_id=share.session_id)


def _stored_prompts(db: Database, shares: Mapping[str, _Share]) -> dict[str, str | None]:
    """Return the prompts of stored shares, which only some have."""
    agent_of = {share.message_id: agent for agent, share in shares.items()}
    first, after = ids.range_below(min(agent_of))[0], ids.range_below(max(agent_of))[1]
    steps = (
        db.rows(AgentStep.objects)
        .filter(message_id__in=agent_of, pk__gte=first, pk__lt=after)
        .order_by("message_id", "iteration", "ordinal")
        .values_list("message_id", "metadata")
    )
    prompts: dict[str, str | None] = dict.fromkeys(shares)
    for message_id, metadata in steps:
        agent = agent_of[message_id]
        if prompts[agent] is None:
            prompts[agent] = _prompt_in(metadata)
    return prompts


def _agent_of(external_id: str | None) -> str | None:
    return external_id.removeprefix(SHARE) if external_id and external_id.startswith(SHARE) else None


def _starts(db: Database, project_id: int, session: str, prompts: Mapping[str, str | None]) -> dict[str, _Start]:
    """Return the calls that started the agents with these prompts, as far as they are known."""
    with db.cursor() as cursor:
        cursor.execute(_STARTS, {"project_id": project_id, "session": session, "agents": sorted(prompts)})
        rows = cursor.fetchall()
    starts: dict[str, _Start] = {}
    for agent, message, uuid, call_id, iteration in rows:
        if _agent_of(message) != agent:
            starts.setdefault(agent, _Start(message, uuid, call_id, iteration))
    others = {agent: prompt for agent, prompt in prompts.items() if agent not in starts and prompt}
    return {**starts, **_starts_by_prompt(db, project_id, session, others)} if others else starts


def _starts_by_prompt(db: Database, project_id: int, session: str, prompts: Mapping[str, str]) -> dict[str, _Start]:
    """Return the calls with the prompts of these agents that are not those of others."""
    below = {"message__project_id": project_id, "message__session__external_id": session, "message__deleted_at": None}
    steps = db.rows(AgentStep.objects).filter(**below).exclude(agent_name="").values_list("agent_name", "metadata")
    agent_of: dict[object, str] = {}
    asked: dict[str, tuple[str, object]] = {agent: (prompt, None) for agent, prompt in prompts.items()}
    for name, metadata in steps:
        call = fields(metadata).get("parent_call")
        agent_of[call] = name
        if (prompt := _prompt_in(metadata)) is not None:
            asked.setdefault(name, (prompt, call))
    calls = (
        db.rows(ToolCall.objects)
        .filter(**below, tool__name__in=STARTERS)
        .order_by("message_id", "step__iteration", "position")
        .values_list("message__external_id", "pk", "call_id", "step__iteration", "args", "result__data")
    )
    like: dict[str, list[_Start]] = {}
    for message, uuid, call_id, iteration, args, data in calls:
        prompt = fields(args).get("prompt")
        if isinstance(prompt, str) and "agentId" not in fields(data) and call_id:
            like.setdefault(prompt.strip(), []).append(_Start(message, uuid, call_id, iteration))
    starts: dict[str, _Start] = {}
    for agent, prompt in prompts.items():
        same = like.get(prompt, [])
        # Those below other calls are not meant: a result names them.
        sharing = [call for other, call in asked.values() if other == prompt]
        rivals = [call for call in sharing if call is None or any(call == start.call_id for start in same)]
        for start in sorted(same, key=lambda start: agent_of.get(start.call_id) != agent):
            if agent_of.setdefault(start.call_id, agent) == agent:
                starts[agent] = start._replace(is_guessed=len(same) > 1 or len(rivals) > 1)
                break
    return starts


def _first_prompt(metadata: Iterable[object]) -> str | None:
    """Return the prompt of a sub-agent, which the metadata of its first step have."""
    return next((prompt for of_step in metadata if (prompt := _prompt_in(of_step)) is not None), None)


def _prompt_in(metadata: object) -> str | None:
    prompt = fields(metadata).get("prompt")
    prompt = prompt[0] if isinstance(prompt, list) and prompt else prompt
    return prompt.strip() if isinstance(prompt, str) else None


def _placed(share: records.Message, steps: Iterable[records.AgentStep], start: _Start) -> records.Message:
    """Return the message of the call with the steps of a share below it and no other field. The steps of a share that was
    placed below this one keep their call."""
    here = {"parent_call": start.call_id, **({GUESSED_PARENT: True} if start.is_guessed else {})}
    return records.Message(
        role="assistant",
        external_id=start.message,
        created_at=share.created_at,
        health=share.health,
        agent_steps=[
            replace(
                step,
                iteration=start.iteration,
                tool_calls=[replace(call, parent=call.parent or str(start.uuid)) for call in step.tool_calls or ()],
                metadata={**(step.metadata or {}), **({} if "parent_call" in (step.metadata or {}) else here)},
            )
            for step in steps
        ],
    )


def _as_they_came(steps: Iterable[records.AgentStep]) -> Iterator[records.AgentStep]:
    """Return stored steps with the ids of their transcript, because the stored ids belong to another message."""
    names: dict[str | None, str | None] = {}
    for step in steps:
        names |= {call.uuid: call.id for call in step.tool_calls or ()}
        message_id = (step.metadata or {}).get("message_id")
        yield replace(
            step,
            id=message_id if isinstance(message_id, str) else step.id,
            tool_calls=[replace(call, uuid=None, parent=names.get(call.parent)) for call in step.tool_calls or ()],
        )

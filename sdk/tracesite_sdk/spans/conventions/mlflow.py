"""MLflow's tracing, exported as OpenTelemetry spans.

Source: mlflow/mlflow, mlflow/tracing/constant.py. Values are JSON text.
"""

from __future__ import annotations

from collections.abc import Collection

from tracesite_sdk.normalize.json_values import fields
from tracesite_sdk.normalize.pricing import with_counts
from tracesite_sdk.spans.facts import Facts, cost, first_text
from tracesite_sdk.spans.observations import Kind
from tracesite_sdk.spans.span import Span
from tracesite_sdk.transcripts.parsing.message_shapes import decoded
from tracesite_sdk.transcripts.parsing.passages import passages_in

KINDS: dict[str, Kind] = {"LLM": "generation", "CHAT_MODEL": "generation", "TOOL": "tool", "AGENT": "agent"}


def recognises(_span: Span, families: Collection[str]) -> bool:
    return "mlflow." in families


def facts(span: Span) -> Facts:
    values = {name: decoded(value) for name, value in span.attributes.items() if name.startswith("mlflow.")}
    said = str(values.get("mlflow.spanType", "")).upper()
    kind: Kind | None = KINDS.get(said, "other" if said else None)
    return Facts(
        kind=kind,
        is_root_of_run=said in ("AGENT", "CHAIN") or None,
        is_embedding=said == "EMBEDDING" or None,
        session_id=first_text(values, ("mlflow.trace.session",)),
        end_user=first_text(values, ("mlflow.trace.user",)),
        title=first_text(values, ("mlflow.traceName",)),
        input=values.get("mlflow.spanInputs"),
        output=values.get("mlflow.spanOutputs"),
        tool_name=span.name if kind == "tool" else None,
        model=first_text(values, ("mlflow.llm.model",)),
        usage=with_counts(fields(values.get("mlflow.chat.tokenUsage")) or None),
        passages=passages_in(values.get("mlflow.spanOutputs")) or None if said == "RETRIEVER" else None,
        cost=cost(fields(values.get("mlflow.llm.cost")), ("total_cost",), ("input_cost", "output_cost")),
        metadata={"cost": values["mlflow.llm.cost"]} if "mlflow.llm.cost" in values else {},
    )

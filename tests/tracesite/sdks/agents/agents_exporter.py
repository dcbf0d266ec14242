"""Exports the traces of the agent by the SDK's own exporter, with the lines of docs/otlp.md."""

import os
import re
from pathlib import Path
from textwrap import dedent

from agents import set_trace_processors
from agents_planner import run

document = (Path(__file__).parents[4] / "docs" / "otlp.md").read_text()
[lines] = re.findall(r"(?m)(?:^    .*BackendSpanExporter.*\n|^    from agents import.*\n)+", document)
assert lines.count("\n") == 3
lines = lines.replace("http://127.0.0.1:8000", os.environ["TRACESITE_URL"]).replace(
    "ts_...", os.environ["TRACESITE_KEY"]
)
set_trace_processors([])  # that of OpenAI
exec(dedent(lines))
run()

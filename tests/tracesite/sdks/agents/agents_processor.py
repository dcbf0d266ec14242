"""Records the agent by Tracesite's processor, with the lines of docs/recorder.md."""

import re
from pathlib import Path
from textwrap import dedent

from agents import set_trace_processors
from agents_planner import run

from tracesite_sdk import Recorder

document = (Path(__file__).parents[4] / "docs" / "recorder.md").read_text()
[lines] = re.findall(r"(?m)^    from agents import.*\n(?:    .*\n)+", document)
assert lines.count("\n") == 3
recorder = Recorder()
set_trace_processors([])  # that of OpenAI
exec(dedent(lines))
run()
recorder.close(10)

"""The corpus: secrets in the settings agents print them in are taken out, source code and prose stay.

``python -m benchmarks.redaction`` prints the figures that docs/redaction.md has.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tracesite_sdk.redaction.engine import redact

from .corpus import SAMPLES, innocents, trials


def test_corpus_is_as_large_as_the_docs_say() -> None:
    secrets = list(trials())
    assert len({trial.secret for trial in secrets}) >= 200
    assert len({trial.kind for trial in secrets}) >= 40
    assert min(Counter(trial.kind for trial in secrets).values()) >= 8 * SAMPLES
    snippets = list(innocents())
    assert len(snippets) >= 500
    assert len({snippet.language for snippet in snippets}) >= 10


@pytest.mark.parametrize("held_out", [False, True])
def test_redact_recall_is_at_least_98_percent(held_out: bool) -> None:
    secrets = [trial for trial in trials() if trial.held_out == held_out]
    left = [
        (trial.kind, trial.setting)
        for trial in secrets
        if trial.leaks_in(
            clean if isinstance(clean := redact(trial.value)[0], str) else json.dumps(clean, ensure_ascii=False)
        )
    ]
    assert 1 - len(left) / len(secrets) >= 0.98, Counter(left).most_common(20)


def test_redact_changes_at_most_five_innocent_snippets() -> None:
    changed = [snippet.value for snippet in innocents() if redact(snippet.value)[0] != snippet.value]
    assert len(changed) <= 5, changed

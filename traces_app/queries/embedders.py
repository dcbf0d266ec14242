"""The embedder of questions: none (hashed n-grams), a Python function, or an OpenAI-compatible URL, as TRACESITE_EMBEDDER says.

Only stored questions are embedded, which are redacted, and of each the beginning: see run_vectors.MOST_CHARACTERS.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message as Headers
from functools import lru_cache, partial
from importlib import import_module
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
from django.core.exceptions import ImproperlyConfigured
from numpy.typing import NDArray

from access_app.conf import conf

TEXTS_AT_A_TIME = 64
"""Texts of one request."""
MOST_DIMENSIONS = 4_096
TIMEOUT_SECONDS = 30
ATTEMPTS = 3
_PAUSE_SECONDS = 1
_MOST_BYTES = 64 * 1024 * 1024
_RETRIED = frozenset({408, 429, 500, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422})
# What a function of others may raise; the job tries again later instead of ending.
_FAILURES = (ArithmeticError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)


class EmbedderError(Exception):
    """The embedder did not return vectors. Try again later."""


class TextsRefused(EmbedderError):
    """The service does not embed one of these texts, however often it is asked."""


@dataclass(frozen=True, kw_only=True)
class Embedder:
    """An embedder that is not the default one."""

    name: str
    """Recorded with the vectors: those of another name are made again."""
    request: Callable[[Sequence[str]], Sequence[Sequence[float]]]

    def embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        """Return the vector of each text, all of one dimension; None for a text that is refused. Raise EmbedderError."""
        vectors: list[NDArray[np.float32] | None] = []
        for first in range(0, len(texts), TEXTS_AT_A_TIME):
            vectors += self._embed(texts[first : first + TEXTS_AT_A_TIME])
        if len({len(vector) for vector in vectors if vector is not None}) > 1:
            raise EmbedderError("The embedder returned vectors of several dimensions.")
        return vectors

    def _embed(self, texts: Sequence[str]) -> list[NDArray[np.float32] | None]:
        try:
            return list(_checked(self.request(texts), len(texts)))
        except TextsRefused:
            if len(texts) == 1:
                return [None]
            return [vector for text in texts for vector in self._embed([text])]
        except _FAILURES as error:
            raise EmbedderError(f"The embedder failed: {type(error).__name__}") from error


def configured() -> Embedder | None:
    """Return the embedder of the settings; None for the default one. Raise ImproperlyConfigured."""
    return _embedder(conf.EMBEDDER, conf.EMBEDDER_MODEL, conf.EMBEDDER_KEY)


@lru_cache(maxsize=8)
def _embedder(address: str, model: str, key: str) -> Embedder | None:
    if not address:
        return None
    if address.startswith(("http://", "https://")):
        request = partial(_request, f"{address.rstrip('/')}/embeddings", model, key)
        return Embedder(name=f"{address} {model}".strip(), request=request)
    module, _colon, name = address.partition(":")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ImproperlyConfigured(f"TRACESITE_EMBEDDER names {address!r}, which does not exist: {error}") from error
    return Embedder(name=address, request=function)


def _checked(vectors: Any, count: int) -> NDArray[np.float32]:
    made = np.asarray(vectors, dtype=np.float32)
    if made.ndim != 2 or len(made) != count or not 0 < made.shape[1] <= MOST_DIMENSIONS or not np.isfinite(made).all():
        raise EmbedderError(
            f"The embedder must return a vector of 1 to {MOST_DIMENSIONS:,} numbers for each of the {count} texts; "
            f"it returned an array of the shape {made.shape}."
        )
    return made


# --- Over HTTP --------------------------------------------------------------------------------------------------------


class _NoRedirects(HTTPRedirectHandler):
    """The key and the texts go to the configured address only."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: Headers, newurl: str
    ) -> Request | None:
        return None


_open = build_opener(_NoRedirects).open


def _request(url: str, model: str, key: str, texts: Sequence[str]) -> list[list[float]]:
    """POST texts to an OpenAI-compatible API; a failure that may pass is retried."""
    body = json.dumps({"input": list(texts), "encoding_format": "float", **({"model": model} if model else {})})
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {key}"} if key else {})}
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(_PAUSE_SECONDS * attempt)
        try:
            with _open(Request(url, body.encode(), headers), timeout=TIMEOUT_SECONDS) as response:  # noqa: S310 - http or https, see _embedder
                return _vectors_in(json.loads(response.read(_MOST_BYTES)))
        except HTTPError as error:
            error.close()
            if error.code in _REFUSED:
                raise TextsRefused from error
            if error.code not in _RETRIED:
                raise EmbedderError(f"The embedder answered with the status {error.code}.") from error
            failure: OSError = error
        except OSError as error:
            failure = error
    raise EmbedderError(f"The embedder did not answer: {failure}") from failure


def _vectors_in(answer: Mapping[str, Any]) -> list[list[float]]:
    rows = sorted(answer["data"], key=lambda row: row["index"])
    return [row["embedding"] for row in rows]

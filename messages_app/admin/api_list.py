"""The request to the REST API that finds the rows of a list, which the list offers to copy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.http import urlencode

if TYPE_CHECKING:
    from .keyset import KeysetChangeList


@dataclass(frozen=True, kw_only=True)
class ApiList:
    """The same list in the REST API."""

    name: str
    """The name of its URL."""
    searches: bool = False
    """Whether `q` means the same there."""

    def context(self, request: HttpRequest, changelist: KeysetChangeList) -> dict[str, Any]:
        query = urlencode(changelist.api_parameters())
        address = reverse(f"tracesite:{self.name}") + (f"?{query}" if query else "")
        command = f'curl -H "Authorization: Bearer $KEY" {shlex.quote(request.build_absolute_uri(address))}'
        return {"api_address": address, "api_command": command, "not_in_api": ", ".join(changelist.not_in_api)}

"""The limit of requests of an API key."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from django.utils.translation import gettext as _
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from access_app.db import primary

from .errors import TooManyRequests
from .models import ApiKey

if TYPE_CHECKING:
    # That module loads this one, through the settings.
    from rest_framework.views import APIView

# The generic cell rate algorithm, which ATM networks use (ITU-T I.371): a key that was idle may send a minute's worth at once,
# afterwards as many as its rate adds. One row and one statement, so that it is exact over all processes.
_TAKE = """
    INSERT INTO access_app_keythrottle AS throttle (key_id, full_at) VALUES (%(key)s, clock_timestamp() + %(each)s::interval)
    ON CONFLICT (key_id) DO UPDATE SET full_at = greatest(throttle.full_at, clock_timestamp()) + %(each)s::interval
    WHERE throttle.full_at + %(each)s::interval <= clock_timestamp() + interval '1 minute'
    RETURNING full_at
    """
_WAIT = """
    SELECT extract(epoch FROM full_at + %(each)s::interval - interval '1 minute' - clock_timestamp())
    FROM access_app_keythrottle WHERE key_id = %(key)s
    """


class KeyRateThrottle(BaseThrottle):
    """Refuse the requests of a key beyond its `requests_per_minute` with 429 and Retry-After.

    Keys without a limit cost nothing, others one statement a request.
    """

    def allow_request(self, request: Request, view: APIView) -> bool:
        key = request.auth
        if not isinstance(key, ApiKey) or key.requests_per_minute is None:
            return True
        seconds = take(key.pk, key.requests_per_minute)
        if seconds:
            raise TooManyRequests(
                _("The key %(prefix)s… may send %(limit)d requests a minute. Try again in %(seconds)d s.")
                % {"prefix": key.prefix, "limit": key.requests_per_minute, "seconds": seconds},
                headers={"Retry-After": str(seconds)},
            )
        return True


def take(key_id: int, requests_per_minute: int) -> int:
    """Count a request and return 0, or the whole seconds after which the key may send one again."""
    values: dict[str, int | str] = {"key": key_id, "each": f"{60 / requests_per_minute:.6f} seconds"}
    with primary.cursor() as cursor:
        cursor.execute(_TAKE, values)
        if cursor.fetchone() is not None:
            return 0
        cursor.execute(_WAIT, values)
        row = cursor.fetchone()
    return max(1, math.ceil(row[0])) if row else 1

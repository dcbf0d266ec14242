"""Callables for django-axes: the name and address of a login attempt, and the lockout response."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from access_app.conf import conf

_PREFIX = 64
LONGEST_NAME = 150
"""Maximum length of a user name; longer input is truncated before it is counted and logged."""


def typed_name(request: HttpRequest, credentials: dict[str, Any] | None) -> str:
    """Return the name that failures are counted by, for columns of 255 characters."""
    name: str = (credentials or request.POST).get("username") or ""
    return name[:LONGEST_NAME]


def counted_address(request: HttpRequest) -> str:
    """Return the address that failures are counted by: of IPv6 the network, because everybody has 2**64 addresses of one."""
    address = client_address(request)
    try:
        ip = ip_address(address)
    except ValueError:  # a socket without a network
        return address
    if not isinstance(ip, IPv6Address):
        return address
    return str(ip.ipv4_mapped or ip_network((ip, _PREFIX), strict=False).network_address)


def client_address(request: HttpRequest) -> str:
    """Return the address that a request comes from; "" if it comes through a socket without a network."""
    return address_behind_proxy(request.META.get("HTTP_X_FORWARDED_FOR", ""), request.META.get("REMOTE_ADDR", ""))


def address_behind_proxy(forwarded: str, peer: str) -> str:
    """Return the address of a client from the header X-Forwarded-For and the peer of the connection.

    Behind a proxy (TRACESITE_HTTPS) it is the last entry of the header, which that proxy adds, because the client can
    forge the others. Otherwise the header does not count.
    """
    return (conf.HTTPS and forwarded.rpartition(",")[2].strip()) or peer


def log_text(username: str | None, address: str, user_agent: str, path: Any, request: HttpRequest) -> str:
    """Return the log entry of a login attempt: the submitted name and the address."""
    return f"{username or ''!r} at {client_address(request)}"


def locked_out(request: HttpRequest, response: HttpResponse | None, credentials: dict[str, Any] | None) -> HttpResponse:
    """Answer a login after too many failures with 429 and the minutes to wait."""
    minutes = int(settings.AXES_COOLOFF_TIME.total_seconds() // 60)
    page = render(request, "locked_out.html", {"minutes": minutes}, status=429)
    page.headers["Retry-After"] = str(minutes * 60)
    return page

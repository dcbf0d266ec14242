"""Every error of the API has one shape; outside of it people get a page."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.tracesite.conftest import LogLines

pytestmark = pytest.mark.urls("tests.tracesite.urls")


@pytest.fixture
def client() -> Client:
    return Client(raise_request_exception=False, headers={"X-Request-ID": "r1"})


def error(code: str, message: str, field: str | None = None) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "field": field, "request_id": "r1"}}


ANSWERS = [
    ("ours", 409, error("stale_version", "The version is stale.", "version")),
    ("unavailable", 503, error("unavailable", "The service is temporarily unavailable. Try again shortly.")),
    ("http404", 404, error("not_found", "Not found.")),
    ("denied", 403, error("not_permitted", "You do not have permission to do this.")),
    ("suspicious", 400, error("invalid_input", "Invalid request.")),
    ("drf_denied", 403, error("not_permitted", "You do not have permission to perform this action.")),
    ("drf_unauthenticated", 401, error("not_authenticated", "Authentication credentials were not provided.")),
    ("throttled", 429, error("throttled", "Request was throttled. Expected available in 8 seconds.")),
    ("validation", 400, error("invalid_input", "All of it is wrong.")),
]


@pytest.mark.parametrize(("what", "status", "body"), ANSWERS)
def test_view_errors_have_api_error_shape(client: Client, what: str, status: int, body: dict[str, Any]) -> None:
    answer = client.get(f"/api/raise/{what}/")

    assert (answer.status_code, answer.json()) == (status, body)
    assert answer.headers["Content-Type"] == "application/json"


def test_error_headers_name_allowed_methods_and_schemes(client: Client) -> None:
    assert client.get("/api/raise/drf_unauthenticated/").headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/api/raise/unavailable/").headers["Retry-After"] == "5"
    assert client.get("/api/raise/throttled/").headers["Retry-After"] == "8"
    refused = client.delete("/api/raise/ours/")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")
    assert refused.json() == error("method_not_allowed", "Method DELETE is not allowed. Allowed: GET, HEAD, OPTIONS.")


def test_request_for_other_format_gets_json(client: Client) -> None:
    answer = client.get("/api/raise/ours/", headers={"Accept": "text/xml"})

    assert answer.status_code == 406
    assert answer.json() == error("not_acceptable", "Could not satisfy the request Accept header.")


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        ({}, "items", "This field is required."),
        ({"items": [{"size": 1}, {"size": "x"}]}, "items[1].size", "A valid integer is required."),
        (
            {"items": [{"size": 1}], "tags": ["a", "long"]},
            "tags[1]",
            "Ensure this field has no more than 3 characters.",
        ),
        ({"items": []}, None, "An order has items."),
        ({"items": [1]}, "items[0]", "Invalid data. Expected a dictionary, but got int."),
        ([1], None, "Invalid data. Expected a dictionary, but got list."),
    ],
)
def test_error_names_path_of_first_wrong_field(client: Client, body: Any, field: str | None, message: str) -> None:
    answer = client.post("/api/orders/", body, content_type="application/json")

    assert (answer.status_code, answer.json()) == (400, error("invalid_input", message, field))


def test_unreadable_bodies_are_refused(client: Client, settings: Any) -> None:
    broken = client.post("/api/orders/", '{"items": ', content_type="application/json")
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")

    other = client.post("/api/orders/", "a,b", content_type="text/csv")
    assert (other.status_code, other.json()) == (
        415,
        error("unsupported_media_type", 'Unsupported media type "text/csv" in request.'),
    )

    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 10
    large = client.post("/api/body/", {"a": "b" * 20}, content_type="application/json")
    assert (large.status_code, large.json()) == (413, error("too_large", "The request is too large."))


@pytest.mark.django_db
def test_database_failure_is_logged_and_answered_503(client: Client, log_lines: LogLines) -> None:
    answer = client.get("/api/raise/database/")

    assert (answer.status_code, answer.json()) == (
        503,
        error("unavailable", "The service is temporarily unavailable. Try again shortly."),
    )
    assert answer.headers["Retry-After"] == "5"
    failure = log_lines()[0]
    assert (failure["level"], failure["logger"], failure["request_id"]) == ("ERROR", "tracesite.http.errors", "r1")
    assert "in slow_query" in failure["exc_info"]
    assert "QueryCanceled" in failure["exc_info"]


@pytest.mark.parametrize("path", ["/api/raise/away/", "/api/plain/away/", "/plain/away/"])
def test_database_away_is_logged_in_one_line(client: Client, log_lines: LogLines, path: str) -> None:
    assert client.get(path).status_code == 503

    lines = log_lines()
    failure, request = lines[:2]
    assert failure["message"] == f"the database did not respond: {path}: connection refused"
    assert (failure["level"], failure["logger"]) == ("ERROR", "tracesite.http.errors")
    assert (request["logger"], request["status"]) == ("tracesite.http.request_log", 503)
    assert not [line for line in lines if "exc_info" in line]


@pytest.mark.parametrize("path", ["/api/raise/unforeseen/", "/api/plain/unforeseen/"])
def test_unforeseen_error_is_logged_and_answered_without_details(
    client: Client, log_lines: LogLines, path: str
) -> None:
    answer = client.get(path + "?q=private")

    assert (answer.status_code, answer.json()) == (
        500,
        error("internal_error", "Internal server error. See the server log."),
    )
    failure, request = log_lines()
    assert (failure["level"], failure["logger"], failure["request_id"]) == ("ERROR", "django.request", "r1")
    assert "ZeroDivisionError: secret detail" in failure["exc_info"]
    assert "urls.py" in failure["exc_info"]
    assert (request["logger"], request["status"]) == ("tracesite.http.request_log", 500)


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("http404", 404, "not_found"),
        ("denied", 403, "not_permitted"),
        ("suspicious", 400, "invalid_input"),
        ("bad", 400, "invalid_input"),
        ("unforeseen", 500, "internal_error"),
    ],
)
def test_errors_outside_views_are_json_for_the_api_and_html_else(
    client: Client, what: str, status: int, code: str
) -> None:
    api, page = client.get(f"/api/plain/{what}/"), client.get(f"/plain/{what}/")

    assert (api.status_code, api.json()["error"]["code"]) == (status, code)
    assert (page.status_code, page.headers["Content-Type"]) == (status, "text/html; charset=utf-8")
    for answer in (api, page):
        assert "detail" not in answer.content.decode()


def test_unknown_path_gets_api_error_shape(client: Client) -> None:
    api, page = client.get("/api/nowhere/"), client.get("/nowhere/")

    assert (api.status_code, api.json()) == (404, error("not_found", "There is no resource at this URL."))
    assert page.status_code == 404
    assert "There is no page at this address" in page.content.decode()


def test_page_of_unforeseen_error_needs_no_style_or_script(client: Client) -> None:
    content = client.get("/plain/unforeseen/").content.decode()
    assert "<h1>Something went wrong</h1>" in content
    assert "<style" not in content
    assert "<script" not in content


@pytest.mark.parametrize(
    ("path", "status", "title", "chinese"),
    [
        ("/nowhere/", 404, "Page not found", "找不到页面"),
        ("/plain/http404/", 404, "Page not found", "找不到页面"),
        ("/plain/denied/", 403, "No permission", "没有权限"),
        ("/plain/bad/", 400, "Invalid request", "无效请求"),
    ],
)
def test_error_page_has_frame_and_language_of_admin(
    client: Client, path: str, status: int, title: str, chinese: str
) -> None:
    for language, words in (("en", title), ("zh-hans", chinese)):
        page = client.get(path, headers={"Accept-Language": language})
        content = page.content.decode()
        assert page.status_code == status
        assert f"<h1>{words}</h1>" in content
        assert f"<title>{words} | Tracesite</title>" in content
        assert '<div id="site-name"><a href="/admin/">' in content
        # Programs and crawlers meet these pages, too.
        assert page.cookies == {}


def test_error_page_keeps_navigation_of_staff(client: Client, db: None) -> None:
    client.force_login(User.objects.create_superuser("ada"))
    content = client.get("/admin/nowhere/").content.decode()
    assert "<h1>Page not found</h1>" in content
    assert 'class="rail"' in content
    assert 'id="logout-form"' in content


def test_form_without_csrf_token_is_answered_in_frame_of_admin() -> None:
    client = Client(enforce_csrf_checks=True, headers={"X-Request-ID": "r1"})
    api, page = client.post("/api/plain/ok/"), client.post("/plain/ok/")

    assert (api.status_code, api.json()) == (403, error("csrf_failed", "CSRF cookie not set."))
    assert (page.status_code, page.headers["Content-Type"]) == (403, "text/html; charset=utf-8")
    assert "<h1>This form has expired</h1>" in page.content.decode()


@pytest.mark.parametrize("path", ["/api/v1/sessions/", "/admin/"])
def test_unknown_host_error_names_the_setting(client: Client, log_lines: LogLines, path: str) -> None:
    answer = client.get(path, headers={"host": "traces.example.org"})
    refusal, request = log_lines()
    assert (refusal["level"], refusal["message"]) == ("WARNING", "rejected the host name traces.example.org")
    assert (request["status"], "exc_info" in refusal, "exc_info" in request) == (400, False, False)
    text = "This host name is not allowed. Add it to TRACESITE_ALLOWED_HOSTS."
    assert answer.status_code == 400
    if path.startswith("/api/"):
        assert answer.json()["error"] | {"request_id": ""} == {
            "code": "wrong_host", "message": text, "field": "Host", "request_id": ""
        }  # fmt: skip
    else:
        assert answer.content.decode() == text


@pytest.mark.parametrize("query", ["password__startswith=a", "_to_field=x"])
def test_refused_parameters_of_admin_are_logged_without_stack(staff: Client, log_lines: LogLines, query: str) -> None:
    answer = staff.get(f"/admin/auth/user/?{query}")
    (request,) = log_lines()[-1:]
    assert (answer.status_code, request["status"]) == (400, 400)
    assert not [line for line in log_lines() if "exc_info" in line or line["level"] == "ERROR"]

"""Test that the HTTP sink delivers each accepted event once, despite failures of network, server and processes."""

from __future__ import annotations

import logging
import os
import random
import shlex
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sdk.tests.ports import free_port
from sdk.tests.recorder.sending import KEY, Sinks, burst, sinks, soon, wait_until
from sdk.tests.recorder.servers import FakeTracesite, Request, Response, error, json_response, serve
from tracesite_sdk.recorder.delivery import http_sink
from tracesite_sdk.recorder.delivery.http_sink import HttpSink, SinkReport
from tracesite_sdk.recorder.delivery.sinks import Clean, ServerSampling, ServerSettings, Sink
from tracesite_sdk.waiting_events import main

__all__ = ["sinks"]


def event(name: object, size: int = 0) -> Clean:
    return Clean(b'{"id":"%s","pad":"%s"}' % (str(name).encode(), b"x" * size))


def events(*names: object) -> list[Clean]:
    return [event(name) for name in names]


@pytest.fixture
def fake() -> Iterator[FakeTracesite]:
    with serve() as server:
        yield server


Silence = Callable[[], None]


@pytest.fixture
def silence() -> Iterator[Silence]:
    """Return a function that returns at the end of the test, for servers that do not answer before."""
    end = threading.Event()

    def wait() -> None:
        end.wait()

    yield wait
    end.set()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the pauses."""
    monkeypatch.setattr(http_sink, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(http_sink, "FIRST_PAUSE", 0.01)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "tracesite_sdk"]


# --- Normal operation -------------------------------------------------------------------------------------------------


def test_http_sink_satisfies_the_protocol(sinks: Sinks) -> None:
    sink: Sink = sinks.to("http://127.0.0.1:1")
    assert (sink.flush(time.monotonic()), sink.close(time.monotonic()), sink.close(time.monotonic())) == (0, 0, 0)
    assert not sinks.root.exists()


def test_events_arrive_in_order_and_none_is_left(fake: FakeTracesite, sinks: Sinks) -> None:
    sink = sinks.to(fake.url)
    names = [str(number) for number in range(2000)]
    for start in range(0, 2000, 50):
        assert sink.send(events(*names[start : start + 50])) == 50
    assert sink.flush(soon()) == 0
    assert fake.stored == names
    assert sink.report() == SinkReport(
        spooled=2000,
        delivered=2000,
        duplicates=0,
        refused={},
        invalid=0,
        lost=0,
        waiting=0,
        waiting_bytes=0,
        last_error=None,
    )
    assert sink.close(soon()) == 0
    assert sink.send(events("late")) == 0
    assert sinks.files() == []


def test_batch_is_bounded_compressed_and_authorized(fake: FakeTracesite, sinks: Sinks) -> None:
    sink = sinks.to(fake.url + "/prefix/")
    sink.send([event(number, 5000) for number in range(1000)])
    assert sink.flush(soon()) == 0
    first = fake.posts()[0]
    assert (first.path, first.headers["Authorization"]) == ("/prefix/api/v1/events/", f"Bearer {KEY}")
    assert (first.headers["Content-Type"], first.headers["Content-Encoding"]) == ("application/x-ndjson", "gzip")
    assert max(len(post.ids) for post in fake.posts()) <= 1024 * 1024 // 5000
    assert max(post.bytes for post in fake.posts()) < 100_000
    sink.send(events(*range(5000, 6001)))
    assert sink.flush(soon()) == 0
    assert max(len(post.ids) for post in fake.posts()) == 500


def test_thread_starts_with_first_event_and_ends(fake: FakeTracesite, sinks: Sinks) -> None:
    def senders() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "tracesite-sender"]

    before = senders()
    sink = sinks.to(fake.url)
    assert senders() == before
    sink.send(events(1))
    assert len(senders()) == len(before) + 1
    sink.close(soon())
    # The thread has no work left; the operating system removes it soon.
    wait_until(lambda: senders() == before)


def test_closed_connection_is_reopened(fake: FakeTracesite, sinks: Sinks) -> None:
    closed: list[str] = []

    def close_after(request: Request) -> Response | None:
        closed.append(request.method)
        status, headers, body = fake.take(request) if request.method == "POST" else error(404)
        return status, {**headers, "Connection": "close"}, body

    fake.answer = close_after
    sink = sinks.to(fake.url)
    for name in range(5):
        sink.send(events(name))
        assert sink.flush(soon()) == 0
    assert (fake.stored, fake.duplicates) == (["0", "1", "2", "3", "4"], [])
    assert sink.report().last_error is None


def test_restarted_server_is_found_at_once(sinks: Sinks) -> None:
    port = free_port()
    with serve(port) as before:
        sink = sinks.to(before.url)
        sink.send(events("a"))
        assert sink.flush(soon()) == 0
    with serve(port) as after:
        sink.send(events("b"))
        assert sink.flush(soon()) == 0
        assert sink.report().last_error is None
    assert (before.stored, after.stored) == (["a"], ["b"])


# --- Settings ---------------------------------------------------------------------------------------------------------


def test_server_settings_are_read_and_refreshed(
    fake: FakeTracesite, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sink, "SETTINGS_SECONDS", 0.05)
    fake.settings = {
        "sampling": {"rate": 0.1, "tools": {"search": 0.01}, "keep_slower_than_ms": 2000, "new": 1},
        "more": 2,
    }
    sink = sinks.to(fake.url)
    time.sleep(0.1)
    assert (sink.settings(), fake.requests) == (None, [])
    sink.send(events(1))
    wait_until(sink.settings)
    assert sink.settings() == ServerSettings(
        sampling=ServerSampling(rate=0.1, tools={"search": 0.01}, keep_errors=True, keep_slower_than_ms=2000)
    )
    assert [request.path for request in fake.requests[:2]] == ["/api/v1/events/", "/api/v1/recorder/"]
    assert fake.requests[1].headers["Authorization"] == f"Bearer {KEY}"
    fake.settings = {"sampling": None}
    wait_until(lambda: sink.settings() == ServerSettings())


def test_older_server_without_settings_is_asked_rarely(
    fake: FakeTracesite, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sink, "SETTINGS_SECONDS", 0.01)
    sink = sinks.to(fake.url)
    sink.send(events(1))
    wait_until(lambda: len(fake.requests) == 2)
    time.sleep(0.1)
    assert [request.method for request in fake.requests] == ["POST", "GET"]
    assert sink.settings() is None


def test_close_does_not_wait_for_settings(
    fake: FakeTracesite, sinks: Sinks, monkeypatch: pytest.MonkeyPatch, silence: Silence
) -> None:
    monkeypatch.setattr(http_sink, "SETTINGS_WAIT", 300.0)
    fake.answer = lambda request: silence() if request.method == "GET" else None
    sink = sinks.to(fake.url)
    sink.send(events(1))
    wait_until(lambda: len(fake.requests) == 2)
    begun = time.monotonic()
    assert sink.close(soon()) == 0
    assert time.monotonic() - begun < 30


# --- The server is unavailable ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_server_that_starts_later_gets_each_event_once(sinks: Sinks, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    port = free_port()
    sink = sinks.to(f"http://127.0.0.1:{port}")
    for name in range(100):
        assert sink.send(events(name)) == 1
    begun = time.monotonic()
    assert sink.flush(soon(0.2)) == 100
    assert time.monotonic() - begun >= 0.2
    wait_until(lambda: sink.report().last_error == "Connection refused")
    with serve(port) as fake:
        assert sink.flush(soon()) == 0
        assert fake.stored == [str(name) for name in range(100)]
    [away, back] = messages(caplog)
    assert away.startswith(f"Events are not delivered to http://127.0.0.1:{port}: Connection refused. They wait in /")
    assert back == f"Events are delivered to http://127.0.0.1:{port} again."


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("status", [409, 429, 500, 502, 503, 504])
def test_temporary_refusal_is_retried(fake: FakeTracesite, sinks: Sinks, status: int) -> None:
    fake.answer = lambda request: error(status) if len(fake.posts()) < 4 and request.method == "POST" else None
    sink = sinks.to(fake.url)
    sink.send(events(1, 2))
    assert sink.flush(soon()) == 0
    assert [post.ids for post in fake.posts()] == [["1", "2"]] * 4
    assert (fake.stored, sink.report().refused) == (["1", "2"], {})


def test_retry_after_is_respected_during_flush(fake: FakeTracesite, sinks: Sinks) -> None:
    fake.answer = lambda request: error(503, Retry_After="1") if len(fake.posts()) == 1 else None
    sink = sinks.to(fake.url)
    sink.send(events(1))
    assert sink.flush(soon()) == 0
    assert fake.posts()[1].at - fake.posts()[0].at >= 1


def test_silent_server_does_not_delay_the_agent(sinks: Sinks, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sink = sinks.to(f"http://127.0.0.1:{silent.getsockname()[1]}", read_timeout=300)
        begun = time.monotonic()
        for name in range(50):
            assert sink.send(events(name)) == 1
        assert sink.flush(soon(0.2)) == 50
        assert sink.close(soon(0.2)) == 50
        wait_until(lambda: sink._thread is None)  # the hanging request was aborted
        assert time.monotonic() - begun < 100
        [left] = messages(caplog)
        assert left.startswith("50 events are not delivered to ")
        assert left.endswith(" for the next process that records to it.")


def test_slow_server_is_aborted_after_the_read_timeout(fake: FakeTracesite, sinks: Sinks) -> None:
    def first_is_slow(_request: Request) -> None:
        if len(fake.posts()) == 1:
            wait_until(lambda: fake.stored)

    fake.answer = first_is_slow
    sink = sinks.to(fake.url, read_timeout=0.5)
    sink.send(events(1))
    assert sink.flush(soon()) == 0
    wait_until(lambda: fake.duplicates)  # both requests arrived in the end
    assert fake.stored == ["1"]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("seed", range(5))
def test_unreliable_server_stores_each_event_once_in_order(fake: FakeTracesite, sinks: Sinks, seed: int) -> None:
    chance = random.Random(seed)

    def misbehave(request: Request) -> Response | None:
        if request.method == "GET":
            return None
        match chance.randrange(8):
            case 0:
                fake.take(request)
                raise ConnectionError("the answer is lost")
            case 1:
                fake.take(request)
                return 200, {"Content-Encoding": "identity"}, b'{"results": ['  # cut off
            case 2:
                raise ConnectionError("before anything was stored")
            case 3:
                return error(chance.choice([409, 429, 500, 502, 503, 504]))
            case 4:
                return 200, {}, b"<html>"
        return None

    fake.answer = misbehave
    sink = sinks.to(fake.url)
    names = [f"{number:04d}" for number in range(1000)]
    for start in range(0, 1000, 10):
        assert sink.send(events(*names[start : start + 10])) == 10
        if chance.random() < 0.2:
            time.sleep(0.005)
    assert sink.flush(soon(120)) == 0
    assert fake.stored == names
    assert sink.report().refused == {}


@pytest.mark.usefixtures("quick")
def test_response_that_is_not_http_is_no_answer(sinks: Sinks) -> None:
    with socket.create_server(("127.0.0.1", 0)) as wrong:

        def speak() -> None:
            while True:
                try:
                    connection, _address = wrong.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(b"SSH-2.0-OpenSSH\r\n")

        threading.Thread(target=speak, daemon=True).start()
        sink = sinks.to(f"http://127.0.0.1:{wrong.getsockname()[1]}")
        sink.send(events(1))
        assert sink.flush(soon(0.3)) == 1
        wait_until(lambda: sink.report().last_error)
        assert sink.report().last_error in ("its response is not HTTP", "it closed the connection")
        wrong.shutdown(socket.SHUT_RDWR)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("response", "advice"),
    [
        (error(401, "invalid_api_key"), "Check the key that begins with ts_01234"),
        (error(403, "not_permitted"), "no write permission"),
        (error(404, "not_found"), "Is this the address of a Tracesite server"),
        (error(400, "wrong_host", field="Host"), "TRACESITE_ALLOWED_HOSTS"),
        ((301, {"Location": "https://elsewhere.example/"}, b""), "Is this the address of a Tracesite server"),
        ((200, {}, b"<html>Log in</html>"), "Is this the address of a Tracesite server"),
        (json_response(200, {"results": [], "refused": []}), "Is this the address of a Tracesite server"),
        ((400, {}, b"Bad Request"), "Is this the address of a Tracesite server"),
    ],
)
def test_wrong_address_or_key_is_logged_once_without_loss(
    fake: FakeTracesite, sinks: Sinks, caplog: pytest.LogCaptureFixture, response: Response, advice: str
) -> None:
    fake.answer = lambda _request: response
    sink = sinks.to(fake.url)
    sink.send(events(1, 2, 3))
    wait_until(lambda: len(fake.posts()) >= 4 and messages(caplog))
    [warning] = messages(caplog)
    assert advice in warning
    assert KEY not in caplog.text
    fake.answer = lambda _request: None
    assert sink.flush(soon()) == 0
    assert fake.stored == ["1", "2", "3"]


@pytest.mark.usefixtures("quick")
def test_refused_key_is_logged_with_a_command_that_works(
    fake: FakeTracesite, sinks: Sinks, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer = lambda request: (
        error(401, "invalid_api_key") if request.headers["Authorization"] == f"Bearer {KEY}" else None
    )
    sink = sinks.to(fake.url)
    sink.send(events(1, 2))
    wait_until(lambda: messages(caplog))
    sink.close(soon(0.1))
    wait_until(lambda: sink._thread is None)
    command = messages(caplog)[0].partition("with another key: ")[2]

    assert command == (f"tracesite drain --url {fake.url} --spool {sinks.root} --key NEW_KEY --other-keys")
    assert main(shlex.split(command.replace("NEW_KEY", "ts_new"))[1:]) == 0
    assert capsys.readouterr().out == "2 events were delivered, 0 wait.\n"


# --- Refused events ---------------------------------------------------------------------------------------------------


def refuse(poison: set[str], *, named: bool, status: int = 400) -> Callable[[Request], Response | None]:
    def answer(request: Request) -> Response | None:
        for place, name in enumerate(request.ids):
            if name in poison:
                return error(status, "invalid_input", field=f"events[{place}].type" if named else None)
        return None

    return answer


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("status", [400, 413, 422])
def test_refused_events_are_found_and_set_aside(
    fake: FakeTracesite, sinks: Sinks, caplog: pytest.LogCaptureFixture, named: bool, status: int
) -> None:
    fake.answer = refuse({"7", "8", "300"}, named=named, status=status)
    sink = sinks.to(fake.url)
    sink.send(events(*range(400)))
    assert sink.flush(soon()) == 0
    assert fake.stored == [str(name) for name in range(400) if name not in (7, 8, 300)]
    assert fake.duplicates == []
    code = "too_large" if status == 413 else "invalid_input"
    assert sink.report().refused == {code: 3}
    [kept] = sinks.root.glob("*/refused.ndjson")
    assert kept.read_bytes().splitlines() == events(7, 8, 300)
    assert len(messages(caplog)) == 1
    assert main(["status", "--spool", str(sinks.root)]) == 0


def test_events_refused_by_a_proxy_are_set_aside(fake: FakeTracesite, sinks: Sinks) -> None:
    fake.answer = lambda request: (403, {}, b"<html>Blocked</html>") if "7" in request.ids else None
    sink = sinks.to(fake.url)
    sink.send(events(*range(100)))
    assert sink.flush(soon()) == 0
    assert (len(fake.stored), sink.report().refused) == (99, {"refused_on_the_way": 1})


def test_event_too_large_for_a_request_is_set_aside(fake: FakeTracesite, sinks: Sinks) -> None:
    fake.answer = lambda request: error(413) if "large" in request.ids else None
    sink = sinks.to(fake.url)
    sink.send([event("large", 1_500_000), event("small")])
    assert sink.flush(soon()) == 0
    assert (fake.stored, sink.report().refused) == (["small"], {"too_large": 1})


@pytest.mark.usefixtures("quick")
def test_event_that_fails_the_server_is_found(fake: FakeTracesite, sinks: Sinks) -> None:
    fake.answer = lambda request: error(500) if "7" in request.ids else None
    sink = sinks.to(fake.url)
    sink.send(events(*range(20)))
    assert sink.flush(soon()) == 0
    assert (len(fake.stored), sink.report().refused) == (19, {"internal_error": 1})


def test_event_of_deleted_message_is_counted_once(
    fake: FakeTracesite, sinks: Sinks, caplog: pytest.LogCaptureFixture
) -> None:
    def deleted(request: Request) -> Response | None:
        if request.method == "GET":
            return None
        results = [{"session_id": None, "external_id": name, "state": "refused", "seq": None} for name in request.ids]
        refused = [
            {"path": f"events[{place}]", "code": "session_deleted", "message": "m"} for place in range(len(results))
        ]
        return json_response(200, {"results": results, "refused": refused})

    fake.answer = deleted
    sink = sinks.to(fake.url)
    for name in range(3):
        sink.send(events(name, f"{name}b"))
        assert sink.flush(soon()) == 0
    assert sink.report().refused == {"session_deleted": 6}
    assert messages(caplog) == [f"{fake.url} refuses events (session_deleted). They are counted and not sent again."]
    assert len(fake.posts()) == 3


# --- Other processes --------------------------------------------------------------------------------------------------

PROGRAM = """
import os, sys, time
from tracesite_sdk.recorder.delivery.http_sink import HttpSink
sink = HttpSink({url!r}, {key!r}, spool={spool!r}, interval=0.01)
def event(name): return b'{{"id":"%s","pad":"%s"}}' % (name.encode(), b"x" * 300)
"""


def program(url: str, sinks: Sinks, body: str) -> list[str]:
    return [sys.executable, "-c", PROGRAM.format(url=url, key=KEY, spool=str(sinks.root)) + textwrap.dedent(body)]


SENDS_UNTIL_KILLED = """
number = 0
while True:
    names = [f"%s-{number + one}" for one in range(7)]
    assert sink.send([event(name) for name in names]) == 7
    os.write(1, (" ".join(names) + "\\n").encode())
    number += 7
    time.sleep(0.0005)
"""


def killed_while_sending(url: str, sinks: Sinks, prefix: str, seconds: float) -> list[str]:
    """Return the events that a process had handed over when it was killed."""
    with subprocess.Popen(program(url, sinks, SENDS_UNTIL_KILLED % prefix), stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        rest = process.stdout.read()
    return (first + rest).decode().split()


@pytest.mark.system
@pytest.mark.parametrize("part", range(4))
def test_events_before_a_kill_arrive_once(sinks: Sinks, part: int) -> None:
    """20 kills in all, at seeded moments: half of them while a server answers, half while there is none."""
    chance = random.Random(part)
    port = free_port()
    handed_over: list[str] = []
    with serve(port) as fake:
        for kill in range(3):
            handed_over += killed_while_sending(fake.url, sinks, f"{part}up{kill}", chance.uniform(0, 0.05))
    for kill in range(2):
        handed_over += killed_while_sending(fake.url, sinks, f"{part}down{kill}", chance.uniform(0, 0.05))
    stored = fake.stored
    with serve(port) as again:
        # The same server, which recognises the events it already has.
        again.stored = stored
        sink = sinks.to(again.url)
        sink.send(events("last"))
        sink.close(soon())
        assert len(again.stored) == len(set(again.stored))
        assert set(handed_over) | {"last"} <= set(again.stored)
        # An event whose send had not returned at the moment of the kill may have arrived, too.
        assert len(set(again.stored) - set(handed_over)) <= 1 + 5 * 7
    for kind in ("up0", "up1", "up2", "down0", "down1"):
        arrived = [int(name.split("-")[1]) for name in again.stored if name.startswith(f"{part}{kind}")]
        assert arrived == sorted(arrived)
    assert sinks.files() == []


@pytest.mark.system
def test_two_draining_processes_double_nothing(sinks: Sinks) -> None:
    port = free_port()
    handed_over: list[str] = []
    for kill in range(4):
        handed_over += killed_while_sending(f"http://127.0.0.1:{port}", sinks, f"k{kill}", 0.02)
    with serve(port) as fake:
        drain = program(fake.url, sinks, "sink.send([event(str(os.getpid()))]); sink.close(time.monotonic() + 100)")
        processes = [subprocess.Popen(drain) for _each in range(2)]
        assert [process.wait(120) for process in processes] == [0, 0]
        assert fake.duplicates == []
        assert set(handed_over) <= set(fake.stored)
    assert sinks.files() == []


@pytest.mark.system
def test_parent_and_forked_child_deliver_their_own_events(fake: FakeTracesite, sinks: Sinks) -> None:
    script = """
        sink.send([event(f"before-{one}") for one in range(300)])
        children = []
        for child in range(3):
            pid = os.fork()
            if not pid:
                sink.after_fork()
                for one in range(50):
                    sink.send([event(f"child{child}-{one}")])
                report = sink.report()
                left = sink.close(time.monotonic() + 60)
                os._exit(0 if report.spooled == 50 and left == 0 else 1)
            children.append(pid)
            sink.send([event(f"between-{child}")])
        statuses = [os.waitpid(pid, 0)[1] for pid in children]
        assert statuses == [0, 0, 0], statuses
        assert sink.close(time.monotonic() + 60) == 0
    """
    assert subprocess.run(program(fake.url, sinks, script), check=False, timeout=200).returncode == 0
    children = [f"child{child}-{one}" for child in range(3) for one in range(50)]
    expected = [f"before-{one}" for one in range(300)] + [f"between-{child}" for child in range(3)] + children
    assert sorted(fake.stored) == sorted(expected)
    assert fake.duplicates == []
    assert sinks.files() == []


@pytest.mark.system
@pytest.mark.parametrize("header", ["Content-Length: 2", "Connection: close"])
def test_fork_while_an_answer_is_read_does_not_hang(sinks: Sinks, header: str) -> None:
    script = """
        import signal, sys
        sink.send([event("parent")])
        sys.stdin.read()
        time.sleep(0.5)  # until the sender has read all that there is
        pid = os.fork()
        if not pid:
            signal.alarm(60)
            sink.after_fork()
            os._exit(1 - sink.send([event("child")]))
        os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = "http://{}:{}".format(*server.getsockname())
        with subprocess.Popen(program(url, sinks, script), stdin=subprocess.PIPE) as process:
            connection, _address = server.accept()
            with connection:
                connection.recv(2**16)
                connection.sendall(f"HTTP/1.1 200 OK\r\n{header}\r\n\r\n{{".encode())
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(120) == 0


@pytest.mark.system
def test_process_without_close_leaves_events_on_the_disk(sinks: Sinks) -> None:
    port = free_port()
    script = "sink.send([event(f'e{one}') for one in range(100)]); os._exit(0)"
    subprocess.run(program(f"http://127.0.0.1:{port}", sinks, script), check=True)
    with serve(port) as fake:
        sink = sinks.to(fake.url)
        sink.send(events("later"))
        wait_until(lambda: len(fake.stored) == 101)
        # Each process's events are in order.
        assert [name for name in fake.stored if name != "later"] == [f"e{one}" for one in range(100)]


def test_flush_without_threads_sends_by_itself(
    fake: FakeTracesite, sinks: Sinks, monkeypatch: pytest.MonkeyPatch, silence: Silence
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    sink = sinks.to(fake.url, read_timeout=300)
    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", no_thread)
        assert sink.send(events(*range(1200))) == 1200
    assert sink.flush(soon()) == 0
    assert fake.stored == [str(name) for name in range(1200)]
    fake.answer = lambda _request: silence()
    sink.send(events("slow"))
    begun = time.monotonic()
    assert sink.close(soon(0.3)) == 1
    assert time.monotonic() - begun < 60


@pytest.mark.system
def test_events_are_sent_at_interpreter_exit(fake: FakeTracesite, sinks: Sinks) -> None:
    script = """
        import atexit
        def last():
            sink.send([event("last")])
            sink.close(time.monotonic() + 60)
        atexit.register(last)
    """
    assert subprocess.run(program(fake.url, sinks, script), check=False, timeout=120).returncode == 0
    assert fake.stored == ["last"]


# --- Bounds, disks ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick")
def test_removed_files_leave_the_sink_idle(sinks: Sinks) -> None:
    port = free_port()
    sink = sinks.to(f"http://127.0.0.1:{port}")
    for name in range(3):
        sink.send([event(name, 1_100_000)])
    wait_until(lambda: sink.report().last_error)
    for path in sinks.root.glob("*/*"):
        path.unlink()
    with serve(port) as fake:
        assert sink.flush(soon()) == 0
        before = time.process_time()
        time.sleep(0.2)
        assert time.process_time() - before < 0.1
        # Open files stay: the one being sent and the one being written.
        assert (fake.stored, sink.report().lost) == (["0", "2"], 1)


def test_full_spool_delivers_the_events_it_took(sinks: Sinks) -> None:
    port = free_port()
    sink = sinks.to(f"http://127.0.0.1:{port}", spool_bytes=20_000)
    many = [event(name, 100) for name in range(500)]
    taken = sink.send(many)
    assert 0 < taken < 500
    assert sink.send(many[taken:]) == 0
    with serve(port) as fake:
        assert sink.flush(soon()) == 0
        assert fake.stored == [str(name) for name in range(taken)]
        assert sink.send(many[taken : taken + 100]) == 100
        assert sink.flush(soon()) == 0


def test_events_without_a_disk_are_delivered_from_memory(
    fake: FakeTracesite, sinks: Sinks, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    sink = HttpSink(fake.url, KEY, spool=tmp_path / "file" / "spool")
    sink.send(events(*range(700)))
    assert sink.close(soon()) == 0
    assert fake.stored == [str(name) for name in range(700)]
    assert len(messages(caplog)) == 1
    away = HttpSink("http://127.0.0.1:1", KEY, spool=tmp_path / "file" / "spool")
    away.send(events(1, 2))
    assert (away.close(soon(0.2)), away.report().lost) == (2, 2)
    assert messages(caplog)[-1] == "2 events for http://127.0.0.1:1 are lost: they were not on the disk."


def test_two_sinks_of_one_process_share_a_directory(fake: FakeTracesite, sinks: Sinks) -> None:
    first, second = sinks.to(fake.url), sinks.to(fake.url)
    for number in range(100):
        first.send(events(f"a{number}"))
        second.send(events(f"b{number}"))
    assert (first.close(soon()), second.close(soon())) == (0, 0)
    assert sorted(fake.stored) == sorted(f"{letter}{number}" for letter in "ab" for number in range(100))
    assert (fake.duplicates, sinks.files()) == ([], [])


# --- Addresses --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "key", "reason"),
    [
        ("127.0.0.1:8000", KEY, "expected the address of a server"),
        ("ftp://tracesite.example", KEY, "expected the address of a server"),
        ("http://tracesite.example:99999", KEY, "expected the address of a server"),
        ("http://owner:secret@tracesite.example", KEY, "without a password"),
        ("http://tracesite.example/?x=1", KEY, "without a password, a ?"),
        ("http://tracesite.example/ä", KEY, "in ASCII"),
        ("http://tracesite.example", "", "expected an API key"),
        ("http://tracesite.example", "ts_a\r\nHost: x", "expected an API key"),
    ],
)
def test_invalid_address_or_key_is_refused_with_a_reason(url: str, key: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("?", r"\?")) as refused:
        HttpSink(url, key)
    assert "secret" not in str(refused.value)


def test_proxy_is_used_for_other_machines_only(
    fake: FakeTracesite, sinks: Sinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", fake.url.replace("http://", "http://owner:pass%40word@"))
    monkeypatch.setenv("no_proxy", "direct.example")
    through = sinks.to("http://tracesite.example:8000/at")
    through.send(events("through"))
    assert through.flush(soon()) == 0
    [post] = fake.posts()
    assert post.path == "http://tracesite.example:8000/at/api/v1/events/"
    assert post.headers["Proxy-Authorization"] == "Basic b3duZXI6cGFzc0B3b3Jk"
    direct = sinks.to(fake.url)
    direct.send(events("direct"))
    assert direct.flush(soon()) == 0
    assert fake.posts()[1].path == "/api/v1/events/"


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.mark.system
def test_command_lists_and_sends_waiting_events(
    sinks: Sinks, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    where = ["--spool", str(sinks.root)]
    assert main(["status", *where]) == 0
    assert capsys.readouterr().out == "No events wait.\n"
    subprocess.run(program(url, sinks, "sink.send([event('a'), event('b')]); os._exit(0)"), check=True)
    assert main(["status", *where]) == 1
    said = capsys.readouterr().out
    assert said.startswith(f"{url}, key ts_01234...: 2 events wait, 640 bytes in 1 file, of processes that began at 20")
    monkeypatch.setenv("TRACESITE_URL", url)
    monkeypatch.setenv("TRACESITE_KEY", KEY)
    assert main(["drain", *where, "--timeout", "0.2"]) == 1
    assert capsys.readouterr().out == "0 events were delivered, 2 wait.\n"
    with serve(port) as fake:
        assert main(["drain", *where, "--key", "ts_another"]) == 0
        assert capsys.readouterr().out == (
            f"No events of this key wait for {url}. See status for others that wait.\n"
            "2 events wait for other keys of this server. With --other-keys they go to the project of this key.\n"
        )
        assert main(["drain", *where]) == 0
        assert capsys.readouterr().out == "2 events were delivered, 0 wait.\n"
        assert fake.stored == ["a", "b"]
        assert main(["drain", *where]) == 0
        assert capsys.readouterr().out == f"No events of this key wait for {url}.\n"
    assert main(["status", *where]) == 0
    assert capsys.readouterr().out == f"No events wait in {sinks.root}.\n"


@pytest.mark.system
def test_command_reports_the_event_of_a_cut_off_line(
    fake: FakeTracesite, sinks: Sinks, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = "sink.send([event('a'), event('b'), event('c')]); os._exit(0)"
    for where in (fake.url, "http://earlier.example"):
        subprocess.run(program(where, sinks, ended), check=True)
    for segment in sinks.root.glob("*/*.ndjson"):
        os.truncate(segment, segment.stat().st_size - 5)
    assert main(["drain", "--spool", str(sinks.root), "--url", fake.url, "--key", KEY, "--other-urls"]) == 0
    assert capsys.readouterr().out == "4 events were delivered, 0 wait, 2 were lost.\n"


@pytest.mark.system
def test_events_of_a_changed_key_are_sent_with_the_new_one(
    fake: FakeTracesite, sinks: Sinks, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.answer = lambda request: (
        error(401, "invalid_api_key") if request.headers["Authorization"] == f"Bearer {KEY}" else None
    )
    subprocess.run(program(fake.url, sinks, "sink.send([event('a')]); os._exit(0)"), check=True)
    new = ["drain", "--spool", str(sinks.root), "--url", f"{fake.url}/", "--key", "ts_new"]
    assert main(new) == 0
    assert fake.stored == []
    assert main([*new, "--other-keys"]) == 0
    assert fake.stored == ["a"]
    assert capsys.readouterr().out.splitlines()[-1] == "1 event was delivered, 0 wait."


def test_command_without_a_server_names_missing_options(
    sinks: Sinks, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRACESITE_URL", raising=False)
    monkeypatch.delenv("TRACESITE_KEY", raising=False)
    assert main(["drain", "--spool", str(sinks.root)]) == 2
    assert (
        capsys.readouterr().err
        == "The server and the key are missing: give --url and --key, or set TRACESITE_URL and TRACESITE_KEY.\n"
    )


@pytest.mark.system
def test_events_of_other_addresses_are_sent_on_request(
    fake: FakeTracesite, sinks: Sinks, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a change from http to https, or of a mistyped address."""
    for url, key, name in (
        ("http://127.0.0.1:1", KEY, "old"),
        ("https://127.0.0.1:1/traces", KEY, "older"),
        ("http://127.0.0.1:1", "ts_01234another", "of another project"),
        (fake.url, "ts_01234third", "of a third"),
    ):
        code = (
            f"sink = HttpSink({url!r}, {key!r}, spool={str(sinks.root)!r}); sink.send([event({name!r})]); os._exit(0)"
        )
        subprocess.run(program("http://127.0.0.1:1", sinks, code), check=True)
    drain = ["drain", "--spool", str(sinks.root), "--url", f" {fake.url}/ ", "--key", f"{KEY}\n"]
    assert main(drain) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"No events of this key wait for {fake.url}. See status for others that wait.",
        "1 event waits for other keys of this server. With --other-keys it goes to the project of this key.",
        "2 events wait for other addresses with this key. With --other-urls they go to this server.",
    ]
    assert fake.stored == []
    assert main([*drain, "--other-urls"]) == 0
    assert sorted(fake.stored) == ["old", "older"]
    assert {request.headers["Authorization"] for request in fake.posts()} == {f"Bearer {KEY}"}
    assert main([*drain, "--other-urls", "--other-keys"]) == 0
    assert sorted(fake.stored) == ["of a third", "of another project", "old", "older"]
    assert capsys.readouterr().out.splitlines()[-1] == "2 events were delivered, 0 wait."


# --- A server that times out ------------------------------------------------------------------------------------------


def silent_about(*names: str, seconds: float = 0.6) -> Callable[[Request], Response | None]:
    """A server that times out if a batch contains one of these events."""

    def answer(request: Request) -> Response | None:
        if not set(names).isdisjoint(request.ids):
            time.sleep(seconds)
            return error(503)
        return None

    return answer


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("poison", [("300",), ("0",), ("499", "500"), ("7", "8")])
def test_event_that_times_out_is_found_and_set_aside(
    fake: FakeTracesite, sinks: Sinks, caplog: pytest.LogCaptureFixture, poison: tuple[str, ...]
) -> None:
    fake.answer = silent_about(*poison)
    sink = sinks.to(fake.url, read_timeout=0.2)
    sink.send(events(*range(700)))
    assert sink.flush(soon(30)) == 0
    assert set(fake.stored) == {str(number) for number in range(700)} - set(poison)
    assert sink.report().refused == {"timed_out": len(poison)}
    [kept] = sinks.root.glob("*/refused.ndjson")
    assert kept.read_bytes().splitlines() == events(*poison)
    assert [message for message in messages(caplog) if "timed_out" in message] == [
        f"{fake.url} cannot take some events (timed_out). They are counted and not sent again; they are kept in {kept}."
    ]
    # Each timeout leaves the server with an abandoned request.
    assert sum(not set(poison).isdisjoint(request.ids) for request in fake.posts()) <= 14 * len(poison)


@pytest.mark.usefixtures("quick")
def test_slow_server_loses_no_event(fake: FakeTracesite, sinks: Sinks) -> None:
    """A server that always times out does not cause events to be set aside, even if it recovers later."""
    names = [str(number) for number in range(20)]
    fake.answer = silent_about(*names, seconds=0.9)
    sink = sinks.to(fake.url, read_timeout=0.3)
    sink.send(events(*names))
    assert sink.flush(soon(3)) == 20
    fake.answer = lambda _request: None
    assert sink.flush(soon()) == 0
    assert set(fake.stored) == set(names)
    assert sink.report().refused == {}


@pytest.mark.usefixtures("quick")
def test_event_alone_that_times_out_waits(fake: FakeTracesite, sinks: Sinks) -> None:
    """The cause may be the event or the server, and no other event waits behind it."""
    fake.answer = silent_about("poison", seconds=0.9)
    sink = sinks.to(fake.url, read_timeout=0.3)
    sink.send(events("poison"))
    assert sink.flush(soon(1.5)) == 1
    sink.send(events("behind"))
    assert sink.flush(soon()) == 0
    assert (fake.stored[:1], sink.report().refused) == (["behind"], {"timed_out": 1})


def test_flush_shorter_than_a_timeout_counts_none(fake: FakeTracesite, sinks: Sinks) -> None:
    fake.answer = silent_about("a", seconds=0.3)
    sink = sinks.to(fake.url, read_timeout=5)
    sink._is_inline = True
    sink.send(events("a"))
    for _turn in range(4):
        assert sink.flush(soon(0.05)) == 1
    assert sink._slow[True].timeouts == 0


# --- The end of a process ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("response", [error(401, "invalid_api_key"), error(404), error(429, Retry_After="60")])
def test_flush_returns_at_once_where_waiting_is_useless(fake: FakeTracesite, sinks: Sinks, response: Response) -> None:
    fake.answer = lambda _request: response
    sink = sinks.to(fake.url)
    sink.send(events("a"))
    began = time.monotonic()
    # Less than the pause until the next attempt.
    assert (sink.flush(began + 25), sink.close(began + 25)) == (1, 1)
    assert time.monotonic() - began < 20


@pytest.mark.system
@pytest.mark.parametrize("response", [error(401, "invalid_api_key"), error(404)])
def test_exit_does_not_wait_for_a_server_that_refuses_the_key(
    fake: FakeTracesite, sinks: Sinks, response: Response
) -> None:
    fake.answer = lambda _request: response
    took, log = burst(fake.url, KEY, sinks, 1, idle_at_exit=25)
    # The process waits so long only if waiting might help.
    assert took < 20
    assert "Events are not delivered" in log


@pytest.mark.system
def test_exit_goes_on_while_the_server_takes_events(fake: FakeTracesite, sinks: Sinks) -> None:
    def slowly(_request: Request) -> None:
        time.sleep(0.45)

    fake.answer = slowly
    # All requests together take longer than one may.
    _took, log = burst(fake.url, KEY, sinks, 3000, idle_at_exit=4)
    assert len(set(fake.stored)) == 6002
    assert log == ""
    _took, log = burst(fake.url, KEY, sinks, 3000, exit_seconds=1)
    assert "They wait in" in log
    assert len(set(fake.stored)) < 12_004

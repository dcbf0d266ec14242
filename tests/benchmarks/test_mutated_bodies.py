"""Test that every route with a body has a seed, that mutations can be repeated, and that a fault is one."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from django.test import override_settings

from benchmarks.mutated_bodies import mutations, seeds
from benchmarks.mutated_bodies.sending import Outcome, Request
from sdk.tests.length import at_length
from sdk.tests.paths import ROOT

pytestmark = pytest.mark.system


def test_every_route_with_a_body_has_a_seed() -> None:
    found = seeds.all_seeds("key", "other")
    assert len({(seed.method, route) for seed in found for route in seed.routes}) > 70
    assert {seed.media_type for seed in found} > {seeds.JSON, seeds.NDJSON, seeds.PROTOBUF, seeds.MULTIPART, seeds.FORM}


@override_settings(ROOT_URLCONF="tests.tracesite.urls")
def test_route_without_a_seed_ends_the_command() -> None:
    with pytest.raises(SystemExit, match=r"No seed in .*\('POST', '/api/orders/'\)"):
        seeds.all_seeds("key", "other")


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> int:
    """Let bodies and bombs be smaller, because to make a large one takes seconds."""
    monkeypatch.setattr(mutations, "LARGEST", 300_000)
    monkeypatch.setattr(mutations, "_SIZES", (2_000, 20_000, 300_000))
    return 300_000


def test_number_of_a_body_gives_the_same_body_again(small_limit: int) -> None:
    found = seeds.all_seeds("key", "other")

    def body(number: int) -> tuple[Request, str, str]:
        rng = random.Random(f"1:{number}")
        seed = rng.choice(found)
        mutated, mutation = mutations.mutated(rng, seed, found)
        request = Request(path="/", body=mutated, headers={"Content-Type": seed.media_type})
        return (*mutations.sent(rng, seed, request), mutation)

    numbers = range(400)
    made = [body(number) for number in numbers]
    assert made == [body(number) for number in numbers]
    assert len({request.body for request, _how, _mutation in made}) > 350
    assert {"json", "json flood", "lines", "bytes", "splice", "packed"} < {
        mutation for _request, _how, mutation in made
    }


def test_large_body_stays_within_the_limit(small_limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutations, "_SHARES", (0, 0, 1))
    found = seeds.all_seeds("key", "other")
    for number in range(100):
        rng = random.Random(number)
        # JSON in a text has a backslash before each quotation mark, and a seed may be in two files of an archive.
        assert len(mutations.mutated(rng, rng.choice(found), found)[0]) < 2 * small_limit + 50_000


def test_part_of_a_snapshot_is_named_by_its_content_again() -> None:
    [seed] = [seed for seed in seeds.all_seeds("key", "other") if b'"$list"' in seed.body]
    changed = Request(path="/", body=seed.body.replace(b'{"text":"a"}', b'{"text":"b"}'))
    assert seed.prepare is not None
    prepared = seed.prepare(None, seed, changed).body  # type: ignore[arg-type]  # it sends nothing
    assert prepared == seeds.snapshot("nested", 3, 2, text="b")


def test_answer_is_a_fault_by_its_status_time_and_memory() -> None:
    whole, cut_off = Request(path="/"), Request(path="/", framing="shorter than its length")

    def faults(request: Request, **changes: float) -> list[str]:
        usual = {"status": 400, "seconds": 0.1, "cpu": 0.1, "database_cpu": 0.1, "megabytes": 1}
        outcome = Outcome(answer=b"", log="", **usual | changes)  # type: ignore[arg-type]
        return outcome.faults(request, seconds=10, megabytes=500)

    assert faults(whole) == faults(cut_off, status=0) == []
    assert faults(whole, status=503) == ["status 503"]
    assert faults(whole, status=0) == ["no answer in 0 s"]
    assert faults(cut_off, status=0, seconds=60) == ["no answer in 60 s"]
    assert faults(whole, cpu=11, database_cpu=12, megabytes=501) == [
        "11.0 s of CPU",
        "12.0 s of CPU in PostgreSQL",
        "501 MB",
    ]


def test_body_is_framed_by_length_in_chunks_or_wrongly() -> None:
    def framed(framing: str) -> tuple[bytes, bytes]:
        head, later = Request(path="/", body=b"ab", framing=framing).encoded()
        return head.partition(b"Connection: close\r\n")[2], later

    assert framed("length") == (b"Content-Length: 2\r\n\r\nab", b"")
    assert framed("shorter than its length") == (b"Content-Length: 3\r\n\r\nab", b"")
    assert framed("longer than its length") == (b"Content-Length: 1\r\n\r\nab", b"")
    assert framed("chunked") == (b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n", b"")
    assert framed("without its last chunk") == (b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n", b"")
    assert framed("websocket")[1] == b"\x81\x82\0\0\0\0ab\x88\x80\0\0\0\0"


@at_length
def test_few_bodies_are_sent_and_counted_by_route() -> None:
    command = [sys.executable, "-m", "benchmarks.mutated_bodies", "--bodies", "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith(("GET", "POST", "PUT", "PATCH", "DELETE"))]
    assert sum(int(line[58:64]) for line in lines) == 60
    assert done.stdout.splitlines()[-1].startswith("60 bodies of seed 1 in ")

"""Small uploads that would take gigabytes or minutes: each is refused within limits of memory and time.

Each is read in a process of its own, as POST import/ does with dry_run, whose peak of memory is measured.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.forked import result_of
from tracesite_sdk.transcripts.documents import MOST_ENTRIES

from .conftest import Caller
from .uploading import Outcome, read

MEGABYTE = 1_000_000
MOST_MEGABYTES = 450
"""A process with Django and the parsers takes 70 MB; 64 MB of text and some 2 million values may be held."""
MOST_SECONDS = 20
"""Seconds of processor time. Measured: refused after 0.1 to 3 s; without the limits 24 to 129 s, or 3.7 GB."""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux")


def uploaded(data: bytes) -> Outcome:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        outcome: Outcome = result_of(read, file.name)
        return outcome


def refused(data: bytes, reason: str) -> Outcome:
    """Read an upload beyond the limits, and check the reason, the memory and the time."""
    outcome = uploaded(data)
    assert [one[0] for one in outcome.reports] == ["failed"]
    assert reason in outcome.reports[0][2]
    assert outcome.megabytes < MOST_MEGABYTES
    assert outcome.seconds < MOST_SECONDS
    return outcome


def packed(megabytes: int, unit: bytes = b"a") -> bytes:
    """Build gzip data of `megabytes` parts of 1 MB each, which compress by a factor of 1000."""
    return gzip.compress((unit * (MEGABYTE // len(unit) + 1))[:MEGABYTE], mtime=0) * megabytes


def header(kind: bytes, size: int, name: str = "a.json") -> bytes:
    member = tarfile.TarInfo(name)
    member.type, member.size = kind, size
    return member.tobuf(tarfile.GNU_FORMAT)


# --- Tar archives -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [b"x", b"g", b"L"])
def test_large_tar_header_is_a_broken_archive(kind: bytes) -> None:
    attack = gzip.compress(header(kind, 1200 * MEGABYTE)) + packed(1200)
    assert len(attack) < 2 * MEGABYTE
    outcome = refused(attack, "a header of more than 1 MB")
    assert outcome.megabytes < 200


def test_tar_member_that_is_passed_over_counts_as_unpacked() -> None:
    attack = gzip.compress(header(b"Z", 3000 * MEGABYTE)) + packed(300)
    outcome = uploaded(attack)
    assert outcome.reports[-1][0] == "failed"
    assert "too large after decompression" in outcome.reports[-1][2]
    assert (outcome.megabytes < 200, outcome.seconds < MOST_SECONDS) == (True, True)


def test_tar_directories_count_as_files() -> None:
    folder = tarfile.TarInfo("a")
    folder.type = tarfile.DIRTYPE
    refused(gzip.compress(folder.tobuf() * 100_000), "more than 10000 files")


def test_map_of_a_sparse_file_is_not_held() -> None:
    begun = bytearray(header(tarfile.GNUTYPE_SPARSE, 0))
    begun[482] = 1
    begun[148:156] = b"%06o\0 " % (sum(begun[:148]) + 8 * 32 + sum(begun[156:]))
    goes_on = b"1" * 504 + b"\1" + b"\0" * 7
    outcome = refused(gzip.compress(bytes(begun)) + packed(300, goes_on), "too large after decompression")
    assert outcome.megabytes < 200


def test_map_of_a_sparse_file_in_its_data_is_not_held() -> None:
    records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n28 GNU.sparse.realsize=1000\n"
    attack = gzip.compress(
        header(b"x", len(records)) + records.ljust(512, b"\0") + header(b"0", 60 * MEGABYTE) + b"30000000\n"
    ) + packed(61, b"1\n")
    outcome = uploaded(attack)
    assert outcome.reports[0] == ["skipped", "body/a.json", "not a regular file"]
    assert outcome.megabytes < 200


def test_long_names_in_archives_are_cut_in_reports() -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo("a" * 500_000))
    ((status, path, _reason),) = uploaded(gzip.compress(data.getvalue())).reports
    assert (status, len(path), path[-1]) == ("skipped", 1000, "…")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_archives_of_every_form_are_read(form: int) -> None:
    talk = json.dumps([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]).encode()
    long = "folder/" * 30 + "上海.json" if form != tarfile.USTAR_FORMAT else "folder/" * 20 + "a.json"
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=form) as archive:
        for name, kind in (
            ("d", tarfile.DIRTYPE),
            ("l", tarfile.SYMTYPE),
            (long, tarfile.REGTYPE),
            ("b.json", tarfile.REGTYPE),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "x" * 90
            member.size = len(talk) if kind == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(talk) if member.size else None)
    assert uploaded(data.getvalue()).reports == [
        ["skipped", "body/l", "not a regular file"],
        ["read", f"body/{long}", ""],
        ["read", "body/b.json", ""],
    ]


def test_attack_over_http_is_answered_with_its_reason(owner: Caller) -> None:
    attack = gzip.compress(header(b"x", 1200 * MEGABYTE)) + packed(1200)
    sent = owner.post("import/", attack, content_type="application/octet-stream")
    assert (sent.status, sent.json["error"]["code"]) == (400, "no_transcript")
    assert "a header of more than 1 MB" in sent.json["error"]["message"]


# --- Zip archives -----------------------------------------------------------------------------------------------------


def zip_directory(count: int, declared: int) -> bytes:
    """Build a zip archive that is only a directory of `count` entries but declares `declared` of them."""
    begin = b"PK\3\4" + b"\0" * 26
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0) + b"a"
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, declared, declared, count * len(entry), len(begin), 0)
    return begin + entry * count + end


@pytest.mark.parametrize("declared", [1, 65_535])
def test_zip_directory_is_counted_before_it_is_read(declared: int) -> None:
    outcome = refused(zip_directory(300_000, declared), "more than 10000 files")
    assert outcome.megabytes < 200


def test_zip_directory_before_comment_or_other_data_is_counted() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.json", "[]")
        archive.comment = b"c" * 60_000
    outcome = uploaded(b"PK\3\4" + data.getvalue())
    assert [one[1] for one in outcome.reports] == ["body/0.json", "body/1.json", "body/2.json"]


# --- JSON -------------------------------------------------------------------------------------------------------------

TALK = b'{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}'
TOO_MANY = "the file has too many JSON values"
LEFT_OUT = "more than 100000 entries are not part of a transcript"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: b"[" + b"[]," * 20_000_000 + b"[]]", TOO_MANY),
        (lambda: b"[" + b"{}," * 3_000_000 + b"{}]", TOO_MANY),
        (lambda: TALK + b"\n{}" * 3_000_000, TOO_MANY),
        (lambda: TALK + b"\n1" * 3_000_000, TOO_MANY),
        (lambda: b"\n" * 60_000_000, TOO_MANY),
        (lambda: b"[" + b"{}," * 1_000_000 + b"{}]", "not a transcript in a known format"),
        (lambda: b"[" + TALK + b",{}" * 1_000_000 + b"]", LEFT_OUT),
        (lambda: TALK + b"\n" + TALK + b"\nx" * 1_000_000, LEFT_OUT),
        (lambda: b"{" + b",".join(b'"%d":0' % key for key in range(1_500_000)) + b"}", "not a transcript in a known format"),
        (lambda: b'[{"messages": ' + b'[{"role":"user"}' + b',{"role":"user"}' * 900_000 + b"]}]", "not a transcript"),
    ],
    ids=["lists", "objects", "lines", "numbers", "blank", "few objects", "junk", "junk lines", "keys", "messages"],
)  # fmt: skip
def test_json_of_many_small_values_is_refused(make: Callable[[], bytes], reason: str) -> None:
    refused(gzip.compress(make(), 1), reason)


def test_values_of_all_files_of_an_upload_are_counted_together() -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            archive.writestr(f"{number}.json", b"[" + TALK + b",0" * 600_000 + b"]")
    outcome = uploaded(data.getvalue())
    assert [TOO_MANY in one[2] for one in outcome.reports] == [False, False, False, True]


def test_references_of_all_files_of_an_upload_are_counted_together() -> None:
    """Each file may stand for 60 MiB, with 1 MiB or, packed, some KB."""
    step = {"input": {"messages": [{"contextRef": "a"}] * 60}}
    message = {"role": "assistant", "content": "Done.", "agent_steps": [step]}
    session = {"messages": [message], "contexts": {"a": "x" * 2**20}}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(20):
            archive.writestr(f"{number}.json", json.dumps({"external_id": str(number), **session}))
    outcome = uploaded(data.getvalue())
    assert [status for status, _path, _reason in outcome.reports] == ["read"] * 4 + ["failed"]
    assert outcome.reports[4][2].startswith("references in the transcripts stand for too much")
    assert (outcome.count, len(data.getvalue()) < 50_000) == (20, True)
    assert outcome.megabytes < MOST_MEGABYTES
    assert outcome.seconds < MOST_SECONDS


def test_values_in_a_claimed_archive_are_counted() -> None:
    data = io.BytesIO()
    log = {"version": 2, "status": "success", "eval": {"task": "t", "run_id": "r", "model": "m"}}
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(log))
        archive.writestr(
            "samples/1_epoch_1.json", b'{"id": 1, "epoch": 1, "messages": [0' + b",[]" * 20_000_000 + b"]}"
        )
    outcome = uploaded(data.getvalue())
    assert outcome.megabytes < MOST_MEGABYTES
    assert outcome.seconds < MOST_SECONDS


# --- Bodies of traces -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "unit"), [("ingest/", b",[]"), ("sessions/", b",0"), ("events/", b',{"a":0}')])
def test_body_of_many_small_values_is_refused_undecoded(owner: Caller, path: str, unit: bytes) -> None:
    many = b"0" + unit * (60 * MEGABYTE // len(unit))
    body: Any = gzip.compress(b'{"sessions": [{"external_id": "s", "metadata": {"a": [' + many + b"]}}]}", 1)
    tracemalloc.start()
    try:
        sent = owner.post(path, body, content_type="application/json", Content_Encoding="gzip")
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (sent.status, sent.json["error"]["code"]) == (413, "too_large")
    assert "JSON values" in sent.json["error"]["message"]
    assert peak < 300 * MEGABYTE


def test_upload_of_too_many_entries_is_refused() -> None:
    chat = b'{"messages":[' + b",".join([b'{"role":"user","content":"a"}'] * (MOST_ENTRIES + 1)) + b"]}"
    refused(chat, f"more than {MOST_ENTRIES} entries or spans")
    span = b'{"traceId":"0af7651916cd43dd8448eb211c80319c","spanId":"b7ad6b7169203331"}'
    spans = b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b",".join([span] * (MOST_ENTRIES + 1)) + b"]}]}]}"
    refused(spans, f"more than {MOST_ENTRIES} entries or spans")

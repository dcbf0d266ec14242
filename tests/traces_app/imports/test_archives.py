"""Unpacking of archives, also hostile ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import tempfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from sdk.tests import steps
from sdk.tests.length import examples
from traces_app.imports import archives
from traces_app.imports.archives import BrokenArchive, Budget, Zip, files_in, kept
from tracesite_sdk.transcripts.documents import Lines, Source, Unreadable

STEPS = 100_000
"""Lines of Python that reading a small archive may take; intact ones take some thousand."""
FILES = {"a.json": b'{"a": 1}', "deep/b.jsonl": b'{"b": 1}\n{"b": 2}\n'}


def zipped(files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return data.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, BytesIO(content))
    return data.getvalue()


def source(data: bytes, name: str = "x") -> Source:
    return Source(name, lambda: io.BufferedReader(BytesIO(data)))  # type: ignore[arg-type]


def found(data: bytes, **options: Any) -> tuple[dict[str, bytes], list[tuple[str, str]]]:
    """Return the files by name, each read twice, and the omissions."""
    skipped: list[tuple[str, str]] = []
    files = {}
    for file in files_in(source(data), lambda where, why: skipped.append((where, why)), **options):
        if isinstance(file, Zip):
            continue
        contents = []
        for _time in range(2):
            with file.open() as stream:
                contents.append(stream.read())
        assert contents[0] == contents[1]
        files[file.name] = contents[0]
    return files, skipped


def test_plain_file_is_yielded_itself() -> None:
    assert found(b'{"a": 1}') == ({"x": b'{"a": 1}'}, [])
    assert found(b"") == ({"x": b""}, [])


COMPRESSED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstd.compress,
}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_compressed_file_yields_the_file_in_it(kind: str) -> None:
    compress = COMPRESSED[kind]
    large = b'{"a": "' + bytes(range(65, 90)) * 40_000 + b'"}'
    assert found(compress(large)) == ({"x": large}, [])
    assert found(compress(b"[1") + compress(b"]") + b"\0" * 9) == ({"x": b"[1]"}, [])


@pytest.mark.parametrize("kind", ["", *COMPRESSED])
def test_tar_archive_compressed_or_not_yields_its_files(kind: str) -> None:
    data = COMPRESSED.get(kind, bytes)(tarred(FILES))
    assert found(data) == ({f"x/{name}": content for name, content in FILES.items()}, [])


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_zip_archive_yields_its_files(compression: int) -> None:
    assert found(zipped(FILES, compression)) == ({f"x/{name}": content for name, content in FILES.items()}, [])


def test_zip_archive_with_zstd_entries_yields_its_files() -> None:
    data = BytesIO()
    with zstd.zipfile.ZipFile(data, "w", zstd.zipfile.ZIP_ZSTANDARD) as archive:
        archive.writestr("a.json", FILES["a.json"])
    assert found(data.getvalue()) == ({"x/a.json": FILES["a.json"]}, [])


def test_archives_in_archives_to_a_depth() -> None:
    inner = zipped({"c.jsonl.gz": gzip.compress(b"[1]"), "c.json": b"[2]"})
    assert found(gzip.compress(tarred({"b.zip": inner}))) == (
        {"x/b.zip/c.jsonl.gz": b"[1]", "x/b.zip/c.json": b"[2]"},
        [],
    )
    data = b"[1]"
    for _depth in range(8):
        data = gzip.compress(data)
    assert found(data) == ({}, [("x", "archives are nested too deeply")])


def test_zip_archive_can_be_taken_as_one_document() -> None:
    seen: list[Any] = []
    for file in files_in(source(zipped(FILES)), lambda _where, _why: None):
        assert isinstance(file, Zip)
        assert file.files.names == tuple(FILES)
        lines = file.files.read("deep/b.jsonl")
        assert isinstance(lines, Lines)
        seen = [file.files.read("a.json"), lines.head()]
        with pytest.raises(Unreadable, match=r"there is no c\.json in the archive"):
            file.files.read("c.json")
        file.files.taken.update(file.files.names)
    assert seen == [{"a": 1}, [{"b": 1}, {"b": 2}]]


def test_names_lead_nowhere_and_links_are_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    data = BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo("link.json")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
        info = tarfile.TarInfo("../../evil.json")
        info.size = 2
        archive.addfile(info, BytesIO(b"[]"))
    assert found(data.getvalue()) == ({"x/../../evil.json": b"[]"}, [("x/link.json", "not a regular file")])
    assert found(zipped({"/etc/evil.json": b"[]"})) == ({"x//etc/evil.json": b"[]"}, [])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "pack", [*COMPRESSED.values(), lambda data: tarred({"a": data}), lambda data: zipped({"a": data})]
)
def test_archive_that_unpacks_beyond_the_budget_is_refused(pack: Callable[[bytes], bytes]) -> None:
    data = pack(b"\0" * 1_000_000)
    found(data, budget=Budget(left=1_000_000))
    with pytest.raises(BrokenArchive, match="too large after decompression"):
        found(data, budget=Budget(left=999_999))


def declared(data: bytes, size: int, crc: int) -> bytes:
    """Return a zip archive of one file whose directory declares another size and checksum."""
    archive = bytearray(data)
    at = archive.rindex(b"PK\1\2")
    struct.pack_into("<L", archive, at + 16, crc)
    struct.pack_into("<L", archive, at + 24, size)
    return bytes(archive)


@pytest.mark.parametrize("reader", [zipfile, zstd.zipfile])
@pytest.mark.parametrize("compression", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])
def test_entry_unpacks_to_no_more_than_it_declares(
    reader: Any, compression: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the readers of this Python version unpack at once."""
    monkeypatch.setattr(archives, "zipfile", reader)
    monkeypatch.setattr(reader, "ZIP_ZSTANDARD", 93, raising=False)
    data = BytesIO()
    with zstd.zipfile.ZipFile(data, "w", compression) as archive:
        archive.writestr("a", bytes(50_000_000))
    hiding = declared(data.getvalue(), 1_000, zlib.crc32(bytes(1_000)))
    tracemalloc.start()
    try:
        assert found(hiding, budget=Budget(left=1_000)) == ({"x/a": bytes(1_000)}, [])
        assert tracemalloc.get_traced_memory()[1] < 40_000_000  # the dictionary of LZMA takes 25 of them
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 93])  # fmt: skip
def test_entry_of_another_content_than_declared_is_broken(compression: int) -> None:
    content = b'{"a": 1}' * 1_000
    data = BytesIO()
    with zstd.zipfile.ZipFile(data, "w", compression) as archive:
        archive.writestr("a", content)
    crc = zlib.crc32(content)
    for size, checksum in ((len(content), crc + 1), (len(content) - 1, crc), (0, crc)):
        with pytest.raises(OSError, match="another checksum or size than is declared"):
            found(declared(data.getvalue(), size, checksum))


def test_archives_share_the_budget_of_the_one_that_they_are_in() -> None:
    data = zipped({f"{number}.gz": gzip.compress(b" " * 1000) for number in range(9)})
    with pytest.raises(BrokenArchive, match="too large after decompression"):
        found(data, budget=Budget(left=5000))


def test_archive_of_too_many_files_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_FILES", 1)
    for pack in (zipped, tarred):
        with pytest.raises(BrokenArchive, match="more than 1 files"):
            found(pack(FILES))


def test_truncated_archive_is_reported() -> None:
    for data in (gzip.compress(b"[1]" * 1000)[:-9], zipped(FILES)[:60], tarred(FILES)[:700], zstd.compress(b"[]")[:6]):
        with pytest.raises(BrokenArchive):
            found(data)


def member(type_: bytes, content: bytes, name: str = "header") -> bytes:
    """Return a member of a tar archive as it is written, of any type."""
    info = tarfile.TarInfo(name)
    info.type, info.size = type_, len(content)
    return info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


@pytest.mark.parametrize(
    "records",
    [
        "0 a=b\n",
        "00 a=b\n",
        "3 a=b\n",
        "5 a=b\n",
        "6 a=b\n0 c=d\n",
        "6 a=b\n2 c=d\n",
        "-6 a=b\n",
        "+6 a=b\n",
        "\N{SUPERSCRIPT SIX} a=b\n",
        "\N{ARABIC-INDIC DIGIT SIX} a=b\n",
        "7 a=b\n",
        "999999999999999 a=b\n",
        "9999999999999999999999 a=b\n",
        "6a=b\n",
    ],
)
def test_pax_record_of_impossible_length_is_refused(records: str) -> None:
    data = member(tarfile.XHDTYPE, records.encode()) + tarred(FILES)
    for packed in (data, gzip.compress(data)):
        with steps.at_most(STEPS), pytest.raises(BrokenArchive, match="an extended header is unreadable"):
            found(packed)


@pytest.mark.system
def test_pax_headers_before_the_first_file_are_not_held() -> None:
    records = b"".join(b"11 %06d=\n" % number for number in range(90_000))
    data = gzip.compress(member(tarfile.XHDTYPE, records) * 3 + tarred(FILES))
    tracemalloc.start()
    try:
        assert len(found(data)[0]) == len(FILES)
        assert tracemalloc.get_traced_memory()[1] < 5_000_000
    finally:
        tracemalloc.stop()


def test_broken_nested_archive_does_not_stop_the_others() -> None:
    files, skipped = found(zipped({"a.gz": gzip.compress(b"[1]")[:-4], "b.json": b"[2]"}))
    assert files == {"x/b.json": b"[2]"}
    assert skipped == [("x/a.gz", "the data is truncated")]


def test_stream_is_kept_in_an_unnamed_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with kept(BytesIO(b"[1]"), "standard input") as file:
        for _time in range(2):
            with file.open() as stream:
                assert stream.read() == b"[1]"
        # A process killed here leaves no file behind.
        assert list(tmp_path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None)
@given(
    data=st.sampled_from(
        [zipped(FILES), tarred(FILES), gzip.compress(tarred(FILES)), *(pack(b"[1]") for pack in COMPRESSED.values())]
    ),
    changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    end=st.floats(0, 1),
)
def test_damaged_archives_raise_only_documented_errors(
    data: bytes, changes: list[tuple[float, int]], end: float
) -> None:
    damaged = bytearray(data)
    for place, value in changes:
        damaged[int(place * len(damaged))] = value
    with steps.at_most(STEPS), suppress(OSError, BrokenArchive):
        found(bytes(damaged[: int(end * len(damaged)) + 1]), budget=Budget(left=1_000_000))


# Numbers that stand where a length, an offset or a size is expected.
_NUMBERS = st.one_of(
    st.integers(-2, 600).map(str),
    st.sampled_from(["", "0", "00", "012", "+9", "-9", "\N{SUPERSCRIPT TWO}", "0" * 15, "9" * 15, "9" * 30]),
)
_RECORDS = st.builds(
    lambda length, key, value: f"{length} {key}={value}\n".encode(),
    _NUMBERS,
    st.sampled_from(["path", "size", "GNU.sparse.map", "a", ""]),
    st.one_of(_NUMBERS, st.sampled_from(["a/b.json", "x=y", "\n"])),
)
_TYPES = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.GNUTYPE_SPARSE, *archives._EXTENDED]
)
_SIZES = st.sampled_from(
    [b"", b"0" * 11, b"7" * 12, b"-1".ljust(12), b"\x80" + b"\xff" * 11, b"\xff" * 12, b"\x80" + bytes(10) + b"\2"]
)


@st.composite
def tar_archives(draw: st.DrawFn) -> bytes:
    """Tar archives of members of all types, whose headers and maps have numbers of any kind, and which may end anywhere."""
    data = b""
    for _member in range(draw(st.integers(1, 4))):
        content = draw(st.one_of(st.lists(_RECORDS, max_size=3).map(b"".join), st.binary(max_size=20)))
        own = bytearray(member(draw(_TYPES), content))
        if draw(st.booleans()):
            size = draw(_SIZES)
            own[124 : 124 + len(size)] = size
        if draw(st.booleans()):
            own[archives._MORE_MAP] = 1
        data += with_sum(own)
    whole = data + draw(st.sampled_from([tarred(FILES), bytes(1024), b""]))
    return whole[: draw(st.integers(512, len(whole)))]


def with_sum(member: bytearray) -> bytes:
    """Return a member of a tar archive with the checksum of its header."""
    member[148:156] = b" " * 8
    member[148:156] = b"%06o\0 " % sum(member[:512])
    return bytes(member)


@st.composite
def zip_archives(draw: st.DrawFn, files: dict[str, bytes] = FILES) -> bytes:
    """Zip archives in whose headers, directory and end some numbers are others."""
    data = bytearray(zipped(files, draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))))
    if draw(st.booleans()):
        # The end of an archive of more than 4 GiB: its number, offset and size are in a record of 64 bits.
        end = data.rindex(b"PK\5\6")
        _sign, _disk, _first, _here, count, size, offset, _comment = struct.unpack("<4s4H2LH", data[end:])
        record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
        data[end:end] = record + struct.pack("<4sLQL", b"PK\6\7", 0, end, 1)
    for _change in range(draw(st.integers(1, 4))):
        sign = draw(st.sampled_from([b"PK\1\2", b"PK\3\4", b"PK\5\6", b"PK\6\6", b"PK\6\7"]))
        begin = data.rfind(sign)
        if begin >= 0:
            place = begin + 4 + draw(st.integers(0, 50))
            value = draw(st.sampled_from([b"\0\0", b"\1\0", b"\xff\xff", bytes(4), b"\xff" * 4, b"\xff" * 8, bytes(8)]))
            data[place : place + len(value)] = value
    return bytes(data)


@pytest.mark.filterwarnings("ignore:Overlapped entries")  # zipfile's, which goes on
@settings(deadline=None, max_examples=examples(100))
@given(data=st.one_of(tar_archives(), zip_archives()), pack=st.sampled_from([bytes, *COMPRESSED.values()]))
def test_reading_archive_with_wrong_numbers_ends(data: bytes, pack: Callable[[bytes], bytes]) -> None:
    with steps.at_most(STEPS), suppress(OSError, BrokenArchive):
        found(pack(data), budget=Budget(left=1_000_000))

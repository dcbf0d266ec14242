"""Unpack archives: yield the file itself or the files in it. The content decides, never the name.

Zip archives, tar archives, and streams of gzip, bzip2, xz and zstd, whether they hold a file or a tar archive; also in
each other, to a small depth. Names in an archive are for reports: no file is ever written under such a name. A file of a
zip archive is read in place; a file that cannot be read twice there is copied to a temporary file without a name.

All unpacked data counts towards the budget: the bytes of the files, the bytes of the streams that contain them (headers
and skipped members included) and the number of files. A source over its budget is refused, whatever size its headers
declare. The entries of a zip archive are counted before its directory is read. Tar archives are read header by header
here, because tarfile holds some headers and the maps of sparse files in memory, whatever their size.

Works without Django.
"""

from __future__ import annotations

import bz2
import copy
import lzma
import os
import struct
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from io import BufferedIOBase, BufferedReader, RawIOBase
from tempfile import TemporaryFile
from typing import Any, BinaryIO, cast

from tracesite_sdk.transcripts.documents import Files, Skip, Source, Unreadable, ValueBudget, open_file_source, read

if sys.version_info >= (3, 14):
    import zipfile

    from compression import zstd
else:
    # Their zipfile is that of Python 3.14, which reads entries packed with zstd.
    from backports import zstd
    from backports.zstd import zipfile

MOST_UNPACKED = 8 * 1024**3
"""Unpacked bytes of one source."""
MOST_FILES = 100_000
"""Files of one source."""

_MOST_DEPTH = 3
# Small, because the rest of a block is copied when a part ends in it.
_BLOCK = 64 * 1024
_MOST_PARTS = 1_000_000
_TAR_MAGIC = slice(257, 262)
_HEAD = 512
_TAR_BLOCK = 512
_MOST_HEADER = 1024 * 1024
"""Bytes of one extended header of a tar archive. It holds names and times of one file."""
_MORE_MAP = 482
_MORE_MAP_GOES_ON = slice(504, 505)
_EXTENDED = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)  # fmt: skip
_REGULAR = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
# Memory limit of a decompressor: xz -9 needs up to 64 MB, zstd --long 128 MB.
_MOST_MEMORY = 160 * 1024 * 1024
_MOST_DICTIONARY = 64 * 1024 * 1024
"""Bytes of the dictionary of an entry of a zip archive that is packed with LZMA."""
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: 27}

_DECOMPRESSORS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(31),
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=_MOST_MEMORY),
    b"\x28\xb5\x2f\xfd": lambda: zstd.ZstdDecompressor(options=_ZSTD_OPTIONS),
}
_ZIP = b"PK\x03\x04"
_ZIP_ENTRY = b"PK\x01\x02"
_ZIP_ENTRY_SIZE = 46
_ZIP_END = struct.Struct("<4s4H2LH")
_ZIP64_LOCATOR = struct.Struct("<4sLQL")
_ZIP64_END = struct.Struct("<4sQ2H2L4Q")
_LONGEST_COMMENT = 65_535
_ZIP_LZMA = struct.Struct("<2sHBL")

# Exceptions of the readers for malformed archives; zip readers raise RuntimeError for an
# entry that needs a password.
_BROKEN = (
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    zstd.ZstdError,
)


class BrokenArchive(Exception):
    """The rest of the archive cannot be read; the message gives the reason."""


@dataclass(kw_only=True)
class Budget:
    """The bytes, files and values that may still be unpacked from one source, nested archives included."""

    left: int = field(default_factory=lambda: MOST_UNPACKED)
    """Bytes of files."""
    most_files: int = field(default_factory=lambda: MOST_FILES)
    values: ValueBudget | None = None
    """JSON values; None if only those of one document are limited."""

    def __post_init__(self) -> None:
        # A compressed archive counts twice: once as a stream and once as the files in it.
        self._streamed = 2 * self.left + _MOST_HEADER
        self._files = self.most_files

    @property
    def is_spent(self) -> bool:
        return min(self.left, self._streamed, self._files) < 0

    def take(self, size: int) -> None:
        self.left -= size
        self._check_size(self.left)

    def take_stream(self, size: int) -> None:
        self._streamed -= size
        self._check_size(self._streamed)

    def take_files(self, count: int) -> None:
        self._files -= count
        if self._files < 0:
            raise BrokenArchive(f"more than {self.most_files} files")

    def check_files(self, count: int) -> None:
        """Raise BrokenArchive if `count` files exceed the budget, without taking them."""
        if count > self._files:
            self.take_files(count)

    def _check_size(self, left: int) -> None:
        if left < 0:
            raise BrokenArchive("too large after decompression")


def files_in(source: Source, skip: Skip, budget: Budget | None = None, *, depth: int = 0) -> Iterator[Source | Zip]:
    """Yield the source itself or the files packed in it, in order. Read each before requesting the next.

    Report skipped entries to `skip` with their names. Yield a zip archive itself first, so that a format whose
    transcripts are several files can take them; yield the others then.
    Raise OSError, and BrokenArchive if the rest of an archive cannot be read.
    """
    budget = budget or Budget()
    with _broken_archives():
        with source.open() as stream:
            head = stream.read(_HEAD)
        if head.startswith(_ZIP):
            yield from _in_zip(source, skip, budget, depth)
        elif _is_tar(head):
            with source.open() as stream:
                yield from _in_tar(stream, source.name, skip, budget, depth)
        elif any(map(head.startswith, _DECOMPRESSORS)):
            yield from _in_stream(source, skip, budget, depth)
        else:
            yield source


def is_packed(head: bytes) -> bool:
    """Return whether the first 512 bytes of a file are those of an archive or of a compressed file."""
    return head.startswith((_ZIP, *_DECOMPRESSORS)) or _is_tar(head)


@contextmanager
def kept(stream: BufferedIOBase | BinaryIO, name: str, budget: Budget | None = None) -> Iterator[Source]:
    """Copy a stream to a temporary file, so that it can be read again. The file has no name, because it is not redacted and
    must not outlive a killed process."""
    with TemporaryFile() as file:
        while block := stream.read(_BLOCK):
            if budget is not None:
                budget.take(len(block))
            file.write(block)
        file.flush()
        yield open_file_source(cast(BinaryIO, file), name)


# --- Zip ------------------------------------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Zip:
    """A zip archive as a whole."""

    name: str
    files: Files


def _in_zip(source: Source, skip: Skip, budget: Budget, depth: int) -> Iterator[Source | Zip]:
    with source.open() as stream:
        budget.check_files(_zip_entries(stream, most=budget.most_files))
    with source.open() as stream, zipfile.ZipFile(cast(BinaryIO, stream)) as archive:
        entries: dict[str, Source] = {}
        for info in archive.infolist():
            budget.take_files(1)
            if info.is_dir():
                continue
            name = f"{source.name}/{info.filename}"
            if info.flag_bits & 1:
                skip(name, "password-protected")
            elif info.filename in entries:
                skip(name, "duplicate: an earlier file has the same name")
            else:
                # An entry never unpacks to more than its declared size: _EntryStream stops there.
                budget.take(info.file_size)
                entries[info.filename] = Source(name, partial(_opened_entry, archive, info))
        counted: set[str] = set()
        whole = Zip(name=source.name, files=Files(tuple(entries), partial(_entry, entries, skip, budget, counted)))
        yield whole
        for entry in (entry for name, entry in entries.items() if name not in whole.files.taken):
            yield from _within(entry, skip, budget, depth)


def _opened_entry(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> BufferedIOBase:
    # Read as it is packed: how much the readers of Python unpack at once depends on their version.
    packed = copy.copy(info)
    packed.compress_type, packed.file_size = zipfile.ZIP_STORED, info.compress_size
    del packed.CRC
    with _broken_archives():
        return BufferedReader(_EntryStream(archive.open(packed), info), _BLOCK)


def _zip_entries(stream: BufferedIOBase, *, most: int) -> int:
    """Count the entries in the directory of a zip archive, up to one more than `most`, without holding them.

    The number in the archive is ignored, because readers use the size of the directory, which comes before its end record.
    Return 0 without a directory; the reader then reports the error.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(size - _LONGEST_COMMENT - _ZIP_END.size - _ZIP64_LOCATOR.size - _ZIP64_END.size, 0))
    tail = stream.read()
    end = tail.rfind(b"PK\5\6", 0, len(tail) - _ZIP_END.size + 4)
    if end < 0:
        return 0
    directory_size = _ZIP_END.unpack_from(tail, end)[5]
    directory_end = size - len(tail) + end
    locator = end - _ZIP64_LOCATOR.size
    if locator >= _ZIP64_END.size and tail[locator:end].startswith(b"PK\6\7"):
        record = tail[locator - _ZIP64_END.size : locator]
        if record.startswith(b"PK\6\6"):
            directory_size = _ZIP64_END.unpack(record)[8]
            directory_end -= _ZIP64_LOCATOR.size + _ZIP64_END.size
    entries = 0
    at = directory_end - directory_size
    while entries <= most and 0 <= at < directory_end:
        stream.seek(at)
        entry = stream.read(_ZIP_ENTRY_SIZE)
        if not entry.startswith(_ZIP_ENTRY) or len(entry) < _ZIP_ENTRY_SIZE:
            break
        entries += 1
        at += _ZIP_ENTRY_SIZE + sum(struct.unpack_from("<3H", entry, 28))
    return entries


def _entry(entries: dict[str, Source], skip: Skip, budget: Budget, counted: set[str], name: str) -> Any:
    if name not in entries:
        raise Unreadable(f"there is no {name} in the archive")
    values = budget.values if name not in counted else None
    counted.add(name)
    try:
        return read(entries[name], lambda where, why: skip(f"{name}: {where}", why), values)
    except (OSError, BrokenArchive) as error:
        raise Unreadable(str(error)) from error


# --- Tar ------------------------------------------------------------------------------------------------------------


def _in_tar(stream: BufferedIOBase, name: str, skip: Skip, budget: Budget, depth: int) -> Iterator[Source | Zip]:
    headers: dict[str, str] = {}
    """Fields of extended headers for the next member."""
    while (member := _tar_member(stream)) is not None:
        content = _Content(stream, member.size)
        if member.type in _EXTENDED:
            if member.size > _MOST_HEADER:
                raise BrokenArchive("the archive is broken: a header of more than 1 MB")
            # Global headers and the targets of links are not needed here.
            if member.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
                # Others are not kept: an archive may have any number of them before its first file.
                for key, value in _pax_records(content.read()):
                    if key in ("path", "size"):
                        headers[key] = value
                    elif key.startswith("GNU.sparse."):
                        headers["sparse"] = value
            elif member.type == tarfile.GNUTYPE_LONGNAME:
                headers["path"] = content.read().rstrip(b"\0").decode("utf-8", "surrogateescape")
            content.pass_over()
            continue
        if "size" in headers:
            content = _Content(stream, _tar_size(headers["size"]))
        own = f"{name}/{headers.get('path', member.name)}"
        is_sparse = "sparse" in headers
        headers.clear()
        budget.take_files(1)
        if member.isdir() or own.endswith("/"):
            pass
        elif member.type not in _REGULAR or is_sparse:
            skip(own, "not a regular file")
        else:
            with kept(cast(BufferedIOBase, content), own, budget) as file:
                yield from _within(file, skip, budget, depth)
        content.pass_over()


def _tar_member(stream: BufferedIOBase) -> tarfile.TarInfo | None:
    """Return the next header of a tar archive; None at its end, which is a block of zeros or the end of the stream."""
    block = stream.read(_TAR_BLOCK)
    if not block.strip(b"\0"):
        return None
    member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    if member.size < 0:
        raise BrokenArchive("the archive is broken: a negative size")
    if member.type == tarfile.GNUTYPE_SPARSE and block[_MORE_MAP]:
        # The map of a sparse file continues in extra blocks.
        while stream.read(_TAR_BLOCK)[_MORE_MAP_GOES_ON].strip(b"\0"):
            pass
    return member


def _pax_records(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the records of an extended header of pax, such as "25 path=a/long/name.json" and a newline; the number is the length."""
    at = 0
    while at < len(data) and data[at]:
        length, blank, _rest = data[at : at + 16].partition(b" ")
        begin = at + len(length) + 1
        end = at + (int(length) if length.isdigit() else 0)
        key, equals, value = data[begin : end - 1].partition(b"=")
        # A record that ends before it begins would be read for ever.
        if not blank or not equals or not begin < end <= len(data):
            raise BrokenArchive("the archive is broken: an extended header is unreadable")
        yield key.decode("utf-8", "replace"), value.decode("utf-8", "surrogateescape")
        at = end


def _tar_size(size: str) -> int:
    if not size.isascii() or not size.isdigit() or len(size) > 20:
        raise BrokenArchive("the archive is broken: a size is not a number")
    return int(size)


class _Content(RawIOBase):
    """The content of one member of a tar archive; the next header begins at the next block."""

    def __init__(self, stream: BufferedIOBase, size: int) -> None:
        self._stream = stream
        self._left = size
        self._padding = -size % _TAR_BLOCK

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(min(len(buffer), self._left))
        if not piece and self._left and len(buffer):
            raise BrokenArchive("the data is truncated")
        self._left -= len(piece)
        buffer[: len(piece)] = piece
        return len(piece)

    def pass_over(self) -> None:
        """Read up to the next header."""
        while self.read(_BLOCK):
            pass
        if len(self._stream.read(self._padding)) < self._padding:
            raise BrokenArchive("the data is truncated")


def _is_tar(head: bytes) -> bool:
    return head[_TAR_MAGIC] == b"ustar"


# --- Compressed streams ---------------------------------------------------------------------------------------------


def _in_stream(source: Source, skip: Skip, budget: Budget, depth: int) -> Iterator[Source | Zip]:
    with source.open() as packed:
        unpacked = BufferedReader(_Unpacked(packed, budget), _BLOCK)
        if _is_tar(unpacked.peek(_HEAD)):
            yield from _in_tar(unpacked, source.name, skip, budget, depth)
            return
        with kept(unpacked, source.name, budget) as file:
            yield from _within(file, skip, budget, depth)


class _Unpacked(RawIOBase):
    """The unpacked bytes of a compressed stream of one or several parts."""

    def __init__(self, packed: BufferedIOBase, budget: Budget) -> None:
        self._packed = packed
        self._budget = budget
        self._block = b""
        self._decompressor: Any = None
        self._parts = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        with _broken_archives():
            piece = self._next(len(buffer))
        self._budget.take_stream(len(piece))
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, most: int) -> bytes:
        while True:
            if self._decompressor is None:
                if len(self._block) < _HEAD:
                    self._block += self._packed.read(_BLOCK)
                if not self._block:
                    return b""
                # Tapes and copies are padded with zeros after the last part.
                self._block = self._block.lstrip(b"\0")
                if not self._block:
                    continue
                self._parts += 1
                if self._parts > _MOST_PARTS:
                    raise BrokenArchive("too many compressed parts")
                self._decompressor = _decompressor_of(self._block)
            if self._decompressor.eof:
                self._block = self._decompressor.unused_data
                self._decompressor = None
                continue
            if not self._block and getattr(self._decompressor, "needs_input", True):
                self._block = self._packed.read(_BLOCK)
                if not self._block:
                    raise BrokenArchive("the data is truncated")
            piece: bytes = self._decompressor.decompress(self._block, most)
            self._block = getattr(self._decompressor, "unconsumed_tail", b"")
            if piece:
                return piece


def _decompressor_of(head: bytes) -> Any:
    for magic, decompressor in _DECOMPRESSORS.items():
        if head.startswith(magic):
            return decompressor()
    raise BrokenArchive("other data follows the compressed data")


# --- All of them ----------------------------------------------------------------------------------------------------


def _within(file: Source, skip: Skip, budget: Budget, depth: int) -> Iterator[Source | Zip]:
    """Yield a file of an archive or the files in it; report a broken one and go on."""
    try:
        with file.open() as stream:
            head = stream.read(_HEAD)
        if not is_packed(head):
            yield file
        elif depth >= _MOST_DEPTH:
            skip(file.name, "archives are nested too deeply")
        elif file.is_file:
            yield from files_in(file, skip, budget, depth=depth + 1)
        else:
            with file.open() as stream, kept(stream, file.name, budget) as copy:
                yield from files_in(copy, skip, budget, depth=depth + 1)
    except BrokenArchive as error:
        if budget.is_spent:
            raise
        skip(file.name, str(error))


class _EntryStream(RawIOBase):
    """A file of a zip archive, of which no more is unpacked than is asked for, nor than its declared size.

    Raises OSError only, as for a plain file.
    """

    def __init__(self, packed: Any, info: zipfile.ZipInfo) -> None:
        self._packed = packed
        self._block = b""
        self._decompressor = _decompressor_of_entry(info.compress_type, packed)
        self._left = info.file_size
        self._crc, self._declared_crc = 0, info.CRC

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            with _broken_archives():
                piece = self._next(min(len(buffer), self._left))
                self._left -= len(piece)
                self._crc = zlib.crc32(piece, self._crc)
                if (not piece or not self._left) and self._crc != self._declared_crc:
                    raise BrokenArchive("the archive is broken: a file has another checksum or size than is declared")
        except BrokenArchive as error:
            raise OSError(str(error)) from error
        buffer[: len(piece)] = piece
        return len(piece)

    def _next(self, most: int) -> bytes:
        if self._decompressor is None:
            return bytes(self._packed.read(most))
        while most and not self._decompressor.eof:
            if not self._block and getattr(self._decompressor, "needs_input", True):
                self._block = self._packed.read(_BLOCK)
            is_end = not self._block
            piece: bytes = self._decompressor.decompress(self._block, most)
            self._block = getattr(self._decompressor, "unconsumed_tail", b"")
            if piece:
                return piece
            if is_end and not self._decompressor.eof:
                raise BrokenArchive("the data is truncated")
        return b""

    def close(self) -> None:
        self._packed.close()
        super().close()


def _decompressor_of_entry(compression: int, packed: Any) -> Any:
    """Return the decompressor of an entry of a zip archive; None for one that is stored as it is."""
    match compression:
        case zipfile.ZIP_STORED:
            return None
        case zipfile.ZIP_DEFLATED:
            return zlib.decompressobj(-zlib.MAX_WBITS)
        case zipfile.ZIP_BZIP2:
            return bz2.BZ2Decompressor()
        case zipfile.ZIP_ZSTANDARD:
            return zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)
        case zipfile.ZIP_LZMA:
            # The version, the length of the properties, and these: three numbers in one byte, and the size of the dictionary.
            head = packed.read(_ZIP_LZMA.size)
            if len(head) < _ZIP_LZMA.size:
                raise BrokenArchive("the data is truncated")
            _version, length, numbers, dictionary = _ZIP_LZMA.unpack(head)
            if length != 5 or dictionary > _MOST_DICTIONARY:
                raise BrokenArchive("the archive is broken: a file has unreadable properties")
            properties = {"lc": numbers % 9, "lp": numbers // 9 % 5, "pb": numbers // 45, "dict_size": dictionary}
            return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA1, **properties}])
    raise BrokenArchive(f"the archive is broken: no file of a zip archive can be packed by method {compression}")


@contextmanager
def _broken_archives() -> Iterator[None]:
    """Raise BrokenArchive for the exceptions of all readers."""
    try:
        yield
    except _BROKEN as error:
        raise BrokenArchive(f"the archive is broken: {error}" if str(error) else "the archive is broken") from error

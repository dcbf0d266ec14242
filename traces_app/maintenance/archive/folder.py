"""The folder of an archive, local or in an object store: its files, and the manifest of each project and period.

    DATASET/project=SLUG/period=2026-01/ID.parquet
    manifests/project=SLUG/period=2026-01.json
    unfinished/

A manifest names the files of its project and period, with their rows and SHA-256. It is replaced in one step, and what it does
not name does not belong to the archive: it is left over of a process that was killed, and removed by the next one.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import fsspec
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.implementations.local import LocalFileSystem

from .datasets import BY_NAME, Dataset, Row

FORMAT = 1
UNFINISHED = "unfinished"
_MANIFESTS = "manifests"
_READ_BYTES = 1 << 20
_ROWS_AT_ONCE = 500


class ArchiveError(Exception):
    """The archive could not be written or read; the text says why, and what to do."""


class NotAnArchive(ArchiveError):
    """The folder cannot be one of an archive, or has nothing of what was asked for: whoever named it was wrong."""


class File(msgspec.Struct, frozen=True, kw_only=True):
    """A Parquet file of an archive."""

    path: str
    """Below the folder of the archive."""
    rows: int
    bytes: int
    sha256: str
    """The hexadecimal digest of the file."""
    rows_sha256: str
    """The digest of the values of all rows as MessagePack, in order; it does not depend on how Parquet stores them."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of the archive of a project and period. Times are UTC."""

    format: int
    id: UUID
    project: str
    period: str
    created_at: datetime
    tables: dict[str, File]
    """Files by the name of the dataset; one without rows has no file."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.tables.values())

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.bytes for file in self.tables.values())


@dataclass(frozen=True, kw_only=True)
class Folder:
    """The folder of an archive. Every method raises ArchiveError if the store cannot be reached or written."""

    url: str
    """An absolute path, or the URL as given."""
    files: fsspec.AbstractFileSystem
    root: str

    @property
    def is_local(self) -> bool:
        return isinstance(self.files, LocalFileSystem)

    def path(self, *parts: str) -> str:
        return "/".join([self.root.rstrip("/"), *parts])

    def place_of(self, dataset: str, project: str, period: str, archive_id: UUID) -> str:
        """Return the path of a file below the folder."""
        return f"{dataset}/project={project}/period={period}/{archive_id}.parquet"

    def manifest(self, project: str, period: str) -> Manifest | None:
        """Return the manifest of a project and period; None if it is not archived here."""
        path = self._manifest_path(project, period)
        if not self.files.exists(path):
            return None
        return self._read_manifest(path)

    def manifests(self, project: str | None = None, period: str | None = None) -> list[Manifest]:
        """Return the manifests of a project, a period, or all, in order. A month stands for its weeks and days, too."""
        periods = f"{period}*" if period and period.count("-") == 1 else period or "*"
        pattern = self.path(_MANIFESTS, f"project={project or '*'}", f"period={periods}.json")
        return [self._read_manifest(path) for path in sorted(self.files.glob(pattern))]

    def periods(self, project: str) -> list[str]:
        """Return the names of the periods of a project that are archived here."""
        names = self.files.glob(self.path(_MANIFESTS, f"project={project}", "period=*.json"))
        return sorted(name.rpartition("/period=")[2].removesuffix(".json") for name in names)

    def has_anything(self) -> bool:
        """Return whether there are manifests, files, or what is left of an archive that was killed or emptied."""
        places = [(_MANIFESTS, "project=*"), (UNFINISHED, "*"), *((name, "project=*") for name in BY_NAME)]
        return any(self.files.glob(self.path(*place)) for place in places)

    def publish(self, manifest: Manifest, drafts: dict[str, str]) -> None:
        """Move finished files (`drafts`: paths by dataset) to where the manifest names them, then replace the manifest.

        Then remove what it does not name any more.
        """
        for dataset, draft in drafts.items():
            self._move(draft, self.path(manifest.tables[dataset].path))
        draft = self.path(UNFINISHED, f"{manifest.id}.json")
        self.files.pipe_file(draft, msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")
        self._move(draft, self._manifest_path(manifest.project, manifest.period))
        self.remove_leftovers(manifest.project, manifest.period)

    def remove(self, manifest: Manifest) -> None:
        """Remove a manifest, then its files."""
        self.files.rm_file(self._manifest_path(manifest.project, manifest.period))
        self.remove_leftovers(manifest.project, manifest.period)

    def remove_leftovers(self, project: str, period: str) -> None:
        """Remove the files of a project and period that its manifest does not name."""
        manifest = self.manifest(project, period)
        named = {self.path(file.path) for file in manifest.tables.values()} if manifest else set()
        for name in BY_NAME:
            directory = self.path(name, f"project={project}", f"period={period}")
            for path in self.files.find(directory) if self.files.exists(directory) else ():
                if self.path(name, path.split(f"/{name}/")[-1]) not in named:
                    self.files.rm_file(path)

    def remove_all_leftovers(self) -> None:
        """Remove what no manifest names, and what a process has begun to write."""
        self.remove_unfinished()
        for name in BY_NAME:
            for directory in self.files.glob(self.path(name, "project=*", "period=*")):
                project, period = (part.partition("=")[2] for part in directory.rstrip("/").split("/")[-2:])
                self.remove_leftovers(project, period)

    def remove_unfinished(self) -> None:
        """Remove what a process has begun to write. Only one process may write to the folder at a time."""
        directory = self.path(UNFINISHED)
        if self.files.exists(directory):
            self.files.rm(directory, recursive=True)

    def check(self, manifest: Manifest, dataset: str | None = None) -> None:
        """Compare the files of a manifest with their SHA-256 and number of rows. Raise ArchiveError, which names the first that differs."""
        for name, file in manifest.tables.items():
            if dataset in (None, name):
                path = self.path(file.path)
                if not self.files.exists(path):
                    raise ArchiveError(f"The archive {self.url} is damaged: {file.path} is missing.")
                if self.sha256(path) != file.sha256:
                    raise ArchiveError(f"The archive {self.url} is damaged: {file.path} was changed.")
                with self.files.open(path, "rb") as source, pq.ParquetFile(source) as parquet:
                    rows = parquet.metadata.num_rows
                if rows != file.rows:
                    raise ArchiveError(
                        f"The archive {self.url} is damaged: {file.path} has {rows} rows, and its manifest says {file.rows}."
                    )

    def is_whole(self, manifest: Manifest) -> bool:
        """Return whether all files have the size of the manifest."""
        paths = {self.path(file.path): file.bytes for file in manifest.tables.values()}
        return all(self.files.exists(path) and self.files.size(path) == size for path, size in paths.items())

    def sha256(self, path: str) -> str:
        digest = hashlib.sha256()
        with self.files.open(path, "rb") as file:
            while block := file.read(_READ_BYTES):
                digest.update(block)
        return digest.hexdigest()

    def batches(self, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file, some at a time."""
        with self.files.open(path, "rb") as source, pq.ParquetFile(source) as file:
            for number in range(file.num_row_groups):
                yield from file.iter_batches(batch_size=_ROWS_AT_ONCE, row_groups=[number], columns=columns)

    def rows(self, dataset: Dataset, file: File) -> Iterator[list[Row]]:
        """Yield the rows of a file in the columns of the dataset, some at a time. A column that the file lacks is None."""
        for batch in self.batches(self.path(file.path)):
            known = set(batch.schema.names)
            values = [
                batch.column(name).to_pylist() if name in known else [None] * len(batch)
                for name in dataset.schema.names
            ]
            yield list(zip(*values, strict=True))

    def _manifest_path(self, project: str, period: str) -> str:
        return self.path(_MANIFESTS, f"project={project}", f"period={period}.json")

    def _read_manifest(self, path: str) -> Manifest:
        try:
            manifest = msgspec.json.decode(self.files.cat_file(path), type=Manifest)
        except msgspec.MsgspecError as error:
            raise ArchiveError(f"{path} is not the manifest of an archive: {error}.") from None
        if manifest.format != FORMAT:
            raise ArchiveError(f"{path} has the format {manifest.format}; this version of Tracesite reads {FORMAT}.")
        if path.lstrip("/") != self._manifest_path(manifest.project, manifest.period).lstrip("/"):
            raise ArchiveError(f"{path} says that it is the manifest of {manifest.project}, {manifest.period}.")
        for name, file in manifest.tables.items():
            # Whoever can write to the folder could name any file of the machine.
            place = self.place_of(name, manifest.project, manifest.period, _id_in(file.path))
            if name not in BY_NAME or file.path != place:
                raise ArchiveError(f"{path} names a file that is none of its own: {file.path!r}.")
        return manifest

    def _move(self, source: str, target: str) -> None:
        """Move a file, over one that exists; a local one is then on the disk."""
        parent = target.rpartition("/")[0]
        self.files.makedirs(parent, exist_ok=True)
        if not self.is_local:
            self.files.mv(source, target)
            return
        _sync(Path(source))
        Path(source).replace(target)
        for directory in (Path(parent), *Path(parent).parents):
            if not str(directory).startswith(self.root):
                break
            _sync(directory)


def open_folder(url: str) -> Folder:
    """Return the folder of an archive, which need not exist: a local path, or a URL that fsspec knows.

    Raise NotAnArchive if it cannot be a folder, and ArchiveError if its store does not answer or needs a missing client.
    """
    if urlsplit(url).password:
        raise NotAnArchive(
            "The URL of the archive must not have a password, because the URL is stored and shown. Give it to the client of the "
            "store, for example in environment variables."
        )
    try:
        files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise ArchiveError(f"{url}: {error}.") from error
    except ValueError as error:
        raise NotAnArchive(f"{url} is not a folder that Tracesite can write to: {error}.") from error
    if isinstance(files, LocalFileSystem):
        if Path(root).exists() and not Path(root).is_dir():
            raise NotAnArchive(f"{url} is a file, not a folder.")
        return Folder(url=root, files=files, root=root)
    try:
        files.exists(root)
    except _client_errors() as error:
        raise ArchiveError(f"{url} cannot be reached: {error}") from error
    return Folder(url=url, files=files, root=root)


def nothing_archived(
    folder: Folder, *, project: str | None = None, period: str | None = None, session: str | None = None
) -> NotAnArchive:
    """Return the error that names what was asked for and is not archived in the folder."""
    named = [f"session {session!r}"] if session is not None else []
    named += [f"project {project!r}"] if project is not None else []
    named += [period] if period is not None else []
    return NotAnArchive(f"Nothing of {', '.join(named) or 'any project'} is archived in {folder.url}.")


def _client_errors() -> tuple[type[Exception], ...]:
    """Return what the client of S3, if it is in use, raises beside OSError."""
    client = sys.modules.get("botocore.exceptions")
    return (client.BotoCoreError,) if client else ()


def _id_in(path: str) -> UUID:
    """Return the id of the archive that a file belongs to; a new one if its name is no id."""
    try:
        return UUID(path.rpartition("/")[2].removesuffix(".parquet"))
    except ValueError:
        return uuid4()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def digest_rows(digest: Any, rows: Iterable[Row]) -> None:
    """Add rows to a digest, the same whatever their batches."""
    encode = msgspec.msgpack.Encoder().encode
    for row in rows:
        digest.update(encode(row))

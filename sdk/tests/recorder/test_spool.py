"""Test that the spool keeps events in order until they are settled, even if processes die."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tracesite_sdk.recorder.delivery import spool as spools
from tracesite_sdk.recorder.delivery.spool import Spool, spool_roots, survey

URL, KEY = "http://tracesite.example", "ts_0123456789"
BOUND = 10_000


def event(number: int, size: int = 0) -> bytes:
    return b'{"id":"%06d","pad":"%s"}' % (number, b"x" * size)


def events(*numbers: int) -> list[bytes]:
    return [event(number) for number in numbers]


class Shelf:
    """A factory of spools of one destination; releases them at the end."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.made: list[Spool] = []

    def spool(self, limit: int = 10 * 2**20, key: str = KEY, root: Path | None = None) -> Spool:
        self.made.append(Spool([root or self.root], URL, key, limit=limit))
        return self.made[-1]

    def files(self) -> list[str]:
        return sorted(path.suffix for path in self.root.glob("*/*") if path.name != "destination.json")


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    shelf = Shelf(tmp_path / "spool")
    yield shelf
    for spool in shelf.made:
        spool.release()


def take_all(spool: Spool, *, own: bool = True, most_events: int = 3) -> list[bytes]:
    """Take and settle all waiting events, batch by batch."""
    found: list[bytes] = []
    while (batch := spool.next_batch(own=own, most_events=most_events, most_bytes=1000)) is not None:
        found += batch.lines
        spool.settle(batch)
    return found


def dead_process(root: Path, script: str) -> None:
    """Run a script with a spool and kill it with SIGKILL at the end."""
    program = f"""
        import os, signal
        from pathlib import Path
        from tracesite_sdk.recorder.delivery.spool import Spool
        spool = Spool([Path({str(root)!r})], {URL!r}, {KEY!r}, limit=10**7)
    """
    whole = textwrap.dedent(program) + textwrap.dedent(script) + "\nos.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", whole], check=False).returncode == -9


# --- One process ------------------------------------------------------------------------------------------------------


def test_spool_makes_nothing_before_the_first_event(shelf: Shelf) -> None:
    spool = shelf.spool()
    assert (spool.waiting(), spool.adopt(), spool.next_batch(own=True, most_events=9, most_bytes=9)) == (
        (0, 0),
        False,
        None,
    )
    spool.release()
    assert not shelf.root.exists()


def test_events_come_in_order_until_they_are_settled(shelf: Shelf) -> None:
    spool = shelf.spool()
    assert spool.append(events(1, 2, 3, 4, 5)) == 5
    assert spool.waiting() == (5, 5 * len(event(1)) + 5)
    first = spool.next_batch(own=True, most_events=3, most_bytes=1000)
    again = spool.next_batch(own=True, most_events=3, most_bytes=1000)
    assert first is not None and again is not None
    assert first.lines == again.lines == events(1, 2, 3)
    spool.settle(again)
    assert spool.waiting()[0] == 2
    assert take_all(spool) == events(4, 5)
    assert spool.waiting() == (0, 0)


def test_batch_is_bounded_but_has_at_least_one_event(shelf: Shelf) -> None:
    spool = shelf.spool()
    large = [event(1, 100), event(2, 100), event(3, 5000), event(4, 100)]
    spool.append(large)
    sizes: list[int] = []
    while (batch := spool.next_batch(own=True, most_events=9, most_bytes=300)) is not None:
        sizes.append(len(batch.lines))
        spool.settle(batch)
    assert sizes == [2, 1, 1]


def test_delivered_segment_is_emptied_and_removed_at_the_end(shelf: Shelf) -> None:
    spool = shelf.spool()
    for number in range(10):
        spool.append(events(number))
        assert take_all(spool) == events(number)
    assert shelf.files() == [".lock", ".ndjson"]
    assert [path.stat().st_size for path in shelf.root.glob("*/*-*.ndjson")] == [0]
    spool.release()
    assert shelf.files() == []


def test_many_segments_are_removed_one_after_the_other(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 100)
    spool = shelf.spool()
    for number in range(0, 40, 2):
        spool.append(events(number, number + 1))
    assert shelf.files().count(".ndjson") == 10
    open_before = len(os.listdir("/proc/self/fd"))
    assert take_all(spool, most_events=7) == events(*range(40))
    assert len(os.listdir("/proc/self/fd")) <= open_before
    assert shelf.files() == [".lock", ".ndjson"]


def test_undelivered_events_stay_for_a_later_process(shelf: Shelf) -> None:
    spool = shelf.spool()
    spool.append(events(1, 2))
    spool.release()
    assert spool.append(events(3)) == 0
    later = shelf.spool()
    assert later.adopt()
    assert take_all(later, own=False) == events(1, 2)
    assert not later.has_adopted
    assert shelf.files() == []


def test_settling_a_batch_after_release_changes_nothing(shelf: Shelf) -> None:
    spool = shelf.spool()
    spool.append(events(1))
    batch = spool.next_batch(own=True, most_events=9, most_bytes=100)
    assert batch is not None
    spool.release()
    spool.settle(batch)
    later = shelf.spool()
    assert later.adopt()
    assert take_all(later, own=False) == events(1)


# --- Bounds -----------------------------------------------------------------------------------------------------------


def test_full_spool_takes_the_events_that_fit(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    spool = shelf.spool(limit=BOUND)
    many = [event(number, 100) for number in range(200)]
    taken = spool.append(many)
    assert taken == BOUND // (len(many[0]) + 1)
    assert spool.append(many) == spool.append(many) == 0
    assert [record.message for record in caplog.records] == [
        f"The spool is full: new events are lost until some of the {taken} waiting ones are delivered."
    ]
    batch = spool.next_batch(own=True, most_events=10, most_bytes=10_000)
    assert batch is not None
    spool.settle(batch)
    assert spool.append(many[:5]) == 0  # its file is not removed yet
    take_all(spool)
    assert spool.append(many[:5]) == 5


def test_limit_holds_for_all_processes_of_a_destination(shelf: Shelf) -> None:
    first, second, other = (
        shelf.spool(limit=BOUND),
        shelf.spool(limit=BOUND),
        shelf.spool(limit=BOUND, key="ts_another"),
    )
    assert first.append([event(1, BOUND - 1000)]) == 1
    assert second.append([event(2, 500)]) == 1
    assert second.append([event(3, 500)]) == 0
    assert other.append([event(4, BOUND - 1000)]) == 1


# --- Dead processes ---------------------------------------------------------------------------------------------------


@pytest.mark.system
def test_events_of_a_killed_process_are_found(shelf: Shelf) -> None:
    dead_process(shelf.root, 'spool.append([b\'{"id":"a"}\', b\'{"id":"b"}\'])')
    spool = shelf.spool()
    assert spool.adopt()
    assert take_all(spool, own=False) == [b'{"id":"a"}', b'{"id":"b"}']
    assert not spool.adopt()
    assert shelf.files() == []


@pytest.mark.system
def test_oldest_dead_process_is_first_and_living_ones_are_left(shelf: Shelf) -> None:
    for name in (b"first", b"second"):
        dead_process(shelf.root, f'spool.append([b\'{{"id":"%s"}}\' % {name!r}])')
    living, spool = shelf.spool(), shelf.spool()
    living.append(events(1))
    spool.append(events(2))
    found: list[bytes] = []
    while spool.adopt():
        found += take_all(spool, own=False)
    assert found == [b'{"id":"first"}', b'{"id":"second"}']
    assert take_all(living) == events(1)
    assert take_all(spool) == events(2)


@pytest.mark.system
def test_incomplete_line_is_skipped(shelf: Shelf) -> None:
    dead_process(shelf.root, 'spool.append([b\'{"id":"a"}\']); os.write(spool._own.segments[0].file, b\'{"id":"b\')')
    spool = shelf.spool()
    assert spool.adopt()
    assert take_all(spool, own=False) == [b'{"id":"a"}']
    assert shelf.files() == []


@pytest.mark.system
def test_damaged_lines_do_not_delay_others(shelf: Shelf) -> None:
    dead_process(shelf.root, "spool.append([b'{\"id\":\"a\"}', bytes(40), b'', b'[1]', b'{\"id\":\"b\"}'])")
    spool = shelf.spool()
    assert spool.adopt()
    batch = spool.next_batch(own=False, most_events=9, most_bytes=1000)
    assert batch is not None
    assert (batch.lines, batch.invalid) == ([b'{"id":"a"}', b'{"id":"b"}'], [bytes(40), b"", b"[1]"])
    spool.settle(batch)
    assert spool.next_batch(own=False, most_events=9, most_bytes=1000) is None


@pytest.mark.system
def test_other_key_gets_no_events(shelf: Shelf) -> None:
    dead_process(shelf.root, "spool.append([b'{}'])")
    assert not shelf.spool(key="ts_another").adopt()


@pytest.mark.system
def test_forked_child_leaves_the_parents_events_alone(shelf: Shelf) -> None:
    spool = shelf.spool()
    spool.append(events(1))
    child = os.fork()
    if not child:
        spool.after_fork()
        taken = spool.append(events(2)) == 1 and not spool.adopt() and spool.waiting()[0] == 1
        os._exit(0 if taken else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert spool.adopt()
    assert take_all(spool, own=False) == events(2)
    assert take_all(spool) == events(1)


@pytest.mark.system
def test_events_of_a_dead_parent_are_free_while_its_child_lives(shelf: Shelf) -> None:
    dead_process(
        shelf.root,
        """
        spool.append([b'{"id":"parent"}'])
        ready, go = os.pipe()
        if not os.fork():
            spool.after_fork()
            os.write(go, b'x')
            os.close(1); os.close(2)
            import time; time.sleep(2)
            os._exit(0)
        os.read(ready, 1)
        """,
    )
    spool = shelf.spool()
    assert spool.adopt()
    assert take_all(spool, own=False) == [b'{"id":"parent"}']


# --- Disks that fail --------------------------------------------------------------------------------------------------


def test_full_disk_loses_no_taken_event(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, written = os.write, [0]

    def write_until_full(file: int, data: Any) -> int:
        if written[0] == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        written[0] += 1
        return write(file, data[:10] if written[0] == 3 else data)

    spool = shelf.spool()
    assert spool.append(events(1)) == 1  # with the file that describes the destination: two writes
    monkeypatch.setattr("tracesite_sdk.recorder.delivery.spool.os.write", write_until_full)
    assert spool.append(events(2)) == 1
    assert spool.append(events(3)) == 1
    written[0] = 2
    assert spool.append(events(4, 5)) == 2
    assert spool.append(events(6)) == 1
    assert take_all(spool) == events(1, 2, 3, 4, 5, 6)
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    assert spool.lost == 0


def test_recovered_disk_is_used_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "RETRY_SECONDS", 0.0)
    spool = shelf.spool()
    spool.append(events(1))
    with monkeypatch.context() as broken:
        broken.setattr(spools, "RETRY_SECONDS", 60.0)
        broken.setattr("tracesite_sdk.recorder.delivery.spool.os.write", lambda *_args: os.close(-1))
        assert spool.append(events(2)) == 1
    spool._retry_at = 0.001
    assert spool.append(events(3)) == 1
    assert [segment.path is None for segment in spool._own.segments] == [False, True, False]
    assert take_all(spool) == events(1, 2, 3)


@pytest.mark.system
def test_file_size_limit_is_no_failure(shelf: Shelf) -> None:
    dead_process(
        shelf.root,
        """
        import resource
        spool.append([b'{"id":"a"}'])
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        for number in range(100):
            assert spool.append([b'{"id":"%06d"}' % number]) == 1
        lines = []
        while batch := spool.next_batch(own=True, most_events=9, most_bytes=1000):
            lines += batch.lines
            spool.settle(batch)
        assert len(lines) == 101, lines
        """,
    )


def test_events_without_a_directory_are_kept_in_memory(
    shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no directory")
    spool = shelf.spool(root=tmp_path / "file" / "spool", limit=BOUND)
    assert spool.append(events(1, 2, 3)) == 3
    assert len(caplog.records) == 1
    assert "Not a directory" in caplog.text
    assert take_all(spool) == events(1, 2, 3)
    many = [event(number, 100) for number in range(200)]
    taken = spool.append(many)
    assert taken == BOUND // (len(many[0]) + 1)
    spool.release()
    assert spool.lost == taken


def test_removed_directory_is_created_again(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "SEGMENT_BYTES", 30)
    spool = shelf.spool()
    spool.append(events(1))
    spool.append(events(2))
    for path in [*shelf.root.glob("*/*"), *shelf.root.glob("*")]:
        path.unlink() if path.is_file() else path.rmdir()
    assert spool.append(events(3)) == 1
    spool._retry_at = 0.001
    spool.append(events(4))
    spool.append(events(5))
    assert shelf.files() == [".lock", ".ndjson", ".ndjson"]
    # The first events were in files that are gone, so they are lost and reported.
    assert take_all(spool)[-3:] == events(3, 4, 5)
    assert spool.lost in (1, 2)


def test_truncated_file_is_logged_and_delays_nothing(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    spool = shelf.spool()
    spool.append(events(1, 2))
    [segment] = shelf.root.glob("*/*.000001.ndjson")
    os.truncate(segment, 5)
    assert take_all(spool) == []
    assert (spool.waiting()[0], spool.lost) == (0, 2)
    assert "was truncated" in caplog.text
    spool.append(events(3))
    assert take_all(spool) == events(3)


@pytest.mark.system
def test_cut_off_line_of_a_dead_process_is_one_lost_event(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    for count in (12, 1):
        dead_process(shelf.root, f'spool.append([b\'{{"id":"%06d"}}\' % number for number in range({count})])')
    for segment in shelf.root.glob("*/*.ndjson"):
        os.truncate(segment, segment.stat().st_size - 5)
    spool = shelf.spool()
    delivered = []
    while spool.adopt():
        delivered += take_all(spool, own=False)
        assert spool.waiting() == (0, 0)
    assert (len(delivered), spool.lost) == (11, 2)
    assert caplog.text.count("was truncated") == 2
    assert shelf.files() == []


def test_more_lines_than_were_written_are_not_below_zero(shelf: Shelf) -> None:
    spool = shelf.spool()
    spool.append(events(1, 2))
    [segment] = shelf.root.glob("*/*.000001.ndjson")
    segment.write_bytes(b"\n" * segment.stat().st_size)
    assert set(take_all(spool)) == {b""}
    assert (spool.waiting()[0], spool.lost) == (0, 0)


# --- Other users ------------------------------------------------------------------------------------------------------


def test_directories_and_files_are_private(shelf: Shelf) -> None:
    before = os.umask(0)
    try:
        shelf.spool().append(events(1))
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in shelf.root.glob("*/*")} == {0o600}
    assert [stat.S_IMODE(path.stat().st_mode) for path in (shelf.root, *shelf.root.glob("*"))] == [0o700, 0o700]


def test_link_in_place_of_a_destination_is_not_followed(
    shelf: Shelf, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "elsewhere").mkdir()
    shelf.root.mkdir()
    spool = shelf.spool()
    (shelf.root / spool.name).symlink_to(tmp_path / "elsewhere")
    assert spool.append(events(1)) == 1
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "symbolic link" in caplog.text
    assert take_all(spool) == events(1)


@pytest.mark.system
def test_link_in_place_of_a_file_is_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    dead_process(shelf.root, "spool.append([b'{}'])")
    [segment] = shelf.root.glob("*/*.000001.ndjson")
    secret = tmp_path / "secret"
    secret.write_bytes(b'{"secret": 1}\n')
    segment.unlink()
    segment.symlink_to(secret)
    spool = shelf.spool()
    assert not spool.adopt()
    (segment.parent / "refused.ndjson").symlink_to(secret)
    spool.append(events(1))
    spool.set_aside("refused", events(1))
    assert secret.read_bytes() == b'{"secret": 1}\n'


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_directory_of_another_user_is_not_used(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.root.mkdir()
    os.chown(shelf.root, 12345, 12345)
    assert shelf.spool().append(events(1)) == 1
    assert "not for this user alone" in caplog.text
    assert list(shelf.root.iterdir()) == []


def test_directory_writable_by_others_is_not_used(shelf: Shelf, caplog: pytest.LogCaptureFixture) -> None:
    shelf.root.mkdir()
    shelf.root.chmod(0o777)
    assert shelf.spool().append(events(1)) == 1
    assert "not for this user alone" in caplog.text
    assert list(shelf.root.iterdir()) == []


# --- Location and contents --------------------------------------------------------------------------------------------


def test_directory_is_the_named_one_or_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/owner")
    monkeypatch.delenv("TRACESITE_SPOOL", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr("tempfile.tempdir", "/var/tmp")
    temporary = Path(f"/var/tmp/tracesite-spool-{os.getuid()}")
    assert spool_roots() == [Path("/home/owner/.local/state/tracesite/spool"), temporary]
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert spool_roots() == [Path("/state/tracesite/spool"), temporary]
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # the XDG standard requires ignoring a relative path
    assert spool_roots() == [Path("/home/owner/.local/state/tracesite/spool"), temporary]
    monkeypatch.setenv("TRACESITE_SPOOL", "/var/spool/agents")
    assert spool_roots() == [Path("/var/spool/agents")]
    assert spool_roots("~/here") == [Path("/home/owner/here")]


def test_second_directory_is_used_when_the_first_fails(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    spool = Spool([tmp_path / "file" / "x", tmp_path / "second"], URL, KEY, limit=BOUND)
    assert spool.append(events(1)) == 1
    assert spool.directory == tmp_path / "second" / spool.name
    spool.release()


@pytest.mark.system
def test_survey_counts_waiting_events_and_changes_nothing(shelf: Shelf) -> None:
    assert survey(shelf.root) == []
    dead_process(shelf.root, "spool.append([b'{}', b'{}'])")
    spool = shelf.spool()
    spool.append(events(1))
    spool.set_aside("refused", events(8, 9))
    [found] = survey(shelf.root)
    assert found.destination == spools.Destination(url=URL, key="ts_01234")
    assert (found.events, found.bytes, found.files, found.refused) == (3, 6 + len(event(1)) + 1, 2, 2)
    assert found.running == [os.getpid()]
    assert found.oldest is not None and abs(found.oldest - Path(found.directory).stat().st_mtime) < 60
    assert spool.adopt()
    assert len(take_all(spool, own=False)) == 2


def test_files_for_refused_events_are_bounded(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "ASIDE_BYTES", 100)
    spool = shelf.spool()
    spool.append(events(1))
    for number in range(10):
        spool.set_aside("refused", events(number))
    assert spool.directory is not None
    assert (spool.directory / "refused.ndjson").read_bytes().splitlines() == events(0, 1, 2, 3)

"""Mapped files: reserved before they are seen, refused when their length is another, let go of when told to."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_builder import memory_directory

from mqcore._fast.log.mapped_file import MappedFiles
from mqcore.errors import StoreError
from mqcore.store.paths import file_name

SIZE = 64 * 1024
PAGE = 4096
MAPPINGS_MAX = 1024
MORE_THAN_ANY_DISK = 1 << 44


@pytest.fixture
def directory() -> Iterator[Path]:
    with memory_directory() as path:
        yield path


@pytest.fixture
def files(directory: Path) -> MappedFiles:
    return MappedFiles(str(directory), SIZE)


def view(files: MappedFiles, offset: int) -> memoryview:
    return memoryview(files.view(offset))


def mapped(directory: Path) -> list[str]:
    """The names of the directory's files that this process has mapped now, once per mapping."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted(Path(line.split(maxsplit=5)[5]).name for line in lines if str(directory) in line)


def open_descriptors(directory: Path) -> int:
    """How many descriptors of this process are open on files in *directory*."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        # The listing itself was one of them.
        with contextlib.suppress(FileNotFoundError):
            count += str(directory) in str(link.readlink())
    return count


def test_a_file_appears_whole_under_the_name_of_its_first_byte(directory: Path, files: MappedFiles) -> None:
    files.make(SIZE * 3 + 17)
    (path,) = directory.iterdir()
    assert path.name == file_name(SIZE * 3) == "00000000000000196608"
    status = path.stat()
    assert (status.st_size, status.st_blocks * 512) == (SIZE, SIZE)
    assert path.read_bytes() == bytes(SIZE)


def test_a_file_that_is_there_is_left_as_it_is(directory: Path, files: MappedFiles) -> None:
    files.make(0)
    view(files, 100)[:5] = b"bytes"
    files.make(0)
    MappedFiles(str(directory), SIZE).make(SIZE - 1)
    assert (directory / file_name(0)).read_bytes()[100:105] == b"bytes"


def test_a_view_ends_with_its_file(directory: Path, files: MappedFiles) -> None:
    files.make(0)
    files.make(SIZE)
    view(files, SIZE - 3)[:] = b"end"
    view(files, SIZE)[:5] = b"start"
    assert len(view(files, 0)) == SIZE
    assert (directory / file_name(0)).read_bytes().endswith(b"\0end")
    assert (directory / file_name(SIZE)).read_bytes().startswith(b"start\0")


@pytest.mark.parametrize("offset", [0, SIZE, SIZE * MAPPINGS_MAX])
def test_a_missing_file_is_an_error_and_is_not_made(directory: Path, files: MappedFiles, offset: int) -> None:
    with pytest.raises(FileNotFoundError):
        files.view(offset)
    with pytest.raises(FileNotFoundError):
        files.warm(offset, PAGE)
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("length", [0, 1, SIZE - 1, SIZE + 1, 2 * SIZE])
def test_a_file_of_another_length_is_refused_and_left_alone(directory: Path, files: MappedFiles, length: int) -> None:
    path = directory / file_name(0)
    path.write_bytes(b"x" * length)
    for _ in range(2):
        with pytest.raises(OSError) as raised:
            files.view(0)
        assert raised.value.errno == errno.EUCLEAN
        files.make(0)
    assert path.read_bytes() == b"x" * length


def test_a_link_is_not_followed(directory: Path, files: MappedFiles) -> None:
    elsewhere = directory / "elsewhere"
    elsewhere.write_bytes(bytes(SIZE))
    (directory / file_name(0)).symlink_to(elsewhere)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        files.view(0)


def test_a_directory_that_is_not_there_is_an_error(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        MappedFiles(str(directory / "gone"), SIZE).make(0)
    assert list(directory.parent.glob(f"{directory.name}*")) == [directory]


@pytest.mark.parametrize(("name", "size"), [("x", 0), ("x", -1), ("x" * 5000, SIZE)])
def test_impossible_sizes_and_paths_are_refused(name: str, size: int) -> None:
    with pytest.raises(StoreError, match="out of range"):
        MappedFiles(name, size)


def test_a_disk_that_is_too_small_is_an_error_and_leaves_nothing(directory: Path) -> None:
    with pytest.raises(OSError) as caught:
        MappedFiles(str(directory), MORE_THAN_ANY_DISK).make(0)
    assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    assert list(directory.iterdir()) == []


# Warming ---------------------------------------------------------------------------------------------------------


def resident_pages(path: Path) -> int:
    """Pages of the file's mapping that are present in this process."""
    sections = Path("/proc/self/smaps").read_text()
    at = sections.index(path.name)
    line = next(line for line in sections[at:].splitlines() if line.startswith("Rss:"))
    return int(line.split()[1]) * 1024 // PAGE


def test_warming_brings_pages_in_and_changes_no_byte(directory: Path, files: MappedFiles) -> None:
    files.make(0)
    path = directory / file_name(0)
    path.write_bytes(bytes(range(256)) * (SIZE // 256))
    files.warm(PAGE + 5, 2 * PAGE)
    assert resident_pages(path) >= 3
    assert path.read_bytes() == bytes(range(256)) * (SIZE // 256)


def test_warming_stops_at_the_end_of_the_file(directory: Path, files: MappedFiles) -> None:
    files.make(0)
    files.make(SIZE)
    files.warm(SIZE - PAGE, 10 * PAGE)
    assert mapped(directory) == [file_name(0)]
    files.advise_needed(SIZE - PAGE, PAGE)
    files.advise_needed(SIZE * 7, PAGE)


@pytest.mark.skipif(os.environ.get("MQ_SANITIZE") == "1", reason="AddressSanitizer lets nothing be locked")
def test_locking_pages_is_bounded_by_the_limit(files: MappedFiles) -> None:
    files.make(0)
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft != resource.RLIM_INFINITY and soft < SIZE:
        pytest.skip("this user may not lock memory")
    files.lock(0, SIZE)
    status = Path("/proc/self/status").read_text()
    (locked,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmLck:")]
    assert int(locked) * 1024 >= SIZE
    with pytest.raises(FileNotFoundError):
        files.lock(SIZE, SIZE)


# Letting go ------------------------------------------------------------------------------------------------------


def test_trimming_lets_go_of_files_that_end_before_the_offset(directory: Path, files: MappedFiles) -> None:
    for number in range(4):
        files.make(number * SIZE)
        files.view(number * SIZE)
    files.trim(2 * SIZE - 1)
    assert mapped(directory) == [file_name(number * SIZE) for number in (1, 2, 3)]
    files.trim(2 * SIZE)
    assert mapped(directory) == [file_name(number * SIZE) for number in (2, 3)]


def test_a_deleted_file_stays_valid_until_it_is_trimmed(directory: Path, files: MappedFiles) -> None:
    files.make(0)
    view(files, 0)[:4] = b"here"
    (directory / file_name(0)).unlink()
    assert bytes(view(files, 0)[:4]) == b"here"
    files.trim(SIZE)
    with pytest.raises(FileNotFoundError):
        files.view(0)


def test_more_files_than_may_be_mapped_are_all_readable_and_never_all_mapped(directory: Path) -> None:
    files = MappedFiles(str(directory), PAGE)
    count = MAPPINGS_MAX + 50
    for number in range(count):
        files.make(number * PAGE)
        view(files, number * PAGE)[:4] = number.to_bytes(4, "big")
    assert len(mapped(directory)) == MAPPINGS_MAX
    assert [int.from_bytes(view(files, number * PAGE)[:4], "big") for number in range(count)] == list(range(count))
    assert len(mapped(directory)) == MAPPINGS_MAX


@pytest.mark.parametrize("apart", [1, 512, MAPPINGS_MAX])
def test_a_file_stays_mapped_while_somebody_looks_at_it(directory: Path, apart: int) -> None:
    files = MappedFiles(str(directory), PAGE)
    count = MAPPINGS_MAX + 50
    for number in range(count):
        files.make(number * apart * PAGE)
        view(files, number * apart * PAGE)[:4] = number.to_bytes(4, "big")
    held = {number: view(files, number * apart * PAGE) for number in range(0, count, 100)}
    for number in range(count):
        view(files, number * apart * PAGE)
    files.trim(count * apart * PAGE)
    assert mapped(directory) == [file_name(number * apart * PAGE) for number in held]
    assert {number: int.from_bytes(part[:4], "big") for number, part in held.items()} == {n: n for n in held}
    held.clear()
    files.trim(count * apart * PAGE)
    assert mapped(directory) == []


def test_a_file_too_many_is_an_error_while_all_are_looked_at(directory: Path) -> None:
    files = MappedFiles(str(directory), PAGE)
    for number in range(MAPPINGS_MAX + 1):
        files.make(number * PAGE)
    held = [view(files, number * PAGE) for number in range(MAPPINGS_MAX)]
    with pytest.raises(OSError, match=os.strerror(errno.ENOBUFS)):
        files.view(MAPPINGS_MAX * PAGE)
    assert len(mapped(directory)) == MAPPINGS_MAX
    held.pop(MAPPINGS_MAX // 2)
    files.view(MAPPINGS_MAX * PAGE)
    assert len(mapped(directory)) == MAPPINGS_MAX


def test_a_view_outlives_the_set_that_it_is_of(directory: Path) -> None:
    files = MappedFiles(str(directory), SIZE, False)
    MappedFiles(str(directory), SIZE).make(0)
    part = view(files, 10)
    assert part.readonly
    del files
    assert bytes(part) == bytes(SIZE - 10)
    assert mapped(directory) == [file_name(0)]
    del part
    assert mapped(directory) == []


def test_nothing_stays_open_when_the_set_is_gone(directory: Path) -> None:
    files = MappedFiles(str(directory), SIZE)
    for number in range(10):
        files.make(number * SIZE)
        files.view(number * SIZE)
    assert (len(mapped(directory)), open_descriptors(directory)) == (10, 0)
    del files
    assert mapped(directory) == []


def take_every_descriptor(taken: list[int]) -> None:
    while True:
        taken.append(os.open("/dev/null", os.O_RDONLY))


def test_a_file_is_mapped_when_connections_have_taken_every_descriptor(directory: Path) -> None:
    files = MappedFiles(str(directory), SIZE)
    files.make(0)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(link.name) for link in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, limits[1]))
    taken: list[int] = []
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            take_every_descriptor(taken)
        for _ in range(3):
            files.view(0)
            files.trim(SIZE)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


# A full disk -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "mqcore-test", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.root
def test_a_full_disk_is_an_error_before_the_file_is_seen(small_disk: Path) -> None:
    files = MappedFiles(str(small_disk), SIZE)
    for number in range(4):
        files.make(number * SIZE)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        files.make(4 * SIZE)
    assert len(list(small_disk.iterdir())) == 4
    (small_disk / file_name(0)).unlink()
    files.make(4 * SIZE)
    view(files, 4 * SIZE)[:] = b"x" * SIZE


@pytest.mark.root
def test_warming_a_hole_on_a_full_disk_is_an_error_and_no_signal(small_disk: Path) -> None:
    (small_disk / file_name(0)).touch()
    os.truncate(small_disk / file_name(0), SIZE)
    (small_disk / "filler").write_bytes(b"x" * (256 * 1024))
    files = MappedFiles(str(small_disk), SIZE)
    with pytest.raises(OSError, match=os.strerror(errno.EFAULT)):
        files.warm(0, SIZE)

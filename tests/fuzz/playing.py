"""One process for each target that is played, with the sanitizers' library in front; what it died over is kept."""

from __future__ import annotations

import hashlib
import mmap
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD: Final = ROOT / "build/sanitize"
FOUND: Final = BUILD / "found"
INPUT_MAX: Final = 4096
NOTE_SIZE: Final = INPUT_MAX + 4
DEFECT: Final = 1
OUTPUT_SHOWN: Final = 6_000


@dataclass(frozen=True, slots=True)
class Finding:
    """An input that broke something: the file that keeps it, and what was said."""

    target: str
    path: Path
    output: str

    def __str__(self) -> str:
        again = f"python -m tests.fuzz --replay {self.target} {self.path}"
        return f"{self.target}: {self.path} ({self.path.stat().st_size} bytes), played again by {again}\n{self.output}"


def missing() -> str:
    """Why nothing can be played, or nothing."""
    return "" if any(BUILD.glob("mqcore_fuzz.*.so")) else "there is no sanitized build: make sanitize-build"


def asan_library() -> str:
    name = subprocess.check_output(["cc", "-print-file-name=libasan.so"], text=True).strip()
    if not Path(name).is_absolute():
        raise FileNotFoundError("the C compiler has no libasan.so: install its sanitizers")
    return name


def coverage_library() -> Path:
    source, made = Path(__file__).with_name("coverage.c"), BUILD / "coverage.so"
    if not made.exists() or made.stat().st_mtime < source.stat().st_mtime:
        aside = made.with_name(f"{made.name}.{os.getpid()}")
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", aside, source], check=True)
        aside.replace(made)
    return made


@cache
def environment() -> dict[str, str]:
    """What a process of the sanitized build needs: the libraries in front, and each object in memory of its own."""
    return os.environ | {
        "MQ_SANITIZE": "1",
        "LD_PRELOAD": f"{coverage_library()} {asan_library()}",
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0:quarantine_size_mb=1:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }


def play(target: str, inputs: int, seed: int) -> Finding | None:
    """Play *inputs* against *target* in a process of its own. The first that breaks something ends it."""
    with tempfile.NamedTemporaryFile(prefix="mqcore-fuzz-") as note:
        note.truncate(NOTE_SIZE)
        command = [sys.executable, "-m", "tests.fuzz.child", target, str(inputs), str(seed), note.name]
        done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, errors="replace")
        return None if done.returncode == 0 else keep(target, Path(note.name), done.stdout + done.stderr)


def replay(target: str, path: Path) -> str:
    """What playing the input in *path* says; nothing if it holds."""
    command = [sys.executable, "-m", "tests.fuzz.child", target, "--replay", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, errors="replace")
    return "" if done.returncode == 0 else done.stdout + done.stderr


def keep(target: str, note: Path, output: str) -> Finding:
    data = note.read_bytes()
    played = data[4 : 4 + int.from_bytes(data[:4], sys.byteorder)]
    FOUND.mkdir(parents=True, exist_ok=True)
    path = FOUND / f"{target}-{hashlib.sha256(played).hexdigest()[:16]}"
    path.write_bytes(played)
    return Finding(target, path, output[:OUTPUT_SHOWN])


def noted(path: str) -> mmap.mmap:
    """The memory of a note, which outlives the process that writes it."""
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), NOTE_SIZE)

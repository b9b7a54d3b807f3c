"""Apache's jars and the compiled driver, resolved and built once and kept under tests/interop/java/target.

The names of cached files carry a hash of what they came from, so a changed pom or source builds anew and an
unchanged one does nothing. A file lock keeps parallel test runs from building the same thing twice.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["client", "server", "tools"]

PROJECT = Path(__file__).resolve().parent.parent / "interop" / "java"
TARGET = PROJECT / "target"
BUILD_DEADLINE_S = 600
STALE_AFTER_S = 24 * 3600


@dataclass(frozen=True, slots=True)
class Release:
    """A release of Apache RocketMQ; broker, name server and filter are of *server_version* (see pom.xml)."""

    version: str
    server_version: str


RELEASES = {
    "4.9.8": Release("4.9.8", server_version="4.9.7"),
    "5.3.3": Release("5.3.3", server_version="5.3.3"),
}


def missing_tools() -> str:
    """The reason why nothing of Java can run here, empty if it can."""
    absent = [tool for tool in ("java", "javac", "mvn") if shutil.which(tool) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@contextmanager
def build_lock(directory: Path) -> Iterator[None]:
    """Hold the lock of a build directory, created if need be, against other processes."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def run_build(command: list[str | Path], *, cwd: Path) -> None:
    """Run one build step; a failure shows its output."""
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_DEADLINE_S,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{command[0]} failed with code {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )


def content_hash(*parts: Path | str) -> str:
    """A short hash over texts and the contents of files."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.read_bytes() if isinstance(part, Path) else part.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:16]


def _cached_class_path(cached: Path) -> str:
    """The class path in the file *cached*, empty if there is none or one of its jars has gone."""
    if not cached.is_file():
        return ""
    class_path = cached.read_text().strip()
    return class_path if all(Path(jar).is_file() for jar in class_path.split(os.pathsep)) else ""


def class_path(role: Role, version: str) -> str:
    """The jars for one role of a release, as Java wants them, downloading what is missing."""
    release = RELEASES[version]
    pom = PROJECT / "pom.xml"
    cached = TARGET / f"{role}-{version}-{content_hash(pom, release.server_version)}.classpath"
    with build_lock(TARGET):
        if not (found := _cached_class_path(cached)):
            fresh = cached.with_name(cached.name + ".new")
            run_build(
                [
                    *("mvn", "--batch-mode", "--quiet", f"--activate-profiles={role}"),
                    f"-Drocketmq.version={release.version}",
                    f"-Drocketmq.server.version={release.server_version}",
                    *("dependency:build-classpath", f"-Dmdep.outputFile={fresh}"),
                ],
                cwd=PROJECT,
            )
            fresh.rename(cached)
            found = _cached_class_path(cached)
    return found


def driver_class_path(version: str) -> str:
    """The class path of the driver compiled against one client release, compiling it if its source changed."""
    jars = class_path("client", version)
    sources = sorted((PROJECT / "src").rglob("*.java"))
    classes = TARGET / f"driver-{version}-{content_hash(jars, *sources)}"
    with build_lock(TARGET):
        if not classes.is_dir():
            fresh = classes.with_name(classes.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            run_build(["javac", "-nowarn", "-Xlint:none", "-cp", jars, "-d", fresh, *sources], cwd=PROJECT)
            for stale in TARGET.glob(f"driver-{version}-*"):
                # A younger one may be in use by another run, which began before a source changed.
                if stale != fresh and time.time() - stale.stat().st_mtime > STALE_AFTER_S:
                    shutil.rmtree(stale)
            fresh.rename(classes)
    return f"{classes}{os.pathsep}{jars}"


def shared_classes(name: str, class_path: str, run: list[str]) -> Path:
    """The JVM's archive of the classes that `java run...` loads, made by running it once; saves a third of a start.

    The run may fail, as long as it ends: what counts is what it loaded.
    """
    archive = TARGET / f"{name}-{content_hash(class_path, *run)}.jsa"
    with build_lock(TARGET):
        if not archive.is_file():
            fresh = archive.with_name(archive.name + ".new")
            command = ["java", f"-XX:ArchiveClassesAtExit={fresh}", "-cp", class_path, *run]
            subprocess.run(
                command,
                cwd=TARGET,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=BUILD_DEADLINE_S,
            )
            fresh.rename(archive)
    return archive

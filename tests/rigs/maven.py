"""Apache's jars and the compiled drivers, resolved and built once for all checkouts of this user.

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
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Role = Literal["client", "server", "tools"]

PROJECT = Path(__file__).resolve().parent.parent / "interop" / "java"
BUILT = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mqcore-tests"
"""Where everything lies that tests build from others' sources, beside the caches of Maven, npm and Go."""
TARGET = BUILT / "java"
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
    # Its tools are what the Dashboard 1.0.0 asks with; nothing else of it is used.
    "4.9.0": Release("4.9.0", server_version="4.9.0"),
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


def profiles(role: Role, version: str) -> str:
    """The profiles of pom.xml for a role of a release."""
    return "client,acl" if role == "client" and version.startswith("4.") else role


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
                    *("mvn", "--batch-mode", "--quiet", f"--activate-profiles={profiles(role, version)}"),
                    f"-Drocketmq.version={release.version}",
                    f"-Drocketmq.server.version={release.server_version}",
                    *("dependency:build-classpath", f"-Dmdep.outputFile={fresh}"),
                ],
                cwd=PROJECT,
            )
            fresh.rename(cached)
            found = _cached_class_path(cached)
    return found


def compiled(name: str, jars: str, sources: Sequence[Path]) -> str:
    """The class path *jars* with a jar in front of it of *sources*, which are compiled if they have changed."""
    built = TARGET / f"{name}-{content_hash(jars, *sources)}.jar"
    with build_lock(TARGET):
        if not built.is_file():
            classes, fresh = built.with_suffix(".classes"), built.with_suffix(".new")
            shutil.rmtree(classes, ignore_errors=True)
            run_build(["javac", "-nowarn", "-Xlint:none", "-cp", jars, "-d", classes, *sources], cwd=PROJECT)
            # A jar, as the JVM archives no classes that lie in a directory.
            with zipfile.ZipFile(fresh, "w") as archive:
                for path in sorted(classes.rglob("*.class")):
                    archive.write(path, path.relative_to(classes))
            shutil.rmtree(classes)
            for stale in TARGET.glob(f"{name}-*"):
                # A younger one may be in use by another run, which began before a source changed.
                if stale != fresh and time.time() - stale.stat().st_mtime > STALE_AFTER_S:
                    stale.unlink()
            fresh.rename(built)
    return f"{built}{os.pathsep}{jars}"


def driver_class_path(version: str) -> str:
    """The class path of the driver for one client release."""
    return compiled(f"driver-{version}", class_path("client", version), sorted((PROJECT / "src").rglob("*.java")))


def admin_class_path(version: str) -> str:
    """The class path of interop.Admin, which runs mqadmin's commands of one release."""
    shared = [PROJECT / "src" / "interop" / name for name in ("Event.java", "Talk.java")]
    sources = [*sorted((PROJECT / "tools").rglob("*.java")), *shared]
    return compiled(f"admin-{version}", class_path("tools", version), sources)


def calls_class_path(version: str) -> str:
    """The class path of interop.Calls, which makes single calls of one release's admin client."""
    shared = [PROJECT / "src" / "interop" / name for name in ("Event.java", "Talk.java")]
    sources = [*sorted((PROJECT / "calls").rglob("*.java")), *shared]
    return compiled(f"calls-{version}", class_path("tools", version), sources)


def referee_class_path(version: str) -> str:
    """The class path of interop.FilterReferee, which asks one release's filter module."""
    return compiled(f"referee-{version}", class_path("server", version), sorted((PROJECT / "filter").rglob("*.java")))


def acl_referee_class_path(version: str) -> str:
    """The class path of interop.AclReferee, which asks one release's access control."""
    return compiled(f"acl-{version}", class_path("tools", version), sorted((PROJECT / "acl").rglob("*.java")))


def shared_classes(
    name: str, options: Sequence[str], class_path: str, run: Sequence[str | Path], told: str = ""
) -> str:
    """The JVM option for an archive of the classes that `java *options* *run*` loads, made by running it once.

    It saves a third of the CPU of a start. The run may fail, as long as it ends: what counts is what it loaded. Its
    standard input is *told*.
    """
    archive = TARGET / f"{name}-{content_hash(class_path, *options)}.jsa"
    with build_lock(TARGET):
        if not archive.is_file():
            fresh = archive.with_name(archive.name + ".new")
            subprocess.run(
                ["java", *options, f"-XX:ArchiveClassesAtExit={fresh}", "-cp", class_path, *map(str, run)],
                cwd=TARGET,
                input=told.encode(),
                capture_output=True,
                check=False,
                timeout=BUILD_DEADLINE_S,
            )
            if not fresh.is_file():
                return "-Xshare:auto"  # what it is without an archive: this JVM makes none
            fresh.rename(archive)
    return f"-XX:SharedArchiveFile={archive}"

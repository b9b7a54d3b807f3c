"""An installation of Spark that every clone shares, and an archive of the classes that a session loads.

Most of what a JVM's first queries cost is loading classes: 12.6 s of CPU for a session with two of them, 5.9 s with an
archive. A JVM takes an archive only for jars of the same names and times as when it was made. Each clone's have times
of their own; those of the first one lie in the cache. Python finds its modules where it always does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from .maven import BUILT, build_lock, content_hash

REHEARSAL = Path(__file__).with_name("spark_rehearsal.py")
REHEARSAL_DEADLINE_S = 600.0


def shared_home() -> Path:
    """The directory for SPARK_HOME, made once for each release of Spark."""
    home = BUILT / f"spark-{pyspark.__version__}"
    with build_lock(BUILT):
        if not home.is_dir():
            fresh = home.with_name(home.name + ".new")
            shutil.rmtree(fresh, ignore_errors=True)
            installed = Path(pyspark.__file__).parent
            shutil.copytree(installed / "bin", fresh / "bin")
            shutil.copytree(installed / "jars", fresh / "jars", copy_function=link_or_copy)
            fresh.rename(home)
    return home


def link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copy2(source, target)


def shared_classes(home: Path, environment: Mapping[str, str], java_options: str) -> str:
    """The driver's option for an archive of the classes that a session at *home* loads, made by rehearsing one."""
    archive = home / f"classes-{content_hash(environment['JAVA_HOME'], java_options, REHEARSAL)}.jsa"
    with build_lock(BUILT):
        if not archive.is_file():
            fresh = archive.with_name(archive.name + ".new")
            options = f"{java_options} -Xlog:disable -XX:ArchiveClassesAtExit={fresh}"
            subprocess.run(
                [sys.executable, REHEARSAL, options],
                env={**os.environ, **environment, "SPARK_HOME": str(home)},
                cwd=home,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
                timeout=REHEARSAL_DEADLINE_S,
            )
            if not fresh.is_file():
                return "-Xshare:auto"  # what it is without an archive: this JVM makes none
            fresh.rename(archive)
    return f"-XX:SharedArchiveFile={archive}"

"""Compiles the harness's extensions on first use, so that neither setup.py nor the installed package knows of them.

The results go to benchmarks/harness/build, which git ignores; they are compiled again when a source is newer.
Importing this module is enough, and the one way to get at what they define.
"""

from __future__ import annotations

import fcntl
import sysconfig
from pathlib import Path

import benchmarks.harness

HARNESS = Path(__file__).resolve().parent
ROOT = HARNESS.parent.parent
BUILD = HARNESS / "build"
PACKAGE = "benchmarks.harness"
COMPILE = ["-O3", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function"]


def built_folder() -> Path:
    """Where the extensions of this interpreter lie once they are built."""
    return BUILD / "lib" / Path(*PACKAGE.split("."))


def is_current() -> bool:
    """Whether every extension is there and newer than all sources; one may cimport another, so all count for each."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    newest = max(source.stat().st_mtime for source in (*HARNESS.glob("*.pyx"), *HARNESS.glob("*.pxd")))
    extensions = [built_folder() / f"{source.stem}{suffix}" for source in HARNESS.glob("*.pyx")]
    return all(extension.exists() and extension.stat().st_mtime > newest for extension in extensions)


def build() -> None:
    """Compile every .pyx of the harness. Needs a C compiler, and Cython and setuptools from the extra `mqcore[dev]`."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension  # type: ignore[import-untyped]

    modules = [
        Extension(f"{PACKAGE}.{source.stem}", [str(source)], extra_compile_args=COMPILE)
        for source in sorted(HARNESS.glob("*.pyx"))
    ]
    extensions = cythonize(  # type: ignore[no-untyped-call]
        modules, language_level=3, build_dir=str(BUILD / "c"), include_path=[str(ROOT)], force=True, quiet=True
    )
    distribution = Distribution({"ext_modules": extensions})
    command = distribution.get_command_obj("build_ext")
    command.build_lib = str(BUILD / "lib")
    command.build_temp = str(BUILD / "temp")
    command.force = True
    command.ensure_finalized()
    command.run()


def ensure_built() -> None:
    """Build what is missing or old, one process at a time, and let the package find it."""
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_current():
            build()
    folder = str(built_folder())
    if folder not in benchmarks.harness.__path__:
        benchmarks.harness.__path__.append(folder)


ensure_built()

from benchmarks.harness._answers import answer, pulled_count  # noqa: E402 - there only after the build
from benchmarks.harness._core_distance import core_distance_ns  # noqa: E402
from benchmarks.harness._load import Engine, bucket_of  # noqa: E402

__all__ = ["Engine", "answer", "bucket_of", "core_distance_ns", "pulled_count"]

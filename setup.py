"""The extensions, how they are built, and the package map; everything else is in pyproject.toml.

The folders workers/ and spark/ stand at the top of the tree and are imported as mqcore.workers and mqcore.spark.
``python setup.py build_ext --inplace`` builds what has changed. MQ_BUILD_JOBS is the number of compilers side by side.
With MQ_DEBUG=1 it makes the debug build, in build/debug: the extensions in the tree stay as they are. With
MQ_SANITIZE=1 it is the sanitized build, in build/sanitize: the debug build with AddressSanitizer and
UndefinedBehaviorSanitizer, and with it the fuzzer of tests/fuzz (see there).

An installation does without the extensions where they cannot be compiled, with a warning, or with
MQ_BUILD_EXTENSIONS=0, and takes their Python twins: a client works, a broker does not start. With MQ_BUILD_EXTENSIONS=1
it fails instead, and so does build_ext when it is asked for by name.
"""

import os
import re
import shutil
import sys
import warnings
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError
from setuptools.modified import newer_group

FAST = Path("mqcore/_fast")
HEADERS = FAST / "include"
# Memory views are compiled once for all extensions: each of its own copies took 2 s, two thirds of the whole build.
SHARED = "mqcore._fast.base.memory_views"
# Line tables, for the stacks of perf, gdb and callgrind, and no more: types and variables take a third of the time.
COMPILE = ["-O3", "-g1", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function"]
# A constant that has lost its bits is 0, and nobody would see it: enums of Cython have 32 of them in C.
COMPILE += ["-Werror=shift-count-overflow", "-Werror=overflow"]
WANTED = os.environ.get("MQ_BUILD_EXTENSIONS")
MUST = WANTED == "1" or "build_ext" in sys.argv
DEBUG = os.environ.get("MQ_DEBUG") == "1"
SANITIZE = os.environ.get("MQ_SANITIZE") == "1"
VARIANT = "sanitize" if SANITIZE else "debug" if DEBUG else ""
KEPT = Path("build", VARIANT or "fast")
LINK: list[str] = []
if VARIANT:
    COMPILE += ["-O1", "-g", "-UNDEBUG", "-DMQ_DEBUG"]
if SANITIZE:
    LINK = ["-fsanitize=address,undefined"]
    # What is undefined ends the process, as a bad address does. trace-pc tells the fuzzer where it has been.
    COMPILE += [*LINK, "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-fsanitize-coverage=trace-pc"]
INCLUDED = re.compile(r'^\s*#include "([\w.]+)"', re.MULTILINE)
JOBS = int(os.environ.get("MQ_BUILD_JOBS", len(os.sched_getaffinity(0))))


def extension(name: str, source: str) -> Extension:
    return Extension(
        name,
        [source],
        include_dirs=[str(HEADERS)],
        extra_compile_args=COMPILE,
        extra_link_args=LINK,
        libraries=["pthread"],
        depends=["setup.py"],
    )


def headers_of(source: Path) -> set[Path]:
    """The headers of ours that a C file includes, and those that they include."""
    found: set[Path] = set()
    reading = [source]
    while reading:
        named = {HEADERS / name for name in INCLUDED.findall(reading.pop().read_text())}
        new = {path for path in named - found if path.exists()}
        reading += new
        found |= new
    return found


class BuildFast(build_ext):
    """Compiles side by side, and only what is older than its sources.

    An editable install, a wheel and a build in place each want the extensions in a folder of their own: they are made
    in one, and copied.
    """

    def finalize_options(self) -> None:
        super().finalize_options()
        if VARIANT:
            self.inplace, self.build_lib, self.build_temp = False, str(KEPT), f"build/temp.{VARIANT}"
        self.parallel = self.parallel or JOBS
        # The long ones first, so that no compiler is left alone with one at the end.
        self.extensions.sort(key=lambda item: -Path(item.sources[0]).stat().st_size)

    def run(self) -> None:
        try:
            super().run()
        except (BaseError, CCompilerError) as error:
            if MUST:
                raise
            # All or none: what remained would be of another opinion than the twins beside it.
            for ext in self.extensions:
                Path(self.get_ext_fullpath(ext.name)).unlink(missing_ok=True)
            self.extensions = []
            warnings.warn(f"the extensions cannot be compiled, their Python twins take over: {error}", stacklevel=1)
        if VARIANT:
            for package in FAST.glob("*/__init__.py"):
                copy(package, KEPT / package)

    def build_extension(self, ext: Extension) -> None:
        kept = KEPT / self.get_ext_filename(ext.name)
        wanted = Path(self.get_ext_fullpath(ext.name))
        if newer_group([*ext.sources, *ext.depends, *map(str, headers_of(Path(ext.sources[0])))], str(kept)):
            wanted.unlink(missing_ok=True)
            super().build_extension(ext)
            source, target = wanted, kept
        else:
            source, target = kept, wanted
        if source != target:
            copy(source, target)


def copy(source: Path, target: Path) -> None:
    """Put *source* in the place of *target*, which running processes may have mapped."""
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f"{target.name}.{os.getpid()}")
    shutil.copy2(source, aside)
    aside.replace(target)


sources = [] if WANTED == "0" else sorted(FAST.rglob("*.pyx"))
extensions = [extension(".".join(source.with_suffix("").parts), str(source)) for source in sources]
if SANITIZE:
    extensions.append(extension("mqcore_fuzz", "tests/fuzz/mqcore_fuzz.pyx"))
if extensions:
    extensions.append(extension(SHARED, f"{SHARED.replace('.', '/')}.c"))

top_packages = find_packages(include=["mqcore", "mqcore.*"], exclude=["mqcore.workers*", "mqcore.spark*"])
mapped = {"mqcore.workers": "workers", "mqcore.spark": "spark", "mqcore.spark.jobs": "spark/jobs"}
# Spark looks for its formats in top-level modules of such names.
spark_formats = ["pyspark_rocketmq", "pyspark_rocketmq_store"]

setup(
    packages=[*top_packages, *mapped],
    py_modules=spark_formats,
    package_dir=mapped,
    package_data={
        "mqcore": ["py.typed", "_fast/*/*.pxd", "_fast/*/*.pyi", "_fast/include/*.h"],
        "mqcore.console": ["templates/*.html", "static/*"],
    },
    ext_modules=cythonize(
        extensions,
        language_level=3,
        build_dir="build/cython",
        nthreads=JOBS,
        shared_utility_qualified_name=SHARED,
        compiler_directives={"embedsignature": True, "binding": True},
    ),
    cmdclass={"build_ext": BuildFast},
)

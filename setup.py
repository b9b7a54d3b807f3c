"""The extensions and the package map; everything else is in pyproject.toml.

The folders workers/ and spark/ stand at the top of the tree and are imported as mqcore.workers and mqcore.spark.
"""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup

FAST = Path("mqcore/_fast")
COMPILE = ["-O3", "-fno-strict-aliasing", "-fwrapv", "-Wno-unused-function"]

extensions = [
    Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        include_dirs=[str(FAST / "include")],
        depends=[str(header) for header in sorted((FAST / "include").glob("*.h"))],
        extra_compile_args=COMPILE,
        libraries=["pthread"],
    )
    for source in sorted(FAST.rglob("*.pyx"))
]

top_packages = find_packages(include=["mqcore", "mqcore.*"], exclude=["mqcore.workers*", "mqcore.spark*"])
mapped = {"mqcore.workers": "workers", "mqcore.spark": "spark", "mqcore.spark.jobs": "spark/jobs"}
# Spark looks for its formats in top-level modules of such names.
spark_formats = ["pyspark_rocketmq", "pyspark_rocketmq_store"]

setup(
    packages=[*top_packages, *mapped],
    py_modules=spark_formats,
    package_dir=mapped,
    package_data={"mqcore": ["py.typed", "_fast/*/*.pxd", "_fast/*/*.pyi", "_fast/include/*.h"]},
    ext_modules=cythonize(
        extensions,
        language_level=3,
        build_dir="build/cython",
        compiler_directives={"embedsignature": True, "binding": True},
    ),
)

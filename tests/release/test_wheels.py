"""What is published: a source distribution with all that a build needs, and wheels that need no compiler."""

from __future__ import annotations

import email.parser
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from elf_files import Elf

from mqcore.version import __version__
from tests.release import foreign_python, interpreters, wheels
from tests.release.interpreters import Interpreter
from tests.release.sbom import write_sbom
from tests.release.source_tree import ROOT, copy_tree, make_sdist
from tests.rigs.ports import free_broker_ports, free_port
from tests.rigs.process import Child
from tests.waiting import wait_until

DEADLINE_S = 120.0
FAST = PurePosixPath("mqcore/_fast")
FOLDERS = {"workers": "mqcore/workers", "spark": "mqcore/spark", "mqcore": "mqcore"}
"""Where the folders of the tree are in a wheel."""

PAGES = (".html", ".css", ".js", ".svg")
"""What the console serves."""

NEEDED = (".py", ".pyi", ".pxd", ".h", ".typed", *PAGES)


def tracked() -> list[PurePosixPath]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [PurePosixPath(name) for name in listed.splitlines() if (ROOT / name).exists()]


def is_kernel(path: PurePosixPath) -> bool:
    return path.suffix == ".pyx" and path.is_relative_to(FAST)


def installed_names() -> set[str]:
    """The files of the tree that an installation has to have, as a wheel names them."""
    names = {f"{module}.py" for module in ("pyspark_rocketmq", "pyspark_rocketmq_store")}
    for path in tracked():
        if path.parts[0] in FOLDERS and path.suffix in NEEDED and not (ROOT / path).is_symlink():
            names.add(str(PurePosixPath(FOLDERS[path.parts[0]], *path.parts[1:])))
    return names


def sources() -> set[str]:
    """The files of the tree that a build has to have."""
    compiled = {str(path) for path in tracked() if path.suffix in (".pyx", ".pxd", ".h") and path.is_relative_to(FAST)}
    python = {str(path) for path in tracked() if path.parts[0] in FOLDERS and path.suffix in (".py", ".pyi", *PAGES)}
    return compiled | python | {"setup.py", "pyproject.toml", "README.md", "LICENSE", "pyspark_rocketmq.py"}


def without_info(names: list[str]) -> set[str]:
    return {name for name in names if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="module")
def sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sdist(tree, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def plain_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without extensions, which takes seconds, built from the source distribution."""
    place = tmp_path_factory.mktemp("plain")
    source = wheels.unpack(sdist, place)
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([*pip, "-w", place, source], env={**os.environ, "MQ_BUILD_EXTENSIONS": "0"}, cwd=place, check=True)
    (wheel,) = place.glob("*.whl")
    return wheel


def test_the_source_distribution_has_all_that_a_build_needs_and_no_tests(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers()}
    assert sdist.name == f"mqcore-{__version__}.tar.gz"
    assert sources() - names == set()
    assert [name for name in names if name.startswith(("tests/", "build/")) or name.endswith((".so", ".c"))] == []


@pytest.mark.slow
def test_the_source_distribution_is_the_same_each_time(tree: Path, sdist: Path, tmp_path: Path) -> None:
    # What a build leaves in the tree, and when its files were written, is not in it.
    for path in tree.glob("*.py"):
        os.utime(path, (1, 1))
    assert make_sdist(tree, tmp_path).read_bytes() == sdist.read_bytes()


def test_an_installation_has_every_module_stub_and_mark_and_nothing_else(plain_wheel: Path) -> None:
    with zipfile.ZipFile(plain_wheel) as opened:
        found = without_info(opened.namelist())
    assert found == installed_names()
    assert {"mqcore/py.typed", "mqcore/workers/__main__.py", "mqcore/spark/jobs/__init__.py"} <= found
    assert len([name for name in found if name.endswith(".pyi")]) > 50


def test_the_metadata_say_what_pip_and_its_users_ask(plain_wheel: Path) -> None:
    with zipfile.ZipFile(plain_wheel) as opened:
        (name,) = (name for name in opened.namelist() if name.endswith("dist-info/METADATA"))
        metadata = email.parser.Parser().parsestr(opened.read(name).decode())
        entry_points = opened.read(name.replace("METADATA", "entry_points.txt")).decode()
        assert name.replace("METADATA", "licenses/LICENSE") in opened.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("mqcore", __version__)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {"acl", "cli", "metrics", "spark"} <= set(metadata.get_all("Provides-Extra", []))
    assert "mqcore = mqcore.admin.main:main" in entry_points
    # The page of the package has no tree beside it: nothing there may lead into one.
    said = {c.rpartition(" ")[2] for c in metadata.get_all("Classifier", []) if "Python :: 3." in c}
    assert said <= set(interpreters.VERSIONS)


def test_interpreters_that_are_left_out_are_named_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    program = tmp_path / "versions" / "3.99.1" / "bin" / "python3"
    program.parent.mkdir(parents=True)
    facts = '{"version": "3.99.1", "is_final": true, "name": "cpython", "free_threaded": true, "has_headers": true}'
    program.write_text(f"#!/bin/sh\necho '{facts}'\n")
    program.chmod(0o755)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    found, left_out = interpreters.find([here, "3.98", "3.99"])
    assert [interpreter.version for interpreter in found] == [here]
    assert left_out["3.99"] == f"{program}: is free-threaded, which the extensions are not made for"
    assert left_out["3.98"].startswith("no such interpreter")


@functools.cache
def found() -> tuple[list[Interpreter], dict[str, str]]:
    """As ``interpreters.find``; asked for by those who build, since each interpreter is started for it."""
    return interpreters.find()


def interpreter_of(version: str) -> Interpreter:
    """The interpreter of this *version*; the test is skipped where there is none."""
    here, left_out = found()
    for interpreter in here:
        if interpreter.version == version:
            return interpreter
    pytest.skip(f"no wheel can be built for {version}: {left_out[version]}")


slow = [pytest.mark.slow, pytest.mark.timeout(3600)]
needs_tools = pytest.mark.skipif(bool(wheels.missing_tools()), reason=wheels.missing_tools())


@pytest.fixture(scope="module")
def builder(sdist: Path) -> wheels.WheelBuilder:
    wheels.PLACE.mkdir(parents=True, exist_ok=True)
    return wheels.WheelBuilder(wheels.PLACE, wheels.unpack(sdist, wheels.PLACE))


@pytest.fixture(scope="module", params=interpreters.VERSIONS)
def interpreter(request: pytest.FixtureRequest) -> Interpreter:
    return interpreter_of(request.param)


@pytest.fixture(scope="module")
def wheel(interpreter: Interpreter, builder: wheels.WheelBuilder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return builder.build(interpreter, "x86_64", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, interpreter: Interpreter, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty environment with that wheel in it and what it needs, from the registry; its bin directory."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([interpreter.path, "-m", "venv", home], check=True)
    pip = (home / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    subprocess.run([*pip, "--only-binary", ":all:", f"mqcore[cli] @ {wheel.as_uri()}"], env=bare(home), check=True)
    yield home / "bin"
    shutil.rmtree(home)


def bare(home: Path) -> dict[str, str]:
    """The environment's variables: nothing on the path but the environment itself, no compiler above all."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))}
    return {**kept, "PATH": str(home / "bin"), "HOME": str(home)}


@needs_tools
class TestWheel:
    """Each wheel of this machine."""

    pytestmark = slow

    def test_it_has_each_extension_for_the_old_c_library_and_no_file_more(self, wheel: Path, tmp_path: Path) -> None:
        with zipfile.ZipFile(wheel) as opened:
            extensions = {name for name in opened.namelist() if name.endswith(".so")}
            assert without_info(opened.namelist()) - extensions == installed_names()
            opened.extractall(tmp_path)
        kernels = {str(path.with_suffix("")) for path in tracked() if is_kernel(path)} | {
            "mqcore/_fast/base/memory_views"
        }
        assert {name.partition(".")[0] for name in extensions} == kernels
        for name in extensions:
            elf = Elf.read(tmp_path / name)
            assert elf.machine == "x86_64"
            assert elf.newest_glibc <= (2, 28), name
            assert {library for library in elf.needed if not re.match(r"lib(c|pthread|dl|m)\.so", library)} == set()

    def test_without_a_compiler_a_broker_starts_and_a_first_message_comes(
        self, environment: Path, tmp_path: Path
    ) -> None:
        env = bare(environment.parent)
        assert not [name for name in ("cc", "gcc", "clang", "python3-config") if shutil.which(name, path=env["PATH"])]
        ports = {"listenPort": free_broker_ports().listen, "namesrvListenPort": free_port()}
        settings = {**ports, "bindAddress": "127.0.0.1", "mappedFileSizeCommitLog": 1 << 20}
        words = [f"--set={key}={value}" for key, value in settings.items()]
        server = [environment / "python", "-m", "mqcore.broker", "--store", tmp_path / "store", *words]
        # Not by the rig, which finds its own helpers by the path.
        command = ["/usr/bin/env", "-i", *(f"{name}={value}" for name, value in env.items()), *server]
        with Child(command, log=tmp_path / "broker.log", directory=tmp_path) as child:
            wait_until(lambda: "consume hello" in child.log.read_text() or not child.is_alive, DEADLINE_S, "it serves")
            mqcore = [environment / "mqcore", "-n", f"127.0.0.1:{ports['namesrvListenPort']}"]
            for arguments in ("send hello --body first", "consume hello --group first -n 1"):
                words = [*mqcore, *arguments.split()]
                done = subprocess.run(
                    words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False
                )
                assert done.returncode == 0, done.stderr + child.log_tail()
            assert done.stdout == "first\n"
            assert child.stop() == 0

    @pytest.mark.skipif(not wheels.is_installed("cyclonedx-bom"), reason="not installed: cyclonedx-bom (.[release])")
    def test_its_list_of_parts_names_it_and_what_it_brings(self, wheel: Path, tmp_path: Path) -> None:
        if f"cp{sys.version_info.major}{sys.version_info.minor}-" not in wheel.name:
            pytest.skip("the list is made with the interpreter that runs this")
        parts = json.loads(write_sbom(wheel, tmp_path / "sbom.json", "cli").read_text())
        assert parts["bomFormat"] == "CycloneDX"
        root = parts["metadata"]["component"]
        assert (root["name"], root["version"], root["purl"]) == (
            "mqcore",
            __version__,
            f"pkg:pypi/mqcore@{__version__}",
        )
        assert {"click", "lark", "numpy", "orjson", "psutil", "rich"} <= {part["name"] for part in parts["components"]}
        assert all(part["version"] and part["purl"] for part in parts["components"])


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_wheel_for_another_processor_is_one_and_the_same_each_time(
    builder: wheels.WheelBuilder, tmp_path: Path
) -> None:
    interpreter = found()[0][0]
    first = builder.build(interpreter, "aarch64", tmp_path / "first")
    again = builder.build(interpreter, "aarch64", tmp_path / "again")
    assert first.name == f"mqcore-{__version__}-{interpreter.tag}-{interpreter.tag}-manylinux_2_28_aarch64.whl"
    assert first.read_bytes() == again.read_bytes()
    with zipfile.ZipFile(first) as opened:
        opened.extractall(tmp_path / "unpacked")
    extensions = list((tmp_path / "unpacked").rglob("*.so"))
    assert len(extensions) > 50
    for path in extensions:
        elf = Elf.read(path)
        assert (elf.machine, elf.newest_glibc <= (2, 28)) == ("aarch64", True), path
        assert ".cpython-" in path.name
        assert path.name.endswith("-aarch64-linux-gnu.so")


IMPORT_ALL = """
import importlib, pkgutil, platform
import mqcore._fast, mqcore.client
names = [found.name for found in pkgutil.walk_packages(mqcore._fast.__path__, "mqcore._fast.") if not found.ispkg]
for name in names:
    importlib.import_module(name)
from mqcore._fast.base import crc32
print(platform.machine(), len(names), crc32.checksum(b"123456789"))
"""
CRC32_OF_DIGITS = 0xCBF43926
"""The check value of CRC-32."""


def import_all(wheel: Path, packages: Path) -> None:
    foreign_python.install(wheel, packages)
    machine, count, crc = foreign_python.run(IMPORT_ALL, packages).split()
    kernels = [path for path in tracked() if is_kernel(path)]
    assert (machine, int(count), int(crc)) == ("aarch64", len(kernels) + 1, CRC32_OF_DIGITS)


@needs_tools
@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_each_extension_of_a_wheel_for_another_processor_is_imported_there(
    builder: wheels.WheelBuilder, tmp_path: Path
) -> None:
    if missing := foreign_python.missing_tools():
        pytest.skip(missing)
    interpreter = interpreter_of(foreign_python.VERSION)
    import_all(builder.build(interpreter, "aarch64", tmp_path / "wheel"), tmp_path / "packages")

"""Finding a Java: its version, and the launcher for an image that lacks a module."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mqcore.spark import java


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no version at all", 0),
    ],
)
def test_the_version_is_read_from_what_the_program_says(tmp_path, said, version):
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o700)
    assert java.java_version(program) == version


def test_what_does_not_run_has_no_version(tmp_path):
    assert java.java_version(tmp_path / "missing") == 0


def test_the_launcher_drops_the_one_argument_and_keeps_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "my cache"))
    home = java.make_launcher(Path("/bin/echo"), 21)
    assert home == java.make_launcher(Path("/bin/echo"), 21)
    command = [
        home / "bin" / "java",
        "-Xmx1g",
        "--add-modules=jdk.incubator.vector",
        "two words",
        "--add-modules=java.se",
    ]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said == "-Xmx1g two words --add-modules=java.se\n"


def test_a_java_that_is_found_is_new_enough_and_there():
    found = java.find_java()
    if found is None:
        with pytest.raises(FileNotFoundError, match="no Java 17"):
            java.java_environment()
    else:
        assert found.version >= java.JAVA_VERSION_MIN
        assert java.java_environment()["JAVA_HOME"] == str(found.path)
        assert (found.path / "bin" / "java").exists()

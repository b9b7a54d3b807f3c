""".github/workflows: they run the commands of this tree, with as few rights as each job needs."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.release.interpreters import VERSIONS
from tests.release.source_tree import ROOT

PLACE = ROOT / ".github" / "workflows"
WORKFLOWS: dict[str, dict[str, Any]] = {path.stem: yaml.safe_load(path.read_text()) for path in PLACE.glob("*.yml")}
ACTIONLINT = "github.com/rhysd/actionlint/cmd/actionlint@v1.7.12"
MAY_WRITE = {
    ("release", "attest"): {"id-token", "attestations"},
    ("release", "publish"): {"id-token"},
    ("release", "page"): {"contents"},
}
"""What jobs may write; all others read."""


def jobs() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, workflow in WORKFLOWS.items():
        for job, body in workflow["jobs"].items():
            yield name, job, body


def test_each_action_has_a_version_and_each_job_an_end() -> None:
    for workflow, name, job in jobs():
        assert job["timeout-minutes"] <= 120, (workflow, name)
        for step in job["steps"]:
            if "uses" in step:
                assert re.search(r"@v\d+(\.\d+)*$", step["uses"]), step["uses"]
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


def test_a_job_may_write_what_it_writes_and_no_secret_is_kept() -> None:
    for workflow, name, job in jobs():
        rights = job.get("permissions", WORKFLOWS[workflow]["permissions"])
        writes = {right for right, how in rights.items() if how == "write"}
        assert writes == MAY_WRITE.get((workflow, name), set()), (workflow, name)
    text = "".join(path.read_text() for path in PLACE.iterdir())
    assert "secrets." not in text, "trusted publishing needs none"
    assert "password" not in text


def test_what_is_run_is_there() -> None:
    targets = set(re.findall(r"^([\w-]+(?: [\w-]+)*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    runs = [step["run"] for _, _, job in jobs() for step in job["steps"] if "run" in step]
    made = [
        word for run in runs if run.startswith("make ") for word in run.split()[1:] if re.fullmatch(r"[\w-]+", word)
    ]
    assert {"test", "lint", "wheels", "sbom"} <= set(made)
    named = {word for word in made if not word.startswith("-")} - {"x86_64", "aarch64"}
    assert {word for word in named if not word[0].isdigit()} <= known
    for path in re.findall(r"\b(tests/[\w/]+)", " ".join(runs)):
        assert (ROOT / path).exists(), path


def test_a_release_is_built_for_each_interpreter_and_published_last() -> None:
    release = WORKFLOWS["release"]["jobs"]
    (setup,) = [step for step in release["build"]["steps"] if step.get("uses", "").startswith("actions/setup-python")]
    assert sorted(setup["with"]["python-version"].split()) == sorted(VERSIONS)
    assert release["aarch64"]["strategy"]["matrix"]["python"] == list(VERSIONS)
    chain = ["build", "aarch64", "attest", "publish", "page"]
    assert [release[name].get("needs") for name in chain] == [None, *chain[:-1]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("go") is None, reason="not installed: go, which builds actionlint")
def test_actionlint_has_nothing_to_say(tmp_path: Path) -> None:
    command = ["go", "run", ACTIONLINT, "-no-color", *map(str, sorted(PLACE.glob("*.yml")))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

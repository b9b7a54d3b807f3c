"""How the tests are run: shares, time limits, second looks, quarantine, seeds, and what is said at the end."""

from __future__ import annotations

import inspect
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from mqcore.testing.leftovers import has_ended
from tests.rows import walked
from tests.suite import collecting, costs_table, resuming, scheduling, second_look
from tests.suite.closing import described
from tests.suite.costs import Cost, Machine, late
from tests.suite.costs_table import Expected
from tests.suite.second_look import FAILURES_MAX, RECORD, Failures
from tests.suite.seeds import VARIABLE
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if "PYTEST" not in name and name != VARIABLE},
    "PYTHONPATH": str(ROOT),
}
CONFTEST = """
from tests.suite import timeouts
timeouts.GRACE_S = 1
from conftest_of_all import pytest_plugins
"""
SETTINGS = """
[pytest]
markers =
    fault: kills
    slow: takes long
timeout = 60
addopts = -p no:cacheprovider -p no:mqcore -p no:benchmark -p no:asyncio
"""
PASSES = "def test_{name}():\n    pass\n"
FAILS_ALWAYS = "def test_{name}():\n    assert not 'in vain'\n"
FAILS_ONCE = """
from pathlib import Path

def test_{name}():
    been_here = Path(__file__).with_suffix(".txt")
    first = not been_here.exists()
    been_here.write_text("yes")
    print("what it said")
    assert not first
"""
TELLS_WORKER = """
import os, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(4))
def test_{name}(number):
    time.sleep(0.02)
    with Path(__file__).with_suffix(".worker").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
"""
WAITS = """
import os, time
from pathlib import Path

def test_{name}():
    Path(__file__).with_suffix(".new").write_text(str(os.getpid()))
    Path(__file__).with_suffix(".new").rename(Path(__file__).with_suffix(".pid"))
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.05)
"""
HANGS = """
import signal, subprocess, time
from pathlib import Path
import pytest

def go_on():
    child = subprocess.Popen(["sleep", "600"])
    with Path(__file__).with_suffix(".pid").open("a") as file:
        print(child.pid, file=file)
    try:
        time.sleep(600)
    finally:
        child.kill()
        child.wait()

@pytest.mark.timeout(1)
def test_waits_in_vain():
    go_on()

@pytest.mark.timeout(1)
def test_notices_nothing():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    go_on()

def test_behind_them():
    pass
"""
CHANCE = """
from pathlib import Path
from hypothesis import given, settings, strategies

def test_{name}(chance):
    write(f"chance {{chance.random()}}")

@settings(derandomize=False)
@given(strategies.integers())
def test_{name}_hypothesis(number):
    write(f"drawn {{number}}")

def write(line):
    with Path(__file__).with_suffix(".txt").open("a") as file:
        print(line, file=file)
"""
SKIPS = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_{name}(number):
    pytest.skip("not installed: java")
"""
QUARANTINED = """
import pytest

@pytest.mark.quarantine({arguments})
def test_{{name}}():
    assert not "in vain"
"""


UNITS = [f"tests/unit/test_of_unit_{number}" for number in range(3)]
SPARKS = [f"tests/spark/test_of_spark_{number}" for number in range(2)]


def make_project(path: Path) -> Path:
    (path / "conftest_of_all.py").write_text((ROOT / "conftest.py").read_text())
    (path / "conftest.py").write_text(CONFTEST)
    (path / "pytest.ini").write_text(SETTINGS)
    return path


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path)


def add(project: Path, folder: str, name: str, text: str) -> Path:
    path = project / folder / f"test_{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.format(name=name))
    return path


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", *arguments]
    return subprocess.run(
        command, cwd=project, capture_output=True, text=True, timeout=120, check=False, env=ENVIRONMENT
    )


@dataclass(frozen=True)
class Finished:
    """A run in two processes in which a test among processes failed once, what it left and what it said."""

    project: Path
    stdout: str

    def workers_of(self, *modules: str) -> set[str]:
        """The processes that ran the tests of *modules*."""
        return {line for module in modules for line in (self.project / f"{module}.worker").read_text().split()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    project = make_project(tmp_path_factory.mktemp("finished"))
    for module in (*UNITS, *SPARKS):
        add(project, str(Path(module).parent), Path(module).name.removeprefix("test_"), TELLS_WORKER)
    add(project, "tests/integration", "once", FAILS_ONCE)
    add(project, "tests/interop", "java", SKIPS)
    add(project, "tests/compat", "java_too", SKIPS)
    quarantined = QUARANTINED.format(arguments="since='2026-11-22', reason='nobody knows'")
    add(project, "tests/unit", "ill", quarantined)
    done = run(project, "-n", "2", "--second-look", "--seed", "17", "--costs", "-m", "not quarantine")
    assert done.returncode == 0, done.stdout + done.stderr
    return Finished(project, done.stdout)


# Shares.


def test_a_module_is_not_torn_and_neither_is_what_spark_shares(finished: Finished) -> None:
    assert [len(finished.workers_of(module)) for module in UNITS] == [1, 1, 1]
    assert len(finished.workers_of(*SPARKS)) == 1
    assert len(finished.workers_of(*UNITS, *SPARKS)) == 2


def test_it_is_said_what_each_module_has_cost(finished: Finished) -> None:
    _, _, said = finished.stdout.partition("what modules have cost")
    costs = re.findall(r"^ *(\d+\.\d) +(\d+\.\d) +\d+\.\d gw[01] +(tests/\S+)\.py$", said, re.MULTILINE)
    assert {*UNITS, *SPARKS, "tests/integration/test_once", "tests/compat/test_java_too"} <= {row[2] for row in costs}
    assert sum(float(took) for _, took, module in costs if module in UNITS) > 3 * 4 * 0.02
    assert len(re.findall(r"s until gw[01]: tests/", said)) == 2
    assert re.search(r"^ *\d+% of the processors' time idle$", said, re.MULTILINE)


COSTS = {
    "tests/spark": Expected(70, 120),
    "tests/fault/test_a.py": Expected(9, 50),
    "tests/sim/test_b.py": Expected(9, 10),
}


def test_as_many_modules_work_as_there_are_cores_and_the_others_wait_beside_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scheduling, "CORES", 2)
    works, waits = (
        ["tests/spark", "tests/sim/test_b.py", "tests/unit/test_new.py"],
        ["tests/fault/test_a.py", "tests/new"],
    )
    assert [scheduling.works(scope, COSTS) for scope in (*works, *waits)] == [True] * 3 + [False] * 2
    queue = [works[1], waits[0], works[2]]
    for under_way, taken in (
        ([], works[1]),
        (["tests/spark", *waits], works[1]),
        (["tests/spark", works[2]], waits[0]),
    ):
        assert scheduling.next_scope(queue, under_way, COSTS) == taken
    # Of one kind alone the first is as good as any.
    assert scheduling.next_scope(waits, [], COSTS) == waits[0]
    assert scheduling.next_scope(works, works[:2], COSTS) == works[0]


def test_half_of_the_processes_take_what_shares_and_the_others_when_nothing_else_is_left() -> None:
    java, plain = ["tests/interop/test_a.py", "tests/interop/test_b.py"], ["tests/fault/test_a.py", "tests/new"]
    assert scheduling.is_home([], [[], [], []])
    assert scheduling.is_home([], [java, plain, []])
    assert not scheduling.is_home([], [[*plain, java[0]], java[1:], []])
    assert scheduling.is_home(java, [java, java, java])
    assert scheduling.is_home([], [])
    queue = [plain[0], java[0], plain[1], java[1]]
    for takes_sharing, taken in ((True, java[0]), (False, plain[0]), (None, plain[0])):
        assert scheduling.next_scope(queue, ["tests/spark"] * 9, COSTS, takes_sharing=takes_sharing) == taken
    assert scheduling.next_scope(java, [], COSTS, takes_sharing=False) == java[0]
    assert scheduling.next_scope(plain, [], COSTS, takes_sharing=True) == plain[0]


def test_what_is_known_of_modules_is_known_of_those_that_are_there() -> None:
    table = costs_table.read()
    assert [module for module in table if not (ROOT / module).exists()] == []
    spark = sum(one.took_s for module, one in table.items() if module.startswith("tests/spark/"))
    assert scheduling.expected_costs()["tests/spark"].took_s == pytest.approx(spark)
    assert {"tests/spark", "tests/compat/test_apache_timers.py"} <= set(scheduling.expected_costs())


def test_what_has_run_is_written_down_and_what_is_gone_is_not(tmp_path: Path) -> None:
    table = tmp_path / "costs.tsv"
    for name in ("kept", "dear", "cheap"):
        add(tmp_path, "tests/unit", name, PASSES)
    table.write_text("9.0\t9.5\ttests/unit/test_kept.py\n9.0\t9.5\ttests/unit/test_gone.py\n")
    ran = {"tests/unit/test_dear.py": Expected(20, 30), "tests/unit/test_cheap.py": Expected(1, 1)}
    costs_table.write(ran, table, tmp_path)
    assert table.read_text().splitlines() == [
        "20.0\t30.0\ttests/unit/test_dear.py",
        "9.0\t9.5\ttests/unit/test_kept.py",
    ]


def test_who_may_have_begun_too_late_is_named_and_so_is_how_long_the_cores_idled() -> None:
    known = {"tests/unit/test_known.py": Expected(5, 50)}
    costs = [Cost(f"tests/unit/test_{name}.py", 5, 60, 0, "gw0") for name in ("known", "new")]
    assert ["test_new.py" in line for line in late(costs, known)] == [True]
    assert Machine(0, 10, 20).idle_since(Machine(0, 5, 10)) == 0.5


def test_a_process_rewrites_assertions_for_the_others(project: Path, request: pytest.FixtureRequest) -> None:
    good, broken = add(project, "tests/unit", "good", PASSES), add(project, "tests/unit", "broken", "def (:\n")
    (kept,) = collecting.rewrite([good, broken, project / "none.py"], request.config)
    assert kept.parent.parent == good.parent
    before = kept.stat()
    assert collecting.rewrite([good], request.config) == []
    done = run(project, "-n", "1", "tests/unit/test_good.py")
    assert done.returncode == 0, done.stdout
    after = kept.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns), "pytest has rewritten it again"


def test_a_process_looks_for_hypothesis_at_its_share_of_the_product() -> None:
    from hypothesis.internal.constants_ast import constants_from_module

    found = collecting.product_modules()
    assert "mqcore.extensions" in {module.__name__ for module in found}
    assert [module.__name__ for module in found if module.__name__.startswith("tests")] == []
    extensions = next(module for module in found if module.__name__ == "mqcore.extensions")
    assert list(constants_from_module(extensions)), "it has no constants"
    config = SimpleNamespace(workerinput={"workerid": "gw1", "workercount": 3})
    shares = []
    for worker in ("gw0", "gw1", "gw2"):
        config.workerinput["workerid"] = worker
        shares += collecting.share(found, config)
    assert sorted(map(id, shares)) == sorted(map(id, found))


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.slow)],
    ids=lambda number: number.name,
)
def test_who_is_told_to_end_ends_its_processes(project: Path, number: signal.Signals) -> None:
    pid_files = [
        add(project, f"tests/{folder}", f"waits_{folder}", WAITS).with_suffix(".pid") for folder in ("unit", "interop")
    ]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-n", "2"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    ) as running:
        try:
            wait_until(lambda: all(path.exists() for path in pid_files), 60, "both processes are at work")
            running.send_signal(number)
            assert running.wait(60) != 0
        finally:
            running.kill()
    assert [pid for pid in (int(path.read_text()) for path in pid_files) if is_alive(pid)] == []


# Time limits.


def test_what_hangs_is_named_once_and_its_processes_end(project: Path) -> None:
    pids = add(project, "tests/unit", "hangs", HANGS.replace("{", "{{").replace("}", "}}")).with_suffix(".pid")
    add(project, "tests/unit", "good", PASSES)
    done = run(project, "-n", "2")
    assert done.returncode == 1
    assert "FAILED tests/unit/test_hangs.py::test_waits_in_vain - Failed: Timeout" in done.stdout
    assert "crashed while running 'tests/unit/test_hangs.py::test_notices_nothing'" in done.stdout
    assert "2 failed, 2 passed" in done.stdout
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2
    # What was killed may not be there for long.
    wait_until(lambda: not any(is_alive(pid) for pid in started), 60, "what had been started has ended")


def is_alive(pid: int) -> bool:
    """Whether something runs there; who is to take in orphans may leave them lying for a while."""
    try:
        return not has_ended(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


# Second looks.


def failed(node_id: str, when: str = "call", **keywords: int) -> pytest.TestReport:
    return pytest.TestReport(node_id, ("", 0, ""), keywords, "failed", "said", when)  # type: ignore[arg-type]


def deserves_one(*reports: pytest.TestReport) -> bool:
    failures = Failures()
    for report in reports:
        failures.pytest_runtest_logreport(report)
    return failures.deserve_a_second_look()


@pytest.mark.parametrize("folder", second_look.FOLDERS)
def test_a_failure_among_processes_gets_a_second_look(folder: str) -> None:
    assert deserves_one(failed(f"{folder}/test_a.py::test_b[x/y]"))


@pytest.mark.parametrize("folder", ["tests/unit", "tests/compat", "tests/fault", "benchmarks/harness"])
def test_what_runs_in_one_process_or_tells_of_loss_gets_none(folder: str) -> None:
    assert not deserves_one(failed(f"{folder}/test_a.py::test_b"))
    assert not deserves_one(failed(f"{folder}/test_a.py::test_b"), failed("tests/integration/test_a.py::test_b"))


def test_a_fault_test_gets_none_wherever_it_is() -> None:
    assert not deserves_one(failed("tests/integration/test_a.py::test_b", fault=1))


def test_a_process_that_has_gone_gets_none() -> None:
    assert not deserves_one(failed("tests/integration/test_a.py::test_b", when="???"))


def test_more_than_two_failures_are_no_accident() -> None:
    reports = [failed(f"tests/integration/test_a.py::test_{number}") for number in range(FAILURES_MAX + 1)]
    assert deserves_one(*reports[:-1])
    assert not deserves_one(*reports)


def test_what_fails_once_among_processes_passes_and_is_named_and_recorded(finished: Finished) -> None:
    test = "tests/integration/test_once.py::test_once"
    assert f"passed alone: it fails by chance, find out why: {test}" in finished.stdout
    assert "1 failed, 20 passed, 6 skipped" in finished.stdout
    assert finished.stdout.splitlines()[-1] == f"What was said when it failed: {finished.project / RECORD}"
    record = (finished.project / RECORD).read_text()
    for said in (test, "what it said", "assert not first", "--seed=17", "passed alone"):
        assert said in record


def test_what_fails_again_fails(project: Path) -> None:
    add(project, "tests/interop", "always", FAILS_ALWAYS)
    done = run(project, "--second-look")
    assert done.returncode == 1
    assert "failed again" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_module_that_cannot_be_imported_gets_none(project: Path, processes: str) -> None:
    add(project, "tests/integration", "broken", "import nothing_of_this_name\n")
    add(project, "tests/integration", "once", FAILS_ONCE)
    done = run(project, "--second-look", "-n", processes)
    assert done.returncode != 0
    assert "SECOND LOOK" not in done.stdout


# Going on.


@pytest.mark.slow
def test_what_has_passed_on_this_tree_is_not_run_again(project: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(project)], check=True)
    (project / ".gitignore").write_text(f"__pycache__\n*.txt\n/{resuming.RECORD}\n")
    add(project, "tests/unit", "good", PASSES)
    add(project, "tests/interop", "java", SKIPS)
    add(project, "tests/integration", "once", FAILS_ONCE)
    first = run(project, "-n", "2", "--resume")
    assert first.returncode == 1
    assert "0 modules before, 1 in this run" in first.stdout
    for module in ("tests/integration/test_once.py", "tests/interop/test_java.py"):
        assert f"not passed: {module}" in first.stdout
    second = run(project, "-n", "2", "--resume")
    assert second.returncode == 0
    assert "1 modules before, 1 in this run" in second.stdout
    assert "1 passed, 3 skipped" in second.stdout
    # With nothing left to do a run is a success.
    assert run(project, "--resume", "tests/unit", "tests/integration").returncode == 0


def test_what_passed_on_another_tree_or_in_another_way_has_not_passed(tmp_path: Path) -> None:
    record = tmp_path / resuming.RECORD
    record.write_text("now\ttree\tway\ttests/unit/test_good.py\n")
    wanted = {("tree", "way"): {"tests/unit/test_good.py"}, ("tree", "another"): set(), ("another", "way"): set()}
    assert {key: resuming.Passed(record, *key).before for key in wanted} == wanted


def test_a_tree_is_what_git_knows_and_what_it_would_take(tmp_path: Path) -> None:
    with pytest.raises(pytest.UsageError, match="goes by what git knows"):
        resuming.tree_of(tmp_path)
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    seen = [resuming.tree_of(tmp_path)]
    for name, text in ((".gitignore", "*.so"), ("a.py", "a"), ("a.py", "b"), ("b.py", "b")):
        (tmp_path / name).write_text(text)
        seen.append(resuming.tree_of(tmp_path))
    assert len(set(seen)) == len(seen)
    (tmp_path / "built.so").write_text("made of the others")
    assert resuming.tree_of(tmp_path) == seen[-1]


# Seeds.


def test_a_seed_that_a_failure_says_repeats_all_choices_and_without_it_others_are_made(project: Path) -> None:
    choices = add(project, "tests/unit", "choices", CHANCE).with_suffix(".txt")
    add(project, "tests/integration", "always", FAILS_ALWAYS)

    def chosen(*arguments: str) -> tuple[str, list[str]]:
        """The line with the seed, and the choices."""
        stdout = run(project, "-q", *arguments).stdout
        # Nobody gets a second look who did not ask for one.
        assert "SECOND LOOK" not in stdout
        assert not (project / RECORD).exists()
        found = choices.read_text().splitlines()
        choices.unlink()
        (said,) = [line for line in stdout.splitlines() if line.startswith("SEED: ")]
        return said, found

    said, first = chosen()
    assert first[0].startswith("chance")
    assert len(first) > 2
    assert chosen("-n", "1", said.removeprefix("SEED: ")) == (said, first)
    other, others = chosen()
    assert other != said
    assert others[0] != first[0]
    assert others[1:] != first[1:]


def test_a_fixtures_choices_are_the_runs(chance: random.Random, request: pytest.FixtureRequest) -> None:
    assert chance.random() == random.Random(f"{request.config.option.seed}/{request.node.nodeid}").random()


# Tables.


def test_a_table_is_walked_to_its_end_and_each_row_that_fails_is_named(tmp_path: Path) -> None:
    seen: list[object] = []

    @walked("number, wanted", [(1, 1), pytest.param(2, 3, id="two"), (4, 4), (5, 6)])
    @walked("letter", "ab")
    def test_it(tmp_path: Path, letter: str, number: int, wanted: int) -> None:
        seen.append((tmp_path, letter, number))
        assert number == wanted

    assert list(inspect.signature(test_it).parameters) == ["tmp_path"]
    with pytest.raises(ExceptionGroup, match="2 of 4 rows fail") as caught:
        test_it(tmp_path=tmp_path)
    assert seen == [(tmp_path, letter, number) for number in (1, 2, 4, 5) for letter in "ab"]
    assert [one.__notes__ for one in caught.value.exceptions] == [
        ["row of number, wanted: two"],
        ["row of number, wanted: (5, 6)"],
    ]


def test_a_row_that_does_not_raise_as_it_should_fails() -> None:
    @walked("number", [1, 0])
    def test_it(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            _ = 1 / number

    with pytest.raises(BaseExceptionGroup, match="1 of 2 rows fail") as caught:
        test_it()
    assert "DID NOT RAISE" in str(caught.value.exceptions[0])


def test_a_table_without_rows_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="a table of number without rows tests nothing"):
        walked("number", [])


# The end.


def test_the_last_lines_say_what_was_not_tested(finished: Finished) -> None:
    lines, _, _ = finished.stdout.partition("SECOND LOOK")
    *_, skipped, ill, seed, _closing = lines.rstrip().splitlines()
    assert skipped == "NOT TESTED: 6 in tests/compat, tests/interop: not installed: java"
    assert ill == "IN QUARANTINE: tests/unit/test_ill.py::test_ill since 2026-11-22: nobody knows"
    assert seed == "SEED: --seed=17"


@pytest.mark.slow
def test_one_process_says_the_same_at_its_end(project: Path) -> None:
    add(project, "tests/interop", "java", SKIPS)
    add(project, "tests/unit", "good", PASSES)
    *_, skipped, closing = run(project, "-n", "0").stdout.splitlines()
    assert skipped == "NOT TESTED: 3 in tests/interop: not installed: java"
    assert "1 passed, 3 skipped" in closing


WRONG: Sequence[pytest.MarkDecorator] = (
    pytest.mark.quarantine,
    pytest.mark.quarantine(reason="why"),
    pytest.mark.quarantine(since="2026-11-22"),
    pytest.mark.quarantine(since="yesterday", reason="why"),
    pytest.mark.quarantine(since="2026-11-22", reason=""),
    pytest.mark.quarantine("2026-11-22", "why"),
)


@pytest.mark.parametrize("wrong", [decorator.mark for decorator in WRONG], ids=str)
def test_a_quarantine_needs_a_date_and_a_reason(wrong: pytest.Mark) -> None:
    with pytest.raises(pytest.UsageError, match="quarantine needs since"):
        described(wrong, "tests/unit/test_a.py::test_b")

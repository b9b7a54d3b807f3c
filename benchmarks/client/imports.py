"""How long it takes to import a client in a new process, beside other clients of queues that are installed.

    python -m benchmarks.client.imports [--rounds N]

Milliseconds from the first line of a program to the one behind the import, in interpreters that take turns; the least
of all rounds, which is what the machine's other work adds nothing to, and the least CPU time, which it adds little to.
Byte code is written, whatever the environment says: installed packages have it. The bar is for mqcore's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from typing import Final

import click

CLIENTS: Final = {
    "from mqcore.client import Client, Message": "mqcore",
    "from mqcore.aio import Client, Message": "mqcore",
    "from mqcore.client import Client, Consumer, Message": "mqcore",
    "import confluent_kafka": "confluent_kafka",
    "import aiokafka": "aiokafka",
}
IMPORT_MS_MAX: Final = 120.0
PROGRAM: Final = """
import time
begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
{}
print((time.perf_counter() - begin_s) * 1e3, (time.process_time() - begin_cpu_s) * 1e3)
"""


def import_ms(statement: str) -> tuple[float, float]:
    """Run *statement* in a new process and return the time and the CPU time; the interpreter's start does not count."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    program = [sys.executable, "-c", PROGRAM.format(statement)]
    done = subprocess.run(program, capture_output=True, text=True, check=True, env=variables)
    took_ms, cpu_ms = map(float, done.stdout.split())
    return took_ms, cpu_ms


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=15, show_default=True)
def main(rounds: int) -> None:
    """Print the least of each; exit code 1 when the bar is not met."""
    statements = [statement for statement, package in CLIENTS.items() if find_spec(package)]
    for statement in statements:
        import_ms(statement)  # its byte code is written, and in the page cache
    took: dict[str, list[tuple[float, float]]] = {statement: [] for statement in statements}
    for _ in range(rounds):
        for statement in statements:
            took[statement].append(import_ms(statement))
    for statement, found in took.items():
        least_ms, cpu_ms = (min(column) for column in zip(*found, strict=True))
        click.echo(f"{statement:52} {least_ms:6.0f} ms {cpu_ms:6.0f} ms CPU")
    ours, _ = min(next(iter(took.values())))
    click.echo(f"{'met ' if ours <= IMPORT_MS_MAX else 'MISSED'} import at most {IMPORT_MS_MAX:.0f} ms: {ours:.0f}")
    sys.exit(0 if ours <= IMPORT_MS_MAX else 1)


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.client.imports")

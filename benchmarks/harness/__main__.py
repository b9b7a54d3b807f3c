"""The command line: `python -m benchmarks.harness send|pull|compare`."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from benchmarks.harness import report
from benchmarks.harness.brokers import BrokerSpec, address_of, check_disk, running_broker
from benchmarks.harness.compare import BAR_BODY_SIZE, BAR_PULL_SIZE, Bar, LoadComparison, Pair, Plan, compare_load
from benchmarks.harness.control import ControlError
from benchmarks.harness.loads import Load, LoadSession, Measurement
from benchmarks.harness.memory import filled_memory
from mqcore.codes import SerializeType

DEFAULT_LOADS = ("send:8x32", "send:64x1", "send:1x1", "pull:8x1")

Command = Callable[..., Any]


def _together(options: list[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    """Return one decorator that adds all *options*, in this order, to a command's help."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


LOAD_OPTIONS = _together(
    [
        click.option(
            "--others-max",
            default=0.08,
            show_default=True,
            type=click.FloatRange(0, 1),
            help="Share of the machine that others may use during a repetition.",
        ),
        click.option("--seconds", default=2.0, show_default=True, help="Length of a repetition."),
        click.option(
            "--warm-up",
            default=60.0,
            show_default=True,
            help="Seconds of load before the first repetition, at most; it ends when the broker gets no faster.",
        ),
        click.option(
            "--body-size", default=1024, show_default=True, type=click.IntRange(min=0), help="Bytes of a message body."
        ),
        click.option("--queues", default=8, show_default=True, type=click.IntRange(1, 64), help="Queues of the topic."),
        click.option(
            "--header",
            default="json",
            show_default=True,
            type=click.Choice(["json", "rocketmq"]),
            help="Form of the request header; Java clients send JSON.",
        ),
        click.option(
            "--batch-size",
            default=32,
            show_default=True,
            type=click.IntRange(2, 1024),
            help="Messages of a batch send.",
        ),
        click.option(
            "--pull-size",
            default=32,
            show_default=True,
            type=click.IntRange(1, 32),
            help="Messages of a pull, at most.",
        ),
        click.option(
            "--fill",
            default=200_000,
            show_default=True,
            type=click.IntRange(min=1),
            help="Messages a pulled topic is filled with.",
        ),
        click.option("--load-cpu", type=int, help="Pin the load generator to this processor."),
        click.option(
            "--json",
            "json_file",
            type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
            help="Write everything that was measured to this file; - is standard output.",
        ),
    ]
)

RUN_OPTIONS = _together(
    [
        click.option("--target", required=True, metavar="HOST:PORT", help="The broker."),
        click.option(
            "--pid", type=int, help="The broker's process; its CPU time and that of its children is measured."
        ),
        click.option("--topic", default="benchmark", show_default=True, help="Created if it is not there."),
        click.option("--connections", default=8, show_default=True, type=click.IntRange(min=1)),
        click.option(
            "--window",
            default=32,
            show_default=True,
            type=click.IntRange(min=1),
            help="Requests in flight on each connection.",
        ),
        click.option("--count", default=0, help="End a repetition after so many requests instead, if that is earlier."),
        click.option("--repetitions", default=5, show_default=True, type=click.IntRange(min=1)),
    ]
)


def load_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the Load settings that the command line's load options stand for; pin this process if they say so."""
    if options["load_cpu"] is not None:
        os.sched_setaffinity(0, {options["load_cpu"]})
    return {
        "body_size": options["body_size"],
        "queue_count": options["queues"],
        "pull_size": options["pull_size"],
        "fill_messages": options["fill"],
        "serialize_type": SerializeType.JSON if options["header"] == "json" else SerializeType.ROCKETMQ,
    }


def show(text: str, options: dict[str, Any]) -> None:
    """Print *text*; to standard error if standard output is to hold nothing but JSON."""
    click.echo(text, err=str(options["json_file"]) == "-")


def write_json(file: Path | None, value: dict[str, Any]) -> None:
    """Write *value* where --json says; nowhere if it was not given."""
    text = json.dumps(value, indent=1)
    if file is not None and str(file) == "-":
        click.echo(text)
    elif file is not None:
        file.write_text(text + "\n")


def run_load(load: Load, options: dict[str, Any]) -> None:
    """Repeat one load on a broker that is already running, and print what was seen."""
    measurements: list[Measurement] = []
    session = LoadSession(address_of(options["target"]), load, options["topic"], broker_pid=options["pid"])
    session.warm_up(options["seconds"], options["warm_up"], options["others_max"])
    for _ in range(options["repetitions"]):
        measurements.append(session.measure(options["seconds"], request_limit=options["count"]))
        click.echo(report.repetition_line(measurements[-1]), err=True)
    show(report.table(report.HEADINGS, [report.summary_row(options["target"], measurements)]), options)
    write_json(options["json_file"], {"machine": report.machine(), "measurements": [asdict(m) for m in measurements]})


class HarnessGroup(click.Group):
    """Shows what a broker or a user did wrong as one line instead of a traceback."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (ControlError, OSError, ValueError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=HarnessGroup)
def main() -> None:
    """Load RocketMQ brokers and compare them."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # brokers and stores are cleared away


@main.command()
@RUN_OPTIONS
@click.option("--tls", is_flag=True, help="Connect with TLS; any certificate will do.")
@click.option("--batch", is_flag=True, help="Send --batch-size messages in each request.")
@LOAD_OPTIONS
def send(**options: Any) -> None:
    """Send to one broker and check that its queues grow by what it acknowledged."""
    kind = "batch" if options["batch"] else "send"
    text = f"{'tls-' if options['tls'] else ''}{kind}:{options['connections']}x{options['window']}"
    run_load(Load.parse(text, batch_size=options["batch_size"], **load_settings(options)), options)


@main.command()
@RUN_OPTIONS
@LOAD_OPTIONS
def pull(**options: Any) -> None:
    """Pull from one broker, over and over from a topic that is filled first, and check every record's place."""
    text = f"pull:{options['connections']}x{options['window']}"
    run_load(Load.parse(text, **load_settings(options)), options)


@main.command()
@click.option(
    "--a",
    "first",
    default="mqcore",
    show_default=True,
    metavar="BROKER",
    help="First broker; ratios are first by second.",
)
@click.option("--b", "second", default="apache:4.9.8", show_default=True, metavar="BROKER", help="Second broker.")
@click.option(
    "--load",
    "loads",
    multiple=True,
    default=DEFAULT_LOADS,
    show_default=True,
    metavar="KIND:CxW",
    help="send, batch, pull or transaction, for TLS tls-send and so on; connections x requests in flight on each."
    " May be given again.",
)
@click.option(
    "--pairs",
    default=7,
    show_default=True,
    type=click.IntRange(min=1),
    help="Quiet pairs of repetitions wanted for each load.",
)
@click.option(
    "--lives",
    default=1,
    show_default=True,
    type=click.IntRange(min=1),
    help="Start both brokers so often, with new stores, and make these pairs in each life: two starts of one broker"
    " differ by a few percent. They take turns in starting first.",
)
@click.option(
    "--retries",
    default=14,
    show_default=True,
    type=click.IntRange(min=0),
    help="Noisy pairs of a load that may be made again.",
)
@click.option(
    "--quiet-wait",
    default=120.0,
    show_default=True,
    help="Seconds to wait, at most, before each pair until others leave the machine alone.",
)
@click.option(
    "--property",
    "properties",
    multiple=True,
    metavar="NAME=VALUE",
    help="Broker setting for both sides. May be given again.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where the stores go; a disk, not a tmpfs. Default: the system's folder for temporary files.",
)
@click.option("--check", is_flag=True, help="Exit with 1 unless every bar that applies is met.")
@click.option(
    "--fill-memory",
    is_flag=True,
    help="Fill free memory with page cache first, as on a machine that has been up for a while.",
)
@LOAD_OPTIONS
def compare(**options: Any) -> None:
    """Start two brokers and run every load on both in turn."""
    specs = (BrokerSpec.parse(options["first"]), BrokerSpec.parse(options["second"]))
    settings = load_settings(options)
    loads = [Load.parse(text, batch_size=options["batch_size"], **settings) for text in options["loads"]]
    plan = Plan(
        seconds=options["seconds"],
        warm_up_seconds_max=options["warm_up"],
        pair_count=options["pairs"],
        retry_count=options["retries"],
        others_share_max=options["others_max"],
        quiet_wait_seconds_max=options["quiet_wait"],
    )
    comparisons: list[LoadComparison] = []
    try:
        run_comparison(specs, loads, plan, options, comparisons)
    finally:  # an hour's figures are worth showing even if a broker failed in the last load
        bars = report.bar_results(comparisons, specs[0].role) if bars_apply(specs, settings) else []
        show_comparison((specs[0].label, specs[1].label), comparisons, bars, options)
    if options["check"] and not (bars and all(ratio is not None and bar.is_met(ratio) for bar, ratio in bars)):
        sys.exit(1)


def run_comparison(
    specs: tuple[BrokerSpec, BrokerSpec],
    loads: Sequence[Load],
    plan: Plan,
    options: dict[str, Any],
    comparisons: list[LoadComparison],
) -> None:
    """Run the loads one after the other in each life of the brokers; *comparisons* gets what was seen of each."""
    with ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(dir=options["directory"], prefix="benchmark-")
        directory = Path(stack.enter_context(temporary))
        if options["fill_memory"]:
            size = stack.enter_context(filled_memory(directory))
            click.echo(f"filled {size / 2**30:.1f} GiB of free memory with page cache", err=True)
        for number in range(options["lives"]):
            with tempfile.TemporaryDirectory(dir=directory, prefix=f"life-{number}-") as life:
                run_life(specs, loads, plan, options, Path(life), comparisons, is_turned=number % 2 == 1)


def run_life(
    specs: tuple[BrokerSpec, BrokerSpec],
    loads: Sequence[Load],
    plan: Plan,
    options: dict[str, Any],
    directory: Path,
    comparisons: list[LoadComparison],
    *,
    is_turned: bool,
) -> None:
    """Start both brokers, run the loads and add what was seen of each to *comparisons*, in their order.

    With *is_turned* the second broker starts first, and is loaded first: what lies where in memory goes by it.
    """
    properties = dict(text.partition("=")[::2] for text in options["properties"])
    folders = (directory / "a", directory / "b")
    for folder in folders:
        folder.mkdir()
    with ExitStack() as stack:
        running = {
            spec_at: stack.enter_context(running_broker(specs[spec_at], folders[spec_at], properties))
            for spec_at in ((1, 0) if is_turned else (0, 1))
        }
        first, second = running[0], running[1]

        def on_pair(pair: Pair) -> None:
            check_disk(directory)
            for side, measurement in ((first, pair.first), (second, pair.second)):
                click.echo(f"{side.label}  {report.repetition_line(measurement)}", err=True)
            if pair.dropped:
                click.echo(f"dropped: {pair.dropped}", err=True)

        for number, load in enumerate(loads):
            seen = compare_load((first, second), load, plan, on_pair, is_turned=is_turned)
            if number < len(comparisons):
                comparisons[number] = comparisons[number].with_more(seen)
            else:
                comparisons.append(seen)


def show_comparison(
    labels: tuple[str, str],
    comparisons: Sequence[LoadComparison],
    bars: Sequence[tuple[Bar, float | None]],
    options: dict[str, Any],
) -> None:
    """Print the table and the bars, and write the JSON file."""
    show(report.comparison_table(labels, comparisons), options)
    if options["check"] and not bars:
        show("no bar applies to these brokers and loads", options)
    for bar, ratio in bars:
        show(report.bar_line(bar, ratio), options)
    write_json(options["json_file"], report.as_json(shown_settings(options), labels, comparisons, bars))


def bars_apply(specs: tuple[BrokerSpec, BrokerSpec], settings: dict[str, Any]) -> bool:
    """Whether this is the comparison that the bars speak of: mqcore first, Apache's 4.9 second, 1 KiB, pulls of 32."""
    first, second = specs
    is_named = first.kind == "mqcore" and second.is_apache and second.version.startswith("4.9")
    return (
        is_named
        and first.role == second.role
        and settings["body_size"] == BAR_BODY_SIZE
        and settings["pull_size"] == BAR_PULL_SIZE
    )


def shown_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Return the command line as values that JSON can hold."""
    return {name: str(value) if isinstance(value, Path) else value for name, value in options.items()}


if __name__ == "__main__":
    main(prog_name="python -m benchmarks.harness")

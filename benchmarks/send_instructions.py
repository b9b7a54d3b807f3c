"""How many instructions a send worker's loop takes for a message, by callgrind: a busy machine does not change them.

    python benchmarks/send_instructions.py [--messages 20000] [--connections 1 32] [--body 1024]

Each of so many connections has one message under way, so that a turn of the loop has about as many. What is counted is
what runs below the loop's ``turn``, the looking out for the next message included: how long that lasts is a matter of
time, so that the figure of one connection moves by some per mille. What the kernel does, and its clock that is read
without it outside of valgrind, is not. It needs valgrind.
"""

from __future__ import annotations

import argparse
import os
import re
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "unit")]

from fast_rig import Log, shared_segment  # noqa: E402
from test_fast_send_loop import LoopRig, send_request  # noqa: E402

COLLECTED = "__pyx_f_6mqcore_5_fast_4send_4loop_turn"
LENGTH = struct.Struct(">i")
FILE_SIZE = 1 << 28


def serve(directory: str) -> None:
    """Be the worker: say where it listens, and go on until standard input ends."""
    with shared_segment() as segment:
        log = Log(Path(directory), segment, file_size=FILE_SIZE)
        rig = LoopRig(log, commit_log_file_size=FILE_SIZE)
        print(rig._listener.getsockname()[1], flush=True)
        sys.stdin.read()
        print(rig.word("units"), rig.word("turns"), flush=True)
        rig.close()


def exchange(port: int, connections: int, messages: int, body: int) -> None:
    """Send *messages* and read their answers, each connection one after the other."""
    frame = send_request(1, bytes(body)).encode()
    clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    left = messages - connections
    under_way = connections
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client, selectors.EVENT_READ)
            client.sendall(frame)
        while under_way:
            for key, _ in selector.select():
                client = key.fileobj
                assert isinstance(client, socket.socket)
                (size,) = LENGTH.unpack(read_all(client, LENGTH.size))
                read_all(client, size)
                if left > 0:
                    left -= 1
                    client.sendall(frame)
                else:
                    under_way -= 1
    for client in clients:
        client.close()


def read_all(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = client.recv(size - len(data))
        assert more, "the loop has closed the connection"
        data += more
    return data


def measure(connections: int, messages: int, body: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "callgrind.out"
        command = [
            "valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", f"--toggle-collect={COLLECTED}",
            sys.executable, __file__, "--serve", directory,
        ]  # fmt: skip
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        ) as child:
            assert child.stdin is not None
            assert child.stdout is not None
            line = child.stdout.readline()
            assert line, "valgrind did not start the loop"
            exchange(int(line), connections, messages, body)
            child.stdin.close()
            units, turns = map(int, child.stdout.readline().split())
        total = int(re.findall(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)[-1])
    print(
        f"{connections:3} connections: {total / units:9,.1f} instructions a message, {units / turns:6.1f} in a turn",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 32])
    parser.add_argument("--body", type=int, default=1024, help="bytes of a message")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve)
        return
    if shutil.which("valgrind") is None:
        parser.error("valgrind is not installed")
    for connections in arguments.connections:
        measure(connections, arguments.messages, arguments.body)


if __name__ == "__main__":
    main()

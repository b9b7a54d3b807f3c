"""``python -m tests.fuzz.under COMMAND...``: run a command over the sanitized build.

What the sanitizers say goes to files (a test's own output may be kept from sight). They are shown at the end, and any
of them makes the run a failure, whichever process it was of.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.playing import environment, missing


def run(command: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="mqcore-sanitizers-") as directory:
        names = ("ASAN_OPTIONS", "UBSAN_OPTIONS")
        said = {name: f"{environment()[name]}:log_path={directory}/said" for name in names}
        code = subprocess.run(command, env=environment() | said).returncode
        reports = [path.read_text(errors="replace") for path in sorted(Path(directory).iterdir())]
    print(*reports, sep="\n")
    return code or int(bool(reports))


if __name__ == "__main__":
    sys.exit(missing() or run(sys.argv[1:]))

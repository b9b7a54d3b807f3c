"""The entry point of the command ``mqcore``. It runs without click and rich, to say that they are missing."""

from __future__ import annotations

import sys

EXTRA_PACKAGES = ("click", "rich")
EXIT_ERROR = 1


def main() -> None:
    """Run the command line and exit."""
    try:
        from mqcore.admin.command_line import cli
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in EXTRA_PACKAGES:
            raise
        sys.stderr.write(
            f"mqcore: the command line needs the package {error.name}, which comes with mqcore[cli]: "
            f"{sys.executable} -m pip install {' '.join(EXTRA_PACKAGES)}\n"
        )
        sys.exit(EXIT_ERROR)
    cli(prog_name="mqcore")


if __name__ == "__main__":
    main()

"""What runs in the process that plays one target: see playing.py."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.playing import BUILD, NOTE_SIZE, noted
from tests.fuzz.seeds import seeds_of


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(BUILD))
    from mqcore_fuzz import Player

    target, *rest = arguments
    if rest[0] == "--replay":
        if not Player(target, [], 0, bytearray(NOTE_SIZE)).try_one(Path(rest[1]).read_bytes()):
            sys.exit("a promise is broken")
        return
    inputs, seed, note = rest
    player = Player(target, seeds_of(target), int(seed), noted(note))
    player.play(int(inputs))
    print(f"{target}: {int(inputs):,} inputs, {player.seed_count} of them worth keeping")


if __name__ == "__main__":
    main(sys.argv[1:])

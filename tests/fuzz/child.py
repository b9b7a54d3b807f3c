"""What runs in the process that plays one target: see playing.py."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fuzz.playing import BUILD, NOTE_SIZE, noted
from tests.fuzz.seeds import seeds_of
from tests.fuzz.twins import TWINS


def main(arguments: list[str]) -> None:
    sys.path.insert(0, str(BUILD))
    from mqcore_fuzz import Player

    target, *rest = arguments
    played = TWINS.get(target, target)
    if rest[0] == "--replay":
        player = Player(played, [], 0, bytearray(NOTE_SIZE))
        if not player.try_one(Path(rest[1]).read_bytes()):
            sys.exit(f"a promise is broken: {player.error!r}")
        return
    inputs, seed, note = rest
    player = Player(played, seeds_of(target), int(seed), noted(note))
    player.play(int(inputs))
    print(f"{target}: {int(inputs):,} inputs, {player.seed_count} of them worth keeping")


if __name__ == "__main__":
    main(sys.argv[1:])

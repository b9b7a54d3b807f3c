"""``python -m mqcore``: the command ``mqcore``, where its script is not on the path."""

from __future__ import annotations

from mqcore.admin.main import main

if __name__ == "__main__":
    main()
